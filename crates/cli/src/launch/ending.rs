//! Ends the launcher the way the program ended.

use crate::report::Ending;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, raise, sigaction};
use std::process::ExitCode;

/// The program's exit code; or death by the same signal, so that a shell sees what it would have seen.
pub fn end_like(ending: Ending) -> ExitCode {
    match ending {
        Ending::Exited(code) => ExitCode::from(code),
        Ending::Killed { signal, .. } => {
            // The program left the core; the launcher's would only hide it.
            let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
            if let Ok(known) = Signal::try_from(signal) {
                let _ = take_default(known);
            }
            // Still here: a signal that does not end the first process of a container, or a real-time signal.
            ExitCode::from(ending.exit_code())
        }
    }
}

/// Raises `signal` with its default action.
pub fn take_default(signal: Signal) -> nix::Result<()> {
    if signal != Signal::SIGKILL && signal != Signal::SIGSTOP {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default disposition installs no handler.
        unsafe { sigaction(signal, &default) }?;
    }
    let mut only = SigSet::empty();
    only.add(signal);
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&only), Some(&mut before))?;
    raise(signal)?;
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)
}
