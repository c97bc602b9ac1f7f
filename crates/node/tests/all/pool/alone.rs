//! A node that misbehaves where nobody else has the pages: loads end, and those that fail name it, and never give wrong bytes.

use super::{Cluster, Mode, SLAB_PAGES, Stored};
use hinterland_backend::{LoadError, Location, Priority};
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
