//! By which forks this process came from the program that it runs: so its trace, and its tape, are known again in another run.
//!
//! Forks are numbered by the process that makes them, as far as its first thread does: those come in the program's order. One that fails counts.

use hinterland_sys::thread;
use hinterland_tape::ForkPath;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Forks of the first thread so far.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The number of the fork that is made; 0: by another thread. Of a child: its own.
static PRESENT: AtomicU32 = AtomicU32::new(0);
/// `None`: the process was not forked.
static PATH: Mutex<Option<ForkPath>> = Mutex::new(None);

/// This process forks: one thread at a time, until the fork is made.
pub fn before_fork() {
    let is_first = thread::id() == thread::process();
    let number = if is_first { FORKS.fetch_add(1, Relaxed).wrapping_add(1) } else { 0 };
    PRESENT.store(number, Relaxed);
}

/// In the child.
pub fn begin_child() {
    let fork = PRESENT.load(Relaxed);
    let path = of_process().child((fork > 0).then_some(fork));
    *PATH.lock().expect("no thread panics while it looks") = Some(path);
    FORKS.store(0, Relaxed);
}

/// That of this process.
pub fn of_process() -> ForkPath {
    PATH.lock().expect("no thread panics while it looks").clone().unwrap_or_default()
}
