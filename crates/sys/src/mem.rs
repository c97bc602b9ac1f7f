//! Mappings: reserving, protecting, dropping.
//!
//! All calls are raw system calls: the library interposes libc's wrappers for the program, and its own calls must never
//! take that way.

use crate::{SysError, confinement, trampoline};
use hinterland_units::PAGE_BYTES;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Hinterland's own mappings, so that the account of a process can tell them from the program's.
const OWN_MAX: usize = 256;
static OWN: [(AtomicUsize, AtomicUsize); OWN_MAX] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; OWN_MAX];

/// A mapping, anonymous and private unless it is of a file, that lives as long as the process, unless it is unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

impl Mapping {
    /// Maps `len` bytes of zeros, read-write, without reserving swap for them; base pages only.
    ///
    /// # Errors
    /// `ENOMEM` and what else mmap(2) says.
    pub fn anonymous(len: usize) -> Result<Mapping, SysError> {
        let mapping = map(0, len, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        base_pages_only(mapping.start, len);
        own(mapping);
        Ok(mapping)
    }

    /// Maps the first `len` bytes of a file, read-write, shared with all processes that map it.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn of_file(file: &File, len: usize) -> Result<Mapping, SysError> {
        let (protection, fd) = (word(libc::PROT_READ | libc::PROT_WRITE), word(file.as_raw_fd()));
        // SAFETY: a new mapping, which replaces nothing.
        let made = unsafe { call("mmap", libc::SYS_mmap, [0, len, protection, word(libc::MAP_SHARED), fd, 0]) };
        let mapping = Mapping { start: made?, len };
        own(mapping);
        Ok(mapping)
    }

    /// Maps zeros at exactly `start`, read-write.
    ///
    /// # Errors
    /// `EEXIST` when something is there.
    pub fn at(start: usize, len: usize) -> Result<Mapping, SysError> {
        let mapping = exactly(start, len, libc::PROT_READ | libc::PROT_WRITE)?;
        own(mapping);
        Ok(mapping)
    }

    /// Reserves address space at exactly `start`, inaccessible.
    ///
    /// # Errors
    /// `EEXIST` when something is there, `ENOMEM` when the address space is limited.
    pub fn reserve_at(start: usize, len: usize) -> Result<Mapping, SysError> {
        let mapping = exactly(start, len, libc::PROT_NONE)?;
        let _ = advise(start, len, libc::MADV_DONTDUMP);
        base_pages_only(start, len);
        Ok(mapping)
    }

    /// The first byte.
    pub fn as_ptr(self) -> *mut u8 {
        self.start as *mut u8
    }

    /// Ends the mapping. What lies there next is not taken for Hinterland's.
    ///
    /// # Safety
    /// No thread uses it any more.
    pub unsafe fn end(self) {
        disown(self);
        unmap(self);
    }
}

/// Whether an address lies in one of Hinterland's own mappings.
pub fn is_own(address: usize) -> bool {
    OWN.iter().any(|(start, len)| address.wrapping_sub(start.load(Relaxed)) < len.load(Relaxed))
}

/// Records a mapping as Hinterland's own, and keeps it out of core dumps, which also keeps the kernel from merging it with
/// the program's. A full table costs accuracy of the account only.
pub fn own(mapping: Mapping) {
    let _ = advise(mapping.start, mapping.len, libc::MADV_DONTDUMP);
    for (start, len) in &OWN {
        if start.compare_exchange(0, mapping.start, Relaxed, Relaxed).is_ok() {
            len.store(mapping.len, Relaxed);
            return;
        }
    }
}

/// Ends the record of a mapping that is about to end.
pub(crate) fn disown(mapping: Mapping) {
    for (start, len) in &OWN {
        if start.load(Relaxed) == mapping.start && len.load(Relaxed) == mapping.len {
            // First the length: an entry without one says nothing.
            len.store(0, Relaxed);
            start.store(0, Relaxed);
        }
    }
}

pub(crate) fn map(start: usize, len: usize, protection: i32, flags: i32) -> Result<Mapping, SysError> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping; MAP_FIXED_NOREPLACE replaces nothing.
    let made = unsafe { call("mmap", libc::SYS_mmap, [start, len, word(protection), word(flags), usize::MAX, 0]) };
    made.map(|start| Mapping { start, len })
}

/// A call on memory, from the trampoline: the filter of the inline path stops those on far memory that come from elsewhere. Not
/// through `syscall` of libc, in whose place the library stands.
///
/// # Safety
/// That of the call.
pub(crate) unsafe fn call(name: &'static str, number: i64, arguments: [usize; 6]) -> Result<usize, SysError> {
    // SAFETY: the caller's.
    let answer = unsafe { trampoline::call(number, arguments) };
    usize::try_from(answer).map_err(|_| SysError { call: name, errno: i32::try_from(-answer).unwrap_or(libc::EINVAL) })
}

/// Bits of a C `int` as the kernel takes them.
fn word(value: i32) -> usize {
    value.cast_unsigned() as usize
}

/// Maps at an address and nowhere else.
fn exactly(start: usize, len: usize, protection: i32) -> Result<Mapping, SysError> {
    let mapping = map(start, len, protection, libc::MAP_FIXED_NOREPLACE)?;
    if mapping.start == start {
        return Ok(mapping);
    }
    // Kernels before 4.17 take the address as a hint.
    unmap(mapping);
    Err(SysError { call: "mmap", errno: libc::EEXIST })
}

fn unmap(mapping: Mapping) {
    // SAFETY: the caller's mapping, which nobody else knows or uses.
    let _ = unsafe { call("munmap", libc::SYS_munmap, [mapping.start, mapping.len, 0, 0, 0, 0]) };
}

/// Memory for an allocator: mappings that come, change their size and go. Not recorded as Hinterland's own.
pub mod chunk {
    use super::{Mapping, map, unmap};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);

    /// Bytes that are mapped by this module.
    pub fn mapped_bytes() -> usize {
        MAPPED_BYTES.load(Relaxed)
    }

    /// Up to so many bytes get their pages at once, which is quicker than a fault for each.
    const POPULATED_BYTES_MAX: usize = 64 << 10;

    /// Maps `len` bytes of zeros; `None` when there is no memory.
    pub fn map_new(len: usize) -> Option<Mapping> {
        let populate = if len <= POPULATED_BYTES_MAX { libc::MAP_POPULATE } else { 0 };
        let mapping = map(0, len, libc::PROT_READ | libc::PROT_WRITE, populate).ok()?;
        MAPPED_BYTES.fetch_add(len, Relaxed);
        Some(mapping)
    }

    /// Changes the size of a mapping, elsewhere if `may_move`; `None` when that cannot be done.
    ///
    /// # Safety
    /// The mapping came from this module, and no thread uses what a smaller one loses or, if it moves, its old place.
    pub unsafe fn resize(mapping: Mapping, len: usize, may_move: bool) -> Option<Mapping> {
        let flags = if may_move { libc::MREMAP_MAYMOVE } else { 0 };
        // SAFETY: the caller's.
        let moved = unsafe {
            super::call("mremap", libc::SYS_mremap, [mapping.start, mapping.len, len, super::word(flags), 0, 0])
        };
        let start = moved.ok()?;
        // Modulo 2^64: the mapping may have become smaller.
        MAPPED_BYTES.fetch_add(len.wrapping_sub(mapping.len), Relaxed);
        Some(Mapping { start, len })
    }

    /// Gives a mapping back.
    ///
    /// # Safety
    /// It came from this module (or is the end of one that did), and no thread uses it.
    pub unsafe fn give_back(mapping: Mapping) {
        MAPPED_BYTES.fetch_sub(mapping.len, Relaxed);
        unmap(mapping);
    }
}

/// Keeps huge pages out of a range. A kernel without them refuses, which is as good.
pub(crate) fn base_pages_only(start: usize, len: usize) {
    let _ = advise(start, len, libc::MADV_NOHUGEPAGE);
}

/// Maps inaccessible anonymous memory over `start .. start + len`, whatever was there.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// No thread uses what is mapped there now.
pub unsafe fn remap_inaccessible(start: usize, len: usize) -> Result<(), SysError> {
    map(start, len, libc::PROT_NONE, libc::MAP_FIXED)?;
    base_pages_only(start, len);
    Ok(())
}

/// Moves the frames of `from .. from + len` to `to`, also those that a device holds, by moving their mapping (`mremap`). At
/// `from` missing pages are left behind; the mapping at `to` has lost its registration with a userfaultfd. Linux 5.7.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The caller owns the content on both sides; both are private anonymous mappings.
pub unsafe fn move_mapping(from: usize, to: usize, len: usize) -> Result<(), SysError> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: the caller's.
    unsafe { call("mremap", libc::SYS_mremap, [from, len, len, word(flags), to, 0]) }.map(|_| ())
}

/// madvise(2) with advice that loses no data (`MADV_NOHUGEPAGE`, `MADV_DODUMP`, …).
///
/// # Errors
/// The kernel's.
pub fn advise(start: usize, len: usize, advice: i32) -> Result<(), SysError> {
    // SAFETY: the advice loses no data; `drop_pages` is the one that does.
    unsafe { call("madvise", libc::SYS_madvise, [start, len, word(advice), 0, 0, 0]) }.map(|_| ())
}

/// Makes a page that a forked process may have, too, this process's alone, as a write does, and changes nothing: the kernel adds zero to its first word
/// (futex(2), `FUTEX_WAKE_OP`).
///
/// Unlike `MADV_POPULATE_WRITE` this waits for no userfaultfd, so a thread that serves faults may call it: the kernel brings the page in by
/// `fixup_user_fault` without leave to try again, and `handle_userfault` refuses such faults (kernel/futex/core.c, fs/userfaultfd.c). A
/// thread that waits on the word for a futex may wake without a reason.
///
/// # Errors
/// `EFAULT`: the page is missing in a range that a userfaultfd serves, or may not be written.
pub fn make_exclusive(page: usize) -> Result<(), SysError> {
    /// Nothing waits here, and nothing is woken here.
    static NOBODY: AtomicU32 = AtomicU32::new(0);
    /// `FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, -2048)`: only if the word was −2048 is a thread woken that waits on it.
    const ADD_NOTHING: usize = 1 << 28 | 0x800;
    let operation = word(libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG);
    // SAFETY: adding zero to a word in one step changes nothing; the other word is ours.
    unsafe { call("futex", libc::SYS_futex, [NOBODY.as_ptr().addr(), operation, 0, 0, page, ADD_NOTHING]) }.map(|_| ())
}

/// Drops the frames of a range: its pages are missing afterwards.
///
/// # Errors
/// `EINVAL` when the range is locked in memory.
///
/// # Safety
/// The caller owns the content.
pub unsafe fn drop_pages(start: usize, len: usize) -> Result<(), SysError> {
    // SAFETY: the caller owns the content of the range.
    let dropped =
        unsafe { call("madvise(MADV_DONTNEED)", libc::SYS_madvise, [start, len, word(libc::MADV_DONTNEED), 0, 0, 0]) };
    dropped.map(|_| ())
}

/// Drops the frames of several ranges with one call and one TLB flush (process_madvise(2) on oneself, Linux 6.13); returns
/// the bytes that were dropped, from the first range on.
///
/// # Errors
/// The kernel's, when not even the first range could be dropped.
///
/// # Safety
/// The caller owns the content.
pub unsafe fn drop_vector(ranges: &[libc::iovec]) -> Result<usize, SysError> {
    const PIDFD_SELF: i32 = -10_000;
    // SAFETY: the ranges are this process's and the caller owns their content.
    unsafe {
        let arguments = [word(PIDFD_SELF), ranges.as_ptr().addr(), ranges.len(), word(libc::MADV_DONTNEED), 0, 0];
        call("process_madvise", libc::SYS_process_madvise, arguments)
    }
}

/// Copies `ranges`, one behind the other, to `into` with one call (process_vm_readv(2) on oneself); returns the bytes that were
/// copied. A page that is missing or may not be read ends the copy, where an instruction would be a fault; one that the kernel
/// has swapped out comes back for it.
///
/// # Errors
/// The kernel's, when nothing could be copied.
///
/// # Safety
/// `into` is writable memory of the ranges' length that no other thread uses.
pub unsafe fn copy_vector(ranges: &[libc::iovec], into: usize) -> Result<usize, SysError> {
    if !confinement::knows_this_process() {
        return Err(SysError { call: "process_vm_readv", errno: libc::EPERM });
    }
    let len = ranges.iter().map(|range| range.iov_len).sum();
    let into = libc::iovec { iov_base: into as *mut libc::c_void, iov_len: len };
    let (to, from) = ((&raw const into).addr(), ranges.as_ptr().addr());
    // SAFETY: the caller answers for `into`; the kernel checks the ranges. Not by libc's names: the library stands in their place,
    // and would pin what is copied.
    unsafe {
        let process = call("getpid", libc::SYS_getpid, [0; 6])?;
        call("process_vm_readv", libc::SYS_process_vm_readv, [process, to, 1, from, ranges.len(), 0])
    }
}

/// Whether `drop_vector` and `copy_vector` work here: tried on a page of our own.
pub fn vectors_work() -> bool {
    let Ok(pages) = map(0, 2 * PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, 0) else { return false };
    let range = libc::iovec { iov_base: pages.as_ptr().cast(), iov_len: PAGE_BYTES };
    // SAFETY: the pages were just mapped for this test.
    let works = unsafe {
        copy_vector(&[range], pages.start + PAGE_BYTES) == Ok(PAGE_BYTES) && drop_vector(&[range]) == Ok(PAGE_BYTES)
    };
    unmap(pages);
    works
}

/// Whether a page is in memory (mincore(2)). One that is not may be missing, or in the kernel's swap.
pub fn is_in_memory(page: usize) -> bool {
    let mut answer = [0];
    look_in_memory(page, &mut answer);
    answer[0] & 1 != 0
}

/// The same of as many pages from `first` as there are answers, in bit 0 of each. None is in memory where not all are mapped.
pub fn look_in_memory(first: usize, answers: &mut [u8]) {
    let range = [first, answers.len() * PAGE_BYTES, answers.as_mut_ptr().addr(), 0, 0, 0];
    // SAFETY: there is one byte for each page asked of.
    if unsafe { call("mincore", libc::SYS_mincore, range) }.is_err() {
        answers.fill(0);
    }
}

/// Whether there is a page at an address, in memory or in the kernel's swap (`/proc/self/pagemap`, proc_pid_pagemap(5)). `None`:
/// nobody can say.
pub fn has_page(page: usize) -> Option<bool> {
    confinement::with_files(|| pagemap_says(page)).flatten()
}

fn pagemap_says(page: usize) -> Option<bool> {
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    let mut entry = 0u64;
    // SAFETY: the path is a C string; the entry has room for what is read; the descriptor is closed by whom it belongs to.
    let read = unsafe {
        let path = c"/proc/self/pagemap".as_ptr();
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
        if fd < 0 {
            return None;
        }
        let offset = page / PAGE_BYTES * size_of::<u64>();
        let read = libc::syscall(libc::SYS_pread64, fd, &raw mut entry, size_of::<u64>(), offset);
        libc::syscall(libc::SYS_close, fd);
        read
    };
    (read == 8).then_some(entry & PRESENT_OR_SWAPPED != 0)
}

/// mprotect(2).
///
/// # Errors
/// The kernel's, for example `ENOMEM` when the process has too many mappings.
pub fn protect(start: usize, len: usize, protection: i32) -> Result<(), SysError> {
    // SAFETY: protection changes no content; the program asked for it.
    unsafe { call("mprotect", libc::SYS_mprotect, [start, len, word(protection), 0, 0, 0]) }.map(|_| ())
}

/// Has a page come, by writing a byte back as it is. (A compiler drops an atomic operation that changes nothing.)
///
/// # Safety
/// `address` is writable.
pub unsafe fn touch(address: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::arch::asm!("lock or byte ptr [{0}], 0", in(reg) address, options(nostack)) };
}

/// mlock2(2): `on_fault` locks pages as they come.
///
/// # Errors
/// `ENOMEM`, `EPERM`: the limit on locked memory.
pub fn lock(start: usize, len: usize, on_fault: bool) -> Result<(), SysError> {
    const MLOCK_ONFAULT: i32 = 1;
    let flags = if on_fault { MLOCK_ONFAULT } else { 0 };
    // SAFETY: locking changes no content.
    unsafe { call("mlock2", libc::SYS_mlock2, [start, len, word(flags), 0, 0, 0]) }.map(|_| ())
}

/// munlock(2).
///
/// # Errors
/// The kernel's.
pub fn unlock(start: usize, len: usize) -> Result<(), SysError> {
    // SAFETY: unlocking changes no content.
    unsafe { call("munlock", libc::SYS_munlock, [start, len, 0, 0, 0, 0]) }.map(|_| ())
}

/// The process's memory as a file: reads pages whatever their protection.
#[derive(Debug)]
pub struct OwnMemory {
    fd: i32,
}

impl OwnMemory {
    /// Opens `/proc/self/mem` for reading.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open() -> Result<OwnMemory, SysError> {
        if confinement::is_confined() {
            return Err(SysError { call: "open of /proc/self/mem", errno: libc::EPERM });
        }
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if fd < 0 { Err(SysError::last("open of /proc/self/mem")) } else { Ok(OwnMemory { fd }) }
    }

    /// Nothing: every read fails. For a process that may not open its own (it gave its privileges up).
    pub fn none() -> OwnMemory {
        OwnMemory { fd: -1 }
    }

    /// The descriptor.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// The same file under the descriptor `fd`, to which the caller moved it.
    pub fn taken_as(self, fd: i32) -> OwnMemory {
        OwnMemory { fd }
    }

    /// Reads one page at `address` into `into`.
    ///
    /// # Errors
    /// The kernel's; `EIO` when less than a page could be read.
    ///
    /// # Safety
    /// `into` is the start of one writable page that no other thread uses.
    pub unsafe fn read_page(&self, address: usize, into: *mut u8) -> Result<(), SysError> {
        // SAFETY: the caller answers for `into`; the kernel checks `address`.
        let n = unsafe { libc::syscall(libc::SYS_pread64, self.fd, into, PAGE_BYTES, address) };
        match usize::try_from(n) {
            Ok(PAGE_BYTES) => Ok(()),
            Ok(_) => Err(SysError { call: "pread of /proc/self/mem", errno: libc::EIO }),
            Err(_) => Err(SysError::last("pread of /proc/self/mem")),
        }
    }
}
