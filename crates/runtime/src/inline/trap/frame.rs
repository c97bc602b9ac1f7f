//! The kernel's signal frame on x86-64: read, moved to another stack, and entered as the kernel would.
//!
//! ```text
//! higher  floating-point state, aligned to 64 bytes    (its size is in its own software-reserved bytes)
//!         siginfo, 128 bytes
//!         ucontext, 304 bytes: flags, link, stack, registers (with a pointer to the state above), mask
//! lower   return address: the restorer, which calls rt_sigreturn
//! ```
//! Source: arch/x86/kernel/signal_64.c, arch/x86/include/uapi/asm/sigcontext.h, arch/x86/include/asm/sigframe.h (Linux 6.1).

use super::super::signals::action::{KernelAction, SA_RESTORER};
use super::super::signals::deliver::handler_done;
use super::super::signals::pending::deliver_at_return;
use super::super::stacks::altstack;
use hinterland_sys::trampoline;
use libc::{c_int, ucontext_t};
use std::mem::offset_of;

/// Bytes of the kernel's ucontext: glibc's goes on after it.
pub(crate) const CONTEXT_BYTES: usize = MASK_OFFSET + size_of::<u64>();
const MASK_OFFSET: usize = offset_of!(ucontext_t, uc_sigmask);
const INFO_BYTES: usize = size_of::<libc::siginfo_t>();
/// Return address, context and information.
const FRAME_BYTES: usize = size_of::<usize>() + CONTEXT_BYTES + INFO_BYTES;
/// Bytes below the stack pointer that belong to the interrupted function (x86-64 ABI).
pub(crate) const RED_ZONE_BYTES: usize = 128;

/// The real mask of interrupted code.
///
/// # Safety
/// `context` is the kernel's.
pub(crate) unsafe fn mask_of(context: *const ucontext_t) -> u64 {
    // SAFETY: the caller's promise; the kernel's mask has 8 bytes and is aligned to as many.
    unsafe { context.byte_add(MASK_OFFSET).cast::<u64>().read() }
}

/// Sets the mask that the return from the handler brings.
///
/// # Safety
/// As for `mask_of`.
pub(crate) unsafe fn set_mask_of(context: *mut ucontext_t, mask: u64) {
    // SAFETY: as in `mask_of`.
    unsafe { context.byte_add(MASK_OFFSET).cast::<u64>().write(mask) };
}

/// The stack pointer of interrupted code.
///
/// # Safety
/// `context` is the kernel's.
pub(crate) unsafe fn stack_pointer_of(context: *const ucontext_t) -> usize {
    // SAFETY: the caller's promise.
    let register = unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP.unsigned_abs() as usize] };
    usize::from_ne_bytes(register.to_ne_bytes())
}

/// Where the parts of a frame go on a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Places {
    /// The floating-point state.
    state: usize,
    /// The return address, and the stack pointer when the handler begins.
    frame: usize,
}

/// A frame with `state_bytes` of floating-point state below `top`.
fn places(top: usize, state_bytes: usize) -> Places {
    let state = top.saturating_sub(state_bytes) & !63;
    // As after a call: the handler finds its stack aligned.
    let frame = (state.saturating_sub(FRAME_BYTES) & !15) - size_of::<usize>();
    Places { state, frame }
}

/// A signal frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame(usize);

impl Frame {
    /// The frame that a context is part of.
    pub fn of(context: *mut ucontext_t) -> Frame {
        Frame(context.addr() - size_of::<usize>())
    }

    /// Where it is: the address of its return address.
    pub fn address(self) -> usize {
        self.0
    }

    /// Its context.
    pub fn context(self) -> *mut ucontext_t {
        (self.0 + size_of::<usize>()) as *mut ucontext_t
    }

    /// Bytes of its floating-point state.
    ///
    /// # Safety
    /// It is a frame of the kernel's.
    unsafe fn state_bytes(self) -> usize {
        /// `FP_XSTATE_MAGIC1`: the state is more than that of FXSAVE.
        const EXTENDED: u32 = 0x4650_5853;
        /// Where the FXSAVE area has room for software: magic number, then all bytes.
        const SOFTWARE: usize = 464;
        const FXSAVE_BYTES: usize = 512;
        // SAFETY: the caller's promise; the state is null or at least an FXSAVE area.
        unsafe {
            let state = (*self.context()).uc_mcontext.fpregs.cast::<u8>();
            if state.is_null() {
                return 0;
            }
            let words = state.add(SOFTWARE).cast::<u32>();
            if words.read() == EXTENDED { words.add(1).read() as usize } else { FXSAVE_BYTES }
        }
    }

    /// The frame on the stack where the kernel would have put it for `action`: this one, or a copy.
    ///
    /// # Safety
    /// It is a frame of the kernel's, and its stack is not used otherwise.
    pub unsafe fn placed_for(self, action: &KernelAction) -> Frame {
        // SAFETY: the caller's promise.
        let interrupted = unsafe { stack_pointer_of(self.context()) };
        match altstack::stack_for(action, interrupted, self.0) {
            None => self,
            // SAFETY: the program's stack below what is in use there, and this frame lies on another one. A program without
            // room for the frame ends here, as it would have by the kernel.
            Some(top) => unsafe { self.moved_below(top) },
        }
    }

    /// A copy of the frame at the upper end of a stack, or at its end in use.
    ///
    /// # Safety
    /// It is a frame of the kernel's, and lies on another stack. No code uses the stack below `top`.
    pub unsafe fn moved_below(self, top: usize) -> Frame {
        // SAFETY: the caller's promise.
        let state_bytes = unsafe { self.state_bytes() };
        let places = places(top, state_bytes);
        super::bring_in(places.frame, top - places.frame);
        let copy = Frame(places.frame);
        // SAFETY: the caller's promise: the target is free, and does not overlap this frame.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0 as *const u8, places.frame as *mut u8, FRAME_BYTES);
            let state = &raw mut (*copy.context()).uc_mcontext.fpregs;
            if !(*state).is_null() {
                std::ptr::copy_nonoverlapping((*state).cast::<u8>(), places.state as *mut u8, state_bytes);
                *state = places.state as *mut _;
            }
        }
        copy
    }

    /// Enters the program's handler with this frame, under the mask at `mask`.
    ///
    /// # Safety
    /// The frame is complete, and nothing of the calling function is needed any more.
    pub unsafe fn enter(self, action: &KernelAction, signal: c_int, mask: *const u64) -> ! {
        let restorer = if action.flags & SA_RESTORER != 0 { action.restorer } else { restorer_address() };
        // SAFETY: the first word of the frame is its return address; the rest is the caller's promise.
        unsafe {
            (self.0 as *mut usize).write(restorer);
            hinterland_enter_handler(self.0, action.handler, signal, mask)
        }
    }
}

/// The code that returns from a handler of ours: in the page that the program's own filter knows.
pub(crate) const fn restorer_address() -> usize {
    trampoline::RESTORER_ADDRESS
}

unsafe extern "C" {
    fn hinterland_enter_handler(frame: usize, handler: usize, signal: c_int, mask: *const u64) -> !;
}

// The restorer is byte for byte what unwinders and debuggers take for one. The handler's return address is not the restorer but
// our own code, so that the virtual mask can be put right; its unwinding information says that the restorer called it.
core::arch::global_asm!(
    ".pushsection .text.hinterland_signals, \"ax\", @progbits",
    ".balign 16",
    ".hidden hinterland_enter_handler",
    ".globl hinterland_enter_handler",
    ".type hinterland_enter_handler, @function",
    "hinterland_enter_handler:",
    ".cfi_startproc",
    "mov rsp, rdi",
    "mov rbx, rdi",
    "mov r12, rsi",
    "mov r13d, edx",
    "sub rsp, 8",
    ".cfi_def_cfa rsp, 16",
    // rt_sigprocmask(SIG_SETMASK, mask, null, 8): from here on the program's signals may come, on the right stack.
    "mov eax, {sigprocmask}",
    "mov edi, {setmask}",
    "mov rsi, rcx",
    "xor edx, edx",
    "mov r10d, 8",
    "mov r11, {inside}",
    "call r11",
    "mov edi, r13d",
    "lea rsi, [rbx + 8 + {context_bytes}]",
    "lea rdx, [rbx + 8]",
    "xor eax, eax",
    "cld",
    "call r12",
    "lea rdi, [rbx + 8]",
    "call {done}",
    // The frame to return from: this one, or a near copy. Only there may SIGBUS be blocked.
    "mov rsp, rax",
    ".cfi_def_cfa_offset 8",
    "sub rsp, 8",
    ".cfi_def_cfa_offset 16",
    "call {deliver}",
    "add rsp, 8",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    ".size hinterland_enter_handler, . - hinterland_enter_handler",
    ".popsection",
    sigprocmask = const libc::SYS_rt_sigprocmask,
    setmask = const libc::SIG_SETMASK,
    inside = const trampoline::INSIDE_ADDRESS,
    context_bytes = const CONTEXT_BYTES,
    done = sym handler_done,
    deliver = sym deliver_at_return,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_laid_out_as_the_kernel_does() {
        assert_eq!((MASK_OFFSET, CONTEXT_BYTES, FRAME_BYTES), (296, 304, 440));
        for top in [0x7000_0000_0000usize, 0x7000_0000_1237, 0x7000_0000_0fff] {
            for state_bytes in [0, 512, 836, 2696, 11_008] {
                let places = places(top, state_bytes);
                assert_eq!((places.state % 64, places.frame % 16), (0, 8));
                assert!(places.state + state_bytes <= top && places.frame + FRAME_BYTES <= places.state);
                assert!(top - places.frame <= FRAME_BYTES + state_bytes + 64 + 16 + 8);
            }
        }
    }
}
