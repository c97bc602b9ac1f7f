//! Calls that come through a function of ours instead of a trap: what a busy program calls all the time.
//!
//! When the far pages are local already, they are pinned and the call is made from the trampoline: no signal, no change of
//! masks. When one is not, the call goes the way of a caught one, with the program's signals blocked while pages are served.
//! What is a cancellation point of libc's is one of ours, and nothing else.

use super::call::Call;
use super::signals::{RESERVED_SET, pending};
use super::stacks::altstack;
use super::syscalls::{self, give_up_below, is_error, is_far, touches_far};
use super::thread::Thread;
use crate::errno;
use hinterland_pager::Pin;
use hinterland_sys::{thread, trampoline};
use libc::{c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI8, Ordering::Relaxed};

/// Bytes that the quick way pins: beyond, a call may have to be divided.
const QUICK_BYTES: usize = 64 << 10;

/// A call is under way in this thread until this is dropped.
struct Frame {
    before: usize,
}

impl Frame {
    /// Notes the frame. One that is noted already but lies below was jumped out of: its pins are given up.
    #[inline]
    fn enter() -> Frame {
        let marker = 0u8;
        let here = (&raw const marker).addr();
        let frame = &Thread::current().frame;
        let mut before = frame.load(Relaxed);
        frame.store(here, Relaxed);
        if before != 0 && before < here && give_up_below(here) {
            before = 0;
        }
        Frame { before }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        Thread::current().frame.store(self.before, Relaxed);
    }
}

/// A part of memory that a call works on.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub start: usize,
    pub len: usize,
}

/// Makes a call that works on `ranges`; its answer in C's manner.
#[inline]
pub(crate) fn on_ranges<const N: usize>(number: i64, arguments: [usize; 6], ranges: [Range; N]) -> isize {
    let frame = Frame::enter();
    let answer = match pin_local(&ranges) {
        // SAFETY: the program's own call.
        Some(_pins) => cancellable(number, || unsafe { trampoline::repeat(number, arguments) }),
        None => as_caught(number, arguments),
    };
    drop(frame);
    in_c(answer)
}

/// Makes a call by all the rules, as if it had been caught; its answer in C's manner.
pub(crate) fn by_the_rules(number: i64, arguments: [usize; 6]) -> isize {
    let frame = Frame::enter();
    let answer = as_caught(number, arguments);
    drop(frame);
    in_c(answer)
}

/// Makes a call on another process's memory, on both paths; its answer in C's manner. No cancellation point, as libc's is none.
pub(crate) fn between_processes(number: i64, arguments: [usize; 6]) -> isize {
    if crate::inline::active() {
        if let Some(pager) = crate::pager() {
            pager.expect_pin_requests();
        }
        let frame = Frame::enter();
        let answer = with_signals_blocked(number, arguments, syscalls::perform);
        drop(frame);
        return in_c(answer);
    }
    in_c(syscalls::between_processes(&Call { number, arguments, context: std::ptr::null_mut() }))
}

/// Makes a call that the program asked `syscall` for as if it had been caught, signal calls included; its answer in C's manner. No
/// cancellation point, as `syscall` is none.
pub(crate) fn as_seen(number: i64, arguments: [usize; 6]) -> isize {
    // A call that goes well leaves it as it is, whatever serving pages was answered.
    let errno = errno::Preserved::new();
    let frame = Frame::enter();
    let answer = with_signals_blocked(number, arguments, super::perform);
    drop(frame);
    // What a return from a handler brings, there is none here.
    if number == libc::SYS_sigaltstack {
        altstack::apply();
    }
    if pending::any() {
        pending::deliver();
    }
    drop(errno);
    in_c(answer)
}

/// Makes a call whose second and third argument are an array of buffers; its answer in C's manner.
pub(crate) fn on_array(number: i64, arguments: [usize; 6]) -> isize {
    quickly(number, arguments, |pins| pins.add_array(arguments[1], arguments[2]))
}

/// Makes a call whose second argument is a message's header; its answer in C's manner.
pub(crate) fn on_message(number: i64, arguments: [usize; 6]) -> isize {
    quickly(number, arguments, |pins| pins.add_message(arguments[1]))
}

/// Makes a call at once if `add` can pin what it names, else as if it had been caught.
#[inline]
fn quickly(number: i64, arguments: [usize; 6], add: impl FnOnce(&mut Quick) -> Option<()>) -> isize {
    let frame = Frame::enter();
    let mut pins = Quick::new();
    let answer = if add(&mut pins).is_some() {
        // SAFETY: the program's own call.
        cancellable(number, || unsafe { trampoline::repeat(number, arguments) })
    } else {
        drop(pins);
        as_caught(number, arguments)
    };
    drop(frame);
    in_c(answer)
}

/// The pins of a call that names its memory by an array.
struct Quick {
    pins: [Option<Pin<'static>>; QUICK_PINS],
    count: usize,
    bytes: usize,
}

/// Pins of the quick way, and elements that it looks at.
const QUICK_PINS: usize = 12;

impl Quick {
    fn new() -> Quick {
        Quick { pins: [const { None }; QUICK_PINS], count: 0, bytes: 0 }
    }

    /// Pins a range, unless it is near; `None` when it is not local, or too much.
    fn add(&mut self, start: usize, len: usize) -> Option<()> {
        if !touches_far(start, len) {
            return Some(());
        }
        self.bytes = self.bytes.checked_add(len).filter(|bytes| *bytes <= QUICK_BYTES)?;
        let pin = crate::pager()?.pin_local(start, len)?;
        *self.pins.get_mut(self.count)? = Some(pin);
        self.count += 1;
        Some(())
    }

    /// Makes a structure of the program's readable: it is far and pinned, or in use as this thread's stack. `None` where
    /// following the pointer could be an error.
    fn readable(&mut self, start: usize, len: usize) -> Option<()> {
        if !start.is_multiple_of(align_of::<usize>()) {
            return None;
        }
        if on_own_stack(start, len) { Some(()) } else { is_far(start).then(|| self.add(start, len))? }
    }

    fn add_array(&mut self, start: usize, count: usize) -> Option<()> {
        if count > QUICK_PINS {
            return None;
        }
        self.readable(start, count * size_of::<libc::iovec>())?;
        for index in 0..count {
            // SAFETY: readable, as was just made sure, and aligned; any bytes are an iovec.
            let element = unsafe { (start as *const libc::iovec).add(index).read() };
            self.add(element.iov_base.addr(), element.iov_len)?;
        }
        Some(())
    }

    fn add_message(&mut self, start: usize) -> Option<()> {
        self.readable(start, size_of::<libc::msghdr>())?;
        // SAFETY: readable, as was just made sure, and aligned; any bytes are a header.
        let header = unsafe { (start as *const libc::msghdr).read() };
        self.add(header.msg_name.addr(), usize::try_from(header.msg_namelen).ok()?)?;
        self.add(header.msg_control.addr(), header.msg_controllen)?;
        self.add_array(header.msg_iov.addr(), header.msg_iovlen)
    }
}

unsafe extern "C" {
    /// The end of the first thread's stack.
    static __libc_stack_end: usize;
}

/// Whether a range lies between this frame and the end of this thread's stack: of the first thread, or of one whose control
/// block lies at the end of its stack. Stacks that the program switches to are not recognised.
fn on_own_stack(start: usize, len: usize) -> bool {
    const STACK_MAX: usize = 64 << 20;
    let marker = 0u8;
    let here = (&raw const marker).addr();
    // SAFETY: the loader's variable, constant since the start of the program.
    let first_end = unsafe { __libc_stack_end };
    let ends = [first_end, thread::pointer()];
    let end = ends.into_iter().filter(|end| end.wrapping_sub(here) < STACK_MAX).min();
    end.is_some_and(|end| start >= here && start < end && len <= end - start)
}

/// Pins ranges that are local and small; `None` if one is not.
#[inline]
fn pin_local<const N: usize>(ranges: &[Range; N]) -> Option<[Option<Pin<'static>>; N]> {
    let pager = crate::pager()?;
    let mut pins = [const { None }; N];
    for (pin, range) in pins.iter_mut().zip(ranges) {
        if range.len > QUICK_BYTES {
            return None;
        }
        *pin = Some(pager.pin_local(range.start, range.len)?);
    }
    Some(pins)
}

/// Performs a call with the program's signals blocked, and a context as a handler would have it.
#[cold]
fn as_caught(number: i64, arguments: [usize; 6]) -> isize {
    cancellable(number, || with_signals_blocked(number, arguments, syscalls::perform))
}

fn with_signals_blocked(number: i64, arguments: [usize; 6], perform: fn(&mut Call) -> isize) -> isize {
    // SAFETY: integers and pointers, of which only the mask is looked at.
    let mut context: libc::ucontext_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // Where the call is made: signal calls ask whether that is a handler's stack.
    let here = (&raw const context).addr();
    context.uc_mcontext.gregs[libc::REG_RSP.unsigned_abs() as usize] = i64::from_ne_bytes(here.to_ne_bytes());
    let mask = (&raw mut context.uc_sigmask).cast::<u64>();
    change_mask(!RESERVED_SET, mask);
    let answer = perform(&mut Call { number, arguments, context: &raw mut context });
    // SAFETY: the first word of the context's mask, which `perform` may have changed as the call asked.
    change_mask(unsafe { mask.read() }, std::ptr::null_mut());
    answer
}

fn change_mask(mask: u64, before: *mut u64) {
    let how = libc::SIG_SETMASK.unsigned_abs() as usize;
    let arguments = [how, (&raw const mask).addr(), before.addr(), size_of::<u64>(), 0, 0];
    // SAFETY: masks of the kernel's size; `before` is null or valid.
    unsafe { trampoline::call(libc::SYS_rt_sigprocmask, arguments) };
}

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    /// Not zero: there is but one thread. libc's own functions leave cancellation out then.
    static __libc_single_threaded: c_char;
}

/// Calls of which libc's functions are no cancellation points.
const NEVER_CANCELLED: [i64; 4] = [libc::SYS_ioctl, libc::SYS_setsockopt, libc::SYS_getsockopt, libc::SYS_epoll_ctl];

/// Runs a call during which the thread can be cancelled, as libc does around its own.
#[inline]
fn cancellable(number: i64, call: impl FnOnce() -> isize) -> isize {
    const ASYNCHRONOUS: c_int = 1;
    if NEVER_CANCELLED.contains(&number) {
        return call();
    }
    // SAFETY: libc's variable, a byte that it changes at any time.
    let alone = unsafe { AtomicI8::from_ptr((&raw const __libc_single_threaded).cast_mut()) };
    if alone.load(Relaxed) != 0 {
        return call();
    }
    let mut before = 0;
    // SAFETY: changes how this thread can be cancelled, and back; the call holds no lock and owns nothing of libc's.
    unsafe { pthread_setcanceltype(ASYNCHRONOUS, &raw mut before) };
    let answer = call();
    // SAFETY: as above.
    unsafe { pthread_setcanceltype(before, std::ptr::null_mut()) };
    answer
}

/// A kernel's answer as libc gives it: -1 and `errno`, or the value.
#[inline]
fn in_c(answer: isize) -> isize {
    if is_error(answer) {
        errno::set(i32::try_from(-answer).unwrap_or(libc::EIO));
        return -1;
    }
    answer
}
