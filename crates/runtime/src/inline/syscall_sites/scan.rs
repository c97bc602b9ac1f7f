//! Which bytes are `syscall` instructions, and which calls they make.
//!
//! A number is sure when it is moved into eax before the instruction and nothing jumps in between. Otherwise the calls are
//! *some of* the numbers that the function moves into the registers that reach eax: too many rather than too few, because
//! stopping a call too many costs time, and one too few costs data.

use super::SYSCALL;
use super::decode::{Load, NUMBERS, RAX, Source, Step, decoder, instruction_len, steps};
use super::elf::Image;
use super::jump::LOAD_BYTES;

/// Data that decodes as instructions holds a byte that does not within this distance: about one in thirty bytes begins none.
const GARBAGE_BYTES: usize = 256;

/// A function of so many bytes is decoded as quickly as the bytes before a candidate are looked at.
const SHORT_BYTES: usize = 512;

/// Numbers of system calls.
struct NumberSet([u64; NUMBERS as usize / 64]);

impl NumberSet {
    fn of(wanted: &dyn Fn(i64) -> bool) -> NumberSet {
        let word = |index: usize| {
            let first = i64::try_from(index * 64).unwrap_or(i64::MAX);
            (0..64).filter(|bit| wanted(first + bit)).fold(0, |word, bit| word | 1 << bit)
        };
        NumberSet(std::array::from_fn(word))
    }

    fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word & 1 << (number % 64) != 0)
    }
}

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
    let wanted = NumberSet::of(wanted);
    let mut sites = Vec::new();
    for text in &image.text {
        let mut done = text.start;
        for offset in finder.find_iter(image.bytes(text.clone())) {
            let candidate = text.start + offset;
            if candidate < done {
                continue;
            }
            let function = image.function_around(candidate);
            // The quick looks first: most functions make none of the wanted calls.
            if let Some(function) = &function
                && !may_load(image.bytes(function.clone()), &wanted)
            {
                done = function.end;
            } else if function.as_ref().is_none_or(|function| function.len() > SHORT_BYTES)
                && !may_be_instruction(image.bytes(text.start..candidate))
            {
                // A part of another instruction, or data.
            } else if let Some(function) = function {
                done = function.end;
                sites.extend(sites_in(image.bytes(function.clone()), function.start));
            } else {
                // Code without a description: by hand, and not to be judged.
                sites.push(Site { address: candidate, numbers: Numbers::Any, loaded_before: false, genuine: false });
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
    let decoder = decoder();
    let mut leads_there = [false; 2 * LONGEST_BYTES + 1];
    leads_there[last.len()] = true;
    for at in (0..last.len()).rev() {
        leads_there[at] = instruction_len(&decoder, &last[at..]).is_some_and(|len| leads_there[at + len]);
    }
    leads_there[..LONGEST_BYTES].contains(&true)
}

/// Whether a function's bytes hold anything like a wanted number. False positives are sorted out by decoding.
fn may_load(code: &[u8], wanted: &NumberSet) -> bool {
    // mov r32, imm32 is one byte (b8 to bf) and the number, or c7, c0 to c7 and the number; a register is cleared by xor.
    let is_load = |bytes: &[u8]| matches!(bytes, [0xb8..=0xc7, low, high, 0, 0] if wanted.contains(usize::from(u16::from_le_bytes([*low, *high]))));
    wanted.contains(0) || any_window(code, is_load)
}

/// Whether any five bytes of the code are what is looked for, which begins with 0xb8 to 0xc7 and ends in two zero bytes. Most places
/// are ruled out many at a time.
pub(super) fn any_window(code: &[u8], is_load: impl Fn(&[u8]) -> bool) -> bool {
    const PLACES: usize = 64;
    const BLOCK_BYTES: usize = PLACES + LOAD_BYTES - 1;
    let may_begin = |block: &[u8; BLOCK_BYTES]| {
        (0..PLACES).fold(0, |any, at| {
            any | u8::from(block[at].wrapping_sub(0xb8) < 0x10) & u8::from(block[at + 3] | block[at + 4] == 0)
        })
    };
    let mut rest = code;
    while let Some(block) = rest.first_chunk::<BLOCK_BYTES>() {
        if may_begin(block) != 0 && block.windows(LOAD_BYTES).any(&is_load) {
            return true;
        }
        rest = &rest[PLACES..];
    }
    rest.windows(LOAD_BYTES).any(is_load)
}

/// The genuine `syscall` instructions of one function.
pub(super) fn sites_in(code: &[u8], start: usize) -> Vec<Site> {
    let (mut calls, mut loads, mut targets, mut garbage) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (at, step) in steps(code, start) {
        match step {
            Step::Garbage => garbage.push(at),
            Step::Syscall => calls.push(at),
            Step::Branch(target) => targets.push(target),
            Step::Load(register, source) => loads.push(Load { at, register, source }),
            Step::Other => {}
        }
    }
    let site = |address: usize| Site {
        address,
        numbers: numbers_at(address, &loads, &targets),
        loaded_before: loads.iter().any(|load| load.at + LOAD_BYTES == address && load.is_short_constant()),
        genuine: loads.iter().any(|load| load.at < address && load.register == RAX)
            && !garbage.iter().any(|at: &usize| at.abs_diff(address) < GARBAGE_BYTES),
    };
    calls.into_iter().map(site).collect()
}

fn numbers_at(at: usize, loads: &[Load], targets: &[usize]) -> Numbers {
    let Some(last) = loads.iter().rev().find(|load| load.at < at && load.register == RAX) else {
        return Numbers::Any;
    };
    let joined = targets.iter().any(|target| last.at < *target && *target <= at);
    match last.source {
        Source::Number(number) if !joined => Numbers::One(number),
        Source::Number(_) => all_into(RAX, loads),
        Source::Register(from) => all_into(from, loads),
        Source::Other => Numbers::Any,
    }
}

/// Every number that the function moves into a register.
fn all_into(register: u8, loads: &[Load]) -> Numbers {
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
