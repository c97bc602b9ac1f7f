//! dlopen(3) and dlsym(3): two ways to libc's functions past ours.
//!
//! A library that is opened with `RTLD_DEEPBIND` is opened without: its own calls of malloc(3), free(3), mmap(2) and fork(2) would be bound to
//! libc's functions, and libc's free would get blocks of the far heap, and end the program. PHP opens its extensions so. What is lost is that the
//! library's definitions are preferred to the program's where both have the same name; a message says so.
//!
//! A function of libc's that a program asks for by a handle of libc, as Python's ctypes and Java's foreign functions do, is ours where we have it:
//! the one to which the program's own calls are bound. What libc and this library ask for is libc's, and so is what a program or another
//! library defines as well: the one that asks may be that definition, which passes its calls on.

use super::next_symbol::Next;
use crate::caller;
use hinterland_sys::thread;
use hinterland_units::Foreign;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Relaxed};

static NEXT_DLOPEN: Next = Next::new(c"dlopen");
#[used]
#[unsafe(link_section = "hinterland_next")]
static LISTED: &Next = &NEXT_DLOPEN;

/// The flags that are passed on: all, as long as the program's heap is libc's.
static FLAGS: AtomicI32 = AtomicI32::new(!0);

/// From now on every library is bound to our functions.
pub(crate) fn bind_to_ours() {
    FLAGS.store(!libc::RTLD_DEEPBIND, Relaxed);
}

extern "C" fn next_dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    let loads = flags & libc::RTLD_NOLOAD == 0;
    if loads && flags & !FLAGS.load(Relaxed) != 0 && !file.is_null() {
        // SAFETY: dlopen's contract.
        say_without_deepbind(unsafe { CStr::from_ptr(file) });
    }
    NEXT_DLOPEN.find()
}

/// Once: programs that open one library so open them all. It may yet not be found.
fn say_without_deepbind(file: &CStr) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        thread::write_stderr(&format!(
            "hinterland: {} is to be opened without RTLD_DEEPBIND, because its calls of malloc must lead to Hinterland's: where it and the program define \
             the same name, it uses the program's\n",
            Foreign(&file.to_string_lossy())
        ));
    }
}

/// libc's dlsym(3), which cannot be looked up by itself.
extern "C" fn next_dlsym() -> *mut c_void {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let found = FOUND.load(Relaxed);
    if !found.is_null() {
        return found;
    }
    // Where it has been since libdl is part of libc, and its first place.
    let versions = [c"GLIBC_2.34", c"GLIBC_2.2.5"];
    // SAFETY: both names are C strings.
    let look_up = |version: &CStr| unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
    let found = versions.into_iter().map(look_up).find(|found| !found.is_null());
    let found = found.expect("libc has a dlsym of one of these versions on x86-64");
    FOUND.store(found, Relaxed);
    found
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// What a handle leads to; `next` is libc's dlsym.
unsafe extern "C" fn by_handle(
    handle: *mut c_void,
    name: *const c_char,
    next: Dlsym,
    return_address: usize,
) -> *mut c_void {
    // SAFETY: dlsym's contract. libc looks at its caller for none but the handles that do not come here.
    let found = unsafe { next(handle, name) };
    // Nor for a second libc's (dlmopen), which has a heap of its own.
    if crate::pager().is_none() || !caller::is_internal(found as usize) || caller::is_internal(return_address) {
        return found;
    }
    // SAFETY: as above; libc looks at its caller, this library. Both are found: libc is in this scope, too.
    let (bound, behind_ours) = unsafe { (next(libc::RTLD_DEFAULT, name), next(libc::RTLD_NEXT, name)) };
    // Another definition, before or behind ours, may be what a library makes of libc's: ours would lead it back to itself.
    if caller::is_internal(bound as usize) && behind_ours == found { bound } else { found }
}

/// The code of a function that takes two arguments: looks libc's up, by `$next`, which gets both, and goes on with that in `rax` and with the caller's return
/// address, by which libc knows whose search path counts, and in which namespace.
macro_rules! goes_on_in_libc {
    ($next:ident, $($line:literal),+; $($operand:tt)+) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 24",
            "call {next}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            ".cfi_adjust_cfa_offset -24",
            $($line,)+
            "jmp rax",
            ".cfi_endproc",
            next = sym $next,
            $($operand)+
        )
    };
}

/// In libc's for `RTLD_NEXT` (-1) and `RTLD_DEFAULT` (0), for which the return address counts.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    goes_on_in_libc!(
        next_dlsym,
        "lea rcx, [rdi + 1]",
        "cmp rcx, 1",
        "jbe 2f",
        "mov rdx, rax",
        "mov rcx, qword ptr [rsp]",
        "jmp {by_handle}",
        "2:";
        by_handle = sym by_handle
    )
}

/// In libc's, without the flags that are not passed on.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    goes_on_in_libc!(next_dlopen, "and esi, dword ptr [rip + {flags}]"; flags = sym FLAGS)
}
