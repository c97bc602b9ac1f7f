//! How long a pool waits for what. Programs get the defaults; who tests a pool gives it other values when it makes one.

use crate::node_error::ANSWER_LIMIT_DEFAULT;
use hinterland_units::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The pauses and bounds of a pool's maintenance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Time for which a refusal is believed: a node that had no room, a connection that could not be made at once.
    pub refused: Duration,
    /// The longest time without a sign of life from the node in which its shared slabs are read.
    pub view_silence: Duration,
    /// Time between two steps of maintenance when nothing can be rebuilt.
    pub step: Duration,
    /// As `step`, when all is well.
    pub idle_step: Duration,
    /// Time between two pings of nodes that loads pass by.
    pub ping: Duration,
    /// Time between two questions what a node wants back, each to another node.
    pub recall: Duration,
    /// A copy counts for a report if its node has answered a question in so long a time.
    pub fresh: Duration,
    /// A lost node is tried again after so long, then after twice as long each time.
    pub return_min: Duration,
    /// The longest of these pauses.
    pub return_max: Duration,
    /// How long a node that may be there again is waited for.
    pub return_limit: Duration,
    /// Time that the node keeps a session whose process has gone, in milliseconds; nobody comes back to it, and what it held is wanted.
    pub lease_ms: u32,
    /// Bytes that are rebuilt or moved in a second at most.
    pub rebuild_bytes_per_second: u64,
}

impl Default for Timing {
    fn default() -> Timing {
        let milliseconds = Duration::from_millis;
        Timing {
            refused: milliseconds(1000),
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

impl Default for AnswerLimit {
    fn default() -> AnswerLimit {
        let limit = AnswerLimit(Arc::default());
        limit.set(ANSWER_LIMIT_DEFAULT);
        limit
    }
}
