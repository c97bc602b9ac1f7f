//! A machine's memory, divided among runs: each publishes what it holds and what it wants, and computes by itself the
//! most that it may hold ([`MachineShare::look`], called at equal intervals). Where all can have what they want there
//! is no bound; else the bound is max-min fair ([`fair_level`]). A run without a stated need is not bounded: what it
//! holds is taken off the rest.
//!
//! A look may be off for a moment: what a run has taken since it said what it holds is missing in the machine, and not yet found with the run. So
//! the memory that there is is the median of some looks. What runs want goes up and down while each of them tries what is enough, so the bound
//! rises only to what it was for some seconds. It falls at once.

use crate::fair_share::fair_level;

/// What a run says of its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunMemory {
    /// Local memory that it holds, in bytes.
    pub local_bytes: u64,
    /// What it wants to keep its service level, in bytes; `None`: it has none.
    pub wanted_bytes: Option<u64>,
}

/// Looks of which the memory that there is is the median.
const ROOM_LOOKS: usize = 5;
/// Looks of which the bound is the least: three seconds.
const LEVEL_LOOKS: usize = 6;

/// The machine, as one run sees it.
#[derive(Clone, Debug)]
pub struct MachineShare {
    rooms: [u64; ROOM_LOOKS],
    levels: [u64; LEVEL_LOOKS],
    looks: usize,
}

impl Default for MachineShare {
    fn default() -> MachineShare {
        MachineShare { rooms: [0; ROOM_LOOKS], levels: [u64::MAX; LEVEL_LOOKS], looks: 0 }
    }
}

impl MachineShare {
    /// The most that a run with a service level may hold, where all of `runs` may hold `room` bytes together; `u64::MAX`: what it wants. A run
    /// that is alone has what it wants.
    pub fn look(&mut self, room: u64, runs: &[RunMemory]) -> u64 {
        self.rooms[self.looks % ROOM_LOOKS] = room;
        let mut rooms = self.rooms;
        let rooms = &mut rooms[..(self.looks + 1).min(ROOM_LOOKS)];
        rooms.sort_unstable();
        self.levels[self.looks % LEVEL_LOOKS] = level(rooms[rooms.len() / 2], runs);
        self.looks += 1;
        self.levels.iter().fold(u64::MAX, |least, level| least.min(*level))
    }
}

fn level(room: u64, runs: &[RunMemory]) -> u64 {
    if runs.len() < 2 {
        return u64::MAX;
    }
    let unbounded = runs.iter().filter(|run| run.wanted_bytes.is_none());
    let taken = unbounded.map(|run| run.local_bytes).fold(0, u64::saturating_add);
    fair_level(room.saturating_sub(taken), || runs.iter().filter_map(|run| run.wanted_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_level::tests::{MIB, Program};

    /// A run on a machine, in virtual time.
    struct Run {
        program: Program,
        machine: MachineShare,
        size: u64,
        /// The least local memory with which it keeps its slowdown of 1.2, in MiB.
        need: f64,
        said: RunMemory,
    }

    impl Run {
        fn new(size: u64, need: f64) -> Run {
            let program = Program::new(1.2, 4096 * MIB);
            Run { program, machine: MachineShare::default(), size: size * MIB, need, said: RunMemory::default() }
        }

        fn budget(&self) -> u64 {
            self.program.level.budget() / MIB
        }

        fn keeps(&self) -> bool {
            self.budget() as f64 >= self.need
        }
    }

    /// Runs that look one after the other each half second; what they hold is as large as the first look of each says.
    fn play(runs: &mut [Run], unbounded: &[RunMemory], room: u64, seconds: usize) -> Vec<Vec<u64>> {
        let mut budgets = Vec::new();
        for _ in 0..2 * seconds {
            for at in 0..runs.len() {
                let run = &mut runs[at];
                let need = run.need;
                run.program.step(run.size, |mib| 0.2 * (need / mib).powi(4));
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
                let local_bytes = run.program.held as u64;
                run.said = RunMemory { local_bytes, wanted_bytes: Some(run.program.level.wanted()) };
                let all: Vec<RunMemory> = runs.iter().map(|run| run.said).chain(unbounded.iter().copied()).collect();
                let cap = runs[at].machine.look(room * MIB, &all);
                runs[at].program.level.set_cap(cap);
            }
            budgets.push(runs.iter().map(Run::budget).collect());
        }
        budgets
    }

    fn names_short(runs: &[Run]) -> Vec<bool> {
        runs.iter().map(|run| run.program.level.is_short()).collect()
    }

    /// The least and the most of a run's budgets in the last so many seconds.
    fn span(budgets: &[Vec<u64>], run: usize, seconds: usize) -> (u64, u64) {
        let last = budgets[budgets.len() - 2 * seconds..].iter().map(|all| all[run]);
        (last.clone().min().unwrap(), last.max().unwrap())
    }

    #[test]
    fn runs_that_fit_on_the_machine_together_all_keep_their_slowdown() {
        // Each of them has more than all may hold.
        let mut runs = [Run::new(1500, 560.0), Run::new(1500, 250.0), Run::new(1200, 60.0)];
        play(&mut runs, &[], 1000, 120);
        let mut kept = [0; 3];
        for _ in 0..120 {
            let budgets = play(&mut runs, &[], 1000, 1);
            assert!(budgets.iter().all(|all| all.iter().sum::<u64>() <= 1010), "{budgets:?}");
            kept.iter_mut().zip(&runs).for_each(|(count, run)| *count += u32::from(run.keeps()));
        }
        assert!(kept.iter().all(|count| *count >= 110), "{kept:?} of 120 seconds");
        assert_eq!(names_short(&runs), [false; 3]);
        assert!(runs.iter().all(|run| run.program.level.achieved() < 1.25));
    }

    #[test]
    fn runs_that_do_not_fit_are_named_and_those_that_want_little_have_it() {
        let mut runs = [Run::new(1500, 800.0), Run::new(1500, 700.0), Run::new(1000, 100.0)];
        let budgets = play(&mut runs, &[], 1000, 120);
        assert_eq!(names_short(&runs), [true, true, false]);
        assert!(runs[2].keeps());
        let [first, second] = [0, 1].map(|run| span(&budgets, run, 60));
        assert!(first.0 >= 380 && first.1 <= 450 && second.0 >= 380 && second.1 <= 450, "{first:?} {second:?}");
        let wanted = |run: &Run| run.program.level.wanted() / MIB;
        assert!(wanted(&runs[0]) > 1400 && wanted(&runs[1]) > 1400, "what was enough when nothing was bounded");
    }

    #[test]
    fn a_run_that_comes_takes_its_part_and_gives_it_back_in_a_few_seconds() {
        let mut runs = vec![Run::new(1500, 700.0)];
        play(&mut runs, &[], 1000, 60);
        assert!((700..=900).contains(&runs[0].budget()), "alone: {}", runs[0].budget());
        let wanted = runs[0].program.level.wanted() / MIB;
        runs.push(Run::new(1500, 600.0));
        play(&mut runs, &[], 1000, 30);
        assert!((490..=510).contains(&runs[0].budget()), "beside another: {}", runs[0].budget());
        assert_eq!(names_short(&runs), [true, true]);
        let level = &runs[0].program.level;
        assert!(level.is_proven() && level.wanted() / MIB == wanted, "what was enough: {}", level.wanted() / MIB);
        runs.pop();
        play(&mut runs, &[], 1000, 4);
        assert_eq!(runs[0].budget(), wanted, "alone again");
        play(&mut runs, &[], 1000, 15);
        assert_eq!(names_short(&runs), [false]);
    }

    #[test]
    fn a_run_for_which_no_size_was_ever_enough_wants_all_that_it_has() {
        let mut runs = [Run::new(20, 1.0)];
        let beside = [RunMemory { local_bytes: 300 * MIB, wanted_bytes: None }];
        play(&mut runs, &beside, 500, 30);
        // It grows, and needs more than there is.
        (runs[0].size, runs[0].need) = (1500 * MIB, 800.0);
        play(&mut runs, &beside, 500, 30);
        let level = &runs[0].program.level;
        assert_eq!((level.budget() / MIB, level.wanted() / MIB), (200, 1500));
        assert!(level.is_short() && !level.is_proven());
    }

    #[test]
    fn what_runs_without_a_service_level_hold_is_taken() {
        let holds = |mib: u64| RunMemory { local_bytes: mib * MIB, wanted_bytes: None };
        let mut runs = [Run::new(1500, 500.0)];
        play(&mut runs, &[holds(600)], 1000, 60);
        assert_eq!((runs[0].budget(), names_short(&runs)), (400, vec![true]));
        play(&mut runs, &[holds(200)], 1000, 60);
        assert!(runs[0].keeps() && !runs[0].program.level.is_short(), "{}", runs[0].budget());
        play(&mut runs, &[holds(2000)], 1000, 60);
        assert_eq!(runs[0].budget(), 16, "the floor");
    }

    #[test]
    fn a_run_that_sleeps_keeps_what_it_has_said_and_is_not_taken_for_one_that_has_enough() {
        use crate::service_level::{Interval, ServiceLevel};
        let mut level = ServiceLevel::new(1.2, 16 * MIB, 1000 * MIB);
        for second in 0..100 {
            let (local_bytes, managed_bytes) = (level.budget().min(300 * MIB), 900 * MIB);
            level.observe(&Interval { elapsed_ns: 500_000_000, local_bytes, managed_bytes, ..Interval::default() });
            level.set_cap(if second < 2 { u64::MAX } else { 100 * MIB });
        }
        assert_eq!((level.budget(), level.wanted(), level.is_short()), (100 * MIB, 300 * MIB, false));
    }

    #[test]
    fn a_look_that_is_off_changes_nothing_and_the_bound_falls_at_once() {
        let runs = [600, 600].map(|mib| RunMemory { local_bytes: mib, wanted_bytes: Some(mib) });
        let mut machine = MachineShare::default();
        let mut look = |room| machine.look(room, &runs);
        (0..5).for_each(|_| assert_eq!(look(1000), 500));
        assert_eq!([look(700), look(1000), look(1400), look(1000)], [500; 4], "single looks");
        assert_eq!([look(800), look(800), look(800)], [500, 500, 400], "most of five");
        let rises: Vec<u64> = (0..9).map(|_| look(2000)).collect();
        assert_eq!(rises, [400, 400, 400, 400, 400, 400, 400, u64::MAX, u64::MAX]);
    }

    #[test]
    fn a_run_alone_has_what_it_wants() {
        let run = RunMemory { local_bytes: 10, wanted_bytes: Some(2000) };
        assert_eq!(MachineShare::default().look(1000, &[run]), u64::MAX);
        assert_eq!(MachineShare::default().look(1000, &[run, run]), 500);
    }
}
