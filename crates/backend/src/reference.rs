//! `reference`: whole pages in a table. Simple and obviously right; the model that the other backends are tested against, and the
//! measure of what everything but the backend costs: it copies pages and does nothing else.

use crate::counters::{Counters, Tally};
use crate::mapping::Mapping;
use crate::sync::lock;
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Patch, Priority, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

/// Plain pages in memory. A location is a place in it.
pub struct Reference {
    url: String,
    capacity_bytes: u64,
    memory: Mapping,
    /// By place: one `AtomicBool`, whether a page is there. Of the memory that was never touched they are false.
    held: Mapping,
    places: Mutex<Places>,
    counters: Counters,
    patches: bool,
}

/// Which places are free: those given back, and all that were never used.
#[derive(Default)]
struct Places {
    free: Vec<usize>,
    /// Places that were ever used: so many pages of RAM.
    used: usize,
}

impl Reference {
    /// Holds up to `capacity_bytes` of pages; `url` names it in messages.
    ///
    /// # Errors
    /// The address space cannot be reserved.
    pub fn new(url: String, capacity_bytes: u64) -> io::Result<Reference> {
        let bytes = usize::try_from(capacity_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Reference {
            url,
            capacity_bytes,
            memory: Mapping::reserve(bytes)?,
            held: Mapping::reserve(bytes.div_ceil(PAGE_BYTES))?,
            places: Mutex::default(),
            counters: Counters::default(),
            patches: false,
        })
    }

    /// The same, whose pages can be patched.
    #[must_use]
    pub fn patched(self) -> Reference {
        Reference { patches: true, ..self }
    }

    /// Changes a page that is stored; false: it is not the one that was patched.
    fn patch_one(&self, patch: &Patch<'_>) -> bool {
        let mut page = [0; PAGE_BYTES];
        let loaded = self.load_one(&mut LoadItem { location: patch.location, into: &mut page });
        patch.granules.runs().for_each(|run| page[run.clone()].copy_from_slice(&patch.page[run]));
        if loaded.is_err() || page != *patch.page {
            return false;
        }
        // SAFETY: a page is there, and whoever patches it neither loads nor frees it meanwhile.
        unsafe { self.page(patch.location).copy_from_nonoverlapping(page.as_ptr(), PAGE_BYTES) };
        true
    }

    fn places_max(&self) -> usize {
        usize::try_from(self.capacity_bytes).unwrap_or(usize::MAX) / PAGE_BYTES
    }

    /// Whether a page is at a place; `None` where there are no places.
    fn held(&self, location: Location) -> Option<&AtomicBool> {
        let place = usize::try_from(location.0).ok().filter(|place| *place < self.places_max())?;
        // SAFETY: the mapping has a byte for each place; zero is false, and only this type writes to it.
        Some(unsafe { &*self.held.at(place).cast::<AtomicBool>() })
    }

    fn page(&self, location: Location) -> *mut u8 {
        self.memory.at(usize::try_from(location.0).expect("a place that was allocated") * PAGE_BYTES)
    }

    fn take_place(&self) -> Result<Location, StoreError> {
        let mut places = lock(&self.places);
        let place = places.free.pop().unwrap_or(places.used);
        if place == self.places_max() {
            let used_bytes = (place * PAGE_BYTES) as u64;
            let capacity_bytes = self.capacity_bytes;
            return Err(StoreError::Full { url: self.url.clone(), words: None, used_bytes, capacity_bytes });
        }
        if place == places.used {
            places.used += 1;
        }
        Ok(Location(place as u64))
    }

    fn store_one(&self, page: &PageBytes) -> Result<Location, StoreError> {
        let location = self.take_place()?;
        // SAFETY: the place was free and is ours.
        unsafe { self.page(location).copy_from_nonoverlapping(page.as_ptr(), PAGE_BYTES) };
        self.held(location).expect("a place that was taken").store(true, Release);
        Ok(location)
    }

    fn load_one(&self, item: &mut LoadItem<'_>) -> Result<(), LoadError> {
        if !self.held(item.location).is_some_and(|held| held.load(Acquire)) {
            return Err(LoadError::Damaged {
                url: self.url.clone(),
                location: item.location,
                what: "nothing is stored there (freed, or never stored)",
            });
        }
        // SAFETY: a page is there, and whoever loads it does not free it meanwhile.
        unsafe { item.into.as_mut_ptr().copy_from_nonoverlapping(self.page(item.location), PAGE_BYTES) };
        Ok(())
    }
}

impl Backend for Reference {
    fn patches(&self) -> bool {
        self.patches
    }

    fn patch(&self, patches: &[Patch<'_>], _priority: Priority, out: &mut [bool]) {
        patches.iter().zip(out).for_each(|(patch, out)| *out = self.patches && self.patch_one(patch));
    }

    fn store(&self, pages: &[&PageBytes], _priority: Priority, out: &mut [Result<Location, StoreError>]) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        for (page, answer) in pages.iter().zip(out) {
            *answer = self.store_one(page);
            if answer.is_ok() {
                let tally = Tally { pages: 1, stored_bytes: PAGE_BYTES as u64, plain_pages: 1, same_filled_pages: 0 };
                self.counters.stored(&tally);
            }
        }
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        _priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        for (index, item) in items.iter_mut().enumerate() {
            let result = self.load_one(item);
            self.counters.loaded(1);
            done(index, result.map(|()| &*item.into));
        }
    }

    fn free(&self, locations: &[Location]) {
        for location in locations {
            let was_held = self.held(*location).is_some_and(|held| held.swap(false, AcqRel));
            assert!(was_held, "{} was asked to free {location:?}, which holds nothing", self.url);
        }
        let places = locations.iter().map(|location| usize::try_from(location.0).expect("a place that was held"));
        lock(&self.places).free.extend(places);
        let pages = locations.len() as u64;
        let stored_bytes = pages * PAGE_BYTES as u64;
        self.counters.freed(&Tally { pages, stored_bytes, plain_pages: pages, same_filled_pages: 0 });
    }

    fn copies_cost_ram(&self) -> bool {
        true
    }

    fn ram_bytes(&self) -> u64 {
        /// A page, its mark, and its entry among the free ones.
        const BYTES_EACH: u64 = PAGE_BYTES as u64 + 1 + 8;
        lock(&self.places).used as u64 * BYTES_EACH
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        rows.push(self.counters.row(&self.url, self.ram_bytes(), self.capacity_bytes));
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        self.counters.after_fork(side);
        Ok(())
    }
}
