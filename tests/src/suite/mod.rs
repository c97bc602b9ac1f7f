//! What the suites of this crate share: how many tests run at a time, the limit of a test that hangs, skips with reasons, times.
//!
//! A test takes a share of the machine ([`Share`]) and gives it back at its end; those that need the machine alone come last. A
//! test that hangs is ended, with the stacks of its processes ([`watchdog`]). No verdict depends on how long a test took.

mod shares;
mod times;
pub mod watchdog;

use crate::{places, reach, skips};
use libtest_mimic::{Arguments, Completion, Failed};
use shares::Shares;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

pub use shares::Share;

/// A test that may find out that it cannot run here.
pub type Outcome = Result<Completion, Failed>;

/// What this machine has to give.
static SHARES: LazyLock<Shares> =
    LazyLock::new(|| Shares::of(std::thread::available_parallelism().map_or(1, usize::from)));

/// A test and its share of the machine.
pub struct Trial {
    name: String,
    share: Share,
    body: Box<dyn FnOnce() -> Outcome + Send>,
}

/// A test that is skipped when `obstacle` names a reason. It keeps a processor busy, unless [`Trial::taking`] says otherwise.
pub fn trial(
    name: impl Into<String>,
    obstacle: impl FnOnce() -> Option<String> + Send + 'static,
    test: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) -> Trial {
    let name = name.into();
    let noted = name.clone();
    let body = move || match obstacle() {
        Some(reason) => {
            skips::note(&noted, &reason);
            Ok(Completion::ignored_with(format!("skipped: {reason}")))
        }
        None => test().map(|()| Completion::Completed).map_err(|error| Failed::from(format!("{error:#}"))),
    };
    Trial { name, share: Share::Busy, body: Box::new(body) }
}

/// What the first test that needs it makes, and others wait for; a failure is repeated to each of them.
pub struct Once<T>(OnceLock<Result<T, String>>);

impl<T> Once<T> {
    /// Nothing yet.
    pub const fn new() -> Once<T> {
        Once(OnceLock::new())
    }

    /// What `make` made, now or for an earlier test.
    ///
    /// # Errors
    /// It could not be made.
    pub fn get(&self, make: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
        let made = self.0.get_or_init(|| make().map_err(|error| format!("{error:#}")));
        made.as_ref().map_err(|error| anyhow::Error::msg(error.clone()))
    }
}

impl<T> Default for Once<T> {
    fn default() -> Once<T> {
        Once::new()
    }
}

/// A test that takes its own name, after which its directory is called.
pub type NamedTest = Box<dyn FnOnce(&str) -> anyhow::Result<()> + Send>;

/// As [`trial`], of a test that takes its own name.
pub fn named(
    name: impl Into<String>,
    obstacle: impl FnOnce() -> Option<String> + Send + 'static,
    test: NamedTest,
) -> Trial {
    let name = name.into();
    trial(name.clone(), obstacle, move || test(&name))
}

impl Trial {
    /// The same test with another share of the machine.
    pub fn taking(self, share: Share) -> Trial {
        Trial { share, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a change reaches it; tests of the repository always run.
    fn is_reached(&self) -> bool {
        self.name.starts_with("repository::") || reach::is_reached(reach::SUITES, |word| self.name.starts_with(word))
    }

    /// The test with its share, its limit and its time.
    fn measured(self) -> libtest_mimic::Trial {
        let Trial { name, share, body } = self;
        libtest_mimic::Trial::ignorable_test(name.clone(), move || {
            let _held = SHARES.take(share);
            let (begun, watched) = (Instant::now(), watchdog::watch(&name));
            let outcome = body();
            times::note(&name, begun.elapsed());
            let outcome = match watched.end() {
                Some(hung) => Err(format!(
                    "{hung}{}",
                    outcome
                        .err()
                        .and_then(|failed| failed.message().map(|text| format!("; {text}")))
                        .unwrap_or_default()
                )
                .into()),
                None => outcome,
            };
            if let Err(failed) = &outcome {
                note_failure(&name, failed.message().unwrap_or_default());
            }
            outcome
        })
    }
}

/// Runs `trials` in their order, those that wait among those that are busy, those that need the machine alone last, while no other
/// suite runs on this build directory. At the end, says which took longest. A name on the command line that no test has is an error.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    let arguments = Arguments { test_threads: Some(SHARES.threads()), ..Arguments::from_args() };
    if let Some(name) = unknown(&arguments, &trials) {
        eprintln!(
            "no test of these suites has '{name}' in its name (--list lists them; some are run with --full only)"
        );
        return ExitCode::FAILURE;
    }
    let reached = trials.into_iter().filter(Trial::is_reached).collect();
    let trials = in_order(reached).into_iter().map(Trial::measured).collect();
    if arguments.list {
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    let _lock = exclusive();
    watchdog::start();
    let conclusion = libtest_mimic::run(&arguments, trials);
    times::print();
    conclusion.exit_code()
}

/// The name that the command line asks for, if no test has it. Tests that no change reaches count as well.
fn unknown<'a>(arguments: &'a Arguments, trials: &[Trial]) -> Option<&'a str> {
    let name = arguments.filter.as_deref()?;
    let has = |trial: &Trial| if arguments.exact { trial.name == name } else { trial.name.contains(name) };
    (!trials.iter().any(has)).then_some(name)
}

/// Adds why a test failed to `target/tests/failed.txt`, which `./dev test` prints at its end. The suite reports it all the same: a full
/// disk does not matter.
fn note_failure(test: &str, message: &str) {
    let file = File::options().create(true).append(true).open(places::tests().join("failed.txt"));
    let _ = file.and_then(|mut file| file.write_all(format!("---- {test}\n{message}\n").as_bytes()));
}

/// Spreads the trials that wait evenly over those that are busy, so that a processor always has something to do.
fn in_order(trials: Vec<Trial>) -> Vec<Trial> {
    let (alone, beside): (Vec<_>, Vec<_>) = trials.into_iter().partition(|trial| trial.share == Share::Alone);
    let (waiting, busy): (Vec<_>, Vec<_>) = beside.into_iter().partition(|trial| trial.share == Share::Waits);
    let count = (waiting.len().max(1), busy.len().max(1));
    let placed = |trials: Vec<Trial>, count: usize| {
        trials.into_iter().enumerate().map(move |(at, trial)| ((2 * at + 1) * 1_000_000 / (2 * count), trial))
    };
    let mut spread: Vec<(usize, Trial)> = placed(waiting, count.0).chain(placed(busy, count.1)).collect();
    spread.sort_by_key(|(place, _)| *place);
    spread.into_iter().map(|(_, trial)| trial).chain(alone).collect()
}

/// Waits until something holds, however long it takes.
///
/// # Errors
/// It cannot be looked at, or the calling thread's test was ended because it hangs.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    while !holds()? {
        anyhow::ensure!(!watchdog::is_ended(), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whether the long form of the suites was asked for (`./dev test --full`).
pub fn full() -> bool {
    std::env::var_os("HINTERLAND_TEST_FULL").is_some_and(|value| value == "1")
}

/// Waits for the lock of the tests' directory; without one (a file system without locks) the tests run all the same.
fn exclusive() -> Option<File> {
    std::fs::create_dir_all(places::tests()).ok()?;
    let file = File::create(places::tests().join("lock")).ok()?;
    file.lock().ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_test_has_is_unknown() {
        let trials = [trial("lifecycle::trees::ram", || None, || Ok(()))];
        let unknown = |words: &[&str]| {
            let arguments = Arguments::from_iter([&["system"], words].concat());
            unknown(&arguments, &trials).map(str::to_owned)
        };
        assert_eq!(unknown(&[]), None);
        assert_eq!(unknown(&["trees::r"]), None);
        assert_eq!(unknown(&["lifecycle::tres"]), Some("lifecycle::tres".into()));
        assert_eq!(unknown(&["--exact", "trees::r"]), Some("trees::r".into()));
    }

    #[test]
    fn those_that_wait_are_spread_and_those_alone_are_last() {
        let one = |name: &str, share| trial(name, || None, || Ok(())).taking(share);
        let trials = vec![
            one("a1", Share::Alone),
            one("w1", Share::Waits),
            one("b1", Share::Busy),
            one("b2", Share::Busy),
            one("b3", Share::Busy),
            one("b4", Share::Busy),
            one("w2", Share::Waits),
        ];
        let names: Vec<String> = in_order(trials).into_iter().map(|trial| trial.name).collect();
        assert_eq!(names, ["b1", "w1", "b2", "b3", "w2", "b4", "a1"]);
    }
}
