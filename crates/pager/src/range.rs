//! Calls of the program on ranges of far memory: discard, move, protect, lock.
//!
//! The calling thread belongs to the program. It works with its signals blocked, so that no handler runs while it owns busy
//! pages, and it never touches far memory in here: serving such a fault could need what it holds.

use crate::fault_path::FaultPath;
use crate::pager::Pager;
use crate::pin::PinAccess;
use crate::schedule::Point;
use crate::state::{Entry, State};
use hinterland_backend::Location;
use hinterland_policy::Arrival;
use hinterland_sys::thread::SignalsBlocked;
use hinterland_sys::{mem, thread};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// Pages that one step of a long call owns at most, so that faults beside it don't wait long.
const STEP_PAGES: u32 = 1024;

/// A page that the caller made `Changing`, and what it was.
type Claimed = (PageNo, Entry);

impl Pager {
    /// Drops the content of `count` pages from `first`: they read as zero afterwards, their frames and far space are given
    /// back. The meaning of `MADV_DONTNEED`. Protection stays.
    pub fn discard(&self, first: PageNo, count: u32) {
        self.drop_where(first, count, |_| true);
    }

    /// Drops the content of pages that are not mapped: those pages read as zero afterwards; mapped pages keep theirs. For
    /// memory that was freed: nobody will read it, and it must not take far space.
    pub fn drop_remote(&self, first: PageNo, count: u32) {
        self.drop_where(first, count, |state| state != State::Resident);
    }

    fn drop_where(&self, first: PageNo, count: u32, wanted: impl Fn(State) -> bool) {
        let _signals = SignalsBlocked::new();
        let mut claimed = Vec::new();
        let mut freed = Vec::new();
        for (step, pages) in steps(first, count) {
            if !self.pages.table.any_touched(step, pages) {
                continue;
            }
            let _inside = self.pages.gate.enter();
            claimed.clear();
            self.pages.table.for_each_touched(step, pages, |page| {
                claimed.extend(self.claim(page, &wanted));
            });
            self.drop_claimed(&claimed, &mut freed);
        }
    }

    /// Makes a page `Changing`, waiting for its owner to complete it; `None` when it has no content or is not wanted.
    fn claim(&self, page: PageNo, wanted: impl Fn(State) -> bool) -> Option<Claimed> {
        loop {
            let entry = self.pages.table.load(page);
            match entry.state() {
                State::Untouched | State::Foreign | State::Sectioned => return None,
                state if state.is_busy() => {
                    self.pages.at(Point::WaitsForOwner, page);
                    thread::yield_now();
                }
                state if !wanted(state) => return None,
                _ if self.pages.table.transition(page, entry, entry.with_state(State::Changing)).is_ok() => {
                    return Some((page, entry));
                }
                _ => {}
            }
        }
    }

    /// Drops the content of claimed pages and completes them as `Untouched`.
    fn drop_claimed(&self, claimed: &[Claimed], freed: &mut Vec<Location>) {
        let resident = |(_, entry): &&Claimed| entry.state() == State::Resident;
        let mut mapped = claimed.iter().filter(resident).map(|(page, _)| *page);
        if let Some(first) = mapped.next() {
            let last = mapped.next_back().unwrap_or(first);
            self.drop_span(first, last, claimed);
        }
        freed.clear();
        let mut policy = self.local.policy();
        for (page, entry) in claimed {
            policy.forgotten(*page);
            if entry.copy_retained() {
                freed.push(entry.location());
            }
        }
        drop(policy);
        // The copy of a prefetched page that waits unused counts with the remote ones.
        let counted = |e: &Entry| e.copy_retained() && e.state() != State::Remote && !e.prefetched();
        self.far.forget_copies(claimed.iter().filter(|(_, entry)| counted(entry)).count() as u64);
        let parked = self.drop_parked(claimed);
        for (page, _) in claimed {
            self.pins.long_term.forget(*page);
            self.pages.at(Point::Discarded, *page);
            self.pages.complete(*page, Entry::new(State::Untouched));
        }
        self.far.backend.free(freed);
        self.local.account.uncharge(claimed.iter().filter(resident).count() as u64 + parked);
        self.local.count_untouched(claimed.len() as u64);
    }

    /// Drops the frames of the claimed resident pages from `first` to `last`: with one call when everything between them is
    /// claimed or without a frame, else run by run.
    fn drop_span(&self, first: PageNo, last: PageNo, claimed: &[Claimed]) {
        let all_ours = |page: PageNo| claimed.binary_search_by_key(&page, |(p, _)| *p).is_ok();
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
        let mut next = 0;
        while next < claimed.len() {
            let (page, entry) = claimed[next];
            let run = run_length(&claimed[next..]);
            if entry.state() == State::Resident {
                // SAFETY: as above.
                unsafe { self.pages.kernel.drop_pages(self.pages.address(page), run * PAGE_BYTES) };
            }
            next += run;
        }
    }

    /// Makes `count` pages from `first` read as zero in the cheapest way: overwrites those that are mapped, drops the rest.
    /// The pages must be readable and writable, and the caller their only user.
    pub fn zero(&self, first: PageNo, count: u32) {
        self.drop_remote(first, count);
        let mut mapped = Vec::new();
        self.pages.table.for_each_touched(first, count, |page| mapped.push(page));
        for page in mapped {
            // SAFETY: the caller is the only user of this read-write page. Outside the gate: the write may fault.
            unsafe { std::ptr::write_bytes(self.pages.address(page) as *mut u8, 0, PAGE_BYTES) };
        }
    }

    /// Moves the content of `count` pages from `from` to `to` (both read-write, not overlapping); what `to` held is dropped,
    /// `from` reads as zero afterwards. No page is fetched for it.
    pub fn relocate(&self, from: PageNo, to: PageNo, count: u32) {
        self.discard(to, count);
        let _signals = SignalsBlocked::new();
        let mut claimed = Vec::new();
        for (step, pages) in steps(from, count) {
            let _inside = self.pages.gate.enter();
            claimed.clear();
            self.pages.table.for_each_touched(step, pages, |page| claimed.extend(self.claim(page, |_| true)));
            let target = |page: PageNo| PageNo(page.0 - from.0 + to.0);
            for (page, _) in &claimed {
                self.claim_target(target(*page));
            }
            self.move_frames(&claimed, target);
            for (page, entry) in &claimed {
                self.move_entry(*page, target(*page), *entry);
            }
        }
    }

    /// Makes the destination of a move `Changing` and empty. It may have content although the caller discarded it: read-ahead
    /// maps zeros beyond the end of a run, too.
    fn claim_target(&self, target: PageNo) {
        loop {
            let now = self.pages.table.load(target);
            if now.state() == State::Untouched {
                if self.pages.table.transition(target, now, now.with_state(State::Changing)).is_ok() {
                    return;
                }
            } else if let Some(claimed) = self.claim(target, |_| true) {
                self.drop_claimed(&[claimed], &mut Vec::new());
            } else {
                assert!(
                    now.state() != State::Foreign,
                    "{target}: content cannot be moved onto a mapping that is not ours"
                );
            }
        }
    }

    /// Moves the frames of resident pages, run by run.
    fn move_frames(&self, claimed: &[Claimed], target: impl Fn(PageNo) -> PageNo) {
        let mut next = 0;
        while next < claimed.len() {
            let (page, entry) = claimed[next];
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
    fn move_entry(&self, page: PageNo, target: PageNo, entry: Entry) {
        if entry.copy_retained() {
            self.pages.table.set_hash(target, self.pages.table.hash(page));
        }
        if entry.state() == State::SwapCached && self.is_parked(page) {
            self.move_parked(page, target);
        } else if entry.state() == State::SwapCached {
            let slot = self.pages.table.slot(page);
            self.pages.table.set_slot(target, slot);
            self.staging.set_page(slot, Some(target));
        }
        self.pins.long_term.forget(page);
        self.pages.at(Point::Moved, page);
        let mut policy = self.local.policy();
        policy.forgotten(page);
        if entry.state() == State::Resident {
            policy.arrived(target, Arrival::Demand);
        }
        drop(policy);
        if entry.state() == State::Resident {
            self.trace_moved(target);
        }
        self.pages.complete(target, entry);
        self.pages.complete(page, Entry::new(State::Untouched));
    }

    /// `mprotect` on far pages. `protection` is a set of `PROT_*` bits. Content stays, also of evicted pages.
    ///
    /// # Errors
    /// The kernel's.
    pub fn protect(&'static self, first: PageNo, count: u32, protection: i32) -> io::Result<()> {
        mem::protect(self.pages.address(first), bytes(count), protection)?;
        let open = protection & (libc::PROT_READ | libc::PROT_WRITE) != 0;
        self.pages.table.set_open(first, count, open);
        if open {
            // The reservation as a whole stays out of core dumps. An old kernel's refusal costs a larger dump only.
            let _ = mem::advise(self.pages.address(first), bytes(count), libc::MADV_DODUMP);
            self.note_accessible(count);
        }
        Ok(())
    }

    /// Brings `count` pages in and locks them (`mlock`), until `unlock`. With `on_fault`, locks only those that are faulted in
    /// later (`MLOCK_ONFAULT`).
    ///
    /// # Errors
    /// The kernel's (`ENOMEM`: the limit on locked memory), and `ENOMEM` when they would not fit the budget.
    pub fn lock(&self, first: PageNo, count: u32, on_fault: bool) -> io::Result<()> {
        if u64::from(count) > self.local.shared_budget.budget().0 / 2 {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        if on_fault {
            return Ok(mem::lock(self.pages.address(first), bytes(count), on_fault)?);
        }
        self.with_pages(first, count, PinAccess::Write, |start, len| Ok(mem::lock(start, len, false)?))
    }

    /// Brings `count` pages in for a call of the kernel, `call` (address and bytes), which is made piece by piece.
    ///
    /// # Errors
    /// The call's; what came before it stays done.
    pub fn with_pages(
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
                FaultPath::Inline => self.pin_piece().min(end - start),
            };
            let _signals = SignalsBlocked::new();
            let _pin = self.pin(start, len, access);
            call(start, len)?;
            start += len;
        }
        Ok(())
    }

    /// Ends `lock`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unlock(&self, first: PageNo, count: u32) -> io::Result<()> {
        Ok(mem::unlock(self.pages.address(first), bytes(count))?)
    }

    /// Whether this process is a copy that was made without our knowledge (a fork by an instruction of the program's own): it has no
    /// far memory, and the locks may belong to threads that are not there.
    pub fn is_escaped(&self) -> bool {
        self.pages.gate.is_escaped()
    }

    /// Whether a page is local (the meaning of `mincore`).
    pub fn is_local(&self, page: PageNo) -> bool {
        !matches!(self.state(page), State::Untouched | State::Remote)
    }

    /// Hands a run of pages over to a mapping that is not ours (a file mapped with `MAP_FIXED` inside the far range): content
    /// dropped; the pager will not touch these pages until `take_back`.
    pub fn give_up(&self, first: PageNo, count: u32) {
        let _signals = SignalsBlocked::new();
        for page in range(first, count) {
            let _inside = self.pages.gate.enter();
            self.claim_target(page);
            self.pages.at(Point::GivingUp, page);
            self.pages.complete(page, Entry::new(State::Foreign));
        }
        self.foreign_pages.fetch_add(u64::from(count), Relaxed);
    }

    /// Maps inaccessible anonymous memory over a run that was given up and manages it again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_back(&self, first: PageNo, count: u32) -> io::Result<()> {
        // SAFETY: the program unmapped what was there, or maps something else over it.
        unsafe { mem::remap_inaccessible(self.pages.address(first), bytes(count)) }?;
        mem::advise(self.pages.address(first), bytes(count), libc::MADV_DONTFORK)?;
        self.pages.kernel.register(self.pages.address(first), bytes(count))?;
        for page in range(first, count) {
            // A page that is not foreign was never given up: nothing to do.
            if self.pages.table.transition(page, Entry::new(State::Foreign), Entry::new(State::Untouched)).is_ok() {
                self.foreign_pages.fetch_sub(1, Relaxed);
            }
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
fn run_length(claimed: &[Claimed]) -> usize {
    let (first, entry) = claimed[0];
    let alike = |((page, other), number): &(&Claimed, u32)| page.0 == *number && other.state() == entry.state();
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
