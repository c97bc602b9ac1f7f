//! Pages that the program waits for: asked of a second node when the first is late, without a loss of anything.

use super::{Cluster, SLAB_PAGES, Stored};
use hinterland_backend::{Backend, Priority};
use hinterland_node::SLAB_BYTES;
use hinterland_testkit::contract::{load, page_of, rows, with_fork};
use hinterland_testkit::proxy::Mode;
use hinterland_testkit::{wait_until, wait_until_or};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

impl Stored {
    /// Loads each page by itself, and checks it.
    fn check_each(&self, cluster: &Cluster) {
        (0..self.0.len()).for_each(|index| self.check_one(cluster, index));
    }

    fn check_one(&self, cluster: &Cluster, index: usize) {
        let (location, seed) = self.0[index];
        let loaded = load(&cluster.pool, &[location], Priority::Demand).remove(0);
        assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == page_of(seed), "page {seed}");
    }
}

impl Cluster {
    /// Two nodes that both have all of some pages, and have answered often enough for their latencies to be known.
    fn of_two() -> (Cluster, Stored) {
        let cluster = Cluster::new(&[8, 8], 2);
        let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 3);
        stored.check_each(&cluster);
        (cluster, stored)
    }

    /// Loads for which a second node was asked because this one was late.
    fn hedged(&self, index: usize) -> u64 {
        rows(&self.pool)[index].hedged_loads
    }

    /// Loads, and maintains the pool, until loads are answered by `node`: on a busy machine it may be passed by for a while.
    fn until_used(&self, stored: &Stored, node: usize) {
        let reads = || self.nodes[node].node().figures().reads;
        let before = reads();
        wait_until_or(
            "the node is used",
            || format!("{node}: {:?}", rows(&self.pool)),
            || {
                stored.check_each(self);
                self.pool.maintain();
                reads() >= before + 50
            },
        );
    }

    /// Has `node` keep an answer and loads until it was hedged, which is chance; returns which page that was. The node answers
    /// everything else: where the other one is late beyond all patience, as on a busy machine, it is asked once more.
    fn until_hedged(&self, stored: &Stored, node: usize) -> usize {
        let mut page = None;
        let state = || format!("{node}: {:?}", rows(&self.pool));
        wait_until_or("the node is asked and late", state, || {
            self.until_used(stored, node);
            let before = self.hedged(node);
            self.proxies[node].set(Mode::HoldOne);
            let is_over = |index: &usize| {
                stored.check_one(self, *index);
                self.hedged(node) > before || self.proxies[node].keeping() > 0
            };
            // Once more where it kept an answer that was not hedged, or was late by itself and kept none, as on a busy machine.
            let both = || self.hedged(node) > before && self.proxies[node].keeping() > 0;
            page = (0..stored.0.len()).find(is_over).filter(|_| both());
            if page.is_none() {
                self.proxies[node].set(Mode::Pass);
            }
            page.is_some()
        });
        page.expect("just found")
    }
}

#[test]
fn a_page_that_is_late_comes_from_another_node_and_no_connection_is_given_up() {
    let (cluster, stored) = Cluster::of_two();
    for node in [0, 1, 0] {
        // Where the other one is late beyond all patience, too, as on a busy machine, there is nobody else to ask: then once more.
        wait_until("twenty pages come from the other node", || {
            let page = cluster.until_hedged(&stored, node);
            // As long as an answer is owed, the other one is asked.
            let connections = cluster.proxies[node].connections();
            (page..page + 20).for_each(|index| stored.check_one(&cluster, index % stored.0.len()));
            // None is made in place of one that owes.
            let is_same = cluster.proxies[node].connections() == connections;
            cluster.proxies[node].set(Mode::Pass);
            // The answer that was late is thrown away, and the node used again.
            cluster.until_used(&stored, node);
            is_same
        });
        assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0), "{:?}", rows(&cluster.pool));
    }
}

#[test]
fn a_slab_that_may_still_be_read_is_not_given_back() {
    let (cluster, stored) = Cluster::of_two();
    let used = |node: usize| cluster.nodes[node].node().used_bytes();
    let page = cluster.until_hedged(&stored, 0) as u64;
    // Its slab at last: of slabs without pages, the first stays for what is stored next.
    let (last, first) = stored.0.into_iter().partition(|(_, seed)| seed / SLAB_PAGES == page / SLAB_PAGES);
    [Stored(first), Stored(last)].into_iter().for_each(|stored| stored.free(&cluster.pool));
    // Both nodes have the same slabs, but for that one.
    cluster.maintain_until("the other node has it back", |_| used(1) + SLAB_BYTES == used(0));
    for _ in 0..20 {
        cluster.pool.maintain();
        assert_eq!(used(1) + SLAB_BYTES, used(0));
    }
    cluster.proxies[0].set(Mode::Pass);
    cluster.maintain_until("the slab is given back", |_| used(1) == used(0));
    assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0), "{:?}", rows(&cluster.pool));
}

#[test]
fn the_first_is_heard_after_all_if_the_second_sends_something_wrong() {
    // Which one is asked first is chance, and latency.
    let is_raced = |_| {
        let (cluster, stored) = Cluster::of_two();
        cluster.proxies[1].set(Mode::Flip);
        cluster.proxies[0].set(Mode::HoldData);
        let (loaded, before) = (AtomicBool::new(false), cluster.nodes[1].node().figures().reads);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Until it is asked, and the other one has lied, whichever of them was the first.
                let reads = || cluster.nodes[1].node().figures().reads;
                wait_until("both are asked", || {
                    cluster.proxies[0].keeping() > 0 && reads() > before || loaded.load(Relaxed)
                });
                // Mostly its answer has come by now.
                std::thread::sleep(Duration::from_millis(20));
                cluster.proxies[0].set(Mode::Pass);
            });
            stored.check_one(&cluster, 0);
            loaded.store(true, Relaxed);
        });
        assert_eq!(rows(&cluster.pool)[0].losses, 0, "{:?}", rows(&cluster.pool));
        cluster.hedged(0) > 0
    };
    assert!((0..30).any(is_raced), "the node that is late was never asked first");
}

/// More threads than there are connections to a node, which pauses again and again: each answer goes to whom it is for.
#[test]
fn many_threads_race_on_few_connections_and_none_gets_out_of_step() {
    let (cluster, stored) = Cluster::of_two();
    let over = AtomicBool::new(false);
    cluster.maintained(|| {
        std::thread::scope(|scope| {
            for thread in 0..12 {
                let (cluster, stored, over) = (&cluster, &stored, &over);
                scope.spawn(move || {
                    let mut index = thread * 100;
                    while !over.load(Relaxed) {
                        index = (index + 1) % stored.0.len();
                        stored.check_one(cluster, index);
                    }
                });
            }
            for pause in 0..20 {
                cluster.proxies[pause % 2].set(if pause % 4 < 2 { Mode::Hold } else { Mode::HoldData });
                std::thread::sleep(Duration::from_millis(50));
                cluster.proxies[pause % 2].set(Mode::Pass);
                std::thread::sleep(Duration::from_millis(20));
            }
            wait_until("a second was asked", || {
                cluster.proxies[0].set(Mode::HoldData);
                std::thread::sleep(Duration::from_millis(50));
                cluster.proxies[0].set(Mode::Pass);
                cluster.hedged(0) + cluster.hedged(1) > 0
            });
            over.store(true, Relaxed);
        });
    });
    let there = rows(&cluster.pool);
    assert!(there.iter().all(|row| row.losses == 0 && row.pages == SLAB_PAGES * 3), "{there:?}");
}

#[test]
fn a_node_that_owes_an_answer_and_is_asked_no_more_is_lost_in_the_end() {
    let (cluster, stored) = Cluster::of_two();
    cluster.until_hedged(&stored, 0);
    cluster.proxies[0].silence();
    // Nobody loads anything now.
    cluster.maintain_until("the node is lost", |cluster| cluster.is_lost(0));
    stored.check_each(&cluster);
}

/// The answer comes on a connection that is the parent's alone; the child makes its own.
#[test]
fn a_fork_while_an_answer_is_owed_leaves_both_sides_to_go_on() {
    let (cluster, stored) = Cluster::of_two();
    for round in 0..4 {
        let node = round % 2;
        let page = cluster.until_hedged(&stored, node);
        let next = |index: usize| (page + index) % stored.0.len();
        // In two of the rounds both sides have it come while they load.
        let check = |comes: bool| {
            (0..20).for_each(|index| stored.check_one(&cluster, next(index)));
            if comes {
                cluster.proxies[node].set(Mode::Pass);
                stored.check_each(&cluster);
            }
        };
        with_fork(&cluster.pool, || check(false), || check(round < 2));
        cluster.proxies[node].set(Mode::Pass);
        cluster.until_used(&stored, node);
    }
    assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0), "{:?}", rows(&cluster.pool));
}
