//! Watches the program until it ends: signals through, stops mirrored, figures gathered.
//!
//! One loop, asleep in poll(2) until a signal comes or the next look is due. Looks come every 5 ms at first, then ever more
//! rarely, down to ten in a second; looking never takes more than a hundredth of the time.

use super::collect;
use super::ending::take_default;
use super::ledger::LauncherLedger;
use super::signals::Signals;
use crate::error::Error;
use crate::figures::Totals;
use crate::report::Ending;
use crate::sample;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const FIRST_LOOK: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// Looking may take one part in so many of the time.
const TIME_SHARE: u32 = 100;

/// How the program ended, and what only the outside saw.
pub struct Ended {
    /// How.
    pub ending: Ending,
    /// The largest resident set of any process of the run, as the kernel accounts it (`ru_maxrss`).
    pub rss_peak_bytes: u64,
    /// The largest sampled proportional set of the whole tree, launcher included.
    pub pss_peak_bytes: u64,
}

/// Watches `child` until it ends.
pub fn until_end(child: Pid, ledger: &LauncherLedger, signals: &Signals, totals: &mut Totals) -> Result<Ended, Error> {
    let mut watch =
        Watch { child, ledger, totals, pss_peak_bytes: 0, pss_due: Instant::now() + 4 * FIRST_LOOK, rss_peak_bytes: 0 };
    let mut interval = FIRST_LOOK;
    let mut due = Instant::now() + interval;
    loop {
        wait_for_signal(signals, due)?;
        for signal in signals.for_program() {
            // SAFETY: the child has not been waited for yet, so the number is still its own.
            unsafe { libc::kill(child.as_raw(), signal) };
        }
        if let Some(ending) = watch.reap()? {
            collect::look_last(watch.ledger, watch.totals);
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(Error::system("getrusage"))?;
            let reaped_peak_bytes = u64::try_from(usage.max_rss()).unwrap_or(0) << 10;
            return Ok(Ended {
                ending,
                rss_peak_bytes: watch.rss_peak_bytes.max(reaped_peak_bytes),
                pss_peak_bytes: watch.pss_peak_bytes,
            });
        }
        let now = Instant::now();
        if now >= due {
            watch.look();
            interval = (interval * 3 / 2).min(LOOK_MAX).max(now.elapsed() * TIME_SHARE);
            due = Instant::now() + interval;
        }
    }
}

/// Sleeps until a signal arrives or `due`.
fn wait_for_signal(signals: &Signals, due: Instant) -> Result<(), Error> {
    let left = due.saturating_duration_since(Instant::now());
    // Rounded up, so that the loop does not spin through the last part of a millisecond.
    let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
    let mut fds = [PollFd::new(signals.fd().as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(millis)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Error::system("poll")(errno)),
    }
}

struct Watch<'a> {
    child: Pid,
    ledger: &'a LauncherLedger,
    totals: &'a mut Totals,
    pss_peak_bytes: u64,
    pss_due: Instant,
    rss_peak_bytes: u64,
}

impl Watch<'_> {
    /// Takes the news of all children: the program's, and of orphans when the launcher is a container's first process.
    fn reap(&self) -> Result<Option<Ending>, Error> {
        loop {
            let mut status = 0;
            // SAFETY: `status` outlives the call. (The checked wrapper cannot express death by a real-time signal.)
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
            if pid == 0 {
                return Ok(None);
            }
            if pid < 0 {
                match Errno::last() {
                    Errno::EINTR => continue,
                    errno => return Err(Error::system("waitpid")(errno)),
                }
            }
            if pid != self.child.as_raw() {
                continue;
            }
            if libc::WIFEXITED(status) {
                return Ok(Some(Ending::Exited(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))));
            }
            if libc::WIFSIGNALED(status) {
                return Ok(Some(Ending::Killed { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) }));
            }
            // The shell waits for the launcher to stop, so it stops too; the same signal tells the shell why.
            if libc::WIFSTOPPED(status)
                && let Ok(signal) = Signal::try_from(libc::WSTOPSIG(status))
            {
                take_default(signal).map_err(Error::system("cannot stop with the program"))?;
            }
        }
    }

    /// Looks at the ledger and at `/proc`.
    fn look(&mut self) {
        let peak = collect::look(self.ledger, self.totals, self.child);
        self.rss_peak_bytes = self.rss_peak_bytes.max(peak);
        self.look_at_pss();
    }

    /// The proportional set costs the kernel a walk over all page tables, so it has its own, rarer turn.
    fn look_at_pss(&mut self) {
        let begun = Instant::now();
        if begun < self.pss_due {
            return;
        }
        self.pss_peak_bytes = self.pss_peak_bytes.max(sample::tree_pss_bytes(self.child.as_raw()));
        self.pss_due = begun + LOOK_MAX.max(begun.elapsed() * TIME_SHARE);
    }
}
