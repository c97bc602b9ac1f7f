//! Stores: a page is stored when every replica of its slab has answered for it.
//!
//! A replica that fails meanwhile is lost, and its slab closed; the pages then go to another slab, on as many nodes as are wanted.

use super::allocation::Allocation;
use super::lane::Lane;
use super::lanes::Taken;
use super::limits::{DEPTH, DEPTH_MAX, LATE_STORE, STORE_PAGES};
use super::link::Link;
use super::link_estimate::{Grant, UnderWay};
use super::slabs::Slabs;
use super::table::{Replica, Replicas};
use crate::node_error::NodeError;
use crate::{Direction, Location, Priority, StoreError};
use hinterland_units::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Where a message ends among the pages of a write, and what became of it.
type Message = (usize, Fate);

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
                let messages = self.write(&replicas, run, &contents, priority, meanwhile);
                self.conclude_writes(run, indices, &contents, &messages, out, &mut again);
            }
            if again.is_empty() {
                return;
            }
            left = again;
            // Whoever lost a node, or found it again, may not have come that far.
            self.slabs.fit_table_to_links();
        }
    }

    /// Enters what became of the pages `indices`; those that need another slab are appended to `again`.
    fn conclude_writes(
        &self,
        slots: &[u64],
        indices: &[usize],
        pages: &[&[u8]],
        messages: &[Message],
        out: &mut [Result<Location, StoreError>],
        again: &mut Vec<usize>,
    ) {
        let mut failed = Vec::new();
        let mut table = self.slabs.table();
        for (position, (slot, index)) in slots.iter().zip(indices).enumerate() {
            match &messages[messages.partition_point(|(end, _)| *end <= position)].1 {
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
        if messages.iter().any(|(_, fate)| matches!(fate, Fate::Refused(_))) {
            table.refused(slots[0]);
        }
        table.end_writes(slots, &failed);
    }

    /// Writes pages to all replicas, several messages under way at once.
    fn write(
        &self,
        replicas: &Replicas,
        slots: &[u64],
        pages: &[&[u8]],
        priority: Priority,
        meanwhile: &mut dyn FnMut(),
    ) -> Vec<Message> {
        // In the order of the nodes: two threads that wait for each other's lanes would wait for ever.
        let mut unreached = None;
        let mut writers: Vec<ReplicaWrite<'_>> =
            replicas.iter().filter_map(|replica| self.writer(replica, &mut unreached)).collect();
        let (mut messages, mut answered): (Vec<Message>, usize) = (Vec::new(), 0);
        loop {
            let mut sent = messages.last().map_or(0, |(end, _)| *end);
            while sent < pages.len() {
                let under_way = messages.len() - answered;
                let count = match self.grant(&writers) {
                    Grant::Any if under_way < DEPTH => STORE_PAGES.min(pages.len() - sent),
                    Grant::Bytes(bytes) if under_way < DEPTH_MAX => pages_of(&pages[sent..], bytes),
                    _ => break,
                };
                let (slots, pages) = (&slots[sent..sent + count], &pages[sent..sent + count]);
                self.each(&mut writers, |writer| writer.send(slots, pages, under_way == 0, priority));
                sent += count;
                messages.push((sent, Fate::Stored));
            }
            if answered == messages.len() {
                break;
            }
            let begin = if answered == 0 { 0 } else { messages[answered - 1].0 };
            let is_last = answered + 1 == messages.len();
            let (end, fate) = &mut messages[answered];
            let of_message = &pages[begin..*end];
            meanwhile();
            let single = writers.len() == 1;
            self.each(&mut writers, |writer| {
                let begun = Instant::now();
                // One that has come while something else was waited for does not tell how fast the link is.
                let is_timed = single && !writer.lane.has_arrived();
                wait_for(&self.slabs, &writer.replica.link, &mut writer.lane)?;
                writer.waited = begun.elapsed();
                match writer.lane.take_done() {
                    Ok(()) => {
                        let node = &writer.replica.link.node;
                        node.bytes_in.fetch_add((of_message.len() * PAGE_BYTES) as u64, Relaxed);
                        node.sent_bytes.fetch_add(bytes_of(of_message) as u64, Relaxed);
                        writer.answered(bytes_of(of_message), is_timed);
                        // Of the last message it is known when it was sent.
                        if self.slabs.links.len() > 1 && is_last {
                            writer.replica.link.estimate.at_most(writer.sent.elapsed());
                        }
                        Ok(())
                    }
                    Err(error) if error.is_full() => {
                        writer.answered(bytes_of(of_message), false);
                        *fate = Fate::Refused(self.slabs.store_error(&writer.replica.link, &error));
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            });
            answered += 1;
        }
        self.compare(&writers);
        // Who is still here has answered for every message.
        let missed = |replica: &Replica| replica.is_live() && !writers.iter().any(|w| std::ptr::eq(w.replica, replica));
        let enough = writers.len() >= self.slabs.wanted(&self.slabs.links.healthy()).replicas.max(1);
        let durable = enough && !replicas.iter().any(missed);
        if !durable {
            let instead = unreached.map_or(Fate::Again, Fate::Refused);
            let stored = messages.iter_mut().filter(|(_, fate)| matches!(fate, Fate::Stored));
            stored.for_each(|(_, fate)| *fate = instead.clone());
        } else if messages.iter().any(|(_, fate)| matches!(fate, Fate::Stored)) {
            self.each(&mut writers, |writer| writer.replica.link.make_view(&mut writer.lane, writer.replica.slab));
        }
        messages
    }

    /// What may be sent now: what all links grant.
    fn grant(&self, writers: &[ReplicaWrite<'_>]) -> Grant {
        let of_one = |writer: &ReplicaWrite<'_>| {
            let link = &writer.replica.link;
            link.estimate.grant(Direction::Out, link.has_demands(), writer.bulk.bytes())
        };
        writers.iter().map(of_one).fold(Grant::Any, |least, grant| match (least, grant) {
            (Grant::Wait, _) | (_, Grant::Wait) => Grant::Wait,
            (Grant::Bytes(least), Grant::Bytes(bytes)) => Grant::Bytes(least.min(bytes)),
            (Grant::Any, other) | (other, Grant::Any) => other,
        })
    }

    /// Notes who lets all others wait.
    fn compare(&self, writers: &[ReplicaWrite<'_>]) {
        let late = |writer: &&ReplicaWrite<'_>| {
            let others = |other: &ReplicaWrite<'_>| other.waited * 8 < writer.waited;
            writer.waited > LATE_STORE && writers.iter().any(others)
        };
        if let Some(writer) = writers.iter().find(late) {
            writer.replica.link.estimate.late(writer.waited);
            self.slabs.update_slow_nodes();
        }
    }

    /// A writer to a replica. `None`: its node is lost, or no connection can be made here, which is noted in `unreached`.
    fn writer<'a>(&self, replica: &'a Replica, unreached: &mut Option<StoreError>) -> Option<ReplicaWrite<'a>> {
        match replica.link.background_lane(self.slabs.patience(&replica.link)) {
            Ok(lane) => {
                replica.link.views.before_write(replica.slab);
                let now = Instant::now();
                let bulk = UnderWay::none(&replica.link.estimate, Direction::Out);
                Some(ReplicaWrite { replica, lane, sent: now, waited: Duration::ZERO, since: now, alone: true, bulk })
            }
            Err(error) => {
                self.slabs.handle_error(&replica.link, &error);
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
                    self.slabs.handle_error(&writer.replica.link, &error);
                }
            }
        }
    }
}

/// Waits for a node's answer to a write; for longer, when another node is lost meanwhile and this one has the last copies.
pub(super) fn wait_for(slabs: &Slabs, link: &Link, lane: &mut Lane) -> Result<(), NodeError> {
    let patience = slabs.patience(link);
    match lane.wait(patience) {
        Err(silent @ NodeError::Silent { .. }) => {
            let rest = slabs.patience(link).saturating_sub(patience);
            if rest.is_zero() { Err(silent) } else { lane.wait(rest) }
        }
        other => other,
    }
}

/// Bytes of some pages.
fn bytes_of(pages: &[&[u8]]) -> usize {
    pages.iter().map(|page| page.len()).sum()
}

/// How many of `pages`, at least one and no more than a message has, are so many bytes.
fn pages_of(pages: &[&[u8]], bytes_max: u64) -> usize {
    let ends = pages.iter().take(STORE_PAGES).scan(0, |bytes, page| {
        *bytes += page.len() as u64;
        Some(*bytes)
    });
    ends.take_while(|bytes| *bytes <= bytes_max).count().max(1)
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
    /// What is not answered yet.
    bulk: UnderWay<'a>,
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
        self.bulk.begin(bytes_of(pages));
        self.lane.send_pages(&there[..slots.len()], pages, priority)
    }
    /// The oldest message, of so many bytes, was answered; whether that tells how fast the link is.
    fn answered(&mut self, bytes: usize, is_timed: bool) {
        let now = Instant::now();
        self.bulk.end(bytes);
        if is_timed {
            self.replica.link.estimate.sample_batch(bytes, self.alone, now - self.since);
        }
        (self.since, self.alone) = (now, false);
    }
}
