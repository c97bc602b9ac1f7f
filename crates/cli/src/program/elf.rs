//! Whether the dynamic loader would preload a library into an ELF file, and whether the two could live together.
//!
//! Only the parts that answer this are read (headers, dynamic section, hash table), so a browser of 200 MB costs no more
//! than `true`. A file without section headers is judged by its program headers alone.

use super::{Unmanageable, Verdict};
use object::elf::{self, FileHeader64};
use object::endian::Endianness;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionTable};
use object::{FileKind, ReadCache};
use std::fs::File;
use std::path::Path;

type Header = FileHeader64<Endianness>;
type Cache = ReadCache<File>;

/// The machine that Hinterland itself is built for.
#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: u16 = elf::EM_X86_64.0;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: u16 = elf::EM_AARCH64.0;

/// Symbols that only a sanitizer's runtime defines, for the case that it is linked into the program.
const SANITIZER_SYMBOLS: [(&str, &str); 4] = [
    ("__asan_init", "AddressSanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
];

/// Libraries that carry a sanitizer's runtime (gcc's names, then clang's).
const SANITIZER_LIBRARIES: [(&str, &str); 7] = [
    ("libasan.", "AddressSanitizer"),
    ("libtsan.", "ThreadSanitizer"),
    ("libhwasan.", "HWAddressSanitizer"),
    ("libclang_rt.asan", "AddressSanitizer"),
    ("libclang_rt.tsan", "ThreadSanitizer"),
    ("libclang_rt.msan", "MemorySanitizer"),
    ("libclang_rt.hwasan", "HWAddressSanitizer"),
];

/// Judges the ELF file.
pub fn judge(path: &Path) -> Verdict {
    let unknown = |what: &dyn std::fmt::Display| Verdict::Unknown(format!("{}: {what}", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return unknown(&error),
    };
    let cache = ReadCache::new(file);
    match inspect(path, &cache) {
        Ok(None) => Verdict::Manageable,
        Ok(Some(why)) => Verdict::Unmanageable(why),
        Err(error) => unknown(&error),
    }
}

fn inspect(path: &Path, cache: &Cache) -> object::Result<Option<Unmanageable>> {
    let path_owned = || path.to_owned();
    if FileKind::parse(cache)? == FileKind::Elf32 {
        return Ok(Some(Unmanageable::Bits32(path_owned())));
    }
    let header = Header::parse(cache)?;
    let endian = header.endian()?;
    let machine = header.e_machine(endian);
    if machine.0 != OWN_MACHINE {
        return Ok(Some(Unmanageable::ForeignMachine { path: path_owned(), machine: machine_name(machine.0) }));
    }
    let mut loader = None;
    for segment in header.program_headers(endian, cache)? {
        if let Some(bytes) = segment.interpreter(endian, cache)? {
            loader = Some(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned());
        }
    }
    let loader_name = |loader: &str| loader.rsplit('/').next().unwrap_or_default().to_owned();
    match loader.as_deref().map(loader_name) {
        // The loader itself may be the program: `ld-linux-x86-64.so.2 ./program` preloads as usual.
        None if is_glibc_loader(&loader_name(&path.to_string_lossy())) => {}
        None => return Ok(Some(Unmanageable::Static(path_owned()))),
        Some(name) if name.starts_with("ld-musl") => return Ok(Some(Unmanageable::Musl(path_owned()))),
        Some(name) if is_glibc_loader(&name) => {}
        Some(_) => {
            let loader = loader.unwrap_or_default();
            return Ok(Some(Unmanageable::OtherLoader { path: path_owned(), loader }));
        }
    }
    let found = sanitizer(header, endian, cache)?;
    Ok(found.map(|sanitizer| Unmanageable::Sanitizer { path: path_owned(), sanitizer }))
}

fn is_glibc_loader(name: &str) -> bool {
    name.starts_with("ld-linux") || name.starts_with("ld64.so")
}

/// The sanitizer that the program is built with.
fn sanitizer(header: &Header, endian: Endianness, cache: &Cache) -> object::Result<Option<&'static str>> {
    let sections = header.sections(endian, cache)?;
    let Some((entries, link)) = sections.dynamic(endian, cache)? else { return Ok(None) };
    let strings = sections.strings(endian, cache, link)?;
    let mut before_init = false;
    for entry in entries {
        if entry.d_tag(endian) == elf::DT_NEEDED {
            let name = entry.string(endian, strings).unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            if let Some((_, found)) = SANITIZER_LIBRARIES.iter().find(|(library, _)| name.starts_with(library)) {
                return Ok(Some(found));
            }
        }
        before_init |= entry.d_tag(endian) == elf::DT_PREINIT_ARRAY;
    }
    // A runtime linked into the program runs before everything else, which hardly any other program asks for; only then are
    // the symbol tables worth reading.
    if before_init { linked_in(&sections, endian, cache) } else { Ok(None) }
}

/// The sanitizer whose runtime is part of the program itself.
fn linked_in<'a>(
    sections: &SectionTable<'a, Header, &'a Cache>,
    endian: Endianness,
    cache: &'a Cache,
) -> object::Result<Option<&'static str>> {
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let symbols = sections.symbols(endian, cache, kind)?;
        for symbol in symbols.iter() {
            let name = symbols.symbol_name(endian, symbol).unwrap_or_default();
            if let Some((_, found)) = SANITIZER_SYMBOLS.iter().find(|(symbol, _)| symbol.as_bytes() == name) {
                return Ok(Some(found));
            }
            // Left over in a stripped program: the hooks that an allocator with a sanitizer's face calls.
            if name == b"__sanitizer_malloc_hook" {
                return Ok(Some("a sanitizer"));
            }
        }
    }
    Ok(None)
}

fn machine_name(machine: u16) -> String {
    let names = [
        (elf::EM_X86_64.0, "x86-64"),
        (elf::EM_AARCH64.0, "AArch64"),
        (elf::EM_RISCV.0, "RISC-V"),
        (elf::EM_PPC64.0, "PowerPC 64"),
        (elf::EM_S390.0, "S/390"),
    ];
    names
        .iter()
        .find(|(number, _)| *number == machine)
        .map_or_else(|| format!("ELF machine {machine}"), |(_, name)| (*name).to_owned())
}
