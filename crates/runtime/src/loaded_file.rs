//! Which loaded file code belongs to: asked of glibc's `_dl_find_object` (2.35), which takes no lock and may be called in a signal handler.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `struct dl_find_object` of <dlfcn.h>.
#[repr(C)]
#[derive(Default)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    link_map: usize,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// The beginning of `struct link_map` of <link.h>.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
}

type Find = unsafe extern "C" fn(*const c_void, *mut Found) -> c_int;

/// `None`: the program's libc is older.
static FIND: OnceLock<Option<Find>> = OnceLock::new();

/// A loaded file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadedFile {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// The loader's entry: tells it from another file at the same place.
    pub link_map: usize,
    /// Its `.eh_frame_hdr`; 0: it has none.
    pub eh_frame_hdr: usize,
}

/// Before threads and far memory: symbols can still be resolved. False: the program's libc is older.
pub fn init() -> bool {
    let find = FIND.get_or_init(|| {
        // SAFETY: the name is a C string.
        let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: the function of this name has this type.
        (!find.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Find>(find) })
    });
    find.is_some()
}

impl LoadedFile {
    /// The one that an address lies in.
    pub fn of(address: usize) -> Option<LoadedFile> {
        let mut found = Found::default();
        // SAFETY: glibc's function, with room for its answer.
        let rc = unsafe { FIND.get().copied().flatten()?(address as *const c_void, &raw mut found) };
        let Found { start, end, link_map, eh_frame, .. } = found;
        (rc == 0 && link_map != 0).then_some(LoadedFile { start, end, link_map, eh_frame_hdr: eh_frame })
    }

    /// What is added to the addresses in the file.
    pub fn bias(&self) -> usize {
        // SAFETY: the loader's entry of an object that is loaded; its memory is libc's own, so it is near.
        unsafe { (self.link_map as *const LinkMap).read() }.bias
    }

    /// Its path as the loader has it; empty: it is the program.
    pub fn path(&self) -> &CStr {
        // SAFETY: as above; the loader's names are C strings or null.
        unsafe {
            let name = (self.link_map as *const LinkMap).read().name;
            if name.is_null() { c"" } else { CStr::from_ptr(name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_known_by_its_file() {
        assert!(init());
        let own = LoadedFile::of(init as *const () as usize).unwrap();
        assert!(own.eh_frame_hdr != 0 && own.path().is_empty(), "{own:?} {:?}", own.path());
        let libc = LoadedFile::of(libc::qsort as *const () as usize).unwrap();
        assert_ne!(libc.start, own.start);
        assert!(libc.path().to_bytes().ends_with(b"/libc.so.6") && libc.bias() == libc.start);
        let local = 0;
        assert_eq!(LoadedFile::of(&raw const local as usize), None, "a stack is no file");
    }
}
