//! What the prefetcher saw of a single thread, or in a single region: one row of the ledger for each of the busiest.

use crate::Counter;
use std::sync::atomic::Ordering::Relaxed;

/// Threads of a process, and regions of its far range, that have a row: the busiest.
pub const ACTIVITIES_MAX: usize = 16;
/// Pages of such a region: 64 MiB.
pub const REGION_PAGES: u32 = 16_384;

/// The requests of one thread or in one region since it got this row, and what the prefetcher did about them.
#[repr(C)]
pub struct ActivityRow {
    /// A thread's kernel id, or the address of a region's first byte; 0: nobody's.
    pub name: Counter,
    /// Faults on pages without content.
    pub first_touches: Counter,
    /// Requests that waited for far memory.
    pub major: Counter,
    /// Requests served from the swap cache.
    pub minor: Counter,
    /// First uses of prefetched pages that were left unmapped.
    pub prefetch_hits: Counter,
    /// Of the last three: sequential ones.
    pub sequential: Counter,
    /// Strided ones.
    pub strided: Counter,
    /// The step that was seen most lately, by vote, in pages; two's complement.
    pub step: Counter,
    /// Windows that the prefetcher asked for in far memory.
    pub windows: Counter,
    /// Their pages.
    pub window_pages: Counter,
    /// Pages of the largest.
    pub window_pages_max: Counter,
    /// Of a region: what `auto` chose for it last: 1: streams; more: runs of so many pages; 0: nothing was to be chosen.
    pub choice: Counter,
    /// Pages that came ahead.
    pub fetched_pages: Counter,
    /// Of those that were left unmapped, given up before they were used.
    pub unused_pages: Counter,
}

impl ActivityRow {
    /// Makes it the row of `name`, with nothing seen.
    pub fn open(&self, name: u64) {
        for counter in [
            &self.first_touches,
            &self.major,
            &self.minor,
            &self.prefetch_hits,
            &self.sequential,
            &self.strided,
            &self.step,
            &self.windows,
            &self.window_pages,
            &self.window_pages_max,
            &self.choice,
            &self.fetched_pages,
            &self.unused_pages,
        ] {
            counter.store(0, Relaxed);
        }
        self.name.store(name, Relaxed);
    }
}
