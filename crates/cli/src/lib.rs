//! The `hinterland` command.
//!
//! ```text
//! args ─▶ config ─▶ launch ─▶ report        what `run` does, from the command line to the summary
//!           host     program   statistics    what it needs to know of the machine, the program, the ledger
//! control                                    runs that are under way: listed and changed
//! explain                                    what the prefetcher saw and did, from what `run --stats` wrote
//! doctor                                     the same questions asked of the machine alone
//! sim                                        a trace, replayed on the runtime's policies
//! trace                                      page traces: recording, importing, looking at them
//! tape                                       tapes: planned from traces, looked at
//! profile                                    which functions wait, and for which allocations; what is worth optimizing
//! plan                                       what is hinted, and how: read, written, and what was measured with it
//! optimize                                   profile, plan, build, run, and again, as long as that gains
//! advise                                     which far memory suits a program, and how much local memory
//! tape_cache                                 traces and tapes of `--tape auto`
//! node                                       the memory node, and what one says of itself
//! submit                                     a program as a job of Slurm, with what it needs
//! balance                                    what sharing memory would bring a cluster, from a public trace
//! bench                                      hands over to hinterland-bench
//! compile                                    hands over to clang or rustc, with the compiler's plugin and a plan
//! config::example                            a settings file with all settings, commented out
//! manual                                     manual pages and completions, from the command line
//! toml_error                                 what is wrong with TOML that people wrote
//! output  print                              files that commands write, and what they print
//! ```

// A macro that prints ends the process where it cannot (`error::tell`, `print`).
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod advise;
mod args;
mod balance;
mod bench;
mod compile;
mod config;
mod control;
mod doctor;
mod encode;
mod error;
mod explain;
mod file_magic;
mod host;
mod launch;
mod manual;
mod node;
mod optimize;
mod output;
mod plan;
mod print;
mod process;
mod profile;
mod program;
#[cfg(test)]
mod reference;
mod report;
#[cfg(test)]
mod schema;
mod sim;
mod statistics;
mod submit;
mod table;
mod tape;
mod tape_cache;
mod toml_error;
mod trace;

pub use args::Cli;

use args::{Command, RunCli, RunCommand};
use clap::Parser;
use std::process::ExitCode;

/// What the command line says. For `run` its own flags alone are set up: those of all commands would take a tenth of a millisecond
/// of every start.
fn command() -> Result<Command, clap::Error> {
    if std::env::args_os().nth(1).is_some_and(|word| word == "run") {
        return RunCli::try_parse().map(|RunCli { command: RunCommand::Run(args) }| Command::Run(args));
    }
    Cli::try_parse().map(|cli| cli.command)
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    hinterland_sys::thread::end_process_on_panic();
    let command = match command() {
        Ok(command) => command,
        Err(mut error) => {
            // It advises to name the program as the option is named.
            if error.kind() == clap::error::ErrorKind::UnknownArgument {
                error.remove(clap::error::ContextKind::Suggested);
            }
            let printed = error.print();
            // Help and version are answers; everything else is a refusal, told apart from the program's own codes.
            return match printed {
                _ if error.use_stderr() => ExitCode::from(error::EXIT_REFUSED),
                Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
                    error::complain(format_args!("stdout: {why}"));
                    ExitCode::from(error::EXIT_REFUSED)
                }
                _ => ExitCode::SUCCESS,
            };
        }
    };
    match command {
        Command::Run(args) => launch::run(&args),
        Command::Ps(args) => control::ps(&args),
        Command::Set(args) => control::set(&args),
        Command::Top(args) => control::top(&args),
        Command::Trace(args) => trace::run(*args),
        Command::Tape(args) => tape::run(&args),
        Command::Profile(args) => profile::profile(*args),
        Command::Report(args) => profile::report(&args),
        Command::Plan(args) => profile::plan(&args),
        Command::Optimize(args) => optimize::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Node(args) => node::run(&args),
        Command::Submit(args) => submit::run(&args),
        Command::Balance(args) => balance::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Cc(args) => compile::cc(&args),
        Command::Cxx(args) => compile::cxx(&args),
        Command::Rustc(args) => compile::rustc(&args),
        Command::Settings(args) => config::example::run(&args),
        Command::Man(args) => manual::man(&args),
        Command::Completions(args) => manual::completions(&args),
    }
}
