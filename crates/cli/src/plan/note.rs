//! The notes of a program's objects: with which plans they were compiled (`compiler/src/interface.cpp` writes them).

use crate::encode::hexadecimal;
use object::elf::FileHeader64;
use object::endian::Endianness;
use object::read::elf::{FileHeader, SectionHeader};
use object::{FileKind, ReadCache};
use std::fs::File;
use std::path::Path;

type Header = FileHeader64<Endianness>;

/// Whose notes they are, and of which type.
const OWNER: &[u8] = b"Hinterland";
const TYPE: u32 = 1;
/// The version of the interface stands before the digest.
const VERSION_BYTES: usize = 4;

/// The digests of the plans that a program's objects were compiled with, each once; zeros: without one. `None`: the file is no program, or
/// cannot be read.
pub fn digests(program: &Path) -> Option<Vec<String>> {
    let cache = ReadCache::new(File::open(program).ok()?);
    if FileKind::parse(&cache).ok()? != FileKind::Elf64 {
        return None;
    }
    read(&cache).ok()
}

fn read(cache: &ReadCache<File>) -> object::Result<Vec<String>> {
    let header = Header::parse(cache)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, cache)?;
    let mut digests = Vec::new();
    for section in sections.iter() {
        let Some(mut notes) = section.notes(endian, cache)? else { continue };
        while let Some(note) = notes.next()? {
            let Some(digest) = note.desc().get(VERSION_BYTES..) else { continue };
            let digest = hexadecimal(digest);
            if note.name() == OWNER && note.n_type(endian).0 == TYPE && !digests.contains(&digest) {
                digests.push(digest);
            }
        }
    }
    Ok(digests)
}
