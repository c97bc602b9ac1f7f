//! Tasks: threads that clone(2) makes with this memory and the caller's thread-local storage, on a stack of the program's that is far.
//!
//! The kernel gives such a task no alternate signal stack, so a fault on its own stack would find no place for the signal's frame. It gets one
//! of the pool here, and the upper end of its stack stays local: there it begins and ends. Thread-local storage is its maker's, so it is
//! known by its number. With `CLONE_VFORK` the maker sleeps, and its stack for faults serves both.
//!
//! An entry is free again when its task is gone: the maintenance thread looks, because a task can end anywhere.

use super::super::raw;
use super::far::BEGIN_BYTES;
use super::{Stack, altstack, give_back, stack_switch, take};
use crate::inline::syscalls::is_far;
use hinterland_pager::{FAR_BASE, Pin};
use hinterland_sys::thread::SignalsBlocked;
use libc::{c_int, c_void};
use std::cell::UnsafeCell;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

type Body = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Tasks at a time; one beyond begins as the kernel makes it.
const TASKS: usize = 64;

/// In `Task::thread`: nobody's entry; one that is being filled or emptied; a task that has not begun.
const FREE: i32 = 0;
const CLAIMED: i32 = -1;
const UNBORN: i32 = -2;

/// A task and what it needs to begin.
pub(crate) struct Task {
    thread: AtomicI32,
    stack: AtomicPtr<Stack>,
    function: UnsafeCell<Option<Body>>,
    argument: UnsafeCell<*mut c_void>,
    /// Keeps the upper end of its own stack local.
    pin: UnsafeCell<Option<Pin<'static>>>,
}

// SAFETY: the cells are written by who has claimed the entry, and read by its task.
unsafe impl Sync for Task {}

impl Task {
    const fn new() -> Task {
        Task {
            thread: AtomicI32::new(FREE),
            stack: AtomicPtr::new(null_mut()),
            function: UnsafeCell::new(None),
            argument: UnsafeCell::new(null_mut()),
            pin: UnsafeCell::new(None),
        }
    }

    /// What `begin` is called with.
    pub fn argument(&'static self) -> *mut c_void {
        from_ref(self).cast_mut().cast()
    }

    /// Gives everything back; the entry is claimed.
    fn empty(&self) {
        // SAFETY: the entry is claimed, and its task does not exist.
        unsafe { *self.pin.get() = None };
        // SAFETY: null, or a stack of the pool.
        if let Some(stack) = unsafe { self.stack.swap(null_mut(), AcqRel).as_ref() } {
            give_back(stack);
        }
        self.thread.store(FREE, Release);
        COUNT.fetch_sub(1, Relaxed);
    }
}

static ENTRIES: [Task; TASKS] = [const { Task::new() }; TASKS];
/// Entries that are not free.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// For a clone with these flags on the stack that ends at `stack`: the entry of its task, to begin with `begin`. `None`: it needs nothing.
pub(crate) fn prepare(flags: u32, stack: usize, function: Body, argument: *mut c_void) -> Option<&'static Task> {
    let is_task = flags & (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_SETTLS).cast_unsigned()
        == libc::CLONE_VM.cast_unsigned();
    if !is_task || !is_far(stack.wrapping_sub(1)) {
        return None;
    }
    stack_switch::run_blocked(|| {
        let _blocked = SignalsBlocked::new();
        look_for_gone();
        let claims = |task: &&Task| task.thread.compare_exchange(FREE, CLAIMED, Acquire, Relaxed).is_ok();
        let task = ENTRIES.iter().find(claims)?;
        COUNT.fetch_add(1, Relaxed);
        let Ok(faults) = take() else {
            task.empty();
            return None;
        };
        task.stack.store(from_ref(faults).cast_mut(), Relaxed);
        // A stack may be smaller than what is to stay local.
        let first = (stack - BEGIN_BYTES).max(FAR_BASE);
        // SAFETY: the entry is claimed.
        unsafe {
            *task.function.get() = Some(function);
            *task.argument.get() = argument;
            *task.pin.get() = crate::pager().map(|pager| pager.pin_for_good(first, stack - first));
        }
        task.thread.store(UNBORN, Release);
        Some(task)
    })
}

/// The clone of a prepared task has failed.
pub(crate) fn failed(task: &Task) {
    stack_switch::run_blocked(|| {
        let _blocked = SignalsBlocked::new();
        task.empty();
    });
}

/// Where a task begins: on its own stack, whose upper end is local.
///
/// # Safety
/// Called by clone(2) with what `Task::argument` gave.
pub(crate) unsafe extern "C" fn begin(task: *mut c_void) -> c_int {
    // SAFETY: the caller's promise: an entry that lasts for ever, and is this task's.
    let task = unsafe { &*task.cast::<Task>() };
    task.thread.store(raw::thread(), Release);
    altstack::apply();
    // SAFETY: filled before the task was made.
    match unsafe { (*task.function.get(), *task.argument.get()) } {
        // SAFETY: what the program passed to clone(2).
        (Some(function), argument) => unsafe { function(argument) },
        (None, _) => 0,
    }
}

/// The stack for faults of the calling thread if it is such a task.
#[inline]
pub(super) fn own() -> Option<&'static Stack> {
    if COUNT.load(Relaxed) == 0 { None } else { own_among_tasks() }
}

#[cold]
fn own_among_tasks() -> Option<&'static Stack> {
    let thread = raw::thread();
    let task = ENTRIES.iter().find(|task| task.thread.load(Acquire) == thread)?;
    // SAFETY: a stack of the pool.
    unsafe { task.stack.load(Relaxed).as_ref() }
}

/// A thread that has a stack of its own begins: an entry with its number is of a task that is gone.
pub(super) fn begin_thread() {
    if COUNT.load(Relaxed) > 0 {
        let thread = raw::thread();
        ENTRIES.iter().for_each(|task| empty_if(task, thread));
    }
}

/// Empties the entries of tasks that are gone.
pub(crate) fn look_for_gone() {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    for task in &ENTRIES {
        let thread = task.thread.load(Relaxed);
        if thread > 0 && !exists(thread) {
            empty_if(task, thread);
        }
    }
}

fn empty_if(task: &Task, thread: i32) {
    if task.thread.compare_exchange(thread, CLAIMED, Acquire, Relaxed).is_ok() {
        task.empty();
    }
}

/// Whether there is a thread of this number, in whatever process.
fn exists(thread: i32) -> bool {
    // SAFETY: sends nothing.
    unsafe { raw::call(libc::SYS_tkill, [thread.unsigned_abs() as usize, 0, 0, 0, 0, 0]) != -(libc::ESRCH as isize) }
}

/// In the child of a fork, which has none of its parent's tasks, and where no pin of the parent's holds.
pub(crate) fn begin_child() {
    for task in &ENTRIES {
        if task.thread.load(Relaxed) != FREE {
            // SAFETY: there is no other thread.
            std::mem::forget(unsafe { (*task.pin.get()).take() });
            task.empty();
        }
    }
}
