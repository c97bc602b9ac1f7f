//! Running the pager's code for a thread whose own stack is far.
//!
//! The pager must not: a page of the stack could be taken out while it holds a lock, and the kernel would find nothing where
//! it looks for arguments. So such work goes to the thread's stack for faults, which is near; on the monitor path, where
//! threads have none, to one that is borrowed for it.

use super::{give_back, take, top_for};
use crate::inline::syscalls::is_far;
use hinterland_sys::thread::SignalsBlocked;
use std::mem::MaybeUninit;

/// Runs `work`, which does not jump away, on a near stack: this one, unless it is far. Then the program's signals are blocked
/// meanwhile, because their handlers may use the same stack.
pub(crate) fn run_blocked<R>(work: impl FnOnce() -> R) -> R {
    let here = 0u8;
    let here = (&raw const here).addr();
    if !is_far(here) {
        return work();
    }
    let _no_handlers = SignalsBlocked::new();
    run(work)
}

/// The same where signals are blocked already. A thread that has no stack for faults, at its very beginning or on the monitor
/// path, borrows one.
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    let here = 0u8;
    let here = (&raw const here).addr();
    if !is_far(here) {
        return work();
    }
    if let Some(top) = top_for(here) {
        return run_on(top, work);
    }
    let Ok(stack) = take() else { return work() };
    let result = run_on(stack.top(), work);
    give_back(stack);
    result
}

/// Runs `work` below `top`, the end of a near stack, of which no other thread uses that part.
fn run_on<R>(top: usize, work: impl FnOnce() -> R) -> R {
    let mut job = Job { work: Some(work), result: MaybeUninit::uninit() };
    let function = job.function();
    // SAFETY: the stack is the thread's, unused, and signals are blocked; the job lives until the call is back.
    unsafe { hinterland_call_on((&raw mut job).cast(), function, top & !15) };
    // SAFETY: `call` has stored the result.
    unsafe { job.result.assume_init() }
}

struct Job<R, F> {
    work: Option<F>,
    result: MaybeUninit<R>,
}

impl<R, F: FnOnce() -> R> Job<R, F> {
    /// What does this job, on whatever stack it is called.
    fn function(&self) -> unsafe extern "C" fn(*mut u8) {
        Self::call
    }

    unsafe extern "C" fn call(job: *mut u8) {
        // SAFETY: the argument is a job of this type that no other thread uses now.
        let job = unsafe { &mut *job.cast::<Self>() };
        if let Some(work) = job.work.take() {
            job.result.write(work());
        }
    }
}

unsafe extern "C" {
    /// Calls a function with an argument on another stack.
    fn hinterland_call_on(argument: *mut u8, function: unsafe extern "C" fn(*mut u8), top: usize);
}

core::arch::global_asm!(
    ".pushsection .text.hinterland_call_on, \"ax\", @progbits",
    ".balign 16",
    ".hidden hinterland_call_on",
    ".globl hinterland_call_on",
    ".type hinterland_call_on, @function",
    "hinterland_call_on:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size hinterland_call_on, . - hinterland_call_on",
    ".popsection",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_another_stack_and_comes_back() {
        let stack = super::super::take().unwrap();
        let mut seen = 0;
        let mut job = Job {
            work: Some(|| {
                let here = 0u8;
                seen = (&raw const here).addr();
                7
            }),
            result: MaybeUninit::uninit(),
        };
        let function = job.function();
        // SAFETY: the stack was taken for this test.
        unsafe { hinterland_call_on((&raw mut job).cast(), function, stack.top() & !15) };
        // SAFETY: the call has stored it.
        assert_eq!(unsafe { job.result.assume_init() }, 7);
        assert!(stack.contains(seen));
        super::super::give_back(stack);
    }
}
