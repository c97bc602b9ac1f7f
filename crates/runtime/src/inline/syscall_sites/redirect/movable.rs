//! Which instructions do the same at another address: those that move and compute with registers, constants and memory that is not named
//! relative to the instruction. Those that read flags find the same: the jump changes none.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 and appendix A.

/// The bytes of the instruction at the beginning of `code`, if it is one of those that compilers put before a system call and it does
/// the same anywhere; `None`: another one.
pub(super) fn len(code: &[u8]) -> Option<usize> {
    let rex = code.first().copied().filter(|byte| matches!(byte, 0x40..=0x4f));
    let at = usize::from(rex.is_some());
    let wide = rex.is_some_and(|rex| rex & 8 != 0);
    let rest = code.get(at + 1..)?;
    let len = match code[at..] {
        // push, pop. Not nop: what fills the space between functions must not move together with the first instruction behind it.
        [0x50..=0x5f, ..] => 0,
        // mov r, imm
        [0xb8..=0xbf, ..] => 4 + 4 * usize::from(wide),
        // cmov, set, imul, movzx, movsx
        [0x0f, 0x40..=0x4f | 0x90..=0x9f | 0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf, ..] => 1 + operands(rest.get(1..)?)?,
        // add, or, adc, sbb, and, sub, xor, cmp, test, mov, lea, movsxd
        [0x01 | 0x03 | 0x09 | 0x0b | 0x11 | 0x13 | 0x19 | 0x1b | 0x21 | 0x23, ..]
        | [0x29 | 0x2b | 0x31 | 0x33 | 0x39 | 0x3b | 0x63 | 0x85 | 0x89 | 0x8b | 0x8d, ..] => operands(rest)?,
        // imul with a constant, shifts
        [0x69, ..] => operands(rest)? + 4,
        [0x6b | 0xc1, ..] => operands(rest)? + 1,
        [0xd1 | 0xd3, ..] => operands(rest)?,
        // not, neg; inc, dec
        [0xf7, form, ..] if matches!(form & 0x38, 0x10 | 0x18) => operands(rest)?,
        [0xff, form, ..] if matches!(form & 0x38, 0 | 8) => operands(rest)?,
        // The same with a constant of one byte, or of four.
        [0x83, ..] => operands(rest)? + 1,
        [0x81, ..] => operands(rest)? + 4,
        [0xc7, form, ..] if form & 0x38 == 0 => operands(rest)? + 4,
        _ => return None,
    };
    Some(at + 1 + len).filter(|len| *len <= code.len())
}

/// The bytes of an instruction's operands; `None` where memory is named relative to the instruction.
fn operands(code: &[u8]) -> Option<usize> {
    let form = *code.first()?;
    let (mode, base) = (form >> 6, form & 7);
    let displacement = match mode {
        0 if base == 5 => return None,
        0 | 3 => 0,
        1 => 1,
        _ => 4,
    };
    if mode == 3 || base != 4 {
        return Some(1 + displacement);
    }
    // Base and index are named by one more byte; without a base there are four bytes of address.
    let absolute = mode == 0 && code.get(1)? & 7 == 5;
    Some(2 + displacement + 4 * usize::from(absolute))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    const NAMES: [&str; 29] = [
        "Push", "Pop", "Mov", "Movzx", "Movsx", "Movsxd", "Lea", "Add", "Adc", "Or", "And", "Sub", "Sbb", "Xor", "Cmp",
        "Test", "Imul", "Rol", "Ror", "Rcl", "Rcr", "Shl", "Shr", "Sal", "Sar", "Not", "Neg", "Inc", "Dec",
    ];

    #[test]
    fn lengths_are_those_of_a_decoder_and_nothing_relative_is_movable() {
        let mut random = hinterland_units::Rng(1);
        let (mut movable, mut seen) = (0, std::collections::BTreeSet::new());
        for _ in 0..400_000 {
            let mut code = random.next_u64().to_le_bytes().to_vec();
            code.extend(random.next_u64().to_le_bytes());
            let Some(found) = len(&code) else { continue };
            let one = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE).decode();
            if one.is_invalid() {
                continue; // No program has it: `lea` of a register, `movsxd` and others with forms that are none.
            }
            assert_eq!(found, one.len(), "{one:?}: {code:x?}");
            assert!(!one.is_ip_rel_memory_operand(), "{one:?}");
            movable += 1;
            let name = format!("{:?}", one.mnemonic());
            let by_flags = name.starts_with("Cmov") || name.starts_with("Set");
            assert!(by_flags || NAMES.contains(&name.as_str()), "{name}");
            seen.insert(name);
        }
        assert!(movable > 10_000 && seen.len() >= 50, "{movable} of {seen:?}");
        for other in
            [&[0x0f, 0x05][..], &[0xe8, 0, 0, 0, 0], &[0xc3], &[0xeb, 1], &[0x48, 0x8b, 0x05, 1, 0, 0, 0], &[0xcc]]
        {
            assert_eq!(len(other), None, "{other:x?}");
        }
    }
}
