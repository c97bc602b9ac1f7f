//! Slabs that nodes want back, because they are drained or lend less than before: moved to other nodes of the pool.
//!
//! ```text
//! asked now and then: what does the node want back? ──► a slab there is closed, and copied to another node like a lost replica
//!     ──► the new replica takes the place of the old in the table ──► when nobody reads the old any more, it is returned
//! ```
//! Where no other node has room, the pages stay where they are.

use super::NodePool;
use super::link::Link;
use super::table::Replica;
use super::tend::{Rebuild, Tender};
use crate::sync::lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time between two questions, each to another node.
const ASK_PAUSE: Duration = Duration::from_millis(200);

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

    /// A slab has gone.
    fn less(&self) {
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
    /// Replicas that were replaced, and may still be read from.
    replaced: Vec<Replica>,
}

impl NodePool {
    /// Asks the next node what it wants back, if it is time; returns whether one began or ceased to want everything.
    pub(super) fn ask_recalls(&self, recalls: &mut Recalls) -> bool {
        if self.links.len() < 2 || recalls.asked.is_some_and(|asked| asked.elapsed() < ASK_PAUSE) {
            return false;
        }
        recalls.asked = Some(Instant::now());
        recalls.turn = (recalls.turn + 1) % self.links.len();
        let link = lock(&self.links[recalls.turn]).clone();
        if link.lost().is_some() || link.slabs.load(Relaxed) == 0 && !link.recall.is_some() {
            return false;
        }
        let before = link.recall.is_total();
        if let Err(trouble) = link.ask_recall() {
            self.judge(&link, &trouble);
        }
        // When all is wanted, empty slabs go too.
        link.recall.is_total() != before
    }

    /// Returns the slabs that nobody reads from any more.
    pub(super) fn return_replaced(&self, recalls: &mut Recalls) {
        let replaced = std::mem::take(&mut recalls.replaced);
        let (unused, read): (Vec<Replica>, Vec<Replica>) = replaced.into_iter().partition(Replica::is_unused);
        recalls.replaced = read;
        self.give_up(&unused);
    }

    /// Begins to move a slab that is wanted back, if there is one that can be moved.
    pub(super) fn begin_move(&self, tender: &mut Tender) -> Option<Rebuild> {
        let wanting: Vec<Arc<Link>> = self.healthy().into_iter().filter(|link| link.recall.is_some()).collect();
        let (number, from) = wanting.iter().find_map(|link| lock(&self.table).begin_move(link))?;
        let begun = self.place_rebuild(number);
        if begun.is_none() {
            lock(&self.table).end_rebuild(number, None, None);
            tender.no_room = Some(Instant::now());
        }
        let mut rebuild = begun?;
        rebuild.from = Some(from);
        Some(rebuild)
    }

    /// A replica was replaced.
    pub(super) fn replaced(&self, recalls: &mut Recalls, from: Replica) {
        from.link.recall.less();
        recalls.replaced.push(from);
    }
}
