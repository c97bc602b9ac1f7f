//! What the pager decides, as pure code: no clock, no I/O, no `unsafe`. The policies ([`hinterland_policy`]) name the
//! coldest page and the pages to prefetch; this crate decides the steps that follow.
//!
//! | module | decides |
//! |---|---|
//! | `account` | when the evictor runs, when a fault must reclaim by itself: watermarks, and the epochs in which pages age |
//! | `reclaim` | the next step towards free frames |
//! | `victims` | which pages leave together: those that the policy names, and their neighbours |
//! | `departure` | which of them leave by copy, and which by MOVE |
//! | `dirty_share` | which pages are written back in part, and of how many it is known what changed |
//! | `window_queue`, `read_ahead` | whose window is served next, and how many of its pages at once; which thread helps |
//! | `prefetch_cache` | how many prefetched pages may wait unmapped, and which of them goes first |
//!
//! `decision_log` has the form in which a run's decisions are written down, with all that they followed from.
//!
//! Two bodies run it: the pager, over real pages (`hinterland-pager`), and the simulator, over a trace in virtual time
//! (`hinterland-sim`). A trait beside each decision lists what a body must provide. No other crate makes these
//! decisions.
#![forbid(unsafe_code)]

mod account;
mod decision_log;
mod departure;
mod dirty_share;
mod fault_path;
mod prefetch_cache;
mod read_ahead;
mod reclaim;
mod victims;
mod window_queue;

pub use account::{Account, BOUND_MIN, margin, reserve};
pub use decision_log::{Begin, Entry, GiveBack, HEAD_BYTES, KeyPageState, Log, LogError, Step, entry_bytes, head};
pub use departure::{Way, by_copy, runs_of_victims, ways};
pub use dirty_share::{JUDGED_PAGES, PATCH_GRANULES_MAX, hashed_of};
pub use fault_path::FaultPath;
pub use prefetch_cache::{
    CachedSlots, Dropped, KEY_SLOTS, SlotBody, TakenSlot, make_room, pages_for_windows, take_slot, waiting_pages_max,
};
pub use read_ahead::{
    Claimed, Frames, HELP_PAGES, LANDING_PAGES, MappedPages, WindowBody, ZERO_PAGES, batch_pages, claim_batch,
    claim_next_batch, claim_zeros, is_timed, late_window, runs_of,
};
pub use reclaim::{CHUNK_SLOTS, ChunkQueue, Oldest, ReclaimBody, evicts, given_up_step, reclaim_step};
pub use victims::{
    BLOCK_PAGES, Claim, PageStates, Residency, Scans, Urgency, choose_unreferenced, choose_victims, claim_given_up,
};
pub use window_queue::{PendingWindow, Pushed, WINDOWS_WAITING_MAX, WindowQueue};
