//! The program ends with its launcher, also after it has changed its user.
//!
//! The launcher has the kernel see to that (PR_SET_PDEATHSIG), and the kernel forgets it of a thread whose effective user or group changes
//! (prctl(2); `commit_creds`, kernel/cred.c). So the library asks for it again.

use crate::inline::raw;
use crate::ledger;
use hinterland_sys::confinement;
use libc::c_int;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The process that ends with its launcher; 0: none does. A forked child has its parent's word, and is another process.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Looks whether this process ends with its launcher: of processes that became the launcher's children when theirs ended, none does.
pub fn begin() {
    let mut signal: c_int = 0;
    // SAFETY: the kernel writes a number there.
    let known =
        unsafe { raw::call(libc::SYS_prctl, [word(libc::PR_GET_PDEATHSIG), (&raw mut signal).addr(), 0, 0, 0, 0]) };
    if known == 0 && signal == libc::SIGKILL && ledger::is_parent_launcher() {
        PROCESS.store(raw::process(), Relaxed);
    }
}

/// Tells the kernel again, for the calling thread. Confined, a program may not ask for that.
pub fn again() {
    let process = raw::process();
    if PROCESS.load(Relaxed) != process || confinement::is_confined() {
        return;
    }
    // SAFETY: takes numbers only.
    unsafe { raw::call(libc::SYS_prctl, [word(libc::PR_SET_PDEATHSIG), word(libc::SIGKILL), 0, 0, 0, 0]) };
    // The launcher may have ended before that.
    if !ledger::is_parent_launcher() {
        // SAFETY: takes numbers only.
        unsafe { raw::call(libc::SYS_kill, [word(process), word(libc::SIGKILL), 0, 0, 0, 0]) };
    }
}

fn word(number: c_int) -> usize {
    number.cast_unsigned() as usize
}
