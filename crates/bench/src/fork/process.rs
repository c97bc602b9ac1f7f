//! A process that forks, natively or under Hinterland: started, asked, looked at, ended.

use super::worker::{ForkWorkerArgs, Told};
use crate::error::BenchError;
use crate::executables::{self, Executables};
use crate::paging::tree;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{MMapPath, Process};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The far range (ARCHITECTURE.md).
const FAR_ADDRESSES: Range<u64> = 0x4800_0000_0000..0x5400_0000_0000;
/// A process that does not stop within this time is ending.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// A running worker. With its standard input closed it ends.
pub struct Forker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Forker {
    /// Starts one and waits until its data is written; under Hinterland with `managed`: its fault path and its budget in bytes.
    ///
    /// # Errors
    /// It cannot be started, or says why it failed.
    pub fn start(
        executables: &Executables,
        managed: Option<(&str, u64)>,
        args: &ForkWorkerArgs,
    ) -> Result<Forker, BenchError> {
        let mut command = command(executables, managed, args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = PathBuf::from(command.get_program());
        let mut child = command.spawn().map_err(BenchError::io("start", &started))?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut forker = Forker { child, output };
        forker.told()?;
        Ok(forker)
    }

    /// Asks for something.
    ///
    /// # Errors
    /// It is gone.
    pub fn ask(&mut self, word: &str) -> Result<(), BenchError> {
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{word}").map_err(BenchError::io("write to", Path::new("a worker")))
    }

    /// What it tells next.
    ///
    /// # Errors
    /// It is gone, or says why it failed.
    pub fn told(&mut self) -> Result<Told, BenchError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(BenchError::io("read from", Path::new("a worker")))?;
        match serde_json::from_str(&line) {
            Ok(Told::Failed(reason)) => Err(BenchError::Setting(reason)),
            Ok(told) => Ok(told),
            Err(_) => Err(BenchError::Setting(format!("a worker ended or said what it should not: '{}'", line.trim()))),
        }
    }

    /// Whether it tells nothing for `wait`. It has told all that it was asked for before.
    pub fn is_silent(&self, wait: Duration) -> bool {
        let mut fds = [PollFd::new(self.output.get_ref().as_fd(), PollFlags::POLLIN)];
        let wait = u16::try_from(wait.as_millis()).unwrap_or(u16::MAX);
        poll(&mut fds, wait).is_ok_and(|ready| ready == 0)
    }

    /// What its processes hold of the far range, in bytes: the sum of their proportional sets, taken while all of them stand
    /// still.
    pub fn far_bytes(&self) -> u64 {
        let mut stopped: Vec<Process> = Vec::new();
        // A process may have forked before it was stopped: look again until nobody is new.
        while let Some(pid) = tree(self.pid()).into_iter().find(|pid| stopped.iter().all(|process| process.pid != *pid))
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            let Ok(process) = Process::new(pid) else { break };
            let begun = Instant::now();
            while process.stat().is_ok_and(|stat| stat.state != 'T') && begun.elapsed() < STOP_LIMIT {
                std::thread::sleep(Duration::from_micros(200));
            }
            stopped.push(process);
        }
        let sum = stopped.iter().map(far_pss_bytes).sum();
        // The launcher last: it must not see the others stopped.
        for process in stopped.iter().rev() {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGCONT);
        }
        sum
    }

    /// Lets it end.
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }
}

/// A worker's command line.
fn command(executables: &Executables, managed: Option<(&str, u64)>, args: &ForkWorkerArgs) -> Command {
    let started = if managed.is_some() { &executables.launcher } else { &executables.bench };
    let mut command = executables::command(started);
    if let Some((path, local_bytes)) = managed {
        command.args(["run", "--quiet", "--fault-path", path, "--local", &local_bytes.to_string()]);
        command.arg("--").arg(&executables.bench);
    }
    command.args(["fork-worker", "--pages", &args.pages.to_string()]);
    command.args(["--changed-pages", &args.changed_pages.to_string(), "--seed", &args.seed.to_string()]);
    command
}

/// The proportional set of a process's private mappings in the far range.
fn far_pss_bytes(process: &Process) -> u64 {
    let maps = process.smaps().map(|maps| maps.0).unwrap_or_default();
    let far = maps.iter().filter(|map| FAR_ADDRESSES.contains(&map.address.0) && map.pathname == MMapPath::Anonymous);
    far.filter_map(|map| map.extension.map.get("Pss")).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executables::tests::assert_unreached;

    #[test]
    fn a_worker_has_nothing_that_the_user_has_set() {
        let executables = Executables { bench: "bench".into(), launcher: "hinterland".into() };
        let args = ForkWorkerArgs { pages: 1, changed_pages: 1, seed: 1 };
        assert_unreached(&command(&executables, None, &args), &[]);
        assert_unreached(&command(&executables, Some(("inline", 1 << 24)), &args), &[]);
    }
}
