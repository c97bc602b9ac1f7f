//! What runs do now: differences between two looks.

use crate::control::ps::short;
use crate::control::{PathStatus, Status};
use crate::report::{bytes, count};
use std::collections::HashMap;
use std::time::Instant;

/// Characters of a command in a line.
const COMMAND_WIDTH: usize = 40;

/// The looks before.
#[derive(Default)]
pub struct Rates {
    before: HashMap<i32, (Status, Instant)>,
}

/// A run, as it is shown.
pub struct Row {
    /// Its figures.
    pub status: Status,
    /// Faults that waited for far memory, in a second; since its start at the first look.
    pub faults_per_second: f64,
    /// Time that its threads stood still, in a second of time.
    pub stall_share: f64,
    /// In the order of its paths to far memory.
    pub paths: Vec<PathRates>,
}

/// What goes over a path to far memory in a second: bytes of pages, before they are compressed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathRates {
    /// Stored there.
    pub stored: f64,
    /// Loaded from there.
    pub loaded: f64,
}

/// Characters of a path's name.
const PATH_WIDTH: usize = 30;

impl PathRates {
    /// What the path holds, and what goes over it.
    pub fn line(&self, path: &PathStatus) -> String {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates for people")]
        let rate = |per_second: f64| format!("{:>10}/s", bytes(per_second.round() as u64));
        let (name, far) = (short(&path.url, PATH_WIDTH), bytes(path.far_bytes));
        format!("{name:PATH_WIDTH$} {far:>10}, in {}, out {}", rate(self.stored), rate(self.loaded))
    }
}

impl Rates {
    /// The runs that were found now.
    pub fn rows(&mut self, runs: Vec<Status>, now: Instant) -> Vec<Row> {
        let rows = runs.iter().map(|run| self.row(run, now)).collect();
        self.before = runs.into_iter().map(|run| (run.pid, (run, now))).collect();
        rows
    }

    fn row(&self, run: &Status, now: Instant) -> Row {
        // Another launcher may have got the number.
        let before = self.before.get(&run.pid).filter(|(before, _)| before.wall_seconds <= run.wall_seconds);
        let (faults, stall, seconds) = match &before {
            Some((before, at)) => {
                let seconds = match run.wall_seconds - before.wall_seconds {
                    // The launcher had nothing newer to say.
                    0.0 => now.duration_since(*at).as_secs_f64(),
                    seconds => seconds,
                };
                let faults = run.major_faults.saturating_sub(before.major_faults);
                (faults, run.stall_seconds - before.stall_seconds, seconds)
            }
            None => (run.major_faults, run.stall_seconds, run.wall_seconds),
        };
        let per_second = |amount: f64| if seconds > 0.0 { amount.max(0.0) / seconds } else { 0.0 };
        #[allow(clippy::cast_precision_loss, reason = "rates for people")]
        let number = |count: u64| count as f64;
        // A path that came since has moved all its bytes since.
        let paths_before = before.map_or(&[][..], |(before, _)| &before.paths);
        let of_path = |path: &PathStatus| {
            let before = paths_before.iter().find(|before| before.url == path.url);
            let since = |now: u64, before: Option<u64>| per_second(number(now.saturating_sub(before.unwrap_or(0))));
            PathRates {
                stored: since(path.bytes_in, before.map(|before| before.bytes_in)),
                loaded: since(path.bytes_out, before.map(|before| before.bytes_out)),
            }
        };
        Row {
            faults_per_second: per_second(number(faults)),
            stall_share: per_second(stall),
            paths: run.paths.iter().map(of_path).collect(),
            status: run.clone(),
        }
    }
}

/// The columns but for the command.
pub const COLUMNS: [(&str, usize); 7] =
    [("PID", 7), ("local", 10), ("budget", 10), ("far", 10), ("faults/s", 9), ("stall", 6), ("accur.", 6)];

impl Row {
    /// What stands in the columns.
    pub fn cells(&self) -> [String; 7] {
        let status = &self.status;
        [
            status.pid.to_string(),
            bytes(status.local_bytes),
            bytes(status.local_budget_bytes),
            bytes(status.far_bytes),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people")]
            count(self.faults_per_second.round() as u64),
            format!("{:.0} %", self.stall_share * 100.0),
            status.prefetch_accuracy.map_or_else(|| "–".into(), |share| format!("{:.0} %", share * 100.0)),
        ]
    }

    /// Lines for a pipe, without the time: one for the run, and one for each path to far memory.
    pub fn lines(&self) -> Vec<String> {
        let cells = self.cells().into_iter().zip(COLUMNS);
        let cells: Vec<String> = cells.map(|(cell, (_, width))| format!("{cell:>width$}")).collect();
        let run = format!("{}  {}", cells.join(" "), short(&self.status.command, COMMAND_WIDTH));
        let pid = self.status.pid;
        let path = |(path, rates): (&PathStatus, &PathRates)| format!("{pid:>7} path  {}", rates.line(path));
        [run].into_iter().chain(self.status.paths.iter().zip(&self.paths).map(path)).collect()
    }
}

/// The line above these.
pub fn head() -> String {
    let names: Vec<String> = COLUMNS.iter().map(|(name, width)| format!("{name:>width$}")).collect();
    format!("{:>8}  {}  command\n", "seconds", names.join(" "))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::report::RunFeatures;
    use std::time::Duration;

    /// A run.
    pub fn run(pid: i32, wall_seconds: f64, major_faults: u64, stall_seconds: f64) -> Status {
        Status {
            pid,
            command: format!("./job {pid} with arguments"),
            fault_path: "inline".into(),
            wall_seconds,
            process_count: 2,
            local_budget_bytes: 512 << 20,
            local_ceiling_bytes: None,
            ram_budget_bytes: None,
            pager_cpus: None,
            granularity: "page".into(),
            block_bytes: None,
            local_bytes: 500 << 20,
            total_ram_bytes: 700 << 20,
            managed_bytes: 2 << 30,
            far_bytes: 1536 << 20,
            copied_bytes: 36 << 20,
            major_faults,
            minor_faults: 5,
            prefetched_pages: 1000,
            stall_seconds,
            prefetch_accuracy: Some(0.925),
            features: RunFeatures::default(),
            commands: 0,
            slowdown: None,
            slowdown_asked: None,
            local_wanted_bytes: None,
            local_share_bytes: None,
            slowdown_obstacle: String::new(),
            paths: Vec::new(),
        }
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let (mut rates, begun) = (Rates::default(), Instant::now());
        let row = &rates.rows(vec![run(7, 10.0, 1000, 5.0)], begun)[0];
        assert_eq!((row.faults_per_second, row.stall_share), (100.0, 0.5), "since the start");
        let row = &rates.rows(vec![run(7, 12.0, 1500, 5.5)], begun + Duration::from_secs(2))[0];
        assert_eq!((row.faults_per_second, row.stall_share), (250.0, 0.25));
        // Figures that are no newer.
        let row = &rates.rows(vec![run(7, 12.0, 1500, 5.5)], begun + Duration::from_secs(3))[0];
        assert_eq!((row.faults_per_second, row.stall_share), (0.0, 0.0));
        // Another run with the number.
        let row = &rates.rows(vec![run(7, 1.0, 10, 0.0)], begun + Duration::from_secs(4))[0];
        assert_eq!(row.faults_per_second, 10.0);
    }

    #[test]
    fn paths_are_compared_with_themselves() {
        let path =
            |url: &str, bytes_in, bytes_out| PathStatus { url: url.into(), far_bytes: 1 << 30, bytes_in, bytes_out };
        let with = |at: f64, paths| Status { paths, ..run(7, at, 0, 0.0) };
        let (mut rates, begun) = (Rates::default(), Instant::now());
        let mut look = |at, paths| rates.rows(vec![with(at, paths)], begun)[0].paths.clone();
        look(10.0, vec![path("file:/a", 1000, 500), path("tcp://b", 7, 7)]);
        // The second one is new, and the one that was second has left.
        let paths = look(12.0, vec![path("file:/c", 40, 0), path("file:/a", 3000, 500)]);
        assert_eq!(paths, [PathRates { stored: 20.0, loaded: 0.0 }, PathRates { stored: 1000.0, loaded: 0.0 }]);
    }

    #[test]
    fn lines_stand_below_their_names() {
        let path = PathStatus { url: "file:/far".into(), far_bytes: 1 << 30, bytes_in: 20 << 20, bytes_out: 0 };
        let run = Status { paths: vec![path], ..run(4711, 10.0, 123_456, 1.0) };
        let [line, path] = &Rates::default().rows(vec![run], Instant::now())[0].lines()[..] else {
            panic!("two lines")
        };
        assert_eq!(path, "   4711 path  file:/far                           1 GiB, in      2 MiB/s, out        0 B/s");
        assert_eq!(line, "   4711    500 MiB    512 MiB    1.5 GiB    12,346   10 %   92 %  ./job 4711 with arguments");
        assert_eq!(head().find("command").unwrap(), 10 + line.find("./job").unwrap());
    }
}
