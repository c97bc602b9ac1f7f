//! Slabs that get a further replica, in place of a lost one, or another one in place of one whose node wants it back: copied a message
//! at a time.
//!
//! All that is kept between steps is in the pool's own memory, so the child of a fork goes on with a rebuild where its parent was.

use super::lane::SlotRead;
use super::limits::LOAD_PAGES;
use super::link::Link;
use super::link_estimate::Grant;
use super::placement::Placement;
use super::slabs::Slabs;
use super::table::{Replica, has_place};
use super::transfer::transfer;
use crate::node_error::NodeError;
use crate::sync::lock;
use crate::{Direction, Priority};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Rebuilds and moves slabs.
pub(super) struct Rebuilds {
    slabs: Arc<Slabs>,
    placement: Arc<Placement>,
    under_way: Option<Rebuild>,
    /// When a rebuild found no room. A move that finds none delays no other.
    no_room: Option<Instant>,
    /// The slab that was rebuilt last, or could not be.
    last: u32,
}

/// A slab that gets a further replica, or another in place of one.
struct Rebuild {
    number: u32,
    to: Replica,
    /// What it takes the place of.
    from: Option<Replica>,
    /// Slots with pages, and how many of them are done. No page is stored in the slab meanwhile.
    slots: Vec<u64>,
    done: usize,
    /// The last message had damage from each replica.
    damaged: bool,
    pages: Vec<PageBytes>,
}

impl Rebuild {
    fn new(number: u32, to: Replica, from: Option<Replica>, slots: Vec<u64>) -> Rebuild {
        Rebuild { number, to, from, slots, done: 0, damaged: false, pages: vec![[0; PAGE_BYTES]; LOAD_PAGES] }
    }

    /// Copies the next pages.
    fn copy_some(&mut self, slabs: &Slabs) -> Step {
        let Rebuild { number, to, from: leaving, slots, done, damaged: before, pages } = self;
        let all = slots.len();
        let pages_max = match to.link.estimate.grant(Direction::Out, to.link.has_demands(), 0) {
            Grant::Bytes(bytes) => (usize::try_from(bytes).unwrap_or(0) / PAGE_BYTES).clamp(1, LOAD_PAGES),
            _ => LOAD_PAGES,
        };
        let slots = &slots[*done..all.min(*done + pages_max)];
        let (from, bytes): (_, Vec<usize>) = {
            let table = slabs.table();
            let Some(from) = table.replicas_of(*number) else { return Step::Over };
            // Of a slot that is free by now, as many as there are: the copy is not read.
            (from, slots.iter().map(|slot| table.bytes_of(*slot)).collect())
        };
        // Positions of those that no replica has given undamaged yet.
        let (mut left, mut damaged) = ((0..slots.len()).collect::<Vec<usize>>(), false);
        // What goes is what is copied: another replica may be a wrong one, and this the last right one.
        let first = leaving.iter().filter(|leaving| from.iter().any(|replica| replica.is_same(leaving)));
        for replica in first.chain(from.iter()).filter(|replica| replica.is_live()) {
            if left.is_empty() {
                break;
            }
            let rooms = pages.iter_mut().enumerate().filter(|(position, _)| left.contains(position));
            let mut items: Vec<SlotRead<'_>> = rooms
                .map(|(position, into)| SlotRead { slot: replica.slot(slots[position]), bytes: bytes[position], into })
                .collect();
            let mut whole = vec![false; left.len()];
            let take = &mut |item: usize, page: Option<&PageBytes>| whole[item] = page.is_some();
            let (link, patience) = (&replica.link, slabs.patience(&replica.link));
            let moved = transfer(slabs, link, &mut items, Priority::WriteBack, patience, take, &mut || ());
            if let Err(error) = &moved {
                slabs.handle_error(&replica.link, error);
            }
            let mut whole = whole.into_iter();
            left.retain(|_| !whole.next().unwrap_or(false));
            // Damage is left to who loads the page: it alone can tell which replica is right. A copy of it would pass for right, and what changed
            // only on its way may come unchanged the next time.
            damaged |= moved.is_ok() && !left.is_empty();
        }
        let read = left.is_empty();
        let again = std::mem::replace(before, damaged && !read);
        if !read {
            return match damaged {
                true if again => Step::Damaged,
                true => Step::Going,
                false => Step::Over,
            };
        }
        let contents: Vec<&[u8]> = pages.iter().zip(&bytes).map(|(page, bytes)| &page[..*bytes]).collect();
        let there: Vec<u64> = slots.iter().map(|slot| to.slot(*slot)).collect();
        if let Err(error) = write_one(slabs, to, &there, &contents) {
            slabs.handle_error(&to.link, &error);
            return Step::Over;
        }
        *done += slots.len();
        let (pages, now) = (slots.len() as u64, Instant::now());
        lock(&to.link.node.copied).count(pages, now);
        if let Some(leaving) = leaving {
            lock(&leaving.link.node.copied).count(pages, now);
        }
        if *done == all { Step::Done } else { Step::Going }
    }
}

/// What became of a step of a rebuild.
enum Step {
    Going,
    Done,
    /// It cannot go on: the slab is gone, or a node.
    Over,
    /// No replica has all pages undamaged, nor had when it was asked before.
    Damaged,
}

impl Rebuilds {
    pub(super) fn new(slabs: &Arc<Slabs>, placement: &Arc<Placement>) -> Rebuilds {
        Rebuilds { slabs: slabs.clone(), placement: placement.clone(), under_way: None, no_room: None, last: 0 }
    }

    /// One message of a rebuild, if there is one; returns when the next may follow.
    pub(super) fn step(&mut self) -> Option<Duration> {
        if self.under_way.is_none() {
            self.under_way = self.begin_rebuild().or_else(|| self.begin_move());
        }
        let slabs = &*self.slabs;
        let rebuild = self.under_way.as_mut()?;
        let before = rebuild.done;
        let step = rebuild.copy_some(slabs);
        let pause = slabs.timing.pause_after(rebuild.done - before);
        if matches!(step, Step::Going) {
            return Some(pause);
        }
        let Rebuild { number, to, from, slots, .. } = self.under_way.take()?;
        let is_copied = matches!(step, Step::Done);
        if matches!(step, Step::Damaged) {
            slabs.table().damaged(number);
        }
        let is_there = slabs.table().end_rebuild(number, is_copied.then(|| to.clone()), from.as_ref());
        if !is_copied || !is_there {
            slabs.give_up(&[to]);
            return Some(slabs.timing.step);
        }
        match from {
            Some(from) => from.link.recall.less(),
            None => _ = to.link.node.rebuilt_pages.fetch_add(slots.len() as u64, Relaxed),
        }
        Some(pause)
    }

    /// Chooses a slab with too few replicas, and a node for one more.
    fn begin_rebuild(&mut self) -> Option<Rebuild> {
        if self.no_room.is_some_and(|since| since.elapsed() < self.slabs.timing.refused) {
            return None;
        }
        let staying = self.slabs.staying();
        let number = self.slabs.table().find_degraded(self.last, |replicas| has_place(&staying, replicas))?;
        self.last = number;
        let Some(to) = self.placement.place_replica(number) else {
            self.no_room = Some(Instant::now());
            return None;
        };
        // Closed only now: where there is no room it goes on getting pages.
        let Some(slots) = self.slabs.table().begin_rebuild(number) else {
            self.slabs.give_up(&[to]);
            return None;
        };
        Some(Rebuild::new(number, to, None, slots))
    }

    /// Begins to move a slab that is wanted back, if there is one that may find another place.
    fn begin_move(&self) -> Option<Rebuild> {
        let (wanting, others): (Vec<Arc<Link>>, _) =
            self.slabs.links.healthy().into_iter().partition(|link| link.recall.is_some());
        if wanting.is_empty() {
            return None;
        }
        let roomy: Vec<Arc<Link>> = others.into_iter().filter(|link| link.may_have_room()).collect();
        let (number, from) = self.slabs.table().begin_move(|replicas| has_place(&roomy, replicas))?;
        let to = self.placement.place_replica(number);
        // Nothing was stored there since it was closed.
        let slots = self.slabs.table().used_in(number);
        if let (Some(to), Some(slots)) = (to.clone(), slots) {
            return Some(Rebuild::new(number, to, Some(from), slots));
        }
        self.slabs.table().end_rebuild(number, None, Some(&from));
        self.slabs.give_up(to.as_slice());
        // It gets pages again.
        self.slabs.fit_table_to_links();
        None
    }
}

/// Writes pages to a replica that is being made.
fn write_one(slabs: &Slabs, to: &Replica, slots: &[u64], pages: &[&[u8]]) -> Result<(), NodeError> {
    let link = &to.link;
    let mut lane = link.background_lane(link.node.limit())?;
    link.views.before_write(to.slab);
    let mut write = || {
        lane.send_pages(slots, pages, Priority::Migration)?;
        lane.wait(slabs.patience(link))?;
        lane.take_done()?;
        link.make_view(&mut lane, to.slab)
    };
    let written = write();
    if written.as_ref().is_err_and(|error| !error.is_full()) {
        lane.close();
    }
    link.node.bytes_in.fetch_add((pages.len() * PAGE_BYTES) as u64, Relaxed);
    link.node.sent_bytes.fetch_add(pages.iter().map(|page| page.len() as u64).sum(), Relaxed);
    written
}
