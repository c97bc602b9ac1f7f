//! Memory that a system call names: copied as the kernel would, with `EFAULT` for an address that is none.
//!
//! The kernel copies (process_vm_readv(2) on the process itself), because a bad
//! address would be the end of the process here. It does not wait for missing far pages, so these are brought in first.

use super::stacks::stack_switch;
use super::{raw, trap};
use crate::errno::Preserved;
use hinterland_sys::confinement;
use hinterland_sys::thread::SignalsBlocked;
use hinterland_units::PAGE_BYTES;
use std::mem::MaybeUninit;

/// Times that a far page may go away again between being brought in and being copied.
const ATTEMPTS: usize = 64;

/// The address is not the program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadAddress;

/// Error numbers as the kernel returns them.
impl From<BadAddress> for i32 {
    fn from(_: BadAddress) -> i32 {
        libc::EFAULT
    }
}

/// Reads a value of a type that has no padding and for which any bytes are valid.
pub(crate) fn read<T: Copy>(address: usize) -> Result<T, BadAddress> {
    let mut value = MaybeUninit::<T>::zeroed();
    copy(libc::SYS_process_vm_readv, value.as_mut_ptr().addr(), address, size_of::<T>())?;
    // SAFETY: all bytes were written, and the caller's type takes any.
    Ok(unsafe { value.assume_init() })
}

/// As `read`, where the address may be null: nothing is named then.
pub(crate) fn read_optional<T: Copy>(address: usize) -> Result<Option<T>, BadAddress> {
    if address == 0 { Ok(None) } else { read(address).map(Some) }
}

/// Reads bytes.
pub(crate) fn read_bytes(address: usize, into: &mut [u8]) -> Result<(), BadAddress> {
    if into.is_empty() {
        return Ok(());
    }
    copy(libc::SYS_process_vm_readv, into.as_mut_ptr().addr(), address, into.len())
}

/// Reads the first bytes of several texts at once, as far as the kernel finds them there and in order; how many of them.
pub(crate) fn read_firsts<const N: usize>(addresses: &[usize], into: &mut [[u8; N]]) -> usize {
    const MOST: usize = 128;
    if !confinement::knows_this_process() {
        return 0;
    }
    let count = addresses.len().min(into.len()).min(MOST);
    let mut there = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: N }; MOST];
    for (range, address) in there.iter_mut().zip(addresses) {
        range.iov_base = *address as *mut _;
    }
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: count * N };
    let process = raw::process().unsigned_abs() as usize;
    let arguments = [process, (&raw const here).addr(), 1, there.as_ptr().addr(), count, 0];
    // SAFETY: the range here is ours and has this size, and the kernel checks the others.
    let done = unsafe { raw::call(libc::SYS_process_vm_readv, arguments) };
    usize::try_from(done).unwrap_or(0) / N
}

/// Writes a value.
pub(crate) fn write<T: Copy>(address: usize, value: &T) -> Result<(), BadAddress> {
    copy(libc::SYS_process_vm_writev, std::ptr::from_ref(value).addr(), address, size_of::<T>())
}

/// As `write`, of a word, where that is called often. What is within a page above the stack pointer is in a frame; of other places the kernel
/// says whether a word can be written there, by a call that tells the mask.
pub(crate) fn write_word(address: usize, word: u64) -> Result<(), BadAddress> {
    let here = 0u8;
    let is_in_frame = address.wrapping_sub((&raw const here).addr()) < PAGE_BYTES;
    let told = [libc::SIG_BLOCK.unsigned_abs() as usize, 0, address, size_of::<u64>(), 0, 0];
    // SAFETY: nothing is changed, and the kernel checks the address.
    if !is_in_frame && unsafe { raw::call(libc::SYS_rt_sigprocmask, told) } != 0 {
        return write(address, &word);
    }
    trap::take_back(address, size_of::<u64>());
    // SAFETY: as just said; the program's threads do not unmap it meanwhile, or end as they would in libc.
    unsafe { (address as *mut u64).write_unaligned(word) };
    Ok(())
}

/// Writes bytes.
pub(crate) fn write_bytes(address: usize, bytes: &[u8]) -> Result<(), BadAddress> {
    copy(libc::SYS_process_vm_writev, bytes.as_ptr().addr(), address, bytes.len())
}

fn copy(number: i64, ours: usize, theirs: usize, bytes: usize) -> Result<(), BadAddress> {
    let write = number == libc::SYS_process_vm_writev;
    if write {
        trap::take_back(theirs, bytes);
    }
    if !confinement::knows_this_process() {
        return copy_unchecked(number, ours, theirs, bytes);
    }
    let mut copied = copy_once(number, ours, theirs, bytes);
    if copied == Some(false) {
        // Ours, and the vectors, may be on a stack that is far.
        copied = stack_switch::run_blocked(|| {
            for _ in 0..ATTEMPTS {
                let copied = copy_once(number, ours, theirs, bytes);
                if copied != Some(false) || !(bring_in(theirs, bytes, write) | bring_in(ours, bytes, !write)) {
                    return copied;
                }
            }
            Some(false)
        });
    }
    match copied {
        Some(true) => Ok(()),
        Some(false) => Err(BadAddress),
        None => copy_unchecked(number, ours, theirs, bytes),
    }
}

/// Whether the kernel has found all that is to be copied there; `None`: a sandbox forbids the call.
fn copy_once(number: i64, ours: usize, theirs: usize, bytes: usize) -> Option<bool> {
    let vector = |start: usize| libc::iovec { iov_base: start as *mut _, iov_len: bytes };
    let (here, there) = (vector(ours), vector(theirs));
    let process = raw::process().unsigned_abs() as usize;
    let arguments = [process, (&raw const here).addr(), 1, (&raw const there).addr(), 1, 0];
    // SAFETY: one of the ranges is ours and has this size, and the kernel checks the other.
    match unsafe { raw::call(number, arguments) } {
        done if done == bytes.cast_signed() => Some(true),
        done if done >= 0 || done == -(libc::EFAULT as isize) => Some(false),
        _ => None,
    }
}

/// Serves the far pages of a range, on a near stack. False: it has none.
fn bring_in(address: usize, bytes: usize, write: bool) -> bool {
    let first = address & !(PAGE_BYTES - 1);
    let pages = (first..address.saturating_add(bytes)).step_by(PAGE_BYTES);
    // A handler of the program must not run while this thread owns a page, and a call that succeeds leaves `errno` alone.
    let (_signals, _errno) = (SignalsBlocked::new(), Preserved::new());
    pages.fold(false, |any, page| any | trap::serve(page, write))
}

fn copy_unchecked(number: i64, ours: usize, theirs: usize, bytes: usize) -> Result<(), BadAddress> {
    if theirs == 0 {
        return Err(BadAddress);
    }
    let (from, to) = if number == libc::SYS_process_vm_readv { (theirs, ours) } else { (ours, theirs) };
    for offset in 0..bytes {
        // SAFETY: nobody can say whether the program's address is right; a wrong one ends it, as in libc itself.
        unsafe { ((to + offset) as *mut u8).write_volatile(((from + offset) as *const u8).read_volatile()) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_copied_and_bad_addresses_refused() {
        let value = 0x1234_5678_9abc_def0u64;
        assert_eq!(read::<u64>(std::ptr::from_ref(&value).addr()), Ok(value));
        let texts = ["LD_AUDIT=x", "PATH=/bin:/usr"];
        let mut firsts = [[0u8; 4]; 4];
        let addresses = [texts[0].as_ptr().addr(), texts[1].as_ptr().addr(), 8, texts[0].as_ptr().addr()];
        assert_eq!((read_firsts(&addresses, &mut firsts), firsts[0], firsts[1]), (2, *b"LD_A", *b"PATH"));
        let mut target = 0u64;
        assert_eq!(write(std::ptr::from_mut(&mut target).addr(), &value), Ok(()));
        // SAFETY: the variable lives; the kernel wrote to it.
        assert_eq!(unsafe { std::ptr::read_volatile(&raw const target) }, value);
        assert_eq!(read::<u64>(0), Err(BadAddress));
        assert_eq!(write(1 << 63, &value), Err(BadAddress));
    }
}
