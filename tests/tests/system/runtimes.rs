//! Language runtimes in a third of their memory: output as natively, and faults in earnest.
//!
//! The short form runs those that `./dev setup` installs, on the fault path that Hinterland chooses; the long form runs all that there are, on both.

use anyhow::{Result, bail};
use hinterland_tests::runtimes::{ALL, Runtime, SIZE_BYTES, budget_bytes, too_little};
use hinterland_tests::suite::Trial;
use hinterland_tests::{AUTO, MIB, PATHS, Variant, managed, native, results, skips, suite, verdict};
use std::time::Duration;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let paths = if suite::full() { &PATHS[..2] } else { &[AUTO][..] };
    let runtimes = ALL.iter().filter(|runtime| runtime.short || suite::full());
    runtimes.flat_map(|runtime| runtime.paths(paths).map(|path| trial(runtime, path))).collect()
}

fn trial(runtime: &'static Runtime, path: &'static str) -> Trial {
    let Runtime { scenario, .. } = runtime;
    let obstacle = || skips::missing(scenario.needs).or_else(skips::no_userfaultfd);
    suite::trial(format!("e2e::runtimes::{}::{path}", scenario.name), obstacle, move || {
        let place = native::prepare(scenario, SIZE_BYTES)?.in_slot(usize::from(path == PATHS[1]));
        let native = native::run_native(scenario, &place, Duration::MAX)?;
        let variant = Variant { path, ..Variant::DEFAULT };
        let budget_bytes = budget_bytes(&native);
        let managed = managed::run_managed(scenario, &place, &variant, budget_bytes, Duration::MAX)?;
        let mut violations = verdict::violations(scenario, &variant, &native, &managed);
        violations.extend(too_little(&native, &managed));
        let row = results::Row::new(scenario, variant, SIZE_BYTES, &native, &managed, &violations);
        row.append_to(&results::runtimes_file())?;
        judge(&violations, budget_bytes / MIB, &native, &managed)
    })
}

fn judge(violations: &[String], budget: u64, native: &native::Native, managed: &managed::Managed) -> Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    let peak = native.finished.anonymous_peak_bytes / MIB;
    bail!("in {budget} of {peak} MiB it {}\nstandard error ends with:\n{}", violations.join(";\n  "), managed.stderr)
}
