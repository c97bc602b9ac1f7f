//! A thread of the program: what it does at random, and what must hold then.

use super::THREADS;
use super::case::Case;
use super::far::Far;
use super::reference::{Reference, Run, WORDS, offset};
use crate::pager::Pager;
use crate::scratch::Scratch;
use crate::slot::SwapCached;
use crate::state::State;
use crate::sys::mem;
use crate::sys::simulated::{Current, current};
use crate::{FaultPath, HintSite, LATER, Leave, LoopRange, LoopState, PinAccess};
use hinterland_backend::{Backend, LoadItem, Priority};
use hinterland_paging::Urgency;
use hinterland_testkit::Rng;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module.
pub(super) struct Program {
    current: Current,
    pager: &'static Pager,
    case: Case,
    far: Arc<Far>,
    reference: Arc<Mutex<Reference>>,
    /// Loops that give hints, of all threads.
    loops: &'static [LoopState; 2],
    random: Rng,
    /// Values that were stored: each is another one.
    stored: u64,
    number: usize,
    /// Pages that it has said it will overwrite, before it writes to them in any other way.
    promised: Vec<PageNo>,
}

/// A page's content, to be read in words.
#[repr(align(8))]
struct Aligned([u8; PAGE_BYTES]);

impl Program {
    pub(super) fn new(
        number: usize,
        case: Case,
        pager: &'static Pager,
        far: Arc<Far>,
        reference: Arc<Mutex<Reference>>,
        loops: &'static [LoopState; 2],
    ) -> Program {
        let current = current().expect("a thread of a simulation");
        let random = Rng(case.seed.wrapping_mul(THREADS as u64 + 1) + number as u64);
        Program { current, pager, case, far, reference, loops, random, stored: 0, number, promised: Vec::new() }
    }

    fn reference(&self) -> MutexGuard<'_, Reference> {
        self.reference.lock().expect("a thread that panics has ended the run")
    }

    /// Does as many things as the case says.
    pub(super) fn run(&mut self) {
        for _ in 0..self.case.operations {
            let run = self.choose();
            if self.case.overwrites && self.random.below(6) == 0 {
                self.alone(run, Program::overwrite);
                continue;
            }
            match self.random.below_u32(32) {
                0..18 => self.shared(run, Program::use_pages),
                18 | 19 => self.shared(run, Program::call_kernel),
                20 => self.shared(run, Program::lend_to_device),
                21 => self.alone(run, Program::discard),
                22 => self.alone(run, Program::drop_remote),
                23 => self.alone(run, Program::drop_behind_the_pager),
                24 => self.alone(run, Program::protect),
                25 | 26 => self.relocate(run),
                27 if self.random.below(2) == 0 => self.shared(run, Program::walk),
                27 => self.hint(run),
                28 => self.shared(run, Program::pin_long_term),
                29 => self.alone(run, Program::lock),
                30 if self.number == 0 && self.random.below(2) == 0 => self.be_alone(),
                30 => self.fork(),
                _ => self.reclaim(),
            }
            self.current.with(|state| state.progress());
        }
    }

    /// Any pages; or those that the pager works on at this moment.
    fn choose(&mut self) -> Run {
        if self.random.below(2) == 0 {
            return Run::any(&mut self.random);
        }
        let recent = self.current.with(|state| state.recent);
        Run::at(PageNo(u32::try_from(recent).expect("a page of the range")), &mut self.random)
    }

    /// Does something while other threads may load and store, too.
    fn shared(&mut self, run: Run, work: impl FnOnce(&mut Program, Run)) {
        if self.reference().share(run.group) {
            work(self, run);
            self.reference().end_share(run.group);
        }
    }

    /// Does something that others would notice.
    fn alone(&mut self, run: Run, work: impl FnOnce(&mut Program, Run)) {
        if self.reference().take(run.group) {
            work(self, run);
            self.reference().end_take(run.group);
        }
    }

    fn address(&self, page: PageNo, word: usize) -> usize {
        self.pager.address(page) + offset(word)
    }

    /// Compares a page that is there with the model, in the turn in which it was reached.
    fn compare(&self, page: PageNo, at: usize) {
        // SAFETY: the page is memory of the simulation, and no other thread runs now.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u64, PAGE_BYTES / 8) };
        if let Err(wrong) = self.reference().compare(page, bytes) {
            self.current.fail(format!("{wrong}; it is {:?}", self.pager.state(page)));
        }
    }

    /// Loads a word.
    pub(super) fn check(&mut self, page: PageNo) {
        self.current.reach(self.address(page, 0), false);
        self.compare(page, self.pager.address(page));
    }

    /// Stores a word into a page that was reached for it.
    fn put(&mut self, page: PageNo) {
        self.compare(page, self.pager.address(page));
        let word = self.random.index(WORDS);
        self.stored += 1;
        // Some words become zero again, so that pages do.
        let value = if self.random.below(6) == 0 { 0 } else { (self.number as u64 + 1) << 48 | self.stored };
        // SAFETY: as in `compare`; the page is writable.
        unsafe { (self.address(page, word) as *mut u64).write(value) };
        self.reference().store(page, word, value);
    }

    fn use_pages(&mut self, run: Run) {
        for page in run.pages() {
            if self.random.below(2) == 0 {
                self.check(page);
            } else {
                self.keep_promise(page);
                self.current.reach(self.address(page, 0), true);
                self.put(page);
            }
        }
    }

    /// Says that it will overwrite pages. It does so, or looks at one before, or leaves it to another operation.
    fn overwrite(&mut self, run: Run) {
        let pager = self.pager;
        pager.hints().overwrite(pager.address(run.first), run.count as usize * PAGE_BYTES);
        for page in run.pages() {
            match self.random.below(3) {
                0 => self.check(page),
                1 => self.put_whole(page),
                _ => self.promised.push(page),
            }
        }
    }

    /// Before a page is written to in part: looks at it, if it was to be overwritten.
    fn keep_promise(&mut self, page: PageNo) {
        if self.promised.contains(&page) {
            self.promised.retain(|other| *other != page);
            self.check(page);
        }
    }

    /// Stores all words of a page that no other thread uses: it may leave between two of them.
    fn put_whole(&mut self, page: PageNo) {
        for word in 0..WORDS {
            self.stored += 1;
            let value = (self.number as u64 + 1) << 48 | self.stored;
            self.current.reach(self.address(page, word), true);
            // SAFETY: as in `compare`; the page is writable.
            unsafe { (self.address(page, word) as *mut u64).write(value) };
            self.reference().store(page, word, value);
        }
        self.check(page);
    }

    /// A system call that reads or writes pages.
    fn call_kernel(&mut self, run: Run) {
        let writes = self.random.below(2) == 0;
        let access = if writes { PinAccess::Write } else { PinAccess::Read };
        let pager = self.pager;
        if writes {
            run.pages().for_each(|page| self.keep_promise(page));
        }
        let pin = pager.pin(pager.address(run.first), run.count as usize * PAGE_BYTES, access);
        for page in run.pages() {
            if !self.current.reach_by_kernel(self.address(page, 0), writes) {
                self.current.fail(format!("EFAULT at {page}, which is pinned and {:?}", pager.state(page)));
            }
            if writes { self.put(page) } else { self.compare(page, pager.address(page)) }
        }
        drop(pin);
    }

    /// A device gets a frame, and writes to it later. On the monitor path MOVE refuses such a page; without MOVE, and on the inline
    /// path, the program's library has to pin it.
    fn lend_to_device(&mut self, run: Run) {
        if self.case.path == FaultPath::Inline || !self.case.features().move_pages {
            return;
        }
        let page = run.first;
        self.keep_promise(page);
        assert!(self.current.reach_by_kernel(self.address(page, 0), true), "the monitor serves the kernel's faults");
        self.lend(page, 1);
        for other in run.pages().skip(1) {
            self.check(other);
        }
        let is_there = self.current.with(|state| {
            let there = state.machine.memory.page(self.pager.address(page));
            there.is_some_and(|page| page.present && page.devices > 0)
        });
        if !is_there {
            self.current.fail(format!("a device writes to a frame that {page} has no more"));
        }
        self.put(page);
        self.lend(page, -1);
    }

    fn lend(&self, page: PageNo, more: i8) {
        self.current.with(|state| {
            let page = state.machine.memory.page(self.pager.address(page)).expect("a far page");
            page.devices = page.devices.checked_add_signed(more).expect("few devices");
        });
    }

    fn discard(&mut self, run: Run) {
        self.pager.discard(run.first, run.count);
        self.reference().clear(run);
        self.check(run.first);
    }

    fn drop_remote(&mut self, run: Run) {
        self.pager.drop_remote(run.first, run.count);
        self.reference().may_clear(run);
    }

    /// madvise(2) by an instruction of the program's own.
    fn drop_behind_the_pager(&mut self, run: Run) {
        let (start, len) = (self.pager.address(run.first), run.count as usize * PAGE_BYTES);
        self.reference().may_clear(run);
        // SAFETY: pages that this thread has taken.
        let _ = unsafe { mem::drop_pages(start, len) };
        // On the inline path the library sees such calls, and the kernel meets no page that is missing (`runtime/inline`).
        if self.case.path == FaultPath::Inline {
            run.pages().for_each(|page| self.check(page));
        }
    }

    fn protect(&mut self, run: Run) {
        let protect = |protection| self.pager.protect(run.first, run.count, protection).expect("mprotect works");
        protect(libc::PROT_READ);
        run.pages().for_each(|page| self.check(page));
        if self.random.below(2) == 0 {
            protect(libc::PROT_NONE);
            self.current.yield_now("has closed pages");
        }
        protect(libc::PROT_READ | libc::PROT_WRITE);
        run.pages().for_each(|page| self.check(page));
    }

    fn relocate(&mut self, from: Run) {
        let Some(to) = from.elsewhere(&mut self.random) else { return };
        self.alone(from, |program, from| {
            program.alone(to, |program, to| {
                let lent = (program.random.below(3) == 0 && program.case.features().move_pages).then_some(from.first);
                if let Some(page) = lent.filter(|_| program.case.path == FaultPath::Monitor) {
                    program.keep_promise(page);
                    assert!(program.current.reach_by_kernel(program.address(page, 0), true), "the kernel's fault");
                    program.lend(page, 1);
                }
                program.pager.relocate(from.first, to.first, from.count);
                program.reference().relocate(from, to);
                if lent.is_some_and(|_| program.case.path == FaultPath::Monitor) {
                    // The device has the frame still, and that is where the page is now.
                    program.put(to.first);
                    program.lend(to.first, -1);
                }
                program.check(from.first);
                program.check(to.first);
            });
        });
    }

    fn hint(&mut self, run: Run) {
        let hints = self.pager.hints();
        let (start, len) = (self.pager.address(run.first), run.count as usize * PAGE_BYTES);
        match self.random.below_u32(5) {
            0 => hints.evict(start, len, Leave::Now),
            1 => hints.evict(start, len, Leave::Soon),
            2 => hints.keep(start, len),
            3 => hints.release(start, len),
            _ => {
                let site = HintSite { key: 1 + self.random.below(3), name: &|| "here".into() };
                hints.fetch_all(site, std::iter::once(start), len);
            }
        }
    }

    /// A loop as it is compiled: it asks how far ahead to fetch, hands addresses over, and gives up what it has walked. What it says of its range, its
    /// iterations and its addresses need not be true; it may begin another loop in the middle, and be left without a word.
    fn walk(&mut self, run: Run) {
        let hints = self.pager.hints();
        let state = &self.loops[self.random.index(2)];
        let site = HintSite { key: 4 + self.random.below(2), name: &|| "a loop".into() };
        let iterations = [0, 1, u64::from(run.count), u64::MAX][self.random.index(4)];
        let (soon, all) = (self.any_range(run, iterations), self.any_range(run, u64::MAX));
        let ahead = match self.random.below_u32(2) {
            0 => hints.loop_begin(state, site, soon),
            _ => hints.loop_search(state, site, soon, all),
        };
        if ahead > iterations.max(1) && ahead != LATER {
            self.current.fail(format!("a loop of {iterations} iterations is to fetch {ahead} ahead"));
        }
        for page in run.pages() {
            let (address, len) = self.any_bytes(run);
            hints.loop_fetch(state, site, [address, self.pager.address(page)].into_iter(), len);
            match self.random.below_u32(12) {
                0 => self.walk(Run { first: page, count: 1, ..run }),
                1 => return,
                _ => self.check(page),
            }
            let (address, len) = self.any_bytes(run);
            hints.evict(address, len, if self.random.below(2) == 0 { Leave::Now } else { Leave::Soon });
        }
        hints.loop_end(state, site, [0, iterations][self.random.index(2)]);
    }

    fn any_range(&mut self, run: Run, iterations: u64) -> LoopRange {
        let (address, len) = self.any_bytes(run);
        LoopRange { address, len, iterations }
    }

    /// The bytes of a run, or others of which a program might speak.
    fn any_bytes(&mut self, run: Run) -> (usize, usize) {
        let all = run.count as usize * PAGE_BYTES;
        let address = self.pager.address(run.first);
        let lengths = [0, 1, PAGE_BYTES / 2, all, all, all, all, usize::MAX];
        let addresses = [0, usize::MAX, address + 1, address, address, address, address, address];
        (addresses[self.random.index(8)], lengths[self.random.index(8)])
    }

    fn pin_long_term(&mut self, run: Run) {
        let (start, len) = (self.pager.address(run.first), run.count as usize * PAGE_BYTES);
        // The program has written what is to stay there.
        run.pages().for_each(|page| self.check(page));
        if !self.pager.pin_long_term(start, len) {
            return;
        }
        for page in run.pages() {
            let is_there = self.current.with(|state| {
                state.machine.memory.page(self.pager.address(page)).is_some_and(|page| page.present && !page.protected)
            });
            if !is_there {
                self.current.fail(format!("{page} is pinned long-term and not there"));
            }
            self.check(page);
        }
        self.pager.unpin_long_term(start, len);
    }

    fn lock(&mut self, run: Run) {
        self.pager.lock(run.first, run.count, self.random.below(2) == 0).expect("it fits");
        run.pages().for_each(|page| self.check(page));
        self.pager.unlock(run.first, run.count).expect("munlock works");
    }

    /// A call for which the pager's threads are away. On the monitor path no fault is served meanwhile: other threads wait in theirs.
    fn be_alone(&mut self) {
        let pager = self.pager;
        pager.without_threads(|| {
            for _ in 0..6 {
                if pager.any_thread(|_| true) {
                    self.current.fail("a thread of the pager is not away".into());
                }
                match self.case.path {
                    FaultPath::Monitor => self.current.yield_now("is alone"),
                    FaultPath::Inline => {
                        let run = self.choose();
                        self.shared(run, Program::use_pages);
                    }
                }
            }
        });
    }

    /// What a child would inherit, while the gate is closed.
    fn fork(&mut self) {
        self.pager.freeze(&[]);
        for page in (0..super::PAGES).map(PageNo) {
            let entry = self.pager.pages.table.load(page);
            if entry.state().is_busy() {
                self.current.fail(format!("{page} is {entry:?} in the child of a fork"));
            }
            self.check_inherited(page);
        }
        self.pager.thaw();
    }

    fn check_inherited(&self, page: PageNo) {
        let entry = self.pager.pages.table.load(page);
        let mut bytes = Aligned([0; PAGE_BYTES]);
        let at = match entry.state() {
            State::Untouched => bytes.0.as_ptr().expose_provenance(),
            State::Resident => {
                let address = self.pager.address(page);
                let page = self.current.with(|state| state.machine.memory.page(address).copied());
                // One that was dropped behind the pager reads as zero.
                if page.expect("a far page").present { address } else { bytes.0.as_ptr().expose_provenance() }
            }
            State::SwapCached => match self.pager.pages.look_swap_cached(page, entry) {
                Some(SwapCached::Victim(slot)) => self.pager.rooms.staging.address(slot),
                Some(SwapCached::Prefetched(slot)) => self.pager.rooms.staging.address(slot),
                other => self.current.fail(format!("{page} is {entry:?}, and its slot {other:?}")),
            },
            State::Remote => {
                let mut items = [LoadItem { location: entry.location(), into: &mut bytes.0 }];
                self.far.load(&mut items, Priority::Demand, &mut |_, loaded| {
                    loaded.expect("a page that is far is stored");
                });
                bytes.0.as_ptr().expose_provenance()
            }
            other => self.current.fail(format!("{page} is {other:?}")),
        };
        // A thread that drops or moves it goes on where the fork has ended.
        let is_settled = self.reference().is_settled(page);
        if is_settled {
            self.compare(page, at);
        }
    }

    /// A step of reclaim, as of a thread that finds no free frame. On the monitor path only the pager's own threads do that: their
    /// faults on pages that they take out are known by their numbers.
    fn reclaim(&mut self) {
        if self.case.path == FaultPath::Monitor {
            return;
        }
        let inside = self.pager.pages.gate.enter();
        self.pager.rooms.reclaim.step(Urgency::Now, &mut Scratch::new());
        drop(inside);
    }
}
