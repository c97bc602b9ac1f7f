//! Signals on the inline path: three that Hinterland needs, and that the program has all the same.
//!
//! SIGBUS is a fault on far memory; SIGSYS and SIGILL are system calls that need help. If one of them were really blocked when
//! it comes, the kernel would end the process. So these three are *reserved*: their real dispositions are ours, they are in
//! no real mask, and what the program sets and reads back is kept beside: *virtual* dispositions for the process, *virtual*
//! blocked bits for each thread. Signals that are not ours meet the virtual state (`deliver`) as they would meet the real one.
//!
//! Invariant: no reserved signal is in a thread's real mask, but in our handlers and during exec. While our code runs, glibc's
//! own signals are blocked, which a program cannot do; that tells the two apart.
//!
//! A child of vfork shares the memory but has dispositions and a mask of its own: what it sets is kept in its parent thread's
//! `Child`, and its real dispositions stay ours until it calls exec.
//!
//! Not covered: a handler that adds a reserved signal to the mask in its own signal frame; signalfd of a reserved signal,
//! which never becomes readable.

pub(crate) mod action;
mod calls;
pub(crate) mod deliver;
pub(crate) mod exec;
pub(crate) mod mask;
pub(crate) mod pending;

pub(crate) use calls::{call, call_directly};

use super::raw;
use libc::{SIGBUS, SIGILL, SIGSYS, c_int};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The reserved signals, in the order of the tables.
pub(crate) const RESERVED: [c_int; 3] = [SIGBUS, SIGSYS, SIGILL];
/// The same as a set.
pub(crate) const RESERVED_SET: u64 = bit(SIGBUS) | bit(SIGSYS) | bit(SIGILL);
/// The mask while a trapped call is worked on: far memory may be touched, nothing else comes in between.
pub(crate) const INSIDE: u64 = !bit(SIGBUS);

/// A signal as a member of the kernel's sets.
pub(crate) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// A reserved signal's place in the tables.
pub(crate) fn index(signal: c_int) -> Option<usize> {
    RESERVED.iter().position(|reserved| *reserved == signal)
}

/// A set of signals as it may be given to the kernel for a mask.
pub(crate) fn strip(set: u64) -> u64 {
    set & !RESERVED_SET
}

/// Whether a call must be seen because it reads or changes signal state.
pub(crate) fn is_signal_call(number: i64) -> bool {
    use libc::{
        SYS_rt_sigaction, SYS_rt_sigpending, SYS_rt_sigprocmask, SYS_rt_sigsuspend, SYS_rt_sigtimedwait,
        SYS_sigaltstack,
    };
    let all = [
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
        SYS_rt_sigpending,
        SYS_rt_sigsuspend,
        SYS_rt_sigtimedwait,
        SYS_sigaltstack,
    ];
    all.contains(&number)
}

/// The process that this memory belongs to.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Notes whose memory this is: at the start.
pub(crate) fn begin() {
    PROCESS.store(raw::process(), Relaxed);
}

/// In the child of a fork, before code of the program runs: it has the parent thread's mask and dispositions, and nothing
/// that was pending.
pub(crate) fn begin_child() {
    begin();
    action::unlock();
    pending::forget();
}

/// Whether this is a child of vfork, and if so, which process.
pub(crate) fn vfork_child() -> Option<i32> {
    let process = raw::process();
    (process != PROCESS.load(Relaxed)).then_some(process)
}
