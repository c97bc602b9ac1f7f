//! One run: one system, one pattern, one process from start to end.
//!
//! A kernel rival's limit is set when its worker has started but holds no data yet:
//! `limit = local budget + what is charged to the group at that moment + page tables of the data`. So the data has the same
//! number of local bytes under every system.

use super::Setting;
use super::memory::{Ram, Sampler};
use super::process::{Silence, WorkerProcess, in_words};
use super::system::{System, Variant};
use crate::error::BenchError;
use crate::executables::{self, Executables};
use crate::rivals;
use crate::rivals::cgroup::{Cgroup, Hierarchy};
use crate::rivals::swapfile::SwapFile;
use crate::rivals::undo::Changes;
use crate::worker::{Measured, Message, WorkerArgs};
use hinterland_units::PAGE_BYTES;
use std::process::Command;
use std::time::Duration;

/// Time between two samples of memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// The longest that any step of the worker may take beyond its own limit: filling, above all.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Page-table bytes for each page of data: one 8-byte entry.
const ENTRY_BYTES: u64 = 8;

/// A run that exceeds its budget by more than this part of it is not scored.
const OVERSHOOT_PART: u64 = 100;

/// What a finished run measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Of the timed phase.
    pub measured: Measured,
    /// Time to write the data first.
    pub fill_seconds: f64,
    /// Memory.
    pub ram: Ram,
    /// The rival's limit.
    pub limit_bytes: Option<u64>,
}

#[allow(clippy::cast_precision_loss, reason = "counts of one run lie far below 2^52")]
impl Sample {
    /// Wall-clock time for each access, over all threads, in microseconds.
    pub fn us_per_access(&self) -> f64 {
        self.measured.seconds * 1e6 / self.measured.accesses.max(1) as f64
    }

    /// The same for each major fault; none when there were none.
    pub fn us_per_major_fault(&self) -> Option<f64> {
        let faults = self.measured.paging.major_faults;
        (faults > 0).then(|| self.measured.seconds * 1e6 / faults as f64)
    }

    /// Major faults in a second.
    pub fn major_faults_per_second(&self) -> f64 {
        self.measured.paging.major_faults as f64 / self.measured.seconds
    }
}

/// A run's outcome: figures, or why it ended without any.
pub type Outcome = Result<Sample, String>;

/// What all runs of a bench share.
pub struct Bench<'a> {
    /// What was asked.
    pub setting: &'a Setting,
    /// To take back what is set up.
    pub changes: &'a Changes,
    /// Where groups are made; none without root.
    pub hierarchy: Option<Hierarchy>,
    /// The disk's rival.
    pub swap_file: Option<SwapFile>,
}

impl Bench<'_> {
    /// Runs `variant` once.
    ///
    /// # Errors
    /// The machine cannot be set up for it. A run that fails is an outcome, not an error.
    pub fn run(&self, variant: &Variant, args: &WorkerArgs) -> Result<Outcome, BenchError> {
        let _place = variant.begin(self.setting.swap_bytes(), self.swap_file.as_ref(), self.changes)?;
        let cgroup = self.hierarchy.as_ref().map(|h| h.make(&rivals::name(), self.changes)).transpose()?;
        let mut worker = WorkerProcess::start(command(self.setting, variant, args), cgroup.as_ref())?;
        let ended = self.follow(&mut worker, variant.system(), args, cgroup.as_ref());
        if ended.is_err() {
            worker.kill();
        }
        let (status, stderr) = match (&ended, &cgroup) {
            // A launcher that was killed leaves its program to the group's end.
            (Err(_), Some(_)) => {
                let killed = cgroup.as_ref().map_or(0, Cgroup::killed);
                drop(cgroup);
                let (status, stderr) = worker.finish();
                let by_limit = if killed > 0 { "killed by its memory limit; " } else { "" };
                (status, format!("{by_limit}{stderr}"))
            }
            _ => worker.finish(),
        };
        Ok(match ended {
            Ok(sample) if status.is_some_and(|s| s.success()) => Ok(sample),
            Ok(_) => Err(format!("{} after its last access: {stderr}", in_words(status))),
            Err(Silence::Failed(reason)) => Err(with(&reason, &stderr)),
            Err(Silence::TimedOut(limit)) => Err(with(&format!("no word for {} s", limit.as_secs()), &stderr)),
            Err(Silence::Ended) => Err(with(&in_words(status), &stderr)),
        })
    }

    fn follow(
        &self,
        worker: &mut WorkerProcess,
        system: System,
        args: &WorkerArgs,
        cgroup: Option<&Cgroup>,
    ) -> Result<Sample, Silence> {
        let timeout = TIMEOUT + 2 * Duration::from_secs(args.seconds_max);
        let mut sampler = Sampler::new(worker.pid(), cgroup, system == System::Zram);
        let (mut fill_seconds, mut limit_bytes) = (0.0, None);
        loop {
            match worker.next(timeout, SAMPLE_EVERY, || sampler.sample())? {
                Message::Ready => {
                    if let (true, Some(cgroup)) = (system.is_kernel_swap(), cgroup) {
                        limit_bytes = Some(self.limit(cgroup).map_err(|e| Silence::Failed(e.to_string()))?);
                    }
                    worker.go_on();
                }
                Message::Filled { seconds } => fill_seconds = seconds,
                Message::Warm => sampler.restart(),
                Message::Done(measured) => {
                    let ram = sampler.finish();
                    worker.go_on();
                    check(&measured, system, self.setting).map_err(Silence::Failed)?;
                    return Ok(Sample { measured: *measured, fill_seconds, ram, limit_bytes });
                }
                Message::Failed { reason } => return Err(Silence::Failed(reason)),
            }
        }
    }

    /// Sets the limit of a rival and returns it.
    fn limit(&self, cgroup: &Cgroup) -> Result<u64, BenchError> {
        let tables = self.setting.size_bytes / PAGE_BYTES as u64 * ENTRY_BYTES;
        let limit = self.setting.local_bytes + cgroup.usage_bytes()? + tables;
        cgroup.set_limit(limit)?;
        Ok(limit)
    }
}

/// The command line of a run.
fn command(setting: &Setting, variant: &Variant, args: &WorkerArgs) -> Command {
    let Executables { bench: worker, launcher } = &setting.executables;
    let managed = *variant == Variant::Hinterland;
    let mut command = executables::command(if managed { launcher } else { worker });
    if managed {
        command.envs(executables::variables_of(&setting.hinterland)).arg("run").arg("--").arg(worker);
    }
    command.arg("worker").args(args.to_words());
    command
}

/// Refuses the figures of a run that was not what it should have been.
fn check(measured: &Measured, system: System, setting: &Setting) -> Result<(), String> {
    let Some(hinterland) = &measured.paging.hinterland else {
        return if system == System::Hinterland { Err("the worker was not managed".into()) } else { Ok(()) };
    };
    if hinterland.managed_peak_bytes < setting.size_bytes / 10 * 9 {
        return Err(format!("only {} bytes of the data were managed", hinterland.managed_peak_bytes));
    }
    if hinterland.resident_managed_peak_bytes > setting.local_bytes + setting.local_bytes / OVERSHOOT_PART {
        return Err(format!(
            "the budget of {} bytes was exceeded: {} bytes were local",
            setting.local_bytes, hinterland.resident_managed_peak_bytes
        ));
    }
    Ok(())
}

/// A reason with what was written to stderr, when there was anything.
fn with(reason: &str, stderr: &str) -> String {
    if stderr.is_empty() { reason.into() } else { format!("{reason}: {stderr}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executables::tests::assert_unreached;
    use clap::Parser;
    use hinterland_abi::variables;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: super::super::PagingArgs,
    }

    #[derive(Parser)]
    struct WorkerLine {
        #[command(flatten)]
        args: WorkerArgs,
    }

    #[test]
    fn a_run_has_the_settings_of_the_bench_alone() {
        let executables = Executables { bench: "bench".into(), launcher: "hinterland".into() };
        let line = Line::parse_from("paging --size 64M --local 32M --fault-path inline".split(' '));
        let setting = line.args.resolve(executables).unwrap();
        let worker =
            "worker --pages 1 --hot-pages 1 --pattern random --threads 1 --accesses 1 --seconds-max 1 --seed 1";
        let worker = WorkerLine::parse_from(worker.split(' ')).args;
        let rival = command(&setting, &Variant::AllLocal, &worker);
        assert_unreached(&rival, &[]);
        let managed = command(&setting, &Variant::Hinterland, &worker);
        let given: Vec<&str> = executables::variables_of(&setting.hinterland).map(|(name, _)| name).collect();
        assert!(given.contains(&variables::LOCAL), "{given:?}");
        assert_unreached(&managed, &given);
    }
}
