//! A node of a pool, independent of its links: its address, its answer limit, and its figures.

use super::channel::Secured;
use super::limits::{AnswerLimit, Timing};
use super::link_stats::Recent;
use crate::sync::lock;
use hinterland_sys::Address;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A node that a pool is to use.
#[derive(Clone, Debug)]
pub struct NodeAddress {
    /// What it is called in messages and figures.
    pub url: String,
    /// Where it listens.
    pub address: Address,
    /// How both sides authenticate themselves; `None`: they do not.
    pub secured: Option<Secured>,
    /// How long it may leave a request unanswered.
    pub limit: AnswerLimit,
}

/// A node of a pool, whatever becomes of the links to it.
pub(super) struct Node {
    /// Its place in the pool.
    pub(super) index: usize,
    pub(super) url: String,
    pub(super) address: Address,
    /// How both sides authenticate themselves; `None`: they do not.
    pub(super) secured: Option<Secured>,
    /// Bytes that are asked for at most; 0: what the node allows.
    pub(super) quota_bytes: u64,
    /// How long it may leave a request unanswered.
    limit: AnswerLimit,
    /// It may take no bytes for half of that: another node has what it has.
    halves_send: bool,
    pub(super) timing: Timing,
    /// Bytes written to it and read from it.
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    /// What of that went over the link.
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    /// How often it was lost, other than empty after a drain.
    pub(super) losses: AtomicU64,
    /// Pages that were copied to it in place of lost copies.
    pub(super) rebuilt_pages: AtomicU64,
    /// Loads for which another node was asked, too, because this one was late.
    pub(super) hedged_loads: AtomicU64,
    /// Pages that were copied there, or moved away.
    pub(super) copied: Mutex<Recent>,
}

impl Node {
    pub(super) fn new(index: usize, is: NodeAddress, quota_bytes: u64, halves_send: bool, timing: Timing) -> Node {
        let NodeAddress { url, address, secured, limit } = is;
        let zero = || AtomicU64::new(0);
        Node {
            index,
            url,
            address,
            secured,
            quota_bytes,
            limit,
            halves_send,
            timing,
            bytes_in: zero(),
            bytes_out: zero(),
            sent_bytes: zero(),
            received_bytes: zero(),
            losses: zero(),
            rebuilt_pages: zero(),
            hedged_loads: zero(),
            copied: Mutex::default(),
        }
    }

    /// How long it may leave a request unanswered.
    pub(super) fn limit(&self) -> Duration {
        self.limit.get()
    }

    /// As `limit`, for a request to a node that others can replace, or cannot.
    pub(super) fn patience(&self, is_replaceable: bool) -> Duration {
        if is_replaceable { self.limit() / 2 } else { self.limit() }
    }

    /// How long it may take no bytes.
    pub(super) fn send_limit(&self) -> Duration {
        self.patience(self.halves_send)
    }

    /// What a node at another address needs to be used beside this one.
    pub(super) fn beside(&self, index: usize, is: NodeAddress) -> Node {
        Node::new(index, is, self.quota_bytes, self.halves_send, self.timing)
    }

    /// Begins to count, in a forked child: what its parent did is the parent's.
    pub(super) fn count_anew(&self) {
        let bytes = [&self.bytes_in, &self.bytes_out, &self.sent_bytes, &self.received_bytes];
        for counter in bytes.into_iter().chain([&self.losses, &self.rebuilt_pages, &self.hedged_loads]) {
            counter.store(0, Relaxed);
        }
        *lock(&self.copied) = Recent::default();
    }
}
