//! What the suites of this crate share: one test at a time on the whole machine, skips with reasons, names.

use crate::{places, skips};
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;

/// A test that may find out that it cannot run here.
pub type Outcome = Result<Completion, Failed>;

/// Runs `trials` one after the other, while no other suite of this crate runs on this build directory: they measure
/// memory and time, and two cores are enough for one of them.
pub fn run(trials: Vec<Trial>) -> Conclusion {
    run_beside(trials, 1)
}

/// As [`run`], but `threads` tests at a time.
pub fn run_beside(trials: Vec<Trial>, threads: usize) -> Conclusion {
    let arguments = Arguments { test_threads: Some(threads), ..Arguments::from_args() };
    let _lock = (!arguments.list).then(exclusive);
    libtest_mimic::run(&arguments, trials)
}

/// A test that is skipped when `obstacle` names a reason.
pub fn trial(
    name: impl Into<String>,
    obstacle: impl FnOnce() -> Option<String> + Send + 'static,
    test: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::ignorable_test(name.clone(), move || match obstacle() {
        Some(reason) => {
            skips::note(&name, &reason);
            Ok(Completion::ignored_with(format!("skipped: {reason}")))
        }
        None => test().map(|()| Completion::Completed).map_err(|error| Failed::from(format!("{error:#}"))),
    })
}

/// Whether the long form of the suites was asked for (`./dev test --full`).
pub fn full() -> bool {
    std::env::var_os("HINTERLAND_TEST_FULL").is_some_and(|value| value == "1")
}

/// Waits for the lock of the tests' directory; without one (a file system without locks) the tests run all the same.
fn exclusive() -> Option<Flock<File>> {
    std::fs::create_dir_all(places::tests()).ok()?;
    let file = File::create(places::tests().join("lock")).ok()?;
    Flock::lock(file, FlockArg::LockExclusive).ok()
}
