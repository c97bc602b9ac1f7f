//! process_madvise(2) on the process itself, which since Linux 6.13 takes any advice.

use super::{Outcome, Target, bits, kernel, madvise, near, target};
use crate::user_copy;

/// `UIO_MAXIOV` of <linux/uio.h>.
const RANGES_MAX: usize = 1024;

/// The caller's own thread, and its process (<linux/pidfd.h>, Linux 6.14).
const PIDFD_SELF: std::ops::RangeInclusive<i32> = -10_001..=-10_000;

/// process_madvise(2). Advice that loses no content is the kernel's, whomever it is about.
pub fn process_madvise(pidfd: i32, ranges: usize, count: usize, advice: i32, flags: i32) -> Outcome {
    let ask = |ranges: usize, count: usize| {
        kernel(libc::SYS_process_madvise, [bits(pidfd), ranges, count, bits(advice), bits(flags), 0])
    };
    const MADV_COLLAPSE: i32 = 25; // <asm-generic/mman-common.h>; also for other processes
    if crate::pager().is_none() || super::madvise::is_harmless(advice) || advice == MADV_COLLAPSE || count > RANGES_MAX
    {
        return pinned(&ask, ranges, count);
    }
    // With no range at all the kernel says what it says of everything else.
    ask(0, 0)?;
    if !is_own(pidfd) {
        return pinned(&ask, ranges, count);
    }
    let ranges = read(ranges, count)?;
    let mut done = 0;
    for range in ranges {
        let [start, bytes] = range;
        let advised = match target(start, bytes) {
            Target::Far(..) | Target::Across(_) => madvise(start, bytes, advice).map(|_| bytes),
            Target::Kernel => near(start, bytes, |at, bytes| ask([at, bytes].as_ptr().addr(), 1)).map(|_| bytes),
        };
        match advised {
            Ok(bytes) => done += bytes,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Hands the ranges to the kernel from near memory.
fn pinned(ask: &impl Fn(usize, usize) -> Outcome, ranges: usize, count: usize) -> Outcome {
    if count == 0 || count > RANGES_MAX {
        return ask(ranges, count);
    }
    let near = read(ranges, count)?;
    ask(near.as_ptr().addr(), count)
}

fn read(ranges: usize, count: usize) -> Result<Vec<[usize; 2]>, i32> {
    let one = |index: usize| user_copy::read(ranges.wrapping_add(index * size_of::<[usize; 2]>()));
    (0..count).map(one).collect::<Result<_, _>>().map_err(|_| libc::EFAULT)
}

/// Whether a descriptor stands for this process, or for a thread of it. Kernels that cannot say (before Linux 6.13) have refused all advice
/// that loses content, and newer ones take it for the caller's own memory alone; so one that is not known is ours.
fn is_own(pidfd: i32) -> bool {
    /// `PIDFD_GET_INFO` and `PIDFD_INFO_PID` of <linux/pidfd.h>, with the first version of the structure.
    const GET_INFO: usize = 0xc040_ff0b;
    const PROCESS: u64 = 1;
    if PIDFD_SELF.contains(&pidfd) {
        return true;
    }
    // What is wanted; a group; process and thread group; and what does not matter here.
    let mut information = [PROCESS, 0, 0, 0, 0, 0, 0, 0];
    if kernel(libc::SYS_ioctl, [bits(pidfd), GET_INFO, information.as_mut_ptr().addr(), 0, 0, 0]).is_err() {
        return true;
    }
    let group = information[2] >> 32;
    kernel(libc::SYS_getpid, [0; 6]) == Ok(usize::try_from(group).unwrap_or(0))
}
