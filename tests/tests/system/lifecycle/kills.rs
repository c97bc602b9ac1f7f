//! SIGKILL leaves nothing behind: no process, no file, no shared memory.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, Running, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{skips, suite};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    vec![
        suite::trial("lifecycle::kills::launcher", skips::no_userfaultfd, launcher_killed),
        suite::trial("lifecycle::kills::program", skips::no_userfaultfd, program_killed),
        suite::trial("lifecycle::kills::launcher_of_another_user", no_other_user, launcher_of_another_user_killed),
    ]
}

fn no_other_user() -> Option<String> {
    skips::not_root().or_else(skips::no_userfaultfd)
}

/// A program that pages on every kind of far memory that could leave something behind.
fn started(test: &str, options: &[&str], words: &[&str]) -> Result<Running> {
    let program = c_program("hold", &[])?.display().to_string();
    let far = ["--far", "compressed:8M", "--far", "file:far?size=1G"];
    let arguments = [&["--local", "16M"][..], &far, options].concat();
    let mut running = Launch::new(test, &arguments, &[&[&*program, "64", "stay"], words].concat())?.start()?;
    running.wait_for("ready")?;
    Ok(running)
}

fn launcher_killed() -> Result<()> {
    killed_launcher_of("launcher-killed", &[], &[])
}

/// It has become another user, which makes the kernel forget that it ends with its parent, and may be another program since.
fn launcher_of_another_user_killed() -> Result<()> {
    for path in ["monitor", "inline"] {
        for words in [&["65534"][..], &["65534", "exec"]] {
            let test = format!("launcher-killed-{path}-{}", words.len());
            killed_launcher_of(&test, &["--fault-path", path], words)?;
        }
    }
    Ok(())
}

fn killed_launcher_of(test: &str, options: &[&str], words: &[&str]) -> Result<()> {
    let before = traces(None);
    let running = started(test, options, words)?;
    let below = running.below();
    ensure!(!below.is_empty(), "the launcher has no program below it");
    let directory = running.directory.clone();
    let folder = directory.join("tmp/hinterland");
    // The share comes when the run first has something to say.
    suite::wait_until("the launcher's entries", || Ok(std::fs::read_dir(&folder)?.count() == 3))?;
    running.signal(Signal::SIGKILL)?;
    wait_until_gone(&below)?;
    running.end()?;
    nothing_left(&before, &directory, 3)
}

fn program_killed() -> Result<()> {
    let before = traces(None);
    let running = started("program-killed", &[], &[])?;
    let below = running.below();
    let directory = running.directory.clone();
    kill(Pid::from_raw(*below.first().context("the launcher has no program below it")?), Signal::SIGKILL)?;
    let ended = running.end()?;
    ended.expect(128 + 9, "ready")?.expect_paging()?;
    wait_until_gone(&below)?;
    nothing_left(&before, &directory, 0)
}

fn wait_until_gone(processes: &[i32]) -> Result<()> {
    let alive = |pid: &&i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && !line.contains("zombie"))
    };
    let gone = suite::wait_until("the end of what the launcher left", || Ok(!processes.iter().any(|pid| alive(&pid))));
    if gone.is_err() {
        for pid in processes.iter().filter(alive) {
            kill(Pid::from_raw(*pid), Signal::SIGKILL)?;
        }
    }
    gone
}

/// But for the folder of launchers: a killed one leaves its two sockets and its share, which the next command removes (`control::stale`).
fn nothing_left(before: &BTreeSet<PathBuf>, directory: &Path, entries: usize) -> Result<()> {
    let folder = directory.join("tmp/hinterland");
    ensure!(std::fs::read_dir(&folder)?.count() == entries, "not {entries} entries in {}", folder.display());
    let mut left = traces(Some(directory));
    left.remove(&folder);
    let left: Vec<&PathBuf> = left.difference(before).collect();
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

/// Files that could be Hinterland's: shared memory and temporary files with its name, and whatever a run leaves in its
/// working directory beside the outputs that it was told to write.
fn traces(directory: Option<&Path>) -> BTreeSet<PathBuf> {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = ["/dev/shm", "/tmp", "/var/tmp"].iter().flat_map(|path| entries(Path::new(path)));
    let named = named.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("hinterland")));
    let told = ["stdout", "stderr", "stats.json", "tmp"];
    let own = directory.into_iter().flat_map(|path| entries(path).chain(entries(&path.join("tmp"))));
    let own = own.filter(|path| !told.iter().any(|name| path.ends_with(name)));
    named.chain(own).collect()
}
