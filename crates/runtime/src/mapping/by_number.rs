//! Memory calls by their numbers, as `syscall` of libc and the instruction itself make them: the same as by their names.

use super::seal::SYS_MSEAL;
use super::{
    MapRequest, Outcome, attach, detach, in_core, kernel, lock, lock_all, madvise, map, process_madvise, protect,
};
use super::{remap, seal, sync, unlock, unlock_all, unmap};
use crate::brk;
use libc::c_long;

/// The calls that change or look at mappings, sorted.
pub const MEMORY_CALL_NUMBERS: [c_long; 18] = [
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_madvise,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_mlock2,
    libc::SYS_pkey_mprotect,
    libc::SYS_process_madvise,
    SYS_MSEAL,
];

/// An argument of the C type int: the kernel takes the lower half of the register.
fn int(argument: usize) -> i32 {
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let low = argument as u32;
    low.cast_signed()
}

/// Protections and flags are words to the kernel, and what is in their upper halves has no meaning: no valid request has it.
fn word(argument: usize) -> i32 {
    u32::try_from(argument).map_or(-1, u32::cast_signed)
}

/// Makes a memory call as the function of its name would, for the code at `caller`. `None`: it is another call.
///
/// # Safety
/// That of the call.
pub unsafe fn call(number: c_long, arguments: [usize; 6], caller: usize) -> Option<Outcome> {
    let [a, b, c, d, e, f] = arguments;
    if !MEMORY_CALL_NUMBERS.contains(&number) {
        return None;
    }
    if crate::pager().is_some_and(crate::Pager::is_escaped) {
        return Some(kernel(number, arguments));
    }
    let outcome = match number {
        libc::SYS_mmap => {
            let offset = f.cast_signed() as libc::off_t;
            map(MapRequest { address: a, bytes: b, protection: int(c), flags: int(d), fd: int(e), offset }, caller)
        }
        libc::SYS_munmap => unmap(a, b),
        libc::SYS_mremap => remap(a, b, c, word(d), e),
        libc::SYS_mprotect => protect(a, b, word(c), -1),
        libc::SYS_pkey_mprotect => protect(a, b, word(c), int(d)),
        libc::SYS_madvise => madvise(a, b, int(c)),
        libc::SYS_process_madvise => process_madvise(int(a), b, c, int(d), int(e)),
        libc::SYS_mlock => lock(a, b, 0),
        libc::SYS_mlock2 => lock(a, b, int(c)),
        libc::SYS_munlock => unlock(a, b),
        libc::SYS_mlockall => lock_all(int(a)),
        libc::SYS_munlockall => unlock_all(),
        libc::SYS_mincore => in_core(a, b, c),
        libc::SYS_msync => sync(a, b, int(c)),
        libc::SYS_brk => brk::kernel_brk(a).map_or_else(|| kernel(number, arguments), Ok),
        libc::SYS_shmat => attach(int(a), b, int(c)),
        libc::SYS_shmdt => detach(a),
        SYS_MSEAL => seal(a, b, c),
        _ => return None,
    };
    Some(outcome)
}
