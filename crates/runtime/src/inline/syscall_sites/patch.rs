//! Turning libc's `syscall` instructions into `ud2`.

use super::edit::{self, Edit};
use super::elf::Image;
use super::jump::{self, LOAD_BYTES, Stubs};
use super::scan::{Numbers, Site, sites_of};
use super::{SYSCALL, UD2, libc_image};
use crate::inline::raw;
use hinterland_sys::SysError;
use std::sync::OnceLock;

/// What was patched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patched {
    /// Instructions that are `ud2` now.
    pub sites: usize,
    /// Those of them that need no trap, but are jumped over.
    pub jumps: usize,
    /// Instructions whose number cannot be told, and that are as they were.
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

/// What is to be patched, found and tried out; nothing has changed yet.
pub(crate) struct Plan {
    libc: Image,
    sites: Vec<Site>,
    unknown: usize,
}

impl Plan {
    /// Finds the instructions of libc that make a wanted call, and makes sure that its text can be changed.
    ///
    /// # Errors
    /// As the variants of the error say.
    pub fn make(wanted: &dyn Fn(i64) -> bool) -> Result<Plan, SitesError> {
        let libc = libc_image().ok_or(SitesError::NoLibc)?;
        let (found, unknown): (Vec<_>, Vec<_>) =
            sites_of(&libc, wanted).into_iter().partition(|site| site.numbers != Numbers::Any);
        let mut sites: Vec<_> = found.into_iter().filter(|site| site.numbers.may_be(wanted)).collect();
        sites.sort_unstable_by_key(|site| site.address);
        let first = sites.first().ok_or(SitesError::NothingFound)?.address;
        if !is_only_thread() {
            return Err(SitesError::Threads);
        }
        edit::try_page(first)?;
        Ok(Plan { libc, sites, unknown: unknown.len() })
    }

    /// Patches: all instructions or none. The handlers must be installed. Once, and by the only thread.
    ///
    /// # Errors
    /// As the variants of the error say.
    pub fn apply(self) -> Result<Patched, SitesError> {
        let (mut edits, jumps) = edits_for(&self.sites, &self.libc);
        // Known before the first byte changes: from then on, libc's own calls may come.
        PATCHED.get_or_init(|| self.sites.iter().map(|site| site.address).collect());
        let private_bytes = edit::write(&mut edits, &self.libc.text)?;
        Ok(Patched { sites: self.sites.len(), jumps, unknown: self.unknown, private_bytes })
    }
}

/// What is written where: `ud2` for every site, and before some of them a jump. The second value counts the jumps.
fn edits_for(sites: &[Site], libc: &Image) -> (Vec<Edit>, usize) {
    let mut edits: Vec<Edit> = sites.iter().map(|site| Edit::new(site.address, &SYSCALL, &UD2)).collect();
    let jumps: Vec<(usize, i64)> = sites
        .iter()
        .filter_map(|site| match site.numbers {
            Numbers::One(number) if site.loaded_before && jump::answers(number) => Some((site.address, number)),
            _ => None,
        })
        .collect();
    let Some(mut stubs) = libc.text.first().and_then(Stubs::near) else { return (edits, 0) };
    let mut added = Vec::new();
    for (site, number) in jumps {
        let at = site - LOAD_BYTES;
        if let Some(jump) = stubs.add(site, number) {
            added.push(Edit::new(at, libc.bytes(at..site), &jump));
        }
    }
    if !stubs.finish() {
        return (edits, 0);
    }
    let jumps = added.len();
    edits.append(&mut added);
    (edits, jumps)
}

/// Whether the process has one thread, or others of ours alone, which call nothing of libc's that is patched. Without `/proc` that is unknown; the
/// caller runs before the program.
fn is_only_thread() -> bool {
    raw::count_threads().is_none_or(|threads| threads == 1)
}
