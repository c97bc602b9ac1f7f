//! Probation: which of the pages that came only once leave first. S3-FIFO and 2Q share this rule.
//!
//! The prefetched queue is ours, not the papers'. The program did not wait for a page that read-ahead mapped, its first use was
//! not seen, and read-ahead will fetch it again at a fraction of a fault's price; so it leaves before pages that the program
//! waited for. That protects a hot set from a scan even while it rests, when no probe can tell that it is hot (`promises` in
//! the crate's tests).
//!
//! Invariant: a queue that is over its share gives the victim, the prefetched queue first.

use crate::page_lists::{ListState, PageLists, Queue};
use hinterland_units::PageNo;

/// The share of the capacity, in percent, that prefetched pages may fill before they are the first to leave. Inherited
/// from S3-FIFO's small queue; `examples/faults` measured 5 to 20 % as alike.
const PREFETCHED_SHARE: usize = 10;

/// While the prefetched queue gives the victims, nothing pushes dead pages out of a young queue that is under its share:
/// one victim in so many comes from there.
const AGEING_VICTIMS: usize = 4;

/// How many pages of each kind stay before they give victims.
pub(crate) struct Probation {
    young_share: usize,
    young_pages: usize,
    prefetched_pages_max: usize,
    /// Victims since the young queue aged.
    victims: usize,
}

impl Probation {
    /// Shares of nothing yet; the young queue's is `young_share` percent of the capacity.
    pub(crate) fn new(young_share: usize) -> Probation {
        Probation { young_share, young_pages: 0, prefetched_pages_max: 0, victims: 0 }
    }

    /// The young queue may fill so many percent from now on.
    pub(crate) fn set_young_share(&mut self, percent: usize, capacity_pages: usize) {
        self.young_share = percent;
        self.resize(capacity_pages);
    }

    pub(crate) fn resize(&mut self, capacity_pages: usize) {
        self.young_pages = capacity_pages * self.young_share / 100;
        self.prefetched_pages_max = capacity_pages * PREFETCHED_SHARE / 100;
    }

    /// Whether the prefetched queue is over its share.
    pub(crate) fn has_prefetched_surplus(&self, lists: &PageLists) -> bool {
        lists.len(Queue::Prefetched) > self.prefetched_pages_max
    }

    /// Whether the young queue is over its share.
    pub(crate) fn has_young_surplus(&self, lists: &PageLists) -> bool {
        lists.len(Queue::Young) > self.young_pages
    }

    /// A victim from a queue that is over its share.
    pub(crate) fn pop_surplus(&mut self, lists: &mut PageLists) -> Option<PageNo> {
        if self.has_prefetched_surplus(lists) {
            return self.pop_young_in_turn(lists).or_else(|| lists.pop(Queue::Prefetched, ListState::TakenYoung));
        }
        if self.has_young_surplus(lists) { lists.pop(Queue::Young, ListState::TakenYoung) } else { None }
    }

    /// A victim, whatever the shares: nothing else is left.
    pub(crate) fn pop_any(lists: &mut PageLists) -> Option<PageNo> {
        lists.pop(Queue::Young, ListState::TakenYoung).or_else(|| lists.pop(Queue::Prefetched, ListState::TakenYoung))
    }

    fn pop_young_in_turn(&mut self, lists: &mut PageLists) -> Option<PageNo> {
        if self.has_young_surplus(lists) {
            return None;
        }
        self.victims += 1;
        if self.victims < AGEING_VICTIMS {
            return None;
        }
        self.victims = 0;
        lists.pop(Queue::Young, ListState::TakenYoung)
    }
}
