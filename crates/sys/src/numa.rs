//! NUMA nodes: which of them have memory, and mappings whose memory comes from one of them. Memory on CXL appears as a node without processors.
//!
//! Sources: mbind(2), Documentation/ABI/stable/sysfs-devices-node, proc_pid_status(5), `mm/mempolicy.c`.

use crate::SysError;
use crate::mem::{self, Mapping};
use std::ops::RangeInclusive;

/// Where the kernel tells of its nodes: lists of them, and a folder for each.
pub const NODES: &str = "/sys/devices/system/node";
/// Words of a mask of nodes: the kernel has 1024 nodes at most (`CONFIG_NODES_SHIFT`).
const MASK_WORDS: usize = 16;

/// Why the memory of a node cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NumaError {
    /// The kernel knows no nodes.
    #[error("this kernel tells of no NUMA nodes ({NODES} is not there); compressed or file:PATH works everywhere")]
    NoNodes,
    /// There is none of that number.
    #[error("there is no NUMA node {node} here; those with memory are {with_memory}")]
    NoNode {
        /// The number.
        node: u32,
        /// Nodes with memory, as the kernel lists them.
        with_memory: String,
    },
    /// It has processors or devices only.
    #[error("NUMA node {node} has no memory; those with memory are {with_memory}")]
    NoMemory {
        /// The number.
        node: u32,
        /// As above.
        with_memory: String,
    },
    /// The process is kept on other nodes.
    #[error(
        "this process may not use memory of NUMA node {node}, but of {allowed}: its cpuset says so; name one of those, or change cpuset.mems"
    )]
    Forbidden {
        /// The number.
        node: u32,
        /// Nodes that are allowed, as the kernel lists them.
        allowed: String,
    },
    /// mbind(2) failed.
    #[error(
        "memory cannot be bound to NUMA node {node} ({error}); where a container's profile refuses mbind(2), allow it: `docker run --cap-add SYS_NICE`"
    )]
    Refused {
        /// The number.
        node: u32,
        /// Why.
        error: SysError,
    },
}

/// Checks that memory of a node can be had. Changes nothing.
///
/// # Errors
/// Why not.
pub fn check(node: u32) -> Result<(), NumaError> {
    let list = |name: &str| std::fs::read_to_string(format!("{NODES}/{name}")).ok();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    check_in(node, list("online"), list("has_memory"), allowed)?;
    let refused = |error| NumaError::Refused { node, error };
    let page = Mapping::anonymous(hinterland_units::PAGE_BYTES).map_err(refused)?;
    let bound = bind(page, node);
    // SAFETY: the page was just mapped, and nothing else refers to it.
    unsafe { page.end() };
    bound.map_err(refused)
}

/// As `check`, by what the kernel says of its nodes, as lists.
fn check_in(
    node: u32,
    online: Option<String>,
    has_memory: Option<String>,
    allowed: Option<&str>,
) -> Result<(), NumaError> {
    let (Some(online), Some(has_memory)) = (online, has_memory) else { return Err(NumaError::NoNodes) };
    let with_memory = has_memory.trim().to_owned();
    if !is_in(node, &online) {
        return Err(NumaError::NoNode { node, with_memory });
    }
    if !is_in(node, &has_memory) {
        return Err(NumaError::NoMemory { node, with_memory });
    }
    match allowed.map(str::trim) {
        Some(allowed) if !is_in(node, allowed) => Err(NumaError::Forbidden { node, allowed: allowed.into() }),
        _ => Ok(()),
    }
}

/// Whether a number is in a list of the kernel's: `0-3,8`.
fn is_in(number: u32, list: &str) -> bool {
    ranges(list).any(|range| range.contains(&number))
}

fn ranges(list: &str) -> impl Iterator<Item = RangeInclusive<u32>> {
    list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    })
}

/// The nodes in a list of the kernel's.
pub fn nodes_in(list: &str) -> Vec<u32> {
    let nodes_max = MASK_WORDS * 64;
    ranges(list).flatten().take(nodes_max).collect()
}

/// Has the memory of a mapping that holds nothing yet come from one node, and from nowhere else (`MPOL_BIND`). Processes that are forked
/// keep to it.
///
/// # Errors
/// The kernel's: `EINVAL` for a node that is not there or not allowed, `EPERM` or `ENOSYS` where the call is forbidden or unknown.
pub fn bind(mapping: Mapping, node: u32) -> Result<(), SysError> {
    let mut mask = [0u64; MASK_WORDS];
    let no_such_node = SysError { call: "mbind", errno: libc::EINVAL };
    let word = mask.get_mut(node as usize / 64).ok_or(no_such_node)?;
    *word = 1 << (node % 64);
    // mbind(2) reads one bit less than `maxnode` says.
    let bits = MASK_WORDS * 64 + 1;
    let mode = usize::try_from(libc::MPOL_BIND).unwrap_or(0);
    let arguments = [mapping.start, mapping.len, mode, mask.as_ptr().addr(), bits, 0];
    // SAFETY: the mask outlives the call, which changes where memory comes from and nothing else.
    unsafe { mem::call("mbind", libc::SYS_mbind, arguments) }.map(drop)
}

/// What a node has of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeMemory {
    /// All of it.
    pub total_bytes: u64,
    /// What can be had now: free, or a cache of files that were not used lately.
    pub free_bytes: u64,
}

/// What a node has of memory; `None`: the kernel does not say.
pub fn memory(node: u32) -> Option<NodeMemory> {
    memory_in(&std::fs::read_to_string(format!("{NODES}/node{node}/meminfo")).ok()?)
}

/// The same, from the lines of its file (`meminfo`): `Node 0 MemFree: 4620896 kB`.
pub fn memory_in(text: &str) -> Option<NodeMemory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.split_once(name)?.1.strip_prefix(':'))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
    };
    let free_bytes = bytes("MemFree")? + bytes("Inactive(file)").unwrap_or(0);
    Some(NodeMemory { total_bytes: bytes("MemTotal")?, free_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_said_in_words() {
        let list = |text: &str| Some(text.to_owned());
        let check = |node, online, memory, allowed| {
            check_in(node, online, memory, allowed).map_err(|error| error.to_string()).err().unwrap_or_default()
        };
        assert_eq!(check(1, list("0-1\n"), list("0-1\n"), Some("\t0-1")), "");
        assert_eq!(check(9, list("0-3,8-9\n"), list("0,8-9\n"), None), "");
        for (said, words) in [
            (check(0, None, None, None), "tells of no NUMA nodes"),
            (check(7, list("0-1\n"), list("0-1\n"), None), "no NUMA node 7 here; those with memory are 0-1"),
            (check(1, list("0-1\n"), list("0\n"), None), "NUMA node 1 has no memory; those with memory are 0"),
            (check(1, list("0-1\n"), list("0-1\n"), Some("\t0")), "may not use memory of NUMA node 1, but of 0"),
        ] {
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn lists_of_nodes_are_read() {
        assert_eq!(
            [nodes_in("0-2,8\n"), nodes_in("1"), nodes_in("\n"), nodes_in("x-3,2")],
            [vec![0, 1, 2, 8], vec![1], vec![], vec![2]]
        );
        assert_eq!(nodes_in("0-4294967295").len(), 1024, "the kernel has no more");
    }

    #[test]
    fn the_memory_of_a_node_is_read() {
        let text = "Node 1 MemTotal:        9922764 kB\nNode 1 MemFree:         4620896 kB\nNode 1 Inactive:        9 kB\n\
                    Node 1 Inactive(file):    1000 kB\n";
        let expected = NodeMemory { total_bytes: 9_922_764 << 10, free_bytes: 4_621_896 << 10 };
        assert_eq!(memory_in(text), Some(expected));
        assert_eq!(memory_in("Node 1 MemFree: 12 kB\n"), None);
    }

    /// Where the kernel has nodes: the policy is what the kernel says that it is.
    #[test]
    fn memory_comes_from_the_node_that_a_mapping_is_bound_to() {
        if let Err(error) = check(0) {
            return eprintln!("skipped: {error}");
        }
        let mapping = Mapping::anonymous(hinterland_units::PAGE_BYTES).expect("a page");
        bind(mapping, 0).expect("node 0 has memory");
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        // It may have become one with a neighbour that another test has bound.
        let begins = |line: &str| usize::from_str_radix(line.split(' ').next()?, 16).ok();
        let line = maps.lines().rfind(|line| begins(line).is_some_and(|begin| begin <= mapping.start));
        assert!(maps.is_empty() || line.is_some_and(|line| line.split(' ').nth(1) == Some("bind:0")), "{line:?}");
        assert!(bind(mapping, 1023).is_err() && bind(mapping, 5000).is_err(), "there are no such nodes");
        // SAFETY: the page was just mapped, and nothing else refers to it.
        unsafe { mapping.end() };
    }
}
