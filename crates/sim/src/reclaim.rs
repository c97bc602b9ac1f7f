//! Reclaim: victims leave in chunks, age in the swap cache, and are written back. Which, and when, [`hinterland_paging`] decides, as
//! for the pager.

use crate::machine::{Machine, Who};
use crate::page::{Marks, Page, State};
use crate::{FaultPath, Workload};
use hinterland_backend::Priority;
use hinterland_paging::{
    CHUNK_SLOTS, Claim, PageStates, ReclaimBody, Residency, Urgency, choose_victims, reclaim_step,
};
use hinterland_policy::EvictionPolicy;
use hinterland_units::PageNo;

/// Victims that left together: slot, and how often the page had been taken out by then.
pub(crate) struct Chunk(Vec<(u32, u32)>);

/// What a step of reclaim takes, and what is to be done when it is over.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) cpu_ns: u64,
    /// Pages to be stored: the link is needed for them.
    pub(crate) dirty_pages: u32,
    /// By slot: all pages that leave, the dirty ones first.
    leaving: Vec<u32>,
    /// Frames that are free then.
    frames: u64,
}

/// What the evictor does.
#[derive(Debug)]
pub(crate) enum Evictor {
    Idle,
    Working { until_ns: u64, work: Work },
    Storing(Work),
}

impl Evictor {
    pub(crate) fn wakes_ns(&self) -> u64 {
        match self {
            Evictor::Working { until_ns, .. } => *until_ns,
            Evictor::Idle | Evictor::Storing(_) => u64::MAX,
        }
    }
}

impl Machine<'_> {
    /// Lets the evictor look at the watermarks.
    pub(crate) fn wake_evictor(&mut self, now: u64) {
        if matches!(self.evictor, Evictor::Idle) && self.account.above_high() {
            self.evictor = Evictor::Working { until_ns: now, work: Work::default() };
        }
    }

    /// The evictor's processor time is over: what is dirty goes to the link.
    pub(crate) fn evictor_goes_on(&mut self, now: u64) {
        match std::mem::replace(&mut self.evictor, Evictor::Idle) {
            Evictor::Working { work, .. } if work.dirty_pages > 0 => {
                self.send(now, Who::Evictor, work.dirty_pages, Priority::WriteBack);
                self.evictor = Evictor::Storing(work);
            }
            Evictor::Working { work, .. } => {
                self.complete(work);
                self.evict(now);
            }
            Evictor::Idle | Evictor::Storing(_) => unreachable!("an evictor that works was woken"),
        }
    }

    /// What the evictor stored is stored.
    pub(crate) fn evictor_stored(&mut self, now: u64) {
        match std::mem::replace(&mut self.evictor, Evictor::Idle) {
            Evictor::Storing(work) => self.complete(work),
            Evictor::Idle | Evictor::Working { .. } => unreachable!("the evictor waits for the link"),
        }
        self.evict(now);
    }

    fn evict(&mut self, now: u64) {
        if self.account.above_low()
            && let Some(work) = self.reclaim_step(Urgency::Ahead)
        {
            self.evictor = Evictor::Working { until_ns: now + work.cpu_ns, work };
        }
    }

    /// One step towards free frames. `None`: nothing can leave. Whoever made the step takes the time, carries what is dirty, and then
    /// calls [`Machine::complete`].
    pub(crate) fn reclaim_step(&mut self, urgency: Urgency) -> Option<Work> {
        self.urgency = urgency;
        let swap_cache = self.account.swap_cache();
        reclaim_step(self, swap_cache)
    }

    /// The pages as the choice of victims sees them, and the policy.
    pub(crate) fn states(&mut self) -> (States<'_>, &mut dyn EvictionPolicy) {
        (States { work: self.work, pages: &mut self.pages }, &mut *self.policy)
    }

    /// Puts victims into a new chunk of the swap cache, the first page first; returns the processor time of taking them out.
    pub(crate) fn push_chunk(&mut self, victims: &mut [PageNo]) -> u64 {
        if victims.is_empty() {
            return 0;
        }
        victims.sort_unstable();
        let runs = 1 + victims.windows(2).filter(|pair| pair[1].0 != pair[0].0 + 1).count() as u64;
        let slots = victims.iter().filter_map(|page| self.work.slot(*page));
        self.chunks.push_back(Chunk(slots.map(|slot| (slot, self.pages[slot as usize].taken)).collect()));
        let costs = &self.setup.costs;
        runs * costs.move_run_ns + victims.len() as u64 * costs.move_page_ns
    }

    /// Sends on its way what is still in a chunk. Clean pages and zeros leave at once.
    fn write_back(&mut self, Chunk(places): Chunk) -> Work {
        let frames = places.len() as u64;
        let (mut dirty, mut others) = (Vec::new(), Vec::new());
        for (slot, taken) in places {
            let page = self.pages[slot as usize];
            if page.state != State::SwapCached || page.taken != taken {
                continue;
            }
            let displaced = self.next_cause();
            let is_dirty = !page.marks.has(Marks::COPIED) || self.setup.was_written(slot, taken);
            let page = &mut self.pages[slot as usize];
            page.marks.set(Marks::PREFETCHED, false);
            page.marks.set(Marks::DISPLACED, displaced);
            if page.marks.has(Marks::BLANK) {
                (page.state, page.marks) = (State::Untouched, Marks::default());
                self.figures.evicted_zero += 1;
                others.push(slot);
            } else if is_dirty {
                page.state = State::WritingBack;
                self.figures.evicted_dirty += 1;
                dirty.push(slot);
            } else {
                page.state = State::Remote;
                self.figures.evicted_clean += 1;
                others.push(slot);
            }
        }
        let dirty_pages = u32::try_from(dirty.len()).unwrap_or(CHUNK_SLOTS);
        dirty.append(&mut others);
        let cpu_ns = dirty.len() as u64 * self.setup.costs.write_back_page_ns;
        Work { cpu_ns, dirty_pages, leaving: dirty, frames }
    }

    /// Completes a step: what was stored is remote now, and the frames are free.
    pub(crate) fn complete(&mut self, work: Work) {
        for (index, slot) in work.leaving.iter().enumerate() {
            if index < work.dirty_pages as usize {
                self.pages[*slot as usize].state = State::Remote;
            }
            self.policy.written_back(self.work.page(*slot));
        }
        self.account.uncharge(work.frames);
    }
}

impl ReclaimBody for Machine<'_> {
    type Chunk = Chunk;
    type Done = Work;

    fn take_oldest(&mut self, keep: usize) -> Option<Chunk> {
        if self.chunks.len() > keep { self.chunks.pop_front() } else { None }
    }

    fn fill(&mut self) -> Option<Work> {
        let mut victims = Vec::with_capacity(CHUNK_SLOTS as usize);
        let mut states = States { work: self.work, pages: &mut self.pages };
        let copies = self.setup.fault_path == FaultPath::Inline;
        choose_victims(&mut states, &mut *self.policy, &self.account, &self.scans, copies, self.urgency, &mut victims);
        let cpu_ns = self.push_chunk(&mut victims);
        (!victims.is_empty()).then(|| Work { cpu_ns, ..Work::default() })
    }

    fn drain(&mut self, chunk: Chunk) -> Work {
        self.write_back(chunk)
    }
}

/// See [`Machine::states`].
pub(crate) struct States<'a> {
    work: &'a Workload,
    pages: &'a mut [Page],
}

impl States<'_> {
    /// Takes a mapped page out.
    fn take_out(&mut self, page: PageNo) -> bool {
        let Some(slot) = self.work.slot(page) else { return false };
        let page = &mut self.pages[slot as usize];
        let mapped = page.is_mapped();
        if mapped {
            page.state = State::SwapCached;
            page.taken = page.taken.wrapping_add(1);
        }
        mapped
    }
}

impl PageStates for States<'_> {
    type Seen = ();

    fn look(&self, page: PageNo) -> Option<((), Residency)> {
        let page = &self.pages[self.work.slot(page)? as usize];
        Some(((), Residency { epoch: page.epoch, referenced: page.marks.has(Marks::REFERENCED) }))
    }

    fn claim(&mut self, page: PageNo) -> Claim {
        if self.take_out(page) { Claim::Ours } else { Claim::Gone }
    }

    fn claim_as_seen(&mut self, page: PageNo, (): ()) -> bool {
        self.take_out(page)
    }
}
