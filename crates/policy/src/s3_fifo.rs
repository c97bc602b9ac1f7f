//! S3-FIFO: a small queue that filters, a main queue, and a ghost queue that remembers.
//!
//! ```text
//! arrivals → small ──→ swap cache → far memory, remembered in ghost
//!              ↓ hit there                 │ demanded again
//!            main ←────────────────────────┘
//!              └─────→ swap cache → far memory; a hit there → main, with a round free of probing
//! ```
//!
//! Source: Yang, Zhang, Qiu, Yue & Vinayak, "FIFO queues are all you need for cache eviction" (SOSP'23), §4. The paper's access
//! count is not to be had without an accessed bit. Here the swap cache asks the question instead: a victim touched there
//! has an access count of at least one. So where the paper looks at a count in the small queue's tail, the page goes to the
//! swap cache, and a hit moves it to main; where the paper reinserts a page at main's tail, the hit does, and earns
//! `HIT_ROUNDS` rounds, so that hot pages are not probed (a minor fault each) every time round.
//!
//! Invariant: victims come from the small queue while it holds more than its share, so pages that came once never push
//! out proven ones; ghosts ≤ main's share of the capacity.

use crate::page_lists::{PageLists, Place, Queue};
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;

/// The small queue's share of the capacity, in percent (the paper, §4.2).
const SMALL_SHARE: usize = 10;
/// Rounds through main without a probe that a hit from main earns.
const HIT_ROUNDS: u8 = 1;
/// At most so many pages are sent round again for each victim: bounds the work of one call.
const PASSES_PER_VICTIM: usize = 8;

/// Small, main and ghost queue.
pub struct S3Fifo {
    lists: PageLists,
    small_pages: usize,
    ghost_pages_max: usize,
}

impl S3Fifo {
    /// Empty queues for a budget of `capacity_pages`.
    pub fn new(capacity_pages: usize) -> S3Fifo {
        let mut policy = S3Fifo { lists: PageLists::new(), small_pages: 0, ghost_pages_max: 0 };
        policy.resize(capacity_pages);
        policy
    }

    fn pop_main(&mut self, passes_left: &mut usize) -> Option<PageNo> {
        while let Some((page, rounds @ 1..)) = self.lists.oldest(Queue::Main) {
            if *passes_left == 0 {
                break;
            }
            *passes_left -= 1;
            self.lists.push(page, Queue::Main, rounds - 1);
        }
        self.lists.pop(Queue::Main, Place::TakenMain)
    }
}

impl EvictionPolicy for S3Fifo {
    fn arrived(&mut self, page: PageNo, how: Arrival) {
        let (queue, rounds) = match (how, self.lists.place(page)) {
            (Arrival::SwapCacheHit, Place::TakenMain) => (Queue::Main, HIT_ROUNDS),
            (Arrival::SwapCacheHit, _) => (Queue::Main, 0),
            (Arrival::Demand | Arrival::Ahead, Place::Ghost) => (Queue::Main, 0),
            (Arrival::FirstTouch | Arrival::Demand | Arrival::Ahead, _) => (Queue::Young, 0),
        };
        self.lists.push(page, queue, rounds);
    }

    fn forgotten(&mut self, page: PageNo) {
        self.lists.put(page, Place::Unknown);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        let mut passes_left = count.saturating_mul(PASSES_PER_VICTIM);
        out.extend((0..count).map_while(|_| {
            if self.lists.len(Queue::Young) > self.small_pages || self.lists.len(Queue::Main) == 0 {
                self.lists.pop(Queue::Young, Place::TakenYoung)
            } else {
                self.pop_main(&mut passes_left)
            }
        }));
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
            Place::Unknown | Place::Young | Place::Main | Place::Ghost => {}
        }
    }

    fn resize(&mut self, capacity_pages: usize) {
        self.small_pages = capacity_pages * SMALL_SHARE / 100;
        self.ghost_pages_max = capacity_pages - self.small_pages;
    }

    fn resident(&self) -> usize {
        self.lists.resident()
    }

    fn metadata_bytes(&self) -> usize {
        self.lists.bytes()
    }
}
