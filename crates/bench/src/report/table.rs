//! The report as tables for people.

use super::costs::{EvictionCost, MetadataCost};
use super::model::{Report, Row};
use super::ratios::Ratio;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use hinterland_units::ByteCount;
use std::fmt::Write;

/// The report in words and columns.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let (size, local) = (ByteCount(report.size_bytes), ByteCount(report.local_bytes));
    let machine = &report.origin.machine;
    let heading = format!(
        "{size} of data, {local} of it local; far memory: {}; eviction: {}; {} rounds; {}\n{}, {} cores, {}, Linux {}\n\n",
        report.far.join(" "),
        report.evict,
        report.repeat,
        report.origin.date,
        machine.cpu,
        machine.cores,
        ByteCount(machine.ram_bytes),
        machine.kernel,
    );
    text.push_str(&heading);
    let _ = writeln!(text, "{}", rows(&report.rows));
    if !report.ratios.is_empty() {
        let _ = writeln!(text, "\nHinterland / rival (below 1: Hinterland is better)\n\n{}", ratios(&report.ratios));
    }
    if !report.scaling.is_empty() {
        let mut table = table(&["system", "pattern", "threads", "major faults/s beside one thread"], 2);
        for row in &report.scaling {
            let rate = format!("{:.2}", row.faults_per_second);
            table.add_row([row.system.to_string(), row.pattern.to_string(), row.threads.to_string(), rate]);
        }
        let _ = writeln!(text, "\n{table}");
    }
    if !report.evictions.is_empty() {
        let _ = writeln!(text, "\nEvictions, processor time of the evictor\n\n{}", evictions(&report.evictions));
    }
    if !report.metadata.is_empty() {
        let _ =
            writeln!(text, "\nTables and what else Hinterland holds beside the data\n\n{}", metadata(&report.metadata));
    }
    for row in report.rows.iter().filter(|row| !row.is_ok()) {
        let _ = writeln!(text, "\n{}, {}, threads: {}: {}", row.system, row.pattern, row.threads, row.ended);
    }
    if report.rows.iter().any(|row| row.cut_short) {
        text.push_str("\n* cut short by --seconds-max; figures per access and per fault stand\n");
    }
    text
}

fn rows(rows: &[Row]) -> Table {
    let names = [
        "pattern",
        "threads",
        "system",
        "µs/access",
        "min–max",
        "major faults",
        "minor faults",
        "µs/major",
        "major/s",
        "CPU s",
        "machine CPU s",
        "total RAM",
        "setting",
    ];
    let mut table = table(&names, 3);
    for row in rows {
        let per_access = |seconds: f64| Some(seconds * 1e6 / f64::from(u32::try_from(row.accesses?).ok()?));
        let spread = row.seconds.and_then(|s| Some(format!("{:.2}–{:.2}", per_access(s.min)?, per_access(s.max)?)));
        let rounds = format!("{} [{} of {} rounds]", row.variant, row.finished(), row.round_seconds.len());
        let setting = if row.is_ok() { row.variant.clone() } else { rounds };
        let cut = if row.cut_short { "*" } else { "" };
        table.add_row([
            row.pattern.to_string(),
            row.threads.to_string(),
            row.system.to_string(),
            figure(row.us_per_access, 2) + cut,
            spread.unwrap_or_default(),
            row.major_faults.map(|n| n.to_string()).unwrap_or_default(),
            row.minor_faults.map(|n| n.to_string()).unwrap_or_default(),
            figure(row.us_per_major_fault, 2),
            figure(row.major_faults_per_second, 0),
            figure(row.cpu_seconds, 2),
            figure(row.machine_cpu_seconds, 2),
            row.total_ram_bytes.map(|bytes| ByteCount(bytes).to_string()).unwrap_or_default(),
            setting,
        ]);
    }
    if let Some(last) = table.column_mut(names.len() - 1) {
        last.set_cell_alignment(CellAlignment::Left);
    }
    table
}

fn ratios(ratios: &[Ratio]) -> Table {
    let mut table =
        table(&["pattern", "threads", "against", "time", "min–max", "target", "machine CPU", "total RAM", "target"], 3);
    for ratio in ratios {
        table.add_row([
            ratio.pattern.to_string(),
            ratio.threads.to_string(),
            ratio.against.to_string(),
            format!("{:.2}", ratio.time.median),
            format!("{:.2}–{:.2}", ratio.time.min, ratio.time.max),
            target(ratio.time.median, ratio.time_target),
            figure(ratio.machine_cpu, 2),
            format!("{:.2}", ratio.total_ram),
            target(ratio.total_ram, ratio.total_ram_target),
        ]);
    }
    table
}

fn evictions(costs: &[EvictionCost]) -> Table {
    let names = ["pattern", "threads", "µs/page", "min–max", "clean", "direct reclaims", "target"];
    let mut table = table(&names, 2);
    for cost in costs {
        table.add_row([
            cost.pattern.to_string(),
            cost.threads.to_string(),
            format!("{:.2}", cost.us_per_page.median),
            format!("{:.2}–{:.2}", cost.us_per_page.min, cost.us_per_page.max),
            format!("{:.1} %", cost.clean_share * 100.0),
            cost.direct_reclaims.to_string(),
            target(cost.us_per_page.median, cost.us_target),
        ]);
    }
    table
}

fn metadata(costs: &[MetadataCost]) -> Table {
    let mut table = table(&["pattern", "threads", "managed", "counted", "measured", "at most", ""], 2);
    for cost in costs {
        let most = cost.measured_bytes.unwrap_or(0).max(cost.counted_bytes);
        table.add_row([
            cost.pattern.to_string(),
            cost.threads.to_string(),
            ByteCount(cost.managed_bytes).to_string(),
            ByteCount(cost.counted_bytes).to_string(),
            cost.measured_bytes.map_or("–".into(), |bytes| ByteCount(bytes).to_string()),
            ByteCount(cost.target_bytes).to_string(),
            (if most <= cost.target_bytes { "met" } else { "missed" }).into(),
        ]);
    }
    table
}

/// A target and whether it is met.
fn target(reached: f64, target: Option<f64>) -> String {
    target.map_or(String::new(), |t| format!("≤ {t} {}", if reached <= t { "met" } else { "missed" }))
}

fn figure(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("–".into(), |f| format!("{f:.digits$}"))
}

/// An empty table whose columns from `figures` on are aligned to the right.
pub fn table(names: &[&str], figures: usize) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(names.iter().copied());
    for column in table.column_iter_mut().skip(figures) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
