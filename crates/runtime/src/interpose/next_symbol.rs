//! The next definition of a name: libc's, or that of another preloaded library.
//!
//! All are looked up at the start of a managed program. Later, a look-up would take the loader's lock, and a thread of the
//! pager that waited for it would wait for a thread of the program that is in dlopen and waits for the pager.

use crate::errno;
use libc::c_void;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A name, and its next definition once that was looked up.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The definition's address: never null.
    #[inline]
    pub fn find(&self) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if found.is_null() { self.look_up() } else { found }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let _errno = errno::Preserved::new();
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let found = if found.is_null() { missing as extern "C" fn() -> isize as *mut c_void } else { found };
        self.found.store(found, Relaxed);
        found
    }
}

unsafe extern "C" {
    /// The linker's names for the ends of the section that `next!` fills.
    #[link_name = "__start_hinterland_next"]
    static FIRST: usize;
    #[link_name = "__stop_hinterland_next"]
    static END: usize;
}

/// Looks all of them up.
pub fn look_all_up() {
    // SAFETY: both are addresses in one array of references that the linker made of the section.
    let all = unsafe {
        let (first, end) = ((&raw const FIRST).cast::<&'static Next>(), (&raw const END).cast::<&'static Next>());
        std::slice::from_raw_parts(first, usize::try_from(end.offset_from(first)).unwrap_or(0))
    };
    for next in all {
        next.find();
    }
}

/// What an older libc does not have.
extern "C" fn missing() -> isize {
    errno::set(libc::ENOSYS);
    -1
}

/// The next definition of a function, as a function of the given type.
macro_rules! next {
    ($name:ident: $type:ty) => {{
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeros"),
            };
        static NEXT: $crate::interpose::next_symbol::Next = $crate::interpose::next_symbol::Next::new(NAME);
        #[used]
        #[unsafe(link_section = "hinterland_next")]
        static LISTED: &$crate::interpose::next_symbol::Next = &NEXT;
        // SAFETY: a function of that name has this type, by its manual.
        unsafe { std::mem::transmute::<*mut libc::c_void, $type>(NEXT.find()) }
    }};
}
pub(crate) use next;
