//! The cost of a flood of connections: loads of single pages alone, and beside thousands of connections of other
//! clients that each hold half of a request.

use super::NodesArgs;
use super::pool::Filled;
use super::process::Node;
use super::report::Round;
use hinterland_units::PAGE_BYTES;
use hinterland_wire::{DATA_BYTES_MAX, Endpoint, Hello, Priority, Range, Request, WELCOME_BYTES, checksum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// Connections of the crowd.
const CROWD: u32 = 4096;
/// What the node lends, half of it to the one who is measured.
const CAPACITY_BYTES: u64 = 64 << 20;
const PAGES: u32 = 8192;
/// No answer takes longer.
const LIMIT: Duration = Duration::from_secs(10);

/// Measures it once.
pub fn measure(round: &mut Round, launcher: &Path, args: &NodesArgs, seed: u64) {
    if let Err(why) = beside(round, launcher, args, seed) {
        round.skip("crowd", &why);
    }
}

fn beside(round: &mut Round, launcher: &Path, args: &NodesArgs, seed: u64) -> Result<(), String> {
    let (crowd, round_trips) = (args.scaled(CROWD), args.round_trips());
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| error.to_string())?;
    if most < 2 * u64::from(crowd) {
        return Err(format!("needs {} descriptors (ulimit -Hn)", 2 * crowd));
    }
    // The node inherits it.
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(|error| error.to_string())?;
    let node = Node::start(launcher, "tcp://127.0.0.1:0", CAPACITY_BYTES)?;
    let filled = Filled::new(&node.url, PAGES, seed)?;
    round.percentiles("alone_load", filled.demand_us(round_trips, seed));
    let half = half_a_write();
    // The node turns some away, when it has taken too many.
    let crowd: Vec<TcpStream> = (0..crowd).filter_map(|_| stranger(&node.url, &half).ok()).collect();
    round.percentiles("crowd_load", filled.demand_us(round_trips, seed));
    #[allow(clippy::cast_precision_loss, reason = "connections and bytes of a measurement lie far below 2^52")]
    let figures = [crowd.len() as f64, node.server.pss_bytes() as f64 - CAPACITY_BYTES as f64 / 2.0];
    round.figure("crowd_connections", Ok(figures[0]));
    round.figure("crowd_node_beside_slabs_bytes", Ok(figures[1]));
    Ok(())
}

/// A connection that has said half of a request.
fn stranger(url: &str, half: &[u8]) -> Result<TcpStream, String> {
    let endpoint: Endpoint = url.parse().map_err(|error| format!("{error}"))?;
    let address = endpoint.address().ok_or("no address")?;
    let said = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.write_all(&Hello::ours().encode())?;
        stream.read_exact(&mut [0; WELCOME_BYTES])?;
        stream.write_all(half)?;
        Ok(stream)
    };
    said().map_err(|error: std::io::Error| error.to_string())
}

/// A write of as much as a message holds, of which half is there.
fn half_a_write() -> Vec<u8> {
    let data = vec![7; DATA_BYTES_MAX];
    let ranges = data.chunks(PAGE_BYTES).enumerate().map(|(place, page)| {
        let address = (place * PAGE_BYTES) as u64;
        Range { address, bytes: u32::try_from(page.len()).unwrap_or(0), checksum: checksum(address, page) }
    });
    let mut message = Vec::new();
    Request::write(&mut message, 1, Priority::WriteBack, ranges);
    message.extend_from_slice(&data);
    message.truncate(message.len() / 2);
    message
}
