//! The cost of losing a node for a reader that loads pages all the time: its longest load where every page has a
//! replica, and where none has, the time until its load fails. And the cost of a node that pauses again and again.

use super::CAPACITY_BYTES;
use super::pool::Filled;
use super::process::Node;
use super::report::Round;
use crate::report::statistics::median;
use nix::sys::signal::Signal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pages at the nodes: 64 MiB.
const PAGES: u32 = 16_384;
/// The node is lost when the reader has read for so long.
const BEFORE: Duration = Duration::from_millis(300);
/// How long the reader goes on: nearly twice as long as a load may take.
const AFTER: Duration = Duration::from_millis(3700);
/// A reader that has not been told by now never will be.
const END: Duration = Duration::from_secs(30);

/// A node pauses so many times, for so long each time, and works for so long before.
const PAUSES: usize = 40;
const PAUSE: Duration = Duration::from_millis(15);
const WORK: Duration = Duration::from_millis(45);

/// Ways to lose a node: its kernel says so, or nobody does.
const WAYS: [(&str, Signal); 2] = [("killed", Signal::SIGKILL), ("stopped", Signal::SIGSTOP)];

/// Measures all of it once.
pub fn measure(round: &mut Round, launcher: &Path, seed: u64) {
    for (name, signal) in WAYS {
        round.figure(&format!("{name}_longest_load_ms"), longest_load_ms(launcher, signal, seed));
        round.figure(&format!("{name}_without_replica_end_ms"), end_ms(launcher, signal, seed));
    }
    round.figure("pausing_longest_load_ms", pausing_ms(launcher, 2, seed));
    round.figure("pausing_without_replica_longest_load_ms", pausing_ms(launcher, 1, seed));
}

/// So many nodes, and pages in them.
fn fill(launcher: &Path, nodes: u32, replicas: u32, seed: u64) -> Result<(Vec<Node>, Filled), String> {
    let start = |_| Node::start(launcher, "tcp://127.0.0.1:0", CAPACITY_BYTES);
    let nodes = (0..nodes).map(start).collect::<Result<Vec<Node>, String>>()?;
    let urls: Vec<&str> = nodes.iter().map(|node| &*node.url).collect();
    let filled = Filled::new(&format!("{}?replicas={replicas}", urls.join(",")), PAGES, seed)?;
    Ok((nodes, filled))
}

/// The longest load of a page, of all those before and after the loss.
fn longest_load_ms(launcher: &Path, signal: Signal, seed: u64) -> Result<f64, String> {
    let (nodes, filled) = fill(launcher, 3, 2, seed)?;
    filled.maintained(|| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                let over = |took| {
                    longest = longest.max(took);
                    begun.elapsed() > BEFORE + AFTER
                };
                filled.load_singly_until(seed, over).map(|()| longest)
            });
            std::thread::sleep(BEFORE);
            nodes[0].server.signal(signal)?;
            reader.join().map_err(|_| "the reader's thread failed".to_owned())?.map(ms)
        })
    })
}

/// From the loss to the failure of a load.
fn end_ms(launcher: &Path, signal: Signal, seed: u64) -> Result<f64, String> {
    let (nodes, filled) = fill(launcher, 3, 1, seed)?;
    filled.maintained(|| {
        filled.load_for(BEFORE, seed)?;
        nodes[0].server.signal(signal)?;
        let begun = Instant::now();
        match filled.load_singly_until(seed, |_| begun.elapsed() > END) {
            Err(why) if why.contains(&nodes[0].url) => Ok(ms(begun.elapsed())),
            Err(why) => Err(format!("the loss of {} ended in: {why}", nodes[0].url)),
            Ok(()) => Err("nobody missed the lost node".to_owned()),
        }
    })
}

/// The longest load around each pause of one of `nodes` nodes, which all have every page: the median.
fn pausing_ms(launcher: &Path, nodes: u32, seed: u64) -> Result<f64, String> {
    let (nodes, filled) = fill(launcher, nodes, nodes, seed)?;
    let (over, longest_ns) = (AtomicBool::new(false), AtomicU64::new(0));
    filled.maintained(|| {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                filled.load_singly_until(seed, |took| {
                    longest_ns.fetch_max(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
                    over.load(Relaxed)
                })
            });
            let pause = |_| {
                std::thread::sleep(WORK);
                longest_ns.store(0, Relaxed);
                nodes[0].server.signal(Signal::SIGSTOP)?;
                std::thread::sleep(PAUSE);
                nodes[0].server.signal(Signal::SIGCONT)?;
                // A load that waited for it is over now.
                std::thread::sleep(PAUSE / 2);
                Ok(ms(Duration::from_nanos(longest_ns.load(Relaxed))))
            };
            let longest: Result<Vec<f64>, String> = (0..PAUSES).map(pause).collect();
            over.store(true, Relaxed);
            reader.join().map_err(|_| "the reader's thread failed".to_owned())??;
            median(longest?).ok_or_else(|| "there was no pause".to_owned())
        })
    })
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
