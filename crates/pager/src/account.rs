//! The account of local memory: how many frames are in use, and how many may be.
//!
//! Invariant: `local = mapped pages + frames in staging slots`, and a frame is counted before it is used. Watermarks:
//! above `high` the evictor is woken, it stops below `low`; at `hard` a fault reclaims by itself before it maps.

use hinterland_abi::ProcessRow;
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, PageCount};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module. All figures in pages.
pub struct Account {
    local: Option<Budget>,
    ram: Option<Budget>,
    local_pages: AtomicU64,
    /// The most that `local_pages` has been.
    peak_pages: AtomicU64,
    hard: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
    swap_cache: AtomicU64,
    /// Pages that became resident since the beginning.
    arrivals: AtomicU64,
}

/// The swap cache's share of the budget: large enough that a victim in use is touched there, small enough that faults on
/// such victims stay few.
const SWAP_CACHE_SHARE: u64 = 32;

/// Epochs in one turnover of the local memory.
const EPOCHS: u64 = 16;

/// Distance of the high watermark from the budget: one batch at least, 2 MiB at most. Larger margins waste frames, smaller
/// ones make faults reclaim.
fn margin(budget_pages: u64) -> u64 {
    (budget_pages / 128).clamp(64, 512)
}

impl Account {
    /// An account under the given budgets; without any, memory is not bounded.
    pub fn new(local: Option<Budget>, ram: Option<Budget>) -> Account {
        let account = Account {
            local,
            ram,
            local_pages: AtomicU64::new(0),
            peak_pages: AtomicU64::new(0),
            hard: AtomicU64::new(0),
            low: AtomicU64::new(0),
            high: AtomicU64::new(0),
            swap_cache: AtomicU64::new(0),
            arrivals: AtomicU64::new(0),
        };
        account.update(ByteCount(0), ByteCount(0), ByteCount(0));
        account
    }

    /// Recomputes the watermarks; returns the local budget in bytes. `touched` is the most that the program has had,
    /// `beside` what compressed store and metadata occupy now, `others` what other processes under the same budget hold.
    pub fn update(&self, touched: ByteCount, beside: ByteCount, others: ByteCount) -> ByteCount {
        let local = self.local.map_or(u64::MAX, |budget| budget.bytes(touched).0);
        let ram = self.ram.map_or(u64::MAX, |budget| {
            // Below the floor no batch would fit: the store must give way then, not the local memory.
            budget.bytes(touched).0.saturating_sub(beside.0).max(Budget::FLOOR.0)
        });
        // Whatever the others hold, each process may work within the floor.
        let bytes = local.min(ram).saturating_sub(others.0).clamp(Budget::FLOOR.0, 1 << 52);
        let pages = bytes / PAGE_BYTES as u64;
        let margin = margin(pages);
        self.hard.store(pages, Relaxed);
        self.high.store(pages - margin, Relaxed);
        self.low.store(pages - 2 * margin, Relaxed);
        self.swap_cache.store(pages / SWAP_CACHE_SHARE, Relaxed);
        ByteCount(bytes)
    }

    /// By how much local memory, store and metadata exceed `--ram` although local memory is at its floor.
    pub fn store_excess(&self, touched: ByteCount, beside: ByteCount) -> u64 {
        self.ram.map_or(0, |budget| (beside.0 + Budget::FLOOR.0).saturating_sub(budget.bytes(touched).0))
    }

    /// Whether the store counts against a budget, too.
    pub fn bounds_ram(&self) -> bool {
        self.ram.is_some()
    }

    /// Whether a budget depends on what the program has touched.
    pub fn follows_touched(&self) -> bool {
        [self.local, self.ram].iter().any(|b| matches!(b, Some(Budget::PercentOfTouched(_))))
    }

    /// Counts `pages` frames as used if they fit under the hard floor.
    pub fn try_take(&self, pages: u64) -> bool {
        let hard = self.hard.load(Relaxed);
        let taken = self.local_pages.fetch_update(Relaxed, Relaxed, |now| (now + pages <= hard).then_some(now + pages));
        if let Ok(before) = taken {
            self.note_peak(before + pages);
        }
        taken.is_ok()
    }

    /// Counts `pages` frames as used whatever the budget says.
    pub fn take(&self, pages: u64) {
        self.note_peak(self.local_pages.fetch_add(pages, Relaxed) + pages);
    }

    /// Forgets the peak: in the child of a fork, where it was the parent's.
    pub fn restart_peak(&self) {
        self.peak_pages.store(self.local_pages.load(Relaxed), Relaxed);
    }

    fn note_peak(&self, pages: u64) {
        if pages > self.peak_pages.load(Relaxed) {
            self.peak_pages.fetch_max(pages, Relaxed);
        }
    }

    /// Counts `pages` frames as free.
    pub fn give(&self, pages: u64) {
        let before = self.local_pages.fetch_sub(pages, Relaxed);
        assert!(before >= pages, "more frames freed than used: {pages} of {before}");
    }

    /// Frames in use.
    pub fn local(&self) -> PageCount {
        PageCount(self.local_pages.load(Relaxed))
    }

    /// Frames that may be in use.
    pub fn budget(&self) -> PageCount {
        PageCount(self.hard.load(Relaxed))
    }

    /// The evictor should run.
    pub fn above_high(&self) -> bool {
        self.local_pages.load(Relaxed) > self.high.load(Relaxed)
    }

    /// The evictor should go on.
    pub fn above_low(&self) -> bool {
        self.local_pages.load(Relaxed) > self.low.load(Relaxed)
    }

    /// Counts `pages` arrivals; returns their epoch: a sixteenth of the time in which all local memory is replaced once.
    pub fn arrive(&self, pages: u64) -> u8 {
        let arrivals = self.arrivals.fetch_add(pages, Relaxed);
        Account::epoch_of(arrivals, self.hard.load(Relaxed))
    }

    /// The epoch now.
    pub fn epoch(&self) -> u8 {
        Account::epoch_of(self.arrivals.load(Relaxed), self.hard.load(Relaxed))
    }

    fn epoch_of(arrivals: u64, budget_pages: u64) -> u8 {
        (arrivals / (budget_pages / EPOCHS).max(1)).to_le_bytes()[0]
    }

    /// Pages that the swap cache should hold.
    pub fn swap_cache(&self) -> PageCount {
        PageCount(self.swap_cache.load(Relaxed))
    }

    /// Writes the gauges of local memory to the ledger.
    pub fn publish(&self, row: &ProcessRow) {
        let local = self.local().bytes();
        row.resident_managed_bytes.store(local, Relaxed);
        let peak = PageCount(self.peak_pages.load(Relaxed)).bytes();
        row.resident_managed_peak_bytes.fetch_max(peak, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<Budget> {
        text.parse().ok()
    }

    #[test]
    fn frames_never_exceed_the_budget() {
        let account = Account::new(bytes("16M"), None);
        assert!(account.try_take(4096));
        assert!(!account.try_take(1));
        account.give(1);
        assert!(account.try_take(1) && account.above_high());
        account.give(200);
        assert!(!account.above_low());
    }

    #[test]
    fn a_ram_budget_leaves_what_the_store_does_not_take() {
        let account = Account::new(None, bytes("64M"));
        assert_eq!(account.update(ByteCount(0), ByteCount(24 << 20), ByteCount(0)).0, 40 << 20);
        assert_eq!(account.update(ByteCount(0), ByteCount(60 << 20), ByteCount(0)), Budget::FLOOR);
        assert_eq!(account.store_excess(ByteCount(0), ByteCount(60 << 20)), 12 << 20);
    }

    #[test]
    fn other_processes_share_the_budget_down_to_the_floor() {
        let account = Account::new(bytes("64M"), None);
        assert_eq!(account.update(ByteCount(0), ByteCount(0), ByteCount(24 << 20)).0, 40 << 20);
        assert_eq!(account.update(ByteCount(0), ByteCount(0), ByteCount(90 << 20)), Budget::FLOOR);
    }

    #[test]
    fn a_percentage_grows_with_the_program() {
        let account = Account::new(bytes("25%"), None);
        assert!(account.follows_touched());
        assert_eq!(account.update(ByteCount(400 << 20), ByteCount(0), ByteCount(0)).0, 100 << 20);
    }
}
