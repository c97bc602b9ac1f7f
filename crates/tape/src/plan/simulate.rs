//! The second pass over a trace: every size at once.

use super::division::Division;
use super::local_share::{LocalShare, Touch};
use super::microset_references::{self, Receiver, Step};
use super::recording::{RecordedThread, Recording};
use super::schedule::{Arriving, Schedule};
use super::{AHEAD_PAGES_MAX, AHEAD_PART, Case, HIDDEN_PART, Plan, PlanCosts, PlanError, SPEEDS_MBIT, ThreadPlan};
use crate::tape::{Arrival, Departure};
use crate::{Cause, Slots, Trace};
use hinterland_policy::NEVER;
use std::collections::VecDeque;
use std::io;

/// Takes a thread's arrivals, each with what leaves for it.
pub type TapeSink<'a> = dyn FnMut(u32, Arrival, Option<Departure>) -> io::Result<()> + 'a;

/// Plans for each of `cases`, which are divided among several threads so that fewer pages move; `tape` gets the arrivals and departures of
/// the first. The trace must be the one that `recording` was read from.
///
/// # Errors
/// The trace cannot be read, or the tape not be written.
pub fn plan(
    trace: &Trace<'_>,
    recording: &Recording,
    cases: &[Case],
    costs: &PlanCosts,
    tape: Option<&mut TapeSink<'_>>,
) -> Result<Vec<Plan>, PlanError> {
    let divided = |division: Division| cases.iter().map(move |case| (*case, division.shares(recording, case)));
    let (even, by_use): (Vec<_>, Vec<_>) = (divided(Division::Even).collect(), divided(Division::ByUse).collect());
    if even == by_use {
        return simulate(trace, recording, even, costs, tape);
    }
    let moved = |divided: &[(Case, Vec<u64>)]| simulate(trace, recording, divided.to_vec(), costs, None);
    let plans = moved(&even)?.into_iter().zip(moved(&by_use)?);
    let fewer = plans.map(|(even, by_use)| by_use.pages_moved() < even.pages_moved());
    let chosen = fewer.zip(even.into_iter().zip(by_use)).map(|(by_use, of)| if by_use { of.1 } else { of.0 }).collect();
    simulate(trace, recording, chosen, costs, tape)
}

/// The same, for cases with the shares of threads.
fn simulate(
    trace: &Trace<'_>,
    recording: &Recording,
    cases: Vec<(Case, Vec<u64>)>,
    costs: &PlanCosts,
    tape: Option<&mut TapeSink<'_>>,
) -> Result<Vec<Plan>, PlanError> {
    let threads = recording.threads.iter().map(Cursor::new).collect();
    let running = cases.into_iter().map(|(case, shares)| Running::new(recording, case, &shares, costs)).collect();
    let mut simulation = Simulation { recording, costs, threads, running, tape };
    microset_references::walk(trace, recording.clock, &mut simulation)?;
    Ok(simulation.running.into_iter().map(|running| running.finish(recording)).collect())
}

/// How far a thread is.
struct Cursor {
    position: u32,
    /// By the thread's slot: its last reference of the page.
    last_use: Vec<u32>,
}

impl Cursor {
    fn new(thread: &RecordedThread) -> Cursor {
        Cursor { position: 0, last_use: vec![0; thread.own.count()] }
    }
}

struct Simulation<'a, 't> {
    recording: &'a Recording,
    costs: &'a PlanCosts,
    threads: Vec<Cursor>,
    running: Vec<Running>,
    tape: Option<&'a mut TapeSink<'t>>,
}

/// What is known of a page's content in a size.
mod content {
    /// It has some.
    pub const SOME: u8 = 1;
    /// It was written to since it was stored last.
    pub const DIRTY: u8 = 2;
    /// It was touched since then, and the trace does not tell how.
    pub const UNKNOWN: u8 = 4;
    /// It was stored.
    pub const STORED: u8 = 8;
    /// It has content since this microset: at run time another thread may be the one that comes first.
    pub const NEW: u8 = 16;
}

/// A size.
struct Running {
    case: Case,
    shares: Vec<Share>,
    /// By slot: threads that have the page local.
    holders: Vec<u16>,
    /// By slot: see [`content`].
    content: Vec<u8>,
    /// Slots of pages that are `NEW`.
    new: Vec<u32>,
    pages_in: u64,
    pages_out: u64,
    /// Hundredths of a page that was written to.
    written: u64,
}

/// A thread's part of a size.
struct Share {
    memory: LocalShare,
    /// Local pages that were given up, with their last uses: each leaves, for the tape, for an arrival that needs no other to
    /// leave, unless it was touched again by then.
    given_up: VecDeque<(u32, u32)>,
    schedule: Schedule,
    plan: ThreadPlan,
}

impl Running {
    fn new(recording: &Recording, case: Case, shares: &[u64], costs: &PlanCosts) -> Running {
        let share = |(thread, share_pages): (&RecordedThread, &u64)| {
            let share_pages = *share_pages;
            let ahead_pages = (share_pages / AHEAD_PART).min(AHEAD_PAGES_MAX);
            let all_local = share_pages == thread.pages;
            let frames = if all_local { share_pages } else { share_pages - ahead_pages };
            Share {
                memory: LocalShare::new(thread.own.count(), frames, case.eviction),
                given_up: VecDeque::new(),
                schedule: Schedule::new(costs, ahead_pages),
                plan: ThreadPlan { pages: thread.pages, share_pages, ahead_pages, ..ThreadPlan::default() },
            }
        };
        Running {
            case,
            shares: recording.threads.iter().zip(shares).map(share).collect(),
            holders: vec![0; recording.slots.count()],
            content: vec![0; recording.slots.count()],
            new: Vec::new(),
            pages_in: 0,
            pages_out: 0,
            written: 0,
        }
    }

    /// A page of a thread is local now. 1 if the link carries it.
    fn held(&mut self, slot: u32, fetched: bool, costs: &PlanCosts) -> u64 {
        let holders = &mut self.holders[slot as usize];
        let carried = fetched && *holders == 0;
        *holders += 1;
        self.pages_in += u64::from(carried);
        if carried && costs.drops_copies {
            self.content[slot as usize] |= content::DIRTY;
        }
        u64::from(carried)
    }

    /// A page of a thread is no longer local. Whether it leaves, because no other has it; 1 if the link carries it away.
    fn released(&mut self, slot: u32, costs: &PlanCosts) -> (bool, u64) {
        let holders = &mut self.holders[slot as usize];
        *holders -= 1;
        if *holders > 0 {
            return (false, 0);
        }
        let content = &mut self.content[slot as usize];
        self.written += match *content {
            known if known & content::DIRTY != 0 => 100,
            known if known & content::UNKNOWN == 0 => 0,
            unknown if unknown & content::STORED == 0 => 100,
            _ => u64::from(costs.written_percent),
        };
        if *content != 0 {
            *content = content::SOME | content::STORED;
        }
        let carried = self.written / 100;
        self.written %= 100;
        self.pages_out += carried;
        (true, carried)
    }

    /// A page that is local for a thread was used.
    fn used(&mut self, slot: u32, written: Option<bool>) {
        let content = &mut self.content[slot as usize];
        let marks = match written {
            Some(false) => return,
            Some(true) => content::SOME | content::DIRTY,
            None => content::SOME | content::UNKNOWN,
        };
        if *content & content::SOME == 0 {
            *content |= content::NEW;
            self.new.push(slot);
        }
        *content |= marks;
    }

    /// A page has content before the program touches it: from its parent, which keeps it as it was at the fork.
    fn inherited(&mut self, slot: u32) {
        let content = &mut self.content[slot as usize];
        if *content == 0 {
            *content = content::SOME | content::STORED;
        }
    }

    /// The content of a page is given up; `own`: the thread's slot for it, and its last use; `is_lost`: see [`Receiver::discard`].
    fn discard(&mut self, thread: u32, slot: u32, own: Option<(u32, u32)>, cause: Cause, is_lost: bool) {
        let holders = &mut self.holders[slot as usize];
        if let Some((own, last_use)) = own.filter(|_| cause.takes_frames()) {
            let share = &mut self.shares[thread as usize];
            if share.memory.discard(own) {
                *holders -= 1;
                share.given_up.push_back((own, last_use));
            }
        }
        if is_lost && (cause.takes_frames() || *holders == 0) {
            self.content[slot as usize] = 0;
        }
    }

    /// What the program touched since the last interval may have taken all frames: where not everything has room, the next one asks for all
    /// that it needs. What is local then is not fetched.
    fn begin_interval(&mut self, recording: &Recording) {
        for (share, thread) in self.shares.iter_mut().zip(&recording.threads) {
            if share.plan.share_pages < share.plan.pages {
                share.memory.clear(|slot| self.holders[thread.own.global(slot) as usize] -= 1);
            }
        }
    }

    fn finish(self, recording: &Recording) -> Plan {
        let cpu_ns = recording.cpu_ns();
        let mut stalled = [0_u64; SPEEDS_MBIT.len()];
        for share in &self.shares {
            for (sum, ns) in stalled.iter_mut().zip(share.schedule.held_up_at()) {
                *sum += ns;
            }
        }
        let hides = |stalled_ns: &u64| *stalled_ns <= cpu_ns / HIDDEN_PART;
        let hidden = stalled.iter().position(hides).filter(|_| recording.has_times());
        let threads = self.shares.into_iter().zip(&recording.threads).map(|(share, thread)| {
            let Share { schedule, plan, .. } = share;
            let (stalled_ns, crowded_ns, waits) = (schedule.stalled_ns(), schedule.crowded_ns(), schedule.waits());
            ThreadPlan { cpu_ns: thread.cpu_ns, stalled_ns, crowded_ns, waits, worst: schedule.worst(), ..plan }
        });
        Plan {
            case: self.case,
            threads: threads.collect(),
            pages_in: self.pages_in,
            pages_out: self.pages_out,
            hidden_from_mbit: hidden.map(|speed| SPEEDS_MBIT[speed]),
        }
    }
}

impl Simulation<'_, '_> {
    /// A page arrives for a thread in one of the sizes.
    #[inline(never)]
    fn arrive(&mut self, case: usize, step: Step, slot: u32, leaves: Option<u32>) -> Result<(), PlanError> {
        let index = step.thread as usize;
        let (running, thread, cursor) = (&mut self.running[case], &self.recording.threads[index], &self.threads[index]);
        let position = cursor.position;
        let fetched = running.content[step.slot as usize] & (content::SOME | content::NEW) == content::SOME;
        let (is_gone, pages_out) =
            leaves.map_or((false, 0), |leaves| running.released(thread.own.global(leaves), self.costs));
        let pages_in = running.held(step.slot, fetched, self.costs);
        let share = &mut running.shares[index];
        // A page that was touched since is in use again.
        let is_gone_still =
            |given_up: &(u32, u32)| given_up.0 != slot && cursor.last_use[given_up.0 as usize] == given_up.1;
        let mut given_up = std::iter::from_fn(|| share.given_up.pop_front());
        let given_up = if leaves.is_some() { None } else { given_up.find(is_gone_still) };
        share.plan.left += u64::from(leaves.is_some() || given_up.is_some());
        *(if fetched { &mut share.plan.fetched } else { &mut share.plan.first_touches }) += 1;
        let ran_ns = step.cpu_ns + share.plan.fault_ns;
        let work_ns = pages_in * self.costs.come_ns + u64::from(is_gone) * self.costs.leave_ns;
        let is_key = share.schedule.arrive(Arriving { position, ran_ns, work_ns, pages_in, pages_out });
        share.plan.fault_ns += match fetched {
            false => self.costs.first_touch_ns,
            true if is_key => self.costs.fault_ns,
            true => 0,
        };
        debug_assert_eq!(thread.own.global(slot), step.slot);
        let Some(tape) = self.tape.as_mut().filter(|_| case == 0) else { return Ok(()) };
        let (region, page) = self.recording.slots.page(step.slot);
        let departure = leaves.map(|leaves| (leaves, cursor.last_use[leaves as usize])).or(given_up);
        let departure = departure.map(|(leaves, last_use)| {
            let next = thread.uses.after(last_use as usize);
            let (region, page) = self.recording.slots.page(thread.own.global(leaves));
            Departure { position, region, page, last_use, next_use: (next != NEVER).then_some(next) }
        });
        tape(
            step.thread,
            Arrival { position, region, page, fetched, own: step.own, interval: step.interval },
            departure,
        )
        .map_err(PlanError::Sink)
    }
}

impl Receiver for Simulation<'_, '_> {
    fn slots(&self) -> &Slots {
        &self.recording.slots
    }

    #[inline]
    fn slot(&mut self, region: u32, page: u32) -> u32 {
        self.recording.slots.find(region, page).expect("the first pass has seen every page of the trace")
    }

    #[inline]
    fn step(&mut self, step: Step) -> Result<(), PlanError> {
        let index = step.thread as usize;
        let thread = &self.recording.threads[index];
        let slot = thread.own.find(step.slot);
        let position = self.threads[index].position;
        let next = thread.uses.after(position as usize);
        for case in 0..self.running.len() {
            if step.is_inherited {
                self.running[case].inherited(step.slot);
            }
            let share = &mut self.running[case].shares[index];
            share.plan.references += 1;
            if let Touch::Arrival { leaves } = share.memory.touch(slot, next) {
                self.arrive(case, step, slot, leaves)?;
            }
            self.running[case].used(step.slot, step.written);
        }
        let cursor = &mut self.threads[index];
        cursor.last_use[slot as usize] = position;
        cursor.position += 1;
        Ok(())
    }

    fn end_microset(&mut self, thread: u32) {
        for running in &mut self.running {
            running.shares[thread as usize].memory.end_microset();
        }
    }

    fn discard(&mut self, thread: u32, slot: u32, cause: Cause, is_lost: bool) {
        let own = self.recording.threads[thread as usize].own.look(slot);
        let own = own.map(|own| (own, self.threads[thread as usize].last_use[own as usize]));
        for running in &mut self.running {
            running.discard(thread, slot, own, cause, is_lost);
        }
    }

    fn end_turn(&mut self) {
        for running in &mut self.running {
            for slot in running.new.drain(..) {
                running.content[slot as usize] &= !content::NEW;
            }
        }
    }

    fn begin_interval(&mut self) {
        for running in &mut self.running {
            running.begin_interval(self.recording);
        }
    }
}
