//! `hinterland bench measure`: one command in a memory cgroup, measured as `programs` measures its own: for benches that run programs of their own.
//!
//! As it is; with a limit, and zram or a file to swap to, or nothing; or, first, natively and with limits that are tried until it takes as much RAM
//! in all as it should.

use super::program::Program;
use super::rounds::Case;
use super::run::{How, Machine, Run};
use super::swap::SwapTo;
use super::swap_bytes;
use super::trials::{Search, Setting, Trial, settings};
use crate::error::BenchError;
use crate::report::to_json;
use crate::rivals;
use crate::rivals::undo::Changes;
use hinterland_units::{ByteCount, whole_number};
use serde::Serialize;
use std::path::PathBuf;

/// In place of a compressor's name where pages go to a file.
const NO_COMPRESSOR: &str = "none";

/// One command in a memory cgroup, as it is or with kernel swap on compressed RAM or to a file; started by other benches
#[derive(clap::Args, Debug)]
pub struct MeasureArgs {
    /// Find the limit with which it takes so much RAM in all, its compressed pages included
    #[arg(long, value_name = "SIZE", conflicts_with = "limit")]
    ram: Option<ByteCount>,
    /// Run it with this limit, and swap
    #[arg(long, value_name = "SIZE", requires = "peak")]
    limit: Option<ByteCount>,
    /// Run it with this limit and nothing to swap to: only copies of files can leave
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["ram", "limit"])]
    bound: Option<ByteCount>,
    /// Swap to a file in this directory instead of zram
    #[arg(long, value_name = "DIR")]
    swap_file: Option<PathBuf>,
    /// Its native peak of anonymous memory, by which the swap area is sized
    #[arg(long, value_name = "SIZE")]
    peak: Option<ByteCount>,
    /// zram's compressor
    #[arg(long, default_value = "lz4", value_name = "NAME")]
    compressor: String,
    /// vm.page-cluster; several with --ram, of which the fastest is taken
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "N", value_parser = whole_number::<u8>(..=10, "--page-cluster 0,3"))]
    page_cluster: Vec<u8>,
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
    let swap_to = args.swap_file.clone().map_or(SwapTo::Zram, SwapTo::File);
    let swaps = args.ram.is_some() || args.limit.is_some();
    rivals::check_machine(&swap_to.to_string(), swaps && swap_to == SwapTo::Zram)?;
    let changes = Changes::begin()?;
    let mut machine = Machine::begin(&changes, PathBuf::new(), Vec::new(), args.seconds_max)?;
    machine.swap_to = swap_to;
    let program = Program::of(args.command.clone());
    let settings = args.settings();
    let how = match (args.ram, args.limit, args.bound) {
        (Some(ram), ..) => {
            print!("{}", to_json(&searched(program, ram, &settings, &machine)?));
            return Ok(());
        }
        (None, Some(limit), _) => How::Swap {
            setting: settings[0].clone(),
            limit_bytes: limit.0,
            swap_bytes: swap_bytes(args.peak.unwrap_or(limit).0),
        },
        (None, None, Some(bound)) => How::Bounded { limit_bytes: bound.0 },
        (None, None, None) => How::Native,
    };
    let said = match machine.run(&program, &how)? {
        Ok((run, digest)) => Said { run: Some(run), digest: Some(digest), ..Said::default() },
        Err(reason) => Said { failed: Some(reason), ..Said::default() },
    };
    print!("{}", to_json(&said));
    Ok(())
}

impl MeasureArgs {
    /// Those of the kernel's swap, one for each page cluster.
    fn settings(&self) -> Vec<Setting> {
        let compressor = if self.swap_file.is_some() { NO_COMPRESSOR } else { &self.compressor };
        settings(&[compressor.to_owned()], &self.page_cluster)
    }
}

fn searched(program: Program, ram: ByteCount, settings: &[Setting], machine: &Machine) -> Result<Said, BenchError> {
    let case = match Case::begin(program, machine)? {
        Ok(case) => case,
        Err(reason) => return Ok(Said { failed: Some(reason), ..Said::default() }),
    };
    let search = Search { wanted_bytes: ram.0, native_bytes: case.native.total_ram_peak_bytes };
    let mut trials = Vec::new();
    let chosen = case.choose(&search, machine, settings, &mut trials)?;
    Ok(Said {
        digest: Some(case.digest()),
        native: Some(case.native),
        trials,
        failed: chosen.as_ref().err().cloned(),
        chosen: chosen.ok(),
        ..Said::default()
    })
}
