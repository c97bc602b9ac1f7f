//! The table of a process's statistics.

use super::declare::{figures, json_name, peak_name, statistics};
use super::{Added, Statistic, Unit};
use crate::activity::{ACTIVITIES_MAX, ActivityRow};
use crate::hint_site::{HINT_SITES_MAX, HintSiteRow};
use crate::ledger::{BACKENDS_MAX, CacheLine, Counter, MESSAGE_BYTES, MemoryLimit, Text};
use crate::statistics::backend::BackendRow;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

statistics! {
    /// The figures of one process.
    row ProcessRow;
    head {
        /// A [`RowState`](crate::RowState).
        state: AtomicU32,
        /// The process, as its PID namespace numbers it.
        pid: AtomicI32,
        /// The parent process.
        parent_pid: AtomicI32,
        /// Backends in use. Stored (release) after their rows, loaded (acquire) before them.
        backend_count: AtomicU32,
        /// 1: the process was forked from a managed one and shares pages with it copy-on-write.
        forked: AtomicU32,
        /// The tape that it follows: its number in the run's table, from 1; 0: none.
        tape: AtomicU32,
        /// When the row was taken (`CLOCK_BOOTTIME`, in nanoseconds): a process that started later is not its owner.
        taken_ns: Counter,
        /// Processor time of the program's threads since the process began, in nanoseconds, told when it ended in order; 0: not known.
        worked_ns: Counter,
        /// The program's file ([`file_id`](crate::file_id)); 0: not known.
        program_file: Counter,
        /// The PID namespace (its inode); 0: not known.
        pid_namespace: Counter,
        /// Store and tables in bytes, of which those of processes that share them since a fork count in each by its part only.
        counted_beside_bytes: Counter,
        /// The limit on address space (`RLIMIT_AS`) that the program set.
        address_space_limit: MemoryLimit,
        /// The limit on private writable memory (`RLIMIT_DATA`) that the program set.
        data_limit: MemoryLimit,
        /// The program's path.
        program: Text,
        /// `monitor` or `inline`; empty when the process is not managed.
        fault_path: Text,
        /// Why the fault path was chosen, or why the process is not managed.
        reason: Text,
        /// Why paths to far memory are not yet those that were commanded; empty: they are, or are about to be.
        path_obstacle: Text,
        /// What ended the program, when Hinterland did.
        fatal: Text<MESSAGE_BYTES>,
    }
    group memory = "From here on: memory, of the thread that looks at it." {
        gauges {
            managed_bytes (managed_peak_bytes): Bytes => "managed_peak_bytes" = "Managed memory: pages with content, wherever they are.";
            resident_managed_bytes (resident_managed_peak_bytes): Bytes => "processes[].resident_managed_peak_bytes" = "Local pages of a process: mapped, staging and swap cache.";
            counted_local_bytes: Bytes => "resident_managed_peak_bytes" = "Local pages, of which one that `n` processes share since a fork counts `1/n` in each.";
            metadata_bytes (metadata_peak_bytes): Bytes => "metadata_peak_bytes" = "The pager's own tables.";
            unmanaged_anonymous_bytes: Bytes => "unmanaged.anonymous_bytes" = "The program's anonymous memory that is not managed, stacks included, when last looked at.";
            unmanaged_stack_bytes: Bytes => "unmanaged.stack_bytes" = "Of that, stacks.";
            own_bytes: Bytes => "unmanaged.own_bytes" = "Beside that, Hinterland's own: store, tables, staging.";
            file_bytes: Bytes => "unmanaged.file_bytes" = "File mappings that are resident.";
            shared_bytes: Bytes => "unmanaged.shared_bytes" = "Shared mappings that are resident.";
        }
        peaks {
            total_ram_bytes (total_ram_peak_bytes): Bytes => "total_ram_peak_bytes" = "Local pages, store and tables together.";
        }
        maxima {
            local_budget_bytes: Bytes = "Local budget of the whole run.";
            beyond_far_range_bytes: Bytes = "The largest mapping that the far range has no room for: it is the kernel's, and not managed.";
        }
        own {
            share_bytes: Bytes => "processes[].share_bytes" = "What the process may hold of the run's local budget, when last looked at.";
        }
    }
    group faults = "From here on: counters of the threads that serve faults." {
        sums {
            touched_pages: Pages = "Pages touched for the first time; one that was discarded and is touched again counts again.";
            major_faults: Faults = "Faults that waited for far memory.";
            minor_faults: Faults = "Faults served from the swap cache.";
            first_touch_faults: Faults = "Faults on pages without content.";
            spurious_faults: Faults = "Faults that found their page mapped by another thread.";
            prefetch_hits: Pages = "Prefetched pages that were used, observed and inferred.";
            prefetch_hits_observed: Pages = "Of those, observed: first uses of prefetched pages that were left unmapped.";
            prefetch_late_faults: Faults = "Faults that waited for a page whose prefetch was under way.";
            prefetch_long_late_faults: Faults = "Of those, faults that took longer than 2 µs; with a monitor all, because the thread is woken by the kernel.";
            prefetch_windows: Windows = "Windows that the prefetcher requested from far memory.";
            prefetch_window_pages: Pages = "Pages of those windows, wherever they were.";
            prefetch_windows_dropped: Windows = "Windows that were dropped because too many others came after them.";
            intervals: Events = "Intervals between hinterland_begin() and hinterland_end() that were recorded, or in which tapes were followed.";
            tape_processes: Events = "Processes that followed a tape.";
            tape_processes_without: Events = "Processes of a run with tapes that followed none, because there was none for them; a forked child that calls exec counts as the program that it becomes.";
            tape_threads: Events = "Threads that followed a tape.";
            tape_threads_without: Events = "Threads of the program that followed one for which there was none.";
            tape_batches: Events = "Batches that tapes requested.";
            tape_pages: Pages = "Pages of those batches.";
            tape_left: Events = "Times that a thread left its tape.";
            tape_resumed: Events = "Times that a thread was found on its tape again.";
            tape_beside_faults: Faults = "Major faults of threads on their tapes for pages that their tapes do not have there.";
            tape_early_faults: Faults = "Major faults of threads on their tapes for pages that the plan has in local memory: they were evicted early.";
            tape_phases: Events = "Phases of an unordered tape that was followed.";
            tape_phases_begun: Events = "Of those, phases that have begun.";
            tape_phases_given_up: Events = "Of those, phases that were given up: the program touched other pages, or used few of theirs.";
            hint_fetched_pages: Pages = "Far pages that were fetched because hints name them.";
            hint_used_pages: Pages = "Of those, used: observed and inferred.";
            hint_unused_pages: Pages = "Of those, left unused: observed and inferred.";
            hint_refused_pages: Pages = "Pages that were not fetched because most pages that their place hints are not used.";
            hints_dropped: Events = "Hints that were dropped because too many others waited.";
            hint_kept_pages: Pages = "Pages that hints asked to be kept, and that were.";
            hint_loops: Events = "Runs of compiled loops that fetched ahead.";
            hint_plain_loops: Events = "Runs of such loops for which nothing was far.";
            hint_phases: Events = "Phases that the program said begin.";
            blocks_asked: Events = "Blocks that were requested around pages that the program waited for.";
            block_pages: Pages = "Pages that came with them.";
            block_used_pages: Pages = "Of those, used.";
            block_faults: Faults = "Faults that waited for a block instead of the page alone; those that waited for the page are major faults.";
            block_page_first: Pages = "Pages that were requested alone although their block was requested and not sent.";
            blocks_refused_full: Events = "Blocks that were not requested because those in flight filled their room.";
            blocks_refused_unused: Events = "Blocks that were not requested because too few pages were used of those that came with the last ones near them.";
            direct_reclaims: Faults = "Faults that reclaimed memory themselves.";
            stall_ns: Seconds => "stall_seconds" = "Time that threads of the program waited for faults, summed over threads.";
            forks: Events = "Forks of managed processes.";
            feature_references: Pages = "Pages that requests stand for: those that were requested, and those that the program has passed since the last request of their stream, because they had been prefetched.";
            feature_sequential: Pages = "Of those, pages that continue a stream by one page.";
            feature_strided: Pages = "Of those, pages that continue a stream by the same step of several pages.";
            feature_window_pages: Pages = "Different pages of those, in windows of 65,536, in areas of 2 MiB that are sampled.";
            feature_fragment_pages: Pages = "Of those, pages in contiguous runs of fewer than 16.";
        }
        maxima {
            prefetch_window_pages_max: Pages = "Pages of the largest window.";
            feature_run_pages_max: Pages = "Pages of the longest sequential run that requests stand for.";
            fault_max_ns: Nanoseconds => "fault_ns.max" = "Longest fault.";
        }
        principal {
            tape_left_position: Events = "Where a thread left its tape the last time: the position on it.";
            tape_left_page: Events = "The page that it requested there: its number in far memory.";
            block_size_pages: Pages = "Pages of a block in the end; 0: none could be asked for.";
            prefetch_window_bound_pages: Pages = "The bound on windows in the end, where it follows the link; 0: it does not.";
            load_one_ns: Nanoseconds = "A load of one page, where it is measured for that bound; 0: it is not.";
            load_page_ns: Nanoseconds = "Each further page of a load.";
            prefetch_is_sparing: Flag = "Pages of runs are fetched only where most of them are used: a load is quick and processors are few.";
        }
    }
    group evictions = "From here on: counters of the threads that evict and read ahead." {
        sums {
            prefetched_pages: Pages = "Pages loaded before the program asked for them.";
            prefetched_unmapped_pages: Pages = "Of those, left unmapped, so that their use is observed.";
            prefetch_unused_pages: Pages = "Of those, evicted before they were used.";
            prefetch_windows_refused: Windows = "Windows and blocks that were dropped, and parts of batches that were put off, because no frames were free for them.";
            evicted_clean_pages: Pages = "Pages dropped because the stored copy was still right.";
            evicted_dirty_pages: Pages = "Pages written to a backend.";
            patched_pages: Pages = "Of those, pages of which only what had changed was written, over the copy at a memory node.";
            patched_bytes: Bytes = "Bytes of these that were written.";
            evicted_zero_pages: Pages = "Pages dropped because they were all zero.";
            evicted_free_pages: Pages = "Pages dropped because the heap had freed them: they were neither compressed nor stored.";
            random_victim_pages: Pages = "Victims that the policy chose at random, because nearly all of the program's pages fit into local memory.";
            dropped_copies: Pages = "Stored copies of local pages that were dropped because room was short.";
            hint_evicted_pages: Pages = "Victims that hints named.";
            hint_overwritten_pages: Pages = "Far pages that were not fetched because their thread had said that it overwrites them.";
            putback_pages: Pages = "Victims that could not be evicted (pinned, or written to meanwhile) and went back to the policy.";
            moved_out_pages: Pages = "Pages taken out of the program by UFFDIO_MOVE, or by write-protect and copy.";
            copied_out_pages: Pages = "Pages evicted by write-protect, copy and drop.";
            sampled_loads: Pages = "Loads of pages that are sampled, by which loads in larger local memory are estimated.";
            spared_loads_125: Pages = "Of those, loads that 125 % of the local memory would have spared.";
            spared_loads_150: Pages = "The same of 150 %.";
            spared_loads_200: Pages = "The same of 200 %.";
            spared_loads_400: Pages = "The same of 400 %.";
        }
    }
    group histograms = "From here on: the histograms, of the threads that serve faults again." {
        histograms {
            fault_ns: Nanoseconds = "Fault service times (monitor: from reading the fault to waking the thread).";
            prefetch_wait_ns: Nanoseconds = "Times from a page's prefetch to its first use, where that is observed.";
        }
    }
    tail {
        /// The busiest threads.
        threads: [ActivityRow; ACTIVITIES_MAX],
        /// The busiest regions.
        regions: [ActivityRow; ACTIVITIES_MAX],
        /// Places of the program that give hints.
        hint_sites: [HintSiteRow; HINT_SITES_MAX],
        /// One row for each backend.
        backends: [BackendRow; BACKENDS_MAX],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_serve_faults_and_threads_that_evict_share_no_cache_line() {
        let bounds: Vec<(usize, usize)> =
            GROUPS.iter().map(|(begin, words)| (*begin, words.iter().max().unwrap() + 8)).collect();
        for (index, (begin, end)) in bounds.iter().enumerate() {
            assert!(begin % 64 == 0 && GROUPS[index].1.iter().all(|word| word >= begin), "group {index}");
            assert!(bounds.get(index + 1).is_none_or(|(next, _)| end <= next), "group {index}");
        }
        let line = |offset: usize| offset / 64;
        assert_ne!(
            line(std::mem::offset_of!(ProcessRow, major_faults)),
            line(std::mem::offset_of!(ProcessRow, prefetched_pages))
        );
        assert!(std::mem::offset_of!(ProcessRow, evicted_dirty_pages) > std::mem::offset_of!(ProcessRow, evictions));
        assert!(std::mem::offset_of!(ProcessRow, stall_ns) < std::mem::offset_of!(ProcessRow, evictions));
    }

    #[test]
    fn each_field_is_read_into_its_own_figure_and_added_as_the_table_says() {
        // SAFETY: a row consists of atomics, which are valid when zero.
        let row = unsafe { Box::<ProcessRow>::new_zeroed().assume_init() };
        row.major_faults.store(3, Relaxed);
        row.putback_pages.store(5, Relaxed);
        row.managed_bytes.store(7, Relaxed);
        row.managed_peak_bytes.store(11, Relaxed);
        row.total_ram_peak_bytes.store(13, Relaxed);
        row.fault_max_ns.store(17, Relaxed);
        row.load_page_ns.store(19, Relaxed);
        row.share_bytes.store(23, Relaxed);
        row.fault_ns[2].store(29, Relaxed);
        let counters = Counters { major_faults: 3, putback_pages: 5, ..Counters::default() };
        assert_eq!(row.counters(), counters);
        assert_eq!(row.gauges(), Gauges { managed_bytes: 7, ..Gauges::default() });
        assert_eq!(row.peaks(), Gauges { managed_bytes: 11, total_ram_bytes: 13, ..Gauges::default() });
        assert_eq!((row.maxima().fault_max_ns, row.principal().load_page_ns, row.own().share_bytes), (17, 19, 23));
        let (mut sum, mut histograms) = (counters, row.histograms());
        sum.combine(&counters, u64::saturating_add);
        histograms.add(&row.histograms());
        assert_eq!((sum.major_faults, sum.putback_pages, histograms.fault_ns[2]), (6, 10, 58));
        let figure = |name| counters.figures().into_iter().find(|(statistic, _)| statistic.name == name).unwrap();
        let (statistic, value) = figure("putback_pages");
        assert_eq!(
            (value, statistic.json, statistic.unit, statistic.added),
            (5, "putback_pages", Unit::Pages, Added::Sum)
        );
        assert_eq!(figure("stall_ns").0.json, "stall_seconds");
    }
}
