//! The memory limit of the cgroups that a process is in, versions 1 and 2, hybrid set-ups included.
//!
//! A limit anywhere between the process's group and the root of the visible hierarchy holds, so the tightest one counts.
//! In a container the mount shows only a subtree; its root (field 4 of mountinfo) is taken off the group's path.
//! Source: cgroups(7), proc_pid_mountinfo(5), `Documentation/admin-guide/cgroup-v2.rst`.

use super::Host;
use std::path::{Path, PathBuf};

/// Which cgroup interface a limit was found in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CgroupVersion {
    /// `memory.limit_in_bytes`.
    V1,
    /// `memory.max`, `memory.high`.
    V2,
}

/// A memory limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CgroupLimit {
    /// Bytes.
    pub bytes: u64,
    /// The file that says so.
    pub file: PathBuf,
    /// Its interface.
    pub version: CgroupVersion,
}

/// No real limit is this large: version 1 writes "none" as the largest page-aligned number, 2^63 - 4096.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// A mounted hierarchy: the part of it that is mounted, and where.
struct Mount {
    subtree: PathBuf,
    point: PathBuf,
}

impl CgroupLimit {
    /// Whether the kernel kills processes there; else it slows them down.
    pub fn kills(&self) -> bool {
        self.file.file_name().is_none_or(|name| name != SOFT_LIMIT)
    }
}

/// Version 2's limit at which processes are slowed down.
const SOFT_LIMIT: &str = "memory.high";

/// What the kernel counts where memory runs out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryEvents {
    /// Processes of the group that were killed because memory was used up, its own or the machine's.
    pub kills: u64,
    /// The group and those above it that have a hard limit, and how often it was reached.
    reached: Vec<(CgroupLimit, u64)>,
    /// The nearest limit of memory and swap together that was reached at some time: the kernel does not say how often.
    full: Option<CgroupLimit>,
}

impl MemoryEvents {
    /// The nearest limit that was reached since, as far as is known.
    pub fn reached_since(&self, before: &MemoryEvents) -> Option<&CgroupLimit> {
        let old = |limit: &CgroupLimit| before.reached.iter().find(|(known, _)| known.file == limit.file);
        let risen = |(limit, count): &&(CgroupLimit, u64)| *count > old(limit).map_or(0, |(_, count)| *count);
        self.reached.iter().find(risen).map(|(limit, _)| limit).or(self.full.as_ref())
    }
}

/// The tightest limit; `None` when there is none.
pub fn tightest(host: &Host) -> Option<CgroupLimit> {
    let mut limits = Vec::new();
    for (version, directories) in host.groups()? {
        let files: &[&str] = match version {
            CgroupVersion::V1 => &["memory.limit_in_bytes"],
            CgroupVersion::V2 => &["memory.max", SOFT_LIMIT],
        };
        let all = directories.iter().flat_map(|directory| files.iter().map(|name| directory.join(name)));
        limits.extend(all.filter_map(|file| limit(host, file, *version)));
    }
    limits.into_iter().min_by_key(|limit| limit.bytes)
}

/// The counts of the group that this process is in; `None` where the kernel counts nothing.
///
/// Version 2 counts in the groups above, too (`memory.events`, cgroup-v2.rst); version 1 in each its own
/// (`memory.oom_control`, `memory.failcnt`, cgroup-v1/memory.rst). Of memory and swap together, against whose limit a
/// page counts first, it has the most that was used; how often that limit was reached (`memory.memsw.failcnt`) Linux
/// 6.18 does not count.
pub fn events(host: &Host) -> Option<MemoryEvents> {
    host.groups()?.iter().find_map(|group| {
        let (version, directories) = group;
        let reached = |directory: &PathBuf| {
            let (hard, times) = match version {
                CgroupVersion::V1 => {
                    ("memory.limit_in_bytes", host.read(directory.join("memory.failcnt"))?.parse().ok()?)
                }
                CgroupVersion::V2 => ("memory.max", count(host, &directory.join("memory.events"), "oom")?),
            };
            Some((limit(host, directory.join(hard), *version)?, times))
        };
        let full = |directory: &PathBuf| {
            let limit = limit(host, directory.join("memory.memsw.limit_in_bytes"), *version)?;
            let most: u64 = host.read(directory.join("memory.memsw.max_usage_in_bytes"))?.parse().ok()?;
            (most >= limit.bytes).then_some(limit)
        };
        Some(MemoryEvents {
            kills: kills_in(host, group)?,
            reached: directories.iter().filter_map(reached).collect(),
            full: directories.iter().find_map(full),
        })
    })
}

/// The first of these counts alone: one file instead of two for each group.
pub fn kills(host: &Host) -> Option<u64> {
    host.groups()?.iter().find_map(|group| kills_in(host, group))
}

fn kills_in(host: &Host, (version, directories): &Group) -> Option<u64> {
    let file = match version {
        CgroupVersion::V1 => "memory.oom_control",
        CgroupVersion::V2 => "memory.events",
    };
    count(host, &directories.first()?.join(file), "oom_kill")
}

/// The number behind a name, in a file of a count a line.
fn count(host: &Host, file: &Path, name: &str) -> Option<u64> {
    let text = host.read(file)?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// This process's group in a version that has memory groups here, and those above it, the nearest first.
pub type Group = (CgroupVersion, Vec<PathBuf>);

/// The groups that `host` keeps.
pub fn groups(host: &Host) -> Option<Vec<Group>> {
    let groups = host.read("/proc/self/cgroup")?;
    let mounts = host.read("/proc/self/mountinfo")?;
    let directories = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let version = if id == "0" && controllers.is_empty() {
            CgroupVersion::V2
        } else if controllers.split(',').any(|controller| controller == "memory") {
            CgroupVersion::V1
        } else {
            return None;
        };
        let mount = mounts.lines().find_map(|line| memory_mount(line, version))?;
        Some((version, upwards(&mount, Path::new(group))))
    };
    Some(groups.lines().filter_map(directories).collect())
}

/// The mount in a line of mountinfo, if it shows the memory hierarchy of `version`.
fn memory_mount(line: &str, version: CgroupVersion) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    let (kind, _source, options) = (right.next()?, right.next()?, right.next()?);
    let wanted = match version {
        CgroupVersion::V2 => kind == "cgroup2",
        CgroupVersion::V1 => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
    };
    let mut left = left.split(' ').skip(3);
    let (subtree, point) = (left.next()?, left.next()?);
    wanted.then(|| Mount { subtree: subtree.into(), point: point.into() })
}

/// The directories from `group` up to the mount point.
fn upwards(mount: &Mount, group: &Path) -> Vec<PathBuf> {
    // A group outside the mounted subtree (a container that sees its host's path) is the mount point itself.
    let below = group.strip_prefix(&mount.subtree).unwrap_or(Path::new(""));
    let nearest = mount.point.join(below.strip_prefix("/").unwrap_or(below));
    nearest.ancestors().take_while(|directory| directory.starts_with(&mount.point)).map(Path::to_owned).collect()
}

/// The limit in a file, if there is one.
fn limit(host: &Host, file: PathBuf, version: CgroupVersion) -> Option<CgroupLimit> {
    let bytes = host.read(&file)?.parse().ok().filter(|bytes| *bytes < NO_LIMIT_BYTES)?;
    Some(CgroupLimit { bytes, file, version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine with the given files.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }
        let host = Host::at(dir.path());
        (dir, host)
    }

    const V1_MOUNT: &str = "33 25 0:29 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory";
    const V2_MOUNT: &str = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn version_1_takes_the_tightest_of_the_hierarchy() {
        let (_dir, host) = machine(&[
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/"),
            ("proc/self/mountinfo", V1_MOUNT),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "4294967296"),
        ]);
        let limit = host.cgroup_limit().unwrap();
        assert_eq!((limit.bytes, limit.version), (1 << 30, CgroupVersion::V1));
        assert_eq!(limit.file, Path::new("/sys/fs/cgroup/memory/a/memory.limit_in_bytes"));
    }

    #[test]
    fn version_2_counts_max_and_high_and_knows_no_limit() {
        let files = [
            ("proc/self/cgroup", "0::/user.slice/job"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/user.slice/memory.max", "max"),
            ("sys/fs/cgroup/user.slice/job/memory.max", "2147483648"),
            ("sys/fs/cgroup/user.slice/job/memory.high", "1073741824"),
        ];
        let (_dir, host) = machine(&files);
        assert_eq!(host.cgroup_limit().unwrap().bytes, 1 << 30);
        let (_dir, host) = machine(&files[..3]);
        assert_eq!(host.cgroup_limit(), None);
    }

    #[test]
    fn a_container_sees_only_its_subtree() {
        let mount = "40 25 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        for group in ["/docker/abc", "/somewhere/else"] {
            let (_dir, host) = machine(&[
                ("proc/self/cgroup", &format!("4:memory:{group}")),
                ("proc/self/mountinfo", mount),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912"),
            ]);
            assert_eq!(host.cgroup_limit().unwrap().bytes, 512 << 20, "{group}");
        }
    }

    #[test]
    fn a_hybrid_takes_the_tighter_version() {
        let (_dir, host) = machine(&[
            ("proc/self/cgroup", "4:memory:/\n0::/"),
            (
                "proc/self/mountinfo",
                &format!("{V1_MOUNT}\n{}", V2_MOUNT.replace("/sys/fs/cgroup rw", "/sys/fs/cgroup/unified rw")),
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000000"),
            ("sys/fs/cgroup/unified/memory.max", "900000000"),
        ]);
        assert_eq!(host.cgroup_limit().unwrap().version, CgroupVersion::V2);
    }

    #[test]
    fn the_limit_or_the_free_memory_whichever_is_less() {
        let meminfo = "MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\nSwapTotal: 0 kB";
        let group = [("proc/self/cgroup", "0::/"), ("proc/self/mountinfo", V2_MOUNT), ("proc/meminfo", meminfo)];
        let (_dir, host) = machine(&[&group[..], &[("sys/fs/cgroup/memory.max", "1073741824")]].concat());
        assert_eq!(host.available().unwrap().bytes, 1 << 30);
        let (_dir, host) = machine(&[&group[..], &[("sys/fs/cgroup/memory.max", "8589934592")]].concat());
        assert_eq!(host.available().unwrap().bytes, 4 << 30);
        let (_dir, host) = machine(&[]);
        assert!(host.available().is_err());
    }

    #[test]
    fn what_a_node_may_lend_is_known_where_proc_has_processes_only() {
        let group = [("proc/self/cgroup", "0::/"), ("proc/self/mountinfo", V2_MOUNT)];
        let (_dir, host) = machine(&[&group[..], &[("sys/fs/cgroup/memory.max", "1048576")]].concat());
        assert_eq!((host.memory(), host.there_bytes()), (None, Some(1 << 20)));
        let (_dir, host) = machine(&group);
        assert!(host.there_bytes().unwrap() > 1 << 20, "the RAM of the machine that runs this");
    }
}
