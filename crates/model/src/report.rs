//! What was asked for, replayed and written down: a row for each workload, link and scheme, and geometric means over workloads.

use crate::figures::Figures;
use crate::machine::replay;
use crate::parameters::{Parameters, Replacement};
use crate::scheme::Scheme;
use crate::workloads::{Trace, Workload};
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
    /// Its switch latency.
    pub switch_ns: u64,
    /// The whole machine.
    pub parameters: Parameters,
}

/// What is to be replayed.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which programs.
    pub workloads: Vec<&'static Workload>,
    /// Their size; `None`: each has the paper's.
    pub size: Option<u64>,
    /// Of their data.
    pub seed: u64,
    /// References before those that are measured.
    pub warm_up: u64,
    /// References that are measured.
    pub references: u64,
    /// On which schemes; Remote is replayed too, as all are compared with it.
    pub schemes: Vec<Scheme>,
    /// On which links.
    pub points: Vec<Point>,
    /// How pages compress.
    pub ratio: Ratio,
}

/// One replay.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    workload: &'static str,
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
    name: &'static str,
    what: &'static str,
    size: u64,
    unit: &'static str,
    references: u64,
    instructions: u64,
    llc_misses: u64,
    touched_pages: u32,
    measured_ratio: f64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    model: &'static str,
    version: &'static str,
    warm_up: u64,
    references: u64,
    seed: u64,
    ratio: Ratio,
    local_percent: u64,
    replacement: Replacement,
    line_share_percent: u64,
    programs: Vec<Program>,
    rows: Vec<Row>,
    means: Vec<Mean>,
}

/// Replays what was asked for; `progress` hears of each workload.
pub fn make(request: &Request, progress: impl Fn(&str)) -> Report {
    let (mut programs, mut rows) = (Vec::new(), Vec::new());
    for workload in &request.workloads {
        progress(&format!("{}: {}", workload.name, workload.what));
        let size = request.size.unwrap_or(workload.size);
        let trace = workload.trace(size, request.seed, request.warm_up, request.references);
        for point in &request.points {
            rows.extend(rows_of(workload, &trace, point, request));
        }
        programs.push(Program {
            name: workload.name,
            what: workload.what,
            size,
            unit: workload.unit,
            references: trace.stream.references,
            instructions: trace.stream.instructions,
            llc_misses: trace.stream.misses.len() as u64,
            touched_pages: trace.stream.touched_pages,
            measured_ratio: trace.measured_ratio(),
        });
    }
    let parameters = &request.points[0].parameters;
    Report {
        model: "daemon",
        version: env!("CARGO_PKG_VERSION"),
        warm_up: request.warm_up,
        references: request.references,
        seed: request.seed,
        ratio: request.ratio,
        local_percent: parameters.local_percent,
        replacement: parameters.replacement,
        line_share_percent: parameters.line_share_percent,
        programs,
        means: means(request, &rows),
        rows,
    }
}

fn rows_of(workload: &Workload, trace: &Trace, point: &Point, request: &Request) -> Vec<Row> {
    let paper = vec![workload.paper_bytes(); trace.stream.pages as usize];
    let compressed = if request.ratio == Ratio::Paper { &paper } else { &trace.measured_bytes };
    let run = |scheme| replay(&trace.stream, compressed, scheme, &point.parameters);
    let remote = run(Scheme::Remote);
    let row = |scheme: &Scheme| {
        let figures = if *scheme == Scheme::Remote { remote } else { run(*scheme) };
        row(workload.name, point, *scheme, &figures, &remote)
    };
    request.schemes.iter().map(row).collect()
}

fn row(workload: &'static str, point: &Point, scheme: Scheme, figures: &Figures, remote: &Figures) -> Row {
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
                row.workload.to_owned(),
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
