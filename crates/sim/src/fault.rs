//! Serving the program's faults, step by step as the pager's `fault.rs`.

use crate::machine::Machine;
use crate::page::{Marks, Page, State};
use crate::{Touch, Workload};
use hinterland_backend::Priority;
use hinterland_paging::{Urgency, ZERO_PAGES, claim_zeros, is_timed, late_window};
use hinterland_policy::tape::{self, PageLocality};
use hinterland_policy::{Arrival, Prefetch, PrefetchWindow, Request, Thread, Wanted};
use hinterland_units::PageNo;

/// The pages as the arbiter sees them.
struct PageLocalities<'a> {
    work: &'a Workload,
    pages: &'a [Page],
    budget_pages: u64,
    block_pages: u32,
}

impl tape::PageLocalities for PageLocalities<'_> {
    fn locality(&self, page: PageNo) -> PageLocality {
        let Some(slot) = self.work.slot(page) else { return PageLocality::Untouched };
        match self.pages[slot as usize].state {
            State::Untouched => PageLocality::Untouched,
            State::Resident | State::Unused => PageLocality::Mapped,
            State::Remote => PageLocality::Remote,
            State::SwapCached | State::PrefetchCached | State::Fetching | State::WritingBack => PageLocality::Between,
        }
    }

    fn budget_pages(&self) -> u64 {
        self.budget_pages
    }

    fn block_pages(&self) -> u32 {
        self.block_pages
    }
}

impl Machine<'_> {
    /// The program touches a page that is not `Resident`; returns when it goes on.
    pub(crate) fn fault(&mut self, touch: Touch, began: u64) -> u64 {
        self.fault_since(touch, began, false, began)
    }

    /// The same of a fault that `began` before; `waited`: for the page, which others brought in, or which came with its block.
    fn fault_since(&mut self, touch: Touch, began: u64, mut waited: bool, mut now: u64) -> u64 {
        let Touch { slot, .. } = touch;
        loop {
            match self.pages[slot as usize].state {
                State::Resident => unreachable!("a page is used only by the program, which waits"),
                State::Unused => {
                    self.used(slot, now, waited.then_some(now - began));
                    self.figures.awaited += u64::from(waited);
                    return now;
                }
                State::Fetching | State::WritingBack => {
                    now = self.wait_until_stable(slot);
                    waited = true;
                }
                State::Untouched => return self.first_touch(touch, now),
                State::SwapCached => return self.swap_cache_hit(touch, now),
                State::PrefetchCached => return self.prefetch_hit(touch, began, waited, now),
                State::Remote => return self.fetch(touch, began, now),
            }
        }
    }

    /// Waits while another thread works on a page.
    fn wait_until_stable(&mut self, slot: u32) -> u64 {
        loop {
            let now = self.step();
            if !matches!(self.pages[slot as usize].state, State::Fetching | State::WritingBack) {
                return now;
            }
        }
    }

    fn first_touch(&mut self, touch: Touch, now: u64) -> u64 {
        let mut now = self.take_frame(now);
        self.figures.first += 1;
        let wanted = self.requested(touch, Request::FirstTouch);
        self.arrive(&[touch.slot], Arrival::FirstTouch, State::Resident);
        now += self.setup.costs.fault_ns;
        let window = wanted.window;
        self.request_wanted(now, Wanted { window: None, ..wanted });
        if let Some(window) = window {
            now += self.zero_ahead(window) * self.setup.costs.map_page_ns;
        }
        now
    }

    /// Maps zeros ahead of the program, as far as frames are free; returns how many.
    fn zero_ahead(&mut self, window: PrefetchWindow) -> u64 {
        let claimed = self.claim_blanks(&window);
        let neighbours = |a: &u32, b: &u32| self.work.page(*a).0 + 1 == self.work.page(*b).0;
        for run in claimed.chunk_by(neighbours).flat_map(|run| run.chunks(ZERO_PAGES)) {
            self.arrive(run, Arrival::FirstTouch, State::Unused);
        }
        self.figures.zeros_ahead += claimed.len() as u64;
        claimed.len() as u64
    }

    /// Claims pages without content, and charges frames for them.
    pub(crate) fn claim_blanks(&mut self, window: &PrefetchWindow) -> Vec<u32> {
        let (work, pages, account, answers) = (self.work, &self.pages, &self.account, &mut self.answers);
        let claim = |page| {
            let slot = work.slot(page);
            let (is_blank, stays) = match answers {
                None => (slot.is_some_and(|slot| pages[slot as usize].state == State::Untouched), true),
                Some(answers) => answers.blank(),
            };
            if !is_blank || !account.try_charge(1) {
                return None;
            }
            if !stays {
                account.uncharge(1);
            }
            slot.filter(|_| stays)
        };
        claim_zeros(window, claim, |slot| work.page(*slot))
    }

    fn swap_cache_hit(&mut self, touch: Touch, now: u64) -> u64 {
        let now = self.take_frame(now);
        if self.pages[touch.slot as usize].state != State::SwapCached {
            // It was written back while this fault made room.
            self.account.uncharge(1);
            return self.fault(touch, now);
        }
        self.figures.minor += 1;
        self.arrive(&[touch.slot], Arrival::SwapCacheHit, State::Resident);
        self.used(touch.slot, now, None);
        let now = now + self.setup.costs.fault_ns;
        let wanted = self.requested(touch, Request::Minor);
        let late = self.request_wanted(now, wanted);
        self.help_read_ahead(late, now)
    }

    /// First use of a page that waited unmapped; as [`Machine::fault_since`].
    fn prefetch_hit(&mut self, touch: Touch, began: u64, waited: bool, now: u64) -> u64 {
        let late_ns = waited.then_some(now - began);
        let now = self.take_frame(now);
        if self.pages[touch.slot as usize].state != State::PrefetchCached {
            self.account.uncharge(1);
            return self.fault_since(touch, began, waited, now);
        }
        self.figures.prefetch_hits += 1;
        self.figures.hits_inferred += u64::from(self.waiting_is_used(touch.slot).1);
        self.arrive(&[touch.slot], Arrival::Demand, State::Resident);
        self.used(touch.slot, now, late_ns);
        let now = now + self.setup.costs.fault_ns;
        let wanted = self.requested(touch, Request::PrefetchHit);
        let late = self.request_wanted(now, wanted);
        self.help_read_ahead(late, now)
    }

    fn fetch(&mut self, touch: Touch, began: u64, now: u64) -> u64 {
        let slot = touch.slot as usize;
        if let Some(now) = self.fetch_with_block(touch.slot, now) {
            self.figures.block_faults += 1;
            return self.fault_since(touch, began, true, now);
        }
        let now = self.take_frame(now);
        if self.pages[slot].state != State::Remote {
            // The read-ahead thread was quicker. The frame is taken again there.
            self.account.uncharge(1);
            return self.fault(touch, now);
        }
        // Nobody else may fetch it meanwhile.
        self.pages[slot].state = State::Fetching;
        self.figures.major += 1;
        self.figures.pollution += u64::from(self.pages[slot].marks.has(Marks::DISPLACED));
        let wanted = self.requested(touch, Request::Major);
        let is_on_tape = wanted.is_on_tape;
        let passed = self.request_wanted(now, wanted);
        let late = late_window(Request::Major, is_on_tape, passed, || self.late_batch(self.work.page(touch.slot)));
        let asked_ns = now;
        let now = self.carry(now, 1, Priority::Demand);
        if is_timed(self.figures.major - 1) {
            self.loaded(1, now - asked_ns);
        }
        self.arrive(&[touch.slot], Arrival::Demand, State::Resident);
        self.pages[slot].marks.set(Marks::COPIED, true);
        self.help_read_ahead(late, now + self.setup.costs.fault_ns + self.setup.costs.major_extra_ns)
    }

    /// A page is used for the first time since it came; `late_ns`: how long the program had to wait for it.
    fn used(&mut self, slot: u32, now: u64, late_ns: Option<u64>) {
        let since_ns = self.since_ns[slot as usize];
        let page = &mut self.pages[slot as usize];
        page.state = State::Resident;
        if !page.marks.has(Marks::PREFETCHED) {
            return;
        }
        page.marks.set(Marks::PREFETCHED, false);
        self.figures.used += 1;
        match late_ns {
            Some(late_ns) => {
                self.figures.late += 1;
                self.figures.late_ns += late_ns;
            }
            None => {
                self.figures.on_time += 1;
                self.figures.lead_ns += now.saturating_sub(since_ns);
            }
        }
    }

    fn requested(&mut self, touch: Touch, request: Request) -> Wanted {
        self.requested_by(Thread(touch.thread.into()), self.work.page(touch.slot), request)
    }

    /// Tells the arbiter of a request; what is to be fetched, or mapped as zeros, ahead.
    pub(crate) fn requested_by(&mut self, thread: Thread, page: PageNo, request: Request) -> Wanted {
        let (budget_pages, block_pages) = (self.account.budget().0, self.block_pages());
        let localities = PageLocalities { work: self.work, pages: &self.pages, budget_pages, block_pages };
        self.arbiter.requested(page, request, thread, &localities)
    }

    /// Asks the read-ahead thread for what is wanted; as [`Machine::request_ahead`].
    fn request_wanted(&mut self, now: u64, wanted: Wanted) -> Option<u64> {
        for batch in wanted.batches {
            self.request_ahead(now, batch);
        }
        if let Some(block) = wanted.block {
            self.request_ahead(now, Prefetch::Block(block));
        }
        wanted.window.and_then(|window| self.request_ahead(now, window))
    }

    /// Counts a frame as used; evicts by itself where there is none. Returns when it is had.
    fn take_frame(&mut self, mut now: u64) -> u64 {
        while !self.account.try_charge(1) {
            self.figures.direct_reclaims += 1;
            if let Some(work) = self.reclaim_step(Urgency::Now) {
                now += work.cpu_ns;
                self.run_until(now);
                if work.dirty_pages > 0 {
                    now = self.carry(now, work.dirty_pages, Priority::WriteBack);
                }
                self.complete(work);
            } else if self.has_events() {
                // Nothing can leave: what others write back will be free.
                now = self.step().max(now);
            } else {
                self.account.charge(1);
                return now;
            }
        }
        now
    }
}
