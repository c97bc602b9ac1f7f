//! mmap(2) and its kin, brk(2). The work is done on a near stack: it holds locks that a fault on a far stack would wait for.

use crate::errno::{Preserved, to_c};
use crate::on_near_stack;
use crate::{brk as program_break, mapping};
use libc::{c_int, c_long, c_uint, c_ulong, c_void, off_t};

/// Does the work on a near stack, and leaves `errno` to the answer: calls that go well do not change it.
fn quietly<R>(work: impl FnOnce() -> R) -> R {
    let _errno = Preserved::new();
    on_near_stack(work)
}

/// The address that a mapping call returns; `MAP_FAILED` is -1.
fn address(call: impl FnOnce() -> mapping::Outcome) -> *mut c_void {
    to_c(quietly(call)).cast_unsigned() as *mut c_void
}

/// What a call returns that answers 0 or -1.
fn status(call: impl FnOnce() -> mapping::Outcome) -> c_int {
    if to_c(quietly(call)) < 0 { -1 } else { 0 }
}

/// mmap has six arguments, so the return address goes on the stack as the seventh; pushing it also aligns the stack.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn mmap() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push qword ptr [rsp]",
        ".cfi_adjust_cfa_offset 8",
        "call {inner}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        inner = sym mmap_for
    )
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn mmap64() {
    core::arch::naked_asm!(".cfi_startproc", "jmp {mmap}", ".cfi_endproc", mmap = sym mmap)
}

extern "C" fn mmap_for(
    wish: usize,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    caller: usize,
) -> *mut c_void {
    address(|| mapping::map(mapping::MapRequest { address: wish, bytes, protection, flags, fd, offset }, caller))
}

#[unsafe(no_mangle)]
pub extern "C" fn munmap(start: usize, bytes: usize) -> c_int {
    status(|| mapping::unmap(start, bytes))
}

/// Variadic in C; the fifth argument is in its register whether or not it was given.
#[unsafe(no_mangle)]
pub extern "C" fn mremap(start: usize, old: usize, new: usize, flags: c_int, new_address: usize) -> *mut c_void {
    address(|| mapping::remap(start, old, new, flags, new_address))
}

#[unsafe(no_mangle)]
pub extern "C" fn mprotect(start: usize, bytes: usize, protection: c_int) -> c_int {
    status(|| mapping::protect(start, bytes, protection, -1))
}

#[unsafe(no_mangle)]
pub extern "C" fn pkey_mprotect(start: usize, bytes: usize, protection: c_int, key: c_int) -> c_int {
    status(|| mapping::protect(start, bytes, protection, key))
}

#[unsafe(no_mangle)]
pub extern "C" fn madvise(start: usize, bytes: usize, advice: c_int) -> c_int {
    status(|| mapping::madvise(start, bytes, advice))
}

#[unsafe(no_mangle)]
pub extern "C" fn posix_madvise(start: usize, bytes: usize, advice: c_int) -> c_int {
    quietly(|| mapping::posix_madvise(start, bytes, advice))
}

#[unsafe(no_mangle)]
pub extern "C" fn mlock(start: usize, bytes: usize) -> c_int {
    status(|| mapping::lock(start, bytes, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn mlock2(start: usize, bytes: usize, flags: c_int) -> c_int {
    status(|| mapping::lock(start, bytes, flags))
}

#[unsafe(no_mangle)]
pub extern "C" fn munlock(start: usize, bytes: usize) -> c_int {
    status(|| mapping::unlock(start, bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    status(|| mapping::lock_all(flags))
}

#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    status(mapping::unlock_all)
}

#[unsafe(no_mangle)]
pub extern "C" fn mincore(start: usize, bytes: usize, vector: usize) -> c_int {
    status(|| mapping::in_core(start, bytes, vector))
}

#[unsafe(no_mangle)]
pub extern "C" fn msync(start: usize, bytes: usize, flags: c_int) -> c_int {
    status(|| mapping::sync(start, bytes, flags))
}

/// libc has it since glibc 2.41.
#[unsafe(no_mangle)]
pub extern "C" fn mseal(start: usize, bytes: usize, flags: c_ulong) -> c_int {
    status(|| mapping::seal(start, bytes, usize::try_from(flags).unwrap_or(usize::MAX)))
}

/// libc has it since glibc 2.36.
#[unsafe(no_mangle)]
pub extern "C" fn process_madvise(pidfd: c_int, ranges: usize, count: usize, advice: c_int, flags: c_uint) -> isize {
    to_c(quietly(|| mapping::process_madvise(pidfd, ranges, count, advice, flags.cast_signed())))
}

#[unsafe(no_mangle)]
pub extern "C" fn shmat(segment: c_int, wish: usize, flags: c_int) -> *mut c_void {
    address(|| mapping::attach(segment, wish, flags))
}

#[unsafe(no_mangle)]
pub extern "C" fn shmdt(start: usize) -> c_int {
    status(|| mapping::detach(start))
}

/// A memory call by its number, for `syscall`, whose code at `caller` named it.
#[cfg(not(feature = "local-only"))]
pub(crate) unsafe extern "C" fn by_number(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    caller: usize,
) -> isize {
    let arguments = [a, b, c, d, e, f];
    // SAFETY: the program's own call.
    let call = || unsafe { mapping::call(number, arguments, caller) };
    to_c(quietly(call).unwrap_or_else(|| mapping::kernel(number, arguments)))
}

unsafe extern "C" {
    fn __sbrk(increment: isize) -> *mut c_void;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    match quietly(|| program_break::sbrk(increment)) {
        Some(outcome) => address(|| outcome),
        // SAFETY: the program's own call.
        None => unsafe { __sbrk(increment) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(to: usize) -> c_int {
    match quietly(|| program_break::brk(to)) {
        Some(outcome) => status(|| outcome),
        None => native_brk(to),
    }
}

/// brk(2) through sbrk(3): libc keeps the current break, which a raw call would change behind its back.
fn native_brk(to: usize) -> c_int {
    // SAFETY: asks for the current break, then moves it as the program said.
    let moved = unsafe {
        let now = __sbrk(0) as usize;
        __sbrk(to.wrapping_sub(now).cast_signed())
    };
    if moved as isize == -1 { -1 } else { 0 }
}
