//! The whole system: real programs natively and under Hinterland ([`e2e`], [`runtimes`]), what system calls promise ([`conformance`]), and good
//! and bad days ([`lifecycle`]). One program, so that tests that wait fill the time of others; names begin with the suite.

mod conformance;
mod e2e;
mod lifecycle;
mod runtimes;
mod soak;

use anyhow::ensure;
use hinterland_tests::suite;
use hinterland_tests::{field, promises, reach, runs};
use std::process::ExitCode;
use std::sync::Arc;

/// Those that take longest come first, so that no processor is left with one of them at the end.
fn main() -> ExitCode {
    let natives = Arc::default();
    let e2e = [e2e::trials(&natives), runtimes::trials(), soak::trials(natives.clone())].into_iter().flatten();
    let mut trials =
        [e2e.collect(), lifecycle::trials(), conformance::trials()].into_iter().flatten().collect::<Vec<_>>();
    let names: Vec<String> = trials.iter().map(|trial| trial.name().to_owned()).collect();
    if !suite::full() {
        let others = lifecycle::only_in_full(&names);
        trials.retain(|trial| !others.contains(trial.name()));
    }
    trials.push(suite::trial("repository::named_in_the_specification", || None, move || named(names)));
    trials.push(suite::trial("repository::every_pair_of_settings", || None, pairs));
    let code = suite::run(trials);
    natives.print_pairs();
    code
}

/// Every test of these suites that the specification, the table of cases, or what a change reaches names exists.
fn named(names: Vec<String>) -> anyhow::Result<()> {
    let proofs =
        field::KINDS.iter().flat_map(|(_, cases)| *cases).flat_map(|case| field::WAYS.map(|way| case.test(way)));
    let missing: Vec<String> = proofs.filter(|test| !names.iter().any(|name| shows(name, test))).collect();
    ensure!(missing.is_empty(), "named in the table of cases, and not there: {missing:?}");
    let missing: Vec<&str> =
        reach::beginnings().filter(|begin| !names.iter().any(|name| name.starts_with(begin))).collect();
    ensure!(missing.is_empty(), "a change reaches them, and they are not there: {missing:?}");
    for suite in ["lifecycle", "e2e", "conformance"] {
        let missing = promises::without_trial(suite, &names);
        ensure!(missing.is_empty(), "named in the specification, and not there: {missing:?}");
    }
    Ok(())
}

/// Whether a trial is this test, or one that tells of all its ways.
fn shows(trial: &str, test: &str) -> bool {
    test.strip_prefix(trial)
        .is_some_and(|rest| rest.is_empty() || field::WAYS.iter().any(|way| rest == format!("::{}", way.name)))
}

/// Each pair of values of two settings meets in some run of the programs, where none is skipped.
fn pairs() -> anyhow::Result<()> {
    let (met, all) = runs::pairs_met(&if suite::full() { runs::product() } else { runs::pairwise() });
    ensure!(suite::full() || met == all, "only {met} of {all} pairs are run");
    Ok(())
}
