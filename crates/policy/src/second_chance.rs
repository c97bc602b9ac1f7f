//! Second chance: a FIFO whose victims, when touched in the swap cache, go to a protected queue.
//!
//! ```text
//! arrivals → probation ──────────────→ swap cache → far memory
//!                ↑ over its share        │ hit
//!            protected ←─────────────────┘
//! ```
//!
//! Source: the two lists of Babaoğlu & Joy, "Converting a swap-based system to do paging in an architecture lacking
//! page-referenced bits" (SOSP'81), and segmented LRU (Karedla, Love & Wherry, IEEE Computer 1994). A page that outlives its
//! protection passes through probation once more; it is not remembered after it is written back.
//!
//! Invariant: protected pages ≤ `PROTECTED_SHARE` of the capacity after each arrival.

use crate::page_lists::{PageLists, Place, Queue};
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;

/// The protected queue's largest share of the capacity, in percent: 80, as segmented LRU is usually run.
const PROTECTED_SHARE: usize = 80;

/// Probation and protected queue.
pub struct SecondChance {
    lists: PageLists,
    protected_pages_max: usize,
}

impl SecondChance {
    /// Empty queues for a budget of `capacity_pages`.
    pub fn new(capacity_pages: usize) -> SecondChance {
        let mut policy = SecondChance { lists: PageLists::new(), protected_pages_max: 0 };
        policy.resize(capacity_pages);
        policy
    }

    fn protect(&mut self, page: PageNo) {
        self.lists.push(page, Queue::Main, 0);
        // Two at a time suffice after a shrink, and bound the work of one fault.
        for _ in 0..2 {
            if self.lists.len(Queue::Main) > self.protected_pages_max
                && let Some((oldest, _)) = self.lists.oldest(Queue::Main)
            {
                self.lists.push(oldest, Queue::Young, 0);
            }
        }
    }
}

impl EvictionPolicy for SecondChance {
    fn arrived(&mut self, page: PageNo, how: Arrival) {
        match how {
            Arrival::SwapCacheHit => self.protect(page),
            Arrival::FirstTouch | Arrival::Demand | Arrival::Ahead => self.lists.push(page, Queue::Young, 0),
        }
    }

    fn forgotten(&mut self, page: PageNo) {
        self.lists.put(page, Place::Unknown);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        out.extend((0..count).map_while(|_| {
            self.lists.pop(Queue::Young, Place::Unknown).or_else(|| self.lists.pop(Queue::Main, Place::Unknown))
        }));
    }

    fn kept(&mut self, page: PageNo) {
        self.protect(page);
    }

    fn written_back(&mut self, _page: PageNo) {}

    fn resize(&mut self, capacity_pages: usize) {
        self.protected_pages_max =
            capacity_pages / 100 * PROTECTED_SHARE + capacity_pages % 100 * PROTECTED_SHARE / 100;
    }

    fn resident(&self) -> usize {
        self.lists.resident()
    }

    fn metadata_bytes(&self) -> usize {
        self.lists.bytes()
    }
}
