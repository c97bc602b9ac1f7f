//! Every program of the list natively and under Hinterland in a quarter of its memory; the outputs must be equal.
//!
//! `hinterland_tests::runs` has the lists: pairs of settings in CI; with `HINTERLAND_TEST_FULL=1` all combinations, and then
//! every program at full size.

use anyhow::{Result, bail};
use hinterland_tests::runs::{Run, SMALL_SIZE_BYTES};
use hinterland_tests::suite::{Once, Share, Trial};
use hinterland_tests::{MIB, Place, Scenario, Variant, managed, native, results, runs, skips, suite, verdict};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The tests of this file.
pub fn trials(natives: &Arc<Natives>) -> Vec<Trial> {
    let runs = if suite::full() { [runs::product(), runs::full_size()].concat() } else { runs::pairwise() };
    runs.into_iter().map(|run| trial(run, natives.clone())).collect()
}

/// The test of one run. The name of one at full size ends with the size in MiB.
fn trial(run: Run, natives: Arc<Natives>) -> Trial {
    let Run { scenario, variant, size_bytes } = run;
    let obstacle = || skips::missing(scenario.needs).or_else(skips::no_userfaultfd);
    let is_small = size_bytes == SMALL_SIZE_BYTES;
    let size = if is_small { String::new() } else { format!("::{}M", size_bytes / MIB) };
    // Of large ones no more at a time: each takes its memory natively first.
    let share = if is_small && variant.is_on_disk() { Share::Waits } else { Share::Busy };
    suite::trial(format!("e2e::{}::{variant}{size}", scenario.name), obstacle, move || {
        let (place, native) = natives.of(scenario, size_bytes)?;
        let slot = Slot::take(&natives.slots);
        compare(scenario, variant, &place.in_slot(slot.number), &native)?;
        natives.passed.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        Ok(())
    })
    .taking(share)
}

/// One managed run against the native one.
fn compare(scenario: &Scenario, variant: Variant, place: &Place, native: &native::Native) -> Result<()> {
    let budget_bytes = managed::budget_bytes(native);
    let managed = managed::run_managed(scenario, place, &variant, budget_bytes, Duration::MAX)?;
    let violations = verdict::violations(scenario, &variant, native, &managed);
    results::Row::new(scenario, variant, place.size_bytes, native, &managed, &violations).append_to(&results::file())?;
    if violations.is_empty() {
        return Ok(());
    }
    let (budget, peak) = (budget_bytes / MIB, native.finished.anonymous_peak_bytes / MIB);
    bail!("in {budget} of {peak} MiB it {}\nstandard error ends with:\n{}", violations.join(";\n  "), managed.stderr)
}

/// A scenario that was prepared, and run natively, at one size.
type NativeRun = Arc<Once<(Place, Arc<native::Native>)>>;

/// Native runs, made when the first test needs them; the places of the managed ones that are under way, and those that have passed.
#[derive(Default)]
pub struct Natives {
    runs: Mutex<HashMap<(&'static str, u64), NativeRun>>,
    slots: Mutex<HashSet<usize>>,
    passed: Mutex<Vec<Run>>,
}

/// A place that no other run uses meanwhile.
struct Slot<'a> {
    number: usize,
    taken: &'a Mutex<HashSet<usize>>,
}

impl Slot<'_> {
    fn take(taken: &Mutex<HashSet<usize>>) -> Slot<'_> {
        let mut numbers = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let number = (0..).find(|number| !numbers.contains(number)).unwrap_or(0);
        numbers.insert(number);
        Slot { number, taken }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl Natives {
    /// Prints which pairs of settings met in the runs that have passed, if there were any.
    pub fn print_pairs(&self) {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let (met, all) = runs::pairs_met(&passed);
        if !passed.is_empty() {
            let count = passed.len();
            println!(
                "{count} runs of programs passed; in them {met} of {all} pairs of program, fault path, feature set and far memory met"
            );
        }
    }

    /// The inputs of a program at this size and its native run.
    pub fn of(&self, scenario: &'static Scenario, size_bytes: u64) -> Result<(Place, Arc<native::Native>)> {
        // Tests of other programs need not wait while this one is prepared and run.
        let run = self
            .runs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry((scenario.name, size_bytes))
            .or_default()
            .clone();
        let made = run.get(|| {
            let place = native::prepare(scenario, size_bytes)?;
            let native = native::run_native(scenario, &place, Duration::MAX)?;
            Ok((place, Arc::new(native)))
        });
        made.cloned()
    }
}
