//! The launcher's side of the handover of its files (`namespaces` has the programs'): which process it takes the other end of a connection for, and what it
//! does without descriptors.

use super::namespaces::ASKS;
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, Running};
use hinterland_tests::skips;
use hinterland_tests::suite::{self, Trial};
use nix::sys::signal::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The launcher sleeps so often in a test that shows that it does.
const SLEEPS: u64 = 30;
/// Processor time (1/100 s) in which a launcher that sleeps has slept so often: it needs a hundredth of that.
const TICKS_MAX: u64 = 1000;
/// A launcher has so many descriptors that it keeps, at least.
const KEPT_MIN: usize = 8;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    vec![
        suite::named("lifecycle::handover::number_of_another", no_pidfd_of_peer, Box::new(number_of_another)),
        suite::named("lifecycle::handover::no_descriptors", skips::not_root, Box::new(no_descriptors)),
    ]
}

/// Why the launcher has to know the other end of a connection by its number (`SO_PEERPIDFD`: Linux 6.5).
fn no_pidfd_of_peer() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let too_old = || (version < (6, 5)).then(|| "needs Linux 6.5".to_owned());
    skips::not_root().or_else(too_old)
}

/// A run of a shell's script, and the directory of its launcher's sockets, whose name is short.
struct Run {
    running: Running,
    runtime: TempDir,
}

impl Run {
    fn start(test: &str, script: &str, python: &str) -> Result<Run> {
        let runtime = tempfile::Builder::new().prefix("hl-").tempdir_in("/tmp")?;
        let launch = Launch::new(test, &["--local", "32M"], &["sh", "-c", script])?;
        let launch = launch.with("XDG_RUNTIME_DIR", &runtime.path().display().to_string());
        let mut running = launch.with("PYTHON", python).start()?;
        running.wait_for("ready")?;
        Ok(Run { running, runtime })
    }

    fn socket(&self, end: &str) -> PathBuf {
        self.runtime.path().join(format!("hinterland/{}{end}", self.running.pid))
    }

    /// Writes a file of the run's directory, which is there as a whole or not at all.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let directory = &self.running.directory;
        fs::write(directory.join("written"), text)?;
        Ok(fs::rename(directory.join("written"), directory.join(name))?)
    }

    fn of_launcher(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.running.pid))
    }

    /// What `/proc` says of the launcher.
    fn field(&self, name: &str) -> Result<String> {
        let status = fs::read_to_string(self.of_launcher("status"))?;
        let field = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(field.with_context(|| format!("no {name}"))?.trim().to_owned())
    }

    /// The processor time of the launcher, in ticks.
    fn spent_ticks(&self) -> Result<u64> {
        let stat = fs::read_to_string(self.of_launcher("stat"))?;
        let after_name = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        // proc_pid_stat(5): `utime` and `stime`, fields 14 and 15; what follows the name begins with field 3.
        Ok(after_name.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum())
    }

    fn stop(&self) -> Result<()> {
        self.running.signal(Signal::SIGSTOP)?;
        suite::wait_until("a launcher that is stopped", || Ok(self.field("State")?.starts_with('T')))
    }
}

/// Connects to a path by a child, which ends; then takes what comes.
const LENDS: &str = "import os, socket, sys
s = socket.socket(socket.AF_UNIX)
child = os.fork()
if child == 0:
    s.connect(sys.argv[1])
    os._exit(0)
ended = os.waitpid(child, 0)[1]
print(child if ended == 0 else 'not connected', flush=True)
count = 0
while True:
    said, beside = s.recvmsg(1, 64)[:2]
    count += len(beside)
    if not said: break
print('files', count, flush=True)
";

/// Makes a child of a number (clone3(2): `set_tid`), which lives until there is a file.
const TAKES: &str = "import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
number = ctypes.c_int(int(sys.argv[1]))
SIGCHLD, CLONE3 = 17, 435
words = struct.pack('11Q', 0, 0, 0, 0, SIGCHLD, 0, 0, 0, ctypes.addressof(number), 1, 0)
child = libc.syscall(CLONE3, ctypes.create_string_buffer(words, len(words)), ctypes.c_size_t(len(words)))
if child == 0:
    while not os.path.exists('enough'): time.sleep(0.05)
    os._exit(0)
print('taken' if child == number.value else os.strerror(ctypes.get_errno()), flush=True)
if child > 0: os.waitpid(child, 0)
";

/// A stranger connects and ends, and a process of the run gets its number before the launcher looks: what holds the stranger's socket gets nothing.
fn number_of_another(test: &str) -> Result<()> {
    // What makes the child is none of Hinterland's: it makes no child past the gate of forks.
    let script = "echo ready; while [ ! -e number ]; do sleep 0.05; done; \
        LD_PRELOAD= /usr/bin/python3 -c \"$PYTHON\" $(cat number); echo ended";
    let mut run = Run::start(test, script, TAKES)?;
    run.stop()?;
    let mut stranger = Command::new("/usr/bin/python3");
    stranger.args(["-c", LENDS]).arg(run.socket(".files")).stdout(Stdio::piped());
    let mut stranger = stranger.spawn()?;
    let mut says = BufReader::new(stranger.stdout.take().context("its output")?).lines();
    let number = says.next().context("a number")??;
    run.write("number", &number)?;
    run.running.wait_for("taken")?;
    run.running.signal(Signal::SIGCONT)?;
    let said = says.next().context("what came")??;
    stranger.wait()?;
    run.write("enough", "")?;
    run.running.end()?.expect(0, "ended")?;
    ensure!(said == "files 0", "process {number} was another: {said}");
    Ok(())
}

/// A launcher that has no descriptor for what connects to its sockets sleeps all the same, and serves both when there are some.
fn no_descriptors(test: &str) -> Result<()> {
    // The launcher ends with the program, whether a client waits or not.
    let script = "echo ready; while [ ! -e go ]; do sleep 0.05; done; /usr/bin/python3 -c \"$PYTHON\" $HINTERLAND_HANDOVER; \
        while [ ! -e enough ]; do sleep 0.05; done; echo ended";
    let run = Run::start(test, script, ASKS)?;
    // Those which it opens and closes again and again come after.
    let is_kept = |number: &usize| {
        let target = fs::read_link(run.of_launcher(&format!("fd/{number}"))).unwrap_or_default();
        let target = target.to_string_lossy();
        !(target.is_empty() || target.starts_with("/proc") || target.contains("[pidfd"))
    };
    let kept = (0..).take_while(is_kept).count();
    ensure!(kept >= KEPT_MIN, "{kept} descriptors");
    let before = fs::read_to_string(run.of_launcher("limits"))?;
    let before = before.lines().find_map(|line| line.strip_prefix("Max open files")).context("a limit")?;
    let before = before.split_whitespace().next().context("a number")?.to_owned();
    let limit = |soft: &str| -> Result<()> {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &run.running.pid.to_string(), &format!("--nofile={soft}:")]);
        ensure!(command.status()?.success(), "prlimit fails");
        Ok(())
    };
    limit(&kept.to_string())?;
    let mut client = UnixStream::connect(run.socket(""))?;
    client.write_all(b"nonsense\n")?;
    run.write("go", "")?;
    suite::wait_until("a program that has connected", || {
        Ok(fs::read_to_string(run.running.directory.join("stderr"))?.contains("connected"))
    })?;
    let slept = || -> Result<u64> { Ok(run.field("voluntary_ctxt_switches")?.parse()?) };
    let (begun, spent_before) = (slept()?, run.spent_ticks()?);
    suite::wait_until("a launcher that sleeps", || {
        let spent = run.spent_ticks()?.saturating_sub(spent_before);
        ensure!(spent <= TICKS_MAX, "it goes round and round: {spent} ticks of processor time");
        Ok(slept()? >= begun + SLEEPS)
    })?;
    let printed = fs::read_to_string(run.running.directory.join("stdout"))?;
    ensure!(!printed.contains("files"), "there were descriptors left: {printed}");
    limit(&before)?;
    let mut answer = String::new();
    BufReader::new(client).read_line(&mut answer)?;
    ensure!(answer.contains("no request"), "{answer}");
    run.write("enough", "")?;
    run.running.end()?.expect(0, "files 1\nended").map(drop)
}
