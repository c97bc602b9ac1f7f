//! Takes figures out of the ledger: looks at live processes, folds dead ones into the totals and frees their rows.
//!
//! A process is over when its row says so (it ended or called exec), when it has died (`liveness`), or when it runs another
//! program than it said: one that is not managed. What it held of the budget is free then.

use super::ledger::{LauncherLedger, claim};
use super::liveness::Liveness;
use crate::process::{self, ProcessMemory};
use crate::statistics::{Counters, ProcessStatistics, Totals};
use hinterland_abi::{ProcessRow, RowState};
use nix::unistd::Pid;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Looks at all processes of the run. Returns the largest resident set that any of them has had.
///
/// `child` is the program; it counts although it may have no row, unless it is the managed program that had one and is about
/// to end: its memory is not unmanaged because nobody counts it any more.
pub fn look(ledger: &LauncherLedger, totals: &mut Totals, liveness: &mut Liveness, child: Pid) -> u64 {
    let mut rss_peak_bytes = 0;
    let mut over = Vec::new();
    let mut look = totals.look();
    let mut child_seen = false;
    let live = live_or_over(ledger, liveness, &mut over);
    liveness.keep(&live);
    for row in live {
        let mut figures = read(row, liveness);
        let seen = ProcessMemory::read(figures.pid);
        child_seen |= figures.pid == child.as_raw();
        rss_peak_bytes = rss_peak_bytes.max(seen.map_or(0, |seen| seen.rss_peak_bytes));
        look.at(&mut figures, seen.as_ref());
    }
    let image = process::image(child.as_raw());
    if child_seen {
        look.managed_image(image);
    } else if look.is_unmanaged(image)
        && let Some(seen) = ProcessMemory::read(child.as_raw())
    {
        rss_peak_bytes = rss_peak_bytes.max(seen.rss_peak_bytes);
        look.at_rowless(&seen);
    }
    look.finish();
    for (row, state) in over {
        fold(ledger, row, state, totals);
    }
    rss_peak_bytes
}

/// What live processes say of themselves.
pub fn live_rows(ledger: &LauncherLedger, liveness: &mut Liveness) -> Vec<ProcessStatistics> {
    live_or_over(ledger, liveness, &mut Vec::new()).into_iter().map(|row| read(row, liveness)).collect()
}

/// A run at one moment.
pub struct Present {
    /// What all of its processes have counted since the start. A process that has ended counts before its row is folded, too: no counter
    /// falls when one ends.
    pub counters: Counters,
    /// What those that live say of themselves.
    pub live: Vec<ProcessStatistics>,
    /// Those that have ended, and are not in the totals yet.
    pub ended: Vec<ProcessStatistics>,
}

/// Looks at the run's processes, and folds none.
pub fn present(ledger: &LauncherLedger, totals: &Totals, liveness: &mut Liveness) -> Present {
    let mut over = Vec::new();
    let live = live_or_over(ledger, liveness, &mut over);
    let mut ended: Vec<&ProcessRow> = over.into_iter().map(|(row, _)| row).collect();
    // A process that is ending has claimed its row.
    let is_ending = |row: &&ProcessRow| {
        let is_claimed = row.state.load(Acquire) == RowState::Claimed as u32 && row.pid.load(Relaxed) != 0;
        is_claimed && !live.iter().chain(&ended).any(|other| std::ptr::eq(*other, *row))
    };
    let ending: Vec<&ProcessRow> = ledger.used_rows().into_iter().filter(is_ending).collect();
    ended.extend(ending);
    let live: Vec<ProcessStatistics> = live.into_iter().map(|row| read(row, liveness)).collect();
    let ended: Vec<ProcessStatistics> = ended.into_iter().map(ProcessStatistics::read).collect();
    let mut counters = totals.counters;
    for row in live.iter().chain(&ended) {
        counters.combine(&row.counters, u64::saturating_add);
    }
    Present { counters, live, ended }
}

/// Folds the rows of processes that ended orderly. Costs no look at `/proc`, so it can come often: rows are few.
pub fn fold_ended(ledger: &LauncherLedger, totals: &mut Totals) {
    let ended = RowState::Ended as u32;
    for row in ledger.used_rows().into_iter().filter(|row| row.state.load(Acquire) == ended) {
        fold(ledger, row, ended, totals);
    }
}

/// A process has died: folds those that said nothing about it, so that others may have what they held.
pub fn look_for_dead(ledger: &LauncherLedger, totals: &mut Totals, liveness: &mut Liveness) {
    let mut over = Vec::new();
    let live = live_or_over(ledger, liveness, &mut over);
    liveness.keep(&live);
    for (row, state) in over.into_iter().filter(|(_, state)| *state != RowState::Ended as u32) {
        fold(ledger, row, state, totals);
    }
}

/// The last look, after the program has ended: what its rows say now is how it ended. Processes that run on are counted as
/// they are.
pub fn look_last(ledger: &LauncherLedger, totals: &mut Totals, liveness: &mut Liveness) {
    let mut over = Vec::new();
    let live = live_or_over(ledger, liveness, &mut over);
    let mut look = totals.look();
    for (row, _) in &over {
        let mut figures = read(row, liveness);
        let seen = ProcessMemory::read(figures.pid);
        look.at_ended(&mut figures, seen.as_ref());
    }
    for row in &live {
        let mut figures = read(row, liveness);
        let seen = ProcessMemory::read(figures.pid);
        look.at(&mut figures, seen.as_ref());
    }
    look.finish();
    totals.left_running = u64::try_from(live.len()).unwrap_or(u64::MAX);
    for (row, state) in over {
        fold(ledger, row, state, totals);
    }
    for row in live {
        totals.add(ProcessStatistics::read(row));
    }
    totals.uncounted = ledger.get().uncounted.load(Relaxed).into();
}

/// A row's figures, with its process's number in the launcher's PID namespace.
pub fn read(row: &ProcessRow, liveness: &mut Liveness) -> ProcessStatistics {
    let figures = ProcessStatistics::read(row);
    let pid = liveness.pid_of(row).unwrap_or(figures.pid);
    ProcessStatistics { pid, ..figures }
}

/// Sorts the used rows: those of live processes are returned, the others, with the state they were seen in, go to `over`.
fn live_or_over<'a>(
    ledger: &'a LauncherLedger,
    liveness: &mut Liveness,
    over: &mut Vec<(&'a ProcessRow, u32)>,
) -> Vec<&'a ProcessRow> {
    let mut live: Vec<&ProcessRow> = Vec::new();
    for row in ledger.used_rows() {
        let state = row.state.load(Acquire);
        let pid = row.pid.load(Relaxed);
        if state == RowState::Ended as u32 {
            over.push((row, state));
        } else if pid == 0 {
            // Being claimed; it has not said by whom.
        } else if !liveness.is_alive(row) || liveness.pid_of(row).is_some_and(|pid| runs_another(row, pid)) {
            over.push((row, state));
        } else if state == RowState::Live as u32 {
            live.push(row);
        }
    }
    live
}

/// Whether the process runs another program than its row says: it called exec, and the new program has taken no row.
fn runs_another(row: &ProcessRow, pid: i32) -> bool {
    let said = row.program_file.load(Relaxed);
    let known = row.state.load(Acquire) == RowState::Live as u32 && said != 0;
    known && process::program_file(pid).is_some_and(|runs| runs != said)
}

fn fold(ledger: &LauncherLedger, row: &ProcessRow, state: u32, totals: &mut Totals) {
    if claim(row, state) {
        totals.add(ProcessStatistics::read(row));
        ledger.release(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Ending, Run, Summary};
    use crate::schema::misnamed;
    use crate::statistics::UnmanagedSource;
    use hinterland_abi::bucket_of;
    use std::sync::atomic::Ordering::Release;
    use std::time::Duration;

    /// A process that is gone.
    fn dead() -> i32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        i32::try_from(child.id()).unwrap()
    }

    fn own() -> Pid {
        nix::unistd::getpid()
    }

    /// Fills a row as a managed process with `pages` pages would, half of them local.
    fn fill(row: &ProcessRow, pid: i32, pages: u64) {
        row.pid.store(pid, Relaxed);
        row.fault_path.set("monitor");
        row.program.set("/bin/job");
        row.local_budget_bytes.store(pages * 2048, Relaxed);
        for gauge in [&row.managed_bytes, &row.managed_peak_bytes] {
            gauge.store(pages * 4096, Relaxed);
        }
        for gauge in [&row.resident_managed_bytes, &row.resident_managed_peak_bytes, &row.counted_local_bytes] {
            gauge.store(pages * 2048, Relaxed);
        }
        row.unmanaged_anonymous_bytes.store(4096, Relaxed);
        row.touched_pages.store(pages, Relaxed);
        row.major_faults.store(10, Relaxed);
        row.stall_ns.store(1_000_000, Relaxed);
        row.fault_ns[bucket_of(8_000)].store(10, Relaxed);
        row.fault_max_ns.store(9_000, Relaxed);
        row.backend_count.store(1, Relaxed);
        let backend = &row.backends[0];
        backend.url.set("compressed:1G");
        for (cell, value) in [
            (&backend.bytes_in, pages * 2048),
            (&backend.stored_bytes, pages * 512),
            (&backend.stored_peak_bytes, pages * 512),
            (&backend.pages, pages / 2),
            (&backend.pages_peak, pages / 2),
        ] {
            cell.store(value, Relaxed);
        }
        row.state.store(RowState::Live as u32, Release);
    }

    fn summary(totals: &Totals) -> serde_json::Value {
        let run = Run {
            program: "job".into(),
            ending: Ending::Killed { signal: 9, core: false },
            wall: Duration::from_millis(10),
            program_wall: Duration::from_millis(10),
            processor: Duration::from_millis(10),
            kernel_rss_peak_bytes: 5 << 20,
            tree_pss_peak_bytes: 0,
            budget: None,
            budget_source: None,
            prefetch: "streams".into(),
            prefetch_source: None,
            tape_source: None,
            tapes: Vec::new(),
            tape_threads: 0,
            service: None,
            read_ahead_pages: None,
            prefetch_cache: None,
            unmanaged_because: None,
        };
        serde_json::from_str(&Summary::new(&run, totals).json()).unwrap()
    }

    #[test]
    fn counters_add_up_and_peaks_are_of_the_moment() {
        let ledger = LauncherLedger::create(false).unwrap();
        let mut totals = Totals::default();
        let rows = &ledger.get().processes;
        // Two at once, then one of them gone and a third in its row: never more than two at a time.
        fill(&rows[0], own().as_raw(), 1000);
        fill(&rows[1], own().as_raw(), 1000);
        look(&ledger, &mut totals, &mut Liveness::default(), own());
        rows[1].state.store(RowState::Ended as u32, Release);
        look(&ledger, &mut totals, &mut Liveness::default(), own());
        assert_eq!(rows[1].state.load(Relaxed), RowState::Free as u32);
        fill(&rows[1], dead(), 1000);
        look_last(&ledger, &mut totals, &mut Liveness::default());
        let json = summary(&totals);
        assert_eq!(json["managed_peak_bytes"], 2000 * 4096);
        assert_eq!(json["resident_managed_peak_bytes"], 2000 * 2048);
        assert_eq!(json["touched_pages"], 3000);
        assert_eq!(json["major_faults"], 30);
        assert_eq!(json["stall_seconds"], 0.003);
        assert!((json["stall_share"].as_f64().unwrap() - 0.3).abs() < 1e-9);
        assert_eq!(json["fault_ns"]["max"], 9000);
        assert_eq!(json["local_budget_bytes"], 1000 * 2048);
        assert_eq!(json["process_count"], 3);
        assert_eq!(json["processes_left_running"], 1);
        let backend = &json["backends"][0];
        assert_eq!((&backend["bytes_in"], &backend["pages_peak"]), (&(3000 * 2048).into(), &1000.into()));
        assert_eq!((&backend["stored_bytes"], &backend["pages"]), (&(2000 * 512).into(), &1000.into()));
        assert_eq!(json["compression_ratio"], 4.0);
        assert_eq!(json["unmanaged"]["source"], "library");
    }

    #[test]
    fn no_counter_falls_when_a_process_ends() {
        let ledger = LauncherLedger::create(false).unwrap();
        let (mut totals, mut liveness) = (Totals::default(), Liveness::default());
        let rows = &ledger.get().processes;
        fill(&rows[0], own().as_raw(), 100);
        fill(&rows[1], own().as_raw(), 100);
        let counted = |totals: &Totals, liveness: &mut Liveness| {
            let present = present(&ledger, totals, liveness);
            let loaded: u64 =
                present.ended.iter().chain(&present.live).map(|row| row.backends[0].counters.bytes_in).sum();
            let loaded = loaded + totals.traffic.of("compressed:1G").0;
            (present.counters.major_faults, present.counters.stall_ns, loaded, present.live.len())
        };
        let all = (20, 2_000_000, 200 * 2048);
        assert_eq!(counted(&totals, &mut liveness), (all.0, all.1, all.2, 2));
        // It ends, has ended, is folded.
        for state in [RowState::Claimed, RowState::Ended] {
            rows[1].state.store(state as u32, Release);
            assert_eq!(counted(&totals, &mut liveness), (all.0, all.1, all.2, 1), "{state:?}");
        }
        fold_ended(&ledger, &mut totals);
        assert_eq!(counted(&totals, &mut liveness), (all.0, all.1, all.2, 1));
        // One is killed.
        rows[0].pid.store(dead(), Relaxed);
        assert_eq!(counted(&totals, &mut liveness), (all.0, all.1, all.2, 0));
    }

    #[test]
    fn rows_of_those_that_ended_are_free_again_and_their_figures_kept() {
        let ledger = LauncherLedger::create(false).unwrap();
        let mut totals = Totals::default();
        let rows = &ledger.get().processes;
        for row in &rows[..3] {
            fill(row, dead(), 100);
            row.state.store(RowState::Ended as u32, Release);
        }
        fill(&rows[3], own().as_raw(), 100);
        fold_ended(&ledger, &mut totals);
        assert_eq!((ledger.used_rows().len(), totals.process_count), (1, 3));
        assert_eq!(totals.counters.major_faults, 30);
    }

    #[test]
    fn a_process_that_was_too_short_to_be_seen_alive_counts_fully() {
        let ledger = LauncherLedger::create(false).unwrap();
        let mut totals = Totals::default();
        fill(&ledger.get().processes[0], dead(), 500);
        look_last(&ledger, &mut totals, &mut Liveness::default());
        let json = summary(&totals);
        assert_eq!(
            (&json["fault_path"], &json["exit_code"], &json["signal"]),
            (&"monitor".into(), &137.into(), &9.into())
        );
        assert_eq!(json["managed_peak_bytes"], 500 * 4096);
        assert_eq!(json["backends"][0]["pages"], 250);
        assert_eq!(json["processes"][0]["program"], "/bin/job");
        let share = json["managed_share_of_anonymous"].as_f64().unwrap();
        assert!((share - 500.0 / 501.0).abs() < 1e-9, "{share}");
    }

    #[test]
    fn a_program_that_is_ending_has_not_become_unmanaged() {
        let ledger = LauncherLedger::create(false).unwrap();
        let mut totals = Totals::default();
        fill(&ledger.get().processes[0], own().as_raw(), 1000);
        look(&ledger, &mut totals, &mut Liveness::default(), own());
        ledger.get().processes[0].state.store(RowState::Ended as u32, Release);
        for _ in 0..3 {
            look(&ledger, &mut totals, &mut Liveness::default(), own());
        }
        assert_eq!(totals.peak.unmanaged_anonymous_bytes, 4096);
        assert_eq!(ledger.get().processes[0].state.load(Relaxed), RowState::Free as u32);
    }

    #[test]
    fn every_promised_name_is_there_even_when_nothing_happened() {
        let json = summary(&Totals::default());
        for name in [
            "exit_code",
            "fault_path",
            "wall_seconds",
            "processor_seconds",
            "local_budget_bytes",
            "managed_peak_bytes",
            "resident_managed_peak_bytes",
            "process_rss_peak_bytes",
            "touched_pages",
            "major_faults",
            "minor_faults",
            "prefetched_pages",
            "prefetch_hits",
            "prefetch_hits_observed",
            "prefetch_hits_inferred",
            "prefetched_unmapped_pages",
            "prefetch_unused_pages",
            "prefetcher",
            "stats_version",
            "prefetch_late_faults",
            "prefetch_windows",
            "prefetch_window_pages",
            "prefetch_window_pages_max",
            "prefetch_window_bound_pages",
            "load_one_ns",
            "load_page_ns",
            "prefetch_is_sparing",
            "prefetch_windows_dropped",
            "prefetch_windows_refused",
            "evicted_clean_pages",
            "evicted_dirty_pages",
            "stall_seconds",
            "process_count",
            "processes_left_running",
            "processes_uncounted",
        ] {
            let said = &json[name];
            assert!(said.is_number() || said.is_string() || said.is_boolean(), "{name}: {said}");
        }
        for name in ["p50", "p99", "max"] {
            assert_eq!(json["fault_ns"][name], 0);
        }
        assert_eq!((&json["prefetch_wait_ns"]["p50"], &json["prefetch_wait_ns"]["p99"]), (&0.into(), &0.into()));
        assert!(json["prefetch_accuracy"].is_null() && json["prefetch_coverage"].is_null());
        assert!(["backends", "processes", "threads", "regions"].iter().all(|name| json[name].is_array()));
        assert!(json["prefetcher_source"].is_null() && json["read_ahead_pages"].is_null());
        for name in ["count", "managed_peak_bytes", "touched_pages", "major_faults", "stall_seconds", "forks"] {
            assert_eq!(json["processes_others"][name].as_f64(), Some(0.0), "{name}");
        }
        assert_eq!(json["fault_path"], "none");
    }

    #[test]
    fn the_json_has_the_names_of_its_schema_and_no_others() {
        let schema = crate::reference::stats_schema();
        let ledger = LauncherLedger::create(false).unwrap();
        let mut totals = Totals::default();
        assert_eq!(misnamed("", &schema, &summary(&totals)), Vec::<String>::new());
        fill(&ledger.get().processes[0], own().as_raw(), 1000);
        look(&ledger, &mut totals, &mut Liveness::default(), own());
        look_last(&ledger, &mut totals, &mut Liveness::default());
        totals.threads.push(crate::statistics::Activity::default());
        let json = summary(&totals);
        for list in ["processes", "threads", "backends"] {
            assert!(json[list].as_array().is_some_and(|list| !list.is_empty()), "no {list}");
        }
        assert_eq!(misnamed("", &schema, &json), Vec::<String>::new());
    }

    #[test]
    fn a_program_without_a_row_is_seen_from_outside() {
        let ledger = LauncherLedger::create(false).unwrap();
        let mut totals = Totals::default();
        let rss = look(&ledger, &mut totals, &mut Liveness::default(), own());
        assert!(rss > 0);
        assert_eq!(totals.unmanaged_source, UnmanagedSource::Sampled);
        assert!(totals.peak.unmanaged_anonymous_bytes > 0);
        assert_eq!(summary(&totals)["managed_share_of_anonymous"], 0.0);
    }
}
