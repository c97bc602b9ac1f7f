//! The shared budget: what all processes of a run may hold together, and this process's share of it.
//!
//! Each process writes into its share of the ledger what it holds (`granted`) and what it could use (`wanted`), and reads the
//! shares of the others; each decides for itself only:
//!
//! ```text
//! wants more   announces a larger grant, then adds all shares up: over the budget, or above its fair level while others go
//!              short, it withdraws the grant and reclaims from itself instead
//! has more     than its fair level while another goes short: lowers its bound, and its evictor brings local memory down;
//!              what it holds counts until it has left
//! ```
//!
//! Invariant: `sum(granted) ≤ budget`, but for what is held below [`SHARE_FLOOR`] and what a fork makes two of. It holds
//! because a grant is announced before the sum is taken: of two that announce at once, the later sees both.
//! The fair level is max-min (`hinterland_policy::fair_level`). See decision 0013.
//!
//! The local budget and the bound on RAM are those that the launcher has commanded last, else those of the start. They are read at each
//! look at the shares, so a smaller one is a shortage like any other: processes lower their bounds, and their evictors bring local memory
//! down.

mod demand;

use crate::account::Account;
use crate::backoff::Backoff;
pub(crate) use demand::DemandSampler;
use hinterland_abi::{Ledger, ProcessRow, Share};
use hinterland_paging::{BOUND_MIN, margin};
use hinterland_policy::{SHARE_FLOOR, fair_level};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, PageCount};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};
use std::time::{Duration, Instant};

/// A process that uses memory for the first time grows by this at least, and by this at most.
const STEP_MAX: u64 = 16 << 20;
/// The smallest growth that is worth a new bound.
const STEP_MIN: u64 = 64 << 10;
/// Arrivals after which it is worth asking again for what was refused.
const RETRY_ARRIVALS: u64 = 64;
/// A program whose local memory nobody bounds: more than any machine has.
const UNBOUNDED: u64 = 1 << 52;
/// The part of its target that a process leaves free at most for shared pages that are about to become its own.
const LEAD_SHARE_MAX: u64 = 4;
/// The part that it leaves free at least while it shares as many pages: no process is told when they are written to.
const SPARE_SHARE: u64 = 8;
/// Time for the child of a fork to take its share, before its parent takes it for gone.
const CHILD_APPEARS: Duration = Duration::from_millis(100);
/// Commands are not acknowledged for so long because of a child that has no share yet: it was killed at once, or not made.
const CHILD_TELLS: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct SharedBudget {
    ledger: Option<&'static Ledger>,
    local: Option<ByteCount>,
    ram: Option<ByteCount>,
    /// A thread changes this process's share.
    changing: AtomicBool,
    /// Bytes that this process may count: its grant, or what its grant is to become.
    target: AtomicU64,
    /// The budget of the whole run when last looked at, in bytes.
    budget: AtomicU64,
    /// `--ram` left less of it than was to be local.
    ram_is_scarce: AtomicBool,
    /// Arrivals before which it is no use to ask for more.
    retry_at: AtomicU64,
    /// The newest command that the bound follows.
    applied: AtomicU64,
    /// The process from which all that may share pages with this one descend.
    fork_group: AtomicI32,
    /// Pages that became this process's own between the last two samples, because a process wrote to shared ones: the next
    /// sample will find as many.
    lead: AtomicU64,
    /// When the fork group last grew, in nanoseconds since `born`.
    forked_at: AtomicU64,
    /// When children became due of which none was before, in nanoseconds since `born`.
    children_due_since: AtomicU64,
    /// The process that last forked; in its child, the parent.
    forked_by: AtomicI32,
    born: Instant,
}

/// All shares added up, in bytes.
#[derive(Clone, Copy, Default)]
struct Sums {
    granted: u64,
    /// What the processes hold or could use, whichever is more for each.
    claimed: u64,
    beside: u64,
    /// What must stay local whatever happens.
    floors: u64,
}

/// The right to change this process's share.
struct Change<'a>(&'a AtomicBool);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// The smallest budget. In a simulation that of the smallest bound: little has to happen before pages leave.
fn floor() -> u64 {
    #[cfg(test)]
    if crate::sys::simulated::current().is_some() {
        return BOUND_MIN.bytes();
    }
    Budget::FLOOR.0
}

/// By how much a process with `target` bytes grows at a time. More than the watermarks' distances, so that what the evictor
/// keeps free is not taken for what is not needed.
fn step(target: u64) -> u64 {
    let watermarks = (4 * margin(target / PAGE_BYTES as u64) + 64) * PAGE_BYTES as u64;
    (target / 8).clamp(watermarks, STEP_MAX)
}

/// The part of `shortage` that falls on one with `excess` of `all_excess`.
fn part(shortage: u64, excess: u64, all_excess: u64) -> u64 {
    let part = (u128::from(shortage) * u128::from(excess)).div_ceil(u128::from(all_excess.max(1)));
    u64::try_from(part).unwrap_or(u64::MAX).min(excess)
}

impl SharedBudget {
    pub fn new(local: Option<ByteCount>, ram: Option<ByteCount>, ledger: Option<&'static Ledger>) -> SharedBudget {
        SharedBudget {
            ledger,
            local,
            ram,
            changing: AtomicBool::new(false),
            target: AtomicU64::new(0),
            budget: AtomicU64::new(UNBOUNDED),
            ram_is_scarce: AtomicBool::new(false),
            retry_at: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            fork_group: AtomicI32::new(0),
            lead: AtomicU64::new(0),
            forked_at: AtomicU64::new(0),
            children_due_since: AtomicU64::new(0),
            forked_by: AtomicI32::new(0),
            born: Instant::now(),
        }
    }

    /// The budget of the whole run, when last looked at.
    pub fn budget(&self) -> PageCount {
        PageCount(self.budget.load(Relaxed) / PAGE_BYTES as u64)
    }

    /// Whether `local` is more than every process may hold whatever the others hold.
    pub fn is_above_floor(local: PageCount) -> bool {
        local.bytes() > SHARE_FLOOR
    }

    /// Whether the store counts against a budget, too.
    pub fn bounds_ram(&self) -> bool {
        self.ram().is_some()
    }

    /// Whether the bound on RAM was commanded since the start.
    pub fn ram_is_commanded(&self) -> bool {
        self.ledger.is_some_and(|ledger| ledger.commands.ram_bytes().is_some())
    }

    /// The bound on RAM in bytes: the one that the launcher has commanded last, else that of the start.
    fn ram(&self) -> Option<u64> {
        let commanded = self.ledger.and_then(|ledger| ledger.commands.ram_bytes());
        commanded.or(self.ram.map(|bytes| bytes.0)).map(|bytes| bytes.max(Budget::FLOOR.0))
    }

    /// Whether what is kept in RAM takes it from local memory, when last looked at.
    pub fn ram_is_scarce(&self) -> bool {
        self.ram_is_scarce.load(Relaxed)
    }

    /// The local budget in bytes of processes that have `beside` bytes in store and tables.
    fn budget_beside(&self, beside: u64) -> u64 {
        let commanded = self.ledger.and_then(|ledger| ledger.commands.local_bytes());
        let local = commanded.or(self.local.map(|bytes| bytes.0)).unwrap_or(u64::MAX);
        // Below the floor no batch would fit: the store must give way then, not the local memory.
        let ram = self.ram().map_or(u64::MAX, |bytes| bytes.saturating_sub(beside).max(Budget::FLOOR.0));
        self.ram_is_scarce.store(ram < local, Relaxed);
        let budget = local.min(ram).clamp(floor(), UNBOUNDED);
        self.budget.store(budget, Relaxed);
        budget
    }

    fn share(&self, row: &ProcessRow) -> Option<(&'static Ledger, &'static Share)> {
        let ledger = self.ledger?;
        Some((ledger, ledger.share_of(row)?))
    }

    fn try_change(&self) -> Option<Change<'_>> {
        // Made only where it is had: one that is dropped gives the right back.
        self.changing.compare_exchange(false, true, Acquire, Relaxed).is_ok().then(|| Change(&self.changing))
    }

    /// Other processes of the fork group: those that may share pages with this one.
    fn others_in_group(&self, ledger: &Ledger, own: &Share) -> usize {
        let fork_group = own.fork_group.load(Relaxed);
        let in_group = |share: &&Share| !std::ptr::eq(*share, own) && share.fork_group.load(Relaxed) == fork_group;
        if fork_group == 0 { 0 } else { ledger.shares_in_use().filter(in_group).count() }
    }

    /// Nanoseconds since `born`.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Since a moment that was noted.
    fn since(&self, noted_ns: &AtomicU64) -> Duration {
        Duration::from_nanos(self.now_ns().saturating_sub(noted_ns.load(Relaxed)))
    }

    /// Whether the fork group has others, or one is about to appear.
    fn has_others_in_group(&self, ledger: &Ledger, own: &Share) -> bool {
        own.fork_group.load(Relaxed) != 0
            && (self.since(&self.forked_at) < CHILD_APPEARS || self.others_in_group(ledger, own) > 0)
    }

    fn sums(ledger: &Ledger) -> Sums {
        ledger.shares_in_use().fold(Sums::default(), |sums, share| {
            let granted = share.granted_bytes.load(SeqCst);
            Sums {
                granted: sums.granted + granted,
                claimed: sums.claimed + granted.max(share.wanted_bytes.load(Relaxed)),
                beside: sums.beside + share.beside_bytes.load(Relaxed),
                floors: sums.floors + granted.min(SHARE_FLOOR),
            }
        })
    }

    fn level(ledger: &Ledger, budget: u64) -> u64 {
        fair_level(budget, || ledger.shares_in_use().map(|share| share.wanted_bytes.load(Relaxed)))
    }

    /// What a share is to come down to when all processes together claim `shortage` more than there is.
    fn lowered(ledger: &Ledger, own: &Share, level: u64, shortage: u64) -> u64 {
        let excess = |share: &Share| {
            let fair = level.min(share.wanted_bytes.load(Relaxed)).max(SHARE_FLOOR);
            share.granted_bytes.load(Relaxed).saturating_sub(fair)
        };
        let all: u64 = ledger.shares_in_use().map(excess).sum();
        let granted = own.granted_bytes.load(Relaxed);
        granted - part(shortage, excess(own).min(granted), all)
    }

    /// Publishes what this process has, and adapts its bound to what the others hold and want.
    pub fn update(&self, row: &ProcessRow, account: &Account, beside: u64) {
        let Some((ledger, share)) = self.share(row) else {
            let budget = self.budget_beside(beside);
            // A process that found no row in the ledger counts nowhere: it gets the least that any gets.
            let bytes = if self.ledger.is_some() { SHARE_FLOOR } else { budget };
            let bound = PageCount(bytes / PAGE_BYTES as u64);
            row.share_bytes.store(bytes, Relaxed);
            row.counted_beside_bytes.store(beside, Relaxed);
            return account.set_bound(bound, bound);
        };
        let Some(_change) = self.try_change() else { return };
        // Before the budget is read, which is that of this command or of a later one.
        let newest = ledger.commands.newest();
        if !self.has_others_in_group(ledger, share) {
            account.proportional_share.end();
            self.lead.store(0, Relaxed);
        }
        let counted_beside = account.proportional_share.beside(beside);
        share.beside_bytes.store(counted_beside, Relaxed);
        row.counted_beside_bytes.store(counted_beside, Relaxed);
        let counted = account.counted().bytes();
        let sums = SharedBudget::sums(ledger);
        let budget = self.budget_beside(sums.beside);
        let granted = share.granted_bytes.load(Relaxed);
        // What it neither holds nor has just asked for is free for others.
        let mut target = granted.min((counted + 2 * step(counted)).max(SHARE_FLOOR));
        let shortage = sums.claimed.saturating_sub(budget);
        if shortage > 0 {
            target = target.min(SharedBudget::lowered(ledger, share, SharedBudget::level(ledger, budget), shortage));
        }
        self.set(share, account, Grant { target, counted, budget, contended: shortage > 0 });
        row.share_bytes.store(target, Relaxed);
        self.applied.store(newest, Relaxed);
    }

    /// This process's evictor runs: it acknowledges commands from now on.
    pub fn begin_acknowledging(&self, row: &ProcessRow) {
        if let Some((_, share)) = self.share(row) {
            share.evicts.store(1, Release);
        }
    }

    /// This process has no evictor any more.
    pub fn end_acknowledging(&self, row: &ProcessRow) {
        if let Some((_, share)) = self.share(row) {
            share.evicts.store(0, Release);
        }
    }

    /// Acknowledges the newest command that the bound follows, if local memory is within the bound, and the store within one on RAM that
    /// was commanded; not while a child of a fork has no share, in which it is waited for.
    pub fn acknowledge(&self, row: &ProcessRow, account: &Account) {
        let Some((_, share)) = self.share(row) else { return };
        let has_excess = || self.ram_is_commanded() && self.store_excess(row, share.beside_bytes.load(Relaxed)) > 0;
        if account.local() <= account.budget() && !has_excess() && !self.awaits_child(share) {
            share.acknowledge(row.pid.load(Relaxed), self.applied.load(Relaxed));
        }
    }

    /// Whether a child of a fork has no share yet: it may not have made what this process has made. Of forks that fail, and of children that are killed
    /// at once, nothing is heard: after a while the count begins anew, however often this process forks.
    fn awaits_child(&self, share: &Share) -> bool {
        let due = share.children_due.load(Acquire);
        // Where another fork is counted meanwhile, the next look decides.
        let is_over = || share.children_due.compare_exchange(due, 0, AcqRel, Relaxed).is_ok();
        due > 0 && !(self.since(&self.children_due_since) > CHILD_TELLS && is_over())
    }

    /// In the child of a fork, which has a share now, and whose evictor is about to start if its parent's was started.
    pub fn has_appeared(&self, parent: &ProcessRow, row: &ProcessRow, evicts: bool) {
        if evicts {
            self.begin_acknowledging(row);
        }
        if let Some((_, share)) = self.share(parent) {
            // As it was numbered before the fork: its row may be another's by now.
            share.child_appeared(self.forked_by.load(Relaxed));
        }
    }

    fn set(&self, share: &Share, account: &Account, grant: Grant) {
        let Grant { target, counted, budget, contended } = grant;
        self.target.store(target, Relaxed);
        share.granted_bytes.store(target.max(counted).max(BOUND_MIN.bytes()), SeqCst);
        let pages = |bytes: u64| bytes / PAGE_BYTES as u64;
        let shared = account.proportional_share.local_for(pages(target)) - pages(target);
        let spare = shared.min(pages(target) / SPARE_SHARE);
        let expected = self.lead.load(Relaxed).clamp(spare, (pages(target) / LEAD_SHARE_MAX).max(spare));
        let bound = account.proportional_share.local_for(pages(target) - expected).min(pages(budget));
        let turnover = if contended { bound } else { pages(budget) };
        account.set_bound(PageCount(bound), PageCount(turnover));
    }

    /// Asks for room for `pages` more than there is, and for some in stock. False: there is none for this process.
    pub fn grow(&self, row: &ProcessRow, account: &Account, pages: u64) -> bool {
        let Some((ledger, share)) = self.share(row) else { return false };
        let before = self.target.load(Relaxed);
        if account.arrivals() < self.retry_at.load(Relaxed) && before >= SHARE_FLOOR {
            return false;
        }
        let Some(_change) = self.try_change() else {
            // Another thread asks: its answer holds for this one, too.
            let mut backoff = Backoff::new();
            while self.changing.load(Relaxed) {
                backoff.pause();
            }
            return true;
        };
        let target = self.target.load(Relaxed);
        let wanted = target + step(target).max(pages * PAGE_BYTES as u64);
        let managed = row.managed_bytes.load(Relaxed);
        share.wanted_bytes.fetch_max(wanted.max(managed), Relaxed);
        let sums = SharedBudget::sums(ledger);
        let budget = self.budget_beside(sums.beside);
        let (granted, contended) = (share.granted_bytes.load(Relaxed), sums.claimed > budget);
        let fair = if contended { SharedBudget::level(ledger, budget) } else { u64::MAX };
        let room = budget.saturating_sub(sums.granted - granted.min(sums.granted));
        let new = wanted.min(fair).min(room).max(wanted.min(SHARE_FLOOR));
        let counted = account.counted().bytes();
        if new >= target + STEP_MIN {
            share.granted_bytes.store(new.max(counted), SeqCst);
            if new <= SHARE_FLOOR || SharedBudget::sums(ledger).granted <= budget {
                self.set(share, account, Grant { target: new, counted, budget, contended });
                return true;
            }
            share.granted_bytes.store(granted, SeqCst);
        }
        self.retry_at.store(account.arrivals() + RETRY_ARRIVALS, Relaxed);
        false
    }

    /// By how much this process's store and tables are to shrink because `--ram` is exceeded although local memory is at its
    /// floor everywhere.
    pub fn store_excess(&self, row: &ProcessRow, beside: u64) -> u64 {
        let Some(ram) = self.ram() else { return 0 };
        match self.share(row) {
            None => (beside + Budget::FLOOR.0).saturating_sub(ram),
            Some((ledger, share)) => {
                let sums = SharedBudget::sums(ledger);
                let excess = (sums.beside + sums.floors.max(Budget::FLOOR.0)).saturating_sub(ram);
                part(excess, share.beside_bytes.load(Relaxed), sums.beside)
            }
        }
    }

    /// Before a fork: parent and child will know each other.
    pub fn before_fork(&self, row: &ProcessRow, account: &Account) {
        let own = row.pid.load(Relaxed);
        if let Some((ledger, share)) = self.share(row)
            && self.others_in_group(ledger, share) == 0
        {
            // Former children have gone: what they shared is this process's alone.
            account.proportional_share.end();
        }
        let fork_group = self.fork_group.compare_exchange(0, own, Relaxed, Relaxed).err().unwrap_or(own);
        let now_ns = self.now_ns();
        if let Some((_, share)) = self.share(row) {
            share.fork_group.store(fork_group, Relaxed);
            // The evictor, which may look at any time, sees the time with the count.
            if share.children_due.load(Acquire) == 0 {
                self.children_due_since.store(now_ns, Relaxed);
            }
            if share.children_due.fetch_add(1, AcqRel) == 0 {
                self.children_due_since.store(now_ns, Relaxed);
            }
        }
        self.forked_by.store(own, Relaxed);
        self.forked_at.store(now_ns, Relaxed);
        // The child may appear before this process runs again: until both count their halves, nothing is counted twice.
        row.counted_local_bytes.store(account.counted().bytes() / 2, Relaxed);
        row.counted_beside_bytes.store(row.counted_beside_bytes.load(Relaxed) / 2, Relaxed);
    }

    /// After a fork, in both: each counts half of what the parent has counted. In the child, `row` is its own.
    pub fn after_fork(&self, row: &ProcessRow, account: &Account, is_child: bool) {
        let Some((_, share)) = self.share(row) else { return };
        account.proportional_share.halve(account.local().0);
        let half = account.counted().bytes();
        let target = if is_child {
            self.changing.store(false, Relaxed);
            self.applied.store(0, Relaxed);
            share.fork_group.store(self.fork_group.load(Relaxed), Relaxed);
            share.wanted_bytes.store(half, Relaxed);
            half
        } else {
            self.target.load(Relaxed).saturating_sub(half)
        };
        self.target.store(target, Relaxed);
        share.granted_bytes.store(target.max(half).max(BOUND_MIN.bytes()), SeqCst);
        let bound = account.proportional_share.local_for(target / PAGE_BYTES as u64).min(self.budget().0);
        account.set_bound(PageCount(bound), self.budget());
        row.counted_local_bytes.store(half, Relaxed);
    }
}

/// What [`SharedBudget::set`] sets.
struct Grant {
    target: u64,
    counted: u64,
    budget: u64,
    contended: bool,
}

#[cfg(test)]
mod tests;
