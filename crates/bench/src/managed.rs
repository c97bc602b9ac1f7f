//! One run of the worker under `hinterland run`, without a rival: for measurements of Hinterland beside itself.

use super::paging::process::{Silence, WorkerProcess, in_words};
use super::worker::{Hinterland, Measured, Message, WorkerArgs};
use crate::executables::{self, Executables};
use hinterland_abi::Settings;
use std::process::Command;
use std::time::Duration;

/// The longest that any step of the worker may take beyond its own limit.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two looks at whether the worker said something.
const TICK: Duration = Duration::from_millis(100);

/// Runs the worker once under `settings`, with `flags` of `hinterland run` that have no setting here.
///
/// # Errors
/// Why there are no figures.
pub fn run(
    executables: &Executables,
    flags: &[&str],
    settings: &Settings,
    args: &WorkerArgs,
) -> Result<Measured, String> {
    let command = command(executables, flags, settings, args);
    let mut worker = WorkerProcess::start(command, None).map_err(|error| error.to_string())?;
    let ended = follow(&mut worker, args);
    if ended.is_err() {
        worker.kill();
    }
    let (status, stderr) = worker.finish();
    match ended {
        Ok(measured) if status.is_some_and(|status| status.success()) => Ok(measured),
        Ok(_) | Err(Silence::Ended) => Err(format!("{}: {stderr}", in_words(status))),
        Err(Silence::Failed(reason)) => Err(format!("{reason}: {stderr}")),
        Err(Silence::TimedOut(limit)) => Err(format!("no word for {} s: {stderr}", limit.as_secs())),
    }
}

fn command(executables: &Executables, flags: &[&str], settings: &Settings, args: &WorkerArgs) -> Command {
    let mut command = executables::command(&executables.launcher);
    command.envs(executables::variables_of(settings));
    command.args(["run", "--quiet"]).args(flags).arg("--").arg(&executables.bench);
    command.arg("worker").args(args.to_words());
    command
}

fn follow(worker: &mut WorkerProcess, args: &WorkerArgs) -> Result<Measured, Silence> {
    let timeout = TIMEOUT + 2 * Duration::from_secs(args.seconds_max);
    loop {
        match worker.next(timeout, TICK, || {})? {
            Message::Ready => worker.go_on(),
            Message::Filled { .. } | Message::Warm => {}
            Message::Done(measured) => {
                worker.go_on();
                return match measured.paging.hinterland {
                    Some(_) => Ok(*measured),
                    None => Err(Silence::Failed("the worker was not managed".into())),
                };
            }
            Message::Failed { reason } => return Err(Silence::Failed(reason)),
        }
    }
}

/// The pager's figures of a run of [`run`]'s.
pub fn figures(measured: &Measured) -> &Hinterland {
    measured.paging.hinterland.as_ref().expect("`run` gives back managed runs alone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executables::tests::assert_unreached;
    use clap::Parser;
    use hinterland_abi::{FaultPathName, variables};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: WorkerArgs,
    }

    #[test]
    fn a_run_has_the_settings_that_are_given_alone() {
        let executables = Executables { bench: "bench".into(), launcher: "hinterland".into() };
        let worker =
            "worker --pages 1 --hot-pages 1 --pattern random --threads 1 --accesses 1 --seconds-max 1 --seed 1";
        let settings =
            Settings { fault_path: FaultPathName::Inline, far: vec!["compressed".into()], ..Settings::default() };
        let command = command(&executables, &[], &settings, &Line::parse_from(worker.split(' ')).args);
        let given: Vec<&str> = executables::variables_of(&settings).map(|(name, _)| name).collect();
        assert!(given.contains(&variables::FAR), "{given:?}");
        assert_unreached(&command, &given);
    }
}
