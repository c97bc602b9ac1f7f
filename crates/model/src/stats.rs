//! What a replay counts.

use crate::time::{TICKS_PER_CYCLE, TICKS_PER_NS};

/// Counters of one replay, since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Misses of the LLC whose data have come.
    pub accesses: u64,
    /// Of these, found in local memory.
    pub local: u64,
    /// Of these, served by local memory after they waited for a page that was on its way already.
    pub awaited: u64,
    /// Of these, served by local memory once the page came that they asked for.
    pub by_page: u64,
    /// Of these, served by a line from remote memory.
    pub by_line: u64,
    /// Ticks from the lookup in local memory to the data, of all accesses.
    pub access_ticks: u64,
    /// Pages asked for.
    pub pages_asked: u64,
    /// Lines asked for.
    pub lines_asked: u64,
    /// Accesses that had a line alone because the in-flight page buffer was full.
    pub pages_refused: u64,
    /// Accesses that waited because the in-flight sub-block buffer was full.
    pub accesses_blocked: u64,
    /// Line requests dropped because their page came first.
    pub lines_cancelled: u64,
    /// Lines that came after their page, and were ignored.
    pub lines_late: u64,
    /// Pages whose data on the way became stale (§4.3).
    pub pages_throttled: u64,
    /// Pages that came stale, and were asked for again.
    pub pages_asked_again: u64,
    /// Pages that came to local memory.
    pub pages_arrived: u64,
    /// Dirty pages written to remote memory.
    pub pages_written: u64,
    /// Dirty lines written to remote memory.
    pub lines_written: u64,
    /// Bytes from remote memory over the network.
    pub down_bytes: u64,
    /// Bytes to remote memory over the network, requests among them.
    pub up_bytes: u64,
    /// Bytes on the local memory bus.
    pub local_bus_bytes: u64,
    /// Bytes on the remote memory bus.
    pub remote_bus_bytes: u64,
}

macro_rules! differences {
    ($later:ident, $earlier:ident, $($field:ident),*) => {
        Counts { $($field: $later.$field - $earlier.$field),* }
    };
}

impl Counts {
    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        differences!(
            self,
            earlier,
            accesses,
            local,
            awaited,
            by_page,
            by_line,
            access_ticks,
            pages_asked,
            lines_asked,
            pages_refused,
            accesses_blocked,
            lines_cancelled,
            lines_late,
            pages_throttled,
            pages_asked_again,
            pages_arrived,
            pages_written,
            lines_written,
            down_bytes,
            up_bytes,
            local_bus_bytes,
            remote_bus_bytes
        )
    }
}

/// The measured part of one replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelStats {
    /// Ticks that it took, from the dispatch of the first measured miss to the last instruction.
    pub ticks: u64,
    /// Instructions in it: those behind the first measured miss of each core.
    pub instructions: u64,
    /// What was counted in it.
    pub counts: Counts,
    /// What the links carried from remote memory, in millionths of what they can.
    pub down_millionths: u64,
}

#[expect(clippy::cast_precision_loss, reason = "figures are for people: 53 bits are enough")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl ModelStats {
    /// Instructions per cycle.
    pub fn ipc(&self) -> f64 {
        ratio(self.instructions * TICKS_PER_CYCLE, self.ticks)
    }

    /// Mean time of an access, in nanoseconds: the data access cost of §6.2.
    pub fn access_ns(&self) -> f64 {
        ratio(self.counts.access_ticks, self.counts.accesses * TICKS_PER_NS)
    }

    /// Accesses that local memory served, but for those that first asked for the page: the hit ratio of §6.3.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.counts.local + self.counts.awaited, self.counts.accesses)
    }

    /// What the links carried from remote memory, of what they can, in percent (§A.1).
    pub fn utilisation_percent(&self) -> f64 {
        ratio(self.down_millionths, 10_000)
    }

    /// How many times faster than `other` the same instructions ran.
    pub fn speedup_over(&self, other: &ModelStats) -> f64 {
        ratio(other.ticks, self.ticks)
    }
}
