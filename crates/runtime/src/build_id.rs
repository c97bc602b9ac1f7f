//! Build-ids of loaded files: what tells a program from another version of it. They are read from memory (elf(5)), where the file that runs is, whatever
//! has its name now.

use hinterland_units::PAGE_BYTES;
use std::ops::Range;

/// Bytes of a program header.
const HEADER_BYTES: usize = 56;

/// The build-id in the notes of a file that is loaded there, from its first byte on.
pub fn of_object(place: Range<usize>) -> Option<&'static [u8]> {
    let header = bytes(&place, place.start, 64).filter(|header| header.starts_with(b"\x7fELF"))?;
    let (table, size, count) = (long(header, 32)?, half(header, 54)?, half(header, 56)?);
    let segments: Vec<&[u8]> =
        (0..count).filter_map(|index| bytes(&place, place.start + table + index * size, size)).collect();
    let first = segments.iter().find(|segment| word(segment, 0) == Some(libc::PT_LOAD))?;
    let bias = place.start - (long(first, 16)? & !(PAGE_BYTES - 1));
    in_notes(&segments, bias, &place)
}

/// The build-id of the program, hexadecimal; empty: it has none.
pub fn of_program() -> String {
    let id = program_notes().unwrap_or_default();
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn program_notes() -> Option<&'static [u8]> {
    // SAFETY: getauxval(3) takes a number and returns one.
    let auxiliary = |of| usize::try_from(unsafe { libc::getauxval(of) }).ok();
    let (table, size) = (auxiliary(libc::AT_PHDR)?, auxiliary(libc::AT_PHENT)?);
    let count = auxiliary(libc::AT_PHNUM)?;
    if table == 0 || size < HEADER_BYTES {
        return None;
    }
    let place = table..table + count * size;
    let segments: Vec<&[u8]> = (0..count).filter_map(|index| bytes(&place, table + index * size, size)).collect();
    let of = |kind: u32| segments.iter().filter(move |segment| word(segment, 0) == Some(kind));
    // Where its headers are, and where they would be if it began at zero.
    let bias = table.wrapping_sub(long(of(libc::PT_PHDR).next()?, 16)?);
    let loaded: Vec<Range<usize>> = of(libc::PT_LOAD)
        .filter_map(|segment| {
            let start = bias.wrapping_add(long(segment, 16)?);
            Some(start..start.checked_add(long(segment, 32)?)?)
        })
        .collect();
    loaded.iter().find_map(|place| in_notes(&segments, bias, place))
}

/// The build-id in those notes that lie in a place.
fn in_notes(segments: &[&[u8]], bias: usize, place: &Range<usize>) -> Option<&'static [u8]> {
    const NOTE_TYPE: u32 = 3; // NT_GNU_BUILD_ID
    segments.iter().filter(|segment| word(segment, 0) == Some(libc::PT_NOTE)).find_map(|segment| {
        let mut notes = bytes(place, bias.wrapping_add(long(segment, 16)?), long(segment, 32)?)?;
        let align = if long(segment, 48)? == 8 { 8 } else { 4 };
        while notes.len() >= 12 {
            let (name, value, kind) = (word(notes, 0)? as usize, word(notes, 4)? as usize, word(notes, 8)?);
            let start = (12 + name).next_multiple_of(align);
            if kind == NOTE_TYPE && notes.get(12..16) == Some(b"GNU\0") {
                return notes.get(start..start + value);
            }
            notes = notes.get((start + value).next_multiple_of(align)..).unwrap_or_default();
        }
        None
    })
}

/// Bytes of a loaded file, if they lie in the place of it.
fn bytes(place: &Range<usize>, start: usize, len: usize) -> Option<&'static [u8]> {
    let inside = start >= place.start && start.checked_add(len)? <= place.end;
    // SAFETY: the file's headers and notes are loaded, readable, and stay while its code runs.
    inside.then(|| unsafe { std::slice::from_raw_parts(start as *const u8, len) })
}

fn half(from: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(from.get(at..at + 2)?.try_into().ok()?)))
}

fn word(from: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(from.get(at..at + 4)?.try_into().ok()?))
}

fn long(from: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(from.get(at..at + 8)?.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_the_program_is_the_one_in_its_file() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        // The file's notes are at the same place from its beginning as the program's in memory: rustc's linkers load them with the first segment.
        let start = file.as_ptr().addr();
        let id: Option<String> =
            of_object(start..start + file.len()).map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect());
        assert_eq!(of_program(), id.unwrap_or_default());
        assert!(!of_program().is_empty(), "this test is linked with a build-id");
    }
}
