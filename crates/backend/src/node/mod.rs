//! Memory nodes: pages in other processes, over TCP or UNIX sockets.
//!
//! ```text
//! location = slot in the pool's slabs (slots) ──► replicas of the slab (table) ──► link: a session at a node, its lanes
//! loads from a node on this machine: a copy out of its memory  (views)
//! demand loads: lanes of their own, the thread that waits makes its own request        (load)
//! a demand that is late: also asked of a second node, and whoever answers first is heard  (hedge)
//! loads of many pages: from all of their nodes at a time                                (load, transfer)
//! stores: to every replica, several messages under way on each; durable when all answered  (store)
//! new slabs: on as many nodes as there are replicas, or as stay and have room; of two chosen at random the one with more  (placement)
//! what is stored in a row: spread over several slabs, in pieces                          (slots)
//! lost nodes, lost replicas: a thread of the pager's calls `maintain`                          (maintenance)
//! slabs that nodes want back: it moves them to others                                      (recall)
//! what would be lost with a node: told to it now and then                                      (report)
//! nodes that join and leave                                                                (membership)
//! ```
//! This process decides which slot holds which page; the nodes only know slabs and bytes. So a `free` is no message.
//!
//! **Fork.** `before_fork` has each node clone the session there; the child connects to the clones. No message is under way then, so
//! the clones are of one moment. Both go on with the same table, and a node copies a slab when one of them writes to it.
//!
//! **Loss.** A node that does not answer in time, hangs up or answers nonsense is lost, and what it held with it. Pages that have
//! a replica elsewhere are loaded from there, and their slabs are rebuilt on other nodes; a node that comes back is a new, empty
//! one. A page without a replica cannot be loaded any more, which ends the program that wants it.
//!
//! Sources: power of two choices (Mitzenmacher 2001; Infiniswap §4.1, Leap §4.4), replicas by slab (Carbink §2.3, Hydra §2.2 as
//! what it is compared with), bounded rebuilding in the background (Hydra §4.4).

mod channel;
mod hedge;
mod lane;
mod lanes;
mod latency;
mod limits;
mod link;
mod link_estimate;
mod load;
mod maintenance;
mod membership;
mod placement;
mod recall;
mod report;
mod slots;
mod store;
mod table;
mod transfer;
mod views;

use crate::node_error::NodeError;
use crate::samples::Rng;
use crate::sync::lock;
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Priority, Shard, StoreError};
pub use channel::Secured;
use hinterland_sys::Address;
use hinterland_units::{PAGE_BYTES, PageBytes};
use hinterland_wire::SLABS_MAX;
pub use limits::{AnswerLimit, NODES_MAX, Timing};
use link::{Link, Node};
use maintenance::Maintenance;
pub use membership::Membership;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use table::{Lacks, Replica, Table, Wanted};

/// Pages in memory nodes.
pub struct NodePool {
    url: String,
    /// What the program was called when it began.
    name: Arc<str>,
    slab_bytes: u64,
    /// Nodes that hold each page, if there are so many.
    replicas: usize,
    /// Others can do without it: its node is given up sooner, and looked for when it is lost.
    is_shard: bool,
    /// Its nodes must prove who they are.
    is_secured: bool,
    timing: Timing,
    /// The link to each node in use now.
    links: Vec<Mutex<Arc<Link>>>,
    table: Mutex<Table>,
    /// Held while slabs are asked for.
    growing: Mutex<()>,
    draws: AtomicU64,
    /// Something is to be done in the background.
    maintenance_due: AtomicBool,
    /// Pages have no second replica, or fewer than can be had.
    degraded: AtomicBool,
    /// When the nodes had no slab left: for a while those that are being emptied get pages, too.
    crowded: Mutex<Option<Instant>>,
    /// When there was no slab to be had for more to be filled at a time.
    unspread: Mutex<Option<Instant>>,
    maintenance: Mutex<Maintenance>,
    /// Who belongs to it, where that changes.
    membership: Option<Box<dyn Membership>>,
}

/// A node that a pool is to use.
#[derive(Clone, Debug)]
pub struct NodeAddress {
    /// What it is called in messages and figures.
    pub url: String,
    /// Where it listens.
    pub address: Address,
    /// How both sides prove who they are; `None`: they do not.
    pub secured: Option<Secured>,
    /// How long it may leave a request unanswered.
    pub limit: AnswerLimit,
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
        assert!((1..=nodes.len()).contains(&replicas), "{replicas} replicas on {} nodes", nodes.len());
        let is_secured = nodes.iter().any(|node| node.secured.is_some());
        let name: Arc<str> = std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().into();
        let (mut links, mut slab, mut away) = (Vec::new(), None, None);
        for (index, address) in nodes.into_iter().enumerate() {
            let node = Arc::new(Node::new(index, address, quota_bytes, replicas > 1, timing));
            let refused = |error| Err((node.url.clone(), error));
            links.push(match Link::open(&node, &name, node.limit()) {
                Ok((_, is)) if slab.is_some_and(|others| others != is) => {
                    return refused(NodeError::SlabSize { is, others: slab.unwrap_or(0) });
                }
                Ok((link, is)) => {
                    slab = Some(is);
                    link
                }
                Err(error) if error.may_pass() => {
                    let link = Link::never(&node, &name, error.clone());
                    away = away.or(Some((node.url.clone(), error)));
                    link
                }
                Err(error) => return refused(error),
            });
        }
        let there = links.iter().filter(|link| link.lost().is_none()).count();
        match (slab, away) {
            (None, Some(away)) => Err(away),
            (_, Some(away)) if there < replicas => Err(away),
            (slab, away) => {
                let slab_bytes = slab.expect("a node that is there");
                let pool = NodePool {
                    url,
                    name,
                    slab_bytes,
                    replicas,
                    is_shard: false,
                    is_secured,
                    timing,
                    links: links.into_iter().map(|link| Mutex::new(Arc::new(link))).collect(),
                    table: Mutex::new(Table::new(slab_bytes, timing.refused)),
                    growing: Mutex::new(()),
                    draws: AtomicU64::new(u64::from(std::process::id())),
                    maintenance_due: AtomicBool::new(away.is_some()),
                    degraded: AtomicBool::new(false),
                    crowded: Mutex::new(None),
                    unspread: Mutex::new(None),
                    maintenance: Mutex::new(Maintenance::default()),
                    membership: None,
                };
                pool.refresh();
                Ok(pool)
            }
        }
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
        let pool = NodePool::new(node.url.clone(), vec![node], quota_bytes, 1, timing)?;
        Ok(NodePool { is_shard: true, ..pool })
    }

    /// Whether the loss of a node need not be the end.
    fn has_others(&self) -> bool {
        self.links.len() > 1 || self.is_shard
    }

    /// The links that can be used now.
    fn healthy(&self) -> Vec<Arc<Link>> {
        self.links.iter().map(|link| lock(link).clone()).filter(|link| link.lost().is_none()).collect()
    }

    /// A random number.
    fn draw(&self) -> u64 {
        Rng(self.draws.fetch_add(0x9e37_79b9, Relaxed)).next_u64()
    }

    /// What can be had of `healthy` links: replicas on those that stay and have room, at least one.
    fn wanted(&self, healthy: &[Arc<Link>]) -> Wanted {
        let stays = |link: &&Arc<Link>| !link.recall.is_total();
        let is_fast = |link: &&Arc<Link>| !link.slow.load(Relaxed);
        let roomy = healthy.iter().filter(stays).filter(|link| !link.is_full()).count();
        let replicas = self.replicas.min(roomy.max(1)).min(healthy.len());
        let avoid_slow = healthy.iter().filter(is_fast).count() >= replicas;
        let avoid_leaving = healthy.iter().any(|link| stays(&link))
            && lock(&self.crowded).is_none_or(|since| since.elapsed() >= self.timing.refused);
        let good = healthy.iter().filter(stays).filter(is_fast).count();
        let spread = good.div_ceil(replicas.max(1));
        Wanted { all: self.replicas, replicas, avoid_slow, avoid_leaving, spread }
    }

    /// Fits the table to the links as they are now.
    fn refresh(&self) {
        let mut table = lock(&self.table);
        // With the table locked, so that of two at a time the later one has the later view.
        let healthy = self.healthy();
        let Lacks { replicas: lacking, second } = table.refresh(self.wanted(&healthy));
        self.degraded.store(lacking || second, Relaxed);
        drop(table);
        let passed_by = healthy.iter().any(|link| link.is_passed_by());
        let away = self.links.iter().any(|link| lock(link).is_away());
        if self.has_others() && (lacking || passed_by || away) {
            self.maintenance_due.store(true, Relaxed);
        }
    }

    /// Ends the use of a link for an error that is the node's, and more than that it is full.
    fn judge(&self, link: &Link, error: &NodeError) {
        if !error.is_full() && !error.is_local() && link.lose(error) {
            self.refresh();
        }
    }

    /// Looks which nodes are much slower than others, after one was as slow as that.
    fn weigh(&self) {
        let healthy = self.healthy();
        let means = healthy.iter().map(|link| link.latency.mean_ns()).filter(|mean| *mean > 0);
        let Some(fastest_ns) = means.min() else { return };
        let changed = healthy.iter().fold(false, |changed, link| {
            let before = link.slow.load(Relaxed);
            let now = link.latency.is_slow(fastest_ns, before);
            link.slow.store(now, Relaxed);
            changed || now != before || link.is_passed_by() && !self.maintenance_due.load(Relaxed)
        });
        if changed {
            self.refresh();
        }
    }

    /// Whether others have all that a node has: it is waited for half as long, so that a stall stays below the limit.
    fn is_replaceable(&self) -> bool {
        self.replicas > 1 && !self.degraded.load(Relaxed) && self.healthy().len() > 1 || self.is_shard
    }

    /// How long an answer over a link is waited for before its node is lost.
    fn patience(&self, link: &Link) -> Duration {
        link.node.patience(self.is_replaceable())
    }

    fn store_error(&self, link: &Link, error: &NodeError) -> StoreError {
        let node = &link.node.url;
        match error {
            NodeError::Refused { used_bytes, capacity_bytes, words, .. } if error.is_full() => {
                // Of several nodes, one says for all why.
                let (url, by) =
                    if self.links.len() == 1 { (node, String::new()) } else { (&self.url, format!("{node}: ")) };
                StoreError::Full {
                    url: url.clone(),
                    words: Some(format!("takes no more: {by}{words}")),
                    used_bytes: *used_bytes,
                    capacity_bytes: *capacity_bytes,
                }
            }
            _ => StoreError::Lost { url: node.clone(), error: error.clone() },
        }
    }

    /// Gives slabs without a page back to the nodes.
    fn return_empty(&self) {
        let mut table = lock(&self.table);
        if !table.has_empty() {
            return;
        }
        let empty = table.take_empty(SLABS_MAX);
        drop(table);
        let replicas: Vec<Replica> = empty.iter().flat_map(|replicas| replicas.iter().cloned()).collect();
        drop(empty);
        // An answer that was not waited for may still be read there.
        let (unread, read): (Vec<Replica>, Vec<Replica>) = replicas.into_iter().partition(Replica::is_unused);
        lock(&self.table).keep_leaving(&read);
        self.give_up(&unread);
    }
}

impl Backend for NodePool {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.store_while(pages, priority, out, &mut || ());
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.load_pages(items, priority, done);
    }

    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        self.load_right(item, right)
    }

    fn free(&self, locations: &[Location]) {
        lock(&self.table).free(locations.iter().map(|location| location.0));
    }

    fn copies_cost_ram(&self) -> bool {
        false
    }

    fn ram_bytes(&self) -> u64 {
        let lanes: u64 = self.links.iter().map(|link| lock(link).ram_bytes()).sum();
        lock(&self.table).table_bytes() + lanes
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        let table_bytes = lock(&self.table).table_bytes();
        for (index, link) in self.links.iter().enumerate() {
            let link = lock(link).clone();
            if link.is_vacant() {
                continue;
            }
            let pages = lock(&self.table).pages_at(index);
            rows.push(BackendUsage {
                url: link.node.url.clone(),
                pages,
                stored_bytes: pages * PAGE_BYTES as u64,
                ram_bytes: link.ram_bytes() + if index == 0 { table_bytes } else { 0 },
                capacity_bytes: if link.lost().is_some() { 0 } else { link.quota_bytes() },
                bytes_in: link.node.bytes_in.load(Relaxed),
                bytes_out: link.node.bytes_out.load(Relaxed),
                same_filled_pages: 0,
                plain_pages: pages,
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
            });
        }
    }

    fn needs_maintenance(&self) -> bool {
        // Nodes of a pool are asked now and then what they want back, and certificates are renewed.
        self.has_others() || self.is_secured || self.maintenance_due.load(Relaxed)
    }

    fn maintain(&self) -> Option<Duration> {
        self.maintain_once()
    }

    fn before_fork(&self) {
        self.links.iter().for_each(|link| lock(link).before_fork());
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        let lost_before = lock(&self.table).first_loss().is_some();
        for link in &self.links {
            let link = lock(link).clone();
            let went_on = match side {
                ForkSide::Parent => link.after_fork_in_parent(),
                ForkSide::Child => link.after_fork_in_child(),
            };
            if let Err(error) = went_on {
                link.lose(&error);
            }
        }
        self.refresh();
        match lock(&self.table).first_loss() {
            Some((url, error)) if side == ForkSide::Child && !lost_before => Err(StoreError::Lost { url, error }),
            _ => Ok(()),
        }
    }
}

impl Shard for NodePool {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        self.return_empty();
        self.store_pages(pages, priority, out, meanwhile);
    }

    fn is_there(&self) -> bool {
        self.links.iter().any(|link| lock(link).lost().is_none())
    }

    fn may_have_room(&self) -> bool {
        self.healthy().iter().any(|link| link.may_have_room())
    }

    fn has_lost(&self, location: Location) -> bool {
        !lock(&self.table).replicas(location.0).iter().any(Replica::is_live)
    }

    fn losses(&self) -> u64 {
        self.links.iter().map(|link| lock(link).node.losses.load(Relaxed)).sum()
    }

    fn count_rebuilt(&self, pages: u64) {
        lock(&self.links[0]).node.rebuilt_pages.fetch_add(pages, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_maintenance_is_needed_is_told_whatever_is_locked() {
        let (name, timing) = (Arc::from("test"), Timing::default());
        let pool = NodePool {
            url: "tcp://nobody".into(),
            slab_bytes: 1 << 20,
            replicas: 1,
            is_shard: false,
            is_secured: true,
            timing,
            links: vec![Mutex::new(Arc::new(Link::vacant(0, &name)))],
            table: Mutex::new(Table::new(1 << 20, timing.refused)),
            growing: Mutex::new(()),
            draws: AtomicU64::new(1),
            maintenance_due: AtomicBool::new(false),
            degraded: AtomicBool::new(false),
            crowded: Mutex::new(None),
            unspread: Mutex::new(None),
            maintenance: Mutex::new(Maintenance::default()),
            membership: None,
            name,
        };
        let _held = (lock(&pool.links[0]), lock(&pool.table), lock(&pool.growing), lock(&pool.maintenance));
        // In a thread of its own: one that locked twice would not wait, but panic.
        assert!(std::thread::scope(|scope| scope.spawn(|| pool.needs_maintenance()).join()).expect("an answer"));
    }
}
