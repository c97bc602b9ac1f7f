//! What the pager's work costs: that of the simulator, or that of a run of the program.
//!
//! Compression takes most of it, and as long as the data has it: 1 µs to more than 10 µs a page. So it is known from a run with the same data alone:
//!
//! ```text
//!   a page that comes or leaves = (processor time of the run − processor time in the trace − first touches) / (pages that came + pages that left)
//! ```
//!
//! One figure for both ways, because one equation is all that a run gives. It has the faults of the run in it, and what its threads did beside.

use super::{PlanArgs, Refusal};
use hinterland_sim::{Costs, FaultPath};
use hinterland_tape::Head;
use hinterland_tape::plan::{Pace, Recording};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Fewer pages that came and left tell nothing.
const PAGES_MIN: u64 = 1000;

/// What the pager's work costs, in nanoseconds of processor time.
#[derive(Clone, Debug, Serialize)]
pub struct PagerCosts {
    /// The figures of a run that they are from; null: they are the simulator's.
    pub run: Option<String>,
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
    pub fn of(args: &PlanArgs, head: &Head, recording: &Recording) -> Result<PagerCosts, Refusal> {
        let processors = args.processors.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, |found| u32::try_from(found.get()).unwrap_or(u32::MAX))
        });
        let usual = PagerCosts::usual(processors);
        let Some(path) = &args.run else { return Ok(usual) };
        let refuse = |why| Refusal::Run { path: path.clone(), why };
        let bytes = std::fs::read(path).map_err(|source| Refusal::Io { path: path.clone(), source })?;
        let stats: Stats = serde_json::from_slice(&bytes).map_err(|error| {
            refuse(format!("no figures of a run ({error}); `hinterland run --stats FILE -- PROGRAM` writes them"))
        })?;
        stats.costs(path, head, recording, usual).map_err(refuse)
    }

    /// The simulator's, which has faults served inline.
    fn usual(processors: u32) -> PagerCosts {
        let costs = Costs::of(FaultPath::Inline);
        PagerCosts {
            run: None,
            come_ns: costs.map_page_ns,
            leave_ns: costs.move_page_ns + costs.write_back_page_ns,
            first_touch_ns: costs.fault_ns,
            fault_ns: costs.fault_ns,
            drops_copies: false,
            processors,
        }
    }

    /// The pace of a plan over a link.
    pub fn pace(&self, args: &PlanArgs) -> Pace {
        Pace {
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

impl Stats {
    fn costs(&self, path: &Path, head: &Head, recording: &Recording, usual: PagerCosts) -> Result<PagerCosts, String> {
        let name = |program: &str| Path::new(program).file_name().map(std::ffi::OsStr::to_owned);
        let mut programs = self.processes.iter().map(|process| &process.program).chain([&self.program]);
        if programs.all(|program| name(program) != name(&head.program)) {
            return Err(format!("a run of {}, and the trace is of {}", self.program, head.program));
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
        let left =
            self.evicted_clean_pages + self.evicted_dirty_pages + self.evicted_zero_pages + self.evicted_free_pages;
        let moved = left + self.prefetched_pages + self.major_faults;
        if moved < PAGES_MIN {
            return Err(format!("{moved} pages came and left, which tells nothing; with a smaller --local more do"));
        }
        // Zeros are mapped ahead of most first touches.
        let zeros = self.touched_pages.saturating_sub(self.first_touch_faults);
        let map_ns = Costs::of(FaultPath::Inline).map_page_ns;
        let first_ns = self.first_touch_faults * usual.fault_ns + zeros * map_ns;
        let beside_ns = first_ns + recording.cpu_ns();
        let page_ns = nanoseconds(self.processor_seconds).saturating_sub(beside_ns) / moved;
        Ok(PagerCosts {
            run: Some(path.display().to_string()),
            come_ns: page_ns,
            leave_ns: page_ns,
            first_touch_ns: first_ns.checked_div(self.touched_pages).unwrap_or(usual.first_touch_ns),
            drops_copies: self.compression_ratio.is_some(),
            ..usual
        })
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
