//! One path: a backend, how fast it is, and whether it takes pages now.

use super::rank::Known;
use super::speed::Speed;
use crate::{Backend, BackendUsage, StoreError};
use hinterland_abi::PlacementName;
use hinterland_units::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A path that was full is asked again after so long, one that failed after this; or when no other takes a page.
const FULL_PAUSE: Duration = Duration::from_millis(100);
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Of fewer pages it is not known how well they shrink: most are compressed to half.
const PAGES_KNOWN: u64 = 256;
const SHARE_UNKNOWN: f64 = 0.5;

/// See the module.
pub(crate) struct Path {
    /// As it was asked for.
    pub(super) url: String,
    pub(super) backend: Arc<dyn Backend>,
    /// Pages that are there or on their way, or are not yet freed: as long as there is one, the path stays open.
    pub(super) pages: AtomicUsize,
    /// The price of a byte there, relative to RAM.
    price: f64,
    pub(super) loads: Speed,
    pub(super) stores: Speed,
    /// Pages that came here from lower tiers because they were wanted, and that went to lower ones because they were not.
    pub(super) promoted_pages: AtomicU64,
    pub(super) demoted_pages: AtomicU64,
    /// How often it came to another tier because measured times changed, or were forgotten.
    pub(super) tier_changes: AtomicU64,
    /// It is asked for room again at these times, in nanoseconds since `born`: it was full, or it has failed.
    full_until_ns: AtomicU64,
    failed_until_ns: AtomicU64,
    /// When its maintenance is due again.
    rests_until_ns: AtomicU64,
    born: Instant,
}

impl Path {
    pub(crate) fn new(url: String, backend: Arc<dyn Backend>, price: f64) -> Path {
        Path {
            url,
            backend,
            pages: AtomicUsize::new(0),
            price,
            loads: Speed::new(),
            stores: Speed::new(),
            promoted_pages: AtomicU64::new(0),
            demoted_pages: AtomicU64::new(0),
            tier_changes: AtomicU64::new(0),
            full_until_ns: AtomicU64::new(0),
            failed_until_ns: AtomicU64::new(0),
            rests_until_ns: AtomicU64::new(0),
            born: Instant::now(),
        }
    }

    /// The same, as one of paths with that placement.
    pub(super) fn placed(mut self, placement: PlacementName) -> Path {
        for speed in [&mut self.loads, &mut self.stores] {
            speed.set_needed(placement != PlacementName::Tiers);
        }
        self
    }

    fn since_birth(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds that each further page takes: as loads tell, or else stores; 0: not known.
    pub(super) fn page_ns(&self) -> u64 {
        match self.loads.page_ns() {
            0 => self.stores.page_ns(),
            page_ns => page_ns,
        }
    }

    /// Appends its rows: a pool has one for each memory node. Each has the path's `tier`, from 1, or 0, and the times that decide it; the first one what
    /// has moved between tiers.
    pub(super) fn usage(&self, tier: u64, rows: &mut Vec<BackendUsage>) {
        let first = rows.len();
        self.backend.usage(rows);
        if let Some(row) = rows.get_mut(first) {
            (row.promoted_pages, row.demoted_pages) =
                (self.promoted_pages.load(Relaxed), self.demoted_pages.load(Relaxed));
        }
        for row in rows.iter_mut().skip(first) {
            (row.tier, row.tier_changes) = (tier, self.tier_changes.load(Relaxed));
            (row.load_one_ns, row.load_queue_ns) = (self.loads.one_ns(), self.loads.queue_ns());
        }
    }

    /// The child of a fork begins to count anew: what its parent did is the parent's.
    pub(super) fn count_anew(&self) {
        [&self.promoted_pages, &self.demoted_pages, &self.tier_changes]
            .iter()
            .for_each(|pages| pages.store(0, Relaxed));
    }

    /// What decides how good it is, as number `path`.
    pub(super) fn known(&self, path: usize) -> Known {
        let one_ns = Some(self.loads.one_ns()).filter(|ns| *ns > 0);
        let mut rows = Vec::new();
        self.backend.usage(&mut rows);
        let pages: u64 = rows.iter().map(|row| row.pages).sum();
        let stored_bytes: u64 = rows.iter().map(|row| row.stored_bytes).sum();
        #[allow(clippy::cast_precision_loss, reason = "a score")]
        let (one_ns, queue_ns, share) = (
            one_ns.map(|ns| ns as f64),
            self.loads.queue_ns() as f64,
            stored_bytes as f64 / (pages.max(1) * PAGE_BYTES as u64) as f64,
        );
        let share = match (self.backend.copies_cost_ram(), pages < PAGES_KNOWN) {
            (false, _) => 1.0,
            (true, true) => SHARE_UNKNOWN,
            (true, false) => share,
        };
        Known { path, one_ns, queue_ns, cost: share * self.price }
    }

    /// As [`Backend::maintain`]; while the pause after the last step lasts, what is left of it: another path's step may be due earlier.
    pub(super) fn maintain(&self) -> Option<Duration> {
        let rest_ns = self.rests_until_ns.load(Relaxed).saturating_sub(self.since_birth());
        if rest_ns > 0 {
            return Some(Duration::from_nanos(rest_ns));
        }
        let pause = self.backend.maintain();
        let pause_ns = pause.map_or(0, |pause| u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX));
        self.rests_until_ns.store(self.since_birth().saturating_add(pause_ns), Relaxed);
        pause
    }

    /// It has refused a page.
    pub(super) fn refused(&self, error: &StoreError) {
        let (until, pause) = match error {
            StoreError::Full { .. } => (&self.full_until_ns, FULL_PAUSE),
            _ => (&self.failed_until_ns, FAILED_PAUSE),
        };
        until.store(self.since_birth() + u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Whether it has refused a page a short while ago.
    pub(super) fn is_avoided(&self) -> bool {
        self.is_before(&self.full_until_ns) || self.has_failed()
    }

    /// The same, and not because it was full.
    pub(super) fn has_failed(&self) -> bool {
        self.is_before(&self.failed_until_ns)
    }

    fn is_before(&self, until: &AtomicU64) -> bool {
        let until_ns = until.load(Relaxed);
        until_ns > 0 && self.since_birth() < until_ns
    }
}
