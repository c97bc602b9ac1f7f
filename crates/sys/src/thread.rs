//! Threads and signals.

use crate::SysError;
use std::mem::MaybeUninit;

/// All signals of the calling thread are blocked until this is dropped.
///
/// A thread of the program that works inside the pager must not run a signal handler there: the handler could touch an
/// evicted page while the thread holds what serving it needs.
pub struct SignalsBlocked {
    before: u64,
}

impl SignalsBlocked {
    /// Blocks them. Through the raw call, so that the program's wrappers are not involved.
    pub fn new() -> SignalsBlocked {
        SignalsBlocked { before: set_mask(u64::MAX) }
    }
}

impl Default for SignalsBlocked {
    fn default() -> SignalsBlocked {
        SignalsBlocked::new()
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(self.before);
    }
}

/// Replaces the signal mask and returns the old one.
fn set_mask(mask: u64) -> u64 {
    let mut before: MaybeUninit<u64> = MaybeUninit::zeroed();
    // SAFETY: both masks are the kernel's sigset_t of 8 bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &mask, before.as_mut_ptr(), size_of::<u64>());
        before.assume_init()
    }
}

/// The calling thread's kernel id.
pub fn id() -> u32 {
    // SAFETY: gettid(2) takes nothing and cannot fail.
    u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0)
}

/// Gives the processor away.
pub fn yield_now() {
    // SAFETY: sched_yield(2) takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_sched_yield) };
}

/// Starts a thread of Hinterland: all signals blocked, named, with a small stack.
///
/// # Errors
/// What pthread_create says, for example `EAGAIN` at the limit on processes.
pub fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<(), SysError> {
    const STACK_BYTES: usize = 256 << 10;
    // glibc's own signals (32, 33) stay open: setuid(2) and friends reach every thread through them.
    const LIBC_SIGNALS: u64 = 0b11 << 31;
    let before = SignalsBlocked { before: set_mask(!LIBC_SIGNALS) };
    let _restored_on_return = before;
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK_BYTES)
        .spawn(body)
        .map(drop)
        .map_err(|error| SysError { call: "pthread_create", errno: error.raw_os_error().unwrap_or(libc::EAGAIN) })
}

/// Ends the process at once with `code`: no handlers, no destructors, no flush.
pub fn exit_now(code: i32) -> ! {
    loop {
        // SAFETY: exit_group(2) does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// Writes a message to standard error, as far as it goes.
pub fn write_stderr(message: &str) {
    // SAFETY: the buffer is valid; a failed write has no remedy here.
    unsafe { libc::syscall(libc::SYS_write, 2, message.as_ptr(), message.len()) };
}

/// The processor on which a thread of this process last ran.
pub fn processor_of(thread: u32) -> Option<usize> {
    // Field 39 of /proc/PID/task/TID/stat (proc(5)), counted behind the name, which may hold anything but ends at the last
    // parenthesis.
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Keeps the calling thread on one processor, or lets it run on all that the process may use. False: the kernel refused.
pub fn run_on(processor: Option<usize>) -> bool {
    const WORDS: usize = 16;
    let mut mask = [0u64; WORDS];
    match processor {
        Some(number) if number < WORDS * 64 => mask[number / 64] = 1 << (number % 64),
        Some(_) => return false,
        // The kernel takes the part of a full mask that the process's cpuset allows.
        None => mask = [u64::MAX; WORDS],
    }
    // SAFETY: the mask is valid for the call; 0 means the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&mask), mask.as_ptr()) == 0 }
}
