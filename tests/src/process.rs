//! Runs one command in a process group of its own, measures its tree, and ends the group when its time is up.

use crate::tree;
use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at the tree in short runs, where its peak counts; it grows with the run, so that looking stays cheap.
pub const OFTEN: Duration = Duration::from_millis(4);
/// The same where the peak is only noted: a look takes the processor from the program.
pub const NOW_AND_THEN: Duration = Duration::from_millis(25);
/// Time between two looks at whether the command has ended.
const END_EVERY: Duration = Duration::from_millis(4);
/// In long runs, this part of the run so far goes by between two looks.
const SAMPLES: u32 = 1000;

/// How a run ended and what it took.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit code, or 128 + signal as a shell reports it.
    pub code: i32,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
    /// Wall time.
    pub wall: Duration,
    /// Peak of the tree's anonymous resident memory.
    pub anonymous_peak_bytes: u64,
    /// Peak of the tree's resident memory.
    pub resident_peak_bytes: u64,
}

/// What runs beside a command.
pub type Client<'a> = dyn Fn(&Ended) -> Result<()> + Sync + 'a;

/// Tells the client that the program has ended.
#[derive(Default)]
pub struct Ended(AtomicBool);

impl Ended {
    /// Whether it has.
    pub fn yes(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Runs `command` for `limit` at most, with a look at its tree `every` so often. `beside` runs in a thread of its own meanwhile; its failure
/// ends the run.
///
/// # Errors
/// The command cannot be started, or `beside` failed.
pub fn run(mut command: Command, limit: Duration, every: Duration, beside: Option<&Client<'_>>) -> Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let mut group = Group::start(&mut command)?;
    let ended = Ended::default();
    std::thread::scope(|scope| {
        let mut beside = beside.map(|work| scope.spawn(|| work(&ended)));
        let mut finished = Finished {
            code: 0,
            timed_out: false,
            wall: Duration::ZERO,
            anonymous_peak_bytes: 0,
            resident_peak_bytes: 0,
        };
        let (mut trouble, mut next_look) = (None, Duration::ZERO);
        let status = loop {
            if let Some(status) = group.child.try_wait()? {
                break status;
            }
            if started.elapsed() >= next_look {
                finished.look(group.pid);
                next_look = started.elapsed() + (started.elapsed() / SAMPLES).max(every);
            }
            if started.elapsed() > limit {
                finished.timed_out = true;
                group.kill();
            }
            if beside.as_ref().is_some_and(|thread| thread.is_finished())
                && let Some(Err(error)) = beside.take().map(join)
            {
                trouble = Some(error);
                group.kill();
            }
            std::thread::sleep(END_EVERY);
        };
        ended.0.store(true, Ordering::Release);
        finished.wall = started.elapsed();
        finished.code = code(status);
        if let Some(error) = trouble.or_else(|| beside.and_then(|thread| join(thread).err())) {
            return Err(error.context(format!("the client failed; {name} ended with {}", finished.code)));
        }
        Ok(finished)
    })
}

/// Runs `command` to its end without a look at its tree, which would take a share of the processor; its exit code.
///
/// # Errors
/// The command cannot be started.
pub fn run_unmeasured(mut command: Command) -> Result<i32> {
    Ok(code(Group::start(&mut command)?.child.wait()?))
}

impl Finished {
    /// Takes one sample.
    fn look(&mut self, pid: Pid) {
        let sample = tree::sample(pid);
        self.anonymous_peak_bytes = self.anonymous_peak_bytes.max(sample.anonymous_bytes);
        self.resident_peak_bytes = self.resident_peak_bytes.max(sample.resident_bytes);
    }
}

/// A started process group. Dropping it kills what is left of it.
struct Group {
    child: Child,
    pid: Pid,
}

impl Group {
    fn start(command: &mut Command) -> Result<Group> {
        let child =
            command.process_group(0).spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let pid = Pid::from_raw(i32::try_from(child.id()).context("a process number fits an i32")?);
        Ok(Group { child, pid })
    }

    /// Kills every process of the group, and those below that have made groups of their own, as timeout(1) does.
    fn kill(&self) {
        let below = tree::descendants(self.pid.as_raw());
        let _ = killpg(self.pid, Signal::SIGKILL);
        for pid in below {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// The result of a thread; a panic is an error like others.
fn join(thread: std::thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(anyhow!("panicked: {}", text.unwrap_or_else(|| "without a message".into())))
    })
}

/// The code that a shell would show.
pub fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_testkit::HANG;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn reports_codes_and_signals() {
        assert_eq!(run(shell("exit 3"), HANG, OFTEN, None).unwrap().code, 3);
        assert_eq!(run(shell("kill -TERM $$"), HANG, OFTEN, None).unwrap().code, 143);
        assert_eq!(run_unmeasured(shell("exit 4")).unwrap(), 4);
        assert_eq!(run_unmeasured(shell("kill -TERM $$")).unwrap(), 143);
    }

    #[test]
    fn nothing_is_left_of_a_group_that_is_not_measured() {
        assert_eq!(run_unmeasured(shell("sleep 98766 & exit 0")).unwrap(), 0);
        wait_for_the_end_of("sleep 98766");
    }

    #[test]
    fn ends_the_whole_group_when_time_is_up() {
        let finished = run(shell("sleep 98764 & sleep 98764"), Duration::from_millis(200), OFTEN, None).unwrap();
        assert!(finished.timed_out);
        assert_eq!(finished.code, 137);
        wait_for_the_end_of("sleep 98764");
    }

    #[test]
    fn ends_groups_below_too() {
        let finished = run(shell("setsid sleep 98765 & wait"), Duration::from_millis(300), OFTEN, None).unwrap();
        assert!(finished.timed_out);
        wait_for_the_end_of("sleep 98765");
    }

    /// Waits until no process has this command line.
    fn wait_for_the_end_of(line: &str) {
        let left = || Command::new("pgrep").args(["-fx", line]).output().unwrap().stdout;
        hinterland_testkit::wait_until(line, || left().is_empty());
    }

    #[test]
    fn a_failing_client_ends_the_run() {
        let client = |_: &Ended| Err(anyhow!("no answer"));
        let error = run(shell("sleep 98763"), HANG, OFTEN, Some(&client)).unwrap_err();
        assert!(format!("{error:#}").contains("no answer"));
    }
}
