//! Whether a call comes from libc or ld.so: memory that they allocate for themselves stays near. The copy of the
//! program's array that qsort(3) makes is far, because it is as large as the array.
//!
//! An interposed function knows its caller by the return address. The executable segments of libc, ld.so, the libraries
//! that older glibc split off, and this library itself are found once, before any memory is far. glibc and ld.so are
//! never unloaded, so the table never changes.

use crate::loaded_file::LoadedFile;
use libc::{c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A range of addresses; empty until it is set.
struct Range {
    start: AtomicUsize,
    len: AtomicUsize,
}

impl Range {
    const fn empty() -> Range {
        Range { start: AtomicUsize::new(0), len: AtomicUsize::new(0) }
    }

    fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.load(Relaxed)) < self.len.load(Relaxed)
    }

    fn set(&self, start: usize, end: usize) {
        self.start.store(start, Relaxed);
        self.len.store(end - start, Relaxed);
    }

    /// Widens the range so that it holds `start .. end` too.
    fn widen(&self, start: usize, end: usize) {
        match (self.start.load(Relaxed), self.len.load(Relaxed)) {
            (_, 0) => self.set(start, end),
            (old, len) => self.set(old.min(start), (old + len).max(end)),
        }
    }
}

/// Text of libc, ld.so, this library; then of what older glibc split off.
static INTERNAL: [Range; 8] = [const { Range::empty() }; 8];
/// Text of qsort_r(3), which qsort(3) calls, too.
static SORT: Range = Range::empty();
/// The program's own image, and everything between the lowest and the highest library.
static IMAGES: [Range; 2] = [const { Range::empty() }; 2];

/// Libraries whose allocations are libc's own. libm allocates nothing; name-service modules call through libc.
const OWN_NAMES: [&[u8]; 6] = [
    b"libc.so.6",
    b"ld-linux-x86-64.so.2",
    b"libpthread.so.0",
    b"libdl.so.2",
    b"librt.so.1",
    b"libc_malloc_debug.so.0",
];

/// How far a near jump reaches: memory that a program wants "near its code" lies within this distance.
const NEAR_JUMP_BYTES: usize = 1 << 31;

/// Whether the code at `return_address` belongs to libc, ld.so or this library, and allocates for itself.
#[inline]
pub fn is_internal(return_address: usize) -> bool {
    INTERNAL.iter().any(|range| range.contains(return_address)) && !SORT.contains(return_address)
}

/// Whether an address lies in the program's own file.
pub fn is_in_program(address: usize) -> bool {
    IMAGES[0].contains(address)
}

/// What an address of code is called: by its place in the program's file or in a library's; in neither, as a compiler's at run time, by
/// itself. Any thread may ask at any moment.
pub fn name(address: usize) -> String {
    let program = &IMAGES[0];
    if program.contains(address) {
        return format!("program+{:#x}", address - program.start.load(Relaxed));
    }
    let Some(file) = LoadedFile::of(address) else { return format!("{address:#x}") };
    let path = String::from_utf8_lossy(file.path().to_bytes());
    format!("{}+{:#x}", path.rsplit('/').next().unwrap_or(&path), address.wrapping_sub(file.bias()))
}

/// Whether an address is within reach of a near jump from the program or a library.
pub fn is_near_code(address: usize) -> bool {
    IMAGES.iter().any(|image| {
        let (start, len) = (image.start.load(Relaxed), image.len.load(Relaxed));
        len != 0 && address >= start.saturating_sub(NEAR_JUMP_BYTES) && address < start + len + NEAR_JUMP_BYTES
    })
}

/// Finds the text of libc, ld.so and this library. Called once, before any memory is far.
pub fn init() {
    let mut used = 0usize;
    // SAFETY: `note_object` has the type that libc wants, and `used` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note_object), (&raw mut used).cast()) };
    assert!(used >= 2, "neither libc nor ld.so was found among the loaded objects");
    if let Some((start, bytes)) = function(c"qsort_r") {
        SORT.set(start, start + bytes);
    }
}

unsafe extern "C" {
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, flags: c_int) -> c_int;
}

/// Address and size of a function of libc's: dladdr1(3).
fn function(name: &CStr) -> Option<(usize, usize)> {
    /// `RTLD_DL_SYMENT`: the symbol, too.
    const SYMBOL: c_int = 1;
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let mut symbol = std::ptr::null_mut();
    // SAFETY: the name is a C string, and both answers have room; a symbol stays where it is as long as its library does.
    unsafe {
        let address = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        let found = !address.is_null() && dladdr1(address, info.as_mut_ptr(), &raw mut symbol, SYMBOL) != 0;
        let symbol = symbol.cast::<libc::Elf64_Sym>();
        (found && !symbol.is_null()).then(|| (address.addr(), usize::try_from((*symbol).st_size).unwrap_or(0)))
    }
}

unsafe extern "C" fn note_object(info: *mut dl_phdr_info, _: size_t, used: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid object and our counter.
    let (info, used) = unsafe { (&*info, &mut *used.cast::<usize>()) };
    // SAFETY: the object's name is null or a C string, its program headers an array of that length.
    let (name, headers) = unsafe {
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        (name.to_bytes(), std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let segments = headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(|h| {
        let start = usize::try_from(info.dlpi_addr.wrapping_add(h.p_vaddr)).unwrap_or(usize::MAX);
        (start, start.saturating_add(usize::try_from(h.p_memsz).unwrap_or(usize::MAX)), h.p_flags & libc::PF_X != 0)
    });
    let own =
        OWN_NAMES.contains(&base) || segments.clone().any(|(s, e, _)| (s..e).contains(&(init as *const () as usize)));
    for (start, end, executable) in segments {
        if name.is_empty() {
            IMAGES[0].widen(start, end);
        } else if !name.starts_with(b"linux-vdso") {
            IMAGES[1].widen(start, end);
        }
        if own && executable && *used < INTERNAL.len() {
            INTERNAL[*used].set(start, end);
            *used += 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_is_internal_and_its_neighbourhood_near_code() {
        init();
        // SAFETY: the name is a C string.
        let in_libc = unsafe { libc::dlsym(libc::RTLD_NEXT, c"getline".as_ptr()) } as usize;
        assert!(is_internal(in_libc) && is_near_code(in_libc));
        let (sort, bytes) = function(c"qsort_r").unwrap();
        assert!(bytes > 64 && !is_internal(sort) && !is_internal(sort + bytes - 1), "{bytes} bytes");
        assert!(is_internal(sort - 1) && is_internal(sort + bytes), "its neighbours are libc's");
        let on_the_stack = 0;
        assert!(!is_internal(&raw const on_the_stack as usize), "a stack address is nobody's text");
        assert!(is_near_code(init as *const () as usize));
        assert!(!is_near_code(hinterland_pager::FAR_BASE));
        assert!(crate::loaded_file::init());
        let [own, libc] = [init as *const () as usize, in_libc].map(name);
        assert!(own.starts_with("program+0x") && libc.starts_with("libc.so.6+0x"), "{own} {libc}");
        assert_eq!(name(hinterland_pager::FAR_BASE), "0x480000000000");
    }
}
