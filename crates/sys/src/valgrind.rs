//! Valgrind, which runs a program by emulating it.

/// Whether this process runs under Valgrind: its client request `RUNNING_ON_VALGRIND` (valgrind.h). A processor does nothing at these
/// instructions, and the answer is the default.
pub fn is_running() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let mut answer = 0u64;
    // SAFETY: turns a register by 128 bits in all and exchanges one with itself; Valgrind reads the request and sets the answer.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") answer,
            options(nostack, readonly),
        );
    }
    answer != 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_processor_is_not_valgrind() {
        assert!(!super::is_running());
    }
}
