//! The references of each thread, as tapes are planned from them: what a microset in which several threads ran has, all of them have.
//!
//! While one thread's touches keep a page mapped, another's touch of it is no fault: the trace has the page once, for the thread that
//! came first (3PO §3.4). At run time the other may come first. So each thread that has a reference in a microset is given all pages of
//! it, in their order; of a microset in which one thread ran, that thread alone. Of a microset in which more than 16 threads ran, those with a
//! 16th of its references are given all, and each of the others its own: so no trace has more than 16 steps for each reference.

use super::PlanError;
use crate::{Cause, Discard, Entry, Reference, Region, Slots, Trace, Written};
use std::collections::HashMap;

/// Threads that are given all pages of a microset at most.
const SHARING_MAX: usize = 16;

/// Where processor times are from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clock {
    /// The trace.
    #[default]
    Traced,
    /// So many nanoseconds from each reference to the next.
    Fixed(u64),
    /// The trace, corrected to what its program takes untraced, all threads together. What is missing is given to all references alike, because too
    /// much was taken off for each; of what is too much each time has its part.
    Corrected {
        /// Processor time in the trace; 0: it has none.
        from_ns: u64,
        /// What it is instead.
        to_ns: u64,
        /// References in the trace.
        references: u64,
    },
}

impl Clock {
    /// That of a program which takes so much processor time untraced, from what can be read of its trace.
    #[must_use]
    pub fn untraced(trace: &Trace<'_>, to_ns: u64) -> Clock {
        let (from_ns, references) = traced_ns(trace);
        Clock::Corrected { from_ns, to_ns, references }
    }
}

/// Processor time of all threads in what can be read of a trace, and its references. It decodes the trace once more.
#[must_use]
pub fn traced_ns(trace: &Trace<'_>) -> (u64, u64) {
    let (mut threads, mut references) = (HashMap::new(), 0);
    for reference in trace.references().flatten() {
        threads.insert(reference.thread, reference.cpu_ns);
        references += 1;
    }
    (threads.into_values().fold(0_u64, u64::saturating_add), references)
}

impl From<Option<u64>> for Clock {
    fn from(reference_ns: Option<u64>) -> Clock {
        reference_ns.map_or(Clock::Traced, Clock::Fixed)
    }
}

/// A reference of a thread, its own or one that it may have in the place of another's.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub thread: u32,
    /// The page's slot.
    pub slot: u32,
    /// The trace has the reference for this thread; otherwise for another one that ran in the microset.
    pub own: bool,
    /// Processor time of the thread.
    pub cpu_ns: u64,
    /// In which of the program's intervals; 0: all of it was recorded.
    pub interval: u32,
    /// The page was written to in this microset; `None`: the trace does not tell.
    pub written: Option<bool>,
    /// The first touch of a page that has content from the parent of a forked process.
    pub is_inherited: bool,
}

/// What is done with them.
pub trait Receiver {
    /// The slots of pages.
    fn slots(&self) -> &Slots;

    /// The slot of a page.
    fn slot(&mut self, region: u32, page: u32) -> u32;

    fn step(&mut self, step: Step) -> Result<(), PlanError>;

    /// At this place among the thread's steps, the content of the page in `slot` is given up. `is_lost`: what it has now is that content;
    /// otherwise another thread's steps give it up, and the page may have been touched again since.
    fn discard(&mut self, thread: u32, slot: u32, cause: Cause, is_lost: bool);

    /// The microset of the thread's last steps is whole.
    fn end_microset(&mut self, thread: u32);

    /// All threads have their steps of the microset.
    fn end_turn(&mut self);

    /// An interval begins: what is local now is not known.
    fn begin_interval(&mut self);
}

/// The microset that is being read, and what is known of the threads.
#[derive(Default)]
struct CurrentMicroset {
    clock: Clock,
    is_forked: bool,
    interval: u32,
    steps: Vec<Step>,
    /// What was discarded before which of the steps.
    discards: Vec<(usize, u32, Cause)>,
    /// Threads of the microset, in order of their first reference in it.
    threads: Vec<u32>,
    /// By slot: the page was touched.
    touched: Vec<bool>,
    /// By chunk of slots: the threads that had steps there, a bit each.
    had: Vec<Vec<u64>>,
    pages: u64,
    /// Processor time, by thread.
    cpu_ns: Vec<u64>,
    /// References, by thread.
    referred: Vec<u64>,
}

/// What a walk over a trace has seen.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    pub references: u64,
    /// Different pages.
    pub pages: u64,
    /// The program closed its trace.
    pub whole: bool,
    pub regions: Vec<Region>,
}

/// Gives `receiver` the steps of a trace.
pub fn walk(trace: &Trace<'_>, clock: Clock, receiver: &mut impl Receiver) -> Result<Walked, PlanError> {
    let mut microset = CurrentMicroset { clock, is_forked: trace.head().is_forked, ..CurrentMicroset::default() };
    let (mut references, mut count) = (trace.references(), 0);
    while let Some(entry) = references.next_entry() {
        match entry.map_err(PlanError::Trace)? {
            Entry::Touch(reference) => {
                count += 1;
                if reference.interval != microset.interval {
                    microset.deliver(receiver)?;
                    receiver.begin_interval();
                    microset.interval = reference.interval;
                }
                let slot = receiver.slot(reference.region, reference.page);
                microset.push(&reference, slot);
            }
            Entry::Discard(discard) => microset.discard(&discard, receiver.slots()),
            Entry::MicrosetEnd { written, .. } => {
                microset.write(written);
                microset.deliver(receiver)?;
            }
        }
    }
    microset.deliver(receiver)?;
    let (pages, whole, regions) = (microset.pages, references.is_whole(), references.regions().to_vec());
    Ok(Walked { references: count, pages, whole, regions })
}

/// `ns` × `times` ÷ `of`.
fn part(ns: u64, times: u64, of: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(times) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

impl CurrentMicroset {
    fn push(&mut self, reference: &Reference, slot: u32) {
        let (thread, index) = (reference.thread, reference.thread as usize);
        if index >= self.cpu_ns.len() {
            self.cpu_ns.resize(index + 1, 0);
            self.referred.resize(index + 1, 0);
        }
        self.referred[index] += 1;
        let cpu_ns = match self.clock {
            Clock::Traced => reference.cpu_ns,
            Clock::Fixed(ns) => self.cpu_ns[index] + ns,
            Clock::Corrected { from_ns, to_ns, references } => match to_ns.checked_sub(from_ns) {
                Some(missing_ns) => reference.cpu_ns.saturating_add(part(missing_ns, self.referred[index], references)),
                None => part(reference.cpu_ns, to_ns, from_ns),
            },
        };
        self.cpu_ns[index] = cpu_ns;
        if slot as usize >= self.touched.len() {
            self.touched.resize(slot as usize + 1, false);
        }
        let is_new = !std::mem::replace(&mut self.touched[slot as usize], true);
        self.pages += u64::from(is_new);
        if self.steps.last().is_none_or(|last| last.thread != thread) && !self.threads.contains(&thread) {
            self.threads.push(thread);
        }
        let (interval, is_inherited) = (reference.interval, self.is_forked && is_new && !reference.is_first);
        self.steps.push(Step { thread, slot, own: true, cpu_ns, interval, written: None, is_inherited });
    }

    /// Pages that are never touched belong to no thread.
    fn discard(&mut self, discard: &Discard, slots: &Slots) {
        let touched = |slot: &u32| self.touched.get(*slot as usize).is_some_and(|touched| *touched);
        let found = discard.each().filter_map(|page| slots.find(discard.region, page)).filter(touched);
        self.discards.extend(found.map(|slot| (self.steps.len(), slot, discard.cause)));
    }

    /// The microset is whole.
    fn write(&mut self, written: Written<'_>) {
        for (index, step) in (0..).zip(&mut self.steps) {
            step.written = written.get(index);
        }
    }

    /// Which steps of a microset threads are given that are given their own ones alone.
    fn own_alone(&self) -> HashMap<u32, Vec<usize>> {
        let mut own: HashMap<u32, Vec<usize>> = HashMap::new();
        if self.threads.len() > SHARING_MAX {
            for (index, step) in self.steps.iter().enumerate() {
                own.entry(step.thread).or_default().push(index);
            }
            own.retain(|_, steps| steps.len() * SHARING_MAX < self.steps.len());
        }
        own
    }

    /// Of a microset of which no thread is given all, for each discard: the thread among whose steps the content is given up. That is the one
    /// that touches the page next, or else the last one, which comes when all the others have their steps.
    fn losers(&self) -> Vec<u32> {
        let mut next: HashMap<u32, u32> = HashMap::new();
        let last = self.threads.last().copied().unwrap_or_default();
        let (mut steps, mut losers) = (self.steps.iter().enumerate().rev().peekable(), Vec::new());
        for (before, slot, _) in self.discards.iter().rev() {
            while let Some((_, step)) = steps.next_if(|(index, _)| index >= before) {
                next.insert(step.slot, step.thread);
            }
            losers.push(next.get(slot).copied().unwrap_or(last));
        }
        losers.reverse();
        losers
    }

    fn deliver(&mut self, receiver: &mut impl Receiver) -> Result<(), PlanError> {
        let own_alone = self.own_alone();
        // Who is given all steps goes through all that happens to a page.
        let losers = if own_alone.len() == self.threads.len() { self.losers() } else { Vec::new() };
        let is_lost = |thread: u32, at: usize| match losers.get(at) {
            Some(loser) => *loser == thread,
            None => !own_alone.contains_key(&thread),
        };
        for thread in &self.threads {
            // Until its first own reference in the microset, its clock stands where that one has it.
            let own = |step: &&Step| step.thread == *thread;
            let mut cpu_ns = self.steps.iter().find(own).map_or(0, |step| step.cpu_ns);
            let mut discards = self.discards.iter().enumerate().peekable();
            let given = own_alone.get(thread);
            for at in 0..given.map_or(self.steps.len(), Vec::len) {
                let index = given.map_or(at, |given| given[at]);
                let step = self.steps[index];
                while let Some((at, (_, slot, cause))) = discards.next_if(|(_, (before, ..))| *before <= index) {
                    receiver.discard(*thread, *slot, *cause, is_lost(*thread, at));
                }
                if step.thread == *thread {
                    cpu_ns = step.cpu_ns;
                }
                note(&mut self.had, step.slot, *thread);
                receiver.step(Step { thread: *thread, own: step.thread == *thread, cpu_ns, ..step })?;
            }
            discards.for_each(|(at, (_, slot, cause))| receiver.discard(*thread, *slot, *cause, is_lost(*thread, at)));
            receiver.end_microset(*thread);
        }
        // Threads that did not run have the pages' frames to give back; what has come there since is another content.
        let is_lost = self.threads.is_empty();
        for (_, slot, cause) in &self.discards {
            for thread in noted(&self.had, *slot).filter(|thread| !self.threads.contains(thread)) {
                receiver.discard(thread, *slot, *cause, is_lost);
            }
        }
        receiver.end_turn();
        self.steps.clear();
        self.discards.clear();
        self.threads.clear();
        Ok(())
    }
}

/// Notes that a thread has a step in a slot's chunk.
fn note(had: &mut Vec<Vec<u64>>, slot: u32, thread: u32) {
    let (chunk, word) = ((slot / Slots::CHUNK_PAGES) as usize, (thread / u64::BITS) as usize);
    if chunk >= had.len() {
        had.resize_with(chunk + 1, Vec::new);
    }
    let words = &mut had[chunk];
    if word >= words.len() {
        words.resize(word + 1, 0);
    }
    words[word] |= 1 << (thread % u64::BITS);
}

/// The threads that are noted for a slot's chunk.
fn noted(had: &[Vec<u64>], slot: u32) -> impl Iterator<Item = u32> {
    let words = had.get((slot / Slots::CHUNK_PAGES) as usize).map_or(&[][..], Vec::as_slice);
    let threads = |(first, word): (u32, &u64)| {
        let word = *word;
        (0..u64::BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
    };
    (0..).step_by(u64::BITS as usize).zip(words).flat_map(threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, Writer};

    /// Notes the times of references, and the threads that have discards.
    #[derive(Default)]
    struct Counter {
        slots: Slots,
        times: Vec<(u32, u64)>,
        discards: Vec<u32>,
    }

    impl Receiver for Counter {
        fn slots(&self) -> &Slots {
            &self.slots
        }

        fn slot(&mut self, region: u32, page: u32) -> u32 {
            self.slots.slot(region, page)
        }

        fn step(&mut self, step: Step) -> Result<(), PlanError> {
            self.times.push((step.thread, step.cpu_ns));
            Ok(())
        }

        fn discard(&mut self, thread: u32, _: u32, _: Cause, _: bool) {
            self.discards.push(thread);
        }

        fn end_microset(&mut self, _: u32) {}

        fn end_turn(&mut self) {}

        fn begin_interval(&mut self) {}
    }

    #[test]
    fn what_a_trace_lacks_is_given_to_all_references_alike_and_of_what_is_too_much_each_has_its_part() {
        let head = Head { page_bytes: 4096, microset_pages: 8, has_cpu_times: true, ..Head::default() };
        let mut writer = Writer::new(Vec::new(), &head).unwrap();
        writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
        // With a pause; times in a trace are whole ticks.
        let traced = [(0, 640), (0, 640), (1, 2_560), (0, 128_000), (1, 3_840)];
        for (thread, cpu_ns) in traced {
            writer.touch(&Reference { thread, cpu_ns, page: thread, ..Reference::default() }).unwrap();
            writer.end_microset(Written::All).unwrap();
        }
        writer.finish().unwrap();
        let bytes = std::mem::take(writer.sink());
        let trace = Trace::open(&bytes).unwrap();
        let times = |to_ns: u64| {
            let mut receiver = Counter::default();
            walk(&trace, Clock::untraced(&trace, to_ns), &mut receiver).unwrap();
            receiver.times
        };
        assert_eq!(times(131_840), traced);
        assert_eq!(times(163_840), [(0, 7_040), (0, 13_440), (1, 8_960), (0, 147_200), (1, 16_640)]);
        assert_eq!(times(65_920), [(0, 320), (0, 320), (1, 1_280), (0, 64_000), (1, 1_920)]);
    }

    #[test]
    fn a_discard_is_told_to_the_threads_that_have_pages_there() {
        const THREADS: u32 = 100;
        let mut writer =
            Writer::new(Vec::new(), &Head { page_bytes: 4096, microset_pages: 8, ..Head::default() }).unwrap();
        writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
        for thread in 0..THREADS {
            let first = thread * Slots::CHUNK_PAGES;
            // All but the last one touch a page of the thread before, too.
            for page in [first, first + 1].into_iter().chain((thread + 1 < THREADS && thread > 0).then(|| first - 1)) {
                writer.touch(&Reference { thread, page, ..Reference::default() }).unwrap();
            }
            writer.end_microset(Written::All).unwrap();
        }
        // One that has run, and two that have not.
        writer.touch(&Reference { thread: 7, page: 7 * Slots::CHUNK_PAGES, ..Reference::default() }).unwrap();
        for thread in [7, 70, 98] {
            let page = thread * Slots::CHUNK_PAGES;
            writer.discard(&Discard { region: 0, page, pages: 2, cause: Cause::Unmapped }).unwrap();
        }
        writer.end_microset(Written::All).unwrap();
        writer.finish().unwrap();
        let bytes = std::mem::take(writer.sink());
        let mut counter = Counter::default();
        walk(&Trace::open(&bytes).unwrap(), Clock::Traced, &mut counter).unwrap();
        counter.discards.sort_unstable();
        // The thread that runs gets all of them.
        assert_eq!(counter.discards, [7, 7, 7, 7, 7, 7, 8, 8, 70, 70, 71, 71, 98, 98]);
    }
}
