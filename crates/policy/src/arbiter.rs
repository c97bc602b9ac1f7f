//! The arbiter: one place that takes in all requests and says what is fetched ahead, from three sources.
//!
//! ```text
//!   request ──► the thread is on its tape: batches of the tape ──┐
//!           └─► it is not, or has none: the prefetcher's window ─┴─► what is to be fetched
//!                first touches are always the prefetcher's, which maps zeros ahead of them, if another fault will tell where the thread is
//!
//!   hint ──► the site has not lost: its pages (see `hints`)
//!   loop that only walks in steps ──► the prefetcher follows those: no hints
//! ```
//!
//! What should leave comes from the same tapes, by the eviction policy that [`Arbiter::following`] returns.

use crate::tape::{ByTape, Course, Places, TapeFigures, TapeSource};
use crate::{
    Choice, EvictionPolicy, HintBatch, HintFigures, HintSource, Prefetch, PrefetchWindow, Prefetcher, Request, Thread,
    WindowBound,
};
use hinterland_units::{LinkEstimate, PageNo};

/// See the module.
pub struct Arbiter {
    prefetcher: Box<dyn Prefetcher>,
    tapes: Option<TapeSource>,
    hints: HintSource,
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
}

impl Arbiter {
    /// One that follows no tape: all is as the prefetcher says.
    pub fn new(prefetcher: Box<dyn Prefetcher>) -> Arbiter {
        Arbiter { prefetcher, tapes: None, hints: HintSource::default() }
    }

    /// One that follows tapes, and the eviction policy to go with it; where they say nothing, it is as `prefetcher` and `policy` say.
    pub fn following(
        prefetcher: Box<dyn Prefetcher>,
        policy: Box<dyn EvictionPolicy>,
        tapes: TapeSource,
    ) -> (Arbiter, Box<dyn EvictionPolicy>) {
        let policy = ByTape::new(policy, tapes.shared_holds());
        (Arbiter { prefetcher, tapes: Some(tapes), hints: HintSource::default() }, Box::new(policy))
    }

    /// A request of `thread` for `page` reached the pager. What is asked for may be there already.
    pub fn requested(&mut self, page: PageNo, request: Request, thread: Thread, places: &dyn Places) -> Wanted {
        let Some(tapes) = &mut self.tapes else {
            return Wanted { window: self.prefetcher.requested(page, request, thread), ..Wanted::default() };
        };
        let is_first = request == Request::FirstTouch;
        let zeros = if is_first { self.prefetcher.requested(page, request, thread) } else { None };
        let mut batches = Vec::new();
        let course = tapes.requested(page, request, thread, zeros.as_ref(), places, &mut batches);
        let window = match course {
            Course::OffTape if !is_first => self.prefetcher.requested(page, request, thread),
            Course::OffTape | Course::WillFault => zeros,
            // Each of the next first touches tells where the thread is.
            Course::Lost => None,
        };
        Wanted { window, batches, is_on_tape: course != Course::OffTape }
    }

    /// See [`Prefetcher::wasted`].
    pub fn wasted(&mut self, page: PageNo, pages: u32) {
        self.prefetcher.wasted(page, pages);
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

    /// See [`HintSource::used`].
    pub fn hint_used(&mut self, site: u16, pages: u32) {
        self.hints.used(site, pages);
    }

    /// See [`HintSource::wasted`].
    pub fn hint_wasted(&mut self, site: u16, pages: u32) {
        self.hints.wasted(site, pages);
    }

    /// See [`HintSource::figures`].
    pub fn hint_figures(&self, site: u16) -> (HintFigures, bool) {
        self.hints.figures(site)
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
    pub fn tape_figures(&self) -> Option<TapeFigures> {
        self.tapes.as_ref().map(TapeSource::figures)
    }

    /// See [`TapeSource::begin_interval`]; false: there are no tapes.
    pub fn begin_interval(&mut self, number: u32, follow: bool) -> bool {
        self.tapes.as_mut().is_some_and(|tapes| tapes.begin_interval(number, follow))
    }

    /// See [`TapeSource::end_interval`].
    pub fn end_interval(&mut self) {
        if let Some(tapes) = &mut self.tapes {
            tapes.end_interval();
        }
    }

    /// No tape is followed any longer: in the child of a fork.
    pub fn end_tapes(&mut self) {
        if let Some(mut tapes) = self.tapes.take() {
            tapes.end();
        }
    }
}
