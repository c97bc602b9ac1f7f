//! Slabs that nodes want back, because they are drained or lend less than before: moved to other nodes of the pool.
//!
//! ```text
//! now and then: what does the node recall? ──► a slab there is closed, and copied to another node like a lost replica
//!     ──► the new replica takes the place of the old in the table ──► when no thread reads the old any more, it is returned
//! ```
//! Slabs without a page go back at once. Where no other node has room, the pages stay where they are: a node that refused a slab is
//! not asked again for a while, and slabs for which no other is left wait, while others move.

use super::limits::ASKED;
use super::report::report;
use super::slabs::Slabs;
use std::sync::Arc;
use std::time::Instant;

/// Asks nodes what they want back.
pub(super) struct Recalls {
    slabs: Arc<Slabs>,
    asked: Option<Instant>,
    /// Which node was asked last.
    turn: usize,
    /// Losses of which all nodes have been told.
    told: u64,
}

impl Recalls {
    pub(super) fn new(slabs: &Arc<Slabs>) -> Recalls {
        Recalls { slabs: slabs.clone(), asked: None, turn: 0, told: 0 }
    }

    /// Whether a node was lost of which the others have not been told: what they know of copies is wrong.
    pub(super) fn are_urgent(&self) -> bool {
        self.slabs.links.len() > 1 && self.slabs.losses() != self.told
    }

    /// Tells the next nodes what would be lost with them, and asks what they want back, if it is time, and all nodes after a loss; returns
    /// whether one began or ceased to want everything.
    pub(super) fn ask(&mut self) -> bool {
        let slabs = &*self.slabs;
        let losses = slabs.losses();
        let urgent = losses != self.told;
        let is_early = || self.asked.is_some_and(|asked| asked.elapsed() < slabs.timing.recall);
        if slabs.links.len() < 2 || !urgent && is_early() {
            return false;
        }
        // Also where it goes wrong: a further loss makes it urgent again.
        (self.asked, self.told) = (Some(Instant::now()), losses);
        let mut changed = false;
        let mut asked = 0;
        // Vacant and lost ones take no turn.
        for _ in 0..slabs.links.len() {
            self.turn = (self.turn + 1) % slabs.links.len();
            let link = slabs.links.at(self.turn);
            if link.lost().is_some() || !link.has_session() {
                continue;
            }
            let before = link.recall.is_total();
            match report(slabs, &link).and_then(|()| link.has_room_again(slabs.slab_bytes)) {
                Ok(has_room_again) => {
                    // What can go without a copy goes first.
                    slabs.table().close_empty(&link);
                    changed |= has_room_again;
                }
                // It was not asked, and nothing was waited for.
                Err(error) if error.is_local() => continue,
                Err(error) => {
                    slabs.handle_error(&link, &error);
                    // One wait at most: a fork waits for this step.
                    return true;
                }
            }
            changed |= link.recall.is_total() != before;
            asked += 1;
            if asked == ASKED && !urgent {
                break;
            }
        }
        changed
    }
}
