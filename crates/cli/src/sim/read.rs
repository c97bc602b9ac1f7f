//! Reading a trace into a workload.

use super::{Refusal, SimArgs};
use crate::error::complain;
use hinterland_sim::{Collector, Workload, WorkloadError, reserve};
use hinterland_tape::plan::{self, Case, Clock, PlanCosts, Recording};
use hinterland_tape::study::{FeatureStudy, Features, RegionFeatures, Study};
use hinterland_tape::{Entry, Head, Trace, TraceError};
use hinterland_units::PAGE_BYTES;
use std::path::Path;
use std::time::Duration;

/// Said of a trace whose clock its own faults decide.
const UNCERTAIN_TIMES: &str = "its references follow each other so fast that tracing them decides the processor times, and so the slowdowns: measure what the \
     program takes untraced (`time`: user and sys), and say it with --cpu-seconds";

/// A trace that was read.
pub struct Traced {
    /// What it is of.
    pub head: Head,
    /// What is replayed.
    pub work: Workload,
    /// What could not be read, in words.
    pub damage: Vec<String>,
    /// That, and what else a reader of the figures must know.
    pub notes: Vec<String>,
    /// Its program closed it.
    pub whole: bool,
    /// There are times, from the trace or from the user.
    pub has_times: bool,
    /// A tape, planned from it or given, if one is to be followed.
    pub tape: Option<Vec<u8>>,
}

/// Reads the trace; says what is missing in it. `with_tape`: plans a tape from it, or reads that which is given.
pub fn trace(args: &SimArgs, with_tape: bool) -> Result<Traced, Refusal> {
    let path = &args.trace;
    let bytes = crate::trace::folder::read(path).map_err(|source| Refusal::Io { path: path.clone(), source })?;
    let trace = Trace::open(&bytes).map_err(|source| Refusal::Trace { path: path.clone(), source })?;
    let head = trace.head().clone();
    if head.page_bytes as usize != PAGE_BYTES {
        return Err(Refusal::PageSize { path: path.clone(), found: head.page_bytes });
    }
    let (work, damage, whole) = collect(args, &trace)?;
    let has_times = head.has_cpu_times || args.reference_ns.is_some() || args.cpu_seconds.is_some();
    let tape = match &args.tape {
        Some(path) => Some(std::fs::read(path).map_err(|source| Refusal::TapeFile { path: path.clone(), source })?),
        None if with_tape => Some(planned(args, &trace, &work)?),
        None => None,
    };
    let mut traced = Traced { head, work, damage, notes: Vec::new(), whole, has_times, tape };
    traced.notes = notes(args, &traced);
    for note in &traced.notes {
        complain(format_args!("{}: {note}", path.display()));
    }
    Ok(traced)
}

/// A whole trace, as something else than the simulator's own command reads it.
pub struct Whole {
    /// Its program.
    pub program: String,
    /// Pages of a microset at most.
    pub microset_pages: u32,
    /// What is replayed.
    pub work: Workload,
    /// What its pages do.
    pub features: Features,
    /// What those of each region of 64 MiB do, the largest first.
    pub region_features: Vec<RegionFeatures>,
    /// The names of the trace's regions.
    pub region_names: Vec<String>,
    /// The same by stack distances, and which pages were written to.
    pub study: Study,
}

/// Reads a trace that has all that a prediction needs; says what it cannot tell. `cpu`: the processor time that the program takes untraced.
///
/// # Errors
/// What is wrong or missing, with the file and the remedy.
pub fn whole(path: &Path, cpu: Option<Duration>) -> Result<Whole, String> {
    let refuse = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let bytes = crate::trace::folder::read(path).map_err(|error| refuse(&error))?;
    let trace = Trace::open(&bytes).map_err(|error| refuse(&error))?;
    let head = trace.head();
    if head.page_bytes as usize != PAGE_BYTES {
        return Err(refuse(&format_args!(
            "its pages have {} bytes; only those of {PAGE_BYTES} can be simulated",
            head.page_bytes
        )));
    }
    if !head.has_cpu_times && cpu.is_none() {
        return Err(refuse(
            &"the trace has no times, so nothing can be predicted: record one with `hinterland trace`, or say --cpu-seconds",
        ));
    }
    let (mut collector, mut features) = (Collector::new(None).forked(head.is_forked), FeatureStudy::default());
    let mut study = Study::new();
    study.is_forked = head.is_forked;
    let mut references = trace.references();
    while let Some(entry) = references.next_entry() {
        let again = "; nothing is predicted from a damaged trace: record it again";
        let entry = entry.map_err(|error| refuse(&format_args!("{error}{again}")))?;
        match &entry {
            Entry::Touch(reference) => features.reference(reference, study.reference(reference)),
            Entry::MicrosetEnd { written, .. } => {
                features.end_microset(written);
                study.entry(&entry);
            }
            Entry::Discard(_) => study.entry(&entry),
        }
        collector.entry(&entry).map_err(|error| refuse(&error))?;
    }
    let work = timed(collector.finish(), cpu).map_err(|error| refuse(&error))?;
    for note in notes_of(&work, references.is_whole(), cpu.is_none()) {
        complain(format_args!("{}: {note}", path.display()));
    }
    let (program, microset_pages) = (head.program.clone(), head.microset_pages);
    let region_names = references.regions().iter().map(|region| region.name.clone()).collect();
    let (features, region_features) = features.finish();
    Ok(Whole { program, microset_pages, work, features, region_features, region_names, study })
}

/// The workload with the processor time that its program takes untraced, where that is known.
fn timed(work: Result<Workload, WorkloadError>, cpu: Option<Duration>) -> Result<Workload, WorkloadError> {
    match cpu {
        Some(cpu) => work?.taking(nanoseconds(cpu)),
        None => work,
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What the trace does not tell, whatever is predicted from it; `by_its_times`: its processor times are those that it has.
fn notes_of(work: &Workload, is_closed: bool, by_its_times: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !is_closed {
        notes.push("the trace has no end: its program did not close it".into());
    }
    if work.touches().iter().any(|touch| touch.thread > 0) {
        let why =
            "while traced, its threads ran in turns on one processor; the prefetcher sees their requests in that order";
        notes.push(why.into());
    }
    if by_its_times && work.has_uncertain_times() {
        notes.push(UNCERTAIN_TIMES.into());
    }
    notes
}

fn collect(args: &SimArgs, trace: &Trace<'_>) -> Result<(Workload, Vec<String>, bool), Refusal> {
    let workload = |source| Refusal::Workload { path: args.trace.clone(), source };
    let fixed_ns = args.reference_ns.or((!trace.head().has_cpu_times).then_some(0));
    let mut collector = Collector::new(fixed_ns).forked(trace.head().is_forked);
    let (mut readable, mut damage): (usize, Vec<TraceError>) = (0, Vec::new());
    let mut references = trace.references();
    while let Some(next) = references.next_entry() {
        match next {
            Ok(entry) => {
                collector.entry(&entry).map_err(workload)?;
                readable += usize::from(matches!(entry, Entry::Touch(_)));
            }
            Err(error) => {
                damage.push(error);
                if references.skip_damage().is_none() {
                    break;
                }
            }
        }
    }
    if let Some(source) = damage.first().filter(|_| !args.partial) {
        return Err(Refusal::Partial { path: args.trace.clone(), source: *source, readable });
    }
    let damage = damage.iter().map(TraceError::to_string).collect();
    let work = timed(collector.finish(), args.cpu_seconds).map_err(workload)?;
    Ok((work, damage, references.is_whole()))
}

/// A tape for the simulated size; it evicts what is needed last.
fn planned(args: &SimArgs, trace: &Trace<'_>, work: &Workload) -> Result<Vec<u8>, Refusal> {
    let refuse = |source| Refusal::Plan { path: args.trace.clone(), source };
    let local_pages = args.link.first().map_or(0, |link| args.setup(link).frames(work));
    let clock = match args.cpu_seconds {
        Some(cpu) => Clock::untraced(trace, nanoseconds(cpu)),
        None => args.reference_ns.into(),
    };
    let recording = Recording::read(trace, clock).map_err(refuse)?;
    let case = Case { local_pages, reserve_pages: reserve(local_pages), eviction: plan::Eviction::Min };
    let mut bytes = Vec::new();
    plan::write_tape(trace, &recording, &[case], &PlanCosts::default(), "hinterland sim", &mut bytes)
        .map_err(refuse)?;
    Ok(bytes)
}

/// What a reader of the figures must know.
fn notes(args: &SimArgs, traced: &Traced) -> Vec<String> {
    let mut notes = traced.damage.clone();
    let by_its_times = traced.has_times && args.reference_ns.is_none() && args.cpu_seconds.is_none();
    notes.extend(notes_of(&traced.work, traced.whole || !traced.damage.is_empty(), by_its_times));
    if !traced.has_times {
        notes.push(
            "the trace has no times: references take no time of their own (--reference-ns sets how long one takes)"
                .into(),
        );
    }
    let frames = args.link.first().map_or(0, |link| args.setup(link).frames(&traced.work));
    if frames >= traced.work.touched_pages() {
        let touched = hinterland_units::ByteCount(traced.work.touched_bytes());
        notes.push(format!("all that it touches ({touched}) is local: nothing is paged"));
    }
    if frames <= traced.head.microset_pages.into() {
        let microset = traced.head.microset_pages;
        notes.push(format!(
            "its microsets have up to {microset} pages, local memory {frames}: what is touched again inside one is not in \
             the trace, so there are too few faults; trace with a smaller --microset"
        ));
    }
    notes
}
