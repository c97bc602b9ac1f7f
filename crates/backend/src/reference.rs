//! `reference`: whole pages in a table. Simple and obviously right; the model that the other backends are tested against.

use crate::counters::{Counters, Tally};
use crate::sync::lock;
use crate::{Backend, BackendUsage, LoadError, LoadItem, Location, Priority, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Mutex;

/// Plain pages in memory.
pub struct Reference {
    url: String,
    capacity_bytes: u64,
    table: Mutex<Table>,
    counters: Counters,
}

/// Each location is an index; free indices are used again.
#[derive(Default)]
struct Table {
    pages: Vec<Option<Box<PageBytes>>>,
    free: Vec<usize>,
}

impl Reference {
    /// Holds up to `capacity_bytes` of pages; `url` names it in messages.
    pub fn new(url: String, capacity_bytes: u64) -> Reference {
        Reference { url, capacity_bytes, table: Mutex::default(), counters: Counters::default() }
    }

    fn store_one(&self, page: &PageBytes) -> Result<Location, StoreError> {
        let mut table = lock(&self.table);
        let used_bytes = ((table.pages.len() - table.free.len()) * PAGE_BYTES) as u64;
        if used_bytes + PAGE_BYTES as u64 > self.capacity_bytes {
            return Err(StoreError::Full { url: self.url.clone(), used_bytes, capacity_bytes: self.capacity_bytes });
        }
        let index = table.free.pop().unwrap_or(table.pages.len());
        if index == table.pages.len() {
            table.pages.push(None);
        }
        table.pages[index] = Some(Box::new(*page));
        Ok(Location(index as u64))
    }

    fn load_one(&self, item: &mut LoadItem<'_>) -> Result<(), LoadError> {
        let table = lock(&self.table);
        let page = usize::try_from(item.location.0).ok().and_then(|index| table.pages.get(index)?.as_deref());
        let damaged = || LoadError::Damaged {
            url: self.url.clone(),
            location: item.location,
            what: "nothing is stored there (freed, or never stored)",
        };
        item.into.copy_from_slice(page.ok_or_else(damaged)?);
        Ok(())
    }
}

impl Backend for Reference {
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
        let mut table = lock(&self.table);
        for location in locations {
            let index = usize::try_from(location.0).unwrap_or(usize::MAX);
            let page = table.pages.get_mut(index).and_then(Option::take);
            assert!(page.is_some(), "{} was asked to free {location:?}, which holds nothing", self.url);
            table.free.push(index);
        }
        let pages = locations.len() as u64;
        let stored_bytes = pages * PAGE_BYTES as u64;
        self.counters.freed(&Tally { pages, stored_bytes, plain_pages: pages, same_filled_pages: 0 });
    }

    fn copies_cost_ram(&self) -> bool {
        true
    }

    fn ram_bytes(&self) -> u64 {
        /// A boxed page and its two table entries.
        const BYTES_EACH: u64 = PAGE_BYTES as u64 + 16;
        self.counters.pages() * BYTES_EACH
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        rows.push(self.counters.row(&self.url, self.ram_bytes(), self.capacity_bytes));
    }
}
