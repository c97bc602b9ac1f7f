//! Moves runs of pages between memory and a file: through io_uring, or with preadv and pwritev where it is forbidden.
//!
//! A worker serves one call at a time. All its operations are over when `run` returns, so buffers are never in flight
//! outside a call; the number of operations in flight is bounded by the ring and by the `depth` that the caller gives.

use crate::mapping::Mapping;
use hinterland_sys::{confinement, descriptor};
use hinterland_units::PAGE_BYTES;
use io_uring::{IoUring, opcode, types};
use std::os::fd::{AsRawFd, RawFd};
use std::{io, ptr};

/// Entries of a ring: operations that one call can have in flight.
pub(super) const RING_ENTRIES: u32 = 64;
/// Pages that one operation moves at most: 256 KiB, what common disks take in one command.
pub(super) const RUN_PAGES_MAX: usize = 64;
/// Attempts before an error is reported.
const ATTEMPTS: usize = 3;

/// How pages travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoMethod {
    /// io_uring where the kernel allows it, else plain.
    #[default]
    Auto,
    /// preadv and pwritev.
    Plain,
}

/// One run of pages: contiguous in the file, anywhere in memory.
pub(super) struct Run {
    pub(super) fd: RawFd,
    pub(super) write: bool,
    pub(super) offset: u64,
    /// Its pages, as a part of the worker's `pages`.
    pub(super) first: usize,
    pub(super) count: usize,
}

/// What a thread needs to move pages.
pub(super) struct Worker {
    ring: Option<IoUring>,
    pub(super) runs: Vec<Run>,
    /// Where each page is in memory.
    pages: Vec<libc::iovec>,
    /// Aligned stand-ins for pages that direct I/O cannot reach.
    bounce: Option<Mapping>,
}

// SAFETY: the pointers in `pages` are only used during a call that holds the worker exclusively, and are cleared after it.
unsafe impl Send for Worker {}

/// The same ring under a descriptor that the program cannot close: it closes what it does not know, and a ring that is gone
/// while pages are in the kernel's hands leaves no safe way on.
fn hidden(ring: IoUring) -> io::Result<IoUring> {
    // SAFETY: duplicates our own descriptor; no memory is touched.
    let fd = unsafe { libc::fcntl(ring.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = descriptor::hide(fd)?;
    // SAFETY: the descriptor is a ring's, nobody else owns it, and the parameters are those that the kernel gave for this ring.
    unsafe { IoUring::from_fd(fd, ring.params().clone()) }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(ring) = &self.ring {
            descriptor::show(ring.as_raw_fd());
        }
    }
}

impl Worker {
    /// Memory of one worker: the ring's two queues and the tables. Bounce pages come on top when they are needed.
    pub(super) const RAM_BYTES: u64 = 16 << 10;

    pub(super) fn new(method: IoMethod) -> Worker {
        let ring = match method {
            IoMethod::Plain => None,
            IoMethod::Auto if confinement::is_confined() => None,
            // The flag spares interrupts; kernels before 5.19 refuse it.
            IoMethod::Auto => {
                let ring = IoUring::builder().setup_coop_taskrun().build(RING_ENTRIES);
                ring.or_else(|_| IoUring::new(RING_ENTRIES)).and_then(hidden).ok()
            }
        };
        Worker { ring, runs: Vec::new(), pages: Vec::new(), bounce: None }
    }

    /// Forgets the last call's pages and runs.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.pages.clear();
    }

    /// Appends a page of memory; returns its number.
    pub(super) fn add_page(&mut self, address: *mut u8) -> usize {
        self.pages.push(libc::iovec { iov_base: address.cast(), iov_len: PAGE_BYTES });
        self.pages.len() - 1
    }

    /// The address of bounce page `index`.
    pub(super) fn bounce(&mut self, index: usize) -> io::Result<*mut u8> {
        if self.bounce.is_none() {
            self.bounce = Some(Mapping::reserve(BOUNCE_PAGES * PAGE_BYTES)?);
        }
        let mapping = self.bounce.as_ref().expect("made above");
        Ok(mapping.at(index * PAGE_BYTES))
    }

    /// Carries out all runs, at most `depth()` at once, and calls `done(run, result)` for each as it completes. With
    /// `first_alone`, the first run is handed to the kernel by itself, and reported before all others. `meanwhile` is called when
    /// the first runs are in the kernel's hands. Without the ring in a process that the
    /// program has confined.
    ///
    /// # Safety
    /// Every page added since `clear` is valid, and no other thread uses it (for a read) or writes to it (for a write)
    /// until the call returns.
    pub(super) unsafe fn run(
        &mut self,
        first_alone: bool,
        depth: &dyn Fn() -> usize,
        done: &mut dyn FnMut(usize, Result<(), i32>),
        meanwhile: Option<&mut dyn FnMut()>,
    ) {
        if self.ring.is_some() && (self.runs.len() > 1 || meanwhile.is_some()) {
            // SAFETY: the caller's.
            let by_ring = confinement::with_files(|| unsafe { self.run_by_ring(first_alone, depth, done, meanwhile) });
            if by_ring.is_some() {
                return;
            }
        }
        for (index, run) in self.runs.iter().enumerate() {
            // SAFETY: the caller vouches for the pages.
            done(index, unsafe { transfer(run, &self.pages[run.first..][..run.count]) });
        }
    }

    /// As `run`, by the ring, which is there.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn run_by_ring(
        &mut self,
        first_alone: bool,
        depth: &dyn Fn() -> usize,
        done: &mut dyn FnMut(usize, Result<(), i32>),
        mut meanwhile: Option<&mut dyn FnMut()>,
    ) {
        let (runs, pages) = (&self.runs, &self.pages);
        let Some(ring) = self.ring.as_mut() else { return };
        let (mut next, mut in_flight, mut held) = (0, 0, Vec::new());
        let mut hold = first_alone;
        while next < runs.len() || in_flight > 0 {
            while next < runs.len() && in_flight < depth().clamp(1, RING_ENTRIES as usize) {
                // SAFETY: the pages stay valid until the completion, which this function waits for.
                unsafe { enqueue(ring, &runs[next], pages, next as u64) };
                (next, in_flight) = (next + 1, in_flight + 1);
                if first_alone && next == 1 {
                    enter(ring, 0);
                }
            }
            if let Some(meanwhile) = meanwhile.take() {
                enter(ring, 0);
                meanwhile();
            }
            enter(ring, 1);
            while let Some(entry) = ring.completion().next() {
                in_flight -= 1;
                let index = usize::try_from(entry.user_data()).expect("an index of `runs`");
                let run = &runs[index];
                // SAFETY: the caller vouches for the pages, and the kernel has finished with this run.
                let result = unsafe { check(run, &pages[run.first..][..run.count], entry.result()) };
                if hold && index != 0 {
                    held.push((index, result));
                    continue;
                }
                hold = false;
                done(index, result);
                held.drain(..).for_each(|(index, result)| done(index, result));
            }
        }
    }
}

/// Bounce pages of a worker: as many as pages in one call.
pub(super) const BOUNCE_PAGES: usize = 256;

/// Puts a run into the submission queue.
///
/// # Safety
/// The run's pages stay valid until its completion has been taken out.
unsafe fn enqueue(ring: &mut IoUring, run: &Run, pages: &[libc::iovec], token: u64) {
    let (file, vector) = (types::Fd(run.fd), pages[run.first..].as_ptr());
    let count = u32::try_from(run.count).expect("at most RUN_PAGES_MAX");
    let entry = if run.write {
        opcode::Writev::new(file, vector, count).offset(run.offset).build()
    } else {
        opcode::Readv::new(file, vector, count).offset(run.offset).build()
    };
    // SAFETY: the caller vouches for the buffers; no more than RING_ENTRIES are in flight, so there is room.
    let pushed = unsafe { ring.submission().push(&entry.user_data(token)) };
    assert!(pushed.is_ok(), "more runs in flight than the ring has entries");
}

/// Hands queued runs to the kernel and waits for `wait` completions.
fn enter(ring: &IoUring, wait: usize) {
    loop {
        match ring.submit_and_wait(wait) {
            Ok(_) => return,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::EBUSY) => std::thread::yield_now(),
                // Buffers are in the kernel's hands: there is no safe way on.
                _ => panic!("io_uring_enter failed with pages in flight: {error}"),
            },
        }
    }
}

/// Turns a completion into a result; what was cut short or failed is tried again page by page.
///
/// # Safety
/// As for `transfer`.
unsafe fn check(run: &Run, pages: &[libc::iovec], result: i32) -> Result<(), i32> {
    if usize::try_from(result) == Ok(run.count * PAGE_BYTES) {
        return Ok(());
    }
    // SAFETY: passed on.
    unsafe { page_by_page(run, pages) }
}

/// Moves a run with one call, or page by page if that falls short.
///
/// # Safety
/// The pages are valid and used by no other thread.
unsafe fn transfer(run: &Run, pages: &[libc::iovec]) -> Result<(), i32> {
    let number = if run.write { libc::SYS_pwritev } else { libc::SYS_preadv };
    // SAFETY: the vectors describe valid pages.
    let moved = unsafe {
        // The offset's upper half is for machines whose words have 32 bits.
        libc::syscall(number, run.fd, pages.as_ptr(), pages.len(), file_offset(run.offset), 0usize)
    };
    if usize::try_from(moved) == Ok(run.count * PAGE_BYTES) {
        return Ok(());
    }
    // SAFETY: passed on.
    unsafe { page_by_page(run, pages) }
}

/// Moves a run page by page, each with a few attempts.
///
/// # Safety
/// As for `transfer`.
unsafe fn page_by_page(run: &Run, pages: &[libc::iovec]) -> Result<(), i32> {
    for (index, page) in pages.iter().enumerate() {
        let offset = file_offset(run.offset + (index * PAGE_BYTES) as u64);
        let mut attempt = 1;
        // SAFETY: the vector describes a valid page.
        while let Err(errno) = unsafe { one_page(run.fd, run.write, page.iov_base, offset) } {
            if attempt == ATTEMPTS || errno == libc::ENOSPC {
                return Err(errno);
            }
            attempt += 1;
        }
    }
    Ok(())
}

/// Moves one page whole or not at all.
///
/// # Safety
/// `address` is a valid page that no other thread uses.
unsafe fn one_page(fd: RawFd, write: bool, address: *mut libc::c_void, offset: i64) -> Result<(), i32> {
    let number = if write { libc::SYS_pwrite64 } else { libc::SYS_pread64 };
    // SAFETY: the caller vouches for the page.
    let moved = unsafe { libc::syscall(number, fd, address, PAGE_BYTES, offset) };
    match usize::try_from(moved) {
        Ok(PAGE_BYTES) => Ok(()),
        // A write is only cut short when the disk is full; a read, when the file was cut.
        Ok(_) => Err(if write { libc::ENOSPC } else { libc::EIO }),
        Err(_) => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

fn file_offset(offset: u64) -> i64 {
    i64::try_from(offset).expect("capacities are below 2^63")
}

/// Whether direct I/O can reach a page at this address.
pub(super) fn is_aligned(address: *const u8) -> bool {
    address.addr().is_multiple_of(PAGE_BYTES) && !ptr::eq(address, ptr::null())
}
