//! Planning: the trace is read, the sizes are planned, the tape of the wanted one is written.

use super::costs::{self, PagerCosts};
use super::report::{self, Report};
use super::{Eviction, OrderArg, PlanArgs, Refusal, table};
use crate::error::complain;
use crate::{output, print};
use hinterland_sim::reserve;
use hinterland_tape::plan::{self, Case, Plan, PlanCosts, PlanError, Recording, ThreadPlan};
use hinterland_tape::{Head, Trace};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, PageCount};
use std::io;
use std::path::{Path, PathBuf};

/// Sizes that are planned beside the wanted one, in percent of the recorded peak.
const LOCAL_PERCENT: [u8; 6] = [100, 60, 40, 20, 10, 5];

/// What a trace is of whose tape no run follows.
pub const NOT_KNOWN: &str = "of a forked child of which it is not known by which forks it came (another thread than the first forked, more than 32 forks, or an older trace)";

/// The command that plans.
pub const ORIGIN: &str = concat!("hinterland ", env!("CARGO_PKG_VERSION"));

/// The tape for a size, by the eviction that moves fewer bytes, and what it lacks. `recording`: of that trace.
///
/// # Errors
/// The trace is damaged.
pub fn tape_of(
    trace: &Trace<'_>,
    recording: &Recording,
    local_pages: u64,
) -> Result<(Vec<u8>, Vec<String>), PlanError> {
    let case = |eviction| Case { local_pages, reserve_pages: reserve(local_pages), eviction };
    let (min, lru) = (case(plan::Eviction::Min), case(plan::Eviction::Lru));
    let written = |cases: &[Case]| {
        let mut bytes = Vec::new();
        let (plans, _) = plan::write_tape(trace, recording, cases, &PlanCosts::default(), ORIGIN, &mut bytes)?;
        Ok((plans, bytes))
    };
    let (plans, bytes) = written(&[min, lru])?;
    if plans[0].pages_moved() <= plans[1].pages_moved() {
        return Ok((bytes, lacks(trace.head(), recording, &plans[0])));
    }
    written(&[lru]).map(|(plans, bytes)| (bytes, lacks(trace.head(), recording, &plans[0])))
}

/// All that the figures come from.
pub struct Planned {
    /// Where the trace is.
    pub trace: PathBuf,
    /// What it is of.
    pub head: Head,
    /// What was read of it.
    pub recording: Recording,
    /// What times are predicted with.
    pub costs: PagerCosts,
    /// The size that was asked for, with the eviction that was chosen.
    pub wanted: Plan,
    /// The same size with the other eviction.
    pub other: Plan,
    /// Other sizes, the largest first.
    pub sizes: Vec<Plan>,
    /// Bytes of the tape that was written.
    pub tape_bytes: Option<u64>,
}

impl From<Eviction> for plan::Eviction {
    fn from(name: Eviction) -> plan::Eviction {
        match name {
            Eviction::Lru => plan::Eviction::Lru,
            Eviction::Min => plan::Eviction::Min,
        }
    }
}

/// Plans, writes the tape, and says what the plan means.
pub fn run(args: &PlanArgs) -> Result<(), Refusal> {
    if args.order == Some(OrderArg::Sets) {
        return Err(Refusal::OneTrace);
    }
    let path = args.traces.first().cloned().unwrap_or_default();
    let bytes = read(args, &path)?;
    let report = of_trace(args, path.clone(), open(&path, &bytes)?)?;
    let written = match args.json {
        true => print::json(&(serde_json::to_string_pretty(&report)? + "\n")),
        false => print::text(&table::of(&report)),
    };
    written.map(drop).map_err(Refusal::Output)
}

/// The bytes of a trace; neither it nor the run's figures are where the tape is to be written.
pub fn read(args: &PlanArgs, path: &Path) -> Result<Vec<u8>, Refusal> {
    if let Some(output) = &args.output {
        let figures = args.figures().map(|(flag, path)| (path, format!("the figures that {flag} reads")));
        let needed = std::iter::once((path, "the trace that is read".to_owned())).chain(figures);
        let own = needed.into_iter().find(|(read, _)| output::is_same(output, read));
        own.map_or(Ok(()), |(_, what)| Err(Refusal::Own { path: output.clone(), what }))?;
    }
    crate::trace::folder::read(path).map_err(|source| Refusal::Io { path: path.into(), source })
}

/// A trace that tapes can be made of.
pub fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<Trace<'a>, Refusal> {
    let trace = Trace::open(bytes).map_err(|source| Refusal::Trace { path: path.into(), source })?;
    let found = trace.head().page_bytes;
    if found as usize != PAGE_BYTES {
        return Err(Refusal::PageSize { path: path.into(), found });
    }
    Ok(trace)
}

/// Plans from a trace, and writes the tape. `share`: the pages that it is for; `None`: what `--local` says of this trace alone.
pub fn of(args: &PlanArgs, share: Option<u64>, path: PathBuf, trace: Trace<'_>) -> Result<Planned, Refusal> {
    let recording = Recording::read(&trace, costs::clock(args, &trace)?).map_err(refuse(&path))?;
    let costs = PagerCosts::of(args, &trace, &recording)?;
    Planning { args, share, path, trace, recording, costs }.plan()
}

/// The same, which is reported, with what a reader of the figures must know.
pub fn of_trace(args: &PlanArgs, path: PathBuf, trace: Trace<'_>) -> Result<Report, Refusal> {
    let planned = of(args, None, path, trace)?;
    for note in notes(&planned) {
        complain(format_args!("{}: {note}", planned.trace.display()));
    }
    Ok(report::of(args, &planned))
}

pub(super) fn refuse(path: &Path) -> impl Fn(PlanError) -> Refusal {
    move |source| match source {
        PlanError::Trace(source) => Refusal::Damaged { path: path.into(), source },
        source => Refusal::Plan { path: path.into(), source },
    }
}

struct Planning<'a> {
    args: &'a PlanArgs,
    share: Option<u64>,
    path: PathBuf,
    trace: Trace<'a>,
    recording: Recording,
    costs: PagerCosts,
}

impl Planning<'_> {
    fn plan(self) -> Result<Planned, Refusal> {
        let local = self.args.local.unwrap_or(Budget::PercentOfTouched(100));
        let local_pages = self.share.unwrap_or_else(|| self.pages(local));
        let mut sizes: Vec<u64> = LOCAL_PERCENT.map(|percent| self.pages(Budget::PercentOfTouched(percent))).to_vec();
        sizes.dedup();
        sizes.retain(|size| *size != local_pages);
        let eviction = self.args.evict.map_or(plan::Eviction::Min, plan::Eviction::from);
        let other = if eviction == plan::Eviction::Min { plan::Eviction::Lru } else { plan::Eviction::Min };
        let (mut plans, mut tape_bytes) = self.all(local_pages, eviction, other, &sizes)?;
        let is_worse = plans[0].pages_moved() > plans[1].pages_moved();
        if is_worse && self.args.evict.is_none() {
            (plans, tape_bytes) = self.all(local_pages, other, eviction, &sizes)?;
        }
        let mut plans = plans.into_iter();
        let (wanted, other) = plans.next().zip(plans.next()).expect("both evictions are planned");
        let Planning { path: trace, trace: bytes, recording, costs, .. } = self;
        Ok(Planned {
            trace,
            head: bytes.head().clone(),
            recording,
            costs,
            wanted,
            other,
            sizes: plans.collect(),
            tape_bytes,
        })
    }

    /// A budget as `run` has it, of the recorded peak.
    fn pages(&self, budget: Budget) -> u64 {
        budget.bytes(ByteCount(self.recording.pages() * PAGE_BYTES as u64)).0 / PAGE_BYTES as u64
    }

    /// The plans of a size with both evictions, and of other sizes with the first; the tape of the first is written.
    fn all(
        &self,
        local_pages: u64,
        eviction: plan::Eviction,
        other: plan::Eviction,
        sizes: &[u64],
    ) -> Result<(Vec<Plan>, Option<u64>), Refusal> {
        let case = |local_pages, eviction| Case { local_pages, reserve_pages: reserve(local_pages), eviction };
        let wanted = [case(local_pages, eviction), case(local_pages, other)];
        let cases: Vec<Case> = wanted.into_iter().chain(sizes.iter().map(|size| case(*size, eviction))).collect();
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(cases.len());
        let (first, others) = cases.split_at(cases.len().div_ceil(workers));
        std::thread::scope(|scope| {
            let others: Vec<_> = others
                .chunks(cases.len().div_ceil(workers))
                .map(|cases| scope.spawn(|| plan::plan(&self.trace, &self.recording, cases, &self.plan_costs(), None)))
                .collect();
            let (mut plans, bytes) = self.with_tape(first)?;
            for other in others {
                plans.extend(other.join().expect("a planner does not panic").map_err(refuse(&self.path))?);
            }
            Ok((plans, bytes))
        })
    }

    fn with_tape(&self, cases: &[Case]) -> Result<(Vec<Plan>, Option<u64>), Refusal> {
        let Some(path) = &self.args.output else {
            let plans = plan::plan(&self.trace, &self.recording, cases, &self.plan_costs(), None);
            return Ok((plans.map_err(refuse(&self.path))?, None));
        };
        let unwritten = |source: io::Error| Refusal::Io { path: path.clone(), source };
        output::write(path, unwritten, |out| {
            let written = plan::write_tape(&self.trace, &self.recording, cases, &self.plan_costs(), ORIGIN, out);
            let (plans, bytes) = written.map_err(|error| match error {
                PlanError::Sink(source) => unwritten(source),
                other => refuse(&self.path)(other),
            })?;
            Ok((plans, Some(bytes)))
        })
    }

    fn plan_costs(&self) -> PlanCosts {
        self.costs.plan_costs(self.args)
    }
}

/// What a reader of the figures must know.
fn notes(planned: &Planned) -> Vec<String> {
    let recording = &planned.recording;
    let mut notes = lacks(&planned.head, recording, &planned.wanted);
    if !planned.head.forks.is_known() {
        notes.push(format!("no run follows its tape: it is {NOT_KNOWN}"));
    }
    if !recording.has_times() {
        notes.push(
            "the trace has no times, so there are no predictions (--reference-ns sets how long a reference takes)"
                .into(),
        );
    }
    if recording.threads() > 1 {
        let why = "pages of microsets in which several threads ran are on the tapes of all of them (a smaller --microset tells them apart)";
        notes.push(why.into());
    }
    if is_all_local(recording, &planned.wanted) {
        let peak = ByteCount(PageCount(recording.pages()).bytes());
        notes.push(format!("all that it touches ({peak}) is local: the tape has nothing to fetch"));
    }
    notes
}

fn is_all_local(recording: &Recording, plan: &Plan) -> bool {
    plan.case.local_pages >= recording.pages()
}

/// What the tape of a plan lacks because of its trace.
fn lacks(head: &Head, recording: &Recording, plan: &Plan) -> Vec<String> {
    let (mut notes, microset) = (Vec::new(), u64::from(head.microset_pages));
    if !recording.is_whole() {
        notes.push("the trace has no end: its program did not close it, and the tape ends where it ends".into());
    }
    let is_coarse = |thread: &ThreadPlan| thread.left > 0 && thread.share_pages - thread.ahead_pages <= microset;
    if !is_all_local(recording, plan) && plan.threads.iter().any(is_coarse) {
        notes.push(format!(
            "its microsets have up to {microset} pages, and a thread's share of local memory no more: pages that are needed again inside one \
             will be missing; trace with a smaller --microset"
        ));
    }
    notes
}
