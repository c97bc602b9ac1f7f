//! Requests of a single thread, or in a single region, as the prefetcher saw them: one row of the ledger for each of
//! the busiest.

use crate::Counter;
use std::sync::atomic::Ordering::Relaxed;

/// Threads of a process, and regions of its far range, that have a row: the busiest.
pub const ACTIVITIES_MAX: usize = 16;
/// Pages of such a region: 64 MiB.
pub const REGION_PAGES: u32 = 16_384;

/// The table: calls a macro with its lines, `name: type = "meaning";`. All are of the requests of one thread or in one region since it
/// got its row. A row is not added up: it stands for itself.
#[macro_export]
macro_rules! activity_statistics {
    ($make:ident) => {
        $make! {
            first_touches: u64 = "Faults on pages without content.";
            major: u64 = "Requests that waited for far memory.";
            minor: u64 = "Requests served from the swap cache.";
            prefetch_hits: u64 = "First uses of prefetched pages that were left unmapped.";
            sequential: u64 = "Of the last three: sequential ones.";
            strided: u64 = "Of the same three: strided ones.";
            step: i64 = "The step that was seen most lately, by vote, in pages.";
            windows: u64 = "Windows that the prefetcher requested from far memory.";
            window_pages: u64 = "Pages of those windows.";
            window_pages_max: u64 = "Pages of the largest.";
            choice: u64 = "Of a region: what `auto` chose for it last: 1: streams; more: runs of so many pages; 0: nothing was to be chosen.";
            fetched_pages: u64 = "Of a region: prefetched pages.";
            unused_pages: u64 = "Of a region: prefetched pages that were left unmapped and evicted before they were used.";
        }
    };
}

macro_rules! row {
    ($($field:ident: $type:ident = $meaning:literal;)*) => {
        /// What the prefetcher saw of one thread or region, and what it did.
        #[repr(C)]
        pub struct ActivityRow {
            /// A thread's kernel id, or the address of a region's first byte; 0: the row is free.
            pub name: Counter,
            $(#[doc = $meaning] pub $field: Counter,)*
        }

        impl ActivityRow {
            /// Makes it the row of `name`, with nothing seen.
            pub fn open(&self, name: u64) {
                $(self.$field.store(0, Relaxed);)*
                self.name.store(name, Relaxed);
            }
        }
    };
}
activity_statistics!(row);
