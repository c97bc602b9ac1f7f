//! Holds a run within its slowdown (`--slowdown`): measures what its processes waited and worked, and sets the local budget as
//! [`ServiceLevel`] decides.
//!
//! The stall is what the processes count of themselves, less the faults on pages without content: these cost the same with all memory local.
//! The time of a process's threads is taken from the kernel: their processor time, without that of the pager's threads, and the stall; at
//! least the time that went by, because a thread that waits for its input is not slowed down meanwhile. A process that has ended in order has said
//! itself what its threads worked, so what short-lived processes of a tree worked counts with their stall. On the monitor path the kernel's way to the
//! monitor and back is stall, too, which only the threads' blocked time shows.

use super::collect::{self, Present};
use super::ledger::LauncherLedger;
use super::liveness::Liveness;
use super::other_runs::Allowance;
use super::thread_times::ThreadTimes;
use crate::report::{ServiceReport, Shortage};
use crate::statistics::{Counters, ProcessStatistics, Totals};
use hinterland_policy::{Interval, RunMemory, ServiceLevel};
use hinterland_units::{Budget, Slowdown};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Between two decisions.
const INTERVAL: Duration = Duration::from_millis(500);
/// Measuring may take one part in so many of the time.
const TIME_SHARE: u32 = 200;
/// A process that worked and waited for less than this part of an interval was asleep.
const ASLEEP: u64 = 10;
/// A thread whose fault the monitor serves is blocked before the monitor reads the fault, and after it has served it: until a processor wakes up, twice. What
/// threads were blocked for beyond the counted stall is taken for that, up to so much a fault.
const WAKE_NS_MAX: u64 = 50_000;
/// First touches that say what one costs.
const TOUCHES_MIN: u64 = 64;

/// See the module.
pub struct Keeper {
    asked: Slowdown,
    level: ServiceLevel,
    due: Instant,
    last: Instant,
    counters: Counters,
    processes: HashMap<i32, Measured>,
    /// What processes that have ended had worked, in nanoseconds.
    ended_worked_ns: u64,
    /// What a fault on a page without content costs, in nanoseconds, as intervals without others have shown.
    first_touch_ns: f64,
    /// Bytes of local memory, times nanoseconds.
    local_byte_ns: f64,
    observed_ns: f64,
    out_of_reach: bool,
    /// What the machine lacked the last time that it had too little for the run beside others.
    shortage: Option<Shortage>,
    /// The same, when it had least.
    worst: Option<Shortage>,
    /// What was said of that: the run is short of memory.
    said_short: bool,
}

/// A process, as it was measured last.
#[derive(Default)]
struct Measured {
    threads: ThreadTimes,
    stall_ns: u64,
    far_faults: u64,
}

/// What threads of the program did in an interval, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Times {
    /// Work and stall.
    thread_ns: u64,
    /// Of that, stall that the monitors have not counted.
    uncounted_ns: u64,
}

/// What an interval had beyond the one before.
#[derive(Clone, Copy, Default)]
struct Gone {
    stall_ns: u64,
    /// What processes that ended worked in their whole life.
    ended_worked_ns: u64,
    first_touches: u64,
    far_faults: u64,
}

impl Keeper {
    /// Holds the run within `slowdown`, with a budget of `ceiling` bytes at most.
    pub fn new(slowdown: Slowdown, ceiling: u64) -> Keeper {
        let now = Instant::now();
        Keeper {
            asked: slowdown,
            level: ServiceLevel::new(slowdown.factor(), Budget::FLOOR.0, ceiling),
            due: now + INTERVAL,
            last: now,
            counters: Counters::default(),
            processes: HashMap::new(),
            ended_worked_ns: 0,
            first_touch_ns: 0.0,
            local_byte_ns: 0.0,
            observed_ns: 0.0,
            out_of_reach: false,
            shortage: None,
            worst: None,
            said_short: false,
        }
    }

    /// When to measure next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// The largest budget, in bytes.
    pub fn ceiling(&self) -> u64 {
        self.level.ceiling()
    }

    /// Sets the largest budget; returns the budget now.
    pub fn set_ceiling(&mut self, bytes: u64) -> u64 {
        self.level.set_ceiling(bytes);
        self.level.budget()
    }

    /// Measures; what is found is the run's memory as it is and as it should be.
    pub fn measure(&mut self, ledger: &LauncherLedger, totals: &Totals, liveness: &mut Liveness) -> RunMemory {
        let now = Instant::now();
        let elapsed_ns = u64::try_from(now.duration_since(self.last).as_nanos()).unwrap_or(u64::MAX);
        self.last = now;
        let Present { counters, live: rows, ended } = collect::present(ledger, totals, liveness);
        let ended_worked_ns = ended.iter().fold(totals.worked_ns, |sum, row| sum.saturating_add(row.worked_ns));
        let gone = Gone {
            stall_ns: counters.stall_ns.saturating_sub(self.counters.stall_ns),
            ended_worked_ns: ended_worked_ns.saturating_sub(self.ended_worked_ns),
            first_touches: counters.first_touch_faults.saturating_sub(self.counters.first_touch_faults),
            far_faults: far_faults(&counters).saturating_sub(far_faults(&self.counters)),
        };
        self.counters = counters;
        self.ended_worked_ns = ended_worked_ns;
        let stall_ns = self.far_stall(gone);
        let local_bytes = rows.iter().map(|row| row.now.counted_local_bytes).sum();
        let managed_bytes = rows.iter().map(|row| row.now.managed_bytes).sum();
        let ended = self.worked_before_the_end(&rows, totals.processes.iter().chain(&ended), gone);
        let times = self.thread_time(&rows, elapsed_ns, stall_ns, gone);
        let stall_ns = stall_ns + times.uncounted_ns;
        let thread_ns = (times.thread_ns + ended).max(stall_ns);
        let was_out_of_reach = self.level.is_out_of_reach();
        self.level.observe(&Interval { elapsed_ns, thread_ns, stall_ns, local_bytes, managed_bytes });
        // Not for one burst: pages that return when memory has just been given.
        self.out_of_reach |= was_out_of_reach && self.level.is_out_of_reach();
        self.local_byte_ns += local_bytes as f64 * elapsed_ns as f64;
        self.observed_ns += elapsed_ns as f64;
        self.due = Instant::now() + INTERVAL.max(now.elapsed() * TIME_SHARE);
        RunMemory { local_bytes, wanted_bytes: Some(self.level.wanted()) }
    }

    /// Bounds the run by what the machine has for it beside others; returns the budget that is right now, in bytes.
    pub fn bound(&mut self, allowance: Allowance) -> u64 {
        self.level.set_cap(allowance.cap);
        let wanted_bytes = self.level.wanted();
        // Of a run that has ended, the cap is that of the last seconds.
        if self.level.is_short() && wanted_bytes > allowance.cap && allowance.others > 0 {
            let (share_bytes, is_least) = (self.level.budget(), self.level.is_proven());
            let (asked, others) = (self.asked, allowance.others);
            let shortage = Shortage { asked, wanted_bytes, is_least, share_bytes, others };
            self.shortage = Some(shortage);
            if self.worst.is_none_or(|worst| share_bytes < worst.share_bytes) {
                self.worst = Some(shortage);
            }
        }
        self.level.budget()
    }

    /// What is to be said of the slowdown since the last time, if there is something.
    pub fn news(&mut self) -> Option<String> {
        let shortage = self.shortage();
        let was_short = std::mem::replace(&mut self.said_short, shortage.is_some());
        match shortage {
            Some(shortage) if !was_short => Some(shortage.to_string()),
            None if was_short => Some(format!("keeps the slowdown of {} again", self.asked)),
            _ => None,
        }
    }

    /// What keeps the run from its slowdown beside others, in words; empty: nothing.
    pub fn obstacle(&self) -> String {
        self.shortage().map(|shortage| shortage.to_string()).unwrap_or_default()
    }

    fn shortage(&self) -> Option<Shortage> {
        self.shortage.filter(|_| self.level.is_short())
    }

    /// What is wanted, in bytes.
    pub fn wanted(&self) -> u64 {
        self.level.wanted()
    }

    /// The most that the machine has for the run beside others, in bytes, where that is a bound.
    pub fn cap(&self) -> Option<u64> {
        Some(self.level.cap()).filter(|cap| *cap != u64::MAX)
    }

    /// What was reached so far.
    pub fn report(&self) -> ServiceReport {
        ServiceReport {
            asked: self.asked,
            achieved: self.level.achieved(),
            budget_bytes: self.level.budget(),
            local_mean_bytes: whole(self.local_byte_ns / self.observed_ns.max(1.0)),
            out_of_reach: self.out_of_reach,
            shortage: self.worst,
        }
    }

    /// The stall that less memory has caused.
    fn far_stall(&mut self, gone: Gone) -> u64 {
        if gone.far_faults == 0 && gone.first_touches >= TOUCHES_MIN {
            let now = gone.stall_ns as f64 / gone.first_touches as f64;
            self.first_touch_ns = if self.first_touch_ns == 0.0 { now } else { (self.first_touch_ns + now) / 2.0 };
        }
        match gone.far_faults {
            0 => 0,
            _ => gone.stall_ns.saturating_sub(whole(self.first_touch_ns * gone.first_touches as f64)),
        }
    }

    /// What processes that have ended worked since they were looked at last, or since they began. `ended`: those that have, the newest last. One
    /// that was killed has not said what it worked, so what was measured of it is not taken from that.
    fn worked_before_the_end<'a>(
        &mut self,
        live: &[ProcessStatistics],
        ended: impl DoubleEndedIterator<Item = &'a ProcessStatistics> + Clone,
        gone: Gone,
    ) -> u64 {
        let mut known_ns = 0;
        self.processes.retain(|pid, process| {
            let lives = live.iter().any(|row| row.pid == *pid);
            let was_killed = || ended.clone().rfind(|row| row.pid == *pid).is_some_and(|row| row.worked_ns == 0);
            known_ns += if lives || was_killed() { 0 } else { process.threads.whole_ns() };
            lives
        });
        gone.ended_worked_ns.saturating_sub(known_ns)
    }

    /// The time that threads of the program worked or stood still for far memory; the work of those that have ended is not in it.
    fn thread_time(&mut self, rows: &[ProcessStatistics], elapsed_ns: u64, far_stall_ns: u64, gone: Gone) -> Times {
        let far_share = far_stall_ns as f64 / gone.stall_ns.max(1) as f64;
        let (mut sum, mut of_live_ns) = (Times::default(), 0);
        for row in rows.iter().filter(|row| row.is_managed()) {
            let process = self.processes.entry(row.pid).or_default();
            let before = std::mem::replace(&mut process.stall_ns, row.counters.stall_ns);
            let stall_ns = whole(row.counters.stall_ns.saturating_sub(before) as f64 * far_share);
            of_live_ns += stall_ns;
            let faults = far_faults(&row.counters);
            let faults = faults.saturating_sub(std::mem::replace(&mut process.far_faults, faults));
            let Some((worked_ns, count)) = process.threads.read(row.pid) else { continue };
            let all_ns = count.saturating_mul(elapsed_ns);
            let uncounted_ns = match row.fault_path.as_str() {
                "monitor" => all_ns.saturating_sub(worked_ns + stall_ns).min(faults.saturating_mul(WAKE_NS_MAX)),
                _ => 0,
            };
            let busy_ns = (worked_ns + stall_ns + uncounted_ns).min(all_ns);
            sum.thread_ns += if busy_ns < elapsed_ns / ASLEEP { busy_ns } else { busy_ns.max(elapsed_ns) };
            sum.uncounted_ns += uncounted_ns;
        }
        sum.thread_ns += far_stall_ns.saturating_sub(of_live_ns);
        sum
    }
}

/// Faults that less memory has caused.
fn far_faults(counters: &Counters) -> u64 {
    counters.major_faults + counters.minor_faults + counters.prefetch_late_faults + counters.direct_reclaims
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_abi::RowState;
    use std::process::{Child, Command};
    use std::sync::atomic::Ordering::{Relaxed, Release};

    fn number(child: &Child) -> i32 {
        i32::try_from(child.id()).unwrap()
    }

    /// Plays half seconds of a program that works in 800 of its 900 MiB; what is said.
    fn play(keeper: &mut Keeper, seconds: usize, allowance: Allowance) -> Vec<String> {
        let half = |keeper: &mut Keeper| {
            let (local_bytes, managed_bytes) = (keeper.level.budget().min(900 << 20), 900 << 20);
            let stall_ns = if local_bytes < 800 << 20 { 250_000_000 } else { 0 };
            let (elapsed_ns, thread_ns) = (500_000_000, 500_000_000);
            keeper.level.observe(&Interval { elapsed_ns, thread_ns, stall_ns, local_bytes, managed_bytes });
            keeper.bound(allowance);
            keeper.news()
        };
        (0..2 * seconds).filter_map(|_| half(keeper)).collect()
    }

    #[test]
    fn a_run_that_is_short_of_memory_says_so_once_and_when_it_no_longer_is() {
        let mut keeper = Keeper::new("1.2".parse().unwrap(), 1 << 30);
        let allowance = |mebibytes: u64| Allowance { cap: mebibytes << 20, others: 2 };
        assert_eq!(play(&mut keeper, 20, Allowance::NONE), [""; 0], "alone");
        let said = [500, 300, 400].map(|mebibytes| play(&mut keeper, 20, allowance(mebibytes))).concat();
        let words = (said[0].starts_with("cannot keep 1.2: would need "), said.len());
        assert!(words == (true, 1) && said[0].ends_with(" MiB, its share is 500 MiB beside 2 other runs"), "{said:?}");
        assert!(keeper.obstacle().ends_with(", its share is 400 MiB beside 2 other runs"), "{}", keeper.obstacle());
        assert_eq!(play(&mut keeper, 20, Allowance::NONE), ["keeps the slowdown of 1.2 again"]);
        assert_eq!(keeper.obstacle(), "");
        let worst = keeper.report().shortage.unwrap();
        assert_eq!((worst.share_bytes, worst.others), (300 << 20, 2));
    }

    /// A parent sleeps, and its child, which waited for a tenth of its time, ends; another one, which had worked, is killed.
    #[test]
    fn what_a_process_waited_before_it_ended_counts_once_and_with_what_it_worked() {
        let ledger = LauncherLedger::create(false).unwrap();
        let (mut totals, mut liveness) = (Totals::default(), Liveness::default());
        let mut keeper = Keeper::new("1.2".parse().unwrap(), 1 << 30);
        let mut parent = Command::new("sleep").arg("600").spawn().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let mut killed = Command::new("sleep").arg("600").spawn().unwrap();
        let rows = &ledger.get().processes;
        for (row, process) in rows.iter().zip([&parent, &child, &killed]) {
            row.pid.store(number(process), Relaxed);
            row.fault_path.set("inline");
            row.state.store(RowState::Live as u32, Release);
        }
        keeper.measure(&ledger, &totals, &mut liveness);
        assert_eq!(keeper.report().achieved, 1.0);
        keeper.processes.get_mut(&number(&killed)).unwrap().threads = ThreadTimes::worked(8_000_000_000);
        rows[1].major_faults.store(1000, Relaxed);
        rows[1].stall_ns.store(1_000_000_000, Relaxed);
        rows[1].worked_ns.store(9_000_000_000, Relaxed);
        for process in [&mut child, &mut killed] {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        rows[1].state.store(RowState::Ended as u32, Release);
        let expect = |achieved: f64, when: &str| assert!((achieved - 10.0 / 9.0).abs() < 0.02, "{achieved} {when}");
        keeper.measure(&ledger, &totals, &mut liveness);
        expect(keeper.report().achieved, "when it has ended");
        collect::fold_ended(&ledger, &mut totals);
        keeper.measure(&ledger, &totals, &mut liveness);
        expect(keeper.report().achieved, "when its row is folded");
        parent.kill().unwrap();
        parent.wait().unwrap();
    }
}
