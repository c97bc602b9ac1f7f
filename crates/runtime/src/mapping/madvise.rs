//! madvise(2) on far memory.

use super::{Outcome, Target, apply, bits, kernel, near, seal, target};
use crate::Pager;
use crate::region_map::{self, Attributes, Kind, Locked, Run};
use hinterland_pager::PinAccess;
use hinterland_units::PageNo;
use std::io;

/// What a piece of advice means for memory of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    /// Nothing that we do: paging and huge pages are the pager's business.
    Accepted,
    /// The content is dropped now.
    Drop {
        /// Also if it is locked in memory.
        locked_too: bool,
    },
    /// The content may be dropped.
    Free,
    /// Whether a forked child gets it.
    Unforked(bool),
    /// Whether a forked child finds zeros.
    Wiped(bool),
    /// Whether it goes into core dumps.
    Undumped(bool),
    /// All pages are mapped.
    Populate,
    /// Refused, as the kernel does for private anonymous memory or where it does not know the advice.
    Refused,
}

/// Advice that libc's headers may not know: <asm-generic/mman-common.h>.
const MADV_PAGEOUT: i32 = 21;
const MADV_POPULATE_WRITE: i32 = 23;
const MADV_DONTNEED_LOCKED: i32 = 24;

fn meaning(advice: i32) -> Meaning {
    match advice {
        libc::MADV_DONTNEED => Meaning::Drop { locked_too: false },
        MADV_DONTNEED_LOCKED => Meaning::Drop { locked_too: true },
        libc::MADV_FREE => Meaning::Free,
        libc::MADV_DONTFORK => Meaning::Unforked(true),
        libc::MADV_DOFORK => Meaning::Unforked(false),
        libc::MADV_WIPEONFORK => Meaning::Wiped(true),
        libc::MADV_KEEPONFORK => Meaning::Wiped(false),
        libc::MADV_DONTDUMP => Meaning::Undumped(true),
        libc::MADV_DODUMP => Meaning::Undumped(false),
        libc::MADV_NORMAL | libc::MADV_RANDOM | libc::MADV_SEQUENTIAL | libc::MADV_WILLNEED => Meaning::Accepted,
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE | libc::MADV_MERGEABLE | libc::MADV_UNMERGEABLE => {
            Meaning::Accepted
        }
        libc::MADV_COLD..=MADV_PAGEOUT => Meaning::Accepted,
        libc::MADV_POPULATE_READ..=MADV_POPULATE_WRITE => Meaning::Populate,
        _ => Meaning::Refused,
    }
}

/// madvise(2).
pub fn madvise(address: usize, bytes: usize, advice: i32) -> Outcome {
    let meaning = meaning(advice);
    let each = |address: usize, bytes: usize| madvise(address, bytes, advice);
    let (first, count) = match target(address, bytes) {
        Target::Kernel => {
            let call = |at, bytes| kernel(libc::SYS_madvise, [at, bytes, bits(advice), 0, 0, 0]);
            return near(address, bytes, call);
        }
        Target::Across(parts) if meaning == Meaning::Populate => return parts.in_turn(each),
        Target::Across(parts) => return parts.past_holes(each),
        Target::Far(first, count) => (first, count),
    };
    if meaning == Meaning::Refused {
        // Of files and shared memory the kernel may accept what it refuses of ours; what it does not know it refuses of any.
        kernel(libc::SYS_madvise, [address, 0, bits(advice), 0, 0, 0])?;
    }
    let pager = crate::pager().ok_or(libc::ENOMEM)?;
    // The region map is unlocked before the pages are touched: populating waits for the pager, dropping may take long.
    let runs = region_map::lock().mapped_in(first, count);
    let (mut next, mut covered) = (first, true);
    for run in runs {
        covered &= run.first == next;
        if !covered && meaning == Meaning::Populate {
            break;
        }
        advise_run(pager, run, advice, meaning)?;
        next = run.end();
    }
    // The kernel, too, goes on after a hole, but to populate, and tells afterwards.
    if covered && next == first + count { Ok(0) } else { Err(libc::ENOMEM) }
}

fn advise_run(pager: &Pager, run: Run, advice: i32, meaning: Meaning) -> Result<(), i32> {
    let (address, bytes) = apply::span(run);
    let to_kernel = || kernel(libc::SYS_madvise, [address, bytes, bits(advice), 0, 0, 0]);
    if loses_content(meaning) {
        seal::refuse_loss(run)?;
    }
    if run.attributes.kind == Kind::Foreign {
        return to_kernel().map(|_| ());
    }
    let locked = run.attributes.locked != Locked::No;
    match meaning {
        Meaning::Accepted => {}
        Meaning::Drop { locked_too: false } | Meaning::Free if locked => return Err(libc::EINVAL),
        Meaning::Drop { .. } => drop_content(pager, run),
        Meaning::Free => pager.free_lazily(PageNo(run.first), run.count),
        // Whether a child gets the run at all is kept in the region map alone: the kernel keeps all far memory from children until
        // the moment of a fork. Whether it is wiped is the kernel's, too.
        Meaning::Unforked(unforked) => note(run, || Ok(0), |attributes| attributes.unforked = unforked)?,
        Meaning::Wiped(wiped) => note(run, to_kernel, |attributes| attributes.wiped = wiped)?,
        Meaning::Undumped(undumped) => note(run, to_kernel, |attributes| attributes.undumped = undumped)?,
        Meaning::Populate => populate(pager, run, advice)?,
        Meaning::Refused => return Err(libc::EINVAL),
    }
    Ok(())
}

/// Whether advice takes content from the process or from its children.
fn loses_content(meaning: Meaning) -> bool {
    matches!(meaning, Meaning::Drop { .. } | Meaning::Free | Meaning::Unforked(true) | Meaning::Wiped(true))
}

/// Whether advice means nothing to the pager, so that the kernel may have it.
pub(super) fn is_harmless(advice: i32) -> bool {
    meaning(advice) == Meaning::Accepted
}

/// Maps all pages of a run. The kernel looks at each, once it is there, and says what it says of protections.
fn populate(pager: &Pager, run: Run, advice: i32) -> Result<(), i32> {
    let access = if advice == MADV_POPULATE_WRITE { PinAccess::Write } else { PinAccess::Read };
    let ask = |address: usize, bytes: usize| {
        let asked = kernel(libc::SYS_madvise, [address, bytes, bits(advice), 0, 0, 0]);
        asked.map(|_| ()).map_err(io::Error::from_raw_os_error)
    };
    pager.with_pages(PageNo(run.first), run.count, access, ask).map_err(|error| apply::errno_of(&error))
}

/// Drops content; the kernel refuses to while pages are locked, so the lock is lifted meanwhile.
fn drop_content(pager: &Pager, run: Run) {
    let page = PageNo(run.first);
    let was_locked = run.attributes.locked != Locked::No && pager.unlock(page, run.count).is_ok();
    pager.discard(page, run.count);
    if was_locked {
        // Already locked once within the limits; the kernel's own call promises nothing either.
        let _ = apply::lock(run);
    }
}

/// Changes the kernel's advice first, the region map after it.
fn note(run: Run, to_kernel: impl Fn() -> Outcome, change: impl Fn(&mut Attributes)) -> Result<(), i32> {
    let mut region_map = region_map::lock();
    to_kernel()?;
    region_map.update(run.first, run.count, change);
    Ok(())
}

/// posix_madvise(3): returns the error number. `POSIX_MADV_DONTNEED` does nothing in glibc, because it must not lose data.
pub fn posix_madvise(address: usize, bytes: usize, advice: i32) -> i32 {
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    if !(libc::POSIX_MADV_NORMAL..=libc::POSIX_MADV_WILLNEED).contains(&advice) {
        return libc::EINVAL;
    }
    let _errno = crate::errno::Preserved::new();
    madvise(address, bytes, advice).err().unwrap_or(0)
}
