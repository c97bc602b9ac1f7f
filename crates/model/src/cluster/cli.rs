//! The command line: `hinterland-model cluster`.

use super::arrivals::Mix;
use super::fleet::Machine;
use super::programs::{Program, Programs};
use super::report::{self, Report, Request};
use super::simulate::Run;
use clap::Args;
use hinterland_units::whole_number;
use std::path::PathBuf;

/// Dispatches programs over a cluster whose machines have far memory, and counts those that end (xDM, Algorithm 1 and figure 16)
///
/// Programs are real ones, measured with each kind of far memory at several sizes of local memory; each takes a processor, and the least memory that
/// keeps its slowdown. They arrive faster than the cluster can serve them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hinterland-model cluster --programs measured.json
  hinterland-model cluster --programs measured.json --slowdown 1.2,1.4 --friendly 50 --json
  hinterland-model cluster --programs measured.json --backends ssd --machines 1000 --cores 40 --memory 128")]
pub struct ClusterArgs {
    /// Machines
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = whole_number::<u32>(1..=1_000_000, "--machines 10000"))]
    machines: u32,
    /// Processors of a machine, one for each program [default: those of the paper's]
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole_number::<u32>(1..=1024, "--cores 20"))]
    cores: u32,
    /// Local memory of a machine, in GiB [default: that of the paper's]
    #[arg(long, value_name = "GIB", default_value_t = 64, value_parser = whole_number::<u64>(1..=1 << 16, "--memory 64"))]
    memory: u64,
    /// Slowdowns that programs may have, separated by commas
    #[arg(long, value_name = "FACTORS", default_value = "1.2,1.4,1.6,1.8", value_delimiter = ',', value_parser = slowdown)]
    slowdown: Vec<f64>,
    /// Shares of friendly programs in per cent, separated by commas: those that keep a slowdown of 1.4 with half of their memory
    #[arg(long, value_name = "PERCENT", default_value = "0,10,20,30,40,50,60,70,80,90,100", value_delimiter = ',', value_parser = whole_number::<u32>(..=100, "--friendly 0,50,100"))]
    friendly: Vec<u32>,
    /// Kinds of far memory, separated by commas [default: all that programs were measured with]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    backends: Vec<String>,
    /// What programs need, as benches/cluster.py measures it
    #[arg(long, value_name = "FILE")]
    programs: PathBuf,
    /// Memory of a program on average, in GiB: all are as many times larger and longer than they were measured [default: that of the paper's, Table V]
    #[arg(long, value_name = "GIB", default_value = "9.1", value_parser = mean)]
    mean: f64,
    /// Programs that arrive, in per cent of what the processors could do with enough memory
    #[arg(long, value_name = "PERCENT", default_value_t = 120, value_parser = whole_number::<u32>(1..=1000, "--load 120"))]
    load: u32,
    /// Seed of the arrivals
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u64>(.., "--seed 7"))]
    seed: u64,
    /// Write JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time until a machine has another kind of far memory (xDM, §III: below 5 s), and until a new machine is there.
const SWITCH_MS: u64 = 5_000;
const NEW_MS: u64 = 60_000;
/// Times the longest program that pass before figures are taken, at least until it can have ended on machines that were new; and in which they are.
const WARM_UP: u64 = 2;
const MEASURED_TIMES: u64 = 4;
/// Programs that arrive in a simulation at most, and seconds that one of them runs for.
const ARRIVALS_MAX: f64 = 1e9;
const SECONDS_MAX: f64 = 1e9;

fn number(written: &str, least: f64, most: f64) -> Option<f64> {
    written.parse().ok().filter(|number| (least..=most).contains(number))
}

fn slowdown(written: &str) -> Result<f64, String> {
    number(written, 1.0, 100.0).ok_or_else(|| format!("'{written}' is no slowdown; write 1 to 100, for example 1.4"))
}

fn mean(written: &str) -> Result<f64, String> {
    number(written, 0.001, 1e6).ok_or_else(|| format!("'{written}' is no memory; write GiB, for example 9.1"))
}

impl ClusterArgs {
    /// Simulates what the command line says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn report(&self) -> Result<Report, String> {
        report::make(&self.request()?)
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes and milliseconds below 2^53"
    )]
    fn request(&self) -> Result<Request, String> {
        let said = |why: String| format!("{}: {why}", self.programs.display());
        let text = std::fs::read_to_string(&self.programs).map_err(|error| said(error.to_string()))?;
        let mut programs = Programs::parse(&text).map_err(said)?;
        if !self.backends.is_empty() {
            programs = programs.with_backends(&self.backends)?;
        }
        let of_all = |value: fn(&Program) -> f64| {
            programs.programs.iter().map(value).sum::<f64>() / programs.programs.len() as f64
        };
        let scale = self.mean * f64::from(1 << 30) / of_all(|program| program.touched_bytes as f64);
        let mean_seconds = of_all(|program| program.cpu_seconds) * scale;
        let longest = programs.programs.iter().map(|program| program.cpu_seconds * scale).fold(0.0, f64::max);
        if longest > SECONDS_MAX {
            return Err(format!(
                "with --mean {} a program runs for {longest:.0} s, too long; take a smaller one",
                self.mean
            ));
        }
        let longest_ms = (longest * 1000.0).ceil() as u64;
        let processors = f64::from(self.machines) * f64::from(self.cores);
        let per_second = processors / mean_seconds * f64::from(self.load) / 100.0;
        let (warm_up_ms, measured_ms) = ((WARM_UP * longest_ms).max(NEW_MS + longest_ms), MEASURED_TIMES * longest_ms);
        let arrivals = per_second * (warm_up_ms + measured_ms) as f64 / 1000.0;
        if arrivals > ARRIVALS_MAX {
            return Err(format!(
                "with --mean {} programs are so short that {arrivals:.0} arrive, too many; take a larger one, or fewer --machines",
                self.mean
            ));
        }
        let run = Run {
            machines: self.machines,
            machine: Machine { cores: self.cores, memory_mib: self.memory << 10 },
            mix: Mix { friendly_percent: 0, per_second, seed: self.seed },
            slowdown: None,
            scale,
            switch_ms: SWITCH_MS,
            new_ms: NEW_MS,
            warm_up_ms,
            measured_ms,
        };
        Ok(Request { programs, run, slowdowns: self.slowdown.clone(), friendly: self.friendly.clone() })
    }
}
