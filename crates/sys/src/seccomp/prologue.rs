//! A filter of the program's with a prologue of ours before it: the calls that the library lives on are allowed from our own
//! instructions, with checked arguments, and everything else goes on to the program's instructions as they are.
//!
//! ```text
//! number listed? ─► x86-64? ─► from `INSIDE`, `OWN` or `RESTORER` of the trampoline? ─► arguments as listed? ─► allow
//!      │ no             │ no                │ no                                             │ no
//!      └────────────────┴───────────────────┴───────────── accumulator = 0 ◄─────────────────┘
//!                                                          the program's instructions
//! ```
//!
//! Among several filters the strictest answer wins, so a filter of ours beside the program's could allow nothing. Jumps of BPF are
//! relative and go forwards, so what is put before a program leaves it valid. It begins as it would alone: the kernel starts every
//! program with accumulator and index register zero (`bpf_convert_filter` in net/core/filter.c) and refuses one that reads scratch memory
//! which it has not written (`check_load_and_stores`); the prologue uses the accumulator only.
//!
//! Numbers that are not listed are decided by instructions for which the kernel keeps its bitmap of calls that are always allowed
//! (`seccomp_is_const_allow`: loads of number and architecture, comparisons, AND).

use super::assemble::{AND, Assembler, IF_AT_LEAST, IF_EQUAL, Label, X86_64, halves};
use crate::trampoline;
use std::mem::offset_of;

/// Instructions that the kernel takes in one program (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// A half of an argument, and what it may be.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Two for each argument: the lower half, then the upper.
    pub half: u8,
    /// The bits that are looked at.
    pub bits: u32,
    /// What they may be.
    pub values: Vec<u32>,
}

/// A call that is allowed when all conditions hold.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its number.
    pub number: u32,
    /// What is asked of its arguments.
    pub conditions: Vec<Condition>,
}

/// Puts the prologue for `listed` before a program.
pub fn compose(listed: &[Listed], program: &[libc::sock_filter]) -> Vec<libc::sock_filter> {
    let (mut assembler, _) = Assembler::before(program);
    // An AND, because the kernel's bitmap knows no load of a constant.
    let program = assembler.emit(AND, 0, 0, 0);
    let allow = assembler.answer(libc::SECCOMP_RET_ALLOW);
    let mut numbers: Vec<u32> = listed.iter().map(|call| call.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let checks: Vec<(u32, Label)> = numbers
        .iter()
        .map(|number| {
            let mut place = program;
            for call in listed.iter().filter(|call| call.number == *number).rev() {
                place = conditions(&mut assembler, &call.conditions, allow, place);
            }
            (*number, place)
        })
        .collect();
    tree(&mut assembler, &runs(&checks, program));
    let by_number = assembler.load(offset_of!(libc::seccomp_data, nr));
    let from = from_ours(&mut assembler, by_number, program);
    assembler.branch(IF_EQUAL, X86_64, from, program);
    let ours = assembler.load(offset_of!(libc::seccomp_data, arch));
    let candidates: Vec<(u32, Label)> = numbers.iter().map(|number| (*number, ours)).collect();
    tree(&mut assembler, &runs(&candidates, program));
    let start = assembler.load(offset_of!(libc::seccomp_data, nr));
    assembler.finish(start)
}

/// `yes` if all conditions hold, else `no`.
fn conditions(assembler: &mut Assembler, conditions: &[Condition], yes: Label, no: Label) -> Label {
    let mut place = yes;
    for condition in conditions.iter().rev() {
        let mut next = no;
        for value in condition.values.iter().rev() {
            next = assembler.branch(IF_EQUAL, *value, place, next);
        }
        if condition.bits != u32::MAX {
            assembler.emit(AND, 0, 0, condition.bits);
        }
        place = assembler.load(offset_of!(libc::seccomp_data, args) + usize::from(condition.half) * size_of::<u32>());
    }
    place
}

/// `yes` if the call comes from one of the trampoline's instructions that only the library uses.
fn from_ours(assembler: &mut Assembler, yes: Label, no: Label) -> Label {
    let offset = offset_of!(libc::seccomp_data, instruction_pointer);
    let (upper, _) = halves(trampoline::ADDRESS);
    let mut next = no;
    for address in
        [trampoline::RESTORER_RETURN_ADDRESS, trampoline::INSIDE_RETURN_ADDRESS, trampoline::OWN_RETURN_ADDRESS]
    {
        next = assembler.branch(IF_EQUAL, halves(address).1, yes, next);
    }
    let lower = assembler.load(offset);
    assembler.branch(IF_EQUAL, upper, lower, no);
    assembler.load(offset + size_of::<u32>())
}

/// Single numbers as runs over all numbers.
fn runs(numbers: &[(u32, Label)], otherwise: Label) -> Vec<(u32, Label)> {
    let mut runs = vec![(0, otherwise)];
    for (number, place) in numbers.iter().copied() {
        if runs.last().is_some_and(|(first, _)| *first == number) {
            runs.pop();
        }
        if runs.last().is_none_or(|(_, last)| *last != place) {
            runs.push((number, place));
        }
        runs.push((number + 1, otherwise));
    }
    // A run that its follower continues, or that has no number, is none.
    let mut merged: Vec<(u32, Label)> = Vec::with_capacity(runs.len());
    for (first, place) in runs {
        if merged.last().is_none_or(|(_, last)| *last != place) {
            merged.push((first, place));
        }
    }
    merged
}

/// A binary tree over runs; the number is in the accumulator.
fn tree(assembler: &mut Assembler, runs: &[(u32, Label)]) -> Label {
    if let [(_, place)] = runs {
        return *place;
    }
    let (below, above) = runs.split_at(runs.len() / 2);
    let first = above[0].0;
    let above = tree(assembler, above);
    let below = tree(assembler, below);
    assembler.branch(IF_AT_LEAST, first, above, below)
}
