//! 2Q, the full version: A1in for what came once, A1out to remember it, Am for what came again.
//!
//! ```text
//! read-ahead → prefetched ─┐
//! arrivals   → A1in ───────┴→ swap cache → far memory, remembered in A1out
//!                ↓ hit there                    │ arrives again
//!               Am ←────────────────────────────┘
//!                └────────→ swap cache → far memory, forgotten; a hit there → Am
//!                           (before its turn, beside a victim: remembered in A1out)
//! ```
//!
//! Source: Johnson & Shasha, "2Q: a low overhead high performance buffer management replacement algorithm" (VLDB'94),
//! §3. The swap cache is the first part of A1out, the part whose contents are still here: a hit there is a second
//! reference outside the period of correlated references, and goes to Am. Am is an LRU queue in the paper; without an
//! accessed bit it is a FIFO queue whose pages are asked by the swap cache whether they are still in use. For the
//! prefetched queue see `probation.rs`.
//!
//! Invariant: victims come from the prefetched queue while it holds more than its share, then from A1in while it holds more
//! than `Kin`; A1out holds at most `Kout`.

use crate::page_lists::{ListState, PageLists, Queue};
use crate::probation::Probation;
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;

/// A1in's share of the capacity, in percent (`Kin`, the paper, §3.3).
const A1IN_SHARE: usize = 25;
/// A1out's size as a share of the capacity, in percent (`Kout`). The paper, §3.3, has 50; but then a loop over 80 to
/// 100 % of the budget slips through A1in and A1out for ever while dead pages hold Am (`dead_pages_make_room…` in the
/// tests).
const A1OUT_SHARE: usize = 75;

/// A1in (the young queue), the prefetched queue, A1out (the ghosts) and Am (the main queue).
pub struct TwoQ {
    lists: PageLists,
    probation: Probation,
    a1out_pages_max: usize,
}

impl TwoQ {
    /// Empty queues for a budget of `capacity_pages`.
    pub fn new(capacity_pages: usize) -> TwoQ {
        let mut policy = TwoQ { lists: PageLists::new(), probation: Probation::new(A1IN_SHARE), a1out_pages_max: 0 };
        policy.resize(capacity_pages);
        policy
    }

    fn next_victim(&mut self) -> Option<PageNo> {
        self.probation
            .pop_surplus(&mut self.lists)
            .or_else(|| self.lists.pop(Queue::Main, ListState::TakenMain))
            .or_else(|| Probation::pop_any(&mut self.lists))
    }
}

impl EvictionPolicy for TwoQ {
    fn arrived(&mut self, page: PageNo, how: Arrival) {
        let queue = match (how, self.lists.state(page)) {
            (Arrival::SwapCacheHit, _)
            | (Arrival::Demand | Arrival::Prefetched | Arrival::Hinted, ListState::Ghost) => Queue::Main,
            (Arrival::FirstTouch | Arrival::Demand | Arrival::Hinted, _) => Queue::Young,
            (Arrival::Prefetched, _) => Queue::Prefetched,
        };
        self.lists.push(page, queue, 0);
    }

    fn forgotten(&mut self, page: PageNo) {
        self.lists.put(page, ListState::Unknown);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        out.extend((0..count).map_while(|_| self.next_victim()));
    }

    fn evicted_out_of_turn(&mut self, page: PageNo) {
        self.lists.take_early(page);
    }

    fn putback(&mut self, page: PageNo) {
        self.lists.push(page, Queue::Main, 0);
    }

    fn written_back(&mut self, page: PageNo) {
        match self.lists.state(page) {
            ListState::TakenYoung => {
                self.lists.push(page, Queue::Ghost, 0);
                self.lists.trim(Queue::Ghost, self.a1out_pages_max);
            }
            ListState::TakenMain => self.lists.put(page, ListState::Unknown),
            ListState::Unknown
            | ListState::Young
            | ListState::Prefetched
            | ListState::Main
            | ListState::Ghost
            | ListState::Far => {}
        }
    }

    fn resize(&mut self, capacity_pages: usize) {
        self.probation.resize(capacity_pages);
        self.a1out_pages_max = capacity_pages * A1OUT_SHARE / 100;
    }

    fn resident(&self) -> usize {
        self.lists.resident()
    }

    fn metadata_bytes(&self) -> usize {
        self.lists.bytes()
    }
}
