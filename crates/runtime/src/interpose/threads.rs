//! Threads and what the kernel does for them at their end.
//!
//! On the inline path, a thread has a stack for faults before its first instruction. On both paths, a small stack has room for what is ours on it
//! (`thread_room`), and what the kernel reads and writes when a thread ends stays local, because it waits for no page then: the descriptor of a
//! thread on a far stack, and robust mutexes.

use super::next_symbol::next;
use super::thread_room::{self, Attributes};
use crate::caller;
use crate::inline::signals::mask;
use crate::inline::stacks::{self, Stack, altstack, far};
use crate::inline::trap;
use crate::memory_limit::{self, Account};
use crate::on_near_stack;
use hinterland_sys::thread;
use libc::{c_int, c_void, pthread_attr_t, pthread_mutex_t, pthread_mutexattr_t, pthread_t};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a thread runs, for `pthread_create` and for `thrd_create`: they return different types in the same register.
type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

/// Whether the stack that libc maps for a thread is more than a limit on memory leaves the program. It may have one left of a thread that has ended,
/// which is not known here.
fn exceeds_a_limit(attributes: *const pthread_attr_t) -> bool {
    memory_limit::is_set_here() && {
        let stack = Account::of_mapping(thread_room::mapped_bytes(attributes), true);
        // The map of regions is not locked on a stack in far memory.
        on_near_stack(|| memory_limit::check(|_| stack)).is_err()
    }
}

/// Starts a thread by `start`, with a stack for faults if it is one of the program's; `refused` when there is none, or no room for its own.
fn start_with(
    routine: Routine,
    argument: *mut c_void,
    refused: c_int,
    attributes: *const pthread_attr_t,
    start: impl Fn(Routine, *mut c_void) -> c_int,
) -> c_int {
    let descriptor = far::descriptor_of(attributes);
    // Our own threads serve nothing on stacks of their own.
    let is_ours = caller::is_internal(routine as usize);
    if !is_ours && exceeds_a_limit(attributes) {
        return refused;
    }
    if !trap::is_installed() && descriptor.is_none() || is_ours {
        return start(routine, argument);
    }
    let Ok(stack) = stacks::take() else { return refused };
    stack.start[0].store(routine as usize, Relaxed);
    stack.start[1].store(argument.addr(), Relaxed);
    if trap::is_installed() {
        stack.blocked.store(mask::blocked(), Relaxed);
    }
    if let Some(descriptor) = descriptor {
        far::prepare(stack, descriptor);
    }
    // SAFETY: `begin` never returns to Rust; it has the type of a routine.
    let begin: Routine = unsafe { std::mem::transmute(begin as unsafe extern "C" fn()) };
    let result = start(begin, std::ptr::from_ref(stack).cast_mut().cast());
    if result != 0 {
        far::forget(stack);
        stacks::give_back(stack);
    }
    result
}

/// What `begin` goes on with.
#[repr(C)]
struct Start {
    routine: usize,
    argument: usize,
}

extern "C" fn prepare(stack: *const Stack) -> Start {
    // SAFETY: `start_with` passed a stack, which is this thread's from now on.
    let stack = unsafe { &*stack };
    let [routine, argument] = stack.start.each_ref().map(|word| word.load(Relaxed));
    if trap::is_installed() {
        stacks::attach(stack);
        altstack::apply();
        mask::inherit(stack.blocked.load(Relaxed));
    }
    far::watch(stack);
    Start { routine, argument }
}

/// A thread's first function: leaves no frame behind, so that the program's routine is the first one, as without us.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {prepare}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        prepare = sym prepare,
    )
}

type Create = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Routine, *mut c_void) -> c_int;

fn next_create() -> Create {
    next!(pthread_create: Create)
}

/// Whether libc itself starts threads, and no other library before it.
pub fn are_started_by_libc() -> bool {
    caller::is_internal(next_create() as usize)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    let next = next_create();
    // Our own threads have the stacks that they need.
    let roomy = match caller::is_internal(routine as usize) {
        true => Attributes::Given(attributes),
        false => Attributes::with_room(attributes),
    };
    // SAFETY: the call is the program's, but for the routine and the room on the stack.
    start_with(routine, argument, libc::EAGAIN, attributes, |routine, argument| unsafe {
        next(thread, roomy.as_ptr(), routine, argument)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut pthread_t, routine: Routine, argument: *mut c_void) -> c_int {
    /// `thrd_error` of threads.h: what glibc makes of `EAGAIN`.
    const ERROR: c_int = 2;
    type Create = unsafe extern "C" fn(*mut pthread_t, Routine, *mut c_void) -> c_int;
    let next = next!(thrd_create: Create);
    let roomy = Attributes::with_room(std::ptr::null());
    // SAFETY: as in `pthread_create`.
    start_with(routine, argument, ERROR, std::ptr::null(), |routine, argument| unsafe {
        match &roomy {
            Attributes::Given(_) => next(thread, routine, argument),
            // thrd_join(3) reads what a routine of either kind leaves.
            roomy => match next_create()(thread, roomy.as_ptr(), routine, argument) {
                0 => 0,
                _ => ERROR,
            },
        }
    })
}

type MutexInit = unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut pthread_mutex_t,
    attributes: *const pthread_mutexattr_t,
) -> c_int {
    let next = next!(pthread_mutex_init: MutexInit);
    // SAFETY: the call is the program's.
    let result = unsafe { next(mutex, attributes) };
    if result == 0
        && let Some(pager) = crate::pager().filter(|_| is_robust(mutex))
        && !pager.pin_long_term(mutex.addr(), size_of::<pthread_mutex_t>())
    {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Relaxed) {
            thread::write_stderr(
                "hinterland: robust mutexes are on more than a quarter of the local pages: a thread that waits for one whose \
                 owner has ended may wait for ever; give more --local\n",
            );
        }
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_destroy(mutex: *mut pthread_mutex_t) -> c_int {
    type Destroy = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
    let next = next!(pthread_mutex_destroy: Destroy);
    let kept = crate::pager().filter(|_| is_robust(mutex));
    // SAFETY: the call is the program's.
    let result = unsafe { next(mutex) };
    if let Some(pager) = kept.filter(|_| result == 0) {
        pager.unpin_long_term(mutex.addr(), size_of::<pthread_mutex_t>());
    }
    result
}

/// Whether a mutex is in the list that the kernel walks.
fn is_robust(mutex: *const pthread_mutex_t) -> bool {
    /// `__data.__kind` of glibc's mutex on x86-64 (sysdeps/nptl/bits/struct_mutex.h), and `PTHREAD_MUTEX_ROBUST_NORMAL_NP` in it.
    const KIND_OFFSET: usize = 16;
    const ROBUST: c_int = 16;
    // SAFETY: the program passes a mutex.
    let kind = unsafe { mutex.byte_add(KIND_OFFSET).cast::<c_int>().read() };
    // One that was destroyed has a negative kind.
    kind > 0 && kind & ROBUST != 0
}
