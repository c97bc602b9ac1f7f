//! The health of a pool: whether its pages have all their copies, and whether it gets slabs for more.
//!
//! ```text
//!                    pages lack copies   they lack none      no node leases a slab
//! Healthy            Degraded            Healthy             Crowded
//! Degraded           Degraded            Healthy             Crowded, degraded
//! Crowded { until }  before `until` it stays Crowded,        Crowded, for longer
//!                    from then on: as Healthy
//! ```
//! *Degraded*: nodes are waited for as long as they may take, because no other has what they have. *Crowded*: nodes that are being
//! emptied get pages, too, which is better than none; a while later it is tried without them again.

use std::time::{Duration, Instant};

/// The state of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    /// Pages have as many copies as can be had, and more than one if they are to have more.
    Healthy,
    /// Pages have fewer.
    Degraded,
    /// The nodes leased no slab a short while ago. Pages may lack copies, too.
    Crowded { until: Instant, is_degraded: bool },
}

/// What changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The table was fitted to the links as they are now: whether pages lack copies.
    Fitted { lacks: bool },
    /// No node leased a slab; that is believed for so long.
    NoSlab { pause: Duration },
}

impl Health {
    /// The state after `event`.
    pub(super) fn after(self, event: Event, now: Instant) -> Health {
        match (self, event) {
            (_, Event::NoSlab { pause }) => Health::Crowded { until: now + pause, is_degraded: self.is_degraded() },
            (Health::Crowded { until, .. }, Event::Fitted { lacks }) if now < until => {
                Health::Crowded { until, is_degraded: lacks }
            }
            (_, Event::Fitted { lacks: true }) => Health::Degraded,
            (_, Event::Fitted { lacks: false }) => Health::Healthy,
        }
    }

    /// Whether pages lack copies.
    pub(super) fn is_degraded(self) -> bool {
        matches!(self, Health::Degraded | Health::Crowded { is_degraded: true, .. })
    }

    /// Whether nodes leased no slab a short while ago.
    pub(super) fn is_crowded(self, now: Instant) -> bool {
        matches!(self, Health::Crowded { until, .. } if now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    /// Every state, event and time of it: the transitions of the picture, and no others.
    #[test]
    fn a_pool_is_crowded_for_a_while_and_degraded_until_pages_lack_nothing() {
        let now = Instant::now();
        let crowded = |until, is_degraded| Health::Crowded { until, is_degraded };
        let plain = |lacks| if lacks { Health::Degraded } else { Health::Healthy };
        for lacked in [false, true] {
            for lacks in [false, true] {
                assert_eq!(plain(lacked).after(Event::Fitted { lacks }, now), plain(lacks));
                let before = crowded(now + PAUSE, lacked);
                assert_eq!(before.after(Event::Fitted { lacks }, now), crowded(now + PAUSE, lacks));
                let at_the_end = before.after(Event::Fitted { lacks }, now + PAUSE);
                assert_eq!(at_the_end, plain(lacks), "its time is over, and no sooner");
            }
            for before in [plain(lacked), crowded(now, lacked), crowded(now + PAUSE / 2, lacked)] {
                assert_eq!(before.is_degraded(), lacked);
                assert_eq!(before.after(Event::NoSlab { pause: PAUSE }, now), crowded(now + PAUSE, lacked));
            }
        }
    }

    /// Who asks need not have the state fitted first.
    #[test]
    fn nobody_is_crowded_longer_than_a_refusal_is_believed() {
        let now = Instant::now();
        assert!(!Health::Healthy.is_crowded(now) && !Health::Degraded.is_crowded(now));
        let crowded = Health::Degraded.after(Event::NoSlab { pause: PAUSE }, now);
        assert!(crowded.is_crowded(now) && crowded.is_crowded(now + PAUSE - Duration::from_nanos(1)));
        assert!(!crowded.is_crowded(now + PAUSE) && crowded.is_degraded());
    }
}
