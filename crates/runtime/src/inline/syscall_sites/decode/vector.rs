//! Vector instructions that the decoder does not know (masks of AVX-512 in VEX form, AMD's FMA4 and XOP): their length follows from
//! their prefix.
//!
//! ```text
//! c5 vv            opcode modrm [sib] [displacement] [imm8]   map 1
//! c4 mm vv         opcode …                                   maps 1, 2, 3 (imm8 always in 3)
//! 62 mm vv vv      opcode …
//! 8f mm vv         opcode …                                   maps 8 (imm8), 9, 10 (imm32); below 8 it is a pop
//! ```
//! Source: Intel SDM volume 2, 2.3 and 2.7; AMD64 manual volume 6.

use super::{RAX, Source, Step};

/// The length of such an instruction at the beginning of `code`, and what it does; `None`: none begins there.
pub(super) fn instruction(code: &[u8]) -> Option<(usize, Step)> {
    let map = |mask: u8| code.get(1).map(|byte| byte & mask);
    let (prefix_bytes, map) = match code.first()? {
        0xc5 => (2, 1),
        0xc4 => (3, map(0x1f)?),
        0x62 => (4, map(0x07)?),
        0x8f => (3, map(0x1f).filter(|map| *map >= 8)?),
        _ => return None,
    };
    let opcode = *code.get(prefix_bytes)?;
    let immediate_bytes = match (map, opcode) {
        (3 | 8, _) | (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) => 1,
        (10, _) => 4,
        (1 | 2 | 5 | 6 | 9, _) => 0,
        _ => return None,
    };
    let form = *code.get(prefix_bytes + 1)?;
    let len = prefix_bytes + 2 + memory_bytes(form, code.get(prefix_bytes + 2).copied()) + immediate_bytes;
    // Masks are moved to general registers, too (kmov).
    let is_low_register = code[1] & 0x80 != 0;
    let loads_rax = map == 1 && opcode == 0x93 && is_low_register && form >> 3 & 7 == RAX;
    let step = if loads_rax { Step::Load(RAX, Source::Other) } else { Step::Other };
    (len <= code.len()).then_some((len, step))
}

/// Bytes behind a modrm byte: the sib byte and the displacement. `next` is the byte behind.
fn memory_bytes(form: u8, next: Option<u8>) -> usize {
    const SIB: u8 = 4;
    const NO_BASE: u8 = 5;
    let (mode, operand) = (form >> 6, form & 7);
    let base = if operand == SIB { next.unwrap_or(0) & 7 } else { operand };
    let sib_bytes = usize::from(mode != 3 && operand == SIB);
    sib_bytes
        + match mode {
            0 if base == NO_BASE => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        }
}
