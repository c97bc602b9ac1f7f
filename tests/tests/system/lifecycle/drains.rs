//! Programs that grow while an operator drains or shrinks a node of their pool: that never hurts them more than its loss would.

use super::nodes::{PATHS, Test, launch_with, trial};
use super::operators::two_more_rounds;
use super::pools;
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Running, c_program};
use hinterland_tests::node::{Node, pool_url};
use hinterland_tests::suite::{self, Trial};
use nix::sys::signal::Signal;

/// What the node that lends less keeps: one slab.
const LESS: &str = "2M";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        add(format!("lifecycle::drains::one_of_two::{path}"), Box::new(move |test| one_of_two(test, path, false)));
        add(format!("lifecycle::drains::shrunk::{path}"), Box::new(move |test| one_of_two(test, path, true)));
        add(format!("lifecycle::drains::then_lost::{path}"), Box::new(move |test| then_lost(test, path)));
        add(format!("lifecycle::drains::ended::{path}"), Box::new(move |test| ended(test, path)));
        add(format!("lifecycle::drains::removed::{path}"), Box::new(move |test| removed(test, path)));
        add(format!("lifecycle::drains::stripes::{path}"), Box::new(move |test| stripes(test, path)));
    }
    trials
}

fn nodes(test: &str, count: usize) -> Result<Vec<Node>> {
    (0..count).map(|n| Node::start(&format!("{test}-{n}"), "256M")).collect()
}

/// A program that has grown to half of what it needs, and pages on the nodes.
fn half_grown(test: &str, path: &str, far: &str, replicas: &str) -> Result<Running> {
    let program = c_program("grow", &[])?.display().to_string();
    let flags = ["--fault-path", path, "--far", far, "--replicas", replicas];
    let mut running = launch_with(test, &flags, &[&program, "96"])?.start()?;
    running.wait_for("half\n")?;
    Ok(running)
}

/// Lets it grow to the end: every byte was right.
fn grow(running: Running) -> Result<Ended> {
    std::fs::write(running.directory.join("go"), "")?;
    let ended = running.end()?;
    ended.expect(0, "half\ndone\n")?.expect_paging()?;
    Ok(ended)
}

/// One of two nodes is drained, or lends less: what is new has one replica.
fn one_of_two(test: &str, path: &str, shrunk: bool) -> Result<()> {
    let nodes = nodes(test, 2)?;
    let running = half_grown(test, path, &pool_url(&nodes), "2")?;
    if shrunk {
        nodes[0].told(test, "resize", &[LESS])?;
    } else {
        nodes[0].told(test, "drain", &[])?;
    }
    let before = nodes[0].status()?["used_bytes"].as_u64();
    if !shrunk {
        nowhere(test, &nodes[0])?;
    }
    let stats = grow(running)?.stats()?;
    ensure!(before > Some(0), "the node had nothing");
    ensure!(stats["backends"].as_array().is_some_and(|all| all.iter().all(|row| row["losses"] == 0)), "{stats}");
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// A drained node whose pages have nowhere to go says whose they are; all of them have another copy.
fn nowhere(test: &str, node: &Node) -> Result<()> {
    suite::wait_until("a program that has told about its copies", || {
        let status = node.status()?;
        Ok(status["removable"] == true && status["largest_sessions"][0]["copies"] == "spare")
    })?;
    let status = node.status()?;
    ensure!(status["largest_sessions"][0]["movable"] == false && status["last_pages"] == 0, "{status}");
    let said = node.told(test, "status", &[])?;
    said.expect(0, "safe to remove now: yes, unless another node of the pool went in the last 10 seconds\n")?;
    said.expect(0, "no other node with room is known for the pages of grow ")?;
    Ok(())
}

/// Without replicas, a node that is ended in an orderly way is emptied first: nobody misses it.
fn ended(test: &str, path: &str) -> Result<()> {
    let mut nodes = nodes(test, 3)?;
    let running = half_grown(test, path, &pool_url(&nodes), "1")?;
    let gone = nodes.remove(0);
    suite::wait_until("a program that has told that it can move its pages", || {
        let status = gone.status()?;
        ensure!(status["used_bytes"].as_u64() > Some(0), "the node has nothing: {status}");
        ensure!(status["removable"] == false, "without replicas: {status}");
        Ok(status["largest_sessions"][0]["movable"] == true)
    })?;
    let ended = gone.end()?;
    ensure!(ended.stderr.contains("drained"), "{ended:?}");
    let stats = grow(running)?.stats()?;
    ensure!(stats["backends"].as_array().is_some_and(|all| all.iter().all(|row| row["losses"] == 0)), "{stats}");
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// A node that says that it can be removed is killed, while the program works.
fn removed(test: &str, path: &str) -> Result<()> {
    let mut nodes = nodes(test, 3)?;
    let mut running = pools::start(test, path, &pool_url(&nodes), "2", &[])?;
    let mut willing = None;
    suite::wait_until("a node that can be removed", || {
        for (index, node) in nodes.iter().enumerate() {
            let status = node.status()?;
            if status["removable"] == true && status["used_bytes"].as_u64() > Some(0) {
                node.signal(Signal::SIGKILL)?;
                willing = Some(index);
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    drop(nodes.remove(willing.context("just found")?));
    two_more_rounds(&mut running)?;
    pools::finish(running)?;
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// One of three nodes is drained and another one killed: the third has room for all.
fn then_lost(test: &str, path: &str) -> Result<()> {
    let mut nodes = nodes(test, 3)?;
    let running = half_grown(test, path, &pool_url(&nodes), "2")?;
    nodes[0].told(test, "drain", &["--wait"])?.expect(0, "nothing is to be moved")?;
    nodes.remove(1).kill()?;
    grow(running)?;
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// One of three nodes with stripes is drained: new stripes go without parity, as after its loss.
fn stripes(test: &str, path: &str) -> Result<()> {
    let nodes = nodes(test, 3)?;
    let running = half_grown(test, path, &format!("{}?erasure=2+1", pool_url(&nodes)), "1")?;
    nodes[0].told(test, "drain", &[])?;
    grow(running)?;
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}
