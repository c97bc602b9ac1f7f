//! Departure by copy: scattered victims of one block of memory leave together.
//!
//! MOVE takes a scattered page out for a TLB shootdown each (3 to 8 µs with another thread running, measured). Here one
//! call write-protects the range from the first victim to the last, the victims are copied to slots that have frames, and one
//! call drops them all: two shootdowns for a range (1.7 µs a page at 60 pages, the copy included). Decision 0012 has the figures.
//!
//! Only on the inline path: there every page that the kernel works on is pinned in our own table. On the monitor path direct I/O
//! or io_uring may write to a frame at any time, which MOVE refuses and a copy would lose. For the same reason a program that
//! uses devices that keep pages (`Pager::departs_by_move_only`) gets no departures by copy.

use crate::fault_path::FaultPath;
use crate::kernel::NotEvicted;
use crate::local_memory::LocalMemory;
use crate::pages::{Owned, Pages};
use crate::pin::Pins;
use crate::points::Point;
use crate::slot::{ChunkNo, Kind};
use crate::staging::Staging;
use crate::sys::mem;
use crate::sys::thread::SignalsBlocked;
use crate::wp_range::WpRanges;
use hinterland_paging::{CHUNK_SLOTS, Step, Way, by_copy, runs_of_victims, ways};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::atomic::{AtomicU8, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use std::vec::Drain;

/// Scattered victims leave by copy.
const COPIES: u8 = 0;
/// No copy begins any more; some may be under way.
const ENDING: u8 = 1;
/// All victims leave by MOVE.
const MOVES: u8 = 2;

/// See the module.
pub(crate) struct CopyOut {
    pages: &'static Pages,
    local: &'static LocalMemory,
    staging: &'static Staging,
    pins: &'static Pins,
    wp_ranges: &'static WpRanges,
    /// How scattered victims leave: `COPIES`, `ENDING` or `MOVES`.
    way: AtomicU8,
}

impl CopyOut {
    /// Whether the kernel can drop a vector is tried when the first victims leave.
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        staging: &'static Staging,
        pins: &'static Pins,
        wp_ranges: &'static WpRanges,
    ) -> CopyOut {
        let features = pages.kernel.features();
        let possible = pages.path == FaultPath::Inline && features.write_protect && features.may_drop_vector();
        let way = AtomicU8::new(if possible { COPIES } else { MOVES });
        CopyOut { pages, local, staging, pins, wp_ranges, way }
    }

    /// Whether victims may leave by copy.
    #[inline]
    pub(crate) fn is_possible(&self) -> bool {
        if self.way.load(Relaxed) != COPIES {
            return false;
        }
        let can = self.pages.kernel.features().drop_vector();
        if !can {
            // No copy has begun and none will: departures need not look for one.
            let _ = self.way.compare_exchange(COPIES, MOVES, SeqCst, Relaxed);
        }
        can
    }

    /// Whether copies may still be under way.
    pub(crate) fn may_be_under_way(&self) -> bool {
        self.way.load(SeqCst) != MOVES
    }

    /// See `Pager::departs_by_move_only`.
    pub(crate) fn end(&self) {
        // A process that was copied past the gate has no far memory.
        if self.way.load(Acquire) == MOVES || self.pages.gate.is_escaped() {
            return;
        }
        self.way.store(ENDING, SeqCst);
        // A thread that entered the gate before may have seen that victims leave by copy.
        let _signals = SignalsBlocked::new();
        self.pages.gate.close();
        self.pages.gate.open();
        self.way.store(MOVES, Release);
    }

    /// Takes those victims (sorted, `Leaving`) out by copy that are to leave so; the others stay in `victims`, and those whose copy fails.
    /// Returns how many left.
    pub(crate) fn take_out(&self, victims: &mut Vec<Owned>) -> u32 {
        let copies = self.is_possible();
        let pages: Vec<PageNo> = if copies { victims.iter().map(Owned::page).collect() } else { Vec::new() };
        self.pages.decisions.turn().note(|| Step::Leaves { copies, by_copy: by_copy(&pages, copies).collect() });
        if by_copy(&pages, copies).next().is_none() {
            return 0;
        }
        let Some(chunk) = self.staging.take_empty(Kind::Copied) else { return 0 };
        let mut rest = Vec::with_capacity(victims.len());
        let (mut used, mut left) = (0, 0);
        let mut owned = victims.drain(..);
        for (block, way) in ways(&pages, copies) {
            let (copied, departed) = match way {
                Way::Copy => self.copy_range_out(block, &mut owned, chunk, used),
                Way::Move => (0, 0),
            };
            rest.extend(owned.by_ref().take(block.len() - copied));
            used += u32::try_from(copied).unwrap_or(CHUNK_SLOTS);
            left += departed;
        }
        drop(owned);
        victims.append(&mut rest);
        if left == 0 {
            self.staging.give_empty(chunk);
        } else {
            self.staging.push_full(chunk, Some(Way::Copy), used, left);
        }
        self.pages.row().copied_out_pages.fetch_add(u64::from(left), Relaxed);
        left
    }

    /// Copies victims of one block, the next ones of `owned`, to the chunk's slots from `slot` on, from the first one on to where that
    /// fails, and takes them out; returns how many were copied, which are busy no more then, and how many of these left.
    fn copy_range_out(
        &self,
        victims: &[PageNo],
        owned: &mut Drain<'_, Owned>,
        chunk: ChunkNo,
        slot: u32,
    ) -> (usize, u32) {
        let (first, last) = (victims[0], victims[victims.len() - 1]);
        let Some(protected) = self.wp_ranges.open(first, PageNo(last.0 + 1), self.pins) else { return (0, 0) };
        self.pages.at(Point::Leaving, first);
        let (start, len) = (self.pages.address(first), (last.0 - first.0 + 1) as usize * PAGE_BYTES);
        if self.pages.kernel.uffd().write_protect(start, len, true).is_err() {
            // A mapping of another kind lies in between: what lies before it is protected.
            self.lift_protection(start, len);
            return (0, 0);
        }
        let into = self.staging.address(chunk.slot(slot));
        // SAFETY: the chunk is ours, and has as many slots as there are victims.
        let copied = unsafe { mem::copy_vector(&self.ranges_of(victims), into) };
        if copied.is_err_and(|error| error.errno != libc::EFAULT) {
            // Not for what a page is like: the call is forbidden, by a filter that the program has set for itself.
            let _ = self.way.compare_exchange(COPIES, ENDING, Relaxed, Relaxed);
        }
        let victims = &victims[..copied.unwrap_or(0) / PAGE_BYTES];
        self.pages.at(Point::Copied, first);
        let left = self.drop_copied(victims, &owned.as_slice()[..victims.len()], chunk, slot);
        self.lift_protection(start, len);
        drop(protected);
        for (victim, slot) in owned.by_ref().take(victims.len()).zip(slot..) {
            if self.staging.page(chunk.slot(slot)) == Some(victim.page()) {
                self.pages.complete_swap_cached(victim);
            } else {
                self.local.did_not_leave(victim, NotEvicted::Pinned);
            }
        }
        (victims.len(), left)
    }

    /// Drops victims that are copied to the chunk's slots from `slot` on; notes which slots are theirs now, and returns how many.
    fn drop_copied(&self, victims: &[PageNo], owned: &[Owned], chunk: ChunkNo, slot: u32) -> u32 {
        // SAFETY: the pages are ours, and their content is in the slots.
        let dropped = unsafe { mem::drop_vector(&self.ranges_of(victims)) };
        let all_dropped = dropped == Ok(victims.len() * PAGE_BYTES);
        let mut left = 0;
        for (victim, slot) in owned.iter().zip(slot..) {
            let (page, slot) = (victim.page(), chunk.slot(slot));
            // A call that stopped may have dropped part of the range where it stopped. To drop a page again does no harm; one
            // that cannot be dropped (locked) is still there.
            // SAFETY: as above.
            let out = all_dropped || unsafe { mem::drop_pages(self.pages.address(page), PAGE_BYTES) }.is_ok();
            if out {
                self.pages.note_slot(victim, slot);
                left += 1;
            }
            self.staging.set_page(slot, out.then_some(page));
        }
        left
    }

    /// Sorted pages as ranges of memory.
    fn ranges_of(&self, pages: &[PageNo]) -> Vec<libc::iovec> {
        let range = |run: &[PageNo]| libc::iovec {
            iov_base: self.pages.address(run[0]) as *mut libc::c_void,
            iov_len: run.len() * PAGE_BYTES,
        };
        runs_of_victims(pages).map(range).collect()
    }

    /// Lifts the protection of a range, also around a mapping of another kind that the program has put there meanwhile.
    fn lift_protection(&self, start: usize, len: usize) {
        let uffd = self.pages.kernel.uffd();
        if uffd.write_protect(start, len, false).is_err() {
            for page in (start..start + len).step_by(PAGE_BYTES) {
                // Fails where nothing of ours is.
                let _ = uffd.write_protect(page, PAGE_BYTES, false);
            }
        }
    }
}
