//! The launcher's side of the ledger.
//!
//! Rows are found without touching the others: `SEEK_DATA` names the pages that were written.

use super::segment::Segment;
use crate::error::Error;
use crate::process;
use hinterland_abi::{LEDGER_MAGIC, LEDGER_VERSION, Ledger, ProcessRow, RowState};
use nix::unistd::{Whence, lseek};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Its length; the memory is taken as it is used.
pub const LEDGER_BYTES: usize = size_of::<Ledger>();
const PAGE_BYTES: usize = hinterland_units::PAGE_BYTES;

/// The ledger of this run.
pub struct LauncherLedger(Segment<Ledger>);

impl LauncherLedger {
    /// Makes an empty ledger; `unmanaged_allowed`: a program that cannot be managed runs all the same.
    pub fn create(unmanaged_allowed: bool) -> Result<LauncherLedger, Error> {
        let what = "cannot set up the shared memory for the run's figures";
        // SAFETY: a ledger consists of atomics.
        let ledger = LauncherLedger(unsafe { Segment::create(c"hinterland-ledger", what) }?);
        let head = ledger.get();
        head.version.store(LEDGER_VERSION, Relaxed);
        head.unmanaged_allowed.store(unmanaged_allowed.into(), Relaxed);
        head.launcher_pid.store(nix::unistd::getpid().as_raw(), Relaxed);
        head.launcher_namespace.store(process::pid_namespace(0).unwrap_or(0), Relaxed);
        head.magic.store(LEDGER_MAGIC, Release);
        Ok(ledger)
    }

    /// The path by which other processes open it.
    pub fn path(&self) -> String {
        self.0.path()
    }

    /// Its file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.fd().as_fd()
    }

    /// The mapped ledger.
    pub fn get(&self) -> &Ledger {
        self.0.get()
    }

    /// The rows that somebody has used, in order.
    pub fn used_rows(&self) -> Vec<&ProcessRow> {
        let rows = &self.get().processes;
        let offset_of = |index: usize| std::mem::offset_of!(Ledger, processes) + index * size_of::<ProcessRow>();
        let mut used = Vec::new();
        let mut index = 0;
        while let Some(row) = rows.get(index) {
            let page = offset_of(index) / PAGE_BYTES * PAGE_BYTES;
            let written = lseek(self.0.fd(), i64::try_from(page).unwrap_or(0), Whence::SeekData);
            // ENXIO: nothing was written from here to the end.
            let Some(written) = written.ok().and_then(|at| usize::try_from(at).ok()) else { break };
            if written == page {
                if row.state.load(Acquire) != RowState::Free as u32 {
                    used.push(row);
                }
                index += 1;
            } else {
                // The row's first page is untouched, so the row is free; go on with the first whose state lies in a
                // written page.
                index = (index + 1..rows.len()).find(|next| offset_of(*next) >= written).unwrap_or(rows.len());
            }
        }
        used
    }
}

impl LauncherLedger {
    /// Empties a claimed row and gives it back, with what its process held of the budget.
    pub fn release(&self, row: &ProcessRow) {
        if let Some(share) = self.get().share_of(row) {
            share.clear();
        }
        release(row);
    }
}

/// Takes a row from the state in which it was seen; `false` when its process was faster.
pub fn claim(row: &ProcessRow, seen: u32) -> bool {
    row.state.compare_exchange(seen, RowState::Claimed as u32, AcqRel, Relaxed).is_ok()
}

/// Empties a claimed row and frees it.
fn release(row: &ProcessRow) {
    debug_assert_eq!(std::mem::offset_of!(ProcessRow, state), 0, "the state is the first word");
    let words = size_of::<ProcessRow>() / size_of::<AtomicU32>();
    // SAFETY: the row is plain atomics without padding between words that matter, a multiple of 4 bytes long and aligned to
    // 8; while the row is claimed nobody else accesses it, so accesses of different sizes cannot overlap in time.
    let words = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(row).cast::<AtomicU32>(), words) };
    for word in words.iter().skip(1) {
        word.store(0, Relaxed);
    }
    row.state.store(RowState::Free as u32, Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_abi::PROCESSES_MAX;

    #[test]
    fn finds_used_rows_wherever_they_are() {
        let ledger = LauncherLedger::create(false).unwrap();
        assert!(ledger.used_rows().is_empty());
        let rows = &ledger.get().processes;
        for index in [0, 1, 7, 64, PROCESSES_MAX - 1] {
            rows[index].state.store(RowState::Live as u32, Release);
            rows[index].pid.store(i32::try_from(index).unwrap(), Relaxed);
        }
        let found: Vec<i32> = ledger.used_rows().iter().map(|row| row.pid.load(Relaxed)).collect();
        assert_eq!(found, [0, 1, 7, 64, 1023]);
    }

    #[test]
    fn a_released_row_is_empty() {
        let ledger = LauncherLedger::create(false).unwrap();
        let row = &ledger.get().processes[3];
        row.state.store(RowState::Ended as u32, Release);
        row.reason.set("because");
        row.backends[5].plain_pages.store(9, Relaxed);
        row.forks.store(4, Relaxed);
        assert!(!claim(row, RowState::Live as u32));
        assert!(claim(row, RowState::Ended as u32));
        ledger.release(row);
        assert!(ledger.used_rows().is_empty());
        assert_eq!(row.reason.get(), "");
        assert_eq!(row.backends[5].plain_pages.load(Relaxed) + row.forks.load(Relaxed), 0);
    }

    #[test]
    fn another_process_opens_it_by_its_path() {
        let ledger = LauncherLedger::create(false).unwrap();
        let file = std::fs::File::open(ledger.path()).unwrap();
        assert_eq!(file.metadata().unwrap().len(), u64::try_from(LEDGER_BYTES).unwrap());
        let mut head = [0; 16];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0).unwrap();
        assert_eq!(head[..8], LEDGER_MAGIC.to_le_bytes());
    }
}
