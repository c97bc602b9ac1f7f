//! The account of local memory: how many frames are in use, and how many may be.
//!
//! Invariant: `local = mapped pages + frames in staging slots`, and a frame is charged before it is used. Watermarks:
//! above `high` the evictor is woken, it stops below `low`; at `hard` a fault reclaims by itself before it maps. The
//! body sets the bound.

use crate::CHUNK_SLOTS;
use hinterland_units::PageCount;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module. All figures in pages.
pub struct Account {
    local_pages: AtomicU64,
    /// The most that `local_pages` has been.
    peak_pages: AtomicU64,
    hard: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
    swap_cache: AtomicU64,
    /// Arrivals in which all local memory is replaced once.
    turnover: AtomicU64,
    /// Pages that became resident since the beginning.
    arrivals: AtomicU64,
}

/// The swap cache's share of the budget: large enough that a victim in use is touched there, small enough that faults on
/// such victims stay few.
const SWAP_CACHE_SHARE: u64 = 32;

/// Epochs in one turnover of the local memory.
const EPOCHS: u64 = 16;

/// No bound is smaller: the watermarks would meet.
pub const BOUND_MIN: PageCount = PageCount(256);

/// Distance of the high watermark from a bound of so many pages: one batch at least, 2 MiB at most. Larger margins waste
/// frames, smaller ones make faults reclaim.
pub fn margin(pages: u64) -> u64 {
    (pages / 128).clamp(64, 512)
}

/// Pages of a bound that the program has not mapped while it evicts: frames that the evictor keeps free, the swap cache, and a batch that
/// leaves. A tape is planned without them.
pub fn reserve(pages: u64) -> u64 {
    2 * margin(pages) + pages / SWAP_CACHE_SHARE + 2 * u64::from(CHUNK_SLOTS)
}

impl Default for Account {
    fn default() -> Account {
        Account::new()
    }
}

impl Account {
    /// An account with the smallest bound.
    pub fn new() -> Account {
        let account = Account {
            local_pages: AtomicU64::new(0),
            peak_pages: AtomicU64::new(0),
            hard: AtomicU64::new(0),
            low: AtomicU64::new(0),
            high: AtomicU64::new(0),
            swap_cache: AtomicU64::new(0),
            turnover: AtomicU64::new(0),
            arrivals: AtomicU64::new(0),
        };
        account.set_bound(BOUND_MIN, BOUND_MIN);
        account
    }

    /// Sets how many frames may be in use now. `turnover`: how many there may be once this process
    /// has grown.
    pub fn set_bound(&self, bound: PageCount, turnover: PageCount) {
        let pages = bound.max(BOUND_MIN).0;
        let margin = margin(pages);
        self.hard.store(pages, Relaxed);
        self.high.store(pages - margin, Relaxed);
        self.low.store(pages - 2 * margin, Relaxed);
        self.swap_cache.store(pages / SWAP_CACHE_SHARE, Relaxed);
        self.turnover.store(turnover.0.max(pages), Relaxed);
    }

    /// Charges `pages` frames if they fit under the hard floor.
    #[inline]
    pub fn try_charge(&self, pages: u64) -> bool {
        let hard = self.hard.load(Relaxed);
        let taken = self.local_pages.fetch_update(Relaxed, Relaxed, |now| (now + pages <= hard).then_some(now + pages));
        if let Ok(before) = taken {
            self.note_peak(before + pages);
        }
        taken.is_ok()
    }

    /// Charges `pages` frames whatever the budget says.
    #[inline]
    pub fn charge(&self, pages: u64) {
        self.note_peak(self.local_pages.fetch_add(pages, Relaxed) + pages);
    }

    /// Forgets the peak: in the child of a fork, where it was the parent's.
    pub fn restart_peak(&self) {
        self.peak_pages.store(self.local_pages.load(Relaxed), Relaxed);
    }

    #[inline]
    fn note_peak(&self, pages: u64) {
        if pages > self.peak_pages.load(Relaxed) {
            self.peak_pages.fetch_max(pages, Relaxed);
        }
    }

    /// Uncharges `pages` frames: they are free.
    #[inline]
    pub fn uncharge(&self, pages: u64) {
        let before = self.local_pages.fetch_sub(pages, Relaxed);
        assert!(before >= pages, "more frames uncharged than charged: {pages} of {before}");
    }

    /// Frames in use.
    #[inline]
    pub fn local(&self) -> PageCount {
        PageCount(self.local_pages.load(Relaxed))
    }

    /// Frames that may be in use.
    #[inline]
    pub fn budget(&self) -> PageCount {
        PageCount(self.hard.load(Relaxed))
    }

    /// Frames that may be in use once this process has grown.
    pub fn grown_budget(&self) -> PageCount {
        PageCount(self.turnover.load(Relaxed))
    }

    /// The evictor should run.
    #[inline]
    pub fn above_high(&self) -> bool {
        self.local_pages.load(Relaxed) > self.high.load(Relaxed)
    }

    /// The evictor should go on.
    #[inline]
    pub fn above_low(&self) -> bool {
        self.local_pages.load(Relaxed) > self.low.load(Relaxed)
    }

    /// Whether so much is local that pages leave, or are about to.
    pub fn is_tight(&self) -> bool {
        let hard = self.hard.load(Relaxed);
        self.local_pages.load(Relaxed) + reserve(hard) > hard
    }

    /// Counts `pages` arrivals; returns their epoch: a sixteenth of the time in which all local memory is replaced once.
    #[inline]
    pub fn arrive(&self, pages: u64) -> u8 {
        let arrivals = self.arrivals.fetch_add(pages, Relaxed);
        self.epoch_of(arrivals)
    }

    /// The epoch now.
    #[inline]
    pub fn epoch(&self) -> u8 {
        self.epoch_of(self.arrivals())
    }

    /// Pages that became resident since the beginning.
    #[inline]
    pub fn arrivals(&self) -> u64 {
        self.arrivals.load(Relaxed)
    }

    #[inline]
    fn epoch_of(&self, arrivals: u64) -> u8 {
        (arrivals / (self.turnover.load(Relaxed) / EPOCHS).max(1)).to_le_bytes()[0]
    }

    /// The watermarks, hard, high and low, and what the swap cache should hold.
    pub fn watermarks(&self) -> [PageCount; 4] {
        [&self.hard, &self.high, &self.low, &self.swap_cache].map(|pages| PageCount(pages.load(Relaxed)))
    }

    /// Pages that the swap cache should hold.
    #[inline]
    pub fn swap_cache(&self) -> PageCount {
        PageCount(self.swap_cache.load(Relaxed))
    }

    /// The most frames that were in use.
    pub fn peak(&self) -> PageCount {
        PageCount(self.peak_pages.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_never_exceed_the_budget() {
        let account = Account::new();
        account.set_bound(PageCount(4096), PageCount(4096));
        assert!(account.try_charge(4096));
        assert!(!account.try_charge(1));
        account.uncharge(1);
        assert!(account.try_charge(1) && account.above_high());
        account.uncharge(200);
        assert!(!account.above_low());
        assert!(account.is_tight());
        account.uncharge(reserve(4096));
        assert!(!account.is_tight());
    }

    #[test]
    fn an_epoch_is_a_sixteenth_of_the_turnover_whatever_the_bound_is_now() {
        let account = Account::new();
        account.set_bound(PageCount(256), PageCount(1600));
        account.arrive(250);
        assert_eq!(account.epoch(), 2);
        account.set_bound(PageCount(1600), PageCount(1600));
        assert_eq!(account.epoch(), 2);
    }
}
