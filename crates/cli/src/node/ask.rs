//! One request to a node that needs no session.

use super::NodeError;
use hinterland_wire::{
    CONTROL_BYTES_MAX, Endpoint, HEADER_BYTES, Header, Hello, Outcome, Reply, WELCOME_BYTES, Welcome,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time that a node may take for each step.
const PATIENCE: Duration = Duration::from_secs(5);

/// The endpoint with an address in place of a name; a loopback address.
///
/// # Errors
/// The name stands for nothing, or for another machine.
pub fn resolved(endpoint: &Endpoint) -> Result<Endpoint, NodeError> {
    let resolved = match endpoint {
        Endpoint::Tcp { host, port } if endpoint.address().is_none() => {
            let found = (host.as_str(), *port).to_socket_addrs().ok();
            let addresses: Vec<SocketAddr> = found.into_iter().flatten().collect();
            // A name may stand for several; nodes listen on IPv4 unless told otherwise.
            let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
            Endpoint::from(*address.ok_or_else(|| NodeError::Name(endpoint.clone()))?)
        }
        other => other.clone(),
    };
    resolved.check_loopback()?;
    Ok(resolved)
}

/// A connection to a node, whatever it runs over.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

fn connect(node: &Endpoint) -> std::io::Result<Box<dyn Stream>> {
    Ok(match node {
        Endpoint::Unix { path } => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Box::new(stream)
        }
        Endpoint::Tcp { .. } => {
            let address = node.address().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
            let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Box::new(stream)
        }
    })
}

/// Makes the request that `write` writes, and hands the answer to `take`.
pub fn ask<R>(
    node: &str,
    write: impl FnOnce(&mut Vec<u8>),
    take: impl FnOnce(Reply<'_>) -> Option<R>,
) -> Result<R, NodeError> {
    let node: Endpoint = node.parse()?;
    let address = resolved(&node)?;
    let (message, header) = exchange(&address, write).map_err(|why| NodeError::Ask { node: node.clone(), why })?;
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

/// The answer's bytes and its header, checked.
fn exchange(node: &Endpoint, write: impl FnOnce(&mut Vec<u8>)) -> Result<(Vec<u8>, Header), String> {
    let io = |error: std::io::Error| error.to_string();
    let mut stream = connect(node).map_err(io)?;
    stream.write_all(&Hello::ours().encode()).map_err(io)?;
    let mut welcome = [0; WELCOME_BYTES];
    stream.read_exact(&mut welcome).map_err(io)?;
    let welcome = Welcome::decode(&welcome).map_err(|error| error.to_string())?;
    match welcome.outcome {
        Outcome::Accepted => {}
        Outcome::Version => return Err(format!("it speaks versions {:?} of the protocol", welcome.versions)),
        Outcome::Busy => return Err("it has too many connections".into()),
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
