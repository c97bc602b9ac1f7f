//! Several traces of a program: how oblivious it is, and the tape that goes with that.

use super::planned::{ORIGIN, of_trace, open, read};
use super::report::Report;
use super::{OrderArg, PlanArgs, Refusal, costs, table};
use crate::error::complain;
use crate::table::table as columns;
use crate::{output, print};
use hinterland_policy::tape::set_pages_max;
use hinterland_tape::Trace;
use hinterland_tape::compare::{CompareError, Comparison, Phase, Verdict, write_sets};
use hinterland_units::{Budget, ByteCount, Foreign, PAGE_BYTES, PageCount};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// Phases that are told one by one.
const PHASES_MAX: usize = 16;

/// What the comparison says.
#[derive(Serialize)]
struct Compared {
    /// The program.
    program: String,
    /// Its runs.
    traces: Vec<RunSummary>,
    /// How oblivious it is: ordered, set or neither.
    verdict: &'static str,
    /// Local memory that the phases are for, in pages.
    local_pages: u64,
    /// Share of the pages that all runs touch in the same phase.
    common_percent: f64,
    /// Share of the pages that all runs touch in the same order.
    in_order_percent: f64,
    /// Share of the pages that lie in phases which agree.
    agreeing_percent: f64,
    /// The phases, in order.
    phases: Vec<PhaseSummary>,
    /// Where the unordered tape was to be written.
    tape: Option<String>,
    /// Its bytes; null: none was written.
    tape_bytes: Option<u64>,
    /// The plan of the first trace, where the program is ordered.
    plan: Option<Report>,
}

/// A run.
#[derive(Serialize)]
struct RunSummary {
    /// Its trace.
    trace: String,
    /// References in it.
    references: u64,
    /// Different pages.
    pages: u64,
}

/// A phase.
#[derive(Serialize)]
struct PhaseSummary {
    /// Pages that a run touches in it and that the phase before does not have, at most.
    pages: u64,
    /// Of these, the share that all runs touch.
    common_percent: f64,
    /// Of these, the share that all runs touch in the same order.
    in_order_percent: f64,
    /// Its pages agree.
    agrees: bool,
    /// Pages of its set, those that the phase before has, too, included; 0: it does not agree.
    set_pages: u64,
    /// Ranges of consecutive pages in it.
    ranges: u64,
}

/// A share in percent.
#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Compares the traces, writes the tape that goes with the verdict, and says what was found.
pub fn run(args: &PlanArgs) -> Result<(), Refusal> {
    let figures = args.figures_flag();
    if let Some(flag) = figures.filter(|_| args.order == Some(OrderArg::Sets)) {
        return Err(Refusal::RunOfSets(flag));
    }
    let bytes = args.traces.iter().map(|path| read(args, path)).collect::<Result<Vec<_>, _>>()?;
    costs::check(args)?;
    let traces =
        args.traces.iter().zip(&bytes).map(|(path, bytes)| open(path, bytes)).collect::<Result<Vec<_>, _>>()?;
    are_of_one_program(args, &traces)?;
    let local_pages = local_pages(args, &traces[0])?;
    let comparison = Comparison::of(&traces, set_pages_max(local_pages)).map_err(|source| refuse(args, source))?;
    let verdict = comparison.verdict();
    let order = args.order.or(match verdict {
        Verdict::Ordered => Some(OrderArg::Ordered),
        Verdict::Set => Some(OrderArg::Sets),
        Verdict::Neither => None,
    });
    if let Some(flag) = figures.filter(|_| order != Some(OrderArg::Ordered)) {
        complain(format_args!(
            "{flag} is not used: without an order that the runs have in common no times are predicted"
        ));
    }
    let is_unwritten = order.is_none() && args.output.is_some();
    let tape_bytes = match order {
        Some(OrderArg::Sets) => write(args, &traces[0], &comparison, local_pages)?,
        _ => None,
    };
    let program = traces[0].head().program.clone();
    let mut traces = traces.into_iter();
    let first = traces.next().filter(|_| order == Some(OrderArg::Ordered));
    let plan = first.map(|trace| of_trace(args, args.traces[0].clone(), trace)).transpose()?;
    let report = Compared { program, tape_bytes, plan, ..report(args, &comparison, local_pages) };
    let written = match args.json {
        true => print::json(&(serde_json::to_string_pretty(&report)? + "\n")),
        false => print::text(&text(&report)),
    };
    written.map_err(Refusal::Output)?;
    if is_unwritten { Err(Refusal::Neither { first: args.traces[0].clone() }) } else { Ok(()) }
}

fn refuse(args: &PlanArgs, source: CompareError) -> Refusal {
    let index = match source {
        CompareError::TooFew => 0,
        CompareError::Trace { index, .. } | CompareError::Empty { index } => index,
    };
    let path = args.traces[index].clone();
    match source {
        CompareError::Trace { source, .. } => Refusal::Damaged { path, source },
        source => Refusal::Compare { path, source },
    }
}

/// Traces of programs with the same file name; imported ones do not say of what they are.
fn are_of_one_program(args: &PlanArgs, traces: &[Trace<'_>]) -> Result<(), Refusal> {
    let name = |trace: &Trace<'_>| PathBuf::from(&trace.head().program).file_name().map(|name| name.to_owned());
    for (path, trace) in args.traces.iter().zip(traces) {
        if name(trace) != name(&traces[0]) {
            return Err(Refusal::Programs {
                first: args.traces[0].clone(),
                of: traces[0].head().program.clone(),
                path: path.clone(),
                other: trace.head().program.clone(),
            });
        }
    }
    Ok(())
}

/// The budget as `run` has it, of the first trace's recorded peak.
fn local_pages(args: &PlanArgs, trace: &Trace<'_>) -> Result<u64, Refusal> {
    let mut pages = HashSet::new();
    for reference in trace.references() {
        let reference = reference.map_err(|source| Refusal::Damaged { path: args.traces[0].clone(), source })?;
        pages.insert(reference.position());
    }
    let budget = args.local.unwrap_or(Budget::PercentOfTouched(100));
    Ok(budget.bytes(ByteCount(pages.len() as u64 * PAGE_BYTES as u64)).0 / PAGE_BYTES as u64)
}

fn write(
    args: &PlanArgs,
    trace: &Trace<'_>,
    comparison: &Comparison,
    local_pages: u64,
) -> Result<Option<u64>, Refusal> {
    let Some(path) = &args.output else { return Ok(None) };
    if comparison.agreeing().next().is_none() {
        return Err(Refusal::NoPhase);
    }
    let unwritten = |source: io::Error| Refusal::Io { path: path.clone(), source };
    output::write(path, unwritten, |out| {
        write_sets(trace, comparison, local_pages, ORIGIN, out).map(Some).map_err(unwritten)
    })
}

/// What the comparison says, without what was written.
fn report(args: &PlanArgs, comparison: &Comparison, local_pages: u64) -> Compared {
    let runs = args.traces.iter().zip(&comparison.runs);
    let phase = |phase: &Phase| PhaseSummary {
        pages: phase.pages,
        common_percent: percent(phase.common, phase.pages),
        in_order_percent: percent(phase.in_order, phase.pages),
        agrees: phase.agrees,
        set_pages: phase.set_pages(),
        ranges: phase.set.len() as u64,
    };
    Compared {
        program: String::new(),
        traces: runs
            .map(|(path, run)| RunSummary {
                trace: path.display().to_string(),
                references: run.references,
                pages: run.pages,
            })
            .collect(),
        verdict: comparison.verdict().name(),
        local_pages,
        common_percent: percent(comparison.common_permille(), 1000),
        in_order_percent: percent(comparison.in_order_permille(), 1000),
        agreeing_percent: percent(comparison.agreeing_permille(), 1000),
        phases: comparison.phases.iter().map(phase).collect(),
        tape: args.output.as_ref().map(|path| path.display().to_string()),
        tape_bytes: None,
        plan: None,
    }
}

/// The comparison for people, and the plan, if there is one.
fn text(report: &Compared) -> String {
    let name = if report.program.is_empty() { &report.traces[0].trace } else { &report.program };
    let means = match report.verdict {
        "ordered" => "the sequences of pages agree",
        "set" => "the pages of phases agree, their order does not",
        _ => "neither the sequences of pages nor the pages of phases agree",
    };
    let mut out = format!("{}: {} runs compared: {}: {means}\n", Foreign(name), report.traces.len(), report.verdict);
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<14} {text}");
    };
    let local = ByteCount(PageCount(report.local_pages).bytes());
    if let (Some(tape), Some(bytes)) = (&report.tape, report.tape_bytes) {
        let agree = report.phases.iter().filter(|phase| phase.agrees).count();
        let phases = if agree == 1 { "the set of a phase".into() } else { format!("the sets of {agree} phases") };
        line("tape", format!("{tape}, {}: {phases}, for {local} of local memory", ByteCount(bytes)));
    }
    line(
        "pages",
        format!(
            "{:.1} % are touched by all runs in the same phase, {:.1} % in the same order",
            report.common_percent, report.in_order_percent
        ),
    );
    line("phases", format!("{:.1} % of the pages lie in phases that agree", report.agreeing_percent));
    let mut rows = columns(&["phase", "pages", "common", "in order", "set", "ranges"], 0..6);
    for (number, phase) in report.phases.iter().enumerate().take(PHASES_MAX) {
        let (set, ranges) = match phase.agrees {
            true => (ByteCount(PageCount(phase.set_pages).bytes()).to_string(), phase.ranges.to_string()),
            false => ("–".into(), "–".into()),
        };
        rows.add_row([
            number.to_string(),
            phase.pages.to_string(),
            format!("{:.1} %", phase.common_percent),
            format!("{:.1} %", phase.in_order_percent),
            set,
            ranges,
        ]);
    }
    let more = match report.phases.len().saturating_sub(PHASES_MAX) {
        0 => String::new(),
        more => format!("{more} more: --json lists all\n"),
    };
    let plan = report.plan.as_ref().map_or(String::new(), |plan| format!("\n{}", table::of(plan)));
    format!("{out}\n{rows}\n{more}{plan}")
}
