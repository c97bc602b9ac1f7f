//! Reclaim: victims leave in chunks, age in the swap cache, and are written back. Which, and when, [`hinterland_paging`] decides, as
//! for the pager.

use crate::Workload;
use crate::answers::Answers;
use crate::machine::{Machine, Who};
use crate::page::{Marks, Page, State};
use hinterland_backend::Priority;
use hinterland_paging::{
    CHUNK_SLOTS, Claim, Oldest, PageStates, ReclaimBody, Residency, Urgency, Way, choose_victims, claim_given_up,
    evicts, reclaim_step, runs_of_victims, ways,
};
use hinterland_policy::EvictionPolicy;
use hinterland_units::PageNo;

/// Victims that left together.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Tells it from others that are queued.
    pub(crate) number: u32,
    /// Slots of the trace, and how often the page had been taken out by then.
    places: Vec<(u32, u32)>,
}

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
        if matches!(self.evictor, Evictor::Idle) && self.evicts(false) {
            self.evictor = Evictor::Working { until_ns: now, work: Work::default() };
        }
    }

    fn evicts(&self, has_begun: bool) -> bool {
        evicts(has_begun, || self.account.above_low(), || self.account.above_high())
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
        if self.evicts(true)
            && let Some(work) = self.reclaim_step(Urgency::Ahead)
        {
            self.evictor = Evictor::Working { until_ns: now + work.cpu_ns, work };
        }
    }

    /// One step towards free frames. `None`: nothing can leave. Whoever made the step takes the time, carries what is dirty, and then
    /// calls [`Machine::complete`].
    pub(crate) fn reclaim_step(&mut self, urgency: Urgency) -> Option<Work> {
        self.urgency = urgency;
        reclaim_step(self)
    }

    /// Chooses a chunk of victims and takes them out.
    pub(crate) fn choose_victims(&mut self) -> Vec<PageNo> {
        let mut victims = Vec::with_capacity(CHUNK_SLOTS as usize);
        let mut states = States { work: self.work, pages: &mut self.pages, answers: &mut self.answers };
        let (policy, account, scans) = (&mut self.policy, &self.account, &self.scans);
        choose_victims(&mut states, policy, account, scans, self.copies, self.urgency, &mut victims);
        victims
    }

    /// Takes those of `pages` out that can be, which the program has given up.
    pub(crate) fn claim_given_up(&mut self, pages: &[PageNo]) -> Vec<PageNo> {
        let (mut states, policy) = self.states();
        let mut victims = pages.to_vec();
        claim_given_up(&mut states, &mut victims);
        victims.iter().for_each(|victim| policy.evicted_out_of_turn(*victim));
        victims
    }

    /// The pages as the choice of victims sees them, and the policy.
    pub(crate) fn states(&mut self) -> (States<'_>, &mut dyn EvictionPolicy) {
        (States { work: self.work, pages: &mut self.pages, answers: &mut self.answers }, &mut self.policy)
    }

    /// Puts victims into new chunks of the swap cache: those that leave by copy into one, the others into the next. Returns the processor
    /// time of taking them out.
    pub(crate) fn push_chunks(&mut self, victims: &mut [PageNo]) -> u64 {
        let chunks = chunks_of(victims, self.copies);
        let (runs, costs) = (runs_of_victims(victims).count() as u64, &self.setup.costs);
        let cpu_ns = runs * costs.move_run_ns + victims.len() as u64 * costs.move_page_ns;
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            self.queue_chunk(0, chunk);
        }
        cpu_ns
    }

    /// Queues a chunk of the swap cache.
    pub(crate) fn queue_chunk(&mut self, number: u32, victims: &[PageNo]) {
        let slots = victims.iter().filter_map(|page| self.work.slot(*page));
        let places = slots.map(|slot| (slot, self.pages[slot as usize].taken)).collect();
        self.chunks.push(Chunk { number, places });
    }

    /// Sends on its way what is still in a chunk. Clean pages and zeros leave at once.
    fn write_back(&mut self, Chunk { places, .. }: Chunk) -> Work {
        let frames = places.len() as u64;
        let (mut dirty, mut others) = (Vec::new(), Vec::new());
        for (slot, taken) in places {
            let page = self.pages[slot as usize];
            if page.state != State::SwapCached || page.taken != taken {
                continue;
            }
            let displaced = self.next_cause();
            let (is_dirty, is_zero) = (page.is_dirty(self.setup, slot), page.is_zero());
            let page = &mut self.pages[slot as usize];
            page.marks.set(Marks::PREFETCHED, false);
            page.marks.set(Marks::DISPLACED, displaced);
            page.stored();
            if is_zero {
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

    fn take_oldest(&mut self, which: Oldest) -> Option<Chunk> {
        self.chunks.take(which, self.account.swap_cache())
    }

    fn fill(&mut self) -> Option<Work> {
        let mut victims = self.choose_victims();
        let cpu_ns = self.push_chunks(&mut victims);
        (!victims.is_empty()).then(|| Work { cpu_ns, ..Work::default() })
    }

    fn drain(&mut self, chunk: Chunk) -> Work {
        self.write_back(chunk)
    }
}

/// The chunks in which victims leave, in order of address: those that are copied, and those that are moved.
pub(crate) fn chunks_of(victims: &mut [PageNo], copies: bool) -> [Vec<PageNo>; 2] {
    victims.sort_unstable();
    let mut chunks = [Vec::new(), Vec::new()];
    for (block, way) in ways(victims, copies) {
        chunks[usize::from(way == Way::Move)].extend(block);
    }
    chunks
}

/// See [`Machine::states`].
pub(crate) struct States<'a> {
    work: &'a Workload,
    pages: &'a mut [Page],
    answers: &'a mut Option<Answers>,
}

impl States<'_> {
    fn page(&mut self, page: PageNo) -> Option<&mut Page> {
        self.work.slot(page).map(|slot| &mut self.pages[slot as usize]).filter(|page| page.is_mapped())
    }

    /// Takes a page out, if it is mapped.
    fn take_out(&mut self, page: PageNo) -> bool {
        let Some(page) = self.page(page) else { return false };
        page.state = State::SwapCached;
        page.taken = page.taken.wrapping_add(1);
        true
    }

    /// A log tells more of a page than that it is not mapped here.
    fn contradicts(&mut self, is_claimed: bool) {
        self.answers.iter_mut().for_each(|answers| answers.in_vain |= is_claimed);
    }
}

impl PageStates for States<'_> {
    type Seen = ();

    fn look(&mut self, page: PageNo) -> Option<((), Residency)> {
        let is_resident = self.answers.as_mut().is_none_or(Answers::is_so);
        let seen = self.page(page).filter(|_| is_resident).map(|page| *page);
        self.contradicts(is_resident && seen.is_none());
        seen.map(|page| ((), Residency { epoch: page.epoch, referenced: page.marks.has(Marks::REFERENCED) }))
    }

    fn claim(&mut self, page: PageNo) -> Claim {
        let answer = self.answers.as_mut().map_or(Claim::Ours, Answers::claim);
        if answer != Claim::Ours {
            return answer;
        }
        let is_ours = self.take_out(page);
        self.contradicts(!is_ours);
        if is_ours { Claim::Ours } else { Claim::Gone }
    }

    fn claim_as_seen(&mut self, page: PageNo, (): ()) -> bool {
        let can_be = self.answers.as_mut().is_none_or(Answers::is_so);
        let is_ours = can_be && self.take_out(page);
        self.contradicts(can_be && !is_ours);
        is_ours
    }
}
