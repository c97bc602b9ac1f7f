//! One stream: its last window and where the program is expected next. And the run of faults that may become one.

use super::{STALE_REQUESTS, WINDOW_PAGES_MIN};
use crate::{PrefetchWindow, Unmapped};
use hinterland_units::PageNo;
use std::ops::RangeInclusive;

/// What a stream maps ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Zero pages for memory that is touched for the first time.
    Fresh,
    /// Pages from far memory.
    Remote,
}

/// From one page of a stream to the next, in pages; not 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step(pub(super) i64);

impl Step {
    /// Whether it leaves pages out.
    pub(super) fn is_long(self) -> bool {
        self.0.abs() > 1
    }

    /// The page `count` steps further on; `None` past the ends of the numbers.
    pub(super) fn after(self, page: u32, count: u32) -> Option<u32> {
        u32::try_from(i64::from(page).checked_add(self.0.checked_mul(i64::from(count))?)?).ok()
    }

    /// Whether so many steps lead from page `from` to page `to`. Divides only where they may: a division takes as long as all the rest.
    fn leads(self, from: u32, to: u32, steps: RangeInclusive<i64>) -> bool {
        let distance = (i64::from(to) - i64::from(from)) * self.0.signum();
        let pages = self.0.abs();
        let range = steps.start().saturating_mul(pages)..=steps.end().saturating_mul(pages);
        range.contains(&distance) && distance % pages == 0
    }

    /// Pages of a stream from `first` on, before page numbers end.
    fn room(self, first: u32) -> u32 {
        let left = if self.0 > 0 { u32::MAX - first } else { first.saturating_add(1) };
        u32::try_from(i64::from(left).unsigned_abs().div_ceil(self.0.unsigned_abs())).unwrap_or(u32::MAX)
    }
}

/// A stream that is being read ahead.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) kind: Kind,
    pub(super) step: Step,
    /// Pages in the last window; 0 before the first.
    window_pages: u32,
    /// Key pages reached in windows as large as was trusted.
    full_windows: u32,
    key: u32,
    /// First page past the last window; `None` if the window ends where page numbers end.
    pub(super) end: Option<u32>,
    /// The number of the request that asked for the last window.
    opened_at: u64,
    /// Whether the program reached a key page: the stream was no accident.
    pub(super) confirmed: bool,
}

impl Stream {
    pub(super) fn new(kind: Kind, step: Step) -> Stream {
        Stream { kind, step, window_pages: 0, full_windows: 0, key: 0, end: None, opened_at: 0, confirmed: false }
    }

    /// The same stream, to be opened again with a window of the last one's size.
    pub(super) fn shrunk(mut self) -> Stream {
        self.window_pages /= 2;
        self
    }

    /// The next window from `from`: twice the last one, at most `window_pages_max`, cut where page numbers end.
    pub(super) fn open(&mut self, from: u32, window_pages_max: u32, now: u64) -> Option<PrefetchWindow> {
        let wanted = self.window_pages.saturating_mul(2).max(WINDOW_PAGES_MIN).min(window_pages_max);
        let pages = wanted.min(self.step.room(from));
        if pages == 0 {
            return None;
        }
        // A third in: two thirds of the window remain to walk through while the next one comes in.
        let key = self.step.after(from, pages / 3)?;
        self.window_pages = pages;
        self.key = key;
        self.opened_at = now;
        self.end = self.step.after(from, pages);
        Some(PrefetchWindow { first: PageNo(from), step: self.step.0, pages, unmapped: Unmapped::Key(PageNo(key)) })
    }

    /// Counts a reached key page; true at every second one of a window of (at least) `trusted_pages`: one may be
    /// chance.
    pub(super) fn reached_full_windows(&mut self, trusted_pages: u32) -> bool {
        self.full_windows += u32::from(self.window_pages >= trusted_pages);
        if self.full_windows < 2 {
            return false;
        }
        self.full_windows = 0;
        true
    }

    pub(super) fn is_key(&self, page: PageNo) -> bool {
        self.key == page.0
    }

    /// Whether the program has come to the window's end; with a long step that was no accident also where it has passed the end by no
    /// more than such a window, because pages behind it were local. Faults that are as near by chance seldom lie on its way.
    fn has_come_to_end(&self, page: PageNo) -> bool {
        let Some(end) = self.end else { return false };
        let steps_max = if self.step.is_long() && self.confirmed { i64::from(self.window_pages) } else { 0 };
        self.step.leads(end, page.0, 0..=steps_max)
    }

    fn is_stale(&self, now: u64) -> bool {
        now - self.opened_at > STALE_REQUESTS * u64::from(self.window_pages)
    }

    /// Whether a request for `page` of this kind (`None`: any) asks for the next window.
    pub(super) fn continues_at(&self, page: PageNo, kind: Option<Kind>, now: u64) -> bool {
        if self.is_stale(now) {
            return false;
        }
        match kind {
            None => self.is_key(page),
            Some(kind) => self.kind == kind && (self.is_key(page) || self.has_come_to_end(page)),
        }
    }

    /// Whether a sequential stream goes by here: where the program is faster than read-ahead, its faults are as far apart as what
    /// comes at once, and look like steps.
    pub(super) fn passes(&self, page: PageNo, now: u64) -> bool {
        !self.step.is_long() && !self.is_stale(now) && page.0.abs_diff(self.key) <= self.window_pages.saturating_mul(2)
    }

    /// Whether a run that came to `page` is this stream, walking through its last window or a window's length past it:
    /// pages of the window came too late or were dropped, or pages past it were local.
    pub(super) fn is_near(&self, page: PageNo, kind: Kind, step: Step, now: u64) -> bool {
        if self.is_stale(now) || self.kind != kind || self.step != step {
            return false;
        }
        let window = i64::from(self.window_pages);
        self.step.leads(self.key, page.0, -window..=2 * window)
    }
}

/// A run of faults on neighbouring pages.
#[derive(Debug)]
pub(super) struct Candidate {
    last: u32,
    kind: Kind,
    step: Option<Step>,
    /// Faults in the run.
    pub(super) run: u32,
}

impl Candidate {
    pub(super) fn new(page: PageNo, kind: Kind) -> Candidate {
        Candidate { last: page.0, kind, step: None, run: 1 }
    }

    /// Whether the last fault is at `page` or a neighbour, of whichever kind.
    pub(super) fn is_beside(&self, page: PageNo) -> bool {
        self.last.abs_diff(page.0) <= 1
    }

    pub(super) fn is_at(&self, page: PageNo, kind: Kind) -> bool {
        self.kind == kind && self.last == page.0
    }

    /// The step to `page`, if it is the neighbour of the last fault.
    pub(super) fn next_step(&self, page: PageNo, kind: Kind) -> Option<Step> {
        let step = i64::from(page.0) - i64::from(self.last);
        (self.kind == kind && step.abs() == 1).then_some(Step(step))
    }

    /// Adds a fault; the run begins anew with two pages if it turned round.
    pub(super) fn lengthen(&mut self, page: PageNo, step: Step) {
        self.run = if self.step.is_none_or(|was| was == step) { self.run + 1 } else { 2 };
        self.step = Some(step);
        self.last = page.0;
    }
}
