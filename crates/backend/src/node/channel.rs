//! What a lane sends and receives through: a connection, or TLS over one.
//!
//! A channel is used by one thread at a time, also in a signal handler: TLS is computation on buffers from the library's own
//! allocator, and only the socket calls the kernel. A forked child drops its copies with nothing said and makes connections of its
//! own: two processes that went on with one state would encrypt two records alike.

use crate::node_error::NodeError;
use hinterland_sys::peer_memory::ReceivedFd;
use hinterland_sys::socket::MessageTime;
use hinterland_sys::{Address, Socket};
use hinterland_tls::{ClientConnection, ClientCredentials, explain};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::time::Duration;

/// Bytes that are encrypted before they are sent.
const SEND_BYTES: usize = 64 << 10;

/// How a node is to authenticate itself, and we to it.
#[derive(Clone, Debug)]
pub struct Secured {
    /// What we show and demand.
    pub credentials: ClientCredentials,
    /// The name that the node's certificate must be for.
    pub name: String,
}

/// See the module.
pub(super) enum Channel {
    Plain(Socket),
    Secured(Box<Tls>),
}

/// TLS over a socket.
pub(super) struct Tls {
    socket: Socket,
    session: ClientConnection,
    limit: Duration,
    send_limit: Duration,
}

impl Channel {
    /// Memory of TLS beside that of a lane: a record each way, and what is encrypted at once.
    pub(super) const TLS_RAM_BYTES: u64 = (SEND_BYTES + (32 << 10)) as u64;

    /// Connects; `limit` bounds every wait, and the handshake as a whole.
    pub(super) fn connect(address: &Address, secured: Option<&Secured>, limit: Duration) -> Result<Channel, NodeError> {
        let connected = Socket::connect(address, limit);
        let socket = connected.map_err(|error| NodeError::connecting(error.errno, limit))?;
        match secured {
            None => Ok(Channel::Plain(socket)),
            Some(secured) => Tls::begin(socket, secured, limit).map(|tls| Channel::Secured(Box::new(tls))),
        }
    }

    fn socket(&mut self) -> &mut Socket {
        match self {
            Channel::Plain(socket) => socket,
            Channel::Secured(tls) => &mut tls.socket,
        }
    }

    /// See `Socket::set_limits`.
    pub(super) fn set_limits(&mut self, receive: Duration, send: Duration) -> Result<(), NodeError> {
        if let Channel::Secured(tls) = self {
            (tls.limit, tls.send_limit) = (receive, send);
        }
        self.socket().set_limits(receive, send).map_err(|error| NodeError::of_socket(error.errno, receive))
    }

    /// See `Socket::is_ours`.
    pub(super) fn is_ours(&mut self) -> bool {
        self.socket().is_ours()
    }

    /// Whether something has arrived at this moment.
    pub(super) fn has_arrived(&mut self) -> bool {
        match self {
            Channel::Plain(socket) => socket.has_arrived(),
            Channel::Secured(tls) => tls.has_arrived() || tls.socket.has_arrived(),
        }
    }

    /// Whether nothing has to be waited for to receive so many bytes, or to learn that the connection has ended.
    pub(super) fn has_whole(&mut self, bytes: usize) -> bool {
        /// What TLS adds to a record.
        const RECORD_BYTES: usize = 22;
        let (left, socket) = match self {
            Channel::Plain(socket) => (bytes, socket),
            Channel::Secured(tls) => match bytes.saturating_sub(tls.decrypted_bytes()) {
                0 => return true,
                left => (left + RECORD_BYTES, &mut tls.socket),
            },
        };
        let available = socket.available();
        available >= left || available == 0 && socket.has_arrived()
    }

    /// Waits until something has arrived; false: not within `limit`.
    pub(super) fn wait(&mut self, limit: Duration) -> bool {
        match self {
            Channel::Plain(socket) => socket.wait(limit),
            Channel::Secured(tls) => tls.has_arrived() || tls.socket.wait(limit),
        }
    }

    /// As `wait`, for either of two.
    pub(super) fn wait_either(&mut self, other: &mut Channel, limit: Duration) -> bool {
        let decrypted = |channel: &mut Channel| match channel {
            Channel::Plain(_) => false,
            Channel::Secured(tls) => tls.has_arrived(),
        };
        decrypted(self) || decrypted(other) || self.socket().wait_either(other.socket(), limit)
    }

    /// Sends all bytes of `parts`.
    pub(super) fn send<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Result<(), NodeError> {
        match self {
            Channel::Plain(socket) => socket.send(parts).map_err(|error| not_sent(error.errno, socket)),
            Channel::Secured(tls) => tls.send(parts),
        }
    }

    /// Receives into all of `parts`, until they are full.
    pub(super) fn receive<'a>(&mut self, parts: impl Iterator<Item = &'a mut [u8]>) -> Result<(), NodeError> {
        match self {
            Channel::Plain(socket) => socket.receive(parts).map_err(|error| not_received(error.errno, socket)),
            Channel::Secured(tls) => {
                let mut time = MessageTime::begin();
                parts.into_iter().try_for_each(|part| tls.fill(part, &mut time))
            }
        }
    }

    /// See `Socket::receive_with`: descriptors come through UNIX sockets only, which need no TLS.
    pub(super) fn receive_with<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut [u8]>,
    ) -> Result<Option<ReceivedFd>, NodeError> {
        match self {
            Channel::Plain(socket) => socket.receive_with(parts).map_err(|error| not_received(error.errno, socket)),
            Channel::Secured(_) => self.receive(parts).map(|()| None),
        }
    }

    /// See `Socket::receive_if`.
    pub(super) fn receive_if<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut [u8]>,
        shown: usize,
        accept: impl FnOnce(&[u8]) -> bool,
    ) -> Result<usize, NodeError> {
        match self {
            Channel::Plain(socket) => {
                socket.receive_if(parts, shown, accept).map_err(|error| not_received(error.errno, socket))
            }
            Channel::Secured(tls) => tls.receive_if(parts, shown, accept),
        }
    }
}

impl Tls {
    fn begin(socket: Socket, secured: &Secured, limit: Duration) -> Result<Tls, NodeError> {
        let words = |error| NodeError::Credentials { words: explain(&error) };
        let session = secured.credentials.begin(&secured.name).map_err(words)?;
        let mut tls = Tls { socket, session, limit, send_limit: limit };
        let mut time = MessageTime::begin();
        while tls.session.is_handshaking() {
            tls.flush()?;
            tls.pull(&mut time).map_err(|error| match error {
                // What a node without TLS does with a handshake.
                NodeError::Connection { errno: libc::ECONNRESET | libc::EPIPE } => NodeError::Credentials {
                    words:
                        "it hung up in the middle of the handshake; perhaps it was started without --tls and --key-file"
                            .into(),
                },
                other => other,
            })?;
        }
        tls.flush()?;
        Ok(tls)
    }

    /// Whether there are bytes that `fill` need not wait for.
    fn has_arrived(&mut self) -> bool {
        self.decrypted_bytes() > 0
    }

    /// How many bytes `fill` need not wait for; as many as one likes where there is an error, which is for whoever reads.
    fn decrypted_bytes(&mut self) -> usize {
        // Takes in nothing new: only says what there is.
        self.session.process_new_packets().map_or(usize::MAX, |state| state.plaintext_bytes_to_read())
    }

    fn send<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Result<(), NodeError> {
        let (mut time, mut encrypted) = (MessageTime::begin(), 0);
        for part in parts {
            self.session.writer().write_all(part).expect("the buffer is not bounded");
            encrypted += part.len();
            if encrypted >= SEND_BYTES {
                self.flush()?;
                encrypted = 0;
                if time.is_over(self.send_limit, || self.socket.takes_more()) {
                    return Err(NodeError::Silent { limit: self.send_limit });
                }
            }
        }
        self.flush()
    }

    /// Sends what is encrypted.
    fn flush(&mut self) -> Result<(), NodeError> {
        while self.session.wants_write() {
            let written = self.session.write_tls(&mut Sender(&mut self.socket));
            written.map_err(|error| not_sent(errno_of(&error), &self.socket))?;
        }
        Ok(())
    }

    /// Waits for something to arrive, and decrypts it.
    fn pull(&mut self, time: &mut MessageTime) -> Result<(), NodeError> {
        if time.is_over(self.limit, || self.socket.has_arrived()) {
            return Err(NodeError::Silent { limit: self.limit });
        }
        match self.session.read_tls(&mut Receiver(&mut self.socket)) {
            Ok(0) => return Err(NodeError::Connection { errno: libc::ECONNRESET }),
            Ok(_) => {}
            Err(error) => return Err(not_received(errno_of(&error), &self.socket)),
        }
        if let Err(error) = self.session.process_new_packets() {
            // Says why to the other side, if it still listens.
            let _ = self.flush();
            return Err(NodeError::Credentials { words: explain(&error) });
        }
        self.flush()
    }

    /// Reads what is there into `part`; returns how many bytes.
    fn read(&mut self, part: &mut [u8]) -> Result<usize, NodeError> {
        match self.session.reader().read(part) {
            Ok(0) if !part.is_empty() => Err(NodeError::Connection { errno: libc::ECONNRESET }),
            Ok(read) => Ok(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(NodeError::Connection { errno: libc::ECONNRESET }),
        }
    }

    fn fill(&mut self, part: &mut [u8], time: &mut MessageTime) -> Result<(), NodeError> {
        let mut filled = 0;
        while filled < part.len() {
            match self.read(&mut part[filled..])? {
                0 => self.pull(time)?,
                read => filled += read,
            }
        }
        Ok(())
    }

    fn receive_if<'a>(
        &mut self,
        mut parts: impl Iterator<Item = &'a mut [u8]>,
        shown: usize,
        accept: impl FnOnce(&[u8]) -> bool,
    ) -> Result<usize, NodeError> {
        let mut time = MessageTime::begin();
        let (head, rest) = parts.next().expect("there is a first part").split_at_mut(shown);
        self.fill(head, &mut time)?;
        let accepted = accept(head);
        let mut moved = shown;
        for part in std::iter::once(rest).chain(parts) {
            if accepted {
                self.fill(part, &mut time)?;
                moved += part.len();
                continue;
            }
            let read = self.read(part)?;
            moved += read;
            if read < part.len() {
                break;
            }
        }
        Ok(moved)
    }
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn not_sent(errno: i32, socket: &Socket) -> NodeError {
    NodeError::of_socket(errno, socket.limits().1)
}

fn not_received(errno: i32, socket: &Socket) -> NodeError {
    NodeError::of_socket(errno, socket.limits().0)
}

/// The socket, as rustls wants it.
struct Sender<'a>(&'a mut Socket);

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let parts = &parts[..parts.len().min(hinterland_sys::socket::PARTS_MAX)];
        let sent = self.0.send(parts.iter().map(|part| &**part));
        sent.map_err(|error| io::Error::from_raw_os_error(error.errno))?;
        Ok(parts.iter().map(|part| part.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Receiver<'a>(&'a mut Socket);

impl Read for Receiver<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.receive_some(into).map_err(|error| io::Error::from_raw_os_error(error.errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_node_is_said_to_be_silent_for_as_long_as_it_was_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").into();
        let mut channel = Channel::connect(&address, None, Duration::from_secs(300)).expect("a connection");
        let [receive, send] = [30, 20].map(Duration::from_millis);
        channel.set_limits(receive, send).expect("options");
        let nothing = channel.receive([&mut [0u8; 1][..]].into_iter());
        assert_eq!(nothing, Err(NodeError::Silent { limit: receive }));
        let sent = (0..10_000).find_map(|_| channel.send([&[0u8; 1 << 20][..]].into_iter()).err());
        assert_eq!(sent, Some(NodeError::Silent { limit: send }), "the buffers have an end");
    }
}
