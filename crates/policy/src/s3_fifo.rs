//! S3-FIFO: a small queue that filters, a main queue, and a ghost queue that remembers; and a queue for what was
//! mapped ahead.
//!
//! ```text
//! mapped ahead → ahead ─┐
//! arrivals     → small ─┴→ swap cache → far memory, remembered in ghost
//!                  ↓ hit there                 │ comes again
//!                main ←────────────────────────┘
//!                  └─────→ swap cache → far memory, forgotten; a hit there → main, with rounds free of probing
//!                          (before its turn, beside a victim: remembered in ghost)
//! ```
//!
//! Source: Yang, Zhang, Qiu, Yue & Vinayak, "FIFO queues are all you need for cache eviction" (SOSP'23), §4. The
//! paper's access count is not to be had without an accessed bit. Here the swap cache asks the question instead: a
//! victim touched there has an access count of at least one. So where the paper looks at a count in the small queue's
//! tail, the page goes to the swap cache, and a hit moves it to main; where the paper reinserts a page at main's tail,
//! the hit does, and earns `HIT_ROUNDS` rounds, so that hot pages are not probed (a minor fault each) every time
//! round. For the ahead queue see `unproven.rs`.
//!
//! Invariant: victims come from the ahead queue, then the small queue, while they hold more than their shares, so
//! pages that came once never push out proven ones; ghosts ≤ main's share of the capacity.

use crate::page_lists::{PageLists, Passes, Place, Queue};
use crate::unproven::Unproven;
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;

/// The small queue's share of the capacity, in percent (the paper, §4.2).
const SMALL_SHARE: usize = 10;
/// Rounds through main without a probe that a hit from main earns (`examples/faults`: 2 to 4 are alike, 0 and 1 cost
/// more minor faults).
const HIT_ROUNDS: u8 = 2;

/// Small, ahead, main and ghost queue.
pub struct S3Fifo {
    lists: PageLists,
    unproven: Unproven,
    ghost_pages_max: usize,
}

impl S3Fifo {
    /// Empty queues for a budget of `capacity_pages`.
    pub fn new(capacity_pages: usize) -> S3Fifo {
        let mut policy = S3Fifo { lists: PageLists::new(), unproven: Unproven::new(SMALL_SHARE), ghost_pages_max: 0 };
        policy.resize(capacity_pages);
        policy
    }

    fn next_victim(&mut self, passes: &mut Passes) -> Option<PageNo> {
        self.unproven
            .pop_surplus(&mut self.lists)
            .or_else(|| self.lists.pop_without_rounds(Queue::Main, Place::TakenMain, passes))
            .or_else(|| Unproven::pop_any(&mut self.lists))
    }
}

impl EvictionPolicy for S3Fifo {
    fn arrived(&mut self, page: PageNo, how: Arrival) {
        let (queue, rounds) = match (how, self.lists.place(page)) {
            (Arrival::SwapCacheHit, Place::TakenMain) => (Queue::Main, HIT_ROUNDS),
            (Arrival::SwapCacheHit, _) => (Queue::Main, 0),
            (Arrival::Demand | Arrival::Ahead, Place::Ghost) => (Queue::Main, 0),
            (Arrival::FirstTouch | Arrival::Demand, _) => (Queue::Young, 0),
            (Arrival::Ahead, _) => (Queue::Ahead, 0),
        };
        self.lists.push(page, queue, rounds);
    }

    fn forgotten(&mut self, page: PageNo) {
        self.lists.put(page, Place::Unknown);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        let mut passes = Passes::for_victims(count);
        out.extend((0..count).map_while(|_| self.next_victim(&mut passes)));
    }

    fn left_early(&mut self, page: PageNo) {
        self.lists.take_early(page);
    }

    fn kept(&mut self, page: PageNo) {
        self.lists.push(page, Queue::Main, HIT_ROUNDS);
    }

    fn written_back(&mut self, page: PageNo) {
        match self.lists.place(page) {
            Place::TakenYoung => {
                self.lists.push(page, Queue::Ghost, 0);
                self.lists.trim(Queue::Ghost, self.ghost_pages_max);
            }
            Place::TakenMain => self.lists.put(page, Place::Unknown),
            Place::Unknown | Place::Young | Place::Ahead | Place::Main | Place::Ghost => {}
        }
    }

    fn resize(&mut self, capacity_pages: usize) {
        self.unproven.resize(capacity_pages);
        self.ghost_pages_max = capacity_pages * (100 - SMALL_SHARE) / 100;
    }

    fn resident(&self) -> usize {
        self.lists.resident()
    }

    fn metadata_bytes(&self) -> usize {
        self.lists.bytes()
    }
}
