//! The end of a node that programs can still empty: it drains before it exits.
//!
//! It waits where a session holds pages that can move to other nodes, until the node is empty, its time is over,
//! nothing has moved for a while, or a second signal arrives. Where nothing can move it exits at once.

use hinterland_node::Node;
use hinterland_units::ByteCount;
use signal_hook::iterator::Signals;
use std::time::{Duration, Instant};

/// Time without a slab that came back after which nothing is waited for any more.
const STUCK: Duration = Duration::from_secs(2);
/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a look says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Wait,
    Empty,
    /// Its time is over.
    Over,
    /// Nothing moves.
    Stuck,
    /// Somebody is in a hurry.
    Again,
}

/// A drain at the end.
struct Leaving {
    begun: Instant,
    limit: Duration,
    /// What was in use when that changed last.
    used_bytes: u64,
    moved: Instant,
}

impl Leaving {
    fn begin(now: Instant, limit: Duration, used_bytes: u64) -> Leaving {
        Leaving { begun: now, limit, used_bytes, moved: now }
    }

    /// What is to be done `now`; `again`: there was a second signal.
    fn look(&mut self, now: Instant, used_bytes: u64, again: bool) -> Verdict {
        if used_bytes != self.used_bytes {
            (self.used_bytes, self.moved) = (used_bytes, now);
        }
        match () {
            () if used_bytes == 0 => Verdict::Empty,
            () if again => Verdict::Again,
            () if now.saturating_duration_since(self.begun) >= self.limit => Verdict::Over,
            () if now.saturating_duration_since(self.moved) >= STUCK => Verdict::Stuck,
            () => Verdict::Wait,
        }
    }
}

/// Drains the node, if that helps anybody, for `limit` at most.
pub fn drain(node: &Node, signals: &mut Signals, limit: Duration) {
    let used = || node.figures().used_bytes;
    if limit.is_zero() || used() == 0 || !node.copies(Instant::now()).sums.movable {
        return;
    }
    tracing::info!(used = %ByteCount(used()), "draining before the end; a second signal ends it at once");
    node.drain(true);
    let mut leaving = Leaving::begin(Instant::now(), limit, used());
    loop {
        let left = used();
        let verdict = leaving.look(Instant::now(), left, signals.pending().next().is_some());
        let left = ByteCount(left);
        match verdict {
            Verdict::Empty => return tracing::info!("drained"),
            Verdict::Again => return tracing::warn!(%left, "not drained: a second signal"),
            Verdict::Over => return tracing::warn!(%left, "not drained: the time for it is over"),
            Verdict::Stuck => return tracing::warn!(%left, "not drained: nothing moves any more"),
            Verdict::Wait => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_at_the_end_goes_on_while_something_moves_and_not_for_longer_than_its_time() {
        let begun = Instant::now();
        let at = |milliseconds: u64| begun + Duration::from_millis(milliseconds);
        let fresh = || Leaving::begin(begun, Duration::from_secs(20), 100);
        assert_eq!(fresh().look(at(0), 0, false), Verdict::Empty);
        let mut leaving = fresh();
        assert_eq!(leaving.look(at(1999), 100, false), Verdict::Wait);
        assert_eq!(leaving.look(at(2000), 100, false), Verdict::Stuck);
        let mut leaving = fresh();
        for second in 1..20 {
            assert_eq!(leaving.look(at(second * 1000), 100 - second, false), Verdict::Wait);
        }
        assert_eq!(leaving.look(at(20_000), 79, false), Verdict::Over);
        let mut leaving = fresh();
        assert_eq!(leaving.look(at(1900), 99, false), Verdict::Wait);
        assert_eq!(leaving.look(at(3899), 99, false), Verdict::Wait);
        assert_eq!(leaving.look(at(3900), 99, false), Verdict::Stuck);
        assert_eq!(leaving.look(at(3950), 0, true), Verdict::Empty);
        assert_eq!(fresh().look(at(10), 99, true), Verdict::Again);
    }
}
