//! Changing bytes of an object's text: all of them or none.

use super::patch::SitesError;
use hinterland_sys::mem;
use hinterland_sys::thread::SignalsBlocked;
use hinterland_units::PAGE_BYTES;
use std::ops::Range;

/// The longest change.
const BYTES_MAX: usize = 16;

/// One change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit {
    at: usize,
    len: usize,
    old: [u8; BYTES_MAX],
    new: [u8; BYTES_MAX],
}

impl Edit {
    /// `old` becomes `new`, of the same length.
    pub fn new(at: usize, old: &[u8], new: &[u8]) -> Edit {
        assert!(old.len() == new.len() && new.len() <= BYTES_MAX, "no change of {} bytes", new.len());
        let padded = |bytes: &[u8]| std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0));
        Edit { at, len: new.len(), old: padded(old), new: padded(new) }
    }

    /// Whether these bytes are there. The text is readable.
    fn holds(&self, bytes: &[u8; BYTES_MAX]) -> bool {
        // SAFETY: `write` has checked that the place is text.
        (0..self.len).all(|index| unsafe { ((self.at + index) as *const u8).read_volatile() } == bytes[index])
    }

    /// Puts bytes there. The text is writable, and no thread runs it.
    fn put(&self, bytes: &[u8; BYTES_MAX]) {
        for (index, byte) in bytes[..self.len].iter().enumerate() {
            // SAFETY: `write` has checked that the place is text, and made it writable.
            unsafe { ((self.at + index) as *mut u8).write_volatile(*byte) };
        }
    }
}

/// Makes all changes, which do not overlap, in one segment of `text`. Only for the one thread of a process. Returns the bytes of
/// memory that are the process's own now.
pub(super) fn write(edits: &mut [Edit], text: &[Range<usize>]) -> Result<usize, SitesError> {
    edits.sort_unstable_by_key(|edit| edit.at);
    let (Some(first), Some(last)) = (edits.first(), edits.last()) else { return Err(SitesError::NothingFound) };
    let start = first.at & !(PAGE_BYTES - 1);
    let end = (last.at + last.len).next_multiple_of(PAGE_BYTES);
    let inside = |range: &Range<usize>| range.start <= first.at && last.at + last.len <= range.end;
    if !text.iter().any(inside) {
        return Err(SitesError::Changed(first.at));
    }
    if let Some(changed) = edits.iter().find(|edit| !edit.holds(&edit.old)) {
        return Err(SitesError::Changed(changed.at));
    }
    let pages = pages_of(edits);
    let _no_handler_of_the_programs = SignalsBlocked::new();
    // Executable all the while: this code itself may call libc.
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    mem::protect(start, end - start, executable | libc::PROT_WRITE)?;
    edits.iter().for_each(|edit| edit.put(&edit.new));
    let wrong = edits.iter().find(|edit| !edit.holds(&edit.new)).map(|edit| edit.at);
    if wrong.is_some() {
        edits.iter().for_each(|edit| edit.put(&edit.old));
    }
    mem::protect(start, end - start, executable)?;
    wrong.map_or(Ok(pages * PAGE_BYTES), |at| Err(SitesError::Changed(at)))
}

/// Makes sure that a page of text may be made writable and executable again. Only for the one thread of a process.
pub(super) fn try_page(address: usize) -> Result<(), SitesError> {
    let page = address & !(PAGE_BYTES - 1);
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    mem::protect(page, PAGE_BYTES, executable | libc::PROT_WRITE)?;
    Ok(mem::protect(page, PAGE_BYTES, executable)?)
}

fn pages_of(edits: &[Edit]) -> usize {
    let mut pages: Vec<usize> = edits.iter().map(|edit| edit.at / PAGE_BYTES).collect();
    pages.dedup();
    pages.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_sys::Mapping;

    #[test]
    fn all_bytes_change_or_none() {
        let page = Mapping::anonymous(PAGE_BYTES).unwrap();
        let text = std::slice::from_ref(&(page.start..page.start + PAGE_BYTES)).to_vec();
        let edit = |at: usize, old: &[u8], new: &[u8]| Edit::new(page.start + at, old, new);
        let byte = |at: usize| {
            // SAFETY: inside the mapping.
            unsafe { ((page.start + at) as *const u8).read_volatile() }
        };
        let mut wrong = [edit(10, &[0, 0], &[1, 2]), edit(20, &[9], &[3])];
        assert!(matches!(write(&mut wrong, &text), Err(SitesError::Changed(at)) if at == page.start + 20));
        assert_eq!(byte(10), 0);
        let mut right = [edit(20, &[0], &[3]), edit(10, &[0, 0], &[1, 2])];
        assert_eq!(write(&mut right, &text).unwrap(), PAGE_BYTES);
        assert_eq!([byte(9), byte(10), byte(11), byte(20)], [0, 1, 2, 3]);
        let mut outside = [edit(10, &[1], &[0]), edit(PAGE_BYTES, &[0], &[1])];
        assert!(write(&mut outside, &text).is_err());
    }
}
