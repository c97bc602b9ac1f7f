//! Hints: what the program says of the use it will make of its memory (Mira §4.5, §4.6). None waits, faults, or changes what a page holds; what
//! `overwrite` promises, the program must keep.
//!
//! ```text
//!   fetch      ──► read-ahead thread: the arbiter lets it through ──► far pages are loaded ahead of the program
//!   evict      ──► evictor: first victims, now                        evict_soon: first victims, when frames are needed
//!   keep       ──► no victim, as long as that is a quarter of the budget at most
//!   overwrite  ──► marks on far pages: the thread's first write to one maps zeros, and loads nothing
//!   loop_begin ──► how many iterations ahead a loop is to fetch: a round trip at its own pace; of one that may end early, loop_search
//! ```
//!
//! A hint looks at page states and puts a word into a ring: no lock, no call of the kernel but the one that wakes a sleeping thread. So
//! it may be given anywhere: in a signal handler, beside a fork, or in one.

use crate::evict_hints::{EvictHints, Leave};
use crate::evictor_waker::EvictorWaker;
use crate::hint_ring::{RUN_PAGES_MAX, Run};
use crate::local_memory::LocalMemory;
use crate::pages::Pages;
use crate::prefetch_driver::PrefetchDriver;
use crate::read_ahead::ReadAhead;
use crate::state::State;
use crate::sys::Instant;
use crate::sys::thread;
use hinterland_abi::{Counter, HintSiteRow};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One hint asks for this part of the budget at most: more would leave again before it is used. A loop has so much fetched ahead of it at
/// most, halved once more.
const FETCH_PART: u64 = 4;
/// States that a hint looks at in the thread of the program; those behind them are looked at by the thread that acts on it.
const LOOKED_AT_MAX: u32 = 256;
/// Pages of a loop's range that are looked at, evenly spread, where it has more.
const SAMPLES: u32 = 64;
/// An iteration of a loop of which nothing is known takes so long at least, in picoseconds.
const ITERATION_PS_MIN: u64 = 20_000;
/// Pages that come with one that is waited for, on average, in the time of a round trip.
const BATCH_PAGES: u64 = 16;
/// Of an iteration's time so small a part is its own at least: what it waited is known for all threads together.
const OWN_PART: u64 = 64;
/// Far pages of an iteration are counted in parts of so many.
const PAGE_PARTS: u64 = 1 << 20;
/// An address that a loop names takes so long, in nanoseconds, until it is known that its page is local (PageRank in Rust, of whose
/// addresses one in 2,000 is far: 20 to 25).
const LOOK_NS: u64 = 25;
/// The waits that a loop's hints save are worth looking when they take so many times as long.
const WORTH_TIMES: u64 = 2;
/// So many addresses are a sample.
const LOOKED_MIN: u64 = 256;
/// Of the questions of a loop that is not worth hints, one in so many is answered as if it were. A prime above the number of questions that a loop
/// asks at a time, in one order, one for each array: so each of them has its turn.
const PROBE_EVERY: u64 = 31;
/// A loop that is not worth hints is tried again before its turn when so much more of its range is far, in [`SAMPLES`] parts of it.
const FURTHER: u64 = 8;
/// Looking how much that is takes no time beside a run of so many iterations.
const LONG_RUN: u64 = 4096;
/// In `LoopState::walk`: bits of the compiler's word; since the loop was not worth hints, how much of the range was far that it asked for first, or
/// was tried for last because that was more; and the count of questions.
const IN_STEPS: u64 = 1;
const FAR: u64 = 1 << 1;
const ASKED: u64 = 1 << 8;
/// In `LoopState::pages`: of the far pages since the last verdict, those before the run that is under way.
const BEFORE: u64 = 1 << 32;

/// The answer of [`Hints::loop_search`] where hints may be worth it for what comes later alone.
pub const LATER: u64 = u64::MAX;

/// Bytes that a loop will touch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LoopRange {
    /// Of the lowest one.
    pub address: usize,
    /// How many; 0: where they will be is not known.
    pub len: usize,
    /// About so many touch them.
    pub iterations: u64,
}

/// What is kept for a loop, in its own memory: `state` of `struct hinterland_loop`. Several threads may run it.
#[repr(C)]
pub struct LoopState {
    /// An iteration, in picoseconds, as far as it does not wait; 0: not known.
    iteration_ps: AtomicU64,
    /// Far pages that an iteration asks for, times [`PAGE_PARTS`].
    pages_per_iteration: AtomicU64,
    /// The thread whose run is measured; 0: none.
    thread: AtomicU64,
    /// When that run began, in nanoseconds, and how long all threads had waited for faults then.
    begun_ns: AtomicU64,
    stalled_ns: AtomicU64,
    /// Far pages that the loop has asked for since it was judged last; and, in the upper half, those before this run ([`BEFORE`]).
    pages: AtomicU64,
    /// Addresses and ranges that it has named since it was judged last.
    looked: AtomicU64,
    /// The compiler's: all that the loop walks goes in steps, [`IN_STEPS`]; or not. Ours: [`FAR`] and [`ASKED`].
    walk: AtomicU64,
}

impl LoopState {
    /// Whether hints were not worth it, and this is no time to try again. Counts the question.
    fn is_given_up(&self) -> bool {
        let walk = self.walk.load(Relaxed);
        walk >= ASKED && {
            self.walk.store(walk + ASKED, Relaxed);
            !(walk / ASKED).is_multiple_of(PROBE_EVERY)
        }
    }

    /// Of a loop that is given up: whether so much more of its range is far that it is tried again, than when that was looked at first since it was
    /// given up, or when it was tried for this reason last.
    fn is_further(&self, far: u64) -> bool {
        let walk = self.walk.load(Relaxed);
        let before = walk % ASKED / FAR;
        let is_further = before > 0 && far >= before + FURTHER;
        if before == 0 || is_further {
            self.walk.store(walk + (far.max(1) - before) * FAR, Relaxed);
        }
        is_further
    }

    /// A run begins, and is judged with those before it that were too short for that.
    fn begin_run(&self) {
        let pages = self.pages.load(Relaxed) % BEFORE;
        self.pages.store(pages * BEFORE + pages, Relaxed);
    }

    /// Far pages that the run has asked for.
    fn pages_of_run(&self) -> u64 {
        let pages = self.pages.load(Relaxed);
        (pages % BEFORE).saturating_sub(pages / BEFORE)
    }

    /// A run has ended after so many iterations, and is judged with those before it that were too short for that. Asking for it took no less than
    /// looking at an address; of what it named for later iterations nothing was used where none came to its end.
    fn end_run(&self, iterations: u64, wait_ns: u64) {
        if iterations == 0 {
            self.pages.store(self.pages.load(Relaxed) / BEFORE * (BEFORE + 1), Relaxed);
        }
        self.looked.fetch_add(1, Relaxed);
        self.judge(wait_ns);
    }

    /// Judges hints: `wait_ns` is what one far page costs that comes without them; 0: not known.
    fn judge(&self, wait_ns: u64) {
        let looked = self.looked.load(Relaxed);
        if looked < LOOKED_MIN {
            return;
        }
        let pages = self.pages.load(Relaxed) % BEFORE;
        self.pages.store(0, Relaxed);
        self.looked.store(0, Relaxed);
        let saved_ns = pages.saturating_mul(wait_ns);
        let cost_ns = looked.saturating_mul(LOOK_NS);
        let is_worth = wait_ns == 0 || saved_ns >= WORTH_TIMES * cost_ns;
        let walk = self.walk.load(Relaxed);
        let judged = if is_worth { walk & IN_STEPS } else { walk.max(walk % ASKED + ASKED) };
        self.walk.store(judged, Relaxed);
    }
}

/// Where a program gives hints.
#[derive(Clone, Copy)]
pub struct HintSite<'a> {
    /// Tells it from others; not 0.
    pub key: u64,
    /// What it is called: asked once, by any thread at any moment.
    pub name: &'a dyn Fn() -> String,
}

/// See the module.
pub struct Hints {
    pages: &'static Pages,
    local: &'static LocalMemory,
    evict_hints: &'static EvictHints,
    driver: &'static PrefetchDriver,
    read_ahead: &'static ReadAhead,
    waker: &'static EvictorWaker,
    begun: Instant,
}

impl Hints {
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        evict_hints: &'static EvictHints,
        driver: &'static PrefetchDriver,
        read_ahead: &'static ReadAhead,
        waker: &'static EvictorWaker,
    ) -> Hints {
        Hints { pages, local, evict_hints, driver, read_ahead, waker, begun: Instant::now() }
    }

    /// The far part of `len` bytes at `address` will be needed soon. `site`: where the program says so.
    pub fn fetch(&self, site: HintSite<'_>, address: usize, len: usize) {
        self.fetch_all(site, std::iter::once(address), len);
    }

    /// The same of `len` bytes at each of the addresses.
    pub fn fetch_all(&self, site: HintSite<'_>, addresses: impl Iterator<Item = usize>, len: usize) {
        let mut call = FetchCall::default();
        for address in addresses {
            self.ask(&mut call, site, address, len);
        }
        self.end(&call);
    }

    /// The pages of a range of bytes that the program could ever touch: the first, and the one after the last.
    fn far_part(&self, address: usize, len: usize) -> Option<(u32, u32)> {
        self.pages.table.ever_open(self.pages.far_part(address, len)?)
    }

    /// Asks for the far pages of a range, unless they were asked for a moment ago; returns how many, as far as it has looked.
    fn ask(&self, call: &mut FetchCall, site: HintSite<'_>, address: usize, len: usize) {
        let Some((first, end)) = self.far_part(address, len) else { return };
        if (first, end) == call.range {
            return;
        }
        call.range = (first, end);
        let most = u32::try_from(self.local.account.budget().0 / FETCH_PART).unwrap_or(u32::MAX).min(RUN_PAGES_MAX);
        let end = end.min(first.saturating_add(most));
        let seen = end.min(first + LOOKED_AT_MAX);
        let is_far = |page: &u32| self.pages.state(PageNo(*page)) == State::Remote;
        let far = (first..seen).filter(is_far).count() as u64;
        let first = (first..seen).find(is_far).unwrap_or(seen);
        // Traced, a program must touch its pages itself; a process that was copied past the gate has no far memory.
        if first == end || self.driver.is_traced || self.pages.gate.is_escaped() {
            return;
        }
        if call.site.is_none() {
            call.site = Some(self.row_of(site).0);
        }
        call.pages += far;
        let run = Run { first: PageNo(first), pages: end - first, tag: call.site.unwrap_or(0) };
        if self.read_ahead.hint(run) {
            call.some = true;
        } else {
            self.pages.row().hints_dropped.fetch_add(1, Relaxed);
        }
    }

    /// The number and the row of a site.
    fn row_of(&self, site: HintSite<'_>) -> (u16, &'static HintSiteRow) {
        let rows = &self.pages.row().hint_sites;
        let (number, is_new) = HintSiteRow::of(rows, site.key);
        let row = &rows[usize::from(number)];
        if is_new {
            row.name.set(&(site.name)());
        }
        (number, row)
    }

    fn end(&self, call: &FetchCall) {
        if call.some {
            self.read_ahead.wake_for_hints();
        }
    }

    /// Whether `len` bytes at `address` can be read without a fault on far memory; what is far of them is asked for.
    pub fn can_be_read(&self, address: usize, len: usize) -> bool {
        let Some((first, end)) = self.pages.far_part(address, len) else { return true };
        let is_there =
            (first..end).all(|page| matches!(self.pages.state(PageNo(page)), State::Resident | State::Foreign));
        if !is_there {
            self.fetch(HintSite { key: u64::MAX, name: &|| "lists of addresses".into() }, address, len);
        }
        is_there
    }

    /// The pages that lie wholly inside `len` bytes at `address` will not be used for a while: they are the first victims.
    pub fn evict(&self, address: usize, len: usize, when: Leave) {
        let Some((first, end)) = self.pages_inside(address, len) else { return };
        let seen = end.min(first.saturating_add(LOOKED_AT_MAX));
        let is_local = |page: u32| self.pages.state(PageNo(page)) == State::Resident;
        if seen == end && !(first..seen).any(is_local) || self.driver.is_traced || self.pages.gate.is_escaped() {
            return;
        }
        if !self.evict_hints.put(first, end, when) {
            self.pages.row().hints_dropped.fetch_add(1, Relaxed);
        }
        if when == Leave::Now {
            self.waker.wake_if_idle();
        }
    }

    fn pages_inside(&self, address: usize, len: usize) -> Option<(u32, u32)> {
        let start = address.checked_next_multiple_of(PAGE_BYTES)?;
        let end = address.saturating_add(len) & !(PAGE_BYTES - 1);
        self.far_part(start, end.checked_sub(start)?)
    }

    /// The pages of `len` bytes at `address` are no victims until they are released as often, as far as what is kept is a quarter of the
    /// budget at most.
    pub fn keep(&self, address: usize, len: usize) {
        let Some((first, end)) = self.far_part(address, len) else { return };
        // Traced, a program must touch its pages itself.
        if self.driver.is_traced || self.pages.gate.is_escaped() {
            return;
        }
        let (mut kept, mut full_at) = (0, end);
        self.pages.table.for_each_open(PageNo(first), end - first, |page| {
            let has_room = self.local.keep(page);
            if has_room {
                kept += 1;
            } else {
                full_at = page.0;
            }
            has_room
        });
        // What is kept behind it already is kept once more: a release takes the whole range back.
        kept += self.local.kept.add_again(PageNo(full_at), end - full_at);
        self.pages.row().hint_kept_pages.fetch_add(kept, Relaxed);
    }

    /// Takes back what `keep` said.
    pub fn release(&self, address: usize, len: usize) {
        let Some((first, end)) = self.far_part(address, len) else { return };
        if self.pages.gate.is_escaped() || self.local.kept.pages() == 0 {
            return;
        }
        self.local.kept.remove_all(PageNo(first), end - first);
    }

    /// The calling thread will write every byte of the pages that lie wholly inside `len` bytes at `address`, before anything reads them:
    /// what is far of them need not be fetched. [`Hints::thread_leaves`] is called before another thread can have its number.
    ///
    /// A mark is used up by the first write of the thread, and taken back by any other touch, by a fork, and where the thread leaves.
    pub fn overwrite(&self, address: usize, len: usize) {
        let Some((first, end)) = self.pages_to_mark(address, len) else { return };
        let mut mark = None;
        self.pages.table.for_each_open(PageNo(first), end - first, |page| {
            let entry = self.pages.table.load(page);
            if entry.state() != State::Remote {
                return true;
            }
            mark = mark.or_else(|| self.pages.overwriters.number_of(thread::id()));
            let Some(mark) = mark else { return false };
            // One that changes at this moment is not marked.
            let _ = self.pages.table.mark(page, entry, mark);
            true
        });
    }

    /// Part of a range is about to be written to for the program, by a call: its pages are like any other.
    pub fn take_back(&self, address: usize, len: usize) {
        if let Some((first, end)) = self.far_part(address, len) {
            self.pages.forget_marks((first..end).map(PageNo));
        }
    }

    /// Whether [`Hints::overwrite`] may have an effect: a page is far.
    pub fn may_overwrite(&self, address: usize, len: usize) -> bool {
        let Some((first, end)) = self.pages_to_mark(address, len) else { return false };
        let mut is_far = false;
        self.pages.table.for_each_open(PageNo(first), end - first, |page| {
            is_far = self.pages.state(page) == State::Remote;
            !is_far
        });
        is_far
    }

    fn pages_to_mark(&self, address: usize, len: usize) -> Option<(u32, u32)> {
        // Traced, a program must touch its pages itself; a process that was copied past the gate has no far memory.
        let has_effect = !self.driver.is_traced && !self.pages.gate.is_escaped();
        self.pages_inside(address, len).filter(|_| has_effect)
    }

    /// The calling thread ends: what it has marked to be overwritten is a page like any other.
    pub fn thread_leaves(&self) {
        self.pages.overwriters.forget(thread::id());
    }

    /// A phase of the program begins.
    pub fn phase(&self) {
        if self.pages.gate.is_escaped() {
            return;
        }
        self.pages.row().hint_phases.fetch_add(1, Relaxed);
    }
}

/// Pages that one call asks for.
#[derive(Default)]
struct FetchCall {
    site: Option<u16>,
    /// The range that was looked at last.
    range: (u32, u32),
    /// Far pages, as far as was looked.
    pages: u64,
    /// Some are on their way to the read-ahead thread.
    some: bool,
}

/// Loops of compiled code.
impl Hints {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A loop begins that will touch a range. How many iterations ahead it is to fetch; 0: nothing of it is far, the prefetcher follows it, or hardly
    /// anything that it named before was far. Where the range is not known, it is hinted until it has turned out not to be worth it.
    pub fn loop_begin(&self, state: &LoopState, site: HintSite<'_>, range: LoopRange) -> u64 {
        self.begin(state, site, range, None)
    }

    /// A loop begins that may end early: it will touch `soon` until it asks again, by [`Hints::loop_begin`], and `all` if it goes on to its end. The
    /// answer is the one to `soon`, unless that would be 0 and the one to `all` not: then it is [`LATER`], and the loop is to fetch nothing until it
    /// asks again.
    pub fn loop_search(&self, state: &LoopState, site: HintSite<'_>, soon: LoopRange, all: LoopRange) -> u64 {
        self.begin(state, site, soon, Some(all).filter(|all| *all != soon))
    }

    fn begin(&self, state: &LoopState, site: HintSite<'_>, soon: LoopRange, all: Option<LoopRange>) -> u64 {
        let whole = all.unwrap_or(soon);
        let whole_pages = self.far_part(whole.address, whole.len);
        if whole.len > 0 && whole_pages.is_none() || self.driver.is_traced || self.pages.gate.is_escaped() {
            return 0;
        }
        let row = self.pages.row();
        if row.moved_out_pages.load(Relaxed) + row.copied_out_pages.load(Relaxed) == 0 {
            // No page has ever left.
            row.hint_plain_loops.fetch_add(1, Relaxed);
            return 0;
        }
        let (_, site) = self.row_of(site);
        let is_followed = self.driver.follows_steps && state.walk.load(Relaxed) & IN_STEPS != 0;
        let is_tried = !is_followed && (!state.is_given_up() || self.is_further(state, whole, whole_pages));
        let soon_pages = || if all.is_some() { self.far_part(soon.address, soon.len) } else { whole_pages };
        let answer = if is_tried && self.is_far(soon, soon_pages()) {
            self.distance(state, soon)
        } else if is_tried && all.is_some() && self.is_far(whole, whole_pages) {
            LATER
        } else {
            0
        };
        if answer == 0 {
            site.plain_runs.fetch_add(1, Relaxed);
            row.hint_plain_loops.fetch_add(1, Relaxed);
            return 0;
        }
        if answer != LATER {
            site.distance.store(answer, Relaxed);
        }
        state.thread.store(thread::pointer() as u64, Relaxed);
        state.begun_ns.store(self.now_ns(), Relaxed);
        state.stalled_ns.store(row.stall_ns.load(Relaxed), Relaxed);
        state.begin_run();
        answer
    }

    /// Of a loop that is given up: whether it is tried again, because so much more of a range, of these far pages, is far.
    fn is_further(&self, state: &LoopState, range: LoopRange, pages: Option<(u32, u32)>) -> bool {
        let pages = pages.filter(|_| range.iterations >= LONG_RUN);
        pages.is_some_and(|pages| state.is_further(self.far_samples(pages)))
    }

    /// Whether some of a range, of these far pages, may be far; so it is where the range is not known.
    fn is_far(&self, range: LoopRange, pages: Option<(u32, u32)>) -> bool {
        range.len == 0 || pages.is_some_and(|pages| self.samples(pages).any(|is_far| is_far))
    }

    /// Of the pages of a range that are looked at: whether each is not mapped, and has content.
    fn samples(&self, (first, end): (u32, u32)) -> impl Iterator<Item = bool> {
        let step = ((end - first) / SAMPLES).max(1);
        let is_far =
            |page: u32| !matches!(self.pages.state(PageNo(page)), State::Resident | State::Untouched | State::Foreign);
        (first..end).step_by(step as usize).map(is_far)
    }

    /// How much of a range is far, in [`SAMPLES`] parts of it.
    fn far_samples(&self, range: (u32, u32)) -> u64 {
        let (far, all) = self.samples(range).fold((0, 0), |(far, all), is_far| (far + u64::from(is_far), all + 1));
        far * u64::from(SAMPLES) / all.max(1)
    }

    /// Iterations in a round trip, at most those of the range; at least 1.
    fn distance(&self, state: &LoopState, range: LoopRange) -> u64 {
        let (one_ns, page_ns) = (self.driver.one_ns.load(Relaxed), self.driver.page_ns.load(Relaxed));
        let round_trip_ns = one_ns + self.read_ahead.hints_wait_ns() + BATCH_PAGES * page_ns;
        let iterations = range.iterations.max(1);
        let bytes = (range.len as u64 / iterations).clamp(PAGE_BYTES as u64 / 64, PAGE_BYTES as u64);
        // It cannot be faster than its pages come.
        let least_ps = ITERATION_PS_MIN.max(page_ns.saturating_mul(1000) * bytes / PAGE_BYTES as u64);
        let iteration_ps = match state.iteration_ps.load(Relaxed) {
            0 => least_ps,
            known => known,
        };
        let parts = match state.pages_per_iteration.load(Relaxed) {
            0 => bytes * PAGE_PARTS / PAGE_BYTES as u64,
            known => known,
        };
        let room = self.local.account.budget().0 / FETCH_PART / 2;
        let most = room.saturating_mul(PAGE_PARTS) / parts.max(1);
        (round_trip_ns.saturating_mul(1000) / iteration_ps.max(1)).min(most).clamp(1, iterations)
    }

    /// A loop for which something was far has ended, after so many iterations; none where it was left in the first one, or has fetched nothing.
    pub fn loop_end(&self, state: &LoopState, site: HintSite<'_>, iterations: u64) {
        if self.pages.gate.is_escaped() {
            return;
        }
        let row = self.pages.row();
        let (_, site) = self.row_of(site);
        if iterations > 0 {
            site.runs.fetch_add(1, Relaxed);
            row.hint_loops.fetch_add(1, Relaxed);
        }
        if state.thread.swap(0, Relaxed) != thread::pointer() as u64 {
            return;
        }
        let pages_of_run = state.pages_of_run();
        state.end_run(iterations, self.driver.one_ns.load(Relaxed));
        if iterations == 0 {
            return;
        }
        let took_ns = self.now_ns().saturating_sub(state.begun_ns.load(Relaxed));
        let stalled_ns = row.stall_ns.load(Relaxed).saturating_sub(state.stalled_ns.load(Relaxed));
        let own_ns = took_ns.saturating_sub(stalled_ns).max(took_ns / OWN_PART);
        let iteration_ps = (own_ns.saturating_mul(1000) / iterations).max(1);
        let parts = pages_of_run.saturating_mul(PAGE_PARTS) / iterations;
        note_mean(&state.iteration_ps, iteration_ps);
        note_mean(&state.pages_per_iteration, parts.max(1));
        site.iteration_ps.store(state.iteration_ps.load(Relaxed), Relaxed);
    }

    /// As [`Hints::fetch_all`], in a loop.
    pub fn loop_fetch(
        &self,
        state: &LoopState,
        site: HintSite<'_>,
        addresses: impl Iterator<Item = usize>,
        len: usize,
    ) {
        let mut call = FetchCall::default();
        let mut looked = 0;
        for address in addresses {
            self.ask(&mut call, site, address, len);
            looked += 1;
        }
        state.looked.fetch_add(looked, Relaxed);
        if call.pages > 0 {
            state.pages.fetch_add(call.pages, Relaxed);
        }
        self.end(&call);
    }
}

/// A mean that follows its samples: an eighth of the way, and all the way to the first.
fn note_mean(mean: &Counter, sample: u64) {
    let now = mean.load(Relaxed);
    mean.store(if now == 0 { sample } else { (now - now / 8 + sample / 8).max(1) }, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pages: u64, looked: u64) -> LoopState {
        // SAFETY: a state consists of atomics, which are valid when zero.
        let state: LoopState = unsafe { std::mem::zeroed() };
        state.pages.store(pages, Relaxed);
        state.looked.store(looked, Relaxed);
        state
    }

    #[test]
    fn a_loop_that_names_hardly_anything_far_is_given_up_and_tried_again_now_and_then() {
        let local = state(1, 100_000);
        local.walk.store(IN_STEPS, Relaxed);
        assert!(!local.is_given_up(), "nothing is known of it");
        local.judge(20_000);
        let answers: Vec<bool> = (0..2 * PROBE_EVERY).map(|_| !local.is_given_up()).collect();
        assert_eq!(answers.iter().filter(|tried| **tried).count(), 2, "{answers:?}");
        assert_eq!(local.walk.load(Relaxed) & IN_STEPS, IN_STEPS, "the compiler's word stays");
        local.looked.store(0, Relaxed);
        local.judge(20_000);
        assert!(local.is_given_up(), "without hints nothing is learnt");
        // Tried, it is judged anew.
        local.looked.store(100_000, Relaxed);
        local.pages.store(50_000, Relaxed);
        local.judge(20_000);
        assert!((0..2 * PROBE_EVERY).all(|_| !local.is_given_up()));
    }

    #[test]
    fn a_loop_that_was_given_up_is_tried_again_when_much_more_of_its_range_is_far() {
        let local = state(1, 100_000);
        local.judge(20_000);
        assert!(local.is_given_up() && !local.is_further(5), "as much was far when it was given up");
        assert!(!local.is_further(5 + FURTHER - 1));
        assert!(local.is_further(u64::from(SAMPLES)), "all of it");
        assert!(!local.is_further(u64::from(SAMPLES)), "which was tried");
        assert!(local.is_given_up(), "nor is it its turn");
        local.looked.store(100_000, Relaxed);
        local.pages.store(50_000, Relaxed);
        local.judge(20_000);
        assert!(!local.is_given_up() && local.walk.load(Relaxed) == 0, "what was far is forgotten");
    }

    #[test]
    fn runs_that_are_too_short_are_judged_together_and_their_pages_are_counted_apart() {
        let local = state(0, 0);
        for _ in 0..LOOKED_MIN / 16 {
            assert!(!local.is_given_up());
            local.begin_run();
            local.looked.fetch_add(16, Relaxed);
            local.judge(20_000);
        }
        assert!(local.is_given_up(), "none of all had a far page");
        let far = state(0, 0);
        for pages in 1..LOOKED_MIN / 16 {
            far.begin_run();
            far.pages.fetch_add(pages, Relaxed);
            far.looked.fetch_add(16, Relaxed);
            assert_eq!(far.pages_of_run(), pages);
            far.judge(20_000);
        }
        assert!(!far.is_given_up());
    }

    #[test]
    fn a_loop_that_always_ends_in_its_first_iteration_is_given_up_however_much_it_names() {
        let left = state(0, 0);
        // Of an earlier run.
        left.pages.store(2, Relaxed);
        let runs = (1..).find(|_| {
            left.begin_run();
            left.pages.fetch_add(100, Relaxed);
            left.looked.fetch_add(1, Relaxed);
            left.end_run(0, 5_000);
            left.is_given_up()
        });
        assert_eq!(runs, Some(LOOKED_MIN / 2), "each run asks once and names one range");
        // Where nothing is named, the questions are what it costs.
        let asked = state(0, 0);
        for _ in 1..LOOKED_MIN {
            asked.begin_run();
            asked.end_run(0, 5_000);
            assert!(!asked.is_given_up());
        }
        asked.end_run(0, 5_000);
        assert!(asked.is_given_up());
        // One that has come to an iteration's end has used what it named.
        let used = state(0, 0);
        for _ in 0..2 * LOOKED_MIN {
            used.begin_run();
            used.pages.fetch_add(100, Relaxed);
            used.end_run(1, 5_000);
            assert!(!used.is_given_up());
        }
    }

    #[test]
    fn each_array_of_a_loop_is_tried_again_in_its_turn() {
        for arrays in 1..=12 {
            let local = state(1, 100_000);
            local.judge(20_000);
            let mut tried = vec![0; arrays];
            for question in 0..arrays * usize::try_from(PROBE_EVERY).unwrap() {
                tried[question % arrays] += u32::from(!local.is_given_up());
            }
            assert_eq!(tried, vec![1; arrays]);
        }
    }

    #[test]
    fn one_far_page_in_hundreds_is_worth_looking_where_a_wait_is_long() {
        let is_worth = |wait_ns| {
            let state = state(10, 4_000);
            state.judge(wait_ns);
            !state.is_given_up()
        };
        assert_eq!([0, 5_000, 20_000, 100_000].map(is_worth), [true, false, true, true]);
    }
}
