//! The program confines itself: seccomp(2) and prctl(PR_SET_SECCOMP), however libc is asked for them.
//!
//! Its filter is installed with a prologue that allows the library's own calls (`sys::confinement`), after every thread of the pager that
//! will be needed has begun. What cannot be served so ends the program with a message, before the kernel is asked: strict mode, a filter
//! without room for the prologue, far memory that needs files or sockets. Everything that the kernel refuses it refuses as natively: what is
//! wrong with a filter, or with the permission to install one, is left to the kernel to say.
//!
//! On the inline path there is a filter of ours in force, which the program has not asked for: `PR_GET_SECCOMP` does not tell of it.
//!
//! Two settings of a thread's take from it what the library needs there: the processor's clock (`PR_SET_TSC`), which is read where a fault is
//! timed, and system calls of its own (`PR_SET_SYSCALL_USER_DISPATCH`). They are answered as by a kernel without them (`EINVAL`).
//!
//! Sources: seccomp(2), PR_SET_SECCOMP(2const), PR_GET_SECCOMP(2const), PR_SET_TSC(2const), PR_SET_SYSCALL_USER_DISPATCH(2const).

use crate::inline::syscalls::{is_far, refused};
use crate::inline::user_copy;
use hinterland_pager::Pager;
use hinterland_sys::confinement::{self, INSTRUCTIONS_MAX};
use hinterland_sys::{seccomp, trampoline};
use libc::{c_int, c_long};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// linux/prctl.h.
const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const PR_SYS_DISPATCH_OFF: usize = 0;

/// The program has installed a filter.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// `struct sock_fprog` of linux/filter.h, padding included.
#[repr(C)]
#[derive(Clone, Copy)]
struct Program {
    instructions: u16,
    padding: [u16; 3],
    start: usize,
}

/// Whether a program that has just been started by exec is under a filter that a process of the run has installed for itself: more are in
/// force than for the launcher, ours left out. It cannot be managed, because to begin needs more than such a filter can be expected to
/// allow, and may be the end of the process. Asks with nothing that the loader has not done just before.
pub(crate) fn is_inherited(launchers: Option<u32>) -> bool {
    match launchers.and_then(|launchers| seccomp::filters()?.checked_sub(launchers)) {
        None | Some(0) => false,
        Some(1) => !seccomp::in_force(),
        Some(_) => true,
    }
}

/// Makes a call that may confine the program, or tells what confines it; `None`: it is another call. Answers as the kernel does.
/// `issue` makes the call as it is asked for, with its third argument replaced.
pub(crate) fn call(number: c_long, arguments: [usize; 6], issue: impl Fn(usize) -> isize) -> Option<isize> {
    let pager = crate::pager()?;
    let [first, second, third, ..] = arguments;
    let code = low(first);
    match (number, code) {
        (libc::SYS_prctl, libc::PR_GET_SECCOMP) => Some(mode(issue(third))),
        (libc::SYS_prctl, libc::PR_SET_SECCOMP) => match u32::try_from(second) {
            Ok(libc::SECCOMP_MODE_STRICT) => strict(pager),
            Ok(libc::SECCOMP_MODE_FILTER) => Some(filter(pager, third, issue)),
            _ => None,
        },
        (libc::SYS_prctl, libc::PR_SET_TSC) if low(second) == libc::PR_TSC_SIGSEGV => Some(refused(libc::EINVAL)),
        (libc::SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH) if second != PR_SYS_DISPATCH_OFF => Some(refused(libc::EINVAL)),
        (libc::SYS_seccomp, code) => match code.cast_unsigned() {
            // With flags or an argument the kernel refuses it.
            libc::SECCOMP_SET_MODE_STRICT if second == 0 && third == 0 => strict(pager),
            libc::SECCOMP_SET_MODE_FILTER => Some(filter(pager, third, issue)),
            _ => None,
        },
        _ => None,
    }
}

/// An argument of the C type int.
fn low(argument: usize) -> c_int {
    #[allow(clippy::cast_possible_truncation, reason = "the kernel takes the lower half of the register")]
    let low = argument as u32;
    low.cast_signed()
}

/// What `PR_GET_SECCOMP` answers: our own filter is none of the program's.
fn mode(answer: isize) -> isize {
    let is_filter = u32::try_from(answer) == Ok(libc::SECCOMP_MODE_FILTER);
    if is_filter && crate::inline::active() && !INSTALLED.load(Relaxed) && seccomp::filters() == Some(1) {
        0
    } else {
        answer
    }
}

/// Strict mode: read, write, exit and the return from a handler are all that a thread may call, wherever the call comes from.
fn strict(pager: &Pager) -> Option<isize> {
    // The kernel does not change from one mode to another.
    if INSTALLED.load(Relaxed) {
        return None;
    }
    pager.refuse(
        "it wants to confine itself to seccomp's strict mode, under which far memory cannot be served; run it without Hinterland",
    )
}

/// A filter that lies at `at`.
fn filter(pager: &'static Pager, at: usize, issue: impl Fn(usize) -> isize) -> isize {
    let Some(program) = read::<Program>(at) else { return refused(libc::EFAULT) };
    let count = usize::from(program.instructions);
    if !(1..=INSTRUCTIONS_MAX).contains(&count) || program.start == 0 {
        return issue(at);
    }
    let mut instructions = Vec::with_capacity(count);
    for index in 0..count {
        match read::<libc::sock_filter>(program.start.wrapping_add(index * size_of::<libc::sock_filter>())) {
            Some(instruction) => instructions.push(instruction),
            None => return refused(libc::EFAULT),
        }
    }
    let prepared = if trampoline::is_mapped() {
        pager.prepare_confinement()
    } else {
        Err(format!("something of the program's lies at {:#x}, where Hinterland makes its calls", trampoline::ADDRESS))
    };
    let composed = prepared.and_then(|own| {
        confinement::compose(&instructions, &own)
            .ok_or_else(|| format!("it has {count} instructions, and no room for what Hinterland needs"))
    });
    let composed = match composed {
        Ok(composed) => composed,
        // The kernel tells a program that has not the permission.
        Err(_) if seccomp::permission() != Ok(seccomp::Permission::Free) => return issue(at),
        Err(why) => pager.refuse(&format!(
            "it wants to confine itself by a filter of system calls, under which far memory could not be served: {why}"
        )),
    };
    let begun = confinement::begin(instructions);
    let len = u16::try_from(composed.len()).unwrap_or(u16::MAX);
    let program = libc::sock_fprog { len, filter: composed.as_ptr().cast_mut() };
    let answer = issue((&raw const program).addr());
    if answer < 0 {
        confinement::undo(begun);
    } else {
        INSTALLED.store(true, Relaxed);
    }
    answer
}

/// Reads a value that the program names; `None` for a bad address.
fn read<T: Copy>(at: usize) -> Option<T> {
    if !crate::inline::active() && is_far(at) {
        // The kernel does not wait for a page that is not there, and the monitor brings it at a touch. A far address that may not
        // be read ends the program here.
        for address in [at, at + size_of::<T>() - 1] {
            // SAFETY: as just said.
            unsafe { (address as *const u8).read_volatile() };
        }
    }
    user_copy::read(at).ok()
}
