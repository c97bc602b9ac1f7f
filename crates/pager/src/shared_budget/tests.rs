//! The rules by which processes share a budget, in virtual time: several simulated processes over one ledger in memory. No threads,
//! no clock: a tick is ten virtual milliseconds, and who works in it is a line of the test.

use super::demand::Demand;
use super::*;
use Doing::{Gone, Paging, Sleeping};
use hinterland_abi::{Numbered, RowState};

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
        let demand = Demand::new(self.now, Duration::ZERO);
        self.processes.push(Process { row, account: Account::new(), budget, demand });
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
