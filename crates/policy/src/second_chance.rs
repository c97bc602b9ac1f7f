//! Second chance: a FIFO in which a victim that was touched in the swap cache gets rounds free of probing.
//!
//! ```text
//! arrivals → queue ──────────→ swap cache → far memory
//!              ↑ ↓ rounds left     │ hit: rounds earned
//!              └─┴─────────────────┘
//! ```
//!
//! Source: the clock of Corbató, "A paging experiment with the Multics system" (1968), whose reference bit counts up
//! to a few (Smith, "Sequentiality and prefetching in database systems", ACM TODS 1978). The swap cache stands in for
//! the reference bit.
//!
//! A protected queue with a share of its own was tried and lost: pages that are referenced once and then die hold it
//! forever, and ageing them by victims taken made it a FIFO.

use crate::page_lists::{ListState, PageLists, Passes, Queue};
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;

/// Rounds without a probe that a hit earns.
const HIT_ROUNDS: u8 = 2;

/// One queue in order of arrival, its pages with rounds left.
pub struct SecondChance {
    lists: PageLists,
}

impl SecondChance {
    /// An empty queue.
    pub fn new() -> SecondChance {
        SecondChance { lists: PageLists::new() }
    }
}

impl Default for SecondChance {
    fn default() -> SecondChance {
        SecondChance::new()
    }
}

impl EvictionPolicy for SecondChance {
    fn arrived(&mut self, page: PageNo, how: Arrival) {
        let rounds = if how == Arrival::SwapCacheHit { HIT_ROUNDS } else { 0 };
        self.lists.push(page, Queue::Main, rounds);
    }

    fn forgotten(&mut self, page: PageNo) {
        self.lists.put(page, ListState::Unknown);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        let mut passes = Passes::for_victims(count);
        out.extend(
            (0..count).map_while(|_| self.lists.pop_without_rounds(Queue::Main, ListState::Unknown, &mut passes)),
        );
    }

    fn putback(&mut self, page: PageNo) {
        self.lists.push(page, Queue::Main, HIT_ROUNDS);
    }

    fn putback_unjudged(&mut self, page: PageNo) {
        self.lists.push(page, Queue::Main, 0);
    }

    fn written_back(&mut self, _page: PageNo) {}

    fn resize(&mut self, _capacity_pages: usize) {}

    fn resident(&self) -> usize {
        self.lists.resident()
    }

    fn metadata_bytes(&self) -> usize {
        self.lists.bytes()
    }
}
