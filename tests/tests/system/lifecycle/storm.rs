//! Threads, signals, forks and system calls on far memory at the same time, on each fault path and heap mode: 20 seconds in
//! all, ten minutes with `--full`.

use anyhow::Result;
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{HEAPS, PATHS, Variant, places, skips, suite};
use std::process::Command;

/// Time for all.
const SECONDS: u64 = 20;
const SECONDS_FULL: u64 = 600;
/// One run takes no longer, so that a hang is noticed.
const SECONDS_MAX: u64 = 60;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let seconds = if suite::full() { SECONDS_FULL } else { SECONDS };
    let variants: Vec<_> = PATHS.iter().flat_map(|path| HEAPS.map(|heap| (*path, heap))).collect();
    let each = seconds.div_ceil(variants.len() as u64);
    let runs = each.div_ceil(SECONDS_MAX);
    let one = |(path, heap): (&'static str, &'static str)| {
        (0..runs).map(move |seed| {
            let name = format!("lifecycle::storm::{path}::{heap}::{seed}");
            suite::trial(name.clone(), skips::no_userfaultfd, move || storm(&name, path, heap, each / runs, seed))
        })
    };
    variants.into_iter().flat_map(one).collect()
}

fn storm(name: &str, path: &'static str, heap: &'static str, seconds: u64, seed: u64) -> Result<()> {
    let variant = Variant { path, heap, ..Variant::DEFAULT };
    let words =
        variant.prefix().iter().map(|word| (*word).to_owned()).chain([places::launcher()?.display().to_string()]);
    let words: Vec<String> = words.collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["run", "--local", "16M", "--fault-path", variant.fault_path(), "--heap", heap]);
    command.args(["--stats", "stats.json", "--"]).arg(c_program("storm", &[])?);
    command.args([seconds.to_string(), (seed + 1).to_string()]);
    Launch::of(name, command)?.run()?.expect(0, "storm over")?.expect_paging()?;
    Ok(())
}
