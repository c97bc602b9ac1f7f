//! The findings as text.

use super::findings::{
    ActivityFindings, BlockOutcome, Findings, HintOutcome, Lacked, NumaFindings, PatchOutcome, PathFindings, Patterns,
    TapeOutcome, share,
};
use crate::report::{bytes, count, duration, percent, stalled};
use crate::table::table;
use hinterland_abi::REGION_PAGES;
use hinterland_units::{Foreign, PAGE_BYTES};
use std::fmt::Write;
use std::time::Duration;

/// Bytes of a region.
const REGION_BYTES: u64 = REGION_PAGES as u64 * PAGE_BYTES as u64;

/// What was found, in lines and tables.
pub fn of(findings: &Findings) -> String {
    let mut out = format!(
        "{}: prefetcher {} ({})\n",
        Foreign(&findings.program),
        Foreign(&findings.prefetcher),
        Foreign(&findings.why)
    );
    if findings.processes > 1 {
        let _ = writeln!(out, "  counts are sums over {} processes", count(findings.processes));
    }
    out += &saw(findings);
    out += &did(findings);
    out += &pages_did(findings);
    out += &findings.shortage.as_ref().map(lacked).unwrap_or_default();
    out += &where_pages_went(&findings.paths);
    out += &findings.numa.iter().map(on_node).collect::<String>();
    out += &findings.blocks.as_ref().map(around).unwrap_or_default();
    out += &findings.patches.as_ref().map(spared).unwrap_or_default();
    out += &findings.tape.as_ref().map(followed).unwrap_or_default();
    out += &findings.hints.as_ref().map(hinted).unwrap_or_default();
    out += &threads(findings);
    out += &regions(findings);
    out += "\nwhat might be changed\n";
    for advice in &findings.advice {
        let _ = writeln!(out, "  {}: {}", advice.change, advice.because);
    }
    out
}

fn saw(findings: &Findings) -> String {
    let saw = &findings.saw;
    let [major, minor, hits, first] = [saw.major, saw.minor, saw.prefetch_hits, saw.first_touches].map(count);
    let stall = Duration::try_from_secs_f64(saw.stall_seconds.max(0.0)).unwrap_or(Duration::MAX);
    let stalled = stalled(stall, saw.stall_share, saw.stall_threads);
    let at_random = match saw.random_victims {
        0 => String::new(),
        pages => format!(
            "  {} pages were chosen at random to be evicted, because nearly all fit into local memory\n",
            count(pages)
        ),
    };
    format!(
        "\nwhat it saw\n  \
         {} requests for content that was not mapped: {major} waited for far memory (major), {minor} found their page in the swap \
         cache (minor), {hits} were first uses of prefetched pages\n  \
         beside them {first} first touches; the program waited for {stalled}\n  \
         patterns: {}\n{at_random}",
        count(saw.requests),
        patterns(&saw.patterns)
    )
}

fn patterns(patterns: &Patterns) -> String {
    let [sequential, strided, irregular] = [patterns.sequential, patterns.strided, patterns.irregular].map(percent);
    format!("{sequential} sequential, {strided} strided, {irregular} irregular")
}

fn did(findings: &Findings) -> String {
    let did = &findings.did;
    if did.windows == 0 {
        return "\nwhat it did\n  nothing: it prefetched no page\n".into();
    }
    let bound = findings.read_ahead_pages.map(|pages| format!(" (--read-ahead {pages})")).unwrap_or_default();
    let mut out = format!(
        "\nwhat it did\n  \
         {} windows of {:.1} pages on average, {} at most{bound}\n  \
         {} pages were prefetched: {} are known to have been used ({} observed, {} inferred)",
        count(did.windows),
        did.window_pages_mean,
        did.window_pages_max,
        count(did.fetched),
        count(did.used),
        count(did.used_seen),
        count(did.used_inferred),
    );
    if let (Some(accuracy), Some(coverage)) = (did.accuracy, did.coverage) {
        let _ = write!(
            out,
            "\n  of {} prefetched pages that were left unmapped {} were used, half of them within {}; {} were evicted unused\n  \
             so prefetching covered {} of what the program needed from far memory",
            count(did.watched),
            percent(accuracy),
            duration(Duration::from_nanos(did.wait_p50_ns)),
            count(did.wasted),
            percent(coverage)
        );
    }
    if did.load_one_ns > 0 && did.load_page_ns > 0 {
        let [one, page] = [did.load_one_ns, did.load_page_ns].map(|ns| duration(Duration::from_nanos(ns)));
        let _ = write!(
            out,
            "\n  a load of one page took {one}, each further one {page}: so windows might have {} pages",
            count(did.window_bound_pages)
        );
    }
    if did.is_sparing {
        out += "\n  a load takes processor time, and there are few processors: of short runs only pages were fetched that most runs reach";
    }
    let lost = [
        (did.late, "faults waited for a page that was being prefetched"),
        (did.windows_dropped, "windows were dropped because newer windows filled the queue"),
        (did.windows_refused, "windows were dropped because no frame was free"),
    ];
    for (number, what) in lost.into_iter().filter(|(number, _)| *number > 0) {
        let _ = write!(out, "\n  {} {what}", count(number));
    }
    out + "\n"
}

/// The features of the program's pages, as far as they were seen.
fn pages_did(findings: &Findings) -> String {
    match findings.features.text() {
        none if none.is_empty() => none,
        lines => format!("\nwhat its pages did\n{lines}"),
    }
}

/// What the slowdown would have needed beside other runs.
fn lacked(lacked: &Lacked) -> String {
    format!(
        "\nwhat it lacked\n  to keep the slowdown of {} the run would have needed up to {} when its share of the machine was {}, beside other runs\n",
        lacked.slowdown,
        bytes(lacked.wanted_bytes),
        bytes(lacked.share_bytes)
    )
}

/// The tiers of several paths, and the times that decide them.
fn where_pages_went(paths: &[PathFindings]) -> String {
    let line = |path: &PathFindings| {
        let mut line = format!("\n  {}: tier {}, at most {}", Foreign(&path.url), path.tier, bytes(path.peak_bytes));
        if path.load_one_ns > 0 {
            let [one, queue] = [path.load_one_ns, path.load_queue_ns].map(|ns| duration(Duration::from_nanos(ns)));
            let _ = write!(line, "; a page alone takes {one}, and waits {queue} for others");
        }
        if path.tier_changes > 0 {
            let _ = write!(line, "; tier changes as these times changed: {}", count(path.tier_changes));
        }
        line
    };
    if paths.is_empty() {
        return String::new();
    }
    format!("\nwhere pages went{}\n", paths.iter().map(line).collect::<String>())
}

/// What was on a NUMA node, and what that counts as.
fn on_node(node: &NumaFindings) -> String {
    format!(
        "\nwhat was on {}\n  at most {}: far memory, so --ram does not count it; it is RAM of this machine and of the memory cgroup all the same\n",
        Foreign(&node.url),
        bytes(node.peak_bytes)
    )
}

/// What came with pages that the program waited for.
fn around(blocks: &BlockOutcome) -> String {
    let size = match blocks.size {
        0 => String::new(),
        pages => format!(" of {} in the end", bytes(pages.saturating_mul(PAGE_BYTES as u64))),
    };
    let mut out = format!(
        "\nwhat blocks did\n  {} blocks{size} were requested around pages that the program waited for; {} pages came with them, of which {} were used\n  \
         {} faults waited for a page alone, {} for a block\n",
        count(blocks.asked),
        count(blocks.pages),
        percent(share(blocks.used, blocks.pages)),
        count(blocks.page_faults),
        count(blocks.block_faults),
    );
    let refused = [
        (blocks.refused_full, "blocks were not requested because those in flight filled their room"),
        (blocks.refused_unused, "blocks were not requested because too few pages of those before them had been used"),
        (blocks.page_first, "pages were requested alone although their block had been requested: it was not sent yet"),
    ];
    for (number, what) in refused.into_iter().filter(|(number, _)| *number > 0) {
        let _ = writeln!(out, "  {} {what}", count(number));
    }
    out
}

/// What was not written back, because it had not changed.
fn spared(patches: &PatchOutcome) -> String {
    let spared = share(patches.spared_bytes, patches.written.saturating_mul(PAGE_BYTES as u64));
    format!(
        "\nwhat sub-page write-back did\n  of {} of {} pages that were written back only what had changed was sent: {} less, {} of all\n",
        count(patches.patched),
        count(patches.written),
        bytes(patches.spared_bytes),
        percent(spared)
    )
}

/// How a tape was followed, and where it was left.
fn followed(tape: &TapeOutcome) -> String {
    let who = match tape.phases {
        0 => format!("{} of {} threads followed it", count(tape.threads), count(tape.threads + tape.threads_without)),
        phases => format!("{} of its {} phases began", count(tape.phases_begun), count(phases)),
    };
    let (pages, batches) = (count(tape.pages), count(tape.batches));
    let mut out = format!("\nwhat the tape did\n  {who}: {pages} pages were requested in {batches} batches\n");
    if tape.processes_without > 0 {
        let _ = writeln!(
            out,
            "  {} of {} processes followed one; for the others there was none",
            count(tape.processes),
            count(tape.processes + tape.processes_without)
        );
    }
    if tape.phases_given_up > 0 {
        let _ = writeln!(
            out,
            "  {} phases were given up, because the program touched other pages or used few of their sets: is the tape of these arguments, and \
             of this build?",
            count(tape.phases_given_up)
        );
    }
    if let Some(source) = &tape.source {
        let _ = writeln!(out, "  it is {}", Foreign(source));
    }
    if tape.left > 0 {
        let _ = writeln!(
            out,
            "  it was left {} times, because requests were for other pages than it has next: the last time at position {}, where page {:#x} \
             was requested\n  a thread was found on it again {} times, and had the prefetcher in between",
            count(tape.left),
            count(tape.left_position),
            tape.left_page,
            count(tape.resumed)
        );
    }
    if tape.beside_faults > 0 {
        let beside = count(tape.beside_faults);
        let _ = writeln!(
            out,
            "  {beside} faults of threads on it were for pages that it does not have there: the program touches other pages than in the \
             traced run, or in another order (an interpreter's hashes, threads that share work as they come)"
        );
    }
    if tape.early_faults > 0 {
        let early = count(tape.early_faults);
        let _ = writeln!(
            out,
            "  {early} were for pages that the plan has in local memory, and that were evicted early: there was less room than was planned for"
        );
    }
    out
}

/// What hints did, by place.
fn hinted(hints: &HintOutcome) -> String {
    let [fetched, used, unused, evicted, kept] =
        [hints.fetched, hints.used, hints.unused, hints.evicted, hints.kept].map(count);
    let mut out = format!(
        "\nwhat the program's hints did\n  \
         {fetched} pages were fetched because it named them: {used} are known to have been used, {unused} not\n  \
         {evicted} pages were evicted because it gave them up; {kept} were kept because it asked for it\n"
    );
    if hints.overwritten > 0 {
        let overwritten = count(hints.overwritten);
        let _ = writeln!(out, "  {overwritten} pages were not fetched because it overwrote them");
    }
    if hints.loops + hints.plain_loops > 0 {
        let [loops, plain] = [hints.loops, hints.plain_loops].map(count);
        let _ = writeln!(out, "  compiled loops: {loops} runs fetched ahead, for {plain} nothing was far");
    }
    let lost = [
        (hints.refused, "pages were not fetched because most pages that their place hints are not used"),
        (hints.dropped, "hints were dropped because too many others waited"),
    ];
    for (number, what) in lost.into_iter().filter(|(number, _)| *number > 0) {
        let _ = writeln!(out, "  {} {what}", count(number));
    }
    if hints.sites.is_empty() {
        return out;
    }
    let names = ["place", "fetched", "used", "unused", "refused", "runs", "plain", "ahead", "believed"];
    let mut columns = table(&names, 1..names.len());
    for site in &hints.sites {
        let name = if site.name.is_empty() { "others".into() } else { Foreign(&site.name).to_string() };
        let figures = [
            site.fetched_pages,
            site.used_pages,
            site.unused_pages,
            site.refused_pages,
            site.runs,
            site.plain_runs,
            site.distance,
        ];
        let believed = if site.has_lost == 0 { "yes" } else { "no" };
        columns.add_row([name].into_iter().chain(figures.map(count)).chain([believed.into()]));
    }
    out + &format!("{columns}\n")
}

/// What a row is called, its pattern, and its figures.
fn cells(name: String, row: &ActivityFindings) -> [String; 9] {
    let one = &row.activity;
    let pattern = match row.pattern {
        "strided" => format!("strided by {}", one.step),
        "mixed" => format!("mixed: {}", patterns(&row.patterns)),
        pattern => format!("{pattern}, {}", percent(most(&row.patterns))),
    };
    let figures = [one.requests(), one.major, one.minor, one.prefetch_hits, one.first_touches, one.windows].map(count);
    let [requests, major, minor, hits, first, windows] = figures;
    [name, pattern, requests, major, minor, hits, first, windows, one.window_pages_max.to_string()]
}

fn most(patterns: &Patterns) -> f64 {
    patterns.sequential.max(patterns.strided).max(patterns.irregular)
}

fn threads(findings: &Findings) -> String {
    if findings.threads.is_empty() {
        return String::new();
    }
    let names = ["thread", "pattern", "requests", "major", "minor", "hits", "first", "windows", "largest"];
    let mut columns = table(&names, 2..names.len());
    for row in &findings.threads {
        let of = if findings.processes > 1 { format!(" of {}", row.activity.pid) } else { String::new() };
        columns.add_row(cells(format!("{}{of}", row.activity.name), row));
    }
    format!("\nby thread\n{columns}\n")
}

fn regions(findings: &Findings) -> String {
    if findings.regions.is_empty() {
        return String::new();
    }
    let names = [
        "region",
        "pattern",
        "requests",
        "major",
        "minor",
        "hits",
        "first",
        "windows",
        "largest",
        "prefetched",
        "unused",
        "chosen",
    ];
    let mut columns = table(&names, 2..names.len());
    for region in &findings.regions {
        let one = &region.activity;
        let of = if findings.processes > 1 { format!(" of {}", one.pid) } else { String::new() };
        let mut row = cells(format!("{:#x}{of}", one.name), region).to_vec();
        let chosen = match one.choice {
            0 => "–".into(),
            1 => "streams".into(),
            pages => format!("runs of {pages}"),
        };
        row.extend([count(one.fetched_pages), count(one.unused_pages), chosen]);
        columns.add_row(row);
    }
    format!("\nby region of {}\n{columns}\n", bytes(REGION_BYTES))
}
