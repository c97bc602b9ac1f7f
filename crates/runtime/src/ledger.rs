//! This process's row of the ledger.

#[cfg(not(feature = "local-only"))]
use crate::segment;
use hinterland_abi::{HandoverFile, LEDGER_MAGIC, LEDGER_VERSION, Ledger, Numbered, ProcessRow, RowState, Settings};
use hinterland_sys::{confinement, pidfs, thread};
use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

static LEDGER: OnceLock<Option<&'static Ledger>> = OnceLock::new();

/// Maps the launcher's ledger, if there is one, and takes a row; a private one when that cannot be.
#[cfg(not(feature = "local-only"))]
pub fn open(settings: Option<&Settings>) -> &'static ProcessRow {
    let ledger = *LEDGER.get_or_init(|| map(settings?));
    // A new program keeps the limits that this process had before exec, or else its parent's. Read first: a row that ended is soon another's.
    let limits = ledger.and_then(|ledger| {
        // SAFETY: getppid(2) takes nothing and cannot fail.
        let parent = i32::try_from(unsafe { libc::syscall(libc::SYS_getppid) }).unwrap_or(0);
        let before = ledger.row_of_process(own_number()).or_else(|| ledger.row_of_process(numbered(parent)))?;
        Some((before.address_space_limit.get(), before.data_limit.get()))
    });
    let row = row_in(ledger);
    if let Some((address_space, data)) = limits {
        row.address_space_limit.set(address_space);
        row.data_limit.set(data);
    }
    row
}

/// Whether this process is the one that a launcher started, and the launcher would rather not have it run than unmanaged.
pub fn must_be_managed() -> bool {
    let ledger = LEDGER.get().copied().flatten();
    is_parent_launcher() && ledger.is_some_and(|ledger| ledger.unmanaged_allowed.load(Relaxed) == 0)
}

/// Whether the parent of this process is the launcher.
pub fn is_parent_launcher() -> bool {
    // SAFETY: getppid(2) takes nothing and cannot fail.
    let parent = unsafe { libc::getppid() };
    LEDGER.get().copied().flatten().is_some_and(|ledger| is_launcher(ledger, numbered(parent)))
}

/// Whether a process is the launcher: in another PID namespace another process may have its number.
fn is_launcher(ledger: &Ledger, process: Numbered) -> bool {
    let namespace = ledger.launcher_namespace.load(Relaxed);
    let is_same = namespace == 0 || namespace == process.namespace;
    is_same && ledger.launcher_pid.load(Relaxed) == process.pid
}

/// A row for the child of a fork.
pub fn row_for_child() -> &'static ProcessRow {
    row_in(LEDGER.get().copied().flatten())
}

/// The process that has this memory's row: there is a row without a ledger, too.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Whether the row is the calling process's own: a child of vfork shares this memory, but the row is its parent's.
#[cfg(not(feature = "local-only"))]
pub fn is_owner() -> bool {
    OWNER.load(Relaxed) == thread::process()
}

fn row_in(ledger: Option<&'static Ledger>) -> &'static ProcessRow {
    OWNER.store(thread::process(), Relaxed);
    ledger.and_then(claim).unwrap_or_else(private_row)
}

/// The ledger, when there is one: what a forked process shares with its parent, too.
#[cfg(not(feature = "local-only"))]
pub fn get() -> Option<&'static Ledger> {
    LEDGER.get().copied().flatten()
}

/// Ends this process's row.
pub fn end(row: &ProcessRow) {
    match LEDGER.get().copied().flatten() {
        Some(ledger) => ledger.end_row(row, row.pid.load(Relaxed)),
        None => row.state.store(RowState::Ended as u32, Release),
    }
}

/// Maps the launcher's ledger.
#[cfg(not(feature = "local-only"))]
fn map(settings: &Settings) -> Option<&'static Ledger> {
    let is_known =
        |ledger: &Ledger| ledger.magic.load(Acquire) == LEDGER_MAGIC && ledger.version.load(Acquire) == LEDGER_VERSION;
    // SAFETY: a ledger consists of atomics.
    unsafe { segment::map(settings, &settings.ledger, HandoverFile::Ledger, is_known) }
}

/// Takes a free row and its share. A row that this process already has (before an exec) is ended first.
fn claim(ledger: &'static Ledger) -> Option<&'static ProcessRow> {
    let process = own_number();
    // Shares tell whose a row is: to look at the rows themselves would give memory to those that nobody has used.
    let used = ledger.shares_used.load(Relaxed) as usize;
    for (share, row) in ledger.shares.iter().zip(&ledger.processes).take(used) {
        if share.is_of(process) {
            // It counts as the program that it has become.
            if row.forked.load(Relaxed) != 0 {
                row.tape_processes.store(0, Relaxed);
                row.tape_processes_without.store(0, Relaxed);
            }
            ledger.end_row(row, process.pid);
        }
    }
    let free = (RowState::Free as u32, RowState::Claimed as u32);
    let is_free = |row: &ProcessRow| row.state.compare_exchange(free.0, free.1, AcqRel, Relaxed).is_ok();
    let Some(index) = ledger.processes.iter().position(is_free) else {
        ledger.uncounted.fetch_add(1, Relaxed);
        return None;
    };
    let row = &ledger.processes[index];
    row.taken_ns.store(u64::try_from(thread::since_boot().as_nanos()).unwrap_or(0), Relaxed);
    row.pid.store(process.pid, Relaxed);
    row.pid_namespace.store(process.namespace, Relaxed);
    row.forked.store(0, Relaxed);
    row.tape.store(0, Relaxed);
    // SAFETY: getppid(2) takes nothing and cannot fail.
    row.parent_pid.store(i32::try_from(unsafe { libc::syscall(libc::SYS_getppid) }).unwrap_or(0), Relaxed);
    // A confined process may not look. Its row may have been another's before.
    let looked = confinement::with_files(|| (std::fs::read_link("/proc/self/exe").unwrap_or_default(), program_file()));
    let (program, file) = looked.unwrap_or_default();
    row.program.set(&program.to_string_lossy());
    row.program_file.store(file, Relaxed);
    row.state.store(RowState::Live as u32, Release);
    ledger.open_share(index, process);
    Some(row)
}

/// The file that this process runs; 0 when it is not known.
fn program_file() -> u64 {
    stat(c"/proc/self/exe").map_or(0, |stat| hinterland_abi::file_id(stat.st_dev, stat.st_ino))
}

/// This process's PID namespace ([`Numbered::namespace`]), which stays the same while it lives; looked at when the process takes its row.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// This process, as its PID namespace numbers it. A confined process may not look: its parent had looked.
fn own_number() -> Numbered {
    let pid = i32::try_from(thread::process()).unwrap_or(0);
    confinement::with_files(|| NAMESPACE.store(number_without_filter(pid).namespace, Relaxed));
    numbered(pid)
}

/// In another root directory there is no `/proc`, and a sandbox has a process 1 for each of its programs there.
fn number_without_filter(pid: i32) -> Numbered {
    let by_namespace = stat(c"/proc/self/ns/pid").map(|stat| Numbered { pid, namespace: stat.st_ino });
    let by_itself = || pidfs::inode(pid).map(|inode| Numbered::by_itself(pid, inode));
    by_namespace.or_else(by_itself).unwrap_or(Numbered::of_unknown_namespace(pid))
}

/// A process of this one's PID namespace.
pub fn numbered(pid: i32) -> Numbered {
    Numbered { pid, namespace: NAMESPACE.load(Relaxed) }
}

fn stat(path: &CStr) -> Option<libc::stat> {
    // SAFETY: an all-zero stat is a valid value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, `stat` outlives the call, and the kernel's structure is libc's on x86-64.
    let rc = unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), &raw mut stat, 0usize) };
    (rc >= 0).then_some(stat)
}

/// A row that is never read.
fn private_row() -> &'static ProcessRow {
    // SAFETY: a row consists of atomics, which are valid when zero.
    Box::leak(unsafe { Box::<ProcessRow>::new_zeroed().assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_number_in_another_pid_namespace_is_another_process() {
        // SAFETY: a ledger consists of atomics, which are valid when zero.
        let ledger = unsafe { Box::<Ledger>::new_zeroed().assume_init() };
        ledger.launcher_pid.store(7, Relaxed);
        let is = |namespace: u64, pid: i32| is_launcher(&ledger, Numbered { pid, namespace });
        assert!(is(1, 7) && !is(1, 8), "a launcher that does not know its namespace");
        ledger.launcher_namespace.store(1, Relaxed);
        assert!(is(1, 7) && !is(1, 8) && !is(2, 7));
        assert!(
            !is_launcher(&ledger, Numbered::by_itself(7, 1))
                && !is_launcher(&ledger, Numbered::of_unknown_namespace(7))
        );
    }
}
