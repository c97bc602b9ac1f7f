//! Sites that need no trap: `mov eax, NUMBER; syscall` becomes a jump to code of ours.
//!
//! The kernel's way to a handler and back costs microseconds; glibc makes two of its signal calls often, in `siglongjmp` and
//! for every signal when it starts a child. Both instructions together have seven bytes: five for the jump, and `ud2` in the
//! place of the `syscall`, for code that jumps right there.
//!
//! ```text
//! site:  jmp stub; ud2                          was: mov eax, NUMBER; syscall
//! stub:  lea rsp, [rsp-128]                     below what the interrupted function may keep under its stack pointer
//!        lea rcx, [site+7]; push rcx            the way back, in libc: unwinding finds a description there
//!        mov eax, NUMBER
//!        jmp [entry]                            keeps all registers that `syscall` keeps, calls `answer`, returns and frees the 128 bytes
//! ```
//! clone3(2) has a stub of another kind, because its child begins at the next instruction, perhaps on another stack: the call is made in
//! the stub, with no frame of ours. With `CLONE_CLEAR_SIGHAND`, which `posix_spawn` asks for since glibc 2.38, the kernel would take our
//! handlers away from a child that shares this memory, and its first trap would end it. The stub answers as a kernel that lacks the flag
//! (Linux before 5.5): `EINVAL`, upon which libc resets the signals itself, by calls that are seen.
//!
//! ```text
//! stub:  test byte ptr [rdi+4], 1               CLONE_CLEAR_SIGHAND, in clone_args.flags
//!        jnz refuse
//!        mov eax, 435
//!        syscall
//!        jmp site+7
//! refuse:
//!        mov rax, -EINVAL
//!        jmp site+7
//! ```
//! The stubs lie in a page of their own, within reach of a near jump. Without a place for it, the sites stay traps; that of clone3(2)
//! answers `ENOSYS` then, upon which libc uses clone(2).

use super::{SITE_BYTES, SYSCALL};
use crate::inline::signals;
use crate::smaps;
use hinterland_sys::{Mapping, mem};
use hinterland_units::PAGE_BYTES;
use std::ops::Range;

/// Bytes of `mov eax, imm32`, and of a near jump.
pub(super) const LOAD_BYTES: usize = 5;
const STUB_BYTES: usize = 32;
/// The first bytes of the page hold the address of `entry`.
const STUBS_MAX: usize = PAGE_BYTES / STUB_BYTES - 1;
/// How far a near jump reaches, with room to spare.
const REACH_BYTES: usize = (1 << 31) - (1 << 20);

/// Whether calls of a number need no trap.
pub(super) fn answers(number: i64) -> bool {
    [libc::SYS_rt_sigprocmask, libc::SYS_rt_sigaction, libc::SYS_clone3].contains(&number)
}

/// The code of the stubs.
pub(super) struct Stubs {
    page: usize,
    used: usize,
}

impl Stubs {
    /// A page near `text`; `None`: there is no place.
    pub fn near(text: &Range<usize>) -> Option<Stubs> {
        let mapping = map_in_gap(text, PAGE_BYTES)?;
        // SAFETY: the mapping is new, writable, and a page long.
        unsafe { (mapping.start as *mut usize).write(hinterland_site_entry as *const () as usize) };
        Some(Stubs { page: mapping.start, used: 0 })
    }

    /// Makes the stub for a `syscall` at `site`; returns the jump to it, which replaces the load of the number. `None`: full.
    pub fn add(&mut self, site: usize, number: i64) -> Option<[u8; LOAD_BYTES]> {
        if self.used >= STUBS_MAX {
            return None;
        }
        self.used += 1;
        let stub = self.page + self.used * STUB_BYTES;
        let back = site + SITE_BYTES;
        let code = match number {
            libc::SYS_clone3 => cloning(stub, back)?,
            _ => answering(stub, self.page, back, i32::try_from(number).ok()?)?,
        };
        // SAFETY: inside the page, which is writable until `finish`.
        unsafe { (stub as *mut [u8; STUB_BYTES]).write(code) };
        jump(site - LOAD_BYTES, stub)
    }

    /// Makes the stubs executable, and no longer writable. False: the system forbids it.
    pub fn finish(&self) -> bool {
        mem::protect(self.page, PAGE_BYTES, libc::PROT_READ | libc::PROT_EXEC).is_ok()
    }
}

/// Maps `bytes` within reach of all of `text`, between other mappings.
fn map_in_gap(text: &Range<usize>, bytes: usize) -> Option<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    gaps(&maps, text, bytes).find_map(|gap| Mapping::at(gap.start, bytes).ok())
}

/// Maps `bytes` within reach of all of `text`, but not where the program's break may begin or grow to, if there is room elsewhere: the kernel
/// puts it up to 1 GiB behind the executable. So below it; or else as far above as reaches.
pub(super) fn map_near(text: &Range<usize>, bytes: usize) -> Option<Mapping> {
    const APART_BYTES: usize = 1 << 30;
    let below = text.start.checked_sub(APART_BYTES);
    let above = text.start.checked_add(REACH_BYTES - bytes);
    let apart = below.into_iter().chain(above).find_map(|start| Mapping::at(start & !(PAGE_BYTES - 1), bytes).ok());
    apart.or_else(|| map_in_gap(text, bytes))
}

/// Address space between mappings, within reach of all of `text`. `maps` is in the format of /proc/self/maps.
fn gaps(maps: &str, text: &Range<usize>, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let mappings = maps.lines().filter_map(smaps::addresses);
    let mut end_before = None;
    let gaps = mappings.filter_map(move |mapping| end_before.replace(mapping.end).map(|before| before..mapping.start));
    let (lowest, highest) = (text.end.saturating_sub(REACH_BYTES), text.start.saturating_add(REACH_BYTES));
    gaps.filter(move |gap| gap.len() >= bytes && lowest <= gap.start && gap.start + bytes <= highest)
}

/// The distance in a near jump or operand whose instruction ends at `end`.
pub(super) fn distance(end: usize, target: usize) -> Option<[u8; 4]> {
    let distance = target.cast_signed().checked_sub(end.cast_signed())?;
    i32::try_from(distance).ok().map(i32::to_le_bytes)
}

pub(super) fn jump(at: usize, target: usize) -> Option<[u8; LOAD_BYTES]> {
    let [a, b, c, d] = distance(at + LOAD_BYTES, target)?;
    Some([0xe9, a, b, c, d])
}

/// What fills the rest of a stub.
const INT3: u8 = 0xcc;

/// A stub at `stub` that has `answer` called; the address of `entry` lies at `entry`, and the code goes on at `back`.
fn answering(stub: usize, entry: usize, back: usize, number: i32) -> Option<[u8; STUB_BYTES]> {
    let mut code = Vec::with_capacity(STUB_BYTES);
    code.extend([0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp-128]
    code.extend([0x48, 0x8d, 0x0d]); // lea rcx, [rip + back]
    code.extend(distance(stub + code.len() + 4, back)?);
    code.push(0x51); // push rcx
    code.push(0xb8); // mov eax, number
    code.extend(number.to_le_bytes());
    code.extend([0xff, 0x25]); // jmp [rip + entry]
    code.extend(distance(stub + code.len() + 4, entry)?);
    code.resize(STUB_BYTES, INT3);
    code.try_into().ok()
}

/// A stub at `stub` that makes clone3(2), or refuses it; both processes go on at `back`.
fn cloning(stub: usize, back: usize) -> Option<[u8; STUB_BYTES]> {
    let mut code = Vec::with_capacity(STUB_BYTES);
    code.extend([0xf6, 0x47, 0x04, 0x01]); // test byte ptr [rdi + 4], 1
    code.extend([0x75, 0x0c]); // jnz over what follows
    code.push(0xb8); // mov eax, number
    code.extend(i32::try_from(libc::SYS_clone3).ok()?.to_le_bytes());
    code.extend(SYSCALL);
    code.extend(jump(stub + code.len(), back)?);
    code.extend([0x48, 0xc7, 0xc0]); // mov rax, -EINVAL
    code.extend((-libc::EINVAL).to_le_bytes());
    code.extend(jump(stub + code.len(), back)?);
    code.resize(STUB_BYTES, INT3);
    code.try_into().ok()
}

/// Answers a call. The arguments are in the kernel's order.
extern "C" fn answer(number: i64, arguments: &[usize; 6]) -> isize {
    signals::call_directly(number, arguments)
}

unsafe extern "C" {
    /// Where all stubs go: keeps what the `syscall` instruction keeps, and calls `answer`.
    fn hinterland_site_entry();
}

// libc is compiled for the oldest x86-64 processors, so it keeps nothing in the upper halves of vector registers; what its
// variants for newer ones keep there does not last over a system call's function.
core::arch::global_asm!(
    ".pushsection .text.hinterland_site_entry, \"ax\", @progbits",
    ".balign 16",
    ".hidden hinterland_site_entry",
    ".globl hinterland_site_entry",
    ".type hinterland_site_entry, @function",
    "hinterland_site_entry:",
    ".cfi_startproc",
    // The return address, and the 128 bytes above it.
    ".cfi_def_cfa_offset 136",
    ".cfi_offset rip, -136",
    "push rbp",
    ".cfi_def_cfa_offset 144",
    ".cfi_offset rbp, -144",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    // The arguments, from the last to the first, so that they are an array: and at once kept.
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "mov rsi, rsp",
    "mov rdi, rax",
    "sub rsp, 256",
    "and rsp, -16",
    "movaps [rsp], xmm0",
    "movaps [rsp + 16], xmm1",
    "movaps [rsp + 32], xmm2",
    "movaps [rsp + 48], xmm3",
    "movaps [rsp + 64], xmm4",
    "movaps [rsp + 80], xmm5",
    "movaps [rsp + 96], xmm6",
    "movaps [rsp + 112], xmm7",
    "movaps [rsp + 128], xmm8",
    "movaps [rsp + 144], xmm9",
    "movaps [rsp + 160], xmm10",
    "movaps [rsp + 176], xmm11",
    "movaps [rsp + 192], xmm12",
    "movaps [rsp + 208], xmm13",
    "movaps [rsp + 224], xmm14",
    "movaps [rsp + 240], xmm15",
    "cld",
    "call {answer}",
    "movaps xmm0, [rsp]",
    "movaps xmm1, [rsp + 16]",
    "movaps xmm2, [rsp + 32]",
    "movaps xmm3, [rsp + 48]",
    "movaps xmm4, [rsp + 64]",
    "movaps xmm5, [rsp + 80]",
    "movaps xmm6, [rsp + 96]",
    "movaps xmm7, [rsp + 112]",
    "movaps xmm8, [rsp + 128]",
    "movaps xmm9, [rsp + 144]",
    "movaps xmm10, [rsp + 160]",
    "movaps xmm11, [rsp + 176]",
    "movaps xmm12, [rsp + 192]",
    "movaps xmm13, [rsp + 208]",
    "movaps xmm14, [rsp + 224]",
    "movaps xmm15, [rsp + 240]",
    "lea rsp, [rbp - 48]",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rbp",
    ".cfi_def_cfa rsp, 136",
    "ret 128",
    ".cfi_endproc",
    ".size hinterland_site_entry, . - hinterland_site_entry",
    ".popsection",
    answer = sym answer,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::raw::CLEARS_HANDLERS;
    use iced_x86::{Code, Decoder, DecoderOptions};

    #[test]
    fn gaps_within_reach_are_found() {
        let maps = "10000-20000 r-xp 0 0 0\n7f0000000000-7f0000001000 rw-p 0\n7f0000001000-7f0000004000 r-xp 0 0 0 libc\n\
                    7f0000005000-7f0000006000 rw-p 0\n7fff00000000-7fff00001000 rw-p 0 [stack]\n";
        let text = 0x7f00_0000_1000..0x7f00_0000_4000;
        let found: Vec<_> = gaps(maps, &text, PAGE_BYTES).collect();
        assert_eq!(found, [0x7f00_0000_4000..0x7f00_0000_5000, 0x7f00_0000_6000..0x7fff_0000_0000]);
    }

    #[test]
    fn code_near_a_text_lies_below_it_where_no_break_grows_to() {
        let text = (map_near as *const () as usize) & !(PAGE_BYTES - 1);
        let mapping = map_near(&(text..text + PAGE_BYTES), PAGE_BYTES).unwrap();
        assert!(mapping.start < text && text - mapping.start < REACH_BYTES, "{:#x} for {text:#x}", mapping.start);
        // SAFETY: nobody uses it.
        unsafe { mapping.end() };
    }

    #[test]
    fn a_stub_is_the_code_that_it_should_be() {
        let (stub, entry, back) = (0x7f00_0000_0020usize, 0x7f00_0000_0000usize, 0x7f00_0123_4567usize);
        let code = answering(stub, entry, back, 14).unwrap();
        let all: Vec<_> = Decoder::with_ip(64, &code, stub as u64, DecoderOptions::NONE).into_iter().take(5).collect();
        let codes: Vec<_> = all.iter().map(|one| one.code()).collect();
        assert_eq!(codes, [Code::Lea_r64_m, Code::Lea_r64_m, Code::Push_r64, Code::Mov_r32_imm32, Code::Jmp_rm64]);
        assert_eq!(all[1].memory_displacement64(), back as u64);
        assert_eq!(all[3].immediate(1), 14);
        assert_eq!(all[4].memory_displacement64(), entry as u64);
        assert_eq!(jump(0, 1 << 40), None, "out of reach");
    }

    #[test]
    fn a_clone_that_would_clear_our_handlers_is_refused_and_every_other_one_is_made() {
        let page = Mapping::anonymous(PAGE_BYTES).unwrap();
        let (stub, back) = (page.start, page.start + STUB_BYTES);
        // SAFETY: the page is new and writable; `back` is inside.
        unsafe {
            (stub as *mut [u8; STUB_BYTES]).write(cloning(stub, back).unwrap());
            (back as *mut u8).write(0xc3); // ret
        }
        mem::protect(page.start, PAGE_BYTES, libc::PROT_READ | libc::PROT_EXEC).unwrap();
        let clone = |flags: u64| -> i64 {
            // struct clone_args: flags, then pidfd, child_tid, parent_tid, exit_signal.
            let arguments = [flags, 0, 0, 0, u64::from(libc::SIGCHLD.cast_unsigned()), 0, 0, 0];
            let result;
            // SAFETY: the stub makes the call and returns; the child ends at once.
            unsafe {
                core::arch::asm!("call {stub}", stub = in(reg) stub, in("rdi") arguments.as_ptr(), in("rsi") size_of_val(&arguments),
                    lateout("rax") result, out("rcx") _, out("r11") _);
            }
            if result == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(7) };
            }
            result
        };
        assert_eq!(clone(CLEARS_HANDLERS), -i64::from(libc::EINVAL));
        let child = clone(0);
        let mut status = 0;
        // SAFETY: room for the status.
        assert_eq!(i64::from(unsafe { libc::waitpid(i32::try_from(child).unwrap(), &raw mut status, 0) }), child);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
    }
}
