//! What may be done in pieces depends on what a descriptor is.

use super::is_error;
use crate::inline::call::Call;
use std::mem::MaybeUninit;

/// How a descriptor takes a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FdKind {
    /// Never waits for more to come: a read in pieces ends where a read in one goes.
    File,
    /// Bytes come and go in any portions: a read may return fewer, a write goes on.
    Stream,
    /// One buffer is one message: never divided.
    Message,
}

/// Devices whose driver has these major numbers (the kernel's `devices.txt`): memory, and terminals.
const MEMORY: u32 = 1;
const TERMINALS: [u32; 3] = [4, 5, 136];
/// Pseudo-terminals have eight major numbers from the last one on.
const PSEUDO: std::ops::RangeInclusive<u32> = 136..=143;

/// What the descriptor is. Unknown ones carry messages: those are never divided. One that is not open is as good as a file:
/// the first piece will be refused.
pub(super) fn kind_of(descriptor: usize) -> FdKind {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    if is_error(Call::ask(libc::SYS_fstat, [descriptor, status.as_mut_ptr().addr(), 0, 0, 0, 0])) {
        return FdKind::File;
    }
    // SAFETY: zeroed, and filled by the kernel; every bit pattern is a value.
    let status = unsafe { status.assume_init() };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR => FdKind::File,
        libc::S_IFIFO => FdKind::Stream,
        libc::S_IFSOCK if is_stream_socket(descriptor) => FdKind::Stream,
        libc::S_IFCHR => match libc::major(status.st_rdev) {
            MEMORY => FdKind::File,
            major if TERMINALS.contains(&major) || PSEUDO.contains(&major) => FdKind::Stream,
            _ => FdKind::Message,
        },
        _ => FdKind::Message,
    }
}

fn is_stream_socket(descriptor: usize) -> bool {
    let (mut value, mut len) = (0i32, size_of::<i32>());
    let (level, option) = (libc::SOL_SOCKET.unsigned_abs() as usize, libc::SO_TYPE.unsigned_abs() as usize);
    let arguments = [descriptor, level, option, (&raw mut value).addr(), (&raw mut len).addr(), 0];
    !is_error(Call::ask(libc::SYS_getsockopt, arguments)) && value == libc::SOCK_STREAM
}
