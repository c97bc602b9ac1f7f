//! What a pool does beside loads and stores: nodes that were lost are tried again, those that no load asks are pinged, slabs that have
//! too few replicas rebuilt, a message at a time, and certificates and keys read again when their files have changed.
//!
//! One call of `maintain` takes one step, which a fork may have to wait for. All that is kept between steps is in the pool's own
//! memory, so the child of a fork goes on with a rebuild where its parent was.

use super::limits::{LOAD_PAGES, STEADY};
use super::link::Link;
use super::membership::Heard;
use super::recall::Recalls;
use super::table::{Replica, Replicas};
use super::{NodeError, NodePool, Timing};
use crate::sync::lock;
use crate::{LoadItem, Location, Priority};
use hinterland_sys::confinement;
use hinterland_tls::LOOK_EVERY;
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What is under way.
#[derive(Default)]
pub(super) struct Maintenance {
    rebuild: Option<Rebuild>,
    /// For each node, when it is to be tried again.
    pub(super) returns: Vec<Return>,
    pinged: Option<Instant>,
    /// How often one of them was asked for a sign of life.
    pings: usize,
    /// When a rebuild found no room. A move that finds none delays nobody.
    no_room: Option<Instant>,
    /// The slab that was rebuilt last, or could not be.
    last: u32,
    recalls: Recalls,
    pub(super) heard: Heard,
}

/// When a node that is lost is to be tried again.
pub(super) struct Return {
    pause: Duration,
    /// When the last attempt was, or when it came back.
    since: Instant,
    /// It is looked for: it has not left the pool.
    pub(super) belongs: bool,
}

impl Return {
    pub(super) fn fresh(timing: &Timing) -> Return {
        Return { pause: timing.return_min, since: Instant::now(), belongs: true }
    }
}

/// A slab that gets a further replica, or another in place of one.
pub(super) struct Rebuild {
    number: u32,
    to: Replica,
    /// What it takes the place of.
    from: Option<Replica>,
    /// Slots with pages, and how many of them are done. No page is stored in the slab meanwhile.
    slots: Vec<u64>,
    done: usize,
    pages: Vec<PageBytes>,
}

impl Rebuild {
    pub(super) fn new(number: u32, to: Replica, from: Option<Replica>, slots: Vec<u64>) -> Rebuild {
        Rebuild { number, to, from, slots, done: 0, pages: vec![[0; PAGE_BYTES]; LOAD_PAGES] }
    }
}

/// Whether a node has one of `replicas`.
fn is_held(replicas: &Replicas, link: &Link) -> bool {
    replicas.iter().any(|replica| replica.link.node.index == link.node.index)
}

/// Whether a slab with these replicas can have one more on one of `links`.
pub(super) fn has_place(links: &[Arc<Link>], replicas: &Replicas) -> bool {
    links.iter().any(|link| !is_held(replicas, link))
}

/// What became of a step of a rebuild.
enum Step {
    Going,
    Done,
    /// It cannot go on: the slab is gone, or a node.
    Over,
}

impl NodePool {
    /// Takes one step; returns when the next is due. `None`: nothing is to be done.
    pub(super) fn maintain_once(&self) -> Option<Duration> {
        let mut maintenance = lock(&self.maintenance);
        // Before looking: what comes to light while we look says so again.
        let was_due = self.maintenance_due.swap(false, Relaxed);
        // One wait at most for a node that does not answer: a fork waits for this step.
        let mut changed = false;
        maintenance.returns.resize_with(self.links.len(), || Return::fresh(&self.timing));
        self.hear(&mut maintenance);
        self.look_at_files();
        if !self.try_return(&mut maintenance) {
            self.ping_passed_by(&mut maintenance);
            changed = self.ask_recalls(&mut maintenance.recalls);
        }
        let pause = self.rebuild(&mut maintenance);
        if was_due || changed || pause.is_some() {
            self.refresh();
        }
        self.return_unread();
        self.return_empty();
        let pause = pause.or_else(|| self.maintenance_due.load(Relaxed).then_some(self.timing.step));
        let pause = pause.or_else(|| self.has_others().then_some(self.timing.idle_step));
        pause.or_else(|| self.is_secured.then_some(LOOK_EVERY))
    }

    /// Takes new certificates and keys for lanes that are made from now on. It is the launcher that says what is wrong with them.
    fn look_at_files(&self) {
        if !self.is_secured {
            return;
        }
        for link in &self.links {
            let node = lock(link).node.clone();
            if let Some(secured) = &node.secured {
                confinement::with_files(|| secured.credentials.look(LOOK_EVERY));
            }
        }
    }

    /// Opens a new link to a lost node that is due, if there is one; of several, the one that has waited longest.
    fn try_return(&self, maintenance: &mut Maintenance) -> bool {
        let is_due = |slot: &Mutex<Arc<Link>>, again: &Return| {
            again.belongs && again.since.elapsed() >= again.pause && lock(slot).is_away()
        };
        let due = self.links.iter().zip(&mut maintenance.returns).filter(|(slot, again)| is_due(slot, again));
        let Some((slot, again)) = due.min_by_key(|(_, again)| again.since) else { return false };
        // Its session ends with its lanes.
        let node = lock(slot).node.clone();
        // Perhaps it was what we showed.
        if let Some(secured) = &node.secured {
            confinement::with_files(|| secured.credentials.again());
        }
        let opened = Link::open(&node, &self.name, self.timing.return_limit);
        let steady = again.since.elapsed() > again.pause + STEADY;
        again.pause = if steady { self.timing.return_min } else { (again.pause * 2).min(self.timing.return_max) };
        again.since = Instant::now();
        if let Ok((link, slab_bytes)) = opened
            && slab_bytes == self.slab_bytes
        {
            *lock(slot) = Arc::new(link);
            // At once: with one node more, more replicas are wanted of what is stored from now on.
            self.refresh();
        }
        true
    }

    /// Asks a node that loads pass by for a sign of life: what it takes bounds its latency, and who gives none is lost.
    fn ping_passed_by(&self, maintenance: &mut Maintenance) {
        if maintenance.pinged.is_some_and(|pinged| pinged.elapsed() < self.timing.ping) {
            return;
        }
        let asked: Vec<Arc<Link>> = self.healthy().into_iter().filter(|link| link.is_passed_by()).collect();
        if !asked.is_empty() {
            // In turn.
            let link = &asked[maintenance.pings % asked.len()];
            (maintenance.pings, maintenance.pinged) = (maintenance.pings.wrapping_add(1), Some(Instant::now()));
            let begun = Instant::now();
            match link.ping(self.patience(link)) {
                Ok(()) => link.latency.at_most(begun.elapsed()),
                Err(error) if error.is_absence() => self.judge(link, &error),
                // It is there: the lanes that are used find out what is wrong.
                Err(_) => {}
            }
        }
        self.weigh();
    }

    /// One message of a rebuild, if there is one; returns when the next may follow.
    fn rebuild(&self, maintenance: &mut Maintenance) -> Option<Duration> {
        if maintenance.rebuild.is_none() {
            maintenance.rebuild = self.begin_rebuild(maintenance).or_else(|| self.begin_move());
        }
        let rebuild = maintenance.rebuild.as_mut()?;
        let before = rebuild.done;
        let step = self.copy_some(rebuild);
        let pause = self.timing.pause_after(rebuild.done - before);
        if matches!(step, Step::Going) {
            return Some(pause);
        }
        let Rebuild { number, to, from, slots, .. } = maintenance.rebuild.take()?;
        let is_copied = matches!(step, Step::Done);
        let is_there = lock(&self.table).end_rebuild(number, is_copied.then(|| to.clone()), from.as_ref());
        if !is_copied || !is_there {
            self.give_up(&[to]);
            return Some(self.timing.step);
        }
        match from {
            Some(from) => from.link.recall.less(),
            None => _ = to.link.node.rebuilt_pages.fetch_add(slots.len() as u64, Relaxed),
        }
        Some(pause)
    }

    /// Chooses a slab with too few replicas, and a node for one more.
    fn begin_rebuild(&self, maintenance: &mut Maintenance) -> Option<Rebuild> {
        if maintenance.no_room.is_some_and(|since| since.elapsed() < self.timing.refused) {
            return None;
        }
        let staying = self.staying();
        let number = lock(&self.table).find_degraded(maintenance.last, |replicas| has_place(&staying, replicas))?;
        maintenance.last = number;
        let Some(to) = self.place_replica(number) else {
            maintenance.no_room = Some(Instant::now());
            return None;
        };
        // Closed only now: where there is no room it goes on getting pages.
        let Some(slots) = lock(&self.table).begin_rebuild(number) else {
            self.give_up(&[to]);
            return None;
        };
        Some(Rebuild::new(number, to, None, slots))
    }

    /// The links that can be used now and are not drained.
    pub(super) fn staying(&self) -> Vec<Arc<Link>> {
        self.healthy().into_iter().filter(|link| !link.recall.is_total()).collect()
    }

    /// Leases a slab for one more replica of another slab, on a node that stays.
    pub(super) fn place_replica(&self, number: u32) -> Option<Replica> {
        let replicas = lock(&self.table).replicas_of(number)?;
        let mut candidates = self.staying();
        candidates.retain(|link| !is_held(&replicas, link));
        loop {
            // Who is full or lost is no candidate any more.
            if let Ok(to) = self.place_one(&mut candidates, 1) {
                return to;
            }
        }
    }

    /// Copies the next pages.
    fn copy_some(&self, rebuild: &mut Rebuild) -> Step {
        let Rebuild { number, to, from: leaving, slots, done, pages } = rebuild;
        let all = slots.len();
        let slots = &slots[*done..all.min(*done + LOAD_PAGES)];
        let Some(from) = lock(&self.table).replicas_of(*number) else { return Step::Over };
        // What goes is what is copied: another replica may be a wrong one, and this the last right one.
        let first = leaving.iter().filter(|leaving| from.iter().any(|replica| replica.is_same(leaving)));
        let read = first.chain(from.iter()).filter(|replica| replica.is_live()).any(|replica| {
            let there = slots.iter().map(|slot| Location(replica.slot(*slot))).zip(pages.iter_mut());
            let mut items: Vec<LoadItem<'_>> = there.map(|(location, into)| LoadItem { location, into }).collect();
            let mut damaged = false;
            let take = &mut |_, page: Option<&PageBytes>| damaged |= page.is_none();
            let moved =
                self.transfer(&replica.link, &mut items, Priority::WriteBack, self.patience(&replica.link), take);
            if let Err(error) = &moved {
                self.judge(&replica.link, error);
            }
            // Damage is left to who loads the page: it alone can tell which replica is right. A copy of it would pass for right, and what changed
            // only on its way may come unchanged the next time.
            moved.is_ok() && !damaged
        });
        if !read {
            return Step::Over;
        }
        let contents: Vec<&PageBytes> = pages[..slots.len()].iter().collect();
        let there: Vec<u64> = slots.iter().map(|slot| to.slot(*slot)).collect();
        if let Err(error) = self.write_one(to, &there, &contents) {
            self.judge(&to.link, &error);
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

    fn write_one(&self, to: &Replica, slots: &[u64], pages: &[&PageBytes]) -> Result<(), NodeError> {
        let link = &to.link;
        let mut lane = link.background_lane(link.node.limit())?;
        link.views.before_write(to.slab);
        let mut write = || {
            lane.send_pages(slots, pages, Priority::Migration)?;
            lane.wait(self.patience(link))?;
            lane.take_done()?;
            link.make_view(&mut lane, to.slab)
        };
        let written = write();
        if written.as_ref().is_err_and(|error| !error.is_full()) {
            lane.close();
        }
        link.node.bytes_in.fetch_add((pages.len() * PAGE_BYTES) as u64, Relaxed);
        written
    }
}
