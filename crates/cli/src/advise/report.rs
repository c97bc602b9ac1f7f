//! The advice, as it is written to JSON and for people.

use super::costs::{Backend, Costs};
use super::predict::{Prediction, SIZES_PERCENT, Sizes};
use crate::encode::shell_word;
use crate::report::members::documented;
use crate::report::{bytes, count, percent};
use crate::sim::{FaultPathArg, Whole};
use crate::table::table;
use crate::trace::LOCAL_PERCENT;
use hinterland_tape::study::{FRAGMENT_PAGES, Features, WINDOW_REFERENCES};
use hinterland_units::{Budget, Foreign, PAGE_BYTES, Slowdown};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The version of the document: another one when a name changes its meaning or goes away.
pub const ADVICE_VERSION: u64 = 1;
/// A backend whose prefetching brings less than this is as well off without.
const PREFETCHING_PAYS: f64 = 1.02;
/// Regions that are told of.
const REGIONS_MAX: usize = 16;

documented! {
    /// What suits a program.
    pub struct Advice {
        /// The version of the document's names.
        advice_version: u64,
        /// The trace.
        trace: String,
        /// Its program.
        program: String,
        /// Memory that the program touches.
        touched_bytes: u64,
        /// Processor time in the trace, or as `--cpu-seconds` said: the run time with all memory local.
        cpu_seconds: f64,
        /// What its pages do.
        features: Traits,
        /// How many references miss with less local memory.
        miss_ratios: Vec<Misses>,
        /// The largest regions of 64 MiB, at most 16.
        regions: Vec<RegionTraits>,
        /// The slowdown that was asked for.
        slowdown_asked: f64,
        /// Local memory at which `backends[].slowdowns` are predicted, in per cent of `touched_bytes`, rounded up to whole MiB.
        sizes_percent: Vec<u64>,
        /// The least local memory that is looked at: the smallest budget of a run, or more, where the trace does not tell of less (`--microset`).
        least_size_bytes: u64,
        /// The most effective first.
        backends: Vec<Ranked>,
        /// The backend with which memory costs least at the slowdown that was asked for.
        cheapest: String,
    }
}

documented! {
    /// What the pages of a program do.
    pub struct Traits {
        /// Of the pages touched within 65,536 references, the share in contiguous runs of fewer than 16.
        fragment_ratio: f64,
        /// The smallest share of the pages that has 90 % of the references.
        hot_ratio: f64,
        /// References that continue a stream by one page, over all.
        sequential_share: f64,
        /// References that continue a stream by the same step of several pages, over all.
        stride_share: f64,
        /// The longest sequential run, in pages.
        longest_sequential_run_pages: u64,
        /// References whose page was written to before the next microset, over those of which the trace tells; null where it tells of none.
        written_share: Option<f64>,
        /// References whose page was not written to before the next microset, over those whose page was; null where none was, as far as the trace tells.
        load_store_ratio: Option<f64>,
    }
}

documented! {
    /// What the pages of a region of 64 MiB do, which touches them together with the others.
    pub struct RegionTraits {
        /// The region of the trace in which it lies; `far` is all managed memory of a run.
        region: String,
        /// Where it begins there.
        offset_bytes: u64,
        /// Memory of it that the program touches.
        touched_bytes: u64,
        /// References.
        references: u64,
        /// As of the program.
        features: Traits,
        /// How many of its references miss with less local memory, which all regions share.
        miss_ratios: Vec<Misses>,
    }
}

documented! {
    /// A point of the miss-ratio curve: of LRU memory, first touches left out.
    pub struct Misses {
        /// Local memory, in per cent of all pages.
        local_percent: u64,
        /// References that miss, over all; null where local memory is smaller than a microset.
        miss_ratio: Option<f64>,
    }
}

documented! {
    /// A backend, and what it would be for the program.
    pub struct Ranked {
        /// Its name in the cost file.
        name: String,
        /// Its link: latency:bandwidth.
        link: String,
        /// What a GiB costs beside a GiB of local RAM.
        cost: f64,
        /// Memory effectiveness improvement: (run time on the slowest backend / run time) / cost, with half of the memory local (or the least, see `least_size_bytes`).
        effectiveness: f64,
        /// Predicted slowdowns at `sizes_percent`; null where that is less than `least_size_bytes`.
        slowdowns: Vec<Option<f64>>,
        /// The least local memory that keeps the slowdown, in whole MiB; all that is touched where none less does.
        least_local_bytes: u64,
        /// The predicted slowdown with it.
        least_local_slowdown: f64,
        /// What local and far memory cost then, beside all memory local.
        memory_cost: f64,
        /// What prefetching divides the run time by, with half of the memory local (or the least, see `least_size_bytes`).
        prefetching_gain: f64,
        /// A command with it, or null where the cost file says no `far`, or all is local with it.
        command: Option<String>,
    }
}

impl Advice {
    /// Ranks the backends; `predictions` are in their order.
    pub fn of(
        path: &Path,
        traced: &Whole,
        sizes: Sizes,
        fault_path: FaultPathArg,
        asked: Slowdown,
        costs: &Costs,
        predictions: &[Prediction],
    ) -> Advice {
        let touched_bytes = traced.work.touched_bytes();
        let slowest = predictions.iter().map(|one| one.compared).fold(1.0, f64::max);
        let rank = |(backend, prediction): (&Backend, &Prediction)| {
            let local_bytes = prediction.least.pages * PAGE_BYTES as u64;
            let local_share = local_bytes as f64 / touched_bytes.max(1) as f64;
            let here = prediction.compared;
            Ranked {
                name: backend.name.clone(),
                link: backend.link.clone(),
                cost: backend.cost,
                effectiveness: slowest / here / backend.cost,
                slowdowns: prediction.slowdowns.clone(),
                least_local_bytes: local_bytes,
                least_local_slowdown: prediction.least.slowdown,
                memory_cost: local_share + (1.0 - local_share) * backend.cost,
                prefetching_gain: prediction.without_prefetching / here,
                command: backend.far.as_ref().filter(|_| local_bytes < touched_bytes).map(|far| {
                    let mebibytes = local_bytes >> 20;
                    let on = if fault_path == FaultPathArg::Monitor { " --fault-path monitor" } else { "" };
                    let (far, program) = (shell_word(far), shell_word(&traced.program));
                    format!("hinterland run --local {mebibytes}M --far {far}{on} -- {program}")
                }),
            }
        };
        let mut backends: Vec<Ranked> = costs.backends.iter().zip(predictions).map(rank).collect();
        backends.sort_by(|one, other| other.effectiveness.total_cmp(&one.effectiveness));
        let cheapest = backends.iter().min_by(|one, other| one.memory_cost.total_cmp(&other.memory_cost));
        Advice {
            advice_version: ADVICE_VERSION,
            trace: path.display().to_string(),
            program: traced.program.clone(),
            touched_bytes,
            cpu_seconds: traced.work.cpu_ns() as f64 / 1e9,
            features: Traits::of(&traced.features),
            miss_ratios: Misses::of_program(traced),
            regions: RegionTraits::of(traced),
            slowdown_asked: asked.factor(),
            sizes_percent: SIZES_PERCENT.to_vec(),
            least_size_bytes: sizes.least_bytes(),
            cheapest: cheapest.map(|backend| backend.name.clone()).unwrap_or_default(),
            backends,
        }
    }

    /// The backend with which memory costs least.
    pub fn cheapest(&self) -> &str {
        &self.cheapest
    }

    /// Memory that the program touches.
    pub fn touched_bytes(&self) -> u64 {
        self.touched_bytes
    }

    /// The least local memory with a backend.
    pub fn least_local_bytes(&self, name: &str) -> Option<u64> {
        self.backends.iter().find(|backend| backend.name == name).map(|backend| backend.least_local_bytes)
    }

    /// The tables, and what follows from them.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}: {} touched, {:.2} s with all memory local\n",
            Foreign(&self.program),
            bytes(self.touched_bytes),
            self.cpu_seconds
        );
        out += &self.features.text();
        out += &Misses::text(&self.miss_ratios);
        out += &RegionTraits::text(&self.regions);
        if self.is_small() {
            return out + "\n" + &self.conclusion();
        }
        let sizes: Vec<String> = self.sizes_percent.iter().map(|size| format!("{size} %")).collect();
        let least = format!("least for {}", self.slowdown_asked);
        let mut names = vec!["backend", "cost", "effectiveness"];
        names.extend(sizes.iter().map(String::as_str));
        names.extend([least.as_str(), "memory cost"]);
        let last = names.len();
        let mut rows = table(&names, 1..last);
        for backend in &self.backends {
            let mut cells = vec![
                Foreign(&backend.name).to_string(),
                format!("{}", backend.cost),
                format!("{:.2}", backend.effectiveness),
            ];
            let slowdowns = backend.slowdowns.iter();
            cells.extend(slowdowns.map(|slowdown| slowdown.map_or("-".into(), |slowdown| format!("{slowdown:.2}"))));
            cells.extend([bytes(backend.least_local_bytes), format!("{:.2}", backend.memory_cost)]);
            rows.add_row(cells);
        }
        let _ = writeln!(out, "\nSlowdowns by local memory, of {} at least:\n{rows}\n", bytes(self.least_size_bytes));
        out += &self.conclusion();
        out
    }

    /// All that it touches fits into the smallest budget.
    fn is_small(&self) -> bool {
        self.touched_bytes <= Budget::FLOOR.0
    }

    fn conclusion(&self) -> String {
        let Some(best) = self.backends.iter().find(|backend| backend.name == self.cheapest) else {
            return String::new();
        };
        if self.is_small() {
            return format!(
                "It touches {}, and a run has {} of local memory at least: nothing of it would be far.\n",
                bytes(self.touched_bytes),
                Budget::FLOOR
            );
        }
        if best.least_local_bytes >= self.touched_bytes {
            return format!(
                "With none of them the program keeps a slowdown of {}: keep its memory local.\n",
                self.slowdown_asked
            );
        }
        let mut text = format!(
            "{} keeps the slowdown of {} at the least cost: {} local, {:.2} of what all local memory costs.\n",
            Foreign(&best.name),
            self.slowdown_asked,
            bytes(best.least_local_bytes),
            best.memory_cost
        );
        if best.prefetching_gain < PREFETCHING_PAYS {
            text += "Prefetching brings it nothing: --prefetch none spares its work.\n";
        }
        if let Some(command) = &best.command {
            let _ = writeln!(text, "  {}", Foreign(command));
        }
        text
    }
}

impl Misses {
    /// The program's curve, in points.
    fn of_program(traced: &Whole) -> Vec<Misses> {
        let (study, first_touches) = (&traced.study, traced.study.first_touches());
        let misses = |local_pages| study.distances.misses(local_pages).saturating_sub(first_touches);
        Misses::of(traced, study.references, misses)
    }

    /// A curve of references, of which so many miss in memory of so many pages.
    fn of(traced: &Whole, references: u64, misses: impl Fn(u64) -> u64) -> Vec<Misses> {
        let pages = traced.work.touched_pages();
        let point = |local_percent: u64| {
            let local_pages = (pages * local_percent).div_ceil(100);
            let is_seen = local_pages >= traced.microset_pages.into();
            let ratio = || misses(local_pages) as f64 / references.max(1) as f64;
            Misses { local_percent, miss_ratio: is_seen.then(ratio) }
        };
        LOCAL_PERCENT.map(point).into()
    }

    /// The curve in a line; none where the trace tells of no point.
    fn text(points: &[Misses]) -> String {
        let known = |point: &Misses| Some(format!("{} % {}", point.local_percent, percent(point.miss_ratio?)));
        match points.iter().filter_map(known).collect::<Vec<_>>() {
            none if none.is_empty() => String::new(),
            known => format!("  {:<15} {}\n", "misses", known.join(", ")),
        }
    }
}

impl Traits {
    fn of(features: &Features) -> Traits {
        Traits {
            fragment_ratio: features.fragment_ratio,
            hot_ratio: features.hot_ratio,
            sequential_share: features.sequential_share,
            stride_share: features.stride_share,
            longest_sequential_run_pages: features.longest_sequential_run,
            written_share: features.written_share,
            load_store_ratio: features.load_store_ratio,
        }
    }

    fn text(&self) -> String {
        let rows = [
            ("fragment ratio", percent(self.fragment_ratio), {
                format!(
                    "of the pages touched within {} references, in runs of fewer than {FRAGMENT_PAGES}",
                    count(WINDOW_REFERENCES)
                )
            }),
            ("hot ratio", percent(self.hot_ratio), "of the pages have 90 % of the references".into()),
            ("sequential", percent(self.sequential_share), {
                format!("of the references; the longest run has {} pages", count(self.longest_sequential_run_pages))
            }),
            ("strided", percent(self.stride_share), "of the references".into()),
        ];
        let ratio = self.load_store_ratio.map(|ratio| format!("; for each of these {ratio:.2} are not"));
        let written = self.written_share.map(|share| {
            let meaning = format!("of the references, before the next microset{}", ratio.unwrap_or_default());
            ("written to", percent(share), meaning)
        });
        rows.into_iter()
            .chain(written)
            .map(|(name, value, meaning)| format!("  {name:<15} {value:>7}  {meaning}\n"))
            .collect()
    }
}

impl RegionTraits {
    fn of(traced: &Whole) -> Vec<RegionTraits> {
        let regions = traced.region_features.iter().take(REGIONS_MAX);
        regions
            .map(|region| RegionTraits {
                region: traced.region_names.get(region.region as usize).cloned().unwrap_or_default(),
                offset_bytes: u64::from(region.first_page) * PAGE_BYTES as u64,
                touched_bytes: region.features.pages * PAGE_BYTES as u64,
                references: region.features.references,
                features: Traits::of(&region.features),
                miss_ratios: Misses::of(traced, region.features.references, |pages| region.misses(pages)),
            })
            .collect()
    }

    /// A table; of a single region the program's features tell all.
    fn text(regions: &[RegionTraits]) -> String {
        if regions.len() < 2 {
            return String::new();
        }
        let names = [
            "region",
            "touched",
            "references",
            "fragments",
            "hot",
            "sequential",
            "strided",
            "longest",
            "written",
            "misses",
        ];
        let mut rows = table(&names, 1..names.len());
        let share = |share: Option<f64>| share.map_or("–".into(), percent);
        for region in regions {
            let features = &region.features;
            let half = region.miss_ratios.iter().find(|point| point.local_percent == 50);
            rows.add_row([
                format!("{} at {}", Foreign(&region.region), bytes(region.offset_bytes)),
                bytes(region.touched_bytes),
                count(region.references),
                percent(features.fragment_ratio),
                percent(features.hot_ratio),
                percent(features.sequential_share),
                percent(features.stride_share),
                count(features.longest_sequential_run_pages),
                share(features.written_share),
                share(half.and_then(|point| point.miss_ratio)),
            ]);
        }
        format!("\nThe largest regions of 64 MiB, with misses in half of the memory:\n{rows}\n")
    }
}
