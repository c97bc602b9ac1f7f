//! The inline fault path: the thread that faults serves itself.

pub(crate) mod call;
pub(crate) mod fault;
pub(crate) mod raw;
pub(crate) mod signals;
pub(crate) mod sites;
pub(crate) mod stacks;
pub(crate) mod thread;
pub(crate) mod trap;
mod user;

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
    Sites(#[from] sites::SitesError),
}

/// From now on, faults are signals.
///
/// # Errors
/// The process is as it was, but for handlers that pass everything on.
pub(crate) fn activate() -> Result<(), ActivateError> {
    trap::install(fault::serve, perform)?;
    sites::patch(&|number| signals::is_signal_call(number) || is_exec(number))?;
    ACTIVE.store(true, Relaxed);
    Ok(())
}

fn is_exec(number: i64) -> bool {
    number == libc::SYS_execve || number == libc::SYS_execveat
}

/// Makes a call that was stopped.
fn perform(call: &mut call::Call) -> isize {
    let _inherited = is_exec(call.number).then(|| {
        // SAFETY: the context is the handler's that calls this.
        raw::change_mask(libc::SIG_SETMASK, Some(unsafe { trap::frame::mask_of(call.context) }));
        signals::exec::inherit()
    });
    // SAFETY: the program's own call.
    signals::call(call).unwrap_or_else(|| unsafe { raw::call(call.number, call.arguments) })
}
