//! The replays, as many at a time as there are processors, with a progress line on a terminal.

use super::combinations::Combination;
use crate::error::tell;
use hinterland_sim::{ReplayStats, SetupError, Workload, follow, simulate};
use hinterland_tape::tape::Tape;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The figures of all combinations, in their order; `tape` is followed by those that ask for it.
///
/// # Errors
/// The first combination's that cannot be simulated.
pub fn all(
    work: &Workload,
    tape: Option<&Tape<'_>>,
    combinations: &[Combination],
) -> Result<Vec<ReplayStats>, SetupError> {
    let next = AtomicUsize::new(0);
    let progress = Progress::new(work.touches().len() as u64 * combinations.len() as u64);
    let outcomes: Mutex<Vec<Option<Result<ReplayStats, SetupError>>>> = Mutex::new(vec![None; combinations.len()]);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(combinations.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((index, one)) = take(&next, combinations) {
                    let mut told = 0;
                    let mut tell = |references| {
                        progress.add(references - told);
                        told = references;
                    };
                    let outcome = match tape.filter(|_| one.is_tape()) {
                        Some(tape) => follow(work, &one.setup, tape, &mut tell),
                        None => simulate(work, &one.setup, &one.evict, &one.prefetch, &mut tell),
                    };
                    outcomes.lock().expect("no thread panics with the outcomes")[index] = Some(outcome);
                }
            });
        }
    });
    progress.clear();
    outcomes.into_inner().expect("no thread panics with the outcomes").into_iter().flatten().collect()
}

fn take<'a>(next: &AtomicUsize, combinations: &'a [Combination]) -> Option<(usize, &'a Combination)> {
    let index = next.fetch_add(1, Relaxed);
    Some((index, combinations.get(index)?))
}

/// How far all replays together are.
struct Progress {
    all: u64,
    done: AtomicU64,
    shown: bool,
}

impl Progress {
    fn new(all: u64) -> Progress {
        Progress { all, done: AtomicU64::new(0), shown: std::io::stderr().is_terminal() }
    }

    fn add(&self, references: u64) {
        let before = self.done.fetch_add(references, Relaxed);
        let percent = |done: u64| done * 100 / self.all.max(1);
        let now = percent(before + references);
        if self.shown && now != percent(before) {
            tell(format_args!("\rreplaying: {now} %"));
        }
    }

    fn clear(&self) {
        if self.shown {
            tell(format_args!("\r{:20}\r", ""));
        }
    }
}
