//! Whether the filter is there already: a program started by exec inherits it, and must not stack another on top.
//!
//! The probe is `fcntl(-1, F_GETFD, MARK)`. Without the filter the kernel returns `EBADF` at once; the filter answers
//! with its stamp, an error number that no system call returns. The stamp depends on the filter's rules, so a filter of
//! another version of Hinterland has another one. No signal is involved: a probe that traps would need a handler and an
//! unblocked SIGSYS before anything else is set up.

use std::hash::Hasher;
use twox_hash::XxHash64;

/// The number of fcntl(2).
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small constant")]
pub const NUMBER: u32 = libc::SYS_fcntl as u32;
/// No descriptor has this number.
pub const NO_DESCRIPTOR: usize = usize::MAX;
/// "Hinterld": no pointer of the program, because it is not canonical.
pub const MARK: usize = 0x4869_6e74_6572_6c64;

/// Stamps lie above every error number of Linux and within those that a filter may return.
const FIRST_STAMP: u16 = 1000;
const STAMPS: u64 = 3000;

/// The stamp of a set of rules: a hash of them.
pub fn stamp(rules: impl Iterator<Item = u64>) -> u16 {
    let mut hasher = XxHash64::with_seed(0);
    rules.for_each(|rule| hasher.write_u64(rule));
    FIRST_STAMP + u16::try_from(hasher.finish() % STAMPS).expect("the remainder is small")
}

/// Whether an answer to the probe is a stamp.
pub fn is_stamp(answer: i32) -> bool {
    let first = i32::from(FIRST_STAMP);
    (first..first + i32::try_from(STAMPS).unwrap_or(0)).contains(&answer)
}

/// What the probe is answered here and now: a stamp, or the kernel's own error.
pub fn answer() -> i32 {
    let arguments = [NO_DESCRIPTOR, libc::F_GETFD.unsigned_abs() as usize, MARK, 0, 0, 0];
    // SAFETY: asks for a flag of a descriptor that does not exist; no memory is touched. Not through the trampoline, whose
    // calls the filter lets through (it does not look where a probe comes from, but need not be asked to).
    let answer = unsafe { libc::syscall(libc::SYS_fcntl, arguments[0], arguments[1], arguments[2]) };
    if answer == -1 { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 }
}
