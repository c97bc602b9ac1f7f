//! The share of loads that larger local memory would save, from the recently evicted pages: a part of the miss-ratio
//! curve of a running program.
//!
//! ```text
//!   a page leaves ──► sampled? ──► the young end of the list ──► … ──► forgotten
//!   it is loaded  ──► sampled? ──► the pages that have left after it, and are not back: with so many more frames it would have stayed
//! ```
//!
//! The list continues the policy's queues as if they were a stack, which LRU's is. Pages are sampled by their hash, and the rate follows local memory, so that the
//! list has room for what the largest memory would hold beside that which there is: SHARDS (Waldspurger, Park, Garthwaite & Ahmad, "Efficient MRC construction with
//! SHARDS", FAST'15). Smaller memory is not seen: mapped pages make no request (decision 0116).

use crate::features::mixed;
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;
use std::collections::VecDeque;

/// Local memory for which loads are counted, in percent of that which there is.
pub const LARGER_PERCENT: [usize; 4] = [125, 150, 200, 400];
/// Pages that are remembered.
const GHOSTS_MAX: usize = 1024;

/// Loads of the sampled pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadCurve {
    /// All.
    pub loads: u64,
    /// Of those, the ones that local memory of [`LARGER_PERCENT`] would have spared.
    pub spared: [u64; LARGER_PERCENT.len()],
}

/// See the module.
pub struct MissCurve {
    /// One page of `2^shift` is sampled.
    shift: u32,
    capacity_pages: usize,
    /// Sampled pages that have left, the oldest first.
    ghosts: VecDeque<PageNo>,
    figures: LoadCurve,
}

impl Default for MissCurve {
    fn default() -> MissCurve {
        let ghosts = VecDeque::with_capacity(GHOSTS_MAX);
        MissCurve { shift: 0, capacity_pages: 0, ghosts, figures: LoadCurve::default() }
    }
}

impl MissCurve {
    fn samples(&self, page: PageNo) -> bool {
        mixed(page.0).leading_zeros() >= self.shift
    }

    /// Forgets a page that has left; returns how many pages have left after it, itself included.
    fn take(&mut self, page: PageNo) -> Option<usize> {
        let at = self.ghosts.iter().rposition(|ghost| *ghost == page)?;
        self.ghosts.remove(at);
        Some((self.ghosts.len() + 1 - at) << self.shift)
    }

    fn arrived(&mut self, page: PageNo, how: Arrival) {
        if how == Arrival::SwapCacheHit || !self.samples(page) {
            return;
        }
        let distance = self.take(page);
        if how == Arrival::FirstTouch {
            return;
        }
        self.figures.loads += 1;
        for (spared, percent) in self.figures.spared.iter_mut().zip(LARGER_PERCENT) {
            let more = self.capacity_pages.saturating_mul(percent - 100) / 100;
            *spared += u64::from(distance.is_some_and(|distance| distance <= more));
        }
    }

    fn left(&mut self, page: PageNo) {
        if !self.samples(page) {
            return;
        }
        if self.ghosts.len() == GHOSTS_MAX {
            self.ghosts.pop_front();
        }
        self.ghosts.push_back(page);
    }

    fn forgotten(&mut self, page: PageNo) {
        if self.samples(page) {
            self.take(page);
        }
    }

    fn resize(&mut self, capacity_pages: usize) {
        self.capacity_pages = capacity_pages;
        let reach = capacity_pages.saturating_mul(LARGER_PERCENT[LARGER_PERCENT.len() - 1] - 100) / 100;
        let shift = (reach / GHOSTS_MAX + 1).next_power_of_two().trailing_zeros();
        if shift > self.shift {
            self.shift = shift;
            let mut ghosts = std::mem::take(&mut self.ghosts);
            ghosts.retain(|page| self.samples(*page));
            self.ghosts = ghosts;
        } else if shift + 1 < self.shift {
            // Of what has left only some is known: too little for a higher rate.
            self.shift = shift;
            self.ghosts.clear();
        }
    }

    fn bytes(&self) -> usize {
        self.ghosts.capacity() * size_of::<PageNo>()
    }
}

/// A policy, and the curve of what leaves by it.
pub struct WithCurve {
    policy: Box<dyn EvictionPolicy>,
    curve: MissCurve,
}

impl WithCurve {
    /// Of a policy that knows no page yet.
    pub fn new(policy: Box<dyn EvictionPolicy>) -> WithCurve {
        WithCurve { policy, curve: MissCurve::default() }
    }

    /// What was counted since the last time.
    pub fn take_loads(&mut self) -> LoadCurve {
        std::mem::take(&mut self.curve.figures)
    }
}

impl EvictionPolicy for WithCurve {
    fn arrived(&mut self, page: PageNo, how: Arrival) {
        self.curve.arrived(page, how);
        self.policy.arrived(page, how);
    }

    fn forgotten(&mut self, page: PageNo) {
        self.curve.forgotten(page);
        self.policy.forgotten(page);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        self.policy.victims(count, out);
    }

    fn victims_not_needed_soon(&mut self, count: usize, out: &mut Vec<PageNo>) {
        self.policy.victims_not_needed_soon(count, out);
    }

    fn evicted_out_of_turn(&mut self, page: PageNo) {
        self.policy.evicted_out_of_turn(page);
    }

    fn putback(&mut self, page: PageNo) {
        self.policy.putback(page);
    }

    fn putback_unjudged(&mut self, page: PageNo) {
        self.policy.putback_unjudged(page);
    }

    fn written_back(&mut self, page: PageNo) {
        self.curve.left(page);
        self.policy.written_back(page);
    }

    fn keeps_neighbours(&self) -> bool {
        self.policy.keeps_neighbours()
    }

    fn take_random_victims(&mut self) -> u64 {
        self.policy.take_random_victims()
    }

    fn resize(&mut self, capacity_pages: usize) {
        self.curve.resize(capacity_pages);
        self.policy.resize(capacity_pages);
    }

    fn resident(&self) -> usize {
        self.policy.resident()
    }

    fn metadata_bytes(&self) -> usize {
        self.policy.metadata_bytes() + self.curve.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Touches of pages in local memory of so many under `fifo`: what leaves is written back at once.
    fn touched(pages: impl IntoIterator<Item = u32>, local: usize) -> LoadCurve {
        let mut policy = WithCurve::new(make("fifo", local).unwrap());
        policy.resize(local);
        let (mut resident, mut known) = (std::collections::HashSet::new(), std::collections::HashSet::new());
        let mut victims = Vec::new();
        for page in pages.into_iter().map(PageNo) {
            if !resident.insert(page) {
                continue;
            }
            policy.arrived(page, if known.insert(page) { Arrival::FirstTouch } else { Arrival::Demand });
            if resident.len() > local {
                policy.victims(1, &mut victims);
            }
            for victim in victims.drain(..) {
                resident.remove(&victim);
                policy.written_back(victim);
            }
        }
        policy.take_loads()
    }

    #[test]
    fn a_loop_is_spared_by_memory_that_holds_it_and_by_no_less() {
        for local in [200, 4_000, 50_000] {
            // 37 % more than there is.
            let pages = u32::try_from(local).unwrap() * 137 / 100;
            let curve = touched((0..6).flat_map(|_| 0..pages), local);
            assert_eq!(curve.spared, [0, curve.loads, curve.loads, curve.loads], "{local}: {curve:?}");
            assert!(curve.loads > 500, "{local}: {curve:?}");
        }
    }

    #[test]
    fn of_random_pages_each_page_of_memory_spares_its_share() {
        let (local, pages) = (20_000, 60_000);
        let mut random = SmallRng::seed_from_u64(2);
        let curve = touched((0..1_000_000).map(|_| random.random_range(0..pages)), local);
        // Two thirds of the touches are loads; of memory of s pages 1 - s / 60,000 of them would be.
        let share = |at: usize| curve.spared[at] as f64 / curve.loads as f64;
        for (at, percent) in [(0, 125.0), (1, 150.0), (2, 200.0)] {
            let expected = (percent / 100.0 - 1.0) * 20_000.0 / 40_000.0;
            assert!((share(at) - expected).abs() < 0.05, "{percent}: {} beside {expected}", share(at));
        }
        assert_eq!(curve.spared[3], curve.loads, "it would hold them all");
    }

    #[test]
    fn what_loses_its_content_and_what_is_touched_in_the_swap_cache_is_no_load() {
        let mut policy = WithCurve::new(make("s3-fifo", 100).unwrap());
        policy.resize(100);
        (0..4).for_each(|page| policy.written_back(PageNo(page)));
        policy.forgotten(PageNo(1));
        policy.arrived(PageNo(1), Arrival::Demand);
        policy.arrived(PageNo(2), Arrival::FirstTouch);
        policy.arrived(PageNo(3), Arrival::SwapCacheHit);
        assert_eq!(policy.take_loads(), LoadCurve { loads: 1, spared: [0; 4] });
        policy.arrived(PageNo(0), Arrival::Prefetched);
        assert_eq!(policy.take_loads(), LoadCurve { loads: 1, spared: [1; 4] });
        assert_eq!(policy.take_loads(), LoadCurve::default(), "each is counted once");
    }

    #[test]
    fn the_list_never_grows_and_the_rate_follows_the_memory() {
        let mut curve = MissCurve::default();
        let capacity = curve.ghosts.capacity();
        for local in [100, 100_000, 90_000, 1 << 24, 1 << 23, 200] {
            curve.resize(local);
            (0..300_000).for_each(|page| curve.left(PageNo(page)));
            assert!(curve.ghosts.len() <= GHOSTS_MAX && curve.ghosts.capacity() == capacity, "{local}");
            assert!(curve.ghosts.iter().all(|page| curve.samples(*page)), "{local}");
            // What the largest memory would hold beside that which there is has room.
            assert!((GHOSTS_MAX << curve.shift) >= 3 * local, "{local}");
        }
        assert_eq!(curve.shift, 0);
    }
}
