//! Read-ahead: a thread that prefetches windows of pages.
//!
//! Either all pages of a window are mapped at once except the key page, which waits in a key slot: its fault tells that the
//! program has reached it (3PO §3.3 calls this page the key page), counts the window as used and requests the next one. Or all
//! of them wait unmapped (`prefetch_cache`), and each tells of its use.
//!
//! ```text
//!   claim 1 ── load 1 ── claim 2 ── map 1 ── load 2 ── claim 3 ── map 2 ──
//!                        the program goes on at once when its page is mapped: the next batch is loading already
//! ```
//!
//! Where the read-ahead thread is late, because the program's threads have the processors or walk more streams than it keeps up
//! with, a thread that serves its own faults prefetches the next pages of its window, or of its tape, itself (`help`, decision 0046).

use crate::decisions::Answers;
use crate::evictor_waker::EvictorWaker;
use crate::far_memory::FarMemory;
use crate::fault_path::FaultPath;
use crate::hint_ring::{HintRing, Run};
use crate::local_memory::LocalMemory;
use crate::pages::{Owned, Pages, Released, neighbours};
use crate::points::Point;
use crate::prefetch_cache::PrefetchCache;
use crate::prefetch_driver::PrefetchDriver;
use crate::reclaim::Reclaim;
use crate::scratch::Scratch;
use crate::state::State;
use crate::sys::gate::{futex_wait, futex_wake};
use crate::sys::sync::Mutex;
use crate::sys::{Instant, thread};
use crate::thread_state::ThreadState;
use hinterland_backend::{LoadError, LoadItem, Priority};
use hinterland_paging::{
    Claimed, Frames, HELP_PAGES, KeyPageState, LANDING_PAGES, MappedPages, PendingWindow, Pushed, Step, Urgency,
    WindowBody, WindowQueue, batch_pages, claim_batch, claim_next_batch, runs_of,
};
use hinterland_policy::{Arrival, DemandLoad, Prefetch};
use hinterland_sys::SysError;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Pages of a batch that is made of hints.
const HINT_BATCH_PAGES: usize = 64;
/// Batches of hints that wait to be fetched: the others stay hints, and join those that come after them.
const HINT_BATCHES_WAITING_MAX: u32 = 2;
/// Pages of hints that the read-ahead thread looks at before it looks at windows, or at whether a fork waits (0.5 ms); and a thread that
/// helps it (30 µs).
const LOOKED_AT_MAX: u32 = 8192;
const HELP_LOOKED_AT_MAX: u32 = LOOKED_AT_MAX / 16;

/// Windows on their way to the read-ahead thread.
#[derive(Default)]
struct Queue {
    windows: Mutex<WindowQueue>,
    /// Windows that have pages left to claim, to be read without the lock.
    pending: AtomicU32,
    /// Batches of hints among them.
    hinted: AtomicU32,
    signal: AtomicU32,
    /// The thread sleeps, or is about to.
    sleeps: AtomicBool,
}

impl Queue {
    /// Runs `work` on the windows.
    fn with<T>(&self, work: impl FnOnce(&mut WindowQueue) -> T) -> T {
        let mut queue = self.windows.lock().expect("no thread panics while it holds the queue");
        let result = work(&mut queue);
        self.pending.store(u32::try_from(queue.waiting()).unwrap_or(u32::MAX), Relaxed);
        self.hinted.store(u32::try_from(queue.waiting_hinted()).unwrap_or(u32::MAX), Relaxed);
        result
    }

    /// Queues a window, or a batch.
    fn push(&self, wanted: Prefetch) -> Pushed {
        let pushed = self.with(|queue| queue.push(wanted));
        self.wake();
        pushed
    }

    /// Whether windows wait.
    fn has_work(&self) -> bool {
        self.pending.load(Relaxed) > 0
    }

    /// Wakes the thread, if it sleeps, for what it looks at before it does.
    fn wake_if_asleep(&self) {
        if self.sleeps.load(SeqCst) {
            self.wake();
        }
    }

    /// Wakes the thread, whatever it does.
    fn wake(&self) {
        self.signal.fetch_add(1, SeqCst);
        futex_wake(&self.signal);
    }

    /// Drops all windows.
    fn clear(&self) {
        self.with(WindowQueue::clear);
    }
}

/// See the module.
pub(crate) struct ReadAhead {
    pages: &'static Pages,
    local: &'static LocalMemory,
    far: &'static FarMemory,
    reclaim: &'static Reclaim,
    cache: &'static PrefetchCache,
    driver: &'static PrefetchDriver,
    waker: &'static EvictorWaker,
    queue: Queue,
    hints: HintRing,
    /// When the oldest hint was put that was not taken, since `begun`, and how long hints wait; in nanoseconds.
    hinted_ns: AtomicU64,
    hints_wait_ns: AtomicU64,
    begun: Instant,
    state: ThreadState,
}

/// Pages of one window that are loaded at once.
type Batch = Claimed<Owned>;

/// A thread that claims a batch.
struct Claiming<'a> {
    read_ahead: &'a ReadAhead,
    copies_cost_ram: bool,
    answers: Answers<u8>,
}

impl WindowBody for Claiming<'_> {
    type Claimed = Owned;

    fn windows<R>(&mut self, work: impl FnOnce(&mut WindowQueue) -> R) -> R {
        self.read_ahead.queue.with(work)
    }

    fn batch_pages(&self, wanted: &Prefetch) -> usize {
        batch_pages(wanted, self.read_ahead.local.account.budget().0, self.copies_cost_ram)
    }

    fn claim(&mut self, page: PageNo) -> Option<Owned> {
        let claimed = self.read_ahead.claim_remote(page);
        self.answers.put(claimed.is_some().into());
        claimed
    }

    fn page(&self, claimed: &Owned) -> PageNo {
        claimed.page()
    }
}

impl ReadAhead {
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        far: &'static FarMemory,
        reclaim: &'static Reclaim,
        cache: &'static PrefetchCache,
        driver: &'static PrefetchDriver,
        waker: &'static EvictorWaker,
    ) -> Result<ReadAhead, SysError> {
        let (queue, hints, state) = (Queue::default(), HintRing::new()?, ThreadState::new());
        let ([hinted_ns, hints_wait_ns], begun) = ([const { AtomicU64::new(0) }; 2], Instant::now());
        Ok(ReadAhead {
            pages,
            local,
            far,
            reclaim,
            cache,
            driver,
            waker,
            queue,
            hints,
            hinted_ns,
            hints_wait_ns,
            begun,
            state,
        })
    }

    /// Whether windows or hints wait.
    pub(crate) fn has_work(&self) -> bool {
        self.queue.has_work() || !self.hints.is_empty()
    }

    /// Whether the thread runs (or is about to).
    pub(crate) fn is_started(&self) -> bool {
        self.state.is_started()
    }

    /// In the child of a fork: no window waits, and no thread runs.
    pub(crate) fn forget(&self) {
        self.state.forget();
        self.queue.sleeps.store(false, Relaxed);
        self.queue.clear();
        self.hints.clear();
        self.hinted_ns.store(0, Relaxed);
    }

    /// Starts the thread once, after what `first` starts.
    pub(crate) fn start(&'static self, first: impl FnOnce() -> Result<(), SysError>) {
        if self.state.begin() {
            self.spawn_after(first);
        }
    }

    fn spawn_after(&'static self, first: impl FnOnce() -> Result<(), SysError>) {
        let spawn = || {
            thread::spawn(c"far-ahead", || {
                self.run();
                self.state.left();
            })
        };
        match first().and_then(|()| spawn()) {
            Ok(()) => {}
            // While another thread is in exec, none can be started (`copy_fs` in kernel/fork.c). Until then faults reclaim by
            // themselves, and the next thread that needs them tries again.
            Err(SysError { errno: libc::EAGAIN, .. }) => self.state.forget(),
            Err(error) => self.pages.fatal(&format!("the pager's threads cannot be started: {error}")),
        }
    }

    /// Stops the thread. Windows and hints wait for it.
    pub(crate) fn stop(&self) {
        self.state.stop(|| self.queue.wake());
    }

    /// Starts it again, if it was stopped, and if what comes `first` was started.
    pub(crate) fn resume(&'static self, first: Result<(), SysError>) {
        if self.state.resume() {
            self.spawn_after(|| first);
        }
    }

    /// Makes a remote page `Fetching`.
    fn claim_remote(&self, page: PageNo) -> Option<Owned> {
        let entry = (page.0 < self.pages.count).then(|| self.pages.table.load(page))?;
        if !self.pages.is_to_come(entry) {
            return None;
        }
        self.pages.claim(page, entry, entry.with_state(State::Fetching).with_prefetched(true))
    }

    /// Claims the next remote pages that are wanted, of this window alone, and so many, if a thread of the program helps with it.
    fn claim_next(&self, helps_with: Option<(u64, usize)>, batch: &mut Batch) {
        let decisions = self.pages.decisions;
        let (turn, copies_cost_ram) = (decisions.turn(), self.far.copies_cost_ram());
        let mut body = Claiming { read_ahead: self, copies_cost_ram, answers: decisions.answers() };
        match helps_with {
            Some((number, pages_max)) => claim_batch(&mut body, batch, |queue| queue.get(number).cloned(), pages_max),
            None => claim_next_batch(&mut body, batch),
        }
        self.count_block_pages();
        turn.note(|| Step::Claimed {
            helps_with: helps_with.map(|(number, _)| number),
            copies_cost_ram,
            answers: body.answers.take(),
            of: batch.of.as_ref().map(|of| of.number),
            pages: batch.pages.iter().map(Owned::page).collect(),
        });
    }

    /// Requests a batch of a tape from the read-ahead thread.
    pub(crate) fn request_batch(&self, batch: Prefetch) {
        self.queue.push(batch);
    }

    /// The number of the batch that a page is to come with which a thread waits for now. `None`, too, where it would not help.
    pub(crate) fn late_batch(&self, page: PageNo) -> Option<u64> {
        self.is_helped().then(|| self.queue.with(|queue| queue.late_batch(page)))?
    }

    /// The program says that it will need a run of pages. For any thread at any moment; `wake_for_hints` follows. False: too many others
    /// wait.
    pub(crate) fn hint(&self, run: Run) -> bool {
        self.hints.put(run)
    }

    /// Has the read-ahead thread look at hints.
    pub(crate) fn wake_for_hints(&self) {
        if self.hinted_ns.load(Relaxed) == 0 {
            self.hinted_ns.store(self.now_ns(), Relaxed);
        }
        self.queue.wake_if_asleep();
        if !self.is_started() {
            // The evictor starts it.
            self.waker.wake_if_idle();
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// How long hints wait for the thread, in nanoseconds.
    pub(crate) fn hints_wait_ns(&self) -> u64 {
        self.hints_wait_ns.load(Relaxed)
    }

    /// Makes batches of hints that wait, as long as few wait to be fetched, and looks at so many pages at most; the number of the last one.
    fn take_hints(&self, mut looks: u32) -> Option<u64> {
        let mut last = None;
        while looks > 0 && !self.hints.is_empty() && self.queue.hinted.load(Relaxed) < HINT_BATCHES_WAITING_MAX {
            last = self.take_hint_batch(&mut looks).or(last);
        }
        last
    }

    /// Makes a batch of hints of one site. `None`: their pages are local, or the site has lost.
    fn take_hint_batch(&self, looks: &mut u32) -> Option<u64> {
        let since_ns = self.hinted_ns.swap(0, Relaxed);
        if since_ns != 0 {
            let (waited, mean) = (self.now_ns().saturating_sub(since_ns), self.hints_wait_ns.load(Relaxed));
            self.hints_wait_ns.store(mean - mean / 8 + waited / 8, Relaxed);
        }
        let (mut pages, mut site) = (Vec::with_capacity(HINT_BATCH_PAGES), None);
        self.hints.take(|run| {
            let mut taken = 0;
            let is_others = *site.get_or_insert(run.tag) != run.tag;
            while !is_others && taken < run.pages && pages.len() < HINT_BATCH_PAGES && *looks > 0 {
                let page = PageNo(run.first.0 + taken);
                if self.pages.is_to_come(self.pages.table.load(page)) && !pages.contains(&page) {
                    pages.push(page);
                }
                taken += 1;
                *looks -= 1;
            }
            taken
        });
        let site = site.filter(|_| !pages.is_empty())?;
        let turn = self.pages.decisions.turn();
        let batch = self.driver.hinted(site, &pages).map(Prefetch::Hinted);
        let number = batch.clone().map(|batch| {
            self.queue.with(|queue| {
                queue.push(batch);
                queue.newest()
            })
        });
        turn.note(|| Step::Hinted { site, pages, batch: batch.zip(number) });
        number
    }

    /// The number of the batch that a page was to come with for which a thread has waited, where there are hints: of one that is late, or
    /// of those that the read-ahead thread has not come to. `None`, too, where the thread would not help.
    pub(crate) fn late_hints(&self, page: PageNo) -> Option<u64> {
        if !self.is_helped() || self.queue.hinted.load(Relaxed) == 0 && self.hints.is_empty() {
            return None;
        }
        let turn = self.pages.decisions.turn();
        let batch = self.late_batch(page);
        turn.note(|| Step::Late { page, batch });
        drop(turn);
        if batch.is_some() {
            return batch;
        }
        let taken = self.take_hints(HELP_LOOKED_AT_MAX);
        if taken.is_some() || !self.hints.is_empty() {
            // This thread fetches a part of it, or leaves hints, and the read-ahead thread has seen none when it goes to sleep.
            self.queue.wake();
        }
        taken
    }

    /// Requests a window, or a block, from the read-ahead thread. The window's number, if that thread is late with the one before: see
    /// `help`.
    pub(crate) fn request(&self, wanted: impl Into<Prefetch>) -> Option<u64> {
        let wanted = wanted.into();
        let turn = self.pages.decisions.turn();
        let pushed = self.queue.push(wanted.clone());
        self.count_block_pages();
        turn.note(|| Step::Queued { wanted, late: pushed.late() });
        if pushed == Pushed::AndDropped {
            self.pages.row().prefetch_windows_dropped.fetch_add(1, Relaxed);
        }
        pushed.late()
    }

    /// A thread is about to ask for a page that is far. If it is to come with its block, this thread fetches the block: false if it does not.
    pub(crate) fn comes_with_block(&self, page: PageNo, scratch: &mut Scratch) -> bool {
        if !self.driver.asks_for_blocks() {
            return false;
        }
        let (turn, demands) = (self.pages.decisions.turn(), self.driver.demands.load(Relaxed));
        let lanes = self.far.demand_lanes();
        let asked = self.queue.with(|queue| queue.late_block(page));
        let (block, number) = match self.driver.choose_load(page, asked.is_some(), demands, lanes) {
            DemandLoad::Alone => (None, None),
            DemandLoad::WithAsked => (None, asked),
            DemandLoad::With(block) => {
                let number = self.queue.with(|queue| {
                    queue.push(Prefetch::Block(block));
                    queue.newest()
                });
                (Some(Prefetch::Block(block)), Some(number))
            }
        };
        self.count_block_pages();
        turn.note(|| Step::DemandLoad { page, demands, lanes, block, number });
        drop(turn);
        let Some(number) = number else { return false };
        let is_fetched = self.fetch_now(number, LANDING_PAGES, scratch);
        is_fetched && self.pages.state(page) != State::Remote
    }

    /// Asks for other blocks, if that was commanded; now and then.
    pub(crate) fn follow_commands(&self) {
        if let Some(blocks) = self.driver.other_blocks() {
            let turn = self.pages.decisions.turn();
            self.driver.set_blocks(blocks);
            self.count_block_pages();
            turn.note(|| Step::Blocks { granularity: blocks.granularity.name().into(), pages: blocks.pages });
        }
    }

    /// The arbiter is to know how much of blocks is on its way. In a turn.
    fn count_block_pages(&self) {
        if self.driver.asks_for_blocks() {
            self.driver.block_pages.store(self.queue.with(|queue| queue.block_pages()), Relaxed);
        }
    }

    /// Whether threads that fault help the read-ahead thread: only where they serve themselves, since a monitor has others to serve.
    fn is_helped(&self) -> bool {
        self.pages.path == FaultPath::Inline && !self.pages.gate.is_closing()
    }

    /// Prefetches pages of a window in the thread that would fault on each of them, if the read-ahead thread is late.
    pub(crate) fn help(&self, late: Option<u64>, scratch: &mut Scratch) {
        if let Some(number) = late.filter(|_| self.is_helped()) {
            self.fetch_now(number, HELP_PAGES, scratch);
        }
    }

    /// Prefetches at most so many pages of a window, or of a block, in this thread; false: it finds none, or no frames for them.
    fn fetch_now(&self, number: u64, pages_max: usize, scratch: &mut Scratch) -> bool {
        let mut batch = Batch::default();
        self.claim_next(Some((number, pages_max)), &mut batch);
        // The read-ahead thread may sleep, and has the rest to do: of a large block, or what had to wait for this window.
        if self.queue.has_work() {
            self.queue.wake();
        }
        let Some(of) = batch.of.take().filter(|_| !batch.pages.is_empty()) else { return false };
        let pages = batch.pages.len() as u64;
        // The evictor makes room, not this thread: it has its page, or asks for it alone.
        let has_frames = self.local.charge_free_frames(pages);
        if has_frames {
            self.load_batch(&batch, &of, scratch);
            self.map_batch(&mut batch, &of, scratch);
        } else {
            self.refuse_batch(&mut batch, &of);
        }
        has_frames
    }

    /// Prefetches windows until it should stop: the body of the read-ahead thread.
    fn run(&self) {
        let registered = self.pages.own_threads.register();
        let mut scratch = Scratch::of_thread(self.pages);
        let (mut batch, mut next) = (Batch::default(), Batch::default());
        loop {
            let seen = self.queue.signal.load(SeqCst);
            if self.state.should_stop() {
                return;
            }
            // Inside the gate: the child of a fork must find the queue's lock free, and no page busy.
            let inside = self.pages.gate.enter();
            self.take_hints(LOOKED_AT_MAX);
            self.claim_next(None, &mut batch);
            let had_work = batch.of.is_some();
            while let Some(of) = batch.of.take() {
                registered.keep_to_processors();
                self.prefetch(&mut batch, &of, &mut next, &mut scratch);
                if self.local.above_high(&inside) {
                    self.waker.wake_if_idle();
                }
                std::mem::swap(&mut batch, &mut next);
            }
            drop(inside);
            if !had_work {
                self.pages.at(Point::ReadAheadIdle, PageNo(0));
                self.queue.sleeps.store(true, SeqCst);
                if self.hints.is_empty() {
                    futex_wait(&self.queue.signal, seen);
                }
                self.queue.sleeps.store(false, SeqCst);
            }
        }
    }

    /// Loads and maps a batch, and claims the next one before this one is mapped; none while a fork waits.
    fn prefetch(&self, batch: &mut Batch, of: &PendingWindow, next: &mut Batch, scratch: &mut Scratch) {
        let has_frames = self.frames_for(batch.pages.len() as u64, scratch);
        let first = batch.pages[0].page();
        if has_frames {
            self.load_batch(batch, of, scratch);
            self.pages.at(Point::ReadAheadLoaded, first);
        } else {
            self.refuse_batch(batch, of);
        }
        next.of = None;
        if !self.pages.gate.is_closing() {
            self.take_hints(LOOKED_AT_MAX);
            self.claim_next(None, next);
        }
        self.pages.at(Point::ReadAheadClaimed, first);
        if has_frames {
            self.map_batch(batch, of, scratch);
        }
    }

    /// No frames are free for a part of a window: see [`WindowQueue::refuse`]. Its pages are remote before the queue can serve it again:
    /// else it would find them claimed, and pass them over.
    fn refuse_batch(&self, batch: &mut Batch, of: &PendingWindow) {
        let turn = self.pages.decisions.turn();
        batch.pages.drain(..).for_each(|owned| self.pages.complete_unchanged(owned));
        let waiting = self.queue.with(|queue| {
            queue.refuse(of);
            queue.waiting()
        });
        self.count_block_pages();
        turn.note(|| Step::Refused { waiting: u32::try_from(waiting).unwrap_or(u32::MAX) });
        self.pages.row().prefetch_windows_refused.fetch_add(1, Relaxed);
    }

    /// Charges frames for a batch, reclaiming a little for it. False: memory is too tight to read ahead.
    fn frames_for(&self, pages: u64, scratch: &mut Scratch) -> bool {
        for steps in 0.. {
            match Frames::after(self.local.charge_free_frames(pages), steps) {
                Frames::Charged => return true,
                Frames::Reclaim => self.reclaim.step(Urgency::Now, scratch),
                Frames::Refused => break,
            };
        }
        false
    }

    fn load_batch(&self, batch: &Batch, of: &PendingWindow, scratch: &mut Scratch) {
        self.cache.make_room_for_window(batch.pages.len(), &of.wanted, scratch);
        // Not on the stack, which may be a small one of the program's where a system call asks for its pages.
        let mut results: Vec<Option<Result<(), LoadError>>> = batch.pages.iter().map(|_| None).collect();
        let landing = scratch.landing();
        let mut items: Vec<LoadItem<'_>> = batch
            .pages
            .iter()
            .zip(landing.iter_mut())
            .map(|(owned, into)| LoadItem { location: owned.was().location(), into })
            .collect();
        let begun = Instant::now();
        self.far.load(&mut items, Priority::Prefetch, &mut |index, result| {
            results[index] = Some(result.map(drop));
        });
        drop(items);
        let pages = u32::try_from(batch.pages.len()).unwrap_or(u32::MAX);
        self.driver.timed(pages, begun, || self.cache.pages_for_windows());
        for (owned, (bytes, result)) in batch.pages.iter().zip(landing.iter_mut().zip(results)) {
            let result = result.unwrap_or_else(|| panic!("the backend did not answer for {}", owned.page()));
            self.far.verify(owned, bytes, result);
        }
    }

    /// Maps a loaded batch run by run but for the pages that stay unmapped.
    fn map_batch(&self, batch: &mut Batch, of: &PendingWindow, scratch: &mut Scratch) {
        let (landing, wanted, pages) = (scratch.landing(), &of.wanted, batch.pages.len());
        let turn = self.pages.decisions.turn();
        let mut mapped = self.queue.with(|queue| MappedPages::of(queue, of));
        let runs = runs_of(&batch.pages, Owned::page, wanted);
        let first_and_pages =
            |run: &Range<usize>| (batch.pages[run.start].page().0, u32::try_from(run.len()).unwrap_or(0));
        self.driver.arrived(wanted, u32::try_from(pages).unwrap_or(u32::MAX));
        turn.note(|| Step::Mapping { runs: runs.iter().map(first_and_pages).collect(), mapped: mapped.count() });
        drop(turn);
        self.driver.count_prefetched(&batch.pages);
        let mut freed = Vec::new();
        for run in runs {
            let (landed, len) = (&landing[run.start], run.len());
            // Of a walk downwards the last run comes first; of another one, those before this one are gone.
            let at = if wanted.is_downwards() { run.start } else { 0 };
            let mut run = batch.pages.drain(at..at + len);
            let first = run.as_slice()[0].page();
            if !wanted.leaves_unmapped(first) {
                mapped.add(self.map_run(first, run, landed.as_ptr(), wanted.arrival(), &mut freed));
                continue;
            }
            // A page that stays unmapped is a run of its own.
            for owned in &mut run {
                match self.cache.leave_unmapped(owned, landed, wanted, mapped.count()) {
                    Ok(()) => {
                        self.pages.row().prefetched_pages.fetch_add(1, Relaxed);
                        mapped.told_one_that_waits();
                    }
                    Err(owned) => {
                        mapped.add(self.map_run(
                            first,
                            std::iter::once(owned),
                            landed.as_ptr(),
                            wanted.arrival(),
                            &mut freed,
                        ));
                    }
                }
            }
        }
        let turn = self.pages.decisions.turn();
        self.driver.mapped_without_key(wanted, mapped.take_without_key(wanted));
        let report = self.queue.with(|queue| mapped.finish(queue, of, u32::try_from(pages).unwrap_or(u32::MAX)));
        self.count_block_pages();
        let key_is = report.map_or(KeyPageState::Elsewhere, |(key, pages)| self.cache.mapped_with(key, pages));
        self.cache.arrived(pages);
        turn.note(|| Step::Mapped { pages: u32::try_from(pages).unwrap_or(0), key_is, report });
        drop(turn);
        self.far.free_all(freed);
        self.local.publish();
    }

    /// Pages of hints that wait, which it drops.
    #[cfg(test)]
    pub(crate) fn take_hinted_pages(&self) -> u32 {
        let mut pages = 0;
        self.hints.take(|run| {
            pages += run.pages;
            run.pages
        });
        pages
    }

    /// Maps a run of loaded pages, `first` and its neighbours, and completes them; returns how many are mapped.
    fn map_run(
        &self,
        first: PageNo,
        run: impl ExactSizeIterator<Item = Owned>,
        from: *const u8,
        how: Arrival,
        freed: &mut Vec<Released>,
    ) -> u32 {
        let pages = run.len();
        // SAFETY: the landing pages hold the verified content of these pages, which are missing and ours.
        let mapped = unsafe { self.pages.kernel.map_copy(self.pages.address(first), from, pages) };
        let there = mapped.map_or_else(|partial| partial.done / PAGE_BYTES, |()| pages);
        let arrived = self.local.arrive(neighbours(first, there), how);
        for (index, owned) in run.enumerate() {
            if index >= there {
                self.local.account.uncharge(1);
                self.pages.complete_unchanged(owned);
            } else if self.far.copies.retains(&owned, self.local.account.budget()) {
                self.pages.complete_resident(owned, arrived, false);
            } else {
                freed.extend(self.pages.complete_resident_alone(owned, arrived));
            }
        }
        self.pages.row().prefetched_pages.fetch_add(there as u64, Relaxed);
        u32::try_from(there).unwrap_or(0)
    }
}
