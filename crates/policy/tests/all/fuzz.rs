//! Every eviction policy against a naive model: sets of resident and of taken pages.

use hinterland_policy::{Arrival, EVICTION_POLICIES, EvictionPolicy, make};
use hinterland_units::PageNo;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

const OPERATIONS: usize = 150_000;
const ARRIVALS: [Arrival; 5] =
    [Arrival::FirstTouch, Arrival::Demand, Arrival::Prefetched, Arrival::Hinted, Arrival::SwapCacheHit];

struct Model {
    name: &'static str,
    policy: Box<dyn EvictionPolicy>,
    random: SmallRng,
    capacity: usize,
    resident: BTreeSet<PageNo>,
    /// Victims that are in the swap cache.
    taken: Vec<PageNo>,
    known_pages_max: usize,
}

impl Model {
    fn new(name: &'static str, seed: u64) -> Model {
        let mut random = SmallRng::seed_from_u64(seed);
        let capacity = *[1, 10, 100, 1000].choose(&mut random).expect("not empty");
        let policy = make(name, capacity).expect("a name from the list");
        Model { name, policy, random, capacity, resident: BTreeSet::new(), taken: Vec::new(), known_pages_max: 0 }
    }

    /// A page of a far range whose touched parts are a few clusters, the last at its end.
    fn any_page(&mut self) -> PageNo {
        let span = u32::try_from(self.capacity).expect("small") + 20;
        let cluster = *[0, 700, 1 << 20, (1 << 30) - 3000].choose(&mut self.random).expect("not empty");
        PageNo(cluster + self.random.random_range(0..span))
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..50 => self.arrive(),
            50..60 => self.take_victims(),
            60..85 => self.settle(),
            85..90 => self.leave_early(),
            90..99 => {
                let page = self.any_page();
                self.forget(page);
            }
            _ => self.resize(),
        }
        if self.resident.len() > self.capacity {
            self.take_victims();
        }
        assert_eq!(self.policy.resident(), self.resident.len(), "{}", self.name);
    }

    fn arrive(&mut self) {
        let page = self.any_page();
        if self.resident.contains(&page) {
            return;
        }
        self.taken.retain(|&other| other != page);
        self.policy.arrived(page, *ARRIVALS.choose(&mut self.random).expect("not empty"));
        self.resident.insert(page);
        self.known_pages_max = self.known_pages_max.max(self.resident.len() + self.taken.len());
    }

    fn forget(&mut self, page: PageNo) {
        self.policy.forgotten(page);
        self.resident.remove(&page);
        self.taken.retain(|&other| other != page);
    }

    /// A resident page leaves beside a victim.
    fn leave_early(&mut self) {
        if let Some(&page) = self.resident.iter().choose(&mut self.random) {
            self.policy.evicted_out_of_turn(page);
            self.resident.remove(&page);
            self.taken.push(page);
        }
    }

    fn take_victims(&mut self) {
        let count = self.random.random_range(0..100);
        let mut out = vec![PageNo(99)];
        self.policy.victims(count, &mut out);
        assert_eq!(out.remove(0), PageNo(99), "{}: victims are appended", self.name);
        assert_eq!(out.len(), count.min(self.resident.len()), "{}: count", self.name);
        for page in out {
            assert!(self.resident.remove(&page), "{}: {page} is not resident, or was named twice", self.name);
            self.taken.push(page);
        }
    }

    /// A victim's fate.
    fn settle(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let page = self.taken.swap_remove(self.random.random_range(0..self.taken.len()));
        match self.random.random_range(0..8) {
            0..4 => self.policy.written_back(page),
            4 => self.policy.forgotten(page),
            5 => {
                self.policy.putback(page);
                self.resident.insert(page);
            }
            _ => {
                self.policy.arrived(page, Arrival::SwapCacheHit);
                self.resident.insert(page);
            }
        }
    }

    fn resize(&mut self) {
        self.capacity = *[0, 1, 10, 100, 1000].choose(&mut self.random).expect("not empty");
        self.policy.resize(self.capacity);
    }

    /// Takes everything: each resident page comes out once, and nothing else.
    fn finish(mut self) {
        let mut out = Vec::new();
        self.policy.victims(usize::MAX, &mut out);
        assert_eq!(out.len(), self.resident.len());
        assert_eq!(out.into_iter().collect::<BTreeSet<_>>(), self.resident, "{}", self.name);
        assert_eq!(self.policy.resident(), 0);
        for cluster in [0, 700, 1 << 20, (1 << 30) - 3000] {
            (cluster..cluster + 1100).for_each(|page| self.policy.forgotten(PageNo(page)));
        }
        assert!(self.policy.metadata_bytes() < 64 << 10, "{}: {} bytes", self.name, self.policy.metadata_bytes());
    }
}

#[test]
fn every_policy_agrees_with_a_set() {
    for name in EVICTION_POLICIES {
        for seed in 0..10 {
            let mut model = Model::new(name, seed);
            (0..OPERATIONS / 10).for_each(|_| model.step());
            assert!(model.known_pages_max > 0);
            model.finish();
        }
    }
}

#[test]
fn a_page_put_back_leaves_later_but_not_soon() {
    for name in EVICTION_POLICIES {
        let mut policy = make(name, 1000).expect("a name from the list");
        (0..1000).for_each(|page| policy.arrived(PageNo(page), Arrival::FirstTouch));
        let mut out = Vec::new();
        policy.victims(1, &mut out);
        let pinned = out[0];
        policy.putback(pinned);
        out.clear();
        policy.victims(700, &mut out);
        assert!(!out.contains(&pinned), "{name}: tried again soon");
        policy.victims(1000, &mut out);
        assert!(out.contains(&pinned), "{name}: never tried again");
    }
}

#[test]
fn ghosts_are_bounded() {
    for name in EVICTION_POLICIES {
        let mut policy = make(name, 1000).expect("a name from the list");
        let mut out = Vec::new();
        for page in 0..1_000_000 {
            policy.arrived(PageNo(page), Arrival::FirstTouch);
            if policy.resident() > 1000 {
                policy.victims(1, &mut out);
                out.drain(..).for_each(|page| policy.written_back(page));
            }
        }
        // A thousand resident pages and at most a thousand ghosts, 9 bytes each, and what is not full at the ends.
        assert!(policy.metadata_bytes() < 50_000, "{name}: {} bytes", policy.metadata_bytes());
    }
}

#[test]
fn pages_that_arrived_together_leave_together() {
    for name in EVICTION_POLICIES {
        let mut policy = make(name, 4096).expect("a name from the list");
        (0..4096).for_each(|page| policy.arrived(PageNo(page), Arrival::Prefetched));
        let mut out = Vec::new();
        policy.victims(64, &mut out);
        assert_eq!(out, (0..64).map(PageNo).collect::<Vec<_>>(), "{name}");
    }
}
