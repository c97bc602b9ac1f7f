//! Nodes that are drained or shrunk while programs grow: that never hurts more than their loss would.

use super::{Cluster, SLAB_PAGES, Stored};
use hinterland_backend::Backend;
use hinterland_node::SLAB_BYTES;
use hinterland_testkit::contract::rows;
use hinterland_testkit::proxy::Mode;

impl Cluster {
    fn drain(&self, node: usize, on: bool) {
        self.nodes[node].node().drain(on);
    }

    fn used_slabs(&self, node: usize) -> u64 {
        self.nodes[node].node().used_bytes() / SLAB_BYTES
    }
}

impl<P: Backend> Cluster<P> {
    /// Steps of maintenance, in which each node is asked what it wants back.
    pub fn steps(&self, count: usize) {
        for _ in 0..count {
            self.pool.maintain();
            std::thread::sleep(super::TIMING.recall);
        }
    }
}

#[test]
fn a_pool_of_two_goes_on_growing_when_one_is_drained() {
    let cluster = Cluster::new(&[64, 64], 2);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 2);
    cluster.drain(0, true);
    // Before it is known, and after that.
    let early = Stored::new(&cluster.pool, 10_000..10_000 + SLAB_PAGES * 4);
    cluster.steps(8);
    let late = Stored::new(&cluster.pool, 20_000..20_000 + SLAB_PAGES * 4);
    [&stored, &early, &late].iter().for_each(|stored| stored.check(&cluster.pool));
    assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0), "{:?}", rows(&cluster.pool));
    // It keeps what it has: the other node has no room for a second replica of its own pages.
    assert!(cluster.used_slabs(0) > 0);
    // The node may go: all pages are on the other one.
    cluster.proxies[0].set(Mode::Dead);
    [&stored, &early, &late].iter().for_each(|stored| stored.check(&cluster.pool));
}

#[test]
fn replicas_that_a_drain_left_out_are_made_when_it_ends() {
    let cluster = Cluster::new(&[64, 64], 2);
    let pages = SLAB_PAGES * 6 + 40;
    cluster.drain(0, true);
    let stored = Stored::new(&cluster.pool, 0..pages);
    assert_eq!(rows(&cluster.pool)[0].pages, 0);
    cluster.drain(0, false);
    cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == pages * 2);
    // So the other one may be lost.
    cluster.proxies[1].set(Mode::Dead);
    stored.check(&cluster.pool);
}

#[test]
fn a_drain_that_was_ended_before_it_was_known_leaves_no_page_with_one_replica() {
    let cluster = Cluster::new(&[64, 64], 2);
    cluster.drain(0, true);
    // The refusal is all that is known of it.
    let stored = Stored::new(&cluster.pool, 0..10);
    cluster.drain(0, false);
    stored.free(&cluster.pool);
    cluster.steps(8);
    let stored = Stored::new(&cluster.pool, 100..200);
    assert_eq!(cluster.pages(), 200, "{:?}", rows(&cluster.pool));
    stored.check(&cluster.pool);
}

#[test]
fn of_three_nodes_one_is_drained_and_another_lost_and_the_third_takes_all() {
    for known in [false, true] {
        let cluster = Cluster::new(&[64, 64, 64], 2);
        let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 5);
        cluster.drain(0, true);
        if known {
            cluster.maintain_until("the node is empty", |cluster| cluster.used_slabs(0) == 0);
        }
        cluster.proxies[1].set(Mode::Dead);
        let more = Stored::new(&cluster.pool, 50_000..50_000 + SLAB_PAGES * 8);
        cluster.maintained(|| [&stored, &more].iter().for_each(|stored| stored.check(&cluster.pool)));
        assert!(cluster.is_lost(1) && !cluster.is_lost(0), "{:?}", rows(&cluster.pool));
        // What only the drained node had is copied to the one that stays.
        cluster.maintain_until("all pages are on the third node", |cluster| {
            rows(&cluster.pool)[2].pages == SLAB_PAGES * 13
        });
        cluster.proxies[0].set(Mode::Dead);
        [&stored, &more].iter().for_each(|stored| stored.check(&cluster.pool));
    }
}

#[test]
fn a_node_that_lends_less_gets_no_new_slab_and_ends_no_run() {
    let cluster = Cluster::new(&[64, 64], 2);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 4);
    cluster.nodes[0].node().resize(2 * SLAB_BYTES);
    let more = Stored::new(&cluster.pool, 50_000..50_000 + SLAB_PAGES * 6);
    cluster.steps(8);
    let late = Stored::new(&cluster.pool, 60_000..60_000 + SLAB_PAGES * 6);
    [&stored, &more, &late].iter().for_each(|stored| stored.check(&cluster.pool));
    cluster.nodes[0].node().resize(64 * SLAB_BYTES);
    let pages = SLAB_PAGES * 16;
    cluster.maintain_until("two replicas of each page", |cluster| cluster.pages() == pages * 2);
    [stored, more, late].into_iter().for_each(|stored| stored.free(&cluster.pool));
    assert_eq!(cluster.pages(), 0);
}

#[test]
fn a_drained_node_that_is_used_still_gets_the_pages_of_its_slabs() {
    let cluster = Cluster::new(&[64, 64], 2);
    let stored = Stored::new(&cluster.pool, 0..100);
    cluster.drain(0, true);
    cluster.steps(8);
    // There is room in the slab that both have.
    let more = Stored::new(&cluster.pool, 1000..1200);
    assert_eq!(cluster.pages(), 600, "{:?}", rows(&cluster.pool));
    cluster.proxies[1].set(Mode::Dead);
    [&stored, &more].iter().for_each(|stored| stored.check(&cluster.pool));
}

#[test]
fn where_no_node_leases_anything_the_pool_is_full_and_says_so() {
    let cluster = Cluster::new(&[64, 64], 2);
    [0, 1].iter().for_each(|node| cluster.drain(*node, true));
    let page = hinterland_testkit::contract::page_of(1);
    let refused = hinterland_testkit::contract::store(&cluster.pool, &[page]).remove(0).expect_err("no node leases");
    assert!(refused.to_string().contains("the node leases no more memory"), "{refused}");
}
