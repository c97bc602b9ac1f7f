//! What the pager's work costs: that of the simulator, or that of a run of the program.
//!
//! Compression takes most of it, and as long as the data has it: 1 µs to more than 10 µs a page. So it is known from a run with the same data alone:
//!
//! ```text
//!   a page that comes or leaves = (processor time of the run − processor time in the trace − first touches) / (pages that came + pages that left)
//! ```
//!
//! One figure for both ways, because one equation is all that a run gives. It has the faults of the run in it, and what its threads did beside. The
//! processor time in the trace is the trace's own, whatever `--reference-ns` says. A run has one time for all of its processes, so it must have one process.
//!
//! Of a program that comes to another page every few hundred nanoseconds a trace's times are far off. A run in which all is local says what the program takes
//! untraced: the times of all threads are corrected to that ([`Clock::Corrected`]), in the plan and here.

use super::{PlanArgs, RUN, Refusal, UNTRACED};
use hinterland_sim::{Costs, FaultPath};
use hinterland_tape::plan::{Clock, PlanCosts, Recording, traced_ns};
use hinterland_tape::{Head, Trace};
use hinterland_units::Foreign;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// Fewer pages that came and left tell nothing: a run's start takes milliseconds, which would be theirs.
const PAGES_MIN: u64 = 10_000;
/// Of the pages that a run touches, this part may leave where all is taken to be local.
const LEAVING_PART: u64 = 100;
/// No page costs more than a second.
const PAGE_NS_MAX: u64 = 1_000_000_000;

/// What the pager's work costs, in nanoseconds of processor time.
#[derive(Clone, Debug, Serialize)]
pub struct PagerCosts {
    /// The figures of a run that they are from; null: they are the simulator's.
    pub run: Option<String>,
    /// The figures of a run in which all was local, to whose processor time those of threads are corrected; null: they are the trace's.
    pub untraced: Option<String>,
    /// A page that comes.
    pub come_ns: u64,
    /// A page that leaves.
    pub leave_ns: u64,
    /// A page that is touched for the first time.
    pub first_touch_ns: u64,
    /// A fault at a key page.
    pub fault_ns: u64,
    /// Far memory keeps no copy of a page that is local, so whatever leaves is stored.
    pub drops_copies: bool,
    /// Processors that the program and the pager's threads share.
    pub processors: u32,
}

/// The figures of a run that are read.
#[derive(Deserialize)]
struct Stats {
    program: String,
    fault_path: String,
    processor_seconds: f64,
    touched_pages: u64,
    first_touch_faults: u64,
    major_faults: u64,
    prefetched_pages: u64,
    evicted_clean_pages: u64,
    evicted_dirty_pages: u64,
    evicted_zero_pages: u64,
    evicted_free_pages: u64,
    compression_ratio: Option<f64>,
    process_count: u64,
    backends: Vec<Backend>,
    processes: Vec<Process>,
}

/// A process: its program is the file that runs, where the run's is the one that was named, which may be a link to it.
#[derive(Deserialize)]
struct Process {
    program: String,
}

#[derive(Deserialize)]
struct Backend {
    url: String,
}

impl PagerCosts {
    /// Those of the run that is named, or the simulator's.
    pub fn of(args: &PlanArgs, trace: &Trace<'_>, recording: &Recording) -> Result<PagerCosts, Refusal> {
        let processors = args.processors.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, |found| u32::try_from(found.get()).unwrap_or(u32::MAX))
        });
        let untraced = args.untraced.as_ref().map(|path| path.display().to_string());
        let usual = PagerCosts { untraced, ..PagerCosts::usual(processors) };
        let Some(path) = &args.run else { return Ok(usual) };
        let stats = Stats::read(RUN, path)?;
        let traced_ns = if args.reference_ns.is_some() { traced_ns(trace).0 } else { recording.cpu_ns() };
        stats.costs(path, trace.head(), traced_ns, usual).map_err(|why| refuse(RUN, path, why))
    }

    /// The simulator's, which has faults served inline.
    fn usual(processors: u32) -> PagerCosts {
        let costs = Costs::of(FaultPath::Inline);
        PagerCosts {
            run: None,
            untraced: None,
            come_ns: costs.map_page_ns,
            leave_ns: costs.move_page_ns + costs.write_back_page_ns,
            first_touch_ns: costs.fault_ns,
            fault_ns: costs.fault_ns,
            drops_copies: false,
            processors,
        }
    }

    /// The costs of a plan over a link.
    pub fn plan_costs(&self, args: &PlanArgs) -> PlanCosts {
        PlanCosts {
            latency_ns: args.link.latency_ns,
            page_ns: args.link.page_ns(),
            fault_ns: self.fault_ns,
            first_touch_ns: self.first_touch_ns,
            come_ns: self.come_ns,
            leave_ns: self.leave_ns,
            processors: self.processors,
            drops_copies: self.drops_copies,
            written_percent: args.written,
        }
    }
}

/// The clock of a plan.
pub fn clock(args: &PlanArgs, trace: &Trace<'_>) -> Result<Clock, Refusal> {
    let Some(path) = &args.untraced else { return Ok(args.reference_ns.into()) };
    let to_ns = Stats::read(UNTRACED, path)?.untraced_ns(trace.head()).map_err(|why| refuse(UNTRACED, path, why))?;
    Ok(Clock::untraced(trace, to_ns))
}

impl Stats {
    fn read(flag: &'static str, path: &Path) -> Result<Stats, Refusal> {
        let bytes = std::fs::read(path).map_err(|source| Refusal::Io { path: path.into(), source })?;
        serde_json::from_slice(&bytes).map_err(|error| refuse(flag, path, no_figures(error)))
    }

    /// What the program takes by itself, where all was local.
    fn untraced_ns(&self, head: &Head) -> Result<u64, String> {
        self.check(head)?;
        let absurd = || no_figures("they are more than those of a run can be");
        let left = self.left().ok_or_else(absurd)?;
        if left > self.touched_pages / LEAVING_PART {
            return Err(format!(
                "{left} pages left in that run; take one in which all is local, with a larger --local or without"
            ));
        }
        let first_ns = self.first_touches_ns(&PagerCosts::usual(1)).ok_or_else(absurd)?;
        match nanoseconds(self.processor_seconds).checked_sub(first_ns) {
            None | Some(0) => Err("first touches leave no processor time for the program".into()),
            Some(ns) => Ok(ns),
        }
    }

    /// `traced_ns`: the processor time in the trace.
    fn costs(&self, path: &Path, head: &Head, traced_ns: u64, usual: PagerCosts) -> Result<PagerCosts, String> {
        self.check(head)?;
        let absurd = || no_figures("they are more than those of a run can be");
        let moved = self.moved().ok_or_else(absurd)?;
        if moved < PAGES_MIN {
            return Err(format!(
                "{moved} pages came and left, and fewer than {PAGES_MIN} tell nothing; with a smaller --local, or a longer run, more do"
            ));
        }
        let first_ns = self.first_touches_ns(&usual).ok_or_else(absurd)?;
        let beside_ns = first_ns.checked_add(traced_ns).ok_or_else(absurd)?;
        let run_ns = nanoseconds(self.processor_seconds);
        let page_ns = run_ns.saturating_sub(beside_ns) / moved;
        if page_ns == 0 {
            let [run, traced, first] = [run_ns, traced_ns, first_ns].map(|ns| Duration::from_nanos(ns).as_secs_f64());
            return Err(format!(
                "the run took {run:.3} s of processor time, of which the program's {traced:.3} s in the trace and {first:.3} s of first touches leave \
                 nothing for the pager; run what was traced, with the same arguments and input on the same machine, to its end"
            ));
        }
        let first_touch_ns = first_ns.checked_div(self.touched_pages).unwrap_or(usual.first_touch_ns);
        if page_ns.max(first_touch_ns) > PAGE_NS_MAX {
            return Err(absurd());
        }
        Ok(PagerCosts {
            run: Some(path.display().to_string()),
            come_ns: page_ns,
            leave_ns: page_ns,
            first_touch_ns,
            drops_copies: self.compression_ratio.is_some(),
            ..usual
        })
    }

    /// Whether the run is one of the traced program alone, and its time that of its work.
    fn check(&self, head: &Head) -> Result<(), String> {
        if !head.has_cpu_times {
            return Err(
                "the trace has no times (imported ones have none), so the program's part of the run's processor time is not known; \
                 record one with `hinterland trace`, or plan without figures of a run"
                    .into(),
            );
        }
        if head.has_intervals {
            return Err(
                "the trace is of intervals of the program, and a run's processor time is of all of it; plan without figures of a run".into(),
            );
        }
        let name = |program: &str| Path::new(program).file_name().map(std::ffi::OsStr::to_owned);
        let mut programs = self.processes.iter().map(|process| &process.program).chain([&self.program]);
        if programs.all(|program| name(program) != name(&head.program)) {
            return Err(format!("a run of {}, and the trace is of {}", Foreign(&self.program), Foreign(&head.program)));
        }
        if self.process_count > 1 {
            return Err(format!(
                "{} processes ran, and processor time is of all of them together; run {} by itself, without a shell or another program that \
                 calls it, or plan without figures of a run if it has children of its own",
                self.process_count,
                Foreign(&head.program)
            ));
        }
        if self.fault_path == "none" {
            return Err("the program was not managed, so no page came or left".into());
        }
        if let Some(backend) = self.backends.iter().find(|backend| backend.url.contains("link=")) {
            let url = &backend.url;
            return Err(format!(
                "{url} has a modelled link, which polls, and that is processor time; take a run without link="
            ));
        }
        Ok(())
    }

    /// Pages that left.
    fn left(&self) -> Option<u64> {
        let left =
            [self.evicted_clean_pages, self.evicted_dirty_pages, self.evicted_zero_pages, self.evicted_free_pages];
        left.into_iter().try_fold(0_u64, u64::checked_add)
    }

    /// Pages that came and left.
    fn moved(&self) -> Option<u64> {
        [self.prefetched_pages, self.major_faults].into_iter().try_fold(self.left()?, u64::checked_add)
    }

    /// Zeros are mapped ahead of most first touches.
    fn first_touches_ns(&self, usual: &PagerCosts) -> Option<u64> {
        let zeros = self.touched_pages.saturating_sub(self.first_touch_faults);
        let zeros_ns = zeros.checked_mul(usual.come_ns)?;
        self.first_touch_faults.checked_mul(usual.fault_ns)?.checked_add(zeros_ns)
    }
}

/// Whether the figures of the runs that are named can be read.
pub fn check(args: &PlanArgs) -> Result<(), Refusal> {
    args.figures().try_for_each(|(flag, path)| Stats::read(flag, path).map(drop))
}

fn refuse(flag: &'static str, path: &Path, why: String) -> Refusal {
    Refusal::Run { flag, path: path.into(), why }
}

fn no_figures(why: impl Display) -> String {
    format!("no figures of a run ({why}); `hinterland run --stats FILE -- PROGRAM` writes them")
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
