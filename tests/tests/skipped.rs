//! Lists the tests that the other suites skipped since `./dev test` began, as ignored tests with their reasons, so that the
//! end of a run shows what it did not check.

use hinterland_tests::skips;
use libtest_mimic::{Arguments, Completion, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    let notes = std::fs::read_to_string(skips::file()).unwrap_or_default();
    let trials = notes.lines().filter_map(|line| line.split_once(": ")).map(|(name, reason)| {
        let reason = format!("skipped: {reason}");
        Trial::ignorable_test(format!("skipped::{name}"), move || Ok(Completion::ignored_with(reason)))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
