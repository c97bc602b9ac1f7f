//! The handlers of the three signals that the inline path lives on.
//!
//! SIGBUS at a far address is a fault, which the thread serves itself, on a stack of ours, with all signals blocked. SIGSYS
//! from our filter and SIGILL from a patched site are system calls of the program: they are made here, on the thread's own
//! stack, under the mask `INSIDE`, and the result goes where the kernel would have put it. Everything else is the program's
//! (`signals::deliver`).
//!
//! Invariant: errno is what it was when a handler returns.

pub(crate) mod frame;

use super::call::Call;
use super::signals::action::{self, KernelAction, SA_RESTORER};
use super::signals::{self, INSIDE, RESERVED_SET, deliver, pending};
use super::syscalls::is_far;
use super::{raw, stacks, syscall_sites};
use hinterland_sys::seccomp::TRAP_MARK;
use hinterland_units::PAGE_BYTES;
use libc::{REG_EFL, REG_ERR, REG_R11, REG_RAX, REG_RCX, REG_RIP, c_int, siginfo_t, ucontext_t};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Serves a fault at an address, which was a write or not. False: it is not about a page of far memory.
pub(crate) type Serve = fn(usize, bool) -> bool;
/// Makes a system call; returns what the kernel returns.
pub(crate) type Perform = fn(&mut Call) -> isize;

/// What the handlers call.
static WORK: OnceLock<(Serve, Perform)> = OnceLock::new();

/// `SYS_SECCOMP`: the signal comes from a filter.
const FROM_FILTER: c_int = 1;
/// `BUS_ADRERR`: nothing is mapped at the address.
const NOT_MAPPED: c_int = 2;

/// Why the inline path cannot begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrapError {
    /// The process has handlers already.
    #[error("the signal handlers of the inline path are installed already")]
    Twice,
    /// A handler was refused.
    #[error("a handler of signal {0} cannot be installed: {1}")]
    Handler(c_int, std::io::Error),
    /// There is no memory for a stack.
    #[error("no stack for serving faults: {0}")]
    Stack(#[from] hinterland_sys::SysError),
    /// libc has no room for what a thread's end needs.
    #[error("the end of threads cannot be noticed: {0}")]
    Key(std::io::Error),
}

/// Installs the handlers, and gives the calling thread a stack to serve faults on. Called once, by the only thread.
///
/// # Errors
/// The system's reasons; nothing is changed then but for handlers that would pass everything on.
pub(crate) fn install(serve: Serve, perform: Perform) -> Result<(), TrapError> {
    WORK.set((serve, perform)).map_err(|_| TrapError::Twice)?;
    signals::begin();
    stacks::begin()?;
    action::adopt_all();
    for signal in signals::RESERVED {
        take_over(signal, true)
            .map_err(|errno| TrapError::Handler(signal, std::io::Error::from_raw_os_error(errno)))?;
        let now = action::of(signals::index(signal).unwrap_or(0));
        let _ = action::change(signal, Some(now));
    }
    let inherited = raw::change_mask(libc::SIG_UNBLOCK, Some(RESERVED_SET));
    signals::mask::swap(inherited);
    Ok(())
}

/// Whether the handlers are installed: signals are virtual.
#[inline]
pub(crate) fn is_installed() -> bool {
    WORK.get().is_some()
}

/// Makes a reserved signal's real disposition ours; `restart`: calls that it interrupts go on. Returns the one before.
pub(crate) fn take_over(signal: c_int, restart: bool) -> Result<KernelAction, i32> {
    let (handler, flags, mask) = match signal {
        libc::SIGBUS => (hinterland_on_sigbus as *const () as usize, libc::SA_ONSTACK, u64::MAX),
        _ => (hinterland_on_call as *const () as usize, libc::SA_ONSTACK, INSIDE),
    };
    let flags = flags | libc::SA_SIGINFO | if restart { libc::SA_RESTART } else { 0 };
    let flags = u64::from(flags.cast_unsigned()) | SA_RESTORER;
    action::kernel_change(signal, Some(KernelAction { handler, flags, restorer: frame::restorer_address(), mask }))
}

/// The real action for a signal whose handler of the program's shall be called by ours. The kernel always brings the information:
/// the action that is called may be a newer one.
pub(crate) fn entry_for(program: &KernelAction) -> KernelAction {
    KernelAction {
        handler: deliver::on_other as *const () as usize,
        flags: program.flags | u64::from((libc::SA_ONSTACK | libc::SA_SIGINFO).cast_unsigned()) | SA_RESTORER,
        restorer: frame::restorer_address(),
        mask: INSIDE,
    }
}

/// Whether an action is one of `entry_for`.
pub(crate) fn is_entry(action: &KernelAction) -> bool {
    action.handler == deliver::on_other as *const () as usize
}

/// Serves a fault. False: it is not about a page of far memory.
pub(crate) fn serve(address: usize, write: bool) -> bool {
    is_far(address) && WORK.get().is_some_and(|(serve, _)| serve(address, write))
}

/// Part of a range is about to be written to for the program: no promise holds that it is the program that overwrites it.
pub(crate) fn take_back(address: usize, bytes: usize) {
    if let Some(pager) = crate::pager() {
        pager.hints().take_back(address, bytes);
    }
}

/// Brings the far pages of a range in, to be written to.
pub(crate) fn bring_in(address: usize, bytes: usize) {
    take_back(address, bytes);
    let first = address & !(PAGE_BYTES - 1);
    for page in (first..address + bytes).step_by(PAGE_BYTES).filter(|page| is_far(*page)) {
        serve(page, true);
    }
}

fn register(context: &mut ucontext_t, number: c_int) -> &mut i64 {
    &mut context.uc_mcontext.gregs[number.unsigned_abs() as usize]
}

unsafe extern "C" {
    /// The entry for SIGBUS: goes on in `on_sigbus`, on the stack that `stacks::to_serve_on` names.
    fn hinterland_on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t);
    /// The entry for trapped calls on the alternate stack: moves its frame to the thread's stack and goes on there, in `on_call`.
    fn hinterland_on_call(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t);
}

core::arch::global_asm!(
    ".pushsection .text.hinterland_trap, \"ax\", @progbits",
    ".balign 16",
    ".hidden hinterland_on_sigbus",
    ".globl hinterland_on_sigbus",
    ".type hinterland_on_sigbus, @function",
    "hinterland_on_sigbus:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "sub rsp, 8",
    "mov rdi, rsp",
    "mov rsi, rdx",
    "call {choose}",
    "mov rdi, [rbp - 8]",
    "mov rsi, [rbp - 16]",
    "mov rdx, [rbp - 24]",
    "mov rsp, rax",
    "call {serve}",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size hinterland_on_sigbus, . - hinterland_on_sigbus",
    ".balign 16",
    ".hidden hinterland_on_call",
    ".globl hinterland_on_call",
    ".type hinterland_on_call, @function",
    "hinterland_on_call:",
    "push rdi",
    "mov rdi, rdx",
    "call {move}",
    "pop rdi",
    // The frame: return address, context, information.
    "mov rsp, rax",
    "lea rdx, [rax + 8]",
    "lea rsi, [rax + 8 + {context_bytes}]",
    "sub rsp, 8",
    "call {on_call}",
    "add rsp, 8",
    "ret",
    ".size hinterland_on_call, . - hinterland_on_call",
    ".popsection",
    choose = sym stacks::to_serve_on,
    serve = sym on_sigbus,
    move = sym move_frame,
    on_call = sym on_call,
    context_bytes = const frame::CONTEXT_BYTES,
);

/// Moves the frame of a trapped call to the stack of the code that made it, or to ours if that one is far; returns its address.
unsafe extern "C" fn move_frame(context: *mut ucontext_t) -> usize {
    let errno = crate::errno::Preserved::new();
    let here = frame::Frame::of(context);
    // SAFETY: the context is part of the frame that the kernel gave to the handler that calls this.
    let frame = unsafe {
        let interrupted = frame::stack_pointer_of(context);
        match stacks::top_for(interrupted).filter(|_| is_far(interrupted)) {
            Some(_) if stacks::is_on_ours(here.address()) => here,
            Some(top) => here.moved_below(top),
            None => here.placed_for(&KernelAction::default()),
        }
    };
    drop(errno);
    frame.address()
}

/// Whether a fault at a page of another mapping's, in the far range, is to be tried again: the mapping may have come there after the fault.
/// If it comes again it is the program's.
fn is_first_at(address: usize) -> bool {
    let (tried, page) = (&super::thread::Thread::current().foreign_fault, address & !(PAGE_BYTES - 1));
    let is_first = is_far(address) && tried.load(Relaxed) != page;
    tried.store(if is_first { page } else { 0 }, Relaxed);
    is_first
}

/// A fault, or the program's own SIGBUS.
unsafe extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let _errno = crate::errno::Preserved::new();
    // SAFETY: the kernel passes both; the address is meaningful for this code, and bit 1 of a page fault's error code says that
    // it was a write.
    let (far, write) = unsafe {
        let address = (*info).si_addr() as usize;
        let error = *register(&mut *context, REG_ERR);
        (((*info).si_code == NOT_MAPPED).then_some(address), error & 2 != 0)
    };
    let context_of_fault = &super::thread::Thread::current().fault_context;
    context_of_fault.store(context.addr(), Relaxed);
    let served = far.is_some_and(|address| serve(address, write));
    context_of_fault.store(0, Relaxed);
    if served || far.is_some_and(is_first_at) {
        // Something sent may have come while this thread was inside the library.
        return pending::deliver_at_return();
    }
    // SAFETY: all three are the kernel's, for this handler.
    unsafe { deliver::pass_on(signal, info, context) }
}

/// A system call that a filter or a patched site stopped, or the program's own SIGSYS or SIGILL.
unsafe extern "C" fn on_call(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let _errno = crate::errno::Preserved::new();
    // SAFETY: the kernel passes both.
    let (code, mark, registers) = unsafe { ((*info).si_code, (*info).si_errno, &mut *context) };
    let ours = match signal {
        // The program's own filter may trap calls, too.
        libc::SIGSYS => code == FROM_FILTER && mark == TRAP_MARK.into(),
        _ => code > 0 && syscall_sites::is_patched(usize::from_ne_bytes(register(registers, REG_RIP).to_ne_bytes())),
    };
    let Some((_, perform)) = WORK.get().filter(|_| ours) else {
        // SAFETY: all three are the kernel's, for this handler.
        return unsafe { deliver::pass_on(signal, info, context) };
    };
    if signal == libc::SIGILL {
        // As the instruction leaves them that stood here before: SYSCALL in the processor's manual.
        let next = *register(registers, REG_RIP) + syscall_sites::SITE_BYTES.cast_signed() as i64;
        *register(registers, REG_RIP) = next;
        *register(registers, REG_RCX) = next;
        *register(registers, REG_R11) = *register(registers, REG_EFL);
    }
    // SAFETY: the context is the kernel's, for this handler.
    let mut call = unsafe { Call::from_context(context) };
    let outer = super::thread::Thread::current().call_context.swap(context.addr(), Relaxed);
    let result = stacks::stack_switch::run(|| perform(&mut call));
    super::thread::Thread::current().call_context.store(outer, Relaxed);
    // SAFETY: as above; the call may have changed the context, so it is not borrowed meanwhile.
    unsafe { *register(&mut *context, REG_RAX) = result as i64 };
    pending::deliver_at_return();
}

/// In the child of a fork, after the pager began there and before code of the program runs.
pub(crate) fn begin_child() {
    signals::begin_child();
    super::thread::Thread::current().child.process.store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_pager::FAR_BASE;

    #[test]
    fn a_fault_at_another_mappings_page_is_tried_again_once() {
        let at = FAR_BASE + PAGE_BYTES;
        assert!(!is_first_at(PAGE_BYTES), "not in the far range");
        for _ in 0..2 {
            assert!(is_first_at(at + 8) && !is_first_at(at));
        }
        assert!(is_first_at(at) && is_first_at(at + PAGE_BYTES) && is_first_at(at) && !is_first_at(at));
    }
}
