//! A node that misbehaves where no other node has the pages: loads end, and those that fail name it, and never give
//! wrong bytes.

use super::{Cluster, Mode, SLAB_PAGES, Stored, TIMING};
use hinterland_backend::{Backend as _, LoadError, Location, Priority, Timing};
use hinterland_testkit::contract::{load, page_of};

/// Loads all pages, `batch` at a time; returns how many failed.
fn failures(cluster: &Cluster, stored: &Stored, batch: usize) -> usize {
    let url = cluster.proxies[0].url();
    let mut failed = 0;
    for chunk in stored.0.chunks(batch) {
        let at: Vec<Location> = chunk.iter().map(|(location, _)| *location).collect();
        for ((_, seed), loaded) in chunk.iter().zip(load(&cluster.pool, &at, Priority::Demand)) {
            match loaded {
                Ok(page) => assert!(page == page_of(*seed), "page {seed} has wrong bytes"),
                Err(LoadError::Lost { url: named, .. } | LoadError::Damaged { url: named, .. }) => {
                    assert_eq!(named, url);
                    failed += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    failed
}

#[test]
fn wrong_answers_of_a_single_node_end_loads_soon_with_its_name_and_without_wrong_bytes() {
    for mode in [Mode::Flip, Mode::Other, Mode::Twice, Mode::Cut] {
        // One message, and three of which two are equally long: only such can be mistaken for each other.
        for batch in [1, 65] {
            let cluster = Cluster::new(&[8], 1);
            let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES);
            stored.check(&cluster.pool);
            cluster.proxies[0].set(mode);
            let failed = cluster.maintained(|| failures(&cluster, &stored, batch));
            assert!(failed > 0, "{mode:?}: nothing failed, {batch} at a time");
        }
    }
}

#[test]
fn demands_have_the_lanes_of_each_node_that_is_there() {
    let cluster = Cluster::with(&[8, 8], 2, Timing { lanes: 3, ..TIMING });
    assert_eq!(cluster.pool.demand_width(), 6);
    cluster.proxies[1].set(Mode::Dead);
    cluster.maintain_until("the loss is noticed", |cluster| cluster.is_lost(1));
    assert_eq!(cluster.pool.demand_width(), 3);
}

/// Two lanes for what is done in the background are beside them.
#[test]
fn a_link_has_no_more_lanes_than_it_is_given_and_the_pages_are_right() {
    const LANES: usize = 2;
    let cluster = Cluster::with(&[8], 1, Timing { lanes: LANES, ..TIMING });
    let stored = Stored::new(&cluster.pool, 0..SLAB_PAGES);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (cluster, stored) = (&cluster, &stored);
            scope.spawn(move || {
                for (location, seed) in stored.0.iter().skip(thread).step_by(8) {
                    let page = load(&cluster.pool, &[*location], Priority::Demand).remove(0);
                    assert!(page.expect("the node is there") == page_of(*seed));
                    assert!(cluster.nodes[0].node().figures().lanes <= LANES as u64 + 2);
                }
            });
        }
    });
}
