//! What was asked for, replayed and written down: a row for each workload, link and scheme, and geometric means over workloads.

use crate::compression::Compressor;
use crate::machine::replay_together;
use crate::parameters::{LLC, PAGE_BYTES, Parameters, Replacement};
use crate::placement::Placement;
use crate::programs::{self, Running};
use crate::scheme::Scheme;
use crate::source::{Extent, Source};
use crate::stats::ModelStats;
use crate::workloads::Trace;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

/// How pages compress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Ratio {
    /// As samples of the workload's data do.
    Measured,
    /// By the paper's ratios (§6.5): 1.42 for dr and rs, 4.47 on average.
    Paper,
}

/// One link that workloads are replayed on.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its bandwidth as it was written.
    pub bandwidth: String,
    /// Its switch latency; the mean, if memory components have several.
    pub switch_ns: u64,
    /// The whole machine.
    pub parameters: Parameters,
}

/// What is to be replayed.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which programs.
    pub sources: Vec<Source>,
    /// How much of each.
    pub extent: Extent,
    /// Whether they run at once, each on cores of its own.
    pub together: bool,
    /// On which schemes; Remote is replayed too, as all are compared with it.
    pub schemes: Vec<Scheme>,
    /// On which links.
    pub points: Vec<Point>,
    /// How well pages compress.
    pub ratio: Ratio,
}

/// One program of a replay. Of programs that run at once all but its speed is the machine's.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    workload: String,
    bandwidth: String,
    switch_ns: u64,
    scheme: Scheme,
    instructions_per_cycle: f64,
    /// Times as fast as Remote.
    speedup: f64,
    access_ns: f64,
    /// Remote's access time by this one's.
    access_gain: f64,
    hit_ratio: f64,
    /// What is carried from remote memory, of what the network could carry, in percent. Of programs that run at once none is said.
    utilisation: Option<f64>,
    pages_moved: u64,
    lines_moved: u64,
    down_bytes: u64,
    up_bytes: u64,
    pages_throttled: u64,
    pages_refused: u64,
    lines_late: u64,
}

/// Geometric means over the workloads (the hit ratio's is arithmetic).
#[derive(Clone, Debug, Serialize)]
pub struct Mean {
    bandwidth: String,
    switch_ns: u64,
    scheme: Scheme,
    speedup: f64,
    access_gain: f64,
    hit_ratio: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Program {
    name: String,
    what: &'static str,
    size: u64,
    unit: &'static str,
    references: u64,
    instructions: u64,
    llc_misses: u64,
    touched_pages: u32,
    /// None where the data are not known.
    measured_ratio: Option<f64>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    model: &'static str,
    version: &'static str,
    warm_up: u64,
    references: u64,
    seed: u64,
    compressor: Compressor,
    ratio: Ratio,
    local_percent: u64,
    replacement: Replacement,
    line_share_percent: u64,
    components: u32,
    placement: Placement,
    threads: u8,
    together: bool,
    disturbance_percent: u64,
    /// Where figures say less than they seem to.
    notes: Vec<String>,
    programs: Vec<Program>,
    rows: Vec<Row>,
    means: Vec<Mean>,
}

/// Replays what was asked for; `progress` hears of each workload.
///
/// # Errors
/// Why a file of loads and stores is of no use.
pub fn make(request: &Request, progress: impl Fn(&str)) -> Result<Report, String> {
    let (mut programs, mut rows, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let extent = request.extent;
    // What runs at once is replayed at once; else one program is in memory at a time.
    let at_once = if request.together { request.sources.len() } else { 1 };
    for sources in request.sources.chunks(at_once.max(1)) {
        let mut traces = Vec::new();
        for source in sources {
            progress(&format!("{}: {}", source.name(), source.what()));
            let trace = source.trace(extent)?;
            has_measured_misses(source, &trace, extent)?;
            traces.push((source, trace));
        }
        if !programs::fit(traces.iter().map(|(_, trace)| &trace.stream)) {
            return Err(
                "programs that run at once have more than 256 GiB of data; take smaller ones (--size)".to_owned()
            );
        }
        let without_end =
            traces.iter().filter(|(_, trace)| !trace.has_end).map(|(source, _)| without_end(&source.name()));
        for note in beside_the_caches(&traces, &request.points[0].parameters).into_iter().chain(without_end) {
            progress(&format!("note: {note}"));
            notes.push(note);
        }
        for point in &request.points {
            rows.extend(rows_of(&traces, point, request));
        }
        programs.extend(traces.iter().map(|(source, trace)| program(source, trace)));
    }
    let parameters = &request.points[0].parameters;
    Ok(Report {
        model: "daemon",
        version: env!("CARGO_PKG_VERSION"),
        warm_up: extent.warm_up,
        references: extent.references,
        seed: extent.seed,
        compressor: extent.compressor,
        ratio: request.ratio,
        local_percent: parameters.local_percent,
        replacement: parameters.replacement,
        line_share_percent: parameters.line_share_percent,
        components: parameters.components,
        placement: parameters.placement,
        threads: extent.threads,
        together: request.together,
        disturbance_percent: parameters.disturbance.map_or(0, |disturbance| disturbance.percent),
        notes,
        programs,
        means: means(request, &rows),
        rows,
    })
}

/// Schemes differ in what misses the LLC alone.
fn has_measured_misses(source: &Source, trace: &Trace, extent: Extent) -> Result<(), String> {
    let stream = &trace.stream;
    if stream.measured_from < stream.misses.len() {
        return Ok(());
    }
    let larger = if source.has_data() { "a larger --size or " } else { "" };
    Err(format!(
        "{}: the {} references after {} of warm-up touch no line that the caches do not hold, so there is nothing to measure; take {larger}a smaller --warm-up",
        source.name(),
        stream.references - extent.warm_up,
        extent.warm_up,
    ))
}

/// What to know where local memory is no larger than the LLC: the paper's is twice as large at least, 20 % of 43.2 MB beside 4 MB (§5, Table 2).
fn beside_the_caches(traces: &[(&Source, Trace)], parameters: &Parameters) -> Option<String> {
    let touched_pages: u32 = traces.iter().map(|(_, trace)| trace.stream.touched_pages).sum();
    let kib = |pages: u32| u64::from(pages) * (PAGE_BYTES >> 10);
    let (touched, local, cached) = (kib(touched_pages), kib(parameters.frames(touched_pages)), LLC.bytes >> 10);
    let names: Vec<String> = traces.iter().map(|(source, _)| source.name()).collect();
    let names = names.join(" + ");
    if touched <= cached {
        Some(format!(
            "{names}: the last-level cache of {cached} KiB has room for all {touched} KiB that were touched, so each line misses once; more data or more --references would say more"
        ))
    } else if local < cached {
        Some(format!(
            "{names}: local memory of {local} KiB is smaller than the last-level cache of {cached} KiB, as in no program of the paper (20 % of 43.2 MB and more); more data, more --references or a larger --local would say more"
        ))
    } else {
        None
    }
}

/// A recording may have been cut at the end of a line.
fn without_end(name: &str) -> String {
    format!(
        "{name}: the recording does not say that the program has ended (lackey's \"Exit code:\"), so its rest may be missing"
    )
}

fn program(source: &Source, trace: &Trace) -> Program {
    let (size, unit) = source.size(trace);
    Program {
        name: source.name(),
        what: source.what(),
        size,
        unit,
        references: trace.stream.references,
        instructions: trace.stream.instructions,
        llc_misses: trace.stream.misses.len() as u64,
        touched_pages: trace.stream.touched_pages,
        measured_ratio: source.has_data().then(|| trace.measured_ratio()),
    }
}

fn rows_of(traces: &[(&Source, Trace)], point: &Point, request: &Request) -> Vec<Row> {
    let of_paper = |(source, trace): &(&Source, Trace)| {
        vec![source.paper_bytes(request.extent.compressor); trace.stream.pages as usize]
    };
    let paper: Vec<Vec<u16>> = traces.iter().map(of_paper).collect();
    let is_paper = request.ratio == Ratio::Paper;
    let running: Vec<Running> = traces
        .iter()
        .zip(&paper)
        .map(|((_, trace), paper)| Running {
            stream: &trace.stream,
            compressed_bytes: if is_paper { paper } else { &trace.measured_bytes },
        })
        .collect();
    let run = |scheme| replay_together(&running, scheme, &point.parameters);
    let remote = run(Scheme::Remote);
    let mut rows = Vec::new();
    for scheme in &request.schemes {
        let figures = if *scheme == Scheme::Remote { remote.clone() } else { run(*scheme) };
        let programs = traces.iter().zip(figures.iter().zip(&remote));
        rows.extend(programs.map(|((source, _), (figures, remote))| {
            row(source.name(), point, *scheme, [figures, remote], traces.len() == 1)
        }));
    }
    rows
}

fn row(workload: String, point: &Point, scheme: Scheme, [figures, remote]: [&ModelStats; 2], is_alone: bool) -> Row {
    let counts = figures.counts;
    Row {
        workload,
        bandwidth: point.bandwidth.clone(),
        switch_ns: point.switch_ns,
        scheme,
        instructions_per_cycle: figures.ipc(),
        speedup: figures.speedup_over(remote),
        access_ns: figures.access_ns(),
        access_gain: remote.access_ns() / figures.access_ns(),
        hit_ratio: figures.hit_ratio(),
        utilisation: is_alone.then(|| figures.utilisation_percent()),
        pages_moved: counts.pages_arrived,
        lines_moved: counts.by_line,
        down_bytes: counts.down_bytes,
        up_bytes: counts.up_bytes,
        pages_throttled: counts.pages_throttled,
        pages_refused: counts.pages_refused,
        lines_late: counts.lines_late,
    }
}

fn means(request: &Request, rows: &[Row]) -> Vec<Mean> {
    let mut means = Vec::new();
    for point in &request.points {
        for scheme in &request.schemes {
            let of_point = |row: &&Row| row.bandwidth == point.bandwidth && row.switch_ns == point.switch_ns;
            let chosen: Vec<&Row> = rows.iter().filter(of_point).filter(|row| row.scheme == *scheme).collect();
            means.push(Mean {
                bandwidth: point.bandwidth.clone(),
                switch_ns: point.switch_ns,
                scheme: *scheme,
                speedup: geometric_mean(chosen.iter().map(|row| row.speedup)),
                access_gain: geometric_mean(chosen.iter().map(|row| row.access_gain)),
                hit_ratio: mean(chosen.iter().map(|row| row.hit_ratio)),
            });
        }
    }
    means
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    sum / count
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    mean(values.map(f64::ln)).exp()
}

impl Report {
    /// As JSON, with a newline at its end.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("figures are plain data");
        text.push('\n');
        text
    }

    /// As tables for people.
    pub fn table(&self) -> String {
        let names = ["workload", "link", "switch", "scheme", "IPC", "× remote", "access", "hits", "pages", "lines"];
        let mut table = empty(&names, 4);
        for row in &self.rows {
            table.add_row([
                row.workload.clone(),
                row.bandwidth.clone(),
                format!("{} ns", row.switch_ns),
                row.scheme.name().to_owned(),
                format!("{:.3}", row.instructions_per_cycle),
                format!("{:.2}", row.speedup),
                format!("{:.0} ns", row.access_ns),
                format!("{:.1} %", 100.0 * row.hit_ratio),
                row.pages_moved.to_string(),
                row.lines_moved.to_string(),
            ]);
        }
        let mut text = format!("{table}\n");
        if self.programs.len() > 1 {
            let mut table = empty(&["mean", "switch", "scheme", "× remote", "access ×", "hits"], 3);
            for mean in &self.means {
                table.add_row([
                    mean.bandwidth.clone(),
                    format!("{} ns", mean.switch_ns),
                    mean.scheme.name().to_owned(),
                    format!("{:.2}", mean.speedup),
                    format!("{:.2}", mean.access_gain),
                    format!("{:.1} %", 100.0 * mean.hit_ratio),
                ]);
            }
            text.push_str(&format!("\n{table}\n"));
        }
        for note in &self.notes {
            text.push_str(&format!("\nnote: {note}\n"));
        }
        text
    }
}

/// A table whose columns from `figures` on are aligned to the right.
fn empty(names: &[&str], figures: usize) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(names.iter().copied());
    for column in table.column_iter_mut().skip(figures) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_geometric() {
        assert!((geometric_mean([1.0, 4.0].into_iter()) - 2.0).abs() < 1e-12);
        assert!((mean([1.0, 4.0].into_iter()) - 2.5).abs() < 1e-12);
    }
}
