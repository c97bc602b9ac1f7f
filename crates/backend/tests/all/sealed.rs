//! Sealed backends: nothing readable leaves, nothing but what was stored last comes back.

use hinterland_backend::{
    Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, OpenOptions, Priority, Reference, Sealed,
    StoreError, open_with,
};
use hinterland_testkit::contract::{fork_round, fuzz, fuzz_threads, load, page_of, rows, store, with_fork};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a place of far memory does to a page that is asked for.
#[derive(Clone, Copy, PartialEq)]
enum Deceit {
    /// One bit is another.
    Flip,
    /// The page that lay there before.
    Replay,
    /// The page of another location.
    Swap,
}

/// A backend that deceives, and remembers what it has seen.
struct Deceiver {
    inner: Reference,
    deceit: Mutex<Option<Deceit>>,
    /// Every page that was ever stored, by location.
    seen: Mutex<BTreeMap<Location, Vec<PageBytes>>>,
    /// Whether there is another copy that is right.
    has_copy: bool,
}

impl Deceiver {
    fn new(has_copy: bool) -> Arc<Deceiver> {
        let inner = Reference::new("reference".into(), 64 << 20).unwrap();
        Arc::new(Deceiver { inner, deceit: Mutex::new(None), seen: Mutex::default(), has_copy })
    }

    fn deceive(&self, deceit: Option<Deceit>) {
        *self.deceit.lock().expect("no panic") = deceit;
    }
}

impl Backend for Deceiver {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.inner.store(pages, priority, out);
        let mut seen = self.seen.lock().expect("no panic");
        for (page, answer) in pages.iter().zip(out) {
            seen.entry(answer.clone().expect("room")).or_default().push(**page);
        }
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let mut answers = vec![Ok(()); items.len()];
        self.inner.load(items, priority, &mut |index, result| answers[index] = result.map(drop));
        let seen = self.seen.lock().expect("no panic");
        for (index, (item, answer)) in items.iter_mut().zip(answers).enumerate() {
            match *self.deceit.lock().expect("no panic") {
                None => {}
                Some(Deceit::Flip) => item.into[1000] ^= 4,
                Some(Deceit::Replay) => *item.into = seen[&item.location][0],
                Some(Deceit::Swap) => {
                    let other = seen.iter().find(|(location, _)| **location != item.location).expect("two pages");
                    *item.into = *other.1.last().expect("it was stored");
                }
            }
            done(index, answer.map(|()| &*item.into));
        }
    }

    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        *item.into = *self.seen.lock().expect("no panic")[&item.location].last().expect("it was stored");
        if self.has_copy && right(item.into) {
            return Ok(());
        }
        Err(LoadError::Damaged { url: "deceiver".into(), location: item.location, what: "there is no second copy" })
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

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        self.inner.after_fork(side)
    }
}

fn sealed(inner: Arc<Deceiver>) -> Sealed {
    Sealed::new(inner, "place".into()).expect("a key")
}

fn stored(backend: &dyn Backend, pages: &[PageBytes]) -> Vec<Location> {
    store(backend, pages).into_iter().map(|answer| answer.expect("room")).collect()
}

#[test]
fn every_kind_of_page_comes_back() {
    for seed in 0..3 {
        let backend = sealed(Deceiver::new(false));
        fuzz(&backend, seed, 500, 2000);
        fuzz_threads(&backend, seed + 10, 4, 100, 300);
        let rows = rows(&backend);
        assert!(rows.iter().all(|row| row.encrypted && row.pages == 0));
    }
}

#[test]
fn files_are_sealed_and_memory_is_not() {
    let urls = ["compressed:256K", "file:/tmp?size=64M&fault=load:0.02", "reference:64M"].map(str::to_owned);
    let tiers = open_with(&urls, &OpenOptions { encrypt: true, ..OpenOptions::default() }).expect("tiers");
    fuzz_threads(&*tiers, 3, 4, 300, 500);
    let encrypted: Vec<bool> = rows(&*tiers).iter().map(|row| row.encrypted).collect();
    assert_eq!(encrypted, [false, true, false]);
    assert!(rows(&*tiers)[1].bytes_in > 0, "nothing went down");
}

#[test]
fn no_part_of_a_page_leaves_and_no_page_looks_the_same_twice() {
    let inner = Deceiver::new(false);
    let backend = sealed(inner.clone());
    let pages: Vec<PageBytes> = (0..64).map(page_of).chain([[0; PAGE_BYTES]; 3]).collect();
    stored(&backend, &pages);
    stored(&backend, &pages);
    let seen = inner.seen.lock().expect("no panic");
    let mut sent: Vec<&PageBytes> = seen.values().flatten().collect();
    assert_eq!(sent.len(), 2 * pages.len());
    for (page, sealed) in pages.iter().flat_map(|page| sent.iter().map(move |sealed| (page, sealed))) {
        // 16 equal bytes in the same place are a matter of 1 in 2^128.
        assert!(page.chunks(16).zip(sealed.chunks(16)).all(|(plain, sealed)| plain != sealed));
    }
    sent.sort_unstable();
    assert!(sent.windows(2).all(|pair| pair[0] != pair[1]), "one page looks like another");
}

#[test]
fn flipped_older_and_other_pages_are_damage() {
    let inner = Deceiver::new(false);
    let backend = sealed(inner.clone());
    let old: Vec<PageBytes> = (0..4).map(page_of).collect();
    let before = stored(&backend, &old);
    backend.free(&before);
    let new: Vec<PageBytes> = (10..14).map(page_of).collect();
    let at = stored(&backend, &new);
    assert!(at.iter().any(|location| before.contains(location)), "no location was used again");
    let again: Vec<Location> = at.iter().copied().filter(|location| before.contains(location)).collect();
    for deceit in [Deceit::Flip, Deceit::Replay, Deceit::Swap] {
        inner.deceive(Some(deceit));
        for (location, loaded) in again.iter().zip(load(&backend, &again, Priority::Demand)) {
            let what = "it is not what was stored there last (wrong tag)";
            assert_eq!(loaded, Err(LoadError::Damaged { url: "place".into(), location: *location, what }));
        }
        inner.deceive(None);
        for (page, loaded) in new.iter().zip(load(&backend, &at, Priority::Prefetch)) {
            assert_eq!(loaded.as_ref(), Ok(page));
        }
    }
}

#[test]
fn another_copy_is_taken_where_there_is_one() {
    let inner = Deceiver::new(true);
    let backend = sealed(inner.clone());
    let pages: Vec<PageBytes> = (0..20).map(page_of).collect();
    let at = stored(&backend, &pages);
    for deceit in [Deceit::Flip, Deceit::Swap] {
        inner.deceive(Some(deceit));
        for (page, loaded) in pages.iter().zip(load(&backend, &at, Priority::Prefetch)) {
            assert_eq!(loaded.as_ref(), Ok(page));
        }
    }
    // The caller sees the page, not what stands for it.
    let mut into = [0; PAGE_BYTES];
    let item = LoadItem { location: at[3], into: &mut into };
    backend.repair(item, &|page| *page == pages[3]).expect("the other copy is right");
    assert_eq!(into, pages[3]);
    let item = LoadItem { location: at[3], into: &mut into };
    assert!(backend.repair(item, &|_| false).is_err());
}

#[test]
fn what_was_freed_opens_no_more() {
    let backend = sealed(Deceiver::new(false));
    let at = stored(&backend, &[page_of(1), page_of(2)]);
    let before = backend.ram_bytes();
    backend.free(&at[..1]);
    assert!(matches!(load(&backend, &at, Priority::Demand)[..], [Err(LoadError::Damaged { .. }), Ok(_)]));
    backend.free(&at[1..]);
    assert!(backend.ram_bytes() < before, "the table keeps its memory");
}

#[test]
fn processes_go_on_with_keys_of_their_own() {
    let options = OpenOptions { encrypt: true, ..OpenOptions::default() };
    let backend = open_with(&["file:/tmp?size=64M".to_owned()], &options).expect("a file");
    fork_round(&*backend, 1, 2);
}

/// Two processes that used one nonce for two pages would give away what the pages differ in.
#[test]
fn a_forked_process_never_uses_a_nonce_of_its_parent() {
    let inner = Deceiver::new(false);
    let backend = sealed(inner.clone());
    let page = page_of(3);
    let at = stored(&backend, &[page]);
    let file = std::env::temp_dir().join(format!("hinterland-sealed-{}", std::process::id()));
    let last = |inner: &Deceiver, location: &Location| {
        *inner.seen.lock().expect("no panic")[location].last().expect("it was stored")
    };
    let child = || {
        let own = stored(&backend, &[page]);
        std::fs::write(&file, last(&inner, &own[0])).expect("a file for the parent");
        assert_eq!(load(&backend, &at, Priority::Demand)[0].as_ref(), Ok(&page), "the parent's page");
        assert_eq!(load(&backend, &own, Priority::Demand)[0].as_ref(), Ok(&page), "its own");
    };
    let mut own = Vec::new();
    with_fork(&backend, child, || own = stored(&backend, &[page]));
    let childs = std::fs::read(&file).expect("the child's");
    std::fs::remove_file(&file).expect("ours");
    // The same page under the same nonce of the same key would be the same bytes.
    assert!(last(&inner, &own[0])[..] != childs[..]);
}
