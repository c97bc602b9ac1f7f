//! What a program takes of a machine at a slowdown, with each kind of far memory, and which it would rather have: the offline half of Algorithm 1
//! (page features, choice of the backend, parameters), by the curves that were measured.

use super::programs::{Backend, Point, Program, Programs};

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
    /// What its memory costs, beside all of it local.
    pub memory_cost: f64,
}

/// The demands of all programs at one slowdown.
#[derive(Clone, PartialEq, Debug)]
pub struct Demands {
    /// By program and backend; none where the backend does not keep the slowdown.
    with_far: Vec<Vec<Option<Demand>>>,
    /// By program: all of its memory local.
    local: Vec<Demand>,
    /// By program: backends, the one with which memory costs least first; `None`: all of its memory local.
    preferred: Vec<Vec<Option<usize>>>,
}

impl Demands {
    /// For programs of `scale` times their measured memory and run time; `None`: all memory is local.
    pub fn new(programs: &Programs, slowdown: Option<f64>, scale: f64) -> Demands {
        let of_program = |program: &Program| {
            let demand = |backend: &Backend| {
                let point = program.least(&backend.name, slowdown?)?;
                Some(demand(program, Some((backend, point)), scale))
            };
            programs.backends.iter().map(demand).collect::<Vec<_>>()
        };
        let with_far: Vec<Vec<Option<Demand>>> = programs.programs.iter().map(of_program).collect();
        let local: Vec<Demand> = programs.programs.iter().map(|program| demand(program, None, scale)).collect();
        let preferred = with_far.iter().zip(&local).map(|(row, local)| {
            let far = row.iter().enumerate().filter_map(|(at, demand)| Some((Some(at), demand.as_ref()?.memory_cost)));
            let mut all: Vec<(Option<usize>, f64)> = far.chain([(None, local.memory_cost)]).collect();
            all.sort_by(|(_, one), (_, other)| one.total_cmp(other));
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

    /// Backends in the order in which a program would have them.
    pub fn preferred(&self, program: usize) -> &[Option<usize>] {
        &self.preferred[program]
    }
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
fn demand(program: &Program, with: Option<(&Backend, &Point)>, scale: f64) -> Demand {
    let touched = program.touched_bytes as f64 * scale;
    let percent = with.map_or(100.0, |(_, point)| point.local_percent);
    let slowdown = with.map_or(1.0, |(_, point)| point.slowdown.max(1.0));
    let local = touched * percent / 100.0;
    let far = touched - local;
    Demand {
        local_mib: mib(local + with.map_or(0.0, |(backend, _)| far * backend.local_bytes_per_byte)),
        far_mib: mib(far),
        far_bytes_per_second: with.map_or(0, |(_, point)| point.far_bytes_per_second.ceil() as u64),
        run_ms: ((program.cpu_seconds * scale * slowdown * 1000.0).round() as u64).max(1),
        memory_cost: with.map_or(1.0, |(backend, _)| (local + far * backend.cost) / touched),
    }
}
