//! Nodes that were lost, or have joined: when each is tried again.

use super::limits::{STEADY, Timing};
use super::slabs::Slabs;
use hinterland_sys::confinement;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tries lost nodes again.
pub(super) struct Returns {
    slabs: Arc<Slabs>,
    nodes: Vec<Return>,
}

/// When a node that is lost is to be tried again.
struct Return {
    pause: Duration,
    /// When the last attempt was, or when it came back.
    since: Instant,
    /// It is looked for: it has not left the pool.
    belongs: bool,
}

impl Return {
    fn fresh(timing: &Timing) -> Return {
        Return { pause: timing.return_min, since: Instant::now(), belongs: true }
    }
}

impl Returns {
    pub(super) fn new(slabs: &Arc<Slabs>) -> Returns {
        let nodes = (0..slabs.links.len()).map(|_| Return::fresh(&slabs.timing)).collect();
        Returns { slabs: slabs.clone(), nodes }
    }

    /// Whether the node at a place is looked for.
    pub(super) fn belongs(&self, index: usize) -> bool {
        self.nodes[index].belongs
    }

    /// From now on, the nodes at those places are looked for that `belong`.
    pub(super) fn look_for(&mut self, belong: impl Fn(usize) -> bool) {
        self.nodes.iter_mut().enumerate().for_each(|(index, again)| again.belongs = belong(index));
    }

    /// Another node has a place.
    pub(super) fn begin_anew(&mut self, index: usize) {
        self.nodes[index] = Return::fresh(&self.slabs.timing);
    }

    /// Opens a new link to a lost node that is due, if there is one; of several, the one that has waited longest. Whether one was tried.
    pub(super) fn try_one(&mut self) -> bool {
        let Returns { slabs, nodes } = self;
        let timing = &slabs.timing;
        let is_due = |(index, again): &(usize, &mut Return)| {
            again.belongs && again.since.elapsed() >= again.pause && slabs.links.at(*index).is_away()
        };
        let due = nodes.iter_mut().enumerate().filter(is_due).min_by_key(|(_, again)| again.since);
        let Some((index, again)) = due else { return false };
        // Perhaps it was what we showed.
        if let Some(secured) = &slabs.links.at(index).node.secured {
            confinement::with_files(|| secured.credentials.again());
        }
        // Its session ends with its lanes.
        let is_back = slabs.links.open_again(index, slabs.slab_bytes, timing.return_limit);
        let steady = again.since.elapsed() > again.pause + STEADY;
        again.pause = if steady { timing.return_min } else { (again.pause * 2).min(timing.return_max) };
        again.since = Instant::now();
        if is_back {
            // At once: with one node more, more replicas are wanted of what is stored from now on.
            slabs.fit_table_to_links();
        }
        true
    }
}
