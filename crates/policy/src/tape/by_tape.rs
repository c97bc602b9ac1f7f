//! Eviction by tapes: pages of which a tape says that they may leave go first, the furthest next use before all others; then those that
//! the policy names, but for pages that a tape holds. Where there are no others, these leave, too, what was asked for last first: the bound
//! on local memory comes before tapes.

use super::{Holds, SharedHolds};
use crate::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;

/// Times that the policy is asked for pages that no tape holds.
const ROUNDS: u32 = 4;
/// Pages that it is asked for at a time at least, once it has named a page that is held.
const AT_A_TIME: usize = 16;

/// See the module. The policy knows all resident pages.
pub struct ByTape {
    policy: Box<dyn EvictionPolicy>,
    holds: SharedHolds,
}

impl ByTape {
    /// `policy` evicts what the tapes do not; `holds` are those of the source that follows them.
    pub fn new(policy: Box<dyn EvictionPolicy>, holds: SharedHolds) -> ByTape {
        ByTape { policy, holds }
    }

    /// Victims of the policy that no tape holds, as far as there are; those that it named beside them are put back.
    fn free_victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        let (end, mut stay) = (out.len() + count, Vec::new());
        // As a rule none is held, and no page is named that is not to leave: one that is put back loses its place.
        let mut wanted = count;
        for _ in 0..ROUNDS {
            let mut named = Vec::new();
            self.policy.victims(wanted, &mut named);
            let all = named.len() < wanted;
            let mut holds = self.holds.lock();
            for page in named {
                if out.len() == end || holds.is_held(page) {
                    stay.push(page);
                } else {
                    holds.gone(page);
                    out.push(page);
                }
            }
            if out.len() == end || all {
                break;
            }
            wanted = AT_A_TIME.max(end - out.len());
        }
        stay.into_iter().for_each(|page| self.policy.putback_unjudged(page));
    }

    /// Victims that `next` takes out of what is held, of those that the policy has.
    fn take(&mut self, count: usize, out: &mut Vec<PageNo>, next: fn(&mut Holds) -> Option<PageNo>) {
        for _ in 0..count {
            let Some(page) = next(&mut self.holds.lock()) else { return };
            self.policy.evicted_out_of_turn(page);
            out.push(page);
        }
    }
}

impl EvictionPolicy for ByTape {
    fn arrived(&mut self, page: PageNo, how: Arrival) {
        let is_listed = self.holds.lock().arrived(page);
        // It will be used: it is not on trial as what a prefetcher guessed is.
        let how = if is_listed && how == Arrival::Prefetched { Arrival::Hinted } else { how };
        self.policy.arrived(page, how);
    }

    fn forgotten(&mut self, page: PageNo) {
        self.holds.lock().gone(page);
        self.policy.forgotten(page);
    }

    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        let end = out.len() + count;
        self.victims_not_needed_soon(count, out);
        self.take(end - out.len(), out, Holds::take_last_asked);
        let others = out.len();
        self.policy.victims(end - others, out);
        let mut holds = self.holds.lock();
        out[others..].iter().for_each(|page| holds.gone(*page));
    }

    fn victims_not_needed_soon(&mut self, count: usize, out: &mut Vec<PageNo>) {
        let end = out.len() + count;
        self.take(count, out, Holds::take_furthest);
        if out.len() < end {
            self.free_victims(end - out.len(), out);
        }
    }

    fn evicted_out_of_turn(&mut self, page: PageNo) {
        self.holds.lock().gone(page);
        self.policy.evicted_out_of_turn(page);
    }

    fn putback(&mut self, page: PageNo) {
        self.holds.lock().arrived(page);
        self.policy.putback(page);
    }

    fn written_back(&mut self, page: PageNo) {
        self.policy.written_back(page);
    }

    fn keeps_neighbours(&self) -> bool {
        !self.holds.lock().is_empty() || self.policy.keeps_neighbours()
    }

    fn take_random_victims(&mut self) -> u64 {
        self.policy.take_random_victims()
    }

    fn resize(&mut self, capacity_pages: usize) {
        self.policy.resize(capacity_pages);
    }

    fn resident(&self) -> usize {
        self.policy.resident()
    }

    fn metadata_bytes(&self) -> usize {
        self.policy.metadata_bytes() + self.holds.lock().bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make;
    use std::collections::HashSet;

    fn by_tape(pages: u32) -> (ByTape, SharedHolds) {
        let holds = SharedHolds::default();
        let mut policy = ByTape::new(make("fifo", 1000).unwrap(), holds.clone());
        (0..pages).for_each(|page| policy.arrived(PageNo(page), Arrival::Demand));
        (policy, holds)
    }

    fn victims(policy: &mut ByTape, count: usize) -> Vec<u32> {
        let mut out = Vec::new();
        policy.victims(count, &mut out);
        out.into_iter().map(|page| page.0).collect()
    }

    #[test]
    fn the_tape_comes_first_then_the_policy_and_what_is_held_last() {
        let (mut policy, holds) = by_tape(10);
        let mut held = holds.lock();
        (0..8).for_each(|page| held.hold(PageNo(page), true, 0));
        held.release(PageNo(4), 100, 0);
        held.release(PageNo(5), 200, 0);
        drop(held);
        assert!(policy.keeps_neighbours());
        let mut spare = Vec::new();
        policy.victims_not_needed_soon(3, &mut spare);
        assert_eq!(spare, [5, 4, 8].map(PageNo));
        assert_eq!(policy.resident(), 7);
        assert_eq!(victims(&mut policy, 100), [9, 7, 6, 3, 2, 1, 0], "all there are, what is needed first last");
        assert_eq!(policy.resident(), 0);
    }

    #[test]
    fn while_nothing_is_held_the_policy_evicts_as_ever() {
        let (mut policy, _) = by_tape(0);
        let mut alone = make("s3-fifo", 100).unwrap();
        policy.policy = make("s3-fifo", 100).unwrap();
        let (mut ours, mut expected) = (Vec::new(), Vec::new());
        for page in 0..2_000 {
            [&mut policy as &mut dyn EvictionPolicy, &mut *alone]
                .into_iter()
                .for_each(|p| p.arrived(PageNo(page), Arrival::Demand));
            if page > 100 {
                policy.victims_not_needed_soon(1, &mut ours);
                alone.victims(1, &mut expected);
            }
        }
        assert_eq!(ours, expected);
    }

    /// Pages of a tape that has ended, and others that are walked through in rounds from then on.
    #[test]
    fn what_was_held_is_not_hot_once_the_tape_has_ended() {
        const BUDGET: usize = 1_000;
        let holds = SharedHolds::default();
        let mut policy = ByTape::new(make("s3-fifo", BUDGET).unwrap(), holds.clone());
        for page in 0..900 {
            holds.lock().hold(PageNo(page), true, 0);
            policy.arrived(PageNo(page), Arrival::FirstTouch);
        }
        // The evictor asks ahead of need all the time, and gets none.
        (0..100).for_each(|_| policy.victims_not_needed_soon(8, &mut Vec::new()));
        holds.lock().suspend(0);
        let mut resident = HashSet::new();
        let faults = [(); 8].map(|()| {
            let mut faults = 0;
            for page in (2_000..2_800).map(PageNo) {
                if !resident.insert(page) {
                    continue;
                }
                faults += 1;
                policy.arrived(page, Arrival::Demand);
                let mut victims = Vec::new();
                policy.victims(policy.resident().saturating_sub(BUDGET), &mut victims);
                for victim in victims {
                    policy.written_back(victim);
                    resident.remove(&victim);
                }
            }
            faults
        });
        assert_eq!(faults[3..], [0; 5], "{faults:?}");
    }

    #[test]
    fn a_page_that_could_not_leave_can_the_next_time() {
        let (mut policy, holds) = by_tape(3);
        holds.lock().hold(PageNo(1), true, 0);
        holds.lock().release(PageNo(1), 9, 0);
        assert_eq!(victims(&mut policy, 1), [1]);
        policy.putback(PageNo(1));
        assert_eq!(victims(&mut policy, 3), [0, 2, 1]);
    }
}
