//! Everything that the bench changes on the machine, and how it is taken back.
//!
//! A change is registered *before* it is made, here and with a janitor process, and taken back when its guard is dropped.
//! When the bench dies in any other way (Ctrl-C, SIGTERM, a panic, SIGKILL), the janitor's standard input ends and it takes
//! back what is left, the latest change first. Directories are last, when the bench is gone: programs write there until they end with it.
//! Invariant: taking back a change that was never made, or that is taken back already, does nothing. So what is made has a name that nothing
//! else has, and a change that fails is forgotten.

use crate::error::BenchError;
use crate::executables::myself;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::DirBuilder;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long processes may take to die, and pages to come back: a process that swaps gives back its pages first.
const DEATH_MAX: Duration = Duration::from_secs(20);
/// Between two tries while they die.
const PAUSE: Duration = Duration::from_millis(5);

/// A change to take back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Undo {
    /// Kill the processes of this cgroup and remove it.
    RemoveCgroup(PathBuf),
    /// Stop swapping to this file or device.
    Swapoff(PathBuf),
    /// Write this text to this file: a sysctl's old value, a device's reset.
    Write(PathBuf, String),
    /// Delete this file.
    RemoveFile(PathBuf),
    /// Delete this directory and what is in it.
    RemoveDirectory(PathBuf),
}

impl Undo {
    /// Takes the change back; a failure is told on stderr, as nothing else can be done about it.
    fn apply(&self) {
        let outcome = match self {
            Undo::RemoveCgroup(group) => remove_cgroup(group),
            Undo::Swapoff(path) => swapoff(path),
            Undo::Write(path, text) => std::fs::write(path, text),
            Undo::RemoveFile(path) => unless_gone(std::fs::remove_file(path)),
            Undo::RemoveDirectory(path) => remove_directory(path),
        };
        if let Err(e) = outcome {
            eprintln!("hinterland bench: cannot take back {self:?}: {e}");
        }
    }
}

/// What is gone need not be removed.
fn unless_gone(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Attempts something until it succeeds, or fails with an error that does not `pass`, or has been attempted for [`DEATH_MAX`].
fn while_it_passes(
    passes: impl Fn(&std::io::Error) -> bool,
    mut attempt: impl FnMut() -> std::io::Result<()>,
) -> std::io::Result<()> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(e) if passes(&e) && start.elapsed() < DEATH_MAX => std::thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
}

/// Deletes the directory and what is in it; again while programs that are about to die write there.
fn remove_directory(path: &Path) -> std::io::Result<()> {
    let is_written = |e: &std::io::Error| e.kind() == ErrorKind::DirectoryNotEmpty;
    while_it_passes(is_written, || unless_gone(std::fs::remove_dir_all(path)))
}

/// Kills what runs in the group, waits for it, and removes the group.
fn remove_cgroup(group: &Path) -> std::io::Result<()> {
    let start = Instant::now();
    loop {
        let pids = match std::fs::read_to_string(group.join("cgroup.procs")) {
            Ok(pids) => pids,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        for pid in pids.lines().filter_map(|line| line.parse().ok()) {
            // It may have ended by itself meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        match std::fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(e) if start.elapsed() > DEATH_MAX => return Err(e),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Stops swapping to `path`; no error when it isn't swapped to.
fn swapoff(path: &Path) -> std::io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let attempt = || {
        // SAFETY: `swapoff` reads a NUL-terminated path, which `name` is, and keeps no pointer.
        if unsafe { libc::swapoff(name.as_ptr()) } == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    match while_it_passes(is_full, attempt) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => Ok(()),
        outcome => outcome,
    }
}

/// Whether pages have no room where they come back: other programs, at limits of their own, may have swapped meanwhile.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINTR))
}

/// A word to the janitor.
#[derive(Serialize, Deserialize)]
enum Word {
    /// This change is about to be made.
    Made(u64, Undo),
    /// That change has been taken back.
    TakenBack(u64),
}

struct Register {
    next: u64,
    janitor: Child,
    ear: Option<ChildStdin>,
}

/// The register of changes; clones share it.
#[derive(Clone)]
pub struct Changes(Arc<Mutex<Register>>);

/// Takes its change back when dropped.
#[must_use = "the change is taken back when this is dropped"]
pub struct Guard {
    id: u64,
    undo: Option<Undo>,
    changes: Changes,
}

impl Changes {
    /// Starts the janitor, and the thread that ends the bench orderly on SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// The janitor cannot be started.
    pub fn begin() -> Result<Changes, BenchError> {
        let program = myself()?;
        let mut janitor = Command::new(&program)
            .arg("janitor")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(BenchError::io("start the janitor", &program))?;
        let ear = janitor.stdin.take();
        let changes = Changes(Arc::new(Mutex::new(Register { next: 0, janitor, ear })));
        let mut signals = signal_hook::iterator::Signals::new([libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
            .map_err(BenchError::io("watch signals in", &program))?;
        let on_signal = changes.clone();
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                eprintln!("\nhinterland bench: interrupted; putting the machine back as it was");
                on_signal.abandon(128 + signal);
            }
        });
        Ok(changes)
    }

    /// Registers a change, before it is made.
    pub fn register(&self, undo: Undo) -> Guard {
        let mut register = self.lock();
        let id = register.next;
        register.next += 1;
        register.tell(&Word::Made(id, undo.clone()));
        drop(register);
        Guard { id, undo: Some(undo), changes: self.clone() }
    }

    /// Makes a directory among the temporary files, for this user alone.
    ///
    /// # Errors
    /// There cannot be one.
    pub fn directory(&self) -> Result<(PathBuf, Guard), BenchError> {
        let path = std::env::temp_dir().join(super::name());
        let guard = self.register(Undo::RemoveDirectory(path.clone()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok((path, guard)),
            Err(error) => {
                guard.forget();
                Err(BenchError::io("make", &path)(error))
            }
        }
    }

    /// Leaves everything to the janitor, waits until it has directories alone left, and ends this process and with it the programs that write
    /// there. The register stays locked, so that nothing new is begun.
    fn abandon(&self, code: i32) -> ! {
        let mut register = self.lock();
        drop(register.ear.take());
        if let Some(mut janitor) = register.janitor.stdout.take() {
            // Without a janitor there is nothing to wait for.
            let _ = janitor.read_exact(&mut [0]);
        }
        std::process::exit(code);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Register {
    fn tell(&mut self, word: &Word) {
        let Some(ear) = self.ear.as_mut() else { return };
        let told = serde_json::to_string(word).map_err(std::io::Error::from).and_then(|line| writeln!(ear, "{line}"));
        if let Err(e) = told {
            eprintln!("hinterland bench: the janitor is gone ({e}); an interrupted run would leave its changes behind");
        }
    }
}

impl Guard {
    /// The change could not be made: what has its name is another's, and stays.
    pub fn forget(mut self) {
        self.undo = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(undo) = &self.undo {
            undo.apply();
        }
        self.changes.lock().tell(&Word::TakenBack(self.id));
    }
}

/// The janitor: remembers changes, and takes back those that are left when the bench is gone or waits for the janitor's byte, which comes before
/// directories are removed.
pub fn janitor() -> ExitCode {
    let left = left_of(std::io::stdin().lock()).into_values().rev();
    let (directories, others): (Vec<Undo>, Vec<Undo>) = left.partition(|undo| matches!(undo, Undo::RemoveDirectory(_)));
    others.iter().for_each(Undo::apply);
    // A bench that was killed does not wait.
    let _ = std::io::stdout().write_all(b"\n");
    directories.iter().for_each(Undo::apply);
    ExitCode::SUCCESS
}

/// The changes that are left at the end of `words`.
fn left_of(words: impl BufRead) -> BTreeMap<u64, Undo> {
    let mut made = BTreeMap::new();
    for line in words.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Word::Made(id, undo)) => drop(made.insert(id, undo)),
            Ok(Word::TakenBack(id)) => drop(made.remove(&id)),
            Err(e) => eprintln!("hinterland bench: the janitor cannot read '{line}': {e}"),
        }
    }
    made
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A register whose janitor remembers, and takes nothing back.
    pub fn changes() -> Changes {
        let mut janitor = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let ear = janitor.stdin.take();
        Changes(Arc::new(Mutex::new(Register { next: 0, janitor, ear })))
    }

    /// What a janitor would take back if the bench died now.
    pub fn left(changes: Changes) -> Vec<Undo> {
        let mut register = changes.lock();
        drop(register.ear.take());
        let heard = register.janitor.stdout.take().unwrap();
        let left = left_of(std::io::BufReader::new(heard)).into_values().collect();
        register.janitor.wait().unwrap();
        left
    }

    #[test]
    fn taking_back_what_was_never_made_is_silent() {
        assert!(remove_cgroup(Path::new("/nowhere/group")).is_ok());
        assert!(swapoff(Path::new("/nowhere/swap")).is_ok() || !nix::unistd::geteuid().is_root());
        Undo::RemoveFile("/nowhere/file".into()).apply();
        Undo::RemoveDirectory("/nowhere/directory".into()).apply();
    }

    #[test]
    fn what_has_no_room_for_a_moment_is_attempted_again_and_nothing_else() {
        let answer = |code: i32| if code == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(code)) };
        let mut answers = vec![0, libc::ENOMEM, libc::EINTR];
        assert!(
            while_it_passes(is_full, || answer(answers.pop().expect("no further attempt"))).is_ok()
                && answers.is_empty()
        );
        let mut attempts = 0;
        let refused = while_it_passes(is_full, || {
            attempts += 1;
            answer(libc::EPERM)
        });
        assert_eq!((attempts, refused.unwrap_err().raw_os_error()), (1, Some(libc::EPERM)));
    }

    /// As a program does that has not died yet.
    #[test]
    fn a_directory_in_which_a_program_still_writes_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("directory");
        std::fs::create_dir(&path).unwrap();
        let written = path.clone();
        let (begin, begun) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            let start = Instant::now();
            for file in 0.. {
                let made = std::fs::File::create(written.join(file.to_string()));
                if file == 1000 {
                    begin.send(()).unwrap();
                }
                if made.is_err() || start.elapsed() > Duration::from_secs(1) {
                    break;
                }
            }
        });
        // An error: all has been written already.
        let _ = begun.recv();
        let removed = remove_directory(&path);
        writer.join().unwrap();
        removed.unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn words_survive_the_pipe() {
        let word = Word::Made(3, Undo::Write("/proc/sys/vm/page-cluster".into(), "3".into()));
        let line = serde_json::to_string(&word).unwrap();
        assert!(!line.contains('\n'));
        assert!(matches!(serde_json::from_str(&line), Ok(Word::Made(3, Undo::Write(_, text))) if text == "3"));
    }
}
