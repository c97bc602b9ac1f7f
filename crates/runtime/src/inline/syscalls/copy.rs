//! Reading and writing memory that the program named and that may not be there: as the kernel does it, with an error instead
//! of a signal.
//!
//! The kernel copies between two processes, which may be the same (process_vm_readv(2)). Far pages are pinned for the copy.

use super::pinned::pin;
use super::refused;
use hinterland_pager::PinAccess;
use hinterland_sys::{confinement, trampoline};
use std::mem::MaybeUninit;
use std::mem::size_of;

/// A type of the kernel's that any bytes make a value of.
///
/// # Safety
/// Every bit pattern is a value.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers.
unsafe impl<const N: usize> Plain for [usize; N] {}
// SAFETY: integers.
unsafe impl<const N: usize> Plain for [u8; N] {}
// SAFETY: a pointer and a length.
unsafe impl Plain for libc::iovec {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [libc::iovec; N] {}
// SAFETY: pointers and lengths.
unsafe impl Plain for libc::msghdr {}
// SAFETY: a header and a length.
unsafe impl Plain for libc::mmsghdr {}

/// Which way a copy goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Copies `len` bytes between the program's `theirs` and our `ours`; the number of bytes that could be copied.
///
/// # Safety
/// `ours` is valid for `len` bytes, for writing when they come in.
unsafe fn copy(way: Way, theirs: usize, ours: *mut u8, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let access = if way == Way::In { PinAccess::Read } else { PinAccess::Write };
    let _pin = crate::pager().map(|pager| pin(pager, theirs, len, access));
    let local = libc::iovec { iov_base: ours.cast(), iov_len: len };
    let remote = libc::iovec { iov_base: theirs as *mut libc::c_void, iov_len: len };
    let number = if way == Way::In { libc::SYS_process_vm_readv } else { libc::SYS_process_vm_writev };
    // SAFETY: asks for the process's id; then the kernel copies between memory of this process, and checks `theirs`.
    let by_the_kernel = || unsafe {
        let process = trampoline::call(libc::SYS_getpid, [0; 6]).cast_unsigned();
        let (local, remote) = ((&raw const local).addr(), (&raw const remote).addr());
        trampoline::call(number, [process, local, 1, remote, 1, 0])
    };
    let answer = if confinement::knows_this_process() { by_the_kernel() } else { refused(libc::EPERM) };
    if answer == refused(libc::ENOSYS) || answer == refused(libc::EPERM) {
        // A kernel or a sandbox without that call: the program's pointers must be good.
        // SAFETY: the caller's, and the program's promise to the kernel.
        unsafe {
            match way {
                Way::In => ours.copy_from_nonoverlapping(theirs as *const u8, len),
                Way::Out => (theirs as *mut u8).copy_from_nonoverlapping(ours, len),
            }
        }
        return len;
    }
    usize::try_from(answer).unwrap_or(0)
}

/// Reads a value; `None` where not all of it can be read.
pub(super) fn read<T: Plain>(address: usize) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the value has that size; and every bit pattern is a value, so it is initialised when all bytes were read.
    unsafe {
        let len = copy(Way::In, address, value.as_mut_ptr().cast(), size_of::<T>());
        (len == size_of::<T>()).then(|| value.assume_init())
    }
}

/// Reads as much as can be read, up to `into.len()`; the number of bytes.
pub(super) fn read_bytes(address: usize, into: &mut [u8]) -> usize {
    // SAFETY: the slice is valid for its length.
    unsafe { copy(Way::In, address, into.as_mut_ptr(), into.len()) }
}

/// Reads elements of an array, as many as can be read.
pub(super) fn read_array<T: Plain>(address: usize, into: &mut [T]) -> usize {
    // SAFETY: the slice is valid for its length, and every bit pattern is a value.
    unsafe { copy(Way::In, address, into.as_mut_ptr().cast(), size_of_val(into)) / size_of::<T>() }
}

/// Writes a value. False where not all of it can be written.
pub(super) fn write<T: Plain>(address: usize, value: T) -> bool {
    let mut value = value;
    // SAFETY: the value has that size.
    unsafe { copy(Way::Out, address, (&raw mut value).cast(), size_of::<T>()) == size_of::<T>() }
}

/// Writes bytes; the number that could be written.
pub(super) fn write_bytes(address: usize, from: &[u8]) -> usize {
    // SAFETY: the slice is valid for its length, and is only read.
    unsafe { copy(Way::Out, address, from.as_ptr().cast_mut(), from.len()) }
}
