//! The ledger: one shared-memory segment for each `hinterland run`, made by the launcher, mapped by every managed process.
//!
//! Counters live here and nowhere else, so they survive a program that closes stderr, crashes or is killed. All fields are
//! atomics; a row has one writer process and any number of readers. Everything is zero when the segment is made.
//!
//! Beside the rows stands what the processes share: how much of the run's budget each of them holds. These words lie close
//! together, because a process that wants more adds them all up.

use crate::activity::{ACTIVITIES_MAX, ActivityRow};
use crate::roster::{ROSTERS_MAX, Roster};
use std::fmt;
use std::sync::atomic::{
    AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release,
};

/// First word of a ledger.
pub const LEDGER_MAGIC: u64 = u64::from_le_bytes(*b"hinterld");
/// Layout version: a launcher and a library of different versions refuse each other.
pub const LEDGER_VERSION: u64 = 8;
/// Rows for processes. A row takes memory once somebody has used it.
pub const PROCESSES_MAX: usize = 1024;
/// Rows for backends in one process.
pub const BACKENDS_MAX: usize = 12;
/// Bytes in a text field.
pub const TEXT_BYTES: usize = 256;
/// Buckets of a fault-latency histogram: 8 per power of two, up to 2^40 ns.
pub const FAULT_BUCKETS: usize = 40 * 8;

/// A counter or gauge.
pub type Counter = AtomicU64;

/// The bucket of a duration: 8 linear steps in each power of two, so a bucket's width is at most 1/8 of its value.
#[inline]
pub fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(8);
    let power = 63 - ns.leading_zeros() as usize;
    let step = ((ns >> (power - 3)) & 7) as usize;
    (power * 8 + step).min(FAULT_BUCKETS - 1)
}

/// The largest duration in `bucket`, in nanoseconds.
pub fn bucket_upper_ns(bucket: usize) -> u64 {
    let (power, step) = (bucket / 8, (bucket % 8) as u64);
    if power < 3 { 8 } else { (1u64 << power) + ((step + 1) << (power - 3)) - 1 }
}

/// Text of at most 255 bytes; longer text is cut.
#[repr(C)]
pub struct Text([AtomicU8; TEXT_BYTES]);

impl Text {
    /// Replaces the text.
    pub fn set(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(TEXT_BYTES - 1)];
        for (cell, byte) in self.0.iter().zip(bytes.iter().chain(std::iter::once(&0))) {
            cell.store(*byte, Relaxed);
        }
    }

    /// The text; bytes that are not UTF-8 are replaced.
    pub fn get(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().map(|cell| cell.load(Relaxed)).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// One number for a file's device and inode.
pub fn file_id(device: u64, inode: u64) -> u64 {
    device.rotate_left(40) ^ inode
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

/// What a row says of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RowState {
    /// Nobody's.
    Free = 0,
    /// A process is taking or folding it.
    Claimed = 1,
    /// A process runs (or was killed without a word: look at `pid`).
    Live = 2,
    /// The process ended orderly or called exec; its figures stand.
    Ended = 3,
}

/// The figures of one backend of one process.
#[repr(C)]
pub struct BackendRow {
    /// As the user wrote it.
    pub url: Text,
    /// Uncompressed bytes stored.
    pub bytes_in: Counter,
    /// Uncompressed bytes loaded.
    pub bytes_out: Counter,
    /// Bytes that stored pages occupy now.
    pub stored_bytes: Counter,
    /// The most that `stored_bytes` has been.
    pub stored_peak_bytes: Counter,
    /// Pages stored now.
    pub pages: Counter,
    /// The most that `pages` has been.
    pub pages_peak: Counter,
    /// RAM that it occupies now.
    pub ram_bytes: Counter,
    /// The most that `ram_bytes` has been.
    pub ram_peak_bytes: Counter,
    /// Same-filled pages stored now.
    pub same_filled_pages: Counter,
    /// Uncompressed pages stored now.
    pub plain_pages: Counter,
    /// Bytes that may be stored at most; 0 while a memory node is lost.
    pub capacity_bytes: Counter,
    /// How often a memory node was lost.
    pub losses: Counter,
    /// Pages copied to a memory node in place of lost replicas.
    pub rebuilt_pages: Counter,
    /// Loads for which another memory node was asked, too, because this one was late.
    pub hedged_loads: Counter,
    /// 1 when it gets to see encrypted pages only.
    pub encrypted: Counter,
}

/// Begins a cache line: counters of different threads that share a line cost each of them a cache miss for each count.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CacheLine;

/// The figures of one process.
#[repr(C)]
pub struct ProcessRow {
    /// A [`RowState`].
    pub state: AtomicU32,
    /// The process.
    pub pid: AtomicI32,
    /// The parent process.
    pub parent_pid: AtomicI32,
    /// Backends in use. Stored (release) after their rows, loaded (acquire) before them.
    pub backend_count: AtomicU32,
    /// 1: the process was forked from a managed one and shares pages with it copy-on-write.
    pub forked: AtomicU32,
    /// Keeps the words after it aligned.
    pub reserved: AtomicU32,
    /// When the row was taken (`CLOCK_BOOTTIME`, in nanoseconds): a process that started later is not its owner.
    pub taken_ns: Counter,
    /// The program's file ([`file_id`]); 0: not known.
    pub program_file: Counter,
    /// The program's path.
    pub program: Text,
    /// `monitor`, or empty when the process is not managed.
    pub fault_path: Text,
    /// Why the fault path was chosen, or why the process is not managed.
    pub reason: Text,
    /// What ended the program, when Hinterland did.
    pub fatal: Text,

    /// Local budget of the whole run now, in bytes.
    pub local_budget_bytes: Counter,
    /// Managed bytes now: pages with content, wherever they are.
    pub managed_bytes: Counter,
    /// The most that `managed_bytes` has been.
    pub managed_peak_bytes: Counter,
    /// Local pages now: mapped, staging and swap cache, in bytes.
    pub resident_managed_bytes: Counter,
    /// Of those, what this process counts: a page that `n` processes share since a fork counts `1/n` in each.
    pub counted_local_bytes: Counter,
    /// What the process may count of the run's budget now, in bytes.
    pub share_bytes: Counter,
    /// The most that `resident_managed_bytes` has been.
    pub resident_managed_peak_bytes: Counter,
    /// Bytes of the pager's own tables now.
    pub metadata_bytes: Counter,
    /// The most that `metadata_bytes` has been.
    pub metadata_peak_bytes: Counter,
    /// The most that local + store + metadata has been.
    pub total_ram_peak_bytes: Counter,
    /// The process's anonymous memory that is not managed, when last looked at (smaps), in bytes.
    pub unmanaged_anonymous_bytes: Counter,
    /// Of that, stacks.
    pub unmanaged_stack_bytes: Counter,
    /// Beside that, Hinterland's own: store, tables, staging.
    pub own_bytes: Counter,
    /// File mappings resident when last looked at.
    pub file_bytes: Counter,
    /// Shared mappings resident when last looked at.
    pub shared_bytes: Counter,

    /// From here on: counters of the threads that serve faults.
    pub faults_begin: CacheLine,
    /// Pages touched for the first time (a page discarded and touched again counts again).
    pub touched_pages: Counter,
    /// Faults that waited for far memory.
    pub major_faults: Counter,
    /// Faults served from the swap cache.
    pub minor_faults: Counter,
    /// Faults on pages without content.
    pub first_touch_faults: Counter,
    /// Faults that found their page already mapped by somebody else.
    pub spurious_faults: Counter,
    /// Prefetched pages that were used: seen, or inferred for pages mapped ahead when the key page of their window was used.
    pub prefetch_hits: Counter,
    /// Of those, seen: first uses of prefetched pages that waited unmapped.
    pub prefetch_hits_observed: Counter,
    /// Faults that waited for a page which was on its way ahead of the program.
    pub prefetch_late_faults: Counter,
    /// Windows that the prefetcher asked for in far memory.
    pub prefetch_windows: Counter,
    /// Pages in them, wherever these were.
    pub prefetch_window_pages: Counter,
    /// Pages of the largest.
    pub prefetch_window_pages_max: Counter,
    /// The bound on them now, where it follows the link; 0: it does not.
    pub prefetch_window_bound_pages: Counter,
    /// A load of one page, in nanoseconds, where it is measured for that bound; 0: not known yet.
    pub load_one_ns: Counter,
    /// Each further page of a load.
    pub load_page_ns: Counter,
    /// Windows that were dropped because too many others came after them.
    pub prefetch_windows_dropped: Counter,
    /// Faults that had to reclaim memory themselves.
    pub direct_reclaims: Counter,
    /// Time that threads of the program waited for faults, in nanoseconds, summed over threads.
    pub stall_ns: Counter,
    /// Longest fault.
    pub fault_max_ns: Counter,
    /// Forks seen.
    pub forks: Counter,
    /// From here on: counters of the threads that evict and read ahead.
    pub evictions_begin: CacheLine,
    /// Pages brought in ahead of the program.
    pub prefetched_pages: Counter,
    /// Of those, left unmapped, so that their use is seen.
    pub prefetched_unmapped_pages: Counter,
    /// Of those, given up before they were used.
    pub prefetch_unused_pages: Counter,
    /// Windows that were given up because no frames were free for them.
    pub prefetch_windows_refused: Counter,
    /// Pages dropped because the stored copy was still right.
    pub evicted_clean_pages: Counter,
    /// Pages written to a backend.
    pub evicted_dirty_pages: Counter,
    /// Pages dropped because they were all zero.
    pub evicted_zero_pages: Counter,
    /// Victims that could not leave.
    pub kept_pages: Counter,
    /// Pages moved out by MOVE, by write-protect and copy.
    pub moved_out_pages: Counter,
    /// Pages that left through the write-protect, copy and drop way.
    pub copied_out_pages: Counter,
    /// From here on: the histogram, of the threads that serve faults again.
    pub histogram_begin: CacheLine,
    /// Histogram of fault service times (monitor: from reading the fault to waking the thread), by [`bucket_of`].
    pub fault_ns: [Counter; FAULT_BUCKETS],
    /// Histogram of the times from a page's arrival ahead of the program to its first use, where that is seen.
    pub prefetch_wait_ns: [Counter; FAULT_BUCKETS],
    /// The busiest threads.
    pub threads: [ActivityRow; ACTIVITIES_MAX],
    /// The busiest regions.
    pub regions: [ActivityRow; ACTIVITIES_MAX],
    /// One row for each backend.
    pub backends: [BackendRow; BACKENDS_MAX],
}

/// What one process holds and wants of the budget of its run. All zero: nobody's. A cache line each, because one process
/// writes it often.
#[repr(C, align(64))]
pub struct Share {
    /// The process; 0: it does not count.
    pub pid: AtomicI32,
    /// The process from which all that share pages by forks descend; 0: it shares none.
    pub fork_group: AtomicI32,
    /// Local bytes that it may hold, or holds although it may not. The sum over all processes is what the run holds at most.
    pub granted_bytes: Counter,
    /// Local bytes that it could use.
    pub wanted_bytes: Counter,
    /// The most that it has touched, pages inherited by a fork left out unless nobody else counts them.
    pub touched_bytes: Counter,
    /// RAM beside local memory: store and tables.
    pub beside_bytes: Counter,
}

impl Share {
    /// Gives everything back.
    pub fn clear(&self) {
        self.pid.store(0, Relaxed);
        self.fork_group.store(0, Relaxed);
        for counter in [&self.granted_bytes, &self.wanted_bytes, &self.touched_bytes, &self.beside_bytes] {
            counter.store(0, Relaxed);
        }
    }
}

/// What the traced process of a run says of its trace.
#[repr(C)]
pub struct TraceRow {
    /// The process: the first that was managed; 0: none yet. It stays the traced one when it calls exec.
    pub pid: AtomicI32,
    /// 1: the trace was closed.
    pub closed: AtomicU32,
    /// References that were recorded.
    pub references: Counter,
    /// Microsets that are whole.
    pub microsets: Counter,
    /// Bytes that were written.
    pub bytes: Counter,
    /// Why recording stopped before the program did; empty when it did not.
    pub trouble: Text,
}

/// The segment.
#[repr(C)]
pub struct Ledger {
    /// [`LEDGER_MAGIC`].
    pub magic: AtomicU64,
    /// [`LEDGER_VERSION`].
    pub version: AtomicU64,
    /// The launcher.
    pub launcher_pid: AtomicI32,
    /// Processes that found no free row and run uncounted.
    pub uncounted: AtomicU32,
    /// 1: a program that cannot be managed runs all the same.
    pub unmanaged_allowed: AtomicU32,
    /// No share from here on has ever been used.
    pub shares_used: AtomicU32,
    /// The trace, where one is recorded.
    pub trace: TraceRow,
    /// The nodes of pools that are kept in directories.
    pub rosters: [Roster; ROSTERS_MAX],
    /// The share of each row's process.
    pub shares: [Share; PROCESSES_MAX],
    /// Rows.
    pub processes: [ProcessRow; PROCESSES_MAX],
}

impl Ledger {
    /// The shares of live processes.
    pub fn shares_in_use(&self) -> impl Iterator<Item = &Share> + Clone {
        let used = self.shares_used.load(Relaxed) as usize;
        self.shares.iter().take(used).filter(|share| share.pid.load(Relaxed) != 0)
    }

    /// The share that belongs to a row; `None` when the row is not of this ledger.
    pub fn share_of(&self, row: &ProcessRow) -> Option<&Share> {
        let offset = std::ptr::from_ref(row).addr().wrapping_sub(self.processes.as_ptr().addr());
        self.shares.get(offset / size_of::<ProcessRow>())
    }

    /// The share becomes that of process `pid`, which holds nothing yet.
    pub fn open_share(&self, index: usize, pid: i32) {
        let end = u32::try_from(index + 1).unwrap_or(0);
        self.shares_used.fetch_max(end, Relaxed);
        self.shares[index].pid.store(pid, Relaxed);
    }

    /// Ends the row of process `pid`: its figures stand, and what it held of the budget is free at once. Nothing happens when
    /// the row is not that process's any more.
    pub fn end_row(&self, row: &ProcessRow, pid: i32) {
        let (live, claimed) = (RowState::Live as u32, RowState::Claimed as u32);
        if row.state.compare_exchange(live, claimed, AcqRel, Relaxed).is_err() {
            return;
        }
        let owned = row.pid.load(Relaxed) == pid;
        if let Some(share) = self.share_of(row).filter(|_| owned) {
            share.clear();
        }
        row.state.store(if owned { RowState::Ended as u32 } else { live }, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_ordered_and_bound_their_values() {
        let mut previous = 0;
        for ns in (0..2_000_000u64).step_by(37).chain([1 << 30, 1 << 39]) {
            let bucket = bucket_of(ns);
            assert!(bucket >= previous, "{ns}");
            assert!(bucket_upper_ns(bucket) >= ns, "{ns}");
            assert!(bucket_upper_ns(bucket) <= ns.max(8) + ns / 8 + 1, "{ns}");
            previous = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), FAULT_BUCKETS - 1);
    }

    #[test]
    fn only_its_owner_ends_a_row_and_gives_its_share_back() {
        // SAFETY: a ledger consists of atomics, which are valid when zero.
        let ledger = unsafe { Box::<Ledger>::new_zeroed().assume_init() };
        let row = &ledger.processes[3];
        row.pid.store(7, Relaxed);
        row.state.store(RowState::Live as u32, Relaxed);
        ledger.open_share(3, 7);
        ledger.shares[3].granted_bytes.store(1 << 20, Relaxed);
        assert_eq!(ledger.shares_in_use().count(), 1);
        ledger.end_row(row, 8);
        assert_eq!((row.state.load(Relaxed), ledger.shares_in_use().count()), (RowState::Live as u32, 1));
        ledger.end_row(row, 7);
        assert_eq!((row.state.load(Relaxed), ledger.shares_in_use().count()), (RowState::Ended as u32, 0));
        assert_eq!(ledger.shares[3].granted_bytes.load(Relaxed), 0);
        // SAFETY: as above.
        let private = unsafe { Box::<ProcessRow>::new_zeroed().assume_init() };
        assert!(ledger.share_of(&private).is_none());
        assert!(std::ptr::eq(ledger.share_of(row).unwrap(), &raw const ledger.shares[3]));
    }

    #[test]
    fn long_text_is_cut_and_short_text_replaces_it() {
        let text = Text(std::array::from_fn(|_| AtomicU8::new(0)));
        text.set(&"x".repeat(1000));
        assert_eq!(text.get().len(), TEXT_BYTES - 1);
        text.set("short");
        assert_eq!(text.get(), "short");
    }
}
