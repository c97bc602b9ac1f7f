//! Every program of the list natively and under Hinterland in a quarter of its memory; the outputs must be equal.
//!
//! In CI an all-pairs cover of program × feature set × far memory × heap mode × eviction policy, at about 112 MiB each. With
//! `HINTERLAND_TEST_FULL=1` the whole product of the first four (the eviction policies take turns) at full size.

use anyhow::{Result, bail};
use hinterland_tests::{
    EVICTS, FARS, FEATURES, HEAPS, MIB, Place, Scenario, Variant, managed, native, pairs, programs, results, skips,
    suite, verdict,
};
use libtest_mimic::Trial;
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Native peak to aim at in CI: a quarter of it is well above the smallest budget.
const CI_SIZE_BYTES: u64 = 112 * MIB;
/// Native peak to aim at in the full suite.
const FULL_SIZE_BYTES: u64 = 640 * MIB;

fn main() -> ExitCode {
    let size_bytes = if suite::full() { FULL_SIZE_BYTES } else { CI_SIZE_BYTES };
    let natives = Arc::new(Natives::default());
    let trials = rows().into_iter().map(|(scenario, variant)| trial(scenario, variant, size_bytes, natives.clone()));
    suite::run(trials.collect()).exit_code()
}

/// The combinations to run, those of one program together.
fn rows() -> Vec<(&'static Scenario, Variant)> {
    let sizes = [programs::ALL.len(), FEATURES.len(), FARS.len(), HEAPS.len(), EVICTS.len()];
    let mut rows = if suite::full() {
        let product = pairs::product(&sizes[..4]).into_iter().enumerate();
        product.map(|(turn, row)| [row, vec![turn % EVICTS.len()]].concat()).collect()
    } else {
        pairs::cover(&sizes)
    };
    rows.sort();
    let row = |row: Vec<usize>| {
        let (features, far) = (FEATURES[row[1]], FARS[row[2]]);
        (&programs::ALL[row[0]], Variant { features, far, heap: HEAPS[row[3]], evict: EVICTS[row[4]] })
    };
    rows.into_iter().map(row).collect()
}

fn trial(scenario: &'static Scenario, variant: Variant, size_bytes: u64, natives: Arc<Natives>) -> Trial {
    let obstacle = || skips::missing(scenario.needs).or_else(skips::no_userfaultfd);
    suite::trial(format!("e2e::{}::{variant}", scenario.name), obstacle, move || {
        let (place, native) = natives.of(scenario, size_bytes)?;
        compare(scenario, variant, &place, &native)
    })
}

/// One managed run against the native one.
fn compare(scenario: &Scenario, variant: Variant, place: &Place, native: &native::Native) -> Result<()> {
    let budget_bytes = managed::budget_bytes(native);
    let managed = managed::run_managed(scenario, place, &variant, budget_bytes, limit(native.finished.wall))?;
    let violations = verdict::violations(scenario, &variant, native, &managed);
    results::Row::new(scenario, variant, place.size_bytes, native, &managed, &violations).append()?;
    if violations.is_empty() {
        return Ok(());
    }
    let (budget, peak) = (budget_bytes / MIB, native.finished.anonymous_peak_bytes / MIB);
    bail!("in {budget} of {peak} MiB it {}\nstandard error ends with:\n{}", violations.join(";\n  "), managed.stderr)
}

/// Time for a managed run: paging costs a lot at a quarter of the memory, a hang costs more.
fn limit(native: Duration) -> Duration {
    let (factor, longest) = if suite::full() { (100, 3600) } else { (60, 240) };
    (Duration::from_secs(60) + native * factor).min(Duration::from_secs(longest))
}

/// What came of preparing and running one scenario natively; a failure is repeated to every test that needs it.
type NativeRun = Result<(Place, Arc<native::Native>), String>;

/// Native runs, made when the first test needs them.
#[derive(Default)]
struct Natives(Mutex<HashMap<&'static str, NativeRun>>);

impl Natives {
    fn of(&self, scenario: &'static Scenario, size_bytes: u64) -> Result<(Place, Arc<native::Native>)> {
        let mut runs = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let run = runs.entry(scenario.name).or_insert_with(|| {
            let place = native::prepare(scenario, size_bytes).map_err(|error| format!("{error:#}"))?;
            let native = native::run_native(scenario, &place, limit(Duration::ZERO) * 10);
            native.map(|native| (place, Arc::new(native))).map_err(|error| format!("{error:#}"))
        });
        run.clone().map_err(anyhow::Error::msg)
    }
}
