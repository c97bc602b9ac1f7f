//! Loaded objects: their text, and the table of their functions.

use libc::{c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;
use std::ops::Range;

/// Whose code an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Libc,
    Loader,
    /// This library, and what the kernel brings.
    Own,
    /// The program and its libraries.
    Other,
}

/// A loaded object.
#[derive(Debug)]
pub(super) struct Image {
    /// The file's path; empty: the program.
    pub name: String,
    pub kind: Kind,
    /// Go's linker made it.
    pub is_go: bool,
    /// The version of the hints' interface that a part of it was compiled for: the newest.
    pub hints_version: Option<u32>,
    /// Its executable segments.
    pub text: Vec<Range<usize>>,
    functions: Option<Functions>,
}

/// The search table of `.eh_frame_hdr`: functions by address.
#[derive(Clone, Copy, Debug)]
struct Functions {
    /// Address of the header: what the entries count from.
    header: usize,
    /// Pairs of four-byte offsets: of a function's first byte and of its description, sorted.
    table: &'static [[i32; 2]],
    /// The object's loaded segment that holds the descriptions.
    descriptions: (usize, usize),
}

/// Whether the program's file (not its libraries) calls a function of this name in another object.
pub(super) fn program_imports(name: &CStr) -> bool {
    let mut asked = (name, false);
    // SAFETY: `look_for_import` has the type that libc wants, and `asked` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_for_import), (&raw mut asked).cast()) };
    asked.1
}

/// The first object that libc passes is the program; the answer ends the search.
unsafe extern "C" fn look_for_import(info: *mut dl_phdr_info, _: size_t, asked: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid object with its headers, and our question.
    let (info, headers, asked) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info, headers, &mut *asked.cast::<(&CStr, bool)>())
    };
    let base = usize::try_from(info.dlpi_addr).unwrap_or(0);
    if let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        let dynamic = base.wrapping_add(usize::try_from(header.p_vaddr).unwrap_or(0));
        // SAFETY: the dynamic section of a loaded object, which the loader has used.
        asked.1 = unsafe { Dynamic::read(dynamic, base) }.is_some_and(|dynamic| unsafe { dynamic.imports(asked.0) });
    }
    1
}

/// What the dynamic section says of relocations (ELF gABI, chapter 5): addresses and lengths in bytes.
#[derive(Default)]
struct Dynamic {
    names: usize,
    symbols: usize,
    relocations: [(usize, usize); 2],
}

impl Dynamic {
    /// Reads pairs of tag and value up to the end mark.
    ///
    /// # Safety
    /// There is a dynamic section of a loaded object at `at`.
    unsafe fn read(at: usize, base: usize) -> Option<Dynamic> {
        let mut dynamic = Dynamic::default();
        let mut at = at as *const [usize; 2];
        loop {
            // SAFETY: the caller's promise.
            let [tag, value] = unsafe { at.read() };
            // glibc makes addresses of offsets, in place.
            let address = if value < base { base + value } else { value };
            match tag {
                0 => break,                               // DT_NULL
                2 => dynamic.relocations[1].1 = value,    // DT_PLTRELSZ
                5 => dynamic.names = address,             // DT_STRTAB
                6 => dynamic.symbols = address,           // DT_SYMTAB
                7 => dynamic.relocations[0].0 = address,  // DT_RELA
                8 => dynamic.relocations[0].1 = value,    // DT_RELASZ
                23 => dynamic.relocations[1].0 = address, // DT_JMPREL
                _ => {}
            }
            // SAFETY: the end mark has not come.
            at = unsafe { at.add(1) };
        }
        (dynamic.names != 0 && dynamic.symbols != 0).then_some(dynamic)
    }

    /// Whether a relocation names an undefined symbol `name`.
    ///
    /// # Safety
    /// As for `read`.
    unsafe fn imports(&self, name: &CStr) -> bool {
        const RELOCATION_BYTES: usize = size_of::<libc::Elf64_Rela>();
        self.relocations.iter().filter(|(start, _)| *start != 0).any(|(start, bytes)| {
            // SAFETY: the loader has read these relocations, the symbols that they name, and those symbols' names.
            (0..bytes / RELOCATION_BYTES).any(|index| unsafe {
                let relocation = (start + index * RELOCATION_BYTES) as *const libc::Elf64_Rela;
                let symbol = usize::try_from((*relocation).r_info >> 32).unwrap_or(0);
                let symbol = &*(self.symbols as *const libc::Elf64_Sym).add(symbol);
                symbol.st_shndx == 0
                    && CStr::from_ptr((self.names as *const libc::c_char).add(symbol.st_name as usize)) == name
            })
        })
    }
}

/// Every loaded object. The loader's lock is held meanwhile.
pub(super) fn images() -> Vec<Image> {
    let mut found: Vec<Image> = Vec::new();
    // SAFETY: `note` has the type that libc wants, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn note(info: *mut dl_phdr_info, _: size_t, found: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid object and our vector; the name is null or a C string, the headers an array of that length.
    let (info, found, headers, name) = unsafe {
        let info = &*info;
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info, &mut *found.cast::<Vec<Image>>(), headers, name.to_string_lossy())
    };
    let place = |header: &libc::Elf64_Phdr| {
        let start = usize::try_from(info.dlpi_addr.wrapping_add(header.p_vaddr)).unwrap_or(usize::MAX);
        start..start.saturating_add(usize::try_from(header.p_memsz).unwrap_or(0))
    };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let text: Vec<_> = loaded.clone().filter(|header| header.p_flags & libc::PF_X != 0).map(place).collect();
    let this = images as *const () as usize;
    let kind = match name.rsplit('/').next().unwrap_or_default() {
        "libc.so.6" => Kind::Libc,
        "ld-linux-x86-64.so.2" => Kind::Loader,
        _ if name.starts_with("linux-vdso") || text.iter().any(|range| range.contains(&this)) => Kind::Own,
        _ => Kind::Other,
    };
    let header = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).map(place);
    let functions = header.and_then(|range| {
        let mut segments = loaded.clone().map(place);
        let segment = segments.find(|segment| segment.start <= range.start && range.end <= segment.end)?;
        // SAFETY: the header is loaded as part of this object, in this segment.
        unsafe { Functions::read(range, segment) }
    });
    let notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE).map(place);
    let notes = notes.filter(|range| {
        loaded.clone().map(place).any(|segment| segment.start <= range.start && range.end <= segment.end)
    });
    // SAFETY: the notes are loaded as part of this object: a loaded segment holds them.
    let notes = notes.flat_map(|range| unsafe { Notes::of(range) });
    let is_go = notes.clone().any(|note| note.name == b"Go\0\0");
    let hints_version = notes.filter_map(|note| note.hints_version()).max();
    found.push(Image { name: name.into_owned(), kind, is_go, hints_version, text, functions });
    0
}

/// One note of an object (ELF gABI, chapter 5).
struct Note {
    /// Its owner's, with the zero at its end.
    name: &'static [u8],
    kind: u32,
    content: &'static [u8],
}

impl Note {
    /// Of a note of code that gives hints: the version of the interface that it was compiled for. The digest of its plan follows.
    fn hints_version(&self) -> Option<u32> {
        const VERSION_AND_PLAN: u32 = 1;
        let is_so = self.name == b"Hinterland\0" && self.kind == VERSION_AND_PLAN;
        self.content.first_chunk().filter(|_| is_so).map(|version| u32::from_ne_bytes(*version))
    }
}

/// The notes of a segment: each has the lengths of its name and content, its kind, the name, the content.
#[derive(Clone)]
struct Notes(Range<usize>);

impl Notes {
    /// # Safety
    /// The range is readable as long as the notes are looked at.
    unsafe fn of(range: Range<usize>) -> Notes {
        Notes(range)
    }
}

impl Iterator for Notes {
    type Item = Note;

    fn next(&mut self) -> Option<Note> {
        const HEAD_BYTES: usize = 12;
        if self.0.len() < HEAD_BYTES {
            return None;
        }
        // SAFETY: `Notes::of`, and the head lies in the range.
        let [name_bytes, content_bytes, kind] = unsafe { (self.0.start as *const [u32; 3]).read_unaligned() };
        let name = self.0.start + HEAD_BYTES;
        let content = name + (name_bytes as usize).next_multiple_of(4);
        let end = content + content_bytes as usize;
        if end > self.0.end {
            self.0.start = self.0.end;
            return None;
        }
        self.0.start = end.next_multiple_of(4).min(self.0.end);
        // SAFETY: as above: both end in the range.
        let part = |start: usize, bytes: u32| unsafe { std::slice::from_raw_parts(start as *const u8, bytes as usize) };
        Some(Note { name: part(name, name_bytes), kind, content: part(content, content_bytes) })
    }
}

impl Functions {
    /// Reads a header with the encodings that all linkers use; `None`: another one.
    ///
    /// # Safety
    /// The range lies in the segment, which is readable as long as the process lives.
    unsafe fn read(range: Range<usize>, segment: Range<usize>) -> Option<Functions> {
        /// Version 1; a pointer of four signed bytes, relative; a count of four bytes; a table of pairs relative to the header.
        const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        const HEAD_BYTES: usize = 12;
        if range.len() < HEAD_BYTES || !range.start.is_multiple_of(4) {
            return None;
        }
        // SAFETY: the caller's promise; the range is long enough, and the table's length is checked against it.
        unsafe {
            let encodings = (range.start as *const [u8; 4]).read();
            let count = ((range.start + 8) as *const u32).read() as usize;
            if encodings != ENCODINGS || count > (range.len() - HEAD_BYTES) / size_of::<[i32; 2]>() {
                return None;
            }
            let table = std::slice::from_raw_parts((range.start + HEAD_BYTES) as *const [i32; 2], count);
            Some(Functions { header: range.start, table, descriptions: (segment.start, segment.end) })
        }
    }

    fn start(&self, index: usize) -> Option<usize> {
        let [offset, _] = self.table.get(index)?;
        Some(self.header.wrapping_add_signed(isize::try_from(*offset).ok()?))
    }

    /// The length of a function, if its description has the form that compilers give it: after the lengths and a way to what is common
    /// to several, the distance to the function and its length, of four bytes each.
    fn len(&self, index: usize) -> Option<usize> {
        const HEAD_BYTES: usize = 8;
        let [_, offset] = self.table.get(index)?;
        let at = self.header.wrapping_add_signed(isize::try_from(*offset).ok()?);
        let (first, end) = self.descriptions;
        if at < first || at + HEAD_BYTES + size_of::<[i32; 2]>() > end {
            return None;
        }
        // SAFETY: inside a segment of the object that is loaded and readable.
        let [distance, len] = unsafe { ((at + HEAD_BYTES) as *const [i32; 2]).read_unaligned() };
        let start = (at + HEAD_BYTES).wrapping_add_signed(isize::try_from(distance).ok()?);
        (self.start(index) == Some(start)).then(|| usize::try_from(len).ok()).flatten()
    }

    /// The function that holds an address: from its first byte to its last, or if that is not known to the next function's.
    fn around(&self, address: usize) -> Option<Range<usize>> {
        let after = self.table.partition_point(|[offset, _]| {
            let offset = isize::try_from(*offset).unwrap_or(isize::MAX);
            self.header.wrapping_add_signed(offset) <= address
        });
        let index = after.checked_sub(1)?;
        let start = self.start(index)?;
        let end = self.len(index).map(|len| start + len).filter(|end| address < *end);
        Some(start..end.unwrap_or_else(|| self.start(after).unwrap_or(usize::MAX)))
    }
}

impl Image {
    /// What messages call it.
    pub fn display_name(&self) -> String {
        if self.name.is_empty() { "the program".into() } else { self.name.clone() }
    }

    /// The text around an address that belongs to one function, as far as the object says.
    pub fn function_around(&self, address: usize) -> Option<Range<usize>> {
        let segment = self.text.iter().find(|range| range.contains(&address))?;
        let function = self.functions?.around(address)?;
        let start = function.start.max(segment.start);
        Some(start..function.end.min(segment.end)).filter(|range| range.contains(&address))
    }

    /// The text around an address that belongs to no function: from the end of the segment's part before it, whose functions are
    /// known, to the next function.
    pub fn gap_around(&self, address: usize) -> Option<Range<usize>> {
        let segment = self.text.iter().find(|range| range.contains(&address))?;
        let first = self.functions.and_then(|functions| functions.start(0)).unwrap_or(segment.end);
        let end = if first > address { first.min(segment.end) } else { segment.end };
        Some(segment.start..end)
    }

    /// The bytes of a part of the text.
    pub fn bytes(&self, range: Range<usize>) -> &'static [u8] {
        assert!(
            self.text.iter().any(|text| text.start <= range.start && range.end <= text.end),
            "not text: {range:x?}"
        );
        // SAFETY: part of an executable segment of a loaded object, which is readable too on this machine; libc and the program
        // are never unloaded, and others only while nobody scans them.
        unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) }
    }
}
