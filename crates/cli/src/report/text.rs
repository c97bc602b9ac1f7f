//! The figures for people: one line for each question, aligned, without lines for events that did not happen.

use super::summary::{Ending, ServiceReport, Summary, THREADS_KNOWN, compression_ratio, waiting};
use crate::statistics::{BackendTotal, ProcessStatistics, UnmanagedSource};
use hinterland_units::{ByteCount, Foreign, PAGE_BYTES};
use std::fmt::Write;
use std::time::Duration;

/// Time that threads waited, summed over `threads`, `share` of the run: of several, that of one of them on average.
pub fn stalled(all: Duration, share: f64, threads: u64) -> String {
    let (all, each) = (duration(all), percent(waiting(share, threads)));
    match threads {
        0 | 1 => format!("{all}, {each} of the run"),
        THREADS_KNOWN.. => format!("{all} in all over {threads} threads or more: at most {each} of the run for each"),
        threads => format!("{all} in all over {threads} threads: {each} of the run for each"),
    }
}

impl Summary<'_> {
    /// The summary, several lines.
    pub fn text(&self) -> String {
        let mut out = format!("hinterland: {}\n", self.verdict());
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "  {name:<14} {}", Foreign(&text));
        };
        line("program", format!("{} {}", self.run.program, self.how_it_ended()));
        if self.is_managed() {
            line("fault path", format!("{}{}", self.fault_path, in_brackets(&self.reason)));
            self.memory(&mut line);
            self.faults(&mut line);
            self.far(&mut line);
        } else {
            line("not managed", self.reason.clone());
            line("process RSS", format!("peak {}, as the kernel saw it", bytes(self.run.kernel_rss_peak_bytes)));
        }
        self.processes(&mut line);
        out + &self.process_table()
    }

    fn how_it_ended(&self) -> String {
        let mut after = duration(self.run.program_wall);
        // Less is the launcher's own time.
        if self.run.wall > self.run.program_wall + Duration::from_millis(100) {
            let _ = write!(after, " (the last process that it left after {})", duration(self.run.wall));
        }
        match self.run.ending {
            Ending::Exited(code) => format!("ended with exit code {code} after {after}"),
            Ending::Killed { signal, core } => {
                let name =
                    nix::sys::signal::Signal::try_from(signal).map_or("a real-time signal", |known| known.as_str());
                let core = if core { ", core dumped" } else { "" };
                format!("was ended by signal {signal} ({name}{core}) after {after}")
            }
        }
    }

    fn memory(&self, line: &mut impl FnMut(&str, String)) {
        let peak = self.peak();
        let source = self.run.budget_source.as_ref().map(|source| format!(", {source}")).unwrap_or_default();
        line(
            "local",
            format!(
                "peak {} of a budget of {}{source}",
                bytes(peak.counted_local_bytes),
                bytes(self.local_budget_bytes)
            ),
        );
        if let Some(service) = &self.run.service {
            line("slowdown", slowdown(service));
        }
        let share = match self.managed_share_of_anonymous() {
            Some(share) => format!("{} of the program's anonymous memory", percent(share)),
            None => "the run was too short to look at the rest of the memory".into(),
        };
        line("managed", format!("peak {}, {share}", bytes(peak.managed_bytes)));
        if self.totals.unmanaged_source != UnmanagedSource::Nobody {
            let other = peak.unmanaged_anonymous_bytes.saturating_sub(peak.unmanaged_stack_bytes);
            let estimated = if self.totals.unmanaged_source == UnmanagedSource::Sampled { " (estimated)" } else { "" };
            line(
                "unmanaged",
                format!(
                    "stacks {}, other anonymous {}, files {}, shared {}; Hinterland's own {}{estimated}",
                    bytes(peak.unmanaged_stack_bytes),
                    bytes(other),
                    bytes(peak.file_bytes),
                    bytes(peak.shared_bytes),
                    bytes(peak.own_bytes)
                ),
            );
        }
        if let beyond @ 1.. = self.totals.maxima.beyond_far_range_bytes {
            line(
                "",
                format!(
                    "a mapping of {}, which is the kernel's: the far range has room for 12 TiB in all",
                    bytes(beyond)
                ),
            );
        }
        let tree = match self.run.tree_pss_peak_bytes {
            0 => String::new(),
            pss => format!("; whole process tree, shared pages counted once: {}", bytes(pss)),
        };
        line("process RSS", format!("peak {}, as the kernel saw it{tree}", bytes(self.run.kernel_rss_peak_bytes)));
        line(
            "total RAM",
            format!("peak {}: local, store and tables ({})", bytes(peak.total_ram_bytes), bytes(peak.metadata_bytes)),
        );
    }

    fn faults(&self, line: &mut impl FnMut(&str, String)) {
        let counters = &self.totals.counters;
        line(
            "faults",
            format!(
                "{} major, {} minor; {} pages touched",
                count(counters.major_faults),
                count(counters.minor_faults),
                count(counters.touched_pages)
            ),
        );
        let times = self.fault_times();
        if times.max > 0 {
            let [p50, p99, max] = [times.p50, times.p99, times.max].map(|ns| duration(Duration::from_nanos(ns)));
            line("fault time", format!("p50 {p50}, p99 {p99}, longest {max}"));
            line("stalled", self.stalled());
        }
        if counters.prefetched_pages > 0 {
            line("prefetched", self.prefetched());
        }
        if counters.blocks_asked > 0 {
            line("blocks", self.blocks());
        }
        if counters.tape_threads + counters.tape_threads_without + counters.tape_phases > 0 {
            line("tape", self.tape());
        }
        if self.run.tapes.len() > 1 {
            line("tapes", self.tapes());
        }
        if let Some(source) = &self.run.tape_source {
            line("tape", source.clone());
        }
        let freed = match counters.evicted_free_pages {
            0 => String::new(),
            pages => format!(", {} freed", count(pages)),
        };
        let at_random = match counters.random_victim_pages {
            0 => String::new(),
            pages => format!("; {} chosen at random, because nearly all fits", count(pages)),
        };
        line(
            "evicted",
            format!(
                "{} clean, {} dirty, {} zero pages{freed}{at_random}",
                count(counters.evicted_clean_pages),
                count(counters.evicted_dirty_pages),
                count(counters.evicted_zero_pages)
            ),
        );
        if counters.patched_pages > 0 {
            let whole = counters.evicted_dirty_pages.saturating_sub(counters.patched_pages) * PAGE_BYTES as u64;
            line(
                "written back",
                format!(
                    "{} of whole pages, {} of {} pages of which a part had changed",
                    bytes(whole),
                    bytes(counters.patched_bytes),
                    count(counters.patched_pages)
                ),
            );
        }
    }

    fn stalled(&self) -> String {
        stalled(self.stall(), self.stall_share(), self.stall_threads())
    }

    fn blocks(&self) -> String {
        let counters = &self.totals.counters;
        let [asked, pages, used] = [counters.blocks_asked, counters.block_pages, counters.block_used_pages].map(count);
        let size = self.totals.principal().map_or(0, |row| row.principal.block_size_pages) * PAGE_BYTES as u64;
        let refused = count(counters.blocks_refused_full + counters.blocks_refused_unused);
        format!(
            "{asked} asked for, {} each in the end, {refused} refused; {pages} pages with them, {used} used",
            bytes(size)
        )
    }

    /// Of the processes of a run with several tapes.
    fn tapes(&self) -> String {
        let counters = &self.totals.counters;
        let processes = counters.tape_processes + counters.tape_processes_without;
        format!("{} of {} processes followed one", count(counters.tape_processes), count(processes))
    }

    fn tape(&self) -> String {
        let counters = &self.totals.counters;
        let [pages, batches] = [counters.tape_pages, counters.tape_batches].map(count);
        if counters.tape_phases > 0 {
            let [begun, phases] = [counters.tape_phases_begun, counters.tape_phases].map(count);
            let given_up = count(counters.tape_phases_given_up);
            return format!(
                "{begun} of {phases} phases began, {given_up} given up: {pages} pages in {batches} batches"
            );
        }
        // Of those that there were, or of those that it has, where fewer came.
        let all = (counters.tape_threads + counters.tape_threads_without).max(self.run.tape_threads);
        let [followed, all] = [counters.tape_threads, all].map(count);
        let mut text = format!("{followed} of {all} threads followed it: {pages} pages in {batches} batches");
        if counters.tape_left > 0 {
            let [left, resumed] = [counters.tape_left, counters.tape_resumed].map(count);
            let principal = self.totals.principal().map(|row| row.principal).unwrap_or_default();
            let at = count(principal.tape_left_position);
            let _ = write!(text, "; left {left} times, the last time at position {at}, found again {resumed} times");
        }
        text
    }

    fn prefetched(&self) -> String {
        let (counters, figures) = (&self.totals.counters, self.prefetching());
        let [pages, hits] = [counters.prefetched_pages, counters.prefetch_hits].map(count);
        let tape = if counters.tape_batches > 0 { "the tape and " } else { "" };
        let mut text = format!("{pages} pages by {tape}{}, {hits} of them used", self.run.prefetch);
        if let (Some(accuracy), Some(coverage)) = (figures.accuracy, figures.coverage) {
            let wait = duration(Duration::from_nanos(figures.wait_p50_ns));
            let (coverage, accuracy) = (percent(coverage), percent(accuracy));
            let _ = write!(text, " ({coverage} of requests); {accuracy} of those watched were used, p50 after {wait}");
        }
        text
    }

    fn far(&self, line: &mut impl FnMut(&str, String)) {
        let (used, unused): (Vec<_>, Vec<_>) =
            self.totals.backends().iter().partition(|total| total.statistics.counters.bytes_in > 0);
        for total in used {
            line("far", far(total));
        }
        let (absent, unused): (Vec<_>, Vec<_>) = unused.into_iter().partition(|total| total.is_absent());
        for (label, totals) in [("not reached", absent), ("not needed", unused)] {
            if !totals.is_empty() {
                let urls: Vec<&str> = totals.iter().map(|total| total.statistics.url.as_str()).collect();
                line(label, urls.join(", "));
            }
        }
    }

    fn processes(&self, line: &mut impl FnMut(&str, String)) {
        let totals = self.totals;
        if totals.process_count > 1 {
            line("processes", format!("{}; counts are sums over all of them", count(totals.process_count)));
        }
        if totals.left_running > 0 {
            line("still running", format!("{}, counted up to now", count(totals.left_running)));
        }
        for found in &totals.not_managed {
            line("not managed", found.to_string());
        }
        if totals.uncounted > 0 {
            line("not counted", format!("{} processes: the table was full", count(totals.uncounted)));
        }
    }
}

/// Processes that the table names; the JSON has more.
const ROWS_MAX: usize = 10;

impl Summary<'_> {
    /// One line for each process of several, those with the most managed memory first; the rest and the sum.
    fn process_table(&self) -> String {
        let totals = self.totals;
        if totals.process_count < 2 {
            return String::new();
        }
        let mut rows: Vec<&ProcessStatistics> = totals.processes.iter().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.peak.managed_bytes), row.pid));
        let (named, rest) = rows.split_at(rows.len().min(ROWS_MAX));
        let mut out = table_row(["process", "program", "managed", "local", "major", "stalled"].map(str::to_owned));
        for row in named {
            let program = row.program.rsplit('/').next().unwrap_or_default();
            let how = if row.is_managed() { "" } else { " (not managed)" };
            out += &table_row([
                row.pid.to_string(),
                format!("{}{how}", Foreign(program)),
                bytes(row.peak.managed_bytes),
                bytes(row.peak.resident_managed_bytes),
                count(row.counters.major_faults),
                duration(Duration::from_nanos(row.counters.stall_ns)),
            ]);
        }
        let hidden = rest.len() as u64 + totals.others.count;
        if hidden > 0 {
            let mut sum = totals.others.clone();
            for row in rest {
                sum.counters.combine(&row.counters, u64::saturating_add);
                sum.peak.combine(&row.peak, u64::max);
            }
            out += &table_row([
                String::new(),
                format!("{} others, at most", count(hidden)),
                bytes(sum.peak.managed_bytes),
                bytes(sum.peak.resident_managed_bytes),
                count(sum.counters.major_faults),
                duration(Duration::from_nanos(sum.counters.stall_ns)),
            ]);
        }
        let peak = self.peak();
        out += &table_row([
            String::new(),
            "all at one time".to_owned(),
            bytes(peak.managed_bytes),
            bytes(peak.counted_local_bytes),
            count(totals.counters.major_faults),
            duration(self.stall()),
        ]);
        out
    }
}

fn table_row([process, program, managed, local, major, stalled]: [String; 6]) -> String {
    format!("  {process:>8} {program:<24} {managed:>10} {local:>10} {major:>10} {stalled:>10}\n")
}

fn far(total: &BackendTotal) -> String {
    let figures = &total.statistics;
    let mut text = format!(
        "{}{}: in {}, out {}; stored at most {} for {} pages",
        figures.url,
        if figures.maxima.encrypted != 0 { " (encrypted)" } else { "" },
        bytes(figures.counters.bytes_in),
        bytes(figures.counters.bytes_out),
        bytes(figures.peak.stored_bytes),
        count(figures.peak.pages)
    );
    if let Some(ratio) = compression_ratio([total]) {
        let _ = write!(text, ", compressed {ratio:.1}:1");
    }
    let (promoted, demoted) = (figures.counters.promoted_pages, figures.counters.demoted_pages);
    if promoted + demoted > 0 {
        let _ = write!(text, ", {} pages from lower tiers, {} to them", count(promoted), count(demoted));
    }
    if figures.counters.recompressed_pages > 0 {
        let (pages, saved) = (figures.counters.recompressed_pages, figures.counters.recompression_saved_bytes);
        let _ = write!(text, ", {} pages compressed again, which saved {}", count(pages), bytes(saved));
    }
    if hinterland_backend::names_nodes(&figures.url) && figures.maxima.capacity_bytes > 0 {
        let _ = write!(text, " of {}", bytes(figures.maxima.capacity_bytes));
    }
    let (sent, received) = (figures.counters.sent_bytes, figures.counters.received_bytes);
    if sent > 0 && sent < figures.counters.bytes_in {
        let _ = write!(text, ", over the link {} in and {} out", bytes(sent), bytes(received));
    }
    if figures.counters.losses > 0 {
        let _ = write!(text, ", lost {} times", count(figures.counters.losses));
    }
    if figures.counters.rebuilt_pages > 0 {
        let _ = write!(text, ", {} pages rebuilt there", count(figures.counters.rebuilt_pages));
    }
    if figures.counters.hedged_loads > 0 {
        let _ = write!(text, ", {} hedged loads", count(figures.counters.hedged_loads));
    }
    if figures.now.lacking_pages > 0 {
        let _ = write!(text, ", {} pages with fewer copies than wanted", count(figures.now.lacking_pages));
    }
    if figures.now.copied_pages > 0 {
        let _ = write!(text, ", {} pages a second copied at last", count(figures.now.copied_pages.div_ceil(10)));
    }
    if hinterland_backend::names_nodes(&figures.url) && figures.now.pages > 0 {
        text += if figures.now.needed == 0 { ", safe to remove: yes" } else { ", safe to remove: no" };
    }
    text
}

/// Bytes in the unit that fits them.
pub fn bytes(bytes: u64) -> String {
    ByteCount(bytes).to_string()
}

fn in_brackets(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

/// A number with its thousands apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share for people.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A duration in the unit that fits it.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_nanos() {
        0 => "0 s".into(),
        1..1_000_000 => format!("{:.1} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// What became of a service level.
fn slowdown(service: &ServiceReport) -> String {
    let beyond = if service.out_of_reach { "; --local was too low for it at times" } else { "" };
    let short = service.shortage.map_or_else(String::new, |shortage| {
        format!("; it would have needed {} when its share of the machine was {}", shortage.wanted(), shortage.share())
    });
    format!(
        "{:.2} of {} allowed; local memory {} on average, {} allowed in the end{beyond}{short}",
        service.achieved,
        service.asked,
        bytes(service.local_mean_bytes),
        bytes(service.budget_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Shortage;

    #[test]
    fn a_slowdown_that_was_not_kept_beside_others_has_what_it_would_have_needed() {
        let asked = "1.2".parse().unwrap();
        let wanted_bytes = 1434 << 20;
        let shortage = Shortage { asked, wanted_bytes, is_least: false, share_bytes: 900 << 20, others: 1 };
        let (budget_bytes, local_mean_bytes) = (900 << 20, 1 << 30);
        let service = |shortage| ServiceReport {
            asked,
            achieved: 1.3,
            budget_bytes,
            local_mean_bytes,
            out_of_reach: false,
            shortage,
        };
        let kept = "1.30 of 1.2 allowed; local memory 1 GiB on average, 900 MiB allowed in the end";
        assert_eq!(slowdown(&service(None)), kept);
        let words = "; it would have needed up to 1.4 GiB when its share of the machine was 900 MiB beside 1 other run";
        assert_eq!(slowdown(&service(Some(shortage))), format!("{kept}{words}"));
        let known = Shortage { is_least: true, others: 3, ..shortage };
        let words = "cannot keep 1.2: would need 1.4 GiB, its share is 900 MiB beside 3 other runs";
        assert_eq!(known.to_string(), words);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(duration(Duration::from_nanos(8_250)), "8.2 µs");
        assert_eq!(duration(Duration::from_millis(12)), "12.0 ms");
        assert_eq!(duration(Duration::from_secs(61)), "61.00 s");
        assert_eq!(percent(0.9312), "93.1 %");
    }
}
