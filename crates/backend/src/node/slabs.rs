//! The core of a pool: its links, the table of its slabs, and the code that keeps the two consistent.
//!
//! Every room works on it. What loses a link ([`handle_error`](Slabs::handle_error)), finds one slow
//! ([`update_slow_nodes`](Slabs::update_slow_nodes)) or opens one again has the table fitted to the links
//! ([`fit_table_to_links`](Slabs::fit_table_to_links)), so that of two changes at a time the later one has the later view.

use super::health::{Event, Health};
use super::limits::{DAMAGES_MAX, Timing};
use super::link::Link;
use super::links::{Links, Opened};
use super::table::{Degradation, Replica, Table, Wanted};
use crate::node_error::NodeError;
use crate::sync::lock;
use crate::{FullCause, Location, StoreError};
use hinterland_wire::SLABS_MAX;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Slabs {
    /// What the pool is called in messages.
    pub(super) url: String,
    pub(super) slab_bytes: u64,
    /// Nodes that hold each page, if there are so many.
    pub(super) replicas: usize,
    /// Others can do without it: its node is given up sooner, and looked for when it is lost.
    pub(super) is_shard: bool,
    pub(super) timing: Timing,
    pub(super) links: Links,
    table: Mutex<Table>,
    health: Mutex<Health>,
    /// Something is to be done in the background.
    maintenance_due: AtomicBool,
    /// A slab with pages has lost its last replica.
    has_lost_slabs: AtomicBool,
    /// Links that were lost so far.
    losses: AtomicU64,
}

impl Slabs {
    /// Without slabs yet.
    pub(super) fn new(url: String, opened: Opened, replicas: usize, timing: Timing) -> Slabs {
        let Opened { links, slab_bytes, is_whole } = opened;
        Slabs {
            url,
            slab_bytes,
            replicas,
            is_shard: false,
            timing,
            links,
            table: Mutex::new(Table::new(slab_bytes, &timing)),
            health: Mutex::new(Health::Healthy),
            maintenance_due: AtomicBool::new(!is_whole),
            has_lost_slabs: AtomicBool::new(false),
            losses: AtomicU64::new(0),
        }
    }

    /// Which slabs there are, and where.
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Whether the loss of a node need not be the end.
    pub(super) fn has_others(&self) -> bool {
        self.links.len() > 1 || self.is_shard
    }

    /// Whether a slab with pages has ever lost its last replica.
    pub(super) fn has_lost_slabs(&self) -> bool {
        self.has_lost_slabs.load(Relaxed)
    }

    /// How many links have been lost so far.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Relaxed)
    }

    /// A link was lost: the nodes at the others are to be told.
    pub(super) fn count_loss(&self) {
        self.losses.fetch_add(1, Relaxed);
    }

    /// Whether something is to be done in the background.
    pub(super) fn is_maintenance_due(&self) -> bool {
        self.maintenance_due.load(Relaxed)
    }

    /// As `is_maintenance_due`; what comes to light from now on says so again.
    pub(super) fn take_maintenance_due(&self) -> bool {
        self.maintenance_due.swap(false, Relaxed)
    }

    /// What can be had of `healthy` links: replicas on those that stay and have room, at least one.
    pub(super) fn wanted(&self, healthy: &[Arc<Link>]) -> Wanted {
        let stays = |link: &&Arc<Link>| !link.recall.is_total();
        let is_fast = |link: &&Arc<Link>| !link.slow.load(Relaxed);
        let roomy = healthy.iter().filter(stays).filter(|link| !link.is_full()).count();
        let replicas = self.replicas.min(roomy.max(1)).min(healthy.len());
        let avoid_slow = healthy.iter().filter(is_fast).count() >= replicas;
        let avoid_leaving = healthy.iter().any(|link| stays(&link)) && !lock(&self.health).is_crowded(Instant::now());
        let good = healthy.iter().filter(stays).filter(is_fast).count();
        let spread = good.div_ceil(replicas.max(1));
        Wanted { all: self.replicas, replicas, avoid_slow, avoid_leaving, spread }
    }

    /// Fits the table to the links as they are now.
    pub(super) fn fit_table_to_links(&self) {
        let mut table = self.table();
        // With the table locked, so that of two at a time the later one has the later view.
        let healthy = self.links.healthy();
        let Degradation { replicas: lacking, second, last } = table.refresh(self.wanted(&healthy));
        self.changed(Event::Fitted { lacks: lacking || second });
        if last {
            self.has_lost_slabs.store(true, Relaxed);
        }
        drop(table);
        let passed_by = healthy.iter().any(|link| link.is_passed_by());
        let away = self.links.iter().any(|link| link.is_away());
        if self.has_others() && (lacking || passed_by || away) {
            self.maintenance_due.store(true, Relaxed);
        }
    }

    /// No node leased a slab: slabs that were refused some time ago are tried again from now on, and nodes that are being emptied get
    /// pages again.
    pub(super) fn crowd(&self) {
        self.changed(Event::NoSlab { pause: self.timing.refused });
        self.fit_table_to_links();
    }

    fn changed(&self, event: Event) {
        let mut health = lock(&self.health);
        *health = health.after(event, Instant::now());
    }

    /// Ends the use of a link for an error that is the node's, and more than that it is full.
    pub(super) fn handle_error(&self, link: &Link, error: &NodeError) {
        if !error.is_full() && !error.is_local() && link.lose(error) {
            self.count_loss();
            self.fit_table_to_links();
        }
    }

    /// Looks which nodes are much slower than others, after one was as slow as that.
    pub(super) fn update_slow_nodes(&self) {
        let healthy = self.links.healthy();
        let means = healthy.iter().map(|link| link.estimate.mean_ns()).filter(|mean| *mean > 0);
        let Some(fastest_ns) = means.min() else { return };
        let changed = healthy.iter().fold(false, |changed, link| {
            let before = link.slow.load(Relaxed);
            let now = link.estimate.is_slow(fastest_ns, before);
            link.slow.store(now, Relaxed);
            changed || now != before || link.is_passed_by() && !self.is_maintenance_due()
        });
        if changed {
            self.fit_table_to_links();
        }
    }

    /// A node sent other bytes than it was given: its slab is given up if another node has that, and after several times the node,
    /// if others have all of its slabs. The last copy of a page is kept: every load of it is checked. (A slab that is given up
    /// goes back to its node when no load reads from it any more.)
    pub(super) fn distrust(&self, location: Location, replica: &Replica) {
        let times = replica.link.damages.fetch_add(1, Relaxed) + 1;
        let mut table = self.table();
        if times >= DAMAGES_MAX && !table.has_last_copies(&replica.link) {
            drop(table);
            return self.handle_error(&replica.link, &NodeError::Damages { times });
        }
        if table.replicas(location.0).iter().any(|other| other.is_live() && !other.is_same(replica)) {
            let number = table.slab_of(location.0);
            table.change(number, None, |other| !other.is_same(replica));
        }
        drop(table);
        self.fit_table_to_links();
    }

    /// Whether others have all that a node has: it is waited for half as long, so that a stall stays below the limit.
    fn is_replaceable(&self) -> bool {
        let is_degraded = || lock(&self.health).is_degraded();
        self.replicas > 1 && !is_degraded() && self.links.healthy().len() > 1 || self.is_shard
    }

    /// How long an answer over a link is waited for before its node is lost.
    pub(super) fn patience(&self, link: &Link) -> Duration {
        link.node.patience(self.is_replaceable())
    }

    /// What a store says of an error of a node.
    pub(super) fn store_error(&self, link: &Link, error: &NodeError) -> StoreError {
        let node = &link.node.url;
        match error {
            NodeError::Refused { used_bytes, capacity_bytes, words, .. } if error.is_full() => {
                // Of several nodes, one says for all why.
                let (url, by) =
                    if self.links.len() == 1 { (node, String::new()) } else { (&self.url, format!("{node}: ")) };
                StoreError::Full {
                    url: url.clone(),
                    cause: FullCause::Others(format!("takes no more: {by}{words}")),
                    used_bytes: *used_bytes,
                    capacity_bytes: *capacity_bytes,
                }
            }
            _ => StoreError::Lost { url: node.clone(), error: error.clone() },
        }
    }

    /// The links that can be used now and are not drained.
    pub(super) fn staying(&self) -> Vec<Arc<Link>> {
        self.links.healthy().into_iter().filter(|link| !link.recall.is_total()).collect()
    }
}

/// Slabs that go back.
impl Slabs {
    /// Gives slabs back that belong to no row of the table. Those of a lost node are gone with its session; those of a node that cannot
    /// be reached from here now are given back later.
    pub(super) fn give_up(&self, replicas: &[Replica]) {
        let mut by_link: BTreeMap<*const Link, Vec<Replica>> = BTreeMap::new();
        for replica in replicas.iter().filter(|replica| replica.is_live()) {
            by_link.entry(Arc::as_ptr(&replica.link)).or_default().push(replica.clone());
        }
        for replicas in by_link.values().flat_map(|replicas| replicas.chunks(SLABS_MAX)) {
            let link = &replicas[0].link;
            let slabs: Vec<u32> = replicas.iter().map(|replica| replica.slab).collect();
            if let Err(error) = link.give_back(&slabs) {
                self.handle_error(link, &error);
                if error.is_local() {
                    self.table().keep_leaving(replicas);
                }
            }
        }
    }

    /// Returns slabs without a page.
    pub(super) fn return_empty(&self) {
        let mut table = self.table();
        if !table.has_empty() {
            return;
        }
        let empty = table.take_empty(SLABS_MAX);
        drop(table);
        let replicas: Vec<Replica> = empty.iter().flat_map(|replicas| replicas.iter().cloned()).collect();
        drop(empty);
        // An answer that was not waited for may still be read there.
        let (unread, read): (Vec<Replica>, Vec<Replica>) = replicas.into_iter().partition(Replica::is_unused);
        self.table().keep_leaving(&read);
        self.give_up(&unread);
    }

    /// Returns the slabs that have been replaced or given up, and that no load reads from any more.
    pub(super) fn return_unread(&self) {
        let unread = self.table().take_unread();
        self.give_up(&unread);
    }
}
