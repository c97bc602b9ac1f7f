//! Far memory as the pager sees it: the backend, and the check that a page returns as it left.

use crate::granules::Granules;
use crate::pages::{ContentHash, Owned, Pages, Released};
use crate::retained_copies::RetainedCopies;
use hinterland_abi::{BACKENDS_MAX, Ledger};
use hinterland_backend::{
    Backend, BackendUsage, DEMAND_LANES, ForkSide, GRANULES, GranuleSet, LoadError, LoadItem, Location, NODES_MAX,
    PATHS_MAX, Patch, Paths, Priority, StoreError,
};
use hinterland_paging::PATCH_GRANULES_MAX;
use hinterland_sys::SysError;
use hinterland_units::{CopyBound, PageBytes, PageCount};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const _: () = assert!(PATHS_MAX + 6 * NODES_MAX <= BACKENDS_MAX, "each path has a row, and each node of six pools");

/// See the module.
pub(crate) struct FarMemory {
    pages: &'static Pages,
    backend: Arc<dyn Backend>,
    /// What local pages were like when they came, as soon as a path's stored copies can be patched; and the local memory that it is for.
    granules: OnceLock<Granules>,
    local: PageCount,
    /// The same, where its paths can be changed; and where changes are commanded.
    paths: Option<(Arc<Paths>, &'static Ledger)>,
    /// The version of the changes that were read last.
    seen_changes: AtomicU64,
    /// Stored copies of pages that are local again.
    pub(crate) copies: RetainedCopies,
}

impl FarMemory {
    pub(crate) fn new(
        pages: &'static Pages,
        backend: Arc<dyn Backend>,
        paths: Option<(Arc<Paths>, &'static Ledger)>,
        copies: Option<CopyBound>,
        local: PageCount,
    ) -> Result<FarMemory, SysError> {
        let granules = match backend.patches() {
            true => OnceLock::from(Granules::new(local)?),
            false => OnceLock::new(),
        };
        let seen_changes = AtomicU64::new(paths.as_ref().map_or(0, |(paths, _)| paths.wanted_version()));
        let copies = RetainedCopies::new(pages, Arc::clone(&backend), copies);
        Ok(FarMemory { pages, backend, granules, local, paths, seen_changes, copies })
    }

    /// Takes changes of the paths that the launcher has commanded, and says what is in the way of those before; whether there were
    /// any. Inside the gate.
    pub(crate) fn follow_changes(&self) -> bool {
        let Some((paths, ledger)) = &self.paths else { return false };
        let (row, obstacle) = (self.pages.row(), paths.obstacle());
        if row.path_obstacle.get() != obstacle {
            row.path_obstacle.set(&obstacle);
        }
        self.see_to_granules();
        if ledger.commands.paths_version() == self.seen_changes.load(Relaxed) {
            return false;
        }
        let Some((version, changes)) = ledger.commands.path_changes() else { return false };
        self.seen_changes.store(version, Relaxed);
        paths.change(version, changes);
        self.copies.paths_changed();
        true
    }

    /// A path that was added may be the first that can be patched. Without address space its pages are stored whole.
    fn see_to_granules(&self) {
        if self.granules.get().is_none()
            && self.backend.patches()
            && let Ok(granules) = Granules::new(self.local)
        {
            let _ = self.granules.set(granules);
        }
    }

    /// Whether all changes of the paths that were commanded are made. Inside the gate.
    pub(crate) fn has_made_changes(&self) -> bool {
        let Some((paths, ledger)) = &self.paths else { return true };
        paths.changed_version() == ledger.commands.paths_version()
    }

    /// See [`Backend::load`].
    pub(crate) fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.backend.load(items, priority, done);
    }

    /// Stores pages that leave: see [`Backend::store`].
    pub(crate) fn store(&self, pages: &[&PageBytes], out: &mut [Result<Location, StoreError>]) {
        self.copies.make_way(pages.len());
        self.backend.store(pages, Priority::WriteBack, out);
        self.copies.stored(out.iter().filter(|stored| stored.is_ok()).count() as u64);
    }

    /// What differs between a page that leaves and its stored copy, if that is known and so little that the copy can be patched.
    pub(crate) fn changed(&self, owned: &Owned, bytes: &PageBytes) -> Option<GranuleSet> {
        let granules = self.granules.get().filter(|_| owned.was().copy_retained())?;
        let changed = granules.take(owned.page(), self.pages.table.hash(owned.page()), bytes)?;
        let fits = (1..=PATCH_GRANULES_MAX).contains(&changed.count());
        if !fits {
            granules.learn(1, 0);
        }
        fits.then_some(changed)
    }

    /// Pages leave as their stored copies are.
    pub(crate) fn leave_clean(&self, leaving: &[(&Owned, &PageBytes)]) {
        self.copies.forget(leaving.len() as u64);
        if let Some(granules) = self.granules.get() {
            for (owned, _) in leaving {
                granules.forget(owned.page(), self.pages.table.hash(owned.page()));
            }
        }
        if self.backend.copies_take_room() {
            let located = leaving.iter().map(|(owned, bytes)| (owned.was().location(), *bytes));
            self.backend.left_clean(&located.collect::<Vec<_>>());
        }
    }

    /// Whether stored copies may be lost: see [`Backend::has_losses`].
    pub(crate) fn has_losses(&self) -> bool {
        self.backend.has_losses()
    }

    /// Whether the stored copy of a page is known to be lost, so that what is local is all that there is of it.
    pub(crate) fn has_lost(&self, owned: &Owned) -> bool {
        owned.was().copy_retained() && self.backend.has_lost(owned.was().location())
    }

    /// Patches stored copies; says of each whether it is now as its page: see [`Backend::patch`].
    pub(crate) fn patch(&self, patches: &[Patch<'_>]) -> Vec<bool> {
        let mut patched = vec![false; patches.len()];
        if let Some(granules) = self.granules.get().filter(|_| !patches.is_empty()) {
            self.backend.patch(patches, Priority::WriteBack, &mut patched);
            let saved = |(patch, patched): (&Patch<'_>, &bool)| {
                if *patched { (GRANULES - patch.granules.count()) as u64 } else { 0 }
            };
            granules.learn(patches.len() as u64, patches.iter().zip(&patched).map(saved).sum());
        }
        patched
    }

    /// RAM that is used to know what changes.
    pub(crate) fn granule_bytes(&self) -> u64 {
        self.granules.get().map_or(0, Granules::ram_bytes)
    }

    /// Frees a stored copy.
    pub(crate) fn free(&self, released: Option<Released>) {
        if let Some(released) = released {
            self.backend.free(&[released.location()]);
            self.copies.freed(1);
        }
    }

    /// Frees stored copies together.
    pub(crate) fn free_all(&self, released: Vec<Released>) {
        if !released.is_empty() {
            self.copies.freed(released.len() as u64);
            self.backend.free(&released.into_iter().map(Released::location).collect::<Vec<_>>());
        }
    }

    /// A page that arrived must be the page that left, from `location` or perhaps from another place; otherwise the program ends.
    pub(crate) fn verify(&self, owned: &Owned, bytes: &mut PageBytes, loaded: Result<(), LoadError>) {
        let (page, location) = (owned.page(), owned.was().location());
        if let Err(error) = loaded {
            self.pages.fatal(&format!("{page} is lost: {error}"));
        }
        let hash = self.pages.table.hash(page);
        let right = |bytes: &PageBytes| ContentHash::of(bytes) == hash;
        if !right(bytes) && self.backend.repair(LoadItem { location, into: bytes }, &right).is_err() {
            self.pages
                .fatal(&format!("{page} came back changed from far memory (checksum mismatch); the program is ended"));
        }
        if let Some(granules) = self.granules.get() {
            granules.note(page, hash, bytes);
        }
    }

    /// Lanes that demands have: see [`Backend::demand_width`]. In RAM as many as a node has by itself.
    pub(crate) fn demand_lanes(&self) -> u32 {
        match self.backend.demand_width() {
            0 => DEMAND_LANES,
            lanes => lanes,
        }
        .try_into()
        .unwrap_or(u32::MAX)
    }

    /// See [`Backend::copies_cost_ram`].
    pub(crate) fn copies_cost_ram(&self) -> bool {
        self.backend.copies_cost_ram()
    }

    /// RAM that the backends take in this process.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.backend.ram_bytes()
    }

    /// See [`Backend::shrink_ram`].
    pub(crate) fn shrink_ram(&self, bytes: u64) -> u64 {
        self.backend.shrink_ram(bytes)
    }

    /// See [`Backend::set_ram_scarce`]. Inside the gate.
    pub(crate) fn set_ram_scarce(&self, is_scarce: bool) {
        self.backend.set_ram_scarce(is_scarce);
        self.copies.set_ram_scarce(is_scarce);
    }

    /// See [`Backend::needs_maintenance`].
    pub(crate) fn needs_maintenance(&self) -> bool {
        self.backend.needs_maintenance()
    }

    /// See [`Backend::maintain`].
    pub(crate) fn maintain(&self) -> Option<Duration> {
        self.backend.maintain()
    }

    /// See [`Backend::descriptors_if_confined`].
    pub(crate) fn descriptors_if_confined(&self) -> Option<Vec<RawFd>> {
        self.backend.descriptors_if_confined()
    }

    /// A fork is about to happen.
    pub(crate) fn before_fork(&self) {
        self.backend.before_fork();
    }

    /// Goes on after a fork, or ends the program.
    pub(crate) fn after_fork(&self, side: ForkSide) {
        if let Err(error) = self.backend.after_fork(side) {
            self.pages.fatal(&format!("far memory cannot go on after a fork: {error}"));
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
                // Of another path, which was here before.
                [&to.stored_peak_bytes, &to.pages_peak, &to.ram_peak_bytes]
                    .into_iter()
                    .for_each(|peak| peak.store(0, Relaxed));
            }
            to.bytes_in.store(backend.bytes_in, Relaxed);
            to.bytes_out.store(backend.bytes_out, Relaxed);
            to.sent_bytes.store(backend.sent_bytes, Relaxed);
            to.received_bytes.store(backend.received_bytes, Relaxed);
            to.stored_bytes.store(backend.stored_bytes, Relaxed);
            to.stored_peak_bytes.fetch_max(backend.stored_bytes, Relaxed);
            to.pages.store(backend.pages, Relaxed);
            to.pages_peak.fetch_max(backend.pages, Relaxed);
            to.ram_bytes.store(backend.ram_bytes, Relaxed);
            to.ram_peak_bytes.fetch_max(backend.ram_bytes, Relaxed);
            to.same_filled_pages.store(backend.same_filled_pages, Relaxed);
            to.plain_pages.store(backend.plain_pages, Relaxed);
            to.recompressed_pages.store(backend.recompressed_pages, Relaxed);
            to.recompression_saved_bytes.store(backend.recompression_saved_bytes, Relaxed);
            to.capacity_bytes.store(backend.capacity_bytes, Relaxed);
            to.promoted_pages.store(backend.promoted_pages, Relaxed);
            to.demoted_pages.store(backend.demoted_pages, Relaxed);
            to.tier.store(backend.tier, Relaxed);
            to.tier_changes.store(backend.tier_changes, Relaxed);
            to.load_one_ns.store(backend.load_one_ns, Relaxed);
            to.load_queue_ns.store(backend.load_queue_ns, Relaxed);
            to.losses.store(backend.losses, Relaxed);
            to.rebuilt_pages.store(backend.rebuilt_pages, Relaxed);
            to.hedged_loads.store(backend.hedged_loads, Relaxed);
            to.lacking_pages.store(backend.lacking_pages, Relaxed);
            to.last_pages.store(backend.last_pages, Relaxed);
            to.copied_pages.store(backend.copied_pages, Relaxed);
            to.absent.store(u64::from(backend.absent), Relaxed);
            to.needed.store(u64::from(backend.needed), Relaxed);
            to.encrypted.store(u64::from(backend.encrypted), Relaxed);
            to.link_processes.store(backend.link_processes, Relaxed);
        }
        // Last: a reader would take a row without its URL for another tier.
        row.backend_count.store(u32::try_from(count).unwrap_or(0), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::simulated_pages;
    use hinterland_abi::PlacementName;
    use hinterland_backend::Reference;
    use std::sync::atomic::AtomicBool;

    /// Far memory of so many backends, which can be patched from some time on.
    struct Several {
        backends: Vec<Reference>,
        patches: AtomicBool,
    }

    impl Several {
        fn of(backends: u64) -> Arc<Several> {
            let backend = |number| Reference::new(format!("reference:{number}M"), number << 20).expect("address space");
            Arc::new(Several { backends: (1..=backends).map(backend).collect(), patches: AtomicBool::new(false) })
        }
    }

    impl Backend for Several {
        fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
            self.backends[0].store(pages, priority, out);
        }
        fn load(
            &self,
            items: &mut [LoadItem<'_>],
            priority: Priority,
            done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        ) {
            self.backends[0].load(items, priority, done);
        }
        fn free(&self, locations: &[Location]) {
            self.backends[0].free(locations);
        }
        fn patches(&self) -> bool {
            self.patches.load(Relaxed)
        }
        fn copies_cost_ram(&self) -> bool {
            true
        }
        fn ram_bytes(&self) -> u64 {
            0
        }
        fn usage(&self, rows: &mut Vec<BackendUsage>) {
            self.backends.iter().for_each(|backend| backend.usage(rows));
        }
    }

    #[test]
    fn a_path_that_is_added_is_patched_though_none_of_the_start_is() {
        // SAFETY: a ledger of atomics is valid when zero.
        let ledger: &'static Ledger = Box::leak(unsafe { Box::<Ledger>::new_zeroed().assume_init() });
        let (pages, backend) = (Box::leak(Box::new(simulated_pages())), Several::of(1));
        let paths = Paths::new(vec![backend.clone()], PlacementName::Tiers).expect("address space");
        let paths = Some((Arc::new(paths), ledger));
        let far = FarMemory::new(pages, backend.clone(), paths, None, PageCount(100)).expect("address space");
        far.follow_changes();
        assert!(far.granules.get().is_none(), "96 bytes for each local page");
        backend.patches.store(true, Relaxed);
        far.follow_changes();
        assert!(far.granules.get().is_some());
    }

    #[test]
    fn each_node_of_several_pools_has_a_row() {
        let pages = Box::leak(Box::new(simulated_pages()));
        let far = FarMemory::new(pages, Several::of(60), None, None, PageCount(100)).expect("address space");
        far.publish(&mut Vec::new());
        let row = pages.row();
        let rows = &row.backends[..row.backend_count.load(Relaxed) as usize];
        let capacity: u64 = rows.iter().map(|row| row.capacity_bytes.load(Relaxed)).sum();
        assert_eq!((rows.len(), capacity), (60, (1..=60).sum::<u64>() << 20));
    }
}
