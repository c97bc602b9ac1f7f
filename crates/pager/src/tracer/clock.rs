//! Processor time as a trace has it: without a thread's faults, and without what it ran outside of intervals.
//!
//! A fault takes processor time of the thread that it stops: the kernel's entry, its sleep and its awakening. Untraced it has no such
//! fault. Of a thread that was never seen in a fault it is not known what it ran outside of intervals: that counts.

use hinterland_sys::thread;
use std::collections::HashMap;

/// The clocks of the program's threads.
#[derive(Default)]
pub(super) struct Clocks {
    /// What a fault costs its thread.
    fault_ns: u64,
    /// By kernel id.
    threads: HashMap<u32, Clock>,
}

/// One thread's.
#[derive(Default)]
struct Clock {
    /// Faults that were served and count.
    faults: u64,
    /// Processor time that does not count.
    outside_ns: u64,
    /// Processor time when the interval ended.
    ended_ns: u64,
    /// What it showed: a fault that costs less than others does not turn it back.
    shown_ns: u64,
}

impl Clock {
    fn show(&mut self, cpu_ns: u64, fault_ns: u64) -> u64 {
        let counted_ns = cpu_ns.saturating_sub(self.outside_ns + self.faults * fault_ns);
        self.shown_ns = self.shown_ns.max(counted_ns);
        self.shown_ns
    }
}

impl Clocks {
    pub(super) fn begin(&mut self, fault_ns: u64) {
        self.fault_ns = fault_ns;
    }

    /// A thread's time.
    pub(super) fn show(&mut self, thread: u32) -> u64 {
        self.threads.entry(thread).or_default().show(cpu_ns(thread), self.fault_ns)
    }

    pub(super) fn count_fault(&mut self, thread: u32) {
        self.threads.entry(thread).or_default().faults += 1;
    }

    /// In a forked child, whose thread is another one.
    pub(super) fn begin_child(&mut self) {
        self.threads.clear();
    }

    /// The interval ends: time stands still.
    pub(super) fn stop(&mut self) {
        self.threads.iter_mut().for_each(|(thread, clock)| clock.ended_ns = cpu_ns(*thread));
    }

    /// An interval begins, which thread `by` says.
    pub(super) fn go_on(&mut self, by: u32) {
        self.threads.entry(by).or_default();
        self.threads.iter_mut().for_each(|(thread, clock)| {
            clock.outside_ns += cpu_ns(*thread).saturating_sub(clock.ended_ns);
        });
    }

    /// The first interval is about to begin: nothing of what was before counts.
    pub(super) fn begin_again(&mut self) {
        self.threads.values_mut().for_each(|clock| *clock = Clock::default());
    }
}

fn cpu_ns(thread: u32) -> u64 {
    u64::try_from(thread::cpu_time_of(thread).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_leaves_faults_out_and_never_runs_backwards() {
        let mut clock = Clock::default();
        let shown: Vec<u64> = [1_000, 6_000, 9_500, 16_000, 40_000]
            .map(|cpu_ns| {
                let shown = clock.show(cpu_ns, 4_000);
                clock.faults += 1;
                shown
            })
            .into();
        assert_eq!(shown, [1_000, 2_000, 2_000, 4_000, 24_000]);
    }

    #[test]
    fn a_clock_stands_still_outside_of_intervals() {
        let (mut clocks, thread) = (Clocks::default(), thread::id());
        let work = || (0..2_000_000_u64).fold(1, |sum: u64, number| std::hint::black_box(sum.wrapping_mul(number | 1)));
        work();
        clocks.begin_again();
        clocks.go_on(thread);
        let first = clocks.show(thread);
        work();
        let inside = clocks.show(thread) - first;
        clocks.stop();
        let ended = clocks.show(thread);
        (0..20).for_each(|_| {
            work();
        });
        clocks.go_on(thread);
        let outside = clocks.show(thread) - ended;
        assert!(first < inside && outside < inside, "{first} before, {inside} inside, {outside} outside");
    }
}
