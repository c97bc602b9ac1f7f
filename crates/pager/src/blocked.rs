//! Where a thread is blocked, as the kernel says: by this a test sees that the thread waits, and for what. Tests only.
//!
//! `/proc/PID/syscall` (proc_pid_syscall(5)): a thread that is asleep in a system call shows its number and arguments; one that is
//! asleep in a page fault shows −1; one that could run shows `running`.

use crate::sys::simulated::access::FIRST_ID;
use crate::sys::simulated::turns::Wait;
use crate::sys::simulated::{Current, current};
use hinterland_sys::thread;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a thread does now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// Nothing blocks it, or it has ended.
    No,
    /// A page fault.
    Fault,
    /// The futex at this address.
    Futex(usize),
    /// Another system call.
    Call,
}

impl Blocked {
    /// Whether it sleeps on a futex inside of `object`: its lock, or a word that is woken.
    pub(crate) fn is_futex_in<T>(self, object: &T) -> bool {
        let start = std::ptr::from_ref(object).addr();
        matches!(self, Blocked::Futex(at) if (start..start + size_of::<T>()).contains(&at))
    }
}

/// What blocks a thread of this process, or another process with one thread, by its kernel id.
pub(crate) fn blocked(id: u32) -> Blocked {
    if let Some(current) = current() {
        return match current.with(|state| state.waits_of((id - FIRST_ID) as usize)) {
            None | Some(Wait::Nothing) => Blocked::No,
            Some(Wait::Fault(_)) => Blocked::Fault,
            Some(Wait::Futex(at)) => Blocked::Futex(at),
            Some(Wait::Message | Wait::Time | Wait::End(_)) => Blocked::Call,
        };
    }
    let read = |path: String| std::fs::read_to_string(path).ok();
    let text = read(format!("/proc/self/task/{id}/syscall")).or_else(|| read(format!("/proc/{id}/syscall")));
    let text = text.unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    match words.next().and_then(|word| word.parse::<libc::c_long>().ok()) {
        None => Blocked::No,
        Some(-1) => Blocked::Fault,
        Some(libc::SYS_futex) => {
            let address = words.next().and_then(|word| usize::from_str_radix(word.trim_start_matches("0x"), 16).ok());
            address.map_or(Blocked::Call, Blocked::Futex)
        }
        Some(_) => Blocked::Call,
    }
}

/// A thread of a test's, and its kernel id.
pub(crate) struct TestThread {
    /// `None`: it is in the simulation of the calling thread.
    thread: Option<JoinHandle<()>>,
    pub(crate) id: u32,
}

impl TestThread {
    /// Does something in another thread.
    pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> TestThread {
        if let Some(current) = current() {
            let id = FIRST_ID + u32::try_from(current.spawn("beside", work)).expect("few threads");
            return TestThread { thread: None, id };
        }
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(thread::id()).expect("the test hears it");
            work();
        });
        TestThread { thread: Some(thread), id: told.recv().expect("the thread says its id") }
    }

    /// Waits until `is_seen`, which shows that the thread waits. One that does not wait ends, and fails the test.
    pub(crate) fn must_wait(&self, for_what: &str, mut is_seen: impl FnMut() -> bool) {
        while !is_seen() {
            assert!(!self.is_finished(), "did not wait for {for_what}");
            crate::sys::thread::sleep(Duration::from_micros(200));
        }
    }

    fn is_finished(&self) -> bool {
        let simulated =
            |current: Current| current.with(|state| state.waits_of((self.id - FIRST_ID) as usize).is_none());
        self.thread.as_ref().map_or_else(|| current().is_none_or(simulated), JoinHandle::is_finished)
    }

    /// Waits for its end, for as long as it takes.
    pub(crate) fn must_end(self) {
        let Some(thread) = self.thread else {
            return current().expect("its simulation").join((self.id - FIRST_ID) as usize);
        };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
