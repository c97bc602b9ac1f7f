//! Random schedules of bad days, each from a seed: nodes are killed, stopped, slowed down, damaged and restarted, one at a time,
//! while threads store, load and free and check every byte.

use super::common::fuzz;
use super::proxy::{Mode, Proxy};
use super::{Cluster, SLAB_PAGES, Stored, address, start_node};
use hinterland_backend::samples::Rng;
use hinterland_node::Listening;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Schedules of each of the four tests; more with `HINTERLAND_POOL_SCHEDULES`, from the seed `HINTERLAND_POOL_SEED` on.
const SCHEDULES: u64 = 5;
const EVENTS: usize = 3;
/// A node that was slow gets one load in 64, or none but pings: in so long, its loss is noticed.
const NOTICED_WITHIN: Duration = Duration::from_millis(1200);

/// Ends the work beside, also when a check fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Every fourth seed from the first of them on.
fn random_schedules(begin: u64) {
    let first = from_env("HINTERLAND_POOL_SEED", 1) + begin;
    for n in 0..from_env("HINTERLAND_POOL_SCHEDULES", SCHEDULES) {
        // Tests print nothing unless they fail.
        println!("schedule {}", first + 4 * n);
        schedule(first + 4 * n);
    }
}

#[test]
fn random_bad_days_cost_no_byte_1() {
    random_schedules(0);
}

#[test]
fn random_bad_days_cost_no_byte_2() {
    random_schedules(1);
}

#[test]
fn random_bad_days_cost_no_byte_3() {
    random_schedules(2);
}

#[test]
fn random_bad_days_cost_no_byte_4() {
    random_schedules(3);
}

/// Has something random befall a node; whether it was started anew, empty.
pub fn bad_day(rng: &mut Rng, nodes: &mut [Listening], proxies: &[Proxy], victim: usize) -> bool {
    let modes = [Mode::Dead, Mode::Hold, Mode::Slow, Mode::Flip, Mode::Other, Mode::Twice, Mode::Cut];
    let kind = rng.index(modes.len() + 1);
    let restarted = kind == modes.len();
    if restarted {
        println!("  restart of node {victim}");
        let fresh = start_node(64);
        proxies[victim].replace(address(&fresh));
        nodes[victim] = fresh;
    } else {
        println!("  {:?} at node {victim}", modes[kind]);
        proxies[victim].set(modes[kind]);
    }
    restarted
}

fn schedule(seed: u64) {
    let mut rng = Rng(seed);
    let mut cluster = Cluster::new(&[64, 64, 64], 2);
    let pages = 50 + rng.below(SLAB_PAGES);
    let stored = Stored::new(&cluster.pool, 0..pages);
    for event in 0..EVENTS {
        let victim = rng.index(3);
        let restarted = bad_day(&mut rng, &mut cluster.nodes, &cluster.proxies, victim);
        let over = AtomicBool::new(false);
        cluster.tended(|| {
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    let mut round = 0;
                    while !over.load(Relaxed) {
                        fuzz(&cluster.pool, seed * 1000 + event as u64 * 100 + round, 20, 100);
                        round += 1;
                    }
                });
                let until = Over(&over);
                stored.check(&cluster.pool);
                std::thread::sleep(Duration::from_millis(rng.below(30)));
                cluster.proxies[victim].set(Mode::Pass);
                drop(until);
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
        });
        if restarted {
            // One bad day at a time: what was there is gone.
            cluster.tended(|| {
                let begun = Instant::now();
                while begun.elapsed() < NOTICED_WITHIN {
                    stored.check(&cluster.pool);
                }
            });
        }
        cluster.tend_until("two replicas of each page", |cluster| cluster.pages() == pages * 2);
        stored.check(&cluster.pool);
    }
}
