//! What a pager is made of.

use crate::decisions::Decisions;
use crate::fault_path::FaultPath;
use crate::proportional_share::SharedBytes;
use crate::tracer::Trace;
use crate::watch::FaultWatch;
use hinterland_abi::{Ledger, ProcessRow};
use hinterland_backend::{Backend, Paths};
use hinterland_policy::{Arbiter, EvictionPolicy};
use hinterland_units::{ByteCount, CopyBound};
use std::sync::Arc;

/// See the module.
pub struct Config {
    /// Which thread serves faults. Must be the path that the userfaultfd was opened for.
    pub path: FaultPath,
    /// First address of the far range.
    pub base: usize,
    /// Pages in the far range.
    pub pages: u32,
    /// Bound on local memory.
    pub local: Option<ByteCount>,
    /// Bound on local memory, store and metadata.
    pub ram: Option<ByteCount>,
    /// Where pages go.
    pub backend: Arc<dyn Backend>,
    /// The same, where its paths may change as the ledger's commands say; `None`: they stay.
    pub paths: Option<Arc<Paths>>,
    /// Which stored copies of local pages are retained where they take RAM; `None`: those of a 32nd of the local pages.
    pub copies: Option<CopyBound>,
    /// Which pages go; that of the arbiter, if it follows tapes.
    pub policy: Box<dyn EvictionPolicy>,
    /// Which pages are prefetched.
    pub arbiter: Arbiter,
    /// Bound on prefetched pages that are not known to be used; `None`: what the windows need.
    pub prefetch_cache_pages: Option<u32>,
    /// Where the figures go.
    pub row: &'static ProcessRow,
    /// Processors that the pager's own threads may take at once, until the ledger says otherwise; `None`: all.
    pub cpus: Option<u32>,
    /// Monitor threads: one, or several when a backend waits for a device.
    pub monitors: usize,
    /// Takes stock of the process's whole memory now and then; told the bytes of the pager's tables.
    pub census: fn(&ProcessRow, u64),
    /// The processor on which a thread of this process last ran. Asked by one monitor, not during a fork.
    pub processor_of: fn(u32) -> Option<usize>,
    /// Where the processes of a run share its budget; `None`: this process has the budget for itself. Inherited by forks.
    pub ledger: Option<&'static Ledger>,
    /// Looks at what other processes count of this one's memory, since a fork: of the far range, or, told so, of the pager's
    /// own mappings as well, which takes longer. `None`: it may not look.
    pub shared: fn(bool) -> Option<SharedBytes>,
    /// Called a few times a second from a thread that owns nothing of the pager's: gives memory back that the program freed.
    pub housekeeping: fn(),
    /// Records which pages the program touches. On the monitor path, with one monitor; nothing is prefetched then.
    pub trace: Option<Trace>,
    /// Watches the faults of the program, for a profile. Inherited by forks.
    pub watch: Option<&'static dyn FaultWatch>,
    /// Where decisions are noted, in builds that can. Not inherited by forks.
    pub decisions: Decisions,
}
