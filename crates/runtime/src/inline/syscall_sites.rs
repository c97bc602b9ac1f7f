//! System-call instructions in the text of libc and of other objects.
//!
//! A `syscall` instruction (0f 05) of libc whose number is wanted becomes `ud2` (0f 0b): then it is a SIGILL, and the call is
//! made by `trap`. That is how libc's internal calls are seen: those whose pointers lie behind pointers, or that carry signal
//! masks. The two commonest signal calls become jumps instead (`jump`). The patches are in this process's copy of the text, and gone with exec.
//!
//! Which bytes are instructions is found by decoding the function around them from its beginning, which the table in
//! `.eh_frame_hdr` gives. The number is what was last moved into eax, or every number that the function moves there (`scan`).
//!
//! Source: System V ABI (x86-64), Linux Standard Base 10.6 (exception frames).

mod decode;
mod direct_syscalls;
mod edit;
mod elf;
mod jump;
mod patch;
mod redirect;
mod scan;

pub(crate) use direct_syscalls::{DirectSyscalls, first_direct_syscall, go_object};
pub(crate) use patch::{Plan, SitesError, is_patched};
pub(crate) use redirect::{RedirectError, Redirects, begin_child};

use elf::{Image, Kind};
use std::ffi::CStr;

/// Whether the program's own file calls a function of this name in another object.
pub(crate) fn program_imports(name: &CStr) -> bool {
    elf::program_imports(name)
}

/// Loaded objects that were compiled for a newer version of the hints' interface, with that version.
pub(crate) fn newer_hints(known: u32) -> impl Iterator<Item = (String, u32)> {
    let newer = move |image: &Image| image.hints_version.filter(|version| *version > known);
    elf::images().into_iter().filter_map(move |image| newer(&image).map(|version| (image.display_name(), version)))
}

/// Bytes of `syscall`, and of `ud2`.
pub(crate) const SITE_BYTES: usize = 2;
const SYSCALL: [u8; SITE_BYTES] = [0x0f, 0x05];
const UD2: [u8; SITE_BYTES] = [0x0f, 0x0b];

/// libc.
fn libc_image() -> Option<Image> {
    elf::images().into_iter().find(|image| image.kind == Kind::Libc)
}

#[cfg(test)]
mod tests;
