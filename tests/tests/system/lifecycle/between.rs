//! Processes of one run read and write each other's far memory (process_vm_readv(2), process_vm_writev(2)): as natively, on both
//! fault paths, with and without privileges, whether the other process waits, computes, or does the same at the same time.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// How the processes meet (`between.c`).
const WAYS: [&str; 6] = ["peer", "busy", "both", "vectors", "untouched", "refused"];
/// Fault path, and whether the program has privileges.
const PATHS: [(&str, &str, bool); 3] =
    [("inline", "inline", true), ("monitor", "monitor", true), ("unprivileged", "inline", false)];
/// Somebody without rights.
const NOBODY: u32 = 65534;
/// MiB of each process: three budgets.
const SIZE: &str = "48";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, path, privileged) in PATHS {
        for way in WAYS {
            let add = |call: &'static str| {
                let test = format!("lifecycle::between::{way}::{call}::{name}");
                let skip = if privileged { skips::no_userfaultfd } else { skips::not_root };
                suite::trial(test.clone(), skip, move || as_natively(&test, way, call, path, privileged))
            };
            trials.push(add("function"));
            trials.push(add("by-number"));
        }
    }
    trials
}

fn as_natively(test: &str, way: &str, call: &str, path: &str, privileged: bool) -> Result<()> {
    let program = c_program("between", &[])?;
    let native = Command::new(&program).args([way, SIZE, call]).output()?;
    ensure!(native.status.success(), "natively: {native:?}");
    let flags = ["--local", "16M", "--fault-path", path];
    let ended = if privileged {
        let ended = Launch::new(test, &flags, &[&program.display().to_string(), way, SIZE, call])?.run()?;
        ended.expect_eviction()?;
        ended
    } else {
        unprivileged(test, &flags, &program, &[way, SIZE, call])?
    };
    let right = String::from_utf8(native.stdout)?;
    ended.expect(0, &right)?;
    ensure!(ended.stdout == right, "printed something else than natively: {ended:?}");
    Ok(())
}

/// Runs a program as somebody without rights, in a directory that is his.
fn unprivileged(test: &str, flags: &[&str], program: &Path, words: &[&str]) -> Result<Ended> {
    let directory = places::emptied(std::env::temp_dir().join(test.replace("::", "-")))?;
    let built = places::launcher()?.parent().context("the launcher is in a directory")?.to_owned();
    for file in [&built.join("hinterland"), &built.join("libhinterland.so"), program] {
        let name = file.file_name().context("a file has a name")?;
        std::fs::copy(file, directory.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    std::fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
    let mut command = Command::new(directory.join("hinterland"));
    command.arg("run").args(flags).arg("--");
    command.arg(directory.join(program.file_name().context("a file has a name")?)).args(words);
    command.env("HOME", &directory).uid(NOBODY).gid(NOBODY);
    let mut launch = Launch::of(test, command)?;
    launch.set_directory(&directory);
    let ended = launch.run()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(ended)
}
