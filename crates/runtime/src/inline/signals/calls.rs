//! The system calls that read or change signal state, for the program whose reserved signals are virtual.
//!
//! Called in our handlers, with the mask `INSIDE`.

use super::action::{self, KernelAction};
use super::{INSIDE, RESERVED_SET, mask, pending, strip};
use crate::inline::call::Call;
use crate::inline::trap::frame;
use crate::inline::user_copy::{self, BadAddress, read_optional};
use crate::inline::{raw, stacks};
use libc::{SIG_SETMASK, c_int, siginfo_t, timespec};

/// Makes a call that is about signals. `None`: it is not, or needs nothing of us.
pub(crate) fn call(call: &mut Call) -> Option<isize> {
    let outcome = match call.number {
        libc::SYS_rt_sigaction => sigaction(call),
        libc::SYS_rt_sigprocmask => sigprocmask(call),
        libc::SYS_rt_sigpending => sigpending(call),
        libc::SYS_rt_sigsuspend => sigsuspend(call),
        libc::SYS_rt_sigtimedwait => return sigtimedwait(call).map(to_kernel),
        libc::SYS_sigaltstack => sigaltstack(call),
        _ => return None,
    };
    Some(to_kernel(outcome))
}

/// rt_sigprocmask(2) or rt_sigaction(2), made where libc makes it and not in a handler: the pointers are libc's own, but for that to
/// the old mask, which it passes on.
pub(crate) fn call_directly(number: i64, arguments: &[usize; 6]) -> isize {
    let [first, new, old, bytes, ..] = *arguments;
    let direct = |bytes: usize| check_size(bytes).map(|()| int(first));
    // SAFETY: null, or what libc and the program pass for the kernel to read.
    let outcome = direct(bytes).and_then(|first| unsafe {
        if number == libc::SYS_rt_sigprocmask {
            mask::change_and_tell(first, (new as *const u64).as_ref().copied(), old)?;
        } else {
            let before = action::change(first, (new as *const KernelAction).as_ref().copied())?;
            if let Some(old) = (old as *mut KernelAction).as_mut() {
                *old = before;
            }
        }
        Ok(0)
    });
    to_kernel(outcome)
}

fn to_kernel(outcome: Result<isize, i32>) -> isize {
    outcome.unwrap_or_else(|errno| -isize::try_from(errno).unwrap_or(0))
}

/// The kernel's sets have this size, and it insists.
fn check_size(bytes: usize) -> Result<(), i32> {
    if bytes == size_of::<u64>() { Ok(()) } else { Err(libc::EINVAL) }
}

/// An argument of the C type int.
fn int(argument: usize) -> c_int {
    #[allow(clippy::cast_possible_truncation, reason = "the kernel takes the lower half of the register")]
    let low = argument as u32;
    low.cast_signed()
}

fn sigaction(call: &Call) -> Result<isize, i32> {
    let [signal, new, old, bytes, ..] = call.arguments;
    check_size(bytes)?;
    let new = read_optional::<KernelAction>(new)?;
    let before = action::change(int(signal), new)?;
    if old != 0 {
        user_copy::write(old, &before)?;
    }
    Ok(0)
}

fn sigprocmask(call: &Call) -> Result<isize, i32> {
    let [how, set, old, bytes, ..] = call.arguments;
    check_size(bytes)?;
    let set = read_optional::<u64>(set)?;
    // SAFETY: the context is that of a handler of ours that has not returned.
    let mut real = unsafe { frame::mask_of(call.context) };
    let before = mask::change_at_return(int(how), set, &mut real)?;
    // SAFETY: as above.
    unsafe { frame::set_mask_of(call.context, real) };
    if old != 0 {
        user_copy::write(old, &before)?;
    }
    Ok(0)
}

fn sigpending(call: &Call) -> Result<isize, i32> {
    let [set, bytes, ..] = call.arguments;
    if bytes > size_of::<u64>() {
        return Err(libc::EINVAL);
    }
    let mut real = 0u64;
    // SAFETY: the set is ours and has this size.
    let result = unsafe { raw::call(libc::SYS_rt_sigpending, [(&raw mut real).addr(), size_of::<u64>(), 0, 0, 0, 0]) };
    if result < 0 {
        return Ok(result);
    }
    let all = (real | pending::set() & mask::blocked()).to_ne_bytes();
    for (offset, byte) in all[..bytes].iter().enumerate() {
        user_copy::write(set + offset, byte)?;
    }
    Ok(0)
}

/// Runs `work` with the real mask of the code that made the call: handlers of the program may run meanwhile.
fn as_program<R>(call: &Call, work: impl FnOnce() -> R) -> R {
    // SAFETY: the context is that of a handler of ours that has not returned.
    raw::change_mask(SIG_SETMASK, Some(unsafe { frame::mask_of(call.context) }));
    let result = work();
    raw::change_mask(SIG_SETMASK, Some(INSIDE));
    result
}

fn sigsuspend(call: &Call) -> Result<isize, i32> {
    let [set, bytes, ..] = call.arguments;
    check_size(bytes)?;
    let set = user_copy::read::<u64>(set)?;
    let real = strip(set);
    let virtually = mask::swap(set);
    let result = as_program(call, || {
        if pending::deliver() > 0 {
            return -(libc::EINTR as isize);
        }
        // SAFETY: the set is ours and has this size.
        unsafe { raw::call(libc::SYS_rt_sigsuspend, [(&raw const real).addr(), size_of::<u64>(), 0, 0, 0, 0]) }
    });
    mask::swap(virtually);
    Ok(result)
}

/// How long a wait for a reserved signal goes on before the held ones are looked at again, in nanoseconds: a signal that
/// arrived in another thread waits there. Seldom used; 50 ms are not noticed.
const WAIT_NS: i64 = 50_000_000;

/// Waits for signals. Reserved ones may be held by us; then the kernel does not know of them.
fn sigtimedwait(call: &Call) -> Option<Result<isize, i32>> {
    let [set, info, limit, bytes, ..] = call.arguments;
    let Ok(set) = user_copy::read::<u64>(set) else { return Some(Err(libc::EFAULT)) };
    if set & RESERVED_SET == 0 || bytes != size_of::<u64>() {
        return None;
    }
    let limit = match read_optional::<timespec>(limit) {
        Ok(limit) => limit,
        Err(BadAddress) => return Some(Err(libc::EFAULT)),
    };
    if limit.is_some_and(|limit| limit.tv_sec < 0 || !(0..1_000_000_000).contains(&limit.tv_nsec)) {
        return Some(Err(libc::EINVAL));
    }
    let end_ns = limit.map(|limit| now_ns().saturating_add(nanoseconds(limit)));
    Some(wait(call, set, end_ns).and_then(|(signal, information)| {
        if info != 0 {
            user_copy::write(info, &information)?;
        }
        Ok(signal)
    }))
}

fn wait(call: &Call, set: u64, end_ns: Option<i64>) -> Result<(isize, siginfo_t), i32> {
    loop {
        if let Some((signal, information)) = pending::take(set) {
            return Ok((isize::try_from(signal).unwrap_or(0), information));
        }
        let left_ns = end_ns.map_or(WAIT_NS, |end| end - now_ns());
        let slice = timespec { tv_sec: 0, tv_nsec: left_ns.clamp(0, WAIT_NS) };
        // SAFETY: plain data.
        let mut information: siginfo_t = unsafe { std::mem::zeroed() };
        let arguments =
            [(&raw const set).addr(), (&raw mut information).addr(), (&raw const slice).addr(), size_of::<u64>(), 0, 0];
        // SAFETY: all three are ours and have the kernel's layout.
        let result = as_program(call, || unsafe { raw::call(libc::SYS_rt_sigtimedwait, arguments) });
        if result > 0 {
            return Ok((result, information));
        }
        if result != -(libc::EAGAIN as isize) || left_ns <= WAIT_NS && end_ns.is_some() {
            return Err(i32::try_from(-result).unwrap_or(libc::EINVAL));
        }
    }
}

fn nanoseconds(time: timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

fn now_ns() -> i64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = libc::CLOCK_MONOTONIC.unsigned_abs() as usize;
    // SAFETY: the structure is the kernel's.
    unsafe { raw::call(libc::SYS_clock_gettime, [clock, (&raw mut now).addr(), 0, 0, 0, 0]) };
    nanoseconds(now)
}

fn sigaltstack(call: &Call) -> Result<isize, i32> {
    let [new, old, ..] = call.arguments;
    let new = read_optional::<libc::stack_t>(new)?;
    // SAFETY: the context is that of a handler of ours that has not returned.
    let stack_pointer = unsafe { frame::stack_pointer_of(call.context) };
    let before = stacks::altstack::change(new, stack_pointer)?;
    // The kernel takes the alternate stack from the context when the handler returns.
    // SAFETY: as above.
    unsafe { (*call.context).uc_stack = stacks::altstack::real() };
    if old != 0 {
        user_copy::write(old, &before)?;
    }
    Ok(0)
}
