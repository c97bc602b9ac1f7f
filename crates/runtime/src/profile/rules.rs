//! How a frame is left: what `.eh_frame` says of it, as far as three registers tell.
//!
//! Instruction, stack and frame pointer are all that is followed. A frame that is found by another register (some that align their stack)
//! ends the walk. Sources: the x86-64 ABI, DWARF 5 §6.4; that three registers are enough in practice is what the profilers samply and perf
//! rely on.

use super::modules;
use crate::loaded_file::LoadedFile;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Pointer, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindSection, UnwindTableRow, X86_64,
};

/// A register that a frame's beginning is counted from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// The stack pointer.
    Stack,
    /// The frame pointer.
    Frame,
}

/// How a frame is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// It cannot be, or it is the outermost.
    End,
    /// The caller's frame begins (its stack pointer is) `cfa` above the base; the return address lies below. The caller's frame pointer
    /// is saved at an offset from there, or is still in its register.
    Step {
        /// What `cfa` is counted from.
        base: Base,
        /// Bytes.
        cfa: i32,
        /// Offset of the saved frame pointer.
        saved_frame: Option<i16>,
    },
}

impl Rule {
    /// In one word, which is not 0: tag, base, whether the frame pointer is saved; from bit 16, `cfa`; from bit 48, where it is saved.
    fn to_bits(self) -> u64 {
        let Rule::Step { base, cfa, saved_frame } = self else { return 1 };
        let saved = saved_frame.map_or(0, |offset| 1 << 3 | u64::from(offset.cast_unsigned()) << 48);
        2 | u64::from(base == Base::Frame) << 2 | u64::from(cfa.cast_unsigned()) << 16 | saved
    }

    fn from_bits(bits: u64) -> Rule {
        if bits & 3 != 2 {
            return Rule::End;
        }
        let base = if bits >> 2 & 1 == 1 { Base::Frame } else { Base::Stack };
        #[allow(clippy::cast_possible_truncation, reason = "the fields are taken out of the word")]
        let (cfa, offset) = ((bits >> 16) as u32, (bits >> 48) as u16);
        let saved_frame = (bits >> 3 & 1 == 1).then_some(offset.cast_signed());
        Rule::Step { base, cfa: cfa.cast_signed(), saved_frame }
    }
}

/// How the frame of the code at an address is left.
pub fn rule_of(address: usize) -> Rule {
    let bits = modules::kept(address, 1, || {
        let found = LoadedFile::of(address).and_then(|file| find(&file, address as u64).ok().flatten());
        found.unwrap_or(Rule::End).to_bits()
    });
    Rule::from_bits(bits)
}

/// Rows of an unwinding table, without the heap: x86-64 has 17 registers to save.
struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, OnStack>; 4];
}

fn find(file: &LoadedFile, address: u64) -> gimli::Result<Option<Rule>> {
    let section = |start: usize| {
        let len = file.end.saturating_sub(start);
        // SAFETY: the loader says that the section lies there, in the file's mapping; what is read of it are its entries, which are loaded
        // and stay while the file's code runs.
        unsafe { std::slice::from_raw_parts(start as *const u8, len) }
    };
    if file.eh_frame_hdr == 0 {
        return Ok(None);
    }
    let bases = BaseAddresses::default().set_eh_frame_hdr(file.eh_frame_hdr as u64);
    let header = EhFrameHdr::new(section(file.eh_frame_hdr), NativeEndian).parse(&bases, 8)?;
    let Pointer::Direct(start) = header.eh_frame_ptr() else { return Ok(None) };
    let bases = bases.set_eh_frame(start);
    let frames = EhFrame::new(section(usize::try_from(start).unwrap_or(0)), NativeEndian);
    let Some(table) = header.table() else { return Ok(None) };
    let entry = table.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset)?;
    let mut context = UnwindContext::<usize, OnStack>::new_in();
    let row = entry.unwind_info_for_address(&frames, &bases, &mut context, address)?;
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return Ok(None) };
    let base = match *register {
        X86_64::RSP => Base::Stack,
        X86_64::RBP => Base::Frame,
        _ => return Ok(None),
    };
    // The outermost frame says that it has no return address.
    if row.register(X86_64::RA) != Some(RegisterRule::Offset(-8)) {
        return Ok(None);
    }
    let saved_frame = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(offset)) => match i16::try_from(offset) {
            Ok(offset) => Some(offset),
            Err(_) => return Ok(None),
        },
        Some(_) => return Ok(None),
    };
    Ok(i32::try_from(*offset).ok().map(|cfa| Rule::Step { base, cfa, saved_frame }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_goes_through_a_word_unchanged() {
        for base in [Base::Stack, Base::Frame] {
            for cfa in [8, 16, 4096, -8, i32::MAX] {
                for saved_frame in [None, Some(-16), Some(i16::MIN), Some(0)] {
                    let rule = Rule::Step { base, cfa, saved_frame };
                    assert_eq!(Rule::from_bits(rule.to_bits()), rule);
                }
            }
        }
        assert_eq!(Rule::from_bits(Rule::End.to_bits()), Rule::End);
    }

    #[test]
    fn a_function_begins_with_its_return_address_on_top() {
        modules::begin().unwrap();
        let begins = Rule::Step { base: Base::Stack, cfa: 8, saved_frame: None };
        assert_eq!(rule_of(libc::qsort as *const () as usize), begins);
        assert_eq!(rule_of(rule_of as *const () as usize), begins);
        assert_eq!(rule_of(1), Rule::End, "no code");
    }
}
