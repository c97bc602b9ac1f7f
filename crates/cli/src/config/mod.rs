//! What a run is to be: flags, then `HINTERLAND_*` variables, then the settings file, then defaults.
//!
//! Each source gives text for some of the same names ([`KEYS`]); the first source that has a name wins, and one reader turns
//! the text into settings, so a wrong value is refused in the same words wherever it stands.

mod file;
#[cfg(test)]
mod tests;

use crate::args::RunArgs;
use crate::error::Error;
use crate::host::Host;
use crate::node;
use hinterland_abi::{Settings, parse_switch, variables};
use hinterland_backend::Scheme;
use hinterland_sys::FeatureSet;
use hinterland_tls::{ClientCredentials, Sources};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};
use std::path::PathBuf;

/// Variables that only the launcher reads.
pub mod launcher_variables {
    /// Where the JSON goes.
    pub const STATS: &str = "HINTERLAND_STATS";
    /// No summary.
    pub const QUIET: &str = "HINTERLAND_QUIET";
    /// Run what cannot be managed.
    pub const ALLOW_UNMANAGED: &str = "HINTERLAND_ALLOW_UNMANAGED";
    /// The settings file.
    pub const CONFIG: &str = "HINTERLAND_CONFIG";
    /// The preloaded library.
    pub const LIBRARY: &str = "HINTERLAND_LIBRARY";
}
use launcher_variables::{ALLOW_UNMANAGED, QUIET, STATS};

/// One setting's names in the three sources.
struct Key {
    variable: &'static str,
    flag: &'static str,
    file: &'static str,
}

const KEYS: [Key; 18] = [
    Key { variable: variables::LOCAL, flag: "--local", file: "local" },
    Key { variable: variables::RAM, flag: "--ram", file: "ram" },
    Key { variable: variables::FAR, flag: "--far", file: "far" },
    Key { variable: variables::REPLICAS, flag: "--replicas", file: "replicas" },
    Key { variable: variables::ENCRYPT, flag: "--encrypt", file: "encrypt" },
    Key { variable: variables::TLS, flag: "--tls", file: "tls" },
    Key { variable: variables::TLS_CA, flag: "--tls-ca", file: "tls_ca" },
    Key { variable: variables::KEY_FILE, flag: "--key-file", file: "key_file" },
    Key { variable: variables::HEAP, flag: "--heap", file: "heap" },
    Key { variable: variables::EVICT, flag: "--evict", file: "evict" },
    Key { variable: variables::PREFETCH, flag: "--prefetch", file: "prefetch" },
    Key { variable: variables::READ_AHEAD, flag: "--read-ahead", file: "read_ahead" },
    Key { variable: variables::PREFETCH_CACHE, flag: "--prefetch-cache", file: "prefetch_cache" },
    Key { variable: variables::FEATURES, flag: "--features", file: "features" },
    Key { variable: variables::FAULT_PATH, flag: "--fault-path", file: "fault_path" },
    Key { variable: STATS, flag: "--stats", file: "stats" },
    Key { variable: QUIET, flag: "--quiet", file: "quiet" },
    Key { variable: ALLOW_UNMANAGED, flag: "--allow-unmanaged", file: "allow_unmanaged" },
];

/// Where the JSON goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatsTarget {
    /// Standard output, after the program's own.
    Stdout,
    /// A file, replaced.
    File(PathBuf),
}

/// A run's settings, resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunConfig {
    /// What the program is handed.
    pub settings: Settings,
    /// The kernel that is pretended.
    pub features: FeatureSet,
    /// Where the JSON goes, if anywhere.
    pub stats: Option<StatsTarget>,
    /// No summary.
    pub quiet: bool,
    /// Run what cannot be managed.
    pub allow_unmanaged: bool,
    /// Where the budget came from, when nobody set one.
    pub budget_source: Option<String>,
    /// Where the prefetcher was chosen, if it was.
    pub prefetch_source: Option<String>,
}

/// A value and where it was written.
struct Found {
    text: String,
    origin: String,
}

/// The sources, merged: at most one value for each key.
struct Merged(Vec<(&'static str, Found)>);

impl Merged {
    fn get(&self, variable: &str) -> Option<&Found> {
        self.0.iter().find(|(name, _)| *name == variable).map(|(_, found)| found)
    }

    fn text(&self, variable: &str) -> Option<&str> {
        self.get(variable).map(|found| found.text.as_str())
    }

    fn origin(&self, variable: &str) -> String {
        self.get(variable).map_or_else(|| variable.to_owned(), |found| found.origin.clone())
    }

    fn refuse(&self, variable: &str, why: impl ToString) -> Error {
        Error::Setting { origin: self.origin(variable), why: why.to_string() }
    }

    fn switch(&self, variable: &'static str) -> Result<bool, Error> {
        parse_switch(self.text(variable).unwrap_or("")).map_err(|why| self.refuse(variable, why))
    }
}

/// Resolves a run's settings. `env` reads a variable; `host` is the machine, for the default budget.
///
/// # Errors
/// The flag, variable or file entry that cannot be used, and what may be written.
pub fn resolve(args: &RunArgs, env: impl Fn(&str) -> Option<String>, host: &Host) -> Result<RunConfig, Error> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    let merged = merge(args, &env)?;
    let mut settings = Settings::from_env(|name| merged.text(name).map(str::to_owned))
        .map_err(|(variable, why)| merged.refuse(variable, why))?;
    let features: FeatureSet =
        settings.features.parse().map_err(|why: String| merged.refuse(variables::FEATURES, why))?;
    let secured = settle_credentials(&mut settings, &merged)?;
    settle_urls(&mut settings.far, secured).map_err(|why| merged.refuse(variables::FAR, why))?;
    if let Some(replicas) = settings.replicas {
        settle_replicas(&mut settings.far, replicas).map_err(|why| merged.refuse(variables::REPLICAS, why))?;
    }
    if let (Some(pages), Some(cache)) = (settings.read_ahead_pages, settings.prefetch_cache)
        && u64::from(pages) * 4 * PAGE_BYTES as u64 > cache.0
    {
        let why = format!("four windows of --read-ahead {pages} take more than {cache}; lower one or raise the other");
        return Err(merged.refuse(variables::PREFETCH_CACHE, why));
    }
    let budget_source = fill_budgets(&mut settings, &merged, host)?;
    Ok(RunConfig {
        settings,
        features,
        stats: merged.text(STATS).map(|text| match text {
            "-" => StatsTarget::Stdout,
            path => StatsTarget::File(path.into()),
        }),
        quiet: merged.switch(QUIET)?,
        allow_unmanaged: merged.switch(ALLOW_UNMANAGED)?,
        budget_source,
        prefetch_source: merged.get(variables::PREFETCH).map(|found| found.origin.clone()),
    })
}

/// Merges flags, environment and file.
fn merge(args: &RunArgs, env: &impl Fn(&str) -> Option<String>) -> Result<Merged, Error> {
    let file = file::read(args.config.as_deref(), env, &KEYS.map(|key| key.file))?;
    let mut merged = Vec::new();
    for key in &KEYS {
        let found = match flag(args, key.variable)? {
            Some(text) => Some(Found { text, origin: key.flag.into() }),
            None => env(key.variable).map(|text| Found { text, origin: key.variable.into() }).or_else(|| {
                let text = file.as_ref()?.get(key.file)?;
                Some(Found { text, origin: format!("{}: {}", file.as_ref()?.path.display(), key.file) })
            }),
        };
        merged.extend(found.map(|found| (key.variable, found)));
    }
    Ok(Merged(merged))
}

/// A flag's text. An empty value is a mistake here, whereas an empty variable counts as unset.
fn flag(args: &RunArgs, variable: &str) -> Result<Option<String>, Error> {
    let text = match variable {
        variables::LOCAL => args.local.clone(),
        variables::RAM => args.ram.clone(),
        variables::FAR => {
            if let Some(url) = args.far.iter().find(|url| url.contains(char::is_whitespace)) {
                return Err(Error::Setting {
                    origin: "--far".into(),
                    why: format!(
                        "'{url}' contains a space; give each tier its own --far, and write %20 for a blank in a path"
                    ),
                });
            }
            if args.far.iter().any(String::is_empty) { Some(String::new()) } else { joined(&args.far) }
        }
        variables::REPLICAS => args.replicas.clone(),
        variables::ENCRYPT => args.encrypt.then(|| "1".into()),
        variables::TLS => args.identity.tls.clone(),
        variables::TLS_CA => args.identity.tls_ca.clone(),
        variables::KEY_FILE => args.identity.key_file.clone(),
        variables::HEAP => args.heap.clone(),
        variables::EVICT => args.evict.clone(),
        variables::PREFETCH => args.prefetch.clone(),
        variables::READ_AHEAD => args.read_ahead.clone(),
        variables::PREFETCH_CACHE => args.prefetch_cache.clone(),
        variables::FEATURES => args.features.clone(),
        variables::FAULT_PATH => args.fault_path.clone(),
        STATS => args.stats.clone(),
        QUIET => args.quiet.then(|| "1".into()),
        ALLOW_UNMANAGED => args.allow_unmanaged.then(|| "1".into()),
        _ => None,
    };
    if text.as_deref() == Some("") {
        let origin = KEYS.iter().find(|key| key.variable == variable).map_or(variable, |key| key.flag);
        return Err(Error::Setting {
            origin: origin.into(),
            why: "is empty; leave the flag out or give it a value".into(),
        });
    }
    Ok(text)
}

fn joined(urls: &[String]) -> Option<String> {
    (!urls.is_empty()).then(|| urls.join(" "))
}

/// Reads the credentials for memory nodes once, so that what is wrong with them is said now, and makes their paths good for programs
/// in other directories. Whether there are any.
fn settle_credentials(settings: &mut Settings, merged: &Merged) -> Result<bool, Error> {
    let given =
        [variables::KEY_FILE, variables::TLS, variables::TLS_CA].into_iter().find(|name| merged.get(name).is_some());
    let Some(given) = given else { return Ok(false) };
    let absolute = |path: &str| match path {
        "" => Ok(String::new()),
        path => std::path::absolute(path).map(|path| path.display().to_string()),
    };
    let refuse = |why: String| merged.refuse(given, why);
    let sources =
        Sources::new(&settings.tls, &settings.tls_ca, &settings.key_file).map_err(|why| refuse(why.to_string()))?;
    sources.as_ref().map(ClientCredentials::read).transpose().map_err(|why| refuse(why.to_string()))?;
    let pair: Result<Vec<String>, _> = settings.tls.split(',').map(absolute).collect();
    let io = |error: std::io::Error| refuse(error.to_string());
    settings.tls = pair.map_err(io)?.join(",");
    settings.tls_ca = absolute(&settings.tls_ca).map_err(io)?;
    settings.key_file = absolute(&settings.key_file).map_err(io)?;
    Ok(true)
}

/// Refuses URLs that no backend takes, and puts addresses beside the names of nodes: the library in the program looks no name up.
fn settle_urls(urls: &mut [String], secured: bool) -> Result<(), String> {
    for url in urls {
        let mut parsed = hinterland_backend::parse(url).map_err(|error| error.to_string())?;
        let Scheme::Nodes { endpoints, .. } = &mut parsed.scheme else { continue };
        let named = endpoints.clone();
        for endpoint in endpoints.iter_mut() {
            *endpoint = node::resolved(endpoint, secured).map_err(|error| error.to_string())?;
        }
        if *endpoints == named {
            continue;
        }
        *url = parsed.to_string();
        // Two names may stand for one address.
        hinterland_backend::parse(url).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Has memory nodes keep every page so often; refuses where there are none.
fn settle_replicas(urls: &mut [String], replicas: usize) -> Result<(), String> {
    if !urls.iter().any(|url| hinterland_backend::names_nodes(url)) {
        return Err(format!(
            "{replicas} replicas need as many memory nodes; name them with --far tcp://HOST:PORT,tcp://HOST:PORT"
        ));
    }
    hinterland_backend::set_replicas(urls, replicas).map_err(|error| error.to_string())
}

/// Gives the budgets that nobody set their defaults, and refuses contradictory ones.
///
/// With nothing set, both are 80 % of what the process may use: `--ram` counts the compressed store too, so a run without
/// flags cannot outgrow its cgroup. With only `--ram`, local memory may fill it.
fn fill_budgets(settings: &mut Settings, merged: &Merged, host: &Host) -> Result<Option<String>, Error> {
    match (settings.local, settings.ram) {
        (Some(local), Some(ram)) => {
            let contradict = match (local, ram) {
                (Budget::Bytes(local), Budget::Bytes(ram)) => ram < local,
                (Budget::PercentOfTouched(local), Budget::PercentOfTouched(ram)) => ram < local,
                // A share and a size can only be compared while the program runs; the pager keeps both.
                _ => false,
            };
            if contradict {
                return Err(Error::RamBelowLocal {
                    ram_origin: merged.origin(variables::RAM),
                    ram: readable(ram),
                    local_origin: merged.origin(variables::LOCAL),
                    local: readable(local),
                });
            }
            Ok(None)
        }
        (Some(_), None) => Ok(None),
        (None, Some(ram)) => {
            settings.local = Some(ram);
            Ok(None)
        }
        (None, None) => {
            let available = host.available()?;
            let budget = ByteCount(available.bytes / 5 * 4);
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

/// A budget for people.
pub fn readable(budget: Budget) -> String {
    match budget {
        Budget::Bytes(bytes) => bytes.to_string(),
        share @ Budget::PercentOfTouched(_) => format!("{share} of the touched memory"),
    }
}
