//! The queue of pending windows, served round robin, a batch each: where several streams are read ahead, none waits for the whole
//! window of another.
//!
//! A window that continues where another one ends waits until all of that one was claimed: they are of one stream. One that begins
//! inside another one replaces it: the program was faster, and has passed what lies before.
//!
//! Batches of tapes are served in between. Those of one thread wait for each other, and none is dropped: a thread asks for few, and
//! needs all of them; where no frames are free for a part of one, it waits until something else is asked for. So are batches of hints, and
//! blocks; their sources bound how many wait.

use hinterland_policy::{Prefetch, PrefetchWindow};
use hinterland_units::PageNo;
use std::collections::VecDeque;

/// Windows that wait; when there are more, the oldest is dropped, because the program has probably passed it.
pub const WINDOWS_WAITING_MAX: u32 = 8;

/// Windows that are remembered, those included that have no page left to claim: some of their pages may be yet to be mapped.
const KNOWN_MAX: usize = 2 * WINDOWS_WAITING_MAX as usize;

/// A window, a batch of a tape or of hints, or a block, that is being prefetched.
#[derive(Clone, Debug)]
pub struct PendingWindow {
    /// What was asked for.
    pub wanted: Prefetch,
    /// Tells it from all others.
    pub number: u64,
    /// Pages of it that were looked at, and claimed if they were remote.
    pub offset: u32,
    /// Pages of it that were mapped and are not reported to its key page yet.
    pub mapped: u32,
    /// Its key page waits, or was used already.
    pub has_key: bool,
    /// Pages of it that were claimed and are not mapped, nor wait.
    pub under_way: u32,
    /// No frames were free for a part of it: it is served again once something else is asked for.
    waits_for_frames: bool,
}

impl PendingWindow {
    fn is_claimed(&self) -> bool {
        self.offset >= self.wanted.pages()
    }

    fn is_waiting(&self) -> bool {
        !self.is_claimed() && !self.waits_for_frames
    }

    fn is_window(&self) -> bool {
        matches!(self.wanted, Prefetch::Window(_))
    }

    fn is_block(&self) -> bool {
        matches!(self.wanted, Prefetch::Block(_))
    }

    /// Whether a page of it was not looked at.
    fn has_ahead(&self, page: PageNo) -> bool {
        (self.offset..self.wanted.pages()).any(|at| self.wanted.page(at) == Some(page))
    }

    fn continues(&self, other: &PendingWindow) -> bool {
        match (&self.wanted, &other.wanted) {
            (Prefetch::Window(window), Prefetch::Window(other)) => {
                window.step == other.step && other.page(other.pages) == Some(window.first)
            }
            (Prefetch::Batch(batch), Prefetch::Batch(before)) => {
                batch.thread == before.thread && self.number > other.number
            }
            (Prefetch::Hinted(batch), Prefetch::Hinted(before)) => {
                batch.site == before.site && self.number > other.number
            }
            _ => false,
        }
    }

    /// Whether a new window begins at one of the pages of this one.
    fn is_passed_by(&self, window: &PrefetchWindow) -> bool {
        let Prefetch::Window(this) = &self.wanted else { return false };
        window.step == this.step && this.contains(window.first)
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

impl Pushed {
    /// The window with which the read-ahead thread is late: its pages are wanted now.
    pub fn late(self) -> Option<u64> {
        match self {
            Pushed::InPlaceOf(number) => Some(number),
            Pushed::Behind | Pushed::AndDropped => None,
        }
    }
}

/// What is pending of a process, windows, batches and blocks; the one that is served next first.
#[derive(Debug, Default)]
pub struct WindowQueue {
    known: VecDeque<PendingWindow>,
    asked: u64,
}

impl WindowQueue {
    /// Queues a window, or a batch.
    pub fn push(&mut self, wanted: impl Into<Prefetch>) -> Pushed {
        let wanted = wanted.into();
        self.asked += 1;
        let number = self.asked;
        self.known.iter_mut().for_each(|pending| pending.waits_for_frames = false);
        let (offset, mapped, has_key, under_way) = (0, 0, false, 0);
        let new = PendingWindow { wanted, number, offset, mapped, has_key, under_way, waits_for_frames: false };
        let is_passed = |pending: &&mut PendingWindow| {
            !pending.is_claimed() && matches!(&new.wanted, Prefetch::Window(window) if pending.is_passed_by(window))
        };
        if let Some(passed) = self.known.iter_mut().find(is_passed) {
            *passed = new;
            return Pushed::InPlaceOf(number);
        }
        let waits = |pending: &PendingWindow| pending.is_window() && !pending.is_claimed();
        let waiting = self.known.iter().filter(|pending| waits(pending)).count();
        let is_full = new.is_window() && waiting >= WINDOWS_WAITING_MAX as usize;
        if is_full {
            self.forget_oldest(waits);
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

    /// Windows that have pages left to look at, and can be served now.
    pub fn waiting(&self) -> usize {
        self.known.iter().filter(|pending| self.is_next(pending)).count()
    }

    /// Whether it can be served now: neither does it wait for frames, nor for the one that it continues.
    fn is_next(&self, pending: &PendingWindow) -> bool {
        pending.is_waiting() && !self.known.iter().any(|other| !other.is_claimed() && pending.continues(other))
    }

    /// Batches of hints that have pages left to look at.
    pub fn waiting_hinted(&self) -> usize {
        self.known.iter().filter(|pending| !pending.is_claimed() && pending.wanted.hinted().is_some()).count()
    }

    /// The window to serve now; it goes to the end of the queue.
    pub fn take_next(&mut self) -> Option<PendingWindow> {
        let at = self.known.iter().position(|pending| self.is_next(pending))?;
        self.known.rotate_left(at + 1);
        self.known.back().cloned()
    }

    /// A window by its number, unless it was dropped meanwhile.
    pub fn get(&self, number: u64) -> Option<&PendingWindow> {
        self.known.iter().find(|pending| pending.number == number)
    }

    /// The batch of a tape, or of hints, that has a page which was not claimed: the program has come to it before those who fetch it.
    pub fn late_batch(&self, page: PageNo) -> Option<u64> {
        let has = |pending: &&PendingWindow| !pending.is_window() && !pending.is_block() && pending.has_ahead(page);
        self.known.iter().find(has).map(|pending| pending.number)
    }

    /// The block that has a page which was not claimed.
    pub fn late_block(&self, page: PageNo) -> Option<u64> {
        let has = |pending: &&PendingWindow| pending.is_block() && pending.has_ahead(page);
        self.known.iter().find(has).map(|pending| pending.number)
    }

    /// Pages of blocks that were not looked at, or are under way.
    pub fn block_pages(&self) -> u32 {
        let blocks = self.known.iter().filter(|pending| pending.is_block());
        blocks.map(|pending| pending.wanted.pages() - pending.offset + pending.under_way).sum()
    }

    /// The number of the window that was queued last.
    pub fn newest(&self) -> u64 {
        self.asked
    }

    /// Changes a window, unless it was dropped meanwhile: then it is `None`.
    pub fn update<R>(&mut self, number: u64, change: impl FnOnce(&mut PendingWindow) -> R) -> Option<R> {
        self.known.iter_mut().find(|pending| pending.number == number).map(change)
    }

    /// Memory is too tight for a part of a window, or of a block: all of it is given up; of a batch of hints, that part. A tape's batch, of
    /// which each page will be needed, goes on with that part once something else is asked for.
    pub fn refuse(&mut self, of: &PendingWindow) {
        match of.wanted {
            Prefetch::Window(_) | Prefetch::Block(_) => self.known.retain(|pending| pending.number != of.number),
            Prefetch::Hinted(_) => {}
            Prefetch::Batch(_) => {
                self.update(of.number, |pending| {
                    (pending.offset, pending.waits_for_frames) = (pending.offset.min(of.offset), true);
                });
            }
        }
    }

    /// Drops all of them.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_policy::{Block, TapeBatch, Unmapped};

    fn window(first: u32, step: i64, pages: u32) -> PrefetchWindow {
        PrefetchWindow { first: PageNo(first), step, pages, unmapped: Unmapped::All }
    }

    /// First pages of the windows in the order in which they are served, four pages at a time.
    fn order_in_fours(queue: &mut WindowQueue) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(pending) = queue.take_next() {
            order.extend(pending.wanted.page(pending.offset).map(|page| page.0));
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
    fn batches_of_a_tape_keep_their_order_and_are_not_dropped() {
        let mut queue = WindowQueue::default();
        let batch = |thread: u32, first: u32| {
            Prefetch::Batch(TapeBatch { pages: (first..first + 8).map(PageNo).collect(), key: None, thread })
        };
        for first in [100, 200, 300] {
            assert_eq!(queue.push(batch(0, first)), Pushed::Behind);
        }
        queue.push(batch(1, 900));
        assert_eq!([207, 208].map(|page| queue.late_batch(PageNo(page))), [Some(2), None]);
        for first in 1..=9 {
            queue.push(window(first * 1000, 1, 4));
        }
        let order = order_in_fours(&mut queue);
        assert_eq!(queue.late_batch(PageNo(207)), None, "all of it is claimed");
        let of = |pages: std::ops::Range<u32>| -> Vec<u32> {
            order.iter().copied().filter(|page| pages.contains(page)).collect()
        };
        assert_eq!((of(100..400), of(900..1000)), (vec![100, 104, 200, 204, 300, 304], vec![900, 904]));
        assert_eq!(order[..3], [100, 900, 2000], "in turns with each other and with windows");
        assert_eq!(order.len(), 16, "and eight of the nine windows");
    }

    #[test]
    fn pages_of_a_block_count_until_they_have_come_and_a_block_that_finds_no_frames_is_given_up() {
        let mut queue = WindowQueue::default();
        queue.push(Prefetch::Block(Block::around(PageNo(37), 16)));
        queue.push(Prefetch::Block(Block::around(PageNo(64), 8)));
        queue.push(window(300, 1, 64));
        assert_eq!(queue.block_pages(), 24);
        assert_eq!([36, 37, 70, 300].map(|page| queue.late_block(PageNo(page))), [Some(1), Some(1), Some(2), None]);
        assert_eq!(queue.late_batch(PageNo(37)), None, "no batch has it");
        let block = queue.take_next().unwrap();
        queue.update(block.number, |pending| (pending.offset, pending.under_way) = (16, 5));
        assert_eq!((queue.block_pages(), queue.late_block(PageNo(36))), (13, None));
        queue.update(block.number, |pending| pending.under_way = 0);
        let block = queue.take_next().unwrap();
        assert_eq!((block.number, queue.block_pages()), (2, 8));
        queue.refuse(&block);
        assert_eq!((queue.block_pages(), queue.waiting()), (0, 1));
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
        assert_eq!(queue.take_next().and_then(|pending| pending.wanted.page(0)), Some(PageNo(200)));
        assert!(queue.get(claimed).is_some());
        order_in_fours(&mut queue);
        assert!((0..8).all(|first| queue.push(window(first * 10, 1, 4)) == Pushed::Behind));
        assert!(queue.get(claimed).is_none() && queue.known.len() <= KNOWN_MAX);
    }
}
