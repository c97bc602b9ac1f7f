//! The prefetch driver: tells the arbiter of each request, and counts requests by thread and by region of 64 MiB, for the
//! busiest of each.
//!
//! A fixed number of rows tells which are the busiest ("Space-Saving": A. Metwally, D. Agrawal, A. El Abbadi, Efficient
//! computation of frequent and top-k elements in data streams, ICDT 2005): a thread or region without a row takes that of the
//! lightest, and its weight, so that one with more than a sixteenth of all requests has a row. The figures in a row begin at zero
//! each time.
//!
//! One lock for all of it, held for single requests. Only its holder writes to the rows, so a count is a load and a store.

use crate::fault_path::FaultPath;
use crate::local_memory::LocalMemory;
use crate::pages::{Owned, Pages};
use crate::state::State;
use crate::sys::Instant;
use crate::sys::sync::{Mutex, MutexGuard};
use crate::sys::thread;
use hinterland_abi::{ACTIVITIES_MAX, ActivityRow, Counter, Ledger, ProcessRow, REGION_PAGES};
use hinterland_paging::Step;
use hinterland_policy::tape::{PageLocalities, PageLocality, TapeStatistics, Tapes};
use hinterland_policy::{
    Arbiter, BlockStatistics, Blocks, Choice, DemandLoad, Granularity, HintBatch, HintStatistics, InFlight, Pattern,
    Prefetch, PrefetchWindow, Recent, Request, RequestFeatures, Source, Thread, Wanted,
};
use hinterland_sys::Fault;
use hinterland_units::PageNo;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A region's row says what was chosen there: both must mean the same regions.
const _: () = assert!(REGION_PAGES == hinterland_policy::REGION_PAGES);

/// See the module.
pub(crate) struct PrefetchDriver {
    pages: &'static Pages,
    local: &'static LocalMemory,
    /// Nothing is prefetched in a traced program: the tracer would not see it touched.
    pub(crate) is_traced: bool,
    /// Walks in steps are the prefetcher's: see [`hinterland_policy::Prefetcher::follows_steps`].
    pub(crate) follows_steps: bool,
    /// A load of one page, and each further one, in nanoseconds; 0: not known.
    pub(crate) one_ns: AtomicU64,
    pub(crate) page_ns: AtomicU64,
    /// Blocks are asked for around demands.
    asks_for_blocks: AtomicBool,
    /// Which of them were at the start.
    blocks_of_start: Blocks,
    /// What is commanded since.
    ledger: Option<&'static Ledger>,
    /// Pages that threads wait for, where blocks are asked for.
    pub(crate) demands: AtomicU32,
    /// Pages of blocks that were asked for and have not come.
    pub(crate) block_pages: AtomicU32,
    requests: Mutex<Requests>,
}

/// What the lock guards.
struct Requests {
    arbiter: Arbiter,
    threads: Busiest,
    regions: Busiest,
}

/// One request, and what the prefetcher asked for after it.
#[derive(Clone, Copy)]
struct Seen {
    page: PageNo,
    request: Request,
    window: Option<PrefetchWindow>,
}

impl PrefetchDriver {
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        arbiter: Arbiter,
        is_traced: bool,
        ledger: Option<&'static Ledger>,
    ) -> PrefetchDriver {
        let (follows_steps, blocks_of_start) = (arbiter.follows_steps(), arbiter.blocks());
        let asks_for_blocks = AtomicBool::new(arbiter.asks_for_blocks() && !is_traced);
        let requests = Requests { arbiter, threads: Busiest::default(), regions: Busiest::default() };
        let [one_ns, page_ns] = [const { AtomicU64::new(0) }; 2];
        let [demands, block_pages] = [const { AtomicU32::new(0) }; 2];
        PrefetchDriver {
            pages,
            local,
            is_traced,
            follows_steps,
            one_ns,
            page_ns,
            asks_for_blocks,
            blocks_of_start,
            ledger,
            demands,
            block_pages,
            requests: Mutex::new(requests),
        }
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect("no thread panics while it holds the arbiter")
    }

    /// Tells the arbiter of a request; returns what is to be fetched, or mapped as zeros, ahead. The caller owns the page, or has mapped
    /// it.
    pub(crate) fn requested(&self, page: PageNo, request: Request, fault: Fault) -> Wanted {
        if self.is_traced {
            return Wanted::default();
        }
        let who = match self.pages.path {
            FaultPath::Monitor => u64::from(fault.thread),
            FaultPath::Inline => thread::number(),
        };
        let row = self.pages.row();
        let turn = self.pages.decisions.turn();
        let mut requests = self.requests();
        let wanted = requests.arbiter.requested(page, request, Thread(who), self);
        turn.note(|| Step::Requested {
            page,
            request,
            thread: who,
            window: wanted.window.map(Into::into),
            block: wanted.block.map(Prefetch::Block),
        });
        if requests.arbiter.asks_for_blocks() {
            note_blocks(row, &requests.arbiter);
        }
        if let Some(figures) = requests.arbiter.tape_statistics() {
            note_tapes(row, &figures);
        }
        if wanted.has_features {
            note_features(row, &requests.arbiter.features());
        }
        let window = wanted.window;
        let seen = Seen { page, request, window };
        let region = page.0 / REGION_PAGES;
        let address = self.pages.address(PageNo(region * REGION_PAGES)) as u64;
        let at = requests.regions.note(&row.regions, seen, region.into(), || address);
        let choice = match requests.arbiter.choice(page) {
            None => 0,
            Some(Choice::Streams) => 1,
            Some(Choice::Runs { pages }) => u64::from(pages),
        };
        row.regions[at].choice.store(choice, Relaxed);
        let kernel_id = || if fault.thread == 0 { thread::id() } else { fault.thread };
        requests.threads.note(&row.threads, seen, who, || kernel_id().into());
        if let Some(window) = window.filter(|_| request != Request::FirstTouch) {
            add(&row.prefetch_windows, 1);
            add(&row.prefetch_window_pages, window.pages.into());
            row.prefetch_window_pages_max.fetch_max(window.pages.into(), Relaxed);
        }
        wanted
    }

    /// Tells the prefetcher how long a load took that has just ended, and how many local pages windows may have.
    pub(crate) fn timed(&self, pages: u32, begun: Instant, local_pages: impl FnOnce() -> u64) {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let turn = self.pages.decisions.turn();
        let local_pages = local_pages();
        let mut requests = self.requests();
        requests.arbiter.loaded(pages, ns, local_pages);
        turn.note(|| Step::Loaded { pages, ns, local_pages });
        self.one_ns.store(requests.arbiter.link().mean_ns(), Relaxed);
        self.page_ns.store(requests.arbiter.link().page_ns(), Relaxed);
        if let Some(bound) = requests.arbiter.window_bound() {
            let row = self.pages.row();
            row.load_one_ns.store(bound.one_ns, Relaxed);
            row.load_page_ns.store(bound.page_ns, Relaxed);
            row.prefetch_window_bound_pages.store(bound.window_pages_max.into(), Relaxed);
            row.prefetch_is_sparing.store(bound.is_sparing.into(), Relaxed);
        }
    }

    /// Whether blocks are asked for around demands.
    pub(crate) fn asks_for_blocks(&self) -> bool {
        self.asks_for_blocks.load(Relaxed)
    }

    /// The blocks that are to be asked for, if they are other ones than before: as was commanded. In a traced program there are none.
    pub(crate) fn other_blocks(&self) -> Option<Blocks> {
        let commanded = self.ledger.filter(|_| !self.is_traced)?.commands.blocks()?;
        let granularity = Granularity::named(commanded.0.name()).unwrap_or(self.blocks_of_start.granularity);
        let blocks = Blocks { granularity, pages: commanded.1 };
        (self.requests().arbiter.blocks() != blocks).then_some(blocks)
    }

    /// Asks for these from now on. In a turn.
    pub(crate) fn set_blocks(&self, blocks: Blocks) {
        let mut requests = self.requests();
        requests.arbiter.set_blocks(blocks);
        self.asks_for_blocks.store(requests.arbiter.asks_for_blocks(), Relaxed);
    }

    /// A thread is about to ask for a page: whether it comes alone, or with a block.
    pub(crate) fn choose_load(&self, page: PageNo, is_asked: bool, demands: u32, lanes: u32) -> DemandLoad {
        let in_flight = InFlight { demands, lanes, block_pages: self.block_pages.load(Relaxed), is_asked };
        let mut requests = self.requests();
        let load = requests.arbiter.choose_load(page, in_flight, self.local.account.budget().0);
        note_blocks(self.pages.row(), &requests.arbiter);
        load
    }

    /// A thread waits for a page until this is dropped.
    pub(crate) fn waits(&self) -> Option<impl Drop> {
        struct Waits<'a>(&'a AtomicU32);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Relaxed);
            }
        }
        self.asks_for_blocks().then(|| {
            self.demands.fetch_add(1, Relaxed);
            Waits(&self.demands)
        })
    }

    /// So many pages have come for what was asked for.
    pub(crate) fn arrived(&self, wanted: &Prefetch, pages: u32) {
        let row = self.pages.row();
        match wanted.source() {
            Source::Prefetcher | Source::Tape | Source::Inherited => {}
            Source::Blocks => {
                let mut requests = self.requests();
                requests.arbiter.arrived(wanted, pages);
                note_blocks(row, &requests.arbiter);
            }
            Source::Hints(site) => {
                let mut requests = self.requests();
                requests.arbiter.arrived(wanted, pages);
                add(&row.hint_fetched_pages, pages.into());
                note_site(row, &requests.arbiter, site);
            }
        }
    }

    /// So many pages were mapped for hints, and no page that waits answers for them.
    pub(crate) fn mapped_without_key(&self, wanted: &Prefetch, pages: u32) {
        if pages > 0 {
            self.requests().arbiter.mapped_without_key(wanted, pages);
        }
    }

    /// A page of what was asked for waits unmapped: it answers for so many pages that came before.
    pub(crate) fn answers_for(&self, wanted: &Prefetch) -> u32 {
        wanted.hinted().map_or(0, |_| self.requests().arbiter.answers_for(wanted))
    }

    /// Tells the source of `page`, which waited unmapped, that it was used, and `mapped` pages beside it.
    pub(crate) fn used(&self, source: Source, page: PageNo, mapped: u32) {
        if matches!(source, Source::Prefetcher | Source::Tape | Source::Inherited) {
            return;
        }
        let (mut requests, row) = (self.requests(), self.pages.row());
        requests.arbiter.used(source, page, mapped + 1);
        match source {
            Source::Hints(site) => {
                add(&row.hint_used_pages, u64::from(mapped) + 1);
                note_site(row, &requests.arbiter, site);
            }
            _ => note_blocks(row, &requests.arbiter),
        }
    }

    /// The same of pages that were not used.
    pub(crate) fn wasted(&self, source: Source, page: PageNo, mapped: u32) {
        if source == Source::Inherited {
            return;
        }
        let (mut requests, row) = (self.requests(), self.pages.row());
        requests.arbiter.wasted(source, page, mapped + 1);
        if let Source::Hints(site) = source {
            add(&row.hint_unused_pages, u64::from(mapped) + 1);
            note_site(row, &requests.arbiter, site);
        } else if let Some(at) = requests.regions.find((page.0 / REGION_PAGES).into()) {
            add(&row.regions[at].unused_pages, 1);
        }
    }

    /// Tells the arbiter that hints of a site name remote pages; returns those that are to be fetched.
    pub(crate) fn hinted(&self, site: u16, pages: &[PageNo]) -> Option<HintBatch> {
        let mut requests = self.requests();
        let batch = requests.arbiter.hinted(site, pages);
        if batch.is_none() {
            add(&self.pages.row().hint_refused_pages, pages.len() as u64);
            note_site(self.pages.row(), &requests.arbiter, site);
        }
        batch
    }

    /// Counts prefetched pages, in order of address.
    pub(crate) fn count_prefetched(&self, pages: &[Owned]) {
        self.requests().regions.count_prefetched(&self.pages.row().regions, pages, Owned::page);
    }

    /// An interval of the program begins, its `number`-th; `follow`: its tapes are to be followed. Whether they are.
    pub(crate) fn begin_interval(&self, number: u32, follow: bool) -> bool {
        self.requests().arbiter.begin_interval(number, follow)
    }

    /// The interval ends.
    pub(crate) fn end_interval(&self) {
        self.requests().arbiter.end_interval();
    }

    /// These tapes are followed from now on.
    pub(crate) fn follow(&self, tapes: Tapes) {
        self.requests().arbiter.follow(tapes);
    }

    /// In the child of a fork: it follows no tape of its parent's, nothing is known of places that give hints, and it has rows of its own, which
    /// are unused.
    pub(crate) fn begin_child(&self) {
        let mut requests = self.requests();
        requests.arbiter.end_tapes();
        requests.arbiter.forget_hint_sites();
        requests.arbiter.forget_block_statistics();
        requests.arbiter.forget_features();
        self.demands.store(0, Relaxed);
        self.block_pages.store(0, Relaxed);
        (requests.threads, requests.regions) = (Busiest::default(), Busiest::default());
    }
}

impl PageLocalities for PrefetchDriver {
    fn locality(&self, page: PageNo) -> PageLocality {
        let state = (page.0 < self.pages.count).then(|| self.pages.table.load(page).state());
        match state {
            Some(State::Untouched) => PageLocality::Untouched,
            Some(State::Remote) => PageLocality::Remote,
            // Foreign pages are not fetched either.
            Some(State::Resident | State::Foreign | State::Sectioned) | None => PageLocality::Mapped,
            Some(State::SwapCached | State::Fetching | State::Leaving | State::WritingBack | State::Changing) => {
                PageLocality::Between
            }
        }
    }

    fn budget_pages(&self) -> u64 {
        self.local.account.budget().0
    }

    fn block_pages(&self) -> u32 {
        self.block_pages.load(Relaxed)
    }
}

/// Writes what blocks have led to; the caller holds the lock.
fn note_blocks(row: &ProcessRow, arbiter: &Arbiter) {
    let BlockStatistics { asked, pages, used, page_first, full, unused, size } = arbiter.block_statistics();
    row.blocks_asked.store(asked, Relaxed);
    row.block_pages.store(pages, Relaxed);
    row.block_used_pages.store(used, Relaxed);
    row.block_page_first.store(page_first, Relaxed);
    row.blocks_refused_full.store(full, Relaxed);
    row.blocks_refused_unused.store(unused, Relaxed);
    row.block_size_pages.store(size.into(), Relaxed);
}

/// Writes what requests say of pages; the caller holds the lock.
fn note_features(row: &ProcessRow, features: &RequestFeatures) {
    let RequestFeatures { references, sequential, strided, longest_run, windowed, fragments } = *features;
    row.feature_references.store(references, Relaxed);
    row.feature_sequential.store(sequential, Relaxed);
    row.feature_strided.store(strided, Relaxed);
    row.feature_run_pages_max.store(longest_run, Relaxed);
    row.feature_window_pages.store(windowed, Relaxed);
    row.feature_fragment_pages.store(fragments, Relaxed);
}

/// Writes what tapes did; the caller holds the lock.
fn note_tapes(row: &ProcessRow, statistics: &TapeStatistics) {
    let TapeStatistics { batches, pages, left, left_at, resumed, beside, early, threads, threads_without, .. } =
        *statistics;
    row.tape_phases.store(statistics.phases, Relaxed);
    row.tape_phases_begun.store(statistics.phases_begun, Relaxed);
    row.tape_phases_given_up.store(statistics.phases_given_up, Relaxed);
    row.tape_batches.store(batches, Relaxed);
    row.tape_pages.store(pages, Relaxed);
    row.tape_left.store(left, Relaxed);
    row.tape_resumed.store(resumed, Relaxed);
    row.tape_beside_faults.store(beside, Relaxed);
    row.tape_early_faults.store(early, Relaxed);
    row.tape_threads.store(threads, Relaxed);
    row.tape_threads_without.store(threads_without, Relaxed);
    if let Some((position, page)) = left_at {
        row.tape_left_position.store(position.into(), Relaxed);
        row.tape_left_page.store(page.0.into(), Relaxed);
    }
}

/// Writes what hints of a site led to; the caller holds the lock.
fn note_site(row: &ProcessRow, arbiter: &Arbiter, site: u16) {
    let (HintStatistics { fetched, used, unused, refused }, has_lost) = arbiter.hint_statistics(site);
    let Some(row) = row.hint_sites.get(usize::from(site)) else { return };
    row.fetched_pages.store(fetched, Relaxed);
    row.used_pages.store(used, Relaxed);
    row.unused_pages.store(unused, Relaxed);
    row.refused_pages.store(refused, Relaxed);
    row.has_lost.store(has_lost.into(), Relaxed);
}

/// Counts; the caller holds the lock.
fn add(counter: &Counter, count: u64) {
    counter.store(counter.load(Relaxed) + count, Relaxed);
}

/// Which thread or region has which row.
struct Busiest {
    /// By row: its thread or region.
    ids: [Option<u64>; ACTIVITIES_MAX],
    /// By row: requests, those of its former owners included.
    weights: [u64; ACTIVITIES_MAX],
    recent: [Recent; ACTIVITIES_MAX],
    /// By row: how far the step leads (Boyer and Moore's vote).
    votes: [u32; ACTIVITIES_MAX],
    /// The row that was used last.
    last: usize,
}

impl Default for Busiest {
    fn default() -> Busiest {
        Busiest {
            ids: [None; ACTIVITIES_MAX],
            weights: [0; ACTIVITIES_MAX],
            recent: [const { Recent::new() }; ACTIVITIES_MAX],
            votes: [0; ACTIVITIES_MAX],
            last: 0,
        }
    }
}

impl Busiest {
    fn find(&mut self, id: u64) -> Option<usize> {
        if self.ids[self.last] != Some(id) {
            self.last = self.ids.iter().position(|known| *known == Some(id))?;
        }
        Some(self.last)
    }

    /// The row of `id`, which may have been the lightest one's; `name` is what the row is called then.
    fn place(&mut self, rows: &[ActivityRow], id: u64, name: impl FnOnce() -> u64) -> usize {
        if let Some(at) = self.find(id) {
            return at;
        }
        let lightest = (0..ACTIVITIES_MAX).min_by_key(|at| (self.ids[*at].is_some(), self.weights[*at]));
        self.last = lightest.unwrap_or(0);
        self.ids[self.last] = Some(id);
        self.recent[self.last] = Recent::new();
        self.votes[self.last] = 0;
        rows[self.last].open(name());
        self.last
    }

    /// Counts a request of `id`; tells its row.
    fn note(&mut self, rows: &[ActivityRow], seen: Seen, id: u64, name: impl FnOnce() -> u64) -> usize {
        let at = self.place(rows, id, name);
        let row = &rows[at];
        match seen.request {
            Request::FirstTouch => add(&row.first_touches, 1),
            Request::Major => self.count(row, at, &row.major, seen),
            Request::Minor => self.count(row, at, &row.minor, seen),
            Request::PrefetchHit => self.count(row, at, &row.prefetch_hits, seen),
        }
        at
    }

    /// Counts a request for content.
    fn count(&mut self, row: &ActivityRow, at: usize, kind: &Counter, seen: Seen) {
        add(kind, 1);
        self.weights[at] += 1;
        match self.recent[at].requested(seen.page, seen.window) {
            Pattern::Sequential => add(&row.sequential, 1),
            Pattern::Strided(step) => {
                add(&row.strided, 1);
                self.vote(row, at, step);
            }
            Pattern::Irregular => {}
        }
        if let Some(window) = seen.window {
            add(&row.windows, 1);
            add(&row.window_pages, window.pages.into());
            row.window_pages_max.fetch_max(window.pages.into(), Relaxed);
        }
    }

    /// Counts prefetched pages, in order of address: one look-up for each region.
    fn count_prefetched<T>(&mut self, rows: &[ActivityRow], pages: &[T], page: impl Fn(&T) -> PageNo) {
        let region = |item: &T| page(item).0 / REGION_PAGES;
        for together in pages.chunk_by(|a, b| region(a) == region(b)) {
            if let Some(at) = self.find(region(&together[0]).into()) {
                add(&rows[at].fetched_pages, together.len() as u64);
            }
        }
    }

    fn vote(&mut self, row: &ActivityRow, at: usize, step: i64) {
        let step = step.cast_unsigned();
        if self.votes[at] == 0 {
            row.step.store(step, Relaxed);
        }
        let agrees = row.step.load(Relaxed) == step;
        self.votes[at] = if agrees { self.votes[at].saturating_add(1) } else { self.votes[at].saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Box<[ActivityRow; ACTIVITIES_MAX]> {
        // SAFETY: rows consist of atomics, which are valid when zero.
        unsafe { Box::<[ActivityRow; ACTIVITIES_MAX]>::new_zeroed().assume_init() }
    }

    fn note(busiest: &mut Busiest, rows: &[ActivityRow], id: u64, page: u32) {
        let seen = Seen { page: PageNo(page), request: Request::Major, window: None };
        busiest.note(rows, seen, id, || id + 1000);
    }

    #[test]
    fn a_row_says_what_was_requested_and_how() {
        let (mut busiest, rows) = (Busiest::default(), rows());
        for at in 0..100 {
            note(&mut busiest, &*rows, 7, at);
            note(&mut busiest, &*rows, 8, 50_000 + at * 10);
        }
        let figures = |row: &ActivityRow| {
            [&row.name, &row.major, &row.sequential, &row.strided, &row.step].map(|c| c.load(Relaxed))
        };
        assert_eq!(figures(&rows[0]), [1007, 100, 99, 0, 0]);
        assert_eq!(figures(&rows[1]), [1008, 100, 0, 98, 10]);
        assert_eq!(rows[2].name.load(Relaxed), 0);
    }

    #[test]
    fn the_busy_keep_their_rows_while_others_come_and_go() {
        let (mut busiest, rows) = (Busiest::default(), rows());
        for round in 0..10_000 {
            // Five make three quarters of all requests; thousands make one or two each.
            for id in 0..5 {
                (0..3).for_each(|_| note(&mut busiest, &*rows, id, 5));
                note(&mut busiest, &*rows, 100 + round / 2, 9);
            }
        }
        let mut names: Vec<u64> =
            rows.iter().filter(|row| row.major.load(Relaxed) == 30_000).map(|row| row.name.load(Relaxed)).collect();
        names.sort_unstable();
        assert_eq!(names, [1000, 1001, 1002, 1003, 1004]);
    }

    #[test]
    fn prefetched_pages_count_for_their_regions() {
        let (mut busiest, rows) = (Busiest::default(), rows());
        let border = 3 * REGION_PAGES;
        (2..4).for_each(|region| note(&mut busiest, &*rows, region, border));
        busiest.count_prefetched(
            &*rows,
            &[border - 3, border - 2, border - 1, border, border + 7].map(PageNo),
            |page| *page,
        );
        busiest.count_prefetched(&*rows, &[PageNo(9 * REGION_PAGES)], |page| *page);
        let fetched: Vec<u64> = rows.iter().map(|row| row.fetched_pages.load(Relaxed)).take(3).collect();
        assert_eq!(fetched, [3, 2, 0], "and none for a region without a row");
    }

    #[test]
    fn first_touches_take_no_row_of_one_who_made_requests() {
        let (mut busiest, rows) = (Busiest::default(), rows());
        (0..15).for_each(|id| note(&mut busiest, &*rows, id, 5));
        for id in 100..200 {
            let seen = Seen { page: PageNo(1), request: Request::FirstTouch, window: None };
            busiest.note(&*rows, seen, id, || id);
        }
        assert_eq!(rows.iter().filter(|row| row.major.load(Relaxed) == 1).count(), 15);
        assert_eq!(rows.iter().map(|row| row.first_touches.load(Relaxed)).sum::<u64>(), 1, "the last one's row");
    }
}
