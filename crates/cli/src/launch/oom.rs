//! Whether the kernel's OOM killer killed a process of the run: SIGKILL itself leaves no message.
//!
//! The kernel counts OOM kills for each cgroup; the launcher compares the counts before and after the run.

use crate::host::{Host, MemoryEvents};
use crate::report::Ending;
use hinterland_units::ByteCount;

/// The counts at the beginning of a run.
pub struct Kills(Option<MemoryEvents>);

/// What a user can do.
const REMEDY: &str = "bound all of its RAM with --ram (--local does not count the compressed store)";

impl Kills {
    /// What was counted until now.
    pub fn so_far(host: &Host) -> Kills {
        Kills(host.memory_events())
    }

    /// Words for the user, if there were kills since.
    pub fn since(self, host: &Host, program: &str, ending: Ending) -> Option<String> {
        let before = self.0?;
        let kills = host.memory_kills()?.checked_sub(before.kills).filter(|kills| *kills > 0)?;
        let who = match (ending, kills) {
            (Ending::Killed { signal: libc::SIGKILL, .. }, 1) => program.to_owned(),
            (_, 1) => "a process in the run's cgroup".into(),
            (_, kills) => format!("{kills} processes in the run's cgroup"),
        };
        let why = match host.memory_events()?.reached_since(&before) {
            Some(limit) => {
                let (bytes, file) = (ByteCount(limit.bytes), limit.file.display());
                format!("its cgroup's memory was used up ({bytes}, {file}); {REMEDY}, or raise the limit")
            }
            None => format!("the machine's memory was used up; {REMEDY}"),
        };
        Some(format!("the kernel killed {who}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    const KILLED: Ending = Ending::Killed { signal: libc::SIGKILL, core: false };

    /// A machine whose run is in `/a/b`; `/a` has a limit.
    fn machine(root: &Path, version: u32) -> Host {
        let (groups, mount) = match version {
            1 => ("4:memory:/a/b", "33 25 0:29 / /cg rw - cgroup cgroup rw,memory"),
            _ => ("0::/a/b", "30 25 0:26 / /cg rw - cgroup2 cgroup2 rw"),
        };
        write(root, "proc/self/cgroup", groups);
        write(root, "proc/self/mountinfo", mount);
        Host::at(root)
    }

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn a_kill_is_told_with_the_limit_that_was_reached() {
        for version in [1, 2] {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path();
            let host = machine(root, version);
            let (counts, limit) = match version {
                1 => ("memory.oom_control", "memory.limit_in_bytes"),
                _ => ("memory.events", "memory.max"),
            };
            let set = |group: &str, kills: u32, reached: u32| {
                write(root, &format!("cg/{group}/{counts}"), &format!("oom {reached}\noom_kill {kills}\n"));
                write(root, &format!("cg/{group}/memory.failcnt"), &format!("{reached}\n"));
            };
            write(root, &format!("cg/a/{limit}"), "67108864\n");
            let since = |kills: Kills, ending| kills.since(&host, "job", ending);
            set("a/b", 3, 0);
            set("a", 3, 7);
            assert_eq!(since(Kills::so_far(&host), KILLED), None);
            let before = Kills::so_far(&host);
            set("a/b", 4, 0);
            set("a", 4, 8);
            assert_eq!(
                since(before, KILLED).unwrap(),
                format!(
                    "the kernel killed job: its cgroup's memory was used up (64 MiB, /cg/a/{limit}); bound all of its RAM with --ram \
                     (--local does not count the compressed store), or raise the limit"
                )
            );
            let before = Kills::so_far(&host);
            set("a/b", 6, 0);
            assert_eq!(
                since(before, Ending::Exited(1)).unwrap(),
                "the kernel killed 2 processes in the run's cgroup: the machine's memory was used up; bound all of its RAM with --ram (--local does not count the \
                 compressed store)"
            );
        }
    }

    #[test]
    fn a_limit_of_memory_and_swap_that_was_reached_is_told_where_none_of_memory_was() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let host = machine(root, 1);
        let set = |kills: u32, failures: u32, most: &str| {
            write(root, "cg/a/b/memory.oom_control", &format!("oom_kill {kills}\n"));
            write(root, "cg/a/memory.failcnt", &format!("{failures}\n"));
            for (file, content) in [
                ("limit_in_bytes", "67108864\n"),
                ("memsw.limit_in_bytes", "67108864\n"),
                ("memsw.max_usage_in_bytes", most),
                ("memsw.failcnt", "0\n"),
            ] {
                write(root, &format!("cg/a/memory.{file}"), content);
            }
        };
        set(0, 3, "4096\n");
        for (kills, failures, most, words) in [
            (1, 3, "67104768\n", "the machine's memory was used up"),
            (2, 3, "67108864\n", "(64 MiB, /cg/a/memory.memsw.limit_in_bytes)"),
            (3, 4, "67108864\n", "(64 MiB, /cg/a/memory.limit_in_bytes)"),
        ] {
            let before = Kills::so_far(&host);
            set(kills, failures, most);
            let said = before.since(&host, "job", KILLED).unwrap();
            assert!(said.contains(words), "{said}");
        }
    }
}
