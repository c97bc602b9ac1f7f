//! `hinterland node drain` and `resize`: what is said to the node, and how far its clients are.

use super::status::{Copies, to_move_bytes};
use super::{Identity, NodeError, ask::ask};
use hinterland_units::ByteCount;
use hinterland_wire::{Kind, NodeRow, Reply, Request};
use std::io::Write;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
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
        return Err(refused(format!("{capacity} is less than one slab; give at least 2M, or drain the node")));
    }
    ask(node, identity, |into| Request::resize(into, 1, bytes), done)?;
    tell(node, identity, &format!("lends {}", ByteCount(figures(node, identity)?.capacity_bytes)), true, wait)
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
    let mut out = std::io::stdout();
    writeln!(out, "{node} {what}")?;
    if !moves {
        return Ok(());
    }
    let (mut last, mut since, mut told) = (None, Instant::now(), false);
    loop {
        let left = to_move_bytes(&figures(node, identity)?);
        if last != Some(left) {
            match left {
                0 => writeln!(out, "  nothing is to be moved")?,
                left => writeln!(out, "  {} to move", ByteCount(left))?,
            }
            (last, since, told) = (Some(left), Instant::now(), false);
        }
        if left == 0 || !wait {
            return Ok(());
        }
        if !told && since.elapsed() > STUCK {
            writeln!(
                out,
                "  nothing moves: no other node with room is known for the pages of {}; they stay until there is one",
                stuck(node, identity)?
            )?;
            told = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
