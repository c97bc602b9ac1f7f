//! `hinterland bench`: Hinterland against the kernel's own swap, in one interleaved run.
//!
//! `paging` drives the rounds, `rivals` sets the kernel's swap up and takes it back, `worker` is what runs, `report` is what
//! comes out.

mod error;
mod fork;
mod paging;
mod programs;
pub mod report;
mod rivals;
mod worker;

use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Measures Hinterland beside the kernel's own swap
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Paging(Box<paging::PagingArgs>),
    Programs(programs::ProgramsArgs),
    Fork(fork::ForkArgs),
    Plot(report::plot::PlotArgs),
    /// One run of one pattern; started by the bench itself
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
    /// A process that forks; started by the bench itself
    #[command(hide = true)]
    ForkWorker(fork::ForkWorkerArgs),
    /// Takes back what a dead bench has left; started by the bench itself
    #[command(hide = true)]
    Janitor,
}

/// Runs `hinterland bench`.
pub fn run(args: BenchArgs) -> ExitCode {
    let outcome = match args.command {
        Command::Worker(args) => return worker::run(&args),
        Command::ForkWorker(args) => return fork::run_worker(&args),
        Command::Janitor => return rivals::undo::janitor(),
        Command::Paging(args) => paging::run(*args),
        Command::Programs(args) => programs::run(&args),
        Command::Fork(args) => fork::run(&args),
        Command::Plot(args) => report::plot::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("hinterland bench: {e}");
            ExitCode::FAILURE
        }
    }
}
