//! Figures of a link, for the run's statistics, and of its node: pages copied lately, the last report, the time of the
//! last answer.

use super::limits::COPIED_SECONDS;
use crate::sync::lock;
use hinterland_wire::CopiesReport;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How many pages were copied in the last ten seconds, in buckets of a second.
pub(super) struct Recent {
    begun: Instant,
    /// Of each bucket: the second that it is of, and its pages.
    buckets: [(u64, u64); COPIED_SECONDS],
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { begun: Instant::now(), buckets: [(0, 0); COPIED_SECONDS] }
    }
}

impl Recent {
    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_secs()
    }

    fn is_recent(&self, of: u64, now: Instant) -> bool {
        self.second(now).saturating_sub(of) < COPIED_SECONDS as u64
    }

    pub(super) fn count(&mut self, pages: u64, now: Instant) {
        let second = self.second(now);
        let bucket = &mut self.buckets[usize::try_from(second).unwrap_or(0) % COPIED_SECONDS];
        if bucket.0 != second {
            *bucket = (second, 0);
        }
        bucket.1 += pages;
    }

    pub(super) fn sum(&self, now: Instant) -> u64 {
        self.buckets.iter().filter(|(of, _)| self.is_recent(*of, now)).map(|(_, pages)| pages).sum()
    }
}

/// What was said last, for the run's figures.
#[derive(Default)]
pub(super) struct LastReport {
    lacking_pages: AtomicU64,
    last_pages: AtomicU64,
    spare: AtomicBool,
}

impl LastReport {
    pub(super) fn set(&self, report: &CopiesReport) {
        self.lacking_pages.store(report.lacking_pages, Relaxed);
        self.last_pages.store(report.last_pages, Relaxed);
        self.spare.store(report.spare, Relaxed);
    }

    pub(super) fn lacking_pages(&self) -> u64 {
        self.lacking_pages.load(Relaxed)
    }

    pub(super) fn last_pages(&self) -> u64 {
        self.last_pages.load(Relaxed)
    }

    /// Whether nothing would be lost with the node; not as long as nothing was said.
    pub(super) fn is_spare(&self) -> bool {
        self.spare.load(Relaxed)
    }
}

/// When a node answered last.
pub(super) struct Answered(Mutex<Instant>);

impl Default for Answered {
    fn default() -> Answered {
        Answered(Mutex::new(Instant::now()))
    }
}

impl Answered {
    pub(super) fn now(&self) {
        *lock(&self.0) = Instant::now();
    }

    pub(super) fn within(&self, time: Duration) -> bool {
        lock(&self.0).elapsed() < time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_for_ten_seconds() {
        let mut recent = Recent::default();
        let times: Vec<Instant> =
            (0..40).map(|second| recent.begun + Duration::from_millis(second * 1000 + 500)).collect();
        assert_eq!(recent.sum(times[0]), 0);
        recent.count(3, times[0]);
        recent.count(4, times[0]);
        recent.count(5, times[9]);
        assert_eq!((recent.sum(times[0]), recent.sum(times[9])), (12, 12));
        assert_eq!((recent.sum(times[10]), recent.sum(times[18]), recent.sum(times[19])), (5, 5, 0));
        // A bucket is of one second.
        recent.count(6, times[29]);
        assert_eq!((recent.sum(times[29]), recent.sum(times[38]), recent.sum(times[39])), (6, 6, 0));
    }
}
