//! One request to a node that needs no session.

use super::{Identity, NodeError};
use hinterland_tls::{ClientCredentials, explain};
use hinterland_wire::{
    CONTROL_BYTES_MAX, Endpoint, HEADER_BYTES, Header, Hello, Outcome, Protection, Reply, WELCOME_BYTES, Welcome,
    nobody_there,
};
use rustls::StreamOwned;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time that a node may take for each step.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The endpoint with the address that its name stands for: beside the name, which is what a certificate is for, when the
/// connection is protected by credentials; else in its place.
///
/// # Errors
/// The name stands for nothing, or for what needs more protection.
pub fn resolved(endpoint: &Endpoint, protection: Protection) -> Result<Endpoint, NodeError> {
    chosen(endpoint, &addresses(endpoint), protection)
}

/// What the name of an endpoint stands for; nothing for an address.
pub fn addresses(endpoint: &Endpoint) -> Vec<SocketAddr> {
    match endpoint {
        Endpoint::Tcp { host, port, .. } if endpoint.address().is_none() => {
            (host.as_str(), *port).to_socket_addrs().into_iter().flatten().collect()
        }
        _ => Vec::new(),
    }
}

/// As `resolved`, with one of the addresses that the name stands for.
///
/// # Errors
/// As for `resolved`.
pub fn chosen(endpoint: &Endpoint, addresses: &[SocketAddr], protection: Protection) -> Result<Endpoint, NodeError> {
    let resolved = match endpoint {
        Endpoint::Tcp { .. } if endpoint.address().is_none() => {
            // A name may stand for several; nodes listen on IPv4 unless told otherwise.
            let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
            let address = *address.ok_or_else(|| NodeError::Name(endpoint.clone()))?;
            if protection == Protection::Credentials { endpoint.resolved_to(address.ip()) } else { address.into() }
        }
        other => other.clone(),
    };
    resolved.check_reach(protection)?;
    Ok(resolved)
}

/// Makes the request that `write` writes, and hands the answer to `take`.
pub fn ask<R>(
    node: &str,
    identity: &Identity,
    write: impl FnOnce(&mut Vec<u8>),
    take: impl FnOnce(Reply<'_>) -> Option<R>,
) -> Result<R, NodeError> {
    let node: Endpoint = node.parse()?;
    let credentials = identity.sources()?.as_ref().map(ClientCredentials::read).transpose()?;
    let failed = |why| NodeError::Ask { node: node.clone(), why };
    let mut stream =
        connect(&resolved(&node, identity.protection(credentials.is_some()))?, credentials.as_ref()).map_err(failed)?;
    let (message, header) = exchange(&mut stream, write).map_err(failed)?;
    let reply = Reply::decode(&header, &message[HEADER_BYTES..]);
    let why = match reply {
        Ok(Reply::Refused { words, .. }) => words.to_owned(),
        Ok(reply) => match take(reply) {
            Some(taken) => return Ok(taken),
            None => "it answered another request than was made".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    Err(NodeError::Ask { node, why })
}

/// A connection to a node, whatever it runs over.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

fn connect(node: &Endpoint, credentials: Option<&ClientCredentials>) -> Result<Box<dyn Stream>, String> {
    let io = |error: std::io::Error| match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => format!("{error}{}", nobody_there(&node.to_string())),
        _ => error.to_string(),
    };
    match node {
        Endpoint::Unix { path } => {
            let stream = UnixStream::connect(path).map_err(io)?;
            stream.set_read_timeout(Some(TIMEOUT)).map_err(io)?;
            Ok(Box::new(stream))
        }
        Endpoint::Tcp { host, .. } => {
            let address = node.address().ok_or_else(|| format!("{host} does not resolve"))?;
            let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(io)?;
            stream.set_read_timeout(Some(TIMEOUT)).map_err(io)?;
            let Some(credentials) = credentials else { return Ok(Box::new(stream)) };
            let session = credentials.begin(host).map_err(|error| explain(&error))?;
            Ok(Box::new(StreamOwned::new(session, stream)))
        }
    }
}

/// What went wrong, in the words of TLS if it was that.
fn words(error: &std::io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    tls.map_or_else(|| error.to_string(), explain)
}

/// The answer's bytes and its header, checked.
fn exchange(stream: &mut dyn Stream, write: impl FnOnce(&mut Vec<u8>)) -> Result<(Vec<u8>, Header), String> {
    let io = |error: std::io::Error| words(&error);
    stream.write_all(&Hello::ours().encode()).map_err(io)?;
    let mut welcome = [0; WELCOME_BYTES];
    stream.read_exact(&mut welcome).map_err(io)?;
    let welcome = Welcome::decode(&welcome).map_err(|error| error.to_string())?;
    match welcome.outcome {
        Outcome::Accepted => {}
        Outcome::Version => return Err(format!("it speaks versions {:?} of the protocol", welcome.versions)),
        Outcome::Busy => return Err("it has too many connections".into()),
        Outcome::Secured => {
            return Err("it requires credentials; give --tls and --tls-ca, or the --key-file".into());
        }
    }
    let mut message = Vec::new();
    write(&mut message);
    stream.write_all(&message).map_err(io)?;
    message.resize(HEADER_BYTES + CONTROL_BYTES_MAX, 0);
    stream.read_exact(&mut message[..HEADER_BYTES]).map_err(io)?;
    let header = Header::decode(message.first_chunk().expect("longer")).map_err(|error| error.to_string())?;
    message.truncate(HEADER_BYTES + header.control_bytes);
    stream.read_exact(&mut message[HEADER_BYTES..]).map_err(io)?;
    Header::decode_whole(&message).map_err(|error| error.to_string())?;
    Ok((message, header))
}
