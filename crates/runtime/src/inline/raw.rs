//! System calls of the library's own, made where nothing of libc may run: in signal handlers.
//!
//! No errno is set; nothing is interposed. From the trampoline, which the filter lets through, because a stack may be far.

pub(crate) use hinterland_sys::thread::change_mask;
use hinterland_sys::trampoline;
use std::mem::MaybeUninit;

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

/// Whether the process has a thread of this number.
pub(crate) fn has_thread(thread: i32) -> bool {
    let id = |id: i32| id.unsigned_abs() as usize;
    // SAFETY: a signal that is none.
    unsafe { call(libc::SYS_tgkill, [id(process()), id(thread), 0, 0, 0, 0]) == 0 }
}

/// The process's threads: their directory has a link for each, and two more (proc(5)). `None` where there is no `/proc`. No allocator is called:
/// one that the program brings may not be set up yet.
pub(crate) fn count_threads() -> Option<u64> {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/task";
    // SAFETY: the path is a C string, and the structure the kernel's, which is zeroed.
    unsafe {
        let result = call(libc::SYS_stat, [path.as_ptr().addr(), status.as_mut_ptr().addr(), 0, 0, 0, 0]);
        (result == 0).then(|| status.assume_init().st_nlink.saturating_sub(2))
    }
}

/// The calling thread.
pub(crate) fn thread() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    i32::try_from(unsafe { call(libc::SYS_gettid, [0; 6]) }).unwrap_or(0)
}
