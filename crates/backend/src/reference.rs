//! `reference` and `numa`: whole pages in a table. Simple and obviously right; the model that the other backends are tested against, and the
//! measure of what everything but the backend costs: it copies pages and does nothing else.
//!
//! With `numa` the memory of the table comes from one NUMA node (decision 0086). Those pages are far: they do not count as
//! RAM of the run, as its tables do.

use crate::counters::{Counters, Tally};
use crate::mapping::Growing;
use crate::sync::lock;
use crate::{Backend, BackendUsage, ForkSide, FullCause, LoadError, LoadItem, Location, Patch, Priority, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

/// Plain pages in memory. A location is a place in it.
pub struct Reference {
    url: String,
    capacity_bytes: u64,
    memory: Growing,
    /// By place: one `AtomicBool`, whether a page is there. Of the memory that was never touched they are false.
    held: Growing,
    places: Mutex<Places>,
    counters: Counters,
    patches: bool,
    /// Its memory is a NUMA node's.
    is_on_node: bool,
}

/// Which places are free: those given back, and all that were never used.
#[derive(Default)]
struct Places {
    /// Those that keep their memory for the next pages; the last one is taken first.
    free: Vec<usize>,
    /// Those whose memory the kernel has again.
    empty: Vec<usize>,
    /// Places that were ever used.
    used: usize,
}

/// Free places that keep their memory: 1 MiB. As many more are given back together.
const FREE_KEPT: usize = 256;

impl Places {
    /// `grow` has so many places have memory, if there is some.
    fn take(&mut self, places_max: usize, grow: impl FnOnce(usize) -> bool) -> Option<usize> {
        let given_back = self.free.pop().or_else(|| self.empty.pop());
        given_back.or_else(|| {
            let place = self.used;
            (place < places_max && grow(place + 1)).then(|| {
                self.used += 1;
                place
            })
        })
    }

    /// Free places whose memory is to be given back; until they are among the empty ones no list has them.
    fn surplus(&mut self) -> Vec<usize> {
        let surplus = if self.free.len() < 2 * FREE_KEPT { 0 } else { self.free.len() - FREE_KEPT };
        self.free.drain(..surplus).collect()
    }

    /// RAM behind all places.
    fn page_bytes(&self) -> u64 {
        ((self.used - self.empty.len()) * PAGE_BYTES) as u64
    }

    /// RAM of the tables: a page's mark, and its entry among the free ones.
    fn table_bytes(&self) -> u64 {
        (self.used * (1 + size_of::<usize>())) as u64
    }
}

impl Reference {
    /// Holds up to `capacity_bytes` of pages; `url` names it in messages.
    ///
    /// # Errors
    /// The address space cannot be reserved.
    pub fn new(url: String, capacity_bytes: u64) -> io::Result<Reference> {
        Reference::of(url, capacity_bytes, Growing::reserve)
    }

    /// The same in memory of a NUMA node.
    ///
    /// # Errors
    /// As there; or the memory cannot be bound to the node.
    pub fn on_node(url: String, capacity_bytes: u64, node: u32) -> io::Result<Reference> {
        let reference = Reference::of(url, capacity_bytes, |bytes| Growing::reserve_on_node(bytes, node))?;
        Ok(Reference { is_on_node: true, ..reference })
    }

    /// The same, as if its memory were a NUMA node's.
    #[cfg(test)]
    pub(crate) fn on_pretended_node(self) -> Reference {
        Reference { is_on_node: true, ..self }
    }

    fn of(url: String, capacity_bytes: u64, reserve: impl Fn(usize) -> io::Result<Growing>) -> io::Result<Reference> {
        let bytes = usize::try_from(capacity_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Reference {
            url,
            capacity_bytes,
            memory: reserve(bytes)?,
            held: Growing::reserve(bytes.div_ceil(PAGE_BYTES))?,
            places: Mutex::default(),
            counters: Counters::default(),
            patches: false,
            is_on_node: false,
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
        let places_max = self.places_max();
        let grow = |places: usize| self.memory.grow(places * PAGE_BYTES) && self.held.grow(places);
        let place = lock(&self.places).take(places_max, grow).ok_or_else(|| StoreError::Full {
            url: self.url.clone(),
            cause: FullCause::of_own(self.memory.is_refused() || self.held.is_refused()),
            used_bytes: (places_max * PAGE_BYTES) as u64,
            capacity_bytes: self.capacity_bytes,
        })?;
        Ok(Location(place as u64))
    }

    /// Gives the memory behind free places back to the kernel, neighbours with one call.
    fn discard(&self, places: &mut [usize]) {
        places.sort_unstable();
        for run in places.chunk_by(|place, next| place + 1 == *next) {
            // SAFETY: no page is at these places, and none comes there: they are in no list now.
            unsafe { self.memory.discard(run[0] * PAGE_BYTES, run.len() * PAGE_BYTES) };
        }
    }

    /// RAM of the tables.
    fn table_bytes(&self) -> u64 {
        lock(&self.places).table_bytes()
    }

    /// All RAM that it occupies.
    fn occupied_bytes(&self) -> u64 {
        let places = lock(&self.places);
        places.page_bytes() + places.table_bytes()
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
        let mut surplus = {
            let mut free = lock(&self.places);
            free.free.extend(places);
            free.surplus()
        };
        if !surplus.is_empty() {
            self.discard(&mut surplus);
            lock(&self.places).empty.append(&mut surplus);
        }
        let pages = locations.len() as u64;
        let stored_bytes = pages * PAGE_BYTES as u64;
        self.counters.freed(&Tally { pages, stored_bytes, plain_pages: pages, same_filled_pages: 0 });
    }

    fn copies_cost_ram(&self) -> bool {
        !self.is_on_node
    }

    fn ram_bytes(&self) -> u64 {
        if self.is_on_node { self.table_bytes() } else { self.occupied_bytes() }
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        rows.push(self.counters.row(&self.url, self.occupied_bytes(), self.capacity_bytes));
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        self.counters.after_fork(side);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(reference: &Reference, pages: usize) -> Vec<Location> {
        let (page, mut out) = ([7; PAGE_BYTES], vec![Ok(Location(0)); pages]);
        reference.store(&vec![&page; pages], Priority::WriteBack, &mut out);
        out.into_iter().map(|answer| answer.expect("room")).collect()
    }

    #[test]
    fn memory_of_freed_pages_goes_back_to_the_kernel_and_comes_again() {
        let reference = Reference::new("reference".into(), 4096 * PAGE_BYTES as u64).expect("address space");
        let locations = stored(&reference, 4096);
        assert!(reference.ram_bytes() > 4096 * PAGE_BYTES as u64);
        let (freed, kept): (Vec<Location>, Vec<Location>) =
            locations.into_iter().partition(|location| location.0 % 8 != 0);
        reference.free(&freed);
        let most = (kept.len() + 2 * FREE_KEPT) * PAGE_BYTES;
        assert!(reference.ram_bytes() <= most as u64 + reference.table_bytes(), "{}", reference.ram_bytes());
        assert_eq!(stored(&reference, freed.len()).len(), freed.len(), "all places are there again");
        for location in kept {
            let mut into = [0; PAGE_BYTES];
            reference.load_one(&mut LoadItem { location, into: &mut into }).expect("stored");
            assert_eq!(into, [7; PAGE_BYTES], "a neighbour of places that were given back");
        }
    }

    #[test]
    fn pages_on_a_node_are_far_and_told_as_memory_that_they_occupy() {
        if let Err(error) = hinterland_sys::numa::check(0) {
            return eprintln!("skipped: {error}");
        }
        let reference = Reference::on_node("numa:0".into(), 64 << 20, 0).expect("node 0 has memory");
        let locations = stored(&reference, 1000);
        let mut rows = Vec::new();
        reference.usage(&mut rows);
        assert!(!reference.copies_cost_ram() && reference.ram_bytes() == 9000, "{}", reference.ram_bytes());
        assert_eq!(rows[0].ram_bytes, 1000 * PAGE_BYTES as u64 + 9000);
        reference.free(&locations);
    }
}
