//! The read-ahead thread, as the pager's `read_ahead.rs`: it serves windows round robin, batch by batch, and claims a batch before
//! the one before it is mapped.

use crate::FaultPath;
use crate::answers::Answers;
use crate::machine::{Machine, Who};
use crate::page::{Marks, State};
use crate::reclaim::Work;
use hinterland_backend::{DEMAND_LANES, Priority};
use hinterland_paging::{
    Claimed, Frames, HELP_PAGES, KeyPageState, LANDING_PAGES, MappedPages, PendingWindow, TakenSlot, Urgency,
    WindowBody, WindowQueue, batch_pages, claim_batch, claim_next_batch, pages_for_windows, runs_of,
};
use hinterland_policy::{DemandLoad, InFlight, Prefetch};
use hinterland_units::PageNo;
use std::ops::Range;
use std::vec;

/// What the thread does, and for which windows.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    windows: WindowQueue,
    task: Task,
    /// The batch that is being brought in: slots of `Fetching` pages.
    batch: Claimed<u32>,
    /// The one after it: claimed before the pages of this one are mapped.
    next: Claimed<u32>,
    /// Mapped pages of the batch that the key page does not know of yet.
    mapped: MappedPages,
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

impl ReadAhead {
    pub(crate) fn wakes_ns(&self) -> u64 {
        match self.task {
            Task::Starting(until_ns) | Task::Reclaiming { until_ns, .. } | Task::Mapping { until_ns, .. } => until_ns,
            Task::Idle | Task::Storing { .. } | Task::Loading => u64::MAX,
        }
    }
}

impl WindowBody for Machine<'_> {
    type Claimed = u32;

    fn windows<R>(&mut self, work: impl FnOnce(&mut WindowQueue) -> R) -> R {
        work(&mut self.read_ahead.windows)
    }

    fn batch_pages(&self, wanted: &Prefetch) -> usize {
        batch_pages(wanted, self.account.budget().0, self.copies_cost_ram)
    }

    fn claim(&mut self, page: PageNo) -> Option<u32> {
        let (slot, answer) = (self.work.slot(page), self.answers.as_mut().map(Answers::is_so));
        let page = &mut self.pages[slot? as usize];
        let is_remote = answer.unwrap_or(page.state == State::Remote);
        if is_remote {
            page.state = State::Fetching;
        }
        slot.filter(|_| is_remote)
    }

    fn page(&self, slot: &u32) -> PageNo {
        self.work.page(*slot)
    }
}

impl Machine<'_> {
    /// Requests pages from `now` on. The window's number, if the read-ahead thread is late with the one before.
    pub(crate) fn request_ahead(&mut self, now: u64, wanted: impl Into<Prefetch>) -> Option<u64> {
        let pushed = self.read_ahead.windows.push(wanted);
        if matches!(self.read_ahead.task, Task::Idle) {
            self.read_ahead.task = Task::Starting(now);
        }
        pushed.late()
    }

    /// Windows that have pages left to claim.
    pub(crate) fn windows_waiting(&self) -> usize {
        self.read_ahead.windows.waiting()
    }

    /// The number of the batch that a page is to come with which the program waits for now.
    pub(crate) fn late_batch(&self, page: PageNo) -> Option<u64> {
        self.read_ahead.windows.late_batch(page)
    }

    /// Pages of blocks that were asked for and have not come.
    pub(crate) fn block_pages(&self) -> u32 {
        self.read_ahead.windows.block_pages()
    }

    /// The program is about to ask for a page that is far, while `demands` other threads wait for pages on so many lanes: the block that is asked for now,
    /// if it is one, and the number of the block with which the page comes.
    pub(crate) fn choose_load(&mut self, page: PageNo, demands: u32, lanes: u32) -> (Option<Prefetch>, Option<u64>) {
        let asked = self.read_ahead.windows.late_block(page);
        let in_flight = InFlight { demands, lanes, block_pages: self.block_pages(), is_asked: asked.is_some() };
        match self.arbiter.choose_load(page, in_flight, self.account.budget().0) {
            DemandLoad::Alone => (None, None),
            DemandLoad::WithAsked => (None, asked),
            DemandLoad::With(block) => {
                self.read_ahead.windows.push(Prefetch::Block(block));
                (Some(Prefetch::Block(block)), Some(self.read_ahead.windows.newest()))
            }
        }
    }

    /// Fetches a page with its block, if it is to come so, and returns when both are there; `None`: it is to be asked for alone.
    pub(crate) fn fetch_with_block(&mut self, slot: u32, now: u64) -> Option<u64> {
        if !self.arbiter.asks_for_blocks() {
            return None;
        }
        let lanes = u32::try_from(DEMAND_LANES).unwrap_or(u32::MAX);
        let (_, number) = self.choose_load(self.work.page(slot), 0, lanes);
        let fetched = self.fetch_now(number?, LANDING_PAGES, now);
        // A large block does not come in one load: the rest is the read-ahead thread's.
        if self.windows_waiting() > 0 && matches!(self.read_ahead.task, Task::Idle) {
            self.read_ahead.task = Task::Starting(fetched.unwrap_or(now));
        }
        let now = fetched?;
        (self.pages[slot as usize].state != State::Remote).then_some(now)
    }

    /// Hints of a site name pages: what is to be fetched for them, and the number of that in the queue.
    pub(crate) fn hinted(&mut self, site: u16, pages: &[PageNo]) -> Option<(Prefetch, u64)> {
        let batch = Prefetch::Hinted(self.arbiter.hinted(site, pages)?);
        self.read_ahead.windows.push(batch.clone());
        Some((batch, self.read_ahead.windows.newest()))
    }

    /// The thread that faults brings in the next pages of its window, if the read-ahead thread is late (decision 0046); returns when
    /// it goes on.
    pub(crate) fn help_read_ahead(&mut self, late: Option<u64>, now: u64) -> u64 {
        let Some(number) = self.helps_with(late) else { return now };
        self.fetch_now(number, HELP_PAGES, now).unwrap_or(now)
    }

    /// The thread that faults brings in at most so many pages of a window, or of a block; returns when it goes on. `None`: there are none,
    /// or no frames for them.
    fn fetch_now(&mut self, number: u64, pages_max: usize, now: u64) -> Option<u64> {
        self.run_until(now);
        let batch = self.claim_of(number, pages_max);
        let of = batch.of.filter(|_| !batch.pages.is_empty())?;
        let pages = u32::try_from(batch.pages.len()).unwrap_or(u32::MAX);
        if !self.account.try_charge(pages.into()) {
            self.refuse(&of, &batch.pages);
            return None;
        }
        self.figures.prefetched += u64::from(pages);
        self.figures.prefetched_by_faults += u64::from(pages);
        self.make_room_for_window(pages, &of.wanted);
        let loaded = self.carry(now, pages, Priority::Prefetch);
        self.loaded(pages, loaded - now);
        let (mut mapped, runs) = self.begin_mapping(&of, &batch.pages);
        let mut now = loaded;
        for run in runs {
            now += run.len() as u64 * self.setup.costs.map_page_ns;
            self.run_until(now);
            self.complete_run(now, &batch.pages[run], &of, &mut mapped);
        }
        self.batch_is_mapped(mapped, &of, pages);
        Some(now)
    }

    /// The window of which the thread that faults prefetches pages.
    pub(crate) fn helps_with(&self, late: Option<u64>) -> Option<u64> {
        late.filter(|_| self.setup.fault_path == FaultPath::Inline)
    }

    /// Claims at most so many pages of a window, or of a block.
    pub(crate) fn claim_of(&mut self, number: u64, pages_max: usize) -> Claimed<u32> {
        let mut batch = Claimed::default();
        claim_batch(self, &mut batch, |queue| queue.get(number).cloned(), pages_max);
        batch
    }

    /// A batch is about to be mapped: in these runs.
    pub(crate) fn begin_mapping(&mut self, of: &PendingWindow, batch: &[u32]) -> (MappedPages, Vec<Range<usize>>) {
        let mapped = MappedPages::of(&mut self.read_ahead.windows, of);
        self.arbiter.arrived(&of.wanted, u32::try_from(batch.len()).unwrap_or(u32::MAX));
        (mapped, runs_of(batch, |slot| self.work.page(*slot), &of.wanted))
    }

    /// Its processor time is over.
    pub(crate) fn read_ahead_goes_on(&mut self, now: u64) {
        match std::mem::take(&mut self.read_ahead.task) {
            Task::Starting(_) => self.next_batch(now),
            Task::Reclaiming { work, steps, .. } if work.dirty_pages > 0 => {
                self.send(now, Who::ReadAhead, work.dirty_pages, Priority::WriteBack);
                self.read_ahead.task = Task::Storing { work, steps };
            }
            Task::Reclaiming { work, steps, .. } => {
                self.complete(work);
                self.load_batch(now, steps);
            }
            Task::Mapping { run, .. } => {
                self.run_is_mapped(now, run);
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
                let pages = u32::try_from(self.read_ahead.batch.pages.len()).unwrap_or(u32::MAX);
                self.loaded(pages, now - self.read_ahead.asked_ns);
                self.claim_next();
                let (of, batch) = (self.of(), std::mem::take(&mut self.read_ahead.batch.pages));
                let (mapped, runs) = self.begin_mapping(&of, &batch);
                (self.read_ahead.batch.pages, self.read_ahead.mapped) = (batch, mapped);
                self.read_ahead.runs = runs.into_iter();
                self.map_next(now);
            }
            _ => unreachable!("the read-ahead thread waits for the link"),
        }
    }

    /// Tells the prefetcher how long a load took, and of how many local pages a window may have a part, which it returns.
    pub(crate) fn loaded(&mut self, pages: u32, ns: u64) -> u64 {
        let local_pages = pages_for_windows(self.account.budget().0, self.setup.prefetch_cache_pages);
        self.arbiter.loaded(pages, ns, local_pages);
        local_pages
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

    /// Claims the next pages that are wanted.
    fn claim_next(&mut self) {
        self.read_ahead.next = self.claim_any();
    }

    /// Claims a batch of the window that is next.
    pub(crate) fn claim_any(&mut self) -> Claimed<u32> {
        let mut batch = Claimed::default();
        claim_next_batch(self, &mut batch);
        batch
    }

    /// The window of the batch.
    fn of(&self) -> PendingWindow {
        self.read_ahead.batch.of.clone().unwrap_or_else(|| unreachable!("a batch belongs to a window"))
    }

    /// Loads the batch, once there are frames for it; after too many steps of reclaim the window is given up.
    fn load_batch(&mut self, now: u64, steps: u32) {
        let pages = u32::try_from(self.read_ahead.batch.pages.len()).unwrap_or(u32::MAX);
        match Frames::after(self.account.try_charge(pages.into()), steps) {
            Frames::Charged => {
                self.figures.prefetched += u64::from(pages);
                self.make_room_for_window(pages, &self.of().wanted);
                self.send(now, Who::ReadAhead, pages, Priority::Prefetch);
                self.read_ahead.task = Task::Loading;
                self.read_ahead.asked_ns = now;
            }
            Frames::Reclaim => {
                let work = self.reclaim_step(Urgency::Now).unwrap_or_default();
                self.read_ahead.task = Task::Reclaiming { until_ns: now + work.cpu_ns, work, steps: steps + 1 };
            }
            Frames::Refused => {
                let batch = std::mem::take(&mut self.read_ahead.batch);
                batch.of.iter().for_each(|of| self.refuse(of, &batch.pages));
                self.read_ahead.task = Task::Starting(now);
            }
        }
    }

    /// Memory is too tight for a window: see [`WindowQueue::refuse`]. Its pages stay where they are.
    pub(crate) fn refuse(&mut self, of: &PendingWindow, claimed: &[u32]) {
        self.read_ahead.windows.refuse(of);
        for slot in claimed {
            self.pages[*slot as usize].state = State::Remote;
        }
    }

    /// Begins with the next page that stays unmapped, or with the next run of neighbours.
    fn map_next(&mut self, now: u64) {
        let Some(run) = self.read_ahead.runs.next() else {
            let pages = u32::try_from(self.read_ahead.batch.pages.len()).unwrap_or(u32::MAX);
            self.batch_is_mapped(self.read_ahead.mapped, &self.of(), pages);
            self.wake_evictor(now);
            return self.next_batch(now);
        };
        self.read_ahead.task = Task::Mapping { until_ns: now + run.len() as u64 * self.setup.costs.map_page_ns, run };
    }

    /// A run of the batch is mapped, or its page waits.
    fn run_is_mapped(&mut self, now: u64, run: Range<usize>) {
        let (slots, of, mut mapped) =
            (std::mem::take(&mut self.read_ahead.batch.pages), self.of(), self.read_ahead.mapped);
        self.complete_run(now, &slots[run], &of, &mut mapped);
        (self.read_ahead.batch.pages, self.read_ahead.mapped) = (slots, mapped);
    }

    /// Pages of a run are mapped, or wait.
    fn complete_run(&mut self, now: u64, run: &[u32], of: &PendingWindow, mapped: &mut MappedPages) {
        // A page that stays unmapped is a run of its own.
        let waits = of.wanted.leaves_unmapped(self.work.page(run[0])) && self.waits(run[0], of, mapped).1.is_some();
        if !waits {
            self.arrive(run, of.wanted.arrival(), State::Unused);
            mapped.add(u32::try_from(run.len()).unwrap_or(u32::MAX));
        }
        for slot in run {
            self.since_ns[*slot as usize] = now;
            let marks = &mut self.pages[*slot as usize].marks;
            marks.set(Marks::PREFETCHED, true);
            marks.set(Marks::COPIED, true);
        }
    }

    /// Leaves a page of a batch unmapped, if there is room; the bound on such pages, and the page's slot.
    pub(crate) fn waits(
        &mut self,
        slot: u32,
        of: &PendingWindow,
        mapped: &mut MappedPages,
    ) -> (u32, Option<TakenSlot>) {
        let (bound, taken) = self.leave_unmapped(slot, &of.wanted, mapped.count());
        if taken.is_some() {
            mapped.told_one_that_waits();
        }
        (bound, taken)
    }

    /// A batch is complete: reports the mapped pages to the key page, or counts them as used if that page is resident.
    pub(crate) fn batch_is_mapped(
        &mut self,
        mut mapped: MappedPages,
        of: &PendingWindow,
        pages: u32,
    ) -> Option<(PageNo, u32)> {
        self.prefetch_cache.arrived(pages);
        self.arbiter.mapped_without_key(&of.wanted, mapped.take_without_key(&of.wanted));
        let report = mapped.finish(&mut self.read_ahead.windows, of, pages);
        if let Some((key, pages)) = report {
            match self.key_is(key) {
                KeyPageState::Waiting => self.prefetch_cache.mapped_with(self.work.slot(key), pages),
                KeyPageState::Resident => self.figures.hits_inferred += u64::from(pages),
                KeyPageState::Elsewhere => {}
            }
        }
        self.check_prefetch_cache(of);
        report
    }

    fn key_is(&mut self, key: PageNo) -> KeyPageState {
        let slot = self.work.slot(key);
        if let Some(answers) = &mut self.answers {
            let state = answers.key_is.take().unwrap_or(KeyPageState::Elsewhere);
            let is_known = state != KeyPageState::Waiting || slot.is_some_and(|slot| self.prefetch_cache.has(slot));
            answers.in_vain |= !is_known;
            return if is_known { state } else { KeyPageState::Elsewhere };
        }
        match slot.map(|slot| self.pages[slot as usize].state) {
            Some(State::PrefetchCached) => KeyPageState::Waiting,
            Some(State::Resident) => KeyPageState::Resident,
            _ => KeyPageState::Elsewhere,
        }
    }
}
