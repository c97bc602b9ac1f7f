//! The names that the program calls instead of libc's: the C edge, nothing else.
//!
//! Each function here translates C's conventions (null, -1, `errno`) and calls safe code. Functions that must know their
//! caller are naked: they pass the return address on as one more argument. Naked functions describe their frames themselves
//! (`.cfi_*`), or a backtrace would end there.
#![allow(clippy::missing_safety_doc, reason = "the contracts are those of the C functions of the same names")]
#![allow(missing_docs, reason = "documented in section 2 and 3 of the manual under the same names")]

#[cfg(not(feature = "local-only"))]
mod exec;
mod files;
mod heap;
#[cfg(not(feature = "local-only"))]
pub(crate) mod hints;
#[cfg(not(feature = "local-only"))]
mod intervals;
#[cfg(not(feature = "local-only"))]
mod io;
#[cfg(not(feature = "local-only"))]
pub(crate) mod limits;
#[cfg(not(feature = "local-only"))]
pub(crate) mod loading;
mod mappings;
#[cfg(not(feature = "local-only"))]
pub(crate) mod next_symbol;
#[cfg(not(feature = "local-only"))]
mod open;
#[cfg(not(feature = "local-only"))]
mod privileges;
#[cfg(not(feature = "local-only"))]
mod processors;
#[cfg(not(feature = "local-only"))]
mod signals;
#[cfg(not(feature = "local-only"))]
mod stat;
#[cfg(not(feature = "local-only"))]
pub(crate) mod thread_exit;
#[cfg(not(feature = "local-only"))]
mod thread_room;
#[cfg(not(feature = "local-only"))]
pub(crate) mod threads;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the naked entry points are written for x86-64");

/// Defines an exported function that passes its return address in `$register`, the argument after its last, and goes on
/// in `$inner`, whose result it returns. The stack is left as it was, so `$inner` finds it aligned as at any call.
macro_rules! with_caller {
    ($($name:ident => $inner:ident, $register:literal;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $register, ", [rsp]"),
                "jmp {inner}",
                ".cfi_endproc",
                inner = sym $inner
            )
        }
    )*};
}
pub use heap::reaches_the_program;
#[cfg(not(feature = "local-only"))]
pub(crate) use mappings::by_number;
use with_caller;
