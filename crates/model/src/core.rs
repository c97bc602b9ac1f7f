//! Cores: instructions enter a core's window in program order, four in a cycle, and leave it in that order when they are done. A load that
//! missed the LLC holds all that is more than a window behind it; a store does not. Misses wait for the data that their address depends on, whichever
//! core has asked for these. Cores have the LLC's MSHRs in equal parts.

use crate::filter::Miss;
use crate::parameters::Parameters;
use crate::programs::Part;
use std::collections::VecDeque;

const PENDING: u64 = u64::MAX;
const NONE: u32 = u32::MAX;

/// One core, and the misses that are its own.
#[derive(Debug, Default)]
struct Core {
    /// Which misses, in program order.
    own: Vec<u32>,
    /// The next of them.
    next: usize,
    /// The first of them that is measured.
    measured_from: usize,
    /// Of the last miss that was dispatched: instructions up to it, and when.
    position: u64,
    dispatched_at: u64,
    /// The next miss is not dispatched earlier.
    bound: u64,
    waits_for_mshr: bool,
    outstanding: usize,
    /// Loads that may still hold the window, in program order, with their positions.
    window: VecDeque<(u32, u64)>,
    measured_at: Option<u64>,
    end: u64,
    /// Instructions after its last miss, if some of its misses are measured.
    tail: u64,
    /// When its last instruction, and all of its misses, were done for the first time.
    through_at: Option<u64>,
    /// And when they were for the last time.
    rests_from: u64,
}

/// All cores at work.
///
/// Invariant: a miss is asked for once, not before its dispatch and not before what it depends on is done. One that depends on another is behind it in
/// `misses`, so of those that are not done the first can always go on.
#[derive(Debug)]
pub struct Cores<'s> {
    misses: &'s [Miss],
    parts: &'s [Part],
    window_instructions: u64,
    instruction_ticks: u64,
    mshrs: usize,
    cores: Vec<Core>,
    /// Cores that are not through.
    at_work: usize,
    /// Whether each program has a measured miss that was dispatched.
    are_measured: bool,
    done_at: Vec<u64>,
    dispatch: Vec<u64>,
    first_dependent: Vec<u32>,
    next_dependent: Vec<u32>,
}

impl<'s> Cores<'s> {
    /// Cores before their first instruction.
    pub fn new(misses: &'s [Miss], parts: &'s [Part], parameters: &Parameters) -> Cores<'s> {
        let count = parts.last().map_or(0, |part| part.cores.end);
        let mut cores: Vec<Core> = (0..count).map(|_| Core::default()).collect();
        for part in parts {
            for index in part.misses.clone() {
                let core = &mut cores[usize::from(misses[index].core)];
                core.measured_from += usize::from(index < part.measured_from);
                core.own.push(u32::try_from(index).expect("fewer than 2^32 misses"));
            }
            for (core, tail) in cores[part.cores.clone()].iter_mut().zip(&part.tails) {
                core.tail = *tail;
            }
        }
        Cores {
            misses,
            parts,
            window_instructions: parameters.window_instructions,
            instruction_ticks: parameters.instruction_ticks,
            mshrs: (parameters.llc_mshrs / count.max(1)).max(1),
            at_work: cores.len(),
            are_measured: false,
            cores,
            done_at: vec![PENDING; misses.len()],
            dispatch: vec![0; misses.len()],
            first_dependent: vec![NONE; misses.len()],
            next_dependent: vec![NONE; misses.len()],
        }
    }

    /// The first instructions of all cores. `ready` gets each miss whose address is known, and when it is.
    pub fn start(&mut self, ready: &mut Vec<(u32, u64)>) {
        for core in 0..self.cores.len() {
            if self.cores[core].own.is_empty() {
                self.is_through(core, 0);
            }
            self.advance(core, 0, ready);
        }
    }

    /// Dispatches what the core's window and MSHRs have room for.
    fn advance(&mut self, number: usize, now: u64, ready: &mut Vec<(u32, u64)>) {
        while let Some(index) = self.cores[number].own.get(self.cores[number].next).copied() {
            let instructions = u64::from(self.misses[index as usize].instructions);
            let position = self.cores[number].position + instructions;
            if !self.retire_before(number, position) {
                return;
            }
            let core = &mut self.cores[number];
            if core.outstanding == self.mshrs {
                core.waits_for_mshr = true;
                return;
            }
            let mut at = core.bound.max(core.dispatched_at + instructions * self.instruction_ticks);
            if std::mem::take(&mut core.waits_for_mshr) {
                at = at.max(now);
            }
            self.dispatch_next(number, index, position, at, ready);
        }
    }

    /// Lets loads leave the window so that the instruction at `position` enters it; `false`: one is not done.
    fn retire_before(&mut self, number: usize, position: u64) -> bool {
        let core = &mut self.cores[number];
        while let Some((load, at)) = core.window.front().copied() {
            let Some(behind) = position.checked_sub(at + self.window_instructions) else { break };
            let done = self.done_at[load as usize];
            if done == PENDING {
                return false;
            }
            core.bound = core.bound.max(done + behind * self.instruction_ticks);
            core.window.pop_front();
        }
        true
    }

    fn dispatch_next(&mut self, number: usize, index: u32, position: u64, at: u64, ready: &mut Vec<(u32, u64)>) {
        let (core, miss) = (&mut self.cores[number], self.misses[index as usize]);
        if core.next >= core.measured_from && core.measured_at.is_none() {
            core.measured_at = Some(at);
            let is_measured =
                |part: &Part| self.cores[part.cores.clone()].iter().any(|core| core.measured_at.is_some());
            self.are_measured = self.parts.iter().all(is_measured);
        }
        let core = &mut self.cores[number];
        (core.position, core.dispatched_at, core.bound) = (position, at, 0);
        core.next += 1;
        core.outstanding += 1;
        self.dispatch[index as usize] = at;
        if miss.is_load {
            core.window.push_back((index, position));
        }
        match miss.after.checked_sub(1).map(|after| after as usize) {
            Some(after) if self.done_at[after] == PENDING => {
                self.next_dependent[index as usize] = std::mem::replace(&mut self.first_dependent[after], index);
            }
            Some(after) => ready.push((index, self.known_at(index, self.done_at[after]))),
            None => ready.push((index, at)),
        }
    }

    /// When the address of a miss is known, if what it depends on is done at `done`.
    fn known_at(&self, index: u32, done: u64) -> u64 {
        let cycles = u64::from(self.misses[index as usize].after_cycles);
        self.dispatch[index as usize].max(done + crate::time::cycles(cycles))
    }

    /// The data of a miss are there.
    pub fn complete(&mut self, index: u32, now: u64, ready: &mut Vec<(u32, u64)>) {
        assert_eq!(self.done_at[index as usize], PENDING, "miss {index} is done twice");
        self.done_at[index as usize] = now;
        let mut dependent = std::mem::replace(&mut self.first_dependent[index as usize], NONE);
        while dependent != NONE {
            ready.push((dependent, self.known_at(dependent, now)));
            dependent = self.next_dependent[dependent as usize];
        }
        let number = usize::from(self.misses[index as usize].core);
        let core = &mut self.cores[number];
        core.outstanding -= 1;
        core.end = core.end.max(now);
        if core.next == core.own.len() && core.outstanding == 0 {
            let end = self.end_of(number);
            self.is_through(number, end);
            self.cores[number].rests_from = end;
            self.begin_again(number, now, ready);
        } else {
            self.advance(number, now, ready);
        }
    }

    /// A core was through at `at`, if it was not before.
    fn is_through(&mut self, number: usize, at: u64) {
        if self.cores[number].through_at.is_none() {
            self.cores[number].through_at = Some(at);
            self.at_work -= 1;
        }
    }

    /// When a core whose misses are done is done with the instructions behind them, too.
    fn end_of(&mut self, number: usize) -> u64 {
        let tail = self.cores[number].tail;
        let all_left = self.retire_before(number, self.cores[number].position + tail);
        debug_assert!(all_left, "core {number} has a miss that is not done");
        let core = &self.cores[number];
        core.end.max(core.bound).max(core.dispatched_at + tail * self.instruction_ticks)
    }

    /// A program that is through before others runs its measured part again, so that these stay as disturbed as they were: on all of its cores at
    /// once, when the last of them is through, because what one of them waits for may be another one's.
    fn begin_again(&mut self, number: usize, now: u64, ready: &mut Vec<(u32, u64)>) {
        let own = self.parts.iter().find(|part| part.cores.contains(&number)).expect("a core is of a program");
        let at_rest = self.of(own).all(|core| core.next == core.own.len() && core.outstanding == 0);
        if self.parts.len() == 1 || !at_rest || self.are_through() {
            return;
        }
        let from = self.of(own).map(|core| core.rests_from).max().unwrap_or(now);
        for core in &mut self.cores[own.cores.clone()] {
            (core.next, core.dispatched_at) = (core.measured_from, from);
            core.window.clear();
            core.own[core.next..].iter().for_each(|index| self.done_at[*index as usize] = PENDING);
        }
        own.cores.clone().for_each(|core| self.advance(core, now, ready));
    }

    /// Whether all misses are done.
    pub fn are_through(&self) -> bool {
        self.at_work == 0
    }

    /// Whether the first measured miss of each program was dispatched.
    pub fn are_measured(&self) -> bool {
        self.are_measured
    }

    /// Ticks from a program's first measured miss to its end; none without such a miss.
    pub fn measured_ticks(&self, part: &Part) -> u64 {
        let end = self.of(part).filter_map(|core| core.through_at).max().unwrap_or_default();
        self.of(part).filter_map(|core| core.measured_at).min().map_or(0, |from| end - from)
    }

    fn of(&self, part: &Part) -> impl Iterator<Item = &Core> {
        self.cores[part.cores.clone()].iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NO_LINE;

    fn miss(instructions: u32, after: u32, is_load: bool) -> Miss {
        Miss { line: 0, dirty_victim: NO_LINE, after, instructions, after_cycles: 2, is_load, core: 0 }
    }

    /// One program on the first core.
    fn alone(count: usize) -> [Part; 1] {
        [Part { misses: 0..count, measured_from: 0, instructions: 0, tails: Vec::new(), cores: 0..1 }]
    }

    /// A window of 10 instructions, one tick each.
    fn tiny() -> Parameters {
        Parameters { window_instructions: 10, instruction_ticks: 1, llc_mshrs: 3, ..Parameters::paper() }
    }

    fn ready(cores: &mut Cores, act: impl FnOnce(&mut Cores, &mut Vec<(u32, u64)>)) -> Vec<(u32, u64)> {
        let mut ready = Vec::new();
        act(cores, &mut ready);
        ready
    }

    #[test]
    fn a_load_holds_what_is_a_window_behind_it() {
        let (misses, parts) = ([miss(5, 0, true), miss(4, 0, true), miss(8, 0, true)], alone(3));
        let mut cores = Cores::new(&misses, &parts, &tiny());
        assert_eq!(ready(&mut cores, |cores, out| cores.start(out)), [(0, 5), (1, 9)]);
        // The third is at instruction 17, the first at 5: it enters two ticks after the first's end.
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(0, 100, out)), [(2, 102)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(2, 110, out)), []);
        cores.complete(1, 120, &mut Vec::new());
        assert!(cores.are_through());
        assert_eq!(cores.measured_ticks(&parts[0]), 115);
    }

    #[test]
    fn loads_leave_in_program_order() {
        let (misses, parts) = ([miss(1, 0, true), miss(1, 0, true), miss(20, 0, true)], alone(3));
        let mut cores = Cores::new(&misses, &parts, &tiny());
        cores.start(&mut Vec::new());
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(1, 50, out)), []);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(0, 90, out)), [(2, 90 + 11)]);
    }

    #[test]
    fn a_store_holds_nothing_but_its_mshr() {
        let misses = [miss(1, 0, false), miss(100, 0, false), miss(100, 0, false), miss(100, 0, false)];
        let parts = alone(4);
        let mut cores = Cores::new(&misses, &parts, &tiny());
        assert_eq!(ready(&mut cores, |cores, out| cores.start(out)), [(0, 1), (1, 101), (2, 201)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(1, 700, out)), [(3, 700)]);
    }

    #[test]
    fn instructions_after_the_last_miss_take_their_time() {
        let misses = [miss(1, 0, true)];
        for (tail, done, ticks) in [(500, 5, 500), (500, 900, 899 + 490), (4, 20, 19), (0, 20, 19)] {
            let parts = alone(1).map(|part| Part { tails: vec![tail], ..part });
            let mut cores = Cores::new(&misses, &parts, &tiny());
            cores.start(&mut Vec::new());
            cores.complete(0, done, &mut Vec::new());
            // From 1, when it was dispatched: without a window to wait for, or from the load's end on what is more than a window behind it.
            assert_eq!(
                cores.measured_ticks(&parts[0]),
                ticks,
                "{tail} instructions after a load that is done at {done}"
            );
        }
    }

    #[test]
    fn a_dependent_miss_comes_after_the_data_and_the_hits_between() {
        let (misses, parts) = ([miss(1, 0, true), miss(1, 1, true), miss(1, 0, true)], alone(3));
        let mut cores = Cores::new(&misses, &parts, &tiny());
        assert_eq!(ready(&mut cores, |cores, out| cores.start(out)), [(0, 1), (2, 3)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(0, 60, out)), [(1, 60 + 40)]);
    }

    #[test]
    fn each_core_has_a_window_and_part_of_the_mshrs_and_waits_for_data_of_another() {
        let on = |core, miss| Miss { core, ..miss };
        let misses = [
            on(0, miss(1, 0, true)),
            on(1, miss(1, 0, true)),
            on(0, miss(20, 0, true)),
            on(1, miss(1, 1, true)),
            on(1, miss(1, 0, true)),
        ];
        let parts = [Part { misses: 0..5, measured_from: 1, instructions: 0, tails: Vec::new(), cores: 0..2 }];
        let mut cores = Cores::new(&misses, &parts, &Parameters { llc_mshrs: 5, ..tiny() });
        // Two MSHRs each: the first core's second miss is a window behind, the second core's third waits for an MSHR, its second for the first core's data.
        assert_eq!(ready(&mut cores, |cores, out| cores.start(out)), [(0, 1), (1, 1)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(0, 60, out)), [(3, 60 + 40), (2, 60 + 10)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(1, 70, out)), [(4, 70)]);
        for (index, at) in [(2, 130), (3, 150), (4, 140)] {
            assert!(!cores.are_through());
            cores.complete(index, at, &mut Vec::new());
        }
        // From the second core's first miss, at 1, to the end of its last.
        assert!(cores.are_through() && cores.are_measured());
        assert_eq!(cores.measured_ticks(&parts[0]), 149);
    }

    #[test]
    fn a_program_on_several_cores_runs_again_when_all_of_them_are_through() {
        let on = |core, miss| Miss { core, ..miss };
        // The second core's second miss waits for the data of the first core, which is through by then.
        let misses =
            [on(0, miss(1, 0, true)), on(1, miss(1, 0, true)), on(1, miss(20, 1, true)), on(2, miss(1, 0, true))];
        let part = |misses, cores| Part { misses, measured_from: 0, instructions: 0, tails: Vec::new(), cores };
        let parts = [part(0..3, 0..2), Part { measured_from: 3, ..part(3..4, 2..3) }];
        let mut cores = Cores::new(&misses, &parts, &Parameters { llc_mshrs: 12, ..tiny() });
        assert_eq!(ready(&mut cores, |cores, out| cores.start(out)), [(0, 1), (1, 1), (3, 1)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(0, 10, out)), []);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(1, 100, out)), [(2, 110)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(2, 150, out)), [(0, 151), (1, 151)]);
        assert_eq!(cores.measured_ticks(&parts[0]), 149);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(3, 200, out)), []);
        assert!(cores.are_through());
    }

    #[test]
    fn a_program_that_is_through_runs_its_measured_part_again_until_all_are() {
        let misses = [miss(1, 0, true), miss(1, 0, true), Miss { core: 1, ..miss(1, 0, true) }];
        let part = |misses: std::ops::Range<usize>, measured_from, core| Part {
            misses,
            measured_from,
            instructions: 0,
            tails: Vec::new(),
            cores: core..core + 1,
        };
        let parts = [part(0..2, 1, 0), part(2..3, 2, 1)];
        let mut cores = Cores::new(&misses, &parts, &Parameters { llc_mshrs: 8, ..tiny() });
        assert_eq!(ready(&mut cores, |cores, out| cores.start(out)), [(0, 1), (1, 2), (2, 1)]);
        cores.complete(0, 10, &mut Vec::new());
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(1, 20, out)), [(1, 21)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(1, 40, out)), [(1, 41)]);
        assert_eq!(ready(&mut cores, |cores, out| cores.complete(2, 50, out)), []);
        assert!(cores.are_through());
        // The first time counts.
        assert_eq!(parts.each_ref().map(|part| cores.measured_ticks(part)), [18, 49]);
    }
}
