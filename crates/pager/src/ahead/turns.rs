//! Windows on their way in take turns, a batch each: where several streams are read ahead, none waits for the whole window of another.
//!
//! A window that goes on where another one ends waits until all of that one was claimed: they are of one stream. One that begins
//! inside another one takes its place: the program was faster, and has passed what lies before.

use hinterland_policy::AheadWindow;
use std::collections::VecDeque;

/// Windows that wait; older ones are dropped, because the program has probably passed them.
pub const WAITING_MAX: usize = 8;

/// Windows that are remembered, those included that have no page left to claim: some of their pages may be yet to be mapped.
const KNOWN_MAX: usize = 2 * WAITING_MAX;

/// A window on its way in.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// What was asked for.
    pub window: AheadWindow,
    /// Tells it from all others.
    pub number: u64,
    /// Pages of it that were looked at, and claimed if they were far.
    pub offset: u32,
    /// Pages of it that were mapped and that nobody was told of yet.
    pub mapped: u32,
    /// Its key page waits, or was used already.
    pub has_key: bool,
}

impl Coming {
    fn is_claimed(&self) -> bool {
        self.offset >= self.window.pages
    }

    fn goes_on_after(&self, other: &Coming) -> bool {
        self.window.step == other.window.step && other.window.page(other.window.pages) == Some(self.window.first)
    }

    /// Whether a new window begins at one of the pages of this one.
    fn is_passed_by(&self, window: &AheadWindow) -> bool {
        let distance = i64::from(window.first.0) - i64::from(self.window.first.0);
        let (pages, step) = (i64::from(self.window.pages), self.window.step);
        window.step == step && distance % step == 0 && (0..pages).contains(&(distance / step))
    }
}

/// What became of a window that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It waits.
    Behind,
    /// It waits, and the oldest that waited had to go.
    AndDropped,
    /// It has, with this number, the place of a window that the program has passed before all of it was claimed.
    InPlaceOf(u64),
}

/// The windows of a process, the one whose turn is next first.
#[derive(Debug, Default)]
pub struct Turns {
    known: VecDeque<Coming>,
    asked: u64,
}

impl Turns {
    /// Takes a window on.
    pub fn push(&mut self, window: AheadWindow) -> Pushed {
        self.asked += 1;
        let new = Coming { window, number: self.asked, offset: 0, mapped: 0, has_key: false };
        if let Some(passed) = self.known.iter_mut().find(|coming| !coming.is_claimed() && coming.is_passed_by(&window))
        {
            *passed = new;
            return Pushed::InPlaceOf(new.number);
        }
        let is_full = self.waiting() >= WAITING_MAX;
        if is_full {
            self.forget_oldest(|coming| !coming.is_claimed());
        } else if self.known.len() >= KNOWN_MAX {
            self.forget_oldest(Coming::is_claimed);
        }
        self.known.push_back(new);
        if is_full { Pushed::AndDropped } else { Pushed::Behind }
    }

    fn forget_oldest(&mut self, among: impl Fn(&Coming) -> bool) {
        let oldest = self.known.iter().filter(|coming| among(coming)).map(|coming| coming.number).min();
        self.known.retain(|coming| Some(coming.number) != oldest);
    }

    /// Windows that have pages left to look at.
    pub fn waiting(&self) -> usize {
        self.known.iter().filter(|coming| !coming.is_claimed()).count()
    }

    /// The window whose turn it is; its next turn comes after all others'.
    pub fn take_turn(&mut self) -> Option<Coming> {
        let waits = |coming: &Coming, other: &Coming| !other.is_claimed() && coming.goes_on_after(other);
        let is_next = |coming: &Coming| !coming.is_claimed() && !self.known.iter().any(|other| waits(coming, other));
        let at = self.known.iter().position(is_next)?;
        self.known.rotate_left(at + 1);
        self.known.back().copied()
    }

    /// What is known of a window, unless it was dropped meanwhile.
    pub fn get(&self, number: u64) -> Option<&Coming> {
        self.known.iter().find(|coming| coming.number == number)
    }

    /// Changes what is known of a window, unless it was dropped meanwhile: then it is `None`.
    pub fn update<R>(&mut self, number: u64, change: impl FnOnce(&mut Coming) -> R) -> Option<R> {
        self.known.iter_mut().find(|coming| coming.number == number).map(change)
    }

    /// Drops a window.
    pub fn remove(&mut self, number: u64) {
        self.known.retain(|coming| coming.number != number);
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

    fn window(first: u32, step: i64, pages: u32) -> AheadWindow {
        AheadWindow { first: PageNo(first), step, pages, unmapped: Unmapped::All }
    }

    /// First pages of the windows in the order of their turns, when each turn takes four pages.
    fn turns_of_four(turns: &mut Turns) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(coming) = turns.take_turn() {
            order.push(coming.window.first.0 + coming.offset);
            turns.update(coming.number, |coming| coming.offset += 4);
        }
        order
    }

    #[test]
    fn streams_take_turns_and_each_goes_on_in_order() {
        let mut turns = Turns::default();
        for first in [100, 200, 108] {
            assert_eq!(turns.push(window(first, 1, 8)), Pushed::Behind);
        }
        assert_eq!(turns_of_four(&mut turns), [100, 200, 104, 204, 108, 112]);
        assert_eq!(turns.waiting(), 0);
    }

    #[test]
    fn a_window_that_begins_inside_another_takes_its_place_and_its_turn() {
        let mut turns = Turns::default();
        let pushed =
            [(100, 3), (500, 1), (106, 3), (107, 3), (108, 1)].map(|(first, step)| turns.push(window(first, step, 4)));
        let behind = Pushed::Behind;
        assert_eq!(pushed, [behind, behind, Pushed::InPlaceOf(3), behind, behind]);
        assert_eq!(turns_of_four(&mut turns), [106, 500, 107, 108]);
    }

    #[test]
    fn the_oldest_that_waits_goes_first_and_what_was_claimed_is_remembered_for_a_while() {
        let mut turns = Turns::default();
        turns.push(window(0, 1, 4));
        let claimed = turns.take_turn().unwrap().number;
        turns.update(claimed, |coming| coming.offset = 4);
        let pushed = (1..=9).map(|first| turns.push(window(first * 100, 1, 4)));
        let dropped = pushed.filter(|pushed| *pushed == Pushed::AndDropped).count();
        assert_eq!((dropped, turns.waiting()), (1, WAITING_MAX));
        assert_eq!(turns.take_turn().map(|coming| coming.window.first), Some(PageNo(200)));
        assert!(turns.get(claimed).is_some());
        turns_of_four(&mut turns);
        assert!((0..8).all(|first| turns.push(window(first * 10, 1, 4)) == Pushed::Behind));
        assert!(turns.get(claimed).is_none() && turns.known.len() <= KNOWN_MAX);
    }
}
