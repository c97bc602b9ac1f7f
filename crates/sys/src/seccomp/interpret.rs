//! What the kernel answers by a filter: the classic BPF that seccomp(2) takes, interpreted.
//!
//! Source: `seccomp_check_filter` in kernel/seccomp.c (which instructions), net/core/filter.c (what they do).

use super::assemble::X86_64;

/// A call, as filters see it.
pub(crate) fn data(number: u32, arguments: [usize; 6], from: usize) -> libc::seccomp_data {
    libc::seccomp_data {
        nr: number.cast_signed(),
        arch: X86_64,
        instruction_pointer: from as u64,
        args: arguments.map(|argument| argument as u64),
    }
}

/// The call in words of 32 bits, as a load finds them.
fn words(data: &libc::seccomp_data) -> [u32; size_of::<libc::seccomp_data>() / 4] {
    // SAFETY: plain data without padding, of the same size.
    unsafe { std::mem::transmute_copy(data) }
}

/// The answer of a filter: that of the kernel if it is one that the kernel takes, else death.
pub(crate) fn interpret(program: &[libc::sock_filter], data: &libc::seccomp_data) -> u32 {
    let (mut accumulator, mut index, mut at) = (0u32, 0u32, 0usize);
    let words = words(data);
    let mut scratch = [0u32; 16];
    while let Some(&libc::sock_filter { code, jt, jf, k }) = program.get(at) {
        at += 1;
        // 0x_8: with the index register as operand.
        let operand = if code & 0x08 != 0 { index } else { k };
        let cell = k as usize % scratch.len();
        let mut branch = |yes: bool| at += usize::from(if yes { jt } else { jf });
        match u32::from(code) {
            0x20 => accumulator = words.get(k as usize / 4).copied().unwrap_or(0),
            // The length of what is filtered.
            0x80 => accumulator = 64,
            0x81 => index = 64,
            0x00 => accumulator = k,
            0x01 => index = k,
            0x60 => accumulator = scratch[cell],
            0x61 => index = scratch[cell],
            0x02 => scratch[cell] = accumulator,
            0x03 => scratch[cell] = index,
            0x07 => index = accumulator,
            0x87 => accumulator = index,
            0x04 | 0x0c => accumulator = accumulator.wrapping_add(operand),
            0x14 | 0x1c => accumulator = accumulator.wrapping_sub(operand),
            0x24 | 0x2c => accumulator = accumulator.wrapping_mul(operand),
            // The kernel answers 0 to a call for which a program divides by zero.
            0x34 | 0x3c => match accumulator.checked_div(operand) {
                Some(quotient) => accumulator = quotient,
                None => return libc::SECCOMP_RET_KILL_THREAD,
            },
            0x44 | 0x4c => accumulator |= operand,
            0x54 | 0x5c => accumulator &= operand,
            0x64 | 0x6c => accumulator = accumulator.wrapping_shl(operand),
            0x74 | 0x7c => accumulator = accumulator.wrapping_shr(operand),
            0x84 => accumulator = accumulator.wrapping_neg(),
            0xa4 | 0xac => accumulator ^= operand,
            0x05 => at = at.saturating_add(k as usize),
            0x15 | 0x1d => branch(accumulator == operand),
            0x25 | 0x2d => branch(accumulator > operand),
            0x35 | 0x3d => branch(accumulator >= operand),
            0x45 | 0x4d => branch(accumulator & operand != 0),
            0x06 => return k,
            0x16 => return accumulator,
            _ => break,
        }
    }
    libc::SECCOMP_RET_KILL_PROCESS
}
