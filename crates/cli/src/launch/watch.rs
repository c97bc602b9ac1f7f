//! Watches the program and all that it leaves behind until the last has ended: signals through, stops mirrored, figures
//! gathered.
//!
//! One loop, asleep in poll(2) until a signal comes, a process dies or the next look is due. Looks come every 5 ms at first,
//! then ever more rarely, down to ten in a second; looking never takes more than a hundredth of the time. Rows of processes
//! that have ended are freed ten times in a second all the same: a run may make thousands.
//!
//! ```text
//! the program runs      signals of others are passed on to it; its stops are the launcher's
//! the program has ended its descendants are the launcher's children now: it waits for them. INT, TERM, HUP or QUIT ends the
//!                       wait, and they go on by themselves
//! ```

use super::collect;
use super::control::Control;
use super::ending::take_default;
use super::ledger::LauncherLedger;
use super::liveness::Liveness;
use super::outside::Outside;
use super::signals::{Arrived, Signals};
use super::stopped::stop_with;
use crate::error::{Error, complain};
use crate::process;
use crate::report::{Ending, ServiceReport};
use crate::statistics::{ProcessStatistics, Totals};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const FIRST_LOOK: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// Looking may take one part in so many of the time.
const TIME_SHARE: u32 = 100;
/// After the program's end, the time until the user is told what the launcher waits for.
const SILENT: Duration = Duration::from_secs(2);
/// Between two looks while the launcher cannot be woken.
const UNHEARD_LOOK: Duration = Duration::from_millis(20);
/// Between two looks for memory outside the budget.
const OUTSIDE_LOOK: Duration = Duration::from_secs(1);
/// The exit code of a run that Hinterland ends.
const REFUSED: u8 = 125;
/// Processes that are told by name.
const NAMED_MAX: usize = 5;

/// How the program ended, and what only the outside saw.
pub struct Ended {
    /// How.
    pub ending: Ending,
    /// When.
    pub at: Instant,
    /// The largest resident set of any process of the run, as the kernel accounts it (`ru_maxrss`): at least the launcher's own at the
    /// start, whose memory the child has until its exec.
    pub rss_peak_bytes: u64,
    /// The largest sampled proportional set of the whole tree, launcher included.
    pub pss_peak_bytes: u64,
    /// Processor time of its processes that were waited for.
    pub processor: Duration,
    /// What `--slowdown` came to.
    pub service: Option<ServiceReport>,
}

/// The program's end.
#[derive(Clone, Copy)]
struct ProgramEnd {
    ending: Ending,
    at: Instant,
    /// The user knows what the launcher waits for.
    told: bool,
}

/// What the launcher's children are.
enum Children {
    /// There are some.
    Some,
    /// Nobody is left.
    None,
}

/// Watches `child` and its descendants until they have ended, or until a signal ends the wait for those that it has left. Serves
/// the clients of `control` meanwhile.
///
/// `outside` is asked now and then who holds memory outside the budget; with `strict`, the first one ends the run.
pub fn until_end(
    child: Pid,
    ledger: &LauncherLedger,
    signals: &Signals,
    outside: Option<Outside>,
    strict: bool,
    mut control: Control<'_>,
    totals: &mut Totals,
) -> Result<Ended, Error> {
    let mut watch = Watch {
        child,
        ledger,
        totals,
        liveness: Liveness::default(),
        program_end: None,
        pss_peak_bytes: 0,
        pss_due: Instant::now() + 4 * FIRST_LOOK,
        rss_peak_bytes: 0,
        outside,
        outside_due: Instant::now() + OUTSIDE_LOOK,
        strict,
        refused: false,
        absent: Vec::new(),
    };
    let mut interval = FIRST_LOOK;
    let mut due = Instant::now() + interval;
    let mut folded = Instant::now();
    loop {
        let next = due.min(folded + LOOK_MAX);
        if watch.wait(signals, &control, control.due().map_or(next, |asked| asked.min(next)))? {
            collect::look_for_dead(watch.ledger, watch.totals, &mut watch.liveness);
        }
        control.serve(watch.ledger, watch.totals, &mut watch.liveness);
        let enough = watch.take_signals(&signals.arrived())?;
        let children = watch.reap()?;
        if let Some(end) = watch.program_end
            && (enough || watch.refused || matches!(children, Children::None))
        {
            return watch.finish(end, control.service());
        }
        let now = Instant::now();
        if now >= due {
            watch.look();
            interval = (interval * 3 / 2).min(LOOK_MAX).max(now.elapsed() * TIME_SHARE);
            due = Instant::now() + interval;
        } else if now >= folded + LOOK_MAX {
            collect::fold_ended(watch.ledger, watch.totals);
            folded = now;
        }
        watch.tell();
    }
}

struct Watch<'a> {
    child: Pid,
    ledger: &'a LauncherLedger,
    totals: &'a mut Totals,
    liveness: Liveness,
    /// `None` while the program runs.
    program_end: Option<ProgramEnd>,
    pss_peak_bytes: u64,
    pss_due: Instant,
    rss_peak_bytes: u64,
    outside: Option<Outside>,
    outside_due: Instant,
    strict: bool,
    /// `--strict` has ended the run.
    refused: bool,
    /// Memory nodes that were named because they do not answer.
    absent: Vec<String>,
}

/// The processor time that the launcher has used.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

impl Watch<'_> {
    /// Sleeps until a signal arrives, a process dies, a client asks or `due`; says whether a process has died.
    fn wait(&self, signals: &Signals, control: &Control<'_>, due: Instant) -> Result<bool, Error> {
        let left = due.saturating_duration_since(Instant::now());
        // Rounded up, so that the loop does not spin through the last part of a millisecond.
        let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        let all = std::iter::once(signals.fd().as_fd()).chain(self.liveness.descriptors());
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let processes = 1..fds.len();
        fds.extend(control.descriptors().map(|(fd, awaited)| PollFd::new(fd, awaited)));
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(_) => Ok(fds[processes].iter().any(|fd| fd.any() == Some(true))),
            Err(Errno::EINTR) => Ok(false),
            // More descriptors than the launcher's own limit allows, which was lowered: it looks now and then.
            Err(Errno::EINVAL) => {
                std::thread::sleep(left.min(UNHEARD_LOOK));
                Ok(true)
            }
            Err(errno) => Err(Error::system("poll")(errno)),
        }
    }

    /// Passes signals on to the program; after its end, says whether one of them ends the wait for what it has left.
    fn take_signals(&self, arrived: &[Arrived]) -> Result<bool, Error> {
        let mut enough = false;
        for Arrived { signal, for_program } in arrived.iter().copied() {
            match (self.program_end, signal) {
                (None, _) if for_program => {
                    // SAFETY: the child has not been waited for yet, so the number is still its own.
                    unsafe { libc::kill(self.child.as_raw(), signal) };
                }
                (None, _) => {}
                (Some(_), libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) => enough = true,
                (Some(_), libc::SIGTSTP) => take_default(Signal::SIGTSTP).map_err(Error::system("cannot stop"))?,
                (Some(_), _) => {}
            }
        }
        Ok(enough)
    }

    /// Takes the news of all children: the program's, and of descendants whose parents have ended.
    fn reap(&mut self) -> Result<Children, Error> {
        loop {
            let mut status = 0;
            // SAFETY: `status` outlives the call. (The checked wrapper cannot express death by a real-time signal.)
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
            if pid == 0 {
                return Ok(Children::Some);
            }
            if pid < 0 {
                match Errno::last() {
                    Errno::EINTR => continue,
                    Errno::ECHILD => return Ok(Children::None),
                    errno => return Err(Error::system("waitpid")(errno)),
                }
            }
            // The program's number is another's once it has been waited for.
            if pid != self.child.as_raw() || self.program_end.is_some() {
                continue;
            }
            if libc::WIFEXITED(status) {
                self.ended(Ending::Exited(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX)));
            } else if libc::WIFSIGNALED(status) {
                self.ended(Ending::Killed { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) });
            } else if libc::WIFSTOPPED(status)
                && let Ok(signal) = Signal::try_from(libc::WSTOPSIG(status))
            {
                // The shell waits for the launcher to stop, so it stops too; the same signal tells the shell why.
                stop_with(self.child, signal)?;
            }
        }
    }

    fn ended(&mut self, ending: Ending) {
        self.program_end = Some(ProgramEnd { ending, at: Instant::now(), told: false });
    }

    /// Tells the user, once, what the launcher still waits for.
    fn tell(&mut self) {
        let Some(end) = self.program_end.as_mut().filter(|end| !end.told && end.at.elapsed() >= SILENT) else { return };
        end.told = true;
        let left = process::descendants(nix::unistd::getpid().as_raw());
        let named: Vec<String> = left.iter().take(NAMED_MAX).map(|(pid, name)| format!("{name} ({pid})")).collect();
        let more = if left.len() > NAMED_MAX { ", …" } else { "" };
        complain(format_args!(
            "the program has ended with {}; waiting for {} that it left: {}{more} (Ctrl-C ends the wait)",
            end.ending.exit_code(),
            if left.len() == 1 { "a process".to_owned() } else { format!("{} processes", left.len()) },
            named.join(", ")
        ));
    }

    /// The last look.
    fn finish(mut self, end: ProgramEnd, service: Option<ServiceReport>) -> Result<Ended, Error> {
        if self.refused {
            // Those that were made while the others were being ended.
            self.end_all();
        }
        collect::look_last(self.ledger, self.totals, &mut self.liveness);
        self.name_absent();
        let found = self.outside.take().map(|outside| outside.found).unwrap_or_default();
        self.totals.note_outside(found);
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(Error::system("getrusage"))?;
        let processor = usage.user_time() + usage.system_time();
        let reaped_peak_bytes = u64::try_from(usage.max_rss()).unwrap_or(0) << 10;
        Ok(Ended {
            ending: if self.refused { Ending::Exited(REFUSED) } else { end.ending },
            at: end.at,
            rss_peak_bytes: self.rss_peak_bytes.max(reaped_peak_bytes),
            pss_peak_bytes: self.pss_peak_bytes,
            processor: Duration::from_nanos(u64::try_from(processor.num_nanoseconds()).unwrap_or(0)),
            service,
        })
    }

    /// Looks at the ledger and at `/proc`.
    fn look(&mut self) {
        let peak = collect::look(self.ledger, self.totals, &mut self.liveness, self.child);
        self.rss_peak_bytes = self.rss_peak_bytes.max(peak);
        self.name_absent();
        self.look_at_pss();
        self.look_outside();
    }

    /// Names memory nodes that do not answer from the beginning, each once.
    fn name_absent(&mut self) {
        for total in self.totals.backends().iter().filter(|total| total.is_absent()) {
            let url = &total.statistics.url;
            if !self.absent.contains(url) {
                complain(format_args!(
                    "warning: the memory node {url} does not answer; the run goes on with the others"
                ));
                self.absent.push(url.clone());
            }
        }
    }

    /// Names who holds memory outside the budget, at once.
    fn look_outside(&mut self) {
        let begun = Instant::now();
        let Some(outside) = self.outside.as_mut().filter(|_| begun >= self.outside_due) else { return };
        let spent = processor_time();
        let rows: Vec<ProcessStatistics> = collect::live_rows(self.ledger, &mut self.liveness);
        let found = outside.look(&rows);
        // Of the launcher's own time: on a busy machine it may have waited for a processor most of the time.
        let spent = processor_time().saturating_sub(spent);
        self.outside_due = begun + OUTSIDE_LOOK.max(spent * TIME_SHARE);
        for found in &found {
            complain(format_args!("not managed: {found}"));
        }
        if self.strict && !found.is_empty() && !self.refused {
            self.refused = true;
            complain("--strict: the run is ended");
            self.end_all();
        }
    }

    /// Kills the program and all that descends from it.
    fn end_all(&self) {
        for (pid, _) in process::descendants(nix::unistd::getpid().as_raw()) {
            // SAFETY: a descendant a moment ago: nobody but this process waits for its orphans, and its parents are being ended, too.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }

    /// The proportional set costs the kernel a walk over all page tables, so it has its own, rarer turn.
    fn look_at_pss(&mut self) {
        let begun = Instant::now();
        if begun < self.pss_due {
            return;
        }
        self.pss_peak_bytes = self.pss_peak_bytes.max(process::tree_pss_bytes());
        self.pss_due = begun + LOOK_MAX.max(begun.elapsed() * TIME_SHARE);
    }
}
