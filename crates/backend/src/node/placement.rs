//! On which nodes a new slab lies: of two that are chosen at random, the one with more room (power of two choices).
//!
//! Where several slabs are filled at a time, they are to lie on different nodes: one of the two is a node without such a slab, if there is
//! one, and the room of a node with one counts half.

use super::link::Link;
use super::shared_rng::SharedRng;
use super::slabs::Slabs;
use super::table::{Replica, is_held};
use crate::StoreError;
use crate::node_error::NodeError;

use hinterland_units::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Slabs that were leased for one of the pool's.
#[derive(Default)]
struct Attempt {
    replicas: Vec<Replica>,
    /// A node leased none: it is drained, or has no room.
    full: Option<StoreError>,
    /// A node was lost, or could not be reached.
    failed: bool,
}

/// Chooses nodes for slabs.
pub(super) struct Placement {
    slabs: Arc<Slabs>,
    rng: SharedRng,
}

impl Placement {
    pub(super) fn new(slabs: &Arc<Slabs>) -> Placement {
        Placement { slabs: slabs.clone(), rng: SharedRng::of_this_process() }
    }

    /// Leases a slab on as many nodes as there are to be replicas, or on those of them that stay and have room, if there is one.
    ///
    /// # Errors
    /// No node leases one.
    pub(super) fn place(&self) -> Result<Vec<Replica>, StoreError> {
        let mut refused = None;
        // Each round but the last ends with a loss.
        for _ in 0..=self.slabs.links.len() {
            let may_lease = |link: &Arc<Link>| !link.recall.is_total() && link.may_have_room();
            let (likely, others): (Vec<Arc<Link>>, _) = self.slabs.links.healthy().into_iter().partition(may_lease);
            let mut attempt = self.place_on(likely);
            if attempt.replicas.is_empty() && !attempt.failed {
                // What they said last may be out of date.
                attempt = self.place_on(others);
            }
            let Attempt { replicas, full, failed } = attempt;
            if full.is_some() {
                // Slabs that have replicas on the other nodes may get pages now.
                self.slabs.fit_table_to_links();
            }
            match full {
                _ if !failed && !replicas.is_empty() => return Ok(replicas),
                Some(full) if !failed => return Err(full),
                // Who has not been asked, because another one was lost first, may have room.
                full => refused = full.or(refused),
            }
            self.slabs.give_up(&replicas);
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        // Whose loss was the first is no longer known; any of them is a reason.
        let link = self.slabs.links.at(0);
        let error = link.lost().cloned().unwrap_or(NodeError::Closed);
        Err(self.slabs.store_error(&link, &error))
    }

    /// Leases a slab on as many of `candidates` as there are to be replicas.
    fn place_on(&self, mut candidates: Vec<Arc<Link>>) -> Attempt {
        let wanted = self.slabs.replicas.min(candidates.len());
        let mut attempt = Attempt::default();
        while attempt.replicas.len() < wanted && !candidates.is_empty() {
            match self.place_one(&mut candidates, wanted - attempt.replicas.len()) {
                Ok(replica) => attempt.replicas.extend(replica),
                Err(error @ StoreError::Full { .. }) => attempt.full = Some(error),
                Err(error) => {
                    attempt.failed = true;
                    // It is there, but not to be reached from here: the others are asked all the same.
                    if !matches!(&error, StoreError::Lost { error, .. } if error.is_local()) {
                        break;
                    }
                }
            }
        }
        attempt
    }

    /// Leases a slab on one of `candidates`, which is taken out of them. `None`: there are none.
    ///
    /// # Errors
    /// The one that was asked is full, or lost.
    pub(super) fn place_one(
        &self,
        candidates: &mut Vec<Arc<Link>>,
        wanted: usize,
    ) -> Result<Option<Replica>, StoreError> {
        if candidates.is_empty() {
            return Ok(None);
        }
        let link = candidates.swap_remove(self.choose(candidates, wanted));
        match link.lease() {
            Ok(slab) => {
                let slab_pages = self.slabs.slab_bytes / PAGE_BYTES as u64;
                Ok(Some(Replica { link, slab, slab_pages, users: Arc::new(()) }))
            }
            Err(error) => {
                self.slabs.handle_error(&link, &error);
                Err(self.slabs.store_error(&link, &error))
            }
        }
    }

    fn choose(&self, candidates: &[Arc<Link>], wanted: usize) -> usize {
        let fast: Vec<usize> = (0..candidates.len()).filter(|index| !candidates[*index].slow.load(Relaxed)).collect();
        let among = if fast.is_empty() { (0..candidates.len()).collect() } else { fast };
        let draw = usize::try_from(self.rng.draw() >> 33).unwrap_or(0);
        let filled = self.slabs.table().nodes_filled();
        let is_filled = |index: usize| filled >> candidates[index].node.index & 1 != 0;
        let fresh: Vec<usize> = among.iter().copied().filter(|index| !is_filled(*index)).collect();
        let first = if fresh.is_empty() { among[draw % among.len()] } else { fresh[draw % fresh.len()] };
        if among.len() <= wanted.min(candidates.len()) || among.len() == 1 {
            // All of them are needed: nothing is to be chosen.
            return first;
        }
        let others: Vec<usize> = among.into_iter().filter(|index| *index != first).collect();
        let second = others[(draw >> 8) % others.len()];
        let room = |index: usize| {
            let link: &Link = &candidates[index];
            let free_bytes = link
                .free_bytes(self.slabs.slab_bytes)
                .inspect_err(|error| self.slabs.handle_error(link, error))
                .unwrap_or(0);
            if is_filled(index) { free_bytes / 2 } else { free_bytes }
        };
        if room(second) > room(first) { second } else { first }
    }

    /// Leases a slab for one more replica of another slab, on a node that stays.
    pub(super) fn place_replica(&self, number: u32) -> Option<Replica> {
        let replicas = self.slabs.table().replicas_of(number)?;
        let mut candidates = self.slabs.staying();
        candidates.retain(|link| !is_held(&replicas, link));
        loop {
            // Who is full or lost is no candidate any more.
            if let Ok(to) = self.place_one(&mut candidates, 1) {
                return to;
            }
        }
    }
}
