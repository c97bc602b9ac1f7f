//! vfork(3) in a debugger on the inline path.
//!
//! A child of vfork that asks to be traced (`PTRACE_TRACEME`) stops at each signal until its tracer lets it go on; the tracer is its parent,
//! which the kernel wakes at the child's exec. On the inline path a fault is a signal, so both would wait for ever. A program that traces
//! others forks instead: the child has memory of its own, and the parent goes on, as POSIX allows.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The program traces others.
static AS_FORK: AtomicBool = AtomicBool::new(false);

/// From now on vfork is fork, if the program can trace others.
pub(crate) fn begin(program_traces: bool) {
    AS_FORK.store(program_traces, Relaxed);
}

unsafe extern "C" {
    /// libc's own, under its other name.
    fn __vfork() -> libc::pid_t;
}

/// Returns twice on one stack, so nothing may be left there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() -> libc::pid_t {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp byte ptr [rip + {as_fork}], 0",
        "jne 2f",
        "jmp {vfork}@PLT",
        "2:",
        "jmp {fork}@PLT",
        ".cfi_endproc",
        as_fork = sym AS_FORK,
        vfork = sym __vfork,
        fork = sym libc::fork,
    )
}
