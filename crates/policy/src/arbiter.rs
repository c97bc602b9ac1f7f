//! The arbiter: one place that takes in all requests and says what is fetched ahead, from four sources.
//!
//! ```text
//!   request ──► the thread is on its tape: batches of the tape ──┐
//!           └─► it is not, or has none: the prefetcher's window ─┴─► what is to be fetched
//!           └─► of an unordered tape: the set of the phase, and the prefetcher's window beside it
//!                                    neither asks ─► the block around a page that is waited for, where blocks pay (see `blocks`)
//!                first touches are always the prefetcher's, which maps zeros ahead of them, if another fault will tell where the thread is
//!
//!   hint ──► the site has not lost: its pages (see `hints`)
//!   loop that only walks in steps ──► the prefetcher follows those: no hints
//! ```
//!
//! What should leave comes from the same tapes, by the eviction policy that [`Arbiter::following`] returns.

use crate::tape::{ByTape, PageLocalities, SharedHolds, TapeProgress, TapeStatistics, Tapes};
use crate::{
    Block, BlockSource, BlockStatistics, Blocks, Choice, DemandLoad, EvictionPolicy, FeatureSample, Granularity,
    HintBatch, HintSource, HintStatistics, InFlight, Prefetch, PrefetchWindow, Prefetcher, Request, RequestFeatures,
    Source, Thread, WindowBound,
};
use hinterland_units::{LinkEstimate, PageNo};

/// See the module.
pub struct Arbiter {
    prefetcher: Box<dyn Prefetcher>,
    tapes: Option<Tapes>,
    /// What tapes hold, where the eviction policy goes by it.
    holds: Option<SharedHolds>,
    hints: HintSource,
    blocks: BlockSource,
    features: FeatureSample,
}

/// What a request leads to.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The prefetcher's window; after a first touch, of zeros.
    pub window: Option<PrefetchWindow>,
    /// The batches of tapes, in order.
    pub batches: Vec<Prefetch>,
    /// The thread is on its tape: what it waits for may be in a batch that is late.
    pub is_on_tape: bool,
    /// The block around the page.
    pub block: Option<Block>,
    /// [`Arbiter::features`] is worth reading again.
    pub has_features: bool,
}

impl Arbiter {
    /// One that follows no tape: all is as the prefetcher says.
    pub fn new(prefetcher: Box<dyn Prefetcher>) -> Arbiter {
        let (hints, blocks) = (HintSource::default(), BlockSource::new(Granularity::Page));
        Arbiter { prefetcher, tapes: None, holds: None, hints, blocks, features: FeatureSample::default() }
    }

    /// The same, which asks for such blocks around demands.
    pub fn with_blocks(self, blocks: impl Into<Blocks>) -> Arbiter {
        Arbiter { blocks: BlockSource::new(blocks), ..self }
    }

    /// See [`BlockSource::set`].
    pub fn set_blocks(&mut self, blocks: Blocks) {
        self.blocks.set(blocks);
    }

    /// See [`BlockSource::blocks`].
    pub fn blocks(&self) -> Blocks {
        self.blocks.blocks()
    }

    /// One that follows tapes, and the eviction policy to go with it; where they say nothing, it is as `prefetcher` and `policy` say.
    pub fn following(
        prefetcher: Box<dyn Prefetcher>,
        policy: Box<dyn EvictionPolicy>,
        tapes: impl Into<Tapes>,
    ) -> (Arbiter, Box<dyn EvictionPolicy>) {
        let (mut arbiter, policy) = Arbiter::able_to_follow(prefetcher, policy);
        arbiter.follow(tapes);
        (arbiter, policy)
    }

    /// One that may follow tapes later: a process without may have children that have some.
    pub fn able_to_follow(
        prefetcher: Box<dyn Prefetcher>,
        policy: Box<dyn EvictionPolicy>,
    ) -> (Arbiter, Box<dyn EvictionPolicy>) {
        let holds = SharedHolds::default();
        let policy = ByTape::new(policy, holds.clone());
        (Arbiter { holds: Some(holds), ..Arbiter::new(prefetcher) }, Box::new(policy))
    }

    /// It follows these tapes from now on, from their beginning; one whose policy does not go by tapes follows none.
    pub fn follow(&mut self, tapes: impl Into<Tapes>) {
        self.end_tapes();
        if let Some(holds) = &self.holds {
            let mut tapes = tapes.into();
            tapes.hold_in(holds);
            self.tapes = Some(tapes);
        }
    }

    /// A request of `thread` for `page` reached the pager. What is asked for may be there already.
    pub fn requested(
        &mut self,
        page: PageNo,
        request: Request,
        thread: Thread,
        localities: &dyn PageLocalities,
    ) -> Wanted {
        let mut wanted = self.requested_of_others(page, request, thread, localities);
        wanted.has_features = self.features.requested(page, wanted.window.as_ref());
        if request == Request::Major && !wanted.is_on_tape && !self.blocks.is_off() {
            let (is_beside, link) = (wanted.window.is_some(), self.hints.link());
            wanted.block =
                self.blocks.demanded(page, is_beside, localities.block_pages(), link, localities.budget_pages());
        }
        wanted
    }

    /// What the prefetcher and the tapes say.
    fn requested_of_others(
        &mut self,
        page: PageNo,
        request: Request,
        thread: Thread,
        localities: &dyn PageLocalities,
    ) -> Wanted {
        let Some(tapes) = &mut self.tapes else {
            return Wanted { window: self.prefetcher.requested(page, request, thread), ..Wanted::default() };
        };
        let is_first = request == Request::FirstTouch;
        let zeros = if is_first { self.prefetcher.requested(page, request, thread) } else { None };
        let mut batches = Vec::new();
        let progress = tapes.requested(page, request, thread, zeros.as_ref(), localities, &mut batches);
        let window = match progress {
            TapeProgress::OffTape if !is_first => self.prefetcher.requested(page, request, thread),
            TapeProgress::OffTape | TapeProgress::WillFault => zeros,
            // Each of the next first touches tells where the thread is.
            TapeProgress::Lost => None,
        };
        Wanted { window, batches, is_on_tape: progress != TapeProgress::OffTape, ..Wanted::default() }
    }

    /// What requests have said of the program's pages.
    pub fn features(&self) -> RequestFeatures {
        self.features.figures()
    }

    /// Nothing was requested yet: in the child of a fork.
    pub fn forget_features(&mut self) {
        self.features.forget();
    }

    /// Whether blocks are asked for at all.
    pub fn asks_for_blocks(&self) -> bool {
        !self.blocks.is_off()
    }

    /// See [`BlockSource::choose_load`].
    pub fn choose_load(&mut self, page: PageNo, in_flight: InFlight, local_pages: u64) -> DemandLoad {
        self.blocks.choose_load(page, in_flight, self.hints.link(), local_pages)
    }

    /// So many pages of what a source asked for have come.
    pub fn arrived(&mut self, wanted: &Prefetch, pages: u32) {
        match wanted {
            Prefetch::Block(block) => self.blocks.arrived(*block, pages),
            Prefetch::Hinted(batch) => self.hints.arrived(batch, pages),
            Prefetch::Window(_) | Prefetch::Batch(_) => {}
        }
    }

    /// See [`HintSource::mapped_without_key`].
    pub fn mapped_without_key(&mut self, wanted: &Prefetch, pages: u32) {
        if let Some(batch) = wanted.hinted() {
            self.hints.mapped_without_key(batch.site, pages);
        }
    }

    /// A page of it waits unmapped: see [`HintSource::answers_for`].
    pub fn answers_for(&mut self, wanted: &Prefetch) -> u32 {
        wanted.hinted().map_or(0, |batch| self.hints.answers_for(batch.site))
    }

    /// What blocks have led to counts from here on: in the child of a fork.
    pub fn forget_block_statistics(&mut self) {
        self.blocks.forget_figures();
    }

    /// See [`BlockSource::statistics`].
    pub fn block_statistics(&self) -> BlockStatistics {
        self.blocks.statistics()
    }

    /// `page`, which was fetched ahead and waited unmapped, is used; with those that are taken for used with it, `pages` pages.
    pub fn used(&mut self, source: Source, page: PageNo, pages: u32) {
        match source {
            Source::Prefetcher | Source::Tape | Source::Inherited => {}
            Source::Blocks => self.blocks.used(page),
            Source::Hints(site) => self.hints.used(site, pages),
        }
    }

    /// `page`, which was fetched ahead and waited unmapped, was dropped without a use; with those mapped beside it, `pages` pages.
    pub fn wasted(&mut self, source: Source, page: PageNo, pages: u32) {
        match source {
            Source::Prefetcher => self.prefetcher.wasted(page, pages),
            // Blocks count those that are used; of a set a part is planned for nothing.
            Source::Blocks | Source::Tape | Source::Inherited => {}
            Source::Hints(site) => self.hints.wasted(site, pages),
        }
    }

    /// See [`Prefetcher::loaded`].
    pub fn loaded(&mut self, pages: u32, ns: u64, local_pages: u64) {
        self.hints.loaded(pages, ns);
        self.prefetcher.loaded(pages, ns, local_pages);
    }

    /// See [`Prefetcher::follows_steps`].
    pub fn follows_steps(&self) -> bool {
        self.prefetcher.follows_steps()
    }

    /// See [`HintSource::hinted`].
    pub fn hinted(&mut self, site: u16, pages: &[PageNo]) -> Option<HintBatch> {
        self.hints.hinted(site, pages)
    }

    /// See [`HintSource::statistics`].
    pub fn hint_statistics(&self, site: u16) -> (HintStatistics, bool) {
        self.hints.statistics(site)
    }

    /// See [`HintSource::link`].
    pub fn link(&self) -> &LinkEstimate {
        self.hints.link()
    }

    /// See [`HintSource::forget_sites`].
    pub fn forget_hint_sites(&mut self) {
        self.hints.forget_sites();
    }

    /// See [`Prefetcher::choice`].
    pub fn choice(&self, page: PageNo) -> Option<Choice> {
        self.prefetcher.choice(page)
    }

    /// See [`Prefetcher::window_bound`].
    pub fn window_bound(&self) -> Option<WindowBound> {
        self.prefetcher.window_bound()
    }

    /// What was done by tapes; `None`: none is followed.
    pub fn tape_statistics(&self) -> Option<TapeStatistics> {
        self.tapes.as_ref().map(Tapes::statistics)
    }

    /// See [`Tapes::begin_interval`]; false: there are no tapes.
    pub fn begin_interval(&mut self, number: u32, follow: bool) -> bool {
        self.tapes.as_mut().is_some_and(|tapes| tapes.begin_interval(number, follow))
    }

    /// See [`Tapes::end_interval`].
    pub fn end_interval(&mut self) {
        if let Some(tapes) = &mut self.tapes {
            tapes.end_interval();
        }
    }

    /// No tape is followed any longer: in the child of a fork, which may have its own.
    pub fn end_tapes(&mut self) {
        self.tapes = None;
        if let Some(holds) = &self.holds {
            holds.lock().clear();
        }
    }
}
