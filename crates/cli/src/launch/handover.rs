//! Hands the launcher's files (ledger, tapes, profile) to processes of the run that cannot open them by its path: those that were started in
//! a user namespace, where the kernel hides the launcher's descriptors, and those whose `/proc` is another or none.
//!
//! ```text
//! the library: opens /proc/LAUNCHER/fd/N ──► refused ──► connects ──► takes what comes
//!                                                            │             ▲ a byte and a descriptor each (SCM_RIGHTS), then the end
//! the launcher:                       accepts, asks which process it is (SO_PEERPIDFD)
//! ```
//! There are two sockets, because neither reaches everywhere: one with a path, in the user's own directory, and one with a name in the
//! abstract namespace (unix(7)). A mount namespace or another root directory hides the first, a network namespace the second.
//!
//! Served are processes that have the launcher's user and descend from it (`descent`). The kernel says both as the launcher's namespaces have them, whatever
//! namespaces the other side is in. Nothing is read and nothing waited for: what is sent has room in a new connection. A launcher that has no descriptor left,
//! to take a connection or to look at the process that connects, leaves both for a while and goes on then: meanwhile nothing is polled (`control::Acceptor`).

use super::descent::{Exhausted, is_of_this_run};
use crate::control::{self, Acceptor, Bound, Pause};
use hinterland_abi::{HandoverFile, addresses};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::getpid;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Instant;

/// Connections that are served before the launcher looks after something else.
const AT_ONCE_MAX: usize = 64;

/// See the module.
pub struct Handover<'a> {
    files: Vec<(HandoverFile, BorrowedFd<'a>)>,
    bound: Bound,
    named: Option<Acceptor>,
    /// One that has connected, and that there was no descriptor to look at with; and how long it is left.
    unknown: Option<UnixStream>,
    pause: Pause,
}

impl<'a> Handover<'a> {
    /// Listens; `None`: it cannot, and such processes stay on their own.
    pub fn begin(files: Vec<(HandoverFile, BorrowedFd<'a>)>) -> Option<Handover<'a>> {
        let bound = control::listen_for_files(getpid().as_raw()).ok()?;
        let named = addresses(bound.path().to_str()?).find_map(|address| {
            let address = SocketAddr::from_abstract_name(address.strip_prefix('\0')?).ok()?;
            Acceptor::new(UnixListener::bind_addr(&address).ok()?).ok()
        });
        Some(Handover { files, bound, named, unknown: None, pause: Pause::default() })
    }

    /// What processes of the run are told of it.
    pub fn path(&self) -> String {
        self.bound.path().to_string_lossy().into_owned()
    }

    /// What becomes readable when a process connects; nothing while it could not be served.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let acceptors = std::iter::once(&self.bound.acceptor).chain(&self.named);
        acceptors.filter(|_| self.unknown.is_none()).filter_map(Acceptor::descriptor)
    }

    /// When to serve at the latest, whether something is readable or not.
    pub fn due(&self) -> Option<Instant> {
        if self.unknown.is_some() {
            return self.pause.due();
        }
        let acceptors = std::iter::once(&self.bound.acceptor).chain(&self.named);
        acceptors.filter_map(Acceptor::due).chain(self.pause.due()).min()
    }

    /// Serves those that have connected; false: some are left, as there are no descriptors for them.
    pub fn serve(&mut self, now: Instant) -> bool {
        self.serve_with(now, is_of_this_run)
    }

    fn serve_with(&mut self, now: Instant, is_served: impl Fn(&UnixStream) -> Result<bool, Exhausted>) -> bool {
        for _ in 0..AT_ONCE_MAX {
            if !self.pause.is_over(now) {
                break;
            }
            let Some(stream) = self.unknown.take().or_else(|| self.accept(now)) else { break };
            match is_served(&stream) {
                Ok(true) => self.send(&stream),
                Ok(false) => {}
                Err(Exhausted) => {
                    self.unknown = Some(stream);
                    self.pause.begin(now);
                }
            }
        }
        self.due().is_none()
    }

    fn accept(&mut self, now: Instant) -> Option<UnixStream> {
        self.bound.acceptor.accept(now).or_else(|| self.named.as_mut()?.accept(now))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::SocketDirectory;
    use std::io::{ErrorKind, Read};

    #[test]
    fn one_that_cannot_be_looked_at_waits_and_is_served_later() {
        let directory = tempfile::tempdir().unwrap();
        let bound = SocketDirectory::of_test(directory.path()).listen("7.files".into()).unwrap();
        let file = tempfile::tempfile().unwrap();
        let files = vec![(HandoverFile::Ledger, std::os::fd::AsFd::as_fd(&file))];
        let mut handover = Handover { files, bound, named: None, unknown: None, pause: Pause::default() };
        let mut peers = [(); 2].map(|()| UnixStream::connect(directory.path().join("7.files")).unwrap());
        peers.iter().for_each(|peer| peer.set_nonblocking(true).unwrap());
        let mut now = Instant::now();
        let is_waiting =
            |peer: &mut UnixStream| peer.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        for _ in 0..3 {
            assert!(!handover.serve_with(now, |_| Err(Exhausted)));
            assert!(!handover.serve_with(now, |_| panic!("nothing is tried in the pause")));
            assert_eq!(handover.descriptors().count(), 0, "a descriptor that stays readable is not polled");
            assert!(peers.iter_mut().all(is_waiting));
            now = handover.due().expect("it is tried again");
        }
        assert!(handover.serve_with(now, |_| Ok(true)));
        assert_eq!((handover.descriptors().count(), handover.due()), (1, None));
        for peer in &mut peers {
            let mut said = Vec::new();
            peer.read_to_end(&mut said).unwrap();
            assert_eq!(said, b"l");
        }
    }
}
