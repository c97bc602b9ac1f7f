//! What a process needs of the shared budget, and what it shares with others: the evictor samples both now and then.
//!
//! A process that pages could use local memory for all of its managed pages; one that computes needs what it has; the need
//! of one that sleeps shrinks. It is computed from arrivals and processor time alone, with the time as an argument: the
//! rules are tested in virtual time.

use super::SharedBudget;
use crate::account::Account;
use crate::proportional_share::SharedBytes;
use crate::sys::thread;
use hinterland_abi::{ProcessRow, Share};
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What a process needs, by its arrivals and its processor time since the last sample.
pub(super) struct Demand {
    sampled_at: Instant,
    arrivals: u64,
    cpu: Duration,
}

/// The evictor's samples of what this process needs, and of what it shares.
pub(crate) struct DemandSampler {
    demand: Demand,
    sharing_at: Instant,
    sharing_interval: Duration,
    samples: u32,
}

/// Time between two samples of what the process needs.
const DEMAND_INTERVAL: Duration = Duration::from_millis(190);
/// Arrivals in that time with which a process could use all that it has: 1.3 MiB a second.
const BUSY_ARRIVALS: u64 = 64;
/// Part of that time that a process must have computed to be at work on what it holds.
const AT_WORK_SHARE: u32 = 50;
/// Between two samples of shared pages.
const SHARING_INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(200);
/// One in so many samples also covers the pager's own mappings.
const WHOLE_SAMPLES: u32 = 16;
/// All such samples of a fork group together may take one part in so many of a processor's time.
const SHARING_TIME_SHARE: u32 = 2;

impl Demand {
    pub(super) fn new(now: Instant, cpu: Duration) -> Demand {
        Demand { sampled_at: now, arrivals: 0, cpu }
    }

    /// Writes into `share` what the process could use, when a sample is due. `cpu`: the processor time that it has taken.
    pub(super) fn sample(
        &mut self,
        now: Instant,
        cpu: impl FnOnce() -> Duration,
        row: &ProcessRow,
        account: &Account,
        share: &Share,
    ) {
        let elapsed = now.saturating_duration_since(self.sampled_at);
        if elapsed < DEMAND_INTERVAL {
            return;
        }
        let (arrivals, cpu, counted) = (account.arrivals(), cpu(), account.counted().bytes());
        let wanted = if arrivals - self.arrivals >= BUSY_ARRIVALS {
            row.managed_bytes.load(Relaxed).max(counted)
        } else if cpu.saturating_sub(self.cpu) >= elapsed / AT_WORK_SHARE {
            counted
        } else {
            share.wanted_bytes.load(Relaxed).min(counted) / 4 * 3
        };
        share.wanted_bytes.store(wanted, Relaxed);
        (self.sampled_at, self.arrivals, self.cpu) = (now, arrivals, cpu);
    }
}

impl DemandSampler {
    pub fn new() -> DemandSampler {
        let now = Instant::now();
        DemandSampler {
            demand: Demand::new(now, thread::process_cpu_time()),
            sharing_at: now,
            sharing_interval: *SHARING_INTERVALS.start(),
            samples: 0,
        }
    }

    /// Samples what is due; returns the time until the next sample of shared pages, if there are any.
    /// `shared` looks at what other processes count: of the far range, or, told so, of the pager's own mappings as well.
    pub fn sample(
        &mut self,
        budget: &SharedBudget,
        row: &ProcessRow,
        account: &Account,
        shared: fn(bool) -> Option<SharedBytes>,
    ) -> Option<Duration> {
        let (ledger, share) = budget.share(row)?;
        self.demand.sample(Instant::now(), thread::process_cpu_time, row, account, share);
        let others = budget.others_in_group(ledger, share);
        if others == 0 {
            self.sharing_interval = *SHARING_INTERVALS.start();
            return budget.has_others_in_group(ledger, share).then_some(self.sharing_interval);
        }
        if self.sharing_at.elapsed() >= self.sharing_interval {
            let begun = thread::cpu_time();
            self.samples += 1;
            let seen = shared(self.samples.is_multiple_of(WHOLE_SAMPLES));
            let changed = budget.note_shared(account, seen);
            let (least, most) = SHARING_INTERVALS.into_inner();
            let next = if changed { least } else { (2 * self.sharing_interval).min(most) };
            let cost = thread::cpu_time().saturating_sub(begun);
            let sharers = u32::try_from(others + 1).unwrap_or(u32::MAX);
            self.sharing_interval = next.max(cost * SHARING_TIME_SHARE * sharers);
            self.sharing_at = Instant::now();
        }
        Some(self.sharing_interval.saturating_sub(self.sharing_at.elapsed()))
    }
}

impl SharedBudget {
    /// Notes what other processes count of this one's memory, if that could be seen; returns whether it has changed much.
    fn note_shared(&self, account: &Account, seen: Option<SharedBytes>) -> bool {
        let local = account.local().0;
        let before = account.proportional_share.counted(local);
        match seen {
            Some(SharedBytes { local_elsewhere, beside }) => {
                let counted = local.saturating_sub(local_elsewhere / PAGE_BYTES as u64);
                account.proportional_share.note(local, counted);
                if let Some((beside, elsewhere)) = beside {
                    account.proportional_share.note_beside(beside, elsewhere);
                }
            }
            // The process may not look: everything counts.
            None => account.proportional_share.end(),
        }
        let now = account.proportional_share.counted(local);
        self.lead.store(now.saturating_sub(before), Relaxed);
        now.abs_diff(before) > local / 64
    }
}
