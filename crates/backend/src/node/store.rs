//! Stores: a page is stored when every replica of its slab has answered for it.
//!
//! A replica that fails meanwhile is lost, and its slab closed; the pages then go to another slab, on as many nodes as are wanted.

use super::allocation::Allocation;
use super::lanes::Taken;
use super::limits::{DEPTH, LATE_STORE, STORE_PAGES};
use super::slabs::Slabs;
use super::table::{Replica, Replicas};
use crate::node_error::NodeError;
use crate::{Location, Priority, StoreError};
use hinterland_units::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What became of a message of pages.
#[derive(Clone)]
enum Fate {
    Stored,
    /// Refused by a node, or it could not be reached; the others may have it. Another slab is needed: this one gets no pages for
    /// a while.
    Refused(StoreError),
    /// Too few nodes have it: another slab is needed.
    Again,
}

/// Stores pages.
pub(super) struct Writer {
    slabs: Arc<Slabs>,
    allocation: Allocation,
}

impl Writer {
    pub(super) fn new(slabs: &Arc<Slabs>, allocation: Allocation) -> Writer {
        Writer { slabs: slabs.clone(), allocation }
    }

    /// Stores `pages`; `out` has the outcome of each. Calls `meanwhile` when messages have been sent whose answers are to be waited for.
    pub(super) fn store(
        &self,
        pages: &[&[u8]],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        let mut left: Vec<usize> = (0..pages.len()).collect();
        // Each round but the last ends with a loss, with the return of a node, or with a slab less that may be written to.
        let rounds = self.slabs.links.len() * 2 + 2 + self.slabs.table().slab_count();
        for _ in 0..rounds {
            let (slots, error) = self.allocation.take_slots(left.len());
            for (index, error) in left.drain(slots.len()..).zip(std::iter::repeat(error)) {
                out[index] = Err(error.expect("there is a reason for too few slots"));
            }
            let mut again = Vec::new();
            let pages_of_a_slab = self.slabs.slab_bytes / PAGE_BYTES as u64;
            let mut begin = 0;
            for run in slots.chunk_by(|a, b| a / pages_of_a_slab == b / pages_of_a_slab) {
                let indices = &left[begin..begin + run.len()];
                begin += run.len();
                let contents: Vec<&[u8]> = indices.iter().map(|index| pages[*index]).collect();
                let replicas = self.slabs.table().replicas(run[0]).clone();
                let fates = self.write(&replicas, run, &contents, priority, meanwhile);
                self.conclude_writes(run, indices, &contents, &fates, out, &mut again);
            }
            if again.is_empty() {
                return;
            }
            left = again;
            // Whoever lost a node, or found it again, may not have come that far.
            self.slabs.refresh();
        }
    }

    /// Enters what became of the pages `indices`; those that need another slab are appended to `again`.
    fn conclude_writes(
        &self,
        slots: &[u64],
        indices: &[usize],
        pages: &[&[u8]],
        fates: &[Fate],
        out: &mut [Result<Location, StoreError>],
        again: &mut Vec<usize>,
    ) {
        let mut failed = Vec::new();
        let mut table = self.slabs.table();
        for (position, (slot, index)) in slots.iter().zip(indices).enumerate() {
            match &fates[position / STORE_PAGES] {
                Fate::Stored => {
                    table.set_bytes(*slot, pages[position].len());
                    out[*index] = Ok(Location(*slot));
                }
                other => {
                    failed.push(*slot);
                    again.push(*index);
                    // Unless a later round stores it.
                    out[*index] = Err(match other {
                        Fate::Refused(error) => error.clone(),
                        _ => StoreError::Device { url: self.slabs.url.clone(), errno: libc::EAGAIN },
                    });
                }
            }
        }
        if fates.iter().any(|fate| matches!(fate, Fate::Refused(_))) {
            table.refused(slots[0]);
        }
        table.end_writes(slots, &failed);
    }

    /// Writes pages to all replicas, several messages under way at once; returns the fate of each message.
    fn write(
        &self,
        replicas: &Replicas,
        slots: &[u64],
        pages: &[&[u8]],
        priority: Priority,
        meanwhile: &mut dyn FnMut(),
    ) -> Vec<Fate> {
        let messages = pages.len().div_ceil(STORE_PAGES);
        let part = |message: usize| message * STORE_PAGES..((message + 1) * STORE_PAGES).min(pages.len());
        let mut fates = vec![Fate::Stored; messages];
        // In the order of the nodes: two threads that wait for each other's lanes would wait for ever.
        let mut unreached = None;
        let mut writers: Vec<ReplicaWrite<'_>> =
            replicas.iter().filter_map(|replica| self.writer(replica, &mut unreached)).collect();
        let demands = |writers: &[ReplicaWrite<'_>]| writers.iter().any(|w| w.replica.link.has_demands());
        let mut sent = 0;
        for (message, fate) in fates.iter_mut().enumerate() {
            let depth = if demands(&writers) { 1 } else { DEPTH };
            while sent < messages && sent - message < depth {
                let (slots, pages) = (&slots[part(sent)], &pages[part(sent)]);
                let alone = sent == message;
                self.each(&mut writers, |writer| writer.send(slots, pages, alone, priority));
                sent += 1;
            }
            meanwhile();
            let single = writers.len() == 1;
            self.each(&mut writers, |writer| {
                let begun = Instant::now();
                // One that has come while something else was waited for does not tell how fast the link is.
                let is_timed = single && !writer.lane.has_arrived();
                self.wait_for(writer)?;
                writer.waited = begun.elapsed();
                match writer.lane.take_done() {
                    Ok(()) => {
                        let node = &writer.replica.link.node;
                        node.bytes_in.fetch_add((part(message).len() * PAGE_BYTES) as u64, Relaxed);
                        let bytes = bytes_of(&pages[part(message)]);
                        node.sent_bytes.fetch_add(bytes as u64, Relaxed);
                        writer.answered(is_timed.then_some(bytes));
                        // Of the last message it is known when it was sent.
                        if self.slabs.links.len() > 1 && message + 1 == messages {
                            writer.replica.link.estimate.at_most(writer.sent.elapsed());
                        }
                        Ok(())
                    }
                    Err(error) if error.is_full() => {
                        *fate = Fate::Refused(self.slabs.store_error(&writer.replica.link, &error));
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            });
        }
        self.compare(&writers);
        // Who is still here has answered for every message.
        let missed = |replica: &Replica| replica.is_live() && !writers.iter().any(|w| std::ptr::eq(w.replica, replica));
        let enough = writers.len() >= self.slabs.wanted(&self.slabs.links.healthy()).replicas.max(1);
        let durable = enough && !replicas.iter().any(missed);
        if !durable {
            let instead = unreached.map_or(Fate::Again, Fate::Refused);
            let stored = fates.iter_mut().filter(|fate| matches!(fate, Fate::Stored));
            stored.for_each(|fate| *fate = instead.clone());
        } else if fates.iter().any(|fate| matches!(fate, Fate::Stored)) {
            self.each(&mut writers, |writer| writer.replica.link.make_view(&mut writer.lane, writer.replica.slab));
        }
        fates
    }

    /// Waits for a writer's answer; for longer, when another node is lost meanwhile and this one has the last copies.
    fn wait_for(&self, writer: &mut ReplicaWrite<'_>) -> Result<(), NodeError> {
        let patience = self.slabs.patience(&writer.replica.link);
        match writer.lane.wait(patience) {
            Err(silent @ NodeError::Silent { .. }) => {
                let rest = self.slabs.patience(&writer.replica.link).saturating_sub(patience);
                if rest.is_zero() { Err(silent) } else { writer.lane.wait(rest) }
            }
            other => other,
        }
    }

    /// Notes who lets all others wait.
    fn compare(&self, writers: &[ReplicaWrite<'_>]) {
        let late = |writer: &&ReplicaWrite<'_>| {
            let others = |other: &ReplicaWrite<'_>| other.waited * 8 < writer.waited;
            writer.waited > LATE_STORE && writers.iter().any(others)
        };
        if let Some(writer) = writers.iter().find(late) {
            writer.replica.link.estimate.late(writer.waited);
            self.slabs.weigh();
        }
    }

    /// A writer to a replica. `None`: its node is lost, or no connection can be made here, which is noted in `unreached`.
    fn writer<'a>(&self, replica: &'a Replica, unreached: &mut Option<StoreError>) -> Option<ReplicaWrite<'a>> {
        match replica.link.background_lane(self.slabs.patience(&replica.link)) {
            Ok(lane) => {
                replica.link.views.before_write(replica.slab);
                let now = Instant::now();
                Some(ReplicaWrite { replica, lane, sent: now, waited: Duration::ZERO, since: now, alone: true })
            }
            Err(error) => {
                self.slabs.judge(&replica.link, &error);
                if error.is_local() {
                    *unreached = Some(self.slabs.store_error(&replica.link, &error));
                }
                None
            }
        }
    }

    /// Does `work` with each writer; ends those that fail.
    fn each<'a>(
        &self,
        writers: &mut Vec<ReplicaWrite<'a>>,
        mut work: impl FnMut(&mut ReplicaWrite<'a>) -> Result<(), NodeError>,
    ) {
        let mut index = 0;
        while index < writers.len() {
            match work(&mut writers[index]) {
                Ok(()) => index += 1,
                Err(error) => {
                    let writer = writers.remove(index);
                    writer.lane.close();
                    self.slabs.judge(&writer.replica.link, &error);
                }
            }
        }
    }
}

/// Bytes of some pages.
fn bytes_of(pages: &[&[u8]]) -> usize {
    pages.iter().map(|page| page.len()).sum()
}

/// A replica that is being written to.
struct ReplicaWrite<'a> {
    replica: &'a Replica,
    lane: Taken<'a>,
    /// When the last message was sent.
    sent: Instant,
    /// How long its last answer was waited for.
    waited: Duration,
    /// When the last answer came or, if nothing was under way, the message was sent whose answer is the next; and whether that is so.
    since: Instant,
    alone: bool,
}

impl ReplicaWrite<'_> {
    /// Sends a message; `alone`: none is under way.
    fn send(&mut self, slots: &[u64], pages: &[&[u8]], alone: bool, priority: Priority) -> Result<(), NodeError> {
        let mut there = [0; STORE_PAGES];
        for (there, slot) in there.iter_mut().zip(slots) {
            *there = self.replica.slot(*slot);
        }
        self.sent = Instant::now();
        if alone {
            (self.since, self.alone) = (self.sent, true);
        }
        self.lane.send_pages(&there[..slots.len()], pages, priority)
    }
    /// The oldest message was answered; what it tells of the link, if it had so many `bytes`.
    fn answered(&mut self, bytes: Option<usize>) {
        let now = Instant::now();
        if let Some(bytes) = bytes {
            self.replica.link.estimate.sample_batch(bytes, self.alone, now - self.since);
        }
        (self.since, self.alone) = (now, false);
    }
}
