//! The inline path without the library: a handler of SIGBUS that serves the faults of a test's threads.

use hinterland_pager::Pager;
use hinterland_sys::thread;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Pagers of this process whose faults are signals.
static INLINE: [AtomicPtr<Pager>; 128] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 128];

/// Lets the threads of this process serve the faults that they take in `pager`'s range.
pub fn serve(pager: &'static Pager) {
    static HANDLER: Once = Once::new();
    let cell = INLINE.iter().find(|cell| {
        cell.compare_exchange(std::ptr::null_mut(), std::ptr::from_ref(pager).cast_mut(), Relaxed, Relaxed).is_ok()
    });
    assert!(cell.is_some(), "room for all pagers");
    // SAFETY: the handler is a function of this type, and the action is otherwise plain data.
    HANDLER.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigfillset(&mut action.sa_mask);
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
    });
}

extern "C" fn on_sigbus(_: libc::c_int, info: *const libc::siginfo_t, context: *const libc::ucontext_t) {
    // SAFETY: the kernel passes both; bit 1 of a page fault's error code says that it was a write.
    let (address, write) =
        unsafe { ((*info).si_addr() as usize, (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0) };
    // SAFETY: pagers live for ever.
    let mut pagers = INLINE.iter().filter_map(|cell| unsafe { cell.load(Relaxed).as_ref() });
    if !pagers.any(|pager| pager.serve_inline(address, write)) {
        thread::write_stderr("a bus error outside far memory\n");
        thread::exit_now(101);
    }
}
