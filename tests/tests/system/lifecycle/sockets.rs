//! Programs whose far memory is a node on the same machine, behind a UNIX socket.

use super::nodes::{PATHS, Test, launch, trial};
use super::pools;
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, c_program, launcher};
use hinterland_tests::node::{Node, pool_url, socket};
use hinterland_tests::suite::Trial;
use nix::sys::signal::Signal;
use std::path::PathBuf;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        for way in ["fork", "forks", "popen"] {
            add(format!("lifecycle::sockets::{way}::{path}"), Box::new(move |test| children(test, path, way)));
        }
        add(format!("lifecycle::sockets::mixed::{path}"), Box::new(move |test| mixed(test, path)));
        for (name, signal) in [("killed", Signal::SIGKILL), ("stopped", Signal::SIGSTOP), ("ended", Signal::SIGTERM)] {
            add(format!("lifecycle::sockets::{name}::{path}"), Box::new(move |test| lost(test, path, signal)));
        }
    }
    add("lifecycle::sockets::command".into(), Box::new(command));
    trials
}

fn start(test: &str, capacity: &str) -> Result<(Node, PathBuf)> {
    let path = socket();
    Ok((Node::start_on(test, capacity, &format!("unix:{}", path.display()))?, path))
}

fn children(test: &str, path: &str, way: &str) -> Result<()> {
    let (node, socket) = start(test, "1G")?;
    let program = c_program("children", &[])?.display().to_string();
    let ended = launch(test, &[&node.patient_url()], path, &[&program, way])?.run()?;
    ended.expect(0, if way == "fork" { "child ok" } else { "parent ok, child 0" })?.expect_paging()?;
    node.wait_until_free()?;
    node.end()?;
    ensure!(!socket.exists(), "the socket is still there");
    Ok(())
}

/// In a pool with nodes of both kinds, the one on this machine is killed.
fn mixed(test: &str, path: &str) -> Result<()> {
    let (near, socket) = start(&format!("{test}-0"), "512M")?;
    let far = (1..3).map(|n| Node::start(&format!("{test}-{n}"), "512M"));
    let nodes = std::iter::once(Ok(near)).chain(far).collect::<Result<Vec<_>>>()?;
    let url = pool_url(&nodes);
    pools::first_killed(test, path, nodes, &url)?;
    let _ = std::fs::remove_file(socket);
    Ok(())
}

/// A node that is gone in whatever way ends the run soon, with its name, and with no wrong byte.
fn lost(test: &str, path: &str, signal: Signal) -> Result<()> {
    let (node, socket) = start(test, "1G")?;
    let program = c_program("hold", &[])?.display().to_string();
    let mut running = launch(test, &[&node.url], path, &[&program, "64", "stay"])?.start()?;
    running.wait_for("ready")?;
    node.signal(signal)?;
    let ended = running.end()?;
    ended.expect(125, "ready")?.expect_refusal(&[&format!("the memory node {} is lost: ", node.url)])?;
    if signal == Signal::SIGKILL {
        // What it left is replaced by the next one.
        let arguments = ["node", "--capacity", "16M", "--listen", &*node.url];
        let mut next = Launch::bare(&format!("{test}-next"), &arguments)?.start()?;
        next.wait_for("listening on ")?;
        next.signal(Signal::SIGTERM)?;
        next.end()?.expect(0, "listening on ")?;
    }
    node.kill()?;
    let _ = std::fs::remove_file(socket);
    Ok(())
}

/// What the command says of a node on a socket, and what it refuses.
fn command(test: &str) -> Result<()> {
    let (node, socket) = start(test, "256M")?;
    ensure!(node.status()?["capacity_bytes"] == 256 << 20);
    let drain = launcher()?.args(["node", "drain", &node.url]).output()?;
    ensure!(drain.status.success(), "drain: {}", String::from_utf8_lossy(&drain.stderr));
    ensure!(node.status()?["draining"] == true);
    let path = socket.to_str().context("a path in UTF-8")?;
    let long = format!("unix:/{}", "x".repeat(200));
    for (index, (arguments, words)) in [
        (vec!["--capacity", "1G", "--listen", &*node.url], "another process listens there already"),
        (vec!["--capacity", "1G", "--listen", &*long], "a socket's path has at most 107 bytes"),
        (vec!["--capacity", "1G", "--listen", "unix:far.sock"], "needs an absolute path"),
        (vec!["--capacity", "1G", "--listen", "unix:/no/such/node"], "there is no directory /no/such"),
        (vec!["--capacity", "1G", "--listen", path], "write for example"),
        (vec!["status", "unix:/no/such/node"], "cannot be asked: No such file or directory"),
    ]
    .into_iter()
    .enumerate()
    {
        let ended = Launch::bare(&format!("{test}-{index}"), &[&["node"][..], &arguments].concat())?.run()?;
        ended.expect(125, "")?.expect_refusal(&[words])?;
    }
    node.end()?;
    let nobody = format!("unix:{path}");
    let ended = launch(&format!("{test}-nobody"), &[&nobody], "monitor", &["true"])?.run()?;
    ended.expect(125, "")?.expect_refusal(&[&nobody, "No such file or directory"])?;
    Ok(())
}
