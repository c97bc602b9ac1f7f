//! Forks: parent and child both go on with every page as it was.
//!
//! ```text
//!  parent                                child
//!  freeze: gate closed, nobody inside
//!  ── fork ──────────────────────────────► kernel copies tables, staging and compressed store (copy-on-write)
//!  thaw                                    own userfaultfd, register, thaw; its threads start
//! ```
//!
//! While the gate is closed no page is busy, so the child finds a consistent table. Between the fork and the registration
//! the child's missing pages would read as zero: the child must not touch far memory before `begin_child` returns.

use crate::kernel::Kernel;
use crate::pager::Pager;
use hinterland_abi::ProcessRow;
use hinterland_backend::ForkSide;
use hinterland_sys::mem::OwnMemory;
use hinterland_sys::{SysError, Uffd, mem};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::atomic::Ordering::Relaxed;

impl Pager {
    /// Stops all work at a point where every page is settled. The caller forks next, and touches no far memory until then.
    pub fn freeze(&self) {
        self.gate.close();
        self.backend.before_fork();
    }

    /// Goes on in the parent (or after a fork that failed).
    pub fn thaw(&self) {
        if let Err(error) = self.backend.after_fork(ForkSide::Parent) {
            self.fatal(&format!("far memory cannot go on after a fork: {error}"));
        }
        self.row().forks.fetch_add(1, Relaxed);
        self.gate.open();
    }

    /// Goes on in the child: `uffd` and `memory` are the child's own, `row` its own row, with counters at zero. The runs in
    /// `left` are not part of the child (`MADV_DONTFORK`), those in `wiped` read as zero in it (`MADV_WIPEONFORK`).
    /// The caller starts the threads afterwards.
    ///
    /// # Errors
    /// The kernel's: the range cannot be registered. The child must end then, without touching far memory.
    pub fn begin_child(
        &self,
        uffd: Uffd,
        memory: OwnMemory,
        row: &'static ProcessRow,
        left: &[(PageNo, u32)],
        wiped: &[(PageNo, u32)],
    ) -> Result<(), SysError> {
        let parent = self.row();
        for (from, to) in [
            (&parent.managed_bytes, &row.managed_bytes),
            (&parent.managed_bytes, &row.managed_peak_bytes),
            (&parent.resident_managed_bytes, &row.resident_managed_bytes),
            (&parent.resident_managed_bytes, &row.resident_managed_peak_bytes),
            (&parent.local_budget_bytes, &row.local_budget_bytes),
        ] {
            to.store(from.load(Relaxed), Relaxed);
        }
        self.set_row(row);
        self.forget_threads();
        self.account.restart_peak();
        self.helpers_started.store(false, Relaxed);
        self.ahead.clear();
        self.begin_here();
        self.kernel.replace(uffd, memory);
        for (first, count) in left {
            // SAFETY: the kernel left a hole here; nothing is mapped.
            unsafe { mem::remap_inaccessible(self.address(*first), *count as usize * PAGE_BYTES) }?;
        }
        self.register_all(&self.foreign_runs())?;
        if let Err(error) = self.backend.after_fork(ForkSide::Child) {
            self.fatal(&format!("far memory cannot go on after a fork: {error}"));
        }
        self.gate.open();
        for (first, count) in left.iter().chain(wiped) {
            self.discard(*first, *count);
        }
        Ok(())
    }

    /// What a userfaultfd of this pager's child needs.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}
