//! Waiting for what must happen, however long it takes.

use hinterland_backend::{AnswerLimit, Backend};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// After so long a test hangs: no verdict on how fast anything is.
pub const HANG: Duration = Duration::from_secs(300);

/// A limit for nodes that answer: on a busy machine, too, none is lost.
pub fn patient() -> AnswerLimit {
    HANG.into()
}

/// Waits until something `holds`; `what` says it in the message of a test that hangs.
#[track_caller]
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_until_or(what, String::new, holds);
}

/// As `wait_until`, and the message tells the `state` in which nothing happens any more.
#[track_caller]
pub fn wait_until_or(what: &str, state: impl Fn() -> String, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < HANG, "hangs, and should: {what}; {}", state());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has a backend do its maintenance until something `holds`.
#[track_caller]
pub fn maintain_until(backend: &dyn Backend, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < HANG, "hangs, and should: {what}; {:?}", crate::contract::rows(backend));
        std::thread::sleep(backend.maintain().unwrap_or_default().min(Duration::from_millis(2)));
    }
}

/// Has a backend do its maintenance in a thread of its own while `work` runs.
pub fn maintained<R>(backend: &dyn Backend, work: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let pause = if backend.needs_maintenance() { backend.maintain() } else { None };
                std::thread::sleep(pause.unwrap_or_default().clamp(Duration::from_millis(1), Duration::from_millis(5)));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
