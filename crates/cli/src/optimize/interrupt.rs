//! Signals that end the loop early: the build or run that is under way is ended; what was found is kept, and built. A second signal ends
//! that build and the command at once.

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
pub struct Interrupt {
    state: Arc<Mutex<State>>,
    /// What is started ends by the second signal alone.
    goes_on: bool,
}

#[derive(Debug, Default)]
struct State {
    signal: Option<i32>,
    /// The process group of what is under way.
    group: Option<Pid>,
    /// A first signal does not end it.
    goes_on: bool,
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
                if taken.take(signal) {
                    let _ = emulate_default_handler(signal);
                }
            }
        })?;
        Ok(interrupt)
    }

    /// For what is made last, also after a signal: a second one ends it.
    pub fn of_the_last_build(&self) -> Interrupt {
        Interrupt { state: self.state.clone(), goes_on: true }
    }

    /// Ends what is under way, unless it goes on. True: it is the second signal, which ends the command.
    fn take(&self, signal: i32) -> bool {
        let mut state = self.state();
        let is_second = state.signal.replace(signal).is_some();
        let with = if is_second { Some(Signal::SIGKILL) } else { Signal::try_from(signal).ok() };
        if let Some(group) = state.group.filter(|_| is_second || !state.goes_on) {
            // It may have ended meanwhile.
            let _ = killpg(group, with);
        }
        is_second
    }

    fn ended_by(&self, state: &State) -> Result<(), Stop> {
        match state.signal {
            Some(signal) if !self.goes_on => Err(Stop::Interrupted { signal }),
            _ => Ok(()),
        }
    }

    /// Starts a process in a group of its own, which a signal ends; nothing is started after one.
    pub fn spawn(&self, command: &mut Command) -> Result<(Child, Guarded<'_>), Stop> {
        let mut state = self.state();
        self.ended_by(&state)?;
        let child = command.process_group(0).spawn();
        let child = child.map_err(|source| Stop::System { what: "cannot start a process", source })?;
        state.group = i32::try_from(child.id()).ok().map(Pid::from_raw);
        state.goes_on = self.goes_on;
        Ok((child, Guarded(self)))
    }

    /// An error after a signal.
    pub fn check(&self) -> Result<(), Stop> {
        self.ended_by(&self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    use signal_hook::consts::SIGKILL;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_signal_ends_what_is_under_way_and_nothing_is_started_after_it() {
        let interrupt = Interrupt::default();
        interrupt.check().unwrap();
        let (mut child, guarded) = interrupt.spawn(Command::new("sh").args(["-c", "sleep 1000; true"])).unwrap();
        assert!(!interrupt.take(SIGTERM));
        assert!(!child.wait().unwrap().success());
        drop(guarded);
        assert!(matches!(interrupt.check(), Err(Stop::Interrupted { signal: SIGTERM })));
        assert!(matches!(interrupt.spawn(&mut Command::new("true")), Err(Stop::Interrupted { signal: SIGTERM })));
    }

    #[test]
    fn a_second_signal_alone_ends_the_last_build() {
        let interrupt = Interrupt::default();
        let last = interrupt.of_the_last_build();
        let (mut child, guarded) = last.spawn(Command::new("sh").args(["-c", "sleep 1000; true"])).unwrap();
        assert!(!interrupt.take(SIGTERM));
        assert!(child.try_wait().unwrap().is_none() && last.check().is_ok() && interrupt.check().is_err());
        assert!(interrupt.take(SIGTERM));
        assert_eq!(child.wait().unwrap().signal(), Some(SIGKILL));
        drop(guarded);
        // After a signal it may be begun.
        let (mut child, _guarded) = last.spawn(&mut Command::new("true")).unwrap();
        assert!(child.wait().unwrap().success());
    }
}
