//! What follows from the figures. Its JSON is what `explain --json` writes.

use super::advice::{self, Advice};
use super::stats::Stats;
use crate::report::{RunFeatures, waiting};
use crate::statistics::{Activity, HintSite};
use hinterland_units::PAGE_BYTES;
use serde::Serialize;

/// A pattern has a row to itself from this share of its requests on.
const MOST: f64 = 0.6;

/// What is reported about a run.
#[derive(Serialize)]
pub struct Findings {
    /// The program.
    pub program: String,
    /// `monitor` or `inline`.
    pub fault_path: String,
    /// As `--prefetch` names it.
    pub prefetcher: String,
    /// Why that one.
    pub why: String,
    /// The bound on its windows, when somebody set it.
    pub read_ahead_pages: Option<u32>,
    /// Processes.
    pub processes: u64,
    /// What it saw.
    pub saw: Observed,
    /// What it did.
    pub did: PrefetchOutcome,
    /// What the program's pages did.
    pub features: RunFeatures,
    /// What the run lacked for its slowdown, where other runs needed the machine's memory, too.
    pub shortage: Option<Lacked>,
    /// The paths to far memory, where there are several; of a pool, each of its memory nodes.
    pub paths: Vec<PathFindings>,
    /// Far memory on NUMA nodes.
    pub numa: Vec<NumaFindings>,
    /// What blocks around pages that were waited for did, where some were asked for.
    pub blocks: Option<BlockOutcome>,
    /// What was written back of pages of which a part had changed, where memory nodes take parts.
    pub patches: Option<PatchOutcome>,
    /// What tapes did, where one was followed.
    pub tape: Option<TapeOutcome>,
    /// What hints did, where the program gave some.
    pub hints: Option<HintOutcome>,
    /// The busiest threads.
    pub threads: Vec<ActivityFindings>,
    /// The busiest regions of 64 MiB.
    pub regions: Vec<ActivityFindings>,
    /// What the user might change, the most useful first.
    pub advice: Vec<Advice>,
}

/// Requests, and their patterns as shares of those of the busiest threads.
#[derive(Serialize)]
pub struct Observed {
    /// For content that was not mapped.
    pub requests: u64,
    /// They waited for far memory: for the page alone, or for its block.
    pub major: u64,
    /// The pages were in the swap cache.
    pub minor: u64,
    /// The pages had been prefetched, and waited unmapped.
    pub prefetch_hits: u64,
    /// Beside them: faults on pages without content.
    pub first_touches: u64,
    /// Pages that the policy chose to be evicted at random, because nearly all of the program's pages fit into local memory.
    pub random_victims: u64,
    /// Time that threads waited, summed over them.
    pub stall_seconds: f64,
    /// Of the run; above 1 when several threads waited at once.
    pub stall_share: f64,
    /// Threads over which it is summed; 16: or more.
    pub stall_threads: u64,
    /// The share of its time that one of them waited, on average.
    pub waiting: f64,
    /// Patterns.
    pub patterns: Patterns,
}

/// Shares of requests, from 0 to 1.
#[derive(Clone, Copy, Serialize)]
pub struct Patterns {
    /// The next page, up or down.
    pub sequential: f64,
    /// By a longer step.
    pub strided: f64,
    /// By no step.
    pub irregular: f64,
}

/// Windows and pages.
#[derive(Serialize)]
pub struct PrefetchOutcome {
    /// Asked for in far memory.
    pub windows: u64,
    /// Pages of all of them.
    pub window_pages: u64,
    /// Pages of one, on average.
    pub window_pages_mean: f64,
    /// Pages of the largest.
    pub window_pages_max: u64,
    /// The bound on them in the end, where it followed the link; 0: it did not.
    pub window_bound_pages: u64,
    /// A load of one page, where it was measured for that bound.
    pub load_one_ns: u64,
    /// Each further page of a load.
    pub load_page_ns: u64,
    /// Pages of runs were fetched only where most of them are used, in the end.
    pub is_sparing: bool,
    /// Prefetched pages.
    pub fetched: u64,
    /// Of them, used as far as is known.
    pub used: u64,
    /// Of the used ones, seen.
    pub used_seen: u64,
    /// Of the used ones, inferred from the use of a key page.
    pub used_inferred: u64,
    /// Left unmapped, so that their first use faults and is observed.
    pub watched: u64,
    /// Of the watched ones, evicted before they were used.
    pub wasted: u64,
    /// Faults that waited for a page which was being prefetched.
    pub late: u64,
    /// Windows dropped because newer ones filled the queue.
    pub windows_dropped: u64,
    /// Windows dropped because no frame was free for them.
    pub windows_refused: u64,
    /// Seen hits, as a share of the watched pages.
    pub accuracy: Option<f64>,
    /// Hits, as a share of major and minor faults and hits.
    pub coverage: Option<f64>,
    /// Half of the pages that were seen used had waited no longer.
    pub wait_p50_ns: u64,
}

/// What a run lacked for its slowdown.
#[derive(Clone, Serialize)]
pub struct Lacked {
    /// The slowdown that was asked for.
    pub slowdown: f64,
    /// What it would have needed.
    pub wanted_bytes: u64,
    /// Its share of the machine's memory.
    pub share_bytes: u64,
}

impl Lacked {
    fn of(stats: &Stats) -> Option<Lacked> {
        let service = stats.service_level.as_ref()?;
        let (wanted_bytes, share_bytes) = service.short_wanted_bytes.zip(service.short_share_bytes)?;
        Some(Lacked { slowdown: service.slowdown_asked, wanted_bytes, share_bytes })
    }
}

/// One of several paths to far memory, or a memory node of one.
#[derive(Clone, Serialize)]
pub struct PathFindings {
    /// The path.
    pub url: String,
    /// Its tier in the end, from 1.
    pub tier: u64,
    /// How often it came to another one because measured times changed or were forgotten.
    pub tier_changes: u64,
    /// A page that is loaded alone from there, where it was measured.
    pub load_one_ns: u64,
    /// What a page waits there for others.
    pub load_queue_ns: u64,
    /// The most that was there.
    pub peak_bytes: u64,
}

impl PathFindings {
    fn of(stats: &Stats) -> Vec<PathFindings> {
        let placed = stats.backends.iter().filter(|backend| backend.tier > 0);
        let paths: Vec<PathFindings> = placed
            .map(|backend| PathFindings {
                url: backend.url.clone(),
                tier: backend.tier,
                tier_changes: backend.tier_changes,
                load_one_ns: backend.load_one_ns,
                load_queue_ns: backend.load_queue_ns,
                peak_bytes: backend.stored_peak_bytes,
            })
            .collect();
        if paths.len() > 1 { paths } else { Vec::new() }
    }
}

/// Pages on a NUMA node.
#[derive(Clone, Serialize)]
pub struct NumaFindings {
    /// The node.
    pub url: String,
    /// The most that was there.
    pub peak_bytes: u64,
}

impl NumaFindings {
    fn of(stats: &Stats) -> Vec<NumaFindings> {
        let on_nodes = stats.backends.iter().filter(|backend| backend.url.starts_with("numa:"));
        on_nodes.map(|node| NumaFindings { url: node.url.clone(), peak_bytes: node.stored_peak_bytes }).collect()
    }
}

/// Blocks that came with pages that the program waited for.
#[derive(Clone, Serialize)]
pub struct BlockOutcome {
    /// Blocks that were asked for.
    pub asked: u64,
    /// Pages that came with them.
    pub pages: u64,
    /// Of those, used.
    pub used: u64,
    /// Pages of a block in the end; 0: not known.
    pub size: u64,
    /// Faults that waited for the page alone.
    pub page_faults: u64,
    /// Faults that waited for a block.
    pub block_faults: u64,
    /// Pages that were requested alone although their block was requested and not sent.
    pub page_first: u64,
    /// Blocks that were not requested because those in flight filled their room.
    pub refused_full: u64,
    /// Blocks that were not requested because too few pages of those near them had been used.
    pub refused_unused: u64,
}

impl BlockOutcome {
    fn of(stats: &Stats) -> Option<BlockOutcome> {
        let Stats { blocks_asked: asked, block_pages: pages, block_used_pages: used, .. } = *stats;
        let Stats { blocks_refused_full: refused_full, blocks_refused_unused: refused_unused, .. } = *stats;
        (asked + refused_full + refused_unused > 0).then_some(BlockOutcome {
            asked,
            pages,
            used,
            size: stats.block_size_pages,
            page_faults: stats.major_faults,
            block_faults: stats.block_faults,
            page_first: stats.block_page_first,
            refused_full,
            refused_unused,
        })
    }
}

/// Pages of which only what had changed was written back.
#[derive(Clone, Serialize)]
pub struct PatchOutcome {
    /// Pages that were written back, whole or in part.
    pub written: u64,
    /// Of those, in part.
    pub patched: u64,
    /// Bytes that these would have taken as whole pages, over those that they took.
    pub spared_bytes: u64,
}

impl PatchOutcome {
    fn of(stats: &Stats) -> Option<PatchOutcome> {
        let whole = stats.patched_pages.saturating_mul(PAGE_BYTES as u64);
        (stats.patched_pages > 0).then_some(PatchOutcome {
            written: stats.evicted_dirty_pages,
            patched: stats.patched_pages,
            spared_bytes: whole.saturating_sub(stats.patched_bytes),
        })
    }
}

/// How a tape was followed.
#[derive(Clone, Serialize)]
pub struct TapeOutcome {
    /// Where it comes from.
    pub source: Option<String>,
    /// Processes that followed one.
    pub processes: u64,
    /// Processes that followed none, because there was none for their program.
    pub processes_without: u64,
    /// Threads that followed it.
    pub threads: u64,
    /// Threads for which it had none.
    pub threads_without: u64,
    /// Batches that were asked for.
    pub batches: u64,
    /// Their pages.
    pub pages: u64,
    /// Times that a thread left it.
    pub left: u64,
    /// Where, the last time: the position.
    pub left_position: u64,
    /// The page that was asked for there instead, by its number in far memory.
    pub left_page: u64,
    /// Times that a thread was found on it again.
    pub resumed: u64,
    /// Major faults of threads on it for pages that it does not have there.
    pub beside_faults: u64,
    /// The same for pages that the plan has in local memory: they were evicted early.
    pub early_faults: u64,
    /// Phases that it has; 0: it is an ordered one.
    pub phases: u64,
    /// Phases that have begun.
    pub phases_begun: u64,
    /// Of these, given up: the program touched other pages, or used few of theirs.
    pub phases_given_up: u64,
}

impl TapeOutcome {
    fn of(stats: &Stats) -> Option<TapeOutcome> {
        let had = [stats.tape_threads, stats.tape_threads_without, stats.tape_phases, stats.tape_processes_without];
        had.iter().any(|count| *count > 0).then_some(TapeOutcome {
            source: stats.tape_source.clone(),
            processes: stats.tape_processes,
            processes_without: stats.tape_processes_without,
            threads: stats.tape_threads,
            threads_without: stats.tape_threads_without,
            batches: stats.tape_batches,
            pages: stats.tape_pages,
            left: stats.tape_left,
            left_position: stats.tape_left_position,
            left_page: stats.tape_left_page,
            resumed: stats.tape_resumed,
            beside_faults: stats.tape_beside_faults,
            early_faults: stats.tape_early_faults,
            phases: stats.tape_phases,
            phases_begun: stats.tape_phases_begun,
            phases_given_up: stats.tape_phases_given_up,
        })
    }
}

/// What hints of the program did.
#[derive(Serialize)]
pub struct HintOutcome {
    /// Pages that were fetched because it named them.
    pub fetched: u64,
    /// Of those, known to have been used.
    pub used: u64,
    /// Of those, known not to have been.
    pub unused: u64,
    /// Pages that were not fetched because most pages that their place hints are not used.
    pub refused: u64,
    /// Hints that were dropped because too many others waited.
    pub dropped: u64,
    /// Victims that it named.
    pub evicted: u64,
    /// Pages that were kept because it said so.
    pub kept: u64,
    /// Pages that were not fetched because it overwrote them.
    pub overwritten: u64,
    /// Runs of compiled loops that fetched ahead.
    pub loops: u64,
    /// Runs of such loops for which nothing was far.
    pub plain_loops: u64,
    /// Phases that it said begin.
    pub phases: u64,
    /// The places that had most fetched.
    pub sites: Vec<HintSite>,
}

impl HintOutcome {
    fn of(stats: &Stats) -> Option<HintOutcome> {
        let by_page = stats.hint_evicted_pages + stats.hint_kept_pages + stats.hint_overwritten_pages;
        let is_told = !stats.hint_sites.is_empty() || by_page > 0;
        is_told.then(|| HintOutcome {
            fetched: stats.hint_fetched_pages,
            used: stats.hint_used_pages,
            unused: stats.hint_unused_pages,
            refused: stats.hint_refused_pages,
            dropped: stats.hints_dropped,
            evicted: stats.hint_evicted_pages,
            kept: stats.hint_kept_pages,
            overwritten: stats.hint_overwritten_pages,
            loops: stats.hint_loops,
            plain_loops: stats.hint_plain_loops,
            phases: stats.hint_phases,
            sites: stats.hint_sites.clone(),
        })
    }
}

/// A thread or a region.
#[derive(Serialize)]
pub struct ActivityFindings {
    /// What was counted.
    #[serde(flatten)]
    pub activity: Activity,
    /// `sequential`, `strided`, `irregular` or `mixed`.
    pub pattern: &'static str,
    /// Shares.
    pub patterns: Patterns,
}

impl Findings {
    /// What the figures of a run say.
    pub fn of(stats: &Stats) -> Findings {
        let saw = Observed {
            requests: stats.requests(),
            major: stats.major_faults + stats.block_faults,
            minor: stats.minor_faults,
            prefetch_hits: stats.prefetch_hits_observed.saturating_sub(stats.block_faults),
            first_touches: stats.first_touch_faults,
            random_victims: stats.random_victim_pages,
            stall_seconds: stats.stall_seconds,
            stall_share: stats.stall_share,
            stall_threads: stats.stall_threads,
            waiting: waiting(stats.stall_share, stats.stall_threads),
            patterns: Patterns::of(&stats.threads),
        };
        let did = PrefetchOutcome {
            windows: stats.prefetch_windows,
            window_pages: stats.prefetch_window_pages,
            window_pages_mean: share(stats.prefetch_window_pages, stats.prefetch_windows),
            window_pages_max: stats.prefetch_window_pages_max,
            window_bound_pages: stats.prefetch_window_bound_pages,
            load_one_ns: stats.load_one_ns,
            load_page_ns: stats.load_page_ns,
            is_sparing: stats.prefetch_is_sparing,
            fetched: stats.prefetched_pages,
            used: stats.prefetch_hits,
            used_seen: stats.prefetch_hits_observed,
            used_inferred: stats.prefetch_hits_inferred,
            watched: stats.prefetched_unmapped_pages,
            wasted: stats.prefetch_unused_pages,
            late: stats.prefetch_late_faults,
            windows_dropped: stats.prefetch_windows_dropped,
            windows_refused: stats.prefetch_windows_refused,
            accuracy: stats.prefetch_accuracy,
            coverage: stats.prefetch_coverage,
            wait_p50_ns: stats.prefetch_wait_ns.p50,
        };
        let mut findings = Findings {
            program: stats.program.clone(),
            fault_path: stats.fault_path.clone(),
            prefetcher: stats.prefetcher.clone(),
            why: why(stats),
            read_ahead_pages: stats.read_ahead_pages,
            processes: stats.process_count,
            saw,
            did,
            features: stats.features.clone(),
            shortage: Lacked::of(stats),
            paths: PathFindings::of(stats),
            numa: NumaFindings::of(stats),
            blocks: BlockOutcome::of(stats),
            patches: PatchOutcome::of(stats),
            tape: TapeOutcome::of(stats),
            hints: HintOutcome::of(stats),
            threads: stats.threads.iter().map(ActivityFindings::of).collect(),
            regions: stats.regions.iter().map(ActivityFindings::of).collect(),
            advice: Vec::new(),
        };
        findings.advice = advice::of(&findings);
        findings
    }

    /// As JSON, ended by a newline.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

impl Patterns {
    /// Of the requests of all of them together.
    fn of<'a>(rows: impl IntoIterator<Item = &'a Activity>) -> Patterns {
        let mut sums = [0; 4];
        for one in rows {
            let figures = [one.sequential, one.strided, one.irregular(), one.requests()];
            sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        }
        let [sequential, strided, irregular] = [0, 1, 2].map(|at| share(sums[at], sums[3]));
        Patterns { sequential, strided, irregular }
    }
}

impl ActivityFindings {
    fn of(activity: &Activity) -> ActivityFindings {
        let patterns = Patterns::of([activity]);
        let shares =
            [("sequential", patterns.sequential), ("strided", patterns.strided), ("irregular", patterns.irregular)];
        let most = shares.into_iter().find(|(_, share)| *share >= MOST);
        ActivityFindings { activity: activity.clone(), pattern: most.map_or("mixed", |(name, _)| name), patterns }
    }
}

/// A part of a whole; 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a share needs few digits")]
    if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
}

/// Why this prefetcher, and what it does.
fn why(stats: &Stats) -> String {
    let chosen = match &stats.prefetcher_source {
        Some(source) => format!("chosen by {source}"),
        None => "the default".into(),
    };
    let does = match stats.prefetcher.as_str() {
        "auto" => {
            "follows streams of any step, or, in regions where many pages are requested in runs of 2 to 63 neighbours, fetches as far as a \
             quarter of the runs go"
        }
        "none" => "nothing is prefetched",
        "next-n" => "follows sequential streams, several at once",
        "streams" => "follows streams of any step, several at once",
        "next-n-line" => "fetches the next pages after every major fault",
        "readahead" => "fetches the aligned block around a fault, as Linux does",
        "readahead-vma" => "fetches along the direction of the last two faults, as Linux does",
        "stride" => "fetches along the last step once it has repeated",
        "leap" => "fetches along the step that most of the last 32 requests took",
        "leap-per-thread" => "fetches along the step that most of a thread's last 32 requests took",
        _ => return chosen,
    };
    format!("{chosen}; it {}", if stats.prefetcher == "none" { format!("is off: {does}") } else { does.into() })
}
