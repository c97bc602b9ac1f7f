//! The trampoline: one page of system-call instructions at a fixed address, by which filters tell whose a call is.
//!
//! | instruction | whose calls | the filter of [`crate::seccomp`] | the program's own filter |
//! |---|---|---|---|
//! | `REPEATED` | the program's, once their pages are local and pinned | lets them through | judges them |
//! | `INSIDE` | ours, made where a trap cannot be served: all they name is near | lets them through | lets the listed ones through |
//! | `OWN` | ours, everywhere else | looks at them | lets the listed ones through |
//! | `RESTORER` | the return from a signal handler | looks at it | lets it through |
//!
//! The addresses are constants, because a filter outlives the program that installed it: a program started by exec finds the page's
//! address in the filter that it inherited, and maps the same page again. What the program's own filter lets through is in
//! [`crate::confinement`].
//!
//! The kernel reports the instruction *behind* `syscall` as the caller's (`seccomp_data.instruction_pointer`, seccomp(2)), and
//! goes back two bytes to restart an interrupted call, so restarts come from here too.

use crate::SysError;
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

/// Where the page lies: above what the kernel forbids (`vm.mmap_min_addr`, 64 KiB), below the executables with fixed addresses that are known, where neither
/// the kernel nor a runtime with a layout of its own puts anything. Most of these begin at 4 MiB, the images that GCL saves (Maxima, ACL2,
/// Axiom) at 96 KiB, the address behind this page. One between larger addresses lay in the way of programs that map terabytes with `MAP_FIXED`.
pub const ADDRESS: usize = 0x1_7000;
/// What the kernel reports as the instruction pointer of a call of the program's that is repeated.
pub const RETURN_ADDRESS: usize = ADDRESS + REPEATED + SYSCALL.len();
/// The same for a call of ours that is not looked at. One bit away from `RETURN_ADDRESS`, so that a filter compares both at once.
pub const INSIDE_RETURN_ADDRESS: usize = ADDRESS + INSIDE + SYSCALL.len();
/// The instruction itself.
pub const INSIDE_ADDRESS: usize = ADDRESS + INSIDE;
/// The instruction for all other calls of ours.
pub const OWN_ADDRESS: usize = ADDRESS + OWN;
/// What the kernel reports as the instruction pointer of these.
pub const OWN_RETURN_ADDRESS: usize = ADDRESS + OWN + SYSCALL.len();
/// The code that returns from a signal handler.
pub const RESTORER_ADDRESS: usize = ADDRESS + RESTORER;
/// What the kernel reports as the instruction pointer of that return.
pub const RESTORER_RETURN_ADDRESS: usize = RESTORER_ADDRESS + LOAD_SIGRETURN.len() + SYSCALL.len();

const REPEATED: usize = 0;
const INSIDE: usize = 0x10;
const OWN: usize = 0x20;
/// Not at once behind another function: unwinders look up the byte before a return address.
const RESTORER: usize = 0x40;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const RET: u8 = 0xc3;
/// `mov rax, SYS_rt_sigreturn`, in the very form by which unwinders and debuggers recognise the return from a handler.
const LOAD_SIGRETURN: [u8; 7] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0];
const NOP: u8 = 0x90;

/// Calls go through the page.
pub static MAPPED: AtomicBool = AtomicBool::new(false);

/// Maps the page; once is enough for a process and the children that it forks. Where the program has reserved addresses before (Chromium
/// keeps the lowest 4 GiB inaccessible), the page takes the place of one that cannot be accessed.
///
/// # Errors
/// `EEXIST` when something else lies there; what mmap(2) and mprotect(2) say.
pub fn map() -> Result<(), SysError> {
    if is_mapped() {
        return Ok(());
    }
    match map_page(libc::MAP_FIXED_NOREPLACE) {
        Err(SysError { errno: libc::EEXIST, .. }) if is_reserved() => map_page(libc::MAP_FIXED)?,
        outcome => outcome?,
    }
    // SAFETY: the page was just mapped, writable, and is ours.
    let page = unsafe { std::slice::from_raw_parts_mut(ADDRESS as *mut u8, PAGE_BYTES) };
    for place in [REPEATED, INSIDE, OWN] {
        page[place..place + 3].copy_from_slice(&[SYSCALL[0], SYSCALL[1], RET]);
    }
    page[RESTORER - 1] = NOP;
    page[RESTORER..RESTORER + LOAD_SIGRETURN.len()].copy_from_slice(&LOAD_SIGRETURN);
    page[RESTORER + LOAD_SIGRETURN.len()..][..SYSCALL.len()].copy_from_slice(&SYSCALL);
    crate::mem::protect(ADDRESS, PAGE_BYTES, libc::PROT_READ | libc::PROT_EXEC)?;
    MAPPED.store(true, Release);
    Ok(())
}

/// Maps a page that can be written.
fn map_page(place: i32) -> Result<(), SysError> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | place;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping that replaces nothing, or a page that cannot be accessed.
    let at = unsafe { libc::syscall(libc::SYS_mmap, ADDRESS, PAGE_BYTES, protection, flags, -1isize, 0usize) };
    match usize::try_from(at) {
        Ok(ADDRESS) => Ok(()),
        // Kernels before 4.17 take the address as a hint.
        Ok(elsewhere) => {
            // SAFETY: just mapped, and not in use yet.
            unsafe { libc::syscall(libc::SYS_munmap, elsewhere, PAGE_BYTES) };
            Err(SysError { call: "mmap of the trampoline", errno: libc::EEXIST })
        }
        Err(_) => Err(SysError::last("mmap of the trampoline")),
    }
}

/// Whether what lies there is addresses only: private anonymous memory that cannot be accessed.
fn is_reserved() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| is_reserved_in(&maps))
}

/// The same by the text of /proc/self/maps (proc(5)): addresses, permissions, offset, device, inode, name.
fn is_reserved_in(maps: &str) -> bool {
    maps.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let mut next = || words.next().unwrap_or_default();
        let (addresses, permissions, inode, name) = (next(), next(), { (next(), next(), next()).2 }, next());
        let holds = |(start, end): (&str, &str)| {
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            (number(start)..number(end)).contains(&ADDRESS)
        };
        addresses.split_once('-').is_some_and(holds) && permissions == "---p" && inode == "0" && name.is_empty()
    })
}

/// Whether the page is mapped and lies in a range of addresses, with a part of it at least.
pub fn lies_in(address: usize, bytes: usize) -> bool {
    is_mapped() && address < ADDRESS + PAGE_BYTES && address.saturating_add(bytes) > ADDRESS
}

/// A range of addresses without the page, if it is mapped: what lies below it and above it.
pub fn around(address: usize, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = address.saturating_add(bytes);
    let inside = lies_in(address, bytes);
    let (first, second) = match inside {
        true => (
            (address, ADDRESS.saturating_sub(address)),
            (ADDRESS + PAGE_BYTES, end.saturating_sub(ADDRESS + PAGE_BYTES)),
        ),
        false => ((address, bytes), (end, 0)),
    };
    // A range without bytes is the kernel's to judge.
    [Some(first).filter(|(_, bytes)| *bytes > 0 || !inside), Some(second).filter(|(_, bytes)| *bytes > 0)]
        .into_iter()
        .flatten()
}

/// How unwinders get out of the page: the caller's address lies where the stack pointer points. Without it a thread that is
/// cancelled in a call would not run the destructors on its stack. A common entry, one entry, and the end (System V ABI for
/// x86-64, 3.7; DWARF 5, 6.4.1).
#[repr(C)]
struct FrameDescription {
    common_bytes: u32,
    common_id: u32,
    /// Version 1, no augmentation; factors 1 and -8; the return address is register 16. Then the rules: the frame is 8 above
    /// register 7 (rsp), the return address at the first factor below; and padding.
    common: [u8; 16],
    entry_bytes: u32,
    /// From here back to the common entry.
    to_common_bytes: u32,
    start: u64,
    len: u64,
    end: u32,
}

static FRAME: FrameDescription = FrameDescription {
    common_bytes: 20,
    common_id: 0,
    common: [1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0, 0, 0],
    entry_bytes: 20,
    to_common_bytes: 28,
    start: ADDRESS as u64,
    len: OWN as u64 + SYSCALL.len() as u64 + 1,
    end: 0,
};

/// Tells unwinders about the page. Once for a process, after `map`.
pub fn describe() {
    unsafe extern "C" {
        fn __register_frame(begin: *const u8);
    }
    // SAFETY: the description is complete, ends with a zero, and lives for ever.
    unsafe { __register_frame((&raw const FRAME).cast()) };
}

/// Whether calls go through the page.
pub fn is_mapped() -> bool {
    MAPPED.load(Acquire)
}

/// Makes a system call of ours whose memory is near, from the page; from here while the page is not mapped. Returns what the kernel returns: a
/// value, or a negative error number. `errno` stays as it is. Async-signal-safe.
///
/// # Safety
/// That of the call. It must not be one that returns on another stack (clone(2) with a stack).
#[inline]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { from_page(INSIDE_ADDRESS, number, arguments) }
}

/// As `call`, for a call of the program's.
///
/// # Safety
/// As for `call`.
#[inline]
pub unsafe fn repeat(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { from_page(ADDRESS + REPEATED, number, arguments) }
}

/// As `call`, for a call of ours whose memory may be far: it is looked at by the filter of [`crate::seccomp`].
///
/// # Safety
/// As for `call`.
#[inline]
pub unsafe fn own_call(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { from_page(OWN_ADDRESS, number, arguments) }
}

/// # Safety
/// As for `call`.
#[cfg(miri)]
unsafe fn from_page(_: usize, number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { crate::by_miri::call(number, arguments) }
}

/// # Safety
/// As for `call`; `instruction` is one of the page's.
#[cfg(not(miri))]
#[inline]
unsafe fn from_page(instruction: usize, number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: i64;
    if is_mapped() {
        // SAFETY: the caller's; the page holds `syscall; ret`, which changes no register but those named.
        unsafe {
            core::arch::asm!("call {page}", page = in(reg) instruction, inlateout("rax") number => result,
                in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
                lateout("rcx") _, lateout("r11") _);
        }
    } else {
        // SAFETY: the caller's; the kernel changes no register but those named.
        unsafe {
            core::arch::asm!("syscall", inlateout("rax") number => result,
                in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
                lateout("rcx") _, lateout("r11") _, options(nostack));
        }
    }
    to_isize(result)
}

#[cfg(not(miri))]
#[allow(clippy::cast_possible_truncation, reason = "x86-64: both have 64 bits")]
fn to_isize(result: i64) -> isize {
    result as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_through_the_page_return_the_kernels_answer_and_leave_errno_alone() {
        map().unwrap();
        map().unwrap();
        assert!(is_mapped());
        // SAFETY: errno belongs to this thread; the calls touch no memory, or are refused.
        unsafe {
            *libc::__errno_location() = 77;
            let id = call(libc::SYS_getpid, [0; 6]);
            assert_eq!(u32::try_from(id), Ok(std::process::id()));
            let nothing_open = usize::MAX;
            assert_eq!(call(libc::SYS_close, [nothing_open, 0, 0, 0, 0, 0]), -(libc::EBADF as isize));
            assert_eq!(*libc::__errno_location(), 77);
        }
    }

    #[test]
    fn only_reserved_addresses_are_taken() {
        let lies_in = |line: &str| is_reserved_in(&format!("55d000-55e000 r--p 00000000 fe:00 7 /bin/x\n{line}\n"));
        assert!(lies_in("00010000-100100000 ---p 00000000 00:00 0"));
        assert!(!lies_in("00010000-00017000 ---p 00000000 00:00 0"), "ends below it");
        assert!(!lies_in("00010000-100100000 rw-p 00000000 00:00 0"), "has content");
        assert!(!lies_in("00010000-100100000 ---s 00000000 00:01 9 /dev/zero (deleted)"), "is shared");
        assert!(!lies_in("00010000-100100000 ---p 00000000 fe:00 7 /lib/x"), "is a file");
        assert!(!lies_in("00010000-100100000 ---p 00000000 00:00 0 [heap]"), "has a name");
    }

    #[test]
    fn ranges_go_around_the_page() {
        map().unwrap();
        let parts = |address, bytes| around(address, bytes).collect::<Vec<_>>();
        assert_eq!(
            parts(ADDRESS - 8192, 8192 + PAGE_BYTES + 4096),
            [(ADDRESS - 8192, 8192), (ADDRESS + PAGE_BYTES, 4096)]
        );
        assert_eq!(parts(ADDRESS, 2 * PAGE_BYTES), [(ADDRESS + PAGE_BYTES, PAGE_BYTES)]);
        assert_eq!(parts(ADDRESS - 4096, 4097), [(ADDRESS - 4096, 4096)]);
        assert_eq!(parts(ADDRESS, PAGE_BYTES), []);
        assert_eq!(parts(ADDRESS + PAGE_BYTES, 4096), [(ADDRESS + PAGE_BYTES, 4096)]);
        assert_eq!(parts(4096, 0), [(4096, 0)]);
        assert_eq!(parts(4096, usize::MAX).len(), 2);
    }

    #[test]
    fn all_six_arguments_arrive() {
        map().unwrap();
        let bytes = PAGE_BYTES;
        let (protection, flags) = (libc::PROT_READ as usize, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize);
        // SAFETY: a new mapping, and its end.
        unsafe {
            let at = call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]).cast_unsigned();
            assert_eq!(*(at as *const u8), 0);
            assert_eq!(call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 1]), -(libc::EINVAL as isize));
            assert_eq!(call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]), 0);
        }
    }

    #[test]
    fn its_description_has_the_lengths_that_it_names() {
        use std::mem::offset_of;
        let after = |field: usize| field + size_of::<u32>();
        assert_eq!(offset_of!(FrameDescription, entry_bytes), after(0) + FRAME.common_bytes as usize);
        let entry = after(offset_of!(FrameDescription, entry_bytes));
        assert_eq!(offset_of!(FrameDescription, end), entry + FRAME.entry_bytes as usize);
        assert_eq!(offset_of!(FrameDescription, to_common_bytes), FRAME.to_common_bytes as usize);
    }
}
