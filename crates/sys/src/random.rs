//! Random bytes from the kernel.

use crate::{SysError, trampoline};

/// Fills `into`, which does not lie in far memory. Async-signal-safe.
///
/// # Errors
/// The kernel's: a kernel older than ours needs, or a filter of the program's.
pub fn fill(into: &mut [u8]) -> Result<(), SysError> {
    let mut filled = 0;
    while filled < into.len() {
        let left = &mut into[filled..];
        let arguments = [left.as_mut_ptr().addr(), left.len(), 0, 0, 0, 0];
        // SAFETY: getrandom(2) fills at most the bytes that are left, which are borrowed exclusively.
        let result = unsafe { trampoline::call(libc::SYS_getrandom, arguments) };
        match usize::try_from(result) {
            Ok(bytes) => filled += bytes,
            Err(_) if result == -(libc::EINTR as isize) => {}
            Err(_) => {
                let errno = i32::try_from(-result).unwrap_or(libc::EIO);
                return Err(SysError { call: "getrandom", errno });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_is_drawn() {
        let mut seen = [0u8; 1000];
        for _ in 0..8 {
            let mut bytes = [0; 1000];
            super::fill(&mut bytes).unwrap();
            seen.iter_mut().zip(bytes).for_each(|(seen, byte)| *seen |= byte);
        }
        assert!(seen.iter().all(|byte| *byte != 0), "a byte stayed 0 eight times");
    }
}
