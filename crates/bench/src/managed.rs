//! One run of the worker under `hinterland run`, without a rival: for measurements of Hinterland beside itself.

use super::paging::process::{Silence, WorkerProcess, in_words};
use super::worker::{Hinterland, Measured, Message, WorkerArgs};
use crate::executables::Executables;
use hinterland_abi::Settings;
use std::process::Command;
use std::time::Duration;

/// The longest that any step of the worker may take beyond its own limit.
const PATIENCE: Duration = Duration::from_secs(60);
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
    let mut command = Command::new(&executables.launcher);
    command.args(["run", "--quiet"]).args(flags).arg("--").arg(&executables.bench);
    // What the user has set must not reach the run.
    for (name, value) in settings.to_env() {
        command.env_remove(name);
        if !value.is_empty() {
            command.env(name, value);
        }
    }
    command.arg("worker").args(args.to_words());
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

fn follow(worker: &mut WorkerProcess, args: &WorkerArgs) -> Result<Measured, Silence> {
    let patience = PATIENCE + 2 * Duration::from_secs(args.seconds_max);
    loop {
        match worker.next(patience, TICK, || {})? {
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
