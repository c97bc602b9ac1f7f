//! The core: instructions enter its window in program order, four in a cycle, and leave it in that order when they are done. A load that
//! missed the LLC holds all that is more than a window behind it; a store does not. Misses wait for the data that their address depends on.

use crate::filter::Miss;
use crate::parameters::Parameters;
use std::collections::VecDeque;

const PENDING: u64 = u64::MAX;
const NONE: u32 = u32::MAX;

/// One core at work on a stream.
///
/// Invariant: a miss is asked for once, not before its dispatch and not before what it depends on is done.
#[derive(Debug)]
pub struct Core<'s> {
    misses: &'s [Miss],
    window_instructions: u64,
    instruction_ticks: u64,
    mshrs: usize,
    next: usize,
    /// Of the last miss that was dispatched: instructions up to it, and when.
    position: u64,
    dispatched_at: u64,
    /// The next miss is not dispatched earlier.
    bound: u64,
    waits_for_mshr: bool,
    outstanding: usize,
    /// Loads that may still hold the window, in program order, with their positions.
    window: VecDeque<(u32, u64)>,
    done_at: Vec<u64>,
    dispatch: Vec<u64>,
    first_dependent: Vec<u32>,
    next_dependent: Vec<u32>,
    measured_from: usize,
    measured_at: u64,
    end: u64,
}

impl<'s> Core<'s> {
    /// A core before its first instruction.
    pub fn new(misses: &'s [Miss], measured_from: usize, parameters: &Parameters) -> Core<'s> {
        let count = misses.len();
        Core {
            misses,
            window_instructions: parameters.window_instructions,
            instruction_ticks: parameters.instruction_ticks,
            mshrs: parameters.llc_mshrs,
            next: 0,
            position: 0,
            dispatched_at: 0,
            bound: 0,
            waits_for_mshr: false,
            outstanding: 0,
            window: VecDeque::new(),
            done_at: vec![PENDING; count],
            dispatch: vec![0; count],
            first_dependent: vec![NONE; count],
            next_dependent: vec![NONE; count],
            measured_from,
            measured_at: 0,
            end: 0,
        }
    }

    /// Dispatches what the window and the MSHRs have room for. `ready` gets each miss whose address is known, and when it is.
    pub fn advance(&mut self, now: u64, ready: &mut Vec<(u32, u64)>) {
        while let Some(miss) = self.misses.get(self.next) {
            let instructions = u64::from(miss.instructions);
            let position = self.position + instructions;
            if !self.retire_before(position) {
                return;
            }
            if self.outstanding == self.mshrs {
                self.waits_for_mshr = true;
                return;
            }
            let mut at = self.bound.max(self.dispatched_at + instructions * self.instruction_ticks);
            if std::mem::take(&mut self.waits_for_mshr) {
                at = at.max(now);
            }
            self.dispatch_next(miss, position, at, ready);
        }
    }

    /// Lets loads leave the window so that the instruction at `position` enters it; `false`: one is not done.
    fn retire_before(&mut self, position: u64) -> bool {
        while let Some((load, at)) = self.window.front().copied() {
            let Some(behind) = position.checked_sub(at + self.window_instructions) else { break };
            let done = self.done_at[load as usize];
            if done == PENDING {
                return false;
            }
            self.bound = self.bound.max(done + behind * self.instruction_ticks);
            self.window.pop_front();
        }
        true
    }

    fn dispatch_next(&mut self, miss: &Miss, position: u64, at: u64, ready: &mut Vec<(u32, u64)>) {
        let number = self.next;
        let index = u32::try_from(number).expect("fewer than 2^32 misses");
        if number == self.measured_from {
            self.measured_at = at;
        }
        (self.position, self.dispatched_at, self.bound) = (position, at, 0);
        self.next += 1;
        self.outstanding += 1;
        self.dispatch[number] = at;
        if miss.is_load {
            self.window.push_back((index, position));
        }
        match miss.after.checked_sub(1).map(|after| after as usize) {
            Some(after) if self.done_at[after] == PENDING => {
                self.next_dependent[number] = std::mem::replace(&mut self.first_dependent[after], index);
            }
            Some(after) => ready.push((index, self.known_at(number, self.done_at[after]))),
            None => ready.push((index, at)),
        }
    }

    /// When the address of a miss is known, if what it depends on is done at `done`.
    fn known_at(&self, number: usize, done: u64) -> u64 {
        let cycles = u64::from(self.misses[number].after_cycles);
        self.dispatch[number].max(done + crate::time::cycles(cycles))
    }

    /// The data of a miss are there.
    pub fn complete(&mut self, index: u32, now: u64, ready: &mut Vec<(u32, u64)>) {
        let number = index as usize;
        assert_eq!(self.done_at[number], PENDING, "miss {index} is done twice");
        self.done_at[number] = now;
        self.end = self.end.max(now);
        self.outstanding -= 1;
        let mut dependent = self.first_dependent[number];
        while dependent != NONE {
            ready.push((dependent, self.known_at(dependent as usize, now)));
            dependent = self.next_dependent[dependent as usize];
        }
        self.advance(now, ready);
    }

    /// Whether all misses are done.
    pub fn is_through(&self) -> bool {
        self.next == self.misses.len() && self.outstanding == 0
    }

    /// Whether the first measured miss was dispatched.
    pub fn is_measured(&self) -> bool {
        self.next > self.measured_from
    }

    /// Ticks from the first measured miss to the end.
    pub fn measured_ticks(&self) -> u64 {
        self.end.max(self.dispatched_at) - self.measured_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NO_LINE;

    fn miss(instructions: u32, after: u32, is_load: bool) -> Miss {
        Miss { line: 0, dirty_victim: NO_LINE, after, instructions, after_cycles: 2, is_load }
    }

    /// A window of 10 instructions, one tick each.
    fn tiny() -> Parameters {
        Parameters { window_instructions: 10, instruction_ticks: 1, llc_mshrs: 3, ..Parameters::paper() }
    }

    fn ready(core: &mut Core, act: impl FnOnce(&mut Core, &mut Vec<(u32, u64)>)) -> Vec<(u32, u64)> {
        let mut ready = Vec::new();
        act(core, &mut ready);
        ready
    }

    #[test]
    fn a_load_holds_what_is_a_window_behind_it() {
        let misses = [miss(5, 0, true), miss(4, 0, true), miss(8, 0, true)];
        let mut core = Core::new(&misses, 0, &tiny());
        assert_eq!(ready(&mut core, |core, out| core.advance(0, out)), [(0, 5), (1, 9)]);
        // The third is at instruction 17, the first at 5: it enters two ticks after the first's end.
        assert_eq!(ready(&mut core, |core, out| core.complete(0, 100, out)), [(2, 102)]);
        assert_eq!(ready(&mut core, |core, out| core.complete(2, 110, out)), []);
        core.complete(1, 120, &mut Vec::new());
        assert!(core.is_through());
        assert_eq!(core.measured_ticks(), 115);
    }

    #[test]
    fn loads_leave_in_program_order() {
        let misses = [miss(1, 0, true), miss(1, 0, true), miss(20, 0, true)];
        let mut core = Core::new(&misses, 0, &tiny());
        core.advance(0, &mut Vec::new());
        assert_eq!(ready(&mut core, |core, out| core.complete(1, 50, out)), []);
        assert_eq!(ready(&mut core, |core, out| core.complete(0, 90, out)), [(2, 90 + 11)]);
    }

    #[test]
    fn a_store_holds_nothing_but_its_mshr() {
        let misses = [miss(1, 0, false), miss(100, 0, false), miss(100, 0, false), miss(100, 0, false)];
        let mut core = Core::new(&misses, 0, &tiny());
        assert_eq!(ready(&mut core, |core, out| core.advance(0, out)), [(0, 1), (1, 101), (2, 201)]);
        assert_eq!(ready(&mut core, |core, out| core.complete(1, 700, out)), [(3, 700)]);
    }

    #[test]
    fn a_dependent_miss_comes_after_the_data_and_the_hits_between() {
        let misses = [miss(1, 0, true), miss(1, 1, true), miss(1, 0, true)];
        let mut core = Core::new(&misses, 0, &tiny());
        assert_eq!(ready(&mut core, |core, out| core.advance(0, out)), [(0, 1), (2, 3)]);
        assert_eq!(ready(&mut core, |core, out| core.complete(0, 60, out)), [(1, 60 + 40)]);
    }
}
