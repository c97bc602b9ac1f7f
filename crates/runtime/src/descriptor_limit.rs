//! Numbers for what a child needs, below a limit that the program lowers.
//!
//! A forked child opens a userfaultfd and some files of `/proc` of its own, under the numbers of those that it inherits
//! from its parent. When a program lowers its limit on descriptors (`RLIMIT_NOFILE`) below our numbers, the parent's
//! stay open, but the child could not use their numbers again; and the program may use up all those below, as a sandbox
//! does on purpose. So the limit that is set in the kernel is higher by the spares, which are taken at that moment,
//! just at the program's limit. They are in use, so the program gets `EMFILE` where it would natively, and it is shown
//! the limit that it set. A child gives them up for its own.
//!
//! Not hidden: `/proc/PID/limits`, the limit after exec, and limits set past libc, after which a child may not be served.

use crate::{descriptors, kernel_limit};
use libc::{c_int, rlimit};
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// What a child opens: userfaultfd, memory, smaps, statm, stat; and two for its backend.
const SPARES: usize = 7;

static SPARE: [AtomicI32; SPARES] = [const { AtomicI32::new(-1) }; SPARES];

/// What the program set, and what the kernel was told instead.
struct Shown {
    program: rlimit,
    kernel: rlimit,
}

static SHOWN: Mutex<Option<Shown>> = Mutex::new(None);

/// The kernel's limit.
fn real(new: Option<&rlimit>) -> Result<rlimit, c_int> {
    kernel_limit::change(libc::RLIMIT_NOFILE, new)
}

/// The program sets its limit, or only asks for it; returns the one before, as the program set it.
///
/// # Errors
/// An error number: the kernel's.
pub fn change(new: Option<&rlimit>) -> Result<rlimit, c_int> {
    // A child of vfork shares this memory but not the limit. A lock that is held belongs to another thread, or to nobody since a fork.
    let Some(mut shown) = crate::exit::is_own().then(|| SHOWN.try_lock().ok()).flatten() else { return real(new) };
    let before = real(None).map(|kernel| as_shown(kernel, shown.as_ref()))?;
    let Some(new) = new else { return Ok(before) };
    give_spares_up();
    let kernel = match RawFd::try_from(new.rlim_cur) {
        Ok(limit) if limit <= descriptors::highest() => take_spares(limit),
        _ => None,
    };
    let asked = kernel.map_or(*new, |top| rlimit { rlim_cur: top, rlim_max: new.rlim_max.max(top) });
    // What the kernel would refuse must not be asked in a form that it grants.
    let tried = if new.rlim_cur <= new.rlim_max { real(Some(&asked)) } else { Err(libc::EINVAL) };
    match tried {
        Ok(_) => *shown = kernel.map(|_| Shown { program: *new, kernel: asked }),
        Err(_) => {
            give_spares_up();
            if let Some(shown) = shown.as_ref() {
                take_spares(RawFd::try_from(shown.program.rlim_cur).unwrap_or(RawFd::MAX));
            }
        }
    }
    tried.map(|_| before)
}

/// What the program is shown for what the kernel says.
fn as_shown(kernel: rlimit, shown: Option<&Shown>) -> rlimit {
    let is_ours = |shown: &&Shown| (shown.kernel.rlim_cur, shown.kernel.rlim_max) == (kernel.rlim_cur, kernel.rlim_max);
    shown.filter(is_ours).map_or(kernel, |shown| shown.program)
}

/// Closes the spares: the program takes another limit, or a child needs their numbers.
pub fn give_spares_up() {
    for spare in &SPARE {
        descriptors::release(spare.swap(-1, Relaxed));
    }
}

/// Takes spares from the number `limit` on, and returns the limit under which their numbers lie; `None` when there are none left.
fn take_spares(limit: RawFd) -> Option<u64> {
    let mut top = None;
    for spare in &SPARE {
        // What it is does not matter; nobody uses it.
        let Ok(fd) = descriptors::duplicate_from(descriptors::highest(), limit) else { break };
        if descriptors::protect_in_place(fd).is_err() {
            // SAFETY: closes what was just made.
            unsafe { libc::syscall(libc::SYS_close, fd) };
            break;
        }
        spare.store(fd, Relaxed);
        top = Some(u64::from(fd.unsigned_abs()) + 1);
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_program_is_shown_and_that_of_another_hand_is_not_hidden() {
        let limit = |rlim_cur, rlim_max| rlimit { rlim_cur, rlim_max };
        let shown = Shown { program: limit(64, 64), kernel: limit(70, 70) };
        assert_eq!(as_shown(limit(70, 70), Some(&shown)).rlim_cur, 64);
        assert_eq!(as_shown(limit(50, 70), Some(&shown)).rlim_cur, 50);
        assert_eq!(as_shown(limit(70, 70), None).rlim_cur, 70);
    }
}
