//! The channel of a lane: a connection, or TLS over one.
//!
//! A client has `Options::handshake_limit` for a handshake as a whole, however it trickles, then as long for its hello, and at most one of the protocol's
//! messages in memory: rustls bounds a handshake message at 64 KiB. What a lane needs otherwise it gets afterwards.

use crate::stream::{Peer, Stream, has_arrived};
use hinterland_tls::{ClientKey, NodeCredentials, ServerConnection, explain};
use hinterland_wire::{Features, HELLO_BYTES, Hello, Outcome, Welcome};
use rustls::StreamOwned;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a client that was refused is listened to, so that it hears why: unread bytes would cut the answer off.
const LINGER: Duration = Duration::from_millis(500);
/// The first byte of a handshake of TLS (RFC 8446 §5.1).
const HANDSHAKE: u8 = 0x16;

/// See the module.
pub(crate) enum Connection {
    Plain(Stream),
    Secured(Box<Secured>),
}

/// A connection whose client has authenticated itself.
pub(crate) struct Secured {
    tls: StreamOwned<ServerConnection, TcpStream>,
    client: Option<ClientKey>,
    may_operate: bool,
}

/// Why a client is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error("the client is not authenticated: {0}")]
    Refused(String),
}

impl Connection {
    /// Takes a connection; where there are credentials, the client must have some too.
    pub(crate) fn begin(
        stream: Stream,
        credentials: Option<&NodeCredentials>,
        limit: Duration,
    ) -> Result<Connection, HandshakeError> {
        stream.prepare()?;
        stream.set_read_timeout(Some(limit))?;
        match (stream, credentials) {
            (Stream::Tcp(stream), Some(credentials)) => shake_hands(stream, credentials, limit),
            (stream, _) => Ok(Connection::Plain(stream)),
        }
    }

    /// Who the client is, as far as it has been proved.
    pub(crate) fn client(&self) -> Option<&ClientKey> {
        match self {
            Connection::Plain(_) => None,
            Connection::Secured(secured) => secured.client.as_ref(),
        }
    }

    /// Who the client is, for the log.
    pub(crate) fn peer(&self) -> String {
        match self {
            Connection::Plain(stream) => stream.peer().to_string(),
            Connection::Secured(secured) => {
                let address =
                    secured.tls.sock.peer_addr().map_or_else(|_| "gone".into(), |address| address.to_string());
                let key = secured.client.as_ref().map(|client| format!(", certificate {}", client.fingerprint()));
                address + &key.unwrap_or_default()
            }
        }
    }

    /// Whether the client may drain and resize the node: by a socket the node's own user and root, and by TCP without credentials
    /// all who can connect.
    pub(crate) fn may_operate(&self) -> bool {
        match self {
            Connection::Plain(stream) => match stream.peer() {
                Peer::Process { user, .. } => user == 0 || user == rustix::process::geteuid().as_raw(),
                Peer::Address(_) => true,
                Peer::Gone => false,
            },
            Connection::Secured(secured) => secured.may_operate,
        }
    }

    /// What the node offers here: no descriptors pass through TLS.
    pub(crate) fn features(&self) -> Features {
        match self {
            Connection::Plain(stream) => stream.features(),
            Connection::Secured(_) => Features::ALL.without(Features::SHARED),
        }
    }

    /// Sends a message with a descriptor beside its first byte.
    pub(crate) fn send_with(&self, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.send_with(bytes, descriptor),
            Connection::Secured(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Sends of these pieces, one after the other, what the connection takes without waiting; returns how many bytes. TLS takes none: a record
    /// that is begun must be sent.
    pub(crate) fn offer(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.offer(pieces),
            Connection::Secured(_) => Ok(0),
        }
    }

    /// Whether `offer` may send anything.
    pub(crate) fn takes_offers(&self) -> bool {
        matches!(self, Connection::Plain(_))
    }

    /// Whether it leads over a network's link.
    pub(crate) fn has_link(&self) -> bool {
        match self {
            Connection::Plain(stream) => stream.has_link(),
            Connection::Secured(_) => true,
        }
    }

    /// Waits until the connection takes more bytes, or is over.
    pub(crate) fn wait_for_room(&self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.wait_for_room(),
            // Writing waits.
            Connection::Secured(_) => Ok(()),
        }
    }

    /// Whether something has arrived at this moment, beside what TLS has taken in already.
    pub(crate) fn has_arrived(&self) -> bool {
        match self {
            Connection::Plain(stream) => stream.has_arrived(),
            Connection::Secured(secured) => has_arrived(&secured.tls.sock),
        }
    }

    /// Reads the first bytes that a client says, all of which have to be there in `limit`.
    pub(crate) fn read_hello(&mut self, limit: Duration) -> io::Result<[u8; HELLO_BYTES]> {
        let bytes = match self {
            Connection::Plain(stream) => {
                read_by(&*stream, Instant::now() + limit, |left| stream.set_read_timeout(left))
            }
            // It has authenticated itself.
            Connection::Secured(secured) => {
                let mut bytes = [0; HELLO_BYTES];
                secured.tls.read_exact(&mut bytes).map(|()| bytes)
            }
        }?;
        self.set_read_timeout(Some(limit))?;
        Ok(bytes)
    }

    /// After the last answer: takes what still arrives, for a while, so that the client hears it.
    pub(crate) fn linger(&self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => linger(stream, || stream.end_writing(), |left| stream.set_read_timeout(left)),
            Connection::Secured(secured) => linger_tcp(&secured.tls.sock),
        }
    }

    /// From now on the client may be silent so long; `None`: for ever.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.set_read_timeout(timeout),
            Connection::Secured(secured) => secured.tls.sock.set_read_timeout(timeout),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => (&*stream).read(into),
            // Who hangs up does not say so in TLS: a process that was killed cannot. What is whole is known by the protocol.
            Connection::Secured(secured) => match secured.tls.read(into) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                other => other,
            },
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => (&*stream).write(bytes),
            Connection::Secured(secured) => secured.tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => (&*stream).flush(),
            Connection::Secured(secured) => secured.tls.flush(),
        }
    }
}

/// Apart from `begin`, so that lanes without TLS do without its two pages of stack: there may be thousands.
#[inline(never)]
fn shake_hands(
    mut stream: TcpStream,
    credentials: &NodeCredentials,
    limit: Duration,
) -> Result<Connection, HandshakeError> {
    let deadline = Instant::now() + limit;
    let refused = |error| HandshakeError::Refused(explain(&error));
    // What is renewed from now on is for connections that come later.
    let credentials = credentials.now();
    let mut session = credentials.begin().map_err(refused)?;
    let mut first = [0];
    if stream.peek(&mut first)? == 1 && first[0] != HANDSHAKE {
        refuse_plain(&mut stream, deadline)?;
        return Err(HandshakeError::Refused("it does not speak TLS".into()));
    }
    while session.is_handshaking() {
        let left = left_until(deadline)?;
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))?;
        if session.wants_write() {
            session.write_tls(&mut stream)?;
            continue;
        }
        if session.read_tls(&mut stream)? == 0 {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        if let Err(error) = session.process_new_packets() {
            // The alert.
            while session.wants_write() {
                session.write_tls(&mut stream)?;
            }
            linger_tcp(&stream)?;
            return Err(refused(error));
        }
    }
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(None)?;
    let client = credentials.client(&session);
    let may_operate = credentials.may_operate(client.as_ref());
    Ok(Connection::Secured(Box::new(Secured { tls: StreamOwned::new(session, stream), client, may_operate })))
}

/// Tells a program without credentials, in its own words, that it needs some.
fn refuse_plain(stream: &mut TcpStream, deadline: Instant) -> io::Result<()> {
    let bytes = read_by(&*stream, deadline, |left| stream.set_read_timeout(left))?;
    if let Ok(hello) = Hello::decode(&bytes) {
        let welcome =
            Welcome { outcome: Outcome::Secured, ..Welcome::answer(&hello, Features::ALL, crate::SLAB_BYTES, false) };
        stream.write_all(&welcome.encode())?;
    }
    linger_tcp(stream)
}

/// Reads `N` bytes that have to be there by a time, whoever trickles.
fn read_by<const N: usize>(
    mut from: impl Read,
    deadline: Instant,
    wait_for: impl Fn(Option<Duration>) -> io::Result<()>,
) -> io::Result<[u8; N]> {
    let (mut bytes, mut filled) = ([0; N], 0);
    while filled < N {
        wait_for(Some(left_until(deadline)?))?;
        match from.read(&mut bytes[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// The time until then; an error when it is over.
fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn linger_tcp(stream: &TcpStream) -> io::Result<()> {
    linger(stream, || stream.shutdown(Shutdown::Write), |left| stream.set_read_timeout(left))
}

/// Says that nothing more is said, and takes what still arrives, for a while.
fn linger(
    mut from: impl Read,
    end: impl FnOnce() -> io::Result<()>,
    wait_for: impl Fn(Option<Duration>) -> io::Result<()>,
) -> io::Result<()> {
    end()?;
    let begun = Instant::now();
    let mut dropped = [0; 1024];
    while let Some(left) = LINGER.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        wait_for(Some(left))?;
        if !from.read(&mut dropped).is_ok_and(|read| read > 0) {
            break;
        }
    }
    Ok(())
}
