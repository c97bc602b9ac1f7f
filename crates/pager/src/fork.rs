//! Forks: parent and child both go on with every page as it was.
//!
//! ```text
//!  parent                                child
//!  freeze: gate closed, none inside
//!  ── fork ──────────────────────────────► kernel copies tables, staging and compressed store (copy-on-write)
//!  thaw                                    own userfaultfd, register, thaw; its threads start
//! ```
//!
//! While the gate is closed no page is busy, so the child finds a consistent table. Between the fork and the
//! registration the child's missing pages would read as zero: the child must not touch far memory before `begin_child`
//! returns.
//!
//! **Unannounced forks.** At all other times the range is marked `MADV_DONTFORK`. A child that was made by a `syscall`
//! instruction of the program's own has no far memory at all, and dies where it touches some, with SIGSEGV; it can not
//! read zeros. The marks of the whole range come off in `freeze` and on again afterwards, in parent and child: 0.2 to
//! 0.3 µs each time for each of the kernel's mappings in it (decision 0014).

use crate::evict_hints::EvictHints;
use crate::evictor_start::EvictorStart;
use crate::evictor_waker::EvictorWaker;
use crate::far_memory::FarMemory;
use crate::inline_fault::InlineFaults;
use crate::interval::Intervals;
use crate::local_memory::LocalMemory;
use crate::maintenance::Maintenance;
use crate::pages::Pages;
use crate::pin::Pins;
use crate::pinning::Pinning;
use crate::points::Point;
use crate::prefetch_cache::PrefetchCache;
use crate::prefetch_driver::PrefetchDriver;
use crate::range_calls::RangeCalls;
use crate::read_ahead::ReadAhead;
use crate::sys::mem::OwnMemory;
use crate::sys::{Uffd, mem, thread};
use crate::tracer::Tracer;
use crate::wp_range::WpRanges;
use hinterland_abi::ProcessRow;
use hinterland_backend::ForkSide;
use hinterland_sys::SysError;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// See the module: every room is told of a fork.
pub(crate) struct Fork {
    pub(crate) pages: &'static Pages,
    pub(crate) local: &'static LocalMemory,
    pub(crate) far: &'static FarMemory,
    pub(crate) evict_hints: &'static EvictHints,
    pub(crate) pins: &'static Pins,
    pub(crate) wp_ranges: &'static WpRanges,
    pub(crate) tracer: Option<&'static Tracer>,
    pub(crate) intervals: &'static Intervals,
    pub(crate) driver: &'static PrefetchDriver,
    pub(crate) cache: &'static PrefetchCache,
    pub(crate) read_ahead: &'static ReadAhead,
    pub(crate) inline_faults: &'static InlineFaults,
    pub(crate) pinning: &'static Pinning,
    pub(crate) waker: &'static EvictorWaker,
    pub(crate) maintenance: &'static Maintenance,
    pub(crate) evictor: &'static EvictorStart,
    pub(crate) range: &'static RangeCalls,
}

impl Fork {
    /// See `Pager::freeze`.
    pub(crate) fn freeze(&self, left: &[(PageNo, u32)]) {
        self.pages.gate.close();
        self.go_on_freezing(left);
    }

    fn go_on_freezing(&self, left: &[(PageNo, u32)]) {
        self.pages.overwriters.forget_all();
        self.local.shared_budget.before_fork(self.pages.row(), &self.local.account);
        self.far.before_fork();
        self.advise_own(libc::MADV_DOFORK);
        for (first, count) in left {
            self.advise_all_of(*first, *count, libc::MADV_DONTFORK);
        }
        self.pages.at(Point::Frozen, PageNo(0));
    }

    /// See `Pager::freeze_on`.
    pub(crate) fn freeze_on(&self, stack: Range<usize>, left: &[(PageNo, u32)]) -> bool {
        // Nobody is inside once the gate is closed, so the pin is not needed longer.
        let Some(_pin) = self.pinning.pin_stack(stack) else { return false };
        self.pages.gate.close();
        self.go_on_freezing(left);
        true
    }

    /// See `Pager::thaw`.
    pub(crate) fn thaw(&self) {
        self.keep_from_children();
        self.far.after_fork(ForkSide::Parent);
        self.pages.row().forks.fetch_add(1, Relaxed);
        self.local.shared_budget.after_fork(self.pages.row(), &self.local.account, false);
        self.waker.wake_if_idle();
        self.pages.gate.open();
    }

    /// See `Pager::begin_child`.
    pub(crate) fn begin_child(
        &self,
        uffd: Uffd,
        memory: OwnMemory,
        row: &'static ProcessRow,
        left: &[(PageNo, u32)],
        wiped: &[(PageNo, u32)],
    ) -> Result<(), SysError> {
        self.pages.decisions.end();
        // Marks that threads of the parent's have set since the freeze: a thread of the child's may get the number of one of them.
        self.pages.overwriters.forget_all();
        let parent = self.pages.row();
        self.local.shared_budget.after_fork(row, &self.local.account, true);
        for (from, to) in [
            (&parent.managed_bytes, &row.managed_bytes),
            (&parent.managed_bytes, &row.managed_peak_bytes),
            (&parent.resident_managed_bytes, &row.resident_managed_bytes),
            (&parent.resident_managed_bytes, &row.resident_managed_peak_bytes),
            (&parent.local_budget_bytes, &row.local_budget_bytes),
            (&parent.counted_beside_bytes, &row.counted_beside_bytes),
        ] {
            to.store(from.load(Relaxed), Relaxed);
        }
        // Before any fault: from now on a command waits for this process, which may have far pages of its own.
        self.local.shared_budget.has_appeared(parent, row, self.evictor.is_started());
        self.pages.set_row(row);
        self.cache.count_inherited();
        self.pages.own_threads.forget();
        thread::forget_ours();
        self.local.begin_child();
        self.maintenance.forget();
        self.evictor.forget();
        self.read_ahead.forget();
        self.driver.begin_child();
        self.evict_hints.clear();
        self.local.kept.clear();
        if let Some(tracer) = self.tracer {
            tracer.leave();
        }
        self.intervals.begin_child();
        self.pins.clear();
        self.wp_ranges.clear();
        debug_assert!(self.inline_faults.is_idle(), "a thread was being served during a fork");
        self.pages.kernel.replace(uffd, memory);
        for (first, count) in left {
            // SAFETY: the kernel left a hole here; nothing is mapped.
            unsafe { mem::remap_inaccessible(self.pages.address(*first), *count as usize * PAGE_BYTES) }?;
        }
        self.range.register_all()?;
        self.pages.at(Point::ChildRegistered, PageNo(0));
        self.keep_from_children();
        self.far.after_fork(ForkSide::Child);
        self.pages.gate.open();
        for (first, count) in left.iter().chain(wiped) {
            self.range.discard(*first, *count);
        }
        Ok(())
    }

    /// Keeps the range out of unannounced children.
    pub(crate) fn keep_from_children(&self) {
        self.advise_own(libc::MADV_DONTFORK);
    }

    /// Gives advice about all pages that are the pager's.
    fn advise_own(&self, advice: i32) {
        let mut next = 0;
        for (first, count) in self.range.foreign_runs().into_iter().chain([(PageNo(self.pages.count), 0)]) {
            if first.0 > next {
                self.advise_all_of(PageNo(next), first.0 - next, advice);
            }
            next = first.0 + count;
        }
    }

    fn advise_all_of(&self, first: PageNo, count: u32, advice: i32) {
        if let Err(error) = mem::advise(self.pages.address(first), count as usize * PAGE_BYTES, advice) {
            // With the wrong advice a child reads zeros.
            self.pages.fatal(&format!("far memory cannot be advised for forked processes: {error}"));
        }
    }
}
