//! Wanted pages, the part of them that one link is to load, and the outcome.
//!
//! ```text
//! first round:  each replica in the order of latency; while there is another one, only for its patience (a measured bound)
//! second round: those that were late, for as long as it takes to call them lost
//! ```

use super::lane::SlotRead;
use super::limits::{LATE_LOAD, NEAR_NS, PATIENCE_MAX, RETRIED_NS, RETRY_ONE_IN};
use super::link::Link;
use super::slabs::Slabs;
use super::table::Replicas;
use crate::node_error::NodeError;
use crate::{LoadError, LoadItem, Location, Priority};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const DAMAGED: &str = "it is not what its checksum says: it changed on its way, or in the node's memory";

/// A page that is to be loaded.
#[derive(Default)]
pub(super) struct Want {
    pub(super) replicas: Replicas,
    /// Bytes of the page that are kept.
    pub(super) bytes: usize,
    /// Replicas that have been asked, one bit each; and those of them that were late.
    tried: u32,
    late: u32,
    /// The second round.
    last: bool,
    pub(super) answered: bool,
    error: Option<LoadError>,
}

impl Want {
    pub(super) fn new(replicas: &Replicas, bytes: usize) -> Want {
        Want { replicas: replicas.clone(), bytes, ..Want::default() }
    }

    /// Replicas that can be asked.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.replicas.len()).filter(move |at| self.tried & 1 << at == 0 && self.replicas[*at].is_live())
    }

    /// The replica that is to be asked next: the fastest of those that have not been tried, or one that is about as fast.
    pub(super) fn preferred(&self, draw: u64) -> Option<usize> {
        let first = self.fastest(self.open())?;
        let Some(next) = self.fastest(self.open().filter(|at| *at != first)) else { return Some(first) };
        let near = self.expected_ns(next) <= self.expected_ns(first).saturating_mul(2).saturating_add(NEAR_NS);
        let retried = self.expected_ns(next) < RETRIED_NS && draw.is_multiple_of(RETRY_ONE_IN);
        let other = near && draw & 1 << 32 != 0 || retried;
        Some(if other && !self.last { next } else { first })
    }

    /// The replica that is to be asked beside `at`, when that one is late.
    pub(super) fn second(&self, at: usize) -> Option<usize> {
        self.fastest(self.open().filter(|other| *other != at))
    }

    /// The one of some replicas that is expected to answer first.
    fn fastest(&self, of: impl Iterator<Item = usize>) -> Option<usize> {
        of.min_by_key(|at| self.expected_ns(*at))
    }

    fn expected_ns(&self, at: usize) -> u64 {
        self.replicas[at].link.expected_ns()
    }

    /// Begins the second round, if there is anything for it: those that were late are asked once more.
    pub(super) fn ask_late_again(&mut self) -> bool {
        if self.late == 0 {
            return false;
        }
        (self.tried, self.late, self.last) = (self.tried & !self.late, 0, true);
        true
    }

    /// Nothing more can be asked; why the page has not come, as far as that is known.
    pub(super) fn give_up(&mut self) -> Option<LoadError> {
        self.answered = true;
        self.error.take()
    }

    /// Whether it is in the second round.
    pub(super) fn is_last_round(&self) -> bool {
        self.last
    }
}

/// What one link is asked for.
pub(super) struct LinkRequest<'a> {
    pub(super) link: &'a Link,
    /// Another replica can be asked when the answer is late.
    hedged: bool,
    pub(super) patience: Duration,
    /// Which items, and which replica of each is there; and their locations in the pool.
    items: Vec<(usize, usize)>,
    outer: Vec<Location>,
    /// Positions of those that arrived damaged, and how many have arrived.
    damaged: Vec<usize>,
    pub(super) arrived: usize,
    pub(super) begun: Instant,
}

impl<'a> LinkRequest<'a> {
    /// What `link` is to be asked for, of which `first` is the first page.
    pub(super) fn new(slabs: &Slabs, link: &'a Link, first: &Want, priority: Priority) -> LinkRequest<'a> {
        let hedged = !first.last && first.open().count() > 1;
        let patience = match priority {
            _ if !hedged && (first.late != 0 || slabs.is_shard) => slabs.patience(link),
            _ if !hedged => link.node.limit(),
            Priority::Demand => link.estimate.patience(),
            _ => PATIENCE_MAX,
        };
        let (items, outer, damaged) = (Vec::new(), Vec::new(), Vec::new());
        LinkRequest { link, hedged, patience, items, outer, damaged, arrived: 0, begun: Instant::now() }
    }

    /// Adds an item with its replica; returns what the link is asked for.
    pub(super) fn add<'i>(
        &mut self,
        (index, at): (usize, usize),
        want: &Want,
        item: &'i mut LoadItem<'_>,
    ) -> SlotRead<'i> {
        self.items.push((index, at));
        self.outer.push(item.location);
        SlotRead { slot: want.replicas[at].slot(item.location.0), bytes: want.bytes, into: item.into }
    }

    /// A page has arrived, or, with `None`, arrived damaged.
    pub(super) fn took(
        &mut self,
        position: usize,
        page: Option<&PageBytes>,
        wants: &mut [Want],
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.arrived += 1;
        let (index, at) = self.items[position];
        wants[index].tried |= 1 << at;
        match page {
            Some(page) => {
                wants[index].answered = true;
                done(index, Ok(page));
            }
            None => self.damaged.push(position),
        }
    }

    /// Notes what became of the pages that a link was asked for.
    pub(super) fn conclude(self, slabs: &Slabs, loaded: Result<(), NodeError>, wants: &mut [Want]) {
        let LinkRequest { link, hedged, items, outer, damaged, arrived, begun, .. } = self;
        link.node.bytes_out.fetch_add((arrived * PAGE_BYTES) as u64, Relaxed);
        for position in damaged {
            let ((index, at), location) = (items[position], outer[position]);
            wants[index].error = Some(LoadError::Damaged { url: link.node.url.clone(), location, what: DAMAGED });
            if wants[index].open().next().is_some() || wants[index].late != 0 {
                slabs.distrust(location, &wants[index].replicas[at].clone());
            }
        }
        if let Err(error) = loaded {
            let late = hedged && matches!(error, NodeError::Silent { .. }) && link.lost().is_none();
            for (index, at) in items.into_iter().skip(arrived) {
                wants[index].tried |= 1 << at;
                wants[index].late |= u32::from(late) << at;
                let lost = || LoadError::Lost { url: link.node.url.clone(), error: error.clone() };
                wants[index].error.get_or_insert_with(lost);
            }
            if late {
                link.estimate.late(begun.elapsed());
            } else {
                slabs.handle_error(link, &error);
            }
        }
        if slabs.links.len() > 1 && begun.elapsed() >= LATE_LOAD {
            slabs.update_slow_nodes();
        }
    }
}
