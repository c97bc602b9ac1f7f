//! The account of local memory ([`hinterland_paging::Account`]) of a process that may share pages with others since a fork.

use crate::decisions::Decisions;
use crate::proportional_share::ProportionalShare;
use hinterland_abi::ProcessRow;
use hinterland_paging::Step;
use hinterland_units::PageCount;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;

/// See the module.
#[derive(Default)]
pub(crate) struct Account {
    own: hinterland_paging::Account,
    /// The part of the frames in use that other processes count.
    pub(crate) proportional_share: ProportionalShare,
    decisions: Decisions,
}

impl Deref for Account {
    type Target = hinterland_paging::Account;

    #[inline]
    fn deref(&self) -> &hinterland_paging::Account {
        &self.own
    }
}

/// Pages have arrived in local memory, and are counted: what completes them as resident asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    epoch: u8,
}

impl Arrived {
    /// The epoch in which they arrived.
    #[inline]
    pub(crate) fn epoch(self) -> u8 {
        self.epoch
    }
}

/// What [`hinterland_paging::Account`] decides, in turns.
impl Account {
    /// See [`hinterland_paging::Account::set_bound`].
    pub(crate) fn set_bound(&self, bound: PageCount, turnover: PageCount) {
        let turn = self.decisions.turn();
        self.own.set_bound(bound, turnover);
        let watermarks = || self.own.watermarks().map(|pages| pages.0).to_vec();
        turn.note(|| Step::Bound { pages: (bound.0, turnover.0), watermarks: watermarks() });
    }

    /// See [`hinterland_paging::Account::try_charge`].
    #[inline]
    pub(crate) fn try_charge(&self, pages: u64) -> bool {
        let turn = self.decisions.turn();
        let granted = self.own.try_charge(pages);
        turn.note(|| Step::Charge { pages, must: false, granted });
        granted
    }

    /// See [`hinterland_paging::Account::charge`].
    #[inline]
    pub(crate) fn charge(&self, pages: u64) {
        let turn = self.decisions.turn();
        self.own.charge(pages);
        turn.note(|| Step::Charge { pages, must: true, granted: true });
    }

    /// See [`hinterland_paging::Account::uncharge`].
    #[inline]
    pub(crate) fn uncharge(&self, pages: u64) {
        let turn = self.decisions.turn();
        self.own.uncharge(pages);
        turn.note(|| Step::Uncharge { pages });
    }

    /// See [`hinterland_paging::Account::above_high`].
    #[inline]
    pub(crate) fn above_high(&self) -> bool {
        let turn = self.decisions.turn();
        let is_above = self.own.above_high();
        turn.note(|| Step::Above { high: true, is_above });
        is_above
    }

    /// See [`hinterland_paging::Account::above_low`].
    #[inline]
    pub(crate) fn above_low(&self) -> bool {
        let turn = self.decisions.turn();
        let is_above = self.own.above_low();
        turn.note(|| Step::Above { high: false, is_above });
        is_above
    }

    /// Counts `pages` arrivals.
    #[inline]
    pub(crate) fn arrive(&self, pages: u64) -> Arrived {
        Arrived { epoch: self.own.arrive(pages) }
    }
}

impl Account {
    /// An account with the smallest bound.
    pub(crate) fn new(decisions: Decisions) -> Account {
        Account { decisions, ..Account::default() }
    }

    /// Frames in use that this process counts of the run's budget: less what others of its fork group count.
    pub(crate) fn counted(&self) -> PageCount {
        PageCount(self.proportional_share.counted(self.local().0))
    }

    /// Writes the gauges of local memory to the ledger.
    pub(crate) fn publish(&self, row: &ProcessRow) {
        row.counted_local_bytes.store(self.counted().bytes(), Relaxed);
        row.resident_managed_bytes.store(self.local().bytes(), Relaxed);
        row.resident_managed_peak_bytes.fetch_max(self.peak().bytes(), Relaxed);
    }
}
