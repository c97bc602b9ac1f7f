//! A fault in the thread that took it.

/// Serves a fault of the calling thread. False: it was not about far memory.
pub(crate) fn serve(address: usize, write: bool) -> bool {
    crate::start::pager_of_faults().is_some_and(|pager| pager.serve_inline(address, write))
}
