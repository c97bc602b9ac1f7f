//! A fault that was served: where the program was, by which calls, and on whose memory.
//!
//! On the inline path each fault's instruction is known, from the signal's context; that of a call which is made for the program, from the
//! call's. The monitor asks for one fault in `ONE_IN`, which then stands for all of them. Calls are followed for as many, on both paths.
//! A fault in libc (copying, comparing) is its caller's, where that can be seen.

use super::walk::{Registers, out_of_libc, walk};
use super::{ONE_IN, code_position, modules, objects, profile};
use crate::inline::thread::Thread;
use hinterland_abi::profile::{Frame, Profile, STACK_FRAMES, key_of, key_of_frames};
use hinterland_pager::{CodePosition, FaultWatch, Served};
use hinterland_units::PAGE_BYTES;
use libc::ucontext_t;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Watches all faults of the process.
pub struct Watcher;

/// Faults, for the choice of samples.
static FAULTS: AtomicU32 = AtomicU32::new(0);

/// Whether this fault is a sample: one in `ONE_IN`, at no regular distance.
fn is_sample() -> bool {
    let number = FAULTS.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9);
    (number ^ number >> 15).wrapping_mul(0x85eb_ca6b) >> 16 & (ONE_IN - 1) == 0
}

impl FaultWatch for Watcher {
    fn position_of(&self, thread: u32) -> Option<CodePosition> {
        let profile = profile()?;
        if profile.monitor_one_in.load(Relaxed) == 0 {
            profile.monitor_one_in.store(ONE_IN, Relaxed);
        }
        if !is_sample() {
            return None;
        }
        let position = code_position::of(thread);
        if position.is_none() {
            profile.unplaced.fetch_add(u64::from(ONE_IN), Relaxed);
        }
        position
    }

    fn served(&self, fault: Served) {
        let Some(profile) = profile() else { return };
        let site = objects::fault(&fault);
        match (fault.thread, fault.position) {
            (None, _) => {
                let from = of_this_thread(Registers::here());
                let point = note_point(profile, &fault, from, site, 1);
                if is_sample() {
                    note_stack(profile, from, point);
                }
            }
            (Some(_), Some([stack, instruction])) => {
                let register = |value: u64| usize::try_from(value).unwrap_or(0);
                let (instruction, stack) = (register(instruction), register(stack));
                let from = Registers { instruction, stack, frame: None };
                let point = note_point(profile, &fault, from, site, ONE_IN.into());
                note_stack(profile, from, point);
            }
            (Some(_), None) => {}
        }
    }
}

/// Where the program was when the calling thread began to serve it; `here`: in this library.
fn of_this_thread(here: Registers) -> Registers {
    let thread = Thread::current();
    let fault = thread.fault_context.load(Relaxed);
    let call = thread.call_context.load(Relaxed);
    // A call's context lies on the stack that the call is made on: above, or it is left over from a call that a handler jumped out of.
    let calls = call > here.stack && call - here.stack < 64 * PAGE_BYTES;
    let context = if fault != 0 {
        fault
    } else if calls {
        call
    } else {
        return here;
    };
    // SAFETY: a fault's context is the kernel's, for a handler that has not returned; a call's lies on the stack that is in use.
    unsafe { Registers::of(context as *const ucontext_t) }
}

/// Counts a fault of a function on a site's memory; returns where in the function.
fn note_point(profile: &Profile, fault: &Served, from: Registers, site: Option<usize>, weight: u64) -> Frame {
    let frame = match out_of_libc(from, fault.thread.is_none()) {
        Some(program) => modules::frame_of(program.instruction),
        None => modules::frame_of(from.instruction),
    };
    let key = key_of([frame.to_bits(), site.map_or(0, |site| site as u64 + 1)]);
    match profile.points.entry(key, |point| point.identify(frame, site)) {
        Some((_, point)) => objects::count(&point.waits, fault, weight),
        None => drop(profile.points_without_room.fetch_add(weight, Relaxed)),
    }
    frame
}

/// Counts a sampled fault by its calls.
#[cold]
#[inline(never)]
fn note_stack(profile: &Profile, from: Registers, point: Frame) {
    let mut frames = [Frame::default(); STACK_FRAMES];
    let count = walk(from, &mut frames);
    let frames = &frames[..count];
    match profile.stacks.entry(key_of_frames(frames), |stack| stack.identify(point, frames)) {
        Some((_, stack)) => drop(stack.faults.fetch_add(ONE_IN.into(), Relaxed)),
        None => drop(profile.stacks_without_room.fetch_add(ONE_IN.into(), Relaxed)),
    }
}
