//! What a replay found.

use hinterland_policy::{BlockStatistics, LoadCurve, RequestFeatures};

/// Counts and times of one replay.
///
/// Laws: `references = resident + first + minor + prefetch_hits + awaited + major`;
/// `link_bytes = 4096 × (major + prefetched + evicted_dirty)`; `on_time + late = used ≤ prefetched`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplayStats {
    /// Touches in the trace.
    pub references: u64,
    /// Touches of mapped pages: no fault.
    pub resident: u64,
    /// Faults on pages without content.
    pub first: u64,
    /// Faults served from the swap cache: the page had been a victim.
    pub minor: u64,
    /// Faults on prefetched pages that waited unmapped: prefetch hits that the runtime observes.
    pub prefetch_hits: u64,
    /// Touches that waited for a page that was already being prefetched, or came with its block, and found it mapped.
    pub awaited: u64,
    /// Touches that waited for far memory.
    pub major: u64,
    /// Pages of zeros mapped ahead of first touches.
    pub zeros_ahead: u64,
    /// Pages prefetched, and those that came with their block while a thread waited for them.
    pub prefetched: u64,
    /// Of these, by the thread that faulted, because the read-ahead thread was late.
    pub prefetched_by_faults: u64,
    /// Prefetched pages that were left unmapped.
    pub prefetched_unmapped: u64,
    /// Prefetch hits that the runtime infers: pages mapped in the windows of key pages that were used.
    pub hits_inferred: u64,
    /// Prefetched pages that were used, which the simulator sees of all of them.
    pub used: u64,
    /// Of these, there before the program asked.
    pub on_time: u64,
    /// Of these, still under way when it asked, or asked for then, with their block.
    pub late: u64,
    /// Time from the asking to the arrival of those, added up.
    pub late_ns: u64,
    /// Time from the arrival to the use of those that were on time, added up.
    pub lead_ns: u64,
    /// Major faults on pages that had left to make room for prefetched ones.
    pub pollution: u64,
    /// Pages that left and were stored.
    pub evicted_dirty: u64,
    /// Pages that left while far memory still had their content.
    pub evicted_clean: u64,
    /// Pages of zeros that left.
    pub evicted_zero: u64,
    /// Times that a fault had to evict by itself.
    pub direct_reclaims: u64,
    /// What blocks around demands led to.
    pub blocks: BlockStatistics,
    /// Touches that waited for a block instead of the page alone; they are no major ones.
    pub block_faults: u64,
    /// What requests say of the program's pages, as in a run.
    pub features: RequestFeatures,
    /// Loads that larger local memory would have spared, as in a run.
    pub loads: LoadCurve,
    /// Bytes that the link carried, both ways.
    pub link_bytes: u64,
    /// Frames in use at most, in pages.
    pub local_peak: u64,
    /// Processor time of the program: the run time with all memory local.
    pub cpu_ns: u64,
    /// Time that the program waited.
    pub stalled_ns: u64,
}

/// A share of a whole; `None` of nothing.
fn share(part: u64, whole: u64) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a share needs few digits")]
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl ReplayStats {
    /// Predicted run time, in nanoseconds.
    pub fn run_ns(&self) -> u64 {
        self.cpu_ns + self.stalled_ns
    }

    /// Predicted run time, as a multiple of that with all memory local; `None` if the trace has no times.
    pub fn slowdown(&self) -> Option<f64> {
        share(self.run_ns(), self.cpu_ns)
    }

    /// Prefetched pages that were used, as a share of all prefetched ones; those that a thread waited for and had with their block are neither.
    pub fn accuracy(&self) -> Option<f64> {
        share(self.foreseen(), self.prefetched.saturating_sub(self.block_faults))
    }

    /// Prefetched pages that were used, as a share of all requests for content that is not mapped.
    pub fn coverage(&self) -> Option<f64> {
        share(self.foreseen(), self.used + self.major + self.minor)
    }

    /// Used pages that were there in time, as a share of all that were used and prefetched.
    pub fn timely(&self) -> Option<f64> {
        share(self.on_time, self.foreseen())
    }

    /// Used pages that came before a thread asked for them, or were under way.
    fn foreseen(&self) -> u64 {
        self.used.saturating_sub(self.block_faults)
    }

    /// How long the program waited for a page that was late, on average, in nanoseconds.
    pub fn late_mean_ns(&self) -> Option<u64> {
        self.late_ns.checked_div(self.late)
    }

    /// How long a page waited for its use, on average, in nanoseconds.
    pub fn lead_mean_ns(&self) -> Option<u64> {
        self.lead_ns.checked_div(self.on_time)
    }
}
