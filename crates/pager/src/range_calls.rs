//! Calls of the program on ranges of far memory: discard, move, protect, lock.
//!
//! The calling thread belongs to the program. It works with its signals blocked, so that no handler runs while it owns busy
//! pages, and it never touches far memory in here: serving such a fault could need what it holds.

use crate::backoff::Backoff;
use crate::evictor_start::EvictorStart;
use crate::far_memory::FarMemory;
use crate::fault_path::FaultPath;
use crate::local_memory::LocalMemory;
use crate::pages::{Owned, Pages, Released};
use crate::pin::{PinAccess, Pins};
use crate::pinning::Pinning;
use crate::points::Point;
use crate::slot::{StagingSlot, SwapCached};
use crate::staging::Staging;
use crate::state::State;
use crate::sys::mem;
use crate::sys::thread::SignalsBlocked;
use crate::tracer::{DiscardCause, Tracer};
use crate::wp_range::WpRanges;
use hinterland_paging::Step;
use hinterland_policy::Arrival;
use hinterland_sys::SysError;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages that one step of a long call owns at most, so that faults beside it don't wait long.
const STEP_PAGES: u32 = 1024;

/// A page of zeros.
#[repr(align(4096))]
struct Zero([u8; PAGE_BYTES]);

/// A mapping of another kind could not be made over far pages.
#[derive(Clone, Copy, Debug)]
pub struct NotReplaced<E> {
    /// Why.
    pub error: E,
    /// What was mapped there is.
    pub is_intact: bool,
}

/// See the module.
pub(crate) struct RangeCalls {
    pages: &'static Pages,
    local: &'static LocalMemory,
    far: &'static FarMemory,
    staging: &'static Staging,
    tracer: Option<&'static Tracer>,
    pins: &'static Pins,
    pinning: &'static Pinning,
    wp_ranges: &'static WpRanges,
    evictor: &'static EvictorStart,
    /// Pages given up to other mappings.
    foreign_pages: AtomicU64,
}

impl RangeCalls {
    #[allow(clippy::too_many_arguments, reason = "one for each room that it works with")]
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        far: &'static FarMemory,
        staging: &'static Staging,
        tracer: Option<&'static Tracer>,
        pins: &'static Pins,
        pinning: &'static Pinning,
        wp_ranges: &'static WpRanges,
        evictor: &'static EvictorStart,
    ) -> RangeCalls {
        let foreign_pages = AtomicU64::new(0);
        RangeCalls { pages, local, far, staging, tracer, pins, pinning, wp_ranges, evictor, foreign_pages }
    }

    /// See `Pager::discard`.
    pub(crate) fn discard(&self, first: PageNo, count: u32) {
        self.drop_where(first, count, DiscardCause::Discarded, true, |_| true);
    }

    /// See `Pager::unmap`.
    pub(crate) fn unmap(&self, first: PageNo, count: u32) {
        self.drop_where(first, count, DiscardCause::Unmapped, false, |_| true);
    }

    /// See `Pager::empty`.
    pub(crate) fn empty(&self, first: PageNo, count: u32) {
        self.drop_where(first, count, DiscardCause::Unmapped, true, |_| true);
    }

    /// See `Pager::drop_remote`.
    pub(crate) fn drop_remote(&self, first: PageNo, count: u32) {
        self.drop_where(first, count, DiscardCause::Freed, false, |state| state != State::Resident);
    }

    /// See `Pager::free_lazily`.
    pub(crate) fn free_lazily(&self, first: PageNo, count: u32) {
        let drops_all = self.local.account.is_tight();
        self.drop_where(first, count, DiscardCause::Freed, drops_all, |state| drops_all || state != State::Resident);
    }

    /// With `stays_mapped`, a page that is pinned for a system call is made zeros where it is: a missing one would be `EFAULT` there.
    fn drop_where(
        &self,
        first: PageNo,
        count: u32,
        cause: DiscardCause,
        stays_mapped: bool,
        wanted: impl Fn(State) -> bool,
    ) {
        let _signals = SignalsBlocked::new();
        self.tell_tracer(first, count, cause);
        let mut claimed = Vec::new();
        self.local.kept.forget_all(first, count);
        for (step, pages) in steps(first, count) {
            if !self.pages.table.any_touched(step, pages) {
                continue;
            }
            let _inside = self.pages.gate.enter();
            self.pages.table.for_each_touched(step, pages, |page| {
                claimed.extend(self.claim(page, &wanted));
            });
            if stays_mapped {
                self.zero_pinned(step, pages, &mut claimed);
            }
            self.drop_claimed(&mut claimed);
        }
    }

    /// Makes claimed pages zeros that the kernel may be working on, and completes them. One that it can only be reading, because the program may not
    /// write to it, stays among the others.
    fn zero_pinned(&self, first: PageNo, count: u32, claimed: &mut Vec<Owned>) {
        if self.pages.path != FaultPath::Inline || !self.pins.touch(first, PageNo(first.0 + count)) {
            return;
        }
        let zeroed = |owned: &mut Owned| {
            let page = owned.page();
            owned.was().state() == State::Resident && self.pins.cover(page) && self.make_zeros(page)
        };
        for owned in claimed.extract_if(.., zeroed).collect::<Vec<Owned>>() {
            self.pins.long_term.forget(owned.page());
            self.far.copies.forget(u64::from(owned.was().copy_retained()));
            self.far.free_all(self.pages.complete_without_copy(owned).into_iter().collect());
        }
    }

    /// Writes zeros to a mapped page that the caller owns; false where the program may not write.
    fn make_zeros(&self, page: PageNo) -> bool {
        static ZERO: Zero = Zero([0; PAGE_BYTES]);
        let zeros = libc::iovec { iov_base: ZERO.0.as_ptr().cast_mut().cast(), iov_len: PAGE_BYTES };
        // SAFETY: the caller owns the page, whose content it gives up; the kernel copies, so a page that cannot be written to is an error.
        let copied = unsafe { mem::copy_vector(&[zeros], self.pages.address(page)) };
        copied == Ok(PAGE_BYTES)
    }

    /// Tells the tracer which pages are given up, without long stretches that were never touched: before it happens, so that what is
    /// touched afterwards is touched afterwards in the trace.
    fn tell_tracer(&self, first: PageNo, count: u32, cause: DiscardCause) {
        let Some(tracer) = self.tracer else { return };
        let _inside = self.pages.gate.enter();
        let mut touched = steps(first, count).filter(|(step, pages)| self.pages.table.any_touched(*step, *pages));
        let Some((mut begun, mut pages)) = touched.next() else { return };
        for (next, more) in touched {
            if next.0 == begun.0 + pages {
                pages += more;
            } else {
                tracer.discarded(begun, pages, cause);
                (begun, pages) = (next, more);
            }
        }
        tracer.discarded(begun, pages, cause);
    }

    /// Makes a page `Changing`, waiting for its owner to complete it; `None` when it has no content or is not wanted.
    fn claim(&self, page: PageNo, wanted: impl Fn(State) -> bool) -> Option<Owned> {
        let mut backoff = Backoff::new();
        loop {
            let entry = self.pages.table.load(page);
            match entry.state() {
                State::Untouched | State::Foreign | State::Sectioned => return None,
                state if state.is_busy() => {
                    self.pages.at(Point::WaitsForOwner, page);
                    backoff.pause();
                }
                state if !wanted(state) => return None,
                _ => {
                    if let Some(owned) = self.pages.claim(page, entry, entry.with_state(State::Changing)) {
                        return Some(owned);
                    }
                }
            }
        }
    }

    /// Drops the content of claimed pages and completes them as `Untouched`.
    fn drop_claimed(&self, claimed: &mut Vec<Owned>) {
        let resident = |owned: &&Owned| owned.was().state() == State::Resident;
        let mut mapped = claimed.iter().filter(resident).map(Owned::page);
        if let Some(first) = mapped.next() {
            let last = mapped.next_back().unwrap_or(first);
            self.drop_span(first, last, claimed);
        }
        let (frames, pages) = self.forget_content(claimed);
        let mut freed = Vec::new();
        for owned in claimed.drain(..) {
            self.pages.at(Point::Discarded, owned.page());
            freed.extend(self.pages.complete_untouched(owned));
        }
        self.given_back(freed, frames, pages);
    }

    /// Forgets what claimed pages, whose frames are dropped, held; returns how many frames, and how many pages, that was. They must be
    /// completed as something else than they were.
    fn forget_content(&self, claimed: &[Owned]) -> (u64, u64) {
        let resident = |owned: &&Owned| owned.was().state() == State::Resident;
        self.local.forget(claimed.iter().map(Owned::page));
        // The copy of a prefetched page that waits unused counts with the remote ones.
        let counted = |owned: &&Owned| {
            let is_far = owned.was().state() == State::Remote
                || matches!(self.pages.swap_cached(owned), Some(SwapCached::Prefetched(_)));
            owned.was().copy_retained() && !is_far
        };
        self.far.copies.forget(claimed.iter().filter(counted).count() as u64);
        let parked = self.tracer.map_or(0, |tracer| tracer.drop_parked(claimed));
        claimed.iter().for_each(|owned| self.pins.long_term.forget(owned.page()));
        (claimed.iter().filter(resident).count() as u64 + parked, claimed.len() as u64)
    }

    /// Gives back what the content of completed pages took.
    fn given_back(&self, freed: Vec<Released>, frames: u64, pages: u64) {
        self.far.free_all(freed);
        self.local.account.uncharge(frames);
        self.local.count_untouched(pages);
    }

    /// Drops the frames of the claimed resident pages from `first` to `last`: with one call when everything between them is
    /// claimed or without a frame, else run by run.
    fn drop_span(&self, first: PageNo, last: PageNo, claimed: &[Owned]) {
        let all_ours = |page: PageNo| claimed.binary_search_by_key(&page, Owned::page).is_ok();
        let span = (last.0 - first.0 + 1) as usize;
        let mut bare = true;
        self.pages.table.for_each_touched(first, last.0 - first.0 + 1, |page| {
            let entry = self.pages.table.load(page);
            bare &= all_ours(page) || !matches!(entry.state(), State::Resident | State::Fetching | State::Leaving);
        });
        // A page between them that is untouched now could be touched by another thread meanwhile, but nobody may rely on
        // what it holds while the range around it is being dropped; still, a page that is not claimed is not dropped.
        if bare && claimed.len() == span {
            // SAFETY: every page of the span is claimed by the caller, whose call discards its content.
            unsafe { self.pages.kernel.drop_pages(self.pages.address(first), span * PAGE_BYTES) };
            return;
        }
        self.drop_runs(claimed);
    }

    /// Drops the frames of claimed resident pages, run by run.
    fn drop_runs(&self, claimed: &[Owned]) {
        let mut next = 0;
        while next < claimed.len() {
            let (page, entry) = (claimed[next].page(), claimed[next].was());
            let run = run_length(&claimed[next..]);
            if entry.state() == State::Resident {
                // SAFETY: the pages are claimed by the caller, whose call discards their content.
                unsafe { self.pages.kernel.drop_pages(self.pages.address(page), run * PAGE_BYTES) };
            }
            next += run;
        }
    }

    /// See `Pager::zero`.
    pub(crate) fn zero(&self, first: PageNo, count: u32) {
        self.drop_remote(first, count);
        let mut mapped = Vec::new();
        self.pages.table.for_each_touched(first, count, |page| mapped.push(page));
        for page in mapped {
            // SAFETY: the caller is the only user of this read-write page. Outside the gate: the write may fault.
            unsafe { std::ptr::write_bytes(self.pages.address(page) as *mut u8, 0, PAGE_BYTES) };
        }
    }

    /// See `Pager::relocate`.
    pub(crate) fn relocate(&self, from: PageNo, to: PageNo, count: u32) {
        let _signals = SignalsBlocked::new();
        self.local.kept.forget_all(to, count);
        self.local.kept.forget_all(from, count);
        self.tell_tracer(to, count, DiscardCause::Discarded);
        self.tell_tracer(from, count, DiscardCause::Moved);
        let target = |page: PageNo| PageNo(page.0 - from.0 + to.0);
        for (step, pages) in steps(from, count) {
            let _inside = self.pages.gate.enter();
            let mut moving = Vec::new();
            self.pages.table.for_each_touched(step, pages, |page| moving.push(page));
            let wanted: Vec<PageNo> = moving.iter().map(|page| target(*page)).collect();
            let sources = || moving.iter().filter_map(|page| self.claim(*page, |_| true)).collect::<Vec<Owned>>();
            let targets = || self.claim_targets(target(step), pages, &wanted);
            // In one ascending order, as each call that waits for pages while it owns others: no two of them wait for each other.
            let (mut claimed, targets) = if from < to {
                let claimed = sources();
                (claimed, targets())
            } else {
                let targets = targets();
                (sources(), targets)
            };
            let is_moved = |at: &Owned| claimed.binary_search_by_key(&at.page(), |owned| target(owned.page())).is_ok();
            let (targets, rest): (Vec<Owned>, Vec<Owned>) = targets.into_iter().partition(is_moved);
            let (mut emptied, unchanged): (Vec<Owned>, Vec<Owned>) =
                rest.into_iter().partition(|owned| owned.was().state() != State::Untouched);
            unchanged.into_iter().for_each(|owned| self.pages.complete_unchanged(owned));
            self.drop_claimed(&mut emptied);
            // A page that a fork has shared is made this process's own by a write, which a protected range around it refuses. Waited for with the pages
            // owned: a thread that has one open waits for none.
            let _excluded = self.wp_ranges.exclude(step.0, step.0 + pages);
            self.move_over(&mut claimed, targets, target);
        }
    }

    /// Claims, ascending, the pages of a step that are `wanted` as targets, and all others that hold something. A page at the destination of a
    /// move is owned until it is what it becomes: a thread that reads it sees what was there or what comes.
    fn claim_targets(&self, step: PageNo, pages: u32, wanted: &[PageNo]) -> Vec<Owned> {
        let mut there = wanted.to_vec();
        self.pages.table.for_each_touched(step, pages, |page| there.push(page));
        there.sort_unstable();
        there.dedup();
        let claim = |page: PageNo| match wanted.binary_search(&page) {
            Ok(_) => Some(self.claim_any(page)),
            Err(_) => self.claim(page, |_| true),
        };
        there.into_iter().filter_map(claim).collect()
    }

    /// Moves claimed pages to claimed targets, in place of what those hold.
    fn move_over(&self, claimed: &mut Vec<Owned>, targets: Vec<Owned>, target: impl Fn(PageNo) -> PageNo) {
        let (mut held, mut empty) = (Vec::new(), Vec::new());
        for target in targets {
            if target.was().state() == State::Untouched { empty.push(target) } else { held.push(target) }
        }
        self.drop_runs(&held);
        let (frames, pages) = self.forget_content(&held);
        self.move_frames(claimed, target);
        let mut targets = held;
        targets.append(&mut empty);
        targets.sort_unstable_by_key(Owned::page);
        let freed =
            claimed.drain(..).zip(targets).filter_map(|(owned, target)| self.move_entry(owned, target)).collect();
        self.given_back(freed, frames, pages);
    }

    /// Makes a page `Changing`, whatever it holds.
    fn claim_any(&self, page: PageNo) -> Owned {
        loop {
            let now = self.pages.table.load(page);
            if now.state() == State::Untouched {
                if let Some(owned) = self.pages.claim(page, now, now.with_state(State::Changing)) {
                    return owned;
                }
            } else if let Some(claimed) = self.claim(page, |_| true) {
                return claimed;
            } else {
                assert!(now.state() != State::Foreign, "{page}: the mapping there is not ours");
            }
        }
    }

    /// Moves the frames of resident pages, run by run.
    fn move_frames(&self, claimed: &[Owned], target: impl Fn(PageNo) -> PageNo) {
        let mut next = 0;
        while next < claimed.len() {
            let (page, entry) = (claimed[next].page(), claimed[next].was());
            let run = run_length(&claimed[next..]);
            if entry.state() == State::Resident {
                // SAFETY: the caller owns the pages on both sides, and the destination pages are missing.
                let moved = unsafe {
                    self.pages.kernel.relocate(self.pages.address(page), self.pages.address(target(page)), run)
                };
                if let Err(error) = moved {
                    self.pages.fatal(&format!("{page} is pinned and cannot be moved by mremap or realloc: {error}"));
                }
            }
            next += run;
        }
    }

    /// Moves a page's entry, hash and slot.
    fn move_entry(&self, owned: Owned, target: Owned) -> Option<Released> {
        let (page, entry) = (owned.page(), owned.was());
        match self.pages.swap_cached(&owned) {
            Some(SwapCached::Victim(slot)) => self.move_slot(slot, &target),
            Some(SwapCached::Prefetched(slot)) => self.move_slot(slot, &target),
            Some(SwapCached::Parked) => self.tracer.expect("it parked the page").move_parked(&owned, &target),
            None => {}
        }
        self.pins.long_term.forget(page);
        self.pages.at(Point::Moved, page);
        let mut policy = self.local.policy();
        policy.forgotten(page);
        if entry.state() == State::Resident {
            policy.arrived(target.page(), Arrival::Demand);
        }
        let is_resident = entry.state() == State::Resident;
        policy.turn.note(|| Step::Moved { from: page, to: target.page(), is_resident });
        drop(policy);
        if let Some(tracer) = self.tracer {
            tracer.moved(page, target.page(), entry.state() == State::Resident);
        }
        self.pages.complete_moved(owned, target)
    }

    /// Gives a page's slot to another page.
    fn move_slot(&self, slot: impl StagingSlot, target: &Owned) {
        self.pages.note_slot(target, slot);
        self.staging.set_page(slot, Some(target.page()));
    }

    /// See `Pager::prepare`.
    pub(crate) fn prepare(&self, first: PageNo, count: u32) -> io::Result<()> {
        Ok(self.pages.table.make_writable(first, count)?)
    }

    /// See `Pager::protect`.
    pub(crate) fn protect(&self, first: PageNo, count: u32, protection: i32) -> io::Result<()> {
        // First: of memory that the kernel refuses, no part of the tables becomes writable, which it would stay.
        mem::protect(self.pages.address(first), bytes(count), protection)?;
        if protection != libc::PROT_NONE
            && let Err(error) = self.prepare(first, count)
        {
            // Where a part was not writable, no page could be accessed.
            let _ = mem::protect(self.pages.address(first), bytes(count), libc::PROT_NONE);
            return Err(error);
        }
        let open = protection & (libc::PROT_READ | libc::PROT_WRITE) != 0;
        self.pages.table.set_open(first, count, open);
        if open {
            // The reservation as a whole stays out of core dumps. An old kernel's refusal costs a larger dump only.
            let _ = mem::advise(self.pages.address(first), bytes(count), libc::MADV_DODUMP);
            self.evictor.note_accessible(count);
        }
        Ok(())
    }

    /// See `Pager::may_lock`.
    pub(crate) fn may_lock(&self, count: u32) -> bool {
        u64::from(count) <= self.local.shared_budget.budget().0 / 2
    }

    /// See `Pager::lock`.
    pub(crate) fn lock(&self, first: PageNo, count: u32, on_fault: bool) -> io::Result<()> {
        if !self.may_lock(count) {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        // The kernel writes to pages that it locks, for the calling thread.
        self.pages.forget_marks(range(first, count));
        let locked = if on_fault {
            mem::lock(self.pages.address(first), bytes(count), on_fault).map_err(io::Error::from)
        } else {
            self.with_pages(first, count, PinAccess::Write, |start, len| Ok(mem::lock(start, len, false)?))
        };
        // Refused after a part of it, which would stay for ever: the caller takes none for locked.
        locked.inspect_err(|_| _ = self.unlock(first, count))
    }

    /// See `Pager::with_pages`.
    pub(crate) fn with_pages(
        &self,
        first: PageNo,
        count: u32,
        access: PinAccess,
        call: impl Fn(usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut start, end) = (self.pages.address(first), self.pages.address(first) + bytes(count));
        while start < end {
            let len = match self.pages.path {
                FaultPath::Monitor => end - start,
                FaultPath::Inline => self.pinning.piece_bytes().min(end - start),
            };
            let _signals = SignalsBlocked::new();
            let _pin = self.pinning.pin(start, len, access);
            call(start, len)?;
            start += len;
        }
        Ok(())
    }

    /// See `Pager::unlock`.
    pub(crate) fn unlock(&self, first: PageNo, count: u32) -> io::Result<()> {
        Ok(mem::unlock(self.pages.address(first), bytes(count))?)
    }

    /// See `Pager::give_up`.
    pub(crate) fn give_up<T, E>(
        &self,
        first: PageNo,
        count: u32,
        replace: impl FnOnce() -> Result<T, NotReplaced<E>>,
    ) -> Result<T, E> {
        let _signals = SignalsBlocked::new();
        self.local.kept.forget_all(first, count);
        self.tell_tracer(first, count, DiscardCause::Unmapped);
        let _inside = self.pages.gate.enter();
        let ours = range(first, count).filter(|page| self.pages.state(*page) != State::Foreign);
        let owned: Vec<Owned> = ours.map(|page| self.claim_any(page)).collect();
        let replaced = replace();
        if let Err(NotReplaced { error, is_intact: true }) = replaced {
            owned.into_iter().for_each(|owned| self.pages.complete_unchanged(owned));
            return Err(error);
        }
        if replaced.is_ok() {
            self.pages.table.set_open(first, count, false);
            self.foreign_pages.fetch_add(owned.len() as u64, Relaxed);
        }
        let (held, empty): (Vec<Owned>, Vec<Owned>) =
            owned.into_iter().partition(|owned| owned.was().state() != State::Untouched);
        // Their frames are gone with the mapping.
        let (frames, pages) = self.forget_content(&held);
        let complete = |owned: Owned| {
            self.pages.at(Point::GivingUp, owned.page());
            if replaced.is_ok() { self.pages.complete_foreign(owned) } else { self.pages.complete_untouched(owned) }
        };
        let freed = held.into_iter().chain(empty).filter_map(complete).collect();
        self.given_back(freed, frames, pages);
        replaced.map_err(|refused| refused.error)
    }

    /// See `Pager::take_back`.
    pub(crate) fn take_back(&self, first: PageNo, count: u32) -> io::Result<()> {
        // SAFETY: the program unmapped what was there, or maps something else over it.
        unsafe { mem::remap_inaccessible(self.pages.address(first), bytes(count)) }?;
        mem::advise(self.pages.address(first), bytes(count), libc::MADV_DONTFORK)?;
        self.pages.kernel.register(self.pages.address(first), bytes(count))?;
        for page in range(first, count) {
            // A page that is not foreign was never given up: nothing to do.
            if self.pages.table.take_back(page) {
                self.foreign_pages.fetch_sub(1, Relaxed);
            }
        }
        Ok(())
    }

    /// See `Pager::take_back_open`.
    pub(crate) fn take_back_open(
        &self,
        first: PageNo,
        count: u32,
        protection: i32,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let (start, len) = (self.pages.address(first), bytes(count));
        let _signals = SignalsBlocked::new();
        replace()?;
        mem::advise(start, len, libc::MADV_DONTFORK)?;
        // Base pages only, as everywhere in the far range. A kernel without huge pages refuses.
        let _ = mem::advise(start, len, libc::MADV_NOHUGEPAGE);
        // Until it is registered the kernel serves all threads; from then on they wait for the owner of each page.
        self.pages.table.set_open(first, count, true);
        let _inside = self.pages.gate.enter();
        let own = |page: PageNo| {
            self.pages.table.take_back(page);
            self.claim_any(page)
        };
        let owned: Vec<Owned> = range(first, count).map(own).collect();
        self.populate_pinned(first, count, protection);
        if let Err(error) = self.pages.kernel.register(start, len) {
            self.pages.table.set_open(first, count, false);
            let copies: Vec<Released> =
                owned.into_iter().filter_map(|owned| self.pages.complete_foreign(owned)).collect();
            assert!(copies.is_empty(), "a page of another mapping had a copy");
            // It stays as the kernel mapped it, a child's, too. If that fails as well, a child has a hole there.
            let _ = mem::advise(start, len, libc::MADV_DOFORK);
            return Err(error.into());
        }
        self.foreign_pages.fetch_sub(owned.len() as u64, Relaxed);
        // What other threads have touched meanwhile is there.
        let mut answers = vec![0; owned.len()];
        mem::look_in_memory(start, &mut answers);
        let mut answers = answers.into_iter();
        let (present, missing): (Vec<Owned>, Vec<Owned>) =
            owned.into_iter().partition(|_| answers.next().is_some_and(|answer| answer & 1 != 0));
        missing.into_iter().for_each(|owned| self.pages.complete_unchanged(owned));
        if !present.is_empty() {
            self.local.account.charge(present.len() as u64);
            let arrived = self.local.arrive(present.iter().map(Owned::page), Arrival::FirstTouch);
            present.into_iter().for_each(|owned| self.pages.complete_resident(owned, arrived, false));
        }
        self.evictor.note_accessible(count);
        Ok(())
    }

    /// Brings in what the kernel may be working on, of pages that are claimed and not registered: a missing one would be `EFAULT` there.
    fn populate_pinned(&self, first: PageNo, count: u32, protection: i32) {
        if self.pages.path != FaultPath::Inline || !self.pins.touch(first, PageNo(first.0 + count)) {
            return;
        }
        let populate =
            if protection & libc::PROT_WRITE != 0 { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        for page in range(first, count).filter(|page| self.pins.cover(*page)) {
            // Kernels before 5.14 don't know the advice: there, the call may see `EFAULT`.
            let _ = mem::advise(self.pages.address(page), PAGE_BYTES, populate);
        }
    }

    /// Registers staging and far range, the latter without the runs of pages that were given up.
    pub(crate) fn register_all(&self) -> Result<(), SysError> {
        let staging = self.staging.moved_memory();
        self.pages.kernel.register(staging.start, staging.len)?;
        if let Some(tracer) = self.tracer {
            self.pages.kernel.register(tracer.places().start, tracer.places().len)?;
        }
        let mut next = 0;
        for (first, count) in self.foreign_runs().into_iter().chain([(PageNo(self.pages.count), 0)]) {
            if first.0 > next {
                self.pages.kernel.register(self.pages.address(PageNo(next)), (first.0 - next) as usize * PAGE_BYTES)?;
            }
            next = first.0 + count;
        }
        Ok(())
    }

    /// The runs of pages that were given up.
    pub(crate) fn foreign_runs(&self) -> Vec<(PageNo, u32)> {
        let mut runs: Vec<(PageNo, u32)> = Vec::new();
        if self.foreign_pages.load(Relaxed) == 0 {
            return runs;
        }
        self.pages.table.for_each_touched(PageNo(0), self.pages.count, |page| {
            if self.pages.table.load(page).state() != State::Foreign {
                return;
            }
            match runs.last_mut() {
                Some((first, count)) if first.0 + *count == page.0 => *count += 1,
                _ => runs.push((page, 1)),
            }
        });
        runs
    }
}

/// Neighbours at the start of `claimed` (which is not empty) that were in the same state.
fn run_length(claimed: &[Owned]) -> usize {
    let (first, state) = (claimed[0].page(), claimed[0].was().state());
    let alike = |(owned, number): &(&Owned, u32)| owned.page().0 == *number && owned.was().state() == state;
    claimed.iter().zip(first.0..).take_while(alike).count()
}

fn bytes(pages: u32) -> usize {
    pages as usize * PAGE_BYTES
}

fn range(first: PageNo, count: u32) -> impl Iterator<Item = PageNo> {
    (first.0..first.0.saturating_add(count)).map(PageNo)
}

/// A range in steps; each step is owned and given back before the next.
fn steps(first: PageNo, count: u32) -> impl Iterator<Item = (PageNo, u32)> {
    (0..count.div_ceil(STEP_PAGES)).map(move |step| {
        let offset = step * STEP_PAGES;
        (PageNo(first.0 + offset), STEP_PAGES.min(count - offset))
    })
}
