//! The last thread of a process leaves by the plain exit call: the process ends as natively, though threads of ours are left.

use anyhow::{Result, ensure};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{process, skips, suite};
use nix::sys::signal::Signal;
use std::process::Command;

/// Ways to leave: of `main`, of another thread after it, of children.
const WAYS: [&str; 13] = [
    "raw",
    "bare",
    "worker",
    "worker-raw",
    "worker-bare",
    "worker-exits",
    "joined",
    "fork",
    "clone",
    "raw-fork",
    "at-once",
    "vfork",
    "thread",
];
/// MiB of memory: nothing is evicted, or most of it.
const SIZES: [&str; 2] = ["4", "64"];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let paths = ["monitor", "inline"];
    let ways = WAYS.iter().flat_map(|way| paths.map(|path| leaves(way, path)));
    ways.chain(paths.map(term)).collect()
}

/// Output and code are those of a native run.
fn leaves(way: &'static str, path: &'static str) -> Trial {
    let name = format!("lifecycle::last_threads::{way}::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("leaves", &[])?;
        for size in SIZES {
            let native = Command::new(&program).args([way, size]).output()?;
            let said = String::from_utf8_lossy(&native.stdout).into_owned();
            let name = format!("{name}::{size}");
            let arguments = ["--local", "16M", "--fault-path", path];
            let ended = Launch::new(&name, &arguments, &[&program.display().to_string(), way, size])?.run()?;
            ended.expect(process::code(native.status), &said)?;
            if size == SIZES[1] {
                ended.expect_paging()?;
            }
        }
        Ok(())
    })
}

/// SIGTERM to the launcher ends a program whose first thread has left.
fn term(path: &'static str) -> Trial {
    let name = format!("lifecycle::last_threads::term::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || -> Result<()> {
        let program = c_program("leaves", &[])?.display().to_string();
        let launch = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program, "wait", "64"])?;
        let mut running = launch.start()?;
        running.wait_for("worker right")?;
        running.signal(Signal::SIGTERM)?;
        let ended = running.end()?;
        ensure!(ended.code == 128 + 15, "{ended:?}");
        Ok(())
    })
}
