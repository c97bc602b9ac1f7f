//! Reports of this process to its nodes on the copies of its pages, so that a node can say whether it may be removed
//! now.
//!
//! ```text
//! the next nodes' turn ──► their slabs in the table ──► how many of these pages lie on other nodes that answered lately? ──► Report
//! ```
//! A slab that is leased and not in the table yet, or not any more, makes a report of its node say no: the thread that
//! leased it may enter it as the only replica at any moment. The node sees by the number of leases whether a report
//! covers all slabs.

use super::link::Link;
use super::slabs::Slabs;
use super::table::has_place;
use crate::node_error::NodeError;
use crate::sync::lock;
use hinterland_wire::CopiesReport;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

/// What is to be said of a link now. Reads the number of leases before the table: a slab that is leased between is not covered.
fn report_of(slabs: &Slabs, link: &Arc<Link>) -> CopiesReport {
    let leases = link.leases.load(Acquire);
    let healthy = slabs.links.healthy();
    let fresh: Vec<&Arc<Link>> =
        healthy.iter().filter(|other| other.answered_within(slabs.timing.fresh) && !Arc::ptr_eq(other, link)).collect();
    let roomy: Vec<Arc<Link>> = healthy
        .iter()
        .filter(|other| !other.recall.is_some() && other.may_have_room() && !Arc::ptr_eq(other, link))
        .cloned()
        .collect();
    let has_copy = |other: &Arc<Link>| fresh.iter().any(|fresh| Arc::ptr_eq(fresh, other));
    let table = slabs.table();
    let there = table.at_link(link, has_copy, |replicas| has_place(&roomy, replicas));
    // Under the table's lock: who enters a slab, or takes one out, does so before or after all of this.
    let is_whole = link.slabs.load(Relaxed) == there.slabs;
    drop(table);
    let may_lease = !link.recall.is_total() && !link.is_full();
    let places_alone = slabs.wanted(&healthy).replicas < 2 && may_lease;
    CopiesReport {
        leases,
        pages: there.pages,
        lacking_pages: there.lacking_pages,
        last_pages: there.last_pages,
        copied_pages: lock(&link.node.copied).sum(Instant::now()),
        spare: is_whole && there.last_slabs == 0 && !places_alone,
        movable: there.movable_slabs > 0,
    }
}

/// Tells a node what it may want to know, and hears what it wants back.
pub(super) fn report(slabs: &Slabs, link: &Arc<Link>) -> Result<(), NodeError> {
    let report = report_of(slabs, link);
    link.last_report.set(&report);
    link.ask_recall(&report)
}
