//! Signals on their way to the program.
//!
//! The launcher blocks everything and reads signals from a descriptor. A signal that a process sent to the launcher is meant
//! for the program and is passed on. A signal from the kernel (Ctrl-C and Ctrl-Z at the terminal, a new window size)
//! goes to the whole process group, so the program has it already and the launcher lets it pass. Of a hang-up the
//! kernel tells the leader of the terminal's session alone (`tty_signal_session_leader`), so a launcher that leads one
//! passes it on. A write of the launcher that has no reader, or makes a file too long, brings it a signal as if from
//! itself: that is none of the program's.
//! Not distinguishable: `kill -TERM -GROUP` reaches the program directly and through the launcher.
//! Source: signalfd(2), sigaction(2) on `si_code`.
//!
//! Here is also what else the program is to inherit as the launcher found it: standard streams that were closed.

use crate::error::Error;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{getpid, getsid};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether SIGPIPE was ignored when this process began; the language's own start-up ignores it always.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Which of the standard streams were closed when this process began; the language's own start-up opens them.
static WERE_CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Looks at what the language's start-up changes, before it does.
extern "C" fn note_start() {
    // SAFETY: an all-zero sigaction is a valid value; the kernel fills it in.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the current disposition only; `now` outlives the call.
    let rc = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut now) };
    PIPE_WAS_IGNORED.store(rc == 0 && now.sa_sigaction == libc::SIG_IGN, Relaxed);
    for (stream, was_closed) in (0..).zip(&WERE_CLOSED) {
        // SAFETY: asks for the descriptor's flags; no memory is touched.
        was_closed.store(unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0, Relaxed);
    }
}

// SAFETY: the loader calls each entry of this section once, before main, with the C convention; the function needs nothing of
// the language's start-up.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_START: extern "C" fn() = note_start;

/// What the program is to inherit, although the launcher has changed it for itself.
#[derive(Clone, Copy)]
pub struct Inherited {
    mask: SigSet,
    child_was_ignored: bool,
    pipe_was_ignored: bool,
    were_closed: [bool; 3],
}

impl Inherited {
    /// Restores mask, dispositions and closed streams; called in the child between fork and exec, so it only makes
    /// system calls.
    pub fn restore(&self) -> nix::Result<()> {
        let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        if self.child_was_ignored {
            // SAFETY: ignoring a signal installs no handler.
            unsafe { sigaction(Signal::SIGCHLD, &ignore) }?;
        }
        if self.pipe_was_ignored {
            // SAFETY: as above.
            unsafe { sigaction(Signal::SIGPIPE, &ignore) }?;
        }
        for (stream, _) in (0..).zip(self.were_closed).filter(|(_, was_closed)| *was_closed) {
            // SAFETY: the child has a table of descriptors of its own, and nothing in it uses this one.
            unsafe { libc::close(stream) };
        }
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)
    }
}

/// The launcher's signals, taken.
pub struct Signals {
    fd: SignalFd,
    inherited: Inherited,
    leads_session: bool,
}

impl Signals {
    /// Blocks all signals that can wait and opens the descriptor that they are read from.
    pub fn take() -> Result<Signals, Error> {
        let what = "cannot take the launcher's signals";
        let mut all = SigSet::all();
        // Signals of the launcher's own mistakes must end it.
        for own in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGABRT, Signal::SIGSYS] {
            all.remove(own);
        }
        let mut mask = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&all), Some(&mut mask)).map_err(Error::system(what))?;
        // An ignored SIGCHLD would reap the program unseen.
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default disposition installs no handler.
        let before = unsafe { sigaction(Signal::SIGCHLD, &default) }.map_err(Error::system(what))?;
        let fd =
            SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(Error::system(what))?;
        let inherited = Inherited {
            mask,
            child_was_ignored: matches!(before.handler(), SigHandler::SigIgn),
            pipe_was_ignored: PIPE_WAS_IGNORED.load(Relaxed),
            were_closed: WERE_CLOSED.each_ref().map(|was_closed| was_closed.load(Relaxed)),
        };
        Ok(Signals { fd, inherited, leads_session: getsid(None) == Ok(getpid()) })
    }

    /// What the program is to inherit.
    pub fn inherited(&self) -> Inherited {
        self.inherited
    }

    /// The descriptor, to wait on.
    pub fn fd(&self) -> &SignalFd {
        &self.fd
    }

    /// The signals that arrived, SIGCHLD left out.
    pub fn arrived(&self) -> Vec<Arrived> {
        let mut signals = Vec::new();
        while let Ok(Some(info)) = self.fd.read_signal() {
            let signal = i32::try_from(info.ssi_signo).unwrap_or(0);
            if signal != libc::SIGCHLD {
                signals.push(Arrived { signal, for_program: self.is_for_program(signal, &info) });
            }
        }
        signals
    }

    fn is_for_program(&self, signal: i32, info: &siginfo) -> bool {
        let is_own = i32::try_from(info.ssi_pid) == Ok(getpid().as_raw());
        let is_hangup = self.leads_session && matches!(signal, libc::SIGHUP | libc::SIGCONT);
        if from_a_process(info.ssi_code) { !is_own } else { is_hangup && info.ssi_code == libc::SI_KERNEL }
    }
}

/// A signal to the launcher.
#[derive(Clone, Copy)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// Whether it is meant for the program, which does not have it yet.
    pub for_program: bool,
}

/// Whether `si_code` says that a process sent the signal (kill, sigqueue, tgkill), not the kernel.
fn from_a_process(code: i32) -> bool {
    matches!(code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL)
}
