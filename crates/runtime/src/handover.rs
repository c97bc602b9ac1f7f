//! Files of the launcher's, which have no name: by its path, `/proc/LAUNCHER/fd/N`, or else as it hands them over.
//!
//! The path leads nowhere, or to another file, where `/proc` is another or none; from another user namespace the kernel
//! hides the launcher's descriptors (`PTRACE_MODE_FSCREDS` of ptrace(2)). Then the launcher is asked at its sockets
//! ([`hinterland_abi::addresses`]), whose owner is checked. Whatever is the matter with it, the process starts all the same: after
//! [`PATIENCE`] at the latest, as one that has no launcher.

use crate::confine;
use hinterland_abi::{Handed, Settings, addresses};
use hinterland_sys::peer_memory::ReceivedFd;
use hinterland_sys::{Address, Socket, seccomp};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the launcher may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The launcher has been waited for in vain.
static IS_SILENT: AtomicBool = AtomicBool::new(false);
/// What the kernel calls a user that this namespace does not know, its own or another (user_namespaces(7)).
const UNKNOWN_USER: u32 = 65534;

/// What `take` makes of one of the launcher's files. It says `None` of a file that is another's: then the launcher is asked.
pub fn open<T>(settings: &Settings, path: &str, what: Handed, take: impl Fn(&File) -> Option<T>) -> Option<T> {
    if path.is_empty() {
        return None;
    }
    by_path(path, what).and_then(|file| take(&file)).or_else(|| take(&handed_over(settings, what)?))
}

fn by_path(path: &str, what: Handed) -> Option<File> {
    let path = CString::new(path).ok()?;
    let access = if what == Handed::Tapes { libc::O_RDONLY } else { libc::O_RDWR };
    // In another `/proc` it may be anything: a terminal, a FIFO.
    let flags = access | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    // SAFETY: the descriptor was just opened, and has no other owner.
    (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
}

fn handed_over(settings: &Settings, what: Handed) -> Option<File> {
    // A filter of the program's may end the process for a socket.
    if IS_SILENT.load(Relaxed) || confine::is_inherited(settings.filters) || is_confined_unseen(settings.filters) {
        return None;
    }
    let begun = Instant::now();
    let file = ask(settings, what);
    // Forked children need not wait once more.
    IS_SILENT.store(file.is_none() && begun.elapsed() >= PATIENCE, Relaxed);
    file
}

fn ask(settings: &Settings, what: Handed) -> Option<File> {
    // In the user's own directory no other user listens; a name is free for all.
    let is_trusted = |address: &String| !address.starts_with('\0') || !is_unknown();
    let connected = |address| Socket::connect(&Address::Unix(address), PATIENCE).ok();
    let mut launcher = addresses(&settings.handover).filter(is_trusted).find_map(connected)?;
    for _ in 0..Handed::COUNT {
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
