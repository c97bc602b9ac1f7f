//! The calls that led to a place, from the innermost, by the rules of their frames.
//!
//! A stack is read by a call that fails where nothing is mapped or a far page is missing (process_vm_readv(2) on the process itself), block
//! by block: whatever a rule says, nothing faults. Far stacks are not read at all.

use super::modules;
use super::rules::{Base, Rule, rule_of};
use crate::{caller, region_map};
use hinterland_abi::profile::Frame;
use hinterland_sys::mem;
use libc::ucontext_t;

/// Bytes that are read of a stack at once.
const BLOCK_BYTES: usize = 2048;
/// A frame is no larger: what would be is a wrong rule.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Frames of this library's, or of libc's, before the first of the program's.
const INTERNAL_MAX: usize = 48;
/// Frames of libc and of this library that are left without a call are no larger.
const INTERNAL_BYTES_MAX: usize = 64 << 10;

/// Where a thread stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// The instruction. Of a caller: the last byte of the call.
    pub instruction: usize,
    /// The stack pointer.
    pub stack: usize,
    /// The frame pointer; `None`: not known.
    pub frame: Option<usize>,
}

impl Registers {
    /// Those of the calling function, whose frame must still be there when they are used.
    #[inline(always)]
    pub fn here() -> Registers {
        let (instruction, stack, frame): (usize, usize, usize);
        // SAFETY: reads three registers.
        unsafe {
            core::arch::asm!(
                "lea {0}, [rip]",
                "mov {1}, rsp",
                "mov {2}, rbp",
                out(reg) instruction,
                out(reg) stack,
                out(reg) frame,
                options(nomem, nostack, preserves_flags),
            );
        }
        Registers { instruction, stack, frame: Some(frame) }
    }

    /// Those of interrupted code.
    ///
    /// # Safety
    /// `context` points at a context in memory that can be read; its registers may be anything.
    pub unsafe fn of(context: *const ucontext_t) -> Registers {
        // SAFETY: the caller's promise.
        let registers = unsafe { (*context).uc_mcontext.gregs };
        let register = |number: i32| usize::from_ne_bytes(registers[number.unsigned_abs() as usize].to_ne_bytes());
        let [instruction, stack, frame] = [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP].map(register);
        Registers { instruction, stack, frame: Some(frame) }
    }

    /// Those of the caller, by this frame's rule; `read`: a word of the stack. `None`: this is the outermost frame that can be seen.
    fn caller(self, bytes_max: usize, mut read: impl FnMut(usize) -> Option<usize>) -> Option<Registers> {
        let Rule::Step { base, cfa, saved_frame } = rule_of(self.instruction) else { return None };
        let base = match base {
            Base::Stack => self.stack,
            Base::Frame => self.frame?,
        };
        let cfa = base.checked_add_signed(cfa.try_into().ok()?)?;
        // The stack grows downwards, and holds a return address at least.
        let bytes = cfa.checked_sub(self.stack)?;
        if bytes < size_of::<usize>() || bytes > bytes_max || !cfa.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        let returns_to = read(cfa - size_of::<usize>())?;
        let frame = match saved_frame {
            None => self.frame,
            Some(offset) => Some(read(cfa.checked_add_signed(offset.into())?)?),
        };
        Some(Registers { instruction: returns_to.checked_sub(1)?, stack: cfa, frame })
    }
}

/// Part of a stack, as it was read last.
struct Block {
    start: usize,
    bytes: usize,
    words: [usize; BLOCK_BYTES / size_of::<usize>()],
}

impl Default for Block {
    fn default() -> Block {
        Block { start: 0, bytes: 0, words: [0; BLOCK_BYTES / size_of::<usize>()] }
    }
}

impl Block {
    fn read(&mut self, address: usize) -> Option<usize> {
        if region_map::contains(address) {
            return None;
        }
        let inside = |block: &Block| {
            let offset = address.checked_sub(block.start)?;
            (offset + size_of::<usize>() <= block.bytes).then(|| block.words[offset / size_of::<usize>()])
        };
        inside(self).or_else(|| {
            let range = libc::iovec { iov_base: address as *mut _, iov_len: BLOCK_BYTES };
            // SAFETY: the words are ours and as many.
            let read = unsafe { mem::copy_vector(&[range], self.words.as_mut_ptr().addr()) };
            (self.start, self.bytes) = (address, read.unwrap_or(0));
            inside(self)
        })
    }
}

/// The first code of the program's: past libc and this library. `is_calling`: the calling thread's. Frames of its own that have not
/// returned are read as the functions that they belong to would; another thread may have gone on, and its stack be gone.
pub fn out_of_libc(from: Registers, is_calling: bool) -> Option<Registers> {
    let mut at = from;
    let mut block = Block::default();
    for _ in 0..INTERNAL_MAX {
        if !caller::is_internal(at.instruction) {
            return Some(at);
        }
        at = at.caller(INTERNAL_BYTES_MAX, |address| {
            if !is_calling {
                return block.read(address);
            }
            // SAFETY: a word of a frame of libc's or ours, whose rules are right, on this thread's stack.
            (!region_map::contains(address)).then(|| unsafe { (address as *const usize).read_volatile() })
        })?;
    }
    None
}

/// The calls that led to a place, this library's own left out where they come first. Returns how many there are in `frames`.
pub fn walk(from: Registers, frames: &mut [Frame]) -> usize {
    let mut block = Block::default();
    let (mut count, mut own) = (0, 0);
    let mut at = Some(from);
    while let Some(registers) = at
        && count < frames.len()
        && own < INTERNAL_MAX
    {
        if count == 0 && modules::is_own(registers.instruction) {
            own += 1;
        } else {
            frames[count] = modules::frame_of(registers.instruction);
            count += 1;
        }
        at = registers.caller(FRAME_BYTES_MAX, |address| block.read(address));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loaded_file::LoadedFile;

    #[inline(never)]
    fn inner(depth: usize, frames: &mut [Frame; 24]) -> usize {
        if depth > 0 {
            return std::hint::black_box(inner(depth - 1, frames)) + std::hint::black_box(0);
        }
        // Without the frames that are this library's, nothing would be left here.
        let (mut count, mut at, mut block) = (0, Some(Registers::here()), Block::default());
        while let Some(registers) = at
            && count < frames.len()
        {
            frames[count] = Frame::new(None, registers.instruction);
            count += 1;
            at = registers.caller(FRAME_BYTES_MAX, |address| block.read(address));
        }
        count
    }

    #[test]
    fn every_call_of_a_recursion_is_seen_and_the_walk_ends_where_it_is_told() {
        modules::begin().unwrap();
        let mut frames = [Frame::default(); 24];
        let count = inner(9, &mut frames);
        assert!(count >= 12, "{count}");
        let recursive = &frames[2..10];
        assert!(recursive.iter().all(|frame| *frame == frames[2]), "{frames:x?}");
        assert_eq!(inner(60, &mut frames), 24, "bounded");
    }

    #[test]
    fn registers_that_are_garbage_end_the_walk() {
        modules::begin().unwrap();
        let code = libc::qsort as *const () as usize;
        let mut frames = [Frame::default(); 8];
        for stack in [0, 1, 8, usize::MAX, usize::MAX - 7, hinterland_pager::FAR_BASE, 1 << 63] {
            for frame in [None, Some(0), Some(usize::MAX)] {
                for instruction in [code, code + 40, 0, usize::MAX, walk as *const () as usize + 30] {
                    let count = walk(Registers { instruction, stack, frame }, &mut frames);
                    assert!(count <= 1, "{instruction:#x} {stack:#x}: {count}");
                }
            }
        }
    }

    #[test]
    fn libc_is_left_by_the_way_of_its_callback() {
        modules::begin().unwrap();
        caller::init();
        extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
            let mut frames = [Frame::default(); 8];
            let from = Registers::here();
            let mut block = Block::default();
            let in_libc = from.caller(FRAME_BYTES_MAX, |address| block.read(address)).expect("qsort calls");
            assert!(LoadedFile::of(in_libc.instruction) != LoadedFile::of(from.instruction));
            assert!(walk(in_libc, &mut frames) >= 2);
            0
        }
        let mut values = [3u32, 1, 2, 5];
        // SAFETY: four values of four bytes, and a function that compares.
        unsafe { libc::qsort(values.as_mut_ptr().cast(), 4, 4, Some(compare)) };
    }
}
