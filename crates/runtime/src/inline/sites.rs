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

mod edit;
mod elf;
mod jump;
mod patch;
mod scan;

pub(crate) use patch::{SitesError, is_patched, patch};
pub(crate) use scan::Numbers;

use elf::{Image, Kind};
use std::ops::Range;

/// Bytes of `syscall`, and of `ud2`.
pub(crate) const SITE_BYTES: usize = 2;
const SYSCALL: [u8; SITE_BYTES] = [0x0f, 0x05];
const UD2: [u8; SITE_BYTES] = [0x0f, 0x0b];

/// A `syscall` instruction outside of libc.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(dead_code, reason = "for the check that chooses the fault path")]
pub(crate) struct ForeignSite {
    /// The file that the object was loaded from.
    pub object: String,
    /// Where it is.
    pub address: usize,
    /// The calls that it makes.
    pub numbers: Numbers,
}

/// The `syscall` instructions of every loaded object but libc, ld.so, the kernel's own and this library. Text larger than
/// `text_bytes_max` in all is not looked at further; the second value says that all was.
///
/// Looks at the whole text of the program: about a millisecond for each 20 MiB, where it is in memory.
#[allow(dead_code, reason = "for the check that chooses the fault path")]
pub(crate) fn foreign_sites(text_bytes_max: usize) -> (Vec<ForeignSite>, bool) {
    let mut found = Vec::new();
    let mut left = text_bytes_max;
    for image in elf::images().into_iter().filter(|image| image.kind == Kind::Foreign) {
        let bytes = image.text.iter().map(Range::len).sum::<usize>();
        let Some(rest) = left.checked_sub(bytes) else { return (found, false) };
        left = rest;
        found.extend(scan::sites_of(&image, &|_| true).into_iter().map(|site| ForeignSite {
            object: image.name.clone(),
            address: site.address,
            numbers: site.numbers,
        }));
    }
    (found, true)
}

/// libc.
fn libc_image() -> Option<Image> {
    elf::images().into_iter().find(|image| image.kind == Kind::Libc)
}

#[cfg(test)]
mod tests;
