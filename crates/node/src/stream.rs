//! What lanes run over: TCP on a loopback address, or a UNIX socket. The place for a further transport.

use hinterland_wire::{Endpoint, Features};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connections that may wait until they are taken.
const WAITING_MAX: i32 = 1024;
/// Time in which another node that starts in the same directory must have come so far.
const START_LIMIT: Duration = Duration::from_secs(2);
/// How long a client's machine may be silent before the node's kernel asks whether it is there (tcp(7), `TCP_KEEPIDLE`).
const SILENT_MAX: Duration = Duration::from_secs(30);
/// Time between two questions of the kernel's.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Questions without an answer after which the connection is over: a minute after the last word.
const ASKED_MAX: u32 = 3;

/// One connection.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// What the node offers here: descriptors pass through UNIX sockets only.
    pub(crate) fn features(&self) -> Features {
        match self {
            Stream::Tcp(_) => Features::ALL.without(Features::SHARED),
            Stream::Unix(_) => Features::ALL,
        }
    }

    /// Sends a message with a descriptor beside its first byte.
    pub(crate) fn send_with(&self, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<()> {
        let Stream::Unix(stream) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        assert!(beside.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one");
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)
        })?;
        { self }.write_all(&bytes[sent..])
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    /// Sends of these pieces, one after the other, what the connection takes without waiting; returns how many bytes.
    pub(crate) fn offer(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut beside = SendAncillaryBuffer::new(&mut []);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(self.descriptor(), pieces, &mut beside, flags) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it leads over a network's link.
    pub(crate) fn has_link(&self) -> bool {
        matches!(self, Stream::Tcp(_))
    }

    /// Waits until the connection takes more bytes, or is over.
    pub(crate) fn wait_for_room(&self) -> io::Result<()> {
        let descriptor = self.descriptor();
        let mut waits = [PollFd::new(&descriptor, PollFlags::OUT)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut waits, None))?;
        Ok(())
    }

    /// The process at the other end, as far as the system knows.
    pub(crate) fn peer(&self) -> Peer {
        let known = match self {
            Stream::Tcp(stream) => stream.peer_addr().map(Peer::Address).ok(),
            Stream::Unix(stream) => {
                let peer = rustix::net::sockopt::socket_peercred(stream).ok();
                peer.map(|peer| Peer::Process { user: peer.uid.as_raw(), process: peer.pid.as_raw_nonzero().get() })
            }
        };
        known.unwrap_or(Peer::Gone)
    }

    /// See `has_arrived`.
    pub(crate) fn has_arrived(&self) -> bool {
        has_arrived(self.descriptor())
    }

    /// Has small messages leave without waiting for more, and a connection end whose other machine is gone: without a word from it nothing else
    /// would tell. The kernel of a stopped program answers. No `TCP_USER_TIMEOUT`, which also ends the connection of a stopped program whose
    /// buffers are full; while an answer is under way the kernel gives up after `net.ipv4.tcp_retries2`, a quarter of an hour.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
        let Stream::Tcp(stream) = self else { return Ok(()) };
        stream.set_nodelay(true)?;
        set_tcp_keepidle(stream, SILENT_MAX)?;
        set_tcp_keepintvl(stream, ASK_EVERY)?;
        set_tcp_keepcnt(stream, ASKED_MAX)?;
        Ok(set_socket_keepalive(stream, true)?)
    }

    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(limit),
            Stream::Unix(stream) => stream.set_read_timeout(limit),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        })
    }

    /// Says nothing more.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Ends the connection for all its holders.
    pub(crate) fn shut_down(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

/// The process at the other end of a connection.
pub(crate) enum Peer {
    Address(SocketAddr),
    /// A process of this machine (unix(7), `SO_PEERCRED`).
    Process {
        user: u32,
        process: i32,
    },
    Gone,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Process { user, process } => write!(f, "process {process} of user {user}"),
            Peer::Gone => f.write_str("a client that is gone"),
        }
    }
}

/// Whether something has arrived, or the connection has ended, at this moment.
pub(crate) fn has_arrived(socket: impl AsFd) -> bool {
    let mut byte = [0u8];
    rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT).err() != Some(Errno::AGAIN)
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => Read::read(&mut { stream }, into),
            Stream::Unix(stream) => Read::read(&mut { stream }, into),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => Write::write(&mut { stream }, bytes),
            Stream::Unix(stream) => Write::write(&mut { stream }, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where connections come in.
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// With its file, unless that is a service manager's.
    Unix(UnixListener, #[expect(dead_code, reason = "dropped with the listener")] Option<SocketFile>),
}

impl Listener {
    /// Listens. `None`: the endpoint is a name.
    pub(crate) fn bind(endpoint: &Endpoint) -> io::Result<Option<Listener>> {
        match endpoint {
            Endpoint::Tcp { .. } => {
                endpoint.address().map(|address| TcpListener::bind(address).map(Listener::Tcp)).transpose()
            }
            Endpoint::Unix { path } => {
                bind_unix(Path::new(path)).map(|(listener, file)| Some(Listener::Unix(listener, Some(file))))
            }
        }
    }

    /// What a service manager listens on for the node.
    pub(crate) fn inherited(socket: OwnedFd) -> io::Result<Listener> {
        use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
        let listens = socket_type(&socket)? == SocketType::STREAM && socket_acceptconn(&socket)?;
        // A service manager may have left it so that `accept` does not wait.
        rustix::io::ioctl_fionbio(&socket, false)?;
        match socket_domain(&socket)? {
            AddressFamily::UNIX if listens => Ok(Listener::Unix(socket.into(), None)),
            AddressFamily::INET | AddressFamily::INET6 if listens => Ok(Listener::Tcp(socket.into())),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket that takes connections")),
        }
    }

    /// Where it listens, with the port that the system chose.
    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        Ok(match self {
            Listener::Tcp(listener) => listener.local_addr()?.into(),
            Listener::Unix(listener, _) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().ok_or(io::ErrorKind::AddrNotAvailable)?;
                Endpoint::Unix { path: path.to_string_lossy().into_owned() }
            }
        })
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener, _) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    /// Takes no more connections; wakes the thread that waits for one.
    pub(crate) fn shut_down(&self) {
        let both = rustix::net::Shutdown::Both;
        // What has ended already needs no waking.
        let _ = match self {
            Listener::Tcp(listener) => rustix::net::shutdown(listener, both),
            Listener::Unix(listener, _) => rustix::net::shutdown(listener, both),
        };
    }
}

/// The file of a UNIX socket, which ends with the listener.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another node may have put its own in the place.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Listens on a socket that only the same user can connect to. A socket on which no node answers is replaced.
fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let explained = |error: io::Error| {
        let words = match error.kind() {
            io::ErrorKind::NotFound => format!("there is no directory {}; make it first", directory.display()),
            io::ErrorKind::PermissionDenied => format!("no permission to make a socket in {}", directory.display()),
            _ => return error,
        };
        io::Error::new(error.kind(), words)
    };
    // Of two nodes that start at a time, the second must see the socket of the first.
    let _alone = lock_directory(directory).map_err(explained)?;
    if let Ok(file) = std::fs::symlink_metadata(path) {
        make_room(path, FileType::from_raw_mode(file.mode()))?;
    }
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Before it has a name: the file gets the socket's mode (Linux).
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?).map_err(|error| explained(error.into()))?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok((UnixListener::from(socket), file))
}

/// Removes what a node that was killed has left.
fn make_room(path: &Path, kind: FileType) -> io::Result<()> {
    let taken = |words| Err(io::Error::new(io::ErrorKind::AddrInUse, words));
    if kind != FileType::Socket {
        return taken("there is a file of that name, and it is no socket; it is left as it is");
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => taken("another process listens there already"),
    }
}

/// Held until it is dropped; nothing is left behind.
fn lock_directory(directory: &Path) -> io::Result<OwnedFd> {
    let opened = OwnedFd::from(std::fs::File::open(directory)?);
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(opened),
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < START_LIMIT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let words = format!("another process holds a lock on the directory {}", directory.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, words));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
