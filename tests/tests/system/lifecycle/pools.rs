//! Programs whose far memory is a pool of memory nodes: nodes that are killed and stopped under load, with and without replicas.

use super::nodes::{PATHS, Test, launch_with, trial};
use super::operators::two_more_rounds;
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Running, c_program};
use hinterland_tests::ledger::LiveLedger;
use hinterland_tests::node::{Node, Refusing, pool_url};
use hinterland_tests::suite::{self, Trial};
use nix::sys::signal::Signal;
use std::time::Duration;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        add(format!("lifecycle::pools::killed::{path}"), Box::new(move |test| killed(test, path)));
        add(format!("lifecycle::pools::stopped::{path}"), Box::new(move |test| stopped(test, path)));
        add(format!("lifecycle::pools::no_replica::{path}"), Box::new(move |test| no_replica(test, path)));
    }
    for path in PATHS {
        add(format!("lifecycle::pools::absent::{path}"), Box::new(move |test| absent(test, path)));
        add(format!("lifecycle::pools::stripes::{path}"), Box::new(move |test| stripes(test, path)));
        add(format!("lifecycle::pools::outlived::{path}"), Box::new(move |test| outlived(test, path)));
    }
    add("lifecycle::pools::refusals".into(), Box::new(refusals));
    trials
}

/// Three nodes, and the URL of their pool.
pub fn cluster(test: &str) -> Result<(Vec<Node>, String)> {
    let nodes = (0..3).map(|n| Node::start(&format!("{test}-{n}"), "512M")).collect::<Result<Vec<_>>>()?;
    let url = pool_url(&nodes);
    Ok((nodes, url))
}

/// `rounds` on a pool.
pub fn start(test: &str, path: &str, far: &str, replicas: &str, more: &[&str]) -> Result<Running> {
    let program = c_program("rounds", &[])?.display().to_string();
    let flags = ["--fault-path", path, "--far", far, "--replicas", replicas];
    let mut running = launch_with(test, &flags, &[&[&*program, "32"], more].concat())?.start()?;
    running.wait_for("round 2\n")?;
    Ok(running)
}

/// Has the program rest until some of what was lost is rebuilt: while it works it may replace all of that first.
pub fn rest_until_rebuilt(running: &mut Running) -> Result<()> {
    let file = running.directory.join("rest");
    std::fs::write(&file, "")?;
    running.wait_for("resting\n")?;
    let ledger = LiveLedger::of(running.pid)?;
    while ledger.rebuilt_pages() == 0 {
        ensure!(!running.below().is_empty(), "the program has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(std::fs::remove_file(file)?)
}

/// Lets the program finish: every byte was right. How long the longest page took is printed, not judged.
pub fn finish(running: Running) -> Result<serde_json::Value> {
    std::fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    ended.expect(0, "done, longest ")?.expect_paging()?;
    let longest = ended.stdout.rsplit("longest ").next().and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    let longest = longest.with_context(|| format!("no time in: {}", ended.stdout))?;
    println!("{}: the longest page took {longest} ms", ended.directory().display());
    ended.stats()
}

fn killed(test: &str, path: &str) -> Result<()> {
    let (nodes, url) = cluster(test)?;
    first_killed(test, path, nodes, &url)
}

/// The run goes on without the first of three nodes.
pub fn first_killed(test: &str, path: &str, mut nodes: Vec<Node>, url: &str) -> Result<()> {
    let mut running = start(test, path, url, "2", &["fork"])?;
    let gone = nodes.remove(0);
    gone.kill()?;
    running.wait_for("round 5\n")?;
    rest_until_rebuilt(&mut running)?;
    let stats = finish(running)?;
    let backends = stats["backends"].as_array().context("backends")?;
    ensure!(backends.len() == 3, "{stats}");
    ensure!(backends[0]["losses"].as_u64() > Some(0) && backends[0]["pages"] == 0, "{stats}");
    let rebuilt = backends.iter().filter_map(|backend| backend["rebuilt_pages"].as_u64()).sum::<u64>();
    ensure!(rebuilt > 0, "nothing was rebuilt: {stats}");
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// With parity instead of replicas the run goes on without the first of four nodes, and what it had is computed and stored anew.
fn stripes(test: &str, path: &str) -> Result<()> {
    let mut nodes = (0..4).map(|n| Node::start(&format!("{test}-{n}"), "512M")).collect::<Result<Vec<_>>>()?;
    let url = format!("{}?erasure=2+1", pool_url(&nodes));
    let mut running = start(test, path, &url, "1", &["fork"])?;
    nodes.remove(0).kill()?;
    running.wait_for("round 5\n")?;
    rest_until_rebuilt(&mut running)?;
    let stats = finish(running)?;
    let backends = stats["backends"].as_array().context("backends")?;
    ensure!(backends.len() == 4 && backends[0]["losses"].as_u64() > Some(0), "{stats}");
    let rebuilt = backends.iter().filter_map(|backend| backend["rebuilt_pages"].as_u64()).sum::<u64>();
    ensure!(rebuilt > 0, "nothing was stored anew: {stats}");
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// Of four nodes two are not there: they are named at once and in the summary.
fn absent(test: &str, path: &str) -> Result<()> {
    let nodes = (0..2).map(|n| Node::start(&format!("{test}-{n}"), "512M")).collect::<Result<Vec<_>>>()?;
    let nobody = [Refusing::new()?, Refusing::new()?];
    let dead = nobody.each_ref().map(|nobody| nobody.url.clone());
    let url = format!("{},{},{}", dead[0], pool_url(&nodes), dead[1]);
    let mut running = start(test, path, &url, "2", &[])?;
    let warning =
        |url: &String| format!("warning: the memory node {url} does not answer; the run goes on with the others");
    // While it runs.
    suite::wait_until("the absent nodes are named", || {
        let said = std::fs::read_to_string(running.directory.join("stderr"))?;
        Ok(dead.iter().all(|url| said.contains(&warning(url))))
    })?;
    running.wait_for("round 3\n")?;
    std::fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    ended.expect(0, "done, longest ")?.expect_paging()?;
    ensure!(dead.iter().all(|url| ended.stderr.matches(&warning(url)).count() == 1), "{}", ended.stderr);
    let line = ended.stderr.lines().find(|line| line.trim_start().starts_with("not reached"));
    ensure!(line.is_some_and(|line| dead.iter().all(|url| line.contains(url))), "{}", ended.stderr);
    let stats = ended.stats()?;
    for (index, absent, losses) in [(0, 1, 0), (1, 0, 0), (2, 0, 0), (3, 1, 0)] {
        let row = &stats["backends"][index];
        ensure!(row["absent"] == absent && row["losses"] == losses, "{stats}");
        ensure!(row["removable"].is_boolean() && row["last_pages"].is_u64(), "{stats}");
    }
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

fn stopped(test: &str, path: &str) -> Result<()> {
    let (nodes, url) = cluster(test)?;
    let mut running = start(test, path, &url, "2", &["fork"])?;
    nodes[1].signal(Signal::SIGSTOP)?;
    // In a whole round nobody can miss it.
    two_more_rounds(&mut running)?;
    nodes[1].signal(Signal::SIGCONT)?;
    two_more_rounds(&mut running)?;
    // What it still knows is given up, not read.
    let stats = finish(running)?;
    ensure!(stats["backends"][1]["losses"].as_u64() > Some(0), "{stats}");
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// The loss of a node ends the run, with its name.
fn no_replica(test: &str, path: &str) -> Result<()> {
    let (nodes, url) = cluster(test)?;
    let running = start(test, path, &url, "1", &[])?;
    nodes[2].signal(Signal::SIGKILL)?;
    let ended = running.end()?;
    ended.expect(125, "round")?.expect_refusal(&[&format!("the memory node {} is lost: ", nodes[2].url)])?;
    Ok(())
}

/// Pages that are local when the one node is lost that has their copies are stored again, although they did not change.
fn outlived(test: &str, path: &str) -> Result<()> {
    let mut nodes = (0..2).map(|n| Node::start(&format!("{test}-{n}"), "512M")).collect::<Result<Vec<_>>>()?;
    let program = c_program("outlives", &[])?.display().to_string();
    let flags = ["--fault-path", path, "--far", &pool_url(&nodes)];
    let mut running = launch_with(test, &flags, &[&program, "4", "64"])?.start()?;
    running.wait_for("local\n")?;
    ensure!(nodes[0].status()?["written_bytes"].as_u64() > Some(1 << 20), "no copy is lost with the node");
    nodes.remove(0).kill()?;
    let ledger = LiveLedger::of(running.pid)?;
    while ledger.losses() == 0 {
        ensure!(!running.below().is_empty(), "the program has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::write(running.directory.join("lost"), "")?;
    let ended = running.end()?;
    ended.expect(0, "done")?.expect_paging()?;
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

fn refusals(test: &str) -> Result<()> {
    let node = Node::start(test, "16M")?;
    let two = format!("{},{}", node.url, node.url.replace("127.0.0.1", "127.0.0.2"));
    for (index, (far, replicas, words)) in [
        (&*two, "3", "--replicas: '"),
        (&*two, "3", "3 replicas need 3 nodes, and here are 2"),
        (&*two, "some", "'some' is not a number of replicas"),
        (&*two, "2", "Connection refused"),
        ("compressed", "2", "2 replicas need as many memory nodes; name them with --far"),
        (&*format!("{},{}", node.url, node.url), "1", "is named twice"),
        (&*format!("{two}?erasure=2+1"), "1", "stripes of 2+1 pages need 3 nodes, and here are 2"),
        (&*format!("{two}?erasure=two"), "1", "'two' is no value for erasure; write data pages and parity pages"),
    ]
    .into_iter()
    .enumerate()
    {
        let flags = ["--far", far, "--replicas", replicas];
        let ended = launch_with(&format!("{test}-{index}"), &flags, &["true"])?.run()?;
        ended.expect(125, "")?.expect_refusal(&[words])?;
    }
    node.end()?;
    Ok(())
}
