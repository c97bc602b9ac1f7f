//! The loop: what is built, measured, kept and rolled back.

use super::build::Builder;
use super::interrupt::Interrupt;
use super::measure::{Measurement, Runner, Runs};
use super::widen::{Candidate, Widening};
use super::{Stop, tail};
use crate::error::complain;
use crate::plan::{Plan, VERSION, digests};
use crate::profile::ProfileFile;
use serde::Serialize;
use std::collections::HashSet;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Rounds in succession without a gain after which no other one is begun.
const WITHOUT_GAIN_MAX: u32 = 2;

/// What became of a round.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "why")]
pub enum Outcome {
    /// The build without hints, with which all begins.
    Plain,
    /// Faster than all before.
    Kept,
    /// Its plan is given up: why.
    RolledBack(String),
}

/// One round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// What was tried.
    pub what: String,
    /// Functions and sites in its plan.
    pub functions: usize,
    pub sites: usize,
    /// `None`: it could not be measured.
    #[serde(rename = "figures")]
    pub measured: Option<Measurement>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The best plan so far.
pub struct Best {
    pub plan: Plan,
    pub measured: Measurement,
    /// Its round.
    pub round: usize,
}

/// See the module.
pub struct Loop {
    builder: Builder,
    runner: Runner,
    until: Interrupt,
    rounds_max: u32,
    gain: f64,
    ignore_output: bool,
    /// The first one is the build without hints.
    pub rounds: Vec<Round>,
    best: Option<Best>,
    /// What the program prints.
    output: Option<[u8; 32]>,
    /// What was built last is the best.
    pub is_best_built: bool,
    /// It was said that a round's program does not name its plan.
    is_doubted: bool,
}

impl Loop {
    /// One that ends after so many rounds, or at a signal.
    pub fn new(
        builder: Builder,
        runner: Runner,
        until: Interrupt,
        rounds_max: u32,
        gain: f64,
        ignore_output: bool,
    ) -> Loop {
        Loop {
            builder,
            runner,
            until,
            rounds_max,
            gain,
            ignore_output,
            rounds: Vec::new(),
            best: None,
            output: None,
            is_best_built: true,
            is_doubted: false,
        }
    }

    /// The best plan so far: at first the one without hints.
    pub fn best(&self) -> &Best {
        self.best.as_ref().expect("the build without hints comes first")
    }

    /// What was measured without hints.
    pub fn plain_measured(&self) -> Measurement {
        self.rounds[0].measured.expect("what cannot be measured without hints ends the command")
    }

    /// Builds and measures the program without hints.
    pub fn plain(&mut self) -> Result<(), Stop> {
        let plan = Plan { version: VERSION, ..Plan::default() };
        progress("building without hints");
        self.builder.build(&plan, &self.until)?;
        let runs = self.runner.measure(&|how_far| progress(&format!("without hints: {how_far}")))?;
        let program = self.runner.name();
        let (measured, output) = match runs {
            Runs::Ended { measured, output } => (measured, output),
            Runs::Failed { how, said } => return Err(Stop::Program { program, how, said }),
        };
        if output.is_none() && !self.ignore_output {
            return Err(Stop::Unsteady { program });
        }
        self.output = output;
        self.done(Round {
            what: "without hints".into(),
            functions: 0,
            sites: 0,
            measured: Some(measured),
            outcome: Outcome::Plain,
        });
        self.best = Some(Best { plan, measured, round: 0 });
        Ok(())
    }

    /// Rounds with larger and larger plans, after `given`; `program`: its file.
    pub fn widen(&mut self, given: Option<Plan>, mut widening: Widening, program: &Path) -> Result<(), Stop> {
        if digests(program).is_some_and(|digests| digests.is_empty()) {
            complain(format_args!(
                "warning: {} has no note of Hinterland's: was it compiled anew, by $CC, $CXX or $RUSTC?{}",
                program.display(),
                self.builder.without_rustc()
            ));
        }
        let mut profile = self.profile()?;
        // Now: a build that fails may take the program away.
        let mut with_notes = compiled(&profile);
        let mut given =
            given.map(|plan| Candidate { plan: Plan { measured: None, ..plan }, what: "the given plan".into() });
        let mut without_gain = 0;
        while self.rounds.len() <= self.rounds_max as usize && without_gain < WITHOUT_GAIN_MAX {
            let is_compiled = |module: &str| with_notes.contains(module);
            let next = given.take().or_else(|| widening.next(&self.best().plan, &profile, &is_compiled));
            let Some(candidate) = next else { break };
            if self.attempt(candidate, program)? {
                without_gain = 0;
                profile = self.profile()?;
                with_notes = compiled(&profile);
            } else {
                without_gain += 1;
            }
        }
        if self.rounds.len() == 1 {
            complain(format_args!(
                "warning: no plan was tried, because no function with a name waited in what $CC, $CXX and $RUSTC compiled{}; a smaller --local shows \
                 more waiting, and a program that is stripped (-s) has no names",
                self.builder.without_rustc()
            ));
        }
        Ok(())
    }

    /// Builds the program with the best plan, if something else was built last. A signal that has ended the loop does not end this; a
    /// second one does.
    pub fn restore(&mut self) -> Result<(), Stop> {
        if self.is_best_built {
            return Ok(());
        }
        progress("building with the best plan");
        self.builder.build(&self.best().plan, &self.until.of_the_last_build())?;
        self.is_best_built = true;
        progress("");
        Ok(())
    }

    /// Where the program waits, as it was built last.
    fn profile(&self) -> Result<ProfileFile, Stop> {
        progress("taking a profile");
        let profile = self.runner.profile()?;
        let program = self.runner.name();
        profile.ok_or_else(|| Stop::Words(format!("{program} failed while its profile was taken, and had not before")))
    }

    /// One round: whether its plan is kept. One whose build fails is rolled back like any other.
    fn attempt(&mut self, candidate: Candidate, program: &Path) -> Result<bool, Stop> {
        let number = self.rounds.len();
        let Candidate { plan, what } = candidate;
        progress(&format!("round {number}: building"));
        self.is_best_built = false;
        let round = |measured, outcome| Round {
            what,
            functions: plan.functions.len(),
            sites: plan.sites.len(),
            measured,
            outcome,
        };
        let digest = match self.builder.build(&plan, &self.until) {
            Err(Stop::Build { how, said, .. }) => {
                let why = format!("its build {how}{}", tail(&said));
                self.done(round(None, Outcome::RolledBack(why)));
                return Ok(false);
            }
            built => built?,
        };
        if digests(program).is_some_and(|digests| !digests.contains(&digest)) && !self.is_doubted {
            self.is_doubted = true;
            complain(format_args!(
                "warning: {} does not name the plan of this round: was it compiled anew, by $CC, $CXX or $RUSTC?{}",
                program.display(),
                self.builder.without_rustc()
            ));
        }
        let runs = self.runner.measure(&|how_far| progress(&format!("round {number}: {how_far}")))?;
        let (measured, outcome) = match runs {
            Runs::Failed { how, .. } => (None, Outcome::RolledBack(format!("it {how}"))),
            Runs::Ended { output, .. } if !self.ignore_output && output != self.output => {
                (None, Outcome::RolledBack("it prints something else".into()))
            }
            Runs::Ended { measured, .. } => (Some(measured), self.judge(&measured)),
        };
        let is_kept = outcome == Outcome::Kept;
        self.done(round(measured, outcome));
        if let Some(measured) = measured.filter(|_| is_kept) {
            self.best = Some(Best { plan, measured, round: number });
            self.is_best_built = true;
        }
        Ok(is_kept)
    }

    fn judge(&self, measured: &Measurement) -> Outcome {
        let best = self.best().measured.seconds;
        let ratio = measured.seconds / best;
        if ratio <= 1.0 - self.gain {
            Outcome::Kept
        } else if ratio > 1.0 + self.gain {
            Outcome::RolledBack(format!("{ratio:.2} times the best one's time"))
        } else {
            Outcome::RolledBack("no gain".into())
        }
    }

    fn done(&mut self, round: Round) {
        progress("");
        self.rounds.push(round);
    }
}

/// The files with code that the build compiled: they have notes.
fn compiled(profile: &ProfileFile) -> HashSet<String> {
    let has_note = |path: &str| digests(Path::new(path)).is_some_and(|digests| !digests.is_empty());
    profile.modules.iter().filter(|module| has_note(&module.path)).map(|module| module.name.clone()).collect()
}

/// Says on a terminal what is going on; nothing: it is over.
fn progress(what: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let dots = if what.is_empty() { "" } else { " …" };
        let _ = err.write_all(format!("\r\x1b[K{what}{dots}").as_bytes());
    }
}
