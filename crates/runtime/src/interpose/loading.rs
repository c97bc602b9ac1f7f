//! dlopen(3): a library that is opened with `RTLD_DEEPBIND` is opened without.
//!
//! With it, the library's own calls of malloc(3), free(3), mmap(2) and fork(2) would be bound to libc's functions, past ours: libc's free
//! would get blocks of the far heap, and end the program. PHP opens its extensions so. What is lost is that the library's definitions are
//! preferred to the program's where both have the same name.

use super::next_symbol::Next;
use libc::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

static NEXT: Next = Next::new(c"dlopen");
#[used]
#[unsafe(link_section = "hinterland_next")]
static LISTED: &Next = &NEXT;

/// The flags that are passed on: all, as long as the program's heap is libc's.
static FLAGS: AtomicI32 = AtomicI32::new(!0);

/// From now on every library is bound to our functions.
pub(crate) fn bind_to_ours() {
    FLAGS.store(!libc::RTLD_DEEPBIND, Relaxed);
}

extern "C" fn next() -> *mut c_void {
    NEXT.find()
}

/// Goes on in libc's with the caller's return address: by that libc knows whose search path counts, and in which namespace.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const libc::c_char, _flags: c_int) -> *mut c_void {
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
        "and esi, dword ptr [rip + {flags}]",
        "jmp rax",
        ".cfi_endproc",
        next = sym next,
        flags = sym FLAGS,
    )
}
