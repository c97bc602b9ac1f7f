//! A network that falls apart and heals: the program and each of three nodes in a network namespace of their own, joined by veth
//! pairs. Unlike a node that is stopped, one that is cut off acknowledges nothing, and its kernel sends nothing either.

use super::nodes::{PATHS, Test};
use super::operators::two_more_rounds;
use super::pools::finish;
use super::secured::key_file;
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, Running, c_program};
use hinterland_tests::node::{Node, pool_url};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| {
        let directory = name.clone();
        trials.push(suite::trial(name, obstacle, move || test(&directory)));
    };
    for path in PATHS {
        add(format!("lifecycle::partitions::heal::{path}"), Box::new(move |test| heal(test, path)));
        add(format!("lifecycle::partitions::no_replica::{path}"), Box::new(move |test| no_replica(test, path)));
    }
    add(VANISHED.into(), Box::new(vanished));
    trials
}

const VANISHED: &str = "lifecycle::partitions::vanished";

/// Those that only `--full` runs.
pub fn only_in_full() -> impl Iterator<Item = String> {
    [VANISHED.to_owned()].into_iter()
}

/// Why there can be no namespaces here.
fn obstacle() -> Option<String> {
    let needed = ["unshare", "nsenter", "ip"].into_iter().find(|name| skips::find(name).is_none());
    let missing = needed.map(|name| format!("{name} is not installed (./dev setup)"));
    let barred = || {
        let made = Namespace::new().and_then(|hub| hub.ip(&["link", "add", "near", "type", "veth", "peer", "far"]));
        made.err().map(|error| format!("no network namespaces here: {error:#}"))
    };
    skips::no_userfaultfd().or(missing).or_else(barred)
}

/// A network namespace, as long as this lives, and an hour at most.
struct Namespace {
    holder: Child,
}

impl Namespace {
    fn new() -> Result<Namespace> {
        let mut command = Command::new("unshare");
        let holder = command.args(["--net", "sleep", "3600"]).stdin(Stdio::null()).spawn().context("unshare")?;
        let mut namespace = Namespace { holder };
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
        let ours = of("self")?;
        suite::wait_until("a network namespace", || {
            ensure!(namespace.holder.try_wait()?.is_none(), "unshare --net was refused");
            Ok(of(&namespace.holder.id().to_string())? != ours)
        })?;
        Ok(namespace)
    }

    /// `program` in this namespace.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--net", "--"]).arg(program);
        command
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        let ip = skips::find("ip").unwrap_or_else(|| PathBuf::from("ip"));
        let output = self.command(&ip).args(arguments).output()?;
        let (words, said) = (arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "ip {words}: {said}");
        Ok(())
    }

    /// Whether the other sides have acknowledged all that was sent from here on connections by TCP (proc(5), `/proc/net/tcp`).
    fn is_acknowledged(&self) -> Result<bool> {
        const ESTABLISHED: &str = "01";
        let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", self.holder.id()))?;
        let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
        let mut established = rows.filter(|row| row.get(3) == Some(&ESTABLISHED)).peekable();
        ensure!(established.peek().is_some(), "no connection: {table}");
        Ok(established.all(|row| row.get(4).is_some_and(|queues| queues.starts_with("00000000:"))))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A program's namespace, and those of three nodes, each at the other end of a cable of its own.
struct Network {
    hub: Namespace,
    ends: Vec<Namespace>,
    nodes: Vec<Node>,
    url: String,
    key: String,
}

impl Network {
    fn new(test: &str) -> Result<Network> {
        let (key, hub) = (key_file(test, 1)?, Namespace::new()?);
        let (mut ends, mut nodes) = (Vec::new(), Vec::new());
        for n in 0..3 {
            let (end, cable) = (Namespace::new()?, format!("cable{n}"));
            let target = end.holder.id().to_string();
            hub.ip(&["link", "add", &cable, "type", "veth", "peer", "name", "wire", "netns", &target])?;
            hub.ip(&["address", "add", &format!("10.77.{n}.1/24"), "dev", &cable])?;
            hub.ip(&["link", "set", &cable, "up"])?;
            end.ip(&["address", "add", &format!("10.77.{n}.2/24"), "dev", "wire"])?;
            end.ip(&["link", "set", "wire", "up"])?;
            let mut command = end.command(&places::launcher()?);
            command.args(["node", "--capacity", "512M", "--key-file", &key]);
            command.args(["--listen", &format!("tcp://10.77.{n}.2:0")]);
            nodes.push(Node::of(Launch::of(&format!("{test}-{n}-node"), command)?)?);
            ends.push(end);
        }
        let url = pool_url(&nodes);
        Ok(Network { hub, ends, nodes, url, key })
    }

    /// `rounds` on the pool.
    fn start(&self, test: &str, path: &str, replicas: &str, more: &[&str]) -> Result<Running> {
        let program = c_program("rounds", &[])?;
        let mut command = self.hub.command(&places::launcher()?);
        command.args(["run", "--local", "16M", "--fault-path", path, "--far", &self.url, "--key-file", &self.key]);
        command.args(["--replicas", replicas, "--stats", "stats.json", "--"]).arg(program).arg("32").args(more);
        let mut running = Launch::of(test, command)?.start()?;
        running.wait_for("round 2\n")?;
        Ok(running)
    }

    /// What node `n` says of itself on its own machine.
    fn status(&self, n: usize) -> Result<serde_json::Value> {
        let mut command = self.ends[n].command(&places::launcher()?);
        command.args(["node", "status", "--json", &self.nodes[n].url, "--key-file", &self.key]);
        let output = command.output()?;
        ensure!(output.status.success(), "status: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Pulls the cable of node `n`, or puts it back.
    fn set(&self, n: usize, state: &str) -> Result<()> {
        self.ends[n].ip(&["link", "set", "wire", state])
    }
}

/// The run goes on while one node is cut off, and uses it again afterwards.
fn heal(test: &str, path: &str) -> Result<()> {
    let network = Network::new(test)?;
    let mut running = network.start(test, path, "2", &["fork"])?;
    network.set(1, "down")?;
    // In a whole round nobody can miss it.
    two_more_rounds(&mut running)?;
    network.set(1, "up")?;
    two_more_rounds(&mut running)?;
    let stats = finish(running)?;
    ensure!(stats["backends"][1]["losses"].as_u64() > Some(0), "{stats}");
    network.nodes.into_iter().try_for_each(|node| node.end().map(drop))
}

/// Pages that nobody else has end the run, with the node's name.
fn no_replica(test: &str, path: &str) -> Result<()> {
    let network = Network::new(test)?;
    let running = network.start(test, path, "1", &[])?;
    network.set(2, "down")?;
    let ended = running.end()?;
    let lost = format!("the memory node {} is lost: ", network.nodes[2].url);
    ended.expect(125, "round")?.expect_refusal(&[&lost])?;
    Ok(())
}

/// A machine that is gone without a word: its node gets the memory back that the program there held.
fn vanished(test: &str) -> Result<()> {
    let network = Network::new(test)?;
    // What a node says to itself goes this way.
    network.ends[1].ip(&["link", "set", "lo", "up"])?;
    let mut running = network.start(test, PATHS[0], "2", &[])?;
    std::fs::write(running.directory.join("rest"), "")?;
    running.wait_for("resting\n")?;
    let status = network.status(1)?;
    ensure!(status["used_bytes"].as_u64() > Some(0) && status["sessions"] == 1, "{status}");
    // An answer under way would be sent again for a quarter of an hour.
    suite::wait_until("a cable that is cut while no answer is under way", || {
        if !network.ends[1].is_acknowledged()? {
            return Ok(false);
        }
        // At the program's end, so that the node's keeps its address.
        network.hub.ip(&["link", "set", "cable1", "down"])?;
        // What came before is answered.
        std::thread::sleep(Duration::from_millis(100));
        let is_cut = network.ends[1].is_acknowledged()?;
        if !is_cut {
            network.hub.ip(&["link", "set", "cable1", "up"])?;
        }
        Ok(is_cut)
    })?;
    drop(running);
    suite::wait_until("a node that has got everything back", || {
        let status = network.status(1)?;
        Ok(status["used_bytes"] == 0 && status["sessions"] == 0)
    })?;
    network.nodes.into_iter().try_for_each(|node| node.end().map(drop))
}
