//! The break of programs that move it themselves.
//!
//! glibc's own heap uses an internal alias and keeps the kernel's break. A program that calls brk(2) or sbrk(3) gets a break
//! inside the far range, reserved at its first call; if it moved the kernel's break before the library was ready, it
//! stays with that one.

use crate::mapping::{self, Outcome};
use crate::memory_limit::{self, Account};
use crate::region_map::{self, Attributes, Kind, RegionMap};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Pages that a break may grow to: 64 GiB of address region_map.
const PAGES_MAX: u32 = 1 << 24;

/// The program moved the kernel's break before the library was ready.
static NATIVE: AtomicBool = AtomicBool::new(false);

/// Start and end of the break, 0 before the first call. Used under the lock of `region_map`.
struct Break {
    start: Cell<usize>,
    end: Cell<usize>,
}

// SAFETY: used only under the lock of `region_map`.
unsafe impl Sync for Break {}

static BREAK: Break = Break { start: Cell::new(0), end: Cell::new(0) };

/// Whether the kernel's break must be used.
fn is_native() -> bool {
    if crate::pager().is_none() {
        NATIVE.store(true, Relaxed);
    }
    NATIVE.load(Relaxed)
}

/// Moves the break to the address that `to` computes from the current one; returns the old break. `None`: use the kernel's.
fn move_break(to: impl FnOnce(usize) -> Option<usize>) -> Option<Outcome> {
    if is_native() {
        return None;
    }
    let mut region_map = region_map::lock();
    if BREAK.start.get() == 0 {
        let first = region_map.place(PAGES_MAX, 1, Attributes::plain(Kind::Room, libc::PROT_NONE))?;
        BREAK.start.set(region_map::address_of(first));
        BREAK.end.set(region_map::address_of(first));
    }
    let (start, old) = (BREAK.start.get(), BREAK.end.get());
    let new = match to(old) {
        Some(new) if new >= start && new <= start + PAGES_MAX as usize * PAGE_BYTES => new,
        _ => return Some(Err(libc::ENOMEM)),
    };
    let page = |address: usize| region_map::page_of(address.next_multiple_of(PAGE_BYTES));
    let (old_page, new_page) = (page(old), page(new));
    let moved = match new_page.cmp(&old_page) {
        Ordering::Less => shrink(&mut region_map, new_page, old_page - new_page),
        Ordering::Equal => Ok(()),
        Ordering::Greater => grow(&mut region_map, old_page, new_page - old_page),
    };
    if let Err(error) = moved {
        return Some(Err(error));
    }
    BREAK.end.set(new);
    Some(Ok(old))
}

/// Opens room; not where the program has mapped something else meanwhile.
fn grow(region_map: &mut RegionMap, first: u32, count: u32) -> Result<(), i32> {
    memory_limit::check_in(region_map, |_| Account::of_mapping(count as usize * PAGE_BYTES, true))?;
    let room = region_map.runs_in(first, count);
    let free: u32 = room.iter().filter(|run| run.attributes.kind == Kind::Room).map(|run| run.count).sum();
    if free != count {
        return Err(libc::ENOMEM);
    }
    let opened = Attributes::plain(Kind::Break, libc::PROT_READ | libc::PROT_WRITE);
    let pager = crate::pager().ok_or(libc::ENOMEM)?;
    memory_limit::check_tables(pager, first, count, count as usize * PAGE_BYTES)?;
    pager.protect(PageNo(first), count, opened.protection).map_err(|e| e.raw_os_error().unwrap_or(libc::ENOMEM))?;
    region_map.update(first, count, |attributes| *attributes = opened);
    Ok(())
}

/// Makes room again of whatever lies there, as the kernel unmaps it.
fn shrink(region_map: &mut RegionMap, first: u32, count: u32) -> Result<(), i32> {
    if region_map.is_sealed(first, count) {
        return Err(libc::ENOMEM);
    }
    mapping::clear(region_map, first, count)?;
    let taken = region_map.place_at(first, count, Attributes::plain(Kind::Room, libc::PROT_NONE));
    assert!(taken, "what was cleared is free");
    Ok(())
}

/// brk(2) as libc wraps it: 0.
pub fn brk(address: usize) -> Option<Outcome> {
    Some(move_break(|_| Some(address))?.map(|_| 0))
}

/// brk(2) as the kernel answers it: the break afterwards, which is the one before if it could not be moved.
pub fn kernel_brk(address: usize) -> Option<usize> {
    match move_break(|_| Some(address))? {
        Ok(_) => Some(address),
        Err(_) => move_break(Some)?.ok(),
    }
}

/// sbrk(3): the old break.
pub fn sbrk(increment: isize) -> Option<Outcome> {
    move_break(|old| old.checked_add_signed(increment))
}
