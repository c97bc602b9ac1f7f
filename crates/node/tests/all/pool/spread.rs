//! What is stored in a row is spread over nodes, and what is loaded together comes from all of them at a time.

use super::{Cluster, SLAB_PAGES, Stored};
use hinterland_backend::{Location, Priority};
use hinterland_node::SLAB_BYTES;
use hinterland_testkit::contract::{load, page_of, rows};
use hinterland_testkit::proxy::Proxy;

/// Slabs from which on two, and four, are filled at a time.
const TWO: u64 = 4;
const FOUR: u64 = 12;

impl Cluster {
    /// Pages at each node.
    fn shares(&self) -> Vec<u64> {
        rows(&self.pool).iter().map(|row| row.pages).collect()
    }

    /// The nodes that got pages since `before`.
    fn grown(&self, before: &[u64]) -> usize {
        self.shares().iter().zip(before).filter(|(now, before)| now > before).count()
    }
}

#[test]
fn a_batch_asks_all_of_its_nodes_before_it_takes_an_answer() {
    for replicas in 1..=2 {
        let cluster = Cluster::new(&[32; 4], replicas);
        let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * (FOUR + 3));
        let last = &stored.0[stored.0.len() - 512..];
        let at: Vec<Location> = last.iter().map(|(location, _)| *location).collect();
        let before: Vec<u64> = cluster.nodes.iter().map(|node| node.node().figures().reads).collect();
        // With one replica, two nodes at least have some of these pages; which of several replicas is asked is chance.
        let holders: Vec<usize> = {
            load(&cluster.pool, &at, Priority::Prefetch);
            let reads = cluster.nodes.iter().map(|node| node.node().figures().reads);
            reads.zip(before).enumerate().filter(|(_, (now, before))| now > before).map(|(index, _)| index).collect()
        };
        assert!(holders.len() >= 2, "only {holders:?} are asked");
        if replicas == 1 {
            // Each answers when all have been asked, or never.
            Proxy::meet(holders.iter().map(|index| &cluster.proxies[*index]));
        }
        for ((_, seed), loaded) in last.iter().zip(load(&cluster.pool, &at, Priority::Prefetch)) {
            assert!(loaded.unwrap_or_else(|error| panic!("{error}")) == page_of(*seed), "page {seed}");
        }
        assert!(rows(&cluster.pool).iter().all(|row| row.losses == 0), "{:?}", rows(&cluster.pool));
    }
}

#[test]
fn what_is_stored_in_a_row_lies_on_several_nodes_and_small_programs_lease_no_slab_for_it() {
    let cluster = Cluster::new(&[64; 4], 1);
    let leased =
        |cluster: &Cluster| cluster.nodes.iter().map(|node| node.node().used_bytes() / SLAB_BYTES).sum::<u64>();
    let mut stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * (TWO - 1));
    assert_eq!(leased(&cluster), TWO - 1);
    let first = cluster.shares();
    stored.0.extend(Stored::new(&cluster.pool, 5000..5000 + SLAB_PAGES * (FOUR + 4)).0);
    let before = cluster.shares();
    stored.0.extend(Stored::new(&cluster.pool, 50_000..50_000 + 512).0);
    assert!(cluster.grown(&before) >= 2, "{before:?} and then {:?}", cluster.shares());
    assert!(first.iter().sum::<u64>() == SLAB_PAGES * (TWO - 1));
    let pages = stored.0.len() as u64;
    let slabs = leased(&cluster);
    assert!(slabs <= pages.div_ceil(SLAB_PAGES) + 4, "{slabs} slabs for {pages} pages");
    stored.check(&cluster.pool);
    stored.free(&cluster.pool);
    Stored::new(&cluster.pool, 0..1).check(&cluster.pool);
    assert!(leased(&cluster) <= 3, "{} slabs stay leased", leased(&cluster));
}

#[test]
fn where_there_is_no_room_to_spread_every_slab_is_filled() {
    let cluster = Cluster::new(&[4, 4, 1], 1);
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES * 9);
    let full: u64 = cluster.nodes.iter().map(|node| node.node().used_bytes()).sum();
    assert_eq!(full, 9 * SLAB_BYTES);
    stored.check(&cluster.pool);
    stored.free(&cluster.pool);
}
