//! The program confines itself by a filter of system calls of its own, as sandboxes do: the library must still live.
//!
//! The program's filter is installed with a prologue ([`crate::seccomp::prologue`]) that allows the calls listed here, from our own
//! instructions of the [`trampoline`] only. A program that jumps there can do nothing that its memory does not allow it anyway: no
//! file is opened, no other process touched, nothing becomes executable, nothing is executed. All else is judged by its own filter.
//!
//! Files cannot be opened any more, so a confined process does without those that only make figures and guesses better.
//!
//! Sources: seccomp(2), `kernel/seccomp.c`, `arch/x86/entry/syscalls/syscall_64.tbl`.

use crate::seccomp::interpret;
pub use crate::seccomp::prologue::INSTRUCTIONS_MAX;
use crate::seccomp::prologue::{self, Condition, Listed};
use crate::{last_thread, thread, uffd};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// The program has installed a filter of its own.
static CONFINED: AtomicBool = AtomicBool::new(false);
/// The process whose id the prologue knows.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether the program has confined itself, or its parent had before the fork: no file can be opened, no thread started for sure.
#[inline]
pub fn is_confined() -> bool {
    CONFINED.load(Relaxed)
}

/// Threads that are about to open files.
static WITH_FILES: AtomicU32 = AtomicU32::new(0);

/// Does something that opens files, or calls libc otherwise than by the listed calls; `None`: the process is confined.
pub fn with_files<R>(work: impl FnOnce() -> R) -> Option<R> {
    WITH_FILES.fetch_add(1, SeqCst);
    let result = (!CONFINED.load(SeqCst)).then(work);
    WITH_FILES.fetch_sub(1, SeqCst);
    result
}

/// Whether a call that names this process by its id is allowed: the child of a confined process has another id than the filter knows.
pub fn knows_this_process() -> bool {
    !is_confined() || PROCESS.load(Relaxed) == thread::process()
}

/// The program's filters, as it gave them.
static PROGRAMS: Mutex<Vec<Vec<libc::sock_filter>>> = Mutex::new(Vec::new());

/// What the program's filters say of a call of libc's: no more than this one says (`SECCOMP_RET_*`, the strictest is the lowest).
fn strictest(filters: &[Vec<libc::sock_filter>], call: libc::c_long, arguments: [usize; 6]) -> u32 {
    /// Somewhere in libc.
    const ELSEWHERE: usize = 0x7f00_0000_0000;
    let data = interpret::data(number(call), arguments, ELSEWHERE);
    // As `seccomp_run_filters` compares: the death of the process is the least of all signed numbers.
    let rank = |answer: u32| (answer & libc::SECCOMP_RET_ACTION_FULL).cast_signed();
    filters.iter().map(|filter| interpret::interpret(filter, &data)).min_by_key(|answer| rank(*answer)).unwrap_or(ALLOW)
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// Whether an answer is an error of the call, or the call itself: nothing that ends the process or wakes a handler.
fn is_mild(answer: u32) -> bool {
    matches!(answer & libc::SECCOMP_RET_ACTION_FULL, libc::SECCOMP_RET_ERRNO | libc::SECCOMP_RET_LOG | ALLOW)
}

/// Whether libc can start a thread under the program's filters, on a stack that it has.
pub fn permits_threads() -> bool {
    /// Those of glibc for a thread.
    const FLAGS: usize = 0x3d_0f00;
    let filters = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let allows = |answer: u32| matches!(answer & libc::SECCOMP_RET_ACTION_FULL, libc::SECCOMP_RET_LOG | ALLOW);
    let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let (new, old) =
        (strictest(&filters, libc::SYS_clone3, [0; 6]), strictest(&filters, libc::SYS_clone, [FLAGS, 1, 1, 1, 1, 0]));
    let beginning = [libc::SYS_rseq, libc::SYS_set_robust_list, libc::SYS_rt_sigprocmask];
    (allows(new) || new == no_such_call && allows(old))
        && beginning.iter().all(|call| is_mild(strictest(&filters, *call, [0; 6])))
}

/// A composed filter is about to be installed. Returns when none of our threads is in a call any more that is not listed. True: the
/// process was not confined before.
pub fn begin(program: Vec<libc::sock_filter>) -> bool {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner).push(program);
    // A further filter changes nothing of what the first one knows.
    if CONFINED.load(SeqCst) {
        return false;
    }
    PROCESS.store(thread::process(), Relaxed);
    CONFINED.store(true, SeqCst);
    while WITH_FILES.load(SeqCst) != 0 || thread::are_starting() {
        thread::yield_now();
    }
    true
}

/// In the child of a fork: what threads of the parent were doing goes on in no thread here.
pub fn begin_child() {
    WITH_FILES.store(0, SeqCst);
    thread::forget_starting();
}

/// Takes `begin`, which answered so, back: the kernel refused the filter.
pub fn undo(begun: bool) {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner).pop();
    if !begun {
        return;
    }
    CONFINED.store(false, SeqCst);
}

/// Our descriptors in calls that are allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// The userfaultfd.
    pub uffd: RawFd,
    /// The process's memory as a file; -1: there is none.
    pub memory: RawFd,
    /// Files that keep pages.
    pub files: Vec<RawFd>,
}

/// The program's filter, as it can be installed; `None`: it has no room for the prologue.
pub fn compose(program: &[libc::sock_filter], own: &Descriptors) -> Option<Vec<libc::sock_filter>> {
    let composed = prologue::compose(&listed(own), program);
    (composed.len() <= INSTRUCTIONS_MAX).then_some(composed)
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn bits(value: i32) -> u32 {
    value.cast_unsigned()
}

/// The lower half of an argument has one of these values.
fn is(argument: u8, values: &[u32]) -> Condition {
    with_bits(argument, u32::MAX, values)
}

/// These bits of an argument's lower half have one of these values.
fn with_bits(argument: u8, bits: u32, values: &[u32]) -> Condition {
    Condition { half: argument * 2, bits, values: values.into() }
}

/// An argument is null.
fn is_null(argument: u8) -> [Condition; 2] {
    [is(argument, &[0]), Condition { half: argument * 2 + 1, bits: u32::MAX, values: vec![0] }]
}

/// Every call that the library makes once it runs, on either fault path, with compressed RAM or files as far memory.
fn listed(own: &Descriptors) -> Vec<Listed> {
    const PIDFD_SELF: i32 = -10_000;
    let process = thread::process();
    let mut list = Vec::new();
    let mut add =
        |call: libc::c_long, conditions: Vec<Condition>| list.push(Listed { number: number(call), conditions });
    // Pages.
    add(libc::SYS_ioctl, vec![is(0, &[bits(own.uffd)]), is(1, &uffd::REQUESTS)]);
    // The child of a fork has a new one, which comes to the same number.
    add(libc::SYS_ioctl, vec![is(1, &[uffd::GREETING])]);
    add(libc::SYS_read, vec![is(0, &[bits(own.uffd)])]);
    if let Some(device) = uffd::kept_device() {
        add(libc::SYS_ioctl, vec![is(0, &[bits(device)]), is(1, &[uffd::NEW])]);
    }
    if own.memory >= 0 {
        add(libc::SYS_pread64, vec![is(0, &[bits(own.memory)])]);
    }
    // The end of the last thread.
    if last_thread::can_watch() {
        for call in [libc::SYS_read, libc::SYS_pread64] {
            add(call, vec![is(0, &[bits(last_thread::descriptor())])]);
        }
        add(libc::SYS_uname, vec![]);
    }
    let files: Vec<u32> = own.files.iter().copied().map(bits).collect();
    if !files.is_empty() {
        for call in [libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_preadv, libc::SYS_pwritev] {
            add(call, vec![is(0, &files)]);
        }
    }
    add(libc::SYS_process_madvise, vec![is(0, &[bits(PIDFD_SELF)])]);
    for call in [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev] {
        add(call, vec![is(0, &[process])]);
    }
    // The address space: what a program does to its own memory without asking, but nothing of files, and nothing executable.
    for call in
        [libc::SYS_madvise, libc::SYS_mincore, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_munmap, libc::SYS_mremap]
    {
        add(call, vec![]);
    }
    let not_executable = || with_bits(2, bits(libc::PROT_EXEC), &[0]);
    add(
        libc::SYS_mmap,
        vec![
            not_executable(),
            with_bits(3, bits(libc::MAP_ANONYMOUS | libc::MAP_SHARED), &[bits(libc::MAP_ANONYMOUS)]),
        ],
    );
    add(libc::SYS_mprotect, vec![not_executable()]);
    // Threads, signals, time.
    for call in [
        libc::SYS_futex,
        libc::SYS_rt_sigreturn,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigaction,
        libc::SYS_sigaltstack,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_getppid,
        libc::SYS_sched_yield,
        libc::SYS_clock_gettime,
        libc::SYS_nanosleep,
        libc::SYS_getcpu,
        libc::SYS_exit_group,
        libc::SYS_getrandom,
        libc::SYS_fstat,
    ] {
        add(call, vec![]);
    }
    add(libc::SYS_sched_setaffinity, vec![is(0, &[0])]);
    add(libc::SYS_prctl, vec![is(0, &[bits(libc::PR_SET_NAME)])]);
    for call in [libc::SYS_tgkill, libc::SYS_rt_tgsigqueueinfo] {
        add(call, vec![is(0, &[process])]);
    }
    // Questions about descriptors; and what the child of a fork needs, which has a userfaultfd of its own.
    let (level, option) = (bits(libc::SOL_SOCKET), bits(libc::SO_TYPE));
    add(libc::SYS_getsockopt, vec![is(1, &[level]), is(2, &[option])]);
    add(libc::SYS_fcntl, vec![is(1, &[bits(libc::F_GETFL), bits(libc::F_DUPFD_CLOEXEC)])]);
    let flags = bits(libc::O_CLOEXEC);
    add(libc::SYS_userfaultfd, vec![is(0, &[flags, flags | bits(uffd::USER_MODE_ONLY)])]);
    add(libc::SYS_close, vec![]);
    let [lower, upper] = is_null(2);
    add(libc::SYS_prlimit64, vec![is(0, &[0]), lower, upper]);
    list
}

#[cfg(test)]
mod tests;
