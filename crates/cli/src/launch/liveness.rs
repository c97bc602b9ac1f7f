//! Which processes of the run live, and a wake-up at once when one of them dies.
//!
//! A process that was killed says nothing: its row still holds a part of the budget. So the launcher keeps a pidfd of each
//! process that it has seen (pidfd_open(2)), which becomes readable when the process has ended, waited for or not. A number
//! may be another process's by then: one that started after the row was taken is not the row's owner.
//!
//! A process in another PID namespace has another number there than here, and one without `/proc` does not know in which it is. Such a process is
//! found among the launcher's descendants: by its namespace; by its inode in pidfs if it does not know that; by its number there if it hides it.

use crate::process;
use hinterland_abi::{Numbered, ProcessRow};
use hinterland_sys::pidfs;
use hinterland_sys::thread::since_boot;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// A row's process: its number and when it took the row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Life {
    process: Numbered,
    taken_ns: u64,
}

impl Life {
    fn of(row: &ProcessRow) -> Life {
        let process = Numbered { pid: row.pid.load(Relaxed), namespace: row.pid_namespace.load(Relaxed) };
        Life { process, taken_ns: row.taken_ns.load(Relaxed) }
    }
}

/// Descriptors that may be kept: half of the customary limit. Other processes are looked at only now and then.
const WATCHED_MAX: usize = 512;

/// Walks through the descendants before one that is not found is taken for ended.
const WALKS: usize = 3;

/// See the module.
#[derive(Default)]
pub struct Liveness {
    watched: HashMap<Life, OwnedFd>,
    /// Numbers here of processes that name themselves otherwise, as the last walk has found them.
    elsewhere: HashMap<Numbered, i32>,
    /// When that began, in nanoseconds since the machine was started.
    walked_ns: u64,
}

/// The launcher's own PID namespace; 0: not known.
fn own_namespace() -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| process::pid_namespace(0).unwrap_or(0))
}

impl Liveness {
    /// Whether a row's process lives, as far as is known: one that cannot be looked at is not taken for ended, because what it holds would be given
    /// to others.
    pub fn is_alive(&mut self, row: &ProcessRow) -> bool {
        let life = Life::of(row);
        if let Some(fd) = self.watched.get(&life) {
            return !has_ended(fd.as_fd());
        }
        let Some(pid) = self.pid_of(row) else { return !process::can_look() };
        let fd = (self.watched.len() < WATCHED_MAX).then(|| pidfs::open(pid)).flatten();
        // After the descriptor is open, so that what is said of the number is said of the same process.
        let started_ns = match process::started_ns(pid) {
            Ok(Some(started_ns)) => started_ns,
            Ok(None) => return false,
            Err(process::CannotLook) => return true,
        };
        if life.taken_ns != 0 && started_ns > life.taken_ns {
            return false;
        }
        if let Some(fd) = fd {
            if has_ended(fd.as_fd()) {
                return false;
            }
            self.watched.insert(life, fd);
        }
        true
    }

    /// The number of a row's process in the launcher's PID namespace; `None`: it is none of the launcher's descendants any more.
    pub fn pid_of(&mut self, row: &ProcessRow) -> Option<i32> {
        let Life { process, taken_ns } = Life::of(row);
        if process.namespace == 0 || process.namespace == own_namespace() {
            return Some(process.pid);
        }
        // A walk through processes that come and go may miss one.
        for _ in 0..WALKS {
            // A namespace gets the number of one that has ended: what was found before the row was taken may be of that.
            if self.walked_ns >= taken_ns
                && let Some(pid) = self.elsewhere.get(&process)
            {
                return Some(*pid);
            }
            self.walked_ns = u64::try_from(since_boot().as_nanos()).unwrap_or(u64::MAX);
            self.elsewhere = process::numbered_elsewhere(nix::unistd::getpid().as_raw()).into_iter().collect();
        }
        // One that hides what it knows, or was confined when it was forked: it is one of this number.
        let named =
            self.elsewhere.get(&process).or_else(|| self.elsewhere.get(&Numbered::of_unknown_namespace(process.pid)));
        let pid = *named?;
        self.elsewhere.insert(process, pid);
        Some(pid)
    }

    /// What becomes readable when a process ends.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.values().map(AsFd::as_fd)
    }

    /// Keeps those of `rows`, which are in use.
    pub fn keep(&mut self, rows: &[&ProcessRow]) {
        self.watched.retain(|life, _| rows.iter().any(|row| Life::of(row) == *life));
        let in_use = |process: &Numbered| rows.iter().any(|row| Life::of(row).process == *process);
        self.elsewhere.retain(|process, _| in_use(process));
    }
}

fn has_ended(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::ledger::LauncherLedger;
    use std::process::Command;

    #[test]
    fn a_zombie_is_dead_and_so_is_a_number_that_is_another_processs() {
        let ledger = LauncherLedger::create(false).unwrap();
        let row = &ledger.get().processes[0];
        let mut liveness = Liveness::default();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        row.pid.store(i32::try_from(child.id()).unwrap(), Relaxed);
        assert!(liveness.is_alive(row) && liveness.is_alive(row));
        assert_eq!(liveness.descriptors().count(), 1);
        // The row was taken long before this process started.
        row.taken_ns.store(1, Relaxed);
        assert!(!liveness.is_alive(row));
        row.taken_ns.store(0, Relaxed);
        child.kill().unwrap();
        hinterland_testkit::wait_until("a zombie", || !liveness.is_alive(row));
        liveness.keep(&[]);
        assert!(!liveness.is_alive(row), "not waited for yet: a zombie");
        child.wait().unwrap();
        assert!(!liveness.is_alive(row));
    }

    #[test]
    fn a_process_whose_first_thread_has_left_lives_until_its_last_one_leaves() {
        // exit(2) of the thread alone: without the interpreter's end.
        let script = "import ctypes, threading, time\n\
            threading.Thread(target=time.sleep, args=(600,)).start()\n\
            ctypes.CDLL(None).syscall(60, 0)";
        if Command::new("python3").args(["-c", "import ctypes"]).status().map_or(true, |status| !status.success()) {
            return eprintln!("skipped: no python3 that makes system calls");
        }
        let mut child = Command::new("python3").args(["-c", script]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let has_left = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
        };
        hinterland_testkit::wait_until("the first thread has left", has_left);
        let ledger = LauncherLedger::create(false).unwrap();
        let row = &ledger.get().processes[0];
        row.pid.store(pid, Relaxed);
        assert!(Liveness::default().is_alive(row));
        assert!(process::ProcessMemory::read(pid).is_some_and(|memory| memory.rss_peak_bytes > 0));
        child.kill().unwrap();
        hinterland_testkit::wait_until("a zombie", || !Liveness::default().is_alive(row));
        assert_eq!(process::ProcessMemory::read(pid), None);
        child.wait().unwrap();
    }

    /// A process that has the number of one before it, in a namespace that has the number of that one's.
    #[test]
    fn what_was_found_before_a_row_was_taken_is_another_process() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        if let Some(inode) = pidfs::inode(pid) {
            let ledger = LauncherLedger::create(false).unwrap();
            let row = &ledger.get().processes[0];
            let process = Numbered::by_itself(pid, inode);
            row.pid.store(process.pid, Relaxed);
            row.pid_namespace.store(process.namespace, Relaxed);
            row.taken_ns.store(u64::try_from(since_boot().as_nanos()).unwrap(), Relaxed);
            let mut liveness = Liveness { elsewhere: HashMap::from([(process, i32::MAX)]), ..Liveness::default() };
            assert!(liveness.is_alive(row) && liveness.pid_of(row) == Some(pid));
            assert_eq!(liveness.elsewhere.get(&process), Some(&pid));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
