//! Why the bench cannot do what was asked.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the bench's.
#[derive(thiserror::Error, Debug)]
pub enum BenchError {
    /// Swap and cgroups belong to root.
    #[error(
        "the kernel's rivals ({0}) need root, to set up swap and a memory limit; run the bench with sudo (bench paging measures without them: --against all-local)"
    )]
    NeedsRoot(String),
    /// Something that the bench would change is in use.
    #[error("{what} is in use; the bench would disturb it and be disturbed. {remedy}")]
    InUse {
        /// What.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The kernel has no zram.
    #[error(
        "the kernel offers no {0}; load it (modprobe zram num_devices=1); bench paging can leave zram out of --against"
    )]
    NoZram(PathBuf),
    /// No memory controller.
    #[error(
        "no cgroup memory controller is mounted where the bench can make a group; mount one (v1 or v2); bench paging can leave zram and ssd-swap out of --against"
    )]
    NoCgroup,
    /// The file system cannot hold a swap file.
    #[error("cannot swap to {path}: {source}; give a directory on a disk's file system (ext4, xfs) with --disk DIR")]
    SwapFile {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is nothing to measure.
    #[error(
        "there is no hinterland command in {} or in PATH, and it is what the bench measures; build it: cargo build --release -p hinterland-cli -p hinterland-runtime",
        .0.display()
    )]
    NoLauncher(PathBuf),
    /// Nonsense.
    #[error("{0}")]
    Setting(String),
    /// A file or a call failed.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A report cannot be read.
    #[error("{path} is no report of this bench: {source}")]
    Report {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A plot cannot be drawn.
    #[error("cannot draw {path}: {reason}")]
    Plot {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl BenchError {
    /// Wraps an I/O error with what was tried on what.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BenchError {
        let path = path.to_owned();
        move |source| BenchError::Io { doing, path, source }
    }
}

/// Writes `value` into a file of /proc, /sys or a cgroup.
pub fn write(path: &Path, value: &str) -> Result<(), BenchError> {
    std::fs::write(path, value).map_err(BenchError::io("write", path))
}

/// Reads such a file, without its last line break.
pub fn read(path: &Path) -> Result<String, BenchError> {
    let text = std::fs::read_to_string(path).map_err(BenchError::io("read", path))?;
    Ok(text.trim_end().to_owned())
}
