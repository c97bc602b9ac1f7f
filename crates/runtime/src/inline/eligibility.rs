//! Whether the inline path can be taken, and whether it suits the program: known before anything of either has changed.
//!
//! *Can*: the kernel sends faults as signals and takes filters, libc's calls are found and its text may be changed. *Suits*:
//! nothing that is loaded makes calls that the path does not see. The program's own code has not run yet, so what it loads
//! later is not looked at.

use super::syscall_sites::{self, DirectSyscalls};
use super::{signals, syscalls};
use hinterland_sys::seccomp::{self, Permission};
use hinterland_sys::{Features, SysError, trampoline};

/// Why the inline path cannot be taken, or should not be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ineligible {
    /// The kernel has no `UFFD_FEATURE_SIGBUS`.
    #[error("userfaultfd cannot send signals")]
    Signals,
    /// A sandbox, or a kernel without seccomp.
    #[error("system calls cannot be trapped: {0}")]
    Filter(SysError),
    /// Something lies where calls are let through.
    #[error("the page that calls are made from cannot be mapped: {0}")]
    Trampoline(SysError),
    /// libc's own calls.
    #[error(transparent)]
    Sites(#[from] syscall_sites::SitesError),
    /// The program.
    #[error("{0}")]
    DirectSyscalls(DirectSyscalls),
    /// A debugger: what it traces stops at every fault.
    #[error("it traces other processes")]
    Tracer,
    /// Every fault is a signal, at which the process stops.
    #[error("it is traced, and would stop at every fault")]
    Traced,
    /// `no_new_privs` would take set-user-id programs their rights.
    #[error("programs that it starts could not gain privileges any more")]
    Privileges,
}

/// What was found; the path can be taken.
pub(crate) struct Eligible {
    pub(super) sites: syscall_sites::Plan,
    /// The program can trace others.
    pub(super) traces: bool,
    permission: Permission,
}

/// Whether the path can be taken here.
///
/// # Errors
/// Why not. Nothing has changed, but that the page for calls may be mapped.
pub(crate) fn can(features: &Features) -> Result<Eligible, Ineligible> {
    if !features.signals {
        return Err(Ineligible::Signals);
    }
    let permission = seccomp::permission().map_err(Ineligible::Filter)?;
    trampoline::map().map_err(Ineligible::Trampoline)?;
    let sites = syscall_sites::Plan::make(&is_caught_by_libc)?;
    Ok(Eligible { sites, traces: syscall_sites::program_imports(c"ptrace"), permission })
}

/// Whether a path that can be taken suits the program, for somebody who has the choice (`chosen`) or has not.
///
/// # Errors
/// Why not.
pub(crate) fn suits(ready: Eligible, chosen: bool) -> Result<Eligible, Ineligible> {
    if chosen {
        if ready.permission == Permission::ForNewPrivileges {
            return Err(Ineligible::Privileges);
        }
        if ready.traces {
            return Err(Ineligible::Tracer);
        }
        if is_traced() {
            return Err(Ineligible::Traced);
        }
    }
    syscall_sites::first_direct_syscall(&goes_through_libc)
        .map_or(Ok(ready), |found| Err(Ineligible::DirectSyscalls(found)))
}

/// Whether a debugger or tracer is attached to this process: proc_pid_status(5).
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// Calls whose instructions in libc are replaced.
pub(crate) fn is_caught_by_libc(number: i64) -> bool {
    signals::is_signal_call(number) || syscalls::table::must_be_seen(number) || number == libc::SYS_clone3
}

/// Calls that libc's `syscall` shows to the inline path.
pub(crate) fn is_shown_by_syscall(number: i64) -> bool {
    is_caught_by_libc(number) || syscalls::table::is_asked(number)
}

/// Calls that nobody sees when they are made without libc: besides the above, those that make processes, and those after which
/// the kernel goes on.
fn goes_through_libc(number: i64) -> bool {
    const OTHERS: [i64; 8] = [
        libc::SYS_clone,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_execve,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_setup,
        libc::SYS_io_submit,
    ];
    is_caught_by_libc(number) || OTHERS.contains(&number)
}
