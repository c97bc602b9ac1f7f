//! What the instructions of a function do, as far as numbers of system calls are concerned.
//!
//! The decoder is one without tables of its own to build: it runs in the start of every process.

mod vector;

use super::SITE_BYTES;
use yaxpeax_arch::{Decoder, LengthedInstruction, U8Reader};
use yaxpeax_x86::amd64::{InstDecoder, Instruction, Opcode, Operand};
use yaxpeax_x86::long_mode::register_class;

/// System-call numbers are below this.
pub(super) const NUMBERS: u32 = 1024;
/// The number of rax among the general registers.
pub(super) const RAX: u8 = 0;

/// Where the content of a register comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// A constant that may be a system call's number.
    Number(i64),
    /// Another register.
    Register(u8),
    /// Anything else.
    Other,
}

/// A register gets a content: any register a number, or rax anything.
pub(super) struct Load {
    pub at: usize,
    pub register: u8,
    pub source: Source,
}

impl Load {
    /// A constant for eax in the shortest way.
    pub fn is_short_constant(&self) -> bool {
        self.register == RAX && self.number().is_some_and(|number| number != 0)
    }

    pub fn number(&self) -> Option<i64> {
        if let Source::Number(number) = self.source { Some(number) } else { None }
    }
}

/// What an instruction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It is none.
    Garbage,
    Syscall,
    /// It may go on at this address.
    Branch(usize),
    /// A register gets a content.
    Load(u8, Source),
    Other,
}

pub(super) fn decoder() -> InstDecoder {
    InstDecoder::default()
}

/// The length of the instruction at the beginning of `code`; `None`: none begins there.
pub(super) fn instruction_len(decoder: &InstDecoder, code: &[u8]) -> Option<usize> {
    let mut instruction = Instruction::default();
    decode(decoder, code, &mut instruction).or_else(|| vector::instruction(code).map(|(len, _)| len))
}

fn decode(decoder: &InstDecoder, code: &[u8], into: &mut Instruction) -> Option<usize> {
    decoder.decode_into(into, &mut U8Reader::new(code)).ok()?;
    usize::try_from(into.len().to_const()).ok()
}

/// The instructions of a function from its first byte on, with their addresses. After a byte that begins none, the next one is
/// tried.
pub(super) fn steps(code: &[u8], start: usize) -> impl Iterator<Item = (usize, Step)> {
    let (decoder, mut instruction, mut position) = (decoder(), Instruction::default(), 0);
    std::iter::from_fn(move || {
        let rest = code.get(position..).filter(|rest| !rest.is_empty())?;
        let at = start + position;
        let (len, step) = match decode(&decoder, rest, &mut instruction) {
            Some(len) => (len, step_of(&instruction, len, at + len)),
            None => vector::instruction(rest).unwrap_or((1, Step::Garbage)),
        };
        position += len;
        Some((at, step))
    })
}

/// What an instruction of `len` bytes does, whose successor is at `next`.
fn step_of(instruction: &Instruction, len: usize, next: usize) -> Step {
    let opcode = instruction.opcode();
    if opcode == Opcode::SYSCALL && len == SITE_BYTES {
        return Step::Syscall;
    }
    if !instruction.operand_present(0) {
        return Step::Other;
    }
    let first = instruction.operand(0);
    match constant(&first) {
        Some(distance) if is_near_branch(opcode) => {
            isize::try_from(distance).map_or(Step::Other, |distance| Step::Branch(next.wrapping_add_signed(distance)))
        }
        _ => load_of(instruction, &first).unwrap_or(Step::Other),
    }
}

fn is_near_branch(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(
        opcode,
        JO | JNO
            | JB
            | JNB
            | JZ
            | JNZ
            | JA
            | JNA
            | JS
            | JNS
            | JP
            | JNP
            | JL
            | JGE
            | JLE
            | JG
            | JMP
            | CALL
            | LOOP
            | LOOPZ
            | LOOPNZ
            | JRCXZ
            | JECXZ
            | XBEGIN
    )
}

/// What an instruction does to the register that is its first operand.
fn load_of(instruction: &Instruction, first: &Operand) -> Option<Step> {
    let (register, bits) = general(first)?;
    let second = || instruction.operand(1);
    let source = match instruction.opcode() {
        Opcode::MOV if bits >= 32 => match second() {
            moved if constant(&moved).is_some() => constant(&moved)
                .filter(|number| (0..i64::from(NUMBERS)).contains(number))
                .map_or(Source::Other, Source::Number),
            moved => general(&moved).map_or(Source::Other, |(from, _)| Source::Register(from)),
        },
        Opcode::XOR if bits == 32 && second() == *first => Source::Number(0),
        _ => Source::Other,
    };
    // These only look at their first operand.
    let reads = matches!(instruction.opcode(), Opcode::CMP | Opcode::TEST | Opcode::PUSH | Opcode::BT);
    let matters = matches!(source, Source::Number(_)) || register == RAX && !reads;
    matters.then_some(Step::Load(register, source))
}

/// A general register and its bits. Of the parts of registers, those of rax alone: numbers are not moved through others.
fn general(operand: &Operand) -> Option<(u8, u8)> {
    const AH: u8 = 4;
    let Operand::Register { reg } = *operand else { return None };
    match (reg.class(), reg.num()) {
        (register_class::Q, number) => Some((number, 64)),
        (register_class::D, number) => Some((number, 32)),
        (register_class::W, RAX) => Some((RAX, 16)),
        (register_class::B, RAX | AH) | (register_class::RB, RAX) => Some((RAX, 8)),
        _ => None,
    }
}

fn constant(operand: &Operand) -> Option<i64> {
    match *operand {
        Operand::ImmediateI8 { imm } => Some(imm.into()),
        Operand::ImmediateU8 { imm } => Some(imm.into()),
        Operand::ImmediateI16 { imm } => Some(imm.into()),
        Operand::ImmediateU16 { imm } => Some(imm.into()),
        Operand::ImmediateI32 { imm } => Some(imm.into()),
        Operand::ImmediateU32 { imm } => Some(imm.into()),
        Operand::ImmediateI64 { imm } => Some(imm),
        Operand::ImmediateU64 { imm } => i64::try_from(imm).ok(),
        _ => None,
    }
}
