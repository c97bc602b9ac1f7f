//! What each thread has of its own on the inline path: the virtual half of its signal state, and its stack for faults.
//!
//! In the initial thread-local storage: reached with two instructions, in any signal handler, from a thread's first one to
//! its last. Rust's own thread-local variables go through `__tls_get_addr` in a shared library, which may call malloc after a
//! `dlopen`. A child of vfork has its parent thread's; the parent thread sleeps meanwhile.
//!
//! Invariant: all zeros is the right state for a new thread. Only the thread itself, and signal handlers in it, touch it.

use super::signals::action::KernelAction;
use super::signals::pending::Slots;
use super::stacks::Stack;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// One thread's.
#[repr(C, align(16))]
pub(crate) struct Thread {
    /// Reserved signals that the program has blocked, as `signals::mask` keeps them.
    pub blocked: AtomicU64,
    /// Reserved signals that wait for being unblocked.
    pub pending: Slots,
    /// The stack on which this thread serves faults; null until it has one.
    pub stack: AtomicPtr<Stack>,
    /// The thread is in its last moments: it gets no stack any more.
    pub ending: AtomicBool,
    /// The alternate stack that the program set: address, bytes (0: none), flags.
    pub altstack: [AtomicUsize; 3],
    /// The context of the fault that is being served in a handler; 0: none.
    pub fault_context: AtomicUsize,
    /// The page of another mapping's at which a fault is being tried again; 0: none.
    pub foreign_fault: AtomicUsize,
    /// The context of the trapped call that is being made; 0: none. A handler that jumped out of a call leaves the call's here.
    pub call_context: AtomicUsize,
    /// Bytes that are allocated until the profile takes a sample.
    pub sample_after: AtomicUsize,
    /// From there to the end of those that the sample is of.
    pub sample_rest: AtomicUsize,
    /// The frame of the wrapped call that this thread is in; 0: none.
    pub frame: AtomicUsize,
    /// Memory that a child of vfork left behind at its exec: address and bytes.
    pub left_by_child: [AtomicUsize; 2],
    /// Actions on their way to the kernel and back: a stack may be far, where the kernel finds nothing.
    pub actions: Passed,
    /// What a child of vfork changed for itself.
    pub child: Child,
}

/// Pairs of actions, used in turns, because signal handlers come in between.
#[repr(C)]
pub(crate) struct Passed {
    turn: AtomicUsize,
    pairs: UnsafeCell<[[KernelAction; 2]; TURNS]>,
}

/// Handlers that may interrupt each other in the middle of a change.
const TURNS: usize = 8;

impl Passed {
    /// A pair to use now.
    pub fn next(&self) -> *mut [KernelAction; 2] {
        let turn = self.turn.fetch_add(1, Relaxed) % TURNS;
        // SAFETY: inside the array.
        unsafe { self.pairs.get().cast::<[KernelAction; 2]>().add(turn) }
    }
}

/// Signal state of a child of vfork, which must not change its parent's.
#[repr(C)]
pub(crate) struct Child {
    /// Whose this is.
    pub process: AtomicI32,
    /// As `Thread::blocked`.
    pub blocked: AtomicU64,
    /// Dispositions of the reserved signals.
    pub actions: UnsafeCell<[KernelAction; 3]>,
}

core::arch::global_asm!(
    ".pushsection .tbss.hinterland_thread, \"awT\", @nobits",
    ".globl hinterland_thread",
    ".hidden hinterland_thread",
    ".type hinterland_thread, @object",
    ".size hinterland_thread, {bytes}",
    ".balign 16",
    "hinterland_thread:",
    ".zero {bytes}",
    ".popsection",
    bytes = const size_of::<Thread>(),
);

impl Thread {
    /// The calling thread's. Not to be kept over anything that may change the thread.
    #[inline]
    pub fn current<'a>() -> &'a Thread {
        let address: *const Thread;
        // SAFETY: reads the offset of the variable in the initial thread-local storage and the thread pointer (x86-64 ABI for
        // thread-local storage, initial-exec model).
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + hinterland_thread@GOTTPOFF]",
                "add {0}, qword ptr fs:[0]",
                out(reg) address,
                options(nostack, readonly),
            );
        }
        // SAFETY: all zeros are a valid value, and every field may be changed through a shared reference.
        unsafe { &*address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own_and_finds_zeros() {
        let own = Thread::current();
        own.altstack[2].store(7, Relaxed);
        let others = std::thread::spawn(|| {
            let there = Thread::current();
            assert_eq!(there.altstack[2].load(Relaxed), 0);
            assert!(there.stack.load(Relaxed).is_null());
            std::ptr::from_ref(there).addr()
        });
        assert_ne!(others.join().unwrap(), std::ptr::from_ref(own).addr());
        assert_eq!(Thread::current().altstack[2].swap(0, Relaxed), 7);
    }
}
