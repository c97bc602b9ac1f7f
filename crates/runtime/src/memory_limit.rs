//! Limits on address space and on data (`RLIMIT_AS`, `RLIMIT_DATA`) that the program sets for itself.
//!
//! The kernel counts in both what is Hinterland's: the far range, the store, the tables. A limit that the program set would stop every
//! mapping from then on, ours too. So the kernel keeps the limit that it had; the program is shown the one that it set, and a call that
//! would bring the program's own memory above it answers `ENOMEM`: what the kernel counts, less what is ours, and with the far memory that
//! the program has mapped. The process's row in the ledger hands a limit on to children and through exec.
//!
//! A limit on data that was there before the program is the kernel's, and bounds the program together with what is ours: a call that would leave
//! less than a part of it for us is refused, because the pager has no way on without memory. One that the program raises is raised.
//!
//! Not hidden: `/proc/PID/limits`, limits set past libc. Not limited: what libc maps for itself (stacks of threads, its own heap),
//! although it counts, and programs that cannot be managed.

use crate::Pager;
use crate::capabilities::Capabilities;
use crate::kernel_limit;
use crate::proc_file::ProcFile;
use crate::region_map::{self, Kind, RegionMap};
use hinterland_abi::{DATA_BYTES_NEEDED, MemoryLimit, ProcessRow};
use hinterland_sys::mem::chunk;
use hinterland_sys::parts;
use hinterland_units::{ByteCount, PAGE_BYTES, PageNo};
use libc::{c_int, rlimit};
use std::io::Read;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

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

/// Ours in the two accounts when the program started, without chunks of the library's allocator and without parts of tables, which become
/// writable as they are used.
static OURS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// How much data calls of the program may leave the process with, by the limit that the kernel had when the program started, or raised it. `u64::MAX`:
/// there is none.
static DATA_OF_ALL: AtomicU64 = AtomicU64::new(u64::MAX);

/// Of the kernel's limit on data so much is kept for us, at least: what the pager takes while the program maps nothing.
const KEPT_PART: u64 = 32;
const KEPT_BYTES_MIN: u64 = 64 << 20;

/// What the kernel counts before anything of ours is mapped; `None`: it does not say, and limits are the kernel's business.
pub fn count_before_ours() -> Option<Account> {
    counted(std::fs::File::open(STATM.path()).ok()?)
}

/// The kernel's limit on data, if it leaves too little for far memory beside what the program has `before`.
pub fn too_low(before: Option<Account>) -> Option<ByteCount> {
    let limit = kernel_limit::change(libc::RLIMIT_DATA, None).ok()?.rlim_cur;
    (limit < before?.data as u64 + DATA_BYTES_NEEDED).then_some(ByteCount(limit))
}

/// Takes what has come to the accounts for ours, and keeps the limits that the program's row has already.
pub fn begin(before: Option<Account>, row: &ProcessRow) {
    let Some((before, now)) = before.zip(count_before_ours()) else { return };
    let chunks = chunk::mapped_bytes();
    OURS[0].store((now.address_space - before.address_space).saturating_sub(chunks), Relaxed);
    let data = now.data.saturating_sub(before.data).saturating_sub(chunks);
    OURS[1].store(data.saturating_sub(parts::writable_bytes()), Relaxed);
    if let Ok(limit) = kernel_limit::change(libc::RLIMIT_DATA, None) {
        DATA_OF_ALL.store(without_kept(limit.rlim_cur), Relaxed);
    }
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
    DATA_OF_ALL.load(Relaxed) != u64::MAX
        || [&row.address_space_limit, &row.data_limit].iter().any(|limit| limit.get()[0] != u64::MAX)
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
        raise_the_kernels(resource, new);
        limit.set([new.rlim_cur, new.rlim_max]);
        STATM.open();
    }
    Ok(before)
}

/// A limit that the kernel has must not be in the way of a higher one. Where the kernel refuses that, it stays.
fn raise_the_kernels(resource: c_int, new: &rlimit) {
    let Ok(there) = kernel_limit::change(resource.cast_unsigned(), None) else { return };
    if new.rlim_cur <= there.rlim_cur {
        return;
    }
    let raised = rlimit { rlim_cur: new.rlim_cur, rlim_max: there.rlim_max.max(new.rlim_cur) };
    if kernel_limit::change(resource.cast_unsigned(), Some(&raised)).is_ok()
        && resource.cast_unsigned() == libc::RLIMIT_DATA
    {
        DATA_OF_ALL.store(without_kept(raised.rlim_cur), Relaxed);
    }
}

/// Whether calls of the program's are held to a limit.
pub fn is_set_here() -> bool {
    limits().is_some()
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
    let Some(Limits { own, data_of_all }) = limits() else { return Ok(()) };
    // A process that may not look any more is not limited.
    let Some(counted) = STATM.read().and_then(counted) else { return Ok(()) };
    let has_own = own != [u64::MAX; 2];
    let used = if has_own { programs(counted, region_map) } else { Account::default() };
    let growth = growth(region_map);
    let exceeds = |limit: u64, used: usize, growth: usize| growth != 0 && used.saturating_add(growth) as u64 > limit;
    let [address_space, data] = own;
    let refused = exceeds(address_space, used.address_space, growth.address_space)
        || exceeds(data, used.data, growth.data)
        || exceeds(data_of_all, counted.data, growth.data);
    if refused { Err(libc::ENOMEM) } else { Ok(()) }
}

/// Refuses pages whose tables have no room below the kernel's limit on data, before any of those becomes writable for good. `data`: bytes of
/// writable memory that the program is to have with them.
///
/// # Errors
/// `ENOMEM`.
pub fn check_tables(pager: &Pager, first: u32, count: u32, data: usize) -> Result<(), c_int> {
    let data_of_all = DATA_OF_ALL.load(Relaxed);
    if data_of_all == u64::MAX {
        return Ok(());
    }
    let tables = pager.missing_table_bytes(PageNo(first), count);
    let fits = |counted: Account| counted.data.saturating_add(tables).saturating_add(data) as u64 <= data_of_all;
    if tables == 0 || STATM.read().and_then(counted).is_none_or(fits) { Ok(()) } else { Err(libc::ENOMEM) }
}

/// What calls of the program's are held to.
struct Limits {
    /// Of the program's own memory: the soft limits that it set.
    own: [u64; 2],
    /// Of all data of the process.
    data_of_all: u64,
}

/// Without far memory nothing is kept: the kernel's limits are left alone.
#[cfg(feature = "local-only")]
fn limits() -> Option<Limits> {
    None
}

/// The limits, if there are any.
#[cfg(not(feature = "local-only"))]
fn limits() -> Option<Limits> {
    let row = crate::pager()?.row();
    let own = [row.address_space_limit.get()[0], row.data_limit.get()[0]];
    let data_of_all = DATA_OF_ALL.load(Relaxed);
    (own != [u64::MAX; 2] || data_of_all != u64::MAX).then_some(Limits { own, data_of_all })
}

/// What the program may have of the kernel's limit.
fn without_kept(limit: u64) -> u64 {
    if limit == u64::MAX { limit } else { limit.saturating_sub(KEPT_BYTES_MIN.max(limit / KEPT_PART)) }
}

/// What is the program's of what the kernel counts.
fn programs(counted: Account, region_map: &RegionMap) -> Account {
    let chunks = chunk::mapped_bytes();
    let less = |counted: usize, ours: &AtomicUsize, later: usize| counted.saturating_sub(ours.load(Relaxed) + later);
    let mapped = region_map.runs().filter(|run| run.attributes.kind != Kind::Room);
    let far: usize = mapped.map(|run| run.count as usize * PAGE_BYTES).sum();
    Account {
        address_space: less(counted.address_space, &OURS[0], chunks) + far,
        data: less(counted.data, &OURS[1], chunks + parts::writable_bytes()),
    }
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

    #[test]
    fn a_part_of_the_kernels_limit_is_kept() {
        assert_eq!(without_kept(u64::MAX), u64::MAX, "there is none");
        assert_eq!([0, 1 << 30, 64 << 30].map(without_kept), [0, (1 << 30) - (64 << 20), 62 << 30]);
    }
}
