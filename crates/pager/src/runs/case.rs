//! What a seed draws: everything in which runs differ but the order of steps.

use super::any_page::AnyPage;
use crate::FaultPath;
use crate::sys::simulated::Chances;
use hinterland_policy::EvictionPolicy;
use hinterland_sys::uffd::feature;
use hinterland_sys::{FeatureSet, Features, Privilege};
use hinterland_testkit::Rng;
use hinterland_units::CopyBound;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) seed: u64,
    pub(super) path: FaultPath,
    pub(super) set: FeatureSet,
    /// By name; `None`: one that names any page.
    pub(super) policy: Option<&'static str>,
    pub(super) prefetcher: &'static str,
    pub(super) prefetch_cache_pages: Option<u32>,
    pub(super) monitors: usize,
    pub(super) chances: Chances,
    /// A stored copy costs RAM, so that few are retained.
    pub(super) copies_cost_ram: bool,
    pub(super) copies: Option<CopyBound>,
    /// Far memory has room for each page of the program once, and hardly more: stored copies are dropped for what is stored.
    pub(super) is_tight: bool,
    /// Stored copies can be patched.
    pub(super) patches: bool,
    /// Far memory loses copies of pages that are local.
    pub(super) loses_copies: bool,
    /// Far memory takes its time.
    pub(super) is_slow: bool,
    /// Threads say of pages that they overwrite them.
    pub(super) overwrites: bool,
    /// Operations of each thread of the program.
    pub(super) operations: u32,
}

impl Case {
    pub(super) fn of(seed: u64) -> Case {
        let mut random = Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0xca5e);
        let path = [FaultPath::Monitor, FaultPath::Inline][random.index(2)];
        let set = [FeatureSet::All, FeatureSet::All, FeatureSet::V6_8, FeatureSet::V6_1][random.index(4)];
        let mut often = |usual: u64| [0, usual, usual * 8][random.index(3)];
        let chances =
            Chances { stops: often(8), uncounted: often(20), busy: often(10), swaps: often(40), spurious: often(10) };
        let policies = hinterland_policy::EVICTION_POLICIES;
        let policy = policies.get(random.index(2 * policies.len())).copied();
        let prefetchers = hinterland_policy::PREFETCHERS;
        Case {
            seed,
            path,
            set,
            policy,
            prefetcher: prefetchers[random.index(prefetchers.len())],
            prefetch_cache_pages: [None, Some(8)][random.index(2)],
            monitors: 1 + random.index(2),
            chances,
            copies_cost_ram: random.index(2) == 0,
            is_slow: random.index(2) == 0,
            operations: if cfg!(miri) { 4 } else { 60 },
            patches: random.index(2) == 0,
            loses_copies: random.index(2) == 0,
            overwrites: false,
            copies: [None, Some(CopyBound::Percent(50)), Some(CopyBound::Peak)][random.index(3)],
            is_tight: random.index(2) == 0,
        }
    }

    /// What evicts.
    pub(super) fn evicts(&self) -> Box<dyn EvictionPolicy> {
        match self.policy {
            Some(name) => hinterland_policy::make(name, 256).expect("there is one of that name"),
            None => Box::new(AnyPage::new(self.seed)),
        }
    }

    /// As a kernel would say.
    pub(super) fn features(&self) -> Features {
        let all = feature::PAGEFAULT_FLAG_WP | feature::SIGBUS | feature::THREAD_ID | feature::MOVE;
        Features::of(self.set, Privilege::Kernel, all).with_vectors()
    }
}
