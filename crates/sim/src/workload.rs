//! What is replayed: a program's touches, in order, in a form that the replay runs over fast.
//!
//! ```text
//!   thread, region, page, CPU time ──► slot: 512 to a chunk, chunks in order of appearance   (tables stay as small as what is touched)
//!                                 └──► page number: regions side by side, a gap between them  (policies see the neighbourhood)
//! ```
//!
//! The program's clock is the processor time of all its threads added up, in the order of the trace: as on one processor.

use crate::page::{Marks, Page, State};
use hinterland_tape::{Discard, Entry, Reference, Slots, Written};
use hinterland_units::{PAGE_BYTES, PageNo};

const CHUNK_PAGES: u32 = Slots::CHUNK_PAGES;
/// Nanoseconds of processor time at most, 146 years: stalls are added, and moments stay below 2^64.
const CPU_NS_MAX: u64 = 1 << 62;
/// Chunks at most: page numbers have 32 bits.
const CHUNKS_MAX: usize = 1 << 23;

/// Faults cost up to this much more or less than those by which the tracer corrects its clock (docs/tape.md).
pub const FAULT_ERROR_NS: u64 = 400;

/// One touch of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// When, in nanoseconds of the program's processor time.
    pub at_ns: u64,
    /// Which page, by slot.
    pub slot: u32,
    /// Which thread.
    pub thread: u32,
    /// The page was written to before it was unmapped; `None`: the trace does not tell.
    pub written: Option<bool>,
}

/// The content of a page is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost {
    /// Before which touch.
    pub(crate) before: u32,
    /// Of which page, by slot.
    pub(crate) slot: u32,
    /// A local page gives up its content and its frame, too.
    pub(crate) takes_frame: bool,
}

/// Why references cannot be replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkloadError {
    /// Not one.
    #[error("there is no reference to replay")]
    Empty,
    /// The regions' touched parts do not fit into one range of page numbers.
    #[error("the touched regions span {pages} pages, more than the {max} that can be simulated", max = CHUNKS_MAX * CHUNK_PAGES as usize)]
    TooWide {
        /// Pages from the first to the last touched one, regions added up.
        pages: u64,
    },
    /// More than 2^32 − 2 references.
    #[error("there are more than {max} references; cut the trace", max = u32::MAX - 1)]
    TooLong,
    /// More than 2^62 ns.
    #[error("its processor times add up to more than {max} seconds, which no program takes", max = CPU_NS_MAX / 1_000_000_000)]
    TooLate,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Workload {
    touches: Vec<Touch>,
    /// By chunk: the number of its first page.
    first_pages: Vec<u32>,
    /// By page number / 512: its chunk plus one; 0: nothing there is touched.
    chunks: Vec<u32>,
    /// By slot: the page is touched at some time.
    touched: Vec<bool>,
    touched_pages: u64,
    slots: Slots,
    /// First touch and number of each interval.
    intervals: Vec<(u32, u32)>,
    lost: Vec<Lost>,
    /// Slots of pages that the program had when it began.
    inherited: Vec<u32>,
}

impl Workload {
    /// Pages that keep their numbers, and no touches of them: something else says what becomes of them.
    pub(crate) fn of_pages(pages: impl IntoIterator<Item = PageNo>) -> Workload {
        let (mut chunks, mut first_pages, mut touched): (Vec<u32>, Vec<u32>, Vec<bool>) = Default::default();
        for page in pages {
            let at = (page.0 / CHUNK_PAGES) as usize;
            chunks.resize(chunks.len().max(at + 1), 0);
            if chunks[at] == 0 {
                first_pages.push(page.0 / CHUNK_PAGES * CHUNK_PAGES);
                chunks[at] = u32::try_from(first_pages.len()).unwrap_or(u32::MAX);
                touched.resize(first_pages.len() * CHUNK_PAGES as usize, false);
            }
            touched[((chunks[at] - 1) * CHUNK_PAGES + page.0 % CHUNK_PAGES) as usize] = true;
        }
        let touched_pages = touched.iter().filter(|touched| **touched).count() as u64;
        Workload {
            touches: Vec::new(),
            first_pages,
            chunks,
            touched,
            touched_pages,
            slots: Slots::default(),
            intervals: Vec::new(),
            lost: Vec::new(),
            inherited: Vec::new(),
        }
    }

    /// The pages as they are at first: a forked child's are far where it has them of its parent, all others have no content.
    pub(crate) fn pages(&self) -> Vec<Page> {
        let mut pages = vec![Page::default(); self.slots()];
        for slot in &self.inherited {
            let page = &mut pages[*slot as usize];
            page.state = State::Remote;
            page.marks.set(Marks::COPIED, true);
        }
        pages
    }

    /// The program's intervals: index of the first touch, and number.
    pub(crate) fn intervals(&self) -> &[(u32, u32)] {
        &self.intervals
    }

    /// What loses its content, in order.
    pub(crate) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The touches.
    pub fn touches(&self) -> &[Touch] {
        &self.touches
    }

    /// Different pages that are touched.
    pub fn touched_pages(&self) -> u64 {
        self.touched_pages
    }

    /// Bytes of them.
    pub fn touched_bytes(&self) -> u64 {
        self.touched_pages * PAGE_BYTES as u64
    }

    /// Processor time of the whole.
    pub fn cpu_ns(&self) -> u64 {
        self.touches.last().map_or(0, |touch| touch.at_ns)
    }

    /// The processor time of a traced program may be wrong by more than a quarter: each reference was a fault whose cost was taken off.
    pub fn has_uncertain_times(&self) -> bool {
        self.touches.len() as u64 * FAULT_ERROR_NS > self.cpu_ns() / 4
    }

    /// The same with so much processor time, which the program takes untraced. What is missing in the trace is given to all references alike, because
    /// too much was taken off for each; of what is too much each has its part.
    ///
    /// # Errors
    /// [`WorkloadError::TooLate`].
    pub fn taking(mut self, cpu_ns: u64) -> Result<Workload, WorkloadError> {
        if cpu_ns > CPU_NS_MAX {
            return Err(WorkloadError::TooLate);
        }
        let (traced_ns, touches) = (u128::from(self.cpu_ns()), self.touches.len() as u128);
        let wanted_ns = u128::from(cpu_ns);
        for (number, touch) in (1..).zip(&mut self.touches) {
            let at_ns = u128::from(touch.at_ns);
            let at_ns = match wanted_ns.checked_sub(traced_ns) {
                Some(missing_ns) => at_ns + missing_ns * number / touches,
                None => at_ns * wanted_ns / traced_ns,
            };
            touch.at_ns = u64::try_from(at_ns).unwrap_or(u64::MAX);
        }
        Ok(self)
    }

    /// Slots: whole chunks.
    pub(crate) fn slots(&self) -> usize {
        self.touched.len()
    }

    /// The slot of a page of a region; `None` if it is never touched.
    pub(crate) fn slot_of(&self, region: u32, page: u32) -> Option<u32> {
        self.slots.find(region, page).filter(|slot| self.touched[*slot as usize])
    }

    /// The number by which policies know the page in a slot.
    #[inline]
    pub(crate) fn page(&self, slot: u32) -> PageNo {
        PageNo(self.first_pages[(slot / CHUNK_PAGES) as usize] + slot % CHUNK_PAGES)
    }

    /// The slot of a page that is touched at some time; `None` for all others, which the program does not have.
    #[inline]
    pub(crate) fn slot(&self, page: PageNo) -> Option<u32> {
        let chunk = self.chunks.get((page.0 / CHUNK_PAGES) as usize)?.checked_sub(1)?;
        let slot = chunk * CHUNK_PAGES + page.0 % CHUNK_PAGES;
        self.touched[slot as usize].then_some(slot)
    }
}

/// Collects references into a [`Workload`].
#[derive(Clone, Debug, Default)]
pub struct Collector {
    /// Processor time between two references; `None`: the references tell.
    fixed_ns: Option<u64>,
    touches: Vec<Touch>,
    slots: Slots,
    touched: Vec<bool>,
    touched_pages: u64,
    /// Processor time of each thread.
    threads: Vec<u64>,
    now_ns: u64,
    intervals: Vec<(u32, u32)>,
    lost: Vec<Lost>,
    /// The program was forked, and what it touches may have content already.
    is_forked: bool,
    inherited: Vec<u32>,
}

impl Collector {
    /// `fixed_ns`: processor time from each reference to the next, for traces that carry none.
    pub fn new(fixed_ns: Option<u64>) -> Collector {
        Collector { fixed_ns, ..Collector::default() }
    }

    /// The same of a program that went on in its parent's at a fork, if it `is_forked`: references that are no first ones are then of pages that it has.
    pub fn forked(self, is_forked: bool) -> Collector {
        Collector { is_forked, ..self }
    }

    /// Adds what a trace says next.
    ///
    /// # Errors
    /// [`WorkloadError::TooLong`], [`WorkloadError::TooLate`].
    pub fn entry(&mut self, entry: &Entry<'_>) -> Result<(), WorkloadError> {
        match entry {
            Entry::Touch(Reference { thread, region, page, cpu_ns, interval, is_first, .. }) => {
                self.enter_interval(*interval);
                let pages = self.touched_pages;
                self.push(*thread, *region, *page, *cpu_ns)?;
                if self.is_forked && !is_first && self.touched_pages > pages {
                    self.inherited.extend(self.touches.last().map(|touch| touch.slot));
                }
            }
            Entry::Discard(discard) => self.discard(discard),
            Entry::MicrosetEnd { references, written } => self.write(*references, *written),
        }
        Ok(())
    }

    /// Pages that are not touched before lose nothing.
    fn discard(&mut self, discard: &Discard) {
        let (before, takes_frame) = (self.position(), discard.cause.takes_frames());
        let found = discard.each().filter_map(|page| self.slots.find(discard.region, page));
        let touched = found.filter(|slot| self.touched.get(*slot as usize).is_some_and(|touched| *touched));
        self.lost.extend(touched.map(|slot| Lost { before, slot, takes_frame }));
    }

    /// The microset is whole: of its last `references`, which were written to.
    fn write(&mut self, references: u64, written: Written<'_>) {
        let first = usize::try_from(references).ok().and_then(|references| self.touches.len().checked_sub(references));
        // Fewer: some were lost, and which ones the bits are of is not known.
        let Some(first) = first.filter(|_| written != Written::Unknown) else { return };
        for (index, touch) in (0..).zip(&mut self.touches[first..]) {
            touch.written = written.get(index);
        }
    }

    fn position(&self) -> u32 {
        u32::try_from(self.touches.len()).unwrap_or(u32::MAX)
    }

    /// Adds a reference: `thread`, which had taken `cpu_ns` of processor time, touched `page` of `region`.
    ///
    /// # Errors
    /// [`WorkloadError::TooLong`], [`WorkloadError::TooLate`].
    pub fn push(&mut self, thread: u32, region: u32, page: u32, cpu_ns: u64) -> Result<(), WorkloadError> {
        if self.touches.len() >= u32::MAX as usize - 1 {
            return Err(WorkloadError::TooLong);
        }
        let passed_ns = match self.fixed_ns {
            Some(ns) => ns,
            None => self.passed(thread, cpu_ns),
        };
        let now_ns = self.now_ns.checked_add(passed_ns).filter(|now| *now <= CPU_NS_MAX);
        self.now_ns = now_ns.ok_or(WorkloadError::TooLate)?;
        let slot = self.slots.slot(region, page);
        self.touched.resize(self.slots.count(), false);
        if !std::mem::replace(&mut self.touched[slot as usize], true) {
            self.touched_pages += 1;
        }
        self.touches.push(Touch { at_ns: self.now_ns, slot, thread, written: None });
        Ok(())
    }

    /// The references to come are of this interval of the program.
    fn enter_interval(&mut self, number: u32) {
        if self.intervals.last().map_or(0, |(_, last)| *last) != number {
            self.intervals.push((self.position(), number));
        }
    }

    /// Processor time of a thread since its last reference.
    fn passed(&mut self, thread: u32, cpu_ns: u64) -> u64 {
        let index = thread as usize;
        if index >= self.threads.len() {
            self.threads.resize(index + 1, 0);
        }
        let before = std::mem::replace(&mut self.threads[index], cpu_ns);
        cpu_ns.saturating_sub(before)
    }

    /// The workload.
    ///
    /// # Errors
    /// Nothing was collected, or it spans too many pages.
    pub fn finish(self) -> Result<Workload, WorkloadError> {
        if self.touches.is_empty() {
            return Err(WorkloadError::Empty);
        }
        let mut chunks: Vec<u32> = Vec::new();
        let mut span: usize = 0;
        for region in self.slots.chunks() {
            let begins = region.iter().position(|chunk| *chunk != 0);
            let Some(begins) = begins else { continue };
            // A gap, so that no stream runs from one region into the next.
            span += region.len() - begins + 1;
            if span <= CHUNKS_MAX {
                chunks.extend_from_slice(&region[begins..]);
                chunks.push(0);
            }
        }
        if span > CHUNKS_MAX {
            return Err(WorkloadError::TooWide { pages: span as u64 * u64::from(CHUNK_PAGES) });
        }
        let mut first_pages = vec![0; self.touched.len() / CHUNK_PAGES as usize];
        for (first, chunk) in (0..).step_by(CHUNK_PAGES as usize).zip(&chunks) {
            if let Some(chunk) = chunk.checked_sub(1) {
                first_pages[chunk as usize] = first;
            }
        }
        let Collector { touches, touched, touched_pages, slots, intervals, lost, inherited, .. } = self;
        Ok(Workload { touches, first_pages, chunks, touched, touched_pages, slots, intervals, lost, inherited })
    }
}

/// Touches of the pages of one region by one thread, `fixed_ns` apart.
///
/// # Errors
/// As [`Collector`]'s.
pub fn pages_in_order(pages: impl IntoIterator<Item = u32>, fixed_ns: u64) -> Result<Workload, WorkloadError> {
    let mut collector = Collector::new(Some(fixed_ns));
    pages.into_iter().try_for_each(|page| collector.push(0, 0, page, 0))?;
    collector.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_slots_name_each_other_and_regions_do_not_touch() {
        let mut collector = Collector::new(Some(1));
        let places = [(1, 5), (0, 1_000_000), (1, 6), (0, 1_000_511), (0, 1_000_600), (1, 4_000_000_000)];
        for (region, page) in places {
            collector.push(0, region, page, 0).unwrap();
        }
        let work = collector.finish().unwrap();
        assert_eq!(work.touched_pages(), 6);
        let pages: Vec<u32> = work.touches().iter().map(|touch| work.page(touch.slot).0).collect();
        for (touch, page) in work.touches().iter().zip(&pages) {
            assert_eq!(work.slot(PageNo(*page)), Some(touch.slot));
        }
        assert_eq!(pages[2] - pages[0], 1, "neighbours stay neighbours");
        assert_eq!((pages[3] - pages[1], pages[4] - pages[1]), (511, 600));
        assert!(pages[0] - pages[4] > CHUNK_PAGES, "a gap between the regions");
        assert_eq!(work.slot(PageNo(pages[0] + 2)), None, "never touched");
        assert_eq!(work.slot(PageNo(u32::MAX)), None);
    }

    #[test]
    fn the_clock_is_the_processor_time_of_all_threads() {
        let mut collector = Collector::new(None);
        for (thread, cpu_ns) in [(0, 100), (1, 10), (0, 150), (1, 30), (1, 25)] {
            collector.push(thread, 0, 7, cpu_ns).unwrap();
        }
        let work = collector.finish().unwrap();
        let times: Vec<u64> = work.touches().iter().map(|touch| touch.at_ns).collect();
        assert_eq!(times, [100, 110, 160, 180, 180], "a clock that runs backwards stands");
    }

    #[test]
    fn a_workload_takes_the_time_that_its_program_takes_untraced() {
        let times = |work: Workload| work.touches().iter().map(|touch| touch.at_ns).collect::<Vec<_>>();
        let work = || {
            let mut collector = Collector::new(None);
            for cpu_ns in [10, 10, 2_000, 2_020] {
                collector.push(0, 0, 7, cpu_ns).unwrap();
            }
            collector.finish().unwrap()
        };
        assert_eq!(times(work().taking(2_420).unwrap()), [110, 210, 2_300, 2_420], "all were too short by the same");
        assert_eq!(times(work().taking(1_010).unwrap()), [5, 5, 1_000, 1_010]);
        assert_eq!(times(work().taking(2_020).unwrap()), times(work()));
        assert_eq!(times(pages_in_order([1, 2], 0).unwrap().taking(10).unwrap()), [5, 10]);
        assert_eq!(work().taking(u64::MAX).unwrap_err(), WorkloadError::TooLate);
    }

    #[test]
    fn times_are_uncertain_where_faults_decide_them() {
        for (ns, is_uncertain) in [(0, true), (11, true), (1_599, true), (1_600, false), (20_000, false)] {
            let work = pages_in_order(0..100, ns).unwrap();
            assert_eq!(work.has_uncertain_times(), is_uncertain, "{ns} ns a reference");
        }
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert_eq!(Collector::new(None).finish().unwrap_err(), WorkloadError::Empty);
        let mut collector = Collector::new(Some(1));
        for region in 0..2 {
            collector.push(0, region, 0, 0).unwrap();
            collector.push(0, region, u32::MAX, 0).unwrap();
        }
        assert!(matches!(collector.finish(), Err(WorkloadError::TooWide { .. })));
    }

    #[test]
    fn a_forked_child_has_pages_that_are_no_first_touches() {
        let of = |is_forked: bool| {
            let mut collector = Collector::new(None).forked(is_forked);
            for (page, is_first) in [(3, false), (4, true), (3, false), (4, false)] {
                collector.entry(&Entry::Touch(Reference { page, is_first, ..Reference::default() })).unwrap();
            }
            collector.finish().unwrap().pages()[3..5].iter().map(|page| page.state).collect::<Vec<_>>()
        };
        assert_eq!(of(true), [State::Remote, State::Untouched]);
        assert_eq!(of(false), [State::Untouched; 2]);
    }

    #[test]
    fn times_that_no_program_takes_are_refused() {
        assert_eq!(Collector::new(Some(u64::MAX)).push(0, 0, 0, 0), Err(WorkloadError::TooLate));
        let mut collector = Collector::new(None);
        collector.push(0, 0, 0, CPU_NS_MAX).unwrap();
        assert_eq!(collector.push(1, 0, 0, CPU_NS_MAX), Err(WorkloadError::TooLate));
    }
}
