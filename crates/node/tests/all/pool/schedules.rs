//! Random schedules of bad days, each from a seed: nodes are killed, stopped, slowed down, damaged and restarted, one at a time,
//! while threads store, load and free and check every byte, and hostile neighbours of theirs connect to the nodes. The seed also says
//! whether pages travel compressed, and whether changed ones are patched.

use super::neighbours::{Neighbours, check_bounds};
use super::patches::Changing;
use super::{Cluster, SLAB_PAGES, Stored, TIMING, address, start_node, start_node_on};
use hinterland_backend::{Backend, LinkCompression, Timing};
use hinterland_node::Listening;
use hinterland_testkit::contract::{fuzz, rows};
use hinterland_testkit::proxy::{Mode, Proxy};
use hinterland_testkit::{Rng, wait_until};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Schedules of all three kinds together; `HINTERLAND_TEST_POOL_SCHEDULES` says how many others, from the seed `HINTERLAND_TEST_POOL_SEED` on.
const SCHEDULES: u64 = 200;
/// So many of each kind are played at a time: mostly they wait, for a node that is silent or for copies that take their time.
const AT_A_TIME: u64 = 4;
const EVENTS: usize = 3;
/// A node that was slow gets one load in 64, or none but pings: after so many rounds of loads and steps of maintenance each connection to
/// it has been used. It was lost before, or had no connection that was broken, if that is not noticed.
const NOTICED_WITHIN: usize = 100;

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

/// Plays `percent` of all schedules, several at a time.
pub fn play(percent: u64, schedule: impl Fn(u64) + Sync) {
    let first = from_env("HINTERLAND_TEST_POOL_SEED", 1);
    let count = (from_env("HINTERLAND_TEST_POOL_SCHEDULES", SCHEDULES) * percent).div_ceil(100);
    let next = AtomicU64::new(0);
    let play_some = || {
        loop {
            let index = next.fetch_add(1, Relaxed);
            if index >= count {
                return;
            }
            let seed = first + index;
            // Tests print nothing unless they fail.
            println!("schedule {seed}");
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| schedule(seed))) {
                println!(
                    "schedule {seed} failed; alone: HINTERLAND_TEST_POOL_SCHEDULES=1 HINTERLAND_TEST_POOL_SEED={seed}"
                );
                next.store(count, Relaxed);
                resume_unwind(panic);
            }
        }
    };
    std::thread::scope(|scope| (0..AT_A_TIME.min(count)).for_each(|_| drop(scope.spawn(play_some))));
}

/// What a pool does beside storing pages as they are.
#[derive(Debug)]
pub struct PoolFeatures {
    pub sub_page: bool,
    pub compression: LinkCompression,
}

impl PoolFeatures {
    /// Those of a schedule.
    pub fn drawn(seed: u64, rng: &mut Rng) -> PoolFeatures {
        let modes = [LinkCompression::Off, LinkCompression::On, LinkCompression::Auto];
        let drawn = PoolFeatures { sub_page: rng.below(2) == 0, compression: modes[rng.index(modes.len())] };
        println!("  {seed}: {drawn:?}");
        drawn
    }
}

#[test]
fn random_bad_days_cost_no_byte() {
    play(60, schedule);
}

/// When a bad day breaks the connections to a node, whose loss is noticed when somebody uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Never,
    AtOnce,
    /// At its end.
    Later,
}

/// Has something random befall a node.
pub fn bad_day(seed: u64, rng: &mut Rng, nodes: &mut [Listening], proxies: &[Proxy], victim: usize) -> Broken {
    let modes = [Mode::Dead, Mode::Hold, Mode::Slow, Mode::Flip, Mode::Other, Mode::Twice, Mode::Cut];
    let kind = rng.index(modes.len() + 1);
    let restarted = kind == modes.len();
    if restarted {
        println!("  {seed}: restart of node {victim}");
        let fresh = start_node(64);
        proxies[victim].replace(address(&fresh));
        nodes[victim] = fresh;
    } else {
        println!("  {seed}: {:?} at node {victim}", modes[kind]);
        match modes[kind] {
            Mode::Hold => proxies[victim].silence(),
            mode => proxies[victim].set(mode),
        }
    }
    match modes.get(kind) {
        None | Some(Mode::Dead) => Broken::AtOnce,
        Some(Mode::Twice) => Broken::Later,
        Some(_) => Broken::Never,
    }
}

impl<P: Backend> Cluster<P> {
    /// How often a node was lost.
    pub fn losses(&self, node: usize) -> u64 {
        rows(&self.pool)[node].losses
    }

    /// Uses the pool until it is known that a node is not what it was when it had been lost `before` times: one bad day at a time.
    pub fn until_noticed(&self, node: usize, before: u64, stored: &Stored) {
        let mut rounds = 0;
        while self.losses(node) == before && rows(&self.pool)[node].pages > 0 && rounds < NOTICED_WITHIN {
            stored.check(&self.pool);
            self.pool.maintain();
            rounds += 1;
        }
    }
}

fn schedule(seed: u64) {
    let mut rng = Rng(seed);
    let features = PoolFeatures::drawn(seed, &mut rng);
    // Every third pool begins without one of its nodes.
    let absent = seed.is_multiple_of(3).then(|| rng.index(3));
    let nodes = [None, None, Some(1_000_000_000)].map(|link| start_node_on(link, 64));
    let cluster = Cluster::made(nodes.into(), absent, 2, Timing { sub_page: features.sub_page, ..TIMING });
    match features.compression {
        LinkCompression::Off => bad_days(seed, rng, absent, cluster),
        mode => bad_days(seed, rng, absent, cluster.compressed(mode)),
    }
}

fn bad_days<P: Backend>(seed: u64, mut rng: Rng, absent: Option<usize>, mut cluster: Cluster<P>) {
    let pages = 50 + rng.below(SLAB_PAGES);
    let stored = Stored::new(&cluster.pool, 0..pages);
    for event in 0..EVENTS {
        let victim = rng.index(3);
        // Another one may be drained meanwhile: the third takes everything that is new.
        let drains = (event > 0 || absent.is_none()) && rng.below(3) == 0;
        let drained = drains.then(|| (victim + 1 + rng.index(2)) % 3);
        if let Some(drained) = drained {
            println!("  {seed}: drain of node {drained}");
            cluster.nodes[drained].node().drain(true);
        }
        let mut before = cluster.losses(victim);
        let broken = bad_day(seed, &mut rng, &mut cluster.nodes, &cluster.proxies, victim);
        // At three of four pools.
        let neighbours = (!seed.is_multiple_of(4)).then(|| Neighbours::of(&cluster.nodes, seed * 10 + event as u64));
        let losses = |cluster: &Cluster<P>| (0..3).map(|node| cluster.losses(node)).collect::<Vec<_>>();
        let lost_before = losses(&cluster);
        let over = AtomicBool::new(false);
        cluster.maintained(|| {
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    let mut round = 0;
                    while !over.load(Relaxed) {
                        fuzz(&cluster.pool, seed * 1000 + event as u64 * 100 + round, 20, 100);
                        round += 1;
                    }
                });
                let changes = cluster.pool.patches().then(|| {
                    scope.spawn(|| {
                        let mut pages = Changing::new(&cluster.pool, 60, seed * 1000 + event as u64);
                        while !over.load(Relaxed) {
                            pages.step(&cluster.pool, 20);
                            pages.check(&cluster.pool);
                        }
                        pages.free(&cluster.pool);
                    })
                });
                let until = Over(&over);
                stored.check(&cluster.pool);
                std::thread::sleep(Duration::from_millis(rng.below(30)));
                if broken == Broken::Later {
                    before = cluster.losses(victim);
                }
                if let Some(neighbours) = &neighbours {
                    wait_until("neighbours have connected", || neighbours.said() > 20);
                    check_bounds(&cluster.nodes);
                }
                cluster.proxies[victim].set(Mode::Pass);
                drop(until);
                let workers = [Some(worker), changes].into_iter().flatten();
                workers.for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
            });
        });
        for (node, lost) in lost_before.iter().enumerate().filter(|(node, _)| *node != victim) {
            assert_eq!(cluster.losses(node), *lost, "node {node} was lost to its neighbours");
        }
        drop(neighbours);
        if let Some(drained) = drained {
            cluster.nodes[drained].node().drain(false);
        }
        if broken != Broken::Never {
            cluster.until_noticed(victim, before, &stored);
        }
        // Every node is asked whether it still wants anything back.
        cluster.steps(12);
        if let Some(absent) = absent.filter(|_| event == 0) {
            cluster.proxies[absent].set(Mode::Pass);
            cluster.maintain_until("the absent node is there", |cluster| !cluster.is_lost(absent));
        }
        cluster.maintain_until("two replicas of each page, also of new ones", |cluster| {
            let new = Stored::new(&cluster.pool, u64::MAX / 2..u64::MAX / 2 + 20);
            let has_two = cluster.pages() == (pages + 20) * 2;
            new.free(&cluster.pool);
            has_two
        });
        stored.check(&cluster.pool);
    }
    let Cluster { nodes, pool, .. } = cluster;
    drop(pool);
    for node in &nodes {
        wait_until("the node has forgotten everybody", || {
            let figures = node.node().figures();
            (figures.lanes, figures.sessions, figures.used_bytes) == (0, 0, 0)
        });
    }
}
