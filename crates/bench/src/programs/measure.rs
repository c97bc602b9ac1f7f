//! `hinterland bench measure`: one command in a memory cgroup, measured as `programs` measures its own: for benches that run programs of their own.
//!
//! As it is; with a limit and zram to swap to; or, first, natively and with limits that are tried until it takes as much RAM in all as it should.

use super::program::Program;
use super::rounds::Case;
use super::run::{How, Machine, Run};
use super::swap_bytes;
use super::trials::{Search, Setting, Trial};
use crate::error::BenchError;
use crate::report::to_json;
use crate::rivals;
use crate::rivals::undo::Changes;
use hinterland_units::{ByteCount, whole_number};
use serde::Serialize;
use std::path::PathBuf;

/// One command in a memory cgroup, as it is or with kernel swap on compressed RAM; started by other benches
#[derive(clap::Args, Debug)]
pub struct MeasureArgs {
    /// Find the limit with which it takes so much RAM in all, its compressed pages included
    #[arg(long, value_name = "SIZE", conflicts_with = "limit")]
    ram: Option<ByteCount>,
    /// Run it with this limit and zram to swap to
    #[arg(long, value_name = "SIZE", requires = "peak")]
    limit: Option<ByteCount>,
    /// Its native peak of anonymous memory, by which the swap area is sized
    #[arg(long, value_name = "SIZE")]
    peak: Option<ByteCount>,
    /// zram's compressor
    #[arg(long, default_value = "lz4", value_name = "NAME")]
    compressor: String,
    /// vm.page-cluster
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole_number::<u8>(..=10, "--page-cluster 3"))]
    page_cluster: u8,
    /// The longest that a run may take
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = whole_number::<u64>(.., "--seconds-max 300"))]
    seconds_max: u64,
    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<String>,
}

/// What is said of it.
#[derive(Serialize, Default)]
struct Said {
    /// Its figures; without `--ram`.
    run: Option<Run>,
    /// Of its output.
    digest: Option<u64>,
    /// Why there are none.
    failed: Option<String>,
    /// The native run before the trials.
    native: Option<Run>,
    /// Limits that were tried.
    trials: Vec<Trial>,
    /// The one that it is to have.
    chosen: Option<Trial>,
}

/// Measures it, and writes what there is to say as JSON.
///
/// # Errors
/// The machine cannot be set up.
pub fn run(args: &MeasureArgs) -> Result<(), BenchError> {
    rivals::check_machine("zram", args.ram.is_some() || args.limit.is_some())?;
    let changes = Changes::begin()?;
    let machine = Machine::begin(&changes, PathBuf::new(), Vec::new(), args.seconds_max)?;
    let program = Program::of(args.command.clone());
    let setting = Setting { compressor: args.compressor.clone(), page_cluster: args.page_cluster };
    let said = match (args.ram, args.limit) {
        (Some(ram), _) => searched(program, ram, setting, &machine)?,
        (None, limit) => {
            let how = limit.map_or(How::Native, |limit| How::Zram {
                setting,
                limit_bytes: limit.0,
                swap_bytes: swap_bytes(args.peak.unwrap_or(limit).0),
            });
            match machine.run(&program, &how)? {
                Ok((run, digest)) => Said { run: Some(run), digest: Some(digest), ..Said::default() },
                Err(reason) => Said { failed: Some(reason), ..Said::default() },
            }
        }
    };
    print!("{}", to_json(&said));
    Ok(())
}

fn searched(program: Program, ram: ByteCount, setting: Setting, machine: &Machine) -> Result<Said, BenchError> {
    let case = match Case::begin(program, machine)? {
        Ok(case) => case,
        Err(reason) => return Ok(Said { failed: Some(reason), ..Said::default() }),
    };
    let search = Search { wanted_bytes: ram.0, native_bytes: case.native.total_ram_peak_bytes };
    let mut trials = Vec::new();
    let chosen = case.choose(&search, machine, &[setting], &mut trials)?;
    Ok(Said {
        digest: Some(case.digest()),
        native: Some(case.native),
        trials,
        failed: chosen.as_ref().err().cloned(),
        chosen: chosen.ok(),
        ..Said::default()
    })
}
