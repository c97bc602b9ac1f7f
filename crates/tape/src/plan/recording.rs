//! The first pass over a trace: which pages each thread touches, and when it touches each of them again.

use super::PlanError;
use super::microset_references::{self, Clock, Receiver, Step, Walked};
use crate::{Cause, Region, Slots, Trace};
use hinterland_policy::NextUses;

/// The slots of one thread: those of the program, in the thread's own order of appearance, so that its tables are as large as what it
/// touches.
#[derive(Clone, Debug, Default)]
pub struct OwnSlots {
    /// By chunk of the program's slots: the thread's plus one; 0: none.
    chunks: Vec<u32>,
    /// By chunk of the thread's.
    places: Vec<u32>,
}

impl OwnSlots {
    /// The thread's slot for one of the program's.
    #[inline]
    pub fn slot(&mut self, slot: u32) -> u32 {
        let chunk = (slot / Slots::CHUNK_PAGES) as usize;
        if chunk >= self.chunks.len() {
            self.chunks.resize(chunk + 1, 0);
        }
        if self.chunks[chunk] == 0 {
            self.places.push(slot / Slots::CHUNK_PAGES);
            self.chunks[chunk] = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        }
        (self.chunks[chunk] - 1) * Slots::CHUNK_PAGES + slot % Slots::CHUNK_PAGES
    }

    /// The thread's slot for one of the program's that it has.
    #[inline]
    pub fn find(&self, slot: u32) -> u32 {
        let chunk = self.chunks[(slot / Slots::CHUNK_PAGES) as usize] - 1;
        chunk * Slots::CHUNK_PAGES + slot % Slots::CHUNK_PAGES
    }

    /// The thread's slot for one of the program's, if its chunk has any.
    pub fn look(&self, slot: u32) -> Option<u32> {
        let chunk = self.chunks.get((slot / Slots::CHUNK_PAGES) as usize)?.checked_sub(1)?;
        Some(chunk * Slots::CHUNK_PAGES + slot % Slots::CHUNK_PAGES)
    }

    /// The program's slot for one of the thread's.
    #[inline]
    pub fn global(&self, slot: u32) -> u32 {
        self.places[(slot / Slots::CHUNK_PAGES) as usize] * Slots::CHUNK_PAGES + slot % Slots::CHUNK_PAGES
    }

    /// Slots: whole chunks.
    pub fn count(&self) -> usize {
        self.places.len() * Slots::CHUNK_PAGES as usize
    }
}

/// What one thread does.
#[derive(Clone, Debug, Default)]
pub struct RecordedThread {
    pub own: OwnSlots,
    pub uses: NextUses,
    /// Different pages.
    pub pages: u64,
    /// Processor time at its last reference.
    pub cpu_ns: u64,
}

/// A trace, read once: all that planning for any size needs beside the trace itself. It has four bytes for each reference, and some for
/// each page.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub(super) slots: Slots,
    pub(super) threads: Vec<RecordedThread>,
    pub(super) clock: Clock,
    walked: Walked,
    has_times: bool,
}

impl Recording {
    /// Reads a trace. `clock`: what its times are; where it has none, none but those that are given are there.
    ///
    /// # Errors
    /// The trace is damaged, has no references, or too many.
    pub fn read(trace: &Trace<'_>, clock: impl Into<Clock>) -> Result<Recording, PlanError> {
        let clock = clock.into();
        let has_times = clock != Clock::Traced || trace.head().has_cpu_times;
        let clock = if has_times { clock } else { Clock::Fixed(0) };
        let mut recording = Recording { clock, has_times, ..Recording::default() };
        recording.walked = microset_references::walk(trace, clock, &mut recording)?;
        if recording.walked.references == 0 {
            return Err(PlanError::Empty);
        }
        recording.threads.iter_mut().for_each(|thread| thread.uses.end());
        Ok(recording)
    }

    /// References in the trace.
    pub fn references(&self) -> u64 {
        self.walked.references
    }

    /// References of all threads as they are planned: those of others' pages in their microsets included.
    pub fn steps(&self) -> u64 {
        self.threads.iter().map(|thread| thread.uses.touches() as u64).sum()
    }

    /// Different pages: the recorded peak.
    pub fn pages(&self) -> u64 {
        self.walked.pages
    }

    /// Threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Processor time of all threads; 0 without times.
    pub fn cpu_ns(&self) -> u64 {
        self.threads.iter().map(|thread| thread.cpu_ns).sum()
    }

    /// There are times, from the trace or from the user.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// The program closed its trace.
    pub fn is_whole(&self) -> bool {
        self.walked.whole
    }

    /// Regions that the trace names.
    pub fn regions(&self) -> &[Region] {
        &self.walked.regions
    }
}

impl Receiver for Recording {
    fn slots(&self) -> &Slots {
        &self.slots
    }

    #[inline]
    fn slot(&mut self, region: u32, page: u32) -> u32 {
        self.slots.slot(region, page)
    }

    #[inline]
    fn step(&mut self, step: Step) -> Result<(), PlanError> {
        let index = step.thread as usize;
        if index >= self.threads.len() {
            self.threads.resize_with(index + 1, RecordedThread::default);
        }
        let thread = &mut self.threads[index];
        let slot = thread.own.slot(step.slot);
        thread.pages += u64::from(!thread.uses.has(slot));
        thread.cpu_ns = step.cpu_ns;
        if thread.uses.push(slot) { Ok(()) } else { Err(PlanError::TooLong { thread: step.thread }) }
    }

    fn discard(&mut self, thread: u32, slot: u32, cause: Cause, _is_lost: bool) {
        let thread = self.threads.get_mut(thread as usize).filter(|_| cause.takes_frames());
        if let Some((thread, slot)) = thread.and_then(|thread| thread.own.look(slot).map(|slot| (thread, slot))) {
            thread.uses.cut(slot);
        }
    }

    fn end_microset(&mut self, _thread: u32) {}

    fn end_turn(&mut self) {}

    fn begin_interval(&mut self) {}
}
