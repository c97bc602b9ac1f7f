//! Forks: the child goes on with every page as it was, served by its own userfaultfd.
//!
//! glibc runs atfork handlers around every fork that a library call makes (fork, forkpty, daemon, …). The library registers
//! its own before any other, so they are the innermost: the last to prepare and the first in parent and child. vfork and
//! posix_spawn share the parent's memory and need nothing; `_Fork` runs no handlers and is interposed.

#[cfg(not(feature = "local-only"))]
mod handlers {
    use crate::regions::{self, ForkRule};
    use crate::{Pager, ledger, start};
    use hinterland_sys::thread;
    use hinterland_units::PageNo;
    use std::sync::atomic::Ordering::Relaxed;

    /// Registers the handlers.
    pub fn init() {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        let rc = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        assert_eq!(rc, 0, "atfork handlers cannot be registered");
    }

    /// Before the fork.
    pub extern "C" fn prepare() {
        if let Some(pager) = crate::pager() {
            regions::lock_for_fork();
            pager.freeze();
        }
    }

    /// After the fork, in the parent.
    pub extern "C" fn parent() {
        if let Some(pager) = crate::pager() {
            pager.thaw();
            regions::unlock_after_fork();
        }
    }

    /// After the fork, in the child.
    pub extern "C" fn child() {
        let Some(pager) = crate::pager() else { return };
        if let Err(error) = begin(pager) {
            // Its far memory would read as zeros: it must not run.
            thread::write_stderr(&format!(
                "hinterland: a forked process cannot go on, because its far memory cannot be served: {error}\n"
            ));
            thread::exit_now(125);
        }
        regions::unlock_after_fork();
    }

    fn begin(pager: &'static Pager) -> Result<(), start::KernelError> {
        let (mut left, mut wiped): (Vec<Run>, Vec<Run>) = (Vec::new(), Vec::new());
        regions::for_each_fork_flag(|first, count, rule| match rule {
            ForkRule::Leave => left.push((first, count)),
            ForkRule::Wipe => wiped.push((first, count)),
            ForkRule::Copy => {}
        });
        for fd in pager.kernel().descriptors() {
            crate::descriptors::release(fd);
        }
        let (uffd, memory) = start::open_kernel(pager.kernel().features())?;
        let row = ledger::row_for_child();
        row.fault_path.set("monitor");
        row.reason.set("forked");
        row.forked.store(1, Relaxed);
        pager.begin_child(uffd, memory, row, &left, &wiped)?;
        regions::forget_after_fork(&left);
        pager.start()?;
        Ok(())
    }

    type Run = (PageNo, u32);
}

#[cfg(not(feature = "local-only"))]
pub use handlers::{child, init, parent, prepare};

/// `_Fork`: a fork without atfork handlers.
#[cfg(not(feature = "local-only"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> libc::pid_t {
    let _signals = hinterland_sys::thread::SignalsBlocked::new();
    prepare();
    // SAFETY: clone(2) with only a termination signal is fork(2): the child gets a copy of this stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match pid {
        0 => child(),
        _ => parent(),
    }
    libc::pid_t::try_from(pid).unwrap_or(-1)
}
