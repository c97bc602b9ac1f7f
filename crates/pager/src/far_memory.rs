//! Far memory as the pager sees it: the backend, the proof that what comes back is what left, and the stored copies of pages that
//! are local again.

use crate::pages::Pages;
use crate::state::Entry;
use crate::table::ContentHash;
use hinterland_backend::{Backend, BackendUsage, LoadError, LoadItem, Location};
use hinterland_units::{PageBytes, PageCount, PageNo};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

/// See the module.
pub(crate) struct FarMemory {
    pages: &'static Pages,
    pub(crate) backend: Arc<dyn Backend>,
    /// Stored copies of resident pages, while they cost RAM.
    retained_copies: AtomicU64,
}

impl FarMemory {
    pub(crate) fn new(pages: &'static Pages, backend: Arc<dyn Backend>) -> FarMemory {
        FarMemory { pages, backend, retained_copies: AtomicU64::new(0) }
    }

    /// A page that arrived must be the page that left, perhaps from another place; otherwise the program ends.
    pub(crate) fn verify(&self, page: PageNo, entry: Entry, bytes: &mut PageBytes, loaded: Result<(), LoadError>) {
        if let Err(error) = loaded {
            self.pages.fatal(&format!("{page} is lost: {error}"));
        }
        let hash = self.pages.table.hash(page);
        let right = |bytes: &PageBytes| ContentHash::of(bytes) == hash;
        if !right(bytes) && self.backend.repair(LoadItem { location: entry.location(), into: bytes }, &right).is_err() {
            self.pages
                .fatal(&format!("{page} came back changed from far memory (checksum mismatch); the program is ended"));
        }
    }

    /// Decides over the stored copy of a page that was fetched into so large a local memory: retains it, or returns its location,
    /// to be freed once the page is completed.
    pub(crate) fn retain_or_free(&self, entry: Entry, local: PageCount) -> (Entry, Option<Location>) {
        if self.retains_copy(local) { (entry, None) } else { (entry.without_location(), Some(entry.location())) }
    }

    /// Whether the stored copy of a page that was just fetched is retained, so that the page can be dropped without a write if it
    /// does not change. Free on an SSD; in RAM only for a small share of the budget, because every copy is RAM too.
    fn retains_copy(&self, local: PageCount) -> bool {
        const SHARE: u64 = 32;
        if !self.backend.copies_cost_ram() {
            return true;
        }
        let retained = self.retained_copies.fetch_add(1, Relaxed);
        if retained < local.0 / SHARE {
            return true;
        }
        self.retained_copies.fetch_sub(1, Relaxed);
        false
    }

    /// A retained copy is given up, or its page left: it does not count any more.
    pub(crate) fn forget_copies(&self, copies: u64) {
        if self.backend.copies_cost_ram() {
            self.retained_copies.fetch_sub(copies, Relaxed);
        }
    }

    /// Publishes what the backends hold.
    pub(crate) fn publish(&self, usage: &mut Vec<BackendUsage>) {
        usage.clear();
        self.backend.usage(usage);
        let row = self.pages.row();
        let count = usage.len().min(row.backends.len());
        for (backend, to) in usage.iter().zip(&row.backends) {
            if to.url.get() != backend.url {
                to.url.set(&backend.url);
            }
            to.bytes_in.store(backend.bytes_in, Relaxed);
            to.bytes_out.store(backend.bytes_out, Relaxed);
            to.stored_bytes.store(backend.stored_bytes, Relaxed);
            to.stored_peak_bytes.fetch_max(backend.stored_bytes, Relaxed);
            to.pages.store(backend.pages, Relaxed);
            to.pages_peak.fetch_max(backend.pages, Relaxed);
            to.ram_bytes.store(backend.ram_bytes, Relaxed);
            to.ram_peak_bytes.fetch_max(backend.ram_bytes, Relaxed);
            to.same_filled_pages.store(backend.same_filled_pages, Relaxed);
            to.plain_pages.store(backend.plain_pages, Relaxed);
            to.capacity_bytes.store(backend.capacity_bytes, Relaxed);
            to.losses.store(backend.losses, Relaxed);
            to.rebuilt_pages.store(backend.rebuilt_pages, Relaxed);
            to.hedged_loads.store(backend.hedged_loads, Relaxed);
            to.lacking_pages.store(backend.lacking_pages, Relaxed);
            to.last_pages.store(backend.last_pages, Relaxed);
            to.copied_pages.store(backend.copied_pages, Relaxed);
            to.absent.store(u64::from(backend.absent), Relaxed);
            to.needed.store(u64::from(backend.needed), Relaxed);
            to.encrypted.store(u64::from(backend.encrypted), Relaxed);
        }
        // Last: a reader would take a row without its URL for another tier.
        row.backend_count.store(u32::try_from(count).unwrap_or(0), Release);
    }
}
