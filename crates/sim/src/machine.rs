//! The machine: a program, its pager and the link, in virtual time.
//!
//! ```text
//!   program ── touch ──► resident: on it goes
//!      │                 anything else: a fault (`fault`), which may wait for the link or for frames
//!      ├─ wakes ──► evictor (`reclaim`): victims into the swap cache, out over the link
//!      └─ asks  ──► read-ahead thread (`read_ahead`): windows in over the link
//! ```
//!
//! Each of the three does one thing at a time and waits for at most one request on the link; so what happens next is
//! the earliest of three times, and the order of equal times is fixed. The same trace, setup and seed give the same
//! figures.
//!
//! Policies, prefetchers and the arbiter are the runtime's own, and so are all decisions ([`hinterland_paging`]); the
//! order and the times of the threads' steps are modelled.

use crate::answers::Answers;
use crate::page::{Marks, Page, State};
use crate::prefetch_cache::PrefetchCache;
use crate::read_ahead::ReadAhead;
use crate::reclaim::{Chunk, Evictor};
use crate::replay_stats::ReplayStats;
use crate::workload::Lost;
use crate::{FaultPath, Setup, Touch, Workload};
use hinterland_backend::{Direction, Link, Priority};
use hinterland_paging::{Account, ChunkQueue, Scans, Urgency};
use hinterland_policy::{Arbiter, Arrival, EvictionPolicy, WithCurve};
use hinterland_units::{PAGE_BYTES, PageCount};
use std::collections::VecDeque;
use std::iter::Peekable;
use std::slice;

/// References between two reports of progress.
pub(crate) const REPORT_REFERENCES: usize = 1 << 20;
/// Arrivals that wait for their victims at most: more than the watermarks lie apart.
const CAUSES_MAX: usize = 1024;

/// The waiter for a request on the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Program,
    Evictor,
    ReadAhead,
}

/// See the module.
pub(crate) struct Machine<'a> {
    pub(crate) work: &'a Workload,
    pub(crate) setup: &'a Setup,
    pub(crate) policy: WithCurve,
    pub(crate) arbiter: Arbiter,
    pub(crate) account: Account,
    /// By slot.
    pub(crate) pages: Vec<Page>,
    /// By slot: when it was last prefetched.
    pub(crate) since_ns: Vec<u64>,
    /// The swap cache, oldest first.
    pub(crate) chunks: ChunkQueue<Chunk>,
    pub(crate) prefetch_cache: PrefetchCache,
    pub(crate) link: Link<Who>,
    /// Which victims follow each other.
    pub(crate) scans: Scans,
    pub(crate) evictor: Evictor,
    /// How much whoever makes the present step of reclaim needs it.
    pub(crate) urgency: Urgency,
    pub(crate) read_ahead: ReadAhead,
    /// Scattered victims leave by copy.
    pub(crate) copies: bool,
    /// Far memory takes processor time for each page; otherwise a delay.
    pub(crate) copies_cost_ram: bool,
    /// What a log says of the pages; `None`: the machine's own count.
    pub(crate) answers: Option<Answers>,
    /// The program's request on the link is done.
    program_done: bool,
    /// For each arrival that nothing has left for yet: it was prefetched. From the first reclaim on.
    causes: Option<VecDeque<bool>>,
    /// When something happens next beside the program.
    next_ns: u64,
    pub(crate) figures: ReplayStats,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(
        work: &'a Workload,
        setup: &'a Setup,
        policy: Box<dyn EvictionPolicy>,
        arbiter: Arbiter,
    ) -> Machine<'a> {
        let mut machine = Machine {
            work,
            setup,
            policy: WithCurve::new(policy),
            arbiter,
            account: Account::new(),
            pages: work.pages(),
            since_ns: vec![0; work.slots()],
            chunks: ChunkQueue::default(),
            prefetch_cache: PrefetchCache::default(),
            link: Link::new(&setup.link),
            scans: Scans::default(),
            evictor: Evictor::Idle,
            urgency: Urgency::Now,
            read_ahead: ReadAhead::default(),
            copies: setup.fault_path == FaultPath::Inline,
            copies_cost_ram: false,
            answers: None,
            program_done: false,
            causes: None,
            next_ns: u64::MAX,
            figures: ReplayStats::default(),
        };
        let bound = PageCount(setup.frames(work));
        machine.account.set_bound(bound, bound);
        machine.policy.resize(usize::try_from(bound.0).unwrap_or(usize::MAX));
        machine
    }

    /// Replays the whole trace. `progress` is told from time to time how many references are done.
    pub(crate) fn run(mut self, progress: &mut dyn FnMut(u64)) -> ReplayStats {
        let (work, mut begun) = (self.work, 0);
        let mut lost = work.lost().iter().peekable();
        for (first, number) in work.intervals() {
            begun = self.replay_to(*first as usize, begun, &mut lost, progress);
            self.arbiter.end_interval();
            self.arbiter.begin_interval(*number, true);
        }
        self.replay_to(work.touches().len(), begun, &mut lost, progress);
        // What was asked for before the program ended still comes: it costs the link, and no thread's time.
        self.run_until(u64::MAX - 1);
        self.finish()
    }

    /// Replays the touches from `begun` to `end`, and what is lost between them; returns `end`.
    fn replay_to(
        &mut self,
        end: usize,
        mut begun: usize,
        lost: &mut Peekable<slice::Iter<'_, Lost>>,
        progress: &mut dyn FnMut(u64),
    ) -> usize {
        let work = self.work;
        while let Some(lost) = lost.next_if(|lost| (lost.before as usize) < end) {
            let before = (lost.before as usize).max(begun);
            if before > begun {
                self.replay(&work.touches()[begun..before], progress);
            }
            begun = before;
            let now = work.touches()[..begun].last().map_or(0, |touch| touch.at_ns) + self.figures.stalled_ns;
            self.lose(now, lost);
        }
        self.replay(&work.touches()[begun..end], progress);
        end
    }

    /// The content of a page is given up.
    fn lose(&mut self, now: u64, lost: &Lost) {
        self.run_until(now);
        let slot = lost.slot;
        while matches!(self.pages[slot as usize].state, State::Fetching | State::WritingBack) {
            self.step();
        }
        let page = &mut self.pages[slot as usize];
        if page.state == State::Untouched || page.is_mapped() && !lost.takes_frame {
            return;
        }
        let (state, was_mapped) = (page.state, page.is_mapped());
        (page.state, page.marks) = (State::Untouched, Marks::default());
        if was_mapped {
            self.account.uncharge(1);
        }
        // The frame of a page that waits is free when its place is needed or found empty.
        if state == State::PrefetchCached {
            self.prefetch_cache.forget(slot);
        }
        self.policy.forgotten(self.work.page(slot));
    }

    fn replay(&mut self, touches: &[Touch], progress: &mut dyn FnMut(u64)) {
        for touches in touches.chunks(REPORT_REFERENCES) {
            for touch in touches {
                let now = touch.at_ns + self.figures.stalled_ns;
                if now >= self.next_ns {
                    self.run_until(now);
                }
                if self.pages[touch.slot as usize].state != State::Resident {
                    self.touch(*touch, now);
                }
                self.pages[touch.slot as usize].note_use(touch.written);
            }
            self.figures.references += touches.len() as u64;
            progress(self.figures.references);
        }
    }

    fn finish(mut self) -> ReplayStats {
        let mut figures = self.figures;
        let faults = figures.first + figures.minor + figures.prefetch_hits + figures.awaited + figures.major;
        figures.resident = figures.references - faults;
        figures.link_bytes = self.link.bytes();
        figures.blocks = self.arbiter.block_statistics();
        (figures.features, figures.loads) = (self.arbiter.features(), self.policy.take_loads());
        figures.cpu_ns = self.work.cpu_ns();
        figures
    }

    /// A touch of a page that is not `Resident`.
    #[cold]
    fn touch(&mut self, touch: Touch, now: u64) {
        let resumes = self.fault(touch, now);
        self.figures.stalled_ns += resumes - now;
        self.figures.local_peak = self.figures.local_peak.max(self.account.local().0);
        self.wake_evictor(resumes);
        self.schedule();
    }

    /// Lets happen what happens up to a moment.
    #[cold]
    pub(crate) fn run_until(&mut self, until_ns: u64) {
        self.schedule();
        while self.next_ns <= until_ns {
            self.step();
        }
    }

    /// Lets the next thing happen, which exists; returns when.
    pub(crate) fn step(&mut self) -> u64 {
        let now = self.next_ns;
        assert_ne!(now, u64::MAX, "somebody waits and nothing is going to happen");
        if self.link.next_ns() == now {
            match self.link.step() {
                Some(Who::Program) => self.program_done = true,
                Some(Who::Evictor) => self.evictor_stored(now),
                Some(Who::ReadAhead) => self.read_ahead_done(now),
                None => {}
            }
        } else if self.evictor.wakes_ns() == now {
            self.evictor_goes_on(now);
        } else {
            self.read_ahead_goes_on(now);
        }
        self.schedule();
        now
    }

    fn schedule(&mut self) {
        self.next_ns = self.link.next_ns().min(self.evictor.wakes_ns()).min(self.read_ahead.wakes_ns());
    }

    /// Whether anything is going to happen beside the program.
    pub(crate) fn has_events(&mut self) -> bool {
        self.schedule();
        self.next_ns != u64::MAX
    }

    /// Asks the link to carry pages: what is written back goes out, all else comes in.
    pub(crate) fn send(&mut self, now: u64, who: Who, pages: u32, priority: Priority) {
        let direction = if priority == Priority::WriteBack { Direction::Out } else { Direction::In };
        self.link.submit(now, who, direction, u64::from(pages) * PAGE_BYTES as u64, priority);
    }

    /// The program waits for pages on the link; returns when they are done.
    pub(crate) fn carry(&mut self, now: u64, pages: u32, priority: Priority) -> u64 {
        self.send(now, Who::Program, pages, priority);
        self.program_done = false;
        self.schedule();
        let mut at = now;
        while !self.program_done {
            at = self.step();
        }
        at
    }

    /// Pages have become resident, together; returns their epoch.
    pub(crate) fn arrive(&mut self, slots: &[u32], how: Arrival, state: State) -> u8 {
        let epoch = self.account.arrive(slots.len() as u64);
        slots.iter().for_each(|slot| self.arrive_in(epoch, *slot, how, state));
        epoch
    }

    fn arrive_in(&mut self, epoch: u8, slot: u32, how: Arrival, state: State) {
        let page = &mut self.pages[slot as usize];
        assert!(!page.is_mapped(), "the page in slot {slot} arrives twice");
        (page.state, page.epoch) = (state, epoch);
        page.marks.set(Marks::REFERENCED, how == Arrival::SwapCacheHit);
        page.marks.set(Marks::DISPLACED, false);
        self.policy.arrived(self.work.page(slot), how);
        if let Some(causes) = &mut self.causes {
            if causes.len() == CAUSES_MAX {
                causes.pop_front();
            }
            causes.push_back(matches!(how, Arrival::Prefetched | Arrival::Hinted));
        }
    }

    /// Why a page that leaves now has to: for a prefetched page?
    pub(crate) fn next_cause(&mut self) -> bool {
        self.causes.get_or_insert_default().pop_front().unwrap_or(false)
    }
}
