//! userfaultfd: the wrappers of its ioctls.
//!
//! Own definitions, because the distribution's headers do not know MOVE.
//! Raw system calls: the library interposes `ioctl` and `read` for the program.
//! Source: `include/uapi/linux/userfaultfd.h`, ioctl_userfaultfd(2), Linux 6.18.

use crate::SysError;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

const API: u64 = 0xaa;

const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_WAKE: u64 = 0x8010_aa02;
const UFFDIO_COPY: u64 = 0xc028_aa03;
const UFFDIO_MOVE: u64 = 0xc028_aa05;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;

/// All requests that are made here, as far as the kernel looks at them: an ioctl's request has 32 bits.
#[allow(clippy::cast_possible_truncation, reason = "the kernel's requests have 32 bits")]
pub(crate) const REQUESTS: [u32; 5] =
    [UFFDIO_COPY as u32, UFFDIO_MOVE as u32, UFFDIO_WAKE as u32, UFFDIO_WRITEPROTECT as u32, UFFDIO_REGISTER as u32];
/// The first request on a new userfaultfd.
#[allow(clippy::cast_possible_truncation, reason = "as above")]
pub(crate) const GREETING: u32 = UFFDIO_API as u32;
/// `USERFAULTFD_IOC_NEW`, `_IO(0xAA, 0x00)`: opens a userfaultfd through the device.
pub(crate) const NEW: u32 = 0xaa00;

/// Bits of `uffdio_api.features`.
pub mod feature {
    /// Write-protect faults on anonymous memory.
    pub const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
    /// Faults are signals to the faulting thread.
    pub const SIGBUS: u64 = 1 << 7;
    /// Fault messages carry the thread.
    pub const THREAD_ID: u64 = 1 << 8;
    /// UFFDIO_MOVE.
    pub const MOVE: u64 = 1 << 16;
}

const REGISTER_MODE_MISSING: u64 = 1 << 0;
const REGISTER_MODE_WP: u64 = 1 << 1;
const WRITEPROTECT_MODE_WP: u64 = 1 << 0;
const EVENT_PAGEFAULT: u8 = 0x12;
const PAGEFAULT_FLAG_WRITE: u64 = 1 << 0;
const PAGEFAULT_FLAG_WP: u64 = 1 << 1;
/// userfaultfd(2) flag: only faults from user mode, needs no privilege.
pub const USER_MODE_ONLY: i32 = 1;

#[repr(C)]
struct ApiArg {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct RegisterArg {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtectArg {
    range: Range,
    mode: u64,
}

/// The argument of COPY and MOVE: `done` is the bytes moved, or a negative error number.
#[repr(C)]
struct TransferArg {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    done: i64,
}

/// `struct uffd_msg` of a page fault.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    padding: u32,
}

impl Message {
    /// Room for a message.
    pub const EMPTY: Message = Message { event: 0, reserved: [0; 7], flags: 0, address: 0, thread: 0, padding: 0 };
}

/// A page fault that the kernel reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The faulting address.
    pub address: usize,
    /// The access was a write.
    pub write: bool,
    /// The page is there but write-protected.
    pub write_protected: bool,
    /// The faulting thread (0 when the kernel does not say).
    pub thread: u32,
}

impl Message {
    /// The fault in this message; `None` for other events.
    pub fn fault(&self) -> Option<Fault> {
        (self.event == EVENT_PAGEFAULT).then(|| Fault {
            // The kernel reports addresses of this process, which fit a usize.
            address: usize::try_from(self.address).unwrap_or(usize::MAX),
            write: self.flags & PAGEFAULT_FLAG_WRITE != 0,
            write_protected: self.flags & PAGEFAULT_FLAG_WP != 0,
            thread: self.thread,
        })
    }
}

/// A transfer that stopped early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// Bytes transferred before the stop.
    pub done: usize,
    /// Why it stopped.
    pub errno: i32,
}

/// An open userfaultfd. Closing is the owner's decision (`close`): dropping keeps it open, because closing it would turn
/// every evicted page into zeros.
#[derive(Debug)]
pub struct Uffd {
    fd: RawFd,
    features: u64,
    kernel_faults: bool,
}

impl Uffd {
    /// Opens a userfaultfd that also takes faults of system calls, and enables `features`.
    ///
    /// Tries userfaultfd(2), then `/dev/userfaultfd`. The descriptor blocks on read and closes on exec.
    ///
    /// # Errors
    /// `EPERM` without the privilege, `EINVAL` when the kernel lacks a feature, `ENOSYS` without userfaultfd.
    pub fn open(features: u64) -> Result<Uffd, SysError> {
        Uffd::enable(open_privileged()?, features, true)
    }

    /// Opens a userfaultfd for faults from user mode only, for which nobody needs a privilege (Linux 5.11): system calls on
    /// missing pages fail with `EFAULT`. Where the call is forbidden, `/dev/userfaultfd` will do for those who may open it.
    ///
    /// # Errors
    /// `EPERM` when a sandbox forbids it, `EINVAL` when the kernel lacks a feature, `ENOSYS` without userfaultfd.
    pub fn open_user_only(features: u64) -> Result<Uffd, SysError> {
        // SAFETY: userfaultfd(2) takes only flags.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        let fd = match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => fd,
            _ => open_privileged()?,
        };
        Uffd::enable(fd, features, false)
    }

    fn enable(fd: RawFd, features: u64, kernel_faults: bool) -> Result<Uffd, SysError> {
        let mut arg = ApiArg { api: API, features, ioctls: 0 };
        // SAFETY: `arg` is a valid uffdio_api for the duration of the call.
        let rc = unsafe { libc::syscall(libc::SYS_ioctl, fd, UFFDIO_API, &mut arg) };
        if rc < 0 {
            let error = SysError::last("UFFDIO_API");
            close(fd);
            return Err(error);
        }
        Ok(Uffd { fd, features: arg.features, kernel_faults })
    }

    /// The features that the kernel offers (all of them, whether enabled or not).
    pub fn offered(&self) -> u64 {
        self.features
    }

    /// Whether it takes faults of system calls.
    pub fn takes_kernel_faults(&self) -> bool {
        self.kernel_faults
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// The same userfaultfd under the descriptor `fd`, to which the caller moved it.
    pub fn taken_as(self, fd: RawFd) -> Uffd {
        Uffd { fd, ..self }
    }

    /// Closes the descriptor. With the last one gone, missing pages read as zero.
    pub fn close(self) {
        close(self.fd);
    }

    /// Asks for missing faults, and with `write_protect` for write-protect faults, in `start .. start + len`.
    ///
    /// # Errors
    /// The kernel's: the range holds mappings that userfaultfd cannot serve.
    pub fn register(&self, start: usize, len: usize, write_protect: bool) -> Result<(), SysError> {
        let mode = REGISTER_MODE_MISSING | if write_protect { REGISTER_MODE_WP } else { 0 };
        let mut arg = RegisterArg { range: Range { start: start as u64, len: len as u64 }, mode, ioctls: 0 };
        // SAFETY: `arg` is a valid uffdio_register for the duration of the call; registering changes no memory.
        let rc = unsafe { libc::syscall(libc::SYS_ioctl, self.fd, UFFDIO_REGISTER, &mut arg) };
        if rc < 0 { Err(SysError::last("UFFDIO_REGISTER")) } else { Ok(()) }
    }

    /// Copies `len` bytes from `src` into missing pages at `dst` and wakes the threads that wait for them.
    ///
    /// # Errors
    /// `EEXIST`: the page at `dst + done` is there already. Others: the kernel's.
    ///
    /// # Safety
    /// `src .. src + len` is readable and no program data is lost by filling missing pages at `dst` with it.
    pub unsafe fn copy(&self, dst: usize, src: *const u8, len: usize) -> Result<(), Partial> {
        let mut arg = TransferArg { dst: dst as u64, src: src as u64, len: len as u64, mode: 0, done: 0 };
        // SAFETY: `arg` is valid for the call; the caller answers for `src` and `dst`.
        unsafe { self.transfer(UFFDIO_COPY, &mut arg) }
    }

    /// Moves the pages at `src .. src + len` to the missing pages at `dst`; afterwards `src` is missing.
    ///
    /// # Errors
    /// `EBUSY`: a page is shared (fork) or pinned. `EINVAL`: protection or locking of the mappings differs. `ENOENT`: a
    /// source page is missing. `EEXIST`: a destination page is there.
    ///
    /// # Safety
    /// The caller owns the content at `src` and `dst`: nobody reads `src` and takes its zeros for data.
    pub unsafe fn move_pages(&self, dst: usize, src: usize, len: usize) -> Result<(), Partial> {
        let mut arg = TransferArg { dst: dst as u64, src: src as u64, len: len as u64, mode: 0, done: 0 };
        // SAFETY: `arg` is valid for the call; the caller answers for the pages.
        unsafe { self.transfer(UFFDIO_MOVE, &mut arg) }
    }

    /// Runs COPY or MOVE to its end, going on after `EAGAIN`.
    ///
    /// # Safety
    /// That of `copy` and `move_pages`.
    unsafe fn transfer(&self, request: u64, arg: &mut TransferArg) -> Result<(), Partial> {
        let mut total = 0usize;
        loop {
            arg.done = 0;
            // SAFETY: `arg` is a valid transfer argument; the caller answers for the memory.
            let rc = unsafe { libc::syscall(libc::SYS_ioctl, self.fd, request, &mut *arg) };
            if rc == 0 {
                return Ok(());
            }
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            // A negative count means that nothing was transferred.
            let done = usize::try_from(arg.done).unwrap_or(0);
            total += done;
            if errno != libc::EAGAIN {
                return Err(Partial { done: total, errno });
            }
            arg.dst += done as u64;
            arg.src += done as u64;
            arg.len -= done as u64;
            if arg.len == 0 {
                return Ok(());
            }
        }
    }

    /// Protects the present pages of a range against writes, or lifts it and wakes the threads that wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write_protect(&self, start: usize, len: usize, protect: bool) -> Result<(), SysError> {
        let mode = if protect { WRITEPROTECT_MODE_WP } else { 0 };
        let mut arg = WriteProtectArg { range: Range { start: start as u64, len: len as u64 }, mode };
        loop {
            // SAFETY: `arg` is a valid uffdio_writeprotect; protection changes no content.
            let rc = unsafe { libc::syscall(libc::SYS_ioctl, self.fd, UFFDIO_WRITEPROTECT, &mut arg) };
            if rc == 0 {
                return Ok(());
            }
            let error = SysError::last("UFFDIO_WRITEPROTECT");
            if error.errno != libc::EAGAIN {
                return Err(error);
            }
        }
    }

    /// Lets the threads that wait for a page in the range fault again.
    pub fn wake(&self, start: usize, len: usize) {
        // The only failure is a bad range, and then nobody waits there.
        let _ = self.try_wake(start, len);
    }

    /// As `wake`, with the kernel's answer: for whoever asks whether it takes requests at all.
    ///
    /// # Errors
    /// `EINVAL` for a bad range; anything at all when a filter of system calls forbids the request.
    pub fn try_wake(&self, start: usize, len: usize) -> Result<(), SysError> {
        let mut arg = Range { start: start as u64, len: len as u64 };
        // SAFETY: `arg` is a valid uffdio_range.
        let rc = unsafe { libc::syscall(libc::SYS_ioctl, self.fd, UFFDIO_WAKE, &mut arg) };
        if rc < 0 { Err(SysError::last("UFFDIO_WAKE")) } else { Ok(()) }
    }

    /// Waits for faults; returns how many messages were read.
    ///
    /// # Errors
    /// The kernel's; `EINTR` is retried.
    pub fn read(&self, messages: &mut [Message]) -> Result<usize, SysError> {
        loop {
            // SAFETY: the buffer is `messages`, whose element is laid out as uffd_msg (32 bytes, any bits valid).
            let n = unsafe {
                libc::syscall(
                    libc::SYS_read,
                    self.fd,
                    messages.as_mut_ptr().cast::<u8>(),
                    std::mem::size_of_val::<[Message]>(messages),
                )
            };
            if let Ok(bytes) = usize::try_from(n) {
                return Ok(bytes / size_of::<Message>());
            }
            let error = SysError::last("read of the userfaultfd");
            if error.errno != libc::EINTR && error.errno != libc::EAGAIN {
                return Err(error);
            }
        }
    }
}

/// The device through which a userfaultfd can be made without privilege by whoever has it open; -1: not kept.
static DEVICE: AtomicI32 = AtomicI32::new(-1);

/// Keeps the device open, where there is one (Linux 6.1) that may be opened: a process that gives its privileges up can make
/// a userfaultfd for its children then.
pub fn keep_device() {
    // SAFETY: the path is a C string.
    let device = unsafe { libc::open(c"/dev/userfaultfd".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if device >= 0 {
        DEVICE.store(crate::descriptor::hide(device).unwrap_or(-1), Relaxed);
    }
}

/// The device, where it is kept open.
pub(crate) fn kept_device() -> Option<RawFd> {
    Some(DEVICE.load(Relaxed)).filter(|device| *device >= 0)
}

/// Makes a userfaultfd through an open device.
fn open_through(device: RawFd) -> Result<RawFd, SysError> {
    // SAFETY: the argument is the flags by value.
    let fd = unsafe { libc::syscall(libc::SYS_ioctl, device, NEW, libc::O_CLOEXEC) };
    i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(|| SysError::last("USERFAULTFD_IOC_NEW"))
}

/// Opens a userfaultfd with the privilege for faults in the kernel.
fn open_privileged() -> Result<RawFd, SysError> {
    // SAFETY: userfaultfd(2) takes only flags.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    if let Some(fd) = i32::try_from(fd).ok().filter(|fd| *fd >= 0) {
        return Ok(fd);
    }
    let refused = SysError::last("userfaultfd");
    if let Ok(fd) = open_through(DEVICE.load(Relaxed)) {
        return Ok(fd);
    }
    // SAFETY: the path is a C string.
    let device = unsafe { libc::open(c"/dev/userfaultfd".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if device < 0 {
        return Err(refused);
    }
    let result = open_through(device);
    close(device);
    result
}

/// Closes a descriptor by number. Through the raw call: the library interposes `close` and protects its own descriptors.
fn close(fd: RawFd) {
    // SAFETY: closing a descriptor that this module opened.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}
