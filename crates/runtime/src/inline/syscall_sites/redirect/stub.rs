//! The code that a redirected instruction goes to.
//!
//! ```text
//! page:  entry; calls that are ours whatever they name; calls that are ours when their first argument is far
//! stub:  the bytes that stood before the instruction
//!        a call of the first kind, or of the second with a far first argument?  ─► entry, with the way back in rcx
//!        syscall
//!        jmp back
//! ```
//! The instruction destroys rcx and r11 by itself, so stub and entry may use these two, and nothing of the program's stack: that may be a
//! goroutine's, with room for nothing, or about to be unmapped. The entry takes one of a few stacks, keeps all registers there, and calls
//! `answer`.

use super::Redirect;
use crate::errno;
use crate::inline::syscall_sites::edit::Edit;
use crate::inline::syscall_sites::elf::Image;
use crate::inline::syscall_sites::jump::{distance, jump, map_near};
use crate::mapping::{self, MEMORY_CALL_NUMBERS};
use hinterland_pager::{FAR_BASE, FAR_BITS, FAR_PAGES};
use hinterland_sys::thread::SignalsBlocked;
use hinterland_sys::{Mapping, mem};
use hinterland_units::PAGE_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// The most bytes that move to a stub.
pub(super) const MOVED_BYTES_MAX: usize = 16;
const STUB_BYTES: usize = 128;
/// What stands before the stubs: the entry's address, and from here on two sets of numbers.
const HEAD_BYTES: usize = 256;
const WHATEVER: usize = 64;
const BY_ADDRESS: usize = 128;
/// Numbers in a set.
const NUMBERS: usize = 512;

/// A far address has one of so many values, from this one on, in the bits from `FAR_BITS` on.
const FAR_TAG: usize = FAR_BASE >> FAR_BITS;
const FAR_TAGS: usize = (FAR_PAGES as usize * PAGE_BYTES) >> FAR_BITS;
const _: () = assert!(FAR_TAG < 128 && FAR_TAGS < 128 && FAR_BITS < 64, "an operand of one byte");

/// Calls that may name far memory by another argument than the first.
const OTHERS: [i64; 3] = [libc::SYS_mremap, libc::SYS_shmat, libc::SYS_process_madvise];
/// Calls without an address.
const NO_ADDRESS: [i64; 2] = [libc::SYS_mlockall, libc::SYS_munlockall];

/// The stacks of the entry, and the bits of those that are free.
const STACKS: u32 = 16;
const STACK_BITS: u32 = 18;
static STACK_BASE: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicU64 = AtomicU64::new((1 << STACKS) - 1);

fn set_of(numbers: impl Iterator<Item = i64>) -> [u64; NUMBERS / 64] {
    let mut set = [0; NUMBERS / 64];
    for number in numbers.filter_map(|number| usize::try_from(number).ok()) {
        set[number / 64] |= 1 << (number % 64);
    }
    set
}

/// Makes stubs for the instructions of one segment of text; returns the changes that lead there. `None`: there is no place for them, or
/// the system forbids to make them executable.
pub(super) fn edits(image: &Image, text: &Range<usize>, redirects: &[Redirect]) -> Option<Vec<Edit>> {
    prepare_stacks()?;
    let bytes = (HEAD_BYTES + redirects.len() * STUB_BYTES).next_multiple_of(PAGE_BYTES);
    let page = map_near(text, bytes)?.start;
    let whatever = set_of(OTHERS.into_iter());
    let by_address =
        set_of(MEMORY_CALL_NUMBERS.into_iter().filter(|one| !OTHERS.contains(one) && !NO_ADDRESS.contains(one)));
    // SAFETY: the mapping is new, writable, and longer than its head.
    unsafe {
        (page as *mut usize).write(hinterland_memory_entry as *const () as usize);
        ((page + WHATEVER) as *mut [u64; NUMBERS / 64]).write(whatever);
        ((page + BY_ADDRESS) as *mut [u64; NUMBERS / 64]).write(by_address);
    }
    let mut edits = Vec::with_capacity(redirects.len());
    for (index, redirect) in redirects.iter().enumerate() {
        let stub = page + HEAD_BYTES + index * STUB_BYTES;
        let moved = image.bytes(redirect.start..redirect.site);
        let code = code(stub, page, redirect.site + super::SITE_BYTES, moved)?;
        // SAFETY: inside the mapping, which is still writable.
        unsafe { (stub as *mut [u8; STUB_BYTES]).write(code) };
        edits.push(redirect.edit(image, jump(redirect.start, stub)?));
    }
    mem::protect(page, bytes, libc::PROT_READ | libc::PROT_EXEC).ok()?;
    Some(edits)
}

/// Maps the entry's stacks, once.
fn prepare_stacks() -> Option<()> {
    // All registers are kept by one instruction, which came with AVX.
    if !std::is_x86_feature_detected!("xsave") {
        return None;
    }
    if STACK_BASE.load(Relaxed) == 0 {
        let stacks = Mapping::anonymous((STACKS as usize + 1) << STACK_BITS).ok()?;
        STACK_BASE.store(stacks.start.next_multiple_of(1 << STACK_BITS), SeqCst);
    }
    Some(())
}

/// In the child of a fork: threads that were in the entry are not there.
pub(crate) fn begin_child() {
    FREE.store((1 << STACKS) - 1, SeqCst);
}

/// The code of a stub at `stub` whose page starts at `page`, and that goes on at `back`.
fn code(stub: usize, page: usize, back: usize, moved: &[u8]) -> Option<[u8; STUB_BYTES]> {
    const INT3: u8 = 0xcc;
    let (far_tag, far_tags) = (u8::try_from(FAR_TAG).ok()?, u8::try_from(FAR_TAGS).ok()?);
    let far_bits = u8::try_from(FAR_BITS).ok()?;
    let mut code = moved.to_vec();
    // An instruction that names `target` in its last four bytes.
    let relative = |code: &mut Vec<u8>, start: &[u8], target: usize| {
        code.extend(start);
        code.extend(distance(stub + code.len() + 4, target)?);
        Some(())
    };
    code.extend([0x41, 0x89, 0xc3]); // mov r11d, eax
    code.extend([0x41, 0x81, 0xfb, 0x00, 0x02, 0x00, 0x00]); // cmp r11d, NUMBERS
    let first = short_jump(&mut code, 0x73); // jae pass
    relative(&mut code, &[0x48, 0x8d, 0x0d], page + WHATEVER)?; // lea rcx, [rip + whatever]
    code.extend([0x4c, 0x0f, 0xa3, 0x19]); // bt [rcx], r11
    let ours = short_jump(&mut code, 0x72); // jc serve
    relative(&mut code, &[0x48, 0x8d, 0x0d], page + BY_ADDRESS)?; // lea rcx, [rip + by_address]
    code.extend([0x4c, 0x0f, 0xa3, 0x19]); // bt [rcx], r11
    let second = short_jump(&mut code, 0x73); // jnc pass
    code.extend([0x48, 0x89, 0xf9, 0x48, 0xc1, 0xe9, far_bits]); // mov rcx, rdi; shr rcx, FAR_BITS
    code.extend([0x48, 0x83, 0xe9, far_tag]); // sub rcx, FAR_TAG
    code.extend([0x48, 0x83, 0xf9, far_tags]); // cmp rcx, FAR_TAGS
    let third = short_jump(&mut code, 0x73); // jae pass
    land(&mut code, ours)?;
    relative(&mut code, &[0x48, 0x8d, 0x0d], back)?; // lea rcx, [rip + back]
    relative(&mut code, &[0xff, 0x25], page)?; // jmp [rip + entry]
    for jump in [first, second, third] {
        land(&mut code, jump)?;
    }
    code.extend(super::SYSCALL);
    relative(&mut code, &[0xe9], back)?; // jmp back
    code.resize(STUB_BYTES, INT3);
    code.try_into().ok()
}

/// A jump on a condition, to a place that comes later; returns where its distance stands.
fn short_jump(code: &mut Vec<u8>, condition: u8) -> usize {
    code.extend([condition, 0]);
    code.len() - 1
}

/// The place that a jump leads to is here.
fn land(code: &mut [u8], jump: usize) -> Option<()> {
    let distance = code.len() - jump - 1;
    *code.get_mut(jump)? = u8::try_from(distance).ok().filter(|distance| *distance < 128)?;
    Some(())
}

/// Makes a call. The arguments are in the kernel's order.
extern "C" fn answer(number: u32, arguments: &[usize; 6]) -> isize {
    let _errno = errno::Preserved::new();
    let _signals = SignalsBlocked::new();
    // SAFETY: the program's own call.
    let made = unsafe { mapping::call(number.into(), *arguments, 0) };
    mapping::to_kernel(made.unwrap_or_else(|| mapping::kernel(number.into(), *arguments)))
}

unsafe extern "C" {
    /// Where all stubs go: keeps what the `syscall` instruction keeps, and calls `answer`.
    fn hinterland_memory_entry();
}

// A stack: at its end the program's stack pointer, below it what is kept; at its beginning the vector and other registers, in as much
// room as all that are known take (11 KiB with AMX).
core::arch::global_asm!(
    ".pushsection .text.hinterland_memory_entry, \"ax\", @progbits",
    ".balign 16",
    ".hidden hinterland_memory_entry",
    ".globl hinterland_memory_entry",
    ".type hinterland_memory_entry, @function",
    "hinterland_memory_entry:",
    "2:",
    "mov r11, [rip + {free}]",
    "bsf r11, r11",
    "jz 3f",
    "lock btr [rip + {free}], r11",
    "jnc 2b",
    "inc r11",
    "shl r11, {stack_bits}",
    "add r11, [rip + {base}]",
    "mov [r11 - 8], rsp",
    "lea rsp, [r11 - 64]",
    "push rcx",
    // The arguments, from the last to the first, so that they are an array: and at once kept.
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rbx",
    "mov rbx, r11",
    "mov edi, eax",
    "lea rsi, [rsp + 8]",
    "mov eax, -1",
    "mov edx, -1",
    "xsave64 [rbx - {stack_bytes}]",
    "cld",
    "call {answer}",
    "mov r11, rax",
    "mov eax, -1",
    "mov edx, -1",
    "xrstor64 [rbx - {stack_bytes}]",
    "mov rax, r11",
    "mov r11, rbx",
    "pop rbx",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rcx",
    "mov rsp, [r11 - 8]",
    "sub r11, [rip + {base}]",
    "shr r11, {stack_bits}",
    "dec r11",
    "lock bts [rip + {free}], r11",
    "jmp rcx",
    // All are in use.
    "3:",
    "pause",
    "jmp 2b",
    ".size hinterland_memory_entry, . - hinterland_memory_entry",
    ".popsection",
    free = sym FREE,
    base = sym STACK_BASE,
    stack_bits = const STACK_BITS,
    stack_bytes = const 1usize << STACK_BITS,
    answer = sym answer,
);

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn a_stub_is_the_code_that_it_should_be() {
        let (page, stub, back) = (0x50_0000usize, 0x50_0100usize, 0x40_1234usize);
        // mov rdi, rbx
        let code = code(stub, page, back, &[0x48, 0x89, 0xdf]).unwrap();
        let all: Vec<_> = Decoder::with_ip(64, &code, stub as u64, DecoderOptions::NONE).into_iter().collect();
        let text: Vec<String> = all.iter().map(|one| format!("{:?}", one.mnemonic())).take(20).collect();
        let expected = "Mov Mov Cmp Jae Lea Bt Jb Lea Bt Jae Mov Shr Sub Cmp Jae Lea Jmp Syscall Jmp Int3";
        assert_eq!(text.join(" "), expected);
        let pass = all[17].ip();
        assert!([3, 9, 14].iter().all(|index| all[*index].near_branch_target() == pass));
        assert_eq!(all[6].near_branch_target(), all[15].ip());
        assert_eq!(all[4].memory_displacement64(), (page + WHATEVER) as u64);
        assert_eq!(all[7].memory_displacement64(), (page + BY_ADDRESS) as u64);
        assert_eq!((all[15].memory_displacement64(), all[18].near_branch_target()), (back as u64, back as u64));
        assert_eq!(all[16].memory_displacement64(), page as u64);
        assert_eq!((all[11].immediate8(), all[12].immediate8to64(), all[13].immediate8to64()), (42, 18, 3));
    }
}
