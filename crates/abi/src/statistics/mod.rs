//! The statistics: the counters of a run, in shared memory, and how they are added up over a tree of processes.
//!
//! ```text
//! table ─▶ row of the ledger       written by the process, a field for each statistic
//!      ├─▶ Counters, Gauges, …     a row as it was read (crates/cli, figures), added up as the table says
//!      └─▶ names, units, meanings  of the JSON of --stats, and of docs/reference/statistics.md
//! ```
//!
//! A statistic is one line of [`process`] or [`backend`]: its name, its unit and what it means, in the section that says how a tree
//! adds it up, in the group that says which threads write it. Groups begin a cache line each: counters of different threads that
//! share a line cost each of them a cache miss for each count. What stands in the line is all there is to write, beside the code
//! that counts.

pub mod backend;
mod declare;
pub mod process;

/// What a statistic is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistic {
    /// Its field in the ledger.
    pub name: &'static str,
    /// Where the JSON has it: a name, or names with dots between them.
    pub json: &'static str,
    /// The field that keeps the most that it has been, if one does.
    pub peak: Option<&'static str>,
    /// What is counted.
    pub unit: Unit,
    /// How processes are added up.
    pub added: Added,
    /// What it means.
    pub meaning: &'static str,
}

/// What a statistic counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Pages of 4 KiB.
    Pages,
    /// Faults.
    Faults,
    /// Windows of the prefetcher.
    Windows,
    /// Events of the kind that the name says.
    Events,
    /// Nanoseconds.
    Nanoseconds,
    /// Nanoseconds, which the JSON has in seconds.
    Seconds,
    /// No (0) or yes (1), which the JSON has as false or true.
    Flag,
}

/// How a statistic of several processes is added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// The sum over all processes that ever ran.
    Sum,
    /// The largest sum over the processes that lived at one moment, and at least the largest peak of a single process.
    Peak,
    /// The largest of any process.
    Largest,
    /// That of the process with the most managed memory.
    Principal,
    /// Not at all: each process has its own.
    Never,
    /// Bucket by bucket; the JSON has percentiles.
    Histogram,
}

impl Unit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Pages => "pages",
            Unit::Faults => "faults",
            Unit::Windows => "windows",
            Unit::Events => "events",
            Unit::Nanoseconds => "ns",
            Unit::Seconds => "s",
            Unit::Flag => "yes or no",
        }
    }
}

impl Added {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Added::Sum => "sum",
            Added::Peak => "largest sum at one time; of one process, its peak",
            Added::Largest => "largest of any process",
            Added::Principal => "of the process with the most managed memory",
            Added::Never => "of each process",
            Added::Histogram => "by bucket",
        }
    }
}
