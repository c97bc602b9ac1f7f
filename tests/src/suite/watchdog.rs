//! Ends tests that hang, and says where they hang: the stacks of every thread of the processes below the test.
//!
//! This is no verdict on speed: the limit is many times what any test takes on a busy machine. A process belongs to the test
//! whose thread started it; one that a test's own threads started is shown too, and killed only when the test goes on hanging.

use crate::{stacks, tree};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A test that runs so long hangs.
const LIMIT: Duration = Duration::from_secs(900);
/// A test program of a crate, which has many tests, hangs when it runs so long.
const PROGRAM_LIMIT: Duration = Duration::from_secs(3600);
/// With `--full`, which has runs of hours.
const LIMIT_FULL: Duration = Duration::from_secs(10_800);
/// Time for a test to end when its processes were killed.
const GRACE: Duration = Duration::from_secs(30);
/// A test that does not end even so hangs in this process: it ends, with this code.
const HANGS: i32 = 101;

static WATCHED: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());

struct Entry {
    test: String,
    thread: i32,
    begun: Instant,
    /// What was done about it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    killed: Option<Instant>,
    killed_all: bool,
}

/// A test that is watched.
pub struct Watched(Arc<Entry>);

/// The limit of one test: `HINTERLAND_TEST_LIMIT` in seconds, else the usual one.
pub fn limit() -> Duration {
    given().unwrap_or(if super::full() { LIMIT_FULL } else { LIMIT })
}

/// The limit of a test program of a crate: `HINTERLAND_TEST_LIMIT` in seconds, else the usual one.
pub fn program_limit() -> Duration {
    given().unwrap_or(if super::full() { LIMIT_FULL } else { PROGRAM_LIMIT })
}

fn given() -> Option<Duration> {
    std::env::var("HINTERLAND_TEST_LIMIT").ok().and_then(|text| text.parse().ok()).map(Duration::from_secs)
}

/// Watches the calling thread's test.
pub fn watch(test: &str) -> Watched {
    let entry =
        Entry { test: test.to_owned(), thread: gettid().as_raw(), begun: Instant::now(), state: Mutex::default() };
    let entry = Arc::new(entry);
    locked(&WATCHED).push(entry.clone());
    Watched(entry)
}

impl Watched {
    /// The test has ended. What it says when it was ended by force.
    pub fn end(self) -> Option<String> {
        locked(&self.0.state)
            .killed
            .map(|_| format!("hung, and was ended after {} s; its stacks are above", limit().as_secs()))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        locked(&WATCHED).retain(|entry| !Arc::ptr_eq(entry, &self.0));
    }
}

/// Whether the calling thread's test was ended.
pub fn is_ended() -> bool {
    let thread = gettid().as_raw();
    let entry = locked(&WATCHED).iter().find(|entry| entry.thread == thread).cloned();
    entry.is_some_and(|entry| locked(&entry.state).killed.is_some())
}

/// Starts the thread that watches.
pub fn start() {
    let limit = limit();
    std::thread::Builder::new()
        .name("watchdog".into())
        .spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(500));
                look(limit);
            }
        })
        .expect("a thread");
}

/// Looks at every test that runs.
fn look(limit: Duration) {
    let entries = locked(&WATCHED).clone();
    for entry in entries.iter().filter(|entry| entry.begun.elapsed() >= limit) {
        let mut state = locked(&entry.state);
        let own = || children_of_thread(entry.thread);
        match state.killed {
            None => {
                eprintln!("{} hangs: it has run for {} s", entry.test, entry.begun.elapsed().as_secs());
                let others = other_children(&entries);
                stacks::print(std::process::id().cast_signed());
                own().into_iter().chain(others).for_each(print_tree);
                state.killed = Some(Instant::now());
                drop(state);
                own().into_iter().for_each(kill_tree);
            }
            Some(when) if when.elapsed() >= GRACE && !state.killed_all => {
                state.killed_all = true;
                drop(state);
                own().into_iter().chain(other_children(&entries)).for_each(kill_tree);
            }
            Some(when) if when.elapsed() >= 2 * GRACE => {
                eprintln!("{} does not end, though all its processes were killed", entry.test);
                stacks::print(std::process::id().cast_signed());
                std::process::exit(HANGS);
            }
            Some(_) => {}
        }
    }
}

/// The processes that a thread of this process has started.
fn children_of_thread(thread: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/self/task/{thread}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The processes that belong to none of the tests.
fn other_children(entries: &[Arc<Entry>]) -> Vec<i32> {
    let owned: Vec<i32> = entries.iter().flat_map(|entry| children_of_thread(entry.thread)).collect();
    tree::children(std::process::id().cast_signed()).into_iter().filter(|pid| !owned.contains(pid)).collect()
}

fn print_tree(pid: i32) {
    std::iter::once(pid).chain(tree::descendants(pid)).for_each(stacks::print);
}

/// Kills a process and all below it.
pub fn kill_tree(pid: i32) {
    for pid in std::iter::once(pid).chain(tree::descendants(pid)) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_test_that_hangs_is_ended_and_says_so() {
        let waits = |seconds: &str| Command::new("sleep").arg(seconds).status().expect("sleep is there");
        let in_time = watch("in-time");
        look(Duration::from_secs(3600));
        assert_eq!(in_time.end(), None);
        std::thread::scope(|scope| {
            let hanging = scope.spawn(|| {
                let watched = watch("hanging");
                let status = waits("1000");
                (status.success(), watched.end())
            });
            // One of another test goes on: only the one that hangs is ended.
            let beside = Command::new("sleep").arg("1000").spawn();
            let mut beside = beside.expect("sleep is there");
            let thread = loop {
                let found = locked(&WATCHED).iter().find(|entry| entry.test == "hanging").map(|entry| entry.thread);
                if let Some(thread) = found.filter(|thread| !children_of_thread(*thread).is_empty()) {
                    break thread;
                }
                std::thread::yield_now();
            };
            assert_eq!(children_of_thread(thread).len(), 1);
            look(Duration::ZERO);
            let (well, said) = hanging.join().expect("it ends");
            assert!(!well && said.is_some_and(|said| said.starts_with("hung")));
            assert!(beside.try_wait().expect("a child").is_none());
            beside.kill().expect("it runs");
            beside.wait().expect("it ends");
        });
    }
}
