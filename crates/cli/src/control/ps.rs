//! `hinterland ps`: the programs that run under Hinterland, now.

use super::client::{Launcher, LauncherError};
use super::message::{Request, Status};
use super::socket_path;
use crate::error::{EXIT_REFUSED, complain};
use crate::print;
use crate::report::members::documented;
use crate::report::{bytes, count, percent};
use crate::table::table;
use clap::Args;
use hinterland_units::Foreign;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// The version of the document.
pub const PS_VERSION: u64 = 1;
/// Characters of a command line in the table.
const COMMAND_WIDTH: usize = 40;

/// `hinterland ps`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PsArgs {
    /// Write JSON, for scripts (schema: share/hinterland/ps.schema.json)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hinterland ps
  hinterland ps --json

One line for each `hinterland run` of this user, also where that is root: the launcher's PID, which `hinterland set` takes, local memory and the budget, pages in far \
memory, copies of local pages among them, the number of paths to far memory (--json says what each holds), faults that waited for far memory, the share of the time that a thread stood still for its faults, and the accuracy of prefetching. \
Below the table stands which run with --slowdown cannot keep that beside the others, and what it would need.

Exit code: 0, also when nothing runs; 125 when a launcher does not answer or is suspended (the others are listed).";

documented! {
    /// The document of `hinterland ps --json`.
    pub struct Running<'a> {
        /// The version of the document's names.
        ps_version: u64,
        /// One object for each run, by the launcher's number.
        runs: &'a [Status],
    }
}

/// The runs of this user that answer, and what is said of those that do not.
pub fn running() -> (Vec<Status>, Vec<LauncherError>) {
    answering(&socket_path::launchers())
}

/// The same, of some launchers.
pub fn answering(launchers: &[i32]) -> (Vec<Status>, Vec<LauncherError>) {
    let (mut runs, mut silent) = (Vec::new(), Vec::new());
    for &pid in launchers {
        let ask = |mut launcher: Launcher| launcher.ask(&Request::status(), Duration::ZERO);
        match Launcher::at(pid).and_then(|launcher| launcher.map(ask).transpose()) {
            Ok(answer) => runs.extend(answer.and_then(|answer| answer.status)),
            // Between the list and the question.
            Err(LauncherError::Ended(_)) => {}
            Err(error) => silent.push(error),
        }
    }
    (runs, silent)
}

/// Lists what runs.
pub fn run(args: &PsArgs) -> ExitCode {
    let (runs, silent) = running();
    silent.iter().for_each(complain);
    let written = if args.json {
        let document = Running { ps_version: PS_VERSION, runs: &runs };
        let text = serde_json::to_string_pretty(&document).unwrap_or_default();
        print::json(&(text + "\n"))
    } else {
        print::text(&lines(&runs))
    };
    match written {
        Ok(_) if silent.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_REFUSED),
        Err(error) => {
            complain(format_args!("standard output cannot be written: {error}"));
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

/// The share of its time that threads of a run waited for faults, summed over threads.
pub fn stall_share(status: &Status) -> f64 {
    if status.wall_seconds > 0.0 { status.stall_seconds / status.wall_seconds } else { 0.0 }
}

/// A command line, cut to `width` characters.
pub fn short(command: &str, width: usize) -> String {
    let shown = Foreign(command).to_string();
    if shown.chars().count() <= width {
        return shown;
    }
    shown.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// An accuracy, or that there is none.
pub fn accuracy(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), percent)
}

fn lines(runs: &[Status]) -> String {
    if runs.is_empty() {
        return "no program runs\n".into();
    }
    let names =
        ["PID", "processes", "local", "budget", "far", "copies", "paths", "faults", "stall", "accuracy", "command"];
    let mut table = table(&names, 0..10);
    for run in runs {
        table.add_row([
            run.pid.to_string(),
            run.process_count.to_string(),
            bytes(run.local_bytes),
            bytes(run.local_budget_bytes),
            bytes(run.far_bytes),
            bytes(run.copied_bytes),
            run.paths.len().to_string(),
            count(run.major_faults),
            percent(stall_share(run)),
            accuracy(run.prefetch_accuracy),
            short(&run.command, COMMAND_WIDTH),
        ]);
    }
    let obstacles = runs.iter().filter(|run| !run.slowdown_obstacle.is_empty());
    let obstacles = obstacles.map(|run| format!("{} {}\n", run.pid, Foreign(&run.slowdown_obstacle)));
    format!("{table}\n{}", obstacles.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_cannot_keep_its_slowdown_is_named_below_the_table() {
        use crate::control::top::run_of_test as run;
        let short = Status { slowdown_obstacle: "cannot keep 1.2: would need 1 GiB".into(), ..run(7, 1.0, 0, 0.0) };
        let said = lines(&[run(6, 1.0, 0, 0.0), short]);
        assert!(said.ends_with("\n7 cannot keep 1.2: would need 1 GiB\n"), "{said}");
        assert!(!said.contains("\n6 cannot"), "{said}");
    }

    #[test]
    fn a_long_command_is_cut_and_a_strange_one_escaped() {
        assert_eq!(short("job", 8), "job");
        assert_eq!(short("job with many arguments", 8), "job wit…");
        assert!(!short("job\x1b[2J\n", 40).contains(['\x1b', '\n']));
    }
}
