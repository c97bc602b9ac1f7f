//! The settings of a managed program, handed over in the environment.
//!
//! The same variables serve a user who sets them by hand and the launcher, which resolves flags, environment and file and
//! writes the result here.

use hinterland_units::{Budget, BudgetError, ByteCount, SizeError};
use std::fmt;
use std::str::FromStr;

/// Names of the environment variables.
pub mod variables {
    /// Local budget: a size or a percentage.
    pub const LOCAL: &str = "HINTERLAND_LOCAL";
    /// Bound on local memory, compressed store and metadata together.
    pub const RAM: &str = "HINTERLAND_RAM";
    /// Backend URLs in tier order, separated by spaces.
    pub const FAR: &str = "HINTERLAND_FAR";
    /// Memory nodes that keep each page.
    pub const REPLICAS: &str = "HINTERLAND_REPLICAS";
    /// Pages are encrypted before they leave the process.
    pub const ENCRYPT: &str = "HINTERLAND_ENCRYPT";
    /// Paths of our certificate and its key, for memory nodes: `CERT,KEY`.
    pub const TLS: &str = "HINTERLAND_TLS";
    /// Path of the CA that signs the nodes' certificates.
    pub const TLS_CA: &str = "HINTERLAND_TLS_CA";
    /// Path of a key that memory nodes have, too.
    pub const KEY_FILE: &str = "HINTERLAND_KEY_FILE";
    /// `all` or `large`.
    pub const HEAP: &str = "HINTERLAND_HEAP";
    /// Eviction policy.
    pub const EVICT: &str = "HINTERLAND_EVICT";
    /// Prefetcher.
    pub const PREFETCH: &str = "HINTERLAND_PREFETCH";
    /// Largest read-ahead window in pages; 0 turns it off.
    pub const READ_AHEAD: &str = "HINTERLAND_READ_AHEAD";
    /// Bound on pages that came ahead and are not known to be used, in bytes.
    pub const PREFETCH_CACHE: &str = "HINTERLAND_PREFETCH_CACHE";
    /// Who serves faults: `auto`, `monitor` or `inline`.
    pub const FAULT_PATH: &str = "HINTERLAND_FAULT_PATH";
    /// Named kernel feature set to pretend (`all`, `5.15`, `6.1`, `6.8`, `6.12`).
    pub const FEATURES: &str = "HINTERLAND_FEATURES";
    /// File that the first process of the run records its trace in; set by the launcher.
    pub const TRACE: &str = "HINTERLAND_TRACE";
    /// Pages of a microset of the trace.
    pub const MICROSET: &str = "HINTERLAND_MICROSET";
    /// Path of the ledger; set by the launcher.
    pub const LEDGER: &str = "HINTERLAND_LEDGER";
}

/// Which allocations are far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HeapMode {
    /// Every allocation and private anonymous mapping of the program.
    #[default]
    All,
    /// Allocations of at least 64 KiB and private anonymous mappings.
    Large,
}

impl FromStr for HeapMode {
    type Err = EnvError;
    fn from_str(text: &str) -> Result<HeapMode, EnvError> {
        match text {
            "all" => Ok(HeapMode::All),
            "large" => Ok(HeapMode::Large),
            _ => Err(EnvError::Choice { what: "heap", written: text.into(), choices: "all, large" }),
        }
    }
}

impl fmt::Display for HeapMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeapMode::All => "all",
            HeapMode::Large => "large",
        })
    }
}

/// Who serves faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FaultPathName {
    /// The fastest path that is safe for the program on this machine.
    #[default]
    Auto,
    /// A thread of Hinterland's in the program's process.
    Monitor,
    /// The thread that faults.
    Inline,
}

impl FromStr for FaultPathName {
    type Err = EnvError;
    fn from_str(text: &str) -> Result<FaultPathName, EnvError> {
        match text {
            "auto" => Ok(FaultPathName::Auto),
            "monitor" => Ok(FaultPathName::Monitor),
            "inline" => Ok(FaultPathName::Inline),
            _ => Err(EnvError::Choice { what: "fault path", written: text.into(), choices: "auto, monitor, inline" }),
        }
    }
}

impl fmt::Display for FaultPathName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultPathName::Auto => "auto",
            FaultPathName::Monitor => "monitor",
            FaultPathName::Inline => "inline",
        })
    }
}

/// The eviction policies that `--evict` selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EvictName {
    /// First in, first out.
    Fifo,
    /// Second chance: a FIFO whose victims get a second round when they are touched in the swap cache.
    SecondChance,
    /// S3-FIFO: small, main and ghost queues; resists scans.
    #[default]
    S3Fifo,
    /// 2Q: in-queue, main queue and ghost queue; resists scans.
    TwoQ,
}

impl EvictName {
    /// All of them.
    pub const ALL: [EvictName; 4] = [EvictName::Fifo, EvictName::SecondChance, EvictName::S3Fifo, EvictName::TwoQ];
}

impl FromStr for EvictName {
    type Err = EnvError;
    fn from_str(text: &str) -> Result<EvictName, EnvError> {
        EvictName::ALL.into_iter().find(|name| name.to_string() == text).ok_or_else(|| EnvError::Choice {
            what: "eviction policy",
            written: text.into(),
            choices: "fifo, second-chance, s3-fifo, 2q",
        })
    }
}

impl fmt::Display for EvictName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EvictName::Fifo => "fifo",
            EvictName::SecondChance => "second-chance",
            EvictName::S3Fifo => "s3-fifo",
            EvictName::TwoQ => "2q",
        })
    }
}

/// The prefetchers that `--prefetch` selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrefetchName {
    /// Streams or runs, by region.
    #[default]
    Auto,
    /// Nothing comes from far memory before the program asks.
    None,
    /// Sequential streams, several at once, in windows that grow while a stream goes on.
    NextN,
    /// Streams of any step, several at once.
    Streams,
    /// The next pages after every major fault.
    NextNLine,
    /// As Linux does: an aligned block around the fault.
    ReadAhead,
    /// As Linux does by virtual address: a stretch in the direction of the last two faults.
    ReadAheadVma,
    /// The last step, once it has repeated.
    Stride,
    /// Leap: the majority of the last steps.
    Leap,
    /// Leap, with a history for each thread.
    LeapPerThread,
}

impl PrefetchName {
    /// All of them, with their names.
    pub const ALL: [(PrefetchName, &str); 10] = [
        (PrefetchName::Auto, "auto"),
        (PrefetchName::None, "none"),
        (PrefetchName::NextN, "next-n"),
        (PrefetchName::Streams, "streams"),
        (PrefetchName::NextNLine, "next-n-line"),
        (PrefetchName::ReadAhead, "readahead"),
        (PrefetchName::ReadAheadVma, "readahead-vma"),
        (PrefetchName::Stride, "stride"),
        (PrefetchName::Leap, "leap"),
        (PrefetchName::LeapPerThread, "leap-per-thread"),
    ];
}

impl FromStr for PrefetchName {
    type Err = EnvError;
    fn from_str(text: &str) -> Result<PrefetchName, EnvError> {
        let known = PrefetchName::ALL.into_iter().find(|(_, name)| *name == text);
        known.map(|(prefetch, _)| prefetch).ok_or_else(|| EnvError::Choice {
            what: "prefetcher",
            written: text.into(),
            choices: "auto, none, next-n, streams, next-n-line, readahead, readahead-vma, stride, leap, leap-per-thread",
        })
    }
}

impl fmt::Display for PrefetchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PrefetchName::ALL.into_iter().find(|(prefetch, _)| prefetch == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// What a managed program needs to know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Bound on mapped, staging and swap-cache pages.
    pub local: Option<Budget>,
    /// Bound on that plus the compressed store plus metadata.
    pub ram: Option<Budget>,
    /// Backend URLs in tier order; empty: the default (compressed RAM, then a file).
    pub far: Vec<String>,
    /// Memory nodes that keep each page; `None`: one, or what the URLs say.
    pub replicas: Option<usize>,
    /// Pages are encrypted before they leave the process.
    pub encrypt: bool,
    /// Paths of our certificate and its key, for memory nodes; empty: none.
    pub tls: String,
    /// Path of the CA that signs the nodes' certificates; empty: none.
    pub tls_ca: String,
    /// Path of a key that memory nodes have, too; empty: none.
    pub key_file: String,
    /// Which allocations are far.
    pub heap: HeapMode,
    /// Eviction policy.
    pub evict: EvictName,
    /// Prefetcher.
    pub prefetch: PrefetchName,
    /// Largest read-ahead window in pages; `None`: what is usual for the prefetcher.
    pub read_ahead_pages: Option<u32>,
    /// Bound on pages that came ahead and are not known to be used; `None`: what the windows need.
    pub prefetch_cache: Option<ByteCount>,
    /// Who serves faults.
    pub fault_path: FaultPathName,
    /// Kernel feature set to pretend; empty: what the kernel has.
    pub features: String,
    /// File for a trace; empty: none is recorded.
    pub trace: String,
    /// Pages of a microset; `None`: as many as usual.
    pub microset_pages: Option<u32>,
    /// Path of the ledger; empty: no launcher listens.
    pub ledger: String,
}

/// Why a setting cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EnvError {
    /// Not a budget.
    Budget(BudgetError),
    /// Not a size.
    Size(SizeError),
    /// None of the choices.
    Choice {
        /// The setting.
        what: &'static str,
        /// What was written.
        written: String,
        /// What may be written.
        choices: &'static str,
    },
    /// Not a number of pages.
    Pages(String),
    /// Too small for prefetched pages.
    PrefetchCache(ByteCount),
    /// Not a number of replicas.
    Replicas(String),
    /// Not a size for a microset.
    Microset(String),
    /// Neither yes nor no.
    Switch(String),
}

impl fmt::Display for EnvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnvError::Budget(e) => e.fmt(f),
            EnvError::Size(e) => e.fmt(f),
            EnvError::Choice { what, written, choices } => write!(f, "'{written}' is no {what}; choose from {choices}"),
            EnvError::Replicas(s) => {
                write!(f, "'{s}' is not a number of replicas; write how many memory nodes keep each page")
            }
            EnvError::Pages(s) => write!(f, "'{s}' is not a number of pages from 0 to 512"),
            EnvError::PrefetchCache(size) => {
                write!(f, "{size} is below the smallest prefetch cache, {PREFETCH_CACHE_MIN}: four usual windows")
            }
            EnvError::Switch(s) => write!(f, "'{s}' is neither yes nor no; write 1 or 0"),
            EnvError::Microset(s) => write!(f, "'{s}' is not a number of pages from 1 to {MICROSET_PAGES_MAX}"),
        }
    }
}

impl std::error::Error for EnvError {}

impl Settings {
    /// Reads the settings through `get`, which returns a variable's value. An unset or empty variable keeps the default.
    ///
    /// # Errors
    /// The variable's name and what is wrong with its value.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Settings, (&'static str, EnvError)> {
        let get = |name: &'static str| get(name).filter(|value| !value.is_empty());
        let mut settings = Settings::default();
        if let Some(text) = get(variables::LOCAL) {
            settings.local = Some(text.parse().map_err(|e| (variables::LOCAL, EnvError::Budget(e)))?);
        }
        if let Some(text) = get(variables::RAM) {
            settings.ram = Some(text.parse().map_err(|e| (variables::RAM, EnvError::Budget(e)))?);
        }
        if let Some(text) = get(variables::FAR) {
            settings.far = text.split_whitespace().map(str::to_owned).collect();
        }
        if let Some(text) = get(variables::REPLICAS) {
            let replicas = text.parse().ok().filter(|replicas| *replicas > 0);
            settings.replicas = Some(replicas.ok_or((variables::REPLICAS, EnvError::Replicas(text)))?);
        }
        if let Some(text) = get(variables::ENCRYPT) {
            settings.encrypt = parse_switch(&text).map_err(|e| (variables::ENCRYPT, e))?;
        }
        settings.tls = get(variables::TLS).unwrap_or_default();
        settings.tls_ca = get(variables::TLS_CA).unwrap_or_default();
        settings.key_file = get(variables::KEY_FILE).unwrap_or_default();
        if let Some(text) = get(variables::HEAP) {
            settings.heap = text.parse().map_err(|e| (variables::HEAP, e))?;
        }
        if let Some(text) = get(variables::EVICT) {
            settings.evict = text.parse().map_err(|e| (variables::EVICT, e))?;
        }
        if let Some(text) = get(variables::PREFETCH) {
            settings.prefetch = text.parse().map_err(|e| (variables::PREFETCH, e))?;
        }
        if let Some(text) = get(variables::READ_AHEAD) {
            settings.read_ahead_pages = Some(parse_pages(&text).map_err(|e| (variables::READ_AHEAD, e))?);
        }
        if let Some(text) = get(variables::PREFETCH_CACHE) {
            settings.prefetch_cache = Some(parse_cache(&text).map_err(|e| (variables::PREFETCH_CACHE, e))?);
        }
        if let Some(text) = get(variables::FAULT_PATH) {
            settings.fault_path = text.parse().map_err(|e| (variables::FAULT_PATH, e))?;
        }
        settings.features = get(variables::FEATURES).unwrap_or_default();
        settings.trace = get(variables::TRACE).unwrap_or_default();
        if let Some(text) = get(variables::MICROSET) {
            settings.microset_pages = Some(parse_microset(&text).map_err(|e| (variables::MICROSET, e))?);
        }
        settings.ledger = get(variables::LEDGER).unwrap_or_default();
        Ok(settings)
    }

    /// The variables that hand these settings to a program; an empty value means "unset it".
    pub fn to_env(&self) -> Vec<(&'static str, String)> {
        let budget = |b: Option<Budget>| b.map(|b| b.to_string()).unwrap_or_default();
        vec![
            (variables::LOCAL, budget(self.local)),
            (variables::RAM, budget(self.ram)),
            (variables::FAR, self.far.join(" ")),
            (variables::REPLICAS, self.replicas.map(|replicas| replicas.to_string()).unwrap_or_default()),
            (variables::ENCRYPT, if self.encrypt { "1".into() } else { String::new() }),
            (variables::TLS, self.tls.clone()),
            (variables::TLS_CA, self.tls_ca.clone()),
            (variables::KEY_FILE, self.key_file.clone()),
            (variables::HEAP, self.heap.to_string()),
            (variables::EVICT, self.evict.to_string()),
            (variables::PREFETCH, self.prefetch.to_string()),
            (variables::READ_AHEAD, self.read_ahead_pages.map(|pages| pages.to_string()).unwrap_or_default()),
            (variables::PREFETCH_CACHE, self.prefetch_cache.map(|size| size.0.to_string()).unwrap_or_default()),
            (variables::FAULT_PATH, self.fault_path.to_string()),
            (variables::FEATURES, self.features.clone()),
            (variables::TRACE, self.trace.clone()),
            (variables::MICROSET, self.microset_pages.map(|pages| pages.to_string()).unwrap_or_default()),
            (variables::LEDGER, self.ledger.clone()),
        ]
    }
}

/// Pages of a microset at most: 4 GiB.
const MICROSET_PAGES_MAX: u32 = 1 << 20;

/// Reads the size of a microset.
///
/// # Errors
/// It is no number, or out of bounds.
pub fn parse_microset(text: &str) -> Result<u32, EnvError> {
    match text.parse() {
        Ok(pages @ 1..=MICROSET_PAGES_MAX) => Ok(pages),
        _ => Err(EnvError::Microset(text.into())),
    }
}

/// Reads yes or no.
///
/// # Errors
/// It is neither.
pub fn parse_switch(text: &str) -> Result<bool, EnvError> {
    match text.to_ascii_lowercase().as_str() {
        "" | "0" | "false" | "no" | "off" => Ok(false),
        "1" | "true" | "yes" | "on" => Ok(true),
        _ => Err(EnvError::Switch(text.into())),
    }
}

/// The least that may be left to prefetched pages.
const PREFETCH_CACHE_MIN: ByteCount = ByteCount(1 << 20);

/// Reads a bound on prefetched pages.
fn parse_cache(text: &str) -> Result<ByteCount, EnvError> {
    let size: ByteCount = text.parse().map_err(EnvError::Size)?;
    if size < PREFETCH_CACHE_MIN { Err(EnvError::PrefetchCache(size)) } else { Ok(size) }
}

/// Reads a number of pages up to 512 (2 MiB).
fn parse_pages(text: &str) -> Result<u32, EnvError> {
    match text.parse() {
        Ok(pages @ 0..=512) => Ok(pages),
        _ => Err(EnvError::Pages(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, (&'static str, EnvError)> {
        Settings::from_env(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        assert_eq!(read(&[]), Ok(Settings::default()));
    }

    #[test]
    fn reads_back_what_it_writes() {
        let settings = Settings {
            local: "25%".parse().ok(),
            ram: "2G".parse().ok(),
            far: vec!["compressed:4G".into(), "file:/tmp/far?size=1G".into()],
            replicas: Some(2),
            encrypt: true,
            tls: "/etc/a.pem,/etc/a.key".into(),
            tls_ca: "/etc/ca.pem".into(),
            key_file: "/etc/key".into(),
            heap: HeapMode::Large,
            evict: EvictName::TwoQ,
            prefetch: PrefetchName::ReadAheadVma,
            read_ahead_pages: Some(16),
            prefetch_cache: Some(ByteCount(4 << 20)),
            fault_path: FaultPathName::Inline,
            features: "6.1".into(),
            trace: "/tmp/app.trace".into(),
            microset_pages: Some(7),
            ledger: "/proc/1/fd/3".into(),
        };
        let pairs = settings.to_env();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (*n, v.as_str())).collect();
        assert_eq!(read(&pairs), Ok(settings));
    }

    #[test]
    fn names_the_variable_that_is_wrong() {
        assert_eq!(read(&[(variables::HEAP, "some")]).unwrap_err().0, variables::HEAP);
        assert_eq!(read(&[(variables::LOCAL, "1K")]).unwrap_err().0, variables::LOCAL);
        assert_eq!(read(&[(variables::PREFETCH, "markov")]).unwrap_err().0, variables::PREFETCH);
        assert_eq!(read(&[(variables::REPLICAS, "0")]).unwrap_err().0, variables::REPLICAS);
        assert_eq!(read(&[(variables::READ_AHEAD, "9999")]).unwrap_err().0, variables::READ_AHEAD);
        assert_eq!(read(&[(variables::PREFETCH_CACHE, "512K")]).unwrap_err().0, variables::PREFETCH_CACHE);
        assert_eq!(read(&[(variables::MICROSET, "0")]).unwrap_err().0, variables::MICROSET);
    }
}
