//! A system call of the program, taken out of the registers of the thread that made it.

use hinterland_sys::trampoline;
use libc::ucontext_t;

/// A system call that was stopped before the kernel began it.
pub(crate) struct Call {
    /// Its number.
    pub number: i64,
    /// Its arguments, in the kernel's order.
    pub arguments: [usize; 6],
    /// The thread's registers and signal mask, as they will be when the call returns; null when a function of ours was called
    /// instead.
    pub context: *mut ucontext_t,
}

impl Call {
    /// The call that a context was about to make.
    ///
    /// # Safety
    /// `context` is the one that the kernel passed to a signal handler which has not returned.
    pub unsafe fn from_context(context: *mut ucontext_t) -> Call {
        // SAFETY: the caller's promise.
        let registers = unsafe { &(*context).uc_mcontext.gregs };
        let register = |number: i32| usize::from_ne_bytes(registers[number.unsigned_abs() as usize].to_ne_bytes());
        let arguments =
            [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9].map(register);
        // The kernel looks at the lower half of the number's register alone.
        #[allow(clippy::cast_possible_truncation, reason = "the lower half is meant")]
        let number = i64::from(registers[libc::REG_RAX.unsigned_abs() as usize] as i32);
        Call { number, arguments, context }
    }

    /// Whether the library itself made it: it was caught because of memory of the program's.
    pub fn is_own(&self) -> bool {
        if self.context.is_null() {
            return false;
        }
        // SAFETY: the context is that of the handler that caught the call, or one made for the call, with zeros for registers.
        let next = unsafe { (*self.context).uc_mcontext.gregs[libc::REG_RIP.unsigned_abs() as usize] };
        usize::from_ne_bytes(next.to_ne_bytes()) == trampoline::OWN_RETURN_ADDRESS
    }
}
