//! The pool of stacks: a list that threads take from and give back to without a lock, in signal handlers too.

use super::{STACK_BYTES, Stack};
use hinterland_sys::{Mapping, SysError, mem};
use hinterland_units::PAGE_BYTES;
use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};

/// Stacks that are mapped at a time: the table of our own mappings is short. The first is mapped alone: most processes have one
/// thread.
const AT_A_TIME: usize = 16;
/// Whether a stack was mapped.
static MAPPED: AtomicBool = AtomicBool::new(false);

/// The first free stack, and in the address's unused bits a count of changes: without it, a thread that slept between looking
/// and taking could take a stack that came back with another successor.
static FIRST: AtomicU64 = AtomicU64::new(0);
/// Addresses of programs have 47 bits; stacks are aligned to 64 bytes.
const ADDRESS_BITS: u32 = 47;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

fn stack_at(word: u64) -> Option<&'static Stack> {
    // SAFETY: null, or the address of a stack, whose memory is never unmapped.
    unsafe { ((word & ADDRESS) as *const Stack).as_ref() }
}

fn changed(word: u64, address: usize) -> u64 {
    let count = (word >> ADDRESS_BITS).wrapping_add(1);
    count << ADDRESS_BITS | address as u64
}

pub(super) fn give_back(stack: &'static Stack) {
    let mut first = FIRST.load(Acquire);
    loop {
        let next = stack_at(first).map_or(0, Stack::top);
        stack.next.store(next, Relaxed);
        match FIRST.compare_exchange_weak(first, changed(first, stack.top()), AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

pub(super) fn take() -> Result<&'static Stack, SysError> {
    let mut first = FIRST.load(Acquire);
    loop {
        let Some(stack) = stack_at(first) else { return more() };
        let next = stack.next.load(Relaxed);
        match FIRST.compare_exchange_weak(first, changed(first, next), AcqRel, Acquire) {
            Ok(_) => return Ok(stack),
            Err(now) => first = now,
        }
    }
}

/// Bytes of one stack with its guard and description.
fn bytes() -> usize {
    // SAFETY: getauxval(3) only reads what the kernel gave the process.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
    let frames = 2 * usize::try_from(frame).unwrap_or(0).max(libc::MINSIGSTKSZ);
    PAGE_BYTES + (STACK_BYTES + frames + size_of::<Stack>()).next_multiple_of(PAGE_BYTES)
}

/// Maps more stacks; returns one, and puts the others into the pool.
fn more() -> Result<&'static Stack, SysError> {
    let bytes = bytes();
    let count = if MAPPED.swap(true, Relaxed) { AT_A_TIME } else { 1 };
    let mapping = Mapping::anonymous(bytes * count)?;
    let mut one = None;
    for start in (mapping.start..mapping.start + mapping.len).step_by(bytes) {
        // Without its guard a stack is as good; only an overflow would go unnoticed.
        let _ = mem::protect(start, PAGE_BYTES, libc::PROT_NONE);
        let stack = (start + bytes - size_of::<Stack>()) & !(align_of::<Stack>() - 1);
        let stack = stack as *mut Stack;
        // SAFETY: the description lies at the end of its part of the new mapping.
        let stack = unsafe {
            stack.write(Stack {
                next: AtomicUsize::new(0),
                bottom: start + PAGE_BYTES,
                start: [const { AtomicUsize::new(0) }; 2],
                blocked: AtomicU64::new(0),
                handler_mask: AtomicU64::new(0),
                rounds: AtomicU32::new(0),
                thread: AtomicI32::new(0),
                descriptor: UnsafeCell::new(None),
                far_end: AtomicUsize::new(0),
            });
            &*stack
        };
        match one {
            None => one = Some(stack),
            Some(_) => give_back(stack),
        }
    }
    one.ok_or(SysError { call: "mmap", errno: libc::ENOMEM })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_one_threads_at_a_time() {
        let threads: Vec<_> = (0..4usize)
            .map(|mark| {
                std::thread::spawn(move || {
                    for round in 0..20_000 {
                        let stack = take().unwrap();
                        stack.start[0].store(mark, Relaxed);
                        stack.start[1].store(round, Relaxed);
                        std::hint::spin_loop();
                        assert_eq!(stack.start[0].load(Relaxed), mark);
                        assert_eq!(stack.start[1].load(Relaxed), round);
                        give_back(stack);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_stack_has_room_and_ends_at_its_description() {
        let stack = take().unwrap();
        assert!(stack.top() - stack.bottom >= STACK_BYTES && stack.top().is_multiple_of(64));
        assert!(stack.contains(stack.top()) && !stack.contains(stack.bottom) && !stack.contains(stack.top() + 8));
        // SAFETY: the lowest word of an unused stack.
        unsafe { (stack.bottom as *mut u64).write_volatile(1) };
        give_back(stack);
    }
}
