//! Every program of the list natively and under Hinterland in a quarter of its memory; the outputs must be equal.
//!
//! `hinterland_tests::runs` has the lists: pairs of settings in CI; with `HINTERLAND_TEST_FULL=1` all combinations, and then
//! every program at full size.

use anyhow::{Result, bail};
use hinterland_tests::runs::{Run, SMALL_SIZE_BYTES};
use hinterland_tests::{MIB, Place, Scenario, Variant, managed, native, results, runs, skips, suite, verdict};
use libtest_mimic::Trial;
use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

fn main() -> ExitCode {
    let natives = Arc::new(Natives::default());
    let runs = if suite::full() { [runs::product(), runs::full_size()].concat() } else { runs::pairwise() };
    let trials = runs.into_iter().map(|run| trial(run, natives.clone()));
    // The short list has the machine for itself, because its times are kept; the long one takes hours as it is, and with far
    // memory in a file runs leave a third of the processors' time to others.
    let threads = if suite::full() { std::thread::available_parallelism().map_or(1, usize::from) * 3 / 2 } else { 1 };
    suite::run_beside(trials.collect(), threads).exit_code()
}

/// The test of one run. The name of one at full size ends with the size in MiB.
fn trial(Run { scenario, variant, size_bytes }: Run, natives: Arc<Natives>) -> Trial {
    let obstacle = || skips::missing(scenario.needs).or_else(skips::no_userfaultfd);
    let size = if size_bytes == SMALL_SIZE_BYTES { String::new() } else { format!("::{}M", size_bytes / MIB) };
    suite::trial(format!("e2e::{}::{variant}{size}", scenario.name), obstacle, move || {
        let (place, native) = natives.of(scenario, size_bytes)?;
        let slot = Slot::take(&natives.slots);
        compare(scenario, variant, &place.in_slot(slot.number), &native)
    })
}

/// One managed run against the native one.
fn compare(scenario: &Scenario, variant: Variant, place: &Place, native: &native::Native) -> Result<()> {
    let budget_bytes = managed::budget_bytes(native);
    let managed =
        managed::run_managed(scenario, place, &variant, budget_bytes, limit(native.finished.wall, place.size_bytes))?;
    let violations = verdict::violations(scenario, &variant, native, &managed);
    results::Row::new(scenario, variant, place.size_bytes, native, &managed, &violations).append()?;
    if violations.is_empty() {
        return Ok(());
    }
    let (budget, peak) = (budget_bytes / MIB, native.finished.anonymous_peak_bytes / MIB);
    bail!("in {budget} of {peak} MiB it {}\nstandard error ends with:\n{}", violations.join(";\n  "), managed.stderr)
}

/// Time for a managed run: paging costs a lot at a quarter of the memory, a hang costs more. Runs beside others take longer, on the
/// same disk much longer.
fn limit(native: Duration, size_bytes: u64) -> Duration {
    let (factor, longest) = if size_bytes > SMALL_SIZE_BYTES { (100, 1800) } else { (60, 240) };
    let limit = (Duration::from_secs(60) + native * factor).min(Duration::from_secs(longest));
    if suite::full() { limit * 4 } else { limit }
}

/// What came of preparing and running one scenario natively at one size; a failure is repeated to every test that needs it.
type NativeRun = Result<(Place, Arc<native::Native>), String>;

/// Native runs, made when the first test needs them; and the places of the managed ones that are under way.
#[derive(Default)]
struct Natives {
    runs: Mutex<HashMap<(&'static str, u64), NativeRun>>,
    slots: Mutex<HashSet<usize>>,
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
    fn of(&self, scenario: &'static Scenario, size_bytes: u64) -> Result<(Place, Arc<native::Native>)> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runs.entry((scenario.name, size_bytes)).or_insert_with(|| {
            let place = native::prepare(scenario, size_bytes).map_err(|error| format!("{error:#}"))?;
            let native = native::run_native(scenario, &place, limit(Duration::ZERO, size_bytes) * 10);
            native.map(|native| (place, Arc::new(native))).map_err(|error| format!("{error:#}"))
        });
        run.clone().map_err(anyhow::Error::msg)
    }
}
