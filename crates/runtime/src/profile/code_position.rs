//! Where a thread stands that waits for a monitor: `/proc/self/task/TID/syscall`, which tells its stack and instruction pointer.
//!
//! The files of a few threads stay open under protected numbers (as `thread_processor` does). No fork is made while a monitor looks.

use crate::descriptors;
use hinterland_pager::CodePosition;
use hinterland_sys::{confinement, thread};
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

/// Threads whose files stay open.
const FILES: usize = 4;
/// Bytes of a line, and more: ten numbers.
const LINE_BYTES: usize = 256;

/// Threads by their kernel ids, and their files.
static OPEN: Mutex<[Option<(u32, i32)>; FILES]> = Mutex::new([None; FILES]);

/// Where a thread stands; `None`: it does not wait, /proc is not there, or the process is confined.
pub fn of(thread: u32) -> Option<CodePosition> {
    confinement::with_files(|| look(thread)).flatten()
}

fn look(thread: u32) -> Option<CodePosition> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let slot = &mut open[thread as usize % FILES];
    if slot.is_none_or(|(id, _)| id != thread) {
        if let Some((_, fd)) = slot.take() {
            descriptors::release(fd);
        }
        let path = CString::new(format!("/proc/self/task/{thread}/syscall")).ok()?;
        *slot = Some((thread, descriptors::open(&path)?));
    }
    let (_, fd) = (*slot)?;
    let mut line = [0u8; LINE_BYTES];
    // SAFETY: the line is writable for its length.
    let read = unsafe { libc::syscall(libc::SYS_pread64, fd, line.as_mut_ptr(), LINE_BYTES, 0usize) };
    let Some(line) = usize::try_from(read).ok().and_then(|read| line.get(..read)) else {
        // Of a thread that has ended; the next one with this number is another.
        descriptors::release(fd);
        *slot = None;
        return None;
    };
    thread::code_position_in(std::str::from_utf8(line).ok()?)
}

/// In the child of a fork: the files tell of threads of the parent's.
pub fn close() {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.iter_mut().filter_map(Option::take).for_each(|(_, fd)| descriptors::release(fd));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_seen_on_its_own_stack() {
        let _turn = descriptors::IN_TURN.lock();
        let (tell, told) = std::sync::mpsc::channel();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || {
            let local = 0u8;
            tell.send((thread::id(), (&raw const local).addr())).unwrap();
            let _ = wait.recv();
        });
        let (id, local) = told.recv().unwrap();
        let mut seen = None;
        for _ in 0..2000 {
            seen = of(id);
            if seen.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let [stack, instruction] = seen.expect("it waits");
        assert!(local.abs_diff(usize::try_from(stack).unwrap()) < 64 << 10 && instruction != 0);
        drop(release);
        waiting.join().unwrap();
        assert_eq!(of(u32::MAX), None);
        close();
        assert!(OPEN.lock().unwrap().iter().all(Option::is_none));
    }

    #[test]
    fn a_thread_that_runs_has_no_place() {
        assert_eq!(thread::code_position_in("running\n"), None);
        assert_eq!(thread::code_position_in("-1 0x7ffd 0x401136\n"), Some([0x7ffd, 0x40_1136]));
        assert_eq!(thread::code_position_in("0 0x0 0x1 0x2 0x3 0x4 0x5 0x7ffd 0x40\n"), Some([0x7ffd, 0x40]));
        assert_eq!(thread::code_position_in(""), None);
    }
}
