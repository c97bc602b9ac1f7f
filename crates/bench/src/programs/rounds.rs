//! What runs when: each program once natively, then the trials of each share, then the rounds. A round runs all programs; of each, the native
//! run and both systems at every share stand side by side, in an order that rotates from round to round; the two systems of a share are first by
//! turns, as what a run leaves behind (page cache, free memory, heat) meets the next one.

use super::program::{ALL, Named, Program};
use super::report::{Report, Row, Skipped};
use super::run::{Budget, How, Machine, Run};
use super::trials::{Search, Setting, Trial};
use super::{Bound, ProgramsArgs, swap_bytes};
use crate::error::BenchError;
use crate::report::model::Origin;
use std::time::{Duration, Instant};

/// The compressed store may be so many times the native peak: never full.
const FAR_PER_PEAK: u64 = 4;

/// Figures, or why there are none.
pub type Round = Result<Run, String>;

/// One program.
pub struct Case {
    program: Program,
    /// Of the first native run, with which all are compared.
    digest: u64,
    /// That run.
    pub native: Run,
    /// One for each round.
    pub natives: Vec<Round>,
    /// One for each share.
    pub shares: Vec<Share>,
}

/// One program with one share of its memory.
pub struct Share {
    /// Percent of the native peak.
    pub percent: u32,
    /// That share.
    pub local_bytes: u64,
    /// Hinterland's bound.
    pub budget: Budget,
    /// Of the kernel's swap.
    pub trials: Vec<Trial>,
    /// The one whose setting and limit it gets; or why the share is not measured.
    pub chosen: Result<Trial, String>,
    /// One for each round.
    pub hinterland: Vec<Round>,
    /// As `hinterland`.
    pub zram: Vec<Round>,
}

/// Runs all that `args` ask for.
///
/// # Errors
/// The machine cannot be set up.
pub fn measure(args: &ProgramsArgs, machine: &Machine, settings: &[Setting]) -> Result<Report, BenchError> {
    let begun = Instant::now();
    let late = || args.minutes_max.is_some_and(|minutes| begun.elapsed() > Duration::from_secs(minutes * 60));
    let load_before = load_average();
    let every = || ALL.iter().collect::<Vec<_>>();
    let chosen = if args.program.is_empty() { every() } else { args.program.clone() };
    let (mut cases, mut skipped) = (Vec::new(), Vec::new());
    for (place, named) in chosen.iter().enumerate() {
        eprintln!("[{}/{}] {}", place + 1, chosen.len(), named.name);
        match begin(named, args, machine, settings)? {
            Ok(case) => cases.push(case),
            Err(reason) => {
                eprintln!("  left out: {reason}");
                skipped.push(Skipped { program: named.name.into(), reason });
            }
        }
    }
    'rounds: for round in 0..args.rounds as usize {
        for case in &mut cases {
            if late() {
                eprintln!("the time is up");
                break 'rounds;
            }
            // What was measured so far is a result.
            if let Err(error) = case.round(machine, round, args.rounds) {
                eprintln!("no further rounds: {error}");
                break 'rounds;
            }
        }
    }
    let rows = cases.iter().flat_map(|case| case.shares.iter().map(|share| Row::of(case, share))).collect();
    Ok(Report::new(args, Origin::now(), [load_before, load_average()], rows, skipped))
}

/// The first runs of a program; why it is left out, if it is.
fn begin(
    named: &'static Named,
    args: &ProgramsArgs,
    machine: &Machine,
    settings: &[Setting],
) -> Result<Result<Case, String>, BenchError> {
    let program = match named.prepare(args, &machine.directory) {
        Ok(program) => program,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut case = match Case::begin(program, machine)? {
        Ok(case) => case,
        Err(reason) => return Ok(Err(reason)),
    };
    for percent in &args.local {
        let share = case.share(*percent, args.budget, machine, settings)?;
        case.shares.push(share);
    }
    Ok(Ok(case))
}

impl Case {
    /// The first native run of a program; why there is none.
    ///
    /// # Errors
    /// The machine cannot be set up for it.
    pub fn begin(program: Program, machine: &Machine) -> Result<Result<Case, String>, BenchError> {
        let (native, digest) = match machine.run(&program, &How::Native)? {
            Ok(first) => first,
            Err(reason) => return Ok(Err(format!("the native run: {reason}"))),
        };
        tell("first", "native", "", &Ok(native));
        Ok(Ok(Case { program, digest, native, natives: Vec::new(), shares: Vec::new() }))
    }

    /// Of the first native run's output.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The program's name.
    pub fn name(&self) -> &'static str {
        self.program.name
    }

    /// Runs the program once; another output than the native one is no result.
    fn run(&self, machine: &Machine, how: &How) -> Result<Round, BenchError> {
        let outcome = machine.run(&self.program, how)?;
        Ok(outcome.and_then(|(run, digest)| {
            if digest == self.digest { Ok(run) } else { Err("its output differs from the native output".into()) }
        }))
    }

    fn hinterland(&self, budget: Budget) -> How {
        How::Hinterland { budget, far_bytes: self.native.anonymous_peak_bytes * FAR_PER_PEAK }
    }

    fn zram(&self, trial: &Trial) -> How {
        let swap_bytes = swap_bytes(self.native.anonymous_peak_bytes);
        How::Swap { setting: trial.setting.clone(), limit_bytes: trial.limit_bytes, swap_bytes }
    }

    /// Finds what the kernel gets at this share.
    fn share(&self, percent: u32, bound: Bound, machine: &Machine, settings: &[Setting]) -> Result<Share, BenchError> {
        let local_bytes = self.native.anonymous_peak_bytes * u64::from(percent) / 100;
        let mut budget = Budget::Local(local_bytes);
        let mut ours = self.run(machine, &self.hinterland(budget))?;
        tell("trial", "hinterland", &format!(" {percent} %"), &ours);
        if let (Bound::Ram, Ok(Run { hinterland: Some(said), .. })) = (bound, &ours) {
            budget = Budget::Ram(said.total_ram_peak_bytes);
            ours = self.run(machine, &self.hinterland(budget))?;
            tell("trial", "hinterland", &format!(" {percent} %, divided by itself"), &ours);
        }
        let mut trials = Vec::new();
        let chosen = match ours {
            Ok(run) => {
                let native_bytes = self.native.total_ram_peak_bytes;
                let search = Search { wanted_bytes: run.total_ram_peak_bytes, native_bytes };
                self.choose(&search, machine, settings, &mut trials)?
            }
            Err(reason) => Err(format!("hinterland: {reason}")),
        };
        Ok(Share { percent, local_bytes, budget, trials, chosen, hinterland: Vec::new(), zram: Vec::new() })
    }

    /// What the kernel gets; why it gets nothing.
    ///
    /// # Errors
    /// The machine cannot be set up.
    pub fn choose(
        &self,
        search: &Search,
        machine: &Machine,
        settings: &[Setting],
        trials: &mut Vec<Trial>,
    ) -> Result<Result<Trial, String>, BenchError> {
        let chosen =
            search.choose(settings, trials, |setting, limit_bytes| self.trial(machine, setting, limit_bytes))?;
        let reasons = || trials.iter().map(|trial| trial.ended.as_str()).collect::<Vec<_>>().join("; ");
        Ok(chosen.ok_or_else(|| format!("{}: {}", machine.swap_to, reasons())))
    }

    fn trial(&self, machine: &Machine, setting: &Setting, limit_bytes: u64) -> Result<Trial, BenchError> {
        let swap_bytes = swap_bytes(self.native.anonymous_peak_bytes);
        let outcome = self.run(machine, &How::Swap { setting: setting.clone(), limit_bytes, swap_bytes })?;
        tell(
            "trial",
            &machine.swap_to.to_string(),
            &format!(" ({setting}, limit {} MiB)", limit_bytes >> 20),
            &outcome,
        );
        Ok(Trial::of(setting, limit_bytes, &outcome))
    }

    /// One round: natively, and at each share under both.
    fn round(&mut self, machine: &Machine, round: usize, rounds: u32) -> Result<(), BenchError> {
        let what = format!("round {}/{rounds} {}", round + 1, self.name());
        for turn in order(self.shares.len(), round) {
            let Some((number, ours)) = turn else {
                let outcome = self.run(machine, &How::Native)?;
                tell(&what, "native", "", &outcome);
                self.natives.push(outcome);
                continue;
            };
            let share = &self.shares[number];
            let outcome = match &share.chosen {
                Ok(_) if ours => self.run(machine, &self.hinterland(share.budget))?,
                Ok(chosen) => self.run(machine, &self.zram(chosen))?,
                Err(_) => continue,
            };
            tell(&what, if ours { "hinterland" } else { "zram" }, &format!(" {} %", share.percent), &outcome);
            let share = &mut self.shares[number];
            let series = if ours { &mut share.hinterland } else { &mut share.zram };
            series.push(outcome);
        }
        Ok(())
    }
}

/// The runs of a round: the native one, or the number of a share and whether it is Hinterland's turn.
fn order(shares: usize, round: usize) -> impl Iterator<Item = Option<(usize, bool)>> {
    let count = 1 + 2 * shares;
    (0..count).map(move |turn| {
        let place = ((turn + round) % count).checked_sub(1)?;
        Some((place / 2, (place + round).is_multiple_of(2)))
    })
}

fn tell(what: &str, system: &str, of: &str, outcome: &Round) {
    match outcome {
        Ok(run) => eprintln!(
            "  {what}: {system}{of}: {:.2} s, {} major faults, {} MiB in all",
            run.seconds,
            run.major_faults,
            run.total_ram_peak_bytes >> 20
        ),
        Err(reason) => eprintln!("  {what}: {system}{of}: {reason}"),
    }
}

/// Processes that could run, on average over the last minute (proc(5), loadavg); 0 when the kernel does not say.
fn load_average() -> f64 {
    use procfs::Current;
    procfs::LoadAverage::current().map_or(0.0, |load| f64::from(load.one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_runs_before_the_other_as_often() {
        for shares in 1..=3 {
            let count = 1 + 2 * shares;
            let rounds: Vec<Vec<_>> = (0..2 * count).map(|round| order(shares, round).collect()).collect();
            for share in 0..shares {
                let right_before = |ours: bool| {
                    let pair = [Some((share, ours)), Some((share, !ours))];
                    rounds.iter().filter(|round| round.windows(2).any(|runs| runs == pair)).count()
                };
                assert_eq!(right_before(true), right_before(false), "share {share} of {shares}");
                let at =
                    |round: &Vec<_>, ours: bool| round.iter().position(|turn| *turn == Some((share, ours))).unwrap();
                let first = rounds.iter().filter(|round| at(round, true) < at(round, false)).count();
                assert_eq!(first, count, "share {share} of {shares}");
            }
            let native = |round: &Vec<_>| round.iter().position(Option::is_none);
            assert!(rounds.iter().take(count).map(native).collect::<std::collections::BTreeSet<_>>().len() == count);
        }
    }
}
