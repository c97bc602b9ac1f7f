//! The library's own memory: the Rust allocator of everything in it.
//!
//! Not glibc's allocator: a signal handler of the program may interrupt that one, in the middle, and then touch far
//! memory; serving the fault (in this thread on the inline path, for it on the monitor path) must not need a lock that
//! the interrupted code holds. Invariant: a thread that holds the lock here has the program's signals blocked and
//! touches no far memory.
//!
//! The pager cannot continue without memory: where a limit makes the kernel refuse it, the program ends with a message.
//!
//! The allocator is dlmalloc (Doug Lea's, in the port of the Rust project), over mappings made by raw system calls.

use crate::kernel_limit;
use dlmalloc::{Allocator, Dlmalloc};
use hinterland_sys::mem::chunk;
use hinterland_sys::thread::SignalsBlocked;
use hinterland_sys::{Mapping, gate};
use hinterland_units::PAGE_BYTES;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Where dlmalloc's memory comes from.
struct Chunks;

// SAFETY: `alloc` returns fresh mappings of the size that it says; the others change mappings that came from here.
unsafe impl Allocator for Chunks {
    fn alloc(&self, bytes: usize) -> (*mut u8, usize, u32) {
        chunk::map_new(bytes).map_or((std::ptr::null_mut(), 0, 0), |mapping| (mapping.as_ptr(), bytes, 0))
    }

    fn remap(&self, start: *mut u8, before: usize, after: usize, may_move: bool) -> *mut u8 {
        let mapping = Mapping { start: start as usize, len: before };
        // SAFETY: dlmalloc passes a mapping that `alloc` returned, and uses the result only.
        unsafe { chunk::resize(mapping, after, may_move) }.map_or(std::ptr::null_mut(), Mapping::as_ptr)
    }

    fn free_part(&self, start: *mut u8, before: usize, after: usize) -> bool {
        let end = Mapping { start: start as usize + after, len: before - after };
        // SAFETY: dlmalloc uses the end of its mapping no more.
        unsafe { chunk::give_back(end) };
        true
    }

    fn free(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: dlmalloc uses its mapping no more.
        unsafe { chunk::give_back(Mapping { start: start as usize, len: bytes }) };
        true
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE_BYTES
    }
}

/// dlmalloc under a lock that survives a fork.
struct Arena {
    /// 0: free; 1: held; 2: held, and a thread sleeps.
    lock: AtomicU32,
    heap: UnsafeCell<Dlmalloc<Chunks>>,
}

// SAFETY: the heap is used by the holder of the lock only.
unsafe impl Sync for Arena {}

impl Arena {
    fn lock(&self) {
        if self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            return;
        }
        while self.lock.swap(2, Acquire) != 0 {
            crate::escaped::refuse();
            gate::futex_wait(&self.lock, 2);
        }
    }

    fn unlock(&self) {
        if self.lock.swap(0, Release) == 2 {
            gate::futex_wake(&self.lock);
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Dlmalloc<Chunks>) -> R) -> R {
        let _signals = SignalsBlocked::new();
        self.lock();
        // SAFETY: this thread holds the lock.
        let result = work(unsafe { &mut *self.heap.get() });
        self.unlock();
        result
    }
}

/// An object that was allocated; where a limit on memory refuses one to a process that pages, its end.
fn given(object: *mut u8) -> *mut u8 {
    if object.is_null()
        && let Some(pager) = crate::pager()
        && [libc::RLIMIT_DATA, libc::RLIMIT_AS].into_iter().any(kernel_limit::is_set)
    {
        pager.end_with(
            "a limit on memory is reached (ulimit -d, ulimit -v), and leaves none for what the pager keeps of the program's \
             pages: give more",
        );
    }
    object
}

// SAFETY: dlmalloc keeps the contract of GlobalAlloc.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        given(self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) }))
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's: the pointer came from here with this layout.
        self.with(|heap| unsafe { heap.free(pointer, layout.size(), layout.align()) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        given(self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) }))
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's: the pointer came from here with this layout.
        given(self.with(|heap| unsafe { heap.realloc(pointer, layout.size(), layout.align(), bytes) }))
    }
}

#[global_allocator]
static ARENA: Arena = Arena { lock: AtomicU32::new(0), heap: UnsafeCell::new(Dlmalloc::new_with_allocator(Chunks)) };

/// Waits until no thread is inside the allocator, and keeps it so: a fork copies it whole. The caller has its signals
/// blocked, or allocates nothing until `unlock_after_fork`.
pub(crate) fn lock_for_fork() {
    ARENA.lock();
}

/// Opens it again, in parent and child.
pub(crate) fn unlock_after_fork() {
    ARENA.unlock();
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_sys::thread;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    /// Whether a thread of this process sleeps in futex(2) on the allocator's lock. Allocates nothing.
    fn sleeps_for_the_lock(thread: u32) -> bool {
        let mut path = [0u8; 64];
        write!(&mut path[..63], "/proc/self/task/{thread}/syscall").unwrap();
        let mut text = [0u8; 128];
        // SAFETY: the path is a C string, and the buffer has the length that is named.
        let read = unsafe {
            let fd = libc::open(path.as_ptr().cast(), libc::O_RDONLY);
            let read = libc::read(fd, text.as_mut_ptr().cast(), text.len());
            libc::close(fd);
            usize::try_from(read).unwrap_or(0)
        };
        let mut call = [0u8; 64];
        let mut rest = &mut call[..];
        write!(rest, "{} {:#x} ", libc::SYS_futex, ARENA.lock.as_ptr().addr()).unwrap();
        let unused = rest.len();
        text[..read].starts_with(&call[..call.len() - unused])
    }

    #[test]
    fn a_fork_waits_for_a_thread_inside_the_allocator() {
        static INSIDE: AtomicBool = AtomicBool::new(false);
        static LEAVE: AtomicBool = AtomicBool::new(false);
        static FORKED: AtomicBool = AtomicBool::new(false);
        static FORKING: AtomicU32 = AtomicU32::new(0);
        // Nobody allocates between the two stores but in the child: everybody else would wait.
        let forking = std::thread::spawn(|| {
            let _signals = SignalsBlocked::new();
            // SAFETY: gettid(2) takes nothing.
            FORKING.store(unsafe { libc::gettid() }.unsigned_abs(), SeqCst);
            while !INSIDE.load(SeqCst) {
                thread::yield_now();
            }
            lock_for_fork();
            // SAFETY: the child allocates through this allocator alone, and leaves at once.
            let child = unsafe { libc::fork() };
            FORKED.store(true, SeqCst);
            unlock_after_fork();
            if child == 0 {
                let numbers: Vec<usize> = (0..10_000).collect();
                thread::exit_now(i32::from(numbers.iter().sum::<usize>() != 49_995_000));
            }
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        });
        let allocating = std::thread::spawn(|| {
            // The start of a thread allocates, too: the other one must be past it.
            while FORKING.load(SeqCst) == 0 {
                thread::yield_now();
            }
            ARENA.with(|_| {
                INSIDE.store(true, SeqCst);
                while !LEAVE.load(SeqCst) {
                    thread::yield_now();
                }
            });
        });
        // Until the forking thread sleeps for the lock, or has forked without it. Nothing is allocated here: it would wait, too.
        while !FORKED.load(SeqCst) && !sleeps_for_the_lock(FORKING.load(SeqCst)) {
            thread::yield_now();
        }
        let forked = FORKED.load(SeqCst);
        LEAVE.store(true, SeqCst);
        allocating.join().unwrap();
        assert!(!forked, "a fork copied the allocator while it was in use");
        assert_eq!(forking.join().unwrap(), 0, "the child could not allocate");
    }
}
