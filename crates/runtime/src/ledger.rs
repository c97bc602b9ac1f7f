//! This process's row of the ledger.

use hinterland_abi::{LEDGER_MAGIC, LEDGER_VERSION, Ledger, ProcessRow, RowState};
use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

static LEDGER: OnceLock<Option<&'static Ledger>> = OnceLock::new();

/// Maps the ledger at `path` (empty: there is none) and takes a row; a private one when that cannot be.
pub fn open(path: &str) -> &'static ProcessRow {
    let ledger = LEDGER.get_or_init(|| if path.is_empty() { None } else { map(path) });
    ledger.and_then(claim).unwrap_or_else(private_row)
}

/// A row for the child of a fork.
pub fn row_for_child() -> &'static ProcessRow {
    LEDGER.get().copied().flatten().and_then(claim).unwrap_or_else(private_row)
}

/// Local bytes that other processes of this run hold. A forked process shares its pages with its parent, so neither counts
/// the other's: what they hold together is not known here.
#[cfg(not(feature = "local-only"))]
pub fn local_of_others() -> u64 {
    let Some(ledger) = LEDGER.get().copied().flatten() else { return 0 };
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    let live = |row: &&ProcessRow| row.state.load(Relaxed) == RowState::Live as u32;
    let own = ledger.processes.iter().filter(live).find(|row| row.pid.load(Relaxed) == pid);
    if own.is_none_or(|row| row.forked.load(Relaxed) != 0) {
        return 0;
    }
    let counts = |row: &&ProcessRow| live(row) && row.forked.load(Relaxed) == 0 && row.pid.load(Relaxed) != pid;
    ledger.processes.iter().filter(counts).map(|row| row.resident_managed_bytes.load(Relaxed)).sum()
}

/// Maps the launcher's segment; `None` when it is gone or of another version.
fn map(path: &str) -> Option<&'static Ledger> {
    let path = CString::new(path).ok()?;
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // A launcher of another version makes a segment of another length: to read beyond its end would be a SIGBUS.
    // SAFETY: asks for the length of a file that was just opened.
    let length = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    if usize::try_from(length).is_ok_and(|length| length < size_of::<Ledger>()) {
        // SAFETY: the descriptor was just opened.
        unsafe { libc::syscall(libc::SYS_close, fd) };
        return None;
    }
    let flags = libc::MAP_SHARED;
    // SAFETY: a new mapping; the segment is at least this long.
    let address = unsafe {
        // The offset travels on the stack: it must be a whole word.
        let address = libc::syscall(
            libc::SYS_mmap,
            0usize,
            size_of::<Ledger>(),
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            fd,
            0usize,
        );
        libc::syscall(libc::SYS_close, fd);
        address
    };
    let address = usize::try_from(address).ok()?;
    // SAFETY: the mapping is as long as a Ledger, page-aligned, never unmapped, and any bits are valid in its atomics.
    let ledger: &'static Ledger = unsafe { &*(address as *const Ledger) };
    let known = ledger.magic.load(Acquire) == LEDGER_MAGIC && ledger.version.load(Acquire) == LEDGER_VERSION;
    known.then_some(ledger)
}

/// Takes a free row. A row that this process already has (before an exec) is ended first.
fn claim(ledger: &'static Ledger) -> Option<&'static ProcessRow> {
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    for row in &ledger.processes {
        if row.pid.load(Relaxed) == pid && row.state.load(Relaxed) == RowState::Live as u32 {
            row.state.store(RowState::Ended as u32, Release);
        }
    }
    let free = (RowState::Free as u32, RowState::Claimed as u32);
    let taken = ledger.processes.iter().find(|row| row.state.compare_exchange(free.0, free.1, AcqRel, Relaxed).is_ok());
    let Some(row) = taken else {
        ledger.uncounted.fetch_add(1, Relaxed);
        return None;
    };
    row.pid.store(pid, Relaxed);
    row.forked.store(0, Relaxed);
    // SAFETY: getppid(2) takes nothing and cannot fail.
    row.parent_pid.store(unsafe { libc::getppid() }, Relaxed);
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    row.program.set(&program.to_string_lossy());
    row.state.store(RowState::Live as u32, Release);
    Some(row)
}

/// A row that nobody reads.
fn private_row() -> &'static ProcessRow {
    // SAFETY: a row consists of atomics, which are valid when zero.
    Box::leak(unsafe { Box::<ProcessRow>::new_zeroed().assume_init() })
}
