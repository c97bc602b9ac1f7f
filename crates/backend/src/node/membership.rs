//! Pools whose nodes come and go: who belongs to one is known elsewhere, and asked for now and then.
//!
//! A node that joins is used as soon as it answers. A node that leaves is used for as long as it answers, because what it says is
//! worth more than what is said of it: who leaves in good order has asked for its slabs before. Only when it is lost, too, it is not
//! looked for any more, and another may take its place.

use super::link::Link;
use super::maintenance::{Maintenance, Return};
use super::{NODES_MAX, NodeAddress, NodeError, NodePool, Timing};
use crate::sync::lock;
use std::sync::{Arc, Mutex};

/// Who belongs to a pool.
pub trait Membership: Send + Sync {
    /// The nodes of now and the version of that list, unless it still is the version that was `seen`.
    fn changed_since(&self, seen: u64) -> Option<(u64, Vec<NodeAddress>)>;
}

/// What was last read of the membership.
#[derive(Default)]
pub(super) struct Heard {
    version: u64,
    /// Nodes that have found no place in the pool yet.
    waiting: Vec<NodeAddress>,
}

impl NodePool {
    /// As [`new`](NodePool::new), with nodes that come and go: `membership` tells what has changed since that `version` of them.
    ///
    /// # Errors
    /// As there.
    pub fn following(
        url: String,
        membership: Box<dyn Membership>,
        (version, mut nodes): (u64, Vec<NodeAddress>),
        quota_bytes: u64,
        replicas: usize,
        timing: Timing,
    ) -> Result<NodePool, (String, NodeError)> {
        let waiting = nodes.split_off(nodes.len().min(NODES_MAX));
        let mut pool = NodePool::new(url, nodes, quota_bytes, replicas, timing)?;
        let vacant = |index| Mutex::new(Arc::new(Link::vacant(index, &pool.name)));
        let places = (pool.links.len()..NODES_MAX).map(vacant).collect::<Vec<_>>();
        pool.links.extend(places);
        lock(&pool.maintenance).heard = Heard { version, waiting };
        pool.membership = Some(membership);
        Ok(pool)
    }

    /// Hears who belongs to the pool now, if that can change.
    pub(super) fn hear(&self, maintenance: &mut Maintenance) {
        let Some(membership) = &self.membership else { return };
        if let Some((version, nodes)) = membership.changed_since(maintenance.heard.version) {
            let urls: Vec<String> = self.links.iter().map(|link| lock(link).node.url.clone()).collect();
            for (again, url) in maintenance.returns.iter_mut().zip(&urls) {
                again.belongs = nodes.iter().any(|node| node.url == *url);
            }
            let waiting = nodes.into_iter().filter(|node| !urls.contains(&node.url)).collect();
            maintenance.heard = Heard { version, waiting };
        }
        let waiting = std::mem::take(&mut maintenance.heard.waiting);
        maintenance.heard.waiting =
            waiting.into_iter().filter_map(|node| self.take_in(node, &mut maintenance.returns)).collect();
    }

    /// Gives a node a place, from which it will be tried like one that was lost; hands it back when there is none.
    fn take_in(&self, node: NodeAddress, returns: &mut [Return]) -> Option<NodeAddress> {
        let is_free = |(index, belongs): &(usize, bool)| {
            let link = lock(&self.links[*index]);
            link.is_vacant() || !belongs && link.lost().is_some()
        };
        let places = returns.iter().map(|again| again.belongs).enumerate();
        let Some((index, _)) = places.filter(is_free).min_by_key(|(index, _)| !lock(&self.links[*index]).is_vacant())
        else {
            return Some(node);
        };
        let node = Arc::new(lock(&self.links[0]).node.beside(index, node));
        *lock(&self.links[index]) = Arc::new(Link::expected(&node, &self.name));
        returns[index] = Return::fresh(&self.timing);
        None
    }
}
