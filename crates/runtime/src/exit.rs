//! The end of the process: the last figures go to the ledger.
//!
//! Ends that run no code of ours (a signal, a raw exit_group) leave the figures as they were at the last eviction batch.

use hinterland_abi::{ProcessRow, RowState};
use libc::c_int;
use std::sync::atomic::Ordering::{Relaxed, Release};

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = finish;

extern "C" fn finish() {
    #[cfg(not(feature = "local-only"))]
    if let Some(pager) = crate::pager() {
        let row = pager.row();
        // A vfork child that could not exec shares this memory, but the row is its parent's.
        if row.pid.load(Relaxed) == i32::try_from(std::process::id()).unwrap_or(0) {
            pager.report_now();
            end(row);
        }
    }
}

fn end(row: &ProcessRow) {
    row.state.store(RowState::Ended as u32, Release);
}

/// `_exit`: no handlers, no destructors; the figures are written all the same.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(code: c_int) -> ! {
    finish();
    hinterland_sys::thread::exit_now(code)
}

/// As `_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(code: c_int) -> ! {
    _exit(code)
}
