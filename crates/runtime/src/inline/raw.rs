//! System calls of the library's own, made where nothing of libc may run: in signal handlers.
//!
//! No errno is set; nothing is interposed. From the trampoline, which the filter lets through, because a stack may be far.

pub(crate) use hinterland_sys::thread::change_mask;
use hinterland_sys::trampoline;

/// A system call. Returns what the kernel returns: a negative error number for a failure.
///
/// # Safety
/// That of the call.
#[inline]
pub(crate) unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    if trampoline::is_mapped() {
        // SAFETY: the caller's.
        return unsafe { trampoline::call(number, arguments) };
    }
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the caller's; the kernel changes no other register than those named.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// The process that runs. In a child of vfork, which shares the memory, another one than the memory belongs to.
pub(crate) fn process() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    i32::try_from(unsafe { call(libc::SYS_getpid, [0; 6]) }).unwrap_or(0)
}

/// The calling thread.
pub(crate) fn thread() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    i32::try_from(unsafe { call(libc::SYS_gettid, [0; 6]) }).unwrap_or(0)
}
