//! A memory cgroup for one run: v1 (`memory.limit_in_bytes`) or v2 (`memory.max`), whichever holds the memory controller.

use super::undo::{Changes, Guard, Undo};
use crate::error::{BenchError, read, write};
use procfs::process::Process;
use std::path::{Path, PathBuf};

/// Which of the kernel's two interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Version {
    fn usage(self) -> &'static str {
        match self {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        }
    }

    fn limit(self) -> &'static str {
        match self {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }

    /// The file with the line `oom_kill N`.
    fn events(self) -> &'static str {
        match self {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        }
    }
}

/// Where groups are made.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    root: PathBuf,
    version: Version,
}

impl Hierarchy {
    /// Finds the memory controller.
    ///
    /// # Errors
    /// There is none.
    pub fn find() -> Result<Hierarchy, BenchError> {
        let mounts = Process::myself().and_then(|me| me.mountinfo()).map_err(|_| BenchError::NoCgroup)?;
        let v1 = mounts.iter().find(|m| m.fs_type == "cgroup" && m.super_options.contains_key("memory"));
        if let Some(mount) = v1 {
            return Ok(Hierarchy { root: mount.mount_point.clone(), version: Version::One });
        }
        let v2 = mounts.iter().find(|m| {
            let controllers = read(&m.mount_point.join("cgroup.controllers")).unwrap_or_default();
            m.fs_type == "cgroup2" && controllers.split(' ').any(|name| name == "memory")
        });
        let mount = v2.ok_or(BenchError::NoCgroup)?;
        let (root, version) = (mount.mount_point.clone(), Version::Two);
        let control = root.join("cgroup.subtree_control");
        if !read(&control)?.split(' ').any(|name| name == "memory") {
            write(&control, "+memory")?;
        }
        Ok(Hierarchy { root, version })
    }

    /// Makes a group for one run.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make(&self, name: &str, changes: &Changes) -> Result<Cgroup, BenchError> {
        let path = self.root.join(name);
        let guard = changes.register(Undo::RemoveCgroup(path.clone()));
        std::fs::create_dir(&path).map_err(BenchError::io("make the cgroup", &path))?;
        Ok(Cgroup { path, version: self.version, _guard: guard })
    }
}

/// A group; dropped, it kills what still runs in it.
pub struct Cgroup {
    path: PathBuf,
    version: Version,
    _guard: Guard,
}

impl Cgroup {
    /// The file into which a process writes `0` to enter.
    pub fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// The memory charged to the group: anonymous, page cache, page tables and other kernel memory. Swapped-out pages are
    /// not in it; zram's store is not either.
    pub fn usage_bytes(&self) -> Result<u64, BenchError> {
        self.figure(self.version.usage())
    }

    /// Bounds that memory.
    pub fn set_limit(&self, bytes: u64) -> Result<(), BenchError> {
        write(&self.path.join(self.version.limit()), &bytes.to_string())
    }

    /// Processes that the limit killed.
    pub fn killed(&self) -> u64 {
        let events = read(&self.path.join(self.version.events())).unwrap_or_default();
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        count.unwrap_or(0)
    }

    /// The processes in the group.
    pub fn pids(&self) -> Vec<i32> {
        let text = read(&self.door()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn figure(&self, file: &str) -> Result<u64, BenchError> {
        let path: &Path = &self.path.join(file);
        read(path)?.parse().map_err(|_| BenchError::NoCgroup)
    }
}
