//! The report: figures that are not kept current all the time, for the ledger.

use crate::far_memory::FarMemory;
use crate::local_memory::LocalMemory;
use crate::pages::Pages;
use crate::sys::thread;
use hinterland_abi::ProcessRow;
use hinterland_backend::BackendUsage;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
pub(crate) struct Report {
    pages: &'static Pages,
    local: &'static LocalMemory,
    far: &'static FarMemory,
    /// Takes stock of the process's whole memory; told the bytes of the pager's tables.
    census: fn(&ProcessRow, u64),
    /// Managed bytes at the last census.
    census_at: AtomicU64,
}

impl Report {
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        far: &'static FarMemory,
        census: fn(&ProcessRow, u64),
    ) -> Report {
        Report { pages, local, far, census, census_at: AtomicU64::new(0) }
    }

    /// Writes all but the census, and that when it is due.
    pub(crate) fn write(&self, usage: &mut Vec<BackendUsage>) {
        let _inside = self.pages.gate.enter();
        self.local.update_budget();
        self.far.publish(usage);
        self.take_census_if_grown();
    }

    /// Takes stock of the process's memory when it has grown by a quarter: the figures of the peak are wanted.
    fn take_census_if_grown(&self) {
        let managed = self.pages.row().managed_bytes.load(Relaxed);
        let last = self.census_at.load(Relaxed);
        if managed > last + last / 4 {
            self.census_at.store(managed, Relaxed);
            // Not under the policy's lock: a census reads files.
            let tables = self.local.policy().metadata_bytes() as u64;
            (self.census)(self.pages.row(), tables);
        }
    }

    /// Says which paths to far memory there are. Before the evictor writes its first report, or without one, the launcher would not know of them, which
    /// changes them by name.
    pub(crate) fn write_paths(&self) {
        let _signals = thread::SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        self.far.publish(&mut Vec::new());
    }

    /// See `Pager::report_now`.
    pub(crate) fn write_now(&self) {
        let _signals = thread::SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        self.local.update_budget();
        self.far.publish(&mut Vec::new());
        let tables = self.local.policy().metadata_bytes() as u64;
        (self.census)(self.pages.row(), tables);
    }
}
