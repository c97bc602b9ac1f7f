//! Requests to this run while it goes on: for its figures and for another budget (`crate::control`), and from its own
//! processes for its files (`super::handover`). The budget also follows the service level, if the run has one, and the
//! memory that other runs leave (`super::other_runs`).
//!
//! A launcher that cannot listen says so once and goes on with the program. This module writes commands into the
//! ledger, where every process of the run reads them by itself, and follows them until all have acknowledged.

use super::collect::{self, Present};
use super::handover::Handover;
use super::ledger::LauncherLedger;
use super::liveness::Liveness;
use super::look_up::LookUps;
use super::other_runs::{Allowance, OtherRuns};
use super::paths;
use super::service_level::Keeper;
use crate::config::{self, Bounds, FarNames, RunConfig, Written};
use crate::control::{
    self, Behind, Clients, Commanded, FarUrls, LookUp, NAMED_MAX, Newest, PathStatus, Request, Status,
};
use crate::error::complain;
use crate::host::Host;
use crate::report::{RunFeatures, ServiceReport};
use crate::statistics::{Gauges, ProcessStatistics, Totals};
use hinterland_abi::{GranularityName, PathChange, ProcessRow};
use hinterland_sys::gate::shared_futex_bump;
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, Slowdown, cut};
use nix::poll::PollFlags;
use std::cmp::Reverse;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Figures that are older are read again.
const FRESH: Duration = Duration::from_millis(100);
/// Reading them may take one part in so many of the time.
const TIME_SHARE: u32 = 100;
/// Bytes of the command line that are told.
const COMMAND_BYTES_MAX: usize = 1024;
/// Paths that are told, so that an answer has room for them: processes that have filled in other sizes have each their
/// own.
const PATHS_MAX: usize = 128;

/// See the module.
pub struct Control<'a> {
    /// `None`: it cannot listen.
    clients: Option<Clients>,
    /// `None`: there is no socket.
    handover: Option<Handover<'a>>,
    about: About<'a>,
    /// What adjusts the budget, if anything does.
    keeper: Option<Keeper>,
    /// `None`: they cannot be known.
    other_runs: Option<OtherRuns>,
}

/// What is known of the run without the ledger.
struct About<'a> {
    config: &'a RunConfig,
    host: &'a Host,
    command: String,
    is_managed: bool,
    started: Instant,
    /// The figures as they were read last, and until when they will do.
    status: Option<(Status, Instant)>,
    /// The paths to far memory of the start, where the user has named none: known at the first change of them.
    chosen_far: Vec<String>,
    look_ups: LookUps,
}

/// The run, for its clients.
struct Run<'a, 'b> {
    about: &'a mut About<'b>,
    ledger: &'a LauncherLedger,
    totals: &'a Totals,
    liveness: &'a mut Liveness,
    keeper: &'a mut Option<Keeper>,
}

impl<'a> Control<'a> {
    /// Listens; `is_managed`: there is a budget that could be changed.
    pub fn begin(
        config: &'a RunConfig,
        host: &'a Host,
        program: &[OsString],
        is_managed: bool,
        handover: Option<Handover<'a>>,
    ) -> Control<'a> {
        let listening = control::listen(nix::unistd::getpid().as_raw());
        let clients = listening.map_err(|error| {
            complain(format_args!("warning: `hinterland ps`, `set` and `top` will not know this run: {error}"));
        });
        let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
        let command = cut(&words.join(" "), COMMAND_BYTES_MAX).into_owned();
        let about = About {
            config,
            host,
            command,
            is_managed,
            started: Instant::now(),
            status: None,
            chosen_far: Vec::new(),
            look_ups: LookUps::default(),
        };
        let ceiling = config.local_bytes().filter(|_| is_managed);
        let keeper = config.slowdown.zip(ceiling).map(|(slowdown, ceiling)| Keeper::new(slowdown, ceiling.0));
        let other_runs = is_managed.then(OtherRuns::begin);
        Control { clients: clients.ok().map(Clients::new), handover, about, keeper, other_runs }
    }

    /// What to poll, and for what.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let of_handover = self.handover.iter().flat_map(Handover::descriptors).map(|fd| (fd, PollFlags::POLLIN));
        self.clients.iter().flat_map(Clients::descriptors).chain(of_handover)
    }

    /// When to serve at the latest, whether there is news or not.
    pub fn due(&self) -> Option<Instant> {
        let clients = self.clients.as_ref().and_then(|clients| clients.due(Instant::now()));
        let handover = self.handover.as_ref().and_then(Handover::due);
        let keeper = self.keeper.as_ref().map(Keeper::due);
        let other_runs = self.other_runs.as_ref().and_then(OtherRuns::due).filter(|_| keeper.is_none());
        clients.into_iter().chain(handover).chain(keeper).chain(other_runs).min()
    }

    /// Takes and answers what clients ask, hands files over, and holds the service level.
    pub fn serve(&mut self, ledger: &LauncherLedger, totals: &Totals, liveness: &mut Liveness) {
        let is_silent = &ledger.get().handover_is_silent;
        let is_served = self.handover.as_mut().is_none_or(|handover| handover.serve(Instant::now()));
        if is_served && is_silent.load(Relaxed) != 0 {
            is_silent.store(0, Relaxed);
        }
        self.share_the_machine(ledger, totals, liveness);
        if let Some(clients) = &mut self.clients {
            let keeper = &mut self.keeper;
            clients.serve(Instant::now(), &mut Run { about: &mut self.about, ledger, totals, liveness, keeper });
        }
    }

    /// Holds the service level beside other runs, or says what the run holds.
    fn share_the_machine(&mut self, ledger: &LauncherLedger, totals: &Totals, liveness: &mut Liveness) {
        let Control { keeper, other_runs, about, .. } = self;
        let (now, host) = (Instant::now(), about.host);
        let Some(keeper) = keeper else {
            if let Some(runs) = other_runs.as_mut().filter(|runs| runs.due().is_some_and(|due| due <= now)) {
                let of_row = |row: &ProcessStatistics| row.now.counted_local_bytes;
                runs.say(host, || collect::live_rows(ledger, liveness).iter().map(of_row).sum());
            }
            return;
        };
        if keeper.due() > now {
            return;
        }
        let memory = keeper.measure(ledger, totals, liveness);
        let allowance = other_runs.as_mut().map_or(Allowance::NONE, |runs| runs.look(host, memory));
        let budget = keeper.bound(allowance);
        if let Some(news) = keeper.news().filter(|_| !about.config.quiet) {
            complain(format_args!("the run {news}"));
        }
        if ledger.get().commands.local_bytes() != Some(budget) {
            ledger.get().commands.set_local(budget);
            wake_evictors(ledger);
            about.status = None;
        }
    }

    /// What the service level came to, if the run has one.
    pub fn service(&self) -> Option<ServiceReport> {
        self.keeper.as_ref().map(Keeper::report)
    }
}

/// Wakes the evictors of the run: there is a command. A process that does not hear it looks a few times a second all the same.
fn wake_evictors(ledger: &LauncherLedger) {
    let ledger = ledger.get();
    let used = ledger.shares_used.load(Relaxed) as usize;
    let requests = ledger.shares.iter().zip(&ledger.pin_requests).take(used);
    for (_, requests) in requests.filter(|(share, _)| share.pid.load(Relaxed) != 0) {
        shared_futex_bump(&requests.evictor_wakes);
    }
}

/// The rows of processes that have not acknowledged a command.
fn not_applied(ledger: &LauncherLedger, number: u64) -> impl Iterator<Item = &ProcessRow> {
    let ledger = ledger.get();
    let used = ledger.shares_used.load(Relaxed) as usize;
    let both = ledger.shares.iter().zip(&ledger.processes).take(used);
    both.filter(move |(share, _)| !share.has_applied(number)).map(|(_, row)| row)
}

/// What is local and far at once: managed memory is local, far, or both.
fn copied_bytes(far_bytes: u64, now: &Gauges) -> u64 {
    let both = (far_bytes + now.resident_managed_bytes).saturating_sub(now.managed_bytes);
    both.min(far_bytes).min(now.resident_managed_bytes)
}

/// What each path of live processes holds, and what went over it, by URL; also of processes that have ended and had it
/// under this URL. Of more than [`PATHS_MAX`] those that hold most.
fn paths_of(live: &[&ProcessStatistics], ended: &[ProcessStatistics], totals: &Totals) -> Vec<PathStatus> {
    let mut paths: Vec<PathStatus> = Vec::new();
    for backend in live.iter().flat_map(|row| &row.backends) {
        let same = paths.iter().position(|path| path.url == backend.url);
        let at = same.unwrap_or_else(|| {
            let (bytes_in, bytes_out) = totals.traffic.of(&backend.url);
            paths.push(PathStatus { url: backend.url.clone(), far_bytes: 0, bytes_in, bytes_out });
            paths.len() - 1
        });
        paths[at].far_bytes += backend.now.pages * PAGE_BYTES as u64;
        paths[at].bytes_in += backend.counters.bytes_in;
        paths[at].bytes_out += backend.counters.bytes_out;
    }
    if paths.len() > PATHS_MAX {
        paths.sort_by_key(|path| Reverse(path.far_bytes));
        paths.truncate(PATHS_MAX);
    }
    for backend in ended.iter().flat_map(|row| &row.backends) {
        if let Some(path) = paths.iter_mut().find(|path| path.url == backend.url) {
            path.bytes_in += backend.counters.bytes_in;
            path.bytes_out += backend.counters.bytes_out;
        }
    }
    paths
}

impl Run<'_, '_> {
    fn local_budget_bytes(&self) -> u64 {
        let of_start = self.about.config.local_bytes().map(|bytes| bytes.0);
        self.ledger.get().commands.local_bytes().or(of_start).unwrap_or(0)
    }

    fn pager_cpus(&self) -> Option<u32> {
        self.ledger.get().commands.cpus().unwrap_or(self.about.config.settings.cpus)
    }

    /// How much comes to a thread that waits for a page, and the size of a block that is set.
    fn blocks(&self) -> (GranularityName, Option<ByteCount>) {
        let of_start = &self.about.config.settings;
        let commanded = self.ledger.get().commands.blocks();
        let bytes = |pages: u32| ByteCount(u64::from(pages) * PAGE_BYTES as u64);
        commanded.map_or((of_start.granularity, of_start.block), |(how, pages)| (how, pages.map(bytes)))
    }

    /// The size of a block that is set, as the local budget bounds it.
    fn block_bytes(&self) -> Option<u64> {
        let pages = |bytes: u64| bytes / PAGE_BYTES as u64;
        let set = self.blocks().1.map(|size| u32::try_from(pages(size.0)).unwrap_or(u32::MAX))?;
        let bounded = hinterland_policy::bounded_block_pages(set, pages(self.local_budget_bytes()));
        Some(u64::from(bounded) * PAGE_BYTES as u64)
    }

    fn ram_budget_bytes(&self) -> Option<u64> {
        let of_start = match self.about.config.settings.ram {
            Some(Budget::Bytes(bytes)) => Some(bytes.0),
            _ => None,
        };
        self.ledger.get().commands.ram_bytes().or(of_start)
    }

    /// The changes of the paths since the start, if there are to be more; all are checked first.
    fn changed_paths(&mut self, FarUrls { added, dropped }: &FarUrls) -> Result<Option<Vec<PathChange>>, String> {
        if added.is_empty() && dropped.is_empty() {
            return Ok(None);
        }
        let config = self.about.config;
        let before = self.ledger.get().commands.path_changes().map(|(_, changes)| changes).unwrap_or_default();
        if config.settings.far.is_empty() && before.is_empty() {
            self.about.chosen_far = self.open_urls();
            if self.about.chosen_far.is_empty() {
                return Err("no process of this run has opened its far memory yet; try again".into());
            }
        }
        let start = if config.settings.far.is_empty() { &self.about.chosen_far } else { &config.settings.far };
        paths::changed(start, &before, added, dropped).map(Some)
    }

    /// The paths of the process that has most, where the user has named none.
    fn open_urls(&mut self) -> Vec<String> {
        let rows = collect::live_rows(self.ledger, self.liveness);
        let row = rows
            .iter()
            .filter(|row| row.is_managed() && !row.backends.is_empty())
            .max_by_key(|row| row.now.managed_bytes);
        row.map(|row| row.backends.iter().map(|backend| backend.url.clone()).collect()).unwrap_or_default()
    }

    fn read(&mut self) -> Status {
        let Present { counters, live, ended } = collect::present(self.ledger, self.totals, self.liveness);
        let rows: Vec<&ProcessStatistics> = live.iter().filter(|row| row.is_managed()).collect();
        let mut now = Gauges::default();
        rows.iter().for_each(|row| now.combine(&row.now, u64::saturating_add));
        let far_pages: u64 = rows.iter().flat_map(|row| &row.backends).map(|backend| backend.now.pages).sum();
        let config = self.about.config;
        let commands = &self.ledger.get().commands;
        let [seen, used] = [counters.prefetched_unmapped_pages, counters.prefetch_hits_observed]
            .map(|pages| pages.saturating_sub(counters.block_faults));
        let principal = rows.iter().max_by_key(|row| row.now.managed_bytes);
        let maxima = rows.iter().map(|row| &row.maxima).chain([&self.totals.maxima]);
        let longest_run_pages = maxima.map(|maxima| maxima.feature_run_pages_max).max().unwrap_or(0);
        let knows_unmanaged = rows.iter().any(|row| row.knows_unmanaged());
        Status {
            pid: nix::unistd::getpid().as_raw(),
            command: self.about.command.clone(),
            fault_path: principal.map_or_else(|| "none".into(), |row| row.fault_path.clone()),
            wall_seconds: self.about.started.elapsed().as_secs_f64(),
            process_count: rows.len() as u64,
            local_budget_bytes: self.local_budget_bytes(),
            local_ceiling_bytes: self.keeper.as_ref().map(Keeper::ceiling),
            ram_budget_bytes: self.ram_budget_bytes(),
            pager_cpus: self.pager_cpus(),
            granularity: self.blocks().0.to_string(),
            block_bytes: self.block_bytes(),
            local_bytes: now.counted_local_bytes,
            total_ram_bytes: now.total_ram_bytes,
            managed_bytes: now.managed_bytes,
            far_bytes: far_pages * PAGE_BYTES as u64,
            copied_bytes: copied_bytes(far_pages * PAGE_BYTES as u64, &now),
            major_faults: counters.major_faults,
            minor_faults: counters.minor_faults,
            prefetched_pages: counters.prefetched_pages,
            stall_seconds: Duration::from_nanos(counters.stall_ns).as_secs_f64(),
            prefetch_accuracy: (seen > 0).then(|| used as f64 / seen as f64),
            features: RunFeatures::of(&counters, longest_run_pages, &now, knows_unmanaged),
            commands: commands.newest(),
            slowdown: self.keeper.as_ref().map(|keeper| keeper.report().achieved),
            slowdown_asked: config.slowdown.map(Slowdown::factor),
            local_wanted_bytes: self.keeper.as_ref().map(Keeper::wanted),
            local_share_bytes: self.keeper.as_ref().and_then(Keeper::cap),
            slowdown_obstacle: self.keeper.as_ref().map(Keeper::obstacle).unwrap_or_default(),
            paths: paths_of(&rows, &ended, self.totals),
        }
    }
}

impl Commanded for Run<'_, '_> {
    fn status(&mut self) -> Status {
        let begun = Instant::now();
        if let Some((status, _)) = self.about.status.as_ref().filter(|(_, until)| begun < *until) {
            return status.clone();
        }
        let status = self.read();
        let until = begun + FRESH.max(begun.elapsed() * TIME_SHARE);
        self.about.status = Some((status.clone(), until));
        status
    }

    fn look_up(&mut self, request: &Request) -> Option<LookUp> {
        let names_paths = !request.add_far.is_empty() || !request.drop_far.is_empty();
        names_paths.then(|| self.about.look_ups.begin(FarNames::of(self.about.config), request))
    }

    fn set(&mut self, request: &Request, far: &FarUrls) -> Result<Newest, String> {
        if !self.about.is_managed {
            return Err("this program runs unmanaged, without any memory bound".into());
        }
        let refuse = |error: crate::error::Error| error.to_string();
        let now = Bounds { local: ByteCount(self.local_budget_bytes()), ram: self.ram_budget_bytes().map(ByteCount) };
        let asked = Written { local: request.local.as_deref(), ram: request.ram.as_deref() };
        let changed = config::changed_bounds(self.about.config, self.about.host, now, asked).map_err(refuse)?;
        let cpus = request.cpus.as_deref().map(config::changed_cpus).transpose().map_err(refuse)?;
        let (granularity, block) = (request.granularity.as_deref(), request.block.as_deref());
        let blocks = config::changed_blocks(self.blocks(), granularity, block).map_err(refuse)?;
        let changes = self.changed_paths(far)?;
        let commands = &self.ledger.get().commands;
        let mut number = 0;
        if let Some(ram) = changed.ram.filter(|_| request.ram.is_some()) {
            number = commands.set_ram(ram.0);
        }
        if request.local.is_some() {
            // A service level takes the size as its ceiling.
            let bytes = self.keeper.as_mut().map_or(changed.local.0, |keeper| keeper.set_ceiling(changed.local.0));
            number = commands.set_local(bytes);
        }
        if let Some(cpus) = cpus {
            number = commands.set_cpus(cpus);
        }
        if granularity.is_some() || block.is_some() {
            let pages = |size: ByteCount| u32::try_from(size.0 / PAGE_BYTES as u64).unwrap_or(u32::MAX);
            number = commands.set_blocks(blocks.0, blocks.1.map(pages));
        }
        if let Some(changes) = changes {
            number = commands.set_paths(&changes);
        }
        wake_evictors(self.ledger);
        self.about.status = None;
        let (local_budget_bytes, ram_budget_bytes) = (self.local_budget_bytes(), self.ram_budget_bytes());
        let local_ceiling_bytes = self.keeper.as_ref().map(Keeper::ceiling);
        Ok(Newest {
            number,
            local_budget_bytes,
            local_ceiling_bytes,
            ram_budget_bytes,
            block_bytes: self.block_bytes(),
        })
    }

    fn is_applied(&mut self, number: u64) -> bool {
        not_applied(self.ledger, number).next().is_none()
    }

    fn behind(&mut self, number: u64) -> (u64, Vec<Behind>) {
        let behind = not_applied(self.ledger, number);
        let all: Vec<ProcessStatistics> = behind.map(|row| collect::read(row, self.liveness)).collect();
        let named = all.iter().take(NAMED_MAX).map(|row| Behind {
            pid: row.pid,
            program: row.program.clone(),
            local_bytes: row.now.counted_local_bytes,
            share_bytes: row.own.share_bytes,
            path_obstacle: row.path_obstacle.clone(),
        });
        (all.len() as u64, named.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::BackendStatistics;

    #[test]
    fn what_is_local_and_far_at_once_are_copies() {
        let now =
            |local, managed| Gauges { resident_managed_bytes: local, managed_bytes: managed, ..Gauges::default() };
        // Of 10 pages that the program has 4 are local, and far memory has 8.
        assert_eq!(copied_bytes(8, &now(4, 10)), 2);
        assert_eq!(copied_bytes(6, &now(4, 10)), 0);
        // What is freed is counted at different times.
        assert_eq!([copied_bytes(5, &now(4, 10)), copied_bytes(9, &now(4, 0))], [0, 4]);
    }

    /// Processes that have each its own default paths, with the longest URLs.
    #[test]
    fn an_answer_has_room_for_the_paths_of_many_processes() {
        let process = |number: u64| {
            let backend = |kind: &str, pages: u64| {
                let mut backend =
                    BackendStatistics { url: format!("{kind}{number:0>240}"), ..BackendStatistics::default() };
                (backend.now.pages, backend.counters.bytes_in) = (pages, u64::MAX / 2);
                backend
            };
            ProcessStatistics {
                backends: vec![backend("compressed", number), backend("file", 0)],
                ..ProcessStatistics::default()
            }
        };
        let live: Vec<ProcessStatistics> = (1..=1024).map(process).collect();
        let paths = paths_of(&live.iter().collect::<Vec<_>>(), &live[..1], &Totals::default());
        assert_eq!((paths.len(), paths[0].far_bytes), (PATHS_MAX, 1024 * PAGE_BYTES as u64));
        assert!(serde_json::to_vec(&paths).unwrap().len() < 60_000);
        let few = paths_of(&[&live[0], &live[1]], &live[..1], &Totals::default());
        assert_eq!(few.iter().map(|path| path.far_bytes / PAGE_BYTES as u64).collect::<Vec<_>>(), [1, 0, 2, 0]);
        assert_eq!(few[0].bytes_in, u64::MAX / 2 * 2);
    }
}
