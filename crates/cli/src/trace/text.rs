//! A trace's figures for people: one line for each question.

use super::show::{DiscardSummary, PatternSummary, TraceSummary};
use hinterland_units::{ByteCount, Foreign};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Threads that are told one by one.
const THREADS_MAX: usize = 16;

/// The summary, several lines.
pub fn of(figures: &TraceSummary, path: &Path) -> String {
    let of = if figures.program.is_empty() { String::new() } else { format!(" of {}", Foreign(&figures.program)) };
    let by = [&figures.origin, &figures.machine].into_iter().filter(|part| !part.is_empty());
    let by: Vec<&str> = by.map(String::as_str).collect();
    let mut out = format!("{}: trace{of} ({})\n", path.display(), Foreign(&by.join("; ")));
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<14} {text}");
    };
    if figures.process > 0 {
        let forked = if figures.forked { format!(", fork {}", figures.forks) } else { String::new() };
        let TraceSummary { process, parent, command, .. } = figures;
        line("process", format!("{process}, child of {parent}{forked}: {}", Foreign(command)));
    }
    if figures.references == 0 {
        line("references", "none: nothing that can be far was touched".into());
        return out;
    }
    let bytes = |pages: u64| ByteCount(pages.saturating_mul(figures.page_bytes.into()));
    let unit = if figures.microset_pages == 1 { "page" } else { "pages" };
    line(
        "references",
        format!("{} in {} microsets of {} {unit}", figures.references, figures.microsets, figures.microset_pages),
    );
    if figures.has_intervals {
        line("intervals", "between hinterland_begin() and hinterland_end() only".into());
    }
    let regions = figures.regions.iter().filter(|region| region.pages > 0);
    let regions: Vec<String> = regions.map(|region| format!("{} {}", region.pages, Foreign(&region.name))).collect();
    line("pages", format!("{} ({}): {}", figures.pages, bytes(figures.pages), regions.join(", ")));
    line(
        "first touches",
        format!(
            "{}, {} of them of pages that had lost their content",
            figures.first_touches,
            (figures.first_touches + figures.inherited_pages).saturating_sub(figures.pages)
        ),
    );
    if figures.inherited_pages > 0 {
        line("inherited", format!("{} pages, which its parent had before the fork", figures.inherited_pages));
    }
    let DiscardSummary { freed, discarded, unmapped, moved } = &figures.discards;
    if freed + discarded + unmapped + moved > 0 {
        line("given up", format!("pages: {freed} freed, {discarded} discarded, {unmapped} unmapped, {moved} moved"));
    }
    if let Some(written) = figures.written {
        #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
        let share = written as f64 / figures.written_known as f64;
        let of = match figures.references - figures.written_known {
            0 => String::new(),
            unknown => format!(" (of {unknown} it is not known)"),
        };
        line(
            "written",
            format!("{} of the references are of pages that were written to meanwhile{of}", percent(share)),
        );
    }
    line("patterns", patterns(&figures.patterns));
    for set in &figures.working_sets {
        let pages = set.pages.round().max(0.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, not negative, and few")]
        let size = bytes(pages as u64);
        line("working set", format!("{pages} pages ({size}) in {} references", set.window_references));
    }
    for miss in &figures.miss_ratios {
        let local = format!("{} % local ({})", miss.local_percent, bytes(miss.local_pages));
        let known = miss.misses.zip(miss.ratio).map(|(misses, ratio)| {
            let again = misses - miss.first_touches;
            format!("{} with {local}: {again} misses and {} first touches", percent(ratio), miss.first_touches)
        });
        line("LRU misses", known.unwrap_or_else(|| format!("– with {local}: below a microset")));
    }
    for (number, thread) in figures.threads.iter().enumerate().take(THREADS_MAX) {
        let cpu = match thread.cpu_ns {
            0 => String::new(),
            ns => format!(", {:.3} s of processor time", Duration::from_nanos(ns).as_secs_f64()),
        };
        let patterns = patterns(&thread.patterns);
        line(
            &format!("thread {number}"),
            format!("{} references to {} pages{cpu}: {patterns}", thread.references, thread.pages),
        );
    }
    if figures.threads.len() > THREADS_MAX {
        line("more threads", format!("{}: --json lists all", figures.threads.len() - THREADS_MAX));
    }
    out
}

fn patterns(patterns: &PatternSummary) -> String {
    let [sequential, stride, irregular] = [patterns.sequential, patterns.stride, patterns.irregular].map(percent);
    format!("{sequential} sequential, {stride} stride, {irregular} irregular")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
