//! The command line: `hinterland-model daemon WORKLOAD`, `hinterland-model cluster`.

use crate::cluster::cli::ClusterArgs;
use crate::parameters::{Parameters, Replacement};
use crate::report::{self, Point, Ratio, Request};
use crate::scheme::Scheme;
use crate::time::{Rate, ns};
use crate::workloads::{WORKLOADS, Workload};
use clap::{Args, Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Exit code for a wrong command line, as that of `hinterland`.
const EXIT_REFUSED: u8 = 125;

/// Models of hardware that moves data between remote memory and processors, and of clusters with far memory
#[derive(Parser, Debug)]
#[command(name = "hinterland-model", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Daemon(DaemonArgs),
    Cluster(ClusterArgs),
}

/// Runs workloads through the caches of a core, and replays what misses on schemes that move lines, pages or both
///
/// The workloads are those of DaeMon's paper (SIGMETRICS 2023, Table 3), as small programs of our own: stand-ins of its sizes, not its codes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hinterland-model daemon pr                                              every scheme, link of 1/4, 100 ns
  hinterland-model daemon pr --scheme remote,daemon --bandwidth 1/8 --switch 400ns
  hinterland-model daemon all --bandwidth 1/2,1/4,1/8 --switch 100ns,400ns --json
  hinterland-model daemon nw --size 1024 --references 2000000 --warm-up 0

Workloads: kc tr pr nw bf bc ts sp sl hp pf dr rs, or all.")]
struct DaemonArgs {
    /// Workloads, or 'all'
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Schemes, separated by commas, or 'all': local, cache-line, remote, page-free, cache-line-page, lc, bp, pq, daemon
    #[arg(long, value_name = "SCHEMES", default_value = "all", value_parser = schemes)]
    scheme: Schemes,
    /// Bandwidth of each direction of the network as a part of a memory bus (17 GB/s), several separated by commas
    #[arg(long, value_name = "1/N", default_value = "1/4", value_delimiter = ',', value_parser = bandwidth)]
    bandwidth: Vec<u64>,
    /// Propagation and switching of a remote access, several separated by commas
    #[arg(long, value_name = "TIME", default_value = "100ns", value_delimiter = ',', value_parser = time)]
    switch: Vec<u64>,
    /// How pages compress: as the workload's own data do, or by the paper's ratios
    #[arg(long, value_enum, default_value = "measured")]
    ratio: Ratio,
    /// Local memory as a part of the pages that the workload touches
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = percent)]
    local: u64,
    /// What local memory evicts
    #[arg(long, value_enum, default_value = "lru")]
    replacement: Replacement,
    /// Share of network and memory bus that is kept for lines
    #[arg(long, value_name = "PERCENT", default_value = "25%", value_parser = percent)]
    share: u64,
    /// Size of the data in the workload's own unit (vertices, base pairs, rows, …) [default: the paper's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    size: Option<u64>,
    /// Loads and stores that are measured
    #[arg(long, value_name = "N", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..=4_000_000_000))]
    references: u64,
    /// Loads and stores before, which fill caches and local memory
    #[arg(long, value_name = "N", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(0..=4_000_000_000))]
    warm_up: u64,
    /// Seed of the workloads' data
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write JSON instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug)]
struct Schemes(Vec<Scheme>);

fn schemes(written: &str) -> Result<Schemes, String> {
    if written == "all" {
        return Ok(Schemes(Scheme::ALL.to_vec()));
    }
    let known = Scheme::ALL.map(Scheme::name).join(", ");
    let named = |name: &str| {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| format!("'{name}' is no scheme; take all, or some of {known}"))
    };
    let mut chosen = written.split(',').map(named).collect::<Result<Vec<_>, _>>()?;
    chosen.dedup();
    Ok(Schemes(chosen))
}

fn bandwidth(written: &str) -> Result<u64, String> {
    let part = written.strip_prefix("1/").and_then(|part| part.parse().ok()).filter(|part| (1..=1024).contains(part));
    part.ok_or_else(|| format!("'{written}' is no part of a bus; write 1/1 to 1/1024, for example 1/4"))
}

fn time(written: &str) -> Result<u64, String> {
    let number = |suffix: &str| written.strip_suffix(suffix).and_then(|number| number.parse::<u64>().ok());
    let in_ns = number("ns").or_else(|| number("us").and_then(|us| us.checked_mul(1000)));
    in_ns
        .filter(|ns| *ns <= 1_000_000)
        .ok_or_else(|| format!("'{written}' is no time; write 0ns to 1000us, for example 100ns"))
}

fn percent(written: &str) -> Result<u64, String> {
    let number = written.strip_suffix('%').and_then(|number| number.parse().ok());
    let number = number.filter(|percent| (1..=99).contains(percent));
    number.ok_or_else(|| format!("'{written}' is no share; write 1% to 99%"))
}

/// Why a workload cannot be had.
fn unknown(name: &str) -> String {
    let known: Vec<String> =
        WORKLOADS.iter().map(|workload| format!("{} ({})", workload.name, workload.what)).collect();
    format!("'{name}' is no workload; take all, or some of {}", known.join(", "))
}

impl DaemonArgs {
    fn workloads(&self) -> Result<Vec<&'static Workload>, String> {
        let mut chosen: Vec<&Workload> = Vec::new();
        for name in &self.workloads {
            let found = match name.as_str() {
                "all" => WORKLOADS.iter().collect(),
                name => vec![Workload::named(name).ok_or_else(|| unknown(name))?],
            };
            for workload in found {
                if chosen.iter().all(|other| other.name != workload.name) {
                    chosen.push(workload);
                }
            }
        }
        Ok(chosen)
    }

    fn request(&self) -> Result<Request, String> {
        let mut points = Vec::new();
        for part in &self.bandwidth {
            for switch_ns in &self.switch {
                let paper = Parameters::paper();
                let parameters = Parameters {
                    network_rate: Rate(paper.dram_rate.0 / part),
                    switch_ticks: ns(*switch_ns),
                    local_percent: self.local,
                    replacement: self.replacement,
                    line_share_percent: self.share,
                    ..paper
                };
                points.push(Point { bandwidth: format!("1/{part}"), switch_ns: *switch_ns, parameters });
            }
        }
        Ok(Request {
            workloads: self.workloads()?,
            size: self.size,
            seed: self.seed,
            warm_up: self.warm_up,
            references: self.references,
            schemes: self.scheme.0.clone(),
            points,
            ratio: self.ratio,
        })
    }

    fn report(&self) -> Result<String, String> {
        let report = report::make(&self.request()?, |progress| eprintln!("hinterland-model: {progress}"));
        Ok(if self.json { report.json() } else { report.table() })
    }
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
    let made = match cli.command {
        Command::Daemon(args) => args.report(),
        Command::Cluster(args) => args.report().map(|report| if args.json { report.json() } else { report.table() }),
    };
    let text = match made {
        Ok(text) => text,
        Err(error) => {
            eprintln!("hinterland-model: {error}");
            return ExitCode::from(EXIT_REFUSED);
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hinterland-model: cannot write the report: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<DaemonArgs, String> {
        let words = ["hinterland-model", "daemon"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Daemon(args) => Ok(args),
            Command::Cluster(_) => unreachable!("the other one was asked for"),
        }
    }

    #[test]
    fn the_command_line_is_what_it_says() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let args =
            parse("pr all --scheme remote,daemon --bandwidth 1/2,1/8 --switch 100ns,1us --share 50%").expect("good");
        let request = args.request().expect("known workloads");
        assert_eq!((request.workloads.len(), request.workloads[0].name), (13, "pr"));
        assert_eq!(request.schemes, [Scheme::Remote, Scheme::DaeMon]);
        let last = request.points.last().expect("four points");
        assert_eq!((last.bandwidth.as_str(), last.switch_ns, request.points.len()), ("1/8", 1000, 4));
        assert_eq!(last.parameters.network_rate, Rate(2_125_000_000));
        assert_eq!((last.parameters.switch_ticks, last.parameters.line_share_percent), (72_000, 50));
    }

    #[test]
    fn without_flags_it_is_the_papers_machine() {
        let request = parse("pr").and_then(|args| args.request()).expect("good");
        assert_eq!(request.points[0].parameters, Parameters::paper());
        assert_eq!(request.schemes, Scheme::ALL);
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (line, reason) in [
            ("", "WORKLOAD"),
            ("pr --bandwidth 4", "write 1/1 to 1/1024"),
            ("pr --bandwidth 1/0", "write 1/1 to 1/1024"),
            ("pr --switch 100", "write 0ns to 1000us"),
            ("pr --switch 99999999999999999999us", "write 0ns to 1000us"),
            ("pr --local 100%", "write 1% to 99%"),
            ("pr --scheme leap", "'leap' is no scheme; take all, or some of local"),
            ("pr --size 0", "1..="),
            ("pr --references 0", "1..="),
            ("zz", "'zz' is no workload; take all, or some of kc (k-core decomposition)"),
        ] {
            let refused = parse(line).and_then(|args| args.request().map(drop)).expect_err(line);
            assert!(refused.contains(reason), "{line}: {refused}");
        }
    }
}
