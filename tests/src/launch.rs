//! Runs small test programs under the launcher, for the tests of good and bad days.

use crate::process::code;
use crate::{places, tree};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What programs written in C share.
const HEADERS: [&str; 3] = ["c/pattern.h", "field/tell.h", "field/kernel_action.h"];

/// A test program written in C, compiled when its source is newer: of `tests/programs/c`, or of another folder that is named before it.
/// `flags` come last.
///
/// # Errors
/// It does not compile.
pub fn c_program(name: &str, flags: &[&str]) -> Result<PathBuf> {
    let source = if name.contains('/') { places::program("") } else { places::program("c") }.join(format!("{name}.c"));
    let built = places::tests().join("bin").join(format!("{name}{}", flags.concat()).replace(['/', '='], "_"));
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    let headers = HEADERS.iter().filter_map(|header| changed(&places::program(header))).max();
    let newest = changed(&source).max(headers);
    // Two tests may want the same program at the same time, and one may already run it.
    static COMPILES: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let of_program = COMPILES.lock().unwrap_or_else(PoisonError::into_inner).entry(built.clone()).or_default().clone();
    let _one_at_a_time = of_program.lock().unwrap_or_else(PoisonError::into_inner);
    if changed(&built) <= newest {
        std::fs::create_dir_all(places::tests().join("bin"))?;
        let fresh = built.with_extension("new");
        let mut command = Command::new("gcc");
        command.args(["-O2", "-pthread", "-o"]).arg(&fresh).arg(&source).args(flags);
        let output = command.output().context("cannot start gcc (./dev setup)")?;
        ensure!(output.status.success(), "gcc cannot compile {name}.c: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&fresh, &built)?;
    }
    Ok(built)
}

/// A run of the launcher in an empty directory of its own.
pub struct Launch {
    command: Command,
    /// The working directory; temporary files go to `tmp` in it.
    pub directory: PathBuf,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code, 128 + signal when the launcher died of one.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Wall time.
    pub wall: Duration,
    directory: PathBuf,
}

impl Launch {
    /// `hinterland run ARGUMENTS --stats stats.json -- PROGRAM` for the test called `test`.
    ///
    /// # Errors
    /// The launcher is not built, or the directory cannot be made.
    pub fn new(test: &str, arguments: &[&str], program: &[&str]) -> Result<Launch> {
        let mut launch = Launch::bare(test, &["run"])?;
        launch.command.args(arguments).args(["--stats", "stats.json", "--"]).args(program);
        Ok(launch)
    }

    /// `hinterland ARGUMENTS`.
    ///
    /// # Errors
    /// As for `new`.
    pub fn bare(test: &str, arguments: &[&str]) -> Result<Launch> {
        let mut command = launcher()?;
        command.args(arguments);
        Launch::of(test, command)
    }

    /// Any command.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn of(test: &str, mut command: Command) -> Result<Launch> {
        let directory = places::emptied(places::tests().join("lifecycle").join(test.replace("::", "-")))?;
        let temporary = places::emptied(directory.join("tmp"))?;
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HINTERLAND_")) {
            command.env_remove(name);
        }
        command.env(INSECURE_LOOPBACK, "1");
        command
            .env("XDG_RUNTIME_DIR", &temporary)
            .env("TMPDIR", temporary)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .process_group(0);
        command.stdout(std::fs::File::create(directory.join("stdout"))?);
        command.stderr(std::fs::File::create(directory.join("stderr"))?);
        Ok(Launch { command, directory })
    }

    /// With a variable set.
    pub fn with(mut self, name: &str, value: &str) -> Launch {
        self.command.env(name, value);
        self
    }

    /// With a variable unset.
    pub fn without(mut self, name: &str) -> Launch {
        self.command.env_remove(name);
        self
    }

    /// Runs in `directory` instead of the test's own, which the program may have no right to enter.
    pub fn set_directory(&mut self, directory: &Path) {
        self.command.current_dir(directory);
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(self) -> Result<Ended> {
        self.start()?.end()
    }

    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(mut self) -> Result<Running> {
        let child = self.command.spawn().context("cannot start the launcher")?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        Ok(Running { child, pid, started: Instant::now(), directory: self.directory })
    }
}

/// The variable by which nodes and programs of tests use loopback addresses without credentials.
pub const INSECURE_LOOPBACK: &str = "HINTERLAND_INSECURE_LOOPBACK";

/// `hinterland`, which talks to nodes on loopback addresses.
///
/// # Errors
/// It is not built.
pub fn launcher() -> Result<Command> {
    let mut command = Command::new(places::launcher()?);
    command.env(INSECURE_LOOPBACK, "1");
    Ok(command)
}

/// A launcher that runs. Dropping it kills its process group.
pub struct Running {
    child: Child,
    /// The launcher.
    pub pid: Pid,
    started: Instant,
    /// Its working directory.
    pub directory: PathBuf,
}

impl Running {
    /// Waits until the program has written `text` to its standard output.
    ///
    /// # Errors
    /// It ended before.
    pub fn wait_for(&mut self, text: &str) -> Result<()> {
        loop {
            if read(&self.directory.join("stdout")).contains(text) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("ended with {} before it said '{text}': {}", code(status), read(&self.directory.join("stderr")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal to the launcher alone.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(self.pid, signal)?)
    }

    /// The processes below the launcher.
    pub fn below(&self) -> Vec<i32> {
        tree::descendants(self.pid.as_raw())
    }

    /// Waits for the end, however long it takes: a hang is ended by the suite.
    ///
    /// # Errors
    /// The launcher cannot be waited for.
    pub fn end(self) -> Result<Ended> {
        self.end_while(|_| Ok(()))
    }

    /// Waits for the end, and calls `look` with the launcher again and again meanwhile.
    ///
    /// # Errors
    /// `look` failed.
    pub fn end_while(mut self, mut look: impl FnMut(Pid) -> Result<()>) -> Result<Ended> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            look(self.pid)?;
            std::thread::sleep(Duration::from_millis(5));
        };
        Ok(Ended {
            code: code(status),
            stdout: read(&self.directory.join("stdout")),
            stderr: read(&self.directory.join("stderr")),
            wall: self.started.elapsed(),
            directory: self.directory.clone(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let below = self.below();
        let _ = killpg(self.pid, Signal::SIGKILL);
        for pid in below {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Where it ran.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The statistics as JSON.
    ///
    /// # Errors
    /// There are none.
    pub fn stats(&self) -> Result<serde_json::Value> {
        let text = std::fs::read(self.directory.join("stats.json"))
            .with_context(|| format!("no statistics were written; ended with {}: {}", self.code, self.stderr))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Demands this exit code and this text in the standard output.
    ///
    /// # Errors
    /// It was otherwise.
    pub fn expect(&self, code: i32, stdout: &str) -> Result<&Ended> {
        ensure!(self.code == code, "ended with {} instead of {code}{}", self.code, self.words());
        ensure!(self.stdout.contains(stdout), "did not print '{stdout}'{}", self.words());
        Ok(self)
    }

    /// Demands that the program paged. A tape may bring all that it needs in time: then that it used what the tape brought.
    ///
    /// # Errors
    /// Nothing was far.
    pub fn expect_paging(&self) -> Result<&Ended> {
        let stats = self.stats()?;
        let some = |figure: &str| stats[figure].as_u64() > Some(0);
        let paged = some("major_faults") || some("tape_pages") && some("prefetch_hits");
        ensure!(paged, "had no major fault: {stats}");
        Ok(self)
    }

    /// Demands that pages of the program went far; whether any came back is left open.
    ///
    /// # Errors
    /// All stayed near.
    pub fn expect_eviction(&self) -> Result<&Ended> {
        let stats = self.stats()?;
        ensure!(stats["evicted_dirty_pages"].as_u64() > Some(0), "evicted nothing: {stats}");
        Ok(self)
    }

    /// Demands a failure that standard error explains with one of `texts`, and never a wrong byte in the program.
    ///
    /// # Errors
    /// It went well, or the words are missing.
    pub fn expect_refusal(&self, texts: &[&str]) -> Result<&Ended> {
        ensure!(self.code != 0, "went well instead of failing{}", self.words());
        ensure!(self.code != 99 && !self.stdout.contains("WRONG"), "the program read a wrong byte{}", self.words());
        let stderr = self.stderr.to_lowercase();
        let named = texts.is_empty() || texts.iter().any(|text| stderr.contains(&text.to_lowercase()));
        ensure!(named && !stderr.trim().is_empty(), "standard error has none of {texts:?}{}", self.words());
        Ok(self)
    }

    fn words(&self) -> String {
        format!("\nstandard output:\n{}\nstandard error:\n{}", self.stdout, self.stderr)
    }
}

/// A text file; empty when it cannot be read.
fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    let _ = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
