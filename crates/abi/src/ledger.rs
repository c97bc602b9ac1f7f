//! The ledger: one shared-memory segment for each `hinterland run`, made by the launcher, mapped by every managed process.
//!
//! Counters live here and nowhere else, so they survive a program that closes stderr, crashes or is killed. All fields are
//! atomics; a row has one writer process and any number of readers. Everything is zero when the segment is made.
//!
//! Beside the rows stands what the processes share: how much of the run's budget each of them holds. These words lie close
//! together, because a process that wants more adds them all up.

use crate::commands::Commands;
use crate::pin_requests::PinRequests;
use crate::roster::{ROSTERS_MAX, Roster};
use crate::run_link::{RUN_LINKS_MAX, RunLink};
use crate::statistics::process::ProcessRow;
use crate::tapes::TapeTable;
use hinterland_units::cut;
use std::fmt;
use std::sync::atomic::{
    AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

/// First word of a ledger.
pub const LEDGER_MAGIC: u64 = u64::from_le_bytes(*b"hinterld");
/// Layout version: a launcher and a library of different versions refuse each other.
pub const LEDGER_VERSION: u64 = 25;

/// Words of a set of processors, 64 in each.
pub const PROCESSOR_WORDS: usize = 16;
/// Rows for processes. A row takes memory once a process has used it.
pub const PROCESSES_MAX: usize = 1024;
/// Rows for backends in one process: one for each path that may be open or was, and for each node of six pools. There are no more in the figures.
pub const BACKENDS_MAX: usize = 64;
/// Bytes in a text field.
pub const TEXT_BYTES: usize = 256;
/// Bytes in the field for the last message of a process: a reason with names, addresses and a node's own words.
pub const MESSAGE_BYTES: usize = 2048;
/// Traces that a run may have, where it has one for each process.
pub const TRACES_MAX: u32 = 4096;
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

/// Text of at most one byte less than the field has; longer text is cut after a character, and ends with `…` then.
#[repr(C)]
pub struct Text<const BYTES: usize = TEXT_BYTES>([AtomicU8; BYTES]);

impl<const BYTES: usize> Text<BYTES> {
    /// Replaces the text.
    pub fn set(&self, text: &str) {
        let text = cut(text, BYTES - 1);
        for (cell, byte) in self.0.iter().zip(text.bytes().chain(std::iter::once(0))) {
            cell.store(byte, Relaxed);
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

impl<const BYTES: usize> fmt::Debug for Text<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

/// Private writable memory (`RLIMIT_DATA`) that a program needs beside its own where that is limited: what of the tables is writable before it
/// touches any memory, what its faults are served with, and what is kept for the pager (decision 0114).
pub const DATA_BYTES_NEEDED: u64 = 256 << 20;

/// A limit on memory that a program set for itself (setrlimit(2)) and the library keeps in the kernel's place. All zero: there is none.
#[repr(C)]
#[derive(Debug, Default)]
pub struct MemoryLimit {
    /// Their complements: without a limit both are zero.
    soft: AtomicU64,
    hard: AtomicU64,
}

impl MemoryLimit {
    /// The soft and the hard limit in bytes, `u64::MAX` for none.
    pub fn get(&self) -> [u64; 2] {
        [!self.soft.load(Relaxed), !self.hard.load(Relaxed)]
    }

    /// Replaces them.
    pub fn set(&self, [soft, hard]: [u64; 2]) {
        self.soft.store(!soft, Relaxed);
        self.hard.store(!hard, Relaxed);
    }
}

/// What a row says of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RowState {
    /// No process has it.
    Free = 0,
    /// A process is taking or folding it.
    Claimed = 1,
    /// A process runs (or was killed without a word: look at `pid`).
    Live = 2,
    /// The process ended in order or called exec; its figures stand.
    Ended = 3,
}

/// Begins a cache line: counters of different threads that share a line cost each of them a cache miss for each count.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CacheLine;

/// What one process holds and wants of the budget of its run. All zero: it is free. A cache line each, because one process
/// writes it often.
#[repr(C, align(64))]
pub struct Share {
    /// The process, as its PID namespace numbers it; 0: it does not count.
    pub pid: AtomicI32,
    /// The process from which all that share pages by forks descend; 0: it shares none.
    pub fork_group: AtomicI32,
    /// Local bytes that it may hold, or holds although it may not. The sum over all processes is what the run holds at most.
    pub granted_bytes: Counter,
    /// Local bytes that it could use.
    pub wanted_bytes: Counter,
    /// RAM beside local memory: store and tables.
    pub beside_bytes: Counter,
    /// The PID namespace (its inode); 0: not known.
    pub pid_namespace: Counter,
    /// The number of the newest command that is carried out (`commands`), and in the upper half the process that says so: a share is another
    /// process's at once when one has ended, whose evictor may still write.
    acknowledged: Counter,
    /// 1: its evictor runs, which acknowledges commands. 0: it holds so little that nothing has to be evicted whatever the budget.
    pub evicts: AtomicU32,
    /// Children that it has forked, or was about to, and that have no share yet.
    pub children_due: AtomicU32,
}

/// A command's number, and the process that has carried it out.
fn acknowledgement(pid: i32, number: u64) -> u64 {
    u64::from(pid.cast_unsigned()) << 32 | number.min(u32::MAX.into())
}

impl Share {
    /// Gives everything back.
    pub fn clear(&self) {
        self.pid.store(0, Relaxed);
        self.fork_group.store(0, Relaxed);
        self.evicts.store(0, Relaxed);
        self.children_due.store(0, Relaxed);
        let held = [&self.granted_bytes, &self.wanted_bytes, &self.beside_bytes];
        for counter in held.into_iter().chain([&self.pid_namespace, &self.acknowledged]) {
            counter.store(0, Relaxed);
        }
    }

    /// Process `pid` has carried out the commands up to `number`.
    pub fn acknowledge(&self, pid: i32, number: u64) {
        self.acknowledged.store(acknowledgement(pid, number), Release);
    }

    /// Whether its process has applied command `number`, or holds too little for it to matter.
    pub fn has_applied(&self, number: u64) -> bool {
        let pid = self.pid.load(Relaxed);
        let acknowledged = self.acknowledged.load(Acquire);
        let is_its_own = acknowledged >> 32 == acknowledgement(pid, 0) >> 32;
        pid == 0 || self.evicts.load(Acquire) == 0 || is_its_own && acknowledged >= acknowledgement(pid, number)
    }

    /// One of the children that were due has a share, or there is none. `parent` may have ended, and the share be another's.
    pub fn child_appeared(&self, parent: i32) {
        if self.pid.load(Relaxed) == parent {
            let _ = self.children_due.fetch_update(AcqRel, Relaxed, |due| due.checked_sub(1));
        }
    }

    /// Whether it is that of a process. Two namespaces have the same numbers.
    pub fn is_of(&self, process: Numbered) -> bool {
        self.pid.load(Relaxed) == process.pid && self.pid_namespace.load(Relaxed) == process.namespace
    }
}

/// A process, as its own PID namespace numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Numbered {
    /// Its number.
    pub pid: i32,
    /// The namespace's inode; 0: not known. Of a process that cannot look at `/proc` ([`Numbered::by_itself`]): what names it alone.
    pub namespace: u64,
}

impl Numbered {
    /// A process that does not know its namespace, by its inode in pidfs: of many processes with the number 1, each is another one.
    pub fn by_itself(pid: i32, inode: u64) -> Numbered {
        const BY_ITSELF: u64 = 1 << 63;
        Numbered { pid, namespace: inode | BY_ITSELF }
    }

    /// A process of which nothing else is known.
    pub fn of_unknown_namespace(pid: i32) -> Numbered {
        Numbered { pid, namespace: 0 }
    }
}

/// What the traced processes of a run say of their traces; counts are of all of them.
#[repr(C)]
pub struct TraceRow {
    /// With one trace, the process: the first that was managed; 0: none yet. It stays the traced one when it calls exec.
    pub pid: AtomicI32,
    /// 1: forked processes are recorded, too, where there is a trace for each.
    pub with_forked: AtomicU32,
    /// Traces that were begun.
    pub begun: AtomicU32,
    /// Traces that were closed.
    pub closed: AtomicU32,
    /// Traces that could not be begun, or not be written to their end.
    pub failed: AtomicU32,
    /// Processes and programs beyond [`TRACES_MAX`], which have none.
    pub beyond: AtomicU32,
    /// References that were recorded.
    pub references: Counter,
    /// Microsets that are whole.
    pub microsets: Counter,
    /// Bytes that were written.
    pub bytes: Counter,
    /// Bytes at which recording stops; 0: none.
    pub bytes_max: Counter,
    /// The processors on which the first process could run before it was kept on one, a bit each; none: nothing is traced.
    pub processors: [AtomicU64; PROCESSOR_WORDS],
    /// Why recording first stopped before a program did; empty when it did not.
    pub error: Text,
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
    /// Its PID namespace, as [`Numbered::namespace`] has it; 0: not known.
    pub launcher_namespace: AtomicU64,
    /// Processes that found no free row and run uncounted.
    pub uncounted: AtomicU32,
    /// 1: a program that cannot be managed runs all the same.
    pub unmanaged_allowed: AtomicU32,
    /// No share from here on has ever been used.
    pub shares_used: AtomicU32,
    /// 1: a process of the run has wanted to read or write another one's memory.
    pub pin_requests_wanted: AtomicU32,
    /// 1: a process of the run has waited in vain for the launcher to hand a file over. The launcher says 0 when it goes on.
    pub handover_is_silent: AtomicU32,
    /// What the launcher has changed since the start.
    pub commands: Commands,
    /// The trace, where one is recorded.
    pub trace: TraceRow,
    /// The tapes, where some are to be followed.
    pub tapes: TapeTable,
    /// The nodes of pools that are kept in directories.
    pub rosters: [Roster; ROSTERS_MAX],
    /// Modelled links that the processes share.
    pub links: [RunLink; RUN_LINKS_MAX],
    /// The share of each row's process.
    pub shares: [Share; PROCESSES_MAX],
    /// What others request of each row's process.
    pub pin_requests: [PinRequests; PROCESSES_MAX],
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
        self.shares.get(self.index_of(row))
    }

    /// What others request of a row's process; `None` when the row is not of this ledger.
    pub fn pin_requests_of(&self, row: &ProcessRow) -> Option<&PinRequests> {
        self.pin_requests.get(self.index_of(row))
    }

    /// What can be requested of a live process; `None`: it has no row.
    pub fn pin_requests_of_process(&self, process: Numbered) -> Option<&PinRequests> {
        self.pin_requests.get(self.index_of_process(process)?)
    }

    /// The row of a live process; `None`: it has none.
    pub fn row_of_process(&self, process: Numbered) -> Option<&ProcessRow> {
        self.processes.get(self.index_of_process(process)?)
    }

    fn index_of_process(&self, process: Numbered) -> Option<usize> {
        let used = self.shares_used.load(Relaxed) as usize;
        self.shares.iter().take(used).position(|share| process.pid != 0 && share.is_of(process))
    }

    fn index_of(&self, row: &ProcessRow) -> usize {
        let offset = std::ptr::from_ref(row).addr().wrapping_sub(self.processes.as_ptr().addr());
        offset / size_of::<ProcessRow>()
    }

    /// The share becomes that of a process, which holds nothing yet.
    pub fn open_share(&self, index: usize, process: Numbered) {
        let end = u32::try_from(index + 1).unwrap_or(0);
        self.shares_used.fetch_max(end, Relaxed);
        self.pin_requests[index].reset();
        self.shares[index].evicts.store(0, Relaxed);
        self.shares[index].children_due.store(0, Relaxed);
        self.shares[index].acknowledge(process.pid, 0);
        self.shares[index].pid_namespace.store(process.namespace, Relaxed);
        self.shares[index].pid.store(process.pid, Relaxed);
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
        ledger.open_share(3, Numbered { pid: 7, namespace: 1 });
        assert!(ledger.shares[3].is_of(Numbered { pid: 7, namespace: 1 }));
        assert!(!ledger.shares[3].is_of(Numbered { pid: 7, namespace: 2 }), "the same number in another namespace");
        ledger.shares[3].granted_bytes.store(1 << 20, Relaxed);
        assert_eq!(ledger.shares_in_use().count(), 1);
        ledger.end_row(row, 8);
        assert_eq!((row.state.load(Relaxed), ledger.shares_in_use().count()), (RowState::Live as u32, 1));
        ledger.end_row(row, 7);
        assert_eq!((row.state.load(Relaxed), ledger.shares_in_use().count()), (RowState::Ended as u32, 0));
        assert_eq!(ledger.shares[3].granted_bytes.load(Relaxed), 0);
        // Its evictor had looked before, and says so when the share is another's.
        ledger.open_share(3, Numbered { pid: 9, namespace: 1 });
        ledger.shares[3].evicts.store(1, Relaxed);
        ledger.shares[3].acknowledge(7, 5);
        assert!(!ledger.shares[3].has_applied(5), "the acknowledgement of one that has ended");
        ledger.shares[3].acknowledge(9, 4);
        assert!(ledger.shares[3].has_applied(4) && !ledger.shares[3].has_applied(5));
        // SAFETY: as above.
        let private = unsafe { Box::<ProcessRow>::new_zeroed().assume_init() };
        assert!(ledger.share_of(&private).is_none());
        assert!(std::ptr::eq(ledger.share_of(row).unwrap(), &raw const ledger.shares[3]));
    }

    #[test]
    fn long_text_is_cut_and_short_text_replaces_it() {
        let text: Text = Text(std::array::from_fn(|_| AtomicU8::new(0)));
        text.set(&"x".repeat(1000));
        assert_eq!(text.get().len(), TEXT_BYTES - 1);
        text.set(&"é".repeat(1000));
        assert_eq!(text.get(), "é".repeat((TEXT_BYTES - 1 - "…".len()) / 2) + "…");
        text.set("short");
        assert_eq!(text.get(), "short");
    }

    #[test]
    fn the_last_message_has_a_field_of_its_own() {
        // SAFETY: a row consists of atomics, which are valid when zero.
        let row = unsafe { Box::<ProcessRow>::new_zeroed().assume_init() };
        for length in [255, 256, 1000, MESSAGE_BYTES - 1] {
            row.fatal.set(&"x".repeat(length));
            assert_eq!(row.fatal.get().len(), length);
        }
        row.fatal.set(&"x".repeat(5000));
        let kept = row.fatal.get();
        assert!(kept.len() == MESSAGE_BYTES - 1 && kept.ends_with("x…"), "{kept}");
    }
}
