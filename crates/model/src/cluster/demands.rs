//! What a program takes of a machine at a slowdown, with each kind of far memory, and which it would rather have: the offline half of Algorithm 1
//! (page features, choice of the backend, parameters), by the curves that were measured.
//!
//! Of the measured points that keep the slowdown, a program has the one with which it takes least of a machine, for as long as it runs: the
//! largest of its shares of processors, local memory, far memory and path. The least local memory alone fills the path, and the machine's
//! memory stays empty.

use super::fleet::{Limits, Machine};
use super::programs::{Backend, Point, Program, Programs};
use std::cmp::Ordering;

/// Processors, memory and far memory that one program takes while it runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// Local memory, with what far memory of the machine itself takes.
    pub local_mib: u64,
    /// Far memory.
    pub far_mib: u64,
    /// Over the path.
    pub far_bytes_per_second: u64,
    /// Run time.
    pub run_ms: u64,
    /// Machines that it takes, times seconds.
    pub machine_seconds: f64,
}

/// The demands of all programs at one slowdown.
#[derive(Clone, PartialEq, Debug)]
pub struct Demands {
    /// By program and backend; none where the backend does not keep the slowdown.
    with_far: Vec<Vec<Option<Demand>>>,
    /// By program: all of its memory local.
    local: Vec<Demand>,
    /// By program: backends, the one with which it takes least of a machine first; `None`: all of its memory local.
    preferred: Vec<Vec<Option<usize>>>,
}

impl Demands {
    /// For programs of `scale` times their measured memory and run time on a kind of machine, `limits` of each kind of far memory; `None`: all
    /// memory is local.
    pub fn new(
        programs: &Programs,
        slowdown: Option<f64>,
        scale: f64,
        machine: &Machine,
        limits: &[Limits],
    ) -> Demands {
        let least = |program: &Program, backend: &Backend, limits: &Limits| {
            let points = program.keeping(&backend.name, slowdown?);
            let demands = points.map(|point| demand(program, Some((backend, limits, point)), scale, machine));
            demands.min_by(by_machine_seconds)
        };
        let of_program = |program: &Program| {
            let backends = programs.backends.iter().zip(limits);
            backends.map(|(backend, limits)| least(program, backend, limits)).collect::<Vec<_>>()
        };
        let with_far: Vec<Vec<Option<Demand>>> = programs.programs.iter().map(of_program).collect();
        let local = programs.programs.iter().map(|program| demand(program, None, scale, machine));
        let local: Vec<Demand> = local.collect();
        let preferred = with_far.iter().zip(&local).map(|(row, local)| {
            let far = row.iter().enumerate().filter_map(|(at, demand)| Some((Some(at), demand.as_ref()?)));
            let mut all: Vec<(Option<usize>, &Demand)> = far.chain([(None, local)]).collect();
            all.sort_by(|(_, one), (_, other)| by_machine_seconds(one, other));
            all.into_iter().map(|(backend, _)| backend).collect()
        });
        let preferred = preferred.collect();
        Demands { with_far, local, preferred }
    }

    /// Of a program on a backend, if that keeps the slowdown; of a program whose memory is all local.
    pub fn of(&self, program: usize, backend: Option<usize>) -> Option<&Demand> {
        match backend {
            Some(backend) => self.with_far[program][backend].as_ref(),
            None => Some(&self.local[program]),
        }
    }

    /// Backends in the order in which a program would have them, and among them none at all.
    pub fn preferred(&self, program: usize) -> &[Option<usize>] {
        &self.preferred[program]
    }
}

fn by_machine_seconds(one: &Demand, other: &Demand) -> Ordering {
    one.machine_seconds.total_cmp(&other.machine_seconds)
}

/// In MiB, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and far below 2^64")]
fn mib(bytes: f64) -> u64 {
    (bytes / f64::from(1 << 20)).ceil() as u64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "positive, and far below 2^53"
)]
fn demand(program: &Program, with: Option<(&Backend, &Limits, &Point)>, scale: f64, machine: &Machine) -> Demand {
    let touched = program.touched_bytes as f64 * scale;
    let percent = with.map_or(100.0, |(.., point)| point.local_percent);
    let slowdown = with.map_or(1.0, |(.., point)| point.slowdown.max(1.0));
    let local = touched * percent / 100.0;
    let far = touched - local;
    let local_mib = mib(local + with.map_or(0.0, |(backend, ..)| far * backend.local_bytes_per_byte));
    let (far_mib, far_bytes_per_second) =
        (mib(far), with.map_or(0, |(.., point)| point.far_bytes_per_second.ceil() as u64));
    let of_far = |limits: &Limits| {
        let (path, capacity) =
            (far_bytes_per_second as f64 / limits.bytes_per_second as f64, far_mib as f64 / limits.far_mib as f64);
        path.max(capacity)
    };
    let share = (1.0 / f64::from(machine.cores))
        .max(local_mib as f64 / machine.memory_mib as f64)
        .max(with.map_or(0.0, |(_, limits, _)| of_far(limits)));
    let seconds = program.cpu_seconds * scale * slowdown;
    Demand {
        local_mib,
        far_mib,
        far_bytes_per_second,
        run_ms: ((seconds * 1000.0).round() as u64).max(1),
        machine_seconds: share * seconds,
    }
}
