//! `hinterland balance`: the gain of memory sharing in a cluster, estimated from a public trace of it.
//!
//! ```text
//! FILE ─▶ usage (record by record) ─▶ utilisations ─▶ effectiveness of each pair of thresholds ─▶ table, JSON, picture
//! ```

mod effectiveness;
mod picture;
mod thresholds;
mod usage;

use crate::error::{EXIT_REFUSED, complain, tell};
use crate::output;
use crate::print;
use crate::report::count;
use crate::table::table;
use clap::{Args, ValueEnum};
use effectiveness::{Balance, PARTS, Utilisations};
use serde::Serialize;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thresholds::Thresholds;
use usage::{Usage, UsageError};

/// Rows of the table.
const ROWS_MAX: usize = 16;

/// `hinterland balance`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BalanceArgs {
    /// machine_usage.csv of Alibaba's trace of 2018, or server_usage.csv of 2017; -: from standard input
    usage: PathBuf,
    /// Below it, a server is low: one per cent (31), or a range (30:90), with steps other than 1 as its third part (30:90:0.5)
    #[arg(long, value_name = "RANGE", default_value = "5:95")]
    alpha: Thresholds,
    /// Above it, a server is high; pairs below alpha are left out. Default: as --alpha
    #[arg(long, value_name = "RANGE")]
    beta: Option<Thresholds>,
    /// Unit of comparison
    #[arg(long, value_name = "WHAT", value_enum, default_value = "servers")]
    of: Of,
    /// Draw the effectiveness of all pairs into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// As JSON, with all pairs
    #[arg(long)]
    json: bool,
}

/// What a utilisation is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Of {
    /// A server, by its mean over the trace.
    Servers,
    /// Each sample of a server: the cluster is balanced anew at every moment.
    Moments,
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Of::Servers => "servers",
            Of::Moments => "moments",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  hinterland balance machine_usage.csv --alpha 30:90 --svg out.svg
  hinterland balance server_usage.csv --alpha 31 --json
  tar -xzOf machine_usage.tar.gz | hinterland balance - --alpha 60:100:0.5

With A % of the servers below alpha, at a on average, and C % above beta, at c on average, the memory balance effectiveness is \
C% x (c - beta) + A% x (alpha - a): what the full servers are relieved of, and the idle ones gain, in per cent of a server's memory \
(xDM, MBE).

Exit code: 0, or 125 when the file cannot be read (the message names the line).";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{}: {source}", path.display())]
    Usage { path: PathBuf, source: UsageError },
    #[error("--svg: {}: {why}", path.display())]
    Picture { path: PathBuf, why: String },
    #[error("no pair of thresholds has a beta that is not below its alpha")]
    NoPair,
    #[error("standard output cannot be written: {0}")]
    Print(#[from] io::Error),
}

/// The JSON document.
#[derive(Serialize)]
struct Document {
    balance_version: u64,
    trace: &'static str,
    of: &'static str,
    server_count: u64,
    record_count: u64,
    /// Records without a utilisation.
    skipped_count: u64,
    mean_percent: f64,
    /// The pair with the largest effectiveness.
    most: Pair,
    pairs: Vec<Pair>,
}

/// A pair of thresholds; all members are in per cent.
#[derive(Serialize)]
struct Pair {
    alpha: f64,
    beta: f64,
    low: f64,
    high: f64,
    effectiveness: f64,
}

impl From<&Balance> for Pair {
    fn from(balance: &Balance) -> Pair {
        let Balance { alpha, beta, low, high, effectiveness } = *balance;
        Pair { alpha, beta, low, high, effectiveness }
    }
}

/// Says what balancing would bring.
pub fn run(args: &BalanceArgs) -> ExitCode {
    match answer(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            complain(refusal);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

fn answer(args: &BalanceArgs) -> Result<(), Refusal> {
    if let Some(path) = args.svg.as_deref().filter(|path| output::is_same(path, &args.usage)) {
        return Err(Refusal::Picture { path: path.into(), why: "it is the trace, and would be replaced".into() });
    }
    let beta = args.beta.unwrap_or(args.alpha);
    let usage = read(&args.usage).map_err(|source| Refusal::Usage { path: args.usage.clone(), source })?;
    let utilisations = match args.of {
        Of::Servers => &usage.by_server,
        Of::Moments => &usage.by_moment,
    };
    let sums = utilisations.sums();
    let above = |alpha: usize| beta.iter().filter(move |beta| *beta >= alpha);
    let pairs: Vec<Balance> = args
        .alpha
        .iter()
        .flat_map(|alpha| above(alpha).map(move |beta| (alpha, beta)))
        .map(|(alpha, beta)| sums.balance(alpha, beta))
        .collect();
    let most =
        pairs.iter().max_by(|one, other| one.effectiveness.total_cmp(&other.effectiveness)).ok_or(Refusal::NoPair)?;
    if let Some(path) = &args.svg {
        let refuse = |why: String| Refusal::Picture { path: path.clone(), why };
        #[allow(clippy::cast_precision_loss, reason = "at most 10,000")]
        let [alpha_step, beta_step] = [args.alpha.step, beta.step].map(|step| step as f64 / PARTS as f64);
        let title = format!("{}, by {}: memory balance effectiveness", usage.format.name(), args.of.name());
        let drawn =
            picture::draw(&title, &pairs, (alpha_step, beta_step)).map_err(|error| refuse(error.to_string()))?;
        let failed = |error: io::Error| refuse(error.to_string());
        output::write(path, failed, |out| out.write_all(drawn.as_bytes()).map_err(failed))?;
    }
    let written = if args.json {
        let document = Document {
            balance_version: 1,
            trace: usage.format.name(),
            of: args.of.name(),
            server_count: usage.server_count,
            record_count: usage.record_count,
            skipped_count: usage.skipped_count,
            mean_percent: utilisations.mean(),
            most: most.into(),
            pairs: pairs.iter().map(Pair::from).collect(),
        };
        print::json(&(serde_json::to_string_pretty(&document).map_err(io::Error::from)? + "\n"))
    } else {
        print::text(&text(&usage, utilisations, args.of, &pairs, most))
    };
    Ok(written.map(drop)?)
}

/// Reads the trace; a terminal shows the progress.
fn read(path: &Path) -> Result<Usage, UsageError> {
    let is_shown = io::stderr().is_terminal();
    let (file, length): (Box<dyn Read>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin().lock()), 0)
    } else {
        let file = File::open(path).map_err(UsageError::Io)?;
        let length = file.metadata().map_or(0, |data| data.len());
        (Box::new(file), length)
    };
    let mut told = None;
    let progress = |bytes: u64| {
        let percent = (bytes * 100).checked_div(length).map(|percent| percent.min(100));
        let now = percent.unwrap_or(bytes >> 20);
        if is_shown && told != Some(now) {
            told = Some(now);
            match percent {
                Some(percent) => tell(format_args!("\rreading: {percent} %")),
                None => tell(format_args!("\rreading: {now} MiB")),
            }
        }
    };
    let usage = usage::read(file, progress);
    if is_shown {
        tell(format_args!("\r{:24}\r", ""));
    }
    usage
}

fn text(usage: &Usage, utilisations: &Utilisations, of: Of, pairs: &[Balance], most: &Balance) -> String {
    let left_out = match usage.skipped_count {
        0 => String::new(),
        skipped => format!(", {} without a utilisation left out", count(skipped)),
    };
    let mut table = table(&["alpha", "beta", "low", "high", "effectiveness"], 0..5);
    for balance in rows(pairs) {
        table.add_row(
            [balance.alpha, balance.beta, balance.low, balance.high, balance.effectiveness]
                .map(|value| format!("{value:.1} %")),
        );
    }
    format!(
        "{}: {} servers, {} records{left_out}; by {}, {:.2} % of memory is used on average\n\
         most: {:.2} % with alpha {} %, beta {} %\n\n{table}\n",
        usage.format.name(),
        count(usage.server_count),
        count(usage.record_count),
        of.name(),
        utilisations.mean(),
        most.effectiveness,
        most.alpha,
        most.beta,
    )
}

/// For some alphas, evenly over the range: the beta that brings most.
fn rows(pairs: &[Balance]) -> Vec<Balance> {
    let mut best: Vec<Balance> = Vec::new();
    for pair in pairs {
        match best.last_mut().filter(|last| last.alpha == pair.alpha) {
            Some(last) if last.effectiveness >= pair.effectiveness => {}
            Some(last) => *last = *pair,
            None => best.push(*pair),
        }
    }
    let step = best.len().div_ceil(ROWS_MAX).max(1);
    best.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_best_beta_of_some_alphas() {
        let pair = |alpha: f64, beta: f64, effectiveness| Balance { alpha, beta, low: 0.0, high: 0.0, effectiveness };
        let pairs = [pair(1.0, 1.0, 3.0), pair(1.0, 2.0, 4.0), pair(1.0, 3.0, 2.0), pair(2.0, 2.0, 1.0)];
        assert_eq!(rows(&pairs), [pairs[1], pairs[3]]);
        let many: Vec<Balance> = (0..1000).map(|alpha| pair(f64::from(alpha), 1000.0, 0.0)).collect();
        assert_eq!(rows(&many).len(), ROWS_MAX);
    }
}
