//! The pool: its rooms, put together in one place, as a backend and as a shard.

use super::allocation::Allocation;
use super::limits::{NODES_MAX, Timing};
use super::links::Links;
use super::load::Loader;
use super::maintenance::{Maintenance, Tasks};
use super::member::NodeAddress;
use super::membership::{Members, Membership};
use super::patch::Patcher;
use super::pings::Pings;
use super::placement::Placement;
use super::rebuild::Rebuilds;
use super::recalls::Recalls;
use super::returns::Returns;
use super::slabs::Slabs;
use super::store::Writer;
use super::table::Replica;
use crate::node_error::NodeError;
use crate::sync::lock;
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Patch, Priority, Shard, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Pages in memory nodes.
pub struct NodePool {
    slabs: Arc<Slabs>,
    loader: Loader,
    writer: Writer,
    patcher: Patcher,
    maintenance: Maintenance,
}

/// Whether the nodes must authenticate themselves.
fn are_secured(nodes: &[NodeAddress]) -> bool {
    nodes.iter().any(|node| node.secured.is_some())
}

impl NodePool {
    /// Opens a session at each node, with room for `quota_bytes` (0: what the node allows); every page is to be held by `replicas`
    /// of them. `url` names the pool in messages. Nodes that do not answer now are used when they do, if there are enough others.
    ///
    /// # Errors
    /// Which node cannot be used, and why.
    pub fn new(
        url: String,
        nodes: Vec<NodeAddress>,
        quota_bytes: u64,
        replicas: usize,
        timing: Timing,
    ) -> Result<NodePool, (String, NodeError)> {
        let is_secured = are_secured(&nodes);
        let slabs = NodePool::open(url, nodes, quota_bytes, replicas, timing)?;
        Ok(NodePool::of(Arc::new(slabs), is_secured, None))
    }

    /// Opens a session at one node, for pages that can be computed from what others have.
    ///
    /// # Errors
    /// As for [`new`](NodePool::new).
    pub fn one_of_several(
        node: NodeAddress,
        quota_bytes: u64,
        timing: Timing,
    ) -> Result<NodePool, (String, NodeError)> {
        let is_secured = node.secured.is_some();
        let mut slabs = NodePool::open(node.url.clone(), vec![node], quota_bytes, 1, timing)?;
        slabs.is_shard = true;
        Ok(NodePool::of(Arc::new(slabs), is_secured, None))
    }

    /// As [`new`](NodePool::new), with nodes that come and go: `membership` tells what has changed since that `version` of them.
    ///
    /// # Errors
    /// As there.
    pub fn following(
        url: String,
        membership: Box<dyn Membership>,
        (version, mut nodes): (u64, Vec<NodeAddress>),
        quota_bytes: u64,
        replicas: usize,
        timing: Timing,
    ) -> Result<NodePool, (String, NodeError)> {
        let waiting = nodes.split_off(nodes.len().min(NODES_MAX));
        let is_secured = are_secured(&nodes);
        let mut slabs = NodePool::open(url, nodes, quota_bytes, replicas, timing)?;
        slabs.links.add_vacant(NODES_MAX);
        let slabs = Arc::new(slabs);
        let members = Members::new(&slabs, membership, version, waiting);
        Ok(NodePool::of(slabs, is_secured, Some(members)))
    }

    fn store_parts(
        &self,
        parts: &[&[u8]],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        assert_eq!(parts.len(), out.len(), "one answer for each page");
        self.slabs.return_empty();
        self.writer.store(parts, priority, out, meanwhile);
    }

    fn open(
        url: String,
        nodes: Vec<NodeAddress>,
        quota_bytes: u64,
        replicas: usize,
        timing: Timing,
    ) -> Result<Slabs, (String, NodeError)> {
        assert!((1..=nodes.len()).contains(&replicas), "{replicas} replicas on {} nodes", nodes.len());
        let opened = Links::open(nodes, quota_bytes, replicas, timing)?;
        Ok(Slabs::new(url, opened, replicas, timing))
    }

    /// Each room refers to those that are here before it.
    fn of(slabs: Arc<Slabs>, is_secured: bool, members: Option<Members>) -> NodePool {
        slabs.fit_table_to_links();
        let placement = Arc::new(Placement::new(&slabs));
        let allocation = Allocation::new(&slabs, &placement);
        let (loader, writer) = (Loader::new(&slabs), Writer::new(&slabs, allocation));
        let patcher = Patcher::new(&slabs);

        let (returns, pings, recalls) = (Returns::new(&slabs), Pings::new(&slabs), Recalls::new(&slabs));
        let rebuilds = Rebuilds::new(&slabs, &placement);
        let tasks = Tasks { members, returns, pings, recalls, rebuilds };
        let maintenance = Maintenance::new(&slabs, is_secured, tasks);
        NodePool { slabs, loader, writer, patcher, maintenance }
    }
}

impl Backend for NodePool {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        let kept = |index: usize| bytes.map_or(PAGE_BYTES, |bytes| bytes[index].into());
        let parts: Vec<&[u8]> = pages.iter().enumerate().map(|(index, page)| &page[..kept(index)]).collect();
        self.store_parts(&parts, priority, out, meanwhile);
    }

    fn keeps_prefixes(&self) -> bool {
        true
    }

    fn prefix_bytes(&self, locations: &mut dyn Iterator<Item = Location>) -> Vec<usize> {
        let table = self.slabs.table();
        locations.map(|location| table.bytes_of(location.0)).collect()
    }

    fn patches(&self) -> bool {
        self.slabs.timing.sub_page
    }

    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        assert_eq!(patches.len(), out.len(), "one answer for each page");
        if self.slabs.timing.sub_page {
            self.patcher.patch(patches, priority, out);
        } else {
            out.fill(false);
        }
    }

    fn link_page_ns(&self) -> u64 {
        self.slabs.links.healthy().iter().map(|link| link.estimate.page_ns()).max().unwrap_or(0)
    }

    fn demand_width(&self) -> usize {
        self.slabs.links.iter().filter(|link| link.lost().is_none()).count() * self.slabs.timing.lanes
    }

    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        self.loader.load(items, priority, done, meanwhile);
    }

    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        self.loader.repair(item, right)
    }

    fn has_losses(&self) -> bool {
        self.slabs.has_lost_slabs()
    }

    fn has_lost(&self, location: Location) -> bool {
        !self.slabs.table().replicas(location.0).iter().any(Replica::is_live)
    }

    fn free(&self, locations: &[Location]) {
        self.slabs.table().free(locations.iter().map(|location| location.0));
    }

    fn copies_cost_ram(&self) -> bool {
        false
    }

    fn ram_bytes(&self) -> u64 {
        let lanes: u64 = self.slabs.links.iter().map(|link| link.ram_bytes()).sum();
        self.slabs.table().table_bytes() + lanes
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        let table_bytes = self.slabs.table().table_bytes();
        for (index, link) in self.slabs.links.iter().enumerate() {
            if link.is_vacant() {
                continue;
            }
            let (pages, parts) = {
                let table = self.slabs.table();
                (table.pages_at(index), table.parts_at(index))
            };
            rows.push(BackendUsage {
                url: link.node.url.clone(),
                pages,
                stored_bytes: pages * PAGE_BYTES as u64,
                ram_bytes: link.ram_bytes() + if index == 0 { table_bytes } else { 0 },
                capacity_bytes: if link.lost().is_some() { 0 } else { link.quota_bytes() },
                bytes_in: link.node.bytes_in.load(Relaxed),
                bytes_out: link.node.bytes_out.load(Relaxed),
                sent_bytes: link.node.sent_bytes.load(Relaxed),
                received_bytes: link.node.received_bytes.load(Relaxed),
                same_filled_pages: 0,
                plain_pages: pages - parts,
                recompressed_pages: 0,
                recompression_saved_bytes: 0,
                promoted_pages: 0,
                demoted_pages: 0,
                tier: 0,
                tier_changes: 0,
                load_one_ns: 0,
                load_queue_ns: 0,
                losses: link.node.losses.load(Relaxed),
                rebuilt_pages: link.node.rebuilt_pages.load(Relaxed),
                hedged_loads: link.node.hedged_loads.load(Relaxed),
                lacking_pages: link.last_report.lacking_pages(),
                last_pages: link.last_report.last_pages(),
                copied_pages: lock(&link.node.copied).sum(Instant::now()),
                absent: link.is_absent(),
                // Nothing is there once it is lost.
                needed: link.lost().is_none() && !link.last_report.is_spare(),
                encrypted: false,
                link_processes: 0,
            });
        }
    }

    fn needs_maintenance(&self) -> bool {
        self.maintenance.is_needed()
    }

    fn maintain(&self) -> Option<Duration> {
        self.maintenance.step()
    }

    fn before_fork(&self) {
        self.slabs.links.iter().for_each(|link| link.before_fork());
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        let lost_before = self.slabs.table().first_loss().is_some();
        for link in self.slabs.links.iter() {
            let went_on = match side {
                ForkSide::Parent => link.after_fork_in_parent(),
                ForkSide::Child => link.after_fork_in_child(),
            };
            if let Err(error) = went_on
                && link.lose(&error)
            {
                self.slabs.count_loss();
            }
        }
        self.slabs.fit_table_to_links();
        match self.slabs.table().first_loss() {
            Some((url, error)) if side == ForkSide::Child && !lost_before => Err(StoreError::Lost { url, error }),
            _ => Ok(()),
        }
    }
}

impl Shard for NodePool {
    fn is_there(&self) -> bool {
        self.slabs.links.iter().any(|link| link.lost().is_none())
    }

    fn may_have_room(&self) -> bool {
        self.slabs.links.healthy().iter().any(|link| link.may_have_room())
    }

    fn losses(&self) -> u64 {
        self.slabs.links.iter().map(|link| link.node.losses.load(Relaxed)).sum()
    }

    fn count_rebuilt(&self, pages: u64) {
        self.slabs.links.at(0).node.rebuilt_pages.fetch_add(pages, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::links::Opened;
    use super::*;

    #[test]
    fn whether_maintenance_is_needed_is_told_whatever_is_locked() {
        let opened = Opened { links: Links::vacant(1), slab_bytes: 1 << 20, is_whole: true };
        let slabs = Arc::new(Slabs::new("tcp://nobody".into(), opened, 1, Timing::default()));
        let pool = NodePool::of(slabs, true, None);
        let _held = (pool.slabs.links.hold(0), pool.slabs.table(), pool.maintenance.hold());
        // In a thread of its own: one that locked twice would not wait, but panic.
        assert!(std::thread::scope(|scope| scope.spawn(|| pool.needs_maintenance()).join()).expect("an answer"));
    }
}
