//! The tapes of a program's threads as a source of prefetches.
//!
//! A thread that makes a request for a page among those that come next on its tape is there. One whose requests are not there has left
//! its tape: it gets nothing from it until its requests are found on it again, further on, several in their order. The more often it
//! has left, the more requests it takes; so a wrong tape costs little.

use super::cursor::Cursor;
use super::{
    BUDGET_PART, PageLocalities, PageLocality, SharedHolds, TapeArrival, TapeDeparture, TapeKind, TapeLookahead,
    TapeStatistics, ThreadTape,
};
use crate::{Prefetch, PrefetchWindow, Request, TapeBatch, Thread};
use hinterland_units::PageNo;
use std::collections::HashMap;

/// BATCH_SIZE is this part of what is asked for ahead, LOOKAHEAD the rest (3PO §5: 100 and 400).
const BATCH_PART: u32 = 5;
/// Major faults that are not among what comes next until a thread has left its tape, at least; a key page that it comes to halves their
/// number.
const MISSES_MIN: u32 = 16;
/// So many are this part of what is asked for at a time, where that is more. From one key page to the next only what is not on the tape
/// makes faults: an interpreter that runs a little of its own code touches dozens of pages that the trace does not have there.
const MISSES_PART: u32 = 2;
/// Requests in their order that find a thread further on its tape than what was asked for, while it is on it: two may be there by chance.
const FURTHER: u32 = 8;
/// Arrivals among which a page is looked for to find a thread on its tape; so many are asked for at most, where most are local already.
const REACH: usize = 4096;
/// A new thread is looked for among so many at the beginning of each free tape; at its first request, its second, its fourth and so on
/// among [`REACH`], too.
const NEAR: usize = 64;
/// As [`REACH`], where a thread was not found in `SEARCHES_NEAR` searches: it may have passed over much of its tape.
const REACH_FAR: usize = 16 * REACH;
/// See `REACH_FAR`.
const SEARCHES_NEAR: u32 = 256;
/// One search in so many goes as far as that, because it takes as long as 16 others.
const FAR_EVERY: u32 = 16;
/// A thread that has left its tape is looked for at one request in so many.
const SEARCH_EVERY: u32 = 4;
/// Requests in their order that bring a thread back to its tape at most.
const CONFIRMED_MAX: u32 = 64;
/// Requests of a new thread after which it has no tape, if none of them is on one.
const FIRST_REQUESTS: u32 = 64;
/// Threads that are known at once. Of more, those that follow no tape are forgotten.
const THREADS_MAX: usize = 1 << 16;

/// Where a request leaves its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TapeProgress {
    /// Not on a tape.
    OffTape,
    /// On its tape, and a fault will tell of the next batch.
    WillFault,
    /// On its tape, with nothing ahead that will fault if zeros are mapped ahead.
    Lost,
}

/// Which tape a thread has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TapeAssignment {
    /// It follows this one.
    Tape(usize),
    /// So many of its requests were on none that is free.
    Looking(u32),
    /// None.
    Without,
    /// It has passed its own.
    Past,
}

/// Whether a thread is on its tape.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    has_left: bool,
    /// On the tape: major faults since it was found there. Else: requests since the last search.
    misses: u32,
    /// On the tape: major faults since the last arrival, for pages that the plan has in local memory.
    held_faults: u32,
    /// Requests that were found in their order on the way to the tape.
    candidate: Option<Candidate>,
    /// Requests in their order that it takes the next time.
    needed: u32,
    /// Searches since it left that found nothing in their first request.
    searches: u32,
    /// Requests beside the tape since nothing is left that makes a fault.
    behind_end: u32,
    /// It is likely to need nothing of the tape any longer.
    rests: bool,
}

impl Track {
    /// A key page or a first touch is where it should be.
    fn is_right(&mut self) {
        self.misses /= 2;
        self.needed = (self.needed / 2).max(1);
    }

    /// Among how many arrivals the thread is looked for the next time.
    fn reach(&mut self) -> usize {
        self.searches = self.searches.saturating_add(1);
        let is_far = self.searches > SEARCHES_NEAR && self.searches.is_multiple_of(FAR_EVERY);
        if is_far { REACH_FAR } else { REACH }
    }
}

/// A place on the tape where a thread may be.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Behind the last request that was found.
    at: usize,
    /// Requests that were found in their order, and those between that were not.
    found: u32,
    missed: u32,
    /// Requests in their order that it takes.
    needed: u32,
}

/// A page that is in a batch, and that its thread has not come to.
#[derive(Clone, Copy, Debug)]
struct BatchedPage {
    thread: usize,
    is_key: bool,
}

/// See the module.
pub struct TapeSource {
    cursors: Vec<(Cursor, Track)>,
    assignments: HashMap<Thread, TapeAssignment>,
    /// By tape: a thread has it, or had it.
    taken: Vec<bool>,
    /// Threads on tapes, but for those that rest.
    following: u64,
    batched: HashMap<PageNo, BatchedPage>,
    holds: SharedHolds,
    lookahead: TapeLookahead,
    statistics: TapeStatistics,
}

impl TapeSource {
    /// Follows these tapes, one a thread.
    pub fn new(tapes: impl IntoIterator<Item = ThreadTape>, lookahead: TapeLookahead) -> TapeSource {
        let cursors = tapes.into_iter().map(|tape| (Cursor::new(tape), Track { needed: 1, ..Track::default() }));
        let cursors: Vec<_> = cursors.collect();
        TapeSource {
            taken: vec![false; cursors.len()],
            cursors,
            assignments: HashMap::new(),
            following: 0,
            batched: HashMap::new(),
            holds: SharedHolds::default(),
            lookahead,
            statistics: TapeStatistics::default(),
        }
    }

    /// Which tape a thread has. A new thread gets the free one on which the page it requests comes first: threads begin in an order of their
    /// own, and one whose first pages are mapped makes no request for them.
    fn assignment_of(&mut self, thread: Thread, page: PageNo) -> Option<usize> {
        let assignment = self.assignments.get(&thread).copied().unwrap_or_else(|| {
            if self.assignments.len() >= THREADS_MAX {
                self.assignments.retain(|_, assignment| matches!(assignment, TapeAssignment::Tape(_)));
            }
            TapeAssignment::Looking(0)
        });
        let requests = match assignment {
            // What it does now is not on the tape, and what the tape holds is not needed for it.
            TapeAssignment::Tape(index) if self.cursors[index].0.is_at_end() => {
                self.rest(index);
                self.assignments.insert(thread, TapeAssignment::Past);
                return None;
            }
            TapeAssignment::Tape(index) => return Some(index),
            TapeAssignment::Without | TapeAssignment::Past => return None,
            TapeAssignment::Looking(requests) => requests + 1,
        };
        let free: Vec<usize> = (0..self.cursors.len()).filter(|index| !self.taken[*index]).collect();
        // The whole reach of all tapes is searched now and then alone: it takes long, and what is read of tapes stays in memory.
        let nearest = match self.nearest(&free, page, NEAR) {
            None if requests.is_power_of_two() => self.nearest(&free, page, REACH),
            nearest => nearest,
        };
        if let Some(index) = nearest {
            self.rest_where_threads_may_have_ended();
            let offset = self.cursors.iter().map(|(cursor, _)| cursor.progress()).max().unwrap_or(0);
            self.cursors[index].0.offset = offset;
            self.assignments.insert(thread, TapeAssignment::Tape(index));
            self.taken[index] = true;
            self.following += 1;
            self.statistics.threads += 1;
            return Some(index);
        }
        let is_without = requests >= FIRST_REQUESTS || free.is_empty();
        self.assignments
            .insert(thread, if is_without { TapeAssignment::Without } else { TapeAssignment::Looking(requests) });
        self.statistics.threads_without += u64::from(is_without);
        None
    }

    /// Of some tapes, the one on which a page comes first, among so many arrivals.
    fn nearest(&mut self, among: &[usize], page: PageNo, reach: usize) -> Option<usize> {
        let (mut nearest, mut reach) = (None, reach);
        for index in among {
            if let Some(place) = self.cursors[*index].0.find(page, 0, reach) {
                (nearest, reach) = (Some(*index), place);
            }
        }
        nearest
    }

    /// A thread is likely to need nothing of its tape any longer: what that holds counts for nothing, and may leave.
    fn rest(&mut self, index: usize) {
        if !std::mem::replace(&mut self.cursors[index].1.rests, true) {
            self.following -= 1;
        }
        self.holds.lock().suspend(index);
    }

    /// One thread begins, and others that are through with their tapes may be gone: of a thread that ends nothing is heard.
    fn rest_where_threads_may_have_ended(&mut self) {
        for index in 0..self.cursors.len() {
            if self.taken[index] && !self.cursors[index].1.rests && self.cursors[index].0.is_through() {
                self.rest(index);
            }
        }
    }

    /// A page is going to be mapped: if it is a key page of another thread, that one's comes to the next (3PO §3.4). Its tape goes on as
    /// if it had been there, if no other key page will tell.
    fn key_is_taken(
        &mut self,
        page: PageNo,
        by: Option<usize>,
        localities: &dyn PageLocalities,
        out: &mut Vec<Prefetch>,
    ) {
        let Some(asked) = self.batched.get_mut(&page).filter(|asked| asked.is_key && Some(asked.thread) != by) else {
            return;
        };
        asked.is_key = false;
        let thread = asked.thread;
        let (cursor, track) = &mut self.cursors[thread];
        if let Some(at) = cursor.find(page, 0, cursor.asked()) {
            cursor.key_is_taken(at);
        }
        if !track.has_left {
            self.ask(thread, None, localities, out);
        }
    }

    /// A thread that is on its tape.
    fn follow(&mut self, index: usize, page: PageNo, request: Request) {
        let is_held = self.holds.lock().is_held(page);
        let (cursor, track) = &mut self.cursors[index];
        // Far ahead, only where the thread was going to fault, or touches it for the first time: any other page there may be needed here, too,
        // without being on the tape.
        let near =
            if request == Request::FirstTouch { cursor.asked() } else { 0 }.max(cursor.ahead_pages as usize).max(1);
        let mut found = cursor.find(page, 0, near).or_else(|| cursor.find_fault(page));
        if found.is_none() && cursor.is_through() {
            // What is left of the tape is mapped, or on its way: no fault would tell that the thread has passed it.
            track.behind_end += 1;
            if track.behind_end >= misses_max(cursor) {
                self.give_up(index);
                return self.rest(index);
            }
        }
        if found.is_none() && request == Request::Major {
            // The plan has it in local memory, and it left early for the budget's sake: no sign of another way, as long as the thread goes on.
            *(if is_held { &mut self.statistics.early } else { &mut self.statistics.beside }) += 1;
            if is_held && track.held_faults < cursor.ahead_pages.max(MISSES_MIN) {
                track.held_faults += 1;
                return;
            }
            track.misses += 1;
            found = confirmed(cursor, track, page, |_| (REACH, FURTHER));
        }
        if let Some(at) = found {
            // A page that was fetched in time speaks for the tape; one that was not may be there by chance, but for one that is late and
            // comes in its turn.
            match request {
                Request::Major if cursor.is_next_fault(at) => track.misses = track.misses.saturating_sub(1),
                Request::Major => {}
                _ => track.is_right(),
            }
            return self.pass(index, at);
        }
        if track.misses >= misses_max(cursor) {
            track.needed = (track.needed * 2).min(CONFIRMED_MAX);
            self.statistics.left += 1;
            self.statistics.left_at = Some((cursor.position, page));
            self.give_up(index);
            self.holds.lock().suspend(index);
        }
    }

    /// A thread is not on its tape any longer.
    fn give_up(&mut self, index: usize) {
        let (cursor, track) = &mut self.cursors[index];
        (track.has_left, track.misses, track.candidate, track.searches) = (true, 0, None, 0);
        for page in cursor.give_up() {
            self.batched.remove(&page);
        }
    }

    /// A thread that has left its tape: whether it is there again.
    fn search(&mut self, index: usize, page: PageNo, request: Request) {
        let (cursor, track) = &mut self.cursors[index];
        if request != Request::Major && request != Request::FirstTouch {
            return;
        }
        track.misses += 1;
        if track.candidate.is_none() && !track.misses.is_multiple_of(SEARCH_EVERY) {
            return;
        }
        if let Some(at) = confirmed(cursor, track, page, |track| (track.reach(), track.needed)) {
            (track.has_left, track.misses, track.searches) = (false, 0, 0);
            self.statistics.resumed += u64::from(!track.rests);
            self.pass(index, at);
        }
    }

    /// A thread has come to the arrival at `at`.
    fn pass(&mut self, index: usize, at: usize) {
        let holds = self.holds.clone();
        let mut holds = holds.lock();
        let (cursor, track) = &mut self.cursors[index];
        (track.candidate, track.held_faults, track.behind_end) = (None, 0, 0);
        self.following += u64::from(std::mem::take(&mut track.rests));
        for _ in 0..=at {
            let Some((passed, was_asked)) = cursor.pass() else { break };
            if passed.is_fetched {
                self.batched.remove(&passed.arrival.page);
            }
            if !was_asked {
                holds.hold(passed.arrival.page, true, index);
            }
        }
    }

    /// Pages to ask for ahead of a thread, how many at a time, and how many may be fetched ahead of it at most.
    fn lookahead(&self, index: usize, localities: &dyn PageLocalities) -> (usize, usize, usize) {
        let planned = self.cursors[index].0.ahead_pages;
        let batch = self.lookahead.batch_pages.unwrap_or(planned / BATCH_PART);
        let ahead = self.lookahead.lookahead_pages.unwrap_or(planned - planned / BATCH_PART).saturating_add(batch);
        let most = u32::try_from(localities.budget_pages() / BUDGET_PART / self.following.max(1)).unwrap_or(u32::MAX);
        let (ahead, most) = (ahead.min(most).max(1), most.max(1));
        (ahead as usize, batch.clamp(1, ahead.div_ceil(2)) as usize, most as usize)
    }

    /// Asks for batches, as far as they are not too far ahead; further where no fault would tell where the thread is (3PO §3.3: the next
    /// key page is the first that is not mapped). What was to leave for them, and is not used any longer, may leave.
    fn ask(
        &mut self,
        index: usize,
        zeros: Option<&PrefetchWindow>,
        localities: &dyn PageLocalities,
        out: &mut Vec<Prefetch>,
    ) {
        self.ask_for_batches(index, zeros, localities, out);
        let holds = self.holds.clone();
        let mut holds = holds.lock();
        let cursor = &mut self.cursors[index].0;
        let offset = cursor.offset;
        cursor.take_departures(|TapeDeparture { page, next_use, .. }| {
            holds.release(page, next_use.map_or(u64::MAX, |next| offset + u64::from(next)), index);
        });
    }

    fn ask_for_batches(
        &mut self,
        index: usize,
        zeros: Option<&PrefetchWindow>,
        localities: &dyn PageLocalities,
        out: &mut Vec<Prefetch>,
    ) {
        let (ahead, batch, most) = self.lookahead(index, localities);
        if let Some(zeros) = zeros {
            self.cursors[index].0.will_not_fault(|page| zeros.contains(page));
        }
        loop {
            let (cursor, _) = &self.cursors[index];
            let asked = cursor.asked();
            let goes_further = asked + batch > ahead;
            if goes_further && cursor.will_fault() || asked >= REACH {
                return;
            }
            let room = if goes_further { most.saturating_sub(cursor.fetched_ahead()) } else { batch };
            if room == 0 {
                return;
            }
            let is_zeros = |page| zeros.is_some_and(|zeros| zeros.contains(page));
            let (pages, key) = self.next_batch(index, batch.min(room), ahead, is_zeros, localities);
            if self.cursors[index].0.asked() == asked {
                return;
            }
            if pages.is_empty() {
                continue;
            }
            self.statistics.batches += 1;
            self.statistics.pages += pages.len() as u64;
            let thread = u32::try_from(index).unwrap_or(u32::MAX);
            out.push(Prefetch::Batch(TapeBatch { pages: pages.into(), key, thread }));
        }
    }

    /// The pages that are to be fetched for the next `batch` arrivals: those that are not local and that no batch has yet. The first that
    /// the thread touches itself is the key page. In the last batch up to `ahead`, if no fault would tell where the thread is, it is the
    /// first of another's: that one's fault tells ([`TapeSource::key_is_taken`]).
    fn next_batch(
        &mut self,
        index: usize,
        batch: usize,
        ahead: usize,
        is_zeros: impl Fn(PageNo) -> bool,
        localities: &dyn PageLocalities,
    ) -> (Vec<PageNo>, Option<PageNo>) {
        let (mut pages, mut key, mut key_of_another) = (Vec::new(), None, None);
        let holds = self.holds.clone();
        let mut holds = holds.lock();
        let cursor = &mut self.cursors[index].0;
        let asked = cursor.asked();
        let (goes_further, is_last) = (asked + batch > ahead, asked + 2 * batch > ahead);
        for at in asked..asked + batch {
            // A page that is still held was going to leave before: now it stays, and takes a frame for longer than planned.
            if goes_further && cursor.next().is_some_and(|page| holds.is_held(page)) {
                if cursor.kept() >= batch {
                    break;
                }
                cursor.keep_next();
            }
            let Some(coming) = cursor.ask_next() else { break };
            let TapeArrival { page, own, .. } = coming.arrival;
            let locality = localities.locality(page);
            holds.hold(page, locality == PageLocality::Mapped, index);
            // Another batch may bring it.
            let is_free = !self.batched.contains_key(&page);
            coming.is_fetched = is_free && matches!(locality, PageLocality::Remote | PageLocality::Between);
            let can_tell = coming.is_fetched && locality == PageLocality::Remote;
            let is_key = can_tell && own && key.is_none();
            if coming.is_fetched {
                self.batched.insert(page, BatchedPage { thread: index, is_key });
                pages.push(page);
            }
            if is_key {
                key = Some(page);
            } else if can_tell && !own {
                key_of_another.get_or_insert((at, page));
            }
            cursor.set_will_fault(at, is_key || own && locality == PageLocality::Untouched && !is_zeros(page));
        }
        if let Some((at, page)) = key_of_another.filter(|_| is_last && !cursor.will_fault()) {
            self.batched.insert(page, BatchedPage { thread: index, is_key: true });
            cursor.set_will_fault(at, true);
            key = Some(page);
        }
        (pages, key)
    }
}

impl TapeKind for TapeSource {
    fn holds(&mut self) -> &mut SharedHolds {
        &mut self.holds
    }

    fn statistics(&self) -> TapeStatistics {
        self.statistics
    }

    fn requested(
        &mut self,
        page: PageNo,
        request: Request,
        thread: Thread,
        zeros: Option<&PrefetchWindow>,
        localities: &dyn PageLocalities,
        out: &mut Vec<Prefetch>,
    ) -> TapeProgress {
        let assignment = self.assignment_of(thread, page);
        self.key_is_taken(page, assignment, localities, out);
        let Some(index) = assignment else { return TapeProgress::OffTape };
        match self.cursors[index].1.has_left {
            false => self.follow(index, page, request),
            true => self.search(index, page, request),
        }
        if self.cursors[index].1.has_left {
            return TapeProgress::OffTape;
        }
        self.ask(index, zeros, localities, out);
        if self.cursors[index].0.will_fault() { TapeProgress::WillFault } else { TapeProgress::Lost }
    }

    /// Threads are where it begins, wherever they left the last one.
    fn begin_interval(&mut self, number: u32) {
        for (cursor, track) in &mut self.cursors {
            cursor.skip_to_interval(number);
            (track.has_left, track.misses, track.candidate, track.behind_end) = (false, 0, None, 0);
            if !cursor.is_at_end() {
                self.following += u64::from(std::mem::take(&mut track.rests));
            }
        }
    }

    fn end_interval(&mut self) {
        for (cursor, _) in &mut self.cursors {
            cursor.give_up().for_each(drop);
        }
        self.batched.clear();
    }
}

/// Requests that are not among what comes next, after which a thread is not on its tape.
fn misses_max(cursor: &Cursor) -> u32 {
    (cursor.ahead_pages / BATCH_PART / MISSES_PART).max(MISSES_MIN)
}

/// Looks for a page on the way of a thread that is not where it should be; where it is, once as many requests as that takes were found
/// there in their order. `search`: among how many arrivals a first one is looked for, and how many it takes.
fn confirmed(
    cursor: &mut Cursor,
    track: &mut Track,
    page: PageNo,
    search: impl Fn(&mut Track) -> (usize, u32),
) -> Option<usize> {
    let Some(Candidate { at, found, missed, needed }) = track.candidate.take() else {
        let (reach, needed) = search(track);
        // There is no way back from a place far off, and a page may be there by chance.
        let needed = |at| if at < REACH { needed } else { needed.max(FURTHER) };
        track.candidate =
            cursor.find(page, 0, reach).map(|at| Candidate { at: at + 1, found: 1, missed: 0, needed: needed(at) });
        return None;
    };
    let ahead = cursor.ahead_pages.max(BATCH_PART) as usize;
    match cursor.find(page, at, at + ahead) {
        Some(at) if found + 1 >= needed => return Some(at),
        Some(at) => track.candidate = Some(Candidate { at: at + 1, found: found + 1, missed, needed }),
        None if missed < found => track.candidate = Some(Candidate { at, found, missed: missed + 1, needed }),
        None => {}
    }
    None
}
