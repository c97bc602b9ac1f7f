//! What an operator does to a pool's nodes while a program works on it: one is emptied and ended, one lends less.

use super::nodes::{PATHS, Test, trial};
use super::pools::{cluster, finish, start};
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::Running;
use hinterland_tests::node::Node;
use hinterland_tests::suite::{self, Trial};

/// What the node that lends less keeps: one slab.
const LESS_BYTES: u64 = 2 << 20;
/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        add(format!("lifecycle::operators::drained::{path}"), Box::new(move |test| drained(test, path)));
        add(format!("lifecycle::operators::resized::{path}"), Box::new(move |test| resized(test, path)));
    }
    trials
}

/// Waits until a node has leased more than `bytes`.
fn wait_until_holds(node: &Node, bytes: u64) -> Result<()> {
    suite::wait_until("a node that holds something", || Ok(node.status()?["used_bytes"].as_u64() > Some(bytes)))
}

/// Waits until the program has done two more rounds, in one of which it forks.
pub fn two_more_rounds(running: &mut Running) -> Result<()> {
    let rounds = std::fs::read_to_string(running.directory.join("stdout"))?.matches("round ").count();
    running.wait_for(&format!("round {}\n", rounds + 2))
}

/// The program ends, every byte was right, and no node was lost.
fn finish_without_losses(running: Running) -> Result<()> {
    let stats = finish(running)?;
    let backends = stats["backends"].as_array().context("backends")?;
    ensure!(backends.len() == 3 && backends.iter().all(|backend| backend["losses"] == 0), "{stats}");
    Ok(())
}

/// `drain --wait` under load empties a node; it ends, and nobody misses it.
fn drained(test: &str, path: &str) -> Result<()> {
    let (mut nodes, url) = cluster(test)?;
    let mut running = start(test, path, &url, "2", &["fork"])?;
    let gone = nodes.remove(1);
    wait_until_holds(&gone, 0)?;
    let told = gone.told(test, "drain", &["--wait"])?;
    told.expect(0, "leases no more memory")?.expect(0, "nothing is to be moved")?;
    let status = gone.status()?;
    ensure!(status["used_bytes"] == 0 && status["draining"] == true, "{status}");
    two_more_rounds(&mut running)?;
    let status = gone.status()?;
    ensure!(status["used_bytes"] == 0, "it got something again: {status}");
    gone.end()?;
    two_more_rounds(&mut running)?;
    finish_without_losses(running)?;
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// `resize --wait` under load to less than the node holds: the rest moves, and what it keeps is used on.
fn resized(test: &str, path: &str) -> Result<()> {
    let (nodes, url) = cluster(test)?;
    let mut running = start(test, path, &url, "2", &["fork"])?;
    wait_until_holds(&nodes[2], LESS_BYTES)?;
    let told = nodes[2].told(test, "resize", &["2M", "--wait"])?;
    told.expect(0, "lends 2 MiB")?.expect(0, "nothing is to be moved")?;
    two_more_rounds(&mut running)?;
    let status = nodes[2].status()?;
    ensure!(status["capacity_bytes"] == LESS_BYTES && status["used_bytes"].as_u64() <= Some(LESS_BYTES), "{status}");
    finish_without_losses(running)?;
    nodes.into_iter().try_for_each(|node| node.end().map(drop))
}
