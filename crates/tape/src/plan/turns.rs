//! The references of each thread, as tapes are planned from them: what a microset in which several threads ran has, all of them have.
//!
//! While one thread's touches keep a page mapped, another's touch of it is no fault: the trace has the page once, for the thread that
//! came first (3PO §3.4). At run time the other may come first. So each thread that has a reference in a microset is given all pages of
//! it, in their order; of a microset in which one thread ran, that thread alone.

use super::PlanError;
use crate::{Reference, Region, Trace};

/// A reference of a thread, its own or one that it may have in the place of another's.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub thread: u32,
    /// The page's slot.
    pub slot: u32,
    /// The page had no content before this microset.
    pub fresh: bool,
    /// The trace has the reference for this thread; otherwise for another one that ran in the microset.
    pub own: bool,
    /// Processor time of the thread.
    pub cpu_ns: u64,
    /// In which of the program's intervals; 0: all of it was recorded.
    pub interval: u32,
}

/// What is done with them.
pub trait Receiver {
    /// The slot of a page.
    fn slot(&mut self, region: u32, page: u32) -> u32;

    fn step(&mut self, step: Step) -> Result<(), PlanError>;

    /// The microset of the thread's last steps is whole.
    fn end_microset(&mut self, thread: u32);

    /// An interval begins: what is local now is not known.
    fn begin_interval(&mut self);
}

#[derive(Default)]
struct Turns {
    reference_ns: Option<u64>,
    microset: u64,
    interval: u32,
    steps: Vec<Step>,
    /// Threads of the microset, in order of their first reference in it.
    threads: Vec<u32>,
    /// By slot: the page has content.
    touched: Vec<bool>,
    pages: u64,
    /// Processor time, by thread.
    cpu_ns: Vec<u64>,
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

/// Gives `receiver` the steps of a trace. `reference_ns`: processor time from each reference to the next, instead of the trace's.
pub fn walk(trace: &Trace<'_>, reference_ns: Option<u64>, receiver: &mut impl Receiver) -> Result<Walked, PlanError> {
    let mut turns = Turns { reference_ns, ..Turns::default() };
    let (mut references, mut count) = (trace.references(), 0);
    for reference in references.by_ref() {
        let reference = reference.map_err(PlanError::Trace)?;
        count += 1;
        if reference.microset != turns.microset {
            turns.deliver(receiver)?;
            turns.microset = reference.microset;
        }
        if reference.interval != turns.interval {
            receiver.begin_interval();
            turns.interval = reference.interval;
        }
        let slot = receiver.slot(reference.region, reference.page);
        turns.push(&reference, slot);
    }
    turns.deliver(receiver)?;
    let (pages, whole, regions) = (turns.pages, references.is_whole(), references.regions().to_vec());
    Ok(Walked { references: count, pages, whole, regions })
}

impl Turns {
    fn push(&mut self, reference: &Reference, slot: u32) {
        let (thread, index) = (reference.thread, reference.thread as usize);
        if index >= self.cpu_ns.len() {
            self.cpu_ns.resize(index + 1, 0);
        }
        let cpu_ns = match self.reference_ns {
            Some(ns) => self.cpu_ns[index] + ns,
            None => reference.cpu_ns,
        };
        self.cpu_ns[index] = cpu_ns;
        if slot as usize >= self.touched.len() {
            self.touched.resize(slot as usize + 1, false);
        }
        let fresh = !std::mem::replace(&mut self.touched[slot as usize], true);
        self.pages += u64::from(fresh);
        if self.steps.last().is_none_or(|last| last.thread != thread) && !self.threads.contains(&thread) {
            self.threads.push(thread);
        }
        let interval = reference.interval;
        self.steps.push(Step { thread, slot, fresh, own: true, cpu_ns, interval });
    }

    fn deliver(&mut self, receiver: &mut impl Receiver) -> Result<(), PlanError> {
        for thread in &self.threads {
            // Until its first own reference in the microset, its clock stands where that one has it.
            let own = |step: &&Step| step.thread == *thread;
            let mut cpu_ns = self.steps.iter().find(own).map_or(0, |step| step.cpu_ns);
            for step in &self.steps {
                if step.thread == *thread {
                    cpu_ns = step.cpu_ns;
                }
                receiver.step(Step { thread: *thread, own: step.thread == *thread, cpu_ns, ..*step })?;
            }
            receiver.end_microset(*thread);
        }
        self.steps.clear();
        self.threads.clear();
        Ok(())
    }
}
