//! The pager's hold on the kernel: the userfaultfd, the process's memory as a file, and which ways of arrival and departure
//! this kernel has.
//!
//! | way | when |
//! |---|---|
//! | arrival by COPY | always: needs no TLB flush, works while other threads run |
//! | departure by MOVE | Linux 6.8 and later; page read-write, not locked, not shared |
//! | departure by write-protect, COPY, drop | older kernels; pages of another protection |

use crate::sys::Uffd;
use crate::sys::mem::{self, OwnMemory};
use crate::sys::uffd::Partial;
use hinterland_sys::{Features, SysError};
use hinterland_units::PAGE_BYTES;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

/// See the module.
pub struct Kernel {
    features: Features,
    uffd: AtomicPtr<Uffd>,
    memory: AtomicPtr<OwnMemory>,
}

/// A page of zeros.
#[repr(align(4096))]
struct Zero([u8; PAGE_BYTES]);

/// Whether MOVE has moved a page to its slot, which was empty, although it says `errno` of it. Linux 6.18 does so where a page
/// was busy for a moment: what it moves next after that it does not count, and tries again, to find the slot taken. Rare, and
/// seen on very busy machines only (decision 0018).
fn was_moved(errno: i32, page: usize, slot: usize) -> bool {
    matches!(errno, libc::EEXIST | libc::ENOENT)
        && mem::has_page(slot).unwrap_or_else(|| mem::is_in_memory(slot))
        && !mem::has_page(page).unwrap_or_else(|| mem::is_in_memory(page))
}

/// Why a page could not be taken out of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotEvicted {
    /// Pinned or locked in memory: it stays.
    Pinned,
    /// It is not there: the program dropped it by a call that we did not see, so it reads as zero.
    Missing,
}

impl Kernel {
    /// Takes over an open userfaultfd and memory file for the life of the process.
    pub fn new(features: Features, uffd: Uffd, memory: OwnMemory) -> Kernel {
        Kernel {
            features,
            uffd: AtomicPtr::new(Box::into_raw(Box::new(uffd))),
            memory: AtomicPtr::new(Box::into_raw(Box::new(memory))),
        }
    }

    /// Replaces both, in the child of a fork: the inherited ones belong to the parent's memory. Whoever opened them closes
    /// them.
    pub(crate) fn replace(&self, uffd: Uffd, memory: OwnMemory) {
        let old = self.uffd.swap(Box::into_raw(Box::new(uffd)), Release);
        // SAFETY: the pointer came from Box::into_raw, and in the child of a fork no other thread can hold it.
        drop(unsafe { Box::from_raw(old) });
        let old = self.memory.swap(Box::into_raw(Box::new(memory)), Release);
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(old) });
    }

    /// The descriptors of userfaultfd and memory file.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.uffd().fd(), self.memory().fd()]
    }

    /// What may be used on this machine.
    pub fn features(&self) -> &Features {
        &self.features
    }

    pub(crate) fn uffd(&self) -> &Uffd {
        // SAFETY: never null; replaced only in a forked child, where nobody holds the old one.
        unsafe { &*self.uffd.load(Acquire) }
    }

    fn memory(&self) -> &OwnMemory {
        // SAFETY: as for `uffd`.
        unsafe { &*self.memory.load(Acquire) }
    }

    /// Whether the kernel takes requests for the userfaultfd at all: asks with one that does nothing.
    pub(crate) fn takes_requests(&self, page: usize) -> Result<(), SysError> {
        self.uffd().try_wake(page, PAGE_BYTES)
    }

    /// Registers a range for faults.
    pub(crate) fn register(&self, start: usize, len: usize) -> Result<(), SysError> {
        self.uffd().register(start, len, self.features.write_protect)
    }

    /// Maps copies of the pages at `from` at the missing pages at `address`, and wakes the threads that wait there.
    ///
    /// # Safety
    /// As `Uffd::copy`.
    pub(crate) unsafe fn map_copy(&self, address: usize, from: *const u8, pages: usize) -> Result<(), Partial> {
        // SAFETY: the caller's.
        unsafe { self.uffd().copy(address, from, pages * PAGE_BYTES) }
    }

    /// Maps zeros at a missing page whose content they are, and wakes the threads that wait there.
    pub(crate) fn map_zeros(&self, page: usize) -> Result<(), Partial> {
        static ZERO: Zero = Zero([0; PAGE_BYTES]);
        // SAFETY: only a missing page is filled, with its content.
        unsafe { self.uffd().copy(page, ZERO.0.as_ptr(), PAGE_BYTES) }
    }

    /// Moves a run of pages from the program to staging slots; returns how many left and why the next one did not.
    ///
    /// # Safety
    /// The caller owns the pages (`Leaving`) and the slots, which are empty.
    pub(crate) unsafe fn take_out(&self, page: usize, slot: usize, pages: usize) -> (usize, Option<NotEvicted>) {
        let mut done = 0;
        while done < pages {
            let mut refused = None;
            if self.features.move_pages {
                let (from, to) = (page + done * PAGE_BYTES, slot + done * PAGE_BYTES);
                // SAFETY: the caller's.
                match unsafe { self.uffd().move_pages(to, from, (pages - done) * PAGE_BYTES) } {
                    Ok(()) => return (pages, None),
                    Err(partial) => {
                        done += partial.done / PAGE_BYTES;
                        let uncounted = (done..pages)
                            .take_while(|n| was_moved(partial.errno, page + n * PAGE_BYTES, slot + n * PAGE_BYTES))
                            .count();
                        if uncounted > 0 {
                            done += uncounted;
                            continue;
                        }
                        refused = Some(partial.errno);
                    }
                }
                // A run is refused for the protection of any page in it, before the kernel looks at one. The first may be a frame that a device
                // has: a copy would lose what the device writes, so it is asked for alone.
                if refused == Some(libc::EINVAL) && pages - done > 1 {
                    let (from, to) = (page + done * PAGE_BYTES, slot + done * PAGE_BYTES);
                    // SAFETY: the caller's; one page.
                    refused = match unsafe { self.uffd().move_pages(to, from, PAGE_BYTES) } {
                        Err(partial) if !was_moved(partial.errno, from, to) => Some(partial.errno),
                        _ => None,
                    };
                    if refused.is_none() {
                        done += 1;
                        continue;
                    }
                }
                if done == pages {
                    return (done, None);
                }
            }
            // SAFETY: the caller's; one page.
            match unsafe { self.take_out_one(page + done * PAGE_BYTES, slot + done * PAGE_BYTES, refused) } {
                Ok(()) => done += 1,
                Err(why) => return (done, Some(why)),
            }
        }
        (done, None)
    }

    /// Takes one page out that MOVE `refused` with this error, or without MOVE.
    ///
    /// # Safety
    /// As `take_out`.
    unsafe fn take_out_one(&self, page: usize, slot: usize, refused: Option<i32>) -> Result<(), NotEvicted> {
        match refused {
            Some(libc::ENOENT) => Err(NotEvicted::Missing),
            // Shared with a forked process, or pinned: writing makes a shared page exclusive again. Not by a call that waits for a page that the
            // program has dropped meanwhile behind our back: this may be the thread that would have to serve the fault.
            Some(libc::EBUSY) => {
                let _ = mem::make_exclusive(page);
                // SAFETY: the caller's.
                match unsafe { self.uffd().move_pages(slot, page, PAGE_BYTES) } {
                    Err(partial) if was_moved(partial.errno, page, slot) => Ok(()),
                    Err(partial) if partial.errno == libc::ENOENT => Err(NotEvicted::Missing),
                    Err(_) => Err(NotEvicted::Pinned),
                    Ok(()) => Ok(()),
                }
            }
            // No MOVE; another protection than read-write; locked in memory.
            // SAFETY: the caller's.
            _ => unsafe { self.copy_out(page, slot) },
        }
    }

    /// Write-protects a page, copies it to a slot and drops it. A write in between waits for the monitor and faults again.
    ///
    /// # Safety
    /// As `take_out`.
    unsafe fn copy_out(&self, page: usize, slot: usize) -> Result<(), NotEvicted> {
        let protect = || self.uffd().write_protect(page, PAGE_BYTES, true).is_ok();
        if !self.features.write_protect || !protect() {
            return Err(NotEvicted::Pinned);
        }
        // SAFETY: the slot is empty and ours; the page cannot change.
        let copy = || unsafe { self.copy_to_slot(page, slot) };
        // A page that the program dropped gets its zeros first; the kernel refuses that for one that it has swapped out.
        let copied = copy() || !mem::is_in_memory(page) && self.map_zeros(page).is_ok() && protect() && copy();
        if copied {
            // SAFETY: the page's content is in the slot now, and the page is ours.
            if unsafe { mem::drop_pages(page, PAGE_BYTES) }.is_ok() {
                return Ok(());
            }
            // SAFETY: the slot is ours and the page keeps its content.
            let _ = unsafe { mem::drop_pages(slot, PAGE_BYTES) };
        }
        // Lifting the protection cannot fail on a page that was just protected; if it does, the next write asks again.
        let _ = self.uffd().write_protect(page, PAGE_BYTES, false);
        Err(NotEvicted::Pinned)
    }

    /// Copies a page, whatever its protection, to an empty slot. False for one that is missing: COPY from there would be a fault, which may
    /// be served by this thread, or by one that waits for the page to leave. To read it through `/proc/self/mem` is an error then.
    ///
    /// # Safety
    /// As `copy_out`.
    unsafe fn copy_to_slot(&self, page: usize, slot: usize) -> bool {
        let mut buffer = [0u8; PAGE_BYTES];
        // SAFETY: the buffer is one page and ours.
        let read = unsafe { self.memory().read_page(page, buffer.as_mut_ptr()) };
        // SAFETY: the slot is ours and the buffer is readable.
        read.is_ok() && unsafe { self.uffd().copy(slot, buffer.as_ptr(), PAGE_BYTES) }.is_ok()
    }

    /// Moves pages within the program, both runs read-write; page by page where a run stops.
    ///
    /// # Errors
    /// The kernel's, for a page that is pinned and whose mapping cannot be moved.
    ///
    /// # Safety
    /// The caller owns the pages on both sides; the destination is missing.
    pub(crate) unsafe fn relocate(&self, from: usize, to: usize, pages: usize) -> Result<(), SysError> {
        let mut done = 0;
        while done < pages {
            // SAFETY: the caller's.
            let (moved, why) = unsafe { self.take_out(from + done * PAGE_BYTES, to + done * PAGE_BYTES, pages - done) };
            done += moved;
            match why {
                None => {}
                // A page that the program dropped reads as zero at its new place, too.
                Some(NotEvicted::Missing) => done += 1,
                // A device holds the frame: it must go along, so the mapping itself moves.
                Some(NotEvicted::Pinned) => {
                    // SAFETY: the caller's; one page.
                    unsafe { self.move_mapping(from + done * PAGE_BYTES, to + done * PAGE_BYTES) }?;
                    done += 1;
                }
            }
        }
        Ok(())
    }

    /// Moves the mapping of a page. Where it comes to lie beside a mapping that it fits, as one that moved before it or what was around it once, the
    /// kernel makes both one and takes all of that from the userfaultfd: what is missing there would read as zero. So it is unlike any other until
    /// it is registered, by advice that means nothing to memory without a file.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// The caller owns the pages on both sides; the destination is missing.
    unsafe fn move_mapping(&self, from: usize, to: usize) -> Result<(), SysError> {
        mem::advise(from, PAGE_BYTES, libc::MADV_RANDOM)?;
        // SAFETY: the caller's.
        let moved = unsafe { mem::move_mapping(from, to, PAGE_BYTES) };
        // Where the kernel does not take it back, it costs a mapping of its own.
        let _ = mem::advise(from, PAGE_BYTES, libc::MADV_NORMAL);
        moved?;
        self.register(to, PAGE_BYTES)?;
        let _ = mem::advise(to, PAGE_BYTES, libc::MADV_NORMAL);
        Ok(())
    }

    /// Drops the frames of a range that may be locked in memory.
    ///
    /// # Safety
    /// The caller owns the content.
    pub(crate) unsafe fn drop_pages(&self, start: usize, len: usize) {
        // SAFETY: the caller's.
        if unsafe { mem::drop_pages(start, len) }.is_err() {
            let _ = mem::unlock(start, len);
            // SAFETY: the caller's.
            let dropped = unsafe { mem::drop_pages(start, len) };
            assert!(dropped.is_ok(), "cannot drop {len} bytes at {start:#x}: {dropped:?}");
        }
    }
}
