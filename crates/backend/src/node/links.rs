//! The places of a pool's nodes, and the link that is in use at each now.

use super::limits::Timing;
use super::link::Link;
use super::member::{Node, NodeAddress};
use crate::node_error::NodeError;
use crate::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// See the module.
pub(super) struct Links {
    /// What the program was called when it began.
    name: Arc<str>,
    places: Vec<Mutex<Arc<Link>>>,
}

/// Links to the nodes of a pool that begins.
pub(super) struct Opened {
    pub(super) links: Links,
    /// Bytes of the nodes' slabs, which are all of one size.
    pub(super) slab_bytes: u64,
    /// All nodes have answered.
    pub(super) is_whole: bool,
}

impl Links {
    /// Opens a session at each node. Those that do not answer now are used when they do, if `replicas` of them are there.
    ///
    /// # Errors
    /// Which node cannot be used, and why.
    pub(super) fn open(
        nodes: Vec<NodeAddress>,
        quota_bytes: u64,
        replicas: usize,
        timing: Timing,
    ) -> Result<Opened, (String, NodeError)> {
        let name: Arc<str> = std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().into();
        let (mut links, mut slab, mut away) = (Vec::new(), None, None);
        for (index, address) in nodes.into_iter().enumerate() {
            let node = Arc::new(Node::new(index, address, quota_bytes, replicas > 1, timing));
            let refused = |error| Err((node.url.clone(), error));
            links.push(match Link::open(&node, &name, node.limit()) {
                Ok((_, is)) if slab.is_some_and(|others| others != is) => {
                    return refused(NodeError::SlabSize { is, others: slab.unwrap_or(0) });
                }
                Ok((link, is)) => {
                    slab = Some(is);
                    link
                }
                Err(error) if error.may_pass() => {
                    let link = Link::never(&node, &name, error.clone());
                    away = away.or(Some((node.url.clone(), error)));
                    link
                }
                Err(error) => return refused(error),
            });
        }
        let there = links.iter().filter(|link| link.lost().is_none()).count();
        match (slab, away) {
            (None, Some(away)) => Err(away),
            (_, Some(away)) if there < replicas => Err(away),
            (slab, away) => {
                let places = links.into_iter().map(|link| Mutex::new(Arc::new(link))).collect();
                let slab_bytes = slab.expect("a node that is there");
                Ok(Opened { links: Links { name, places }, slab_bytes, is_whole: away.is_none() })
            }
        }
    }

    /// Adds vacant places until there are `places`.
    pub(super) fn add_vacant(&mut self, places: usize) {
        let vacant = |index| Mutex::new(Arc::new(Link::vacant(index, &self.name)));
        let more: Vec<_> = (self.places.len()..places).map(vacant).collect();
        self.places.extend(more);
    }

    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The link at a place.
    pub(super) fn at(&self, index: usize) -> Arc<Link> {
        lock(&self.places[index]).clone()
    }

    /// The links at all places, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Arc<Link>> {
        self.places.iter().map(|link| lock(link).clone())
    }

    /// The links that can be used now.
    pub(super) fn healthy(&self) -> Vec<Arc<Link>> {
        self.iter().filter(|link| link.lost().is_none()).collect()
    }

    /// Gives a node a place, from which it will be tried like one that was lost.
    pub(super) fn expect(&self, index: usize, is: NodeAddress) {
        let node = Arc::new(self.at(0).node.beside(index, is));
        *lock(&self.places[index]) = Arc::new(Link::expected(&node, &self.name));
    }

    /// Opens a new link to the node at a place, if it answers within `limit` and still has slabs of `slab_bytes`; whether it is in
    /// use now.
    pub(super) fn open_again(&self, index: usize, slab_bytes: u64, limit: Duration) -> bool {
        let opened = Link::open(&self.at(index).node, &self.name, limit);
        let Ok((link, is)) = opened else { return false };
        if is == slab_bytes {
            *lock(&self.places[index]) = Arc::new(link);
        }
        is == slab_bytes
    }
}

#[cfg(test)]
impl Links {
    /// Places without a node.
    pub(super) fn vacant(places: usize) -> Links {
        let mut links = Links { name: Arc::from("test"), places: Vec::new() };
        links.add_vacant(places);
        links
    }

    /// Locks a place, as who changes its link does.
    pub(super) fn hold(&self, index: usize) -> std::sync::MutexGuard<'_, Arc<Link>> {
        lock(&self.places[index])
    }
}
