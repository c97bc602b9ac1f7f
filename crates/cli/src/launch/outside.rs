//! Memory outside the budget: unmanaged processes of the run, and unmanaged parts of managed ones.
//!
//! Programs that are started without the run's environment, as another user, as set-user-id programs, or that are
//! static, cannot be managed. The launcher is the subreaper of the run, so it finds them all the same: about once a
//! second it looks at its descendants, and names each that has held more than [`PROCESS_MIN`] of anonymous memory for a
//! second. Of a managed process it names what is not managed when that is more than a tenth of the budget, and more
//! than the same.

use crate::process::{self, Image, ProcessMemory};
use crate::program::{self, Verdict};
use crate::statistics::{NotManaged, ProcessStatistics};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A process that holds less is not worth a word.
const PROCESS_MIN: u64 = 16 << 20;
/// How long it must have held more.
const LASTING: Duration = Duration::from_secs(1);
/// The same for a copy of a managed process that has not said anything yet: it may be about to call exec, or to take its row.
const COPY_LASTING: Duration = Duration::from_secs(5);
/// Processes that are kept for the summary.
const KEPT_MAX: usize = 64;

/// A process, told from another one with the same number by its start.
type Life = (i32, Option<u64>);

/// What was seen of a process.
struct Seen {
    since: Instant,
    /// Its place among those that were told; `None`: it was not yet, or there were too many.
    told: Option<usize>,
    said: bool,
}

/// See the module.
pub struct Outside {
    budget_bytes: u64,
    /// The user has chosen that small objects stay near.
    near_by_choice: bool,
    library: String,
    /// How the programs of this run find its ledger.
    ledger: String,
    seen: HashMap<Life, Seen>,
    /// All that were told.
    pub found: Vec<NotManaged>,
}

impl Outside {
    /// Nothing is known yet. `library` and `ledger`: the paths that managed programs preload and open.
    pub fn new(budget_bytes: u64, near_by_choice: bool, library: &Path, ledger: String) -> Outside {
        let library = library.display().to_string();
        Outside { budget_bytes, near_by_choice, library, ledger, seen: HashMap::new(), found: Vec::new() }
    }

    /// Looks at all descendants; `rows` are those of live processes. Returns what is new.
    pub fn look(&mut self, rows: &[ProcessStatistics]) -> Vec<NotManaged> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let known: HashMap<i32, &ProcessStatistics> = rows.iter().map(|row| (row.pid, row)).collect();
        let mut holding = HashMap::new();
        let mut new = Vec::new();
        for (pid, name) in process::descendants(own) {
            let Some(memory) = ProcessMemory::read(pid) else { continue };
            let row = known.get(&pid).copied();
            let Some(bytes) = self.outside(row, memory) else { continue };
            let life = (pid, process::started_ns(pid).ok().flatten());
            let mut seen = self.seen.remove(&life).unwrap_or(Seen { since: Instant::now(), told: None, said: false });
            let lasting = if row.is_none() && is_copy(pid, &known) { COPY_LASTING } else { LASTING };
            if let Some(told) = seen.told.and_then(|index| self.found.get_mut(index)) {
                told.anonymous_bytes = told.anonymous_bytes.max(bytes);
            } else if !seen.said && seen.since.elapsed() >= lasting {
                seen.said = true;
                let why = row.map_or_else(|| self.why(pid, &name), why_of_row);
                let is_part = row.is_some_and(ProcessStatistics::is_managed);
                let found = NotManaged { pid, program: name, why, is_part, anonymous_bytes: bytes };
                if self.found.len() < KEPT_MAX {
                    seen.told = Some(self.found.len());
                    self.found.push(found.clone());
                }
                new.push(found);
            }
            holding.insert(life, seen);
        }
        self.seen = holding;
        new
    }

    /// The bytes outside the budget, if they are worth a word.
    fn outside(&self, row: Option<&ProcessStatistics>, memory: ProcessMemory) -> Option<u64> {
        let Some(row) = row.filter(|row| row.is_managed()) else {
            return Some(memory.anonymous_bytes).filter(|bytes| *bytes > PROCESS_MIN);
        };
        let mut figures = row.clone();
        figures.estimate_unmanaged(&memory);
        let own_as_it_says = row.now.own_bytes.saturating_sub(figures.now.own_bytes);
        let bytes = figures.now.unmanaged_anonymous_bytes.saturating_sub(own_as_it_says);
        let limit = PROCESS_MIN.max(self.budget_bytes / 10);
        Some(bytes).filter(|bytes| *bytes > limit && !self.near_by_choice)
    }

    /// Why a process has no row.
    fn why(&self, pid: i32, name: &str) -> String {
        let directory = format!("/proc/{pid}");
        let user = |path: &str| std::fs::metadata(path).ok().map(|data| data.uid());
        let own = user("/proc/self");
        if own.is_some() && user(&directory) != own {
            return "another user".into();
        }
        let file = format!("{directory}/exe");
        let file = std::fs::read_link(&file).unwrap_or_else(|_| file.into());
        if let Ok(Verdict::Unmanageable(why)) = program::classify(name, &file, "".as_ref()) {
            return why.to_string();
        }
        match std::fs::read(format!("{directory}/environ")) {
            Ok(environment) if !holds(&environment, self.library.as_bytes()) => "without the run's environment".into(),
            Ok(environment) if !holds(&environment, self.ledger.as_bytes()) => "in a run of its own".into(),
            _ if process::pid_namespace(pid) != process::pid_namespace(0) => "in a PID namespace of its own".into(),
            _ => "the library did not report".into(),
        }
    }
}

/// Why a process that has a row holds memory outside the budget.
fn why_of_row(row: &ProcessStatistics) -> String {
    match row.is_managed() {
        true => "a part of its memory".into(),
        false => row.reason.clone(),
    }
}

/// Whether a process is a copy of its parent, which is managed: it runs the same image.
fn is_copy(pid: i32, known: &HashMap<i32, &ProcessStatistics>) -> bool {
    let image = |pid: i32| -> Option<Image> { process::image(pid) };
    let parent = process::parent(pid).filter(|parent| known.contains_key(parent));
    parent.is_some_and(|parent| image(parent).is_some() && image(parent) == image(pid))
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Gauges;

    fn outside(budget_bytes: u64) -> Outside {
        Outside::new(budget_bytes, false, Path::new("/lib/libhinterland.so"), "/proc/1/fd/3".into())
    }

    fn holding(mebibytes: u64) -> ProcessMemory {
        ProcessMemory { anonymous_bytes: mebibytes << 20, ..ProcessMemory::default() }
    }

    #[test]
    fn a_process_without_a_row_counts_from_16_mib_on() {
        let outside = outside(1 << 30);
        assert_eq!(outside.outside(None, holding(16)), None);
        assert_eq!(outside.outside(None, holding(17)), Some(17 << 20));
        let refused = ProcessStatistics { reason: "no userfaultfd".into(), ..ProcessStatistics::default() };
        assert_eq!(outside.outside(Some(&refused), holding(17)), Some(17 << 20));
    }

    #[test]
    fn of_a_managed_process_counts_what_is_neither_managed_nor_hinterlands_own() {
        let now = Gauges { resident_managed_bytes: 100 << 20, ..Gauges::default() };
        let row = ProcessStatistics {
            fault_path: "inline".into(),
            now,
            beside_bytes: 30 << 20,
            ..ProcessStatistics::default()
        };
        assert_eq!(outside(1 << 20).outside(Some(&row), holding(130 + 16)), None);
        assert_eq!(outside(1 << 20).outside(Some(&row), holding(130 + 20)), Some(20 << 20));
        assert_eq!(outside(1 << 30).outside(Some(&row), holding(130 + 20)), None, "less than a tenth of the budget");
        let by_choice = Outside { near_by_choice: true, ..outside(1 << 20) };
        assert_eq!(by_choice.outside(Some(&row), holding(1000)), None);
    }
}
