//! Runs a test program, and ends it when it hangs, with the stacks of all its threads: `watched PROGRAM ARGUMENTS…`.
//! Threads of Rust's own test runner bear the names of their tests, so the stacks say which one hangs.
//!
//! A program whose name begins with a word of `HINTERLAND_TEST_LATER` is not run: the suites of the whole system come after the others. Nor
//! is one of a package that is not in `HINTERLAND_TEST_PACKAGES` or `HINTERLAND_TEST_ONLY`, where that is set ([`reach`]), or that is in
//! `HINTERLAND_TEST_BUT`.
//!
//! `./dev test` has cargo run the unit tests this way. The exit code is the program's; 124 after the limit, as with timeout(1).

use anyhow::{Context, Result};
use hinterland_tests::process::code;
use hinterland_tests::suite::watchdog::{kill_tree, program_limit};
use hinterland_tests::{reach, stacks, tree};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// What timeout(1) ends with.
const HUNG: i32 = 124;

fn main() -> Result<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().context("usage: watched PROGRAM ARGUMENTS…")?;
    if is_for_later(Path::new(&program)) || !is_reached()? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut child = Command::new(&program).args(words).spawn().with_context(|| format!("cannot start {program:?}"))?;
    let (pid, begun, limit) = (child.id().cast_signed(), Instant::now(), program_limit());
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break code(status);
        }
        if begun.elapsed() >= limit {
            eprintln!("{program:?} hangs: it has run for {} s", limit.as_secs());
            std::iter::once(pid).chain(tree::descendants(pid)).for_each(stacks::print);
            kill_tree(pid);
            child.wait()?;
            break HUNG;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Ok(ExitCode::from(u8::try_from(ended).unwrap_or(u8::MAX)))
}

/// Whether a change reaches the package whose tests these are, and no other cargo beside this one runs them. Cargo runs them in the
/// package's directory.
fn is_reached() -> Result<bool> {
    let directory = std::env::current_dir()?;
    let package = directory.file_name().unwrap_or_default();
    let others = |list: String| list.split_whitespace().any(|word| word == package);
    Ok(reach::is_reached(reach::PACKAGES, |word| word == package)
        && reach::is_reached("HINTERLAND_TEST_ONLY", |word| word == package)
        && !std::env::var("HINTERLAND_TEST_BUT").is_ok_and(others))
}

/// Whether another part of the tests runs this program. Cargo puts a hash behind its name.
fn is_for_later(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let later = std::env::var("HINTERLAND_TEST_LATER").unwrap_or_default();
    later.split_whitespace().any(|word| name.rsplit_once('-').is_some_and(|(before, _)| before == word))
}
