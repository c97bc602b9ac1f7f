//! Zones: stretches of far memory that are protected against writes for a moment, because victims in them are copied out.
//!
//! A zone holds pages that stay, too. A thread that writes to one takes a fault, which lifts the protection; but a system call
//! on the inline path would fail. So zones and pins exclude each other: the thread that pins publishes the range first and
//! looks for zones then; the thread that evicts publishes its zone first and looks for pins then. Whoever comes second sees
//! the other: a zone is given up, a pin waits until the zone has gone. In the same way a thread that takes single pages out by
//! copy keeps zones out meanwhile, and zones exclude each other: the end of one lifts the protection of all that lies in it.

use crate::pin::{Pins, pack, unpack};
use hinterland_sys::thread;
use hinterland_units::PageNo;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use std::time::Duration;

/// Zones at the same time: one for each thread that evicts.
const ZONES_MAX: usize = 8;

/// All zones of a process.
#[derive(Default)]
pub(crate) struct Zones {
    /// Zones in `cells`, or more for a moment.
    open: AtomicU32,
    /// First page and the page after the last; 0: none.
    cells: [AtomicU64; ZONES_MAX],
    /// The same for ranges in which no zone may be.
    kept_out: [AtomicU64; ZONES_MAX],
}

/// Lets zones in again when it is dropped.
pub(crate) struct KeptOut<'a>(&'a AtomicU64);

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// Whether a range overlaps one in `cells`.
fn overlaps<'a>(cells: impl IntoIterator<Item = &'a AtomicU64>, first: u32, end: u32) -> bool {
    cells.into_iter().any(|cell| {
        let (other_first, other_end) = unpack(cell.load(SeqCst));
        first < other_end && other_first < end
    })
}

/// Ends its zone when it is dropped.
pub(crate) struct Zone<'a> {
    zones: &'a Zones,
    cell: &'a AtomicU64,
}

impl Drop for Zone<'_> {
    fn drop(&mut self) {
        self.cell.store(0, Release);
        self.zones.open.fetch_sub(1, Release);
    }
}

impl Zones {
    /// Opens a zone from `first` to before `end`; `None` when part of it is pinned, kept out or in another zone, or too many are
    /// open.
    pub(crate) fn open(&self, first: PageNo, end: PageNo, pins: &Pins) -> Option<Zone<'_>> {
        self.open.fetch_add(1, SeqCst);
        let range = pack(first.0, end.0);
        let Some(cell) = self.cells.iter().find(|cell| cell.compare_exchange(0, range, SeqCst, Relaxed).is_ok()) else {
            self.open.fetch_sub(1, Relaxed);
            return None;
        };
        let zone = Zone { zones: self, cell };
        let others = self.cells.iter().filter(|other| !std::ptr::eq(*other, cell));
        let free =
            !pins.touch(first, end) && !overlaps(&self.kept_out, first.0, end.0) && !overlaps(others, first.0, end.0);
        free.then_some(zone)
    }

    /// Keeps zones out of a range; waits for those that are in it.
    pub(crate) fn keep_out(&self, first: u32, end: u32) -> KeptOut<'_> {
        let range = pack(first, end);
        loop {
            let free = |cell: &&AtomicU64| cell.compare_exchange(0, range, SeqCst, Relaxed).is_ok();
            if let Some(cell) = self.kept_out.iter().find(free) {
                self.wait_outside(first, end);
                return KeptOut(cell);
            }
            thread::yield_now();
        }
    }

    /// Whether a range that the caller has pinned overlaps a zone.
    #[inline]
    pub(crate) fn touch(&self, first: u32, end: u32) -> bool {
        self.open.load(SeqCst) != 0 && overlaps(&self.cells, first, end)
    }

    /// Waits until no zone overlaps a range that the caller has pinned or kept out. Whoever has one open waits for nobody.
    pub(crate) fn wait_outside(&self, first: u32, end: u32) {
        const YIELDS: u32 = 100;
        let mut looks = 0;
        while self.touch(first, end) {
            looks += 1;
            if looks < YIELDS {
                thread::yield_now();
            } else {
                // A thread with a real-time priority yields to nobody else.
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Forgets all of them, in the child of a fork: its one thread has none.
    pub(crate) fn clear(&self) {
        self.cells.iter().chain(&self.kept_out).for_each(|cell| cell.store(0, Relaxed));
        self.open.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_pins_exclude_each_other() {
        let (zones, pins) = (Zones::default(), Pins::new().unwrap());
        let zone = zones.open(PageNo(10), PageNo(20), &pins);
        assert!(zone.is_some() && zones.touch(19, 30) && zones.touch(0, 11));
        assert!(!zones.touch(20, 30) && !zones.touch(0, 10));
        drop(zone);
        assert!(!zones.touch(0, 100));
        let index = pins.add(15, 16, 0);
        assert!(zones.open(PageNo(10), PageNo(20), &pins).is_none());
        assert!(zones.open(PageNo(16), PageNo(20), &pins).is_some());
        pins.remove(index);
        assert!(zones.open(PageNo(10), PageNo(20), &pins).is_some() && !zones.touch(0, 100));
    }

    #[test]
    fn zones_exclude_each_other() {
        let (zones, pins) = (Zones::default(), Pins::new().unwrap());
        let zone = zones.open(PageNo(10), PageNo(20), &pins).unwrap();
        assert!(zones.open(PageNo(15), PageNo(16), &pins).is_none());
        assert!(zones.open(PageNo(5), PageNo(11), &pins).is_none());
        assert!(zones.open(PageNo(20), PageNo(21), &pins).is_some());
        drop(zone);
        assert!(zones.open(PageNo(15), PageNo(16), &pins).is_some() && !zones.touch(0, 100));
    }

    #[test]
    fn zones_stay_outside_what_is_kept_out() {
        let (zones, pins) = (Zones::default(), Pins::new().unwrap());
        let kept_out = zones.keep_out(10, 20);
        assert!(zones.open(PageNo(19), PageNo(30), &pins).is_none());
        assert!(zones.open(PageNo(20), PageNo(30), &pins).is_some());
        drop(kept_out);
        assert!(zones.open(PageNo(19), PageNo(30), &pins).is_some());
    }

    #[test]
    fn more_zones_than_there_is_room_for_are_refused() {
        let (zones, pins) = (Zones::default(), Pins::new().unwrap());
        let held: Vec<_> = (0..8).map(|n| zones.open(PageNo(n), PageNo(n + 1), &pins).unwrap()).collect();
        assert!(zones.open(PageNo(50), PageNo(51), &pins).is_none());
        drop(held);
        assert!(zones.open(PageNo(50), PageNo(51), &pins).is_some());
    }
}
