//! The command line: what may be written. The flags of settings come from the table of settings (`config::flags`).

use crate::advise::AdviseArgs;
use crate::balance::BalanceArgs;
use crate::bench::BenchArgs;
use crate::compile::{CompileArgs, after_help};
use crate::config::example::SettingsArgs;
use crate::config::flags::{Flags, Run};
use crate::control::{PsArgs, SetArgs, TopArgs};
use crate::explain::ExplainArgs;
use crate::manual::{CompletionsArgs, ManArgs};
use crate::node::NodeArgs;
use crate::optimize::OptimizeArgs;
use crate::profile::{PlanArgs, ProfileArgs, ReportArgs};
use crate::sim::SimArgs;
use crate::submit::SubmitArgs;
use crate::tape::TapeArgs;
use crate::trace::TraceArgs;
use clap::{Args, Parser, Subcommand};
use hinterland_abi::{Form, PrefetchName, SETTINGS, Setting, Sources, variables};
use std::ffi::OsString;
use std::fmt::Write;

/// Run a program in less memory than it needs: its cold pages live in far memory.
#[derive(Parser)]
#[command(name = "hinterland", version, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Run a program with a bound on its local memory.
    Run(Box<RunArgs>),
    /// List the programs that run, with their memory, faults and stalls.
    Ps(PsArgs),
    /// Change the budget, processors, blocks or far memory of a program that runs.
    Set(SetArgs),
    /// Show the programs that run, live, with keys to change their budgets.
    Top(TopArgs),
    /// Record which pages a program touches, or look at such a trace.
    Trace(Box<TraceArgs>),
    /// Plan from a trace what to fetch and what to evict with less memory, or look at such a tape.
    Tape(Box<TapeArgs>),
    /// Run a program and find out which functions wait for far memory, and for which allocations.
    Profile(Box<ProfileArgs>),
    /// Show a profile: functions, allocations, lines, a flame graph of waiting.
    Report(ReportArgs),
    /// Choose from a profile the functions and allocations that are worth optimizing.
    Plan(PlanArgs),
    /// Find the plan with which a program is fastest: profile, plan, build, run, and again.
    Optimize(Box<OptimizeArgs>),
    /// Say what the prefetcher saw and did in a run, in words.
    Explain(ExplainArgs),
    /// Say what this machine can do, what is missing, and the remedy for each.
    Doctor(DoctorArgs),
    /// Replay a trace on the runtime's policies, over modelled links.
    Sim(Box<SimArgs>),
    /// Say which far memory suits a program, and how much local memory it needs.
    Advise(AdviseArgs),
    /// Submit a program to Slurm, with the memory and the far memory that it needs.
    Submit(SubmitArgs),
    /// Lend this machine's memory to programs, or show a node's state.
    Node(Box<NodeArgs>),
    /// Estimate the gain of memory sharing in a cluster, from a public trace.
    Balance(BalanceArgs),
    /// Measure Hinterland against the kernel's own swap: runs hinterland-bench, which an installation does not have.
    #[command(hide = true)]
    Bench(BenchArgs),
    /// Compile C with prefetching in loops: clang 22 with Hinterland's plugin.
    #[command(after_help = after_help("cc", "clang-22"))]
    Cc(CompileArgs),
    /// The same for C++: clang++ 22.
    #[command(name = "c++", after_help = after_help("c++", "clang++-22"))]
    Cxx(CompileArgs),
    /// The same for Rust: rustc with LLVM 22, and lld 22, which optimises what it emits.
    #[command(after_help = after_help("rustc", "rustc"))]
    Rustc(CompileArgs),
    /// Print a settings file: every setting of a run with its meaning, commented out.
    Settings(SettingsArgs),
    /// Write the manual pages, one for each subcommand.
    Man(ManArgs),
    /// Print completions for a shell: bash, zsh or fish.
    Completions(CompletionsArgs),
}

/// The command line of `hinterland run`: what [`Cli`] makes of the same words.
#[derive(Parser)]
#[command(name = "hinterland", version)]
pub struct RunCli {
    /// What to do.
    #[command(subcommand)]
    pub command: RunCommand,
}

/// The subcommand `run` alone.
#[derive(Subcommand)]
pub enum RunCommand {
    /// Run a program with a bound on its local memory.
    Run(Box<RunArgs>),
}

/// `hinterland run`.
#[derive(Args, Default)]
#[command(after_help = run_examples())]
pub struct RunArgs {
    /// Settings.
    #[command(flatten)]
    pub settings: Flags<Run>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}

/// `hinterland doctor`.
#[derive(Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// The prefetchers, for the help of `run` and `sim`.
pub fn prefetchers() -> String {
    let mut text = "Prefetchers:\n".to_owned();
    for prefetcher in PrefetchName::ALL {
        let _ = writeln!(text, "  {:<16} {}", prefetcher.name(), prefetcher.meaning());
    }
    text + "\n"
}

/// Where settings come from, in the order that counts.
fn sources() -> String {
    let variable = |setting: &Setting| match setting.form {
        Form::Many(_) => format!("{} (several, separated by spaces)", setting.variable.replacen("HINTERLAND", "", 1)),
        _ if setting.variable == variables::LOCAL => setting.variable.into(),
        _ => setting.variable.replacen("HINTERLAND", "", 1),
    };
    let of_a_run = SETTINGS.iter().filter(|setting| setting.sources == Sources::Run);
    let variables: Vec<String> = of_a_run.map(variable).collect();
    format!(
        "Settings come from flags, then {}, then the settings file (the same names in lower case: local = \"512M\", far = \
         [\"compressed:4G\"], quiet = true), then the defaults.",
        variables.join(", ")
    )
}

fn run_examples() -> String {
    [&prefetchers(), RUN_EXAMPLES, &sources(), RUN_EXIT_CODES].concat()
}

const EXAMPLES: &str = "\
Examples:
  hinterland run --local 512M -- python3 job.py
  hinterland ps
  hinterland trace -o job.trace -- python3 job.py
  hinterland doctor

Exit code: that of the command, which its --help says; 125 when there is no such command or flag.";

const RUN_EXAMPLES: &str = "\
Examples:
  hinterland run -- python3 job.py
  hinterland run --local 512M -- python3 job.py
  hinterland run --local 20% --tape fft.tape -- python3 fft.py input.npy
  hinterland run --local 20% --tape auto -- ./matmul 4096
  hinterland run --local 512M --tape build-tapes/ -- make
  hinterland run --ram 2G --far compressed:4G --far 'file:/mnt/ssd/far?size=64G' -- sort -S 3G big.txt
  hinterland run --local 4G --far numa:1:64G -- ./service
  hinterland run --local 1G --block 64K --far tcp://node-1:7440 --key-file far.key -- ./service
  hinterland run --local 1G --cpus 1 -- ./service
  hinterland run --local 1G --heap large --stats out.json -- ./service
  hinterland run --local 1G --far unix:/run/user/1000/hinterland.sock -- ./service
  hinterland run --local 1G --far tcp://node-1,tcp://node-2,tcp://node-3 --replicas 2 --key-file far.key -- ./service
  hinterland run --local 1G --far compressed:2G --far 'file:/mnt/ssd?size=16G' --encrypt -- ./service
  hinterland run --local 1G --far tcp://node-1:7440 --key-file far.key -- ./service
  hinterland run --local 1G --far etcd://etcd-1:2379/pool --replicas 2 --key-file far.key -- ./service

";

const RUN_EXIT_CODES: &str = "

Exit code: the program's own; 128 + n when it died of signal n and the launcher cannot end the same way; 127 when the \
program does not exist, 126 when it cannot be executed, 125 when Hinterland refuses, or \
ends the program or a process of it, or cannot write --stats (the message says which).";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  hinterland doctor
  hinterland doctor --json

Exit code: 0 when `hinterland run` would work here, 1 when it would not.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn run_by_itself_takes_and_says_what_it_does_among_all_commands() {
        let run = |mut all: clap::Command| {
            all.build();
            let run = all.find_subcommand_mut("run").expect("there is run");
            (run.render_long_help().to_string(), run.render_usage().to_string())
        };
        assert_eq!(run(RunCli::command()), run(Cli::command()));
        assert_eq!(RunCli::command().render_version(), Cli::command().render_version());
    }
}
