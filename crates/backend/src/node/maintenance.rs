//! The maintenance of a pool: lost nodes are tried again, nodes that no load uses are pinged, slabs with too few
//! replicas are rebuilt, a message at a time, and certificates and keys are read again when their files have changed.
//!
//! One call of `step` takes one step, which a fork may have to wait for.

use super::membership::Members;
use super::pings::Pings;
use super::rebuild::Rebuilds;
use super::recalls::Recalls;
use super::returns::Returns;
use super::slabs::Slabs;
use crate::sync::lock;
use hinterland_sys::confinement;
use hinterland_tls::LOOK_EVERY;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// See the module.
pub(super) struct Maintenance {
    slabs: Arc<Slabs>,
    /// The nodes must authenticate themselves.
    is_secured: bool,
    tasks: Mutex<Tasks>,
}

/// What there is to be done, by who does it.
pub(super) struct Tasks {
    /// Where nodes come and go.
    pub(super) members: Option<Members>,
    pub(super) returns: Returns,
    pub(super) pings: Pings,
    pub(super) recalls: Recalls,
    pub(super) rebuilds: Rebuilds,
}

impl Maintenance {
    pub(super) fn new(slabs: &Arc<Slabs>, is_secured: bool, tasks: Tasks) -> Maintenance {
        Maintenance { slabs: slabs.clone(), is_secured, tasks: Mutex::new(tasks) }
    }

    /// Whether `step` is to be called now and then.
    pub(super) fn is_needed(&self) -> bool {
        // Nodes of a pool are asked now and then what they want back, and certificates are renewed.
        self.slabs.has_others() || self.is_secured || self.slabs.is_maintenance_due()
    }

    /// Takes one step; returns when the next is due. `None`: nothing is to be done.
    pub(super) fn step(&self) -> Option<Duration> {
        let mut tasks = lock(&self.tasks);
        let Tasks { members, returns, pings, recalls, rebuilds } = &mut *tasks;
        let slabs = &*self.slabs;
        // Before looking: what comes to light while we look says so again.
        let was_due = slabs.take_maintenance_due();
        if let Some(members) = members {
            members.hear(returns);
        }
        self.look_at_files();
        // One wait at most for a node that does not answer: a fork waits for this step.
        let mut changed = false;
        if recalls.are_urgent() {
            changed = recalls.ask();
        } else if !returns.try_one() {
            pings.ping_next();
            changed = recalls.ask();
        }
        let pause = rebuilds.step();
        if was_due || changed || pause.is_some() {
            slabs.fit_table_to_links();
        }
        slabs.return_unread();
        slabs.return_empty();
        let pause = pause.or_else(|| slabs.is_maintenance_due().then_some(slabs.timing.step));
        let pause = pause.or_else(|| slabs.has_others().then_some(slabs.timing.idle_step));
        pause.or_else(|| self.is_secured.then_some(LOOK_EVERY))
    }

    /// Takes new certificates and keys for lanes that are made from now on. It is the launcher that says what is wrong with them.
    fn look_at_files(&self) {
        if !self.is_secured {
            return;
        }
        for link in self.slabs.links.iter() {
            if let Some(secured) = &link.node.secured {
                confinement::with_files(|| secured.credentials.look(LOOK_EVERY));
            }
        }
    }
}

#[cfg(test)]
impl Maintenance {
    /// Locks what a step does.
    pub(super) fn hold(&self) -> std::sync::MutexGuard<'_, Tasks> {
        lock(&self.tasks)
    }
}
