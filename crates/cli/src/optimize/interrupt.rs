//! Signals that end the loop early: the build or run that is under way is ended; what was found is kept, and built. A second signal ends
//! the command at once.

use super::Stop;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    signal: Option<i32>,
    /// The process group of what is under way.
    group: Option<Pid>,
}

/// A process that a signal ends, as long as this is there.
#[derive(Debug)]
pub struct Guarded<'a>(&'a Interrupt);

impl Interrupt {
    /// Takes the signals from now on.
    pub fn by_signals() -> io::Result<Interrupt> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let interrupt = Interrupt::default();
        let taken = interrupt.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                taken.take(signal);
            }
        })?;
        Ok(interrupt)
    }

    fn take(&self, signal: i32) {
        let mut state = self.state();
        if state.signal.replace(signal).is_some() {
            let _ = emulate_default_handler(signal);
        }
        if let Some(group) = state.group {
            // It may have ended meanwhile.
            let _ = killpg(group, Signal::try_from(signal).ok());
        }
    }

    /// Starts a process in a group of its own, which a signal ends; nothing is started after one.
    pub fn spawn(&self, command: &mut Command) -> Result<(Child, Guarded<'_>), Stop> {
        let mut state = self.state();
        if let Some(signal) = state.signal {
            return Err(Stop::Interrupted { signal });
        }
        let child = command.process_group(0).spawn();
        let child = child.map_err(|source| Stop::System { what: "cannot start a process", source })?;
        state.group = i32::try_from(child.id()).ok().map(Pid::from_raw);
        Ok((child, Guarded(self)))
    }

    /// An error after a signal.
    pub fn check(&self) -> Result<(), Stop> {
        self.state().signal.map_or(Ok(()), |signal| Err(Stop::Interrupted { signal }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        self.0.state().group = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_what_is_under_way_and_nothing_is_started_after_it() {
        let interrupt = Interrupt::default();
        interrupt.check().unwrap();
        let (mut child, guarded) = interrupt.spawn(Command::new("sh").args(["-c", "sleep 1000; true"])).unwrap();
        interrupt.take(SIGTERM);
        assert!(!child.wait().unwrap().success());
        drop(guarded);
        assert!(matches!(interrupt.check(), Err(Stop::Interrupted { signal: SIGTERM })));
        assert!(matches!(interrupt.spawn(&mut Command::new("true")), Err(Stop::Interrupted { signal: SIGTERM })));
    }
}
