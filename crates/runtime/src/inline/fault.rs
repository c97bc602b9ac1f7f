//! A fault in the thread that took it.

/// Serves a fault of the calling thread. False: it was not about far memory.
pub(crate) fn serve(address: usize, write: bool) -> bool {
    crate::start::pager_of_faults().is_some_and(|pager| pager.serve_here(address, write))
}

extern "C" fn on_sigbus(_: libc::c_int, info: *const libc::siginfo_t, context: *const libc::ucontext_t) {
    let errno = crate::errno::get();
    // SAFETY: the kernel passes both; bit 1 of a page fault's error code says that it was a write.
    let (address, write) =
        unsafe { ((*info).si_addr() as usize, (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0) };
    if !serve(address, write) {
        hinterland_sys::thread::exit_now(135);
    }
    crate::errno::set(errno);
}

pub(crate) fn install() {
    // SAFETY: the handler is a function of this type, and the action is otherwise plain data.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigfillset(&mut action.sa_mask);
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
    }
}
