//! Memory calls that objects other than libc make by the instruction itself, on the monitor path: each becomes a jump to code of ours.
//!
//! ```text
//! before:  mov rsi, rcx; mov rdi, rbx; syscall     at least five bytes that may run anywhere, then the instruction
//! site:    jmp stub; nop;              syscall     the instruction stays, or goes, too, where there are but three bytes before it
//! stub:    the bytes that stood there; a memory call on a far address? `entry`, else `syscall`; back behind the instruction
//! ```
//! On this path nothing else would see such a call: a page that it drops while evicted would come back with its old content. The
//! inline path has its filter for that. Here a filter has no good answer: a trap kills where SIGSYS is blocked, and Go blocks it;
//! one that asks a thread takes the listener that a program may have, and dies with the process that made it (decision 0048).
//!
//! What cannot be changed that way is a reason not to start. Objects that are loaded later are not looked at.

mod movable;
mod stub;

pub(crate) use stub::begin_child;

use super::decode::{Step, instruction_len, steps};
use super::edit::{self, Edit};
use super::elf::{self, Image, Kind};
use super::jump::LOAD_BYTES;
use super::scan::{Numbers, Site, sites_in};
use super::{SITE_BYTES, SYSCALL, SitesError};
use crate::mapping::MEMORY_CALL_NUMBERS;
use std::ops::Range;

/// A longer function is a part of an object whose functions are not described: only the bytes around an instruction are decoded.
const FUNCTION_BYTES_MAX: usize = 64 << 10;
/// Bytes decoded before and after an instruction there. Decoders that start anywhere agree after some dozens.
const BEFORE_BYTES: usize = 512;
const AFTER_BYTES: usize = 64;
/// No instruction is longer.
const LONGEST_BYTES: usize = 15;

/// Why a program's memory calls cannot be redirected. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RedirectError {
    /// There is no room for a jump, or code may jump into it.
    #[error(
        "{0} makes system calls by an instruction of its own (at {1:#x}), which leaves no room to redirect those on memory"
    )]
    NoRoom(String, usize),
    /// Stubs cannot be placed.
    #[error(
        "{0} makes system calls by instructions of its own, and there is no place near it for code that redirects those on memory"
    )]
    NoPlace(String),
    /// The text cannot be changed.
    #[error("{0} makes system calls by instructions of its own, and those on memory cannot be redirected: {1}")]
    Text(String, SitesError),
}

/// An instruction and the bytes before it that become a jump.
#[derive(Clone, Copy, Debug)]
struct Redirect {
    /// First byte that is replaced.
    start: usize,
    /// The instruction, behind the last that moves to the stub.
    site: usize,
    /// Behind the last byte that is replaced: the instruction's address, or that behind it.
    end: usize,
}

/// What is to be redirected; nothing has changed yet.
#[derive(Default)]
pub(crate) struct Redirects(Vec<(Image, Vec<Redirect>)>);

impl Redirects {
    /// Finds every instruction that may make a memory call, outside of libc, ld.so and this library.
    ///
    /// # Errors
    /// `NoRoom`.
    pub fn plan() -> Result<Redirects, RedirectError> {
        let mut all = Vec::new();
        for image in elf::images().into_iter().filter(|image| image.kind == Kind::Other) {
            let found = redirects_in(&image)?;
            if !found.is_empty() {
                all.push((image, found));
            }
        }
        Ok(Redirects(all))
    }

    /// How many instructions are to be redirected.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, redirects)| redirects.len()).sum()
    }

    /// Redirects them. Only for the one thread of a process, once.
    ///
    /// # Errors
    /// `NoPlace` and `Text`; part of the objects may be changed then, which does no harm.
    pub fn apply(self) -> Result<(), RedirectError> {
        for (image, redirects) in self.0 {
            let name = || image.display_name();
            for text in &image.text {
                let inside: Vec<_> = redirects.iter().filter(|one| text.contains(&one.site)).copied().collect();
                if inside.is_empty() {
                    continue;
                }
                let mut edits = stub::edits(&image, text, &inside).ok_or_else(|| RedirectError::NoPlace(name()))?;
                edit::write(&mut edits, std::slice::from_ref(text))
                    .map_err(|error| RedirectError::Text(name(), error))?;
            }
        }
        Ok(())
    }
}

fn is_memory_call(number: i64) -> bool {
    MEMORY_CALL_NUMBERS.contains(&number)
}

/// What is to be redirected in one object.
fn redirects_in(image: &Image) -> Result<Vec<Redirect>, RedirectError> {
    let finder = memchr::memmem::Finder::new(&SYSCALL);
    let mut found = Vec::new();
    for text in &image.text {
        let mut done = text.start;
        for offset in finder.find_iter(image.bytes(text.clone())) {
            let candidate = text.start + offset;
            if candidate < done || makes_another_call(image.bytes(text.start..candidate)) {
                continue;
            }
            let function = image.function_around(candidate).filter(|range| range.len() <= FUNCTION_BYTES_MAX);
            let region = match function {
                Some(function) => {
                    done = function.end;
                    function
                }
                None => match around(image, text, candidate) {
                    Some(region) => region,
                    None => continue,
                },
            };
            add_region(image, &region, (done <= candidate).then_some(candidate), &mut found)?;
        }
    }
    Ok(found)
}

/// Whether the number is loaded right before the instruction, and is that of another call.
fn makes_another_call(before: &[u8]) -> bool {
    const REX: std::ops::RangeInclusive<u8> = 0x40..=0x4f; // Another register is loaded, perhaps.
    matches!(before, [.., prefix, 0xb8, low, high @ 0..=3, 0, 0]
        if !REX.contains(prefix) && !is_memory_call(u16::from_le_bytes([*low, *high]).into()))
}

/// The bytes around an instruction, from where an instruction begins for certain; `None`: there is no instruction.
///
/// One of fifteen successive bytes begins an instruction. If whichever way one decodes from there, one meets this one, it is one.
fn around(image: &Image, text: &Range<usize>, candidate: usize) -> Option<Range<usize>> {
    let first = candidate.saturating_sub(BEFORE_BYTES).max(text.start);
    let code = image.bytes(first..candidate + SITE_BYTES);
    let decoder = super::decode::decoder();
    let meets = |start: usize| {
        let mut at = start;
        while at < candidate - first {
            at += instruction_len(&decoder, &code[at..]).unwrap_or(1);
        }
        at == candidate - first
    };
    let starts = LONGEST_BYTES.min(candidate - first);
    let certain = (0..starts).all(meets);
    certain.then(|| first..text.end.min(candidate + SITE_BYTES + AFTER_BYTES))
}

/// Adds the instructions of a region, or the one of it that is meant.
fn add_region(
    image: &Image,
    region: &Range<usize>,
    only: Option<usize>,
    found: &mut Vec<Redirect>,
) -> Result<(), RedirectError> {
    let code = image.bytes(region.clone());
    let meant = |site: &Site| only.is_none_or(|only| site.address == only);
    for site in sites_in(code, region.start).into_iter().filter(meant) {
        // Where functions are not described, the number that was loaded last may be another function's; Go's get it from their caller.
        let go = image.is_go && only.is_some();
        let may = match &site.numbers {
            _ if go => true,
            Numbers::One(number) => is_memory_call(*number),
            Numbers::Some(numbers) => numbers.iter().any(|number| is_memory_call(*number)),
            Numbers::Any => true,
        };
        if may && (site.genuine || go) {
            let redirect = room_before(code, region.start, site.address)
                .ok_or_else(|| RedirectError::NoRoom(image.display_name(), site.address))?;
            found.push(redirect);
        }
    }
    Ok(())
}

/// The bytes before an instruction that may run anywhere and that no code of the region jumps into: five at least, or three and the
/// instruction itself.
fn room_before(code: &[u8], region_start: usize, site: usize) -> Option<Redirect> {
    let (mut starts, mut targets) = (Vec::new(), Vec::new());
    for (at, step) in steps(code, region_start) {
        if at < site {
            starts.push(at);
        }
        if let Step::Branch(target) = step {
            targets.push(target);
        }
    }
    let mut first = site;
    for start in starts.into_iter().rev() {
        let bytes = &code[start - region_start..first - region_start];
        if movable::len(bytes) != Some(bytes.len())
            || site - start > stub::MOVED_BYTES_MAX
            || site - first >= LOAD_BYTES
        {
            break;
        }
        first = start;
    }
    let end = if site - first >= LOAD_BYTES { site } else { site + SITE_BYTES };
    let joined = targets.iter().any(|target| first < *target && *target <= site);
    (end - first >= LOAD_BYTES && !joined).then_some(Redirect { start: first, site, end })
}

impl Redirect {
    /// The jump, and what fills the rest.
    fn edit(&self, image: &Image, jump: [u8; LOAD_BYTES]) -> Edit {
        const NOP: u8 = 0x90;
        let old = image.bytes(self.start..self.end);
        let mut new = jump.to_vec();
        new.resize(old.len(), NOP);
        Edit::new(self.start, old, &new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_found_before_an_instruction_and_not_where_code_jumps() {
        // mov rsi, rcx; mov rdi, rbx; syscall
        let plain = [0x48, 0x89, 0xce, 0x48, 0x89, 0xdf, 0x0f, 0x05];
        let room = |code: &[u8], site: usize| room_before(code, 0x1000, site).map(|found| (found.start, found.end));
        assert_eq!(room(&plain, 0x1006), Some((0x1000, 0x1006)));
        // mov eax, 28; syscall
        assert_eq!(room(&[0xb8, 28, 0, 0, 0, 0x0f, 0x05], 0x1005), Some((0x1000, 0x1005)));
        // mov rdi, rbx; syscall: both. mov eax, edi; syscall: too short
        assert_eq!(room(&plain[3..], 0x1003), Some((0x1000, 0x1005)));
        assert_eq!(room(&[0x89, 0xf8, 0x0f, 0x05], 0x1002), None);
        // push rbp; mov rax, rdi; mov rdi, rbx; mov rsi, rdx; syscall: no more than are needed
        let more = [0x55, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xdf, 0x48, 0x89, 0xd6, 0x0f, 0x05];
        assert_eq!(room(&more, 0x100a), Some((0x1004, 0x100a)));
        // and rdx, -64; sub rdx, -128; imul rsi, rdx; syscall: in liburing
        let computed = [0x48, 0x83, 0xe2, 0xc0, 0x48, 0x83, 0xea, 0x80, 0x48, 0x0f, 0xaf, 0xf2, 0x0f, 0x05];
        assert_eq!(room(&computed, 0x100c), Some((0x1004, 0x100c)));
        // mov eax, [rip + 4]; syscall: not the same elsewhere
        assert_eq!(room(&[0x8b, 0x05, 4, 0, 0, 0, 0x0f, 0x05], 0x1006), None);
        // The same as the first, and a jump to its second instruction, to the `syscall`, and to the first instruction.
        for (distance, expected) in [(-7i8, None), (-4, None), (-10, Some((0x1000, 0x1006)))] {
            let code: Vec<u8> = plain.into_iter().chain([0xeb, distance.cast_unsigned()]).collect();
            assert_eq!(room(&code, 0x1006), expected, "{distance}");
        }
    }

    #[test]
    fn numbers_right_before_the_instruction_tell_other_calls() {
        assert!(makes_another_call(&[0xc3, 0xb8, 202, 0, 0, 0]));
        assert!(!makes_another_call(&[0xc3, 0xb8, 28, 0, 0, 0]));
        // mov r8d, 202
        assert!(!makes_another_call(&[0x41, 0xb8, 202, 0, 0, 0]));
        assert!(!makes_another_call(&[0x89, 0xf8]));
    }
}
