//! The thread's `errno`, which an interposed call sets exactly when libc's own would.

/// The error number of the call that failed last in this thread.
pub fn get() -> i32 {
    // SAFETY: libc returns the address of this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's error number.
pub fn set(errno: i32) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = errno };
}

/// Keeps the thread's error number over work that the program must not notice.
pub struct Preserved(i32);

impl Preserved {
    /// Remembers the error number until it is dropped.
    pub fn new() -> Preserved {
        Preserved(get())
    }
}

impl Drop for Preserved {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// What the kernel answered, as libc returns it: the value, or -1 with `errno` set.
pub fn of_kernel(answer: libc::c_long) -> libc::c_int {
    let Ok(answer) = libc::c_int::try_from(answer) else { return -1 };
    if answer < 0 {
        set(-answer);
        return -1;
    }
    answer
}

/// What an interposed call returns to C: the value, or -1 with `errno` set.
pub fn to_c(outcome: Result<usize, i32>) -> isize {
    match outcome {
        Ok(value) => value.cast_signed(),
        Err(errno) => {
            set(errno);
            -1
        }
    }
}
