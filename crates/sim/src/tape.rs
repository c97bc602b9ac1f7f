//! Follows a tape, as 3PO's prefetcher does (§3.3, §3.4), with eviction from the known future.
//!
//! ```text
//!   fault on a thread's key page ──► what its plan lets go of until there can leave
//!                                ──► pages are asked for, up to BATCH + LOOKAHEAD arrivals further, as far as frames are had
//!                                ──► the next key page: the first behind BATCH arrivals that will fault; if none will, one is unmapped
//! ```
//!
//! Pages of the tape are mapped when they have come, but key pages, whose use is a fault that tells where the thread is. A frame is taken
//! from the page whose next use is furthest, of those that no thread's plan holds. A page that the program waits for and that was not
//! asked for is a major fault; its place on the tape, if it has one, is where the thread goes on.
//!
//! Nobody but the program takes time beside the link: batches are mapped, and pages evicted, on processors of their own.

use crate::figures::Figures;
use crate::machine::REPORT_REFERENCES;
use crate::{Setup, SetupError, Touch, Workload};
use hinterland_backend::{Link, Priority};
use hinterland_tape::tape::Tape;
use std::collections::BinaryHeap;

/// BATCH_SIZE is this part of the pages ahead, LOOKAHEAD the rest (3PO §5: 100 and 400).
const BATCH_PART: u64 = 5;
/// No thread's key page.
const NO_THREAD: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    /// No content, no frame.
    #[default]
    Untouched,
    /// No content, but a frame for its first touch.
    Reserved,
    Mapped,
    /// Fetched and left unmapped.
    Key,
    Fetching,
    Remote,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    place: Place,
    /// Far memory has its content, as it was when it came.
    copied: bool,
    /// Fetched, and not used since.
    prefetched: bool,
    /// Arrivals that were asked for and whose departures have not come.
    held: u16,
    /// Tells old entries of the heap.
    version: u16,
    /// Which thread's key page it is.
    key_of: u32,
    /// How often it left.
    left: u32,
    since_ns: u64,
}

impl Page {
    /// Its next touch is a fault that tells where its thread is. Pages that wait as key pages are taken.
    fn will_fault(&self) -> bool {
        !matches!(self.place, Place::Mapped | Place::Key)
    }
}

impl Default for Page {
    fn default() -> Page {
        let (place, key_of) = (Place::Untouched, NO_THREAD);
        Page { place, copied: false, prefetched: false, held: 0, version: 0, key_of, left: 0, since_ns: 0 }
    }
}

/// How far a thread is on its tape.
struct Cursor {
    /// Slot, position, and whether the thread's own reference needs it.
    arrivals: Vec<(u32, u32, bool)>,
    /// Position, slot, next use.
    departures: Vec<(u32, u32, Option<u32>)>,
    batch: usize,
    ahead: usize,
    begun: bool,
    /// Arrival at which the thread was seen last.
    seen: usize,
    /// Arrival whose fault is waited for.
    key: usize,
    asked: usize,
    released: usize,
    /// Pages that were missing since the thread was last found on its tape.
    lost: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Program,
    Page(u32),
    Store,
}

struct Follower<'a> {
    work: &'a Workload,
    setup: &'a Setup,
    frames: u64,
    local: u64,
    pages: Vec<Page>,
    threads: Vec<Cursor>,
    /// Pages that can leave: (touches until the next use, from the beginning; slot; version).
    can_leave: BinaryHeap<(u64, u32, u16)>,
    /// Where a page is looked for when none can leave.
    hand: usize,
    link: Link<Who>,
    stores: u64,
    /// Pages asked for ahead of all threads, at most.
    ahead: u64,
    figures: Figures,
}

/// Replays a workload along a tape that was planned from the same trace.
///
/// # Errors
/// An impossible setup, or a tape that names pages which the workload does not have.
pub fn follow(
    work: &Workload,
    setup: &Setup,
    tape: &Tape<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Figures, SetupError> {
    setup.check(work)?;
    let threads: Option<Vec<Cursor>> =
        (0..).zip(tape.threads()).map(|(number, _)| cursor(work, tape, number)).collect();
    let threads = threads.ok_or(SetupError::Tape)?;
    let follower = Follower {
        work,
        setup,
        frames: setup.frames(work),
        local: 0,
        pages: vec![Page::default(); work.slots()],
        ahead: threads.iter().map(|thread| thread.ahead as u64).sum(),
        threads,
        can_leave: BinaryHeap::new(),
        hand: 0,
        link: Link::new(&setup.link),
        stores: 0,
        figures: Figures { cpu_ns: work.cpu_ns(), ..Figures::default() },
    };
    Ok(follower.run(progress))
}

fn cursor(work: &Workload, tape: &Tape<'_>, thread: u32) -> Option<Cursor> {
    let slot = |region, page| work.slot_of(region, page);
    let arrivals =
        tape.arrivals(thread).map(|a| Some((slot(a.region, a.page)?, a.position, a.own))).collect::<Option<_>>()?;
    let departures = tape
        .departures(thread)
        .map(|departure| Some((departure.position, slot(departure.region, departure.page)?, departure.next_use)))
        .collect::<Option<_>>()?;
    let ahead = tape.threads()[thread as usize].ahead_pages.max(1);
    let pages = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let (batch, ahead) = (pages((ahead / BATCH_PART).max(1)), pages(ahead));
    Some(Cursor { arrivals, departures, batch, ahead, begun: false, seen: 0, key: 0, asked: 0, released: 0, lost: 0 })
}

impl Follower<'_> {
    fn run(mut self, progress: &mut dyn FnMut(u64)) -> Figures {
        for (touch, at) in self.work.touches().iter().zip(0_u64..) {
            let now = touch.at_ns + self.figures.stalled_ns;
            while self.link.next_ns() <= now {
                self.step();
            }
            let resumes = self.touch(*touch, now, at);
            self.figures.stalled_ns += resumes - now;
            self.figures.local_peak = self.figures.local_peak.max(self.local);
            self.figures.references += 1;
            if (at + 1).is_multiple_of(REPORT_REFERENCES as u64) {
                progress(self.figures.references);
            }
        }
        while self.link.next_ns() < u64::MAX {
            self.step();
        }
        progress(self.figures.references);
        let mut figures = self.figures;
        let faults = figures.first + figures.minor + figures.prefetch_hits + figures.awaited + figures.major;
        (figures.resident, figures.link_pages) = (figures.references - faults, self.link.pages());
        figures
    }

    /// Lets the next thing happen on the link; returns when, and whose it was.
    fn step(&mut self) -> (u64, Option<Who>) {
        let now = self.link.next_ns();
        let who = self.link.step();
        match who {
            Some(Who::Page(slot)) => {
                let page = &mut self.pages[slot as usize];
                let is_key = page.key_of != NO_THREAD;
                (page.place, page.since_ns) = (if is_key { Place::Key } else { Place::Mapped }, now);
                self.figures.prefetched_unmapped += u64::from(is_key);
            }
            Some(Who::Store) => self.stores -= 1,
            Some(Who::Program) | None => {}
        }
        (now, who)
    }

    /// The program touches a page; returns when it goes on. `at` counts touches.
    fn touch(&mut self, touch: Touch, began: u64, at: u64) -> u64 {
        let (slot, thread) = (touch.slot as usize, touch.thread as usize);
        let mut now = began;
        while self.pages[slot].place == Place::Fetching {
            now = self.step().0.max(now);
        }
        let waited_ns = now - began;
        let place = self.pages[slot].place;
        match place {
            Place::Mapped => self.figures.awaited += u64::from(waited_ns > 0),
            Place::Key => {
                let prefetched = self.pages[slot].prefetched;
                *(if prefetched { &mut self.figures.prefetch_hits } else { &mut self.figures.minor }) += 1;
                now += self.setup.costs.fault_ns;
            }
            Place::Untouched | Place::Reserved => now = self.first_touch(place, now),
            Place::Remote => now = self.fetch(now),
            Place::Fetching => unreachable!("it was waited for"),
        }
        let page = &mut self.pages[slot];
        page.place = Place::Mapped;
        page.copied |= place == Place::Remote;
        if std::mem::take(&mut page.prefetched) {
            let late = waited_ns > 0;
            self.figures.used += 1;
            *(if late { &mut self.figures.late } else { &mut self.figures.on_time }) += 1;
            self.figures.late_ns += waited_ns;
            self.figures.lead_ns += if late { 0 } else { began - page.since_ns };
        }
        let key_of = std::mem::replace(&mut page.key_of, NO_THREAD);
        if !self.threads.get(thread).is_none_or(|cursor| cursor.begun) {
            self.threads[thread].begun = true;
            self.key_touched(thread, now, at);
        } else if key_of == touch.thread {
            self.key_touched(thread, now, at);
        } else if key_of != NO_THREAD {
            // Another thread has mapped it: its owner's key page moves on.
            let from = self.threads[key_of as usize].key + 1;
            self.next_key(key_of as usize, from);
        } else if place == Place::Remote {
            self.find_place(thread, touch.slot, now, at);
        }
        now
    }

    fn first_touch(&mut self, place: Place, mut now: u64) -> u64 {
        if place == Place::Untouched {
            self.take_frame_by_force(now);
        }
        // What left for it must be on its way: no more than is asked for ahead.
        while self.stores > self.ahead {
            now = self.step().0.max(now);
        }
        self.figures.first += 1;
        now + self.setup.costs.fault_ns
    }

    /// Carries a page that was not asked for.
    fn fetch(&mut self, now: u64) -> u64 {
        self.take_frame_by_force(now);
        self.figures.major += 1;
        self.link.submit(now, Who::Program, 1, Priority::Demand);
        loop {
            let (at, who) = self.step();
            if who == Some(Who::Program) {
                return at + self.setup.costs.fault_ns + self.setup.costs.major_extra_ns;
            }
        }
    }

    /// A thread comes to its key page.
    fn key_touched(&mut self, thread: usize, now: u64, at: u64) {
        let cursor = &mut self.threads[thread];
        let (key, ahead) = (cursor.key, cursor.ahead);
        let Some(&(_, position, _)) = cursor.arrivals.get(key) else { return };
        cursor.seen = key;
        while let Some(&(_, slot, next_use)) =
            cursor.departures.get(cursor.released).filter(|(until, ..)| *until <= position)
        {
            cursor.released += 1;
            let page = &mut self.pages[slot as usize];
            page.held = page.held.saturating_sub(1);
            if page.held == 0 {
                let due = next_use.map_or(u64::MAX, |next| at + u64::from(next.saturating_sub(position)));
                self.can_leave.push((due, slot, page.version));
            }
        }
        let from = key + cursor.batch;
        self.ask(thread, key + 1 + ahead, now);
        self.next_key(thread, from);
    }

    /// Chooses the key page that a thread comes to next: the first arrival from `from` on, of those that were asked for, whose page is
    /// not mapped. Where all of them are (another thread has them, or there is more memory than was planned for), the first is unmapped
    /// (3PO §3.3, the alternative in its third footnote).
    fn next_key(&mut self, thread: usize, from: usize) {
        let unmapped = self.find_key(thread, from, self.threads[thread].asked, Page::will_fault);
        let found = unmapped.or_else(|| self.unmap_key(thread, from));
        // Without frames nothing was asked for.
        let unasked = || self.find_key(thread, self.threads[thread].asked, usize::MAX, Page::will_fault);
        let key = found.or_else(unasked).unwrap_or(self.threads[thread].arrivals.len());
        let cursor = &mut self.threads[thread];
        cursor.key = key;
        if let Some((slot, ..)) = cursor.arrivals.get(key) {
            self.pages[*slot as usize].key_of = u32::try_from(thread).unwrap_or(NO_THREAD);
        }
    }

    /// The first of the thread's own arrivals in a range whose page is as it should be. Not a page that it needs before: that would fault
    /// then.
    fn find_key(&self, thread: usize, from: usize, to: usize, fits: fn(&Page) -> bool) -> Option<usize> {
        let Cursor { arrivals, seen, .. } = &self.threads[thread];
        let range = from..to.min(arrivals.len());
        range.into_iter().find(|index| {
            let (slot, _, own) = arrivals[*index];
            let page = &self.pages[slot as usize];
            let before = || arrivals[(*seen).min(*index)..*index].iter().skip(1).any(|(other, ..)| *other == slot);
            own && page.key_of == NO_THREAD && fits(page) && !before()
        })
    }

    fn unmap_key(&mut self, thread: usize, from: usize) -> Option<usize> {
        let is_mapped = |page: &Page| page.place == Place::Mapped;
        let key = self.find_key(thread, from, self.threads[thread].asked, is_mapped)?;
        let page = &mut self.pages[self.threads[thread].arrivals[key].0 as usize];
        page.place = Place::Key;
        self.figures.prefetched_unmapped += u64::from(page.prefetched);
        Some(key)
    }

    /// Asks for the arrivals up to `end`, as far as frames are had.
    fn ask(&mut self, thread: usize, end: usize, now: u64) {
        while self.threads[thread].asked < end.min(self.threads[thread].arrivals.len()) {
            let (slot, ..) = self.threads[thread].arrivals[self.threads[thread].asked];
            let place = self.pages[slot as usize].place;
            let comes = match place {
                Place::Untouched => Some(Place::Reserved),
                Place::Remote => Some(Place::Fetching),
                _ => None,
            };
            if comes.is_some() && !self.take_frame(now) {
                return;
            }
            let page = &mut self.pages[slot as usize];
            page.held += 1;
            page.version = page.version.wrapping_add(1);
            page.place = comes.unwrap_or(place);
            if page.place == Place::Fetching && comes.is_some() {
                (page.prefetched, page.copied) = (true, true);
                self.figures.prefetched += 1;
                self.link.submit(now, Who::Page(slot), 1, Priority::Prefetch);
            }
            self.threads[thread].asked += 1;
        }
    }

    /// Looks for a page that was missing near where its thread should be; there it goes on.
    fn find_place(&mut self, thread: usize, slot: u32, now: u64, at: u64) {
        let Some(cursor) = self.threads.get_mut(thread) else { return };
        let reach = cursor.ahead + cursor.lost;
        let near = cursor.key.saturating_sub(cursor.batch)..cursor.key.saturating_add(reach).min(cursor.arrivals.len());
        let Some(found) = near.clone().find(|index| cursor.arrivals[*index].0 == slot) else {
            cursor.lost += 1;
            return;
        };
        if let Some((key, ..)) = cursor.arrivals.get(cursor.key) {
            self.pages[*key as usize].key_of = NO_THREAD;
        }
        (cursor.key, cursor.lost) = (found, 0);
        cursor.asked = cursor.asked.max(found);
        self.key_touched(thread, now, at);
    }

    /// A frame, from a page that can leave if there is no other.
    fn take_frame(&mut self, now: u64) -> bool {
        if self.local < self.frames {
            self.local += 1;
            return true;
        }
        // Those that are on their way, or waited for, can leave later.
        let mut later = Vec::new();
        let found = loop {
            let Some((due, slot, version)) = self.can_leave.pop() else { break None };
            let page = self.pages[slot as usize];
            match page.place {
                _ if page.version != version || page.held > 0 => {}
                Place::Mapped => break Some(slot),
                Place::Key | Place::Fetching => later.push((due, slot, version)),
                Place::Untouched | Place::Reserved | Place::Remote => {}
            }
        };
        self.can_leave.extend(later);
        found.inspect(|slot| self.evict(*slot, now)).is_some()
    }

    /// A frame, whosever it is.
    fn take_frame_by_force(&mut self, now: u64) {
        while !self.take_frame(now) {
            self.hand = (self.hand + 1) % self.pages.len();
            if self.pages[self.hand].place == Place::Mapped {
                let slot = u32::try_from(self.hand).expect("slots have 32 bits");
                self.evict(slot, now);
                return;
            }
        }
    }

    fn evict(&mut self, slot: u32, now: u64) {
        let page = &mut self.pages[slot as usize];
        page.left += 1;
        let dirty = !page.copied || self.setup.was_written(slot, page.left);
        (page.place, page.version) = (Place::Remote, page.version.wrapping_add(1));
        page.prefetched = false;
        if dirty {
            self.figures.evicted_dirty += 1;
            self.stores += 1;
            // Before the page that it makes room for.
            self.link.submit(now, Who::Store, 1, Priority::Prefetch);
        } else {
            self.figures.evicted_clean += 1;
        }
    }
}
