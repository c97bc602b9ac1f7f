//! Why Hinterland itself could not do what was asked, and the exit code that says so.
//!
//! As `env` and `docker run` do: 127 when the program does not exist, 126 when it cannot be executed, 125 when Hinterland
//! refuses or fails. Everything else is the program's own code.

use crate::program::Unmanageable;
use hinterland_units::{ByteCount, Foreign};
use std::io;
use std::path::PathBuf;

/// Exit code of Hinterland's own refusals and failures.
pub const EXIT_REFUSED: u8 = 125;

/// What went wrong before or around the program's run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting cannot be used.
    #[error("{origin}: {why}")]
    Setting {
        /// The flag, variable, or file and name.
        origin: String,
        /// What is wrong and what may be written.
        why: String,
    },
    /// The settings file cannot be read.
    #[error("{}: {why}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Total RAM below the local budget.
    #[error(
        "{ram_origin} ({ram}) is smaller than {local_origin} ({local}); --ram bounds local memory, the compressed store and tables together, so raise it or lower --local"
    )]
    RamBelowLocal {
        /// Where the RAM bound was set.
        ram_origin: String,
        /// The RAM bound.
        ram: String,
        /// Where the local budget was set.
        local_origin: String,
        /// The local budget.
        local: String,
    },
    /// The memory that this process may use is too small for any budget.
    #[error(
        "80 % of the available memory ({available}, from {source_name}) is below the smallest budget, {floor}; free some memory or raise the limit"
    )]
    MachineTooSmall {
        /// What may be used.
        available: ByteCount,
        /// Where that is written.
        source_name: String,
        /// The smallest budget.
        floor: ByteCount,
    },
    /// No such program.
    #[error("{name}: {}", no_program(name))]
    ProgramNotFound {
        /// As given.
        name: String,
    },
    /// The program exists but cannot be executed.
    #[error("{name}: cannot be executed: {why}")]
    ProgramNotExecutable {
        /// As given.
        name: String,
        /// The system's reason.
        why: String,
    },
    /// The program cannot be managed.
    #[error("{why}; {remedy}", remedy = .why.remedy())]
    Unmanageable {
        /// Why.
        why: Unmanageable,
    },
    /// The kernel lends no userfaultfd.
    #[error("userfaultfd {what}; {remedy}. `hinterland doctor` shows all checks")]
    NoUserfaultfd {
        /// How it is refused.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The inline path is asked for, or the only one, and cannot be used.
    #[error("the inline fault path cannot be used: {what}; {remedy}. `hinterland doctor` shows all checks")]
    NoInline {
        /// What is missing.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// `ulimit -v` leaves too little address space.
    #[error(
        "the address space is limited to {limit} (ulimit -v), and far memory reserves {needed} of it; `ulimit -v unlimited` (the reservation takes no memory)"
    )]
    AddressSpace {
        /// The limit.
        limit: ByteCount,
        /// What far memory reserves.
        needed: ByteCount,
    },
    /// `ulimit -d` leaves too little private writable memory.
    #[error(
        "private writable memory is limited to {limit} (ulimit -d), and far memory needs {needed} of it beside the program's own; `ulimit -d unlimited`, or a higher limit"
    )]
    WritableMemory {
        /// The limit.
        limit: ByteCount,
        /// What far memory needs.
        needed: ByteCount,
    },
    /// `ulimit -f` leaves no room for the shared figures.
    #[error(
        "files may have {limit} at most (ulimit -f), and the shared memory for the run's figures has {needed} (it takes what is used); `ulimit -f unlimited`"
    )]
    FileLength {
        /// The limit.
        limit: ByteCount,
        /// What the ledger needs.
        needed: ByteCount,
    },
    /// The preloaded library is not there or cannot be used.
    #[error(
        "{what}; install libhinterland.so beside the hinterland command, in ../lib or ../lib/hinterland, or set HINTERLAND_LIBRARY to its path"
    )]
    Library {
        /// What is wrong.
        what: String,
    },
    /// The measurements are a program of their own.
    #[error(
        "{bench} is not installed: it is neither in {home} nor in PATH; build it with `cargo build --release -p {bench}` and put it beside the hinterland command",
        bench = "hinterland-bench", home = home.display()
    )]
    NoBench {
        /// Where the launcher lies.
        home: PathBuf,
    },
    /// No clang that the compiler's plugin fits.
    #[error(
        "{name}-22 is not in PATH{}: the compiler's plugin is made for LLVM 22; install the package clang-22",
        .found.as_ref().map_or(String::new(), |version| format!(", and {name} there is {version}"))
    )]
    NoClang {
        /// `clang` or `clang++`.
        name: &'static str,
        /// The version of the one that is there.
        found: Option<String>,
    },
    /// No rustc whose bitcode the linker reads.
    #[error("no rustc with LLVM 22: {why}; the compiler's plugin is made for that version")]
    NoRustc {
        /// What was found.
        why: String,
    },
    /// No lld of that LLVM.
    #[error("ld.lld-{major} is not in PATH: it optimises what rustc emits; install the package lld-{major}")]
    NoLld {
        /// The version.
        major: &'static str,
    },
    /// The compiler's plugin is not there.
    #[error(
        "{name} is not installed with the hinterland command: it is built where clang-22 and llvm-22-dev are installed (`compiler/build` makes it)"
    )]
    NoPlugin {
        /// Its file name.
        name: &'static str,
    },
    /// A plan cannot be used.
    #[error("{}: {why}", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The statistics file cannot be written.
    #[error("--stats: {}: the figures cannot be written: {source}", path.display())]
    Stats {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The trace cannot be written.
    #[error("--output: {}: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// What is to be written would replace what the run needs.
    #[error("{flag}: {} is {what}, and would be replaced; name another file", path.display())]
    Needed {
        /// What names the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What it is to the run.
        what: &'static str,
    },
    /// A system call failed that does not fail on a healthy machine.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

fn no_program(name: &str) -> &'static str {
    match name {
        "''" => {
            "the program has no name; write it after Hinterland's own flags: `hinterland run --local 512M -- PROGRAM`"
        }
        name if name.starts_with('-') => {
            "no such program in PATH; Hinterland's own flags stand before the program, and before --: `hinterland run --local 512M -- PROGRAM`"
        }
        name if name.contains('/') => "no such file",
        _ => "no such program in PATH",
    }
}

impl Error {
    /// A system call's failure, with what was tried.
    pub fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { what, source: source.into() }
    }

    /// What else can be done where a command has `--allow-unmanaged`, to be said after the message.
    pub fn way_round(&self) -> &'static str {
        match self {
            Error::Unmanageable { .. } | Error::AddressSpace { .. } | Error::WritableMemory { .. } => {
                ", or run it unmanaged with --allow-unmanaged"
            }
            Error::NoUserfaultfd { .. } | Error::NoInline { .. } => {
                "; --allow-unmanaged runs the program without Hinterland"
            }
            _ => "",
        }
    }

    /// The exit code that the launcher ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::ProgramNotFound { .. } => 127,
            Error::ProgramNotExecutable { .. } => 126,
            _ => EXIT_REFUSED,
        }
    }
}

/// Writes one line to stderr, foreign text in it escaped; a closed stderr is no reason to stop.
pub fn complain(what: impl std::fmt::Display) {
    let what = what.to_string();
    tell(format_args!("hinterland: {}\n", Foreign(&what)));
}

/// Writes to stderr what has no foreign text in it that is not escaped; a closed stderr is no reason to stop.
pub fn tell(what: impl std::fmt::Display) {
    use io::Write;
    // One call: lines of several processes do not mix.
    let _ = io::stderr().write_all(what.to_string().as_bytes());
}
