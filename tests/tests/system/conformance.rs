//! The conformance programs (`tests/conformance`): what allocation, mapping, signal and other system calls promise, natively
//! and under Hinterland in the smallest budget, with each heap mode: on the monitor path with each kernel feature set, on the
//! inline path with and without MOVE, and without privileges.

use anyhow::{Result, ensure};
use hinterland_tests::suite::Trial;
use hinterland_tests::{HEAPS, PATHS, Variant, features_of, native, places, process, skips, suite};
use std::fs::File;
use std::process::{Command, Stdio};

/// The programs that `run.sh` knows.
const PROGRAMS: [&str; 17] = [
    "heap",
    "threads",
    "containers",
    "mappings",
    "remap",
    "numbers",
    "instruction",
    "break",
    "files",
    "forking",
    "loading",
    "signals",
    "calls",
    "rare",
    "buffers",
    "waiting",
    "cancelling",
];
/// Of these, the ones in which threads are cancelled in a system call. glibc unwinds the thread's stack through the library then, which
/// a library that may itself unwind refuses: on the inline path they run with the build as it is shipped alone, under both heap modes.
const CANCELLED: [&str; 2] = ["waiting", "cancelling"];

/// The tests of this file. With the build that has assertions: every triple of program, fault path and feature set, and the heap modes
/// take turns. With the build as it is shipped: every pair of program and fault path, and feature sets and heap modes take turns. With
/// `--full`, every combination with both builds.
pub fn trials() -> Vec<Trial> {
    let asserts = places::launcher().is_ok_and(|launcher| launcher.parent().is_some_and(|build| build.ends_with("ci")));
    let mut trials = Vec::new();
    for (number, program) in PROGRAMS.into_iter().enumerate() {
        for path in PATHS {
            let in_one_build = CANCELLED.contains(&program) && path != "monitor";
            if asserts && in_one_build {
                continue;
            }
            let every = suite::full() || in_one_build || program == "rare";
            let sets = features_of(path);
            for (place, features) in sets.iter().enumerate() {
                let feature_turn = asserts || place == number % sets.len();
                let heap_turn = HEAPS[(number + place + usize::from(asserts)) % HEAPS.len()];
                let variants = HEAPS.map(|heap| Variant { path, features, heap, ..Variant::DEFAULT });
                trials.extend(
                    variants
                        .into_iter()
                        .filter(|variant| differs(program, variant))
                        .filter(|variant| every || feature_turn && variant.heap == heap_turn)
                        .map(|variant| trial(program, variant)),
                );
            }
        }
    }
    trials
}

/// Whether a program can behave differently in a variant than in one that runs anyway. `rare` passes one buffer of its own to
/// hundreds of calls: which allocator made it does not matter, and the monitor path leaves all of them to the kernel.
fn differs(program: &str, variant: &Variant) -> bool {
    program != "rare" || variant.heap == "all" && (variant.path != "monitor" || variant.features == "all")
}

fn trial(program: &'static str, variant: Variant) -> Trial {
    let name = format!("conformance::{program}::{}::{}::{}", variant.path, variant.features, variant.heap);
    suite::trial(name.clone(), skips::no_userfaultfd, move || conforms(&name, program, variant))
}

fn conforms(name: &str, program: &str, variant: Variant) -> Result<()> {
    let directory = places::emptied(places::tests().join("conformance").join(name.replace("::", "-")))?;
    let kept = places::tests().join("bin/conformance");
    std::fs::create_dir_all(&kept)?;
    let Variant { features, heap, .. } = variant;
    let (prefix, path) = (variant.prefix().join(" "), variant.fault_path());
    let launcher = places::launcher()?.display().to_string();
    let settings = format!("--local 16M --quiet --fault-path {path} --features {features} --heap {heap}");
    let via = format!("{prefix} {launcher} run {settings} --").trim_start().to_owned();
    let mut command = Command::new(places::repository().join("tests/conformance/run.sh"));
    command.arg("--keep").arg(kept).args(["--via", &via, program]).stdin(Stdio::null()).env("TMPDIR", &directory);
    command.stdout(File::create(directory.join("stdout"))?).stderr(File::create(directory.join("stderr"))?);
    let code = process::run_unmeasured(command)?;
    let said = [native::tail(&directory.join("stdout")), native::tail(&directory.join("stderr"))].join("\n");
    ensure!(code == 0, "ended with {code}\n{said}");
    Ok(())
}
