//! What a lane is served over: a connection, or TLS over one.
//!
//! A client has `PATIENCE` for a handshake as a whole, and at most one of the protocol's messages in memory: rustls bounds a handshake
//! message at 64 KiB. What a lane needs otherwise it gets afterwards.

use crate::stream::Stream;
use hinterland_tls::{NodeCredentials, ServerConnection, explain};
use hinterland_wire::{HELLO_BYTES, Hello, Outcome, Welcome};
use rustls::StreamOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Time that a connection may take to say what it wants. Afterwards it may be silent as long as it likes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client that was refused is listened to, so that it hears why: unread bytes would cut the answer off.
const LINGER: Duration = Duration::from_millis(500);
/// The first byte of a handshake of TLS (RFC 8446 §5.1).
const HANDSHAKE: u8 = 0x16;

/// See the module.
pub(crate) enum Connection {
    Plain(Stream),
    Secured(Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// Why a client is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error("the client has not proved who it is: {0}")]
    Refused(String),
}

impl Connection {
    /// Takes a connection; where there are credentials, who comes from another machine must have some too.
    pub(crate) fn begin(stream: Stream, credentials: Option<&NodeCredentials>) -> Result<Connection, HandshakeError> {
        stream.send_at_once()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        match (credentials, stream) {
            (Some(credentials), Stream::Tcp(stream)) => shake_hands(stream, credentials),
            // Who may use a UNIX socket the file system says.
            (_, stream) => Ok(Connection::Plain(stream)),
        }
    }

    /// From now on the client may be silent so long; `None`: for ever.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.set_read_timeout(timeout),
            Connection::Secured(secured) => secured.sock.set_read_timeout(timeout),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => (&*stream).read(into),
            // Who hangs up does not say so in TLS: a process that was killed cannot. What is whole is known by the protocol.
            Connection::Secured(secured) => match secured.read(into) {
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
            Connection::Secured(secured) => secured.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => (&*stream).flush(),
            Connection::Secured(secured) => secured.flush(),
        }
    }
}

fn shake_hands(mut stream: TcpStream, credentials: &NodeCredentials) -> Result<Connection, HandshakeError> {
    let deadline = Instant::now() + PATIENCE;
    let refused = |error| HandshakeError::Refused(explain(&error));
    let mut session = credentials.begin().map_err(refused)?;
    let mut first = [0];
    if stream.peek(&mut first)? == 1 && first[0] != HANDSHAKE {
        refuse_plain(&mut stream)?;
        return Err(HandshakeError::Refused("it does not speak TLS".into()));
    }
    while session.is_handshaking() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(ErrorKind::TimedOut).into());
        }
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
            linger(&mut stream)?;
            return Err(refused(error));
        }
    }
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(None)?;
    Ok(Connection::Secured(Box::new(StreamOwned::new(session, stream))))
}

/// Tells a program without credentials, in its own words, that it needs some.
fn refuse_plain(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes)?;
    if let Ok(hello) = Hello::decode(&bytes) {
        let welcome = Welcome { outcome: Outcome::Secured, ..Welcome::answer(&hello, crate::SLAB_BYTES, false) };
        stream.write_all(&welcome.encode())?;
    }
    linger(stream)
}

/// Says that nothing more is said, and takes what still arrives, for a while.
fn linger(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let begun = Instant::now();
    let mut dropped = [0; 1024];
    while let Some(left) = LINGER.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        stream.set_read_timeout(Some(left))?;
        if !stream.read(&mut dropped).is_ok_and(|read| read > 0) {
            break;
        }
    }
    Ok(())
}
