//! The conformance programs (`tests/conformance`): what allocation and mapping calls promise, natively and under Hinterland
//! in the smallest budget, with each kernel feature set and heap mode.

use anyhow::{Result, ensure};
use hinterland_tests::{FEATURES, HEAPS, native, places, process, skips, suite};
use libtest_mimic::Trial;
use std::fs::File;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The programs that `run.sh` knows.
const PROGRAMS: [&str; 12] = [
    "heap",
    "threads",
    "containers",
    "mappings",
    "remap",
    "break",
    "files",
    "forking",
    "loading",
    "calls",
    "buffers",
    "waiting",
];
/// Time for one program, natively and managed, compilation included.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for program in PROGRAMS {
        for features in FEATURES {
            trials.extend(HEAPS.map(|heap| trial(program, features, heap)));
        }
    }
    suite::run(trials).exit_code()
}

fn trial(program: &'static str, features: &'static str, heap: &'static str) -> Trial {
    let name = format!("conformance::{program}::{features}::{heap}");
    suite::trial(name, skips::no_userfaultfd, move || conforms(program, features, heap))
}

fn conforms(program: &str, features: &str, heap: &str) -> Result<()> {
    let directory = places::emptied(places::tests().join("conformance"))?;
    let launcher = places::launcher()?;
    let via = format!("{} run --local 16M --quiet --features {features} --heap {heap} --", launcher.display());
    let mut command = Command::new(places::repository().join("tests/conformance/run.sh"));
    command.args(["--via", &via, program]).stdin(Stdio::null()).env("TMPDIR", &directory);
    command.stdout(File::create(directory.join("stdout"))?).stderr(File::create(directory.join("stderr"))?);
    let finished = process::run(command, LIMIT, None)?;
    let said = [native::tail(&directory.join("stdout")), native::tail(&directory.join("stderr"))].join("\n");
    ensure!(!finished.timed_out, "did not end within {} s\n{said}", LIMIT.as_secs());
    ensure!(finished.code == 0, "ended with {}\n{said}", finished.code);
    Ok(())
}
