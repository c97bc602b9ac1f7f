//! Local memory: its account, the budget that bounds it, and the eviction policy over the pages in it.

use crate::account::{Account, Arrived};
use crate::decisions::DecisionTurn;
use crate::far_memory::FarMemory;
use crate::kernel::NotEvicted;
use crate::page_counts::PageCounts;
use crate::pages::{Owned, Pages};
use crate::points::Point;
use crate::policy_lock::{Locked, PolicyLock};
use crate::shared_budget::SharedBudget;
use crate::staging::Staging;
use crate::sys::gate::Inside;
use hinterland_paging::Step;
use hinterland_policy::{Arrival, EvictionPolicy, LoadCurve};
use hinterland_units::{ByteCount, PAGE_BYTES, PageNo};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the program wants kept may be this part of the budget.
const KEPT_PART: u64 = 4;

/// See the module.
pub(crate) struct LocalMemory {
    pages: &'static Pages,
    far: &'static FarMemory,
    staging: &'static Staging,
    pub(crate) account: Account,
    pub(crate) shared_budget: SharedBudget,
    policy: PolicyLock,
    /// What the program wants kept, by page.
    pub(crate) kept: PageCounts,
    /// Pages for which the policy was last sized.
    policy_capacity: AtomicU64,
}

/// The eviction policy, locked, in a turn.
pub(crate) struct Policy<'a> {
    // First: it is unlocked before the turn ends.
    policy: Locked<'a>,
    pub(crate) turn: DecisionTurn,
}

impl Deref for Policy<'_> {
    type Target = dyn EvictionPolicy;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &*self.policy
    }
}

impl DerefMut for Policy<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.policy
    }
}

impl LocalMemory {
    pub(crate) fn new(
        pages: &'static Pages,
        far: &'static FarMemory,
        staging: &'static Staging,
        shared_budget: SharedBudget,
        policy: Box<dyn EvictionPolicy>,
    ) -> LocalMemory {
        let (account, policy) = (Account::new(pages.decisions), PolicyLock::new(policy));
        let (kept, policy_capacity) = (PageCounts::default(), AtomicU64::new(0));
        LocalMemory { pages, far, staging, account, shared_budget, policy, kept, policy_capacity }
    }

    /// The eviction policy. Held for short operations only, and inside the gate: the child of a fork must find it open.
    pub(crate) fn policy(&self) -> Policy<'_> {
        debug_assert!(self.pages.gate.is_entered(), "the policy's lock was asked for outside the gate");
        let turn = self.pages.decisions.turn();
        Policy { policy: self.policy.lock(), turn }
    }

    /// Tells the policy that pages were dropped.
    pub(crate) fn forget(&self, pages: impl Iterator<Item = PageNo> + Clone) {
        let mut policy = self.policy();
        pages.clone().for_each(|page| policy.forgotten(page));
        policy.turn.note(|| Step::Forgotten { pages: pages.collect() });
    }

    /// The program wants a page kept, perhaps once more. False: what it wants kept without this page is a quarter of the budget already.
    pub(crate) fn keep(&self, page: PageNo) -> bool {
        // Of a process that has not grown yet, what it may have then; more than there are far pages is no budget.
        let grown = self.account.grown_budget();
        let budget = if grown.0 <= u64::from(self.pages.count) { grown } else { self.account.budget() };
        let has_room = (self.kept.pages() as u64 + 1) * KEPT_PART <= budget.0;
        (has_room || self.kept.touch(page, PageNo(page.0 + 1))) && self.kept.add(page, self.pages.count)
    }

    /// Whether a page is no victim because the program wants it kept. Of more pages than a quarter of the budget, which has
    /// shrunk or is still to grow, as many are kept, whichever they are.
    pub(crate) fn keeps(&self, page: PageNo) -> bool {
        let (kept, room) = (self.kept.pages() as u64, self.account.budget().0 / KEPT_PART);
        // Fibonacci hashing: those that are kept lie anywhere among them.
        let place = u64::from(page.0.wrapping_mul(0x9e37_79b9));
        let is_kept = || kept <= room || (place * kept) >> 32 < room;
        kept > 0 && is_kept() && self.kept.touch(page, PageNo(page.0 + 1))
    }

    /// Counts arrivals, and tells the policy of them without waiting for its lock. The caller owns the pages (`Fetching` or
    /// `Changing`), and is inside the gate.
    pub(crate) fn arrive(&self, pages: impl ExactSizeIterator<Item = PageNo> + Clone, how: Arrival) -> Arrived {
        debug_assert!(self.pages.gate.is_entered(), "an arrival was reported outside the gate");
        let count = pages.len() as u64;
        let turn = self.pages.decisions.turn();
        self.policy.arrived(pages.clone(), how);
        let arrived = self.account.arrive(count);
        turn.note(|| Step::Arrived { pages: pages.collect(), how, epoch: arrived.epoch() });
        drop(turn);
        if how == Arrival::FirstTouch {
            self.count_touched(count);
        }
        arrived
    }

    /// Counts pages that got content for the first time.
    fn count_touched(&self, pages: u64) {
        let row = self.pages.row();
        row.touched_pages.fetch_add(pages, Relaxed);
        let bytes = pages * PAGE_BYTES as u64;
        let managed = row.managed_bytes.fetch_add(bytes, Relaxed) + bytes;
        row.managed_peak_bytes.fetch_max(managed, Relaxed);
    }

    /// Counts pages that lost their content.
    pub(crate) fn count_untouched(&self, pages: u64) {
        self.pages.row().managed_bytes.fetch_sub(pages * PAGE_BYTES as u64, Relaxed);
    }

    /// A victim, which is `Leaving`, stays local, or turns out to have been dropped by the program.
    pub(crate) fn did_not_leave(&self, victim: Owned, why: NotEvicted) {
        match why {
            NotEvicted::Pinned => {
                self.pages.row().putback_pages.fetch_add(1, Relaxed);
                let mut policy = self.policy();
                policy.putback(victim.page());
                policy.turn.note(|| Step::Putback { page: victim.page() });
                drop(policy);
                self.pages.complete_unchanged(victim);
            }
            NotEvicted::Missing => {
                if victim.was().copy_retained() {
                    self.far.copies.forget(1);
                }
                self.forget(std::iter::once(victim.page()));
                let released = self.pages.complete_untouched(victim);
                self.account.uncharge(1);
                self.count_untouched(1);
                self.far.free(released);
            }
        }
    }

    /// Counts loads, and those of them that larger local memory would have spared.
    fn count_loads(&self, LoadCurve { loads, spared }: LoadCurve) {
        let row = self.pages.row();
        row.sampled_loads.fetch_add(loads, Relaxed);
        let counters = [&row.spared_loads_125, &row.spared_loads_150, &row.spared_loads_200, &row.spared_loads_400];
        counters.into_iter().zip(spared).for_each(|(counter, loads)| {
            counter.fetch_add(loads, Relaxed);
        });
    }

    /// In the child of a fork: what was counted before it is the parent's.
    pub(crate) fn begin_child(&self) {
        self.account.restart_peak();
        let mut policy = self.policy.lock();
        policy.take_loads();
        policy.take_random_victims();
    }

    /// Writes the gauges of local memory to the ledger.
    pub(crate) fn publish(&self) {
        self.account.publish(self.pages.row());
    }

    /// Adapts watermarks and policy to what store and program occupy now; returns the RAM beside local memory.
    pub(crate) fn update_budget(&self) -> ByteCount {
        let row = self.pages.row();
        let beside = self.beside();
        self.shared_budget.update(row, &self.account, beside.0);
        self.far.set_ram_scarce(self.shared_budget.ram_is_scarce());
        row.local_budget_bytes.store(self.shared_budget.budget().bytes(), Relaxed);
        self.publish();
        let total = self.account.local().bytes() + beside.0;
        row.total_ram_peak_bytes.fetch_max(total, Relaxed);
        self.fit_policy();
        beside
    }

    /// Tells the policy of a bound that has changed by more than a little.
    pub(crate) fn fit_policy(&self) {
        let pages = self.account.budget().0;
        let before = self.policy_capacity.load(Relaxed);
        if before.abs_diff(pages) * 32 > before {
            self.policy_capacity.store(pages, Relaxed);
            let mut policy = self.policy();
            self.pages.at(Point::PolicyHeld, PageNo(0));
            policy.resize(usize::try_from(pages).unwrap_or(usize::MAX));
            policy.turn.note(|| Step::Resized { pages });
        }
    }

    /// RAM beside local memory: store and tables.
    fn beside(&self) -> ByteCount {
        ByteCount(self.far.ram_bytes() + self.metadata_bytes())
    }

    /// Bytes of the pager's tables: those of the page table follow what was touched.
    fn metadata_bytes(&self) -> u64 {
        const TABLE_BYTES_PER_PAGE: u64 = 28;
        let row = self.pages.row();
        let pages = row.managed_peak_bytes.load(Relaxed) / PAGE_BYTES as u64;
        let tables = pages * TABLE_BYTES_PER_PAGE + self.policy_bytes();
        let bytes = tables + self.staging.idle_bytes() + self.far.granule_bytes();
        row.metadata_bytes.store(bytes, Relaxed);
        row.metadata_peak_bytes.fetch_max(bytes, Relaxed);
        bytes
    }

    /// Bytes of the policy's tables; counts what it has noted since the last time.
    fn policy_bytes(&self) -> u64 {
        let mut policy = self.policy();
        self.count_loads(policy.policy.take_loads());
        self.pages.row().random_victim_pages.fetch_add(policy.take_random_victims(), Relaxed);
        policy.metadata_bytes() as u64
    }

    /// Whether local memory is above its high watermark, and there is no more for this process. Only inside the gate: locks
    /// are taken, which the child of a fork must find free.
    pub(crate) fn above_high(&self, _: &Inside<'_>) -> bool {
        self.account.above_high() && !self.grow(0)
    }

    /// Asks for more local memory, inside the gate. True: it is worth trying again.
    pub(crate) fn grow(&self, pages: u64) -> bool {
        let grown = self.shared_budget.grow(self.pages.row(), &self.account, pages);
        if grown {
            self.fit_policy();
        }
        grown
    }

    /// Charges frames that are free, or that the shared budget grants to this process.
    pub(crate) fn charge_free_frames(&self, pages: u64) -> bool {
        self.account.try_charge(pages) || self.grow(pages) && self.account.try_charge(pages)
    }

    /// Whether this process holds more than every process may: then others may want some of it back, and the evictor must
    /// run to see that.
    pub(crate) fn holds_more_than_floor(&self) -> bool {
        SharedBudget::is_above_floor(self.account.local())
    }
}
