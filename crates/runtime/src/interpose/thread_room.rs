//! Room on a thread's stack for what Hinterland puts there.
//!
//! libc takes thread-local storage from a thread's stack, the library's included, and a call that needs help runs on the stack of the code that
//! makes it. A stack of the least size that POSIX allows has no room for that. So a thread whose stack libc makes, and that is to be small, gets
//! more than the program asked for: what is left of it is at least what it would be natively.
//!
//! Not covered: a stack that the program brings itself (`pthread_attr_setstack`) is as large as it is.

use crate::interpose::next_symbol::next;
use libc::{c_int, pthread_attr_t, size_t};
use std::mem::MaybeUninit;

/// What the library may take of a stack: thread-local storage of 7 KiB, the signal frame of a caught call (3 KiB with AVX-512, 11 KiB with AMX),
/// and its deepest way below that, measured at 12 KiB. What is not used is no memory.
const ROOM_BYTES: usize = 64 << 10;
/// Larger stacks have room enough: those of libc's usual size are not changed.
const SMALL_BYTES: usize = 1 << 20;

/// The attributes that a thread is started with.
pub(super) enum Attributes {
    /// The program's own.
    Given(*const pthread_attr_t),
    /// A copy of those, with room. It shares what they point at, and is never destroyed.
    Copied(pthread_attr_t),
    /// A copy of the defaults, with room.
    Default(pthread_attr_t),
}

impl Attributes {
    /// The attributes for a thread that is to have `given` ones. They are changed where the process is managed.
    pub(super) fn with_room(given: *const pthread_attr_t) -> Attributes {
        if crate::pager().is_some() { Attributes::enlarged(given) } else { Attributes::Given(given) }
    }

    fn enlarged(given: *const pthread_attr_t) -> Attributes {
        if given.is_null() {
            return defaults().map_or(Attributes::Given(given), Attributes::Default);
        }
        if brings_a_stack(given) {
            return Attributes::Given(given);
        }
        // SAFETY: glibc's attributes are plain data, and what they point at stays the program's.
        let mut copy = unsafe { given.read() };
        if enlarge(&mut copy) { Attributes::Copied(copy) } else { Attributes::Given(given) }
    }

    pub(super) fn as_ptr(&self) -> *const pthread_attr_t {
        match self {
            Attributes::Given(given) => *given,
            Attributes::Copied(copy) | Attributes::Default(copy) => copy,
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        if let Attributes::Default(attributes) = self {
            // SAFETY: `defaults` has initialised them, and they are of this call alone.
            unsafe { libc::pthread_attr_destroy(attributes) };
        }
    }
}

/// The bytes of the stack that libc maps for a thread with attributes of the program's.
pub(super) fn mapped_bytes(given: *const pthread_attr_t) -> usize {
    if !given.is_null() {
        return if brings_a_stack(given) { 0 } else { stack_bytes(given) };
    }
    all_defaults().map_or(0, |mut attributes| {
        let bytes = stack_bytes(&raw const attributes);
        // SAFETY: they are initialised, and of this call alone.
        unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
        bytes
    })
}

/// Whether a thread with these attributes runs on a stack of the program's.
fn brings_a_stack(given: *const pthread_attr_t) -> bool {
    let (mut address, mut bytes) = (std::ptr::null_mut(), 0 as size_t);
    // SAFETY: the program passes initialised attributes.
    let answer = unsafe { libc::pthread_attr_getstack(given, &raw mut address, &raw mut bytes) };
    answer == 0 && address.addr().wrapping_add(bytes) != 0
}

fn stack_bytes(attributes: *const pthread_attr_t) -> usize {
    let mut bytes = 0 as size_t;
    // SAFETY: the attributes are initialised.
    let answer = unsafe { libc::pthread_attr_getstacksize(attributes, &raw mut bytes) };
    if answer == 0 { bytes } else { 0 }
}

/// The attributes of threads that are started with none.
fn all_defaults() -> Option<pthread_attr_t> {
    type GetDefault = unsafe extern "C" fn(*mut pthread_attr_t) -> c_int;
    let get = next!(pthread_getattr_default_np: GetDefault);
    let mut attributes = MaybeUninit::<pthread_attr_t>::uninit();
    // SAFETY: the function initialises them, or says that it has not.
    unsafe { (get(attributes.as_mut_ptr()) == 0).then(|| attributes.assume_init()) }
}

/// The same, if they have small stacks (after `pthread_setattr_default_np`, or below a limit).
fn defaults() -> Option<pthread_attr_t> {
    let mut attributes = all_defaults()?;
    if enlarge(&mut attributes) {
        return Some(attributes);
    }
    // SAFETY: they were initialised above.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    None
}

/// Adds room to a small stack's size. False: it is as it was.
fn enlarge(attributes: &mut pthread_attr_t) -> bool {
    let bytes = stack_bytes(attributes);
    // SAFETY: the attributes are initialised.
    (1..SMALL_BYTES).contains(&bytes) && unsafe { libc::pthread_attr_setstacksize(attributes, bytes + ROOM_BYTES) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::c_void;

    fn attributes(set: impl FnOnce(&mut pthread_attr_t)) -> pthread_attr_t {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: initialises them.
        let mut attributes = unsafe {
            assert_eq!(libc::pthread_attr_init(attributes.as_mut_ptr()), 0);
            attributes.assume_init()
        };
        set(&mut attributes);
        attributes
    }

    #[test]
    fn a_small_stack_that_libc_makes_gets_room_and_no_other_does() {
        // SAFETY: all attributes are initialised, and the memory is only named.
        unsafe {
            let small = attributes(|small| assert_eq!(libc::pthread_attr_setstacksize(small, 16 << 10), 0));
            let roomy = Attributes::enlarged(&small);
            assert_eq!(stack_bytes(roomy.as_ptr()), (16 << 10) + ROOM_BYTES);
            assert_eq!(stack_bytes(&small), 16 << 10, "the program's own attributes are changed");
            let large = attributes(|large| assert_eq!(libc::pthread_attr_setstacksize(large, SMALL_BYTES), 0));
            assert_eq!(Attributes::enlarged(&large).as_ptr(), &raw const large);
            let mut memory = [0u64; 4096];
            let start = memory.as_mut_ptr().cast::<c_void>();
            let own = attributes(|own| assert_eq!(libc::pthread_attr_setstack(own, start, 32 << 10), 0));
            assert_eq!(Attributes::enlarged(&own).as_ptr(), &raw const own);
            assert_eq!([&small, &large, &own].map(|each| mapped_bytes(each)), [16 << 10, SMALL_BYTES, 0]);
            assert!(mapped_bytes(std::ptr::null()) >= libc::PTHREAD_STACK_MIN, "libc has a size for those without");
        }
    }
}
