//! A pager that never pages: everything in the far range stays local. It has the real pager's face, so that the
//! interposition can be tested without userfaultfd, and a difference be blamed on the right half.

use hinterland_pager::{FAR_BASE, FAR_PAGES, NotReplaced, PinAccess};
use hinterland_sys::mem;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::io;
use std::sync::OnceLock;

/// See `hinterland_pager::Pager`; each method does at once what its namesake promises.
pub struct Pager {
    _private: (),
}

static PAGER: OnceLock<Pager> = OnceLock::new();

/// The pager, once the library is ready.
pub fn pager() -> Option<&'static Pager> {
    PAGER.get()
}

#[used]
#[unsafe(link_section = ".init_array.00099")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    if std::env::var_os("HINTERLAND_LOCAL").is_none() {
        return;
    }
    mem::Mapping::reserve_at(FAR_BASE, FAR_PAGES as usize * PAGE_BYTES).expect("the far range is free");
    crate::caller::init();
    crate::region_map::init();
    PAGER.get_or_init(|| Pager { _private: () });
    // SAFETY: functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    let heap = std::env::var("HINTERLAND_HEAP").unwrap_or_default();
    let mode = heap.parse().unwrap_or_default();
    crate::heap::init(mode, false).expect("the far heap can be set up");
}

extern "C" fn before_fork() {
    crate::region_map::lock_for_fork();
}

extern "C" fn after_fork() {
    crate::region_map::unlock_after_fork();
}

fn span(first: PageNo, count: u32) -> (usize, usize) {
    (FAR_BASE + first.index() * PAGE_BYTES, count as usize * PAGE_BYTES)
}

impl Pager {
    /// Nothing leaves.
    pub fn departs_by_move_only(&self) {}

    pub fn end_with(&self, message: &str) -> ! {
        panic!("{message}")
    }

    /// Nothing is counted.
    pub fn mapped_beyond(&self, _bytes: usize) {}

    pub fn discard(&self, first: PageNo, count: u32) {
        let (start, len) = span(first, count);
        // SAFETY: the interposition discards what the program gave up.
        unsafe { mem::drop_pages(start, len) }.expect("far pages can be dropped");
    }

    pub fn unmap(&self, first: PageNo, count: u32) {
        self.discard(first, count);
    }

    pub fn empty(&self, first: PageNo, count: u32) {
        self.discard(first, count);
    }

    pub fn drop_remote(&self, _: PageNo, _: u32) {}

    pub fn free_lazily(&self, _: PageNo, _: u32) {}

    pub fn freed(&self, _: PageNo, _: u32) {}

    pub fn reused(&self, _: PageNo, _: u32) {}

    pub fn zero(&self, first: PageNo, count: u32) {
        for page in 0..count {
            let (start, len) = span(PageNo(first.0 + page), 1);
            // Untouched pages read as zero already.
            let mut local = 0u8;
            // SAFETY: one page, one byte of answer.
            unsafe { libc::syscall(libc::SYS_mincore, start, len, &raw mut local) };
            if local & 1 != 0 {
                // SAFETY: the caller is the only user of these pages, and they are writable.
                unsafe { (start as *mut u8).write_bytes(0, len) };
            }
        }
    }

    pub fn relocate(&self, from: PageNo, to: PageNo, count: u32) {
        let ((from, len), (to, _)) = (span(from, count), span(to, count));
        // SAFETY: both are mapped, read-write and do not overlap.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(from as *const u8, len) };
        // SAFETY: the content has moved.
        unsafe { mem::drop_pages(from, len) }.expect("far pages can be dropped");
    }

    pub fn protect(&self, first: PageNo, count: u32, protection: i32) -> io::Result<()> {
        let (start, len) = span(first, count);
        Ok(mem::protect(start, len, protection)?)
    }

    /// The kernel alone decides.
    pub fn may_lock(&self, _: u32) -> bool {
        true
    }

    pub fn lock(&self, first: PageNo, count: u32, on_fault: bool) -> io::Result<()> {
        let (start, len) = span(first, count);
        Ok(mem::lock(start, len, on_fault)?)
    }

    pub fn with_pages(
        &self,
        first: PageNo,
        count: u32,
        _: PinAccess,
        call: impl Fn(usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let (start, len) = span(first, count);
        call(start, len)
    }

    pub fn unlock(&self, first: PageNo, count: u32) -> io::Result<()> {
        let (start, len) = span(first, count);
        Ok(mem::unlock(start, len)?)
    }

    pub fn is_escaped(&self) -> bool {
        false
    }

    pub fn refuse_escaped(&self) {}

    pub fn is_local(&self, page: PageNo) -> bool {
        let ((start, len), mut local) = (span(page, 1), 0u8);
        // SAFETY: one page, one byte of answer.
        unsafe { libc::syscall(libc::SYS_mincore, start, len, &raw mut local) };
        local & 1 != 0
    }

    pub fn missing_table_bytes(&self, _: PageNo, _: u32) -> usize {
        0
    }

    pub fn prepare(&self, _: PageNo, _: u32) -> io::Result<()> {
        Ok(())
    }

    pub fn give_up<T, E>(
        &self,
        _: PageNo,
        _: u32,
        replace: impl FnOnce() -> Result<T, NotReplaced<E>>,
    ) -> Result<T, E> {
        replace().map_err(|refused| refused.error)
    }

    pub fn take_back(&self, first: PageNo, count: u32) -> io::Result<()> {
        let (start, len) = span(first, count);
        // SAFETY: the program unmapped the mapping that was there.
        Ok(unsafe { mem::remap_inaccessible(start, len) }?)
    }

    pub fn take_back_open(
        &self,
        _: PageNo,
        _: u32,
        _: i32,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        replace()
    }
}

/// Nothing is taken out, so any stack will do.
pub fn on_near_stack<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// See `inline::user_copy`: here nothing is ever missing, and a bad address ends the program.
pub mod user_copy {
    use std::convert::Infallible;

    pub fn read<T: Copy>(address: usize) -> Result<T, Infallible> {
        // SAFETY: the program's promise to the kernel.
        Ok(unsafe { (address as *const T).read_unaligned() })
    }

    pub fn write_bytes(address: usize, bytes: &[u8]) -> Result<(), Infallible> {
        // SAFETY: as above.
        unsafe { (address as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}

/// No profile is taken of what is never far.
pub mod profile {
    pub fn allocated(_: *mut libc::c_void, _: usize) {}
    pub fn released(_: *mut libc::c_void) {}
    pub fn mapped(_: usize, _: usize) {}
    pub fn unmapped(_: usize, _: usize) {}
}
