//! What was asked for, simulated and written down: a row for each mix and slowdown, beside the same mix without far memory.

use super::arrivals::Mix;
use super::programs::Programs;
use super::simulate::{ClusterStats, Run, simulate};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

/// What is to be simulated.
#[derive(Clone, Debug)]
pub struct Request {
    /// What runs.
    pub programs: Programs,
    /// Everything but mix and slowdown.
    pub run: Run,
    /// Slowdowns that programs may have.
    pub slowdowns: Vec<f64>,
    /// Shares of friendly programs, in per cent.
    pub friendly: Vec<u32>,
}

/// One simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    friendly_percent: u32,
    /// `None`: without far memory.
    slowdown: Option<f64>,
    programs_per_hour: f64,
    /// Times as many as without far memory.
    gain: f64,
    started_warm: u64,
    started_free: u64,
    started_switched: u64,
    started_new: u64,
    started_all_local: u64,
    cores_percent: f64,
    memory_percent: f64,
}

/// What a program is in the cluster.
#[derive(Clone, Debug, Serialize)]
struct ProgramRow {
    name: String,
    is_friendly: bool,
    memory_gib: f64,
    run_seconds: f64,
    /// At each of the slowdowns: the backend that it would rather have, and its local memory in per cent.
    choices: Vec<Choice>,
}

#[derive(Clone, Debug, Serialize)]
struct Choice {
    /// `None`: all of its memory local.
    backend: Option<String>,
    local_percent: f64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    model: &'static str,
    version: &'static str,
    machines: u32,
    cores: u32,
    memory_gib: u64,
    seed: u64,
    slowdowns: Vec<f64>,
    friendly_percent: Vec<u32>,
    programs: Vec<ProgramRow>,
    rows: Vec<Row>,
}

/// Simulates what was asked for.
///
/// # Errors
/// As [`simulate`], or if nothing is measured.
pub fn make(request: &Request) -> Result<Report, String> {
    let mut rows = Vec::new();
    for friendly_percent in &request.friendly {
        let one = |slowdown| {
            let mix = Mix { friendly_percent: *friendly_percent, ..request.run.mix };
            simulate(&request.programs, &Run { mix, slowdown, ..request.run })
        };
        let without = one(None)?;
        if without.ended == 0 {
            return Err(format!(
                "without far memory no program ends in the measured time, {friendly_percent} % of them friendly; take more --machines or --cores, or a larger --load"
            ));
        }
        rows.push(row(request, *friendly_percent, None, &without, &without));
        for slowdown in &request.slowdowns {
            rows.push(row(request, *friendly_percent, Some(*slowdown), &one(Some(*slowdown))?, &without));
        }
    }
    Ok(Report {
        model: "cluster",
        version: env!("CARGO_PKG_VERSION"),
        machines: request.run.machines,
        cores: request.run.machine.cores,
        memory_gib: request.run.machine.memory_mib >> 10,
        seed: request.run.mix.seed,
        slowdowns: request.slowdowns.clone(),
        friendly_percent: request.friendly.clone(),
        programs: program_rows(request),
        rows,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn row(
    request: &Request,
    friendly_percent: u32,
    slowdown: Option<f64>,
    got: &ClusterStats,
    without: &ClusterStats,
) -> Row {
    let [started_warm, started_free, started_switched, started_new] = got.starts;
    Row {
        friendly_percent,
        slowdown,
        programs_per_hour: got.ended as f64 * 3.6e6 / request.run.measured_ms as f64,
        gain: got.ended as f64 / without.ended as f64,
        started_warm,
        started_free,
        started_switched,
        started_new,
        started_all_local: got.all_local,
        cores_percent: got.cores_percent,
        memory_percent: got.memory_percent,
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes far below 2^53")]
fn program_rows(request: &Request) -> Vec<ProgramRow> {
    let Request { programs, run, .. } = request;
    let limits = programs.limits();
    let demands = request.slowdowns.iter();
    let demands =
        demands.map(|slowdown| super::Demands::new(programs, Some(*slowdown), run.scale, &run.machine, &limits));
    let demands: Vec<super::Demands> = demands.collect();
    let choices = |program: usize| {
        let choice = |demands: &super::Demands| {
            let backend = demands.preferred(program)[0];
            let demand = demands.of(program, backend).expect("what it would rather have can be");
            let touched_mib = programs.programs[program].touched_bytes as f64 * run.scale / f64::from(1 << 20);
            let local_percent = 100.0 - 100.0 * (demand.far_mib as f64 / touched_mib).min(1.0);
            Choice { backend: backend.map(|backend| programs.backends[backend].name.clone()), local_percent }
        };
        demands.iter().map(choice).collect()
    };
    let rows = programs.programs.iter().enumerate().map(|(at, program)| ProgramRow {
        name: program.name.clone(),
        is_friendly: program.is_friendly(),
        memory_gib: program.touched_bytes as f64 * run.scale / f64::from(1 << 30),
        run_seconds: program.cpu_seconds * run.scale,
        choices: choices(at),
    });
    rows.collect()
}

impl Report {
    /// For programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names") + "\n"
    }

    /// For people: programs ended, beside those without far memory.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING);
        let slowdowns = self.slowdowns.iter().map(|slowdown| format!("at {slowdown:.2}"));
        table.set_header(["friendly %".to_owned(), "without, programs/h".to_owned()].into_iter().chain(slowdowns));
        for friendly in &self.friendly_percent {
            let of_mix: Vec<&Row> = self.rows.iter().filter(|row| row.friendly_percent == *friendly).collect();
            let gains = of_mix[1..].iter().map(|row| format!("{:.2} x", row.gain));
            let first = [friendly.to_string(), format!("{:.0}", of_mix[0].programs_per_hour)];
            table.add_row(first.into_iter().chain(gains));
        }
        table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        let Report { machines, cores, memory_gib, .. } = self;
        format!("{machines} machines of {cores} processors and {memory_gib} GiB\n{table}\n")
    }
}
