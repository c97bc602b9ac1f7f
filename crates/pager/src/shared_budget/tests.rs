//! The rules by which processes share a budget, in virtual time: several simulated processes over one ledger in memory.
//! No threads, no clock: a tick is ten virtual milliseconds, and a line of the test says which processes work in it.

use super::demand::Demand;
use super::*;
use crate::sys::simulated::{Chances, simulate};
use Doing::{Gone, Paging, Sleeping};
use hinterland_abi::{Numbered, RowState};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;
const TICK: Duration = Duration::from_millis(10);
/// Pages that a busy process brings in within a tick: 100 MiB a second.
const ARRIVALS: u64 = 256;

/// A run: its processes, and the virtual time.
struct Run {
    ledger: &'static Ledger,
    processes: Vec<Process>,
    now: Instant,
}

/// A process: its part of the pager that decides over its share.
struct Process {
    row: &'static ProcessRow,
    account: Account,
    budget: SharedBudget,
    demand: Demand,
}

/// What a process does in a tick.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It pages: goes over so many bytes, which it manages.
    Paging(u64),
    Sleeping,
    /// It was ended or killed.
    Gone,
}

impl Run {
    fn new(processes: usize) -> Run {
        // SAFETY: a ledger is made of atomics, which are valid when zero.
        let ledger: &'static Ledger = Box::leak(unsafe { Box::<Ledger>::new_zeroed().assume_init() });
        let mut run = Run { ledger, processes: Vec::new(), now: Instant::now() };
        (0..processes).for_each(|_| run.start());
        run
    }

    /// Starts a process, as its library does.
    fn start(&mut self) {
        let index = self.processes.len();
        let pid = i32::try_from(100 + index).unwrap();
        let row = &self.ledger.processes[index];
        row.pid.store(pid, Relaxed);
        row.state.store(RowState::Live as u32, Relaxed);
        self.ledger.open_share(index, Numbered { pid, namespace: 1 });
        let budget = SharedBudget::new(Some(ByteCount(BUDGET)), None, Some(self.ledger));
        budget.begin_acknowledging(row);
        let demand = Demand::new(self.now, Duration::ZERO);
        self.processes.push(Process { row, account: Account::default(), budget, demand });
    }

    /// One tick of all processes, and the invariant after it.
    fn tick(&mut self, doing: &[Doing]) {
        self.now += TICK;
        for (process, doing) in self.processes.iter_mut().zip(doing) {
            match doing {
                Doing::Paging(managed) => process.page(*managed),
                Doing::Sleeping => {}
                Doing::Gone => continue,
            }
            process.evict();
            process.sample(self.ledger, self.now);
        }
        // A process may always hold the least, which for a moment is more than there is.
        let (granted, floors) =
            self.shares().iter().fold((0, 0), |(all, floors), share| (all + share, floors + share.min(&SHARE_FLOOR)));
        assert!(granted <= BUDGET + floors, "{granted} of {BUDGET} are granted");
    }

    /// So much virtual time.
    fn pass(&mut self, time: Duration, doing: &[Doing]) {
        (0..time.as_millis() / TICK.as_millis()).for_each(|_| self.tick(doing));
        let shares = self.shares();
        assert!(shares.iter().sum::<u64>() <= BUDGET, "more than the budget is granted: {shares:?}");
    }

    /// What each process holds of the budget, in bytes.
    fn shares(&self) -> Vec<u64> {
        let share = |process: &Process| self.ledger.share_of(process.row).map_or(0, |s| s.granted_bytes.load(Relaxed));
        self.processes.iter().map(share).collect()
    }

    /// The local memory of each process, in bytes.
    fn local(&self) -> Vec<u64> {
        self.processes.iter().map(|process| process.account.local().bytes()).collect()
    }
}

impl Process {
    /// Brings pages in, and takes others out where the budget has no room, as faults with direct reclaim do.
    fn page(&mut self, managed: u64) {
        self.row.managed_bytes.store(managed, Relaxed);
        self.row.managed_peak_bytes.fetch_max(managed, Relaxed);
        for _ in 0..ARRIVALS {
            let is_all_local = self.account.local().bytes() >= managed;
            if is_all_local || !self.charge() {
                // Another page leaves for it.
                assert!(self.account.local().0 > 0, "a process has room for one page");
            }
            self.account.arrive(1);
        }
    }

    fn charge(&self) -> bool {
        self.account.try_charge(1) || self.budget.grow(self.row, &self.account, 1) && self.account.try_charge(1)
    }

    /// A round of the evictor.
    fn evict(&mut self) {
        self.budget.update(self.row, &self.account, 0);
        if self.account.above_high() && !self.budget.grow(self.row, &self.account, 0) {
            while self.account.above_low() {
                self.account.uncharge(1);
            }
        }
        self.budget.update(self.row, &self.account, 0);
        self.budget.acknowledge(self.row, &self.account);
    }

    fn sample(&mut self, ledger: &Ledger, now: Instant) {
        let share = ledger.share_of(self.row).unwrap();
        self.demand.sample(now, || Duration::ZERO, self.row, &self.account, share);
    }
}

#[test]
fn idle_gives_way_in_virtual_time() {
    let mut run = Run::new(2);
    run.pass(Duration::from_secs(3), &[Paging(256 * MIB), Sleeping]);
    assert!(run.local()[0] > BUDGET - 8 * MIB, "alone, a process gets all: {:?}", run.local());
    run.pass(Duration::from_secs(2), &[Sleeping, Paging(256 * MIB)]);
    let shares = run.shares();
    assert!(shares[0] <= SHARE_FLOOR + MIB, "one that sleeps keeps the least: {shares:?}");
    assert!(run.local()[1] > BUDGET - 10 * MIB, "and one that works gets the rest: {:?}", run.local());
}

#[test]
fn busy_ones_share_fairly_in_virtual_time() {
    let mut run = Run::new(3);
    // The first holds all when the others come.
    run.pass(Duration::from_secs(3), &[Paging(256 * MIB), Sleeping, Sleeping]);
    run.pass(Duration::from_secs(2), &[Paging(256 * MIB), Paging(256 * MIB), Paging(8 * MIB)]);
    let local = run.local();
    let fair = (BUDGET - 8 * MIB) / 2;
    assert!(local[..2].iter().all(|bytes| bytes.abs_diff(fair) <= fair / 8), "{fair} each: {local:?}");
    assert!(local[2].abs_diff(8 * MIB) <= MIB, "who needs little gets it: {local:?}");
}

/// Its share is cleared by the launcher, which has seen that the process is dead.
#[test]
fn a_killed_process_gives_back_in_virtual_time() {
    let mut run = Run::new(2);
    run.pass(Duration::from_secs(3), &[Paging(256 * MIB); 2]);
    let before = run.local();
    assert!(before[1] < BUDGET * 5 / 8, "half, not more: {before:?}");
    run.ledger.share_of(run.processes[0].row).unwrap().clear();
    run.pass(Duration::from_secs(1), &[Gone, Paging(256 * MIB)]);
    assert!(run.local()[1] > BUDGET - 8 * MIB, "the other one gets what it held: {:?}", run.local());
}

/// It ends its row itself.
#[test]
fn an_ended_process_gives_back_in_virtual_time() {
    let mut run = Run::new(2);
    run.pass(Duration::from_secs(3), &[Paging(256 * MIB); 2]);
    let row = run.processes[0].row;
    run.ledger.end_row(row, row.pid.load(Relaxed));
    run.pass(Duration::from_secs(1), &[Gone, Paging(256 * MIB)]);
    assert!(run.local()[1] > BUDGET - 8 * MIB, "the other one gets what it held: {:?}", run.local());
}

#[test]
fn many_that_start_at_once_never_exceed_the_budget() {
    let mut run = Run::new(9);
    run.pass(Duration::from_secs(2), &[Paging(256 * MIB); 9]);
    let local = run.local();
    assert!(local.iter().all(|bytes| bytes.abs_diff(BUDGET / 9) <= BUDGET / 36), "a ninth each: {local:?}");
}

#[test]
fn a_commanded_budget_is_kept_and_acknowledged_when_local_memory_is_within_it() {
    let mut run = Run::new(3);
    let busy = [Paging(256 * MIB), Paging(256 * MIB), Sleeping];
    run.pass(Duration::from_secs(3), &busy);
    let have_applied = |run: &Run, number| run.ledger.shares_in_use().filter(|share| share.has_applied(number)).count();
    let number = run.ledger.commands.set_local(24 * MIB);
    // The one that sleeps is within its share, whatever it is; the others hold half of 64 MiB each.
    assert_eq!(have_applied(&run, number), 0);
    let mut ticks = 0;
    while have_applied(&run, number) < 3 {
        run.tick(&busy);
        let over = |process: &Process| process.account.local() > process.account.budget();
        assert!(run.processes.iter().all(|process| !over(process)), "evicted in the same round");
        ticks += 1;
        assert!(ticks < 100, "not acknowledged in a second: {:?}", run.local());
    }
    run.pass(Duration::from_secs(1), &busy);
    let local = run.local();
    assert!(local.iter().sum::<u64>() <= 24 * MIB, "{local:?}");
    assert!(local[..2].iter().all(|bytes| bytes.abs_diff(12 * MIB) <= 2 * MIB), "half each: {local:?}");
    let number = run.ledger.commands.set_local(48 * MIB);
    run.pass(Duration::from_secs(2), &busy);
    let local = run.local();
    assert!(local[..2].iter().all(|bytes| bytes.abs_diff(24 * MIB) <= 3 * MIB), "half of more: {local:?}");
    assert_eq!(have_applied(&run, number), 3);
}

/// Pages that cannot leave (locked ones) keep a process above its bound.
#[test]
fn a_process_above_its_bound_acknowledges_nothing() {
    let mut run = Run::new(1);
    run.pass(Duration::from_secs(3), &[Paging(256 * MIB)]);
    let number = run.ledger.commands.set_local(32 * MIB);
    let Process { row, account, budget, .. } = &run.processes[0];
    budget.update(row, account, 0);
    budget.acknowledge(row, account);
    assert!(account.budget().bytes() <= 32 * MIB && account.local().bytes() > 32 * MIB);
    assert!(!run.ledger.share_of(row).unwrap().has_applied(number));
    run.tick(&[Sleeping]);
    assert!(run.ledger.share_of(run.processes[0].row).unwrap().has_applied(number));
}

/// A child that has no share yet has the paths of before: a command is acknowledged when it can be waited for.
#[test]
fn a_command_waits_for_the_child_of_a_fork_before_it_has_a_share() {
    let mut run = Run::new(1);
    run.pass(Duration::from_secs(1), &[Paging(256 * MIB)]);
    let (parent, account) = (run.processes[0].row, &run.processes[0].account);
    run.processes[0].budget.before_fork(parent, account);
    let number = run.ledger.commands.set_paths(&[]);
    let has_applied = |run: &Run| run.ledger.shares_in_use().all(|share| share.has_applied(number));
    run.pass(Duration::from_secs(1), &[Sleeping]);
    assert!(!has_applied(&run), "the child is not there");
    run.start();
    let child = &run.processes[1];
    // The fork has copied it.
    child.budget.forked_by.store(parent.pid.load(Relaxed), Relaxed);
    child.budget.end_acknowledging(child.row);
    child.budget.has_appeared(parent, child.row, true);
    run.tick(&[Sleeping, Gone]);
    assert!(!has_applied(&run), "the child has not done anything");
    run.tick(&[Sleeping, Sleeping]);
    assert!(has_applied(&run));
    // One that was killed at once keeps nothing waiting for long, also where its parent forks all the time and the others appear.
    let number = run.ledger.commands.set_paths(&[]);
    let share = run.ledger.share_of(parent).unwrap();
    run.processes[0].budget.before_fork(parent, &run.processes[0].account);
    let mut waited = Duration::ZERO;
    while !share.has_applied(number) {
        run.processes[0].budget.before_fork(parent, &run.processes[0].account);
        run.tick(&[Sleeping, Sleeping]);
        assert!(
            waited <= CHILD_TELLS && share.children_due.load(Relaxed) != 0 || share.has_applied(number),
            "{waited:?}"
        );
        share.child_appeared(parent.pid.load(Relaxed));
        run.processes[0].budget.born -= Duration::from_secs(1);
        waited += Duration::from_secs(1);
    }
    assert!(waited >= CHILD_TELLS, "it is waited for: {waited:?}");
}

/// A daemon's middle process has gone when its child appears: its row and share may be those of another one.
#[test]
fn a_child_that_appears_late_tells_no_stranger() {
    let mut run = Run::new(1);
    run.pass(Duration::from_secs(1), &[Paging(256 * MIB)]);
    let parent = run.processes[0].row;
    run.processes[0].budget.before_fork(parent, &run.processes[0].account);
    let share = run.ledger.share_of(parent).unwrap();
    parent.pid.store(999, Relaxed);
    run.ledger.open_share(0, Numbered { pid: 999, namespace: 1 });
    share.children_due.store(1, Relaxed);
    // In the child, this is a copy of the parent's.
    let child = &run.processes[0].budget;
    child.has_appeared(parent, parent, true);
    assert_eq!(share.children_due.load(Relaxed), 1);
}

#[test]
fn what_is_commanded_is_bounded_as_if_anybody_had_written_it() {
    let mut run = Run::new(1);
    run.ledger.commands.set_local(1);
    run.pass(Duration::from_secs(3), &[Paging(256 * MIB)]);
    assert_eq!(run.processes[0].budget.budget().bytes(), Budget::FLOOR.0);
    run.ledger.commands.set_local(u64::MAX);
    run.processes[0].evict();
    assert_eq!(run.processes[0].budget.budget().bytes(), UNBOUNDED);
    assert!(!run.processes[0].budget.bounds_ram());
    run.ledger.commands.set_ram(1);
    run.processes[0].evict();
    assert!(run.processes[0].budget.bounds_ram());
    assert_eq!(run.processes[0].budget.budget().bytes(), Budget::FLOOR.0);
}

#[test]
fn one_thread_at_a_time_changes_a_share_however_often_others_try() {
    let process = Run::new(1).processes.remove(0);
    let change = process.budget.try_change();
    assert!(change.is_some());
    assert!((0..3).all(|_| process.budget.try_change().is_none()));
    drop(change);
    assert!(process.budget.try_change().is_some());
}

/// On one processor, on which the thread that asks comes before the one that changes the share.
#[test]
fn a_thread_that_asks_beside_another_one_lets_it_finish() {
    let report = simulate(1, Chances::default(), |current| {
        let process = Arc::new(Run::new(1).processes.remove(0));
        let (other, has_begun) = (Arc::clone(&process), Arc::new(AtomicBool::new(false)));
        let begun = Arc::clone(&has_begun);
        let change = process.budget.try_change().expect("no other thread changes the share");
        let urgent = current.spawn("urgent", move || {
            crate::sys::simulated::current().expect("a simulated thread").has_real_time_priority();
            begun.store(true, Relaxed);
            while other.budget.changing.load(Relaxed) {
                assert!(other.budget.grow(other.row, &other.account, 1), "it is worth trying again");
            }
        });
        while !has_begun.load(Relaxed) {
            current.yield_now("lets the urgent one begin");
        }
        drop(change);
        current.join(urgent);
    });
    assert_eq!(report.failure, None);
}
