//! First in, first out: the measure for the others.
//!
//! A victim that is touched in the swap cache goes to the young end again, so with a swap cache behind it this is the
//! segmented FIFO of VAX/VMS (Levy & Lipman, "Virtual memory management in the VAX/VMS operating system", 1982).

use crate::page_lists::{ListState, PageLists, Queue};
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;

/// One queue in order of arrival.
pub struct Fifo {
    lists: PageLists,
}

impl Fifo {
    /// An empty queue.
    pub fn new() -> Fifo {
        Fifo { lists: PageLists::new() }
    }
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo::new()
    }
}

impl EvictionPolicy for Fifo {
    fn arrived(&mut self, page: PageNo, _how: Arrival) {
        self.lists.push(page, Queue::Main, 0);
    }

    fn forgotten(&mut self, page: PageNo) {
        self.lists.put(page, ListState::Unknown);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        out.extend((0..count).map_while(|_| self.lists.pop(Queue::Main, ListState::Unknown)));
    }

    fn putback(&mut self, page: PageNo) {
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
