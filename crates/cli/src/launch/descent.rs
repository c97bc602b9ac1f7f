//! Whether the process at the other end of a connection descends from the launcher.
//!
//! A number is another process's once its own has ended and was waited for. So a process is held, not numbered: the other end by its pidfd
//! (`SO_PEERPIDFD` of unix(7), Linux 6.5), each of its ancestors by the directory of `/proc` that is its own ([`Processes`]).
//!
//! ```text
//! held: cur ── its parent is P? ──► hold what has P's number ── cur's parent is still P? ──► held: P … up to the launcher
//! ```
//! A process whose parent ends gets another one, which lived before: never a new process that has the parent's number. So what is held between two
//! looks that say the same is the parent. Where they differ, an ancestor has ended, and the walk begins anew.
//!
//! An older kernel says the other end's number only: there another process of the same user may have it by the time it is looked at.

use nix::errno::Errno;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::unistd::{geteuid, getpid};
use procfs::ProcError;
use procfs::process::Process;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Walks through the ancestors of a process: each one that is in vain has seen one of them end.
const WALKS: usize = 16;
/// Ancestors of a process that are looked at.
const DEPTH_MAX: usize = 4096;

/// There is no descriptor, or no memory, to look with.
#[derive(Debug)]
pub struct Exhausted;

/// Whether the other side is a process of this run: of the launcher's user, and below it.
///
/// # Errors
/// It cannot be known now.
pub fn is_of_this_run(stream: &UnixStream) -> Result<bool, Exhausted> {
    let Ok(peer) = getsockopt(stream, PeerCredentials) else { return Ok(false) };
    if peer.uid() != geteuid().as_raw() {
        return Ok(false);
    }
    let Some(launcher) = own_number()? else { return Ok(false) };
    let held = match getsockopt(stream, PeerPidfd) {
        Ok(pidfd) => by_pidfd(pidfd.as_fd())?,
        // Its number is that of the launcher's PID namespace, and `/proc` may be of another.
        Err(Errno::ENOPROTOOPT) if launcher == getpid().as_raw() => Proc.hold(peer.pid())?,
        Err(errno) if is_exhausted(Some(errno as i32)) => return Err(Exhausted),
        // It has ended and was waited for.
        Err(_) => None,
    };
    held.map_or(Ok(false), |held| descends(&Proc, &held, launcher))
}

/// The launcher's number, as its `/proc` has it.
fn own_number() -> Result<Option<i32>, Exhausted> {
    let link = if_there(fs::read_link("/proc/self"))?;
    Ok(link.and_then(|link| link.to_str()?.parse().ok()))
}

/// The process of a pidfd.
fn by_pidfd(pidfd: BorrowedFd<'_>) -> Result<Option<Process>, Exhausted> {
    let Some(pid) = number_of(pidfd)? else { return Ok(None) };
    let held = Proc.hold(pid)?;
    // Had it been waited for before it was held, it had no number any more.
    Ok(if number_of(pidfd)? == Some(pid) { held } else { None })
}

/// The number of a pidfd's process, as `/proc` has it (pidfd_open(2)); `None`: it was waited for, or is not known there.
fn number_of(pidfd: BorrowedFd<'_>) -> Result<Option<i32>, Exhausted> {
    let text = if_there(fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())))?.unwrap_or_default();
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    Ok(number.filter(|pid| *pid > 0))
}

fn is_exhausted(errno: Option<i32>) -> bool {
    errno.is_some_and(|errno| [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS].contains(&errno))
}

fn if_there<T>(looked: io::Result<T>) -> Result<Option<T>, Exhausted> {
    match looked {
        Err(error) if is_exhausted(error.raw_os_error()) => Err(Exhausted),
        looked => Ok(looked.ok()),
    }
}

/// Processes that can be held.
trait Processes {
    /// A process, and no other one that gets its number.
    type Handle;
    /// Holds the process that has a number now; `None`: there is none.
    fn hold(&self, pid: i32) -> Result<Option<Self::Handle>, Exhausted>;
    /// The number of its parent now; `None`: it was waited for.
    fn parent(&self, held: &Self::Handle) -> Result<Option<i32>, Exhausted>;
}

/// Processes as `/proc` has them: a descriptor of a process's directory is of that process alone.
struct Proc;

impl Processes for Proc {
    type Handle = Process;

    fn hold(&self, pid: i32) -> Result<Option<Process>, Exhausted> {
        known(Process::new(pid))
    }

    fn parent(&self, held: &Process) -> Result<Option<i32>, Exhausted> {
        known(held.stat()).map(|stat| stat.map(|stat| stat.ppid))
    }
}

fn known<T>(looked: Result<T, ProcError>) -> Result<Option<T>, Exhausted> {
    match looked {
        Err(ProcError::Io(error, _)) if is_exhausted(error.raw_os_error()) => Err(Exhausted),
        looked => Ok(looked.ok()),
    }
}

fn descends<P: Processes>(processes: &P, held: &P::Handle, ancestor: i32) -> Result<bool, Exhausted> {
    for _ in 0..WALKS {
        if let Some(descends) = walk(processes, held, ancestor)? {
            return Ok(descends);
        }
    }
    Ok(false)
}

/// One walk; `None`: a process of the line has ended meanwhile.
fn walk<P: Processes>(processes: &P, held: &P::Handle, ancestor: i32) -> Result<Option<bool>, Exhausted> {
    let mut above: Option<P::Handle> = None;
    for _ in 0..DEPTH_MAX {
        let held = above.as_ref().unwrap_or(held);
        let Some(parent) = processes.parent(held)? else { return Ok(None) };
        if parent == ancestor {
            return Ok(Some(true));
        }
        // The first process of the namespace; or one that is being waited for, of which the kernel may say the same once.
        if parent == 0 {
            return Ok((processes.parent(held)? == Some(0)).then_some(false));
        }
        let next = processes.hold(parent)?;
        if processes.parent(held)? != Some(parent) {
            return Ok(None);
        }
        let Some(next) = next else { return Ok(None) };
        above = Some(next);
    }
    Ok(Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::process::Command;

    const LAUNCHER: i32 = 10;

    /// A process of the model: its number, and its parent's place; `None` when it was waited for.
    type Entry = Option<(i32, usize)>;

    /// Processes that end, and whose numbers are others' then, at looks that the test chooses. Places: 0 is process 1, 1 the launcher.
    struct Model {
        processes: RefCell<Vec<Entry>>,
        looks: Cell<usize>,
        /// At which look which place ends; its children go to the reaper, its number to a new child of another.
        ends: Vec<(usize, usize)>,
        reaper: usize,
        heir: usize,
    }

    impl Model {
        fn look(&self) {
            let look = self.looks.get();
            self.looks.set(look + 1);
            let mut processes = self.processes.borrow_mut();
            for (_, place) in self.ends.iter().filter(|(at, _)| *at == look) {
                let Some((number, _)) = processes[*place].take() else { continue };
                for (_, parent) in processes.iter_mut().flatten().filter(|(_, parent)| parent == place) {
                    *parent = self.reaper;
                }
                processes.push(Some((number, self.heir)));
            }
        }
    }

    impl Processes for Model {
        type Handle = usize;

        fn hold(&self, pid: i32) -> Result<Option<usize>, Exhausted> {
            self.look();
            Ok(self.processes.borrow().iter().position(|entry| entry.is_some_and(|(number, _)| number == pid)))
        }

        fn parent(&self, held: &usize) -> Result<Option<i32>, Exhausted> {
            self.look();
            let processes = self.processes.borrow();
            let number = |place: usize| processes[place].map_or(0, |(number, _)| number);
            Ok(processes[*held].map(|(own, parent)| if own == 1 { 0 } else { number(parent) }))
        }
    }

    /// Asks of the last of a line of four below place `root`, two of whose processes end at each pair of looks that there is.
    fn for_each_schedule(root: usize, heir: usize, is_expected: bool) {
        const LOOKS: usize = 24;
        for first in 0..LOOKS {
            for second in 0..LOOKS {
                for places in [[3, 4], [4, 3], [2, 3], [3, 2], [4, 2]] {
                    let line = [(21, root), (22, 2), (23, 3), (24, 4)].map(Some);
                    let processes = [Some((1, 0)), Some((LAUNCHER, 0))].into_iter().chain(line).collect();
                    let ends = vec![(first, places[0]), (second, places[1])];
                    let model =
                        Model { processes: RefCell::new(processes), looks: Cell::new(0), ends, reaper: root, heir };
                    let found = descends(&model, &5, LAUNCHER).unwrap();
                    assert_eq!(found, is_expected, "places {places:?} end at looks {first} and {second}");
                }
            }
        }
    }

    #[test]
    fn an_orphan_of_the_run_is_of_the_run_whenever_its_ancestors_end() {
        for_each_schedule(1, 0, true);
    }

    #[test]
    fn a_stranger_is_none_of_the_run_whichever_of_the_run_gets_the_numbers_of_its_ancestors() {
        for_each_schedule(0, 1, false);
    }

    #[test]
    fn a_process_is_held_and_not_the_next_one_of_its_number() {
        let own = own_number().unwrap().unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = hinterland_sys::pidfs::open(pid).unwrap();
        let held = by_pidfd(pidfd.as_fd()).unwrap().expect("it lives");
        let before = descends(&Proc, &held, own).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(before && !descends(&Proc, &held, own).unwrap(), "it has ended");
        assert_eq!(number_of(pidfd.as_fd()).unwrap(), None);
        assert!(by_pidfd(pidfd.as_fd()).unwrap().is_none() && Proc.hold(pid).unwrap().is_none());
    }

    #[test]
    fn without_descriptors_nothing_is_known() {
        for errno in [libc::EMFILE, libc::ENFILE] {
            let error = || io::Error::from_raw_os_error(errno);
            assert!(known::<()>(Err(ProcError::Io(error(), None))).is_err() && if_there::<()>(Err(error())).is_err());
            assert!(known::<()>(Err(ProcError::from(error()))).is_err(), "as procfs says it");
        }
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        assert!(matches!(
            (known::<()>(Err(ProcError::from(gone()))), if_there::<()>(Err(gone()))),
            (Ok(None), Ok(None))
        ));
    }
}
