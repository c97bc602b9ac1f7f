//! Touches of one thread that follow each other at the same distance, in pages and nearly in time: one record.
//!
//! The times of a run are a line, no more than [`RUN_TOLERANCE_NS`] before those that were noted. Which lines there are, is known after each touch:
//! those whose slope lies in the intersection of one interval for each touch (the swing filter of Elmeleegy et al., "Online piece-wise
//! linear approximation of numerical streams with precision guarantees", VLDB 2009).

use crate::Reference;
use crate::record::{Last, TICK_NS};

/// How far the time of a touch in a run may be before the one that was noted: a few times what tracing is off for each fault.
pub const RUN_TOLERANCE_NS: u64 = 2_000;
/// Touches of a run at most.
pub const TOUCHES_MAX: u32 = 256;

/// See the module.
#[derive(Clone)]
pub struct Run {
    /// What comes before it.
    before: Last,
    thread: u32,
    pub step: i64,
    pub touches: u32,
    pub is_first: bool,
    /// Time from `before` to the last touch.
    passed_ns: u64,
    /// From one touch to the next: at least and at most.
    least_ns: u64,
    most_ns: u64,
}

impl Run {
    /// A run of one touch, which comes after `before` and is in the same region.
    pub fn begin(before: Last, touch: &Reference) -> Run {
        let passed_ns = touch.cpu_ns.saturating_sub(before.cpu_ns);
        Run {
            before,
            thread: touch.thread,
            step: i64::from(touch.page) - i64::from(before.page),
            touches: 1,
            is_first: touch.is_first,
            passed_ns,
            least_ns: passed_ns.saturating_sub(RUN_TOLERANCE_NS),
            most_ns: passed_ns,
        }
    }

    /// Takes a touch in, if it is the run's next.
    #[inline]
    pub fn takes(&mut self, touch: &Reference) -> bool {
        let at = self.touches + 1;
        let page = i64::from(self.before.page) + self.step * i64::from(at);
        if (touch.thread, touch.region, touch.is_first) != (self.thread, self.before.region, self.is_first)
            || i64::from(touch.page) != page
            || at > TOUCHES_MAX
        {
            return false;
        }
        let passed_ns = touch.cpu_ns.saturating_sub(self.before.cpu_ns).max(self.passed_ns);
        let least_ns = passed_ns.saturating_sub(RUN_TOLERANCE_NS).div_ceil(at.into()).max(self.least_ns);
        let most_ns = (passed_ns / u64::from(at)).min(self.most_ns);
        if least_ns > most_ns {
            return false;
        }
        (self.touches, self.passed_ns, self.least_ns, self.most_ns) = (at, passed_ns, least_ns, most_ns);
        true
    }

    /// From one touch to the next. No time is later than it was noted; so time does not run backwards where the next block begins.
    #[inline]
    pub fn step_ns(&self) -> u64 {
        self.most_ns
    }

    /// Of a run of one touch. The first of a block is rounded up: the last of the block before may have been exact.
    pub fn ticks(&self) -> u64 {
        if self.before.cpu_ns == 0 { self.passed_ns.div_ceil(TICK_NS) } else { self.passed_ns / TICK_NS }
    }

    /// What the reader knows behind it.
    pub fn end(&self) -> Last {
        let page = i64::from(self.before.page) + self.step * i64::from(self.touches);
        let ns = match self.touches {
            1 => self.ticks().saturating_mul(TICK_NS),
            touches => self.step_ns() * u64::from(touches),
        };
        Last {
            region: self.before.region,
            page: u32::try_from(page).unwrap_or(u32::MAX),
            cpu_ns: self.before.cpu_ns.saturating_add(ns),
        }
    }
}
