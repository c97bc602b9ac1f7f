//! The inline fault path without the library: a handler of SIGBUS that lets pagers serve the faults of a test's threads.

use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Serves a fault at an address, which was a write or not; false: the address is none of its own.
type Serve = dyn Fn(usize, bool) -> bool + Sync;

/// Those of this process.
static SERVERS: [AtomicPtr<&'static Serve>; 128] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 128];

/// Has `server` serve the faults that the threads of this process take as SIGBUS.
pub fn serve(server: impl Fn(usize, bool) -> bool + Sync + 'static) {
    static HANDLER: Once = Once::new();
    let server: &'static Serve = Box::leak(Box::new(server));
    let pointer = Box::into_raw(Box::new(server));
    let cell =
        SERVERS.iter().find(|cell| cell.compare_exchange(std::ptr::null_mut(), pointer, Relaxed, Relaxed).is_ok());
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
    // SAFETY: servers live for ever.
    let mut servers = SERVERS.iter().filter_map(|cell| unsafe { cell.load(Relaxed).as_ref() });
    if !servers.any(|server| server(address, write)) {
        let message = "a bus error outside far memory\n";
        // SAFETY: both calls are made for signal handlers; the text is a constant.
        unsafe {
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
            libc::_exit(101);
        }
    }
}
