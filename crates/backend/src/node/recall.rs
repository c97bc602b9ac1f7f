//! Slabs that nodes want back, because they are drained or lend less than before: moved to other nodes of the pool.
//!
//! ```text
//! asked now and then: what does the node want back? ──► a slab there is closed, and copied to another node like a lost replica
//!     ──► the new replica takes the place of the old in the table ──► when nobody reads the old any more, it is returned
//! ```
//! Slabs without a page go back at once. Where no other node has room, the pages stay where they are: a node that refused a slab is
//! not asked again for a while, and slabs for which no other is left wait, while others move.

use super::NodePool;
use super::limits::ASKED;
use super::link::Link;
use super::maintenance::{Rebuild, has_place};
use crate::sync::lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

/// What a node wants back of a session: a number of slabs, or all.
#[derive(Default)]
pub(super) struct Recall(AtomicU32);

impl Recall {
    pub(super) fn set(&self, slabs: u32) {
        self.0.store(slabs, Relaxed);
    }

    /// Whether something is wanted.
    pub(super) fn is_some(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    /// Whether everything is, also what would be stored from now on.
    pub(super) fn is_total(&self) -> bool {
        self.0.load(Relaxed) == u32::MAX
    }

    /// A slab goes.
    pub(super) fn less(&self) {
        let less = |slabs: u32| (slabs > 0 && slabs < u32::MAX).then(|| slabs - 1);
        let _ = self.0.fetch_update(Relaxed, Relaxed, less);
    }
}

/// What is under way.
#[derive(Default)]
pub(super) struct Recalls {
    asked: Option<Instant>,
    /// Which node was asked last.
    turn: usize,
}

impl NodePool {
    /// Tells the next nodes what would be lost with them, and asks what they want back, if it is time; returns whether one began or ceased
    /// to want everything.
    pub(super) fn ask_recalls(&self, recalls: &mut Recalls) -> bool {
        if self.links.len() < 2 || recalls.asked.is_some_and(|asked| asked.elapsed() < self.timing.recall) {
            return false;
        }
        recalls.asked = Some(Instant::now());
        let mut changed = false;
        let mut asked = 0;
        // Vacant and lost ones take no turn.
        for _ in 0..self.links.len() {
            recalls.turn = (recalls.turn + 1) % self.links.len();
            let link = lock(&self.links[recalls.turn]).clone();
            if link.lost().is_some() || !link.has_session() {
                continue;
            }
            let before = link.recall.is_total();
            match self.report(&link).and_then(|()| link.has_room_again(self.slab_bytes)) {
                Ok(has_room_again) => {
                    // What can go without a copy goes first.
                    lock(&self.table).close_empty(&link);
                    changed |= has_room_again;
                }
                Err(error) => {
                    self.judge(&link, &error);
                    // One wait at most: a fork waits for this step.
                    return true;
                }
            }
            changed |= link.recall.is_total() != before;
            asked += 1;
            if asked == ASKED {
                break;
            }
        }
        changed
    }

    /// Returns the slabs that have been replaced or given up, and that nobody reads from any more.
    pub(super) fn return_unread(&self) {
        let unread = lock(&self.table).take_unread();
        self.give_up(&unread);
    }

    /// Begins to move a slab that is wanted back, if there is one that may find another place.
    pub(super) fn begin_move(&self) -> Option<Rebuild> {
        let (wanting, others): (Vec<Arc<Link>>, _) = self.healthy().into_iter().partition(|link| link.recall.is_some());
        if wanting.is_empty() {
            return None;
        }
        let roomy: Vec<Arc<Link>> = others.into_iter().filter(|link| link.may_have_room()).collect();
        let (number, from) = lock(&self.table).begin_move(|replicas| has_place(&roomy, replicas))?;
        let to = self.place_replica(number);
        // Nothing was stored there since it was closed.
        let slots = lock(&self.table).used_in(number);
        if let (Some(to), Some(slots)) = (to.clone(), slots) {
            return Some(Rebuild::new(number, to, Some(from), slots));
        }
        lock(&self.table).end_rebuild(number, None, Some(&from));
        self.give_up(to.as_slice());
        // It gets pages again.
        self.refresh();
        None
    }
}
