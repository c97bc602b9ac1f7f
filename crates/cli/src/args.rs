//! The command line: what may be written. Values stay text here, so that a wrong flag, variable or file entry is refused in
//! the same words (`config`).

use crate::bench::BenchArgs;
use crate::explain::ExplainArgs;
use crate::node::{Identity, NodeArgs};
use crate::sim::SimArgs;
use crate::trace::TraceArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;

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
    /// Record which pages a program touches, or look at such a trace.
    Trace(Box<TraceArgs>),
    /// Say what the prefetcher saw and did in a run, in words.
    Explain(ExplainArgs),
    /// Say what this machine can do, what is missing, and the remedy for each.
    Doctor(DoctorArgs),
    /// Replay a trace on the runtime's policies, over links that need not be there.
    Sim(Box<SimArgs>),
    /// Lend this machine's memory to programs, or ask a node how it is.
    Node(Box<NodeArgs>),
    /// Measure Hinterland against the kernel's own swap.
    Bench(BenchArgs),
}

/// `hinterland run`.
#[derive(Args, Default)]
#[command(after_help = [PREFETCHERS, RUN_EXAMPLES].concat())]
pub struct RunArgs {
    /// Bound on the program's local pages: a size (512M, 2G), or a share of what it has touched so far (25%); at least 16M.
    /// Default: 80 % of the cgroup limit or of free memory
    #[arg(long, value_name = "SIZE|PCT%")]
    pub local: Option<String>,
    /// Bound on local pages, compressed store and metadata together
    #[arg(long, value_name = "SIZE|PCT%")]
    pub ram: Option<String>,
    /// Where cold pages go; repeat for tiers, fastest first. Default: compressed RAM, then a file
    #[arg(long, value_name = "URL")]
    pub far: Vec<String>,
    /// Memory nodes of a pool (tcp://A,tcp://B,… or etcd://HOST/POOL) that keep each page; the run survives the loss of all but one. Default: 1
    #[arg(long, value_name = "N")]
    pub replicas: Option<String>,
    /// Encrypt pages before they leave the program's process, for files and memory nodes
    #[arg(long)]
    pub encrypt: bool,
    #[command(flatten)]
    pub identity: Identity,
    /// Which allocations are far: all (default), or large (of at least 64 KiB)
    #[arg(long, value_name = "all|large")]
    pub heap: Option<String>,
    /// Eviction policy: fifo, second-chance, s3-fifo (default), 2q
    #[arg(long, value_name = "POLICY")]
    pub evict: Option<String>,
    /// Prefetcher: auto (default), none, next-n, streams, next-n-line, readahead, readahead-vma, stride, leap, leap-per-thread
    #[arg(long, value_name = "PREFETCHER")]
    pub prefetch: Option<String>,
    /// Largest read-ahead window in pages, 0 to 512; 0 turns read-ahead off. Default: 64 with auto, streams and next-n, more where the
    /// link asks for it; 8 with the others
    #[arg(long, value_name = "PAGES")]
    pub read_ahead: Option<String>,
    /// Bound on local pages that came ahead and are not known to be used, at least 1M; what is beyond it leaves first. Default: what
    /// the windows need
    #[arg(long, value_name = "SIZE")]
    pub prefetch_cache: Option<String>,
    /// Who serves faults: auto (default), monitor (a thread beside the program's), inline (the thread that faults)
    #[arg(long, value_name = "auto|monitor|inline")]
    pub fault_path: Option<String>,
    /// Pretend an older kernel: 5.15, 6.1, 6.8, 6.12, all (default), no-uffd
    #[arg(long, value_name = "SET")]
    pub features: Option<String>,
    /// Write the run's figures as JSON to FILE, or to stdout (-)
    #[arg(long, value_name = "FILE|-")]
    pub stats: Option<String>,
    /// No summary at the end
    #[arg(long)]
    pub quiet: bool,
    /// Run a program that cannot be managed all the same, with a warning
    #[arg(long)]
    pub allow_unmanaged: bool,
    /// Settings file. Default: $XDG_CONFIG_HOME/hinterland/config.toml (~/.config/hinterland/config.toml), if it is there
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}

/// `hinterland doctor`.
#[derive(Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// How to write the result
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// The prefetchers, for `run` and `sim`.
pub const PREFETCHERS: &str = "\
Prefetchers:
  auto             by region: streams of any step, or objects of a few pages whole
  none             nothing is fetched ahead
  next-n           sequential streams, several at once
  streams          streams of any step, several at once
  next-n-line      the next pages after every major fault (Leap's paper: Next-N-Line)
  readahead        the aligned block around a fault, as Linux does
  readahead-vma    along the direction of the last two faults, as Linux does
  stride           along the last step once it has repeated (Leap's paper: Stride)
  leap             along the step of most of the last 32 requests (Leap's paper)
  leap-per-thread  the same for each thread by itself

";

const EXAMPLES: &str = "\
Examples:
  hinterland run --local 512M -- python3 job.py
  hinterland trace -o job.trace -- python3 job.py
  hinterland doctor
  hinterland bench --help";

const RUN_EXAMPLES: &str = "\
Examples:
  hinterland run -- python3 job.py
  hinterland run --local 512M -- python3 job.py
  hinterland run --ram 2G --far compressed:4G --far 'file:/mnt/ssd/far?size=64G' -- sort -S 3G big.txt
  hinterland run --local 1G --heap large --stats out.json -- ./service
  hinterland run --local 1G --far tcp://127.0.0.1:7440 -- ./service
  hinterland run --local 1G --far unix:/run/user/1000/hinterland.sock -- ./service
  hinterland run --local 1G --far tcp://127.0.0.1:7440,tcp://127.0.0.1:7441,tcp://127.0.0.1:7442 --replicas 2 -- ./service
  hinterland run --local 1G --far compressed:2G --far 'file:/mnt/ssd?size=16G' --encrypt -- ./service
  hinterland run --local 1G --far tcp://node-1:7440 --key-file far.key -- ./service
  hinterland run --local 1G --far etcd://127.0.0.1:2379/pool --replicas 2 -- ./service

Settings come from flags, then HINTERLAND_LOCAL, _RAM, _FAR (URLs separated by spaces), _REPLICAS, _ENCRYPT, _TLS, _TLS_CA, _KEY_FILE,
_HEAP, _EVICT, _PREFETCH, _READ_AHEAD, _PREFETCH_CACHE, _FAULT_PATH, _FEATURES, _STATS, _QUIET, _ALLOW_UNMANAGED, then the settings file (the same
names in lower case: local = \"512M\", far = [\"compressed:4G\"], quiet = true), then the defaults.

Exit code: the program's own; 128 + n when it died of signal n and the launcher cannot end the same way; 127 when the
program does not exist, 126 when it cannot be executed, 125 when Hinterland refuses (the message says why).";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  hinterland doctor
  hinterland doctor --format json

Exit code: 0 when `hinterland run` would work here, 1 when it would not.";
