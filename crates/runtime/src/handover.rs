//! Files of the launcher's, which have no name: by its path, `/proc/LAUNCHER/fd/N`, or else as it hands them over.
//!
//! The path leads nowhere, or to another file, where `/proc` is another or none; from another user namespace the kernel
//! hides the launcher's descriptors (`PTRACE_MODE_FSCREDS` of ptrace(2)). Then the launcher is asked at its sockets
//! ([`hinterland_abi::addresses`]), whose owner is checked. Whatever is the matter with it, the process starts all the same: after
//! [`TIMEOUT`] at the latest, as one that has no launcher.

use crate::{confine, ledger};
use hinterland_abi::{HandoverFile, Settings, addresses};
use hinterland_sys::peer_memory::ReceivedFd;
use hinterland_sys::{Address, Socket, seccomp};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the launcher may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// 1: this process, without a ledger, has waited in vain for the launcher, or the one that it was forked from has.
static IS_SILENT: AtomicU32 = AtomicU32::new(0);
/// What the kernel calls a user that this namespace does not know, its own or another (user_namespaces(7)).
const UNKNOWN_USER: u32 = 65534;

/// What `take` makes of one of the launcher's files. It says `None` of a file that is another's: then the launcher is asked.
pub fn open<T>(settings: &Settings, path: &str, what: HandoverFile, take: impl Fn(&File) -> Option<T>) -> Option<T> {
    if path.is_empty() {
        return None;
    }
    by_path(path, what).and_then(|file| take(&file)).or_else(|| take(&handed_over(settings, what)?))
}

fn by_path(path: &str, what: HandoverFile) -> Option<File> {
    let path = CString::new(path).ok()?;
    let access = if what == HandoverFile::Tapes { libc::O_RDONLY } else { libc::O_RDWR };
    // In another `/proc` it may be anything: a terminal, a FIFO.
    let flags = access | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    // SAFETY: the descriptor was just opened, and has no other owner.
    (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
}

fn handed_over(settings: &Settings, what: HandoverFile) -> Option<File> {
    // A filter of the program's may end the process for a socket.
    if confine::is_inherited(settings.filters) || is_confined_unseen(settings.filters) {
        return None;
    }
    // What a forked child finds out its parent and its siblings know by the ledger.
    let is_silent = ledger::get().map_or(&IS_SILENT, |ledger| &ledger.handover_is_silent);
    unless_silent(is_silent, TIMEOUT, || ask(settings, what, TIMEOUT))
}

/// Asks, unless the launcher was waited for in vain before and has not gone on since.
fn unless_silent(is_silent: &AtomicU32, timeout: Duration, ask: impl FnOnce() -> Option<File>) -> Option<File> {
    if is_silent.load(Relaxed) != 0 {
        return None;
    }
    let begun = Instant::now();
    let file = ask();
    if file.is_none() && begun.elapsed() >= timeout {
        is_silent.store(1, Relaxed);
    }
    file
}

fn ask(settings: &Settings, what: HandoverFile, timeout: Duration) -> Option<File> {
    // In the user's own directory no other user listens; a name is free for all.
    let is_trusted = |address: &String| !address.starts_with('\0') || !is_unknown();
    let connected = |address| Socket::connect(&Address::Unix(address), timeout).ok();
    let mut launcher = addresses(&settings.handover).filter(is_trusted).find_map(connected)?;
    for _ in 0..HandoverFile::COUNT {
        let mut said = [0];
        let file = launcher.receive_with(std::iter::once(&mut said[..])).ok()?;
        if said[0] == what as u8 {
            return file.map(ReceivedFd::into_file);
        }
    }
    None
}

/// Whether there is a filter of a program's where no `/proc` tells how many there are. One beside ours is not seen.
fn is_confined_unseen(launchers: Option<u32>) -> bool {
    // SAFETY: prctl(2) with this number takes nothing more.
    let mode = || unsafe { libc::prctl(libc::PR_GET_SECCOMP) };
    launchers == Some(0) && seccomp::filters().is_none() && mode() != 0 && !seccomp::in_force()
}

/// Whether this process's user may have no name here: the launcher's would look like anybody's.
fn is_unknown() -> bool {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    unsafe { libc::geteuid() == UNKNOWN_USER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_silent_launcher_is_waited_for_once_until_it_goes_on() {
        let path = std::env::temp_dir().join(format!("hinterland-silent-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let settings = Settings { handover: path.to_str().unwrap().into(), ..Settings::default() };
        let (is_silent, timeout) = (AtomicU32::new(0), Duration::from_millis(20));
        // Each that has asked is in the queue of the listener, which takes none until it is counted.
        let asked = |times: usize| {
            let ask = || ask(&settings, HandoverFile::Tapes, timeout);
            assert!((0..times).all(|_| unless_silent(&is_silent, timeout, ask).is_none()));
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        assert_eq!((asked(3), asked(1)), (1, 0), "the forks of a process");
        is_silent.store(0, Relaxed);
        assert_eq!(asked(3), 1, "it has gone on and stopped again");
        std::fs::remove_file(&path).unwrap();
        is_silent.store(0, Relaxed);
        assert_eq!(asked(2), 0);
        assert_eq!(is_silent.load(Relaxed), 0, "where none listens there is nothing to wait for");
    }
}
