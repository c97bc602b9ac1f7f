//! The trampoline: one page of system-call instructions at a fixed address, by which filters tell whose a call is.
//!
//! | instruction | whose calls | the filter of [`crate::seccomp`] | the program's own filter |
//! |---|---|---|---|
//! | `REPEATED` | the program's, once their pages are local and pinned | lets them through | judges them |
//! | `INSIDE` | ours, made where a trap cannot be served: all they name is near | lets them through | lets the listed ones through |
//! | `OWN` | ours, everywhere else | looks at them | lets the listed ones through |
//! | `RESTORER` | the return from a signal handler | looks at it | lets it through |
//!
//! The addresses are constants, because a filter outlives the program that installed it: a program started by exec finds the page's
//! address in the filter that it inherited, and maps the same page again. What the program's own filter lets through is in
//! [`crate::confinement`].
//!
//! The kernel reports the instruction *behind* `syscall` as the caller's (`seccomp_data.instruction_pointer`, seccomp(2)), and
//! goes back two bytes to restart an interrupted call, so restarts come from here too.

use crate::SysError;
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

/// Where the page lies: above what the kernel forbids (`vm.mmap_min_addr`, 64 KiB), below every executable with fixed addresses (2 MiB and
/// up), where neither the kernel nor a runtime with a layout of its own puts anything. One between larger addresses lay in the way of
/// programs that map terabytes with `MAP_FIXED`.
pub const ADDRESS: usize = 0x10_0000;
/// What the kernel reports as the instruction pointer of a call of the program's that is repeated.
pub const RETURN_ADDRESS: usize = ADDRESS + REPEATED + SYSCALL.len();
/// The same for a call of ours that is not looked at. One bit away from `RETURN_ADDRESS`, so that a filter compares both at once.
pub const INSIDE_RETURN_ADDRESS: usize = ADDRESS + INSIDE + SYSCALL.len();
/// The instruction itself.
pub const INSIDE_ADDRESS: usize = ADDRESS + INSIDE;
/// The instruction for all other calls of ours.
pub const OWN_ADDRESS: usize = ADDRESS + OWN;
/// What the kernel reports as the instruction pointer of these.
pub const OWN_RETURN_ADDRESS: usize = ADDRESS + OWN + SYSCALL.len();
/// The code that returns from a signal handler.
pub const RESTORER_ADDRESS: usize = ADDRESS + RESTORER;
/// What the kernel reports as the instruction pointer of that return.
pub const RESTORER_RETURN_ADDRESS: usize = RESTORER_ADDRESS + LOAD_SIGRETURN.len() + SYSCALL.len();

const REPEATED: usize = 0;
const INSIDE: usize = 0x10;
const OWN: usize = 0x20;
/// Not at once behind another function: unwinders look up the byte before a return address.
const RESTORER: usize = 0x40;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const RET: u8 = 0xc3;
/// `mov rax, SYS_rt_sigreturn`, in the very form by which unwinders and debuggers recognise the return from a handler.
const LOAD_SIGRETURN: [u8; 7] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0];
const NOP: u8 = 0x90;

/// Calls go through the page.
pub static MAPPED: AtomicBool = AtomicBool::new(false);

/// Maps the page; once is enough for a process and the children that it forks.
///
/// # Errors
/// `EEXIST` when something else lies there; what mmap(2) and mprotect(2) say.
pub fn map() -> Result<(), SysError> {
    if is_mapped() {
        return Ok(());
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping that replaces nothing.
    let at = unsafe { libc::syscall(libc::SYS_mmap, ADDRESS, PAGE_BYTES, protection, flags, -1isize, 0usize) };
    match usize::try_from(at) {
        Ok(ADDRESS) => {}
        // Kernels before 4.17 take the address as a hint.
        Ok(elsewhere) => {
            // SAFETY: just mapped, and nobody knows it.
            unsafe { libc::syscall(libc::SYS_munmap, elsewhere, PAGE_BYTES) };
            return Err(SysError { call: "mmap of the trampoline", errno: libc::EEXIST });
        }
        Err(_) => return Err(SysError::last("mmap of the trampoline")),
    }
    // SAFETY: the page was just mapped, writable, and is ours.
    let page = unsafe { std::slice::from_raw_parts_mut(ADDRESS as *mut u8, PAGE_BYTES) };
    for place in [REPEATED, INSIDE, OWN] {
        page[place..place + 3].copy_from_slice(&[SYSCALL[0], SYSCALL[1], RET]);
    }
    page[RESTORER - 1] = NOP;
    page[RESTORER..RESTORER + LOAD_SIGRETURN.len()].copy_from_slice(&LOAD_SIGRETURN);
    page[RESTORER + LOAD_SIGRETURN.len()..][..SYSCALL.len()].copy_from_slice(&SYSCALL);
    crate::mem::protect(ADDRESS, PAGE_BYTES, libc::PROT_READ | libc::PROT_EXEC)?;
    MAPPED.store(true, Release);
    Ok(())
}

/// How unwinders get out of the page: the caller's address lies where the stack pointer points. Without it a thread that is
/// cancelled in a call would not run the destructors on its stack. A common entry, one entry, and the end (System V ABI for
/// x86-64, 3.7; DWARF 5, 6.4.1).
#[repr(C)]
struct FrameDescription {
    common_bytes: u32,
    common_id: u32,
    /// Version 1, no augmentation; factors 1 and -8; the return address is register 16. Then the rules: the frame is 8 above
    /// register 7 (rsp), the return address at the first factor below; and padding.
    common: [u8; 16],
    entry_bytes: u32,
    /// From here back to the common entry.
    to_common_bytes: u32,
    start: u64,
    len: u64,
    end: u32,
}

static FRAME: FrameDescription = FrameDescription {
    common_bytes: 20,
    common_id: 0,
    common: [1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0, 0, 0],
    entry_bytes: 20,
    to_common_bytes: 28,
    start: ADDRESS as u64,
    len: OWN as u64 + SYSCALL.len() as u64 + 1,
    end: 0,
};

/// Tells unwinders about the page. Once for a process, after `map`.
pub fn describe() {
    unsafe extern "C" {
        fn __register_frame(begin: *const u8);
    }
    // SAFETY: the description is complete, ends with a zero, and lives for ever.
    unsafe { __register_frame((&raw const FRAME).cast()) };
}

/// Whether calls go through the page.
pub fn is_mapped() -> bool {
    MAPPED.load(Acquire)
}

/// Makes a system call of ours whose memory is near, from the page; from here while the page is not mapped. Returns what the kernel returns: a
/// value, or a negative error number. `errno` stays as it is. Async-signal-safe.
///
/// # Safety
/// That of the call. It must not be one that returns on another stack (clone(2) with a stack).
#[inline]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { from_page(INSIDE_ADDRESS, number, arguments) }
}

/// As `call`, for a call of the program's.
///
/// # Safety
/// As for `call`.
#[inline]
pub unsafe fn repeat(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { from_page(ADDRESS + REPEATED, number, arguments) }
}

/// As `call`, for a call of ours whose memory may be far: it is looked at by the filter of [`crate::seccomp`].
///
/// # Safety
/// As for `call`.
#[inline]
pub unsafe fn own_call(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { from_page(OWN_ADDRESS, number, arguments) }
}

/// # Safety
/// As for `call`.
#[cfg(miri)]
unsafe fn from_page(_: usize, number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { crate::by_miri::call(number, arguments) }
}

/// # Safety
/// As for `call`; `instruction` is one of the page's.
#[cfg(not(miri))]
#[inline]
unsafe fn from_page(instruction: usize, number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: i64;
    if is_mapped() {
        // SAFETY: the caller's; the page holds `syscall; ret`, which changes no register but those named.
        unsafe {
            core::arch::asm!("call {page}", page = in(reg) instruction, inlateout("rax") number => result,
                in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
                lateout("rcx") _, lateout("r11") _);
        }
    } else {
        // SAFETY: the caller's; the kernel changes no register but those named.
        unsafe {
            core::arch::asm!("syscall", inlateout("rax") number => result,
                in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
                lateout("rcx") _, lateout("r11") _, options(nostack));
        }
    }
    to_isize(result)
}

#[cfg(not(miri))]
#[allow(clippy::cast_possible_truncation, reason = "x86-64: both have 64 bits")]
fn to_isize(result: i64) -> isize {
    result as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_through_the_page_return_the_kernels_answer_and_leave_errno_alone() {
        map().unwrap();
        map().unwrap();
        assert!(is_mapped());
        // SAFETY: errno belongs to this thread; the calls touch no memory, or are refused.
        unsafe {
            *libc::__errno_location() = 77;
            let id = call(libc::SYS_getpid, [0; 6]);
            assert_eq!(u32::try_from(id), Ok(std::process::id()));
            let nothing_open = usize::MAX;
            assert_eq!(call(libc::SYS_close, [nothing_open, 0, 0, 0, 0, 0]), -(libc::EBADF as isize));
            assert_eq!(*libc::__errno_location(), 77);
        }
    }

    #[test]
    fn all_six_arguments_arrive() {
        map().unwrap();
        let bytes = PAGE_BYTES;
        let (protection, flags) = (libc::PROT_READ as usize, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize);
        // SAFETY: a new mapping, and its end.
        unsafe {
            let at = call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]).cast_unsigned();
            assert_eq!(*(at as *const u8), 0);
            assert_eq!(call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 1]), -(libc::EINVAL as isize));
            assert_eq!(call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]), 0);
        }
    }

    #[test]
    fn its_description_has_the_lengths_that_it_names() {
        use std::mem::offset_of;
        let after = |field: usize| field + size_of::<u32>();
        assert_eq!(offset_of!(FrameDescription, entry_bytes), after(0) + FRAME.common_bytes as usize);
        let entry = after(offset_of!(FrameDescription, entry_bytes));
        assert_eq!(offset_of!(FrameDescription, end), entry + FRAME.entry_bytes as usize);
        assert_eq!(offset_of!(FrameDescription, to_common_bytes), FRAME.to_common_bytes as usize);
    }
}
