//! Memory: RAM, swap, cgroup limit, NUMA nodes, huge pages, overcommit.

use super::Check;
use crate::host::{CgroupVersion, Host};
use hinterland_sys::numa::{self, NumaError};
use hinterland_units::{Budget, ByteCount};
use std::path::Path;

/// All checks of this file.
pub fn checks(host: &Host) -> Vec<Check> {
    vec![ram(host), cgroup(host), swap(host), nodes(host, numa::check), huge_pages(host), overcommit(host)]
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
            if ByteCount(Host::for_local(limit.bytes)) < Budget::FLOOR {
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

/// Nodes whose memory can be far memory: those without processors, which is how CXL memory appears, first; of others, all but an only one.
/// `check` says whether this process may use a node's memory.
fn nodes(host: &Host, check: impl Fn(u32) -> Result<(), NumaError>) -> Check {
    const NAME: &str = "NUMA nodes";
    let list = |name: &str| host.read(Path::new(numa::NODES).join(name)).map(|list| numa::nodes_in(&list));
    let Some(with_memory) = list("has_memory") else {
        return Check::ok(NAME, "this kernel tells of none: there is no numa:NODE here");
    };
    let with_processors = list("has_cpu").unwrap_or_default();
    let (beside, alone): (Vec<u32>, Vec<u32>) = with_memory.iter().partition(|node| with_processors.contains(node));
    if alone.is_empty() && beside.len() < 2 {
        return Check::ok(NAME, "one with memory: none is left to be far");
    }
    let mut refused = None;
    let mut may_be_used = |node: &u32| match check(*node) {
        Ok(()) => true,
        Err(error) => {
            refused.get_or_insert(error);
            false
        }
    };
    let told = |node: u32, what: &str| {
        let text = host.read(Path::new(numa::NODES).join(format!("node{node}/meminfo"))).unwrap_or_default();
        let memory = numa::memory_in(&text).map_or(String::new(), |memory| {
            let [free, total] = [memory.free_bytes, memory.total_bytes].map(ByteCount);
            format!("{free} free of {total}, ")
        });
        format!("numa:{node} ({memory}{what})")
    };
    let alone = alone.into_iter().filter(&mut may_be_used).map(|node| told(node, "no processors")).collect::<Vec<_>>();
    let beside =
        beside.into_iter().filter(&mut may_be_used).map(|node| told(node, "processors, too")).collect::<Vec<_>>();
    let names = [alone, beside].concat().join(", ");
    match refused {
        None => Check::ok(NAME, format!("far memory can be {names}: give a run that of a node where it does not run")),
        Some(error) if names.is_empty() => Check::limited(NAME, "their memory cannot be far memory", error.to_string()),
        Some(error) => Check::limited(NAME, format!("far memory can be {names}, but not others"), error.to_string()),
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
    fn nodes_that_could_be_far_memory_are_named() {
        let node = |kib: u32| format!("Node 0 MemTotal: {kib} kB\nNode 0 MemFree: {} kB\n", kib / 2);
        let [near, far] = [node(4 << 20), node(64 << 20)];
        let of = |has_memory: &'static str, has_cpu: &'static str, forbidden: Option<u32>| {
            let found = std::cell::RefCell::new(None);
            status(
                &[
                    ("sys/devices/system/node/has_memory", has_memory),
                    ("sys/devices/system/node/has_cpu", has_cpu),
                    ("sys/devices/system/node/node0/meminfo", &near),
                    ("sys/devices/system/node/node2/meminfo", &far),
                ],
                |host| {
                    let check = nodes(host, |node| match forbidden {
                        Some(other) if other == node => Err(NumaError::Forbidden { node, allowed: "0".into() }),
                        _ => Ok(()),
                    });
                    *found.borrow_mut() = Some(check.clone());
                    check
                },
            );
            found.take().expect("one check")
        };
        let cxl = of("0,2\n", "0\n", None);
        assert_eq!(cxl.status, Status::Ok);
        let first = "far memory can be numa:2 (32 GiB free of 64 GiB, no processors), numa:0 (2 GiB free of 4 GiB, processors, too)";
        assert!(cxl.found.starts_with(first), "{}", cxl.found);
        assert!(
            of("0-1", "0-1", None).found.contains("numa:1 (processors, too)"),
            "what a node has is not always told"
        );
        assert!(of("0", "0", None).found.contains("none is left"));
        let kept = of("0,2", "0", Some(2));
        assert_eq!(kept.status, Status::Limited);
        assert!(kept.found.contains("numa:0") && !kept.found.contains("numa:2"), "{}", kept.found);
        assert!(kept.remedy.is_some_and(|remedy| remedy.contains("cpuset.mems")));
        assert_eq!(status(&[("proc/version", "")], |host| nodes(host, |_| Ok(()))), Status::Ok);
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
