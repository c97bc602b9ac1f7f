//! Erasure coding over shards that are lost, come back empty, fill up and lie.

use hinterland_backend::{
    Backend, BackendUsage, Coded, Compressed, ForkSide, LoadError, LoadItem, Location, NodeError, Priority, Reference,
    Shard, StoreError, Timing,
};
use hinterland_testkit::contract::{fork_round, fuzz, fuzz_threads, load, page_of, rows, store};
use hinterland_testkit::{Rng, maintain_until};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A shard whose loss is a call.
struct Losing(Arc<Inner>);

struct Inner {
    name: String,
    backend: Box<dyn Backend>,
    gone: AtomicBool,
    lies: AtomicBool,
    losses: AtomicU64,
    rebuilt: AtomicU64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    kept: BTreeSet<u64>,
    lost: BTreeSet<u64>,
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no panic")
    }

    /// Loses everything that is here, and takes nothing until `come_back`.
    fn lose(&self) {
        let mut held = self.held();
        self.gone.store(true, SeqCst);
        self.losses.fetch_add(1, SeqCst);
        let kept = std::mem::take(&mut held.kept);
        held.lost.extend(kept);
    }

    fn come_back(&self) {
        self.gone.store(false, SeqCst);
    }

    fn pages(&self) -> usize {
        self.held().kept.len()
    }

    fn error(&self) -> (String, NodeError) {
        (self.name.clone(), NodeError::Closed)
    }
}

impl Backend for Losing {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        _: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        meanwhile();
        self.store(pages, priority, out);
    }

    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.0.backend.store(pages, priority, out);
        let mut held = self.0.held();
        for answer in out {
            let Ok(location) = answer.clone() else { continue };
            assert!(held.kept.insert(location.0), "given twice");
            if self.0.gone.load(SeqCst) {
                held.kept.remove(&location.0);
                self.0.backend.free(&[location]);
                let (url, error) = self.0.error();
                *answer = Err(StoreError::Lost { url, error });
            }
        }
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let locations: Vec<u64> = items.iter().map(|item| item.location.0).collect();
        let mut loaded = vec![[0; PAGE_BYTES]; items.len()];
        self.0.backend.load(items, priority, &mut |index, page| loaded[index] = *page.expect("it is there"));
        for (index, location) in locations.into_iter().enumerate() {
            let is_lost = {
                let held = self.0.held();
                assert!(
                    held.kept.contains(&location) || held.lost.contains(&location),
                    "a page that was freed is loaded"
                );
                held.lost.contains(&location)
            };
            if is_lost {
                let (url, error) = self.0.error();
                done(index, Err(LoadError::Lost { url, error }));
            } else {
                loaded[index][7] ^= u8::from(self.0.lies.load(SeqCst));
                *items[index].into = loaded[index];
                done(index, Ok(&loaded[index]));
            }
        }
    }

    fn has_losses(&self) -> bool {
        self.0.losses.load(SeqCst) > 0
    }

    fn has_lost(&self, location: Location) -> bool {
        self.0.held().lost.contains(&location.0)
    }

    fn free(&self, locations: &[Location]) {
        let mut held = self.0.held();
        for location in locations {
            assert!(held.kept.remove(&location.0) || held.lost.remove(&location.0), "freed twice");
        }
        self.0.backend.free(locations);
    }

    fn copies_cost_ram(&self) -> bool {
        false
    }

    fn ram_bytes(&self) -> u64 {
        self.0.backend.ram_bytes()
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        self.0.backend.usage(rows);
    }

    fn before_fork(&self) {
        self.0.backend.before_fork();
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        self.0.backend.after_fork(side)
    }
}

impl Shard for Losing {
    fn is_there(&self) -> bool {
        !self.0.gone.load(SeqCst)
    }

    fn losses(&self) -> u64 {
        self.0.losses.load(SeqCst)
    }

    fn count_rebuilt(&self, pages: u64) {
        self.0.rebuilt.fetch_add(pages, SeqCst);
    }
}

/// Stripes of `code` over so many shards of `bytes` each.
fn coded(code: &str, shards: usize, bytes: u64) -> (Coded<Losing>, Vec<Arc<Inner>>) {
    let shard = |index: usize| {
        let backend = Box::new(Reference::new(format!("reference:{index}"), bytes).expect("address space"));
        let zero = || AtomicU64::new(0);
        let (gone, lies, held) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::default());
        let name = format!("shard {index}");
        Arc::new(Inner { name, backend, gone, lies, losses: zero(), rebuilt: zero(), held })
    };
    let inners: Vec<Arc<Inner>> = (0..shards).map(shard).collect();
    let shards = inners.iter().cloned().map(Losing).collect();
    (Coded::new("coded".into(), shards, code.parse().expect("a code"), TIMING), inners)
}

/// Maintains until nothing is lost any more.
fn repair(coded: &Coded<Losing>) {
    coded.maintain();
    maintain_until(coded, "all is repaired", || coded.is_repaired());
}

/// Pauses that a test need not wait for.
const TIMING: Timing = Timing {
    refused: Duration::from_millis(1),
    damaged: Duration::from_millis(1),
    view_silence: Duration::ZERO,
    step: Duration::from_millis(1),
    idle_step: Duration::from_millis(1),
    ping: Duration::ZERO,
    recall: Duration::ZERO,
    fresh: Duration::from_secs(3),
    return_min: Duration::from_millis(1),
    return_max: Duration::from_millis(1),
    return_limit: Duration::from_millis(1),
    lease_ms: 1,
    rebuild_bytes_per_second: 1 << 30,
    share: hinterland_backend::LinkShare::Auto,
    sub_page: false,
    lanes: hinterland_backend::DEMAND_LANES,
};

const CODES: [(&str, usize); 5] = [("2+1", 3), ("2+1", 5), ("3+2", 5), ("4+2", 6), ("5+3", 8)];

#[test]
fn any_mix_of_pages_comes_back_and_nothing_is_left() {
    for (code, shards) in CODES {
        let (coded, inners) = coded(code, shards, 64 << 20);
        assert_eq!(fuzz(&coded, 1, 3000, 2000), 0);
        fuzz_threads(&coded, 2, 3, 1500, 800);
        assert_eq!(inners.iter().map(|inner| inner.pages()).sum::<usize>(), 0, "{code}: something is left");
    }
}

#[test]
fn shards_may_be_lost_and_come_back_under_load() {
    for (code, shards) in CODES {
        let (coded, inners) = coded(code, shards, 64 << 20);
        let parity = code[2..].parse().expect("a number");
        let over = AtomicBool::new(false);
        let rebuilt = || inners.iter().map(|inner| inner.rebuilt.load(SeqCst)).sum::<u64>();
        // At least until something had to be computed.
        let work = |coded: &Coded<Losing>, seed: u64| {
            let mut refused = fuzz(coded, seed, 6000, 1500);
            for round in 1.. {
                if rebuilt() > 0 {
                    break;
                }
                refused += fuzz(coded, seed + 2 * round, 500, 1500);
            }
            refused
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..2).map(|seed| (seed, &coded)).map(|(seed, coded)| scope.spawn(move || work(coded, seed))).collect();
            scope.spawn(|| {
                let mut rng = Rng(9);
                while !over.load(SeqCst) {
                    let mut lost: Vec<usize> = (0..inners.len()).collect();
                    while lost.len() > parity {
                        lost.swap_remove(rng.index(lost.len()));
                    }
                    for shard in &lost {
                        inners[*shard].lose();
                    }
                    std::thread::sleep(Duration::from_millis(rng.below(8)));
                    coded.maintain();
                    for shard in &lost {
                        inners[*shard].come_back();
                    }
                    repair(&coded);
                }
            });
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            over.store(true, SeqCst);
            ended.into_iter().for_each(|refused| assert_eq!(refused.expect("no panic"), 0));
        });
        assert_eq!(inners.iter().map(|inner| inner.pages()).sum::<usize>(), 0, "{code}: something is left");
    }
}

#[test]
fn what_is_lost_beyond_parity_is_named() {
    let (coded, inners) = coded("2+1", 3, 1 << 20);
    let pages: Vec<PageBytes> = (0..20).map(page_of).collect();
    let locations: Vec<Location> = store(&coded, &pages).into_iter().map(|a| a.expect("room")).collect();
    inners[1].lose();
    for (page, loaded) in pages.iter().zip(load(&coded, &locations, Priority::Demand)) {
        assert!(loaded.expect("two are left") == *page);
    }
    // With one shard less, pages are stored with what parity there is room for.
    let later: Vec<Location> = store(&coded, &pages).into_iter().map(|a| a.expect("two shards")).collect();
    inners[2].lose();
    for loaded in load(&coded, &locations, Priority::Demand) {
        let error = loaded.map(|page| page == page_of(0));
        assert!(matches!(&error, Ok(_) | Err(LoadError::Lost { .. })), "{error:?}");
    }
    let lost = load(&coded, &locations, Priority::Demand).into_iter().filter_map(Result::err);
    assert!(lost.count() >= 13, "a third of the pages is left at most");
    let refused = store(&coded, &pages[..2]).remove(0);
    assert!(matches!(&refused, Err(StoreError::Lost { url, .. }) if url.starts_with("shard ")), "{refused:?}");
    coded.free(&locations);
    coded.free(&later);
    assert_eq!(inners.iter().map(|inner| inner.pages()).sum::<usize>(), 0);
}

#[test]
fn wrong_units_are_found_out_and_replaced() {
    for (code, shards) in CODES {
        let (coded, inners) = coded(code, shards, 16 << 20);
        let pages: Vec<PageBytes> = (0..64).map(page_of).collect();
        let locations: Vec<Location> = store(&coded, &pages).into_iter().map(|a| a.expect("room")).collect();
        inners[2].lies.store(true, SeqCst);
        let mut wrong = 0;
        for ((page, location), loaded) in pages.iter().zip(&locations).zip(load(&coded, &locations, Priority::Demand)) {
            if loaded.expect("it is there") != *page {
                let mut into = [0; PAGE_BYTES];
                let item = LoadItem { location: *location, into: &mut into };
                coded.repair(item, &|bytes| bytes == page).expect("the others have it");
                assert!(into == *page);
                wrong += 1;
            }
        }
        assert!(wrong > 0, "{code}: it had nothing");
        inners[2].lies.store(false, SeqCst);
        repair(&coded);
        for (page, loaded) in pages.iter().zip(load(&coded, &locations, Priority::Demand)) {
            assert!(loaded.expect("it is there") == *page, "{code}");
        }
        let rebuilt: u64 = inners.iter().map(|inner| inner.rebuilt.load(SeqCst)).sum();
        assert_eq!(rebuilt, wrong, "{code}: only what was wrong is stored anew");
        // What nobody has is said to be damaged.
        let item = LoadItem { location: locations[0], into: &mut [0; PAGE_BYTES] };
        assert!(matches!(coded.repair(item, &|_| false), Err(LoadError::Damaged { .. })));
    }
}

#[test]
fn full_shards_are_passed_by_and_said() {
    let (coded, inners) = coded("2+1", 4, 100 * PAGE_BYTES as u64);
    let mut held = Vec::new();
    let mut stored = 0;
    for seed in 0..400 {
        match store(&coded, &[page_of(seed)]).remove(0) {
            Ok(location) => {
                held.push((location, seed));
                stored += 1;
            }
            Err(error) => assert!(matches!(error, StoreError::Full { .. }), "{error}"),
        }
    }
    // Four hundred stripe units have room: of every three two are pages, but for what the last stripes lack.
    assert!((200..=267).contains(&stored), "{stored} pages");
    for (location, seed) in held {
        assert!(load(&coded, &[location], Priority::Demand).remove(0).expect("stored") == page_of(seed));
        coded.free(&[location]);
    }
    assert_eq!(inners.iter().map(|inner| inner.pages()).sum::<usize>(), 0);
}

#[test]
fn stale_pages_take_a_quarter_more_at_most() {
    for (code, shards) in CODES {
        let (coded, inners) = coded(code, shards, 64 << 20);
        let (data, parity): (usize, usize) = (code[..1].parse().expect("k"), code[2..].parse().expect("m"));
        let mut rng = Rng(4);
        let mut held: Vec<(Location, u64)> = Vec::new();
        for step in 0..400 {
            let count = if held.len() < 2000 { 64 } else { 32 };
            let pages: Vec<PageBytes> = (0..count).map(|index| page_of(step * 64 + index)).collect();
            let stored = store(&coded, &pages).into_iter().zip(step * 64..);
            held.extend(stored.map(|(answer, seed)| (answer.expect("room"), seed)));
            while held.len() > 2000 {
                coded.free(&[held.swap_remove(rng.index(held.len())).0]);
            }
        }
        let stored = inners.iter().map(|inner| inner.pages()).sum::<usize>();
        let least = held.len() * (data + parity) / data;
        assert!(stored * 100 < least * 135, "{code}: {stored} units for {} pages", held.len());
        for (location, seed) in &held {
            assert!(load(&coded, &[*location], Priority::Demand).remove(0).expect("stored") == page_of(*seed));
        }
    }
}

#[test]
fn what_cannot_be_computed_any_more_is_said_to_be_lost_and_nothing_else() {
    for (code, shards) in CODES {
        let (coded, inners) = coded(code, shards, 64 << 20);
        let pages: Vec<PageBytes> = (1..=300).map(page_of).collect();
        let stored: Vec<Location> = store(&coded, &pages).into_iter().map(|answer| answer.expect("room")).collect();
        assert!(!coded.has_losses());
        let mut lost = 0;
        for inner in &inners {
            inner.lose();
            let loads = |at: &Location| load(&coded, &[*at], Priority::Demand).remove(0).is_ok();
            for at in &stored {
                let is_lost = coded.has_losses() && coded.has_lost(*at);
                assert_eq!(is_lost, !loads(at), "{code}, {at:?}");
                lost += usize::from(is_lost);
            }
        }
        assert!(lost > 0, "{code}: all shards are lost, and no page");
        coded.free(&stored);
    }
}

/// Compressed RAM, which is never lost.
struct Steady(Compressed);

impl Backend for Steady {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        _: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        meanwhile();
        self.store(pages, priority, out);
    }

    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.0.store(pages, priority, out);
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.0.load(items, priority, done);
    }

    fn free(&self, locations: &[Location]) {
        self.0.free(locations);
    }

    fn copies_cost_ram(&self) -> bool {
        true
    }

    fn ram_bytes(&self) -> u64 {
        self.0.ram_bytes()
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        self.0.usage(rows);
    }

    fn before_fork(&self) {
        self.0.before_fork();
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        self.0.after_fork(side)
    }
}

impl Shard for Steady {
    fn is_there(&self) -> bool {
        true
    }

    fn losses(&self) -> u64 {
        0
    }

    fn count_rebuilt(&self, _: u64) {}
}

#[test]
fn forked_processes_have_every_page() {
    let shard = |index| Compressed::new(format!("compressed:{index}"), "lz4".parse().expect("a codec"), 64 << 20);
    let shards = (0..3).map(|index| Steady(shard(index).expect("address space"))).collect();
    let coded = Coded::new("coded".into(), shards, "2+1".parse().expect("a code"), TIMING);
    fork_round(&coded, 3, 2);
    assert_eq!(rows(&coded).len(), 3);
}
