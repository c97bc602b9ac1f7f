//! Memory: RAM, swap, cgroup limit, huge pages, overcommit.

use super::Check;
use crate::host::{CgroupVersion, Host};
use hinterland_units::{Budget, ByteCount};

/// All checks of this file.
pub fn checks(host: &Host) -> Vec<Check> {
    vec![ram(host), cgroup(host), swap(host), huge_pages(host), overcommit(host)]
}

fn ram(host: &Host) -> Check {
    match host.memory() {
        None => Check::limited("RAM", "/proc/meminfo cannot be read", "give every run a budget: --local 512M"),
        Some(memory) => {
            let [available, total] = [memory.available_bytes, memory.total_bytes].map(ByteCount);
            Check::ok("RAM", format!("{available} available of {total}"))
        }
    }
}

fn cgroup(host: &Host) -> Check {
    match host.cgroup_limit() {
        None => Check::ok("cgroup limit", "none; without --local, a run gets 80 % of the available RAM"),
        Some(limit) => {
            let version = if limit.version == CgroupVersion::V1 { "version 1" } else { "version 2" };
            let found = format!("{} ({version}, {})", ByteCount(limit.bytes), limit.file.display());
            if ByteCount(limit.bytes / 5 * 4) < Budget::FLOOR {
                return Check::missing(
                    "cgroup limit",
                    format!("{found}: 80 % of it is below the smallest budget, {}", Budget::FLOOR),
                    "raise the limit to at least 20M, or give every run a budget: --local 16M",
                );
            }
            Check::ok("cgroup limit", format!("{found}; without --local, a run gets 80 % of it"))
        }
    }
}

/// Kernel swap below Hinterland: pages of the local budget would go out a second time, behind its back.
fn swap(host: &Host) -> Check {
    match host.memory().map_or(0, |memory| memory.swap_total_bytes) {
        0 => Check::ok("kernel swap", "none"),
        bytes => Check::limited(
            "kernel swap",
            format!("{} in use by the kernel: it may swap out what Hinterland keeps local", ByteCount(bytes)),
            "for runs that matter: swapoff -a, or run in a cgroup without swap (memory.swap.max = 0)",
        ),
    }
}

fn huge_pages(host: &Host) -> Check {
    let text = host.read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = text.split(['[', ']']).nth(1).unwrap_or("never").to_owned();
    Check::ok(
        "huge pages",
        format!("transparent huge pages: {mode}; far memory uses base pages and says so to the kernel"),
    )
}

fn overcommit(host: &Host) -> Check {
    match host.read("/proc/sys/vm/overcommit_memory").as_deref() {
        Some("2") => Check::missing(
            "overcommit",
            "vm.overcommit_memory = 2 refuses the reservation of address space for far memory",
            "as root: sysctl -w vm.overcommit_memory=0",
        ),
        Some(mode) => Check::ok("overcommit", format!("vm.overcommit_memory = {mode}")),
        None => Check::ok("overcommit", "vm.overcommit_memory cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    fn status(files: &[(&str, &str)], check: impl Fn(&Host) -> Check) -> Status {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        check(&Host::at(dir.path())).status
    }

    #[test]
    fn warns_of_swap_and_refuses_strict_overcommit() {
        let meminfo = |kib| format!("MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\nSwapTotal: {kib} kB\n");
        assert_eq!(status(&[("proc/meminfo", &meminfo(0))], swap), Status::Ok);
        assert_eq!(status(&[("proc/meminfo", &meminfo(1024))], swap), Status::Limited);
        assert_eq!(status(&[("proc/sys/vm/overcommit_memory", "2\n")], overcommit), Status::Missing);
        assert_eq!(status(&[("proc/sys/vm/overcommit_memory", "1\n")], overcommit), Status::Ok);
    }

    #[test]
    fn a_tiny_cgroup_is_no_place_to_run() {
        let files = |limit: &'static str| {
            [
                ("proc/self/cgroup", "0::/"),
                ("proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"),
                ("sys/fs/cgroup/memory.max", limit),
            ]
        };
        assert_eq!(status(&files("16777216"), cgroup), Status::Missing);
        assert_eq!(status(&files("33554432"), cgroup), Status::Ok);
    }
}
