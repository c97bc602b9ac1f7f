//! Demand beside bulk on a link of 1 Gb/s: the loopback device of a network namespace of its own, shaped by `tc`; where that cannot be
//! made, the link of a decorator (`link=`), in which demand overtakes by itself.

use super::Percentile;
use super::pool::Filled;
use super::process::Node;
use crate::executables::{Executables, end_with_bench};
use nix::sched::CloneFlags;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Loads whose durations are compared.
const LOADS: usize = 1000;
/// Pages that are there: 16 MiB.
const PAGES: u32 = 4096;
/// What the namespace's loopback device is made: frames as on Ethernet, so that a page is not one frame.
const DEVICE: [&[&str]; 2] = [
    &["ip", "link", "set", "lo", "mtu", "1500", "up"],
    &["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1gbit", "burst", "32kb", "latency", "50ms"],
];
/// Instead of it.
const LINK: &str = "link=15us:1Gb/s";

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shaped {
    /// `tc`, or `link`.
    pub by: String,
    /// Of a demand load on the idle link.
    pub idle_p50_us: f64,
    /// See above.
    pub idle_p99_us: f64,
    /// Beside a thread that loads ahead all the time.
    pub busy_p50_us: f64,
    /// See above.
    pub busy_p99_us: f64,
    /// See above.
    pub busy_mean_us: f64,
    /// What that thread got.
    pub bulk_bytes_per_second: f64,
}

/// Measures in a namespace, or with the decorator.
///
/// # Errors
/// Neither can be done.
pub fn measure(executables: &Executables, seed: u64) -> Result<Shaped, String> {
    let mut command = Command::new(&executables.bench);
    command.args(["shaped-link", "--seed", &seed.to_string()]);
    end_with_bench(&mut command);
    let output = command.output().ok().filter(|output| output.status.success());
    match output.and_then(|output| serde_json::from_slice(&output.stdout).ok()) {
        Some(shaped) => Ok(shaped),
        None => demand(&executables.launcher, "link", &format!("?{LINK}"), seed),
    }
}

/// The part in a namespace, which it makes itself: it must never shape the machine's own loopback device.
pub fn in_namespace(seed: u64) -> ExitCode {
    let measured = || -> Result<Shaped, String> {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|error| format!("no network namespace can be made: {error}"))?;
        for words in DEVICE {
            let status = Command::new(words[0]).args(&words[1..]).status().map_err(|error| error.to_string())?;
            if !status.success() {
                return Err(format!("'{}' failed", words.join(" ")));
            }
        }
        let executables = Executables::find().map_err(|error| error.to_string())?;
        demand(&executables.launcher, "tc", "", seed)
    };
    match measured() {
        Ok(shaped) => {
            println!("{}", serde_json::to_string(&shaped).expect("numbers"));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn demand(launcher: &Path, by: &str, parameters: &str, seed: u64) -> Result<Shaped, String> {
    let node = Node::start(launcher, "tcp://127.0.0.1:0", 64 << 20)?;
    let filled = Filled::new(&format!("{}{parameters}", node.url), PAGES, seed)?;
    let idle = filled.demand_us(LOADS, seed)?;
    let (busy, bulk_bytes_per_second) = filled.demand_beside_bulk_us(LOADS, seed)?;
    Ok(Shaped {
        by: by.into(),
        idle_p50_us: idle.percentile(50),
        idle_p99_us: idle.percentile(99),
        busy_p50_us: busy.percentile(50),
        busy_p99_us: busy.percentile(99),
        busy_mean_us: busy.iter().sum::<f64>() / busy.len() as f64,
        bulk_bytes_per_second,
    })
}
