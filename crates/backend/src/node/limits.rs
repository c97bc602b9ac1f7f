//! Every pause, rate and bound of a pool. Programs get the defaults of [`Timing`]; tests make pools with other values.

use crate::node_error::ANSWER_LIMIT_DEFAULT;
use hinterland_units::PAGE_BYTES;
use hinterland_wire::{LinkShare, RANGES_MAX};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Nodes of a pool: each has a row of figures.
pub const NODES_MAX: usize = 8;
/// The longest [`AnswerLimit`] that a URL may give, in seconds (`timeout=`).
pub const TIMEOUT_S_MAX: usize = 600;

// Messages.

/// Messages of a call that are under way together: what fills the time of an answer, and fits the kernel's buffers.
pub(super) const DEPTH: usize = 4;
/// Pages of one answer: a demand load that shares the link never waits for more. 128 KiB.
pub(super) const LOAD_PAGES: usize = 32;
/// Pages of one message of a store.
pub(super) const STORE_PAGES: usize = RANGES_MAX;
/// As many where only a part of the link may be used, in shorter ones.
pub(super) const DEPTH_MAX: usize = 16;
/// A link is slow where `LOAD_PAGES` take so long.
pub(super) const SLOW_LINK: Duration = Duration::from_micros(150);
/// Messages that a part of a link is filled with: a demand that comes waits for one of them at most, if nothing queues.
pub(super) const MESSAGES_OF_A_WINDOW: u64 = 4;
/// On a slow link, a program that waited for a page so short a time ago may soon wait for the next.
pub(super) const DEMANDED_LATELY_NS: u64 = 1_000_000;

// Lanes of a link.

/// Threads that can wait for pages at once; more wait for those. A pool may have other numbers (`lanes=`).
pub const DEMAND_LANES: usize = 8;
/// The most that a pool may have: a node takes 64 lanes of a session, and there are others beside these.
pub const DEMAND_LANES_MAX: usize = 32;
pub(super) const BACKGROUND_LANES: usize = 2;
/// Time after which a node that had too many connections is asked again.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// How long each wait of a connection for the second of two may take: the first is late already, and may answer meanwhile. After one that
/// failed none is tried for a while.
pub(super) const SECOND_LIMIT: Duration = Duration::from_millis(5);

// When another node is asked.

/// The shortest time after which another node is asked: a busy machine lets a thread wait so long for a processor.
pub(super) const PATIENCE_MIN: Duration = Duration::from_millis(20);
/// The longest: a stall of the program, once until the node is known as slow. Also for what no thread waits for yet.
pub(super) const PATIENCE_MAX: Duration = Duration::from_millis(500);
/// The shortest time after which another node is asked, too: what a thread waits for a processor is no news.
pub(super) const LATE_AFTER_MIN: Duration = Duration::from_millis(1);

// When a node is avoided.

/// A load from which on nodes are compared.
pub(super) const LATE_LOAD: Duration = Duration::from_millis(10);
/// A wait for the answer to a store from which on nodes are compared.
pub(super) const LATE_STORE: Duration = Duration::from_millis(50);
/// A node is slow from here on, if another takes so small a part of it …
pub(super) const SLOW: Duration = Duration::from_millis(20);
pub(super) const SLOWER: u64 = 8;
/// … until its mean is below this.
pub(super) const SLOW_NO_MORE: Duration = Duration::from_millis(10);
/// Nodes that differ by less are equally good.
pub(super) const NEAR_NS: u64 = 50_000;
/// A node that is slower is tried again now and then, if its mean is below this.
pub(super) const RETRIED_NS: u64 = 5_000_000;
pub(super) const RETRY_ONE_IN: u64 = 64;
/// A node that owes an answer is expected to take so many times as long as it did.
pub(super) const OWING: u64 = 8;
/// Damaged pages after which a node is not used any more; up to then, single slabs are given up.
pub(super) const DAMAGES_MAX: u32 = 8;

// Slabs.

/// Slabs without a page that are kept for the next pages.
pub(super) const EMPTY_MAX: usize = 1;
/// Slabs that are filled at a time, at most: so many nodes serve one load.
pub(super) const SPREAD_MAX: usize = 4;
/// One slab more is filled for so many.
pub(super) const SLABS_OF_A_TURN: usize = 4;
/// A piece of a slab ends with the call that brings it to so many pages, which one message of a load brings …
pub(super) const PIECE_MIN: usize = LOAD_PAGES;
/// … or within a call after so many, which fit one message of a store.
pub(super) const PIECE_MAX: usize = STORE_PAGES;
/// Slabs that can have a view: 32 GiB with slabs of 2 MiB. A process has 65530 mappings (vm.max_map_count), and needs them.
pub(super) const VIEWS_MAX: usize = 16384;

// Maintenance.

/// A link that has held so long was no accident: its loss begins with the shortest pause again.
pub(super) const STEADY: Duration = Duration::from_secs(30);
/// Nodes that are asked together what they want back.
pub(super) const ASKED: usize = 2;
/// Seconds over which copies are counted.
pub(super) const COPIED_SECONDS: usize = 10;

/// The pauses and bounds of a pool's maintenance, and how it divides its links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Time for which a refusal is believed: a node that had no room, a connection that could not be made at once.
    pub refused: Duration,
    /// Time after which a slab is copied again of which no replica had all pages undamaged.
    pub damaged: Duration,
    /// The longest time without a sign of life from the node in which its shared slabs are read.
    pub view_silence: Duration,
    /// Time between two steps of maintenance when nothing can be rebuilt.
    pub step: Duration,
    /// As `step`, when all is well.
    pub idle_step: Duration,
    /// Time between two pings of nodes that loads pass by.
    pub ping: Duration,
    /// Time between two questions what nodes want back, to [`ASKED`] of them at a time, in turn.
    pub recall: Duration,
    /// A copy counts for a report if its node has answered a question in so long a time.
    pub fresh: Duration,
    /// A lost node is tried again after so long, then after twice as long each time.
    pub return_min: Duration,
    /// The longest of these pauses.
    pub return_max: Duration,
    /// How long a node that may be there again is waited for.
    pub return_limit: Duration,
    /// Time that the node keeps a session whose process has gone, in milliseconds; it is never resumed, and what it held is wanted.
    pub lease_ms: u32,
    /// Bytes that are rebuilt or moved in a second at most.
    pub rebuild_bytes_per_second: u64,
    /// How links are divided between what the program waits for and all else.
    pub share: LinkShare,
    /// Whether what changed of a page is written over its copy, where that is less than the page.
    pub sub_page: bool,
    /// Threads that can wait for pages of a node at once: lanes of each link.
    pub lanes: usize,
}

impl Default for Timing {
    fn default() -> Timing {
        let milliseconds = Duration::from_millis;
        Timing {
            refused: milliseconds(1000),
            damaged: milliseconds(10_000),
            view_silence: milliseconds(1000),
            step: milliseconds(100),
            idle_step: milliseconds(250),
            ping: milliseconds(500),
            recall: milliseconds(200),
            fresh: milliseconds(3000),
            return_min: milliseconds(100),
            return_max: milliseconds(10_000),
            return_limit: milliseconds(300),
            lease_ms: 200,
            rebuild_bytes_per_second: 64 << 20,
            share: LinkShare::Auto,
            sub_page: false,
            lanes: DEMAND_LANES,
        }
    }
}

impl Timing {
    /// The pause that keeps to the bandwidth after so many pages.
    pub(crate) fn pause_after(&self, pages: usize) -> Duration {
        Duration::from_nanos((pages * PAGE_BYTES) as u64 * 1_000_000_000 / self.rebuild_bytes_per_second)
    }
}

/// Time that a node may leave a request without any progress; then it is lost. It holds from the next request on when it is changed.
#[derive(Clone, Debug)]
pub struct AnswerLimit(Arc<AtomicU64>);

impl AnswerLimit {
    /// Changes it.
    pub fn set(&self, limit: Duration) {
        self.0.store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed))
    }
}

impl From<Duration> for AnswerLimit {
    fn from(limit: Duration) -> AnswerLimit {
        let changed = AnswerLimit(Arc::default());
        changed.set(limit);
        changed
    }
}

impl Default for AnswerLimit {
    fn default() -> AnswerLimit {
        ANSWER_LIMIT_DEFAULT.into()
    }
}
