//! The events of a cluster: programs arrive, start where dispatching says, in the order of their arrival, and end.

use super::arrivals::{Arrivals, Mix};
use super::demands::{Demand, Demands};
use super::dispatch::{Assignment, Start, dispatch};
use super::fleet::{Fleet, Machine};
use super::programs::Programs;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What is simulated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// How many.
    pub machines: u32,
    /// Each of them.
    pub machine: Machine,
    /// What arrives.
    pub mix: Mix,
    /// The slowdown that programs may have; `None`: without far memory.
    pub slowdown: Option<f64>,
    /// Programs are so many times as large and long as they were measured.
    pub scale: f64,
    /// Until a machine has another backend.
    pub switch_ms: u64,
    /// Until a new machine is there.
    pub new_ms: u64,
    /// Before figures are taken, and for how long then.
    pub warm_up_ms: u64,
    /// See `warm_up_ms`.
    pub measured_ms: u64,
}

/// What came out.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ClusterStats {
    /// Programs that ended in the measured time.
    pub ended: u64,
    /// Of those that started in it: beside others, on free machines, on switched ones, on new ones.
    pub starts: [u64; 4],
    /// Of those that started in it: with all of their memory local.
    pub all_local: u64,
    /// Programs that wait at the end.
    pub waiting: u64,
    /// Of the processors, in use at the end, in per cent.
    pub cores_percent: f64,
    /// Of the local memory, likewise.
    pub memory_percent: f64,
}

/// A program that runs: when it ends, a number that makes the order certain, machine, program, backend.
type Running = Reverse<(u64, u64, u32, usize, Option<usize>)>;

/// Simulates a cluster that is empty at first.
///
/// # Errors
/// A mix that the programs do not have, or a program that no machine is large enough for.
pub fn simulate(programs: &Programs, run: &Run) -> Result<ClusterStats, String> {
    let limits = programs.limits();
    let demands = Demands::new(programs, run.slowdown, run.scale, &run.machine, &limits);
    let mut fleet = Fleet::new(run.machines, run.machine, limits);
    check_sizes(programs, &demands, &fleet)?;
    let mut arrivals = Arrivals::new(programs, run.mix)?.peekable();
    let (mut waiting, mut running): (VecDeque<usize>, BinaryHeap<Running>) = Default::default();
    let (mut figures, mut started) = (ClusterStats::default(), 0);
    let until = run.warm_up_ms + run.measured_ms;
    loop {
        let arrival = arrivals.peek().map_or(u64::MAX, |(at, _)| *at);
        let end = running.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        let now = arrival.min(end);
        if now >= until {
            break;
        }
        let is_measured = now >= run.warm_up_ms;
        if end <= arrival {
            let Reverse((_, _, machine, program, backend)) = running.pop().expect("one ends");
            fleet.end(machine, started_with(&demands, program, backend));
            figures.ended += u64::from(is_measured);
        } else {
            waiting.extend(arrivals.next().map(|(_, program)| program));
            // Who comes behind others that wait changes nothing.
            if waiting.len() > 1 {
                continue;
            }
        }
        while let Some(program) = waiting.front().copied()
            && let Some(Assignment { machine, backend, start }) = dispatch(&fleet, &demands, program)
        {
            waiting.pop_front();
            let demand = started_with(&demands, program, backend);
            fleet.start(machine, backend, demand);
            match start {
                Start::Warm | Start::Free => {}
                Start::Switched => fleet.prepare(machine, now + run.switch_ms),
                Start::New => fleet.prepare(machine, now + run.new_ms),
            }
            // Beside others on a machine that is not ready yet it waits as they do.
            let begins_ms = now.max(fleet.ready_ms(machine));
            running.push(Reverse((begins_ms + demand.run_ms, started, machine, program, backend)));
            started += 1;
            figures.starts[start as usize] += u64::from(is_measured);
            figures.all_local += u64::from(is_measured && backend.is_none());
        }
    }
    let (cores, memory_mib) = fleet.used();
    let machines = u64::from(run.machines);
    figures.waiting = waiting.len() as u64;
    figures.cores_percent = percent(cores, machines * u64::from(run.machine.cores));
    figures.memory_percent = percent(memory_mib, machines * run.machine.memory_mib);
    Ok(figures)
}

/// The demand of a program that was dispatched.
fn started_with(demands: &Demands, program: usize, backend: Option<usize>) -> &Demand {
    demands.of(program, backend).expect("dispatching takes what the program has a demand for")
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}

/// A program that an empty machine does not take would wait for ever, and all behind it.
fn check_sizes(programs: &Programs, demands: &Demands, empty: &Fleet) -> Result<(), String> {
    let is_too_large = |program: usize| dispatch(empty, demands, program).is_none();
    match (0..programs.programs.len()).find(|program| is_too_large(*program)) {
        Some(program) => Err(format!("no machine is large enough for '{}'", programs.programs[program].name)),
        None => Ok(()),
    }
}
