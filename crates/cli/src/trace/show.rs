//! Showing: one pass over a trace, and what it says, for people or as JSON.

use super::{Refusal, folder, picture, text};
use crate::error::complain;
use crate::{output, print};
use clap::Args;
use hinterland_tape::study::{AccessMap, Shares, Study};
use hinterland_tape::{Cause, Entry, Gap, Head, Reference, Trace, TraceError};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// `hinterland trace show`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// The trace, or a folder of traces, which are listed
    trace: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Draw which pages were touched when
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Of a damaged trace, show what can be read
    #[arg(long)]
    partial: bool,
}

const EXAMPLES: &str = "\
Examples:
  hinterland trace show app.trace
  hinterland trace show app.trace --json | jq .miss_ratios
  hinterland trace show app.trace --svg app.svg
  hinterland trace show build/

A reference is sequential or a stride when it continues one of the last 16 streams of its thread. Misses are those of LRU \
memory of that size; for memory below a microset there are none, because a trace does not tell (`hinterland trace --microset` takes \
a smaller one). All figures are of the references that were recorded: a page touched again inside its microset is not.

Exit code: 0, or 125 when it refuses: a file that is no trace, a damaged one without --partial, a folder without traces.";

/// Local memory, in percent of all pages, for which misses are told.
pub const LOCAL_PERCENT: [u64; 8] = [1, 5, 10, 20, 25, 50, 75, 100];
/// Windows of the working set, as powers of two.
const WINDOWS: [usize; 5] = [8, 12, 16, 20, 24];
/// Columns and rows of the picture.
const CELLS: (usize, usize) = (240, 160);

/// What a trace says.
#[derive(Serialize)]
pub struct TraceSummary {
    /// Who recorded it.
    pub origin: String,
    /// The program.
    pub program: String,
    /// Tells its arguments apart; hexadecimal.
    pub arguments_digest: String,
    /// Program and arguments; empty: not known.
    pub command: String,
    /// The process; 0: not known.
    pub process: u32,
    /// Its parent when recording began; 0: not known.
    pub parent: u32,
    /// It was forked, and went on in its parent's program.
    pub forked: bool,
    /// By which forks it came from that program: `2.1` is the first child of its second; `?`: not known.
    pub forks: String,
    /// Where it was recorded.
    pub machine: String,
    /// When, in seconds since 1970; 0: not known.
    pub begun_unix_s: u64,
    /// Only the intervals were recorded of which the program said where they begin and end.
    pub has_intervals: bool,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of a microset at most.
    pub microset_pages: u32,
    /// The program closed its trace.
    pub whole: bool,
    /// What could not be read: the error, and the bytes that were skipped.
    pub damage: Vec<Damage>,
    /// References.
    pub references: u64,
    /// Microsets that are whole.
    pub microsets: u64,
    /// Different pages.
    pub pages: u64,
    /// References to pages without content: those that were never touched before, or have lost it.
    pub first_touches: u64,
    /// Pages that a forked child had of its parent, of those that it touches.
    pub inherited_pages: u64,
    /// Pages whose content was given up, counted as often as it was.
    pub discards: DiscardSummary,
    /// References whose page was written to in its microset; none: the trace does not tell.
    pub written: Option<u64>,
    /// References of which the trace tells whether their page was.
    pub written_known: u64,
    /// By region.
    pub regions: Vec<RegionSummary>,
    /// Patterns of all threads.
    pub patterns: PatternSummary,
    /// By thread.
    pub threads: Vec<ThreadSummary>,
    /// Pages in windows of so many references, on average.
    pub working_sets: Vec<WorkingSet>,
    /// Misses by local memory.
    pub miss_ratios: Vec<MissRatio>,
}

/// A part that could not be read.
#[derive(Serialize)]
pub struct Damage {
    /// What is wrong there.
    pub error: String,
    /// From this byte on.
    pub from: u64,
    /// Up to this byte; none: to the end.
    pub to: Option<u64>,
}

/// Pages whose content was given up, by reason.
#[derive(Serialize)]
pub struct DiscardSummary {
    /// The program freed them; what was local kept its frame, unless frames were wanted.
    pub freed: u64,
    /// By madvise(2), or by the allocator.
    pub discarded: u64,
    /// By munmap(2), or because something else was mapped there.
    pub unmapped: u64,
    /// Moved to other pages.
    pub moved: u64,
}

/// A region.
#[derive(Serialize)]
pub struct RegionSummary {
    /// Its name.
    pub name: String,
    /// Different pages of it.
    pub pages: u64,
}

/// Shares of references, from 0 to 1.
#[derive(Serialize)]
pub struct PatternSummary {
    /// Continue a stream by one page.
    pub sequential: f64,
    /// Continue a stream by several.
    pub stride: f64,
    /// Neither.
    pub irregular: f64,
}

/// A thread.
#[derive(Serialize)]
pub struct ThreadSummary {
    /// Its references.
    pub references: u64,
    /// Different pages of it.
    pub pages: u64,
    /// Its processor time at the last of them, in nanoseconds; 0 where the trace has none.
    pub cpu_ns: u64,
    /// Its patterns.
    pub patterns: PatternSummary,
}

/// A working set.
#[derive(Serialize)]
pub struct WorkingSet {
    /// References in the window.
    pub window_references: u64,
    /// Different pages in it, on average.
    pub pages: f64,
}

/// Misses with so much local memory; not known where it is smaller than a microset, inside which nothing is seen twice.
#[derive(Serialize)]
pub struct MissRatio {
    /// Local memory in pages.
    pub local_pages: u64,
    /// The same in percent of all pages.
    pub local_percent: u64,
    /// References that miss, first touches included.
    pub misses: Option<u64>,
    /// Of those, first touches.
    pub first_touches: u64,
    /// Share of all references.
    pub ratio: Option<f64>,
}

/// Shows a trace.
pub fn run(args: &ShowArgs) -> Result<(), Refusal> {
    if args.trace.is_dir() {
        return match &args.svg {
            Some(_) => Err(Refusal::Words(format!("--svg draws one trace, and {} is a folder", args.trace.display()))),
            None => folder::show(&args.trace, args.json),
        };
    }
    if let Some(path) = args.svg.as_ref().filter(|path| output::is_same(path, &args.trace)) {
        return Err(Refusal::Own { flag: "--svg", path: path.clone() });
    }
    let bytes = std::fs::read(&args.trace).map_err(Refusal::io(&args.trace))?;
    let broken = |source| Refusal::Trace { path: args.trace.clone(), source };
    let trace = Trace::open(&bytes).map_err(broken)?;
    let read = Read::all(&trace, |_| {});
    if let Some(damage) = read.damage.first().filter(|_| !args.partial) {
        let readable = read.study.references;
        return Err(Refusal::Partial { path: args.trace.clone(), source: damage.0, readable });
    }
    for (error, _) in &read.damage {
        complain(format_args!("{}: {error}", args.trace.display()));
    }
    if !read.whole && read.damage.is_empty() {
        complain(format_args!("{}: the trace has no end: its program did not close it", args.trace.display()));
    }
    if let Some(path) = &args.svg {
        draw(&trace, &read, path)?;
    }
    let figures = read.figures(trace.head());
    if args.json {
        let json = serde_json::to_string_pretty(&figures).map_err(|error| Refusal::Words(error.to_string()))?;
        print::json(&(json + "\n"))
    } else {
        print::text(&text::of(&figures, &args.trace))
    }
    .map(drop)
    .map_err(Refusal::io("stdout"))
}

/// One pass.
struct Read {
    study: Study,
    touched: BTreeSet<u64>,
    regions: Vec<String>,
    microsets: u64,
    whole: bool,
    damage: Vec<(TraceError, Option<Gap>)>,
}

impl Read {
    /// Reads all that can be read.
    fn all(trace: &Trace<'_>, mut each: impl FnMut(&Reference)) -> Read {
        let mut references = trace.references();
        let (mut study, mut touched, mut damage) = (Study::new(), BTreeSet::new(), Vec::new());
        study.is_forked = trace.head().is_forked;
        loop {
            match references.next_entry() {
                Some(Ok(entry)) => {
                    study.entry(&entry);
                    if let Entry::Touch(reference) = entry {
                        each(&reference);
                        touched.insert(reference.position());
                    }
                }
                Some(Err(error)) => {
                    let gap = references.skip_damage();
                    damage.push((error, gap));
                    if gap.is_none() {
                        break;
                    }
                }
                None => break,
            }
        }
        let regions = references.regions().iter().map(|region| region.name.clone()).collect();
        Read { study, touched, regions, microsets: references.microsets(), whole: references.is_whole(), damage }
    }

    fn figures(&self, head: &Head) -> TraceSummary {
        let (study, pages) = (&self.study, self.touched.len() as u64);
        let first_touches = study.first_touches();
        let discarded = |cause: Cause| study.discarded[cause as usize];
        let region_pages = |number: usize| {
            let number = number as u64;
            self.touched.range(number << 32..(number + 1) << 32).count() as u64
        };
        let misses = |percent: u64| {
            let local_pages = (pages * percent).div_ceil(100);
            let is_seen = local_pages >= head.microset_pages.into();
            let misses = is_seen.then(|| study.distances.misses(local_pages));
            let ratio = misses.map(|misses| share(misses, study.references));
            MissRatio { local_pages, local_percent: percent, misses, first_touches, ratio }
        };
        TraceSummary {
            origin: head.origin.clone(),
            program: head.program.clone(),
            arguments_digest: format!("{:016x}", head.arguments_digest),
            machine: head.machine.clone(),
            begun_unix_s: head.begun_unix_s,
            command: head.command.clone(),
            process: head.process,
            parent: head.parent,
            forked: head.is_forked,
            forks: head.forks.to_string(),
            has_intervals: head.has_intervals,
            page_bytes: head.page_bytes,
            microset_pages: head.microset_pages,
            whole: self.whole,
            damage: self.damage.iter().map(|(error, gap)| damage(error, *gap)).collect(),
            references: study.references,
            microsets: self.microsets,
            pages,
            first_touches,
            inherited_pages: study.inherited,
            discards: DiscardSummary {
                freed: discarded(Cause::Freed),
                discarded: discarded(Cause::Discarded),
                unmapped: discarded(Cause::Unmapped),
                moved: discarded(Cause::Moved),
            },
            written: (study.known > 0).then_some(study.written),
            written_known: study.known,
            regions: (0..)
                .zip(&self.regions)
                .map(|(number, name)| RegionSummary { name: name.clone(), pages: region_pages(number) })
                .collect(),
            patterns: patterns(study.shares()),
            threads: study
                .threads
                .iter()
                .map(|thread| ThreadSummary {
                    references: thread.references,
                    pages: thread.pages,
                    cpu_ns: thread.cpu_ns,
                    patterns: patterns(thread.shares),
                })
                .collect(),
            working_sets: WINDOWS
                .into_iter()
                .filter(|power| *power == WINDOWS[0] || 1 << power <= study.references)
                .map(|power| WorkingSet { window_references: 1 << power, pages: study.distances.working_set(power) })
                .collect(),
            miss_ratios: LOCAL_PERCENT.map(misses).into(),
        }
    }
}

fn damage(error: &TraceError, gap: Option<Gap>) -> Damage {
    let from = match *error {
        TraceError::Truncated { offset, .. }
        | TraceError::Damaged { offset }
        | TraceError::Disordered { offset, .. }
        | TraceError::Malformed { offset, .. } => offset,
        TraceError::Foreign | TraceError::Tape | TraceError::Version { .. } => 0,
    };
    Damage { error: error.to_string(), from: gap.map_or(from, |gap| gap.from), to: gap.map(|gap| gap.to) }
}

fn patterns(shares: Shares) -> PatternSummary {
    let all = shares.sequential + shares.stride + shares.irregular;
    PatternSummary {
        sequential: share(shares.sequential, all),
        stride: share(shares.stride, all),
        irregular: share(shares.irregular, all),
    }
}

/// A share; of nothing, nothing.
#[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

fn draw(trace: &Trace<'_>, read: &Read, path: &Path) -> Result<(), Refusal> {
    let pages = read.touched.iter().copied().collect();
    let mut map = AccessMap::new(pages, read.study.references, CELLS.0, CELLS.1);
    let mut index = 0;
    Read::all(trace, |reference| {
        map.reference(index, reference.position());
        index += 1;
    });
    let refuse = |reason: String| Refusal::Picture { path: path.into(), reason };
    let drawn = picture::draw(&map, read.study.references).map_err(|error| refuse(error.to_string()))?;
    let refuse = |error: io::Error| refuse(error.to_string());
    output::write(path, refuse, |out| out.write_all(drawn.as_bytes()).map_err(refuse))
}
