//! The end of the process: the last figures go to the ledger.
//!
//! Ends that run no code of ours (a signal, a raw exit_group) leave the figures as they were at the last eviction batch. When the
//! last thread of the program leaves by itself, a thread of ours ends the process (`hinterland_sys::last_thread`).

#[cfg(not(feature = "local-only"))]
use hinterland_pager::Pager;
#[cfg(not(feature = "local-only"))]
use hinterland_sys::{confinement, thread};
use libc::c_int;
#[cfg(not(feature = "local-only"))]
use std::sync::atomic::Ordering::Relaxed;
#[cfg(not(feature = "local-only"))]
use std::time::Duration;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    finish();
}

/// Writes the last figures.
pub fn finish() {
    #[cfg(not(feature = "local-only"))]
    if let Some(pager) = crate::pager().filter(|_| is_own()) {
        crate::on_near_stack(|| {
            pager.end_trace();
            pager.report_now();
            pager.row().worked_ns.store(worked_ns(pager), Relaxed);
            crate::ledger::end(pager.row());
        });
    }
}

/// Processor time of the program's threads, in nanoseconds; 0: the program has confined itself.
#[cfg(not(feature = "local-only"))]
fn worked_ns(pager: &Pager) -> u64 {
    let worked = || {
        let mut own = Duration::ZERO;
        pager.any_thread(|id| {
            own += thread::cpu_time_of(id);
            false
        });
        thread::process_cpu_time().saturating_sub(own)
    };
    let worked = confinement::with_files(worked).unwrap_or_default();
    u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether this process is managed and its row its own.
#[cfg(not(feature = "local-only"))]
pub fn is_own() -> bool {
    crate::pager().is_some() && crate::ledger::is_owner()
}

/// `_exit`: no handlers, no destructors; the figures are written all the same, also from a signal handler.
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
