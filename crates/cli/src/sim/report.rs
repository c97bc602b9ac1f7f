//! The results of the replays, as JSON.

use super::SimArgs;
use super::combinations::Combination;
use super::read::Traced;
use hinterland_sim::ReplayStats;
use serde::Serialize;

/// All replays of a trace.
#[derive(Serialize)]
pub struct Report {
    /// The trace.
    pub trace: String,
    /// Its program.
    pub program: String,
    /// What could not be read of it.
    pub damage: Vec<String>,
    /// That, and what else a reader of the figures must know, as it is said on stderr.
    pub notes: Vec<String>,
    /// References that were replayed.
    pub references: u64,
    /// Different pages.
    pub pages: u64,
    /// Frames that the program may have in the end.
    pub local_pages: u64,
    /// How each link is divided.
    pub share: String,
    /// Whose costs a fault has.
    pub fault_path: &'static str,
    /// Of 100 pages that come back, so many are written to before they leave again.
    pub written_percent: u8,
    /// Chose which.
    pub seed: u64,
    /// Processor time in the trace; none where it has no times.
    pub cpu_seconds: Option<f64>,
    /// Link by link.
    pub rows: Vec<Row>,
}

/// One replay. Shares are from 0 to 1, and missing where there is nothing to be a share of.
#[derive(Serialize)]
pub struct Row {
    /// The link.
    pub link: String,
    /// Eviction policy or reference.
    pub evict: String,
    /// Prefetcher.
    pub prefetch: String,
    /// Touches of mapped pages.
    pub resident: u64,
    /// Faults on pages without content.
    pub first_touch_faults: u64,
    /// Faults served from the swap cache.
    pub minor_faults: u64,
    /// Touches that waited for a page of far memory alone.
    pub major_faults: u64,
    /// Touches that waited for a page that was on its way, or came with its block, and found it mapped.
    pub awaited: u64,
    /// Of the major faults that FIFO has and MIN spares, the share that this policy spares: without prefetching, where both were replayed.
    pub gap_closed: Option<f64>,
    /// Pages fetched ahead of the program.
    pub prefetched_pages: u64,
    /// Of these, left unmapped.
    pub prefetched_unmapped_pages: u64,
    /// Prefetch hits that the runtime would observe.
    pub prefetch_hits_observed: u64,
    /// Prefetch hits that it would infer.
    pub prefetch_hits_inferred: u64,
    /// Prefetched pages that were used.
    pub prefetched_used_pages: u64,
    /// Their share of all prefetched pages; here and below without those that came with their block while a thread waited for them.
    pub accuracy: Option<f64>,
    /// Their share of all requests for content that is not mapped.
    pub coverage: Option<f64>,
    /// The share of them that was there before the program asked.
    pub timely: Option<f64>,
    /// How long such a page waited for its use, on average.
    pub lead_mean_ns: Option<u64>,
    /// How long the program waited for the others, on average.
    pub late_mean_ns: Option<u64>,
    /// Major faults on pages that had left to make room for prefetched ones.
    pub pollution_pages: u64,
    /// Pages that left and were stored.
    pub evicted_dirty_pages: u64,
    /// Pages that left without.
    pub evicted_clean_pages: u64,
    /// Faults that evicted by themselves.
    pub direct_reclaims: u64,
    /// Blocks that were asked for around demands.
    pub blocks_asked: u64,
    /// Pages that came with them.
    pub block_pages: u64,
    /// Of those, used.
    pub block_used_pages: u64,
    /// Touches that waited for a block instead of the page alone.
    pub block_faults: u64,
    /// Pages that were requested alone although their block was requested and not sent.
    pub block_page_first: u64,
    /// Blocks that were not requested because those in flight filled their room.
    pub blocks_refused_full: u64,
    /// Blocks that were not requested because too few pages were used of those that came with the last ones near them.
    pub blocks_refused_unused: u64,
    /// Pages of a block in the end; 0: none could be asked for.
    pub block_size_pages: u32,
    /// Bytes over the link.
    pub link_bytes: u64,
    /// Time that the program waited.
    pub stall_seconds: f64,
    /// Predicted run time; none where the trace has no times.
    pub run_seconds: Option<f64>,
    /// The same beside all memory local.
    pub slowdown: Option<f64>,
}

impl Report {
    /// The program; of a trace that names none, as imported ones, the file.
    pub fn name(&self) -> &str {
        if self.program.is_empty() { &self.trace } else { &self.program }
    }
}

/// Nanoseconds as seconds.
#[allow(clippy::cast_precision_loss, reason = "a time for people")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Puts it together.
pub fn of(args: &SimArgs, traced: &Traced, combinations: &[Combination], figures: &[ReplayStats]) -> Report {
    let work = &traced.work;
    let rows = combinations.iter().zip(figures).map(|(one, figures)| row(one, figures, traced.has_times));
    let mut rows: Vec<_> = rows.collect();
    close_gaps(&mut rows);
    Report {
        trace: args.trace.display().to_string(),
        program: traced.head.program.clone(),
        damage: traced.damage.clone(),
        notes: traced.notes.clone(),
        references: work.touches().len() as u64,
        pages: work.touched_pages(),
        local_pages: combinations.first().map_or(0, |one| one.setup.frames(work)),
        share: args.share.to_string(),
        fault_path: match args.fault_path {
            super::FaultPathArg::Monitor => "monitor",
            super::FaultPathArg::Inline => "inline",
        },
        written_percent: args.written,
        seed: args.seed,
        cpu_seconds: traced.has_times.then(|| seconds(work.cpu_ns())),
        rows,
    }
}

/// Puts each row without prefetching beside those of FIFO and MIN over the same link.
#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn close_gaps(rows: &mut [Row]) {
    let faults = |link: &str, evict: &str| {
        let mut alike = rows.iter().filter(|row| row.prefetch == "none" && row.link == link);
        alike.find(|row| row.evict == evict).map(|row| row.major_faults as f64)
    };
    let gap_closed = |row: &Row| {
        let (fifo, min) = (faults(&row.link, "fifo")?, faults(&row.link, "min")?);
        (row.prefetch == "none" && fifo > min).then(|| (fifo - row.major_faults as f64) / (fifo - min))
    };
    let closed: Vec<_> = rows.iter().map(gap_closed).collect();
    rows.iter_mut().zip(closed).for_each(|(row, closed)| row.gap_closed = closed);
}

fn row(one: &Combination, figures: &ReplayStats, has_times: bool) -> Row {
    Row {
        link: one.setup.link.name.clone(),
        evict: one.evict.clone(),
        prefetch: one.prefetch.clone(),
        resident: figures.resident,
        first_touch_faults: figures.first,
        minor_faults: figures.minor,
        major_faults: figures.major,
        awaited: figures.awaited,
        gap_closed: None,
        prefetched_pages: figures.prefetched,
        prefetched_unmapped_pages: figures.prefetched_unmapped,
        prefetch_hits_observed: figures.prefetch_hits,
        prefetch_hits_inferred: figures.hits_inferred,
        prefetched_used_pages: figures.used,
        accuracy: figures.accuracy(),
        coverage: figures.coverage(),
        timely: figures.timely(),
        lead_mean_ns: figures.lead_mean_ns(),
        late_mean_ns: figures.late_mean_ns(),
        pollution_pages: figures.pollution,
        evicted_dirty_pages: figures.evicted_dirty,
        evicted_clean_pages: figures.evicted_clean,
        direct_reclaims: figures.direct_reclaims,
        blocks_asked: figures.blocks.asked,
        block_pages: figures.blocks.pages,
        block_used_pages: figures.blocks.used,
        block_faults: figures.block_faults,
        block_page_first: figures.blocks.page_first,
        blocks_refused_full: figures.blocks.full,
        blocks_refused_unused: figures.blocks.unused,
        block_size_pages: figures.blocks.size,
        link_bytes: figures.link_bytes,
        stall_seconds: seconds(figures.stalled_ns),
        run_seconds: has_times.then(|| seconds(figures.run_ns())),
        slowdown: figures.slowdown().filter(|_| has_times),
    }
}
