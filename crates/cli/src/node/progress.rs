//! `hinterland node drain` and `resize`: the request to the node, and the progress of its clients.

use super::status::{Copies, to_move_bytes};
use super::{Identity, NodeError, client::ask, resolved};
use crate::error::complain;
use crate::host::Host;
use crate::print;
use hinterland_units::ByteCount;
use hinterland_wire::{Endpoint, Kind, NodeRow, Protection, Reply, Request};
use std::time::{Duration, Instant};

/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time without a change after which it is said that nothing moves.
const STUCK: Duration = Duration::from_secs(10);

/// `hinterland node drain`.
pub fn drain(node: &str, identity: &Identity, on: bool, wait: bool) -> Result<(), NodeError> {
    ask(node, identity, |into| Request::drain(into, 1, on), done)?;
    let what = if on { "leases no more memory; programs that use it go on" } else { "leases memory again" };
    tell(node, identity, what, on, wait)
}

/// `hinterland node resize`.
pub fn resize(node: &str, identity: &Identity, capacity: &str, wait: bool) -> Result<(), NodeError> {
    let refused = |why: String| NodeError::Flag { flag: "SIZE", why };
    let ByteCount(bytes) = capacity.parse().map_err(|error: hinterland_units::SizeError| refused(error.to_string()))?;
    if bytes < hinterland_node::SLAB_BYTES {
        let question = ByteCount(bytes).question_before(ByteCount(hinterland_node::SLAB_BYTES));
        return Err(refused(format!(
            "{question}{capacity} is less than one slab; give at least 2M, or drain the node"
        )));
    }
    ask(node, identity, |into| Request::resize(into, 1, bytes), done)?;
    if let Some(there) = memory_beside(node).filter(|there| bytes > there.0) {
        complain(format_args!(
            "warning: {} is more than the memory of this machine ({there}), on which {node} runs: the kernel would end the node when it \
             is used; give less",
            ByteCount(bytes)
        ));
    }
    tell(node, identity, &format!("lends {}", ByteCount(figures(node, identity)?.capacity_bytes)), true, wait)
}

/// The memory of the machine that a node runs on, if that is this one. (A node elsewhere says it in its own log.)
fn memory_beside(node: &str) -> Option<ByteCount> {
    let here = match node.parse().ok()? {
        Endpoint::Unix { .. } => true,
        tcp @ Endpoint::Tcp { .. } => resolved(&tcp, Protection::InsecureLoopback).is_ok(),
    };
    Host::here().memory().filter(|_| here).map(|memory| ByteCount(memory.total_bytes))
}

fn done(reply: Reply<'_>) -> Option<()> {
    matches!(reply, Reply::Done).then_some(())
}

/// Who holds pages that cannot move.
fn stuck(node: &str, identity: &Identity) -> Result<String, NodeError> {
    let copies = Copies::of(node, identity);
    let take = |reply: Reply<'_>| match reply {
        Reply::Figures(figures) => Some(copies.stuck(&figures)),
        _ => None,
    };
    let names = ask(node, identity, |into| Request::plain(into, 1, Kind::Statistics), take)?;
    Ok(if names.is_empty() { "the programs".to_owned() } else { names.join(", ") })
}

fn figures(node: &str, identity: &Identity) -> Result<NodeRow, NodeError> {
    let take = |reply: Reply<'_>| match reply {
        Reply::Figures(figures) => Some(figures.node),
        _ => None,
    };
    ask(node, identity, |into| Request::plain(into, 1, Kind::Statistics), take)
}

/// Says what was done and what is still to move; goes on with the latter if somebody waits.
fn tell(node: &str, identity: &Identity, what: &str, moves: bool, wait: bool) -> Result<(), NodeError> {
    print::text(&format!("{node} {what}\n"))?;
    if !moves {
        return Ok(());
    }
    let (mut last, mut since, mut told) = (None, Instant::now(), false);
    loop {
        let left = to_move_bytes(&figures(node, identity)?);
        if last != Some(left) {
            match left {
                0 => print::text("  nothing is to be moved\n")?,
                left => print::text(&format!("  {} to move\n", ByteCount(left)))?,
            };
            (last, since, told) = (Some(left), Instant::now(), false);
        }
        if left == 0 || !wait {
            return Ok(());
        }
        if !told && since.elapsed() > STUCK {
            print::text(&format!(
                "  nothing moves: no other node with room is known for the pages of {}; they stay until there is one\n",
                stuck(node, identity)?
            ))?;
            told = true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
