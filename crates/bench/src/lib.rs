//! `hinterland bench`: Hinterland against the kernel's own swap, in one interleaved run.
//!
//! A program of its own, `hinterland-bench`: users of `hinterland` need none of it. It measures the launcher that lies beside it.
//!
//! ```text
//! paging      drives the rounds: rivals (the kernel's swap, set up and taken back), worker (what runs), report (what comes out)
//! programs    whole programs beside native ones and the kernel's swap, at equal total RAM
//! managed     the worker under Hinterland alone: prefetch (prefetchers over links), nodes (beside TCP and a fast store)
//! programs_local, fork   whole programs with all memory local, and processes that fork, beside native ones
//! ```

mod error;
mod executables;
mod fork;
mod managed;
mod nodes;
mod paging;
mod prefetch;
mod programs;
mod programs_local;
mod report;
mod rivals;
mod worker;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Exit code for a wrong command line, as that of `hinterland`.
const EXIT_REFUSED: u8 = 125;

/// Measures Hinterland beside the kernel's own swap
#[derive(Parser, Debug)]
#[command(
    name = "hinterland bench",
    bin_name = "hinterland bench",
    version,
    after_help = "\
Examples:
  hinterland bench paging --help
  hinterland bench paging --size 1G --local 50% --pattern random --against zram
  hinterland bench nodes --json -o nodes.json

Exit code: 0; 1 when something cannot be measured (the message says why); 125 for a wrong command line."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Paging(Box<paging::PagingArgs>),
    Programs(Box<programs::ProgramsArgs>),
    ProgramsLocal(programs_local::ProgramsLocalArgs),
    Fork(fork::ForkArgs),
    Prefetch(prefetch::PrefetchArgs),
    Nodes(nodes::NodesArgs),
    Plot(report::plot::PlotArgs),
    /// One command in a memory cgroup, measured; started by other benches
    #[command(hide = true)]
    Measure(programs::MeasureArgs),
    /// One run of one pattern; started by the bench itself
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
    /// A server without a protocol; started by the bench itself
    #[command(hide = true)]
    RawServer,
    /// Measures on a link that is shaped; started by the bench itself
    #[command(hide = true)]
    ShapedLink(nodes::ShapedArgs),
    /// A process that forks; started by the bench itself
    #[command(hide = true)]
    ForkWorker(fork::ForkWorkerArgs),
    /// Takes back what a dead bench has left; started by the bench itself
    #[command(hide = true)]
    Janitor,
}

/// Runs what the command line says.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_REFUSED) } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match cli.command {
        Command::Worker(args) => return worker::run(&args),
        Command::ForkWorker(args) => return fork::run_worker(&args),
        Command::RawServer => return nodes::serve_raw(),
        Command::ShapedLink(args) => return nodes::run_shaped(args.seed),
        Command::Janitor => return rivals::undo::janitor(),
        Command::Paging(args) => paging::run(*args),
        Command::Programs(args) => programs::run(&args),
        Command::ProgramsLocal(args) => programs_local::run(&args),
        Command::Fork(args) => fork::run(&args),
        Command::Prefetch(args) => prefetch::run(&args),
        Command::Nodes(args) => nodes::run(&args),
        Command::Plot(args) => report::plot::run(&args),
        Command::Measure(args) => programs::run_measure(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("hinterland bench: {e}");
            ExitCode::FAILURE
        }
    }
}
