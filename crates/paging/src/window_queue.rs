//! The queue of pending windows, served round robin, a batch each: where several streams are read ahead, none waits for the whole
//! window of another.
//!
//! A window that continues where another one ends waits until all of that one was claimed: they are of one stream. One that begins
//! inside another one replaces it: the program was faster, and has passed what lies before.

use hinterland_policy::PrefetchWindow;
use std::collections::VecDeque;

/// Windows that wait; when there are more, the oldest is dropped, because the program has probably passed it.
pub const WINDOWS_WAITING_MAX: u32 = 8;

/// Windows that are remembered, those included that have no page left to claim: some of their pages may be yet to be mapped.
const KNOWN_MAX: usize = 2 * WINDOWS_WAITING_MAX as usize;

/// A window that is being prefetched.
#[derive(Clone, Copy, Debug)]
pub struct PendingWindow {
    /// The window that the prefetcher named.
    pub window: PrefetchWindow,
    /// Tells it from all others.
    pub number: u64,
    /// Pages of it that were looked at, and claimed if they were remote.
    pub offset: u32,
    /// Pages of it that were mapped and are not reported to its key page yet.
    pub mapped: u32,
    /// Its key page waits, or was used already.
    pub has_key: bool,
}

impl PendingWindow {
    fn is_claimed(&self) -> bool {
        self.offset >= self.window.pages
    }

    fn continues(&self, other: &PendingWindow) -> bool {
        self.window.step == other.window.step && other.window.page(other.window.pages) == Some(self.window.first)
    }

    /// Whether a new window begins at one of the pages of this one.
    fn is_passed_by(&self, window: &PrefetchWindow) -> bool {
        let distance = i64::from(window.first.0) - i64::from(self.window.first.0);
        let (pages, step) = (i64::from(self.window.pages), self.window.step);
        window.step == step && distance % step == 0 && (0..pages).contains(&(distance / step))
    }
}

/// The outcome of a request for a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It waits.
    Behind,
    /// It waits, and the oldest that waited had to go.
    AndDropped,
    /// It has, with this number, replaced a window that the program has passed before all of it was claimed.
    InPlaceOf(u64),
}

/// The windows of a process, the one that is served next first.
#[derive(Debug, Default)]
pub struct WindowQueue {
    known: VecDeque<PendingWindow>,
    asked: u64,
}

impl WindowQueue {
    /// Queues a window.
    pub fn push(&mut self, window: PrefetchWindow) -> Pushed {
        self.asked += 1;
        let new = PendingWindow { window, number: self.asked, offset: 0, mapped: 0, has_key: false };
        if let Some(passed) =
            self.known.iter_mut().find(|pending| !pending.is_claimed() && pending.is_passed_by(&window))
        {
            *passed = new;
            return Pushed::InPlaceOf(new.number);
        }
        let is_full = self.waiting() >= WINDOWS_WAITING_MAX as usize;
        if is_full {
            self.forget_oldest(|pending| !pending.is_claimed());
        } else if self.known.len() >= KNOWN_MAX {
            self.forget_oldest(PendingWindow::is_claimed);
        }
        self.known.push_back(new);
        if is_full { Pushed::AndDropped } else { Pushed::Behind }
    }

    fn forget_oldest(&mut self, among: impl Fn(&PendingWindow) -> bool) {
        let oldest = self.known.iter().filter(|pending| among(pending)).map(|pending| pending.number).min();
        self.known.retain(|pending| Some(pending.number) != oldest);
    }

    /// Windows that have pages left to look at.
    pub fn waiting(&self) -> usize {
        self.known.iter().filter(|pending| !pending.is_claimed()).count()
    }

    /// The window to serve now; it goes to the end of the queue.
    pub fn take_next(&mut self) -> Option<PendingWindow> {
        let waits = |pending: &PendingWindow, other: &PendingWindow| !other.is_claimed() && pending.continues(other);
        let is_next =
            |pending: &PendingWindow| !pending.is_claimed() && !self.known.iter().any(|other| waits(pending, other));
        let at = self.known.iter().position(is_next)?;
        self.known.rotate_left(at + 1);
        self.known.back().copied()
    }

    /// A window by its number, unless it was dropped meanwhile.
    pub fn get(&self, number: u64) -> Option<&PendingWindow> {
        self.known.iter().find(|pending| pending.number == number)
    }

    /// Changes a window, unless it was dropped meanwhile: then it is `None`.
    pub fn update<R>(&mut self, number: u64, change: impl FnOnce(&mut PendingWindow) -> R) -> Option<R> {
        self.known.iter_mut().find(|pending| pending.number == number).map(change)
    }

    /// Drops a window.
    pub fn remove(&mut self, number: u64) {
        self.known.retain(|pending| pending.number != number);
    }

    /// Drops all of them.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_policy::Unmapped;
    use hinterland_units::PageNo;

    fn window(first: u32, step: i64, pages: u32) -> PrefetchWindow {
        PrefetchWindow { first: PageNo(first), step, pages, unmapped: Unmapped::All }
    }

    /// First pages of the windows in the order in which they are served, four pages at a time.
    fn order_in_fours(queue: &mut WindowQueue) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(pending) = queue.take_next() {
            order.push(pending.window.first.0 + pending.offset);
            queue.update(pending.number, |pending| pending.offset += 4);
        }
        order
    }

    #[test]
    fn streams_are_served_round_robin_and_each_in_order() {
        let mut queue = WindowQueue::default();
        for first in [100, 200, 108] {
            assert_eq!(queue.push(window(first, 1, 8)), Pushed::Behind);
        }
        assert_eq!(order_in_fours(&mut queue), [100, 200, 104, 204, 108, 112]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_window_that_begins_inside_another_takes_its_place() {
        let mut queue = WindowQueue::default();
        let pushed =
            [(100, 3), (500, 1), (106, 3), (107, 3), (108, 1)].map(|(first, step)| queue.push(window(first, step, 4)));
        let behind = Pushed::Behind;
        assert_eq!(pushed, [behind, behind, Pushed::InPlaceOf(3), behind, behind]);
        assert_eq!(order_in_fours(&mut queue), [106, 500, 107, 108]);
    }

    #[test]
    fn the_oldest_that_waits_is_dropped_first_and_claimed_ones_are_remembered_for_a_while() {
        let mut queue = WindowQueue::default();
        queue.push(window(0, 1, 4));
        let claimed = queue.take_next().unwrap().number;
        queue.update(claimed, |pending| pending.offset = 4);
        let pushed = (1..=9).map(|first| queue.push(window(first * 100, 1, 4)));
        let dropped = pushed.filter(|pushed| *pushed == Pushed::AndDropped).count();
        assert_eq!((dropped, queue.waiting()), (1, WINDOWS_WAITING_MAX as usize));
        assert_eq!(queue.take_next().map(|pending| pending.window.first), Some(PageNo(200)));
        assert!(queue.get(claimed).is_some());
        order_in_fours(&mut queue);
        assert!((0..8).all(|first| queue.push(window(first * 10, 1, 4)) == Pushed::Behind));
        assert!(queue.get(claimed).is_none() && queue.known.len() <= KNOWN_MAX);
    }
}
