//! Pools whose nodes come and go: a directory lists the members, and is read now and then.
//!
//! A node that joins is used as soon as it answers. A node that is off the list is used as long as it answers, because
//! its answers are better evidence than the list: a node that leaves in good order has recalled its slabs before. Only
//! when it is lost, too, reconnection ends, and another node may take its place. Likewise a node whose name has a new
//! address is used at the old one as long as it answers there: both addresses might be one node, with two copies of a
//! page.

use super::member::NodeAddress;
use super::returns::Returns;
use super::slabs::Slabs;
use hinterland_wire::Endpoint;
use std::sync::Arc;

/// The members of a pool.
pub trait Membership: Send + Sync {
    /// The nodes of now and the version of that list, unless it still is the version that was `seen`.
    fn changed_since(&self, seen: u64) -> Option<(u64, Vec<NodeAddress>)>;
}

/// Gets the members of the pool.
pub(super) struct Members {
    slabs: Arc<Slabs>,
    membership: Box<dyn Membership>,
    /// What was last read of it.
    version: u64,
    /// Nodes that have found no place in the pool yet, or not at this address.
    waiting: Vec<NodeAddress>,
}

impl Members {
    /// Begins behind a `version` of the list, of whose nodes those in `waiting` have no place.
    pub(super) fn new(
        slabs: &Arc<Slabs>,
        membership: Box<dyn Membership>,
        version: u64,
        waiting: Vec<NodeAddress>,
    ) -> Members {
        Members { slabs: slabs.clone(), membership, version, waiting }
    }

    /// Gets the members of the pool now.
    pub(super) fn hear(&mut self, returns: &mut Returns) {
        if let Some((version, nodes)) = self.membership.changed_since(self.version) {
            let urls: Vec<String> = self.slabs.links.iter().map(|link| link.node.url.clone()).collect();
            returns.look_for(|index| nodes.iter().any(|node| name(&node.url) == name(&urls[index])));
            self.waiting = nodes.into_iter().filter(|node| !urls.contains(&node.url)).collect();
            self.version = version;
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().filter_map(|node| self.take_in(node, returns)).collect();
    }

    /// Gives a node a place: its own if it has one, once it is lost at the address there, and else a vacant one if there is one; hands it back
    /// when there is none.
    fn take_in(&self, node: NodeAddress, returns: &mut Returns) -> Option<NodeAddress> {
        let links = &self.slabs.links;
        let is_lost = |index: &usize| links.at(*index).lost().is_some();
        let own = (0..links.len()).find(|index| name(&links.at(*index).node.url) == name(&node.url));
        let place = if own.is_some() {
            own.filter(is_lost)
        } else {
            let is_free = |index: &usize| links.at(*index).is_vacant() || !returns.belongs(*index) && is_lost(index);
            (0..links.len()).filter(is_free).min_by_key(|index| !links.at(*index).is_vacant())
        };
        let Some(index) = place else { return Some(node) };
        links.expect(index, node);
        returns.begin_anew(index);
        None
    }
}

/// What a node is called, whatever address the name stands for.
fn name(url: &str) -> Option<Endpoint> {
    let mut endpoint = url.parse().ok()?;
    if let Endpoint::Tcp { resolved, .. } = &mut endpoint {
        *resolved = None;
    }
    Some(endpoint)
}
