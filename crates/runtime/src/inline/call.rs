//! A system call of the program that was caught before the kernel saw it.

/// What the program asked for, and where it stands.
pub(crate) struct Call {
    /// The call's number.
    pub number: i64,
    /// Its arguments, in the kernel's order.
    pub arguments: [usize; 6],
    /// The interrupted program, when a signal handler caught the call; null when a function of ours was called instead.
    pub context: *mut libc::ucontext_t,
}
