//! The report as a table for people.

use super::report::{Report, Row};
use crate::table::table;
use hinterland_units::{ByteCount, PageCount};

const NAMES: [&str; 18] = [
    "link",
    "eviction",
    "prefetch",
    "major",
    "by block",
    "minor",
    "first",
    "prefetched",
    "hits seen",
    "accuracy",
    "coverage",
    "in time",
    "late by µs",
    "pollution",
    "on the link",
    "seconds",
    "slowdown",
    "gap closed",
];

/// What every row with a prefetcher is under.
const ASSUMED_AHEAD: &str = "\
Read-ahead is taken to have a processor whenever it needs one: a real run in which it has none has more major faults.\n";

/// The report in words and columns.
pub fn of(report: &Report) -> String {
    let bytes = |pages: u64| ByteCount(PageCount(pages).bytes());
    let times = report.cpu_seconds.map_or("no times".into(), |s| format!("{s:.3} s of processor time"));
    // The last column only where there is something in it.
    let shown = NAMES.len() - usize::from(report.rows.iter().all(|row| row.gap_closed.is_none()));
    let mut columns = table(&NAMES[..shown], 3..shown);
    for row in &report.rows {
        columns.add_row(cells(row).into_iter().take(shown));
    }
    let ahead = if report.rows.iter().any(|row| row.prefetch != "none") { ASSUMED_AHEAD } else { "" };
    format!(
        "{}: {} references to {} of memory, {times}; {} local, faults on the {} path, share={}\n\n{columns}\n{ahead}",
        report.name(),
        report.references,
        bytes(report.pages),
        bytes(report.local_pages),
        report.fault_path,
        report.share,
    )
}

fn cells(row: &Row) -> [String; 18] {
    let percent = |share: Option<f64>| share.map_or("–".into(), |share| format!("{:.1} %", share * 100.0));
    let figure = |figure: Option<f64>, digits: usize| figure.map_or("–".into(), |f| format!("{f:.digits$}"));
    let late_us = row.late_mean_ns.map(|ns| format!("{}.{}", ns / 1000, ns % 1000 / 100));
    [
        row.link.clone(),
        row.evict.clone(),
        row.prefetch.clone(),
        row.major_faults.to_string(),
        row.block_faults.to_string(),
        row.minor_faults.to_string(),
        row.first_touch_faults.to_string(),
        row.prefetched_pages.to_string(),
        row.prefetch_hits_observed.to_string(),
        percent(row.accuracy),
        percent(row.coverage),
        percent(row.timely),
        late_us.unwrap_or("–".into()),
        row.pollution_pages.to_string(),
        ByteCount(row.link_bytes).to_string(),
        figure(row.run_seconds, 3),
        figure(row.slowdown, 2),
        figure(row.gap_closed, 2),
    ]
}
