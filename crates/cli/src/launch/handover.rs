//! Hands the launcher's files (ledger, tapes, profile) to processes of the run that cannot open them by its path: those that were started in
//! a user namespace, where the kernel hides the launcher's descriptors, and those whose `/proc` is another or none.
//!
//! ```text
//! the library: opens /proc/LAUNCHER/fd/N ──► refused ──► connects ──► takes what comes
//!                                                            │             ▲ a byte and a descriptor each (SCM_RIGHTS), then the end
//! the launcher:                       accepts, asks which process it is (SO_PEERCRED)
//! ```
//! There are two sockets, because neither reaches everywhere: one with a path, in the user's own directory, and one with a name in the
//! abstract namespace (unix(7)). A mount namespace or another root directory hides the first, a network namespace the second.
//!
//! Served are processes that have the launcher's user and descend from it. The kernel says both as the launcher's namespaces have them, whatever
//! namespaces the other side is in. Nothing is read and nothing waited for: what is sent has room in a new connection.

use crate::control::{self, Bound};
use crate::sample;
use hinterland_abi::{Handed, addresses};
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, sendmsg, sockopt::PeerCredentials};
use nix::unistd::{geteuid, getpid};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Connections that are served before the launcher looks after something else.
const AT_ONCE_MAX: usize = 64;
/// So often the ancestors of a process are looked at.
const WALKS: usize = 3;
/// Ancestors of a process that are looked at.
const DEPTH_MAX: usize = 4096;

/// See the module.
pub struct Handover<'a> {
    files: Vec<(Handed, BorrowedFd<'a>)>,
    bound: Bound,
    named: Option<UnixListener>,
}

impl<'a> Handover<'a> {
    /// Listens; `None`: it cannot, and such processes stay on their own.
    pub fn begin(files: Vec<(Handed, BorrowedFd<'a>)>) -> Option<Handover<'a>> {
        let bound = control::listen_for_files(getpid().as_raw()).ok()?;
        let named = addresses(bound.path().to_str()?).find_map(|address| {
            let address = SocketAddr::from_abstract_name(address.strip_prefix('\0')?).ok()?;
            let listener = UnixListener::bind_addr(&address).ok()?;
            listener.set_nonblocking(true).ok().map(|()| listener)
        });
        Some(Handover { files, bound, named })
    }

    /// What processes of the run are told of it.
    pub fn path(&self) -> String {
        self.bound.path().to_string_lossy().into_owned()
    }

    fn listeners(&self) -> impl Iterator<Item = &UnixListener> {
        std::iter::once(&self.bound.listener).chain(&self.named)
    }

    /// What becomes readable when a process connects.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners().map(AsFd::as_fd)
    }

    /// Serves those that have connected.
    pub fn serve(&self) {
        for listener in self.listeners() {
            let connected = std::iter::from_fn(|| listener.accept().ok()).take(AT_ONCE_MAX);
            connected.filter(|(stream, _)| is_of_this_run(stream)).for_each(|(stream, _)| self.send(&stream));
        }
    }

    fn send(&self, stream: &UnixStream) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        for (what, file) in &self.files {
            let (said, beside) = ([*what as u8], [file.as_raw_fd()]);
            let beside = [ControlMessage::ScmRights(&beside)];
            // A process that has gone meanwhile needs nothing.
            let _ = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&said)], &beside, flags, None);
        }
    }
}

/// Whether the other side is a process of this run: of the launcher's user, and below it.
fn is_of_this_run(stream: &UnixStream) -> bool {
    let Ok(peer) = getsockopt(stream, PeerCredentials) else { return false };
    peer.uid() == geteuid().as_raw() && descends_from(getpid().as_raw(), peer.pid())
}

fn descends_from(ancestor: i32, pid: i32) -> bool {
    // Where one of the line ends meanwhile, its children have another parent.
    (0..WALKS).any(|_| {
        let line = std::iter::successors(sample::parent(pid), |pid| sample::parent(*pid));
        line.take(DEPTH_MAX).any(|pid| pid == ancestor)
    })
}
