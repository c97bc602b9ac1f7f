//! The gate that a fork closes: units of work pass through it, and a fork waits until no thread is inside.
//!
//! Unlike a lock it has no owner, so the child of a fork, where every other thread is gone, simply opens it again.
//!
//! A process that was copied without the gate (a `syscall` instruction of the program's own) must not work at all: it would
//! work on its parent's memory, through the descriptors that it inherited. It is known by a word that the kernel wipes in the
//! copy; the child of a fork that went through the gate sets it again.

mod count;
#[cfg(all(test, feature = "loom"))]
mod models;

use crate::{Mapping, SysError, mem, thread, trampoline};
use count::Count;
pub use count::Sleep;
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::{self, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

/// Exit code of a copy that was made past the gate.
const ESCAPED_EXIT_CODE: i32 = 125;

/// Counts the threads inside; keeps newcomers out while it is closed. `S`: how threads sleep.
#[derive(Debug)]
pub struct Gate<S: Sleep = Futex> {
    count: Count<S>,
    /// 1 in the process that the gate belongs to; the kernel makes it 0 in a copy (`MADV_WIPEONFORK`).
    ours: &'static AtomicU32,
}

/// A thread is inside the gate until this is dropped.
#[derive(Debug)]
pub struct Inside<'a, S: Sleep = Futex>(&'a Count<S>);

impl<S: Sleep> Gate<S> {
    /// An open gate.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Gate<S>, SysError> {
        let page = Mapping::anonymous(PAGE_BYTES)?;
        mem::advise(page.start, page.len, libc::MADV_WIPEONFORK)?;
        // SAFETY: the mapping is a page of zeros that is never unmapped, and used as this word alone.
        let ours = unsafe { &*page.as_ptr().cast::<AtomicU32>() };
        ours.store(1, Relaxed);
        Ok(Gate { count: Count::new(), ours })
    }

    /// Whether this process is a copy that was made past the gate.
    #[inline]
    pub fn is_escaped(&self) -> bool {
        self.ours.load(Relaxed) == 0
    }

    /// Whether a thread is inside, or the gate is closed.
    pub fn is_entered(&self) -> bool {
        self.count.is_entered()
    }

    /// Whether a thread waits for those inside to leave.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.count.is_closing()
    }

    /// Ends a process that was copied past the gate, with a message.
    pub fn refuse_escaped(&self) {
        if self.is_escaped() {
            thread::write_stderr(
                "hinterland: this process was forked by a system call that did not go through libc, so its far memory is \
                 not there; it is ended\n",
            );
            thread::exit_now(ESCAPED_EXIT_CODE);
        }
    }

    /// Goes in; waits while the gate is closed. Ends a process that was copied past the gate.
    pub fn enter(&self) -> Inside<'_, S> {
        self.refuse_escaped();
        self.count.enter();
        Inside(&self.count)
    }

    /// Closes the gate and waits until no thread is inside. A second closer waits until the gate is open again.
    pub fn close(&self) {
        self.refuse_escaped();
        self.count.close();
    }

    /// Opens the gate: called by the closer, or by the child of its fork.
    pub fn open(&self) {
        self.ours.store(1, Relaxed);
        self.count.open();
    }
}

impl<S: Sleep> Drop for Inside<'_, S> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Threads sleep in the kernel: futex(2).
#[derive(Debug)]
pub struct Futex;

impl Sleep for Futex {
    fn wait(word: &AtomicU32, value: u32) {
        futex_wait(word, value);
    }

    fn wake(word: &AtomicU32) {
        futex_wake(word);
    }
}

/// Sleeps until `word` is woken, if it still holds `value`.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    futex_wait_for(word, value, None);
}

/// As `futex_wait`, at most for `limit`.
pub fn futex_wait_for(word: &AtomicU32, value: u32, limit: Option<std::time::Duration>) {
    let limit = limit.map(thread::timespec);
    let limit_ptr = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` and the time limit are valid for the call; every outcome leads the callers to look again.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value, limit_ptr)
    };
}

/// As `futex_wait_for`, on a word in memory that several processes may have. `errno` stays as it is.
pub fn shared_futex_wait_for(word: &AtomicU32, value: u32, limit: std::time::Duration) {
    let limit = thread::timespec(limit);
    let wait = libc::FUTEX_WAIT.unsigned_abs() as usize;
    let arguments = [word.as_ptr().addr(), wait, value as usize, (&raw const limit).addr(), 0, 0];
    // SAFETY: `word` and the time limit are valid for the call; every outcome leads the callers to look again.
    unsafe { trampoline::call(libc::SYS_futex, arguments) };
}

/// Wakes all threads that sleep on `word` in `shared_futex_wait_for`, in whatever process.
pub fn shared_futex_wake(word: &AtomicU32) {
    let (wake, all) = (libc::FUTEX_WAKE.unsigned_abs() as usize, i32::MAX.unsigned_abs() as usize);
    // SAFETY: `word` is valid for the call.
    unsafe { trampoline::call(libc::SYS_futex, [word.as_ptr().addr(), wake, all, 0, 0, 0]) };
}

/// Changes `word`, a count of calls, and wakes all threads that sleep on it in `shared_futex_wait_for`.
pub fn shared_futex_bump(word: &AtomicU32) {
    word.fetch_add(1, SeqCst);
    shared_futex_wake(word);
}

/// Wakes all threads that sleep on `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is valid for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    #[test]
    fn nobody_is_inside_while_the_gate_is_closed() {
        let gate = Gate::<Futex>::new().unwrap();
        let (closed, passes, stop) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        let _inside = gate.enter();
                        assert!(!closed.load(SeqCst));
                        passes.fetch_add(1, SeqCst);
                    }
                });
            }
            // Until the others have passed often enough, however late they start.
            for _ in 0..1_000_000 {
                if passes.load(SeqCst) > 1000 {
                    break;
                }
                gate.close();
                closed.store(true, SeqCst);
                std::thread::yield_now();
                closed.store(false, SeqCst);
                gate.open();
                std::thread::yield_now();
            }
            stop.store(true, SeqCst);
        });
        assert!(passes.load(SeqCst) > 1000);
    }

    #[test]
    fn a_copy_made_past_the_gate_ends() {
        let gate = Gate::<Futex>::new().unwrap();
        assert!(!gate.is_escaped());
        let status_of = |child: &dyn Fn()| {
            // SAFETY: the child makes system calls only, and leaves by exit_now.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                child();
                thread::exit_now(0);
            }
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            libc::WEXITSTATUS(status)
        };
        assert_eq!(status_of(&|| drop(gate.enter())), ESCAPED_EXIT_CODE);
        let announced = || {
            gate.open();
            drop(gate.enter());
        };
        assert_eq!(status_of(&announced), 0);
    }
}
