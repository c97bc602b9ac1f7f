//! Showing a tape: what it was planned for, and what it has for each thread.

use super::{Refusal, folder};
use crate::print;
use clap::Args;
use hinterland_tape::tape::{PageRange, Tape, ThreadTotals};
use hinterland_units::{ByteCount, Foreign, PageCount};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// `hinterland tape show`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// The tape, or a folder of tapes
    tape: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hinterland tape show fft.tape
  hinterland tape show fft.tape --json | jq '.threads[].fetched_pages'
  hinterland tape show build-tapes/

The whole tape is read and checked; one that is cut off or damaged is refused. In a folder such a tape is listed as damaged.

Exit code: 0, or 125 when it refuses: a file that is no tape, a damaged one, a folder without tapes.";

/// Threads that are told one by one.
const THREADS_MAX: usize = 16;
/// Phases that are told one by one.
const PHASES_MAX: usize = 16;

/// What a tape says.
#[derive(Serialize)]
struct TapeSummary {
    /// Who planned it.
    origin: String,
    /// The program of the trace.
    program: String,
    /// Its build-id, hexadecimal; empty: none is known, and the name of its file counts.
    build_id: String,
    /// Tells its arguments apart; hexadecimal.
    arguments_digest: String,
    /// Program and arguments; cut where they are long.
    command: String,
    /// The traced process; 0: not known.
    process: u32,
    /// By which forks it came from that program: `2.1` is the first child of its second; empty: by none.
    forks: String,
    /// When the trace was begun, in seconds since 1970; 0: not known.
    begun_unix_s: u64,
    /// It is of intervals of which the program says where they begin and end.
    has_intervals: bool,
    /// Bytes of a page.
    page_bytes: u32,
    /// Pages of a microset of the trace at most.
    microset_pages: u32,
    /// Local memory that it was planned for, in pages.
    local_pages: u64,
    /// Different pages in the trace.
    peak_pages: u64,
    /// What evicts in the plan; empty: the tape is unordered.
    eviction: String,
    /// What it has: ordered: pages in their order, sets: the sets of phases.
    order: &'static str,
    /// Bytes of the tape.
    tape_bytes: u64,
    /// Names of the regions.
    regions: Vec<String>,
    /// By thread; of an unordered tape, none.
    threads: Vec<ThreadSummary>,
    /// Of an unordered tape, by phase.
    phases: Vec<PhaseSummary>,
}

/// A phase.
#[derive(Serialize)]
struct PhaseSummary {
    /// Pages of its set.
    pages: u64,
    /// Ranges of consecutive pages.
    ranges: u64,
    /// The first of them: its region, and its page there.
    first: Option<(u32, u32)>,
}

impl PhaseSummary {
    fn of(set: &[PageRange]) -> PhaseSummary {
        PhaseSummary {
            pages: set.iter().map(|range| u64::from(range.pages)).sum(),
            ranges: set.len() as u64,
            first: set.first().map(|range| (range.region, range.first_page)),
        }
    }
}

/// A thread.
#[derive(Serialize)]
struct ThreadSummary {
    /// Its references: positions are below this number.
    references: u64,
    /// Different pages.
    pages: u64,
    /// Its share of local memory in pages.
    share_pages: u64,
    /// Of these, for pages fetched ahead.
    ahead_pages: u64,
    /// Pages to fetch.
    fetched_pages: u64,
    /// First touches.
    first_touches: u64,
    /// Pages that leave.
    left_pages: u64,
    /// Of these, those that the thread does not need again.
    left_for_good_pages: u64,
}

/// Shows a tape.
pub fn run(args: &ShowArgs) -> Result<(), Refusal> {
    if args.tape.is_dir() {
        return folder::show(&args.tape, args.json);
    }
    let bytes = std::fs::read(&args.tape).map_err(|source| Refusal::Io { path: args.tape.clone(), source })?;
    let tape = Tape::open(&bytes).map_err(|source| Refusal::Tape { path: args.tape.clone(), source })?;
    let figures = figures(&tape, bytes.len() as u64);
    let written = match args.json {
        true => print::json(&(serde_json::to_string_pretty(&figures)? + "\n")),
        false => print::text(&text(&figures, &args.tape)),
    };
    written.map(drop).map_err(Refusal::Output)
}

fn figures(tape: &Tape<'_>, tape_bytes: u64) -> TapeSummary {
    let thread = |(number, totals): (u32, &ThreadTotals)| ThreadSummary {
        references: totals.references,
        pages: totals.pages,
        share_pages: totals.share_pages,
        ahead_pages: totals.ahead_pages,
        fetched_pages: totals.fetched,
        first_touches: totals.first_touches,
        left_pages: totals.left,
        left_for_good_pages: tape.departures(number).filter(|departure| departure.next_use.is_none()).count() as u64,
    };
    let head = tape.head();
    TapeSummary {
        origin: head.origin.clone(),
        program: head.program.clone(),
        build_id: head.build_id.clone(),
        arguments_digest: format!("{:016x}", head.arguments_digest),
        command: head.command.clone(),
        process: head.process,
        forks: head.forks.to_string(),
        begun_unix_s: head.begun_unix_s,
        has_intervals: head.has_intervals,
        page_bytes: head.page_bytes,
        microset_pages: head.microset_pages,
        local_pages: head.local_pages,
        peak_pages: head.peak_pages,
        eviction: head.eviction.clone(),
        order: head.order.name(),
        tape_bytes,
        regions: tape.regions().iter().map(|region| region.name.clone()).collect(),
        threads: (0..).zip(tape.threads()).map(thread).collect(),
        phases: tape.phases().iter().map(|set| PhaseSummary::of(set)).collect(),
    }
}

fn text(figures: &TapeSummary, path: &Path) -> String {
    let of = if figures.program.is_empty() { String::new() } else { format!(" of {}", Foreign(&figures.program)) };
    let mut out = format!("{}: tape{of} ({})\n", path.display(), Foreign(&figures.origin));
    let bytes = |pages: u64| ByteCount(PageCount(pages).bytes());
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<14} {text}");
    };
    let how = if figures.eviction.is_empty() { figures.order } else { &figures.eviction };
    let (local, peak) = (bytes(figures.local_pages), bytes(figures.peak_pages));
    line("planned for", format!("{local} local of {peak} ({})", Foreign(how)));
    if !figures.forks.is_empty() {
        line("fork", format!("{} of the program, followed by that child", figures.forks));
    }
    if figures.has_intervals {
        line("intervals", "followed between hinterland_begin() and hinterland_end() only".into());
    }
    line("size", ByteCount(figures.tape_bytes).to_string());
    for (number, thread) in figures.threads.iter().enumerate().take(THREADS_MAX) {
        let ThreadSummary { references, pages, fetched_pages, first_touches, left_pages, left_for_good_pages, .. } =
            thread;
        let share =
            format!("{} for {pages} pages, {} of it ahead", bytes(thread.share_pages), bytes(thread.ahead_pages));
        line(
            &format!("thread {number}"),
            format!(
                "{references} references: {fetched_pages} pages to fetch, {first_touches} first touches, {left_pages} leave, \
                 {left_for_good_pages} of them for good; {share}"
            ),
        );
    }
    if figures.threads.len() > THREADS_MAX {
        line("more threads", format!("{}: --json lists all", figures.threads.len() - THREADS_MAX));
    }
    for (number, phase) in figures.phases.iter().enumerate().take(PHASES_MAX) {
        let from =
            phase.first.map_or(String::new(), |(region, page)| format!(", from page {page} of region {region} on"));
        let ranges = if phase.ranges == 1 { "range" } else { "ranges" };
        line(
            &format!("phase {number}"),
            format!("{} pages ({}) in {} {ranges}{from}", phase.pages, bytes(phase.pages), phase.ranges),
        );
    }
    if figures.phases.len() > PHASES_MAX {
        line("more phases", format!("{}: --json lists all", figures.phases.len() - PHASES_MAX));
    }
    out
}
