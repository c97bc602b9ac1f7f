//! The ledger of a run under way, read from outside: its launcher holds it in a memfd.

use anyhow::{Context, Result, ensure};
use hinterland_abi::{BackendRow, LEDGER_MAGIC, LEDGER_VERSION, Ledger};
use memmap2::{Mmap, MmapOptions};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// A mapped ledger.
pub struct LiveLedger(Mmap);

impl LiveLedger {
    /// The ledger of the run that `launcher` has started.
    ///
    /// # Errors
    /// The launcher holds none, or one of another layout.
    pub fn of(launcher: Pid) -> Result<LiveLedger> {
        let is_ledger = |link: &fs::DirEntry| {
            fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().contains("hinterland-ledger"))
        };
        let mut descriptors = fs::read_dir(format!("/proc/{launcher}/fd"))?.flatten();
        let file = File::open(descriptors.find(is_ledger).context("the launcher holds no ledger")?.path())?;
        // SAFETY: the launcher never makes the file shorter.
        let map = unsafe { MmapOptions::new().map(&file) }?;
        ensure!(map.len() >= size_of::<Ledger>(), "a ledger of {} bytes", map.len());
        let ledger = LiveLedger(map);
        let head = ledger.get();
        ensure!(
            (head.magic.load(Relaxed), head.version.load(Relaxed)) == (LEDGER_MAGIC, LEDGER_VERSION),
            "another layout"
        );
        Ok(ledger)
    }

    fn get(&self) -> &Ledger {
        // SAFETY: the mapping is page aligned and as long as a ledger, which consists of atomics, valid for any bytes; this side
        // only loads.
        unsafe { &*self.0.as_ptr().cast::<Ledger>() }
    }

    /// What the processes hold of the run's RAM: local pages, tables, and stores.
    pub fn held_bytes(&self) -> u64 {
        let rows = self.get().processes.iter().map(|row| {
            let count = usize::try_from(row.backend_count.load(Acquire)).unwrap_or(0);
            let stores: u64 = row.backends.iter().take(count).map(|backend| backend.ram_bytes.load(Relaxed)).sum();
            row.resident_managed_bytes.load(Relaxed) + row.metadata_bytes.load(Relaxed) + stores
        });
        rows.sum()
    }

    /// Pages that the processes that run now have copied to memory nodes in place of lost ones.
    pub fn rebuilt_pages(&self) -> u64 {
        self.sum_of_backends(|backend| &backend.rebuilt_pages)
    }

    /// How often the processes that run now have lost a memory node.
    pub fn losses(&self) -> u64 {
        self.sum_of_backends(|backend| &backend.losses)
    }

    fn sum_of_backends(&self, figure: impl Fn(&BackendRow) -> &AtomicU64) -> u64 {
        let backends = self.get().processes.iter().flat_map(|row| {
            let count = usize::try_from(row.backend_count.load(Acquire)).unwrap_or(0);
            row.backends.iter().take(count)
        });
        backends.map(|backend| figure(backend).load(Relaxed)).sum()
    }
}
