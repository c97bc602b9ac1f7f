//! Read-ahead for streams: several at once, ascending or descending; sequential ones ([`Streams::sequential`]), or of any step
//! ([`Streams::of_any_step`]).
//!
//! ```text
//!            the program faults here, at the key page: the next window is asked for
//!            ↓
//! [ mapped   K   mapped         ][ next window  K' ...                     ]
//!   first third  while the program walks through this, the next one comes in
//! ```
//!
//! Source: Linux `mm/readahead.c` (`ondemand_readahead`: a marked page inside a window starts the next one; windows
//! double while the stream goes on), with one difference: a mapped page gives no signal, so the mark is a page that
//! stays unmapped.
//!
//! * Single faults are *candidates*. A fault beside a candidate's last fault lengthens its run; a run of `run_needed`
//!   faults (2 at first) founds a stream. Faults at random never do, so they fetch nothing.
//! * With steps of more than one page, three terms of a progression among the last faults found a stream, more when such streams
//!   were chance (`progression`).
//! * A fault at a stream's key page, or at the first page past its window (the key page was local already), asks for
//!   the next window: twice as large, right behind the last one. With a longer step it may be one of the next pages, too: among
//!   local pages the first one that is not seldom lies right at the end.
//! * A stream that the program left goes stale after `STALE_REQUESTS` requests for each page of its window; otherwise
//!   random faults would hit the key pages that it left behind.
//! * First touches and far memory are different kinds of streams, also on the same pages: what is mapped ahead differs.
//! * Distrust: a stream that dies before its first key page is reached doubles `run_needed`, and so do wasted pages
//!   once the window limit is down to the smallest; reached key pages and a long run of faults undo it.
//!
//! Invariants: `WINDOW_PAGES_MIN ≤ trusted_pages ≤ limit` (or both are `limit`, if that is smaller); 2 ≤ `run_needed`
//! ≤ `RUN_NEEDED_MAX`; a window's key page lies inside it.

mod progression;
mod stream;
#[cfg(test)]
mod tests;

use crate::{Bounded, PrefetchWindow, Prefetcher, Request, Thread};
use hinterland_units::PageNo;
use progression::Progressions;
use stream::{Candidate, Kind, Step, Stream};

/// The first window of a stream (Linux reads ahead four times what was asked for).
const WINDOW_PAGES_MIN: u32 = 4;
/// Streams that are followed at once.
const STREAMS: usize = 16;
/// Faults that are remembered as possible beginnings: twice the streams, so that random faults between the first two
/// of a stream don't hide it.
const CANDIDATES: usize = 32;
/// A run that founds a stream when nothing speaks against it.
const RUN_NEEDED_MIN: u32 = 2;
/// A run that founds a stream after much waste. Random programs have none of this length.
const RUN_NEEDED_MAX: u32 = 16;
/// Requests for each page of a window after which a stream is stale: a scan may be that much slower than the faults
/// beside it.
const STALE_REQUESTS: u64 = 64;
/// Waste is judged after so many pages asked for.
const JUDGED_PAGES_MIN: u32 = 32;
/// Older windows count half after so many pages asked for.
const JUDGED_PAGES_MAX: u32 = 1024;

/// The prefetcher of streams. See the module.
pub struct Streams {
    /// Most recently used last.
    streams: Vec<Stream>,
    /// Oldest first.
    candidates: Vec<Candidate>,
    /// Where steps of more than one page are looked for, if they are.
    progressions: Option<Progressions>,
    limit: u32,
    /// Largest window of zeros ahead of first touches: there is no link to follow.
    fresh_limit: u32,
    trusted_pages: u32,
    run_needed: u32,
    asked_pages: u32,
    wasted_pages: u32,
    /// Requests so far: the only clock there is.
    requests: u64,
}

impl Streams {
    /// Streams of neighbouring pages; windows of at most `window_pages_max`, 0 for none.
    pub fn sequential(window_pages_max: u32) -> Streams {
        Streams {
            streams: Vec::with_capacity(STREAMS),
            candidates: Vec::with_capacity(CANDIDATES),
            progressions: None,
            limit: window_pages_max,
            fresh_limit: window_pages_max,
            trusted_pages: window_pages_max,
            run_needed: RUN_NEEDED_MIN,
            asked_pages: 0,
            wasted_pages: 0,
            requests: 0,
        }
    }

    /// Also streams of longer steps, in far memory.
    pub fn of_any_step(window_pages_max: u32) -> Streams {
        Streams { progressions: Some(Progressions::new()), ..Streams::sequential(window_pages_max) }
    }

    /// The program has come to the key page or the end of a stream's last window.
    fn go_on(&mut self, at: usize, page: PageNo) -> Option<PrefetchWindow> {
        let mut stream = self.streams.remove(at);
        let reached_key = stream.is_key(page);
        if reached_key {
            if stream.reached_full_windows(self.trusted(stream.kind)) {
                self.trusted_pages = self.trusted_pages.saturating_mul(2).min(self.limit);
            }
            if !std::mem::replace(&mut stream.confirmed, true) {
                self.trust(stream.step);
            }
        }
        let from = if reached_key { stream.end } else { stream.step.after(page.0, 1) };
        self.open(stream, from)
    }

    /// A run of faults was long enough: a new stream, or an old one whose window was skipped or dropped.
    fn found(&mut self, page: PageNo, kind: Kind, step: Step) -> Option<PrefetchWindow> {
        if self.run_needed == RUN_NEEDED_MAX {
            self.run_needed = RUN_NEEDED_MAX / 2;
        }
        let old = self.streams.iter().position(|stream| stream.is_near(page, kind, step, self.requests));
        let stream = match old {
            Some(at) => self.streams.remove(at).shrunk(),
            None => Stream::new(kind, step),
        };
        if self.streams.len() == STREAMS {
            let oldest = self.streams.remove(0);
            if !oldest.confirmed {
                self.distrust(oldest.step);
            }
        }
        self.open(stream, step.after(page.0, 1))
    }

    /// A stream of this step was one.
    fn trust(&mut self, step: Step) {
        match &mut self.progressions {
            Some(progressions) if step.is_long() => progressions.trust(),
            _ => self.run_needed = (self.run_needed / 2).max(RUN_NEEDED_MIN),
        }
    }

    /// A stream of this step was none.
    fn distrust(&mut self, step: Step) {
        match &mut self.progressions {
            Some(progressions) if step.is_long() => progressions.distrust(),
            _ => self.run_needed = (self.run_needed * 2).min(RUN_NEEDED_MAX),
        }
    }

    /// Asks for a stream's next window from `from`; the stream ends with the range of page numbers.
    fn open(&mut self, mut stream: Stream, from: Option<u32>) -> Option<PrefetchWindow> {
        let window = stream.open(from?, self.trusted(stream.kind), self.requests)?;
        self.streams.push(stream);
        self.asked_pages += window.pages;
        if self.asked_pages > JUDGED_PAGES_MAX {
            self.asked_pages /= 2;
            self.wasted_pages /= 2;
        }
        Some(window)
    }

    /// The largest window of such a stream that is trusted.
    fn trusted(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Fresh => self.trusted_pages.min(self.fresh_limit),
            Kind::Remote => self.trusted_pages,
        }
    }

    /// Counts a fault into the run that it lengthens; tells the step once the run is long enough.
    fn count_run(&mut self, page: PageNo, kind: Kind) -> Option<Step> {
        // Mostly none is near, which is seen without a way out in the middle.
        let is_near = |near: bool, candidate: &Candidate| near | candidate.is_beside(page);
        let near = self.candidates.iter().fold(false, is_near);
        let at = near.then(|| self.candidates.iter().position(|candidate| candidate.next_step(page, kind).is_some()));
        let Some(at) = at.flatten() else {
            if !near || !self.candidates.iter().any(|candidate| candidate.is_at(page, kind)) {
                if self.candidates.len() == CANDIDATES {
                    self.candidates.remove(0);
                }
                self.candidates.push(Candidate::new(page, kind));
            }
            return None;
        };
        let mut candidate = self.candidates.remove(at);
        let step = candidate.next_step(page, kind)?;
        candidate.lengthen(page, step);
        if candidate.run >= self.run_needed {
            return Some(step);
        }
        self.candidates.push(candidate);
        None
    }
}

impl Prefetcher for Streams {
    fn requested(&mut self, page: PageNo, request: Request, _: Thread) -> Option<PrefetchWindow> {
        if self.limit == 0 {
            return None;
        }
        self.requests += 1;
        let kind = match request {
            Request::FirstTouch => Some(Kind::Fresh),
            Request::Major | Request::Minor => Some(Kind::Remote),
            Request::PrefetchHit => None,
        };
        if let Some(at) = self.streams.iter().rposition(|stream| stream.continues_at(page, kind, self.requests)) {
            self.progressions.iter_mut().for_each(|progressions| progressions.push(None));
            return self.go_on(at, page);
        }
        let longer = self.progressions.as_mut().and_then(|progressions| {
            let fault = (kind == Some(Kind::Remote)).then_some(page.0);
            let is_passed = |_: &u32| self.streams.iter().any(|stream| stream.passes(page, self.requests));
            let step = fault.filter(|fault| !is_passed(fault)).and_then(|page| progressions.step_to(page));
            progressions.push(fault);
            step
        });
        let kind = kind.unwrap_or(Kind::Remote);
        let step = self.count_run(page, kind).or(longer)?;
        self.found(page, kind, step)
    }

    fn wasted(&mut self, _: PageNo, pages: u32) {
        self.wasted_pages = self.wasted_pages.saturating_add(pages);
        if self.asked_pages < JUDGED_PAGES_MIN || self.wasted_pages <= self.asked_pages / 2 {
            return;
        }
        self.asked_pages = 0;
        self.wasted_pages = 0;
        if self.trusted_pages > WINDOW_PAGES_MIN {
            self.trusted_pages = (self.trusted_pages / 2).max(WINDOW_PAGES_MIN);
        } else {
            self.run_needed = (self.run_needed * 2).min(RUN_NEEDED_MAX);
            self.progressions.iter_mut().for_each(Progressions::distrust);
        }
    }

    fn follows_steps(&self) -> bool {
        self.limit > 0
    }
}

impl Bounded for Streams {
    fn limit(&mut self, window_pages_max: u32) {
        let in_full = self.trusted_pages == self.limit;
        self.trusted_pages = if in_full { window_pages_max } else { self.trusted_pages.min(window_pages_max) };
        self.limit = window_pages_max;
    }
}
