//! The rounds of a bench: for each pattern and number of threads, the kernel's variants are tried once and the best of each
//! rival is chosen by its fastest
//! trial; then every system runs once in each round, in an order that rotates.

use super::run::{Bench, Outcome};
use super::system::{System, Variant};
use crate::error::BenchError;
use crate::worker::{Pattern, WorkerArgs};
use hinterland_units::PAGE_BYTES;

/// A trial is so much shorter than a run.
const TRIAL_PART: u64 = 2;
/// Every variant is tried so often, by turns, and its best time counts: noise only ever makes a trial slower.
const TRIALS: usize = 2;
/// The hot set is this part of the local memory.
const HOT_PART: u64 = 2;

/// One pattern with one number of threads.
pub struct Case {
    /// The pattern.
    pub pattern: Pattern,
    /// Threads.
    pub threads: u32,
    /// One for each system, in the order of the setting.
    pub entries: Vec<Entry>,
}

/// A system's part in a case.
pub struct Entry {
    /// The system.
    pub system: System,
    /// The variant that took part.
    pub variant: Variant,
    /// The trials that chose it: variant, µs for each access or why there is no figure.
    pub trials: Vec<(Variant, Result<f64, String>)>,
    /// One outcome for each round.
    pub rounds: Vec<Outcome>,
}

/// Runs all cases.
///
/// # Errors
/// The machine cannot be set up.
pub fn run_all(bench: &Bench) -> Result<Vec<Case>, BenchError> {
    let args = &bench.setting.args;
    let cases: Vec<_> = args.pattern.iter().flat_map(|p| args.threads.iter().map(move |t| (*p, *t))).collect();
    let mut done = Vec::new();
    for (count, (pattern, threads)) in cases.iter().enumerate() {
        eprintln!(
            "[{}/{}] {pattern}, {threads} thread{}",
            count + 1,
            cases.len(),
            if *threads == 1 { "" } else { "s" }
        );
        done.push(run_case(bench, *pattern, *threads)?);
    }
    Ok(done)
}

fn run_case(bench: &Bench, pattern: Pattern, threads: u32) -> Result<Case, BenchError> {
    let args = worker_args(bench, pattern, threads);
    let mut entries = Vec::new();
    for system in &bench.setting.systems {
        entries.push(choose(bench, *system, &args)?);
    }
    let (count, repeat) = (entries.len(), bench.setting.args.repeat as usize);
    for round in 0..repeat {
        for turn in 0..count {
            let entry = &mut entries[(turn + round) % count];
            let outcome = bench.run(&entry.variant, &args)?;
            tell(&format!("round {}/{repeat}", round + 1), &entry.variant, &outcome);
            entry.rounds.push(outcome);
        }
    }
    require_equal_streams(&mut entries);
    Ok(Case { pattern, threads, entries })
}

/// Tries the variants of `system`, when there are several, and takes the fastest.
fn choose(bench: &Bench, system: System, args: &WorkerArgs) -> Result<Entry, BenchError> {
    let variants = Variant::all_of(system)?;
    let mut trials = Vec::new();
    if variants.len() > 1 {
        let args = WorkerArgs { accesses: args.accesses / TRIAL_PART, ..args.clone() };
        for variant in std::iter::repeat_n(&variants, TRIALS).flatten() {
            let outcome = bench.run(variant, &args)?;
            tell("trial", variant, &outcome);
            trials.push((variant.clone(), outcome.map(|sample| sample.us_per_access())));
        }
    }
    let scored = trials.iter().filter_map(|(variant, outcome)| Some((variant, *outcome.as_ref().ok()?)));
    let best = scored.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(variant, _)| variant.clone());
    let variant = best.unwrap_or_else(|| variants[0].clone());
    Ok(Entry { system, variant, trials, rounds: Vec::new() })
}

fn worker_args(bench: &Bench, pattern: Pattern, threads: u32) -> WorkerArgs {
    let setting = bench.setting;
    let pages = |bytes: u64| u32::try_from(bytes / PAGE_BYTES as u64).expect("checked when the arguments were read");
    let all = pages(setting.size_bytes);
    WorkerArgs {
        pages: all,
        hot_pages: pages(setting.local_bytes / HOT_PART),
        pattern,
        threads,
        accesses: setting.args.accesses.unwrap_or(u64::from(all) * pattern.accesses_per_page()),
        seconds_max: setting.args.seconds_max,
        seed: setting.args.seed,
        warm_up: None,
        access_times: false,
    }
}

/// Turns a run whose accesses were not those of the others into a failure: a comparison of different work is none. (A run
/// that was cut short made the first of the same accesses.)
fn require_equal_streams(entries: &mut [Entry]) {
    let mut expected = None;
    for outcome in entries.iter_mut().flat_map(|entry| &mut entry.rounds) {
        let Ok(sample) = outcome else { continue };
        if sample.measured.cut_short {
            continue;
        }
        let digest = sample.measured.stream_digest;
        if *expected.get_or_insert(digest) != digest {
            *outcome = Err("its accesses were not those of the other systems".into());
        }
    }
}

fn tell(what: &str, variant: &Variant, outcome: &Outcome) {
    let name = variant.system();
    let setting = variant.to_string();
    let setting = if setting.is_empty() { setting } else { format!(" ({setting})") };
    match outcome {
        Ok(sample) => {
            let cut = if sample.measured.cut_short { ", cut short" } else { "" };
            let us = sample.us_per_access();
            let faults = sample.measured.paging.major_faults;
            eprintln!("  {what}: {name}{setting}: {us:.2} µs per access, {faults} major faults{cut}");
        }
        Err(reason) => eprintln!("  {what}: {name}{setting}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Ram;
    use super::super::run::Sample;
    use super::*;
    use crate::worker::{Measured, Paging, Processor};

    fn sample(stream_digest: u64, cut_short: bool) -> Outcome {
        let (processor, paging) = (Processor::default(), Paging::default());
        let measured =
            Measured { accesses: 10, cut_short, seconds: 1.0, processor, paging, stream_digest, access_times: None };
        Ok(Sample { measured, fill_seconds: 0.0, ram: Ram::default(), limit_bytes: None })
    }

    #[test]
    fn a_run_over_another_stream_is_not_scored() {
        let entry = |rounds| Entry { system: System::AllLocal, variant: Variant::AllLocal, trials: vec![], rounds };
        let mut entries =
            [entry(vec![sample(1, false), sample(9, true)]), entry(vec![sample(2, false), sample(1, false)])];
        require_equal_streams(&mut entries);
        let ok = |entry: &Entry| entry.rounds.iter().map(Result::is_ok).collect::<Vec<_>>();
        assert_eq!((ok(&entries[0]), ok(&entries[1])), (vec![true, true], vec![false, true]));
    }
}
