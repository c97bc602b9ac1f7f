//! The programs: how each is prepared, run once under a given prefix, and what of its output must be the same.

use crate::error::BenchError;
use crate::executables;
use crate::rivals::undo::{Changes, Guard};
use clap::ValueEnum;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Lines to sort: about 100 MB of text, a few seconds.
const SORT_LINES: u32 = 3_000_000;
/// Three products of matrices of 2000 × 2000, and their sum.
const NUMPY: &str = "import numpy as n; r=n.random.default_rng(1); a=r.random((2000,2000)); b=r.random((2000,2000))\n\
                     for _ in range(3): a=a@b; a/=n.abs(a).max()\nprint(repr(float(a.sum())))";
/// How long a server may take to answer first.
const START_MAX: Duration = Duration::from_secs(20);

/// A program to run natively and under Hinterland with all its memory local.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// coreutils sort, two threads, 3,000,000 lines in memory.
    Sort,
    /// NumPy: products of matrices.
    Numpy,
    /// redis-server under redis-benchmark (SET and GET, 512 bytes, 100,000 keys).
    Redis,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |v| v.get_name()))
    }
}

/// How a program is started: words before its own command line, and variables.
#[derive(Clone, Default, Debug)]
pub struct Prefix {
    /// For example `hinterland run --`.
    pub words: Vec<OsString>,
    /// Set for the run.
    pub environment: Vec<(String, OsString)>,
}

impl Prefix {
    fn command(&self, program: &Path) -> Command {
        let mut words = self.words.iter().map(OsString::as_os_str).chain([program.as_os_str()]);
        let mut command = executables::command(words.next().unwrap_or_default());
        command.args(words).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        executables::end_with_bench(&mut command);
        command
    }
}

/// What a run took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Time {
    /// Wall-clock time.
    pub wall_seconds: f64,
    /// Processor time, user and system, of the program and of what it waited for.
    pub cpu_seconds: f64,
}

/// What one run took and gave.
pub struct Finished {
    /// Of a server, while it answers its client; the processor time is that of its whole life.
    pub time: Time,
    /// What must not depend on how the program was run.
    pub output: Vec<u8>,
}

/// A program made ready in a directory of its own.
pub struct Case {
    program: Program,
    directory: PathBuf,
    python: PathBuf,
    /// Removes the directory.
    _directory: Guard,
}

impl Case {
    /// Prepares what the program reads.
    ///
    /// # Errors
    /// The directory for temporary files cannot be written.
    pub fn prepare(program: Program, python: &Path, changes: &Changes) -> Result<Case, BenchError> {
        let (directory, guard) = changes.directory()?;
        let case = Case { program, directory, python: python.to_owned(), _directory: guard };
        if program == Program::Sort {
            write_lines(&case.input()).map_err(BenchError::io("write", &case.input()))?;
        }
        Ok(case)
    }

    /// Runs the program once; an error says why it gave no result.
    pub fn run(&self, prefix: &Prefix) -> Result<Finished, String> {
        match self.program {
            Program::Sort => {
                let output = self.directory.join("sorted");
                let mut command = prefix.command(Path::new("sort"));
                command.env("LC_ALL", "C").args(["-S", "1G", "--parallel=2", "-o"]).arg(&output).arg(self.input());
                let (time, _) = timed(&mut command)?;
                let sorted = std::fs::read(&output).map_err(|e| e.to_string())?;
                Ok(Finished { time, output: sorted })
            }
            Program::Numpy => {
                let (time, output) = timed(prefix.command(&self.python).args(["-c", NUMPY]))?;
                Ok(Finished { time, output })
            }
            Program::Redis => self.redis(prefix),
        }
    }

    /// Where a run's statistics are to be.
    pub fn statistics(&self) -> PathBuf {
        self.directory.join("statistics.json")
    }

    fn input(&self) -> PathBuf {
        self.directory.join("lines")
    }

    fn redis(&self, prefix: &Prefix) -> Result<Finished, String> {
        let socket = self.directory.join("redis");
        let mut command = prefix.command(Path::new("redis-server"));
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server(command.spawn().map_err(|e| format!("cannot start redis-server: {e}"))?);
        let start = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            if start.elapsed() > START_MAX {
                return Err(format!("redis-server does not answer within {} s", START_MAX.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut load = Command::new("redis-benchmark");
        load.args(["-n", "300000", "-r", "100000", "-d", "512", "-c", "20", "-t", "set,get", "-q", "-s"]).arg(&socket);
        executables::end_with_bench(&mut load);
        let (client, _) = timed(load.stdin(Stdio::null()))?;
        let cpu_seconds = of_children(|| drop(server));
        // Which keys exist depends on chance; that every request was answered is what the client checks.
        Ok(Finished { time: Time { cpu_seconds, ..client }, output: Vec::new() })
    }
}

/// Ends its process when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // A launcher passes SIGTERM on; SIGKILL would leave its program.
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

/// Processor time of the children that `work` waits for, and of theirs.
fn of_children(work: impl FnOnce()) -> f64 {
    let seconds = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs()).as_secs_f64();
    let spent = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
        usage.map_or(f64::NAN, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
    };
    let before = spent();
    work();
    spent() - before
}

/// Runs a command to its end; returns its time and standard output.
fn timed(command: &mut Command) -> Result<(Time, Vec<u8>), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut output = Err(std::io::ErrorKind::Other.into());
    let cpu_seconds = of_children(|| output = command.output());
    let wall_seconds = start.elapsed().as_secs_f64();
    let output = output.map_err(|e| format!("cannot start {name}: {e}"))?;
    if output.status.success() {
        return Ok((Time { wall_seconds, cpu_seconds }, output.stdout));
    }
    Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Writes random lines, the same every time.
fn write_lines(path: &Path) -> std::io::Result<()> {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut file = BufWriter::new(File::create(path)?);
    for line in 0..SORT_LINES {
        writeln!(file, "{:016x} line {line}", rng.random::<u64>())?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executables::tests::assert_unreached;
    use hinterland_abi::variables;

    #[test]
    fn a_program_has_the_settings_of_its_prefix_alone() {
        assert_unreached(&Prefix::default().command(Path::new("sort")), &[]);
        let environment = vec![(variables::LOCAL.to_owned(), "4G".into())];
        let managed = Prefix { words: vec!["hinterland".into()], environment };
        assert_unreached(&managed.command(Path::new("sort")), &[variables::LOCAL]);
    }
}
