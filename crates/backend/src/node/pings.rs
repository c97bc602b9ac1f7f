//! Pings of nodes that no load uses, now and then: they show latency and loss.

use super::link::Link;
use super::slabs::Slabs;
use std::sync::Arc;
use std::time::Instant;

/// Asks nodes for a sign of life.
pub(super) struct Pings {
    slabs: Arc<Slabs>,
    pinged: Option<Instant>,
    /// How often one of them was asked.
    count: usize,
}

impl Pings {
    pub(super) fn new(slabs: &Arc<Slabs>) -> Pings {
        Pings { slabs: slabs.clone(), pinged: None, count: 0 }
    }

    /// Asks the next one, if it is time: what its answer takes bounds its latency, and who gives none is lost.
    pub(super) fn ping_next(&mut self) {
        let slabs = &*self.slabs;
        if self.pinged.is_some_and(|pinged| pinged.elapsed() < slabs.timing.ping) {
            return;
        }
        let asked: Vec<Arc<Link>> = slabs.links.healthy().into_iter().filter(|link| link.is_passed_by()).collect();
        if !asked.is_empty() {
            // In turn.
            let link = &asked[self.count % asked.len()];
            (self.count, self.pinged) = (self.count.wrapping_add(1), Some(Instant::now()));
            let begun = Instant::now();
            match link.ping(slabs.patience(link)) {
                Ok(()) => link.estimate.at_most(begun.elapsed()),
                Err(error) if error.is_absence() => slabs.handle_error(link, &error),
                // It is there: the lanes that are used find out what is wrong.
                Err(_) => {}
            }
        }
        slabs.update_slow_nodes();
    }
}
