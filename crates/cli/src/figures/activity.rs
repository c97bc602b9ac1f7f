//! What the prefetcher saw of single threads and regions: the busiest of each process, and of a run.

use hinterland_abi::{ActivityRow, Counter, ProcessRow};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;

/// Threads and regions of a run that are reported.
const REPORTED_MAX: usize = 16;

/// One thread or region. Written to the JSON of `--stats` as it stands here.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Activity {
    /// The process.
    pub pid: i32,
    /// The thread's kernel id, or the address of the region's first byte.
    pub name: u64,
    /// Faults on pages without content.
    pub first_touches: u64,
    /// Requests that waited for far memory.
    pub major: u64,
    /// Requests served from the swap cache.
    pub minor: u64,
    /// First uses of prefetched pages that were left unmapped.
    pub prefetch_hits: u64,
    /// Of the last three: sequential ones.
    pub sequential: u64,
    /// Strided ones.
    pub strided: u64,
    /// Their most frequent step, in pages.
    pub step: i64,
    /// Windows that were asked for in far memory.
    pub windows: u64,
    /// Their pages.
    pub window_pages: u64,
    /// Pages of the largest.
    pub window_pages_max: u64,
    /// Of a region: what `auto` chose for it last: 1: streams; more: runs of so many pages; 0: nothing was to be chosen.
    pub choice: u64,
    /// Of a region: pages that came ahead.
    pub fetched_pages: u64,
    /// Of a region: pages that waited unmapped and were given up before they were used.
    pub unused_pages: u64,
}

impl Activity {
    /// The rows in use.
    pub fn read(process: &ProcessRow, rows: &[ActivityRow]) -> Vec<Activity> {
        let get = |counter: &Counter| counter.load(Relaxed);
        let used = rows.iter().filter(|row| get(&row.name) != 0);
        let read = used.map(|row| Activity {
            pid: process.pid.load(Relaxed),
            name: get(&row.name),
            first_touches: get(&row.first_touches),
            major: get(&row.major),
            minor: get(&row.minor),
            prefetch_hits: get(&row.prefetch_hits),
            sequential: get(&row.sequential),
            strided: get(&row.strided),
            step: get(&row.step).cast_signed(),
            windows: get(&row.windows),
            window_pages: get(&row.window_pages),
            window_pages_max: get(&row.window_pages_max),
            choice: get(&row.choice),
            fetched_pages: get(&row.fetched_pages),
            unused_pages: get(&row.unused_pages),
        });
        read.collect()
    }

    /// Requests for content that was not mapped.
    pub fn requests(&self) -> u64 {
        self.major + self.minor + self.prefetch_hits
    }

    /// Requests that followed from none before them.
    pub fn irregular(&self) -> u64 {
        self.requests().saturating_sub(self.sequential + self.strided)
    }

    /// Adds some to the busiest of a run.
    pub fn merge(run: &mut Vec<Activity>, process: &[Activity]) {
        run.extend(process.iter().filter(|one| one.requests() > 0).cloned());
        run.sort_by_key(|one| (std::cmp::Reverse(one.requests()), one.pid, one.name));
        run.truncate(REPORTED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_busiest_are_kept() {
        let mut run = Vec::new();
        for pid in 0..10 {
            let of =
                |name| Activity { pid, name, major: u64::try_from(pid).unwrap() * 10 + name, ..Activity::default() };
            Activity::merge(&mut run, &(0..5).map(of).collect::<Vec<_>>());
        }
        assert_eq!(run.len(), REPORTED_MAX);
        assert_eq!((run[0].pid, run[0].name, run[15].requests()), (9, 4, 64));
    }
}
