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
//!
//! In a loop of two phases hardly a page of the next one is new. A run that comes to pages of the phase before, and to hardly a new one, is back in
//! that one: the search ends when all are.

use super::order::longest_ascending;
use super::runs::Runs;
use super::{AGREES_PERMILLE, permille};

/// A phase has this part of the largest one at least: what is fetched ahead takes twice as much, and what is smaller needs no order.
const LEAST_PART: usize = 16;
/// Nor has it fewer pages than this: its beginning costs some faults.
const LEAST_PAGES: usize = 64;
/// So much less than the largest share, in thousandths, and the phase is over.
const FALL_PERMILLE: u64 = 50;
/// A run is back in the phase before when it has come to this part of that one's pages, less so many for each new page.
const BACK_PART: usize = 4;
const NEW_WEIGHT: usize = 4;

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

/// How far a run has gone back to the phase before.
#[derive(Clone, Copy, Debug, Default)]
struct Back {
    /// Pages of that one that it has come to since `from`, less [`NEW_WEIGHT`] for each new page; 0: it is in the present phase.
    pages: usize,
    /// The reference at which it began.
    from: usize,
    /// Tells `from` from earlier ones.
    mark: u32,
}

impl Back {
    /// The run comes to a new page.
    fn is_new(&mut self) {
        self.pages = self.pages.saturating_sub(NEW_WEIGHT);
    }

    /// It comes to a page of the phase before; `counted`: the mark with which that was counted last.
    fn is_before(&mut self, at: usize, counted: &mut u32) {
        if self.pages == 0 {
            (self.from, self.mark) = (at, self.mark + 1);
        }
        if *counted != self.mark {
            (*counted, self.pages) = (self.mark, self.pages + 1);
        }
    }
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
    /// They agree, where the share is largest: from there on it is looked for the phase's end.
    agrees: bool,
    back: Vec<Back>,
    /// By run, by slot: the mark with which a page of the phase before was counted last.
    counted: Vec<Vec<u32>>,
    /// New pages of the phase before.
    before_pages: usize,
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
            agrees: false,
            back: vec![Back::default(); touched.len()],
            counted: by_slot(),
            before_pages: 0,
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
        self.back.iter_mut().for_each(|back| back.pages = 0);
        (self.common, self.agrees) = (0, false);
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
                (self.before, self.before_pages) = (self.present, self.longest());
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

    /// Goes on until the share of common pages has fallen from its largest value, which stays behind, or all runs are back in the phase
    /// before; or to the end of the runs. `None`: neither is so within the pages of a phase.
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
                self.agrees = share >= AGREES_PERMILLE;
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

    /// The run is back in the phase before.
    fn is_back(&self, run: usize) -> bool {
        self.back[run].pages > self.before_pages / BACK_PART
    }

    /// Takes the next new page of a run; false: there is none, or it is back in the phase before.
    fn step(&mut self, run: usize) -> bool {
        while let Some(slot) = self.touched[run].get(self.at[run]).copied() {
            let (at, index) = (self.at[run], slot as usize);
            if self.before > 0 && self.settled[run][index] == self.before {
                // This phase may have it, too: it is no new one.
                if self.is_back(run) {
                    return false;
                }
                if self.agrees {
                    self.back[run].is_before(at, &mut self.counted[run][index]);
                }
                self.at[run] += 1;
                continue;
            }
            self.at[run] += 1;
            if self.seen[run][index] == self.present {
                continue;
            }
            self.back[run].is_new();
            self.seen[run][index] = self.present;
            self.new[run].push(New { slot, at });
            let count = &mut self.counts[index];
            *count = (self.present, if count.0 == self.present { count.1 + 1 } else { 1 });
            self.common += u64::from(count.1 as usize == self.touched.len());
            return true;
        }
        false
    }

    /// Where the stretch of a run ends that has so many new pages at most. Of one that agrees, also where the run goes back to the phase before.
    fn end_of(&self, run: usize, pages: usize, agrees: bool) -> usize {
        let end = self.new[run].get(pages).map_or(self.at[run], |first| first.at);
        match self.back[run] {
            Back { from, .. } if agrees && self.is_back(run) => from,
            Back { pages, from, .. } if agrees && pages > 0 => end.min(from),
            _ => end,
        }
    }

    /// Ends the stretch behind so many new pages of each run: what lies behind them is to come again.
    fn close(&mut self, pages: usize, agrees: bool) -> Stretch {
        for run in 0..self.new.len() {
            let (end, new) = (self.end_of(run, pages, agrees), &mut self.new[run]);
            self.at[run] = end;
            for page in new.drain(new.partition_point(|page| page.at < end)..) {
                self.counts[page.slot as usize].1 -= 1;
            }
        }
        let (counts, runs, present) = (&self.counts, self.touched.len(), self.present);
        let is_common = |page: &&New| counts[page.slot as usize] == (present, u32::try_from(runs).unwrap_or(u32::MAX));
        let begin = |(run, new): (usize, &Vec<New>)| {
            new.iter().find(is_common).or(new.first()).map_or(self.at[run], |page| page.at)
        };
        let begins: Vec<usize> = self.new.iter().enumerate().map(begin).collect();
        let common: Vec<u32> = self.new[0].iter().filter(is_common).map(|page| page.slot).collect();
        let mut in_order = common.len() as u64;
        for new in &self.new[1..] {
            for (rank, page) in (0..).zip(new) {
                self.ranks[page.slot as usize] = rank;
            }
            let ranks = common.iter().map(|slot| self.ranks[*slot as usize]);
            in_order = in_order.min(longest_ascending(ranks));
        }
        if agrees && self.before > 0 {
            self.share_with_before(&begins);
        }
        let pages = self.longest() as u64;
        Stretch { pages, common: common.len() as u64, in_order, agrees, begins }
    }

    /// What a run touches of the phase before in this one, which begins there, is no new page of the next.
    fn share_with_before(&mut self, begins: &[usize]) {
        for (run, touched) in self.touched.iter().enumerate() {
            for slot in &touched[begins[run]..self.at[run]] {
                let settled = &mut self.settled[run][*slot as usize];
                if *settled == self.before {
                    *settled = self.present;
                }
            }
        }
    }
}
