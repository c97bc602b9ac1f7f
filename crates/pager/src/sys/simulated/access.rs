//! What a thread does to a simulated page: loads, stores, and the kernel's accesses in its system calls.

use super::machine::page_at;
use super::memory::NoAccess;
use super::turns::{Current, Wait};
use hinterland_sys::Fault;

/// Kernel ids of simulated threads begin here: 0 is none.
pub(crate) const FIRST_ID: u32 = 1000;

impl Current {
    /// The kernel id of the calling thread.
    pub(crate) fn thread_id(&self) -> u32 {
        FIRST_ID + u32::try_from(self.id()).expect("few threads")
    }

    /// Loads a word of the program's.
    pub(crate) fn load(&self, address: usize) -> u64 {
        self.reach(address, false);
        // SAFETY: the page is memory of the simulation, and no other thread runs before the next step.
        unsafe { (address as *const u64).read() }
    }

    /// Stores a word of the program's.
    pub(crate) fn store(&self, address: usize, value: u64) {
        self.reach(address, true);
        // SAFETY: as in `load`.
        unsafe { (address as *mut u64).write(value) };
    }

    /// Has a page come as a touch does. No step is between the return and what the caller does next.
    pub(crate) fn reach(&self, address: usize, write: bool) {
        loop {
            self.step(if write { "stores" } else { "loads" }, page_at(address));
            match self.with(|state| state.machine.memory.access(address, write)) {
                Ok(()) => break self.kernel_swaps(address),
                Err(NoAccess::Forbidden) => self.fail(format!("{address:#x} must not be touched (SIGSEGV)")),
                Err(no) => self.fault(address, write, no),
            }
        }
    }

    /// The kernel is to work on a page for a system call. False: `EFAULT`.
    pub(crate) fn reach_by_kernel(&self, address: usize, write: bool) -> bool {
        loop {
            self.step(if write { "kernel writes" } else { "kernel reads" }, page_at(address));
            match self.with(|state| state.machine.memory.access(address, write)) {
                Ok(()) => return true,
                Err(no) if no != NoAccess::Forbidden && self.with(|state| state.machine.handler.is_none()) => {
                    self.fault(address, write, no);
                }
                Err(_) => return false,
            }
        }
    }

    /// The kernel may swap a page out that was just used.
    fn kernel_swaps(&self, address: usize) {
        self.with(|state| {
            if state.does(|chances| chances.swaps)
                && let Some(page) = state.machine.memory.page(address)
            {
                page.swapped = page.devices == 0 && !page.locked;
            }
        });
    }

    /// A fault of the calling thread, from its message or signal to the moment in which it looks again.
    fn fault(&self, address: usize, write: bool, no: NoAccess) {
        if let Some(handler) = self.with(|state| state.machine.handler.clone()) {
            self.step("SIGBUS", page_at(address));
            if !handler(address, write) {
                self.fail(format!("SIGBUS at {address:#x}, which is nobody's"));
            }
            return;
        }
        let thread = self.thread_id();
        let fault = Fault { address, write, write_protected: no == NoAccess::Protected, thread };
        self.with(|state| state.begin_fault(fault));
        // The message is there before the kernel looks whether the thread has to wait (`handle_userfault`).
        self.step("faults", page_at(address));
        self.with(|state| {
            if state.machine.memory.access(address, write).is_ok() {
                state.wake_faulting(thread);
            }
        });
        while !self.with(|state| state.is_woken(thread)) {
            self.wait(Wait::Fault(address), None);
        }
        self.with(|state| state.end_fault(thread));
    }
}
