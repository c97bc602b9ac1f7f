//! How far a thread is on its tape: which arrivals come next, and how many of them were asked for.
//!
//! ```text
//!   passed … ┃ coming: asked for ……… ┃ read ahead for a search ┃ … not read yet
//!            first                   asked
//! ```

use super::{TapeArrival, TapeDeparture, ThreadTape};
use hinterland_units::PageNo;
use std::collections::VecDeque;
use std::iter::Peekable;

/// An arrival that the thread has not come to.
#[derive(Clone, Copy, Debug)]
pub struct PendingArrival {
    pub arrival: TapeArrival,
    /// It is in a batch.
    pub is_fetched: bool,
    /// The thread is going to fault on it: it is a key page, or a first touch.
    pub will_fault: bool,
    /// It was local when it was asked for, and was to leave before the thread comes to it.
    is_kept: bool,
}

/// See the module.
pub struct Cursor {
    arrivals: Peekable<Box<dyn Iterator<Item = TapeArrival> + Send>>,
    departures: Peekable<Box<dyn Iterator<Item = TapeDeparture> + Send>>,
    /// Departures for what was asked for, of pages that the thread still uses.
    used: Vec<TapeDeparture>,
    /// Pages that were planned to be fetched ahead.
    pub ahead_pages: u32,
    coming: VecDeque<PendingArrival>,
    /// Arrivals of later intervals are not read.
    interval: u32,
    asked: usize,
    /// Of those that were asked for, those on which the thread is going to fault.
    faults: u32,
    kept: usize,
    /// Of those that are coming, those before which another thread has taken a key page: they count as used, too.
    reached: usize,
    /// Position of the arrival that the thread came to last.
    pub position: u32,
    /// What is added to positions so that those of all threads are on one scale.
    pub offset: u64,
}

impl Cursor {
    pub fn new(tape: ThreadTape) -> Cursor {
        let ThreadTape { arrivals, departures, ahead_pages } = tape;
        Cursor {
            arrivals: arrivals.peekable(),
            departures: departures.peekable(),
            used: Vec::new(),
            ahead_pages,
            coming: VecDeque::new(),
            interval: 0,
            asked: 0,
            faults: 0,
            kept: 0,
            reached: 0,
            position: 0,
            offset: 0,
        }
    }

    /// Reads on until `count` arrivals are coming, if there are so many.
    fn read(&mut self, count: usize) {
        while self.coming.len() < count {
            let interval = self.interval;
            let Some(arrival) = self.arrivals.next_if(|arrival| arrival.interval <= interval) else { return };
            self.coming.push_back(PendingArrival { arrival, is_fetched: false, will_fault: false, is_kept: false });
        }
    }

    /// Where a page comes next among the arrivals from `from` to `to`, counted from where the thread is.
    pub fn find(&mut self, page: PageNo, from: usize, to: usize) -> Option<usize> {
        self.read(to);
        let to = to.min(self.coming.len());
        (from < to)
            .then(|| self.coming.range(from..to).position(|coming| coming.arrival.page == page))?
            .map(|at| from + at)
    }

    /// Where the thread is going to fault on a page.
    pub fn find_fault(&self, page: PageNo) -> Option<usize> {
        self.coming.range(..self.asked).position(|coming| coming.will_fault && coming.arrival.page == page)
    }

    /// Arrivals that were asked for, and that the thread has not come to.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// Whether a fault will tell where the thread is.
    pub fn will_fault(&self) -> bool {
        self.faults > 0
    }

    /// Whether the thread comes to the arrival at `at` without another on which it was going to fault.
    pub fn is_next_fault(&self, at: usize) -> bool {
        self.coming.range(..at.min(self.coming.len())).all(|coming| !coming.will_fault)
    }

    /// The next arrival that was not asked for; it counts as asked for from now on.
    pub fn ask_next(&mut self) -> Option<&mut PendingArrival> {
        self.read(self.asked + 1);
        let next = self.coming.get_mut(self.asked)?;
        self.asked += 1;
        Some(next)
    }

    /// The page of the next arrival that was not asked for.
    pub fn next(&mut self) -> Option<PageNo> {
        self.read(self.asked + 1);
        self.coming.get(self.asked).map(|coming| coming.arrival.page)
    }

    /// Of those that were asked for, pages that stay local although they were to leave before.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// The next arrival that was not asked for is such a page.
    pub fn keep_next(&mut self) {
        if let Some(coming) = self.coming.get_mut(self.asked) {
            coming.is_kept = true;
            self.kept += 1;
        }
    }

    /// Pages of batches that no thread has come to, as far as key pages tell.
    pub fn fetched_ahead(&self) -> usize {
        self.coming.range(self.reached.min(self.asked)..self.asked).filter(|coming| coming.is_fetched).count()
    }

    /// Another thread has taken the key page at `at`: no fault will tell of it.
    pub fn key_is_taken(&mut self, at: usize) {
        self.set_will_fault(at, false);
        self.reached = self.reached.max(at + 1);
    }

    /// The thread is not going to fault on pages that were asked for.
    pub fn will_not_fault(&mut self, which: impl Fn(PageNo) -> bool) {
        for coming in self.coming.range_mut(..self.asked).filter(|coming| which(coming.arrival.page)) {
            self.faults -= u32::from(std::mem::take(&mut coming.will_fault));
        }
    }

    /// Notes whether the thread is going to fault on the page at `at`.
    pub fn set_will_fault(&mut self, at: usize, will_fault: bool) {
        let Some(coming) = self.coming.get_mut(at) else { return };
        self.faults = self.faults + u32::from(will_fault) - u32::from(coming.will_fault);
        coming.will_fault = will_fault;
    }

    /// The thread passes the next arrival; whether that was asked for.
    pub fn pass(&mut self) -> Option<(PendingArrival, bool)> {
        let passed = self.coming.pop_front()?;
        let was_asked = self.asked > 0;
        self.asked = self.asked.saturating_sub(1);
        self.position = passed.arrival.position;
        self.faults -= u32::from(passed.will_fault);
        self.kept -= usize::from(passed.is_kept);
        self.reached = self.reached.saturating_sub(1);
        Some((passed, was_asked))
    }

    /// Takes the departures that make room for what was asked for, of pages that the thread has used for the last time; without those
    /// that were asked for again since.
    pub fn take_departures(&mut self, mut taken: impl FnMut(TapeDeparture)) {
        let position = self.position;
        let last = self.asked.checked_sub(1).and_then(|last| self.coming.get(last));
        let end = last.map_or(position, |last| last.arrival.position);
        while let Some(departure) = self.departures.next_if(|departure| departure.position <= end) {
            self.used.push(departure);
        }
        let asked = self.coming.range(..self.asked);
        self.used.retain(|departure| {
            if departure.used_until > position {
                return true;
            }
            // A page that loses its content has no next use, and may be touched again.
            let is_asked_again = match departure.next_use {
                Some(next) => next <= end,
                None => asked.clone().any(|coming| coming.arrival.page == departure.page),
            };
            if !is_asked_again {
                taken(*departure);
            }
            false
        });
    }

    /// What was asked for is not waited for any longer; returns the pages of batches.
    pub fn give_up(&mut self) -> impl Iterator<Item = PageNo> {
        let asked = std::mem::take(&mut self.asked);
        (self.faults, self.kept, self.reached) = (0, 0, 0);
        self.coming.range_mut(..asked).filter_map(|coming| {
            (coming.will_fault, coming.is_kept) = (false, false);
            std::mem::take(&mut coming.is_fetched).then_some(coming.arrival.page)
        })
    }

    /// Passes over what is left of earlier intervals than this one; nothing is asked for.
    pub fn skip_to_interval(&mut self, number: u32) {
        self.interval = number;
        loop {
            self.read(1);
            let Some(first) = self.coming.front().map(|coming| coming.arrival) else { return };
            if first.interval >= number {
                self.position = first.position;
                break;
            }
            self.coming.pop_front();
        }
        let position = self.position;
        self.used.clear();
        while self.departures.next_if(|departure| departure.position < position).is_some() {}
    }

    /// Whether the thread has passed all arrivals.
    pub fn is_at_end(&mut self) -> bool {
        self.coming.is_empty() && self.arrivals.peek().is_none()
    }

    /// Whether all that comes was asked for, in this interval, and the thread is going to fault on none of it.
    pub fn is_through(&mut self) -> bool {
        let interval = self.interval;
        let is_last = self.arrivals.peek().is_none_or(|next| next.interval > interval);
        is_last && self.asked == self.coming.len() && self.faults == 0
    }

    /// Where the thread is, on the scale of all threads.
    pub fn progress(&self) -> u64 {
        self.offset + u64::from(self.position)
    }
}
