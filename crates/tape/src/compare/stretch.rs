//! Where phases begin and end: all runs go on side by side, a new page of each at a time.
//!
//! ```text
//!   share of the pages that all runs have touched since the phase began, in any order:
//!
//!   1 ┤                 ╭╮                  a phase of 1000 pages: the share grows, until all runs have touched all of them;
//!     ┤          ╭──────╯╰──╮               new pages of the next phase differ at first: the phase ends where the share was largest
//!     ┤  ╭───────╯          ╰──
//!   0 ┼──┴───────┬─────────┬──────► pages
//!               500      1000
//! ```
//!
//! Pages of the phase before are no new ones: a phase begins with what that one does not have. Where the share of no stretch that local memory
//! can hold falls so, a sixteenth of it is passed by, and the search begins again: a scan beside random touches, say, has no phases.

use super::order::longest_ascending;
use super::runs::Runs;
use super::{AGREES_PERMILLE, permille};

/// A phase has this part of the largest one at least: what is fetched ahead takes twice as much, and what is smaller needs no order.
const LEAST_PART: usize = 16;
/// Nor has it fewer pages than this: its beginning costs some faults.
const LEAST_PAGES: usize = 64;
/// So much less than the largest share, in thousandths, and the phase is over.
const FALL_PERMILLE: u64 = 50;

/// A stretch of all runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stretch {
    /// New pages of a run, at most.
    pub pages: u64,
    /// Of these, those that all runs touch.
    pub common: u64,
    /// Of these, those that all touch in the same order.
    pub in_order: u64,
    /// The pages agree.
    pub agrees: bool,
    /// By run: the reference at which it begins, with a page that all touch, if there is one.
    pub begins: Vec<usize>,
}

/// A new page of a run.
#[derive(Clone, Copy, Debug)]
struct New {
    slot: u32,
    /// The reference.
    at: usize,
}

/// Where a stretch may end.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// New pages of each run, if it has so many.
    pages: usize,
    share: u64,
}

/// See the module.
pub struct Stretches<'a> {
    touched: &'a [Vec<u32>],
    most: usize,
    /// By run: the next reference.
    at: Vec<usize>,
    /// The present stretch, from 1, and the phase before it; 0: none.
    present: u32,
    before: u32,
    /// By run, by slot: the stretch in which the page was new last, and the last phase that has it.
    seen: Vec<Vec<u32>>,
    settled: Vec<Vec<u32>>,
    /// By slot: the stretch in which the page was new last, and in how many runs.
    counts: Vec<(u32, u32)>,
    /// By run: the new pages of the present stretch.
    new: Vec<Vec<New>>,
    /// Of these, so many are new in all runs.
    common: u64,
    /// By slot: scratch.
    ranks: Vec<u32>,
}

impl<'a> Stretches<'a> {
    /// `most`: pages of a phase at most.
    pub fn new(runs: &'a Runs, most: usize) -> Stretches<'a> {
        let (touched, slots) = (runs.touched(), runs.slots());
        let by_slot = || touched.iter().map(|_| vec![0; slots]).collect();
        Stretches {
            touched,
            most: most.max(LEAST_PAGES),
            at: vec![0; touched.len()],
            present: 0,
            before: 0,
            seen: by_slot(),
            settled: by_slot(),
            counts: vec![(0, 0); slots],
            new: vec![Vec::new(); touched.len()],
            common: 0,
            ranks: vec![0; slots],
        }
    }

    /// All stretches, in order.
    pub fn all(mut self) -> Vec<Stretch> {
        let mut all: Vec<Stretch> = Vec::new();
        while let Some(stretch) = self.next() {
            all.push(stretch);
        }
        if let Some(first) = all.first_mut() {
            first.begins.fill(0);
        }
        all
    }

    fn next(&mut self) -> Option<Stretch> {
        self.present += 1;
        self.new.iter_mut().for_each(Vec::clear);
        self.common = 0;
        let end = self.search();
        let longest = self.longest();
        if longest == 0 {
            return None;
        }
        match end.filter(|end| end.share >= AGREES_PERMILLE) {
            Some(end) => {
                let stretch = self.close(end.pages, true);
                for (settled, new) in self.settled.iter_mut().zip(&self.new) {
                    new.iter().for_each(|page| settled[page.slot as usize] = self.present);
                }
                self.before = self.present;
                Some(stretch)
            }
            None => {
                self.before = 0;
                Some(self.close(longest.min(self.least()), false))
            }
        }
    }

    /// Pages of a phase at least.
    fn least(&self) -> usize {
        (self.most / LEAST_PART).max(LEAST_PAGES)
    }

    /// New pages of a run, at most.
    fn longest(&self) -> usize {
        self.new.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Goes on until the share of common pages has fallen from its largest value, which stays behind; or to the end of the runs. `None`: it
    /// has not fallen within the pages of a phase.
    fn search(&mut self) -> Option<End> {
        let mut best: Option<End> = None;
        loop {
            let mut goes_on = false;
            for run in 0..self.touched.len() {
                goes_on |= self.step(run);
            }
            let pages = self.longest();
            let share = permille(self.common, pages as u64);
            // What is left at the end of the runs may be less than a phase has otherwise.
            let may_end = pages >= self.least() || !goes_on && pages > 0;
            if may_end && best.is_none_or(|best| share >= best.share) {
                best = Some(End { pages, share });
            }
            let is_over = best.is_some_and(|best| best.share >= AGREES_PERMILLE && share + FALL_PERMILLE < best.share);
            let is_whole = may_end && self.common == pages as u64;
            if !goes_on || is_over || is_whole {
                return best;
            }
            // Where it would end is not known: it is larger than what is looked for, or no phase at all.
            if pages >= self.most {
                return None;
            }
        }
    }

    /// Takes the next new page of a run; false: there is none.
    fn step(&mut self, run: usize) -> bool {
        while let Some(slot) = self.touched[run].get(self.at[run]).copied() {
            let (at, index) = (self.at[run], slot as usize);
            self.at[run] += 1;
            let settled = &mut self.settled[run][index];
            if self.before > 0 && *settled == self.before {
                // This phase has it, too: it is no new one for the next.
                *settled = self.present;
            }
            if *settled == self.present || self.seen[run][index] == self.present {
                continue;
            }
            self.seen[run][index] = self.present;
            self.new[run].push(New { slot, at });
            let count = &mut self.counts[index];
            *count = (self.present, if count.0 == self.present { count.1 + 1 } else { 1 });
            self.common += u64::from(count.1 as usize == self.touched.len());
            return true;
        }
        false
    }

    /// Ends the stretch behind so many new pages of each run: what lies behind them is to come again.
    fn close(&mut self, pages: usize, agrees: bool) -> Stretch {
        for (run, new) in self.new.iter_mut().enumerate() {
            if let Some(first) = new.get(pages) {
                self.at[run] = first.at;
            }
            for page in new.drain(pages.min(new.len())..) {
                self.counts[page.slot as usize].1 -= 1;
            }
        }
        let (counts, runs, present) = (&self.counts, self.touched.len(), self.present);
        let is_common = |page: &&New| counts[page.slot as usize] == (present, u32::try_from(runs).unwrap_or(u32::MAX));
        let begin = |(run, new): (usize, &Vec<New>)| {
            new.iter().find(is_common).or(new.first()).map_or(self.at[run], |page| page.at)
        };
        let begins = self.new.iter().enumerate().map(begin).collect();
        let common: Vec<u32> = self.new[0].iter().filter(is_common).map(|page| page.slot).collect();
        let mut in_order = common.len() as u64;
        for new in &self.new[1..] {
            for (rank, page) in (0..).zip(new) {
                self.ranks[page.slot as usize] = rank;
            }
            let ranks = common.iter().map(|slot| self.ranks[*slot as usize]);
            in_order = in_order.min(longest_ascending(ranks));
        }
        let pages = self.longest() as u64;
        Stretch { pages, common: common.len() as u64, in_order, agrees, begins }
    }
}
