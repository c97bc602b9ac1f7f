//! The filter's program, in classic BPF: a binary tree on the call's number, then a look at the arguments that are pointers.
//!
//! ```text
//! other architecture ─► allow
//! number ─► tree ─► no pointers            ─► allow
//!                   pointers 1, 3 of 6     ─► upper half of each in the far range? ─► from the trampoline? ─► allow, else trap
//!                   refused                ─► from the trampoline? ─► allow, else the error
//! ```
//!
//! Calls without pointers are decided by architecture and number alone, so the kernel answers them from its bitmap without
//! running the program (Linux 5.11, `seccomp_cache_prepare`).
//!
//! Programs are assembled from their end to their start: jumps of BPF go forwards only, so a jump's targets are known when it
//! is emitted.

use super::{Codes, Rule, probe};
use crate::trampoline;
use std::mem::offset_of;
use std::ops::Range;

pub(super) const LOAD: u16 = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
pub(super) const AND: u16 = code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K);
const SUBTRACT: u16 = code(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K);
const JUMP: u16 = code(libc::BPF_JMP | libc::BPF_JA);
pub(super) const IF_EQUAL: u16 = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
pub(super) const IF_AT_LEAST: u16 = code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K);
const RETURN: u16 = code(libc::BPF_RET | libc::BPF_K);

#[allow(clippy::cast_possible_truncation, reason = "codes have 16 bits")]
const fn code(parts: u32) -> u16 {
    parts as u16
}

/// `AUDIT_ARCH_X86_64` of linux/audit.h: 64-bit, little-endian, `EM_X86_64`.
pub const X86_64: u32 = 0xc000_003e;

/// Upper and lower half of a 64-bit number.
pub fn halves(value: usize) -> (u32, u32) {
    let value = value as u64;
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
    ((value >> 32) as u32, value as u32)
}

/// A place in the program, counted from its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program being assembled, last instruction first.
pub(super) struct Assembler {
    reversed: Vec<libc::sock_filter>,
}

impl Assembler {
    /// A program whose end is there already.
    pub(super) fn before(end: &[libc::sock_filter]) -> (Assembler, Label) {
        (Assembler { reversed: end.iter().rev().copied().collect() }, Label(end.len()))
    }

    /// The program from its start, which is `from`.
    pub(super) fn finish(mut self, from: Label) -> Vec<libc::sock_filter> {
        if self.distance(from) != 0 {
            self.jump(from);
        }
        self.reversed.reverse();
        self.reversed
    }

    pub(super) fn emit(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Label {
        self.reversed.push(libc::sock_filter { code, jt, jf, k });
        Label(self.reversed.len())
    }

    /// Instructions between the next one to be emitted and `to`.
    fn distance(&self, to: Label) -> usize {
        self.reversed.len() - to.0
    }

    /// A conditional jump. Its reach is 255 instructions; an unconditional one behind it goes further.
    pub(super) fn branch(&mut self, condition: u16, operand: u32, yes: Label, no: Label) -> Label {
        // One more than now, because an intermediate jump for `yes` comes in between.
        let no = if self.distance(no) >= 255 { self.jump(no) } else { no };
        let yes = if self.distance(yes) > 255 { self.jump(yes) } else { yes };
        let reach = |to| u8::try_from(self.distance(to)).expect("an intermediate jump is near");
        let (jt, jf) = (reach(yes), reach(no));
        self.emit(condition, jt, jf, operand)
    }

    fn jump(&mut self, to: Label) -> Label {
        let distance = u32::try_from(self.distance(to)).expect("a program has at most 4096 instructions");
        self.emit(JUMP, 0, 0, distance)
    }

    pub(super) fn load(&mut self, offset: usize) -> Label {
        self.emit(LOAD, 0, 0, u32::try_from(offset).expect("seccomp_data has 64 bytes"))
    }

    pub(super) fn answer(&mut self, action: u32) -> Label {
        self.emit(RETURN, 0, 0, action)
    }

    /// Compares a 64-bit field of `seccomp_data` at `offset` with a constant.
    fn if_field_is(&mut self, offset: usize, value: usize, yes: Label, no: Label) -> Label {
        let (upper, lower) = halves(value);
        self.branch(IF_EQUAL, lower, yes, no);
        let lower_too = self.load(offset);
        self.branch(IF_EQUAL, upper, lower_too, no);
        self.load(offset + 4)
    }
}

/// Where argument `index` lies in `seccomp_data`.
fn argument(index: usize) -> usize {
    offset_of!(libc::seccomp_data, args) + index * size_of::<u64>()
}

/// What the parts of the filter share.
struct Build<'a> {
    assembler: Assembler,
    allow: Label,
    /// The end of a call with a far pointer.
    far: Label,
    far_range: &'a Range<usize>,
    /// The error that answers the probe.
    stamp: u16,
    /// Parts made so far.
    parts: Vec<(Rule, Label)>,
}

impl Build<'_> {
    /// `otherwise`, unless the call comes from one of the trampoline's two instructions that are not looked at.
    fn unless_exempt(&mut self, otherwise: Label) -> Label {
        let offset = offset_of!(libc::seccomp_data, instruction_pointer);
        let (upper, _) = halves(trampoline::RETURN_ADDRESS);
        let (_, both) = halves(trampoline::RETURN_ADDRESS & trampoline::INSIDE_RETURN_ADDRESS);
        let (_, different) = halves(trampoline::RETURN_ADDRESS ^ trampoline::INSIDE_RETURN_ADDRESS);
        self.assembler.branch(IF_EQUAL, both, self.allow, otherwise);
        self.assembler.emit(AND, 0, 0, !different);
        let lower = self.assembler.load(offset);
        self.assembler.branch(IF_EQUAL, upper, lower, otherwise);
        self.assembler.load(offset + 4)
    }

    /// The part that decides by `rule`.
    fn part(&mut self, rule: Rule) -> Label {
        if let Some((_, place)) = self.parts.iter().find(|(known, _)| *known == rule) {
            return *place;
        }
        let place = match rule {
            Rule::Allow => self.allow,
            Rule::Refuse(errno) => {
                let refusal = self.assembler.answer(libc::SECCOMP_RET_ERRNO | u32::from(errno));
                self.unless_exempt(refusal)
            }
            Rule::Pointers(mask) => self.pointers(mask, self.allow),
            Rule::ByCode(codes) => self.by_code(codes),
        };
        self.parts.push((rule, place));
        place
    }

    /// Looks at the upper halves of the arguments in `mask`, then goes on at `none`.
    fn pointers(&mut self, mask: u8, none: Label) -> Label {
        let (first, _) = halves(self.far_range.start);
        let (size, _) = halves(self.far_range.len());
        let mut next = none;
        for index in (0..6).rev().filter(|index| mask & 1 << index != 0) {
            self.assembler.branch(IF_AT_LEAST, size, next, self.far);
            self.assembler.emit(SUBTRACT, 0, 0, first);
            next = self.assembler.load(argument(index) + 4);
        }
        next
    }

    /// Looks at the code first.
    fn by_code(&mut self, codes: &Codes) -> Label {
        let mut next = self.part(Rule::Pointers(codes.otherwise));
        for (code, mask) in codes.pointers.iter().rev() {
            let pointers = self.part(Rule::Pointers(*mask));
            next = self.assembler.branch(IF_EQUAL, *code, pointers, next);
        }
        let (refused, errno) = codes.refused;
        for code in refused {
            let refusal = self.part(Rule::Refuse(errno));
            next = self.assembler.branch(IF_EQUAL, *code, refusal, next);
        }
        self.assembler.emit(AND, 0, 0, codes.bits);
        self.assembler.load(argument(codes.argument.into()))
    }

    /// fcntl(2): the probe's arguments get the stamp, all others the usual look.
    fn with_probe(&mut self, usual: Label) -> Label {
        let stamped = self.assembler.answer(libc::SECCOMP_RET_ERRNO | u32::from(self.stamp));
        let third = self.assembler.if_field_is(argument(2), probe::MARK, stamped, usual);
        let (_, lower) = halves(probe::NO_DESCRIPTOR);
        self.assembler.branch(IF_EQUAL, lower, third, usual);
        self.assembler.load(argument(0))
    }

    /// The tree over runs of numbers with one place each; the first run starts at 0.
    fn tree(&mut self, runs: &[(u32, Label)]) -> Label {
        let [left @ .., _] = runs else { return self.allow };
        if left.is_empty() {
            return runs[0].1;
        }
        let middle = runs.len() / 2;
        let above = self.tree(&runs[middle..]);
        let below = self.tree(&runs[..middle]);
        self.assembler.branch(IF_AT_LEAST, runs[middle].0, above, below)
    }
}

/// The whole program.
pub fn program(rules: &[(u32, Rule)], far_range: &Range<usize>, stamp: u16) -> Vec<libc::sock_filter> {
    let mut assembler = Assembler { reversed: Vec::new() };
    let allow = assembler.answer(libc::SECCOMP_RET_ALLOW);
    let trap = assembler.answer(libc::SECCOMP_RET_TRAP | u32::from(super::TRAP_MARK));
    let mut build = Build { assembler, allow, far: trap, far_range, stamp, parts: Vec::new() };
    build.far = build.unless_exempt(trap);
    let mut runs: Vec<(u32, Label)> = Vec::new();
    for (first, rule) in super::runs(rules) {
        let mut place = build.part(rule);
        if first == probe::NUMBER {
            place = build.with_probe(place);
        }
        if runs.last().is_none_or(|(_, last)| *last != place) {
            runs.push((first, place));
        }
    }
    let tree = build.tree(&runs);
    // The lowest numbers are those of read and write, which nothing shall be quicker than.
    let tree = match runs[..] {
        [(_, lowest), (next, _), ..] => build.assembler.branch(IF_AT_LEAST, next, tree, lowest),
        _ => tree,
    };
    let assembler = &mut build.assembler;
    // The tree's root is the instruction that was emitted last, unless there is but one run.
    if assembler.distance(tree) != 0 {
        assembler.jump(tree);
    }
    assembler.load(offset_of!(libc::seccomp_data, nr));
    let by_number = Label(assembler.reversed.len());
    assembler.branch(IF_EQUAL, X86_64, by_number, allow);
    assembler.load(offset_of!(libc::seccomp_data, arch));
    build.assembler.reversed.reverse();
    build.assembler.reversed
}
