//! Pages that the program waits for: asked of a second node when the first is late, without a loss of anything.

use super::common::{load, page_of, rows};
use super::proxy::Mode;
use super::{Cluster, SLAB_PAGES, Stored};
use hinterland_backend::{Backend, Priority};
use hinterland_node::SLAB_BYTES;
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

    /// Connections of the pool to a node.
    fn lanes(&self, index: usize) -> u64 {
        self.nodes[index].node().figures().lanes
    }

    /// Loads until `node`, which answers nothing now, has been asked and another was heard; returns which page that was.
    fn until_hedged(&self, stored: &Stored, node: usize) -> usize {
        let before = self.hedged(node);
        let is_hedged = |index: &usize| {
            stored.check_one(self, *index);
            self.hedged(node) > before
        };
        let found = (0..30).find_map(|_| (0..stored.0.len()).find(is_hedged));
        found.unwrap_or_else(|| panic!("node {node} was never asked: {:?}", rows(&self.pool)))
    }
}

#[test]
fn a_page_that_is_late_comes_from_another_node_and_no_connection_is_given_up() {
    let (cluster, stored) = Cluster::of_two();
    for node in [0, 1, 0] {
        let (lanes, reads) = (cluster.lanes(node), cluster.nodes[node].node().figures().reads);
        cluster.proxies[node].set(Mode::Hold);
        cluster.until_hedged(&stored, node);
        // As long as an answer is owed, the other one is asked.
        stored.check_each(&cluster);
        cluster.proxies[node].set(Mode::Pass);
        // The answer that was late is thrown away, and the node used again.
        let begun = std::time::Instant::now();
        while cluster.nodes[node].node().figures().reads < reads + 50 {
            assert!(begun.elapsed() < Duration::from_secs(30), "node {node} is not used again");
            stored.check_each(&cluster);
            cluster.pool.tend();
        }
        assert!(cluster.lanes(node) >= lanes, "a connection to node {node} was closed");
        assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0), "{:?}", rows(&cluster.pool));
    }
}

#[test]
fn a_slab_that_may_still_be_read_is_not_given_back() {
    let (cluster, stored) = Cluster::of_two();
    let used = |node: usize| cluster.nodes[node].node().used_bytes();
    cluster.proxies[0].set(Mode::HoldData);
    let page = cluster.until_hedged(&stored, 0) as u64;
    // Its slab at last: of slabs without pages, the first stays for what is stored next.
    let (last, first) = stored.0.into_iter().partition(|(_, seed)| seed / SLAB_PAGES == page / SLAB_PAGES);
    [Stored(first), Stored(last)].into_iter().for_each(|stored| stored.free(&cluster.pool));
    // Both nodes have the same slabs, but for that one.
    cluster.tend_until("the other node has it back", |_| used(1) + SLAB_BYTES == used(0));
    for _ in 0..20 {
        cluster.pool.tend();
        assert_eq!(used(1) + SLAB_BYTES, used(0));
    }
    cluster.proxies[0].set(Mode::Pass);
    cluster.tend_until("the slab is given back", |_| used(1) == used(0));
    assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0), "{:?}", rows(&cluster.pool));
}

#[test]
fn the_first_is_heard_after_all_if_the_second_sends_something_wrong() {
    let (cluster, stored) = Cluster::of_two();
    cluster.proxies[0].set(Mode::Hold);
    cluster.proxies[1].set(Mode::Flip);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            cluster.proxies[0].set(Mode::Pass);
        });
        stored.check_each(&cluster);
    });
    assert_eq!(rows(&cluster.pool)[0].losses, 0, "{:?}", rows(&cluster.pool));
}

#[test]
fn a_node_that_owes_an_answer_and_is_asked_no_more_is_lost_in_the_end() {
    let (cluster, stored) = Cluster::of_two();
    cluster.proxies[0].set(Mode::Hold);
    cluster.until_hedged(&stored, 0);
    // Nobody loads anything now.
    cluster.tend_until("the node is lost", |cluster| cluster.is_lost(0));
    stored.check_each(&cluster);
}
