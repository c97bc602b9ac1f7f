//! What a run is to be: flags, then `HINTERLAND_*` variables, then the settings file, then defaults.
//!
//! Each source gives text for some of the same settings (`hinterland_abi::SETTINGS`); the first source that has one wins, and the
//! table's reader turns the text into a value, so a wrong value is refused in the same words wherever it stands.

mod costs;
pub mod example;
mod file;
pub mod flags;
mod merge;
#[cfg(test)]
mod tests;

use crate::args::RunArgs;
use crate::error::{Error, complain};
use crate::host::Host;
use crate::launch::tape::RunTapes;
use crate::node;
use crate::tape::RunTrace;
use crate::tape_cache::CachedRun;
use hinterland_abi::{GranularityName, LauncherSettings, Settings, parse_block, parse_cpus, variables};
use hinterland_backend::{PATHS_MAX, Scheme};
use hinterland_sys::FeatureSet;
use hinterland_tls::{ClientCredentials, Sources};
use hinterland_units::{Budget, BudgetError, ByteCount, PAGE_BYTES, Slowdown};
use hinterland_wire::Protection;
pub use merge::is_ledger;
use merge::{Merged, TOGETHER, merge};
use std::env::VarError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the JSON goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatsTarget {
    /// Standard output, after the program's own.
    Stdout,
    /// A file, replaced.
    File(PathBuf),
}

/// The value of `--tape` that names no file.
const AUTO: &str = "auto";

/// A run's settings, resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunConfig {
    /// What the program is handed.
    pub settings: Settings,
    /// What its files with certificates or a key say.
    pub credentials: Option<ClientCredentials>,
    /// The kernel that is pretended.
    pub features: FeatureSet,
    /// The tapes that the run's processes are to follow.
    pub tapes: Option<Arc<RunTapes>>,
    /// Where they come from.
    pub tape_source: Option<String>,
    /// With `--tape auto`: what is kept of earlier runs, and where this one is to be.
    pub cached_run: Option<CachedRun>,
    /// What local memory is adjusted to, if it is.
    pub slowdown: Option<Slowdown>,
    /// Where the JSON goes, if anywhere.
    pub stats: Option<StatsTarget>,
    /// No summary.
    pub quiet: bool,
    /// Run what cannot be managed.
    pub allow_unmanaged: bool,
    /// End the run when a process of it holds memory outside the budget.
    pub strict: bool,
    /// Where the budget comes from; `None`: it was given as a size.
    pub budget_source: Option<String>,
    /// The flag, variable or file that chose the prefetcher; `None`: none did.
    pub prefetch_source: Option<String>,
    /// Those that set the local budget.
    pub local_origin: Option<String>,
    /// Those that set the bound on total RAM.
    pub ram_origin: Option<String>,
    /// Those that name far memory.
    pub far_origin: String,
    /// The files that were read for the run, each with what it is, in words.
    pub read: Vec<(&'static str, PathBuf)>,
}

impl RunConfig {
    /// The local budget, which is a size once it is resolved.
    pub fn local_bytes(&self) -> Option<ByteCount> {
        match self.settings.local {
            Some(Budget::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

/// Resolves a run's settings. `variable` reads one of the environment; `host` is the machine, for the default budget.
///
/// # Errors
/// The flag, variable or file entry that cannot be used, and what may be written.
pub fn resolve(
    args: &RunArgs,
    variable: impl Fn(&str) -> Result<String, VarError>,
    host: &Host,
) -> Result<RunConfig, Error> {
    let refused = match resolve_merged(args, &merge(args, &variable, &[])?, &variable, host) {
        Err(refused) if variable(variables::LEDGER).is_ok_and(|path| is_ledger(&path)) => refused,
        resolved => return resolved,
    };
    // A run within a run, which may contradict what the outer one hands down: no more is put aside than must be.
    for groups in TOGETHER.chunks(1).chain([&TOGETHER[..]]) {
        let merged = merge(args, &variable, groups)?;
        if merged.aside.is_empty() {
            continue;
        }
        if let Ok(config) = resolve_merged(args, &merged, &variable, host) {
            if !config.quiet {
                let names = merged.aside.join(", ");
                complain(format_args!(
                    "a run inside another does not inherit {names}, which would conflict with its flags"
                ));
            }
            return Ok(config);
        }
    }
    Err(refused)
}

/// Resolves what the sources say, merged.
fn resolve_merged(
    args: &RunArgs,
    merged: &Merged,
    variable: &impl Fn(&str) -> Result<String, VarError>,
    host: &Host,
) -> Result<RunConfig, Error> {
    let env = |name: &str| variable(name).ok().filter(|value| !value.is_empty());
    let read = |variable: &str| merged.text(variable).map(str::to_owned);
    let refuse = |(variable, why)| merged.refuse(variable, why);
    let mut settings = Settings::from_env(read).map_err(refuse)?;
    let launcher = LauncherSettings::from_env(read).map_err(refuse)?;
    let features: FeatureSet =
        settings.features.parse().map_err(|why: String| merged.refuse(variables::FEATURES, why))?;
    let credentials = read_credentials(&mut settings, merged)?;
    let protection = Protection::of(credentials.is_some(), settings.insecure_loopback);
    resolve_urls(&mut settings.far, protection).map_err(|why| merged.refuse(variables::FAR, why))?;
    let names = FarNames { protection, replicas: settings.replicas };
    let costs = costs::state(&mut settings, names, merged).map_err(|why| merged.refuse(variables::COSTS, why))?;
    if let Some(replicas) = settings.replicas {
        set_replicas(&mut settings.far, replicas).map_err(|why| merged.refuse(variables::REPLICAS, why))?;
    }
    if let (Some(pages), Some(cache)) = (settings.read_ahead_pages, settings.prefetch_cache)
        && u64::from(pages) * 4 * PAGE_BYTES as u64 > cache.0
    {
        let why = format!("four windows of --read-ahead {pages} take more than {cache}; lower one or raise the other");
        return Err(merged.refuse(variables::PREFETCH_CACHE, why));
    }
    let granularity = merged.get(variables::GRANULARITY).map(|_| settings.granularity);
    settings.granularity = granularity_with(settings.block, granularity, settings.granularity)
        .map_err(|why| merged.refuse(variables::BLOCK, why))?;
    let leave_out = |why| complain(format_args!("--tape: {why}; it is left out"));
    let refuse_tape = |why| merged.refuse(variables::TAPE, why);
    let path = Some(launcher.tape.as_str()).filter(|path| !["", AUTO].contains(path)).map(Path::new);
    let trace = path.map_or(Ok(None), RunTrace::read_if_it_is_one).map_err(refuse_tape)?;
    let tape = path.filter(|_| trace.is_none());
    let mut tapes = tape.map(|path| RunTapes::read(path, leave_out)).transpose().map_err(refuse_tape)?;
    refuse_paces_of_no_tape(&launcher.tape, merged)?;
    let mut tape_source = tapes.as_ref().map(RunTapes::source);
    let is_auto = launcher.tape == AUTO;
    let mut cached_run = if is_auto { CachedRun::look_up(&args.program, &settings, &env) } else { None };
    let recorded = match &trace {
        Some(trace) => Recorded::in_trace(trace),
        None => Recorded::by(tapes.as_ref(), cached_run.as_ref()),
    };
    if is_auto && recorded == Recorded::Nothing {
        // Of what, is known only after this run.
        let is_known = |budget: &Budget| !matches!(budget, Budget::PercentOfTouched(_));
        (settings.local, settings.ram) = (settings.local.filter(is_known), settings.ram.filter(is_known));
    }
    let budget_source = fill_budgets(&mut settings, merged, host, &recorded)?;
    if let (Some(cached_run), Some(Budget::Bytes(local))) = (&mut cached_run, settings.local)
        && let Some((planned, from)) = cached_run.tape(local)
    {
        (tapes, tape_source) = (Some(planned.into()), Some(from));
    }
    if let (Some(trace), Some(Budget::Bytes(local))) = (&trace, settings.local) {
        let (planned, from) = trace.tape(local).map_err(refuse_tape)?;
        (tapes, tape_source) = (Some(planned.into()), Some(from));
    }
    let origin = |variable| merged.get(variable).map(|found| found.origin.clone());
    let tapes_are = if trace.is_some() { "the trace of the run" } else { "a tape of the run" };
    let mut read = files_read(merged, &settings, tapes.as_ref(), tapes_are);
    read.extend(costs.into_iter().map(|path| ("the cost file of the run", path)));
    Ok(RunConfig {
        settings,
        credentials,
        features,
        tapes: tapes.map(Arc::new),
        tape_source,
        cached_run,
        slowdown: launcher.slowdown,
        stats: match launcher.stats.as_str() {
            "" => None,
            "-" => Some(StatsTarget::Stdout),
            path => Some(StatsTarget::File(path.into())),
        },
        quiet: launcher.quiet,
        allow_unmanaged: launcher.allow_unmanaged,
        strict: launcher.strict,
        budget_source,
        prefetch_source: origin(variables::PREFETCH),
        local_origin: origin(variables::LOCAL),
        ram_origin: origin(variables::RAM),
        far_origin: merged.origin(variables::FAR),
        read,
    })
}

/// The files that a run's settings name, each with what it is, in words.
fn files_read(
    merged: &Merged,
    settings: &Settings,
    tapes: Option<&RunTapes>,
    tapes_are: &'static str,
) -> Vec<(&'static str, PathBuf)> {
    let sources = Sources::new(&settings.tls, &settings.tls_ca, &settings.key_file).ok().flatten();
    let proofs = sources.iter().flat_map(Sources::paths).map(|path| ("a certificate or key of the run", path));
    let tapes = tapes.into_iter().flat_map(RunTapes::paths).map(|path| (tapes_are, path.to_owned()));
    merged.file.iter().map(|path| ("the settings file", path.clone())).chain(proofs).chain(tapes).collect()
}

/// Reads the credentials for memory nodes, so that an error in them is reported before the program starts, and makes their paths
/// absolute, because programs change directories.
fn read_credentials(settings: &mut Settings, merged: &Merged) -> Result<Option<ClientCredentials>, Error> {
    let given =
        [variables::KEY_FILE, variables::TLS, variables::TLS_CA].into_iter().find(|name| merged.get(name).is_some());
    let Some(given) = given else { return Ok(None) };
    let absolute = |path: &str| match path {
        "" => Ok(String::new()),
        path => std::path::absolute(path).map(|path| path.display().to_string()),
    };
    let refuse = |why: String| merged.refuse(given, why);
    let sources =
        Sources::new(&settings.tls, &settings.tls_ca, &settings.key_file).map_err(|why| refuse(why.to_string()))?;
    let credentials =
        sources.as_ref().map(ClientCredentials::read).transpose().map_err(|why| refuse(why.to_string()))?;
    let pair: Result<Vec<String>, _> = settings.tls.split(',').map(absolute).collect();
    let io = |error: std::io::Error| refuse(error.to_string());
    settings.tls = pair.map_err(io)?.join(",");
    settings.tls_ca = absolute(&settings.tls_ca).map_err(io)?;
    settings.key_file = absolute(&settings.key_file).map_err(io)?;
    Ok(credentials)
}

/// Refuses URLs that no backend takes, and makes each mean the same in every process of the run: names of nodes are resolved (the library
/// in the program resolves none), and paths of files are absolute, because programs change directories.
fn resolve_urls(urls: &mut [String], protection: Protection) -> Result<(), String> {
    if urls.len() > PATHS_MAX {
        return Err(format!("{} paths to far memory are too many; {PATHS_MAX} are the most", urls.len()));
    }
    for url in urls {
        let mut parsed = hinterland_backend::parse(url).map_err(|error| error.to_string())?;
        let given = parsed.scheme.clone();
        match &mut parsed.scheme {
            Scheme::Nodes { endpoints, .. } => {
                for endpoint in endpoints {
                    *endpoint = node::resolved(endpoint, protection).map_err(|error| error.to_string())?;
                }
            }
            Scheme::File { path, .. } if path.is_relative() => {
                *path = std::path::absolute(&path).map_err(|error| format!("'{url}': {error}"))?;
            }
            _ => {}
        }
        if parsed.scheme == given {
            continue;
        }
        *url = parsed.to_string();
        // Two names may stand for one address.
        hinterland_backend::parse(url).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A URL with the path of its file from this folder on, for a launcher, which has another; what no backend takes stays
/// as it is written.
///
/// # Errors
/// This folder is gone.
pub fn from_here(written: &str) -> Result<String, String> {
    let Ok(mut url) = hinterland_backend::parse(written) else { return Ok(written.to_owned()) };
    match &mut url.scheme {
        Scheme::File { path, .. } if path.is_relative() => {
            *path = std::path::absolute(&path).map_err(|error| format!("'{written}': {error}"))?;
            Ok(url.to_string())
        }
        _ => Ok(written.to_owned()),
    }
}

/// Refuses flags for the pace of a tape where none is named. In a variable or the settings file they hold for the runs that follow one.
fn refuse_paces_of_no_tape(tape: &str, merged: &Merged) -> Result<(), Error> {
    match [variables::TAPE_BATCH, variables::TAPE_LOOKAHEAD].into_iter().find(|variable| merged.is_flag(variable)) {
        Some(variable) if tape.is_empty() => {
            let why = "it is about following a tape, and none is named: give one with --tape FILE, or leave it out";
            Err(merged.refuse(variable, why))
        }
        _ => Ok(()),
    }
}

/// Sets the replicas of pools; refuses where there is none.
fn set_replicas(urls: &mut [String], replicas: usize) -> Result<(), String> {
    if !urls.iter().any(|url| hinterland_backend::names_nodes(url)) {
        return Err(format!(
            "{replicas} replicas need as many memory nodes; name them with --far tcp://HOST:PORT,tcp://HOST:PORT"
        ));
    }
    hinterland_backend::set_replicas(urls, replicas).map_err(|error| error.to_string())
}

/// Sets budgets that are not set to their defaults, and refuses contradictory ones.
///
/// With nothing set, both are 80 % of what the process may use: `--ram` counts the compressed store too, so a run without
/// flags cannot outgrow its cgroup. With only `--ram`, local memory may fill it.
fn fill_budgets(
    settings: &mut Settings,
    merged: &Merged,
    host: &Host,
    recorded: &Recorded,
) -> Result<Option<String>, Error> {
    let size = |variable, budget: Option<Budget>| {
        let refuse = |why| merged.refuse(variable, why);
        budget.map(|budget| in_bytes(budget, refuse, host, recorded)).transpose()
    };
    let (local, ram) = (size(variables::LOCAL, settings.local)?, size(variables::RAM, settings.ram)?);
    match (local, ram) {
        (Some((local, source)), ram) => {
            if let Some((ram, _)) = ram
                && ram < local
            {
                return Err(Error::RamBelowLocal {
                    ram_origin: merged.origin(variables::RAM),
                    ram: ram.to_string(),
                    local_origin: merged.origin(variables::LOCAL),
                    local: local.to_string(),
                });
            }
            settings.local = Some(Budget::Bytes(local));
            settings.ram = ram.map(|(ram, _)| Budget::Bytes(ram));
            Ok(source)
        }
        (None, Some((ram, source))) => {
            settings.local = Some(Budget::Bytes(ram));
            settings.ram = settings.local;
            Ok(source)
        }
        (None, None) => {
            let available = host.available()?;
            let budget = ByteCount(Host::for_local(available.bytes));
            if budget < Budget::FLOOR {
                return Err(Error::MachineTooSmall {
                    available: ByteCount(available.bytes),
                    source_name: available.source,
                    floor: Budget::FLOOR,
                });
            }
            settings.local = Some(Budget::Bytes(budget));
            settings.ram = Some(Budget::Bytes(budget));
            Ok(Some(format!("80 % of {} ({})", ByteCount(available.bytes), available.source)))
        }
    }
}

/// What bounds a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Local memory of all its processes together.
    pub local: ByteCount,
    /// Local memory, compressed store and tables.
    pub ram: Option<ByteCount>,
}

/// Bounds that are asked for, as they were written; `None`: that one is not to change.
#[derive(Clone, Copy, Default, Debug)]
pub struct Written<'a> {
    /// As `--local`.
    pub local: Option<&'a str>,
    /// As `--ram`.
    pub ram: Option<&'a str>,
}

/// The bounds that a run which is under way is to have from now on: of the same kinds as at its start, and refused in the same words.
///
/// # Errors
/// Why it cannot be had, and what may be written.
pub fn changed_bounds(config: &RunConfig, host: &Host, now: Bounds, asked: Written<'_>) -> Result<Bounds, Error> {
    let recorded = Recorded::by(config.tapes.as_deref(), config.cached_run.as_ref());
    let size = |origin: &'static str, written: &str| {
        let refuse = |why: String| Error::Setting { origin: origin.into(), why };
        let budget = written.parse().map_err(|why: BudgetError| refuse(why.to_string()))?;
        in_bytes(budget, refuse, host, &recorded).map(|(bytes, _)| bytes)
    };
    let local = asked.local.map(|written| size("--local", written)).transpose()?;
    let ram = asked.ram.map(|written| size("--ram", written)).transpose()?;
    let bounds = Bounds { local: local.unwrap_or(now.local), ram: ram.or(now.ram) };
    match bounds.ram {
        // With a smaller `--ram` alone local memory may fill what there is.
        Some(ram) if local.is_some_and(|local| ram < local) => Err(Error::RamBelowLocal {
            ram_origin: match (asked.ram, &config.ram_origin) {
                (Some(_), _) => "--ram".into(),
                (None, Some(origin)) => origin.clone(),
                (None, None) => "the bound on RAM of this run".into(),
            },
            ram: ram.to_string(),
            local_origin: "--local".into(),
            local: bounds.local.to_string(),
        }),
        _ => Ok(bounds),
    }
}

/// How much comes to a thread that waits for a page, where blocks have that size: as `asked` for, or else as it is `now`; single pages then become
/// `auto`.
///
/// # Errors
/// A block's size, and pages alone asked for.
pub fn granularity_with(
    block: Option<ByteCount>,
    asked: Option<GranularityName>,
    now: GranularityName,
) -> Result<GranularityName, String> {
    match (block, asked, now) {
        (None, _, _) => Ok(asked.unwrap_or(now)),
        (Some(_), Some(GranularityName::Page), _) => {
            Err("no blocks are asked for with --granularity page; leave that out, or choose block, both or auto".into())
        }
        (Some(_), None, GranularityName::Page) => Ok(GranularityName::Auto),
        (Some(_), asked, now) => Ok(asked.unwrap_or(now)),
    }
}

/// Which blocks a run which is under way is to ask for: granularity and size, `None` for what it is by itself. `now`: those that it asks for.
///
/// # Errors
/// What cannot be, and what may be written.
pub fn changed_blocks(
    now: (GranularityName, Option<ByteCount>),
    granularity: Option<&str>,
    block: Option<&str>,
) -> Result<(GranularityName, Option<ByteCount>), Error> {
    let refuse = |origin: &str, why: String| Error::Setting { origin: origin.into(), why };
    let asked = granularity.map(str::parse::<GranularityName>).transpose();
    let asked = asked.map_err(|why| refuse("--granularity", why.to_string()))?;
    let block = block.map(parse_block).transpose().map_err(|why| refuse("--block", why.to_string()))?;
    // A size that was set before needs no blocks.
    let granularity = granularity_with(block.flatten(), asked, now.0).map_err(|why| refuse("--block", why))?;
    Ok((granularity, block.unwrap_or(now.1)))
}

/// The processors that the pager's own threads may take in a run which is under way, as `written`; `None`: all.
///
/// # Errors
/// What may be written.
pub fn changed_cpus(written: &str) -> Result<Option<u32>, Error> {
    parse_cpus(written).map_err(|why| Error::Setting { origin: "--cpus".into(), why: why.to_string() })
}

/// How a run reads the paths to far memory that it is to have or to lose while it is under way.
#[derive(Clone, Copy)]
pub struct FarNames {
    /// Of connections to nodes.
    pub protection: Protection,
    /// Replicas of each pool.
    pub replicas: Option<usize>,
}

impl FarNames {
    /// Of a run.
    pub fn of(config: &RunConfig) -> FarNames {
        let protection = Protection::of(config.credentials.is_some(), config.settings.insecure_loopback);
        FarNames { protection, replicas: config.settings.replicas }
    }

    /// A path, as `written`: as the run's processes know it. Asks a name server where a node is named, for as long as that takes.
    ///
    /// # Errors
    /// Why it cannot be had, and what may be written.
    pub fn known(self, origin: &str, written: &str) -> Result<String, Error> {
        let refuse = |why: String| Error::Setting { origin: origin.into(), why };
        let mut urls = [written.to_owned()];
        resolve_urls(&mut urls, self.protection).map_err(refuse)?;
        if let Some(replicas) = self.replicas.filter(|_| hinterland_backend::names_nodes(&urls[0])) {
            set_replicas(&mut urls, replicas).map_err(refuse)?;
        }
        let [url] = urls;
        Ok(url)
    }
}

/// What is known of a run from an earlier one.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Recorded {
    Nothing,
    /// The most that the program touched, and the file that says so.
    Peak(ByteCount, PathBuf),
    /// The most that any program touched, where there are tapes of several.
    Largest(ByteCount),
}

impl Recorded {
    fn in_trace(trace: &RunTrace) -> Recorded {
        let (peak, path) = trace.recorded_peak();
        Recorded::Peak(peak, path)
    }

    fn by(tapes: Option<&RunTapes>, cached_run: Option<&CachedRun>) -> Recorded {
        let cached = cached_run.and_then(CachedRun::recorded_peak);
        match (tapes, cached) {
            (Some(tapes), _) => match tapes.recorded_peak() {
                Some(peak) => Recorded::Peak(peak, tapes.path.clone()),
                None => Recorded::Largest(tapes.largest_peak()),
            },
            (None, Some((peak, path))) => Recorded::Peak(peak, path),
            (None, None) => Recorded::Nothing,
        }
    }
}

/// A budget in bytes, and what it is a share of. A share of what the program touches is refused without a tape: it is known only after a
/// run.
fn in_bytes(
    budget: Budget,
    refuse: impl Fn(String) -> Error,
    host: &Host,
    recorded: &Recorded,
) -> Result<(ByteCount, Option<String>), Error> {
    match budget {
        Budget::Bytes(bytes) => Ok((bytes, None)),
        Budget::PercentOfTouched(percent) if let Recorded::Peak(peak, path) = recorded => Ok((
            budget.bytes(*peak),
            Some(format!("{percent} % of {peak}, the peak that {} has recorded", path.display())),
        )),
        Budget::PercentOfTouched(percent) if let Recorded::Largest(largest) = recorded => Err(refuse(format!(
            "{percent}% of what? Tapes of several processes do not say which of these run at the same time: give a size; the largest of them \
                 touched {largest}"
        ))),
        Budget::PercentOfTouched(percent) => Err(refuse(format!(
            "{percent}% of what? How much a program needs is known only after a run: give a size (512M), or a share of the RAM \
                 ({percent}%ram), or a tape with --tape; the summary of a run with enough memory shows the peak (\"managed\")"
        ))),
        Budget::PercentOfRam(percent) => {
            let ram = host.ram()?;
            Ok((
                budget.bytes(ByteCount(ram.bytes)),
                Some(format!("{percent} % of {} ({})", ByteCount(ram.bytes), ram.source)),
            ))
        }
    }
}
