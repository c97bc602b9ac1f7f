//! A stalled drain or resize: the log names the sessions that it waits for.

use crate::node::Node;
use crate::slab::SLAB_BYTES;
use hinterland_units::Foreign;
use std::time::{Duration, Instant};

/// Time without a slab that came back after which it is said that nothing moves.
const STUCK: Duration = Duration::from_secs(10);
/// Sessions that are named.
const NAMED_MAX: usize = 8;

/// How far it is.
#[derive(Default)]
pub(crate) struct Progress {
    /// What was in use when that changed last.
    last: Option<(u64, Instant)>,
    told: bool,
}

impl Progress {
    /// Whether it is to be said now that nothing moves: `used` is leased, of which some is wanted back if `waits`.
    fn look(&mut self, now: Instant, waits: bool, used: u64) -> bool {
        let same = self.last.filter(|(last, _)| waits && *last == used);
        let Some((_, since)) = same else {
            *self = Progress { last: waits.then_some((used, now)), told: false };
            return false;
        };
        let tells = !self.told && now.saturating_duration_since(since) >= STUCK;
        self.told |= tells;
        tells
    }
}

impl Node {
    /// Says in the log whom a drain waits for, when nothing moves.
    pub(crate) fn watch_drain(&self, progress: &mut Progress, now: Instant) {
        let used_bytes = self.used_bytes();
        let over_bytes = if self.is_draining() { used_bytes } else { used_bytes.saturating_sub(self.lent_bytes()) };
        if progress.look(now, over_bytes > 0, used_bytes) {
            let holders = self.largest_sessions(NAMED_MAX).into_iter().filter(|session| session.slabs > 0);
            let names: Vec<String> =
                holders.map(|session| format!("{} ({} slabs)", Foreign(&session.name), session.slabs)).collect();
            let to_move = over_bytes / SLAB_BYTES;
            let holders = names.join(", ");
            tracing::warn!(
                slabs = to_move,
                holders,
                "nothing moves: the programs that hold the rest have no other node with room, or do not answer; it waits until they do"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_when_nothing_has_moved_for_ten_seconds() {
        let (mut progress, begun) = (Progress::default(), Instant::now());
        let mut look =
            |milliseconds: u64, waits, used| progress.look(begun + Duration::from_millis(milliseconds), waits, used);
        assert!(!look(0, false, 5) && !look(60_000, false, 5));
        assert!(!look(60_000, true, 5) && !look(69_999, true, 5));
        assert!(look(70_000, true, 5) && !look(70_050, true, 5) && !look(90_000, true, 5));
        // Something moves, and then no more.
        assert!(!look(90_001, true, 4) && !look(100_000, true, 4));
        assert!(look(100_001, true, 4));
        // The operator thinks better of it.
        assert!(!look(100_100, false, 4) && !look(100_200, true, 4) && !look(110_000, true, 4));
        assert!(look(110_200, true, 4));
    }
}
