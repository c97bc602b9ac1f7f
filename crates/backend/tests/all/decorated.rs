//! Backends opened by URL with decorators: slow and failing backends lose nothing, and damage is visible.

use hinterland_backend::{Backend, Location, Priority, open};
use hinterland_testkit::contract::{fuzz_threads, load, page_of, rows, store};
use hinterland_units::PageBytes;
use std::sync::Arc;

fn opened(urls: &[&str]) -> Arc<dyn Backend> {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    open(&urls).unwrap_or_else(|error| panic!("{error}"))
}

fn assert_empty(backend: &dyn Backend) {
    for row in rows(backend) {
        assert_eq!((row.pages, row.stored_bytes), (0, 0), "{row:?}");
    }
}

#[test]
fn slow_tiers_lose_nothing() {
    let tiers = opened(&[
        "compressed:1M?jitter_us=60&seed=1",
        "file:/tmp?size=2M&delay_us=20&jitter_us=200&seed=2",
        "reference:2M?link=20us:10Gb/s&jitter_us=300&throttle=400M&seed=3",
    ]);
    fuzz_threads(&*tiers, 11, 4, 300, 500);
    assert_empty(&*tiers);
}

#[test]
fn failing_tiers_lose_nothing() {
    for seed in 0..3 {
        let tiers = opened(&[
            &format!("compressed:1M?fault=load:0.05,store:0.02&seed={seed}"),
            &format!("file:/tmp?size=2M&fault=store:0.1,load:0.05&seed={seed}"),
            "reference:100M",
        ]);
        fuzz_threads(&*tiers, 20 + seed, 4, 500, 500);
        assert_empty(&*tiers);
    }
}

#[test]
fn flipped_bits_reach_the_caller() {
    for url in ["compressed:64M", "compressed:64M?codec=zstd", "file:/tmp?size=16M", "reference:16M"] {
        let separator = if url.contains('?') { '&' } else { '?' };
        let backend = opened(&[&format!("{url}{separator}fault=flip:0.05&seed=9")]);
        let pages: Vec<PageBytes> = (0..2000).map(page_of).collect();
        let locations: Vec<Location> =
            store(&*backend, &pages).into_iter().map(|answer| answer.expect("room")).collect();
        let loaded = load(&*backend, &locations, Priority::Demand);
        let damaged = pages.iter().zip(&loaded).filter(|(page, loaded)| loaded.as_ref() != Ok(page)).count();
        assert!((50..200).contains(&damaged), "{damaged} of 2000 pages damaged at 5 % by {url}");
    }
}
