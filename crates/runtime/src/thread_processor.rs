//! Where a thread of the program runs: asked by the monitor about the one that causes all faults.
//!
//! The thread's `stat` stays open under a protected number until another thread is asked about: a descriptor that came and went
//! at each look could get the number that the program expects for its own next file. One monitor asks, and no fork is made meanwhile.

use crate::descriptors;
use hinterland_sys::confinement;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

/// The thread whose file is open, by its kernel id.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// Its file; -1: none is open.
static STAT: AtomicI32 = AtomicI32::new(-1);

/// Bytes of `/proc/self/task/TID/stat`, and more.
const LINE_BYTES: usize = 1024;

/// The processor on which a thread of this process last ran; `None`: the thread has ended, /proc is not there, or the process is confined.
pub fn processor(thread: u32) -> Option<usize> {
    confinement::with_files(|| look(thread)).flatten()
}

fn look(thread: u32) -> Option<usize> {
    if THREAD.load(Relaxed) != thread {
        close();
        STAT.store(open(thread)?, Relaxed);
        THREAD.store(thread, Relaxed);
    }
    let mut line = [0u8; LINE_BYTES];
    // SAFETY: the line is writable for its length.
    let read = unsafe { libc::syscall(libc::SYS_pread64, STAT.load(Relaxed), line.as_mut_ptr(), LINE_BYTES, 0usize) };
    let line = line.get(..usize::try_from(read).ok()?)?;
    // Field 39 of proc_pid_stat(5), counted behind the name, which may hold anything but ends at the last parenthesis.
    let behind = &line[line.iter().rposition(|byte| *byte == b')')? + 1..];
    std::str::from_utf8(behind).ok()?.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// In the child of a fork: the file tells of a thread of the parent's.
pub fn close() {
    THREAD.store(0, Relaxed);
    descriptors::release(STAT.swap(-1, Relaxed));
}

fn open(thread: u32) -> Option<i32> {
    descriptors::open(&std::ffi::CString::new(format!("/proc/self/task/{thread}/stat")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_sys::thread;

    #[test]
    fn a_thread_that_is_kept_on_a_processor_is_seen_there() {
        let _turn = descriptors::IN_TURN.lock();
        std::thread::spawn(|| {
            let here = thread::processor();
            assert!(here.is_some() && thread::run_on(here));
            for _ in 0..3 {
                assert_eq!(processor(thread::id()), here);
            }
            assert!(descriptors::is_own(STAT.load(Relaxed)));
            assert_eq!(processor(u32::MAX), None);
            assert_eq!(STAT.load(Relaxed), -1);
        })
        .join()
        .unwrap();
    }
}
