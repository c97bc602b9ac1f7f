//! S3-FIFO: a small queue that filters, a main queue, and a ghost queue that remembers; and a queue for prefetched pages.
//!
//! ```text
//! read-ahead → prefetched ─┐
//! arrivals   → small ──────┴→ swap cache → far memory, remembered in ghost
//!                ↓ hit there                    │ arrives again
//!              main ←───────────────────────────┘
//!                └────────→ swap cache → far memory, forgotten; a hit there → main, with rounds free of probing
//!                           (before its turn, beside a victim: remembered in ghost)
//! ```
//!
//! Source: Yang, Zhang, Qiu, Yue & Vinayak, "FIFO queues are all you need for cache eviction" (SOSP'23), §4. The
//! paper's access count is not to be had without an accessed bit. Here the swap cache asks the question instead: a
//! victim touched there has an access count of at least one. So where the paper looks at a count in the small queue's
//! tail, the page goes to the swap cache, and a hit moves it to main; where the paper reinserts a page at main's tail,
//! the hit does, and earns `HIT_ROUNDS` rounds, so that hot pages are not probed (a minor fault each) every time
//! round. For the prefetched queue see `probation.rs`.
//!
//! The small queue's share follows what becomes of its pages: a scan's do not come back, and leave soon; those of a program that sorts or
//! walks tables come back after a while, and would make the way twice (decision 0044).
//!
//! While the program nearly fits, victims of small and main queue are chosen at random instead of the oldest (`near_fit.rs`), and their
//! neighbours stay.
//!
//! Invariant: victims come from the prefetched queue, then the small queue, while they hold more than their shares, so pages that came
//! once never push out referenced ones; ghosts ≤ their share of the capacity.

use crate::near_fit::NearFit;
use crate::page_lists::{ListState, PageLists, Passes, Queue};
use crate::probation::Probation;
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;

/// The small queue's share of the capacity, in percent, while what leaves it does not come back (the paper, §4.2), and while half of it
/// does.
const SMALL_SHARE_MIN: usize = 10;
const SMALL_SHARE_MAX: usize = 50;
/// Ghosts beside the capacity, in percent: as many as main has pages beside the least small queue (the paper, §4.2).
const GHOST_SHARE: usize = 100 - SMALL_SHARE_MIN;
/// The share is fitted when so large a part of the capacity has left the small queue.
const FITTED_PART: usize = 8;
/// Rounds through main without a probe that a hit from main earns (`examples/faults`: 2 to 4 are alike, 0 and 1 cost
/// more minor faults).
const HIT_ROUNDS: u8 = 2;

/// Small, prefetched, main and ghost queue.
pub struct S3Fifo {
    lists: PageLists,
    probation: Probation,
    near_fit: NearFit,
    ghost_pages_max: usize,
    capacity_pages: usize,
    /// Pages that left the small queue, or the prefetched queue, since its share was fitted; and ghosts of those that came back.
    left: usize,
    came_back: usize,
}

impl S3Fifo {
    /// Empty queues for a budget of `capacity_pages`.
    pub fn new(capacity_pages: usize) -> S3Fifo {
        let (lists, probation) = (PageLists::new(), Probation::new(SMALL_SHARE_MIN));
        let (near_fit, ghost_pages_max) = (NearFit::new(), 0);
        let mut policy =
            S3Fifo { lists, probation, near_fit, ghost_pages_max, capacity_pages: 0, left: 0, came_back: 0 };
        policy.resize(capacity_pages);
        policy
    }

    /// Gives the small queue the share that fits what became of the pages that left it last.
    fn fit_small(&mut self) {
        let more = (SMALL_SHARE_MAX - SMALL_SHARE_MIN) * (2 * self.came_back).min(self.left) / self.left;
        self.probation.set_young_share(SMALL_SHARE_MIN + more, self.capacity_pages);
        (self.left, self.came_back) = (0, 0);
    }

    /// Remembers a page that left the small queue as a ghost.
    fn push_ghost(&mut self, page: PageNo) {
        self.lists.push_ghost(page);
        while self.lists.len(Queue::Ghost) > self.ghost_pages_max
            && let Some(oldest) = self.lists.pop(Queue::Ghost, ListState::Unknown)
        {
            self.near_fit.put_far(oldest, &mut self.lists);
        }
    }

    fn push(&mut self, page: PageNo, queue: Queue, rounds: u8) {
        self.lists.push(page, queue, rounds);
        if queue != Queue::Prefetched {
            self.near_fit.arrived(page);
        }
    }

    fn next_victim(&mut self, passes: &mut Passes) -> Option<PageNo> {
        if self.near_fit.applies(&self.lists) && !self.probation.has_prefetched_surplus(&self.lists) {
            let (queue, taken) = if self.probation.has_young_surplus(&self.lists) {
                (Queue::Young, ListState::TakenYoung)
            } else {
                (Queue::Main, ListState::TakenMain)
            };
            if let Some(page) = self.near_fit.pop(&mut self.lists, queue, taken) {
                return Some(page);
            }
        }
        self.probation
            .pop_surplus(&mut self.lists)
            .or_else(|| self.lists.pop_without_rounds(Queue::Main, ListState::TakenMain, passes))
            .or_else(|| Probation::pop_any(&mut self.lists))
    }
}

impl EvictionPolicy for S3Fifo {
    fn arrived(&mut self, page: PageNo, how: Arrival) {
        let state = self.lists.state(page);
        if matches!(how, Arrival::Demand | Arrival::Prefetched | Arrival::Hinted) {
            self.near_fit.fetched(state);
        }
        self.came_back += usize::from(state == ListState::Ghost && self.lists.was_young(page));
        let (queue, rounds) = match (how, state) {
            (Arrival::SwapCacheHit, ListState::TakenMain) => (Queue::Main, HIT_ROUNDS),
            (Arrival::SwapCacheHit, _) => (Queue::Main, 0),
            (Arrival::Demand | Arrival::Prefetched | Arrival::Hinted, ListState::Ghost) => (Queue::Main, 0),
            (Arrival::FirstTouch | Arrival::Demand | Arrival::Hinted, _) => (Queue::Young, 0),
            (Arrival::Prefetched, _) => (Queue::Prefetched, 0),
        };
        self.push(page, queue, rounds);
    }

    fn forgotten(&mut self, page: PageNo) {
        self.lists.put(page, ListState::Unknown);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        let mut passes = Passes::for_victims(count);
        out.extend((0..count).map_while(|_| self.next_victim(&mut passes)));
    }

    fn evicted_out_of_turn(&mut self, page: PageNo) {
        self.lists.take_early(page);
    }

    fn putback(&mut self, page: PageNo) {
        self.push(page, Queue::Main, HIT_ROUNDS);
    }

    fn putback_unjudged(&mut self, page: PageNo) {
        self.push(page, Queue::Main, 0);
    }

    fn written_back(&mut self, page: PageNo) {
        match self.lists.state(page) {
            ListState::TakenYoung => {
                self.left += usize::from(self.lists.was_young(page));
                self.push_ghost(page);
                if self.left > self.capacity_pages / FITTED_PART {
                    self.fit_small();
                }
            }
            ListState::TakenMain | ListState::Unknown => self.near_fit.put_far(page, &mut self.lists),
            ListState::Young | ListState::Prefetched | ListState::Main | ListState::Ghost | ListState::Far => {}
        }
        self.near_fit.evicted();
    }

    fn keeps_neighbours(&self) -> bool {
        self.near_fit.applies(&self.lists)
    }

    fn take_random_victims(&mut self) -> u64 {
        self.near_fit.take_victims()
    }

    fn resize(&mut self, capacity_pages: usize) {
        self.probation.resize(capacity_pages);
        self.near_fit.resize(capacity_pages);
        self.capacity_pages = capacity_pages;
        self.ghost_pages_max = capacity_pages * GHOST_SHARE / 100;
    }

    fn resident(&self) -> usize {
        self.lists.resident()
    }

    fn metadata_bytes(&self) -> usize {
        self.lists.bytes() + self.near_fit.metadata_bytes()
    }
}
