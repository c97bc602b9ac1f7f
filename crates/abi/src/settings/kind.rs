//! The kinds of values that settings have: how each is read, how it is written, and why it may be refused.

use hinterland_units::{Budget, BudgetError, ByteCount, CopyBound, CopyBoundError, SizeError, Slowdown, SlowdownError};
use std::fmt;
use std::str::FromStr;

/// How a setting's text becomes a value, and the value text. A value that is unset is written as an empty text, which is never read.
pub struct Kind<T> {
    pub read: fn(&str) -> Result<T, EnvError>,
    pub write: fn(&T) -> String,
}

/// Pages of a microset at most: 4 GiB.
const MICROSET_PAGES_MAX: u32 = 1 << 20;
/// Pages of a read-ahead window at most: 2 MiB.
const WINDOW_PAGES_MAX: u32 = 512;
/// Pages that are asked for ahead by a tape at most: 256 MiB.
const TAPE_PAGES_MAX: u32 = 1 << 16;
/// The smallest block, a page, and the largest, what a huge page has.
const BLOCK_MIN: ByteCount = ByteCount(4 << 10);
const BLOCK_MAX: ByteCount = ByteCount(2 << 20);
/// Processors that can be named: as many as the kernel has at most.
const CPUS_MAX: u32 = 1024;
/// The least that may be left to prefetched pages.
const PREFETCH_CACHE_MIN: ByteCount = ByteCount(1 << 20);

pub const TEXT: Kind<String> = Kind { read: |text| Ok(text.into()), write: Clone::clone };
pub const SWITCH: Kind<bool> = Kind { read: parse_switch, write: |on| if *on { "1".into() } else { String::new() } };
pub const WORDS: Kind<Vec<String>> =
    Kind { read: |text| Ok(text.split_whitespace().map(str::to_owned).collect()), write: |words| words.join(" ") };
pub const BUDGET: Kind<Option<Budget>> =
    Kind { read: |text| text.parse().map(Some).map_err(EnvError::Budget), write: shown };
pub const REPLICAS: Kind<Option<usize>> = Kind { read: |text| parse_replicas(text).map(Some), write: shown };
pub const PAGES: Kind<Option<u32>> = Kind { read: |text| parse_pages(text).map(Some), write: shown };
/// A number of pages, or `auto`: as it was planned.
pub const TAPE_PAGES: Kind<Option<u32>> = Kind { read: parse_tape_pages, write: shown };
/// A block's size, or `auto`: as large as it is by itself.
pub const BLOCK: Kind<Option<ByteCount>> = Kind {
    read: parse_block,
    // In full, as above.
    write: |size| size.map(|size| size.0.to_string()).unwrap_or_default(),
};
/// A number of processors, or `auto`: all that there are.
pub const CPUS: Kind<Option<u32>> = Kind { read: parse_cpus, write: shown };
/// A number that the launcher writes: what is none says nothing.
pub const COUNT: Kind<Option<u32>> = Kind { read: |text| Ok(text.parse().ok()), write: shown };
pub const MICROSET: Kind<Option<u32>> = Kind { read: |text| parse_microset(text).map(Some), write: shown };
pub const SLOWDOWN: Kind<Option<Slowdown>> =
    Kind { read: |text| text.parse().map(Some).map_err(EnvError::Slowdown), write: shown };
pub const COPIES: Kind<Option<CopyBound>> =
    Kind { read: |text| text.parse().map(Some).map_err(EnvError::Copies), write: shown };
pub const CACHE: Kind<Option<ByteCount>> = Kind {
    read: |text| parse_prefetch_cache(text).map(Some),
    // In full: a size for people is rounded.
    write: |size| size.map(|size| size.0.to_string()).unwrap_or_default(),
};

/// One of several names.
pub const fn choice<T: FromStr<Err = EnvError> + fmt::Display>() -> Kind<T> {
    Kind { read: T::from_str, write: |choice| choice.to_string() }
}

fn shown<T: fmt::Display>(value: &Option<T>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
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
    /// Not a number of pages of a tape.
    TapePages(String),
    /// Too small for prefetched pages.
    PrefetchCache(ByteCount),
    /// Not a number of replicas.
    Replicas(String),
    /// Not a size for a microset.
    Microset(String),
    /// Not the size of a block.
    Block(String),
    /// Not a number of processors.
    Cpus(String),
    /// Neither yes nor no.
    Switch(String),
    /// Not a slowdown.
    Slowdown(SlowdownError),
    /// Not a bound on copies.
    Copies(CopyBoundError),
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
            EnvError::Pages(s) => write!(f, "'{s}' is not a number of pages from 0 to {WINDOW_PAGES_MAX}"),
            EnvError::TapePages(s) => {
                write!(f, "'{s}' is neither auto nor a number of pages from 1 to {TAPE_PAGES_MAX}")
            }
            EnvError::PrefetchCache(size) => {
                let question = size.question_before(PREFETCH_CACHE_MIN);
                write!(
                    f,
                    "{question}{size} is below the smallest prefetch cache, {PREFETCH_CACHE_MIN}: four usual windows"
                )
            }
            EnvError::Block(s) => {
                write!(
                    f,
                    "'{s}' is neither auto nor the size of a block: a power of two from {BLOCK_MIN} to {BLOCK_MAX}, such as 64K"
                )
            }
            EnvError::Cpus(s) => write!(f, "'{s}' is neither auto nor a number of processors from 1 to {CPUS_MAX}"),
            EnvError::Slowdown(e) => e.fmt(f),
            EnvError::Copies(e) => e.fmt(f),
            EnvError::Switch(s) => write!(f, "'{s}' is neither yes nor no; write 1 or 0"),
            EnvError::Microset(s) => write!(f, "'{s}' is not a number of pages from 1 to {MICROSET_PAGES_MAX}"),
        }
    }
}

impl std::error::Error for EnvError {}

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

/// Reads the size of a block; `None`: what it is by itself.
///
/// # Errors
/// It is neither `auto` nor one.
pub fn parse_block(text: &str) -> Result<Option<ByteCount>, EnvError> {
    if text == "auto" {
        return Ok(None);
    }
    let is_block = |size: &ByteCount| (BLOCK_MIN..=BLOCK_MAX).contains(size) && size.0.is_power_of_two();
    let size = text.parse().ok().filter(is_block);
    size.map(Some).ok_or_else(|| EnvError::Block(text.into()))
}

/// Reads a number of processors; `None`: all.
///
/// # Errors
/// It is neither `auto` nor one.
pub fn parse_cpus(text: &str) -> Result<Option<u32>, EnvError> {
    match text.parse() {
        _ if text == "auto" => Ok(None),
        Ok(cpus @ 1..=CPUS_MAX) => Ok(Some(cpus)),
        _ => Err(EnvError::Cpus(text.into())),
    }
}

fn parse_tape_pages(text: &str) -> Result<Option<u32>, EnvError> {
    match text.parse() {
        _ if text == "auto" => Ok(None),
        Ok(pages @ 1..=TAPE_PAGES_MAX) => Ok(Some(pages)),
        _ => Err(EnvError::TapePages(text.into())),
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

/// Reads how many nodes keep each page.
fn parse_replicas(text: &str) -> Result<usize, EnvError> {
    text.parse().ok().filter(|replicas| *replicas > 0).ok_or_else(|| EnvError::Replicas(text.into()))
}

/// Reads a bound on prefetched pages.
///
/// # Errors
/// It is no size, or below the least.
pub fn parse_prefetch_cache(text: &str) -> Result<ByteCount, EnvError> {
    let size: ByteCount = text.parse().map_err(EnvError::Size)?;
    if size < PREFETCH_CACHE_MIN { Err(EnvError::PrefetchCache(size)) } else { Ok(size) }
}

/// Reads the pages of a window.
fn parse_pages(text: &str) -> Result<u32, EnvError> {
    match text.parse() {
        Ok(pages @ 0..=WINDOW_PAGES_MAX) => Ok(pages),
        _ => Err(EnvError::Pages(text.into())),
    }
}
