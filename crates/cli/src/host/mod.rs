//! What the machine gives: cgroup limits, memory, kernel parameters. Reads files below a root, so that tests can set up any
//! machine as a directory tree.

mod cgroup;
mod memory;

pub use cgroup::{CgroupLimit, CgroupVersion, MemoryEvents};
pub use memory::Memory;

use crate::error::Error;
use nix::sys::sysinfo::sysinfo;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A machine, seen through its file system.
pub struct Host {
    root: PathBuf,
    /// The memory cgroups of this process, looked up once: they are asked for several times in a run, and a launcher stays in its group.
    groups: OnceLock<Option<Vec<cgroup::Group>>>,
}

/// How much memory this process may use, and which file says so.
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// For people: where the number comes from.
    pub source: String,
}

impl Host {
    /// The machine that this process runs on.
    pub fn here() -> Host {
        Host { root: "/".into(), groups: OnceLock::new() }
    }

    /// A machine made of files below `root`.
    #[cfg(test)]
    pub fn at(root: &Path) -> Host {
        Host { root: root.into(), groups: OnceLock::new() }
    }

    /// An absolute path on this machine.
    fn path(&self, absolute: &Path) -> PathBuf {
        self.root.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// A file's text without the space around it; `None` when it cannot be read.
    pub fn read(&self, absolute: impl AsRef<Path>) -> Option<String> {
        let text = std::fs::read_to_string(self.path(absolute.as_ref())).ok()?;
        Some(text.trim().to_owned())
    }

    /// The memory cgroups that this process is in; `None` when that cannot be read.
    fn groups(&self) -> Option<&[cgroup::Group]> {
        self.groups.get_or_init(|| cgroup::groups(self)).as_deref()
    }

    /// The tightest memory limit of the cgroups that this process is in.
    pub fn cgroup_limit(&self) -> Option<CgroupLimit> {
        cgroup::tightest(self)
    }

    /// What the kernel has counted in this process's cgroup where memory ran out.
    pub fn memory_events(&self) -> Option<MemoryEvents> {
        cgroup::events(self)
    }

    /// How many processes of this process's cgroup the kernel has killed because memory was used up.
    pub fn memory_kills(&self) -> Option<u64> {
        cgroup::kills(self)
    }

    /// RAM and swap.
    pub fn memory(&self) -> Option<Memory> {
        memory::read(self)
    }

    /// The machine's RAM or the cgroup's limit, whichever is less. A service may not see `/proc/meminfo`: then RAM is what sysinfo(2) says.
    pub fn there_bytes(&self) -> Option<u64> {
        let memory = self.memory().map(|memory| memory.total_bytes);
        let memory = memory.or_else(|| sysinfo().ok().map(|machine| machine.ram_total()));
        memory.into_iter().chain(self.cgroup_limit().map(|limit| limit.bytes)).min()
    }

    /// The cgroup limit or the available memory, whichever is less.
    ///
    /// # Errors
    /// When neither can be read.
    pub fn available(&self) -> Result<Available, Error> {
        self.bounded("available memory, /proc/meminfo", |memory| memory.available_bytes)
    }

    /// The inode of the cgroup that has a limit: that of the same cgroup for all that see it.
    pub fn cgroup_inode(&self, limit: &CgroupLimit) -> Option<u64> {
        Some(std::fs::metadata(self.path(limit.file.parent()?)).ok()?.ino())
    }

    /// What local memory may have of so many bytes of RAM, where nothing else is said: the rest is for tables and for what is not managed.
    pub fn for_local(bytes: u64) -> u64 {
        bytes / 5 * 4
    }

    /// The RAM that the processes of this cgroup may ever use.
    ///
    /// # Errors
    /// As for [`Host::available`].
    pub fn ram(&self) -> Result<Available, Error> {
        self.bounded("RAM, /proc/meminfo", |memory| memory.total_bytes)
    }

    /// The cgroup's limit or what `of_memory` takes from /proc/meminfo, whichever is less.
    fn bounded(&self, source: &str, of_memory: impl Fn(Memory) -> u64) -> Result<Available, Error> {
        match (self.cgroup_limit(), self.memory().map(of_memory)) {
            (Some(limit), memory) if memory.is_none_or(|memory| limit.bytes <= memory) => {
                Ok(Available { bytes: limit.bytes, source: limit.file.display().to_string() })
            }
            (_, Some(bytes)) => Ok(Available { bytes, source: source.into() }),
            (_, None) => Err(Error::Setting {
                origin: "--local".into(),
                why:
                    "neither a cgroup limit nor /proc/meminfo can be read here; give a budget, for example --local 512M"
                        .into(),
            }),
        }
    }
}
