//! The slabs of a pool: which nodes hold each, and which may get more pages.
//!
//! ```text
//! slab of the pool ──► replicas: (link, slab in that link's session), each on another node, with the same pages in the same slots
//! ```
//! **Invariant**: every live replica of a slab holds every page whose slot is in use and not being written. A replica
//! whose link misses a write is lost before a load can read it, because the link is lost with it.
//!
//! A slab is *fully replicated* when it has as many replicas as are wanted. As many of them as nodes stay and have room it needs to get
//! pages; it is closed while a further replica is made, so what is copied does not change. Numbers of slabs are never used again.

use super::limits::{NODES_MAX, Timing};
use super::link::Link;
use super::slots::{Fill, Slots};
use crate::Location;
use crate::node_error::NodeError;
use hinterland_units::PAGE_BYTES;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A slab of a node that holds the pages of a slab of the pool.
#[derive(Clone)]
pub(super) struct Replica {
    pub(super) link: Arc<Link>,
    /// Its number in the link's session.
    pub(super) slab: u32,
    /// Pages of a slab.
    pub(super) slab_pages: u64,
    /// Counts the threads that may still read it.
    pub(super) users: Arc<()>,
}

impl Replica {
    /// Where a page of the pool lies here: its slot in the link's session.
    pub(super) fn slot(&self, slot: u64) -> u64 {
        u64::from(self.slab) * self.slab_pages + slot % self.slab_pages
    }

    /// Whether both are one.
    pub(super) fn is_same(&self, other: &Replica) -> bool {
        Arc::ptr_eq(&self.link, &other.link) && self.slab == other.slab
    }

    /// Whether only the caller still has it.
    pub(super) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.users) == 1
    }

    /// Whether it can be read and written.
    pub(super) fn is_live(&self) -> bool {
        self.link.lost().is_none()
    }

    /// Whether its node wants slabs back.
    fn is_wanted_back(&self) -> bool {
        self.is_live() && self.link.recall.is_some()
    }
}

/// The replicas of a slab, in the order of their nodes. Some may have been lost since they were looked up.
pub(super) type Replicas = Arc<[Replica]>;

/// Whether a node has one of `replicas`.
pub(super) fn is_held(replicas: &Replicas, link: &Link) -> bool {
    replicas.iter().any(|replica| replica.link.node.index == link.node.index)
}

/// Whether a slab with these replicas can have one more on one of `links`.
pub(super) fn has_place(links: &[Arc<Link>], replicas: &Replicas) -> bool {
    links.iter().any(|link| !is_held(replicas, link))
}

/// See the module.
pub(super) struct Table {
    slots: Slots,
    slabs: BTreeMap<u32, Slab>,
    next: u32,
    /// Replicas that were taken out of their rows, and may still be read from. They are to be given back.
    leaving: Vec<Replica>,
    /// Time for which a slab gets no pages after a node refused some.
    refused_pause: Duration,
    /// Time for which a slab is not copied after pages of it arrived damaged.
    damaged_pause: Duration,
    /// Replicas that each slab is to have in the end.
    all: usize,
    /// Pages at each node, each replica counted.
    pages: [u64; NODES_MAX],
    /// Those of them of which only a part is kept.
    parts: [u64; NODES_MAX],
}

struct Slab {
    replicas: Replicas,
    /// Bytes that are kept in each slot, as soon as that is not a whole page everywhere.
    bytes: Option<Box<[u16]>>,
    /// Slots in use that have less than a page.
    parts: u64,
    /// Slots that are being written.
    writing: usize,
    /// What became of the last replica: its node, and why.
    lost: Option<(String, NodeError)>,
    /// A replica is being made, in addition or in place of another: the slab stays closed until it is there, or given up.
    rebuilding: bool,
    /// When a node refused pages for it: the slab stays closed for a while.
    refused: Option<Instant>,
    /// When it could not be moved, the last time that this was tried: others come first.
    unmoved: Option<Instant>,
    /// When it could not be copied, because no replica had all pages undamaged.
    damaged: Option<Instant>,
}

/// What the pool can have now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Replicas that each slab is to have in the end.
    pub(super) all: usize,
    /// Replicas of each slab that gets pages now: so many nodes stay and have room.
    pub(super) replicas: usize,
    /// So many nodes are not slow: slow ones need not get pages.
    pub(super) avoid_slow: bool,
    /// Replicas at nodes that want all back do not count for this: others stay.
    pub(super) avoid_leaving: bool,
    /// Slabs that are filled at a time, so that what is stored in a row lies on several nodes.
    pub(super) spread: usize,
}

/// What slabs with pages lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Degradation {
    /// Some have fewer replicas than can be had.
    pub(super) replicas: bool,
    /// Some have one replica, and are to have more.
    pub(super) second: bool,
    /// Some have just lost their last one.
    pub(super) last: bool,
}

/// What lies at a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LinkUsage {
    /// Slabs that are leased there, whether they are in use or on their way back.
    pub(super) slabs: usize,
    pub(super) pages: u64,
    /// Pages with fewer replicas than they are to have.
    pub(super) lacking_pages: u64,
    /// Slabs and pages that no other node has.
    pub(super) last_slabs: usize,
    pub(super) last_pages: u64,
    /// Slabs that may find another place.
    pub(super) movable_slabs: usize,
}

impl Table {
    pub(super) fn new(slab_bytes: u64, timing: &Timing) -> Table {
        let slots = Slots::new(slab_bytes);
        let (slabs, leaving) = (BTreeMap::new(), Vec::new());
        Table {
            slots,
            slabs,
            next: 0,
            leaving,
            refused_pause: timing.refused,
            damaged_pause: timing.damaged,
            all: 1,
            pages: [0; NODES_MAX],
            parts: Default::default(),
        }
    }

    /// Adds a slab that was leased on several nodes; false: there are no more numbers.
    pub(super) fn add(&mut self, replicas: &[Replica]) -> bool {
        let numbers = (1u64 << Location::BITS) / self.slots.slab_pages() as u64;
        if u64::from(self.next) >= numbers.min(u64::from(u32::MAX)) {
            return false;
        }
        let mut replicas = replicas.to_vec();
        replicas.sort_by_key(|replica| replica.link.node.index);
        self.slots.add(self.next);
        let slab = Slab {
            replicas: replicas.into(),
            bytes: None,
            parts: 0,
            writing: 0,
            lost: None,
            rebuilding: false,
            refused: None,
            unmoved: None,
            damaged: None,
        };
        self.slabs.insert(self.next, slab);
        self.next += 1;
        true
    }

    /// Appends up to `count` free slots to `into`, for pages that are about to be written; `end_writes` ends that.
    pub(super) fn take(&mut self, count: usize, fill: Fill, into: &mut Vec<u64>) {
        let before = into.len();
        self.slots.take(count, fill, into);
        for slot in &into[before..] {
            let number = self.slab_of(*slot);
            let slab = self.slabs.get_mut(&number).expect("a slab with a slot in use");
            slab.writing += 1;
            slab.replicas.iter().for_each(|replica| self.pages[replica.link.node.index] += 1);
        }
    }

    /// Whether one more slab is to be filled beside others, and has to be leased for this.
    pub(super) fn lacks_one(&mut self) -> bool {
        self.slots.lacks_one()
    }

    /// The nodes that have a slab which is being filled, one bit each.
    pub(super) fn nodes_filled(&self) -> u32 {
        let replicas = self.slots.filling().flat_map(|number| self.slabs[&number].replicas.iter());
        replicas.fold(0, |nodes, replica| nodes | 1 << replica.link.node.index)
    }

    /// Begins to write over the page at `slot`, in place: its replicas, each of which has all of it. `None`: only a part of it is kept, or its
    /// slab gets no pages now. `end_writes` ends that.
    pub(super) fn begin_patch(&mut self, slot: u64) -> Option<Replicas> {
        let number = self.slab_of(slot);
        let is_whole = self.bytes_of(slot) == PAGE_BYTES && self.slots.is_open(number);
        let slab = self.slabs.get_mut(&number).filter(|_| is_whole)?;
        let is_live = !slab.replicas.is_empty() && slab.replicas.iter().all(Replica::is_live);
        slab.writing += usize::from(is_live);
        is_live.then(|| slab.replicas.clone())
    }

    /// The writes to `slots` have ended; those in `failed` are free again.
    pub(super) fn end_writes(&mut self, slots: &[u64], failed: &[u64]) {
        for slot in slots {
            let number = self.slab_of(*slot);
            self.slabs.get_mut(&number).expect("a slab with a slot in use").writing -= 1;
        }
        self.free(failed.iter().copied());
    }

    /// Gives slots back.
    pub(super) fn free(&mut self, slots: impl Iterator<Item = u64>) {
        for slot in slots {
            self.set_bytes(slot, PAGE_BYTES);
            self.slots.give_back(slot);
            let slab = &self.slabs[&self.slab_of(slot)];
            slab.replicas.iter().for_each(|replica| self.pages[replica.link.node.index] -= 1);
        }
    }

    /// Notes how many bytes are kept in a slot in use.
    pub(super) fn set_bytes(&mut self, slot: u64, bytes: usize) {
        let (number, at) = (self.slab_of(slot), self.place_of(slot));
        let slab_pages = self.slots.slab_pages();
        let slab = self.slabs.get_mut(&number).expect("a slab with a slot in use");
        if bytes == PAGE_BYTES && slab.bytes.is_none() {
            return;
        }
        let whole = u16::try_from(PAGE_BYTES).expect("4096");
        let row = slab.bytes.get_or_insert_with(|| vec![whole; slab_pages].into());
        let kept = u16::try_from(bytes).ok().filter(|bytes| (1..=whole).contains(bytes)).expect("a page at most");
        let before = std::mem::replace(&mut row[at], kept);
        // Wraps where it is one less: the sum does not.
        let more = u64::from(kept < whole).wrapping_sub(u64::from(before < whole));
        slab.parts = slab.parts.wrapping_add(more);
        for replica in slab.replicas.iter() {
            let parts = &mut self.parts[replica.link.node.index];
            *parts = parts.wrapping_add(more);
        }
    }

    /// How many bytes are kept in a slot.
    pub(super) fn bytes_of(&self, slot: u64) -> usize {
        let row = self.slabs.get(&self.slab_of(slot)).and_then(|slab| slab.bytes.as_ref());
        row.map_or(PAGE_BYTES, |row| row[self.place_of(slot)].into())
    }

    /// Which of its slab's slots it is.
    fn place_of(&self, slot: u64) -> usize {
        usize::try_from(slot % self.slots.slab_pages() as u64).expect("below the pages of a slab")
    }

    /// The number of the slab that a slot lies in.
    pub(super) fn slab_of(&self, slot: u64) -> u32 {
        u32::try_from(slot / self.slots.slab_pages() as u64).expect("a slot of ours")
    }

    /// The replicas of the slab that a slot in use lies in.
    pub(super) fn replicas(&self, slot: u64) -> &Replicas {
        &self.slabs[&self.slab_of(slot)].replicas
    }

    /// Why the slab of a slot in use has no replica, and whose fault that is.
    pub(super) fn lost(&self, slot: u64) -> Option<&(String, NodeError)> {
        self.slabs[&self.slab_of(slot)].lost.as_ref()
    }

    /// Adds a replica, or takes those away that are not to be `kept`: they leave.
    pub(super) fn change(&mut self, number: u32, add: Option<Replica>, kept: impl Fn(&Replica) -> bool) {
        let Some(slab) = self.slabs.get_mut(&number) else { return };
        let used = self.slots.used_count(number).unwrap_or(0) as u64;
        for gone in slab.replicas.iter().filter(|replica| !kept(replica)) {
            self.pages[gone.link.node.index] -= used;
            self.parts[gone.link.node.index] -= slab.parts;
            self.leaving.push(gone.clone());
        }
        if let Some(new) = &add {
            self.pages[new.link.node.index] += used;
            self.parts[new.link.node.index] += slab.parts;
        }
        let left = slab.replicas.iter().filter(|replica| kept(replica)).cloned();
        let mut replicas: Vec<Replica> = left.chain(add).collect();
        replicas.sort_by_key(|replica| replica.link.node.index);
        slab.replicas = replicas.into();
    }

    /// Drops replicas that were lost, and opens and closes slabs; returns what those with pages lack.
    pub(super) fn refresh(&mut self, wanted: Wanted) -> Degradation {
        let mut lacks = Degradation::default();
        self.all = wanted.all;
        self.slots.set_spread(wanted.spread);
        for (number, slab) in &mut self.slabs {
            let used = self.slots.used_count(*number);
            let (live, gone): (Vec<Replica>, Vec<Replica>) = slab.replicas.iter().cloned().partition(Replica::is_live);
            for replica in &gone {
                let error = replica.link.lost().cloned().expect("it is not live");
                slab.lost = Some((replica.link.node.url.clone(), error));
                self.pages[replica.link.node.index] -= used.unwrap_or(0) as u64;
                self.parts[replica.link.node.index] -= slab.parts;
            }
            if !gone.is_empty() {
                slab.replicas = live.into();
            }
            let Some(used) = used else { continue };
            let live = slab.replicas.len();
            lacks.last |= live == 0 && !gone.is_empty() && used > 0;
            lacks.replicas |= live < wanted.replicas && used > 0 && live > 0;
            lacks.second |= live == 1 && wanted.all > 1 && used > 0;
            let slow = slab.replicas.iter().any(|replica| replica.link.slow.load(Relaxed));
            slab.refused = slab.refused.filter(|since| since.elapsed() < self.refused_pause);
            let leaving = slab.replicas.iter().filter(|replica| replica.link.recall.is_total()).count();
            let counted = if wanted.avoid_leaving { live - leaving } else { live };
            let avoided = slow && wanted.avoid_slow || counted < wanted.replicas.max(1);
            let is_closed = slab.rebuilding || slab.refused.is_some() || avoided;
            self.slots.set_open(*number, !is_closed);
        }
        lacks
    }

    /// A node refused pages for the slab of a slot, which was in use when they were sent: others may have room.
    pub(super) fn refused(&mut self, slot: u64) {
        let number = self.slab_of(slot);
        if let Some(slab) = self.slabs.get_mut(&number)
            && self.slots.used_count(number).is_some()
        {
            slab.refused = Some(Instant::now());
            self.slots.set_open(number, false);
        }
    }

    /// How many slabs there are.
    pub(super) fn slab_count(&self) -> usize {
        self.slabs.len()
    }

    /// Finds a slab that has pages, fewer replicas than it is to have in the end, and no writer, and that may find a place
    /// for one more: the first behind the number `after`, or from the beginning on.
    pub(super) fn find_degraded(&self, after: u32, may_find_place: impl Fn(&Replicas) -> bool) -> Option<u32> {
        let is_ready = |number: &u32, slab: &Slab| self.can_be_rebuilt(*number) && may_find_place(&slab.replicas);
        let mut ready = self.slabs.iter().filter(|(number, slab)| is_ready(number, slab)).map(|(number, _)| *number);
        let first = ready.next()?;
        Some(std::iter::once(first).chain(ready).find(|number| *number > after).unwrap_or(first))
    }

    fn can_be_rebuilt(&self, number: u32) -> bool {
        let is_lacking = |slab: &Slab| slab.replicas.len() < self.all && slab.replicas.iter().any(Replica::is_live);
        let lacks = self.slabs.get(&number).is_some_and(|slab| is_lacking(slab) && self.can_be_copied(slab));
        lacks && self.slots.used_count(number) > Some(0)
    }

    /// Whether no thread writes to it or copies it, and no page of it was found damaged a short while ago.
    fn can_be_copied(&self, slab: &Slab) -> bool {
        let is_damaged = slab.damaged.is_some_and(|since| since.elapsed() < self.damaged_pause);
        slab.writing == 0 && !slab.rebuilding && !is_damaged
    }

    /// Begins to rebuild a slab that was found, unless a thread writes to it by now; returns the slots that are in use.
    /// It gets no page until `end_rebuild`.
    pub(super) fn begin_rebuild(&mut self, number: u32) -> Option<Vec<u64>> {
        if !self.can_be_rebuilt(number) {
            return None;
        }
        self.slabs.get_mut(&number)?.rebuilding = true;
        self.slots.set_open(number, false);
        self.used_in(number)
    }

    /// Begins to move a slab away from a node that wants some back; returns its number, and the replica that is to go. It gets no
    /// page until `end_rebuild`.
    ///
    /// Of the slabs that no thread writes to, and that may find a place, it is the one with the fewest pages; those
    /// that could not be moved come last, the one with the latest attempt at the very end, so that none stands in the
    /// others' way.
    pub(super) fn begin_move(&mut self, may_find_place: impl Fn(&Replicas) -> bool) -> Option<(u32, Replica)> {
        let is_ready = |slab: &Slab| {
            // One that lacks a replica gets one, before one takes the place of another.
            let is_still = slab.replicas.len() >= self.all && self.can_be_copied(slab);
            is_still && slab.replicas.iter().any(Replica::is_wanted_back) && may_find_place(&slab.replicas)
        };
        let ready = self.slabs.iter().filter(|(_, slab)| is_ready(slab));
        let rows = ready.filter_map(|(number, slab)| Some((slab.unmoved, self.slots.used_count(*number)?, *number)));
        let (.., number) = rows.filter(|(_, used, _)| *used > 0).min()?;
        let slab = self.slabs.get_mut(&number).expect("just found");
        // Unless it was lost this moment.
        let from = slab.replicas.iter().find(|replica| replica.is_wanted_back()).cloned()?;
        slab.rebuilding = true;
        self.slots.set_open(number, false);
        Some((number, from))
    }

    /// Ends a rebuild or a move, with a new replica or without, which takes the place of `from`; false: the slab is gone, or the
    /// replica lost.
    pub(super) fn end_rebuild(&mut self, number: u32, replica: Option<Replica>, from: Option<&Replica>) -> bool {
        let is_there = self.used_in(number).is_some() && replica.as_ref().is_none_or(Replica::is_live);
        if let Some(slab) = self.slabs.get_mut(&number) {
            slab.rebuilding = false;
            slab.unmoved = (from.is_some() && replica.is_none()).then(Instant::now);
        }
        if is_there && replica.is_some() {
            self.change(number, replica, |other| from.is_none_or(|from| !from.is_same(other)));
        }
        is_there
    }

    /// A slab could not be copied, because no replica had all pages undamaged: this is not tried again at once.
    pub(super) fn damaged(&mut self, number: u32) {
        if let Some(slab) = self.slabs.get_mut(&number) {
            slab.damaged = Some(Instant::now());
        }
    }

    /// The slots of a slab that are in use; `None`: it is gone.
    pub(super) fn used_in(&self, number: u32) -> Option<Vec<u64>> {
        self.slots.used_count(number).map(|_| self.slots.used_in(number))
    }

    /// The replicas of a slab.
    pub(super) fn replicas_of(&self, number: u32) -> Option<Replicas> {
        self.slabs.get(&number).map(|slab| slab.replicas.clone())
    }

    /// Whether pages have lost their last replica: how.
    pub(super) fn first_loss(&self) -> Option<(String, NodeError)> {
        let has_pages = |number: &u32| self.slots.used_count(*number) > Some(0);
        let gone = |slab: &Slab| !slab.replicas.iter().any(Replica::is_live);
        let mut gone = self.slabs.iter().filter(|(number, slab)| gone(slab) && has_pages(number));
        gone.find_map(|(_, slab)| slab.lost.clone())
    }

    /// Pages at a node now, each replica counted.
    pub(super) fn pages_at(&self, node: usize) -> u64 {
        self.pages[node]
    }

    /// Those of them of which only a part is kept.
    pub(super) fn parts_at(&self, node: usize) -> u64 {
        self.parts[node]
    }

    /// What lies at a link; of other links those that it `counts` have copies.
    pub(super) fn at_link(
        &self,
        link: &Arc<Link>,
        counts: impl Fn(&Arc<Link>) -> bool,
        may_find_place: impl Fn(&Replicas) -> bool,
    ) -> LinkUsage {
        let leaving = self.leaving.iter().filter(|replica| Arc::ptr_eq(&replica.link, link)).count();
        let mut there = LinkUsage { slabs: leaving, ..LinkUsage::default() };
        for (number, slab) in &self.slabs {
            if !slab.replicas.iter().any(|replica| Arc::ptr_eq(&replica.link, link)) {
                continue;
            }
            // One without pages that goes back has none any more.
            let used = self.slots.used_count(*number);
            let pages = used.unwrap_or(0) as u64;
            let others = slab.replicas.iter().filter(|replica| replica.is_live() && counts(&replica.link)).count();
            there.slabs += 1;
            there.pages += pages;
            if others + 1 < self.all {
                there.lacking_pages += pages;
            }
            if others == 0 && used.is_some() {
                there.last_slabs += 1;
                there.last_pages += pages;
            }
            there.movable_slabs += usize::from(pages > 0 && may_find_place(&slab.replicas));
        }
        there
    }

    /// Whether slabs without a page can go back.
    pub(super) fn has_empty(&self) -> bool {
        self.slots.has_empty()
    }

    /// Whether a link has the only replica of pages.
    pub(super) fn has_last_copies(&self, link: &Arc<Link>) -> bool {
        let is_last = |slab: &Slab| {
            let mut live = slab.replicas.iter().filter(|replica| replica.is_live());
            live.next().is_some_and(|replica| Arc::ptr_eq(&replica.link, link)) && live.next().is_none()
        };
        self.slabs.iter().any(|(number, slab)| self.slots.used_count(*number) > Some(0) && is_last(slab))
    }

    /// Takes slabs without a page out, at most `bound`; their replicas are to be given back. One that is being copied stays until
    /// that has ended: its source would refuse a read, as if it were no longer in step.
    pub(super) fn take_empty(&mut self, bound: usize) -> Vec<Replicas> {
        let numbers =
            self.slots.take_empty(bound, |number| self.slabs.get(&number).is_some_and(|slab| slab.rebuilding));
        numbers.iter().filter_map(|number| self.slabs.remove(number)).map(|slab| slab.replicas).collect()
    }

    /// Closes slabs without a page at a link whose node wants some back, as many as it wants: so they are empty, and go.
    pub(super) fn close_empty(&mut self, link: &Arc<Link>) {
        for (number, slab) in &self.slabs {
            let is_there = slab.replicas.iter().any(|replica| Arc::ptr_eq(&replica.link, link));
            if link.recall.is_some() && is_there && self.slots.used_count(*number) == Some(0) {
                slab.replicas.iter().for_each(|replica| replica.link.recall.less());
                self.slots.set_open(*number, false);
            }
        }
    }

    /// Takes the replicas out that have left their rows and that no thread reads from any more: they are to be given
    /// back.
    pub(super) fn take_unread(&mut self) -> Vec<Replica> {
        self.leaving.retain(Replica::is_live);
        self.leaving.extract_if(.., |replica| replica.is_unused()).collect()
    }

    /// Keeps replicas that belong to no row any more, and could not be given back yet.
    pub(super) fn keep_leaving(&mut self, replicas: &[Replica]) {
        self.leaving.extend_from_slice(replicas);
    }

    /// Bytes of the tables.
    pub(super) fn table_bytes(&self) -> u64 {
        const ROW_BYTES: usize = 160;
        let parts =
            self.slabs.values().filter_map(|slab| slab.bytes.as_ref()).map(|row| size_of_val(&**row)).sum::<usize>();
        self.slots.table_bytes() + (self.slabs.len() * ROW_BYTES + parts) as u64
    }
}
