//! What a program takes of a machine at a slowdown, with each kind of far memory, and which it would rather have: the offline half of Algorithm 1
//! (page features, choice of the backend, parameters), by the curves that were measured.

use super::programs::{Backend, Program, Programs};

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
    /// By program and backend.
    rows: Vec<Vec<Demand>>,
    /// By program: backends, the one with which memory costs least first.
    preferred: Vec<Vec<usize>>,
}

impl Demands {
    /// For programs of `scale` times their measured memory and run time; `None`: all memory is local.
    pub fn new(programs: &Programs, slowdown: Option<f64>, scale: f64) -> Demands {
        let rows: Vec<Vec<Demand>> = programs
            .programs
            .iter()
            .map(|program| programs.backends.iter().map(|backend| demand(program, backend, slowdown, scale)).collect())
            .collect();
        let preferred = rows.iter().map(|row| {
            let mut backends: Vec<usize> = (0..row.len()).collect();
            backends.sort_by(|one, other| row[*one].memory_cost.total_cmp(&row[*other].memory_cost));
            backends
        });
        let preferred = preferred.collect();
        Demands { rows, preferred }
    }

    /// Of a program on a backend.
    pub fn of(&self, program: usize, backend: usize) -> &Demand {
        &self.rows[program][backend]
    }

    /// Backends in the order in which a program would have them.
    pub fn preferred(&self, program: usize) -> &[usize] {
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
fn demand(program: &Program, backend: &Backend, slowdown: Option<f64>, scale: f64) -> Demand {
    let touched = program.touched_bytes as f64 * scale;
    let all_local = (100.0, 1.0, 0.0);
    let point = slowdown.and_then(|slowdown| program.least(&backend.name, slowdown));
    let (percent, slowdown, traffic) =
        point.map_or(all_local, |point| (point.local_percent, point.slowdown.max(1.0), point.far_bytes_per_second));
    let local = touched * percent / 100.0;
    let far = touched - local;
    Demand {
        local_mib: mib(local + far * backend.local_bytes_per_byte),
        far_mib: mib(far),
        far_bytes_per_second: traffic.ceil() as u64,
        run_ms: ((program.cpu_seconds * scale * slowdown * 1000.0).round() as u64).max(1),
        memory_cost: (local + far * backend.cost) / touched,
    }
}
