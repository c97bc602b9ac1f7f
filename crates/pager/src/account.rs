//! The account of local memory ([`hinterland_paging::Account`]) of a process that may share pages with others since a fork.

use crate::proportional_share::ProportionalShare;
use hinterland_abi::ProcessRow;
use hinterland_units::PageCount;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;

/// See the module.
#[derive(Default)]
pub(crate) struct Account {
    own: hinterland_paging::Account,
    /// The part of the frames in use that other processes count.
    pub(crate) proportional_share: ProportionalShare,
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

impl Account {
    /// Counts `pages` arrivals.
    #[inline]
    pub(crate) fn arrive(&self, pages: u64) -> Arrived {
        Arrived { epoch: self.own.arrive(pages) }
    }

    /// An account with the smallest bound.
    pub(crate) fn new() -> Account {
        Account::default()
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
