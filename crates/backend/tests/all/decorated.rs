//! Backends opened by URL with decorators: slow and failing backends lose nothing, and damage is visible. Backends around others say what those
//! have lost.

use hinterland_abi::PlacementName;
use hinterland_backend::{
    Backend, BackendUsage, Delay, LinkCompressed, LinkCompression, LoadError, LoadItem, Location, Paths, Priority,
    Reference, Sealed, StoreError, open,
};
use hinterland_testkit::contract::{fuzz_threads, load, page_of, rows, store};
use hinterland_units::PageBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

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

/// Far memory that loses every second location.
struct Forgetful {
    inner: Reference,
    forgets: AtomicBool,
}

impl Backend for Forgetful {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        _: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        _: &mut dyn FnMut(),
    ) {
        self.inner.store(pages, priority, out);
    }

    fn keeps_prefixes(&self) -> bool {
        true
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.inner.load(items, priority, done);
    }

    fn has_losses(&self) -> bool {
        self.forgets.load(SeqCst)
    }

    fn has_lost(&self, location: Location) -> bool {
        self.has_losses() && location.0 % 2 == 1
    }

    fn free(&self, locations: &[Location]) {
        self.inner.free(locations);
    }

    fn copies_cost_ram(&self) -> bool {
        false
    }

    fn ram_bytes(&self) -> u64 {
        self.inner.ram_bytes()
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        self.inner.usage(rows);
    }
}

#[test]
fn what_is_lost_within_is_said_by_every_backend_around_it() {
    type Around = fn(Arc<dyn Backend>) -> Arc<dyn Backend>;
    let all: [(&str, Around); 4] = [
        ("sealed", |inner| Arc::new(Sealed::new(inner, "sealed".into()).expect("a key"))),
        ("compressed", |inner| Arc::new(LinkCompressed::new(inner, "compressed".into(), LinkCompression::On))),
        ("late", |inner| Arc::new(Delay::new(inner, 0, 0, 1))),
        ("paths", |inner| Arc::new(Paths::new(vec![inner], PlacementName::Tiers).expect("address space"))),
    ];
    for (name, around) in all {
        let inner = Reference::new("reference".into(), 4 << 20).expect("address space");
        let forgetful = Arc::new(Forgetful { inner, forgets: AtomicBool::new(false) });
        let outer = around(Arc::clone(&forgetful) as _);
        let pages: Vec<PageBytes> = (0..100).map(page_of).collect();
        let locations: Vec<Location> = store(&*outer, &pages).into_iter().map(|answer| answer.expect("room")).collect();
        let lost = || locations.iter().filter(|location| outer.has_lost(**location)).count();
        assert_eq!((outer.has_losses(), lost()), (false, 0), "{name}");
        forgetful.forgets.store(true, SeqCst);
        assert_eq!((outer.has_losses(), lost()), (true, 50), "{name}");
        outer.free(&locations);
    }
}
