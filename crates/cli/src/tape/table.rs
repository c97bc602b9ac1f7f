//! The plan for people: what was written, where the program waits, and a row for each size.

use super::costs::PagerCosts;
use super::report::{Report, Size};
use crate::table::table;
use hinterland_units::{ByteCount, Foreign, PageCount};
use std::fmt::Write;

const NAMES: [&str; 11] = [
    "local",
    "of the peak",
    "eviction",
    "fetched",
    "in",
    "out",
    "waits",
    "waits s",
    "seconds",
    "slowdown",
    "hidden from",
];

/// The report in words and columns.
pub fn of(report: &Report) -> String {
    let name = if report.program.is_empty() { &report.trace } else { &report.program };
    let cpu = report.cpu_seconds.map_or("no times".into(), |s| format!("{s:.3} s of processor time"));
    let peak = ByteCount(PageCount(report.pages).bytes());
    let threads = report.threads.len();
    let plural = if threads == 1 { "thread" } else { "threads" };
    let mut out = format!(
        "{}: {} references of {threads} {plural} to {peak} of memory, {cpu}\n",
        Foreign(name),
        report.references
    );
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<14} {text}");
    };
    let wanted = &report.wanted;
    if let (Some(tape), Some(bytes)) = (&report.tape, report.tape_bytes) {
        let local = ByteCount(PageCount(wanted.local_pages).bytes());
        line("tape", format!("{tape}, {}: for {local} of local memory", ByteCount(bytes)));
    }
    let ahead: u64 = report.threads.iter().map(|thread| thread.ahead_pages).sum();
    let first: u64 = report.threads.iter().map(|thread| thread.first_touches).sum();
    line("pages", format!("{} to fetch, {first} first touches; {ahead} fetched ahead at most", wanted.fetched_pages));
    if let Some((stall, crowded)) = wanted.stall_seconds.zip(wanted.crowded_seconds) {
        let link = &report.link;
        line(
            "waits",
            format!("{} for pages, {stall:.3} s over {link}; {crowded:.3} s of it for processors", wanted.waits),
        );
        if let Some(untraced) = &report.costs.untraced {
            line("program", format!("times are those of {untraced}, untraced"));
        }
        line("pager", costs(&report.costs));
        line("hidden", hidden(wanted));
    }
    for wait in &report.waits {
        let at = format!("thread {} after {:.3} s (position {})", wait.thread, wait.at_seconds, wait.position);
        line("longest wait", format!("{:.3} ms: {at}", wait.seconds * 1e3));
    }
    let mut columns = table(&NAMES, 0..2);
    for column in columns.column_iter_mut().skip(3) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    let mut rows: Vec<&Size> = report.sizes.iter().chain([wanted, &report.other_eviction]).collect();
    rows.sort_by_key(|size| std::cmp::Reverse(size.local_pages));
    for row in rows {
        columns.add_row(cells(row));
    }
    format!("{out}\n{columns}\n")
}

fn costs(costs: &PagerCosts) -> String {
    let PagerCosts { run, come_ns, leave_ns, processors, .. } = costs;
    let plural = if *processors == 1 { "processor" } else { "processors" };
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let [come, leave] = [*come_ns as f64 / 1e3, *leave_ns as f64 / 1e3];
    let shared =
        format!("{come:.1} µs for a page that comes, {leave:.1} for one that leaves, on {processors} {plural}");
    match run {
        Some(run) => format!("{shared} (as in {run})"),
        None => format!("{shared}, without compression: times are lower bounds (--run)"),
    }
}

fn hidden(size: &Size) -> String {
    match size.hidden_from_mbit {
        Some(megabits) => {
            format!(
                "from {} on: with such a link it waits for less than 1 % of its time longer than without",
                speed(megabits)
            )
        }
        None => "no link hides it, up to 400 Gb/s: it comes to more pages in less time".into(),
    }
}

fn speed(megabits: u64) -> String {
    match (megabits / 1000, megabits % 1000 / 100) {
        (gigabits, 0) => format!("{gigabits} Gb/s"),
        (gigabits, tenth) => format!("{gigabits}.{tenth} Gb/s"),
    }
}

fn cells(size: &Size) -> [String; 11] {
    let figure = |figure: Option<f64>, digits: usize| figure.map_or("–".into(), |f| format!("{f:.digits$}"));
    let hidden =
        if size.run_seconds.is_none() { "–".into() } else { size.hidden_from_mbit.map_or("never".into(), speed) };
    [
        ByteCount(PageCount(size.local_pages).bytes()).to_string(),
        format!("{:.0} %", size.local_percent),
        size.eviction.into(),
        size.fetched_pages.to_string(),
        ByteCount(size.bytes_in).to_string(),
        ByteCount(size.bytes_out).to_string(),
        size.waits.to_string(),
        figure(size.stall_seconds, 3),
        figure(size.run_seconds, 3),
        figure(size.slowdown, 2),
        hidden,
    ]
}
