//! A policy that names any page: also one that has just arrived, which no real policy would.

use hinterland_policy::{Arrival, EvictionPolicy};
use hinterland_testkit::Rng;
use hinterland_units::PageNo;

/// See the module.
pub(super) struct AnyPage {
    random: Rng,
    pages: Vec<PageNo>,
}

impl AnyPage {
    pub(super) fn new(seed: u64) -> AnyPage {
        AnyPage { random: Rng(seed), pages: Vec::new() }
    }
}

impl EvictionPolicy for AnyPage {
    fn arrived(&mut self, page: PageNo, _: Arrival) {
        if !self.pages.contains(&page) {
            self.pages.push(page);
        }
    }

    fn forgotten(&mut self, page: PageNo) {
        self.pages.retain(|other| *other != page);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        // Few at a time, and sometimes the newest first.
        let newest = self.random.below(2) == 0;
        for _ in 0..count.min(1 + self.random.index(16)).min(self.pages.len()) {
            let at = if newest { self.pages.len() - 1 } else { self.random.index(self.pages.len()) };
            out.push(self.pages.swap_remove(at));
        }
    }

    fn putback(&mut self, page: PageNo) {
        self.arrived(page, Arrival::Demand);
    }

    fn written_back(&mut self, _: PageNo) {}

    fn resize(&mut self, _: usize) {}

    fn resident(&self) -> usize {
        self.pages.len()
    }

    fn metadata_bytes(&self) -> usize {
        0
    }
}
