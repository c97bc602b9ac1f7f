//! Far memory of a run: the reference backend, other threads before each of its calls, and time that passes. It may lose the copies of pages that
//! are local: it is only of these that the pager asks whether they are lost.

use super::case::Case;
use crate::sys::simulated::current;
use crate::sys::simulated::turns::Wait;
use hinterland_backend::{
    Backend, BackendUsage, LoadError, LoadItem, Location, NodeError, Patch, Priority, Reference, StoreError,
};
use hinterland_testkit::Rng;
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

/// See the module.
pub(super) struct Far {
    reference: Reference,
    copies_cost_ram: bool,
    is_slow: bool,
    /// What chooses the copies that are lost, if some are to be.
    loses: Option<Mutex<Rng>>,
    lost: Mutex<BTreeSet<Location>>,
}

impl Far {
    pub(super) fn new(case: &Case) -> Far {
        let pages = if case.is_tight { super::PAGES as usize + 8 } else { 1024 };
        let bytes = (pages * PAGE_BYTES) as u64;
        let reference = Reference::new(format!("reference:{bytes}"), bytes).expect("address space");
        let reference = if case.patches { reference.patched() } else { reference };
        Far {
            reference,
            copies_cost_ram: case.copies_cost_ram,
            is_slow: case.is_slow,
            loses: case.loses_copies.then(|| Mutex::new(Rng(case.seed ^ 0x1057))),
            lost: Mutex::default(),
        }
    }

    fn is_lost(&self, location: Location) -> bool {
        self.lost.lock().unwrap().contains(&location)
    }

    /// Pages that are stored.
    pub(super) fn stored_pages(&self) -> u64 {
        let mut usage = Vec::new();
        self.reference.usage(&mut usage);
        usage[0].pages
    }

    fn pass(&self, what: &'static str, pages: usize) {
        let Some(current) = current() else { return };
        current.step(what, pages);
        if self.is_slow {
            current.wait(Wait::Time, Some(Duration::from_micros(20)));
        }
    }
}

impl Backend for Far {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.pass("stores far", pages.len());
        self.reference.store(pages, priority, out);
        self.pass("has stored", pages.len());
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.pass("loads from afar", items.len());
        let lost: Vec<bool> = items.iter().map(|item| self.is_lost(item.location)).collect();
        let error = || LoadError::Lost { url: "far memory of a run".into(), error: NodeError::Closed };
        let mut answer = |index: usize, page: Result<&PageBytes, LoadError>| {
            done(index, if lost[index] { Err(error()) } else { page })
        };
        self.reference.load(items, priority, &mut answer);
        self.pass("has loaded", items.len());
    }

    fn patches(&self) -> bool {
        self.reference.patches()
    }

    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        self.pass("patches far", patches.len());
        self.reference.patch(patches, priority, out);
        self.pass("has patched", patches.len());
        // As where a node is lost in the middle: what is there is not known.
        out.iter_mut().skip(1).step_by(3).for_each(|patched| *patched = false);
        out.iter_mut().zip(patches).for_each(|(patched, patch)| *patched &= !self.is_lost(patch.location));
    }

    fn has_losses(&self) -> bool {
        self.loses.is_some()
    }

    fn has_lost(&self, location: Location) -> bool {
        let chosen = self.loses.as_ref().is_some_and(|random| random.lock().unwrap().index(4) == 0);
        let mut lost = self.lost.lock().unwrap();
        if chosen {
            lost.insert(location);
        }
        lost.contains(&location)
    }

    fn free(&self, locations: &[Location]) {
        locations.iter().for_each(|location| {
            self.lost.lock().unwrap().remove(location);
        });
        if let Some(current) = current() {
            current.step("frees", locations.len());
        }
        self.reference.free(locations);
    }

    fn copies_cost_ram(&self) -> bool {
        self.copies_cost_ram
    }

    fn ram_bytes(&self) -> u64 {
        if self.copies_cost_ram { self.reference.ram_bytes() } else { 0 }
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        self.reference.usage(rows);
    }
}
