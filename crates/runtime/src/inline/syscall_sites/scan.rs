//! Which bytes are `syscall` instructions, and which calls they make.
//!
//! A number is sure when it is moved into eax before the instruction and nothing jumps in between. Otherwise the calls are
//! *some of* the numbers that the function moves into the registers that reach eax: too many rather than too few, because
//! stopping a call too many costs time, and one too few costs data.

use super::elf::Image;
use super::jump::LOAD_BYTES;
use super::{SITE_BYTES, SYSCALL};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// System-call numbers are below this.
const NUMBERS: u64 = 1024;

/// Data that decodes as instructions holds a byte that does not within this distance: about one in thirty bytes begins none.
const GARBAGE_BYTES: usize = 256;

/// The calls that an instruction makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Numbers {
    /// This one.
    One(i64),
    /// Some of these.
    Some(Vec<i64>),
    /// Any: the number comes from memory or from the caller.
    Any,
}

impl Numbers {
    /// Whether the instruction may make a wanted call. `Any` is wanted by nobody: such code is `syscall` itself and what
    /// repeats a call for every thread.
    pub fn may_be(&self, wanted: &dyn Fn(i64) -> bool) -> bool {
        match self {
            Numbers::One(number) => wanted(*number),
            Numbers::Some(numbers) => numbers.iter().any(|number| wanted(*number)),
            Numbers::Any => false,
        }
    }
}

/// A `syscall` instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Site {
    pub address: usize,
    pub numbers: Numbers,
    /// The instruction right before it loads the number, in five bytes.
    pub loaded_before: bool,
    /// It is not data among the code: everything around it decodes, and before it the number's register gets a content.
    pub genuine: bool,
}

/// The genuine `syscall` instructions of an object's text. Functions that cannot make a `wanted` call are left out.
pub(super) fn sites_of(image: &Image, wanted: &dyn Fn(i64) -> bool) -> Vec<Site> {
    let finder = memchr::memmem::Finder::new(&SYSCALL);
    let mut sites = Vec::new();
    for text in &image.text {
        let mut done = text.start;
        for offset in finder.find_iter(image.bytes(text.clone())) {
            let candidate = text.start + offset;
            if candidate < done || !may_be_instruction(image.bytes(text.start..candidate)) {
                continue;
            }
            let Some(function) = image.function_around(candidate) else {
                // Code without a description: by hand, and not to be judged.
                sites.push(Site { address: candidate, numbers: Numbers::Any, loaded_before: false, genuine: false });
                continue;
            };
            done = function.end;
            if may_load(image.bytes(function.clone()), wanted) {
                sites.extend(sites_in(image.bytes(function.clone()), function.start));
            }
        }
    }
    sites
}

/// Whether an instruction may begin behind these bytes: quicker than to decode the whole function, and never wrong with a no.
///
/// Among fifteen successive bytes one begins a genuine instruction, because none is longer; from there on all are genuine. So
/// there is none behind the bytes if no way from the first fifteen of the last thirty leads there.
fn may_be_instruction(before: &[u8]) -> bool {
    const LONGEST_BYTES: usize = 15;
    let Some(last) = before.last_chunk::<{ 2 * LONGEST_BYTES }>() else { return true };
    let mut decoder = Decoder::with_ip(64, last, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut leads_there = [false; 2 * LONGEST_BYTES + 1];
    leads_there[last.len()] = true;
    for at in (0..last.len()).rev() {
        if decoder.set_position(at).is_err() {
            return true;
        }
        decoder.decode_out(&mut instruction);
        leads_there[at] = !instruction.is_invalid() && leads_there[decoder.position()];
    }
    leads_there[..LONGEST_BYTES].contains(&true)
}

/// Whether a function's bytes hold anything like a wanted number. False positives are sorted out by decoding.
fn may_load(code: &[u8], wanted: &dyn Fn(i64) -> bool) -> bool {
    // mov r32, imm32 is one byte (b8 to bf) and the number, or c7, c0 to c7 and the number; a register is cleared by xor.
    wanted(0)
        || code.windows(5).any(|bytes| {
            let number = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            matches!(bytes[0], 0xb8..=0xc7) && u64::from(number) < NUMBERS && wanted(number.into())
        })
}

/// Where the content of a register comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A constant that may be a number.
    Number(i64),
    /// Another register.
    Register(Register),
    /// Anything else.
    Other,
}

/// A register gets a content: any register a number, or rax anything.
struct Load {
    at: usize,
    register: Register,
    source: Source,
}

impl Load {
    /// A constant for eax in the shortest way.
    fn is_short_constant(&self) -> bool {
        self.register == Register::RAX && self.number().is_some_and(|number| number != 0)
    }

    fn number(&self) -> Option<i64> {
        if let Source::Number(number) = self.source { Some(number) } else { None }
    }
}

/// The genuine `syscall` instructions of one function.
pub(super) fn sites_in(code: &[u8], start: usize) -> Vec<Site> {
    let mut decoder = Decoder::with_ip(64, code, start as u64, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut calls, mut loads, mut targets, mut garbage) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let at = usize::try_from(instruction.ip()).unwrap_or(0);
        if instruction.is_invalid() {
            garbage.push(at);
            continue;
        }
        if instruction.code() == Code::Syscall && instruction.len() == SITE_BYTES {
            calls.push(at);
        }
        match instruction.op0_kind() {
            OpKind::NearBranch64 => targets.push(usize::try_from(instruction.near_branch_target()).unwrap_or(0)),
            OpKind::Register => loads.extend(load_of(&instruction, at)),
            _ => {}
        }
    }
    let site = |address: usize| Site {
        address,
        numbers: numbers_at(address, &loads, &targets),
        loaded_before: loads.iter().any(|load| load.at + LOAD_BYTES == address && load.is_short_constant()),
        genuine: loads.iter().any(|load| load.at < address && load.register == Register::RAX)
            && !garbage.iter().any(|at| at.abs_diff(address) < GARBAGE_BYTES),
    };
    calls.into_iter().map(site).collect()
}

/// What an instruction does to the register that is its first operand.
fn load_of(instruction: &Instruction, at: usize) -> Option<Load> {
    let register = full(instruction.op0_register());
    let source = match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32 | Code::Mov_rm32_imm32 => {
            let number = Some(instruction.immediate(1)).filter(|number| *number < NUMBERS);
            number.and_then(|number| i64::try_from(number).ok()).map_or(Source::Other, Source::Number)
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 if instruction.op0_register() == instruction.op1_register() => {
            Source::Number(0)
        }
        Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64
            if instruction.op1_kind() == OpKind::Register =>
        {
            Source::Register(full(instruction.op1_register()))
        }
        _ => Source::Other,
    };
    // These only look at their first operand.
    let reads = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt);
    let matters = matches!(source, Source::Number(_)) || register == Register::RAX && !reads;
    matters.then_some(Load { at, register, source })
}

/// The whole of a register of which this is a part, as far as numbers are moved through it.
fn full(register: Register) -> Register {
    match register {
        Register::AL | Register::AH | Register::AX => Register::RAX,
        part if (Register::EAX..=Register::R15D).contains(&part) => {
            Register::RAX + (part as u32 - Register::EAX as u32)
        }
        other => other,
    }
}

fn numbers_at(at: usize, loads: &[Load], targets: &[usize]) -> Numbers {
    let Some(last) = loads.iter().rev().find(|load| load.at < at && load.register == Register::RAX) else {
        return Numbers::Any;
    };
    let joined = targets.iter().any(|target| last.at < *target && *target <= at);
    match last.source {
        Source::Number(number) if !joined => Numbers::One(number),
        Source::Number(_) => all_into(Register::RAX, loads),
        Source::Register(from) => all_into(from, loads),
        Source::Other => Numbers::Any,
    }
}

/// Every number that the function moves into a register.
fn all_into(register: Register, loads: &[Load]) -> Numbers {
    let mut numbers: Vec<i64> =
        loads.iter().filter(|load| load.register == register).filter_map(|load| load.number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    match numbers[..] {
        [] => Numbers::Any,
        [one] => Numbers::One(one),
        _ => Numbers::Some(numbers),
    }
}
