//! Turning libc's `syscall` instructions into `ud2`.

use super::elf::Kind;
use super::scan::{Numbers, holds, sites_of};
use super::{SITE_BYTES, SYSCALL, UD2, elf, libc_image};
use crate::inline::raw;
use hinterland_sys::thread::SignalsBlocked;
use hinterland_sys::{SysError, mem};
use hinterland_units::PAGE_BYTES;
use std::ops::Range;
use std::sync::OnceLock;

/// What was patched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patched {
    /// Instructions that are `ud2` now.
    pub sites: usize,
    /// Instructions whose number nobody can tell, and that are as they were.
    pub unknown: usize,
    /// Memory of libc's text that is this process's own now.
    pub private_bytes: usize,
}

/// Why libc was not patched. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SitesError {
    /// No object is called libc.so.6.
    #[error("libc.so.6 is not among the loaded objects; the monitor path works without it")]
    NoLibc,
    /// No instruction makes a wanted call: the text or its table of functions is not as expected.
    #[error("no wanted system call was found in libc; the monitor path works without")]
    NothingFound,
    /// A byte is not as it was, or not as it was written.
    #[error("libc's text at {0:#x} changed while it was patched; is another tool rewriting it?")]
    Changed(usize),
    /// The text cannot be made writable or executable again.
    #[error("libc's text cannot be changed (does a security module forbid it?): {0}")]
    Protection(#[from] SysError),
    /// There are other threads, which may be running what would be changed.
    #[error("libc can only be patched before the process has a second thread")]
    Threads,
}

/// Addresses of the patched instructions, sorted.
static PATCHED: OnceLock<Box<[usize]>> = OnceLock::new();

/// Whether an instruction at this address was patched. For signal handlers.
pub(crate) fn is_patched(address: usize) -> bool {
    PATCHED.get().is_some_and(|sites| sites.binary_search(&address).is_ok())
}

/// Patches the instructions of libc that make a wanted call: all or none. The handlers must be installed. Once.
///
/// # Errors
/// As the variants say.
pub(crate) fn patch(wanted: &dyn Fn(i64) -> bool) -> Result<Patched, SitesError> {
    let libc = libc_image().ok_or(SitesError::NoLibc)?;
    let (found, unknown): (Vec<_>, Vec<_>) =
        sites_of(&libc, wanted).into_iter().partition(|site| site.numbers != Numbers::Any);
    let mut sites: Vec<usize> =
        found.iter().filter(|site| site.numbers.may_be(wanted)).map(|site| site.address).collect();
    sites.sort_unstable();
    if sites.is_empty() {
        return Err(SitesError::NothingFound);
    }
    if !is_only_thread() {
        return Err(SitesError::Threads);
    }
    if let Some(changed) = sites.iter().find(|site| !holds(**site, SYSCALL, &libc.text)) {
        return Err(SitesError::Changed(*changed));
    }
    let private_bytes = pages_of(&sites).count() * PAGE_BYTES;
    // Known before the first byte changes: from then on, libc's own calls may come.
    let sites = PATCHED.get_or_init(|| sites.into());
    write(sites, &libc.text)?;
    Ok(Patched { sites: sites.len(), unknown: unknown.len(), private_bytes })
}

fn pages_of(sites: &[usize]) -> impl Iterator<Item = usize> {
    let pages = sites.iter().map(|site| site & !(PAGE_BYTES - 1));
    let mut before = None;
    pages.filter(move |page| before.replace(*page) != Some(*page))
}

/// Writes `ud2` to all sites, or leaves them as they were.
fn write(sites: &[usize], text: &[Range<usize>]) -> Result<(), SitesError> {
    let _no_handler_of_the_programs = SignalsBlocked::new();
    let extent = |first: usize, last: usize| {
        let start = first & !(PAGE_BYTES - 1);
        (start, (last + SITE_BYTES).next_multiple_of(PAGE_BYTES) - start)
    };
    let (start, len) = extent(sites[0], sites[sites.len() - 1]);
    let end =
        text.iter().find(|range| range.contains(&start)).map_or(0, |range| range.end.next_multiple_of(PAGE_BYTES));
    if start + len > end {
        return Err(SitesError::Changed(start));
    }
    // Executable all the while: this code itself may call libc.
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    mem::protect(start, len, executable | libc::PROT_WRITE)?;
    let put = |bytes: [u8; SITE_BYTES]| {
        for site in sites {
            // SAFETY: both bytes lie in text that is writable now, and no other thread runs it.
            unsafe { (*site as *mut [u8; SITE_BYTES]).write_unaligned(bytes) };
        }
    };
    put(UD2);
    let wrong = sites.iter().find(|site| !holds(**site, UD2, text)).copied();
    if wrong.is_some() {
        put(SYSCALL);
    }
    mem::protect(start, len, executable)?;
    wrong.map_or(Ok(()), |site| Err(SitesError::Changed(site)))
}

/// Whether the process has one thread, or others of ours alone, which call nothing of libc's that is patched.
fn is_only_thread() -> bool {
    let entries = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    // Without /proc nobody can tell; the caller runs before the program.
    entries.is_ok_and(|count| count == 1) || entries_unknown()
}

fn entries_unknown() -> bool {
    // SAFETY: asks whether a path exists.
    let result = unsafe { raw::call(libc::SYS_access, [c"/proc/self/task".as_ptr().addr(), 0, 0, 0, 0, 0]) };
    result < 0
}

/// The loader's `syscall` instructions that make a wanted call. They are not patched: it calls before libc is there, and what
/// it passes lies on its stack or is a plain pointer.
#[allow(dead_code, reason = "for the check at the start")]
pub(crate) fn loader_sites(wanted: &dyn Fn(i64) -> bool) -> usize {
    let loader = elf::images().into_iter().find(|image| image.kind == Kind::Loader);
    loader.map_or(0, |image| sites_of(&image, wanted).iter().filter(|site| site.numbers.may_be(wanted)).count())
}
