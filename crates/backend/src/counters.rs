//! The figures that every leaf backend keeps, as atomics that are updated once for each batch.

use crate::{BackendUsage, ForkSide};
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one leaf backend. Gauges are changed by wrapping addition, so a batch may carry a negative change.
#[derive(Default)]
pub(crate) struct Counters {
    pages: AtomicU64,
    stored_bytes: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    same_filled_pages: AtomicU64,
    plain_pages: AtomicU64,
    recompressed_pages: AtomicU64,
    recompression_saved_bytes: AtomicU64,
}

/// What one batch of stores or frees changed.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) pages: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) same_filled_pages: u64,
    pub(crate) plain_pages: u64,
}

impl Counters {
    /// Pages came in.
    pub(crate) fn stored(&self, tally: &Tally) {
        self.pages.fetch_add(tally.pages, Relaxed);
        self.stored_bytes.fetch_add(tally.stored_bytes, Relaxed);
        self.bytes_in.fetch_add(tally.pages * PAGE_BYTES as u64, Relaxed);
        self.same_filled_pages.fetch_add(tally.same_filled_pages, Relaxed);
        self.plain_pages.fetch_add(tally.plain_pages, Relaxed);
    }

    /// Pages were freed.
    pub(crate) fn freed(&self, tally: &Tally) {
        self.pages.fetch_sub(tally.pages, Relaxed);
        self.stored_bytes.fetch_sub(tally.stored_bytes, Relaxed);
        self.same_filled_pages.fetch_sub(tally.same_filled_pages, Relaxed);
        self.plain_pages.fetch_sub(tally.plain_pages, Relaxed);
    }

    /// Pages were loaded.
    pub(crate) fn loaded(&self, pages: u64) {
        self.bytes_out.fetch_add(pages * PAGE_BYTES as u64, Relaxed);
    }

    /// Stored pages were compressed again, and take less: `tally` says by how much.
    pub(crate) fn recompressed(&self, tally: &Tally) {
        self.stored_bytes.fetch_sub(tally.stored_bytes, Relaxed);
        self.plain_pages.fetch_sub(tally.plain_pages, Relaxed);
        self.recompressed_pages.fetch_add(tally.pages, Relaxed);
        self.recompression_saved_bytes.fetch_add(tally.stored_bytes, Relaxed);
    }

    /// Pages stored now.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    /// Pages that were ever stored.
    pub(crate) fn stores(&self) -> u64 {
        self.bytes_in.load(Relaxed) / PAGE_BYTES as u64
    }

    /// A fork has ended on `side`. In the child the traffic begins anew: what its parent did is the parent's.
    pub(crate) fn after_fork(&self, side: ForkSide) {
        if side == ForkSide::Child {
            for counter in [&self.bytes_in, &self.bytes_out, &self.recompressed_pages, &self.recompression_saved_bytes]
            {
                counter.store(0, Relaxed);
            }
        }
    }

    /// The row of the usage report.
    pub(crate) fn row(&self, url: &str, ram_bytes: u64, capacity_bytes: u64) -> BackendUsage {
        BackendUsage {
            url: url.to_owned(),
            pages: self.pages.load(Relaxed),
            stored_bytes: self.stored_bytes.load(Relaxed),
            ram_bytes,
            capacity_bytes,
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            same_filled_pages: self.same_filled_pages.load(Relaxed),
            plain_pages: self.plain_pages.load(Relaxed),
            recompressed_pages: self.recompressed_pages.load(Relaxed),
            recompression_saved_bytes: self.recompression_saved_bytes.load(Relaxed),
            sent_bytes: 0,
            received_bytes: 0,
            promoted_pages: 0,
            demoted_pages: 0,
            tier: 0,
            tier_changes: 0,
            load_one_ns: 0,
            load_queue_ns: 0,
            losses: 0,
            rebuilt_pages: 0,
            hedged_loads: 0,
            lacking_pages: 0,
            last_pages: 0,
            copied_pages: 0,
            needed: false,
            absent: false,
            encrypted: false,
            link_processes: 0,
        }
    }
}
