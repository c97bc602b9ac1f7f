//! Nodes that are drained, and nodes that lend less: their slabs move to others, and no byte is lost on the way.

use super::common::{fork_round, fuzz, load, page_of, rows, store, with_fork};
use super::proxy::Mode;
use super::{Cluster, SLAB_PAGES, Stored, start_node};
use hinterland_backend::samples::Rng;
use hinterland_backend::{Backend, Priority};
use hinterland_node::SLAB_BYTES;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Schedules of the random test; more with `HINTERLAND_POOL_SCHEDULES`, from the seed `HINTERLAND_POOL_SEED` on.
const SCHEDULES: u64 = 4;

fn used(cluster: &Cluster, node: usize) -> u64 {
    cluster.nodes[node].node().used_bytes() / SLAB_BYTES
}

#[test]
fn a_drained_node_is_emptied_and_may_go() {
    for replicas in 1..=2 {
        let cluster = Cluster::new(&[64, 64, 64], replicas);
        let pages = SLAB_PAGES * 7 + 30;
        let stored = Stored::new(&cluster.pool, 0..pages);
        assert!(used(&cluster, 0) > 0);
        cluster.nodes[0].node().drain(true);
        cluster.tend_until("the node is empty", |cluster| used(cluster, 0) == 0);
        stored.check(&cluster.pool);
        assert_eq!(cluster.pages(), pages * replicas as u64);
        // Nothing was lost with it, and nothing is stored there.
        cluster.proxies[0].set(Mode::Dead);
        stored.check(&cluster.pool);
        Stored::new(&cluster.pool, 90_000..90_000 + SLAB_PAGES * 3).check(&cluster.pool);
        stored.free(&cluster.pool);
    }
}

#[test]
fn a_drained_node_is_emptied_while_threads_store_load_and_free() {
    let cluster = Cluster::new(&[64, 64, 64], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 5);
    let over = AtomicBool::new(false);
    cluster.tended(|| {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (pool, over) = (&cluster.pool, &over);
                scope.spawn(move || {
                    for round in 0.. {
                        fuzz(pool, 900 + thread * 100 + round, 40, 500);
                        if over.load(Relaxed) {
                            return;
                        }
                    }
                });
            }
            cluster.nodes[1].node().drain(true);
            let begun = std::time::Instant::now();
            while used(&cluster, 1) > 0 && begun.elapsed() < std::time::Duration::from_secs(60) {
                stored.check(&cluster.pool);
            }
            over.store(true, Relaxed);
        });
    });
    assert_eq!(used(&cluster, 1), 0, "{:?}", rows(&cluster.pool));
    stored.check(&cluster.pool);
}

#[test]
fn a_node_that_lends_less_gets_back_what_it_wants_and_one_that_lends_more_is_used() {
    let cluster = Cluster::new(&[20, 20], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 16);
    let before = used(&cluster, 0);
    assert!(before > 3, "{before}");
    cluster.nodes[0].node().resize(3 * SLAB_BYTES);
    cluster.tend_until("three slabs are left", |cluster| used(cluster, 0) <= 3);
    stored.check(&cluster.pool);
    assert!(used(&cluster, 0) >= 1, "more was moved than was wanted");
    // 23 slabs are lent, and now 40.
    let more = SLAB_PAGES * 12;
    cluster.nodes[0].node().resize(20 * SLAB_BYTES);
    let late = Stored::new(&cluster.pool, 50_000..50_000 + more);
    assert!(used(&cluster, 0) > 3);
    [&stored, &late].iter().for_each(|stored| stored.check(&cluster.pool));
}

#[test]
fn where_nobody_has_room_the_pages_stay_and_the_pool_goes_on() {
    let cluster = Cluster::new(&[8, 4], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 10);
    cluster.nodes[0].node().drain(true);
    // The other one takes what it has room for, not more.
    cluster.tend_until("the other node is full", |cluster| used(cluster, 1) == 4);
    for _ in 0..30 {
        cluster.pool.tend();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(used(&cluster, 0) >= 6);
    stored.check(&cluster.pool);
    // What there is of room in the slabs of the drained node is better than none.
    let (gone, kept) = stored.0.split_at(300);
    cluster.pool.free(&gone.iter().map(|(location, _)| *location).collect::<Vec<_>>());
    let pages: Vec<_> = (0..200).map(|n| page_of(70_000 + n)).collect();
    for (answer, page) in store(&cluster.pool, &pages).into_iter().zip(&pages) {
        let location = answer.unwrap_or_else(|error| panic!("{error}"));
        assert!(load(&cluster.pool, &[location], Priority::Demand).remove(0).expect("stored") == *page);
    }
    Stored(kept.to_vec()).check(&cluster.pool);
    // And when the operator thinks better of it, all is as before.
    cluster.nodes[0].node().drain(false);
    cluster.tend_until("the node is used", |cluster| {
        Stored::new(&cluster.pool, 80_000..80_010).free(&cluster.pool);
        used(cluster, 0) > 0
    });
    Stored(kept.to_vec()).check(&cluster.pool);
}

#[test]
fn a_single_node_keeps_everything_when_it_is_drained() {
    let cluster = Cluster::new(&[8], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 3);
    cluster.nodes[0].node().drain(true);
    for _ in 0..5 {
        cluster.pool.tend();
    }
    stored.check(&cluster.pool);
    // The slabs that it has can be filled.
    fuzz(&cluster.pool, 3, 100, 200);
}

#[test]
fn forked_processes_move_their_own_slabs() {
    let cluster = Cluster::new(&[64, 64, 64], 2);
    fork_round(&cluster.pool, 4, 1);
    let before = cluster.pages();
    let pages = SLAB_PAGES * 3;
    let stored = Stored::new(&cluster.pool, 0..pages);
    cluster.nodes[2].node().drain(true);
    // The fork comes while slabs are under way.
    for _ in 0..12 {
        cluster.pool.tend();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let live_on = |seed: u64| {
        let own = Stored::new(&cluster.pool, seed..seed + 300);
        cluster.tend_until("no page is left there", |cluster| rows(&cluster.pool)[2].pages == 0);
        [&stored, &own].iter().for_each(|stored| stored.check(&cluster.pool));
        fuzz(&cluster.pool, seed, 60, 200);
        assert_eq!(cluster.pages(), before + (pages + 300) * 2);
    };
    with_fork(&cluster.pool, || live_on(100_000), || live_on(200_000));
    // Both have given theirs back by now, or have ended.
    cluster.tend_until("the node is empty", |cluster| used(cluster, 2) == 0);
    stored.check(&cluster.pool);
}

/// Nodes are drained, resized, lost and used again, in an order that comes from a seed, while threads check every byte.
#[test]
fn random_operators_cost_no_byte() {
    let from_env =
        |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"));
    let first: u64 = from_env("HINTERLAND_POOL_SEED", 1);
    for seed in first..first + from_env("HINTERLAND_POOL_SCHEDULES", SCHEDULES) {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let mut cluster = Cluster::new(&[40, 40, 40, 40], 2);
        let pages = SLAB_PAGES + rng.below(SLAB_PAGES * 3);
        let stored = Stored::new(&cluster.pool, 0..pages);
        for event in 0..5 {
            let node = rng.index(4);
            let kind = rng.below(5);
            println!("  {kind} at node {node}");
            match kind {
                0 | 1 => cluster.nodes[node].node().drain(true),
                2 => cluster.nodes[node].node().resize((1 + rng.below(6)) * SLAB_BYTES),
                3 => cluster.nodes[node].node().resize(60 * SLAB_BYTES),
                _ => {
                    cluster.proxies[node].replace({
                        let fresh = start_node(40);
                        let at = super::address(&fresh);
                        cluster.nodes[node] = fresh;
                        at
                    });
                }
            }
            cluster.tended(|| {
                fuzz(&cluster.pool, seed * 100 + event, 60, 300);
                stored.check(&cluster.pool);
            });
            cluster.tend_until("two replicas of each page", |cluster| {
                // A node that nobody asks is lost when it is asked.
                stored.check(&cluster.pool);
                cluster.pages() == pages * 2
            });
            stored.check(&cluster.pool);
            if kind < 2 {
                cluster.tend_until("the node is empty", |cluster| used(cluster, node) == 0);
                cluster.nodes[node].node().drain(false);
            }
        }
    }
}
