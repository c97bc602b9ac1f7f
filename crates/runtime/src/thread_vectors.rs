//! What libc allocates when it starts a thread of ours: the vector of its thread-local storage (`allocate_dtv` in glibc's elf/dl-tls.c).
//!
//! A call that makes memory accessible may start a thread of ours, and a signal handler may make that call: it may have interrupted
//! libc's allocator, whose lock would then be waited for by the thread that has it, or whose lists are half changed. So these
//! few objects come from here. libc resizes and frees them like its own.
//!
//! Not for threads that start before the heap is ready: no handler runs then. And not where another allocator has taken the place of libc's: then
//! all threads start in advance (`Pager::start_all`).

use hinterland_sys::thread;
use libc::c_void;
use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Two words for each module with thread-local storage, and for 16 more: enough for 112.
const VECTOR_BYTES: usize = 2048;
/// More than a process has threads of ours. The stacks that libc keeps for reuse keep their vectors, too.
const VECTORS: usize = 64;

#[repr(align(16))]
struct Vector(UnsafeCell<[u8; VECTOR_BYTES]>);

struct Vectors {
    memory: [Vector; VECTORS],
    /// A bit for each one that is taken.
    taken: AtomicU64,
}

// SAFETY: a vector is used only by what took it.
unsafe impl Sync for Vectors {}

static VECTORS_OF_OURS: Vectors = Vectors::new();

impl Vectors {
    const fn new() -> Vectors {
        Vectors { memory: [const { Vector(UnsafeCell::new([0; VECTOR_BYTES])) }; VECTORS], taken: AtomicU64::new(0) }
    }

    #[cold]
    fn take(&self, bytes: usize) -> Option<*mut c_void> {
        if bytes > VECTOR_BYTES {
            return None;
        }
        let mut taken = self.taken.load(Acquire);
        loop {
            let free = taken.trailing_ones();
            let vector = self.memory.get(free as usize)?;
            match self.taken.compare_exchange_weak(taken, taken | 1 << free, AcqRel, Acquire) {
                Ok(_) => {
                    let memory = vector.0.get();
                    // SAFETY: the bit is this call's now, and with it the memory.
                    unsafe { memory.write([0; VECTOR_BYTES]) };
                    return Some(memory.cast());
                }
                Err(now) => taken = now,
            }
        }
    }

    /// Which one an object is.
    #[inline]
    fn number(&self, pointer: *mut c_void) -> Option<usize> {
        let offset = pointer.addr().wrapping_sub(self.memory.as_ptr().addr());
        (offset < size_of_val(&self.memory)).then_some(offset / size_of::<Vector>())
    }

    #[inline]
    fn give_back(&self, pointer: *mut c_void) -> bool {
        let Some(number) = self.number(pointer) else { return false };
        self.taken.fetch_and(!(1 << number), Release);
        true
    }
}

static IN_USE: AtomicBool = AtomicBool::new(false);

/// From now on, threads of ours have their vectors here.
pub fn begin() {
    IN_USE.store(true, Relaxed);
}

/// Zeroed memory for an allocation of libc's, where it starts a thread of ours. `None`: libc's allocator serves it, because no thread is
/// being started, it is too large, or all are taken.
#[inline]
pub fn take(bytes: usize) -> Option<*mut c_void> {
    if thread::is_starting_one() && IN_USE.load(Relaxed) { VECTORS_OF_OURS.take(bytes) } else { None }
}

/// How large an object is, if it is one of these.
#[inline]
pub fn bytes_of(pointer: *mut c_void) -> Option<usize> {
    VECTORS_OF_OURS.number(pointer).map(|_| VECTOR_BYTES)
}

/// Gives an object back, if it is one of these; whether it was.
///
/// # Safety
/// It is not used afterwards.
#[inline]
pub unsafe fn give_back(pointer: *mut c_void) -> bool {
    VECTORS_OF_OURS.give_back(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_zeroed_distinct_and_taken_again_and_libc_serves_the_rest() {
        static VECTOR: Vectors = Vectors::new();
        assert!(take(16).is_none(), "no thread is being started");
        assert!(VECTOR.take(VECTOR_BYTES + 1).is_none(), "too large");
        let all: Vec<_> = std::iter::from_fn(|| VECTOR.take(VECTOR_BYTES)).collect();
        assert_eq!(all.len(), VECTORS);
        for (number, vector) in all.iter().enumerate() {
            // SAFETY: it is taken, and has so many bytes.
            let content = unsafe { std::slice::from_raw_parts_mut(vector.cast::<u8>(), VECTOR_BYTES) };
            assert!(content.iter().all(|byte| *byte == 0), "{number} is not zeroed, or another one's");
            content.fill(1);
        }
        assert!(VECTOR.give_back(all[7]));
        assert_eq!(VECTOR.take(1), Some(all[7]));
        // SAFETY: it is taken, and zeroed again.
        assert_eq!(unsafe { all[7].cast::<u8>().read() }, 0);
        assert!(!VECTOR.give_back((&raw const VECTOR.taken).cast_mut().cast()), "none of these");
    }
}
