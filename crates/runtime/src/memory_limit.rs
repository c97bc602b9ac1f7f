//! Limits on address space and on data (`RLIMIT_AS`, `RLIMIT_DATA`) that the program sets for itself.
//!
//! The kernel counts in both what is Hinterland's: the far range, the store, the tables. A limit that the program set would stop every
//! mapping from then on, ours too. So the kernel keeps the limit that it had; the program is shown the one that it set, and a call that
//! would bring the program's own memory above it answers `ENOMEM`: what the kernel counts, less what is ours, and with the far memory that
//! the program has mapped. The process's row in the ledger hands a limit on to children and through exec.
//!
//! Not hidden: `/proc/PID/limits`, limits set past libc. Not limited: what libc maps for itself (stacks of threads, its own heap),
//! although it counts, and programs that cannot be managed.

use crate::capabilities::Capabilities;
use crate::kernel_limit;
use crate::proc_file::ProcFile;
use crate::region_map::{self, Kind, RegionMap};
use hinterland_abi::{MemoryLimit, ProcessRow};
use hinterland_sys::mem::chunk;
use hinterland_units::PAGE_BYTES;
use libc::{c_int, rlimit};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The two accounts that the kernel limits, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// All mappings, whatever their access.
    pub address_space: usize,
    /// Private writable mappings.
    pub data: usize,
}

impl Account {
    /// A mapping of `bytes`.
    pub fn of_mapping(bytes: usize, private_and_writable: bool) -> Account {
        Account { address_space: bytes, data: if private_and_writable { bytes } else { 0 } }
    }
}

/// What the kernel counts, in pages: proc_pid_statm(5).
static STATM: ProcFile = ProcFile::new(c"/proc/self/statm");

/// Ours in the two accounts when the program started, without chunks of the library's allocator.
static OURS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// What the kernel counts before anything of ours is mapped; `None`: it does not say, and limits are the kernel's business.
pub fn count_before_ours() -> Option<Account> {
    counted(std::fs::File::open(STATM.path()).ok()?)
}

/// Takes what has come to the accounts for ours, and keeps the limits that the program's row has already.
pub fn begin(before: Option<Account>, row: &ProcessRow) {
    let Some((before, now)) = before.zip(count_before_ours()) else { return };
    let chunks = chunk::mapped_bytes();
    OURS[0].store((now.address_space - before.address_space).saturating_sub(chunks), Relaxed);
    OURS[1].store(now.data.saturating_sub(before.data).saturating_sub(chunks), Relaxed);
    if is_set(row) {
        STATM.open();
    }
}

/// In the child of a fork, which inherits its parent's limits.
pub fn begin_child(parent: &ProcessRow, row: &ProcessRow) {
    row.address_space_limit.set(parent.address_space_limit.get());
    row.data_limit.set(parent.data_limit.get());
    STATM.close();
    if is_set(row) {
        STATM.open();
    }
}

fn is_set(row: &ProcessRow) -> bool {
    [&row.address_space_limit, &row.data_limit].iter().any(|limit| limit.get()[0] != u64::MAX)
}

/// The limit of this process that a number means; `None`: the kernel keeps it.
#[cfg(not(feature = "local-only"))]
pub fn of(resource: c_int) -> Option<&'static MemoryLimit> {
    // A child of vfork shares this memory but not the limits.
    let row = (OURS[0].load(Relaxed) != 0 && crate::exit::is_own())
        .then(|| crate::pager().map(crate::Pager::row))
        .flatten()?;
    match resource.cast_unsigned() {
        libc::RLIMIT_AS => Some(&row.address_space_limit),
        libc::RLIMIT_DATA => Some(&row.data_limit),
        _ => None,
    }
}

/// The program sets one of its limits, or only asks for it; returns the one before.
///
/// # Errors
/// `EINVAL`: the soft limit is above the hard one. `EPERM`: the hard one may not be raised.
pub fn change(limit: &MemoryLimit, resource: c_int, new: Option<&rlimit>) -> Result<rlimit, c_int> {
    let before = match limit.get() {
        [u64::MAX, u64::MAX] => kernel_limit::change(resource.cast_unsigned(), None)?,
        [rlim_cur, rlim_max] => rlimit { rlim_cur, rlim_max },
    };
    if let Some(new) = new {
        if new.rlim_cur > new.rlim_max {
            return Err(libc::EINVAL);
        }
        if new.rlim_max > before.rlim_max && !may_raise() {
            return Err(libc::EPERM);
        }
        limit.set([new.rlim_cur, new.rlim_max]);
        STATM.open();
    }
    Ok(before)
}

/// Whether the program's own memory may grow: no limit that it set is in the way. What `growth` computes is asked for only if there is one.
///
/// # Errors
/// `ENOMEM`.
pub fn check(growth: impl FnOnce(&RegionMap) -> Account) -> Result<(), c_int> {
    if limits().is_none() { Ok(()) } else { check_in(&region_map::lock(), growth) }
}

/// As `check`, with the region map locked.
///
/// # Errors
/// `ENOMEM`.
pub fn check_in(region_map: &RegionMap, growth: impl FnOnce(&RegionMap) -> Account) -> Result<(), c_int> {
    let Some([address_space, data]) = limits() else { return Ok(()) };
    // A process that may not look any more is not limited.
    let Some(counted) = STATM.read().and_then(counted) else { return Ok(()) };
    let (used, growth) = (programs(counted, region_map), growth(region_map));
    let exceeds = |limit: u64, used: usize, growth: usize| growth != 0 && used.saturating_add(growth) as u64 > limit;
    let refused =
        exceeds(address_space, used.address_space, growth.address_space) || exceeds(data, used.data, growth.data);
    if refused { Err(libc::ENOMEM) } else { Ok(()) }
}

/// Without far memory nothing is kept: the kernel's limits are left alone.
#[cfg(feature = "local-only")]
fn limits() -> Option<[u64; 2]> {
    None
}

/// The soft limits that the program set, if any.
#[cfg(not(feature = "local-only"))]
fn limits() -> Option<[u64; 2]> {
    let row = crate::pager()?.row();
    let soft = [row.address_space_limit.get()[0], row.data_limit.get()[0]];
    (soft != [u64::MAX; 2]).then_some(soft)
}

/// What is the program's of what the kernel counts.
fn programs(counted: Account, region_map: &RegionMap) -> Account {
    let chunks = chunk::mapped_bytes();
    let less = |counted: usize, ours: &AtomicUsize| counted.saturating_sub(ours.load(Relaxed) + chunks);
    let mapped = region_map.runs().filter(|run| run.attributes.kind != Kind::Room);
    let far: usize = mapped.map(|run| run.count as usize * PAGE_BYTES).sum();
    Account { address_space: less(counted.address_space, &OURS[0]) + far, data: less(counted.data, &OURS[1]) }
}

/// What a change of protection to a writable one adds: pages of the far range that are not writable yet.
pub fn made_writable(region_map: &RegionMap, first: u32, count: u32) -> Account {
    let runs = region_map.mapped_in(first, count);
    let fixed = runs.iter().filter(|run| run.attributes.protection & libc::PROT_WRITE == 0);
    Account { address_space: 0, data: fixed.map(|run| run.count as usize * PAGE_BYTES).sum() }
}

/// Parses the line of statm: size, resident, shared, text, library, data, dirty.
fn counted(mut statm: impl Read) -> Option<Account> {
    let mut line = [0u8; 128];
    let read = statm.read(&mut line).ok()?;
    let mut fields = std::str::from_utf8(line.get(..read)?).ok()?.split_ascii_whitespace();
    let mut bytes = |skipped: usize| fields.nth(skipped)?.parse::<usize>().ok()?.checked_mul(PAGE_BYTES);
    Some(Account { address_space: bytes(0)?, data: bytes(4)? })
}

/// Whether the calling thread may raise a hard limit: setrlimit(2).
fn may_raise() -> bool {
    const SYS_RESOURCE: usize = 24;
    Capabilities::of(0).is_some_and(|capabilities| capabilities.has(SYS_RESOURCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statm_is_read_as_the_kernel_writes_it() {
        let counted = counted(&b"4145 2303 1407 704 0 1990 0\n"[..]);
        assert_eq!(counted, Some(Account { address_space: 4145 << 12, data: 1990 << 12 }));
        assert_eq!(super::counted(&b"4145 2303"[..]), None);
    }
}
