//! The read-ahead thread, as the pager's `read_ahead.rs`: it serves windows round robin, batch by batch, and claims a batch before
//! the one before it is mapped.

use crate::machine::{Machine, Who};
use crate::page::{Marks, State};
use crate::prefetch_cache::Room;
use crate::reclaim::Work;
use hinterland_backend::Priority;
use hinterland_pager::rules::{
    BUDGET_PART, FRAMES_STEPS_MAX, KEY_SLOTS, KEYS_MAX, PendingWindow, WindowQueue, runs_of, window_batch_pages,
};
use hinterland_policy::{Arrival, PrefetchWindow, Unmapped};
use hinterland_units::PageNo;
use std::ops::Range;
use std::vec;

/// What the thread does, and for which windows.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    windows: WindowQueue,
    task: Task,
    /// The batch that is being brought in.
    batch: Batch,
    /// The one after it: claimed before the pages of this one are mapped.
    next: Batch,
    /// When the batch was asked for.
    asked_ns: u64,
    /// What of the batch is still to be mapped.
    runs: vec::IntoIter<Range<usize>>,
}

/// Pages of one window that are loaded at once.
#[derive(Debug, Default)]
struct Batch {
    /// By slot in order of address; all are `Fetching`.
    slots: Vec<u32>,
    /// The window; none: nothing is claimed.
    of: Option<PendingWindow>,
}

#[derive(Debug, Default)]
enum Task {
    #[default]
    Idle,
    /// Begins at this time.
    Starting(u64),
    /// Makes room for the batch: the step of reclaim takes until then.
    Reclaiming { until_ns: u64, work: Work, steps: u32 },
    /// Waits for what the step stores.
    Storing { work: Work, steps: u32 },
    /// Waits for the batch.
    Loading,
    /// Maps a run of the batch, or makes a page wait, until then.
    Mapping { until_ns: u64, run: Range<usize> },
}

impl ReadAhead {
    pub(crate) fn wakes_ns(&self) -> u64 {
        match self.task {
            Task::Starting(until_ns) | Task::Reclaiming { until_ns, .. } | Task::Mapping { until_ns, .. } => until_ns,
            Task::Idle | Task::Storing { .. } | Task::Loading => u64::MAX,
        }
    }
}

impl Machine<'_> {
    /// Requests a window from `now` on.
    pub(crate) fn request_window(&mut self, now: u64, window: PrefetchWindow) {
        self.read_ahead.windows.push(window);
        if matches!(self.read_ahead.task, Task::Idle) {
            self.read_ahead.task = Task::Starting(now);
        }
    }

    /// Its processor time is over.
    pub(crate) fn read_ahead_goes_on(&mut self, now: u64) {
        match std::mem::take(&mut self.read_ahead.task) {
            Task::Starting(_) => self.next_batch(now),
            Task::Reclaiming { work, steps, .. } if work.dirty_pages > 0 => {
                self.link.submit(now, Who::ReadAhead, work.dirty_pages, Priority::WriteBack);
                self.read_ahead.task = Task::Storing { work, steps };
            }
            Task::Reclaiming { work, steps, .. } => {
                self.complete(work);
                self.load_batch(now, steps);
            }
            Task::Mapping { run, .. } => {
                self.complete_run(now, run);
                self.map_next(now);
            }
            Task::Idle | Task::Storing { .. } | Task::Loading => unreachable!("a thread that works was woken"),
        }
    }

    /// Its request on the link is done.
    pub(crate) fn read_ahead_done(&mut self, now: u64) {
        match std::mem::take(&mut self.read_ahead.task) {
            Task::Storing { work, steps } => {
                self.complete(work);
                self.load_batch(now, steps);
            }
            Task::Loading => {
                let pages = u32::try_from(self.read_ahead.batch.slots.len()).unwrap_or(u32::MAX);
                self.loaded(pages, now - self.read_ahead.asked_ns);
                self.claim_next();
                let window = self.of().window;
                self.read_ahead.runs =
                    runs_of(&self.read_ahead.batch.slots, |slot| self.work.page(*slot), &window).into_iter();
                self.map_next(now);
            }
            _ => unreachable!("the read-ahead thread waits for the link"),
        }
    }

    /// Tells the prefetcher how long a load took.
    pub(crate) fn loaded(&mut self, pages: u32, ns: u64) {
        self.prefetcher.loaded(pages, ns, self.account.budget().0);
    }

    /// Goes on with the batch that was claimed last, if there is one.
    fn next_batch(&mut self, now: u64) {
        self.read_ahead.batch = std::mem::take(&mut self.read_ahead.next);
        if self.read_ahead.batch.of.is_some() {
            return self.load_batch(now, 0);
        }
        // It looks for windows that were queued since, as the thread does before it sleeps.
        self.claim_next();
        if self.read_ahead.next.of.is_some() {
            self.next_batch(now);
        }
    }

    /// Makes the next far pages that are wanted `Fetching`, all of one window.
    fn claim_next(&mut self) {
        let mut slots = std::mem::take(&mut self.read_ahead.next.slots);
        slots.clear();
        let mut of = None;
        while slots.is_empty() {
            of = self.read_ahead.windows.take_next();
            let Some(PendingWindow { window, number, mut offset, .. }) = of else { break };
            let most = window_batch_pages(window.pages, self.account.budget().0);
            while slots.len() < most && offset < window.pages {
                let slot = window.page(offset).and_then(|page| self.work.slot(page));
                offset += 1;
                if let Some(slot) = slot.filter(|slot| self.pages[*slot as usize].state == State::Remote) {
                    self.pages[slot as usize].state = State::Fetching;
                    slots.push(slot);
                }
            }
            self.read_ahead.windows.update(number, |pending| pending.offset = offset);
            if window.step < 0 {
                slots.reverse();
            }
        }
        self.read_ahead.next = Batch { slots, of };
    }

    /// The window of the batch.
    fn of(&self) -> PendingWindow {
        self.read_ahead.batch.of.unwrap_or_else(|| unreachable!("a batch belongs to a window"))
    }

    /// Loads the batch, once there are frames for it; after too many steps of reclaim the window is given up.
    fn load_batch(&mut self, now: u64, steps: u32) {
        let pages = self.read_ahead.batch.slots.len() as u64;
        if self.account.try_charge(pages) {
            self.figures.prefetched += pages;
            self.link.submit(now, Who::ReadAhead, u32::try_from(pages).unwrap_or(u32::MAX), Priority::Prefetch);
            self.read_ahead.task = Task::Loading;
            self.read_ahead.asked_ns = now;
            return;
        }
        if steps < FRAMES_STEPS_MAX {
            let work = self.reclaim_step().unwrap_or_default();
            self.read_ahead.task = Task::Reclaiming { until_ns: now + work.cpu_ns, work, steps: steps + 1 };
            return;
        }
        for slot in std::mem::take(&mut self.read_ahead.batch.slots) {
            self.pages[slot as usize].state = State::Remote;
        }
        let number = self.of().number;
        self.read_ahead.windows.remove(number);
        self.read_ahead.task = Task::Starting(now);
    }

    /// Begins with the next page that stays unmapped, or with the next run of neighbours.
    fn map_next(&mut self, now: u64) {
        let Some(run) = self.read_ahead.runs.next() else {
            self.wake_evictor(now);
            return self.next_batch(now);
        };
        self.read_ahead.task = Task::Mapping { until_ns: now + run.len() as u64 * self.setup.costs.map_page_ns, run };
    }

    /// A run is mapped, or its page waits.
    fn complete_run(&mut self, now: u64, run: Range<usize>) {
        let mut of = self.read_ahead.windows.get(self.of().number).copied().unwrap_or(self.of());
        for index in run {
            let slot = self.read_ahead.batch.slots[index];
            self.since_ns[slot as usize] = now;
            if of.window.leaves_unmapped(self.work.page(slot))
                && self.leave_unmapped(slot, of.window.unmapped, of.mapped)
            {
                (of.mapped, of.has_key) = (0, true);
            } else {
                self.arrive(slot, Arrival::Prefetched, State::Unused);
                of.mapped += 1;
            }
            let marks = &mut self.pages[slot as usize].marks;
            marks.set(Marks::PREFETCHED, true);
            marks.set(Marks::COPIED, true);
        }
        if let (Unmapped::Key(key), true) = (of.window.unmapped, of.has_key) {
            self.mapped_with(key, std::mem::take(&mut of.mapped));
        }
        self.read_ahead.windows.update(of.number, |known| (known.mapped, known.has_key) = (of.mapped, of.has_key));
    }

    /// More pages were mapped with a page that was left waiting: they are used when it is, or were if it was.
    fn mapped_with(&mut self, key: PageNo, mapped: u32) {
        let Some(slot) = self.work.slot(key) else { return };
        match self.pages[slot as usize].state {
            State::PrefetchCached => self.prefetch_cache.mapped_with(slot, mapped),
            State::Resident => self.figures.hits_inferred += u64::from(mapped),
            _ => {}
        }
    }

    /// Leaves a page unmapped in the cache, with which `mapped` others were mapped. False: there is no room.
    fn leave_unmapped(&mut self, slot: u32, window: Unmapped, mapped: u32) -> bool {
        let bound = match window {
            Unmapped::Key(_) => KEYS_MAX,
            Unmapped::All => {
                let part = self.account.budget().0 / BUDGET_PART;
                u32::try_from(part).unwrap_or(u32::MAX).clamp(KEYS_MAX, KEY_SLOTS)
            }
        };
        let Some(room) = self.take_prefetch_room(bound) else { return false };
        if room == Room::Reused {
            self.account.uncharge(1);
        }
        self.prefetch_cache.push(slot, mapped);
        self.figures.prefetched_unmapped += 1;
        let page = &mut self.pages[slot as usize];
        page.state = State::PrefetchCached;
        page.marks.set(Marks::DISPLACED, false);
        true
    }
}
