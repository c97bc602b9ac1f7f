//! The read-ahead thread, as the pager's `ahead.rs`: windows wait in a short queue, and come in batch by batch.

use crate::held::Room;
use crate::machine::{Machine, Who};
use crate::page::{Marks, State};
use crate::reclaim::Work;
use hinterland_backend::Priority;
use hinterland_pager::rules::{
    BUDGET_PART, FRAMES_STEPS_MAX, KEY_SLOTS, KEYS_MAX, WAITING_MAX, runs_of, window_batch_pages,
};
use hinterland_policy::{AheadWindow, Arrival, Unmapped};
use std::collections::VecDeque;
use std::ops::Range;
use std::vec;

/// What it does, and for whom.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    windows: VecDeque<AheadWindow>,
    task: Task,
    /// The window that is being brought in.
    window: Option<AheadWindow>,
    /// Its pages that were looked at.
    offset: u32,
    /// Its pages that were mapped.
    mapped: u32,
    /// The batch that is being brought in, by slot in order of address; all of its pages are `Fetching`.
    batch: Vec<u32>,
    /// When the batch was asked for.
    asked_ns: u64,
    /// What of the batch is still to be mapped.
    runs: vec::IntoIter<Range<usize>>,
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

impl Ahead {
    pub(crate) fn wakes_ns(&self) -> u64 {
        match self.task {
            Task::Starting(until_ns) | Task::Reclaiming { until_ns, .. } | Task::Mapping { until_ns, .. } => until_ns,
            Task::Idle | Task::Storing { .. } | Task::Loading => u64::MAX,
        }
    }
}

impl Machine<'_> {
    /// Asks for a window from `now` on.
    pub(crate) fn ask_ahead(&mut self, now: u64, window: AheadWindow) {
        if self.ahead.windows.len() == WAITING_MAX {
            self.ahead.windows.pop_front();
        }
        self.ahead.windows.push_back(window);
        if matches!(self.ahead.task, Task::Idle) {
            self.ahead.task = Task::Starting(now);
        }
    }

    /// Its processor time is over.
    pub(crate) fn ahead_goes_on(&mut self, now: u64) {
        match std::mem::take(&mut self.ahead.task) {
            Task::Starting(_) => self.next_batch(now),
            Task::Reclaiming { work, steps, .. } if work.dirty_pages > 0 => {
                self.link.submit(now, Who::Ahead, work.dirty_pages, Priority::WriteBack);
                self.ahead.task = Task::Storing { work, steps };
            }
            Task::Reclaiming { work, steps, .. } => {
                self.settle(work);
                self.load_ahead(now, steps);
            }
            Task::Mapping { run, .. } => {
                self.settle_run(now, run);
                self.map_next(now);
            }
            Task::Idle | Task::Storing { .. } | Task::Loading => unreachable!("a thread that works was woken"),
        }
    }

    /// Its request on the link is done.
    pub(crate) fn ahead_done(&mut self, now: u64) {
        match std::mem::take(&mut self.ahead.task) {
            Task::Storing { work, steps } => {
                self.settle(work);
                self.load_ahead(now, steps);
            }
            Task::Loading => {
                let pages = u32::try_from(self.ahead.batch.len()).unwrap_or(u32::MAX);
                self.loaded(pages, now - self.ahead.asked_ns);
                let window = self.window();
                self.ahead.runs = runs_of(&self.ahead.batch, |slot| self.work.page(*slot), &window).into_iter();
                self.map_next(now);
            }
            _ => unreachable!("the read-ahead thread waits for the link"),
        }
    }

    /// Tells the prefetcher how long a load took.
    pub(crate) fn loaded(&mut self, pages: u32, ns: u64) {
        self.prefetcher.loaded(pages, ns, self.account.budget().0);
    }

    /// Takes the next batch up, of this window or the next.
    fn next_batch(&mut self, now: u64) {
        loop {
            let Some(window) = self.ahead.window.or_else(|| self.ahead.windows.pop_front()) else { return };
            if self.ahead.window.is_none() {
                (self.ahead.window, self.ahead.offset, self.ahead.mapped) = (Some(window), 0, 0);
            }
            self.claim_batch(window);
            if !self.ahead.batch.is_empty() {
                return self.load_ahead(now, 0);
            }
            self.ahead.window = None;
        }
    }

    /// Makes the next remote pages of a window `Fetching`.
    fn claim_batch(&mut self, window: AheadWindow) {
        self.ahead.batch.clear();
        let most = window_batch_pages(window.pages, self.account.budget().0);
        while self.ahead.batch.len() < most && self.ahead.offset < window.pages {
            let slot = window.page(self.ahead.offset).and_then(|page| self.work.slot(page));
            self.ahead.offset += 1;
            if let Some(slot) = slot.filter(|slot| self.pages[*slot as usize].state == State::Remote) {
                self.pages[slot as usize].state = State::Fetching;
                self.ahead.batch.push(slot);
            }
        }
        if window.step < 0 {
            self.ahead.batch.reverse();
        }
    }

    /// The window of the batch.
    fn window(&self) -> AheadWindow {
        self.ahead.window.unwrap_or_else(|| unreachable!("a batch belongs to a window"))
    }

    /// Loads the batch, once there are frames for it; after too many steps of reclaim the window is given up.
    fn load_ahead(&mut self, now: u64, steps: u32) {
        let pages = self.ahead.batch.len() as u64;
        if self.account.try_take(pages) {
            self.figures.prefetched += pages;
            self.link.submit(now, Who::Ahead, u32::try_from(pages).unwrap_or(u32::MAX), Priority::Prefetch);
            self.ahead.task = Task::Loading;
            self.ahead.asked_ns = now;
            return;
        }
        if steps < FRAMES_STEPS_MAX {
            let work = self.reclaim_step().unwrap_or_default();
            self.ahead.task = Task::Reclaiming { until_ns: now + work.cpu_ns, work, steps: steps + 1 };
            return;
        }
        for slot in std::mem::take(&mut self.ahead.batch) {
            self.pages[slot as usize].state = State::Remote;
        }
        self.ahead.window = None;
        self.ahead.task = Task::Starting(now);
    }

    /// Begins with the next page that stays unmapped, or with the next run of neighbours.
    fn map_next(&mut self, now: u64) {
        let Some(run) = self.ahead.runs.next() else {
            self.wake_evictor(now);
            return self.next_batch(now);
        };
        self.ahead.task = Task::Mapping { until_ns: now + run.len() as u64 * self.setup.costs.map_page_ns, run };
    }

    /// A run is mapped, or its page waits.
    fn settle_run(&mut self, now: u64, run: Range<usize>) {
        let window = self.window();
        for index in run {
            let slot = self.ahead.batch[index];
            self.since_ns[slot as usize] = now;
            let waits = window.leaves_unmapped(self.work.page(slot)) && self.hold(slot, window.unmapped);
            if !waits {
                self.arrive(slot, Arrival::Ahead, State::Unused);
                self.ahead.mapped += 1;
            }
            let marks = &mut self.pages[slot as usize].marks;
            marks.set(Marks::PREFETCHED, true);
            marks.set(Marks::COPIED, true);
        }
    }

    /// Lets a page wait unmapped. False: there is no room.
    fn hold(&mut self, slot: u32, window: Unmapped) -> bool {
        let bound = match window {
            Unmapped::Key(_) => KEYS_MAX,
            Unmapped::All => {
                let part = self.account.budget().0 / BUDGET_PART;
                u32::try_from(part).unwrap_or(u32::MAX).clamp(KEYS_MAX, KEY_SLOTS)
            }
        };
        let Some(room) = self.take_held_room(bound) else { return false };
        if room == Room::Reused {
            self.account.give(1);
        }
        self.held.push(slot, self.ahead.mapped);
        self.figures.prefetched_unmapped += 1;
        let page = &mut self.pages[slot as usize];
        page.state = State::Held;
        page.marks.set(Marks::DISPLACED, false);
        true
    }
}
