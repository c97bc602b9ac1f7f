//! `hinterland bench`: Hinterland against the kernel's own swap, in one interleaved run.
//!
//! `managed` runs the worker under Hinterland alone: `prefetch` compares prefetchers over links,
//! `nodes` memory nodes with what TCP and a fast store take.
//!
//! `paging` drives the rounds, `rivals` sets the kernel's swap up and takes it back, `worker` is what runs, `report` is what
//! comes out.

mod error;
mod fork;
mod managed;
mod nodes;
mod paging;
mod prefetch;
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
    Prefetch(prefetch::PrefetchArgs),
    Nodes(nodes::NodesArgs),
    Plot(report::plot::PlotArgs),
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

/// Runs `hinterland bench`.
pub fn run(args: BenchArgs) -> ExitCode {
    let outcome = match args.command {
        Command::Worker(args) => return worker::run(&args),
        Command::ForkWorker(args) => return fork::run_worker(&args),
        Command::RawServer => return nodes::serve_raw(),
        Command::ShapedLink(args) => return nodes::run_shaped(args.seed),
        Command::Janitor => return rivals::undo::janitor(),
        Command::Paging(args) => paging::run(*args),
        Command::Programs(args) => programs::run(&args),
        Command::Fork(args) => fork::run(&args),
        Command::Prefetch(args) => prefetch::run(&args),
        Command::Nodes(args) => nodes::run(&args),
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
