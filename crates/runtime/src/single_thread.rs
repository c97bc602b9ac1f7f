//! A program with one thread has one where the kernel and libc look: threads of ours are away while it makes a call that others may not.
//!
//! | call | with other threads |
//! |---|---|
//! | unshare(2) of the user namespace, and of what threads share | `EINVAL` |
//! | setns(2) into a user or mount namespace; of time | `EINVAL`; `EUSERS` |
//! | libc's setgroups and its kind, which every thread makes | libc ends a program in which one thread may and another may not |
//!
//! What needs no such thing is not done without threads: they stay in the program's first network namespace, where memory nodes are, and after
//! unshare(2) of the PID namespace no thread can be started. So a call that names both is made in two parts.
//!
//! While they are away no fault is served on the monitor path. So what this thread does then is done on a near stack, with the program's
//! signals blocked, and touches near memory only; the threads that come back need nothing of an allocator of the program's.
//! Decision 0079 (threads leave for a call).

use crate::capabilities::Capabilities;
use crate::inline::raw;
use crate::interpose::threads::are_started_by_libc;
use crate::{Pager, errno, heap, libc_heap, on_near_stack};
use hinterland_pager::FaultPath;
use hinterland_sys::thread::{self, SignalsBlocked};
use hinterland_sys::{confinement, last_thread};
use libc::{c_int, c_long};
use std::time::{Duration, Instant};

/// What unshare(2) does for a process with one thread only (`check_unshare_flags` in kernel/fork.c).
const UNSHARED_ALONE: c_int = libc::CLONE_NEWUSER | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;
/// What else it does. A flag that is not known here is left to the kernel, with all others.
const UNSHARED_ANYWAY: c_int = libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SYSVSEM
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWCGROUP
    | CLONE_NEWTIME;
/// linux/sched.h.
const CLONE_NEWTIME: c_int = 0x80;
/// Namespaces that setns(2) enters in a process with one thread only (`userns_install`, `mntns_install`, `timens_install`).
const ENTERED_ALONE: c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | CLONE_NEWTIME;
/// `NS_GET_NSTYPE` of ioctl_nsfs(2): the flag of a namespace's kind.
const NAMESPACE_KIND: c_int = 0xb703;

/// The longest wait for threads that have left their work to be gone. They take microseconds, and milliseconds on a busy machine.
const GONE_MAX: Duration = Duration::from_secs(10);

/// A system call that names no memory.
fn issue(number: c_long, first: c_int, second: c_int) -> c_long {
    let word = |value: c_int| value.cast_unsigned() as usize;
    // SAFETY: the calls that are made here take numbers only.
    c_long::try_from(unsafe { raw::call(number, [word(first), word(second), 0, 0, 0, 0]) }).unwrap_or(-1)
}

/// The pager, if it has threads in this process, the program has the calling one alone, and they can be away for a moment.
fn stoppable() -> Option<&'static Pager> {
    let pager = crate::pager()?;
    let serves_itself = pager.path() == FaultPath::Inline;
    let can = !confinement::is_confined()
        && last_thread::is_beside_ours()
        // To start a thread, libc takes memory. Where that is the program's, it may be far.
        && (serves_itself || heap::is_managed() && !libc_heap::is_replaced() && are_started_by_libc())
        && can_start_threads();
    can.then_some(pager)
}

/// Whether the kernel lets this process start threads. It does not while its children are to be in another PID namespace, which is the first thing
/// that clone3(2) looks at. So this asks for a thread with the number that the calling one has, which never begins.
fn can_start_threads() -> bool {
    /// `struct clone_args` of linux/sched.h, up to the numbers.
    #[repr(C)]
    #[derive(Default)]
    struct Arguments {
        flags: u64,
        others: [u64; 7],
        numbers: u64,
        numbers_len: u64,
    }
    let number = raw::thread();
    let flags = libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;
    let arguments = Arguments {
        flags: u64::from(flags.cast_unsigned()),
        numbers: (&raw const number).addr() as u64,
        numbers_len: 1,
        ..Arguments::default()
    };
    // SAFETY: a number that is taken is refused (`EEXIST`, or `EPERM` without the right to choose one), and no thread begins.
    let answer =
        unsafe { raw::call(libc::SYS_clone3, [(&raw const arguments).addr(), size_of::<Arguments>(), 0, 0, 0, 0]) };
    answer != -isize::try_from(libc::EINVAL).unwrap_or(0)
}

/// Makes a call while this thread is alone.
fn alone<R>(pager: &'static Pager, call: impl FnOnce() -> R) -> R {
    let _errno = errno::Preserved::new();
    on_near_stack(|| {
        let _signals = SignalsBlocked::new();
        pager.without_threads(|| {
            let errno = errno::Preserved::new();
            let begun = Instant::now();
            while !thread::is_single() && begun.elapsed() < GONE_MAX {
                thread::sleep(Duration::from_micros(20));
            }
            drop(errno);
            call()
        })
    })
}

/// unshare(2), as the kernel answers it. `None`: threads of ours are no obstacle to it, and it is to be made as it is.
pub fn unshare(flags: c_int) -> Option<c_long> {
    let (first, rest) = (flags & UNSHARED_ALONE, flags & UNSHARED_ANYWAY);
    let pager = (first != 0 && first | rest == flags).then(stoppable).flatten()?;
    let done = alone(pager, || issue(libc::SYS_unshare, first, 0));
    Some(if done < 0 || rest == 0 { done } else { issue(libc::SYS_unshare, rest, 0) })
}

/// setns(2), in the same way.
pub fn setns(fd: c_int, kinds: c_int) -> Option<c_long> {
    let pager = stoppable()?;
    let enter = |kinds| issue(libc::SYS_setns, fd, kinds);
    let kind = c_int::try_from(issue(libc::SYS_ioctl, fd, NAMESPACE_KIND)).unwrap_or(-1);
    let (first, rest) = match kind {
        // Of a process, the flags say which of its namespaces.
        ..=0 => (kinds & ENTERED_ALONE, kinds & !ENTERED_ALONE),
        _ if kind & ENTERED_ALONE != 0 => (kinds, 0),
        _ => return None,
    };
    if first == 0 && kind <= 0 {
        return None;
    }
    let done = alone(pager, || enter(first));
    Some(if done < 0 || rest == 0 { done } else { enter(rest) })
}

/// Whether a thread of ours may do other things than the calling one, as far as can be told: one that is about to begin its work is not
/// known by its number yet.
pub fn rights_differ() -> bool {
    let (Some(pager), Some(mine)) = (crate::pager(), Capabilities::of(0)) else { return false };
    let mut known = 0;
    let differ = pager.any_thread(|thread| {
        known += 1;
        Capabilities::of(thread) != Some(mine)
    });
    differ || known < thread::ours()
}

/// A call of libc's that every thread makes with its own rights: alone, if those of ours differ; they have the calling thread's afterwards.
/// The call touches no far memory.
pub fn with_equal_rights(call: impl FnOnce() -> c_int) -> c_int {
    let Some(pager) = rights_differ().then(stoppable).flatten() else { return call() };
    let (answer, error) = alone(pager, || (call(), errno::get()));
    errno::set(error);
    answer
}
