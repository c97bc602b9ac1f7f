//! `hinterland bench programs`: whole programs natively, under Hinterland, and under kernel swap on compressed RAM at equal total RAM.
//!
//! ```text
//! program   which programs there are, and how one is started; redis: the client that loads a server
//! run       one run in a memory cgroup, measured; swap: what the kernel swaps to meanwhile
//! trials    the kernel's limit with which its total RAM is Hinterland's, and its best setting
//! rounds    what runs when
//! measure   one command, for benches that run programs of their own
//! report    rows with paired ratios, targets, a table; plot: the picture
//! ```
//!
//! Hinterland gets `--local`: a share of the native peak of anonymous memory. What it takes in all (local pages, store, tables, staging, the
//! launcher) is measured; the kernel's limit is then tried until it takes as much, its compressed pages included. With `--budget ram`
//! Hinterland, too, divides what it took in all as it likes: it gets `--ram`.

mod measure;
mod plot;
mod program;
mod redis;
mod report;
mod rounds;
mod run;
mod swap;
mod trials;

pub use measure::{MeasureArgs, run as run_measure};
pub use plot::draw;

use super::error::BenchError;
use super::report::Destination;
use super::rivals;
use super::rivals::undo::Changes;
use super::rivals::zram;
use crate::executables::Executables;
use hinterland_units::{Budget, ByteCount, whole_number};
use program::Named;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What bounds Hinterland.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Bound {
    /// '--local': local pages have the share, and compressed RAM takes what it needs beside them
    #[default]
    Local,
    /// '--ram' of what '--local' took in all: Hinterland divides it, and a file is below
    Ram,
}

/// Whole programs beside native runs and beside kernel zram swap at equal total RAM
///
/// Each round runs every program natively, under Hinterland and under the kernel's swap, in an order that rotates; ratios are taken within
/// each round. All runs of a program must print the same. Total RAM of a run is the peak of what is charged to its memory cgroup, less
/// copies of files, and of zram's mem_used_total at that moment.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  hinterland bench programs --size 256M --rounds 9 --programs target/debug/programs
  hinterland bench programs --program sqlite,sort --local 50 --compressor lz4 --page-cluster 0
  hinterland bench programs --budget ram        # total RAM is what bounds both, and each divides it by itself

It needs root and zram. Swap, the memory limit and vm.page-cluster are set up for each run and taken back after it, also when the bench is
interrupted or killed.")]
pub struct ProgramsArgs {
    /// Programs; all of them when none is named
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = Named::parse)]
    program: Vec<&'static Named>,
    /// Native peak of anonymous memory to aim at
    #[arg(long, default_value = "256M", value_name = "SIZE")]
    size: ByteCount,
    /// Shares of the native peak that are local under Hinterland, in percent
    #[arg(long, value_delimiter = ',', default_value = "50,25", value_name = "PERCENT", value_parser = whole_number::<u32>(1..=99, "--local 50,25"))]
    local: Vec<u32>,
    /// What bounds Hinterland
    #[arg(long, value_enum, default_value = "local", value_name = "BOUND")]
    budget: Bound,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 9, value_name = "N", value_parser = whole_number::<u32>(1.., "--rounds 9"))]
    rounds: u32,
    /// Begin no further program of a round after so many minutes; rows have fewer rounds then, and say so
    #[arg(long, value_name = "MINUTES", value_parser = whole_number::<u64>(.., "--minutes-max 60"))]
    minutes_max: Option<u64>,
    /// The longest that a run may take
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = whole_number::<u64>(.., "--seconds-max 300"))]
    seconds_max: u64,
    /// zram's compressors to try; all that the kernel offers when none is named
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    compressor: Vec<String>,
    /// Values of vm.page-cluster to try
    #[arg(long, value_delimiter = ',', default_value = "0,3", value_name = "N", value_parser = whole_number::<u8>(..=10, "--page-cluster 0,3"))]
    page_cluster: Vec<u8>,
    /// A word for 'hinterland run', such as --prefetch=none; may be repeated
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    run_option: Vec<String>,
    /// The program that knows the maintained test programs (cargo build -p hinterland-tests --bin programs)
    #[arg(long, default_value = "target/debug/programs", value_name = "PROGRAM")]
    programs: PathBuf,
    /// A Python that has scikit-learn, for the random forest
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: PathBuf,
    /// Words for the report: what else the machine did meanwhile
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    note: String,
    #[command(flatten)]
    to: Destination,
    /// Another hinterland to measure instead of this one
    #[arg(long, hide = true, value_name = "PROGRAM")]
    launcher: Option<PathBuf>,
}

/// A swap area is so many times the native peak: the kernel can keep copies of pages that it reads back (`vm_swap_full`, mm/swap.h).
const SWAP_PER_PEAK: u64 = 3;

/// The swap area for a program with that native peak.
fn swap_bytes(peak_bytes: u64) -> u64 {
    peak_bytes * SWAP_PER_PEAK
}

/// Measures and reports.
///
/// # Errors
/// What was asked makes no sense, the machine cannot be set up, or the report not be written.
pub fn run(args: &ProgramsArgs) -> Result<(), BenchError> {
    let least = args.local.iter().min().copied().unwrap_or(1);
    if args.size.0 * u64::from(least) / 100 < Budget::FLOOR.0 {
        let floor = Budget::FLOOR;
        return Err(BenchError::Setting(format!(
            "--size {}: {least} % of it is local, and that must be at least {floor}",
            args.size
        )));
    }
    let launcher = args.launcher.clone().map_or_else(|| Executables::find().map(|found| found.launcher), Ok)?;
    rivals::check_machine("zram", true)?;
    let offered = zram::compressors()?;
    if let Some(unknown) = args.compressor.iter().find(|name| !offered.contains(name)) {
        let offered = offered.join(", ");
        return Err(BenchError::Setting(format!("--compressor {unknown}: this kernel's zram offers {offered}")));
    }
    let changes = Changes::begin()?;
    let launcher = launcher.canonicalize().map_err(BenchError::io("find", &launcher))?;
    let machine = run::Machine::begin(&changes, launcher, args.run_option.clone(), args.seconds_max)?;
    let settings =
        trials::settings(if args.compressor.is_empty() { &offered } else { &args.compressor }, &args.page_cluster);
    let report = rounds::measure(args, &machine, &settings)?;
    args.to.write(&report, report::render)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ProgramsArgs,
    }

    fn refusal(line: &str) -> String {
        let words = std::iter::once("programs").chain(line.split_whitespace());
        match Line::try_parse_from(words) {
            Err(error) => error.to_string(),
            Ok(line) => run(&line.args).err().map(|error| error.to_string()).unwrap_or_default(),
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (line, says) in [
            ("--program tetris", "no program 'tetris'"),
            ("--program tetris", "sqlite"),
            ("--local 0", "not a whole number from 1 to 99; write for example --local 50,25"),
            ("--local 100", "not a whole number from 1 to 99"),
            ("--rounds 0", "not a whole number of at least 1; write for example --rounds 9"),
            ("--page-cluster 11", "not a whole number from 0 to 10"),
            ("--size 32M --local 50,25", "25 % of it is local, and that must be at least 16 MiB"),
            ("--size big", "not a size"),
        ] {
            let refusal = refusal(line);
            assert!(refusal.contains(says), "{line}: {refusal}");
        }
    }
}
