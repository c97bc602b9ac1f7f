//! Nodes that are drained, and nodes that lend less: their slabs move to others, and no byte is lost on the way.

use super::races::TRIES;
use super::schedules::play;
use super::{BELIEVING, Cluster, SLAB_PAGES, Stored, start_node};
use hinterland_backend::{Backend, Priority};
use hinterland_node::SLAB_BYTES;
use hinterland_testkit::Rng;
use hinterland_testkit::contract::{fork_round, fuzz, load, page_of, rows, store, with_fork};
use hinterland_testkit::proxy::Mode;
use hinterland_testkit::wait_until_or;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn used(cluster: &Cluster, node: usize) -> u64 {
    cluster.nodes[node].node().used_bytes() / SLAB_BYTES
}

/// From now on, a node lends so many slabs.
fn resize(cluster: &Cluster, node: usize, slabs: u64) {
    cluster.nodes[node].node().resize(slabs * SLAB_BYTES);
}

#[test]
fn a_drained_node_is_emptied_and_may_go() {
    for replicas in 1..=2 {
        let cluster = Cluster::new(&[64, 64, 64], replicas);
        let pages = SLAB_PAGES * 7 + 30;
        let stored = Stored::new(&cluster.pool, 0..pages);
        assert!(used(&cluster, 0) > 0);
        cluster.nodes[0].node().drain(true);
        cluster.maintain_until("the node is empty", |cluster| used(cluster, 0) == 0);
        stored.check(&cluster.pool);
        assert_eq!(cluster.pages(), pages * replicas as u64);
        // Nothing was lost with it, and nothing is stored there.
        cluster.proxies[0].set(Mode::Dead);
        stored.check(&cluster.pool);
        cluster.maintain_until("the node is gone", |cluster| cluster.is_lost(0));
        assert_eq!(rows(&cluster.pool)[0].losses, 0);
        Stored::new(&cluster.pool, 90_000..90_000 + SLAB_PAGES * 3).check(&cluster.pool);
        stored.free(&cluster.pool);
    }
}

#[test]
fn a_drained_node_is_emptied_while_threads_store_load_and_free() {
    let cluster = Cluster::new(&[64, 64, 64], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 5);
    let over = AtomicBool::new(false);
    cluster.maintained(|| {
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
            wait_until_or(
                "the node is empty",
                || format!("{:?}", rows(&cluster.pool)),
                || {
                    stored.check(&cluster.pool);
                    used(&cluster, 1) == 0
                },
            );
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
    cluster.maintain_until("three slabs are left", |cluster| used(cluster, 0) <= 3);
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
    let cluster = Cluster::with(&[8, 4], 1, BELIEVING);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 10);
    cluster.nodes[0].node().drain(true);
    // The other one takes what it has room for, not more.
    cluster.maintain_until("the other node is full", |cluster| used(cluster, 1) == 4);
    for _ in 0..30 {
        cluster.pool.maintain();
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
    cluster.maintain_until("the node is used", |cluster| {
        Stored::new(&cluster.pool, 80_000..80_010).free(&cluster.pool);
        used(cluster, 0) > 0
    });
    Stored(kept.to_vec()).check(&cluster.pool);
}

#[test]
fn a_slab_without_a_place_keeps_no_other_from_moving() {
    let cluster = Cluster::new(&[8, 8, 8], 2);
    // A slab on the first two nodes, which has the fewest pages in the end, and one on the first and the last.
    resize(&cluster, 2, 0);
    let stuck = Stored::new(&cluster.pool, 0..SLAB_PAGES);
    resize(&cluster, 2, 8);
    resize(&cluster, 1, 1);
    let other = Stored::new(&cluster.pool, 5000..5000 + SLAB_PAGES);
    let (gone, kept) = stuck.0.split_at(stuck.0.len() - 10);
    cluster.pool.free(&gone.iter().map(|(location, _)| *location).collect::<Vec<_>>());
    assert_eq!([0, 1, 2].map(|node| used(&cluster, node)), [2, 1, 1]);
    // Only the second can go elsewhere.
    resize(&cluster, 1, 8);
    resize(&cluster, 2, 1);
    cluster.nodes[0].node().drain(true);
    cluster.maintain_until("one slab has moved", |cluster| used(cluster, 0) == 1);
    assert_eq!((used(&cluster, 1), rows(&cluster.pool)[0].pages), (2, 10));
    resize(&cluster, 2, 8);
    cluster.maintain_until("the node is empty", |cluster| used(cluster, 0) == 0);
    other.check(&cluster.pool);
    Stored(kept.to_vec()).check(&cluster.pool);
}

#[test]
fn a_move_that_finds_no_room_delays_no_rebuild() {
    let cluster = Cluster::with(&[8, 8, 8], 2, BELIEVING);
    resize(&cluster, 2, 0);
    let stored = Stored::new(&cluster.pool, 0..100);
    let refusals = || cluster.nodes[2].node().figures().refused;
    let before = refusals();
    cluster.nodes[0].node().drain(true);
    cluster.maintain_until("no place is found", |_| refusals() > before);
    // Now the third node has room, and is needed for more than that.
    resize(&cluster, 2, 8);
    cluster.proxies[1].set(Mode::Dead);
    let location = store(&cluster.pool, &[page_of(1)]).remove(0).unwrap_or_else(|error| panic!("{error}"));
    cluster.pool.free(&[location]);
    assert!(cluster.is_lost(1));
    // Four messages.
    for _ in 0..30 {
        cluster.pool.maintain();
    }
    assert_eq!(cluster.pages(), 200);
    stored.check(&cluster.pool);
}

#[test]
fn slabs_without_a_page_go_back_to_a_node_that_lends_less() {
    let cluster = Cluster::new(&[8, 8], 1);
    resize(&cluster, 1, 0);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES);
    Stored::new(&cluster.pool, 5000..5000 + SLAB_PAGES + 10).free(&cluster.pool);
    // The slab that was being filled, and one for the pages to come.
    assert_eq!(used(&cluster, 0), 3);
    resize(&cluster, 0, 1);
    cluster.maintain_until("one slab is left", |cluster| used(cluster, 0) == 1);
    stored.check(&cluster.pool);
    // The pool goes on where there is room.
    resize(&cluster, 1, 8);
    Stored::new(&cluster.pool, 9000..9100).check(&cluster.pool);
}

#[test]
fn a_slab_that_was_given_up_for_damage_goes_back_to_its_node() {
    let cluster = Cluster::new(&[8, 8, 8], 2);
    let stored = Stored::new(&cluster.pool, 0..100);
    let (holders, _) = cluster.sides();
    cluster.proxies[holders[0]].set(Mode::Flip);
    let is_given_up = (0..TRIES).any(|_| {
        let loaded = load(&cluster.pool, &[stored.0[0].0], Priority::Demand).remove(0);
        assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == page_of(stored.0[0].1));
        rows(&cluster.pool)[holders[0]].pages == 0
    });
    assert!(is_given_up, "the node was never asked");
    cluster.proxies[holders[0]].set(Mode::Pass);
    // So that nothing comes there again.
    cluster.nodes[holders[0]].node().drain(true);
    cluster.maintain_until("the node is empty", |cluster| used(cluster, holders[0]) == 0);
    cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == 200);
    assert_eq!(rows(&cluster.pool)[holders[0]].losses, 0);
    stored.check(&cluster.pool);
}

#[test]
fn a_slab_that_is_read_from_goes_back_when_nobody_reads_it_any_more() {
    let cluster = Cluster::new(&[8, 8], 1);
    resize(&cluster, 1, 0);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES);
    resize(&cluster, 1, 8);
    stored.check_while(&cluster.pool, || {
        // The rest is still to be asked for.
        cluster.nodes[0].node().drain(true);
        cluster.maintain_until("the pages have moved", |cluster| rows(&cluster.pool)[0].pages == 0);
        for _ in 0..20 {
            cluster.pool.maintain();
        }
        assert_eq!(used(&cluster, 0), 1, "the slab went back under its reader");
    });
    cluster.maintain_until("the slab is back", |cluster| used(cluster, 0) == 0);
    assert_eq!(rows(&cluster.pool)[0].losses, 0);
    stored.check(&cluster.pool);
}

#[test]
fn a_single_node_keeps_everything_when_it_is_drained() {
    let cluster = Cluster::new(&[8], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 3);
    cluster.nodes[0].node().drain(true);
    for _ in 0..5 {
        cluster.pool.maintain();
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
        cluster.pool.maintain();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let live_on = |seed: u64| {
        let own = Stored::new(&cluster.pool, seed..seed + 300);
        cluster.maintain_until("no page is left there", |cluster| rows(&cluster.pool)[2].pages == 0);
        [&stored, &own].iter().for_each(|stored| stored.check(&cluster.pool));
        fuzz(&cluster.pool, seed, 60, 200);
        assert_eq!(cluster.pages(), before + (pages + 300) * 2);
    };
    with_fork(&cluster.pool, || live_on(100_000), || live_on(200_000));
    // Both have given theirs back by now, or have ended.
    cluster.maintain_until("the node is empty", |cluster| used(cluster, 2) == 0);
    stored.check(&cluster.pool);
}

#[test]
fn random_operators_cost_no_byte() {
    play(15, random_operators);
}

/// Nodes are drained, resized, lost and used again, in an order that comes from a seed, while threads check every byte.
fn random_operators(seed: u64) {
    let mut rng = Rng(seed);
    let mut cluster = Cluster::new(&[40, 40, 40, 40], 2);
    let pages = SLAB_PAGES + rng.below(SLAB_PAGES * 3);
    let stored = Stored::new(&cluster.pool, 0..pages);
    for event in 0..5 {
        let node = rng.index(4);
        let kind = rng.below(5);
        println!("  {seed}: {kind} at node {node}");
        let before = cluster.losses(node);
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
        cluster.maintained(|| {
            fuzz(&cluster.pool, seed * 100 + event, 60, 300);
            stored.check(&cluster.pool);
        });
        if kind == 4 {
            cluster.until_noticed(node, before, &stored);
        }
        cluster.maintain_until("two replicas of each page", |cluster| {
            stored.check(&cluster.pool);
            cluster.pages() == pages * 2
        });
        stored.check(&cluster.pool);
        if kind < 2 {
            // What others lend may be too little, or have too few places for slabs that are partly full.
            cluster.nodes.iter().for_each(|node| node.node().resize(60 * SLAB_BYTES));
            cluster.maintain_until("the node is empty", |cluster| used(cluster, node) == 0);
            cluster.nodes[node].node().drain(false);
        }
    }
}
