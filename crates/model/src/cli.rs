//! The command line: `hinterland-model daemon WORKLOAD`, `hinterland-model cluster`.

use crate::bus::Sharing;
use crate::cluster::cli::ClusterArgs;
use crate::compression::Compressor;
use crate::parameters::{Disturbance, Link, PAGE_BYTES, Parameters, Replacement};
use crate::placement::Placement;
use crate::report::{self, Point, Ratio, Request};
use crate::scheme::Scheme;
use crate::source::{Extent, Source};
use crate::time::{Rate, ns};
use crate::workloads::{WORKLOADS, Workload};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use hinterland_units::whole_number;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
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
/// Other programs are recorded with valgrind. What their pages hold is not recorded: they do not compress, but with '--ratio paper', by the mean.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hinterland-model daemon pr                                              every scheme, link of 1/4, 100 ns
  hinterland-model daemon pr --scheme remote,daemon --bandwidth 1/8 --switch 400ns
  hinterland-model daemon all --bandwidth 1/2,1/4,1/8 --switch 100ns,400ns --json
  hinterland-model daemon pr --scheme daemon,ours --share 50%             ours: lines and pages lend each other their shares
  hinterland-model daemon pr --scheme remote,daemon --components 4 --placement random
  hinterland-model daemon pr --scheme remote,daemon --links 1/4:100ns,1/8:400ns   a memory component on each link
  hinterland-model daemon pr --scheme remote,daemon --threads 8           on eight cores
  hinterland-model daemon pr nw --together                                both at once, each on a core of its own
  hinterland-model daemon nw --scheme remote,lc,pq,daemon --disturbance 50%       others take half of the network, now and then
  hinterland-model daemon hp --scheme remote,lc,daemon --compressor fpc-bdi
  hinterland-model daemon nw --size 1024 --references 2000000 --warm-up 0
  valgrind --tool=lackey --trace-mem=yes --log-file=app.lines ./app
  hinterland-model daemon --lines app.lines

Workloads: kc tr pr nw bf bc ts sp sl hp pf dr rs, or all.")]
struct DaemonArgs {
    /// Workloads, or 'all'
    #[arg(required_unless_present = "lines", value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Loads and stores of any program, as valgrind's lackey writes them; '-': standard input
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
    /// Schemes, separated by commas, or 'all': local, cache-line, remote, page-free, cache-line-page, lc, bp, pq, daemon, ours
    #[arg(long, value_name = "SCHEMES", default_value = "all", value_parser = schemes)]
    scheme: Schemes,
    /// Bandwidth of each direction of the network as a part of a memory bus (17 GB/s), several separated by commas
    #[arg(long, value_name = "1/N", default_value = "1/4", value_delimiter = ',', value_parser = bandwidth)]
    bandwidth: Vec<u64>,
    /// Propagation and switching of a remote access, several separated by commas
    #[arg(long, value_name = "TIME", default_value = "100ns", value_delimiter = ',', value_parser = time)]
    switch: Vec<u64>,
    /// What compresses pages on the network: LZ (64 cycles a KiB), FPC and BDI (4 cycles a line), or FVE (6 cycles a line)
    #[arg(long, value_enum, default_value = "lz")]
    compressor: Compressor,
    /// How well pages compress: as the workload's own data do, or by the paper's ratios
    #[arg(long, value_enum, default_value = "measured")]
    ratio: Ratio,
    /// Local memory as a part of the pages that the workload touches [default: 20%; with --together 15% for two programs and 9% for four, as in the paper
    /// (§6.10), and 12% for three]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    local: Option<u64>,
    /// What local memory evicts
    #[arg(long, value_enum, default_value = "lru")]
    replacement: Replacement,
    /// Memory components, each with a link and a memory bus of its own: 1 to 4
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u32>(1..=4, "--components 2"))]
    components: u32,
    /// On which memory component a page is: in turns, or at random (as --seed says)
    #[arg(long, value_enum, default_value = "round-robin")]
    placement: Placement,
    /// Link of each memory component, instead of --bandwidth, --switch and --components; the mean of the times is shown
    #[arg(long, value_name = "1/N:TIME", value_delimiter = ',', value_parser = link, conflicts_with_all = ["bandwidth", "switch", "components"])]
    links: Vec<(u64, u64)>,
    /// Cores on which a program runs: its references are dealt to them 1024 at a time; they share the LLC and all behind it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u8>(1..=16, "--threads 8"))]
    threads: u8,
    /// Run all programs at once, up to 4, each on cores of its own; accesses, hits and what moves are those of all
    #[arg(long)]
    together: bool,
    /// What packets of others take of each direction of the network, in every other interval: 1% to 90%
    #[arg(long, value_name = "PERCENT", value_parser = disturbance)]
    disturbance: Option<u64>,
    /// The interval of --disturbance
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = time, requires = "disturbance")]
    disturbance_interval: u64,
    /// Share of network and memory bus that is kept for lines; 'ours' keeps none
    #[arg(long, value_name = "PERCENT", default_value = "25%", value_parser = percent)]
    share: u64,
    /// Size of the data in the workload's own unit (vertices, base pairs, rows, …), rounded up to one that it has [default: the paper's]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..=1 << 24, "--size 1024"))]
    size: Option<u64>,
    /// Loads and stores that are measured
    #[arg(long, value_name = "N", default_value_t = 20_000_000, value_parser = whole_number::<u64>(1..=4_000_000_000, "--references 2000000"))]
    references: u64,
    /// Loads and stores before, which fill caches and local memory
    #[arg(long, value_name = "N", default_value_t = 20_000_000, value_parser = whole_number::<u64>(..=4_000_000_000, "--warm-up 0"))]
    warm_up: u64,
    /// Seed of the workloads' data, of a random placement and of a disturbance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u64>(.., "--seed 7"))]
    seed: u64,
    /// Write JSON instead of tables
    #[arg(long)]
    json: bool,
    /// The options that the command line has, by their names.
    #[arg(skip)]
    given: Vec<String>,
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
    Ok(Schemes(each_once(&written.split(',').map(named).collect::<Result<Vec<_>, _>>()?)))
}

/// Without those that come again.
fn each_once<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for value in values {
        if !once.contains(value) {
            once.push(*value);
        }
    }
    once
}

/// A number of digits alone.
fn digits(written: &str) -> Option<u64> {
    written.bytes().all(|byte| byte.is_ascii_digit()).then(|| written.parse().ok()).flatten()
}

fn bandwidth(written: &str) -> Result<u64, String> {
    let part = written.strip_prefix("1/").and_then(digits).filter(|part| (1..=1024).contains(part));
    part.ok_or_else(|| format!("'{written}' is no part of a bus; write 1/1 to 1/1024, for example 1/4"))
}

fn time(written: &str) -> Result<u64, String> {
    let number = |suffix: &str| written.strip_suffix(suffix).and_then(digits);
    let in_ns = number("ns").or_else(|| number("us").and_then(|us| us.checked_mul(1000)));
    in_ns
        .filter(|ns| *ns <= 1_000_000)
        .ok_or_else(|| format!("'{written}' is no time; write 0ns to 1000us, for example 100ns"))
}

fn link(written: &str) -> Result<(u64, u64), String> {
    let parts =
        written.split_once(':').ok_or_else(|| format!("'{written}' is no link; write, for example, 1/4:100ns"))?;
    Ok((bandwidth(parts.0)?, time(parts.1)?))
}

fn disturbance(written: &str) -> Result<u64, String> {
    percent(written)
        .ok()
        .filter(|percent| *percent <= 90)
        .ok_or_else(|| format!("'{written}' leaves too little or is no share; write 1% to 90%"))
}

fn percent(written: &str) -> Result<u64, String> {
    let number = written.strip_suffix('%').and_then(digits);
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
    fn sources(&self) -> Result<Vec<Source>, String> {
        let of_workload = |workload: &'static Workload| {
            let size = workload.size_for(self.size.unwrap_or(workload.size))?;
            Ok(Source::Workload { workload, size })
        };
        let mut sources = self.workloads()?.into_iter().map(of_workload).collect::<Result<Vec<_>, String>>()?;
        sources.extend(self.lines.clone().map(Source::Lines));
        Ok(sources)
    }

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

    /// Local memory, where so many programs run at once.
    fn local_percent(&self, programs: usize) -> u64 {
        self.local.unwrap_or(match programs {
            _ if !self.together => 20,
            2 => 15,
            3 => 12,
            _ => 9,
        })
    }

    /// The machine on a link.
    fn parameters(&self, link: Link, programs: usize) -> Parameters {
        let (compression_block_bytes, compression_block_ticks) = self.compressor.block();
        let disturbance = self.disturbance.map(|percent| Disturbance {
            percent,
            interval_ticks: ns(self.disturbance_interval),
            seed: self.seed,
        });
        Parameters {
            network_rate: link.rate,
            switch_ticks: link.switch_ticks,
            disturbance,
            local_percent: self.local_percent(programs),
            replacement: self.replacement,
            components: self.components,
            placement: self.placement,
            placement_seed: self.seed,
            line_share_percent: self.share,
            compression_block_bytes,
            compression_block_ticks,
            ..Parameters::paper()
        }
    }

    /// One machine with all links of `--links`, or one for each of `--bandwidth` and `--switch`.
    fn points(&self, programs: usize) -> Vec<Point> {
        let link = |part: u64, switch_ns: u64| {
            let rate = Rate(Parameters::paper().dram_rate.0 / part);
            Link { rate, switch_ticks: ns(switch_ns) }
        };
        if self.links.is_empty() {
            let switches = each_once(&self.switch);
            let both = |part: u64| switches.iter().map(move |switch_ns| (part, *switch_ns));
            return each_once(&self.bandwidth)
                .into_iter()
                .flat_map(both)
                .map(|(part, switch_ns)| Point {
                    bandwidth: format!("1/{part}"),
                    switch_ns,
                    parameters: self.parameters(link(part, switch_ns), programs),
                })
                .collect();
        }
        let links: Vec<Link> = self.links.iter().map(|(part, switch_ns)| link(*part, *switch_ns)).collect();
        let components = u32::try_from(links.len()).expect("four links at most");
        let names: Vec<String> = self.links.iter().map(|(part, switch_ns)| format!("1/{part}:{switch_ns}ns")).collect();
        let switch_ns = self.links.iter().map(|(_, switch_ns)| switch_ns).sum::<u64>() / u64::from(components);
        let parameters = Parameters { components, ..self.parameters(links[0], programs) };
        vec![Point { bandwidth: names.join("+"), switch_ns, parameters: Parameters { links, ..parameters } }]
    }

    /// Refuses options that would change nothing. (Remote is replayed whatever was asked for, so all of its machine counts.)
    fn refuse_idle_options(&self) -> Result<(), String> {
        let is_any = |is: fn(Scheme) -> bool| self.scheme.0.iter().any(|scheme| is(*scheme));
        let has_workload = !self.workloads.is_empty();
        let keeps_share = |scheme: Scheme| matches!(scheme.sharing(1), Sharing::Kept { .. });
        let has_components = self.components.max(u32::try_from(self.links.len()).unwrap_or(u32::MAX)) > 1;
        let draws =
            has_workload || self.disturbance.is_some() || (has_components && self.placement == Placement::Random);
        let compressed = "no page is compressed on these schemes; add lc, daemon or ours";
        for (option, has_effect, why) in [
            ("size", has_workload, "what --lines has read has its own size; name a workload"),
            ("share", is_any(keeps_share), "none of these schemes keeps a share for lines; add bp, pq or daemon"),
            ("compressor", is_any(Scheme::compresses), compressed),
            ("ratio", is_any(Scheme::compresses), compressed),
            ("placement", has_components, "all pages are on one memory component; add --components 2 or more --links"),
            ("seed", draws, "nothing is drawn: --lines has its own data; add --disturbance or --placement random"),
        ] {
            if !has_effect && self.given.iter().any(|given| given == option) {
                return Err(format!("--{option} changes nothing here: {why}, or leave it out"));
            }
        }
        Ok(())
    }

    /// An interval of a disturbance in which no packet has room is none.
    fn refuse_short_intervals(&self, points: &[Point]) -> Result<(), String> {
        let packet_ticks = |parameters: &Parameters| {
            let rates = parameters.links.iter().map(|link| link.rate).chain([parameters.network_rate]);
            rates.map(|rate| rate.ticks(PAGE_BYTES)).max()
        };
        let least_ticks = points.iter().filter_map(|point| packet_ticks(&point.parameters)).max().unwrap_or_default();
        if self.disturbance.is_some() && ns(self.disturbance_interval) < least_ticks {
            let least_ns = least_ticks.div_ceil(ns(1));
            return Err(format!(
                "--disturbance-interval {}ns is shorter than a packet takes on the network; write {least_ns}ns or more",
                self.disturbance_interval
            ));
        }
        Ok(())
    }

    fn request(&self) -> Result<Request, String> {
        self.refuse_idle_options()?;
        let sources = self.sources()?;
        if self.together && !(2..=4).contains(&sources.len()) {
            return Err(format!(
                "--together runs 2 to 4 different programs at once, not {}; name as many, each once",
                sources.len()
            ));
        }
        if self.links.len() > 4 {
            return Err(format!("--links has {} links; the model has 1 to 4 memory components", self.links.len()));
        }
        let points = self.points(sources.len());
        self.refuse_short_intervals(&points)?;
        Ok(Request {
            together: self.together,
            extent: Extent {
                seed: self.seed,
                warm_up: self.warm_up,
                references: self.references,
                compressor: self.compressor,
                threads: self.threads,
                programs: if self.together { sources.len() } else { 1 },
            },
            sources,
            schemes: self.scheme.0.clone(),
            points,
            ratio: self.ratio,
        })
    }

    fn report(&self) -> Result<String, String> {
        let report = report::make(&self.request()?, |progress| eprintln!("hinterland-model: {progress}"))?;
        Ok(if self.json { report.json() } else { report.table() })
    }
}

impl Cli {
    /// Reads a command line, the command's name first.
    fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
        let matches = Cli::command().try_get_matches_from(words)?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        if let (Command::Daemon(args), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
            let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
            args.given = matches.ids().map(clap::Id::as_str).filter(is_given).map(str::to_owned).collect();
        }
        Ok(cli)
    }
}

/// Runs what the command line says.
pub fn main() -> ExitCode {
    let cli = match Cli::read(std::env::args_os()) {
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
        match Cli::read(words).map_err(|error| error.to_string())?.command {
            Command::Daemon(args) => Ok(args),
            Command::Cluster(_) => unreachable!("the other one was asked for"),
        }
    }

    #[test]
    fn programs_at_once_have_the_local_memory_of_the_papers() {
        for (line, percent) in [
            ("pr nw", 20),
            ("pr nw --together", 15),
            ("pr nw sl --together", 12),
            ("pr nw sl hp --together --links 1/4:100ns,1/8:400ns", 9),
            ("pr nw --together --local 20%", 20),
        ] {
            let request = parse(line).and_then(|args| args.request()).expect("good");
            assert!(request.points.iter().all(|point| point.parameters.local_percent == percent), "{line}");
        }
    }

    #[test]
    fn the_command_line_is_what_it_says() {
        Cli::command().debug_assert();
        let args =
            parse("pr all --scheme remote,daemon --bandwidth 1/2,1/8 --switch 100ns,1us --share 50%").expect("good");
        let request = args.request().expect("known workloads");
        assert_eq!((request.sources.len(), request.sources[0].name().as_str()), (13, "pr"));
        let with_lines = parse("pr --lines app.lines").and_then(|args| args.request()).expect("good");
        let names: Vec<String> = with_lines.sources.iter().map(Source::name).collect();
        assert_eq!(names, ["pr", "app.lines"]);
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
    fn what_an_option_changes_is_not_refused_and_what_comes_twice_is_replayed_once() {
        for line in [
            "pr --size 1024 --lines app.lines --seed 7",
            "pr --scheme bp --share 50%",
            "pr --scheme lc --compressor fve --ratio paper",
            "pr --components 2 --placement random",
            "--lines app.lines --components 2 --placement random --seed 7",
            "--lines app.lines --disturbance 50% --seed 7",
            "pr --links 1/4:100ns,1/8:100ns --placement random",
        ] {
            parse(line).and_then(|args| args.request().map(drop)).expect(line);
        }
        let twice = parse("pr --scheme remote,daemon,remote --bandwidth 1/4,1/4 --switch 100ns,400ns,100ns");
        let twice = twice.and_then(|args| args.request()).expect("good");
        assert_eq!((twice.schemes, twice.points.len()), (vec![Scheme::Remote, Scheme::DaeMon], 2));
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
            ("pr --size 0", "not a whole number from 1 to 16777216; write for example --size 1024"),
            (
                "pr --scheme remote,ours --share 50%",
                "--share changes nothing here: none of these schemes keeps a share",
            ),
            ("pr --scheme remote,pq --compressor lz", "--compressor changes nothing here: no page is compressed"),
            ("pr --scheme remote,bp --ratio paper", "--ratio changes nothing here: no page is compressed"),
            ("pr --placement random", "--placement changes nothing here: all pages are on one memory component"),
            ("pr --links 1/4:100ns --placement round-robin", "--placement changes nothing here"),
            ("--lines app.lines --size 1024", "--size changes nothing here: what --lines has read has its own size"),
            ("--lines app.lines --components 2 --seed 7", "--seed changes nothing here: nothing is drawn"),
            ("nw --size 16385", "--size 16385 is too large for nw: it has at most 16384 base pairs"),
            ("sl hp --size 16777216", "too large for hp: it has at most 512 points an edge"),
            ("dr --size 8193", "too large for dr: it has at most 8192 pixels an edge"),
            ("pr --compressor zip", "lz, fpc-bdi, fve"),
            ("pr --components 0", "from 1 to 4; write for example --components 2"),
            ("pr --components 5", "from 1 to 4; write for example --components 2"),
            ("pr --placement nearest", "round-robin, random"),
            ("pr --references 0", "from 1 to 4000000000; write for example --references 2000000"),
            ("pr --threads 0", "from 1 to 16; write for example --threads 8"),
            ("pr --threads 17", "from 1 to 16; write for example --threads 8"),
            ("pr --together", "2 to 4 different programs at once, not 1"),
            ("pr pr --together", "2 to 4 different programs at once, not 1"),
            ("all --together", "2 to 4 different programs at once, not 13"),
            ("pr --bandwidth 1/+4", "write 1/1 to 1/1024"),
            ("pr --switch +100ns", "write 0ns to 1000us"),
            ("pr --local +25%", "write 1% to 99%"),
            (
                "pr --disturbance 50% --disturbance-interval 0ns",
                "--disturbance-interval 0ns is shorter than a packet takes",
            ),
            ("pr --disturbance 50% --disturbance-interval 963ns", "write 964ns or more"),
            ("pr --bandwidth 1/4,1/8 --disturbance 50% --disturbance-interval 1us", "write 1928ns or more"),
            ("pr --links 1/4:1ns,1/8:1ns --disturbance 50% --disturbance-interval 1us", "write 1928ns or more"),
            ("pr --disturbance 100%", "write 1% to 90%"),
            ("pr --disturbance 95%", "write 1% to 90%"),
            ("pr --disturbance-interval 1us", "--disturbance"),
            ("pr --links 1/4", "'1/4' is no link; write, for example, 1/4:100ns"),
            ("pr --links 1/0:100ns", "write 1/1 to 1/1024"),
            ("pr --links 1/4:1ms", "write 0ns to 1000us"),
            ("pr --links 1/4:100ns --components 2", "cannot be used with"),
            ("pr --links 1/4:1ns,1/4:1ns,1/4:1ns,1/4:1ns,1/4:1ns", "1 to 4 memory components"),
            ("zz", "'zz' is no workload; take all, or some of kc (k-core decomposition)"),
        ] {
            let refused = parse(line).and_then(|args| args.request().map(drop)).expect_err(line);
            assert!(refused.contains(reason), "{line}: {refused}");
        }
    }
}
