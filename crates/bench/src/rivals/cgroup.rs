//! A memory cgroup for one run: v1 (`memory.limit_in_bytes`) or v2 (`memory.max`), whichever holds the memory controller.

use super::undo::{Changes, Guard, Undo};
use crate::error::{BenchError, read, write};
use procfs::process::Process;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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

    /// Names in `memory.stat`: pages of files, and anonymous pages that are mapped.
    fn figures(self) -> (&'static str, &'static str) {
        match self {
            Version::One => ("cache", "rss"),
            Version::Two => ("file", "anon"),
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
pub struct Hierarchy {
    root: PathBuf,
    version: Version,
}

impl Hierarchy {
    /// Finds the memory controller. Where v2's root does not give it to its groups, it does from now on, for good: other groups may have set
    /// limits meanwhile, which would end with it.
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
    /// The kernel refuses, or there is a group of that name already, which is another's and stays.
    pub fn make(&self, name: &str, changes: &Changes) -> Result<Cgroup, BenchError> {
        let path = self.root.join(name);
        let guard = changes.register(Undo::RemoveCgroup(path.clone()));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Cgroup { path, version: self.version, _guard: guard }),
            Err(error) => {
                guard.forget();
                Err(BenchError::io("make the cgroup", &path)(error))
            }
        }
    }
}

/// What is charged to a group at one moment, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Charge {
    /// All of it: anonymous memory, page cache, page tables and other kernel memory.
    pub usage_bytes: u64,
    /// Copies of files, which reclaim drops without swap.
    pub file_cache_bytes: u64,
    /// Anonymous pages that processes map.
    pub anonymous_bytes: u64,
}

impl Charge {
    /// From the text of `memory.stat`. The kernel counts shared memory and the swap cache among the pages of files
    /// (`NR_FILE_PAGES`; mm/shmem.c, mm/swap_state.c): neither can be dropped without swap.
    fn of(version: Version, usage_bytes: u64, stat: &str) -> Charge {
        let value = |line: &str, name: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
        let figure = |name: &str| stat.lines().find_map(|line| value(line, name)).unwrap_or(0);
        let (file, anonymous) = version.figures();
        let file_cache_bytes = figure(file).saturating_sub(figure("shmem") + figure("swapcached"));
        Charge { usage_bytes, file_cache_bytes, anonymous_bytes: figure(anonymous) }
    }

    /// The charge less the copies of files.
    pub fn without_file_cache(&self) -> u64 {
        self.usage_bytes.saturating_sub(self.file_cache_bytes)
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
    fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Makes `command` start in the group.
    ///
    /// # Errors
    /// The group is gone.
    pub fn admit(&self, command: &mut Command) -> Result<(), BenchError> {
        let path = self.door();
        let door = OpenOptions::new().write(true).open(&path).map_err(BenchError::io("open", &path))?;
        let enter = move || nix::unistd::write(&door, b"0").map(drop).map_err(Into::into);
        // SAFETY: between fork and exec only async-signal-safe calls are allowed: `enter` makes a single write(2) to a
        // descriptor opened before the fork, and neither allocates nor locks.
        unsafe { command.pre_exec(enter) };
        Ok(())
    }

    /// The memory charged to the group: anonymous, page cache, page tables and other kernel memory. Swapped-out pages are
    /// not in it; zram's store is not either.
    pub fn usage_bytes(&self) -> Result<u64, BenchError> {
        self.figure(self.version.usage())
    }

    /// The same, by kind.
    ///
    /// # Errors
    /// The group is gone.
    pub fn charge(&self) -> Result<Charge, BenchError> {
        Ok(Charge::of(self.version, self.usage_bytes()?, &read(&self.path.join("memory.stat"))?))
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

#[cfg(test)]
mod tests {
    use super::super::undo;
    use super::*;

    #[test]
    fn a_group_that_is_there_is_another_ones() {
        let root = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy { root: root.path().to_owned(), version: Version::Two };
        let theirs = root.path().join("theirs");
        let mut running = Command::new("sleep").arg("100").spawn().unwrap();
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(theirs.join("cgroup.procs"), running.id().to_string()).unwrap();
        let changes = undo::tests::changes();
        assert!(hierarchy.make("theirs", &changes).is_err());
        let ended = running.try_wait().unwrap();
        running.kill().and_then(|()| running.wait()).unwrap();
        assert!(ended.is_none() && theirs.is_dir(), "{ended:?}");
        assert_eq!(undo::tests::left(changes), []);
        let changes = undo::tests::changes();
        let group = hierarchy.make("ours", &changes).unwrap();
        assert!(root.path().join("ours").is_dir());
        assert_eq!(undo::tests::left(changes), [Undo::RemoveCgroup(root.path().join("ours"))]);
        // No directory of the kernel's: it has no list of processes, and counts as gone.
        drop(group);
    }

    #[test]
    fn shared_memory_and_the_swap_cache_are_no_copies_of_files() {
        let one = "cache 1000\nrss 5000\nrss_huge 7\nshmem 300\nswapcached 200\ntotal_cache 9999\n";
        let charge = Charge::of(Version::One, 8000, one);
        assert_eq!(charge, Charge { usage_bytes: 8000, file_cache_bytes: 500, anonymous_bytes: 5000 });
        assert_eq!(charge.without_file_cache(), 7500);
        let two = Charge::of(Version::Two, 8000, "anon 5000\nfile 1000\nfile_mapped 3\nshmem 300\nswapcached 200\n");
        assert_eq!(two, charge);
        // Older kernels do not say what is in the swap cache.
        assert_eq!(Charge::of(Version::One, 800, "cache 1000\nshmem 300\n").without_file_cache(), 100);
    }
}
