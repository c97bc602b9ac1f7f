//! The phases of an unordered tape as a source of prefetches.
//!
//! ```text
//!   request for a page of a coming phase, and for another one ──► the phase begins ──► its set, in order of address, batch after batch:
//!                                                                                      what is far is fetched, what is local stays
//!   requests for pages that are not in the set ──► the phase is given up        the next phase begins ──► the set is let go
//! ```
//!
//! In which order the program comes to the pages of a set is not known, so they are fetched as fast as the link brings them: an eighth of
//! local memory is on the way at most, and more is asked for when the program requests another page of the set. Each batch has one key page,
//! whose use is such a request. All other faults are the prefetcher's as ever.
//!
//! A phase begins with two requests for pages that it has and the present one has not; after a phase that was wrong it takes twice as
//! many. So a wrong tape costs little.

use super::page_set::SetPlace;
use super::{BUDGET_PART, PageLocalities, PageLocality, PageSet, SharedHolds, TapeKind, TapeProgress, TapeStatistics};
use crate::{Prefetch, PrefetchWindow, Request, TapeBatch, Thread};
use hinterland_units::PageNo;
use std::collections::HashSet;

/// Batches of a set at most, as far as they are not too small or too large for that: each costs a fault, and leaves a page waiting.
const BATCHES: u64 = 32;
/// Pages of a batch at least, and at most.
const BATCH_PAGES: (u64, u64) = (16, 256);
/// Pages on the way at most: 3PO's LOOKAHEAD and BATCH_SIZE (§5), which hide the delays of all links that were measured.
const AHEAD_PAGES_MAX: u64 = 512;
/// Pages of a set that are looked at for one request at most, and pages of sets that are let go: a request must not take long.
const LOOKED_AT_MAX: u32 = 4096;
const LET_GO_MAX: usize = 512;
/// Phases among which one is looked for that begins.
const REACH: usize = 32;
/// Requests that begin a phase, at least and at most.
const NEEDED: (u32, u32) = (2, 64);
/// Phases that are passed over and double that number, at most.
const BETWEEN_MAX: u32 = 6;
/// Major faults on other pages than those of the set until it is given up; one on a page of the set takes one away, a key page half.
const MISSES_MAX: u64 = 16;
/// So many more once all of the set was asked for: this part of its pages.
const MISSES_PART: u64 = 8;
/// A set was wrong if fewer than this part of its key pages were used, of so many at least.
const USED_PART: u32 = 4;
const KEYS_MIN: u32 = 4;

/// Pages of one set that are asked for or held at most: there is no use for more than fits.
pub fn set_pages_max(budget_pages: u64) -> u64 {
    budget_pages - budget_pages / BUDGET_PART
}

/// A phase that may begin.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    phase: usize,
    /// Requests for its pages, and for others that no phase at hand has.
    found: u32,
    missed: u32,
}

impl Candidate {
    /// A request is for another page; `None`: they are most of all.
    fn missed(self) -> Option<Candidate> {
        (self.missed < self.found).then_some(Candidate { missed: self.missed + 1, ..self })
    }
}

/// The phase that the program is in.
#[derive(Debug, Default)]
struct Present {
    phase: usize,
    /// The page of its set that is looked at next.
    place: SetPlace,
    /// All of it was looked at, or as much as fits.
    is_whole: bool,
    held: Vec<PageNo>,
    on_way: Vec<OnWay>,
    /// Key pages that were not used.
    keys: HashSet<PageNo>,
    keys_asked: u32,
    misses: u64,
}

/// A batch that has not come.
#[derive(Clone, Copy, Debug)]
struct OnWay {
    first: PageNo,
    last: PageNo,
    /// How many pages it has that the program has not fetched by itself.
    pages: u64,
}

impl Present {
    fn on_way(&self) -> u64 {
        self.on_way.iter().map(|batch| batch.pages).sum()
    }

    /// The program fetches a page of the set by itself.
    fn demanded(&mut self, page: PageNo) {
        self.misses = self.misses.saturating_sub(1);
        let batch = self.on_way.iter_mut().find(|batch| (batch.first..=batch.last).contains(&page));
        batch.into_iter().for_each(|batch| batch.pages = batch.pages.saturating_sub(1));
    }

    /// Few of its pages were used, as far as its key pages tell.
    fn was_wrong(&self) -> bool {
        let used = self.keys_asked - u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        self.keys_asked >= KEYS_MIN && used < self.keys_asked / USED_PART
    }
}

/// See the module.
pub struct SetSource {
    phases: Vec<PageSet>,
    present: Option<Present>,
    /// The first phase that has not begun, nor was passed over.
    next: usize,
    candidate: Option<Candidate>,
    needed: u32,
    /// Pages that phases held and that are to be let go, with the phase's number.
    leaving: Vec<(PageNo, usize)>,
    holds: SharedHolds,
    statistics: TapeStatistics,
}

impl SetSource {
    /// Follows these phases.
    pub fn new(phases: impl IntoIterator<Item = PageSet>) -> SetSource {
        let phases: Vec<PageSet> = phases.into_iter().collect();
        let statistics = TapeStatistics { phases: phases.len() as u64, ..TapeStatistics::default() };
        SetSource {
            phases,
            present: None,
            next: 0,
            candidate: None,
            needed: NEEDED.0,
            leaving: Vec::new(),
            holds: SharedHolds::default(),
            statistics,
        }
    }

    /// Whether a request is for a page of the present set, which it speaks for.
    fn is_of_set(&mut self, page: PageNo, request: Request) -> bool {
        let Some(present) = &mut self.present else { return false };
        if present.keys.remove(&page) {
            present.misses /= 2;
            return true;
        }
        if !self.phases[present.phase].has(page) {
            return false;
        }
        if request == Request::Major {
            present.demanded(page);
        }
        self.candidate = self.candidate.and_then(Candidate::missed);
        true
    }

    /// Whether a phase begins with a request for a page that the present one does not have; of many of these it is given up.
    fn begins(&mut self, page: PageNo, request: Request) -> bool {
        let (phase, is_of_one) = self.look_for(page);
        if let Some(phase) = phase {
            self.begin(phase);
            return true;
        }
        if let Some(present) = self.present.as_mut().filter(|_| request == Request::Major && !is_of_one) {
            present.misses += 1;
            let more = if present.is_whole { self.phases[present.phase].pages() / MISSES_PART } else { 0 };
            if present.misses >= MISSES_MAX + more {
                let is_wrong = !present.is_whole || present.was_wrong();
                self.leave(is_wrong);
            }
        }
        false
    }

    /// Whether a coming phase begins with a request for this page; and whether the page speaks for one.
    fn look_for(&mut self, page: PageNo) -> (Option<usize>, bool) {
        let end = (self.next + REACH).min(self.phases.len());
        let nearest = (self.next..end).find(|phase| self.phases[*phase].has(page));
        let begin = |phase| Candidate { phase, found: 1, missed: 0 };
        self.candidate = match (self.candidate, nearest) {
            (Some(Candidate { phase, found, missed }), Some(nearest)) if nearest == phase => {
                // One that others lie before may have the pages by chance: each of them doubles the evidence that it takes.
                let between = u32::try_from(phase - self.next).unwrap_or(u32::MAX).min(BETWEEN_MAX);
                if found + 1 >= self.needed << between {
                    return (Some(phase), true);
                }
                Some(Candidate { phase, found: found + 1, missed })
            }
            // In a loop a later phase has most of the pages of a nearer one, too.
            (Some(candidate), Some(nearest)) if nearest < candidate.phase => Some(begin(nearest)),
            (Some(candidate), nearest) => candidate.missed().or(nearest.map(begin)),
            (None, nearest) => nearest.map(begin),
        };
        (None, nearest.is_some())
    }

    fn begin(&mut self, phase: usize) {
        let is_wrong = self.present.as_ref().is_some_and(Present::was_wrong);
        self.leave(is_wrong);
        self.present = Some(Present { phase, ..Present::default() });
        self.next = phase + 1;
        self.statistics.phases_begun += 1;
    }

    /// The present phase ends: its pages may leave, those of later phases before those of earlier ones. In a loop of phases these are needed
    /// last, and otherwise no order is known.
    fn leave(&mut self, is_wrong: bool) {
        let Some(Present { phase, held, .. }) = self.present.take() else { return };
        self.leaving.extend(held.into_iter().map(|page| (page, phase)));
        self.candidate = None;
        let (least, most) = NEEDED;
        self.needed = if is_wrong { self.needed * 2 } else { self.needed / 2 }.clamp(least, most);
        self.statistics.phases_given_up += u64::from(is_wrong);
    }

    /// Lets pages of phases go that have ended, some at a time.
    fn let_go(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let at = self.leaving.len().saturating_sub(LET_GO_MAX);
        let going = self.leaving.split_off(at);
        let mut holds = self.holds.lock();
        // That of later phases first.
        going.into_iter().for_each(|(page, phase)| holds.release(page, phase as u64, phase));
    }

    /// Asks for batches of the present phase's set, as far as those on the way leave room.
    fn ask(&mut self, localities: &dyn PageLocalities, out: &mut Vec<Prefetch>) {
        let Some(present) = self.present.as_mut().filter(|present| !present.is_whole) else { return };
        present.on_way.retain(|batch| batch.pages > 0 && localities.locality(batch.last) == PageLocality::Remote);
        let (set, budget) = (&self.phases[present.phase], localities.budget_pages());
        let (most, ahead) = (set_pages_max(budget), (budget / BUDGET_PART).clamp(1, AHEAD_PAGES_MAX));
        let batch = (set.pages() / BATCHES).clamp(BATCH_PAGES.0, BATCH_PAGES.1).min(ahead);
        let mut holds = self.holds.lock();
        let mut looked_at = 0;
        while !present.is_whole && looked_at < LOOKED_AT_MAX && present.on_way() + batch <= ahead {
            let mut pages = Vec::new();
            while (pages.len() as u64) < batch && looked_at < LOOKED_AT_MAX {
                let next = if (present.held.len() as u64) < most { set.next(&mut present.place) } else { None };
                let Some(page) = next else {
                    present.is_whole = true;
                    break;
                };
                looked_at += 1;
                let locality = localities.locality(page);
                if locality == PageLocality::Untouched {
                    continue;
                }
                holds.hold(page, locality == PageLocality::Mapped, present.phase);
                present.held.push(page);
                pages.extend((locality == PageLocality::Remote).then_some(page));
            }
            let Some(key) = pages.last().copied() else { continue };
            present.on_way.push(OnWay { first: pages[0], last: key, pages: pages.len() as u64 });
            present.keys.insert(key);
            present.keys_asked += 1;
            self.statistics.batches += 1;
            self.statistics.pages += pages.len() as u64;
            out.push(Prefetch::Batch(TapeBatch { pages: pages.into(), key: Some(key), thread: 0 }));
        }
    }
}

impl TapeKind for SetSource {
    fn holds(&mut self) -> &mut SharedHolds {
        &mut self.holds
    }

    fn statistics(&self) -> TapeStatistics {
        self.statistics
    }

    /// The prefetcher is to hear of the request, too.
    fn requested(
        &mut self,
        page: PageNo,
        request: Request,
        _thread: Thread,
        _zeros: Option<&PrefetchWindow>,
        localities: &dyn PageLocalities,
        out: &mut Vec<Prefetch>,
    ) -> TapeProgress {
        self.let_go();
        if self.is_of_set(page, request) || self.begins(page, request) {
            self.ask(localities, out);
        }
        TapeProgress::OffTape
    }

    /// It goes on with the phases that are left.
    fn begin_interval(&mut self, _number: u32) {}

    fn end_interval(&mut self) {
        (self.present, self.candidate, self.leaving) = (None, None, Vec::new());
    }
}
