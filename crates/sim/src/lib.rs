//! Replays page traces in virtual time: the runtime's own policies, prefetchers and account over a modelled link.
//!
//! ```text
//!   references ──► Collector ──► Workload ──► simulate(workload, setup, eviction, prefetch) ──► ReplayStats
//!                                               │ machine: program, evictor, read-ahead thread, link
//!                                               ├ tape: the same with a tape that was planned from the same trace
//!                                               └ ideal: replays of LRU and MIN, the measures for the others
//!   decision log of a run ──► decision_replay: the same machine decides again, told what the pager was told
//! ```
//!
//! No clock, no I/O, no `unsafe`; everything that is random has a seed. What the model leaves out is in decision 0022.
#![forbid(unsafe_code)]

mod answers;
mod costs;
mod decision_replay;
mod fault;
mod ideal;
mod machine;
mod page;
mod prefetch_cache;
mod read_ahead;
mod reclaim;
mod replay_stats;
mod tape;
mod workload;

pub use costs::Costs;
pub use decision_replay::{Difference, ReplayError, Replayed, replay};
pub use hinterland_backend::{Direction, Duplex, Link, LinkError, LinkModel, LinkShare, Priority};
pub use hinterland_paging::FaultPath;
pub use replay_stats::ReplayStats;
pub use tape::follow;
pub use workload::{Collector, Touch, Workload, WorkloadError, pages_in_order};

pub use hinterland_paging::reserve;
pub use hinterland_policy::{Blocks, EVICTION_POLICIES, Granularity, PREFETCHERS};

use hinterland_policy::{Arbiter, Lru, Min, make, make_prefetcher};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};
use machine::Machine;

/// The references beside the runtime's eviction policies, which go with prefetcher `none` alone.
pub const REFERENCES: [&str; 2] = ["lru", "min"];

/// In place of a prefetcher: a tape, which is followed ([`follow`]) and says what leaves.
pub const TAPE: &str = "tape";

/// The fewest frames that can be simulated: below, the pager's watermarks would meet.
pub const LOCAL_PAGES_MIN: u64 = 256;

/// What a workload is replayed on.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The bound on local memory; a share is of all pages that the trace touches, and never below [`Budget::FLOOR`].
    pub local: Budget,
    /// The way to far memory.
    pub link: LinkModel,
    /// Which thread serves faults: it decides which pages leave together.
    pub fault_path: FaultPath,
    /// What the pager's work costs.
    pub costs: Costs,
    /// Largest prefetch window in pages; `None`: what is usual for the prefetcher.
    pub window_pages_max: Option<u32>,
    /// Bound on prefetched pages that are not known to be used; `None`: what the windows need.
    pub prefetch_cache_pages: Option<u32>,
    /// How much comes to a thread that waits for a page.
    pub blocks: Blocks,
    /// Of 100 pages that far memory still has when they leave, so many were written to meanwhile, where the trace does not tell.
    pub written_percent: u8,
    /// Chooses which.
    pub seed: u64,
}

/// Why a combination cannot be simulated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SetupError {
    /// No such eviction policy.
    #[error("'{name}' is no eviction policy; there are {}, and the references lru and min", EVICTION_POLICIES.join(", "))]
    Eviction {
        /// As given.
        name: String,
    },
    /// No such prefetcher.
    #[error("'{name}' is no prefetcher; there are {}, and {TAPE}", PREFETCHERS.join(", "))]
    Prefetcher {
        /// As given.
        name: String,
    },
    /// LRU or MIN with a prefetcher.
    #[error("'{eviction}' is a reference without prefetching: it goes with prefetcher none, not {prefetcher}")]
    Reference {
        /// Which of the two.
        eviction: String,
        /// As given.
        prefetcher: String,
    },
    /// Too little memory.
    #[error("{pages} local pages are fewer than the {LOCAL_PAGES_MIN} that the pager needs")]
    TooSmall {
        /// As given.
        pages: u64,
    },
    /// A tape of another trace.
    #[error("the tape names pages that the trace does not touch: it was planned from another one")]
    Tape,
    /// More than all pages are written to.
    #[error("{percent} of 100 pages cannot be written to")]
    Written {
        /// As given.
        percent: u8,
    },
}

impl Setup {
    /// A plain setup: inline faults, usual windows, every page written to between arrival and departure.
    pub fn new(local: Budget, link: LinkModel) -> Setup {
        let (fault_path, costs) = (FaultPath::Inline, Costs::of(FaultPath::Inline));
        Setup {
            local,
            link,
            fault_path,
            costs,
            window_pages_max: None,
            prefetch_cache_pages: None,
            blocks: Blocks::default(),
            written_percent: 100,
            seed: 1,
        }
    }

    /// The same with faults served on that path, at the costs of it.
    pub fn on(self, fault_path: FaultPath) -> Setup {
        Setup { fault_path, costs: Costs::of(fault_path), ..self }
    }

    /// Frames that a program may have in the end.
    pub fn frames(&self, work: &Workload) -> u64 {
        let bytes = match self.local {
            Budget::Bytes(bytes) => bytes,
            percent => percent.bytes(ByteCount(work.touched_bytes())),
        };
        bytes.0 / PAGE_BYTES as u64
    }

    /// Whether a page, when it leaves for the `times`th time, was written to since it came.
    pub(crate) fn was_written(&self, slot: u32, times: u32) -> bool {
        let place = u64::from(slot) << 32 | u64::from(times);
        mixed(self.seed ^ mixed(place)) % 100 < u64::from(self.written_percent)
    }

    fn check(&self, work: &Workload) -> Result<(), SetupError> {
        if self.written_percent > 100 {
            return Err(SetupError::Written { percent: self.written_percent });
        }
        match self.frames(work) {
            pages @ ..LOCAL_PAGES_MIN => Err(SetupError::TooSmall { pages }),
            _ => Ok(()),
        }
    }
}

/// The output function of SplitMix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Replays a workload. `eviction` is the name of a policy of the runtime or of [`REFERENCES`], `prefetcher` that of a prefetcher;
/// `progress` is told from time to time how many references are done.
///
/// # Errors
/// Names that do not exist or do not go together, and impossible setups.
pub fn simulate(
    work: &Workload,
    setup: &Setup,
    eviction: &str,
    prefetcher: &str,
    progress: &mut dyn FnMut(u64),
) -> Result<ReplayStats, SetupError> {
    setup.check(work)?;
    let frames = setup.frames(work);
    let ahead = make_prefetcher(prefetcher, setup.window_pages_max)
        .ok_or_else(|| SetupError::Prefetcher { name: prefetcher.into() })?;
    if REFERENCES.contains(&eviction) {
        if prefetcher != "none" {
            return Err(SetupError::Reference { eviction: eviction.into(), prefetcher: prefetcher.into() });
        }
        return Ok(match eviction {
            "lru" => ideal::replay(work, setup, frames, &mut Lru::new(), progress),
            _ => ideal::replay(work, setup, frames, &mut Min::new(), progress),
        });
    }
    // Shaped by the machine once it knows the bound.
    let policy = make(eviction, 0).ok_or_else(|| SetupError::Eviction { name: eviction.into() })?;
    let arbiter = Arbiter::new(ahead).with_blocks(setup.blocks);
    Ok(Machine::new(work, setup, policy, arbiter).run(progress))
}
