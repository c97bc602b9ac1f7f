//! Reclaim, as the pager's `reclaim.rs`: victims leave in batches, age in the swap cache, and are written back.

use crate::FaultPath;
use crate::machine::{Machine, Who};
use crate::page::{Marks, State};
use hinterland_backend::Priority;
use hinterland_pager::rules::{CHUNK_SLOTS, COPY_CLUSTER, EvictionCluster, MOVE_CLUSTER};
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
                self.link.submit(now, Who::Evictor, work.dirty_pages, Priority::WriteBack);
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
            && let Some(work) = self.reclaim_step()
        {
            self.evictor = Evictor::Working { until_ns: now + work.cpu_ns, work };
        }
    }

    /// One step towards free frames: drains the oldest chunk when the swap cache is large enough, otherwise fills one. `None`:
    /// nothing can leave. Whoever made the step takes the time, carries what is dirty, and then calls [`Machine::complete`].
    pub(crate) fn reclaim_step(&mut self) -> Option<Work> {
        let keep = self.account.swap_cache().0 / u64::from(CHUNK_SLOTS);
        if self.chunks.len() as u64 > keep {
            return self.chunks.pop_front().map(|chunk| self.drain(chunk));
        }
        self.fill().or_else(|| self.chunks.pop_front().map(|chunk| self.drain(chunk)))
    }

    /// Takes a batch of victims out of the program.
    fn fill(&mut self) -> Option<Work> {
        let mut victims = self.claim_victims();
        if victims.is_empty() {
            return None;
        }
        victims.sort_unstable();
        let runs = 1 + victims.windows(2).filter(|pair| pair[1].0 != pair[0].0 + 1).count() as u64;
        let costs = &self.setup.costs;
        let cpu_ns = runs * costs.move_run_ns + victims.len() as u64 * costs.move_page_ns;
        let slots = victims.iter().filter_map(|page| self.work.slot(*page));
        self.chunks.push_back(Chunk(slots.map(|slot| (slot, self.pages[slot as usize].taken)).collect()));
        Some(Work { cpu_ns, ..Work::default() })
    }

    /// The victims that the policy names, and their neighbours that are about as cold.
    fn claim_victims(&mut self) -> Vec<PageNo> {
        let mut victims = Vec::with_capacity(CHUNK_SLOTS as usize);
        let copies = self.setup.fault_path == FaultPath::Inline;
        let at_a_time = if copies { COPY_CLUSTER.victims } else { MOVE_CLUSTER.victims };
        let mut named = Vec::with_capacity(at_a_time);
        while victims.len() < CHUNK_SLOTS as usize {
            named.clear();
            self.policy.victims(at_a_time.min(CHUNK_SLOTS as usize - victims.len()), &mut named);
            let Some(first) = named.first() else { break };
            let scattered = copies && !self.scans.goes_on_at(*first);
            let cluster = if scattered { COPY_CLUSTER } else { MOVE_CLUSTER };
            for page in &named {
                let slot = self.work.slot(*page).unwrap_or_else(|| panic!("{page} is no page of the program"));
                assert!(self.pages[slot as usize].is_mapped(), "{page} is a victim and not resident");
                self.take_out(slot);
                victims.push(*page);
            }
            for page in &named {
                self.claim_neighbours(*page, &cluster, &mut victims);
            }
        }
        victims
    }

    /// Adds the neighbours of a victim that have been resident for a while without being referenced (decisions 0009, 0034).
    fn claim_neighbours(&mut self, victim: PageNo, cluster: &EvictionCluster, victims: &mut Vec<PageNo>) {
        let now = self.account.epoch();
        let first = victim.0 / cluster.pages * cluster.pages;
        for page in (first..first + cluster.pages).map(PageNo) {
            if victims.len() == CHUNK_SLOTS as usize {
                return;
            }
            let Some(slot) = self.work.slot(page) else { continue };
            let known = &self.pages[slot as usize];
            let cold = !known.marks.has(Marks::REFERENCED) && now.wrapping_sub(known.epoch) >= cluster.cold_epochs;
            if known.is_mapped() && cold {
                self.policy.left_early(page);
                self.take_out(slot);
                victims.push(page);
            }
        }
    }

    fn take_out(&mut self, slot: u32) {
        let page = &mut self.pages[slot as usize];
        page.state = State::SwapCached;
        page.taken = page.taken.wrapping_add(1);
    }

    /// Sends on its way what is still in a chunk. Clean pages and zeros leave at once.
    fn drain(&mut self, Chunk(places): Chunk) -> Work {
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
                self.count_content(1, true);
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
