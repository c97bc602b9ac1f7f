//! The whole system: real programs natively and under Hinterland ([`e2e`]), what system calls promise ([`conformance`]), and good
//! and bad days ([`lifecycle`]). One program, so that tests that wait fill the time of others; names begin with the suite.

mod conformance;
mod e2e;
mod lifecycle;

use anyhow::ensure;
use hinterland_tests::suite;
use hinterland_tests::{promises, runs};
use std::process::ExitCode;

/// Those that take longest come first, so that no processor is left with one of them at the end.
fn main() -> ExitCode {
    let mut trials =
        [e2e::trials(), lifecycle::trials(), conformance::trials()].into_iter().flatten().collect::<Vec<_>>();
    let names = trials.iter().map(|trial| trial.name().to_owned()).collect();
    trials.push(suite::trial("repository::named_in_the_specification", || None, move || named(names)));
    trials.push(suite::trial("repository::every_pair_of_settings", || None, pairs));
    suite::run(trials).exit_code()
}

/// Every test of these suites that the specification names exists.
fn named(names: Vec<String>) -> anyhow::Result<()> {
    for suite in ["lifecycle", "e2e", "conformance"] {
        let missing = promises::without_trial(suite, &names);
        ensure!(missing.is_empty(), "named in the specification, and not there: {missing:?}");
    }
    Ok(())
}

/// Each pair of values of two settings meets in some run of the programs, and how many pairs there are is printed.
fn pairs() -> anyhow::Result<()> {
    let runs = if suite::full() { runs::product() } else { runs::pairwise() };
    let (met, all) = runs::pairs_met(&runs);
    println!(
        "{} runs of programs; {met} of {all} pairs of program, fault path, feature set and far memory",
        runs.len()
    );
    ensure!(suite::full() || met == all, "only {met} of {all} pairs are run");
    Ok(())
}
