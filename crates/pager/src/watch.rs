//! The watcher of faults for a profile. The pager reports the fault that it served; the watcher finds the program's
//! position.

use crate::state::State;
use hinterland_units::PageNo;

/// Where a thread stands: stack pointer and instruction pointer.
pub type CodePosition = [u64; 2];

/// A fault that was served.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Its page.
    pub page: PageNo,
    /// The page's state when it began.
    pub was: State,
    /// The kernel's id of the thread that waited for a monitor; `None`: the calling thread.
    pub thread: Option<u32>,
    /// What `FaultWatch::position_of` said.
    pub position: Option<CodePosition>,
    /// Time in which it was served.
    pub wait_ns: u64,
}

/// Watches faults. Called by threads that serve them, several at a time, on the inline path in signal handlers: it allocates nothing, takes
/// no lock that interrupted code may hold, and touches no far memory.
pub trait FaultWatch: Sync {
    /// A monitor is about to serve a fault of this thread, which waits in the kernel: where it stands, if that is to be known of this
    /// fault.
    fn position_of(&self, thread: u32) -> Option<CodePosition>;

    /// A fault has been served.
    fn served(&self, fault: Served);
}
