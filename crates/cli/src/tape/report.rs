//! The planned sizes, as JSON.

use super::PlanArgs;
use super::costs::PagerCosts;
use super::planned::Planned;
use hinterland_tape::plan::{Plan, ThreadPlan};
use hinterland_units::PageCount;
use serde::Serialize;

/// Longest waits that are told.
const WORST: usize = 3;

/// The plan for a trace.
#[derive(Serialize)]
pub struct Report {
    /// The trace.
    pub trace: String,
    /// Its program.
    pub program: String,
    /// By which forks the process came from it: `2.1` is the first child of its second; empty: by none.
    pub forks: String,
    /// References in it.
    pub references: u64,
    /// Different pages: the recorded peak.
    pub pages: u64,
    /// Processor time in it; none where it has no times.
    pub cpu_seconds: Option<f64>,
    /// Where the tape was written.
    pub tape: Option<String>,
    /// Its size.
    pub tape_bytes: Option<u64>,
    /// The link that times are predicted for.
    pub link: String,
    /// What the pager's work is taken to cost.
    pub costs: PagerCosts,
    /// Of 100 pages that come back, so many are written to before they leave again.
    pub written_percent: u8,
    /// The size that was asked for.
    pub wanted: Size,
    /// The same with the other eviction.
    pub other_eviction: Size,
    /// Other sizes, the largest first.
    pub sizes: Vec<Size>,
    /// By thread, of the size that was asked for.
    pub threads: Vec<Thread>,
    /// The longest waits there.
    pub waits: Vec<Wait>,
}

/// A size.
#[derive(Serialize)]
pub struct Size {
    /// Local memory in pages.
    pub local_pages: u64,
    /// The same in percent of the recorded peak.
    pub local_percent: f64,
    /// What evicts.
    pub eviction: &'static str,
    /// Pages to fetch, on the tapes of all threads.
    pub fetched_pages: u64,
    /// Bytes that the link carries to the program.
    pub bytes_in: u64,
    /// Bytes that it carries away.
    pub bytes_out: u64,
    /// How often the program waits for pages.
    pub waits: u64,
    /// For how long; like all times, none where the trace has none.
    pub stall_seconds: Option<f64>,
    /// Of that, what it waits for processors: where no link is slow.
    pub crowded_seconds: Option<f64>,
    /// Time of faults on first touches and key pages.
    pub fault_seconds: f64,
    /// Predicted run time.
    pub run_seconds: Option<f64>,
    /// The same beside the processor time in the trace.
    pub slowdown: Option<f64>,
    /// The slowest link speed, in Mb/s, with which the program waits for less than 1 % of its processor time longer than without a link; none: 400 Gb/s is too slow.
    pub hidden_from_mbit: Option<u64>,
}

/// A thread.
#[derive(Serialize)]
pub struct Thread {
    /// Its references.
    pub references: u64,
    /// Different pages.
    pub pages: u64,
    /// Its share of local memory in pages, those fetched ahead included.
    pub share_pages: u64,
    /// Of these, for pages fetched ahead.
    pub ahead_pages: u64,
    /// Pages to fetch.
    pub fetched_pages: u64,
    /// First touches.
    pub first_touches: u64,
    /// Pages that leave.
    pub left_pages: u64,
    /// Processor time.
    pub cpu_seconds: Option<f64>,
    /// Time that it waits for pages.
    pub stall_seconds: Option<f64>,
}

/// A place where the program waits.
#[derive(Serialize)]
pub struct Wait {
    /// Which thread.
    pub thread: usize,
    /// Where in its tape.
    pub position: u32,
    /// After how much of its processor time.
    pub at_seconds: f64,
    /// For how long, in one batch of pages.
    pub seconds: f64,
}

/// Nanoseconds as seconds.
#[allow(clippy::cast_precision_loss, reason = "a time for people")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Puts it together.
pub fn of(args: &PlanArgs, planned: &Planned) -> Report {
    let Planned { recording, wanted, .. } = planned;
    let has_times = recording.has_times();
    let mut waits: Vec<Wait> =
        wanted.threads.iter().enumerate().flat_map(|(index, thread)| waits(index, thread)).collect();
    waits.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    waits.truncate(if has_times { WORST } else { 0 });
    Report {
        trace: planned.trace.display().to_string(),
        program: planned.head.program.clone(),
        forks: planned.head.forks.to_string(),
        references: recording.references(),
        pages: recording.pages(),
        cpu_seconds: has_times.then(|| seconds(recording.cpu_ns())),
        tape: planned.tape_bytes.and(args.output.as_ref()).map(|path| path.display().to_string()),
        tape_bytes: planned.tape_bytes,
        link: args.link.name.clone(),
        costs: planned.costs.clone(),
        written_percent: args.written,
        wanted: size(planned, wanted),
        other_eviction: size(planned, &planned.other),
        sizes: planned.sizes.iter().map(|plan| size(planned, plan)).collect(),
        threads: wanted.threads.iter().map(|plan| thread(plan, has_times)).collect(),
        waits,
    }
}

fn size(planned: &Planned, plan: &Plan) -> Size {
    let has_times = planned.recording.has_times();
    let sum = |of: fn(&ThreadPlan) -> u64| plan.threads.iter().map(of).sum::<u64>();
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let (percent, slowdown) = (
        100.0 * plan.case.local_pages as f64 / planned.recording.pages() as f64,
        plan.run_ns() as f64 / planned.recording.cpu_ns().max(1) as f64,
    );
    Size {
        local_pages: plan.case.local_pages,
        local_percent: percent,
        eviction: plan.case.eviction.name(),
        fetched_pages: sum(|thread| thread.fetched),
        bytes_in: PageCount(plan.pages_in).bytes(),
        bytes_out: PageCount(plan.pages_out).bytes(),
        waits: sum(|thread| thread.waits),
        stall_seconds: has_times.then(|| seconds(plan.stalled_ns())),
        crowded_seconds: has_times.then(|| seconds(plan.crowded_ns())),
        fault_seconds: seconds(sum(|thread| thread.fault_ns)),
        run_seconds: has_times.then(|| seconds(plan.run_ns())),
        slowdown: (has_times && planned.recording.cpu_ns() > 0).then_some(slowdown),
        hidden_from_mbit: plan.hidden_from_mbit,
    }
}

fn thread(plan: &ThreadPlan, has_times: bool) -> Thread {
    Thread {
        references: plan.references,
        pages: plan.pages,
        share_pages: plan.share_pages,
        ahead_pages: plan.ahead_pages,
        fetched_pages: plan.fetched,
        first_touches: plan.first_touches,
        left_pages: plan.left,
        cpu_seconds: has_times.then(|| seconds(plan.cpu_ns)),
        stall_seconds: has_times.then(|| seconds(plan.stalled_ns)),
    }
}

fn waits(thread: usize, plan: &ThreadPlan) -> impl Iterator<Item = Wait> {
    plan.worst.iter().map(move |stall| Wait {
        thread,
        position: stall.position,
        at_seconds: seconds(stall.cpu_ns),
        seconds: seconds(stall.ns),
    })
}
