//! The hints of `hinterland.h`: the functions that a program calls by hand, and the table that compiled code takes.
//!
//! A place that gives hints by hand is known by its return address, a loop of compiled code by the address of its
//! `struct hinterland_loop`, and so is a line of Python, whose calls all come from one address.

use super::{thread_exit, with_caller};
use crate::caller;
use hinterland_abi::SITE_NAME_BYTES;
use hinterland_pager::{HintSite, Hints, Leave, LoopRange, LoopState};
use libc::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// `version` of the table: that of the interface which this library knows.
pub const VERSION: u32 = 1;
/// Addresses that one call of `hinterland_fetchv` names at most: what is behind them is far ahead.
const ADDRESSES_MAX: usize = 1 << 16;

/// `struct hinterland_loop`.
#[repr(C)]
pub struct Loop {
    name: *const c_char,
    state: LoopState,
}

impl Loop {
    fn site<'a>(&self, name: &'a dyn Fn() -> String) -> HintSite<'a> {
        HintSite { key: std::ptr::from_ref(self).addr() as u64, name }
    }

    /// What the compiler calls it, as far as there is room for it.
    fn name(&self) -> String {
        let byte = |at: usize| {
            // SAFETY: the compiler's text, which ends with a zero; none came before this byte.
            unsafe { self.name.add(at).read() }.cast_unsigned()
        };
        let most = if self.name.is_null() { 0 } else { SITE_NAME_BYTES };
        let bytes: Vec<u8> = (0..most).map(byte).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// `struct hinterland_hints`.
#[repr(C)]
pub struct Table {
    version: u32,
    bytes: u32,
    fetch: unsafe extern "C" fn(),
    fetchv: unsafe extern "C" fn(),
    evict: extern "C" fn(*const c_void, usize),
    evict_soon: extern "C" fn(*const c_void, usize),
    keep: extern "C" fn(*const c_void, usize),
    release: extern "C" fn(*const c_void, usize),
    overwrite: extern "C" fn(*mut c_void, usize),
    phase: extern "C" fn(c_uint),
    loop_begin: unsafe extern "C" fn(*mut Loop, *const c_void, u64, u64) -> u64,
    loop_end: unsafe extern "C" fn(*mut Loop, u64),
    loop_fetch: unsafe extern "C" fn(*mut Loop, *const c_void, usize),
    loop_fetchv: unsafe extern "C" fn(*mut Loop, *const *const c_void, usize, usize),
    loop_evict: unsafe extern "C" fn(*mut Loop, *const c_void, usize, c_int),
    loop_search: unsafe extern "C" fn(*mut Loop, *const c_void, u64, u64, *const c_void, u64, u64) -> u64,
}

/// Part of the interface that compiled code is built against.
const _: () = assert!(size_of::<Table>() == 8 + 14 * 8 && offset_of!(Loop, state) == 8 && size_of::<Loop>() == 72);

static TABLE: Table = Table {
    version: VERSION,
    #[allow(clippy::cast_possible_truncation, reason = "a table of a few words")]
    bytes: size_of::<Table>() as u32,
    fetch: hinterland_fetch,
    fetchv: hinterland_fetchv,
    evict: hinterland_evict,
    evict_soon: hinterland_evict_soon,
    keep: hinterland_keep,
    release: hinterland_release,
    overwrite: hinterland_overwrite,
    phase: hinterland_phase,
    loop_begin,
    loop_end,
    loop_fetch,
    loop_fetchv,
    loop_evict,
    loop_search,
};

/// The table, for code that was compiled for this version of it; null for others.
#[unsafe(no_mangle)]
pub extern "C" fn hinterland_hints(version: u32) -> *const c_void {
    if version == VERSION { (&raw const TABLE).cast() } else { std::ptr::null() }
}

fn hints() -> Option<&'static Hints> {
    crate::pager().map(|pager| pager.hints())
}

with_caller! {
    hinterland_fetch => fetch_from, "rdx";
    hinterland_fetchv => fetchv_from, "rcx";
}

unsafe extern "C" fn fetch_from(address: *const c_void, length: usize, caller: usize) {
    if let Some(hints) = hints() {
        let site = HintSite { key: caller as u64, name: &|| caller::name(caller) };
        hints.fetch(site, address.addr(), length);
    }
}

unsafe extern "C" fn fetchv_from(addresses: *const *const c_void, count: usize, length: usize, caller: usize) {
    let Some(hints) = hints() else { return };
    // SAFETY: the program's promise.
    if let Some(addresses) = unsafe { read(hints, addresses, count) } {
        hints.fetch_all(HintSite { key: caller as u64, name: &|| caller::name(caller) }, addresses, length);
    }
}

/// The addresses of an array. `None`: part of it is far itself; it is asked for then, and what it names another time.
///
/// # Safety
/// There are so many addresses there.
unsafe fn read(
    hints: &Hints,
    addresses: *const *const c_void,
    count: usize,
) -> Option<impl Iterator<Item = usize> + use<>> {
    let count = count.min(ADDRESSES_MAX);
    if addresses.is_null() || !hints.can_be_read(addresses.addr(), count * size_of::<usize>()) {
        return None;
    }
    // SAFETY: the caller's promise.
    Some((0..count).map(move |at| unsafe { addresses.add(at).read() }.addr()))
}

#[unsafe(no_mangle)]
pub extern "C" fn hinterland_evict(address: *const c_void, length: usize) {
    if let Some(hints) = hints() {
        hints.evict(address.addr(), length, Leave::Now);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hinterland_evict_soon(address: *const c_void, length: usize) {
    if let Some(hints) = hints() {
        hints.evict(address.addr(), length, Leave::Soon);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hinterland_keep(address: *const c_void, length: usize) {
    if let Some(hints) = hints() {
        hints.keep(address.addr(), length);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hinterland_release(address: *const c_void, length: usize) {
    if let Some(hints) = hints() {
        hints.release(address.addr(), length);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hinterland_overwrite(address: *mut c_void, length: usize) {
    // Before the first mark: a thread that is cancelled in between leaves none.
    if let Some(hints) = hints().filter(|hints| hints.may_overwrite(address.addr(), length) && thread_exit::hear()) {
        hints.overwrite(address.addr(), length);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hinterland_phase(_: c_uint) {
    if let Some(hints) = hints() {
        hints.phase();
    }
}

unsafe extern "C" fn loop_begin(this: *mut Loop, address: *const c_void, length: u64, iterations: u64) -> u64 {
    // SAFETY: compiled code passes a loop of its own, which lives as long as that code and is shared by threads.
    let (Some(hints), Some(this)) = (hints(), unsafe { this.as_ref() }) else { return 0 };
    hints.loop_begin(&this.state, this.site(&|| this.name()), range(address, length, iterations))
}

unsafe extern "C" fn loop_search(
    this: *mut Loop,
    address: *const c_void,
    length: u64,
    iterations: u64,
    all: *const c_void,
    all_length: u64,
    all_iterations: u64,
) -> u64 {
    // SAFETY: as in `loop_begin`.
    let (Some(hints), Some(this)) = (hints(), unsafe { this.as_ref() }) else { return 0 };
    let (soon, all) = (range(address, length, iterations), range(all, all_length, all_iterations));
    hints.loop_search(&this.state, this.site(&|| this.name()), soon, all)
}

fn range(address: *const c_void, length: u64, iterations: u64) -> LoopRange {
    LoopRange { address: address.addr(), len: usize::try_from(length).unwrap_or(usize::MAX), iterations }
}

unsafe extern "C" fn loop_end(this: *mut Loop, iterations: u64) {
    // SAFETY: as in `loop_begin`.
    if let (Some(hints), Some(this)) = (hints(), unsafe { this.as_ref() }) {
        hints.loop_end(&this.state, this.site(&|| this.name()), iterations);
    }
}

unsafe extern "C" fn loop_fetch(this: *mut Loop, address: *const c_void, length: usize) {
    // SAFETY: as in `loop_begin`.
    if let (Some(hints), Some(this)) = (hints(), unsafe { this.as_ref() }) {
        hints.loop_fetch(&this.state, this.site(&|| this.name()), std::iter::once(address.addr()), length);
    }
}

unsafe extern "C" fn loop_fetchv(this: *mut Loop, addresses: *const *const c_void, count: usize, length: usize) {
    // SAFETY: as in `loop_begin`.
    let (Some(hints), Some(this)) = (hints(), unsafe { this.as_ref() }) else { return };
    // SAFETY: the compiler's promise.
    if let Some(addresses) = unsafe { read(hints, addresses, count) } {
        hints.loop_fetch(&this.state, this.site(&|| this.name()), addresses, length);
    }
}

unsafe extern "C" fn loop_evict(_: *mut Loop, address: *const c_void, length: usize, soon: c_int) {
    if let Some(hints) = hints() {
        hints.evict(address.addr(), length, if soon == 0 { Leave::Now } else { Leave::Soon });
    }
}
