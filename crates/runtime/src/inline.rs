//! The inline fault path: the thread that faults serves itself.
//!
//! | file | what it holds |
//! |---|---|
//! | `eligibility` | whether the path can be taken here, and suits the program |
//! | `fault` | a fault, handed to the pager |
//! | `trap` | the handlers of SIGBUS, SIGSYS and SIGILL |
//! | `signals` | those three are ours: the program's dispositions and masks of them are virtual |
//! | `stacks`, `thread` | where faults are served, and what is known of each thread |
//! | `syscall_sites` | libc's own `syscall` instructions, patched to come here |
//! | `syscalls` | every system call: what it points at is brought in and pinned |
//! | `user_copy` | copies from and to addresses of the program, with `EFAULT` for a bad one |
//! | `wrapped` | the same without a trap, for calls through functions of ours |
//!
//! The order of `activate` matters: nothing that traps may come before what catches it.

pub(crate) mod call;
pub(crate) mod eligibility;
pub(crate) mod fault;
pub(crate) mod raw;
pub(crate) mod signals;
pub(crate) mod stacks;
pub(crate) mod syscall_sites;
pub(crate) mod syscalls;
pub(crate) mod thread;
pub(crate) mod trap;
pub(crate) mod user_copy;
pub(crate) mod wrapped;

use hinterland_pager::{FAR_BASE, FAR_PAGES};
use hinterland_sys::SysError;
use hinterland_sys::seccomp::{self, Filter, Installed};
use hinterland_units::PAGE_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Faults of this process are signals.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether faults of this process are signals to the thread that takes them.
#[inline]
pub(crate) fn active() -> bool {
    ACTIVE.load(Relaxed)
}

/// Why the inline path cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivateError {
    /// A handler or what it needs.
    #[error(transparent)]
    Trap(#[from] trap::TrapError),
    /// libc's own calls.
    #[error(transparent)]
    Sites(#[from] syscall_sites::SitesError),
    /// The filter, or the page that it lets through.
    #[error("system calls cannot be trapped: {0}")]
    Filter(#[from] SysError),
}

/// From now on, faults are signals, and system calls on far memory are caught. Called once, by the only thread.
///
/// # Errors
/// What `eligibility` has not foreseen. Handlers may be there then, and libc changed.
pub(crate) fn activate(ready: eligibility::Eligible) -> Result<Installed, ActivateError> {
    trap::install(fault::serve, perform)?;
    hinterland_sys::thread::never_block(signals::RESERVED_SET);
    hinterland_sys::trampoline::describe();
    syscalls::begin();
    ready.sites.apply()?;
    let installed = Filter::new(&syscalls::table::rules(), far_range()).install()?;
    crate::fork::raw::see(eligibility::is_shown_by_syscall);
    crate::fork::vfork::begin(ready.traces);
    ACTIVE.store(true, Relaxed);
    Ok(installed)
}

/// Whether the filter of this version is in force. One of another version traps calls that name the far range, wherever this version makes them.
pub(crate) fn is_filter_in_force() -> bool {
    seccomp::is_in_force(&syscalls::table::rules(), &far_range())
}

fn far_range() -> Range<usize> {
    FAR_BASE..FAR_BASE + FAR_PAGES as usize * PAGE_BYTES
}

/// Makes a call that was stopped.
fn perform(call: &mut call::Call) -> isize {
    if signals::is_signal_call(call.number) {
        // What is passed on to the kernel lies on this stack.
        let _local = syscalls::stack_of_ours();
        if let Some(answer) = signals::call(call) {
            return answer;
        }
    }
    syscalls::perform(call)
}
