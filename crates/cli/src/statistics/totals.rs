//! The sum of all processes of a run.

use super::activity::Activity;
use super::backends::{BackendTotal, BackendTotals, Traffic};
use super::hint_site::HintSite;
use super::process::ProcessStatistics;
use crate::process::{Image, ProcessMemory};
use hinterland_abi::statistics::process::{Counters, Gauges, Histograms, Maxima};
use std::collections::BTreeSet;

/// Processes that are reported one by one; of more, those that held least are reported together.
const PROCESSES_REPORTED_MAX: usize = 256;

/// Processes that are reported together.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// How many.
    pub count: u64,
    /// Counters, added up.
    pub counters: Counters,
    /// The largest peak of any of them: they did not live at one time.
    pub peak: Gauges,
}

/// A run's figures so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Counters of processes that have ended.
    pub counters: Counters,
    /// Processor time of the programs of processes that ended in order, in nanoseconds.
    pub worked_ns: u64,
    /// Peaks over the whole run.
    pub peak: Gauges,
    /// The largest of any process.
    pub maxima: Maxima,
    /// Histograms, added up.
    pub histograms: Histograms,
    /// The busiest threads.
    pub threads: Vec<Activity>,
    /// The busiest regions.
    pub regions: Vec<Activity>,
    /// Places that give hints, those that had most fetched.
    pub hint_sites: Vec<HintSite>,
    /// Processes that have ended (or were still running when the last look was taken), at most 256.
    pub processes: Vec<ProcessStatistics>,
    /// The rest of them.
    pub others: Others,
    /// How many there were.
    pub process_count: u64,
    /// Of those, still running when the launcher ended.
    pub left_running: u64,
    /// Processes that found no row.
    pub uncounted: u64,
    /// Memory outside the budget that was seen.
    pub not_managed: Vec<NotManaged>,
    /// What the figures of unmanaged memory come from.
    pub unmanaged_source: UnmanagedSource,
    /// What went over the paths of processes that have ended.
    pub traffic: Traffic,
    backends: BackendTotals,
    /// What the program ran when it was last seen managed.
    managed_image: Option<Image>,
}

/// A process, or a part of one, that holds memory outside the budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotManaged {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub program: String,
    /// Why.
    pub why: String,
    /// Whether the process is managed, and this is a part of its memory.
    pub is_part: bool,
    /// The most anonymous memory outside the budget that was seen, in bytes.
    pub anonymous_bytes: u64,
}

impl std::fmt::Display for NotManaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = hinterland_units::ByteCount(self.anonymous_bytes);
        write!(f, "{} ({}), {bytes}, outside the budget", self.program, self.why)
    }
}

/// What the figures of unmanaged memory come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum UnmanagedSource {
    /// Nothing: the program was too short.
    #[default]
    Nobody,
    /// The launcher, from `/proc`.
    Sampled,
    /// The process itself.
    Library,
}

/// One look at all live processes.
pub struct Look<'a> {
    totals: &'a mut Totals,
    now: Gauges,
}

impl Totals {
    /// Begins a look.
    pub fn look(&mut self) -> Look<'_> {
        self.backends.begin();
        Look { totals: self, now: Gauges::default() }
    }

    /// The backends.
    pub fn backends(&self) -> &[BackendTotal] {
        self.backends.all()
    }

    /// The process to speak of when speaking of one: the managed one that held the most. A forked process only when there is no
    /// other: all that it says of itself is that it was forked.
    pub fn principal(&self) -> Option<&ProcessStatistics> {
        self.processes.iter().filter(|row| row.is_managed()).max_by_key(|row| (!row.forked, row.peak.managed_bytes))
    }

    /// Processes beside `pid`, which has a row for each program that it called exec for; so may they.
    pub fn processes_beside(&self, pid: i32) -> u64 {
        let pids: BTreeSet<i32> = self.processes.iter().map(|row| row.pid).filter(|other| *other != pid).collect();
        pids.len() as u64 + self.others.count
    }

    /// Notes what was seen outside the budget. What is not managed of a managed process was seen more often than the process itself has looked,
    /// so the peak of unmanaged memory is no less.
    pub fn note_outside(&mut self, found: Vec<NotManaged>) {
        let parts = found.iter().filter(|found| found.is_part).map(|found| found.anonymous_bytes);
        self.peak.unmanaged_anonymous_bytes = parts.fold(self.peak.unmanaged_anonymous_bytes, u64::max);
        self.not_managed = found;
    }

    /// Adds a process that will not change any more.
    pub fn add(&mut self, row: ProcessStatistics) {
        // A process that ended between two looks has looked at its memory itself.
        if row.knows_unmanaged() {
            self.unmanaged_source = self.unmanaged_source.max(UnmanagedSource::Library);
        }
        self.counters.combine(&row.counters, u64::saturating_add);
        self.worked_ns = self.worked_ns.saturating_add(row.worked_ns);
        self.backends.add(&row.backends);
        self.traffic.add(&row.backends);
        self.maxima.combine(&row.maxima, u64::max);
        self.histograms.add(&row.histograms);
        Activity::merge(&mut self.threads, &row.threads);
        Activity::merge(&mut self.regions, &row.regions);
        HintSite::merge(&mut self.hint_sites, &row.hint_sites);
        self.peak.combine(&row.peak, u64::max);
        self.process_count += 1;
        self.processes.push(row);
        if self.processes.len() > PROCESSES_REPORTED_MAX {
            self.fold_least();
        }
    }

    /// Folds the process that held least into the others. One that Hinterland ended keeps its own row.
    fn fold_least(&mut self) {
        let weight = |row: &ProcessStatistics| (!row.fatal.is_empty(), row.peak.managed_bytes);
        let least = (0..self.processes.len()).min_by_key(|index| weight(&self.processes[*index]));
        if let Some(least) = least.map(|index| self.processes.remove(index)) {
            self.others.count += 1;
            self.others.counters.combine(&least.counters, u64::saturating_add);
            self.others.peak.combine(&least.peak, u64::max);
        }
    }
}

impl Look<'_> {
    /// Counts a process that ended since the last look: with its own peak, but not beside others, because they may not have
    /// lived at the same time.
    pub fn at_ended(&mut self, row: &mut ProcessStatistics, seen: Option<&ProcessMemory>) {
        let beside = self.now;
        self.at(row, seen);
        self.now = beside;
    }

    /// Counts a process that lives now; `seen` is what `/proc` says of it.
    pub fn at(&mut self, row: &mut ProcessStatistics, seen: Option<&ProcessMemory>) {
        if row.knows_unmanaged() {
            self.source(UnmanagedSource::Library);
        } else if let Some(seen) = seen {
            row.estimate_unmanaged(seen);
            self.source(UnmanagedSource::Sampled);
        }
        self.now.combine(&row.now, u64::saturating_add);
        self.totals.peak.combine(&row.peak, u64::max);
        self.totals.maxima.combine(&row.maxima, u64::max);
        self.totals.backends.see(&row.backends);
    }

    /// Notes what the program runs, which has a row.
    pub fn managed_image(&mut self, image: Option<Image>) {
        self.totals.managed_image = image.or(self.totals.managed_image);
    }

    /// Whether the program, which has no row, runs something that never had one.
    pub fn is_unmanaged(&self, image: Option<Image>) -> bool {
        image.is_some() && image != self.totals.managed_image
    }

    /// Counts a process that has no row.
    pub fn at_rowless(&mut self, seen: &ProcessMemory) {
        let mut row = ProcessStatistics::default();
        self.at(&mut row, Some(seen));
    }

    /// Ends the look.
    pub fn finish(self) {
        self.totals.peak.combine(&self.now, u64::max);
        self.totals.backends.finish();
    }

    fn source(&mut self, source: UnmanagedSource) {
        self.totals.unmanaged_source = self.totals.unmanaged_source.max(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_unmanaged_memory_is_no_less_than_what_was_seen_outside_the_budget() {
        let mut totals = Totals::default();
        totals.peak.unmanaged_anonymous_bytes = 5 << 20;
        let found = |is_part, mebibytes: u64| NotManaged {
            pid: 1,
            program: "sort".into(),
            why: String::new(),
            is_part,
            anonymous_bytes: mebibytes << 20,
        };
        totals.note_outside(vec![found(false, 90), found(true, 4)]);
        assert_eq!((totals.peak.unmanaged_anonymous_bytes, totals.not_managed.len()), (5 << 20, 2));
        totals.note_outside(vec![found(true, 65)]);
        assert_eq!(totals.peak.unmanaged_anonymous_bytes, 65 << 20);
    }

    #[test]
    fn of_very_many_processes_those_that_held_least_are_folded_and_none_is_lost() {
        let mut totals = Totals::default();
        for pid in 0..1000 {
            let mut row = ProcessStatistics { pid, ..ProcessStatistics::default() };
            row.peak.managed_bytes = u64::try_from(pid * 7919 % 1000).unwrap();
            row.counters.major_faults = 1;
            totals.add(row);
        }
        assert_eq!((totals.processes_beside(totals.processes[0].pid), totals.processes_beside(-1)), (999, 1000));
        assert_eq!((totals.process_count, totals.processes.len(), totals.others.count), (1000, 256, 744));
        assert_eq!(totals.others.counters.major_faults, 744);
        assert_eq!(totals.others.peak.managed_bytes, 743);
        assert!(totals.processes.iter().all(|row| row.peak.managed_bytes >= 744));
    }
}
