//! What a Rust program says to Hinterland while it runs: which part of it counts, and, by hints, what use it will make of its memory. A program
//! that depends on this crate needs no library of Hinterland's: where it runs without Hinterland, each call does nothing.
//!
//! ```
//! let table: Vec<u64> = (0..1 << 16).collect();
//! let keys: Vec<usize> = (0..1 << 16).map(|at| at * 7919 % table.len()).collect();
//!
//! let mut sum = 0;
//! for (at, key) in keys.iter().enumerate() {
//!     if at % 16 == 0 {
//!         // The entries that come in 512 iterations.
//!         let coming: Vec<&u64> = keys[at..].iter().skip(512).take(16).map(|key| &table[*key]).collect();
//!         hinterland::fetch_each(&coming);
//!     }
//!     sum += table[*key];
//! }
//! assert_eq!(sum, 2147450880);
//! ```
//!
//! Hints cannot fault, fail, or wait for far memory; none but [`overwrite`] can change what a program computes. Any thread may give them at any
//! moment, also in a signal handler. The functions are those of `hinterland.h`, which says more of each; as there, a place in the program is known
//! by its return address, so all of them are inlined.
#![no_std]
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

use core::ffi::{c_int, c_uint, c_void};
use core::mem::size_of_val;

type OfRange = unsafe extern "C" fn(*const c_void, usize);

/// A function of the preloaded library: `None` without Hinterland, of which the symbol is weak. What the linker has put into the table of
/// addresses is read by hand, because weak symbols have no name in stable Rust.
macro_rules! function {
    ($name:literal: $type:ty) => {{
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        let address = {
            let address: usize;
            // SAFETY: reads a word of the table that the linker makes for this symbol: 0 where there is none.
            unsafe {
                core::arch::asm!(
                    concat!(".weak ", $name),
                    concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                    out(reg) address,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            address
        };
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
        let address = 0_usize;
        // SAFETY: `hinterland.h` declares the function of this name with this type; the null pointer is `None`.
        unsafe { core::mem::transmute::<usize, Option<$type>>(address) }
    }};
}

/// Calls a function that takes a range with that of a slice.
macro_rules! hint {
    ($name:literal, $range:expr) => {
        if let Some(function) = function!($name: OfRange) {
            // SAFETY: any address and length will do; nothing of the range is read or written.
            unsafe { function($range.as_ptr().cast(), size_of_val($range)) }
        }
    };
}

/// Begins to fetch what is far of a range, and returns at once.
///
/// ```
/// let data = vec![1_u8; 1 << 20];
/// let mut sum = 0;
/// for (at, part) in data.chunks(1 << 16).enumerate() {
///     // The next part comes while this one is worked on.
///     hinterland::fetch(data.chunks(1 << 16).nth(at + 1).unwrap_or_default());
///     sum += part.iter().map(|byte| usize::from(*byte)).sum::<usize>();
/// }
/// assert_eq!(sum, 1 << 20);
/// ```
#[inline(always)]
pub fn fetch<T>(range: &[T]) {
    hint!("hinterland_fetch", range);
}

/// Begins to fetch what is far of each of these items, as one batch.
#[inline(always)]
pub fn fetch_each<T>(items: &[&T]) {
    if let Some(fetch) = function!("hinterland_fetchv": unsafe extern "C" fn(*const *const c_void, usize, usize)) {
        // SAFETY: a reference is an address; so many of them are there, and what they refer to is not read.
        unsafe { fetch(items.as_ptr().cast(), items.len(), core::mem::size_of::<T>()) }
    }
}

/// The pages wholly inside a range leave, before any others: as soon as the evictor comes to it.
///
/// ```
/// let log: Vec<u32> = (0..1 << 20).collect();
/// for part in log.chunks(1 << 18) {
///     assert!(part.windows(2).all(|pair| pair[0] < pair[1]));
///     hinterland::evict(part);
/// }
/// ```
#[inline(always)]
pub fn evict<T>(range: &[T]) {
    hint!("hinterland_evict", range);
}

/// As [`evict`], when frames are needed: for memory that other threads may use.
#[inline(always)]
pub fn evict_soon<T>(range: &[T]) {
    hint!("hinterland_evict_soon", range);
}

/// Pages of a range that are local, or come to be, stay so until the guard is dropped: a quarter of the budget at most; beyond that there is no
/// effect. A range that is kept twice is released twice. A child of a fork keeps nothing; what is unmapped is forgotten.
///
/// ```
/// let mut index = vec![0_u64; 1 << 12];
/// let kept = hinterland::keep(&index);
/// index[7] = 1; // It is not borrowed.
/// drop(kept);
/// assert_eq!(index.iter().sum::<u64>(), 1);
/// ```
#[inline(always)]
pub fn keep<T>(range: &[T]) -> Kept {
    hint!("hinterland_keep", range);
    Kept { address: range.as_ptr().cast(), bytes: size_of_val(range) }
}

/// What [`keep`] keeps, until this is dropped.
#[derive(Debug)]
#[must_use = "what is kept is released when this is dropped"]
pub struct Kept {
    address: *const c_void,
    bytes: usize,
}

// SAFETY: the address is never followed.
unsafe impl Send for Kept {}
// SAFETY: as above.
unsafe impl Sync for Kept {}

impl Drop for Kept {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(release) = function!("hinterland_release": OfRange) {
            // SAFETY: any address and length will do.
            unsafe { release(self.address, self.bytes) }
        }
    }
}

/// A promise: the calling thread will write every byte of the pages that lie wholly inside a range before anything reads them. So what is far of
/// them is not fetched when the thread begins to write.
///
/// ```
/// let mut squares = vec![0_u64; 1 << 16];
/// // SAFETY: each of them is written below, and none is read before.
/// unsafe { hinterland::overwrite(&mut squares) };
/// for (number, square) in (0..).zip(&mut squares) {
///     *square = number * number;
/// }
/// assert_eq!(squares[1000], 1_000_000);
/// ```
///
/// # Safety
/// From now on the range is like memory that was not initialised, until the calling thread has written it: its bytes may be zero. An operation
/// that reads and writes (`+=`, an atomic addition) reads. Panics and early returns before the last byte count, too.
#[inline(always)]
pub unsafe fn overwrite<T>(range: &mut [T]) {
    if let Some(overwrite) = function!("hinterland_overwrite": unsafe extern "C" fn(*mut c_void, usize)) {
        // SAFETY: the caller's promise.
        unsafe { overwrite(range.as_mut_ptr().cast(), size_of_val(range)) }
    }
}

/// A phase of the program begins, with a number of its own choice. Phases are counted.
///
/// ```
/// for round in 0..3 {
///     hinterland::phase(round);
/// }
/// ```
#[inline(always)]
pub fn phase(id: u32) {
    if let Some(phase) = function!("hinterland_phase": unsafe extern "C" fn(c_uint)) {
        // SAFETY: any number will do.
        unsafe { phase(id) }
    }
}

/// What is to be done in a [`Region`], and what is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// References are recorded if the run records (`hinterland trace`); no tape is followed.
    Record = 1,
    /// The tape is followed if the run has one (`hinterland run --tape`); nothing is recorded.
    Prefetch = 2,
    /// Whichever of both the run does.
    Auto = 3,
}

/// An interval of the process, which ends when this is dropped. Before the first one, between them and after the last one nothing is recorded and
/// no tape is followed; pages that were allocated there are not recorded in an interval either. So begin it before memory is allocated. An
/// interval inside another one changes nothing.
///
/// ```
/// let region = hinterland::Region::begin(hinterland::Mode::Auto);
/// let data: Vec<u64> = (0..1000).collect();
/// assert_eq!(data.iter().sum::<u64>(), 499_500);
/// drop(region);
/// ```
#[derive(Debug)]
#[must_use = "the interval ends when this is dropped"]
pub struct Region {
    in_force: Option<Mode>,
}

impl Region {
    /// Begins an interval.
    #[inline(always)]
    pub fn begin(mode: Mode) -> Region {
        let begin = function!("hinterland_begin": unsafe extern "C" fn(c_int) -> c_int);
        // SAFETY: any number will do; this is one of the modes.
        let in_force = begin.map_or(0, |begin| unsafe { begin(mode as c_int) });
        Region { in_force: [Mode::Record, Mode::Prefetch].into_iter().find(|mode| *mode as c_int == in_force) }
    }

    /// What is done in the outermost one: [`Mode::Record`], [`Mode::Prefetch`], or nothing.
    pub fn in_force(&self) -> Option<Mode> {
        self.in_force
    }
}

impl Drop for Region {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(end) = function!("hinterland_end": unsafe extern "C" fn() -> c_int) {
            // SAFETY: it began.
            unsafe { end() };
        }
    }
}
