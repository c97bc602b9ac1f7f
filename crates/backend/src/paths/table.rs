//! Where each page is: 16 bytes for each page, and the order of age on each path.
//!
//! A row holds the page's place (an atomic word) and its links in the list of its path, oldest first. Rows change under
//! the one lock, with one exception: a load pins and unpins a row without it.
//!
//! ```text
//! place:  pins 8 bits | … | promoted | moving | dead | stored | path 4 bits | inner location 44 bits
//! free:   the next free row plus one, or 0
//! ```
//! A *moving* row is being migrated: it is in no list, and its page is still at its place. If its page is freed meanwhile it
//! is *dead*, and the migration ends it. A *promoted* one has come from a lower tier and was not loaded since.

use super::PATHS_MAX;
use crate::mapping::Growing;
use crate::{FullCause, Location, StoreError};
use hinterland_units::PAGE_BYTES;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The number of a row.
pub(super) type Handle = u32;

/// Pages that all paths together can hold: as many as the far range has (the pager compares).
pub const PAGES_MAX: u32 = 3 << 30;
const NONE: Handle = Handle::MAX;
const PATH_BITS: u32 = 4;
const STORED: u64 = 1 << (Location::BITS + PATH_BITS);
const DEAD: u64 = STORED << 1;
const MOVING: u64 = STORED << 2;
const PROMOTED: u64 = STORED << 3;
const PIN: u64 = 1 << 56;

const _: () = assert!(PAGES_MAX < NONE, "no row is none");
const _: () = assert!(PATHS_MAX <= 1 << PATH_BITS, "a row can name every path");

struct Row {
    place: AtomicU64,
    /// Towards the older page in the high half, the younger in the low half.
    links: AtomicU64,
}

/// A page's path and its location there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PathLocation {
    pub(super) path: usize,
    pub(super) location: Location,
}

impl PathLocation {
    fn encode(self) -> u64 {
        assert!(self.location.0 >> Location::BITS == 0, "a backend returned the location {:?}", self.location);
        STORED | ((self.path as u64) << Location::BITS) | self.location.0
    }

    fn decode(word: u64) -> Option<PathLocation> {
        let path = usize::try_from((word >> Location::BITS) & ((1 << PATH_BITS) - 1)).ok()?;
        let location = Location(word & ((1 << Location::BITS) - 1));
        (word & STORED != 0 && word & DEAD == 0).then_some(PathLocation { path, location })
    }
}

/// Which pages of a path are moved first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// Downwards, or away from a path that is emptied.
    Oldest,
    /// Upwards.
    Youngest,
}

/// What became of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The page is at the new place; the old one is to be freed. `was_promoted`: and not loaded since.
    Moved { was_promoted: bool },
    /// A load holds the page, or it could not be moved: it stays, and a new copy is to be freed.
    Kept,
    /// The page was freed: both copies are to be freed.
    Dead,
}

/// The rows.
pub(super) struct Table {
    rows: Growing,
    rows_max: Handle,
}

/// Lists of rows; kept by the caller under its lock.
pub(super) struct Lists {
    free: u64,
    high: Handle,
    ends: Vec<Ends>,
}

#[derive(Clone, Copy)]
struct Ends {
    oldest: Handle,
    youngest: Handle,
}

impl Lists {
    pub(super) fn new(paths: usize) -> Lists {
        let ends = (0..paths).map(|_| Ends { oldest: NONE, youngest: NONE }).collect();
        Lists { free: 0, high: 0, ends }
    }

    /// RAM of the rows that were ever used.
    pub(super) fn ram_bytes(&self) -> u64 {
        u64::from(self.high) * size_of::<Row>() as u64
    }
}

impl Table {
    pub(super) fn new() -> io::Result<Table> {
        Table::of(PAGES_MAX)
    }

    /// A table of at most so many rows.
    pub(super) fn of(rows_max: Handle) -> io::Result<Table> {
        Ok(Table { rows: Growing::reserve(rows_max as usize * size_of::<Row>())?, rows_max })
    }

    /// All rows are in use, or the kernel gives no memory for more.
    pub(super) fn full(&self) -> StoreError {
        let bytes = u64::from(self.rows_max) * PAGE_BYTES as u64;
        let cause = FullCause::of_own(self.rows.is_refused());
        StoreError::Full { url: "far memory".into(), cause, used_bytes: bytes, capacity_bytes: bytes }
    }

    /// Whether a row was ever used, or is near one that was: others may not be written to.
    fn is_writable(&self, handle: Handle) -> bool {
        self.rows.is_writable(handle as usize * size_of::<Row>())
    }

    fn row(&self, handle: Handle) -> &Row {
        assert!(handle < self.rows_max, "row {handle} outside the table");
        // SAFETY: inside the mapping (asserted), aligned (rows are 16 bytes from a page boundary on), zeroed by the kernel,
        // and only ever used as rows of atomics.
        unsafe { &*self.rows.at(handle as usize * size_of::<Row>()).cast::<Row>() }
    }

    /// Enters a page as the youngest of its path; `None` when all rows are in use, or the kernel gives no memory for more.
    pub(super) fn insert(&self, lists: &mut Lists, place: PathLocation) -> Option<Handle> {
        let handle = match lists.free.checked_sub(1) {
            Some(handle) => {
                let handle = Handle::try_from(handle).expect("the free list holds rows");
                lists.free = self.row(handle).place.load(Relaxed);
                handle
            }
            None if lists.high < self.rows_max && self.rows.grow((lists.high as usize + 1) * size_of::<Row>()) => {
                lists.high += 1;
                lists.high - 1
            }
            None => return None,
        };
        self.row(handle).place.store(place.encode(), Release);
        self.push_youngest(lists, place.path, handle);
        Some(handle)
    }

    /// Pins a page where it is until `unpin`; `None`: nothing is stored there, and it is not pinned.
    pub(super) fn pin(&self, handle: Handle) -> Option<PathLocation> {
        self.pin_if(handle, |_| true)
    }

    /// As `pin`, of a page that is not being moved, nor will be until `unpin`; `None`: it is being moved, or nothing is stored there, and it is
    /// not pinned.
    pub(super) fn pin_still(&self, handle: Handle) -> Option<PathLocation> {
        self.pin_if(handle, |word| word & MOVING == 0)
    }

    fn pin_if(&self, handle: Handle, may_be: impl FnOnce(u64) -> bool) -> Option<PathLocation> {
        if !self.is_writable(handle) {
            return None;
        }
        let word = self.row(handle).place.fetch_add(PIN, Acquire);
        let place = PathLocation::decode(word).filter(|_| may_be(word));
        if place.is_none() {
            self.unpin(handle);
        }
        place
    }

    /// Ends `pin`.
    pub(super) fn unpin(&self, handle: Handle) {
        self.row(handle).place.fetch_sub(PIN, Release);
    }

    /// Takes a page out; returns its place, which is to be freed, or `None` if a migration has it and will free it.
    pub(super) fn remove(&self, lists: &mut Lists, handle: Handle) -> Option<PathLocation> {
        let word = self.row(handle).place.load(Acquire);
        let place = PathLocation::decode(word).unwrap_or_else(|| panic!("far page {handle} was freed twice"));
        assert!(word < PIN, "far page {handle} was freed during a load");
        if word & MOVING != 0 {
            self.row(handle).place.store(word | DEAD, Release);
            return None;
        }
        self.unlink(lists, place.path, handle);
        self.give_back(lists, handle);
        Some(place)
    }

    /// Where a page is; `None`: nothing is stored there.
    pub(super) fn place(&self, handle: Handle) -> Option<PathLocation> {
        PathLocation::decode(self.row(handle).place.load(Relaxed))
    }

    /// Whether a page was promoted and is loaded now for the first time since.
    pub(super) fn first_load_of_promoted(&self, handle: Handle) -> bool {
        let place = &self.row(handle).place;
        place.load(Relaxed) & PROMOTED != 0 && place.fetch_and(!PROMOTED, Relaxed) & PROMOTED != 0
    }

    /// Starts moving the oldest or the youngest pages of `path` that no load holds: at most `count`.
    pub(super) fn start_moves(
        &self,
        lists: &mut Lists,
        path: usize,
        count: usize,
        which: Which,
    ) -> Vec<(Handle, PathLocation)> {
        let mut moves = Vec::with_capacity(count);
        let Ends { oldest, youngest } = lists.ends[path];
        let mut handle = if which == Which::Oldest { oldest } else { youngest };
        while handle != NONE && moves.len() < count {
            let next = if which == Which::Oldest { self.younger(handle) } else { self.older(handle) };
            moves.extend(self.start_move(lists, handle).map(|place| (handle, place)));
            handle = next;
        }
        moves
    }

    /// Starts moving a page; `None`: a load holds it, or it is being moved.
    pub(super) fn start_move(&self, lists: &mut Lists, handle: Handle) -> Option<PathLocation> {
        let row = &self.row(handle).place;
        let word = row.load(Acquire);
        let place = PathLocation::decode(word).filter(|_| word < PIN && word & MOVING == 0)?;
        row.compare_exchange(word, word | MOVING, AcqRel, Relaxed).ok()?;
        self.unlink(lists, place.path, handle);
        Some(place)
    }

    /// Ends a move with the page at `to`, as one that was promoted or not.
    pub(super) fn finish_move(
        &self,
        lists: &mut Lists,
        handle: Handle,
        from: PathLocation,
        to: PathLocation,
        is_promoted: bool,
    ) -> Outcome {
        let row = &self.row(handle).place;
        let (before, after) = (from.encode() | MOVING, to.encode() | if is_promoted { PROMOTED } else { 0 });
        let mut word = row.load(Acquire);
        // A load that was there meanwhile has taken the mark away.
        while word & !PROMOTED == before {
            match row.compare_exchange(word, after, AcqRel, Acquire) {
                Ok(_) => {
                    self.push_youngest(lists, to.path, handle);
                    return Outcome::Moved { was_promoted: word & PROMOTED != 0 };
                }
                Err(now) => word = now,
            }
        }
        if word & DEAD != 0 {
            self.give_back(lists, handle);
            return Outcome::Dead;
        }
        row.fetch_and(!MOVING, AcqRel);
        self.push_youngest(lists, from.path, handle);
        Outcome::Kept
    }

    /// Ends a move that could not be made: the page stays the oldest of its path, or with `as_youngest` becomes the
    /// youngest.
    pub(super) fn abandon_move(
        &self,
        lists: &mut Lists,
        handle: Handle,
        from: PathLocation,
        as_youngest: bool,
    ) -> Outcome {
        let word = self.row(handle).place.fetch_and(!MOVING, AcqRel);
        if word & DEAD != 0 {
            self.give_back(lists, handle);
            return Outcome::Dead;
        }
        if as_youngest {
            self.push_youngest(lists, from.path, handle);
        } else {
            self.push_oldest(lists, from.path, handle);
        }
        Outcome::Kept
    }

    fn give_back(&self, lists: &mut Lists, handle: Handle) {
        self.row(handle).place.store(lists.free, Release);
        lists.free = u64::from(handle) + 1;
    }

    #[allow(clippy::cast_possible_truncation, reason = "takes the low half")]
    fn younger(&self, handle: Handle) -> Handle {
        self.row(handle).links.load(Relaxed) as Handle
    }

    #[allow(clippy::cast_possible_truncation, reason = "takes the high half")]
    fn older(&self, handle: Handle) -> Handle {
        (self.row(handle).links.load(Relaxed) >> 32) as Handle
    }

    fn set_links(&self, handle: Handle, older: Handle, younger: Handle) {
        self.row(handle).links.store(u64::from(older) << 32 | u64::from(younger), Relaxed);
    }

    fn push_youngest(&self, lists: &mut Lists, path: usize, handle: Handle) {
        let last = std::mem::replace(&mut lists.ends[path].youngest, handle);
        self.set_links(handle, last, NONE);
        match last {
            NONE => lists.ends[path].oldest = handle,
            _ => self.set_links(last, self.older(last), handle),
        }
    }

    fn push_oldest(&self, lists: &mut Lists, path: usize, handle: Handle) {
        let first = std::mem::replace(&mut lists.ends[path].oldest, handle);
        self.set_links(handle, NONE, first);
        match first {
            NONE => lists.ends[path].youngest = handle,
            _ => self.set_links(first, handle, self.younger(first)),
        }
    }

    fn unlink(&self, lists: &mut Lists, path: usize, handle: Handle) {
        let (older, younger) = (self.older(handle), self.younger(handle));
        match older {
            NONE => lists.ends[path].oldest = younger,
            _ => self.set_links(older, self.older(older), younger),
        }
        match younger {
            NONE => lists.ends[path].youngest = older,
            _ => self.set_links(younger, older, self.younger(younger)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: usize, location: u64) -> PathLocation {
        PathLocation { path, location: Location(location) }
    }

    #[test]
    fn the_oldest_unpinned_pages_move_first() {
        let (table, mut lists) = (Table::new().expect("address space"), Lists::new(2));
        let handles: Vec<Handle> = (0..5).map(|n| table.insert(&mut lists, place(0, 100 + n)).expect("room")).collect();
        assert_eq!(table.remove(&mut lists, handles[1]), Some(place(0, 101)));
        assert_eq!(table.pin(handles[0]), Some(place(0, 100)));
        let moves = table.start_moves(&mut lists, 0, 2, Which::Oldest);
        assert_eq!(moves, [(handles[2], place(0, 102)), (handles[3], place(0, 103))]);
        // One arrives, one is freed on the way, and a moving page can still be loaded.
        assert_eq!(table.remove(&mut lists, handles[3]), None);
        assert_eq!(table.finish_move(&mut lists, handles[3], moves[1].1, place(1, 7), false), Outcome::Dead);
        assert_eq!(table.pin(handles[2]), Some(place(0, 102)));
        assert_eq!(table.finish_move(&mut lists, handles[2], moves[0].1, place(1, 8), true), Outcome::Kept);
        table.unpin(handles[2]);
        // What is patched is not being moved, and no move of it begins.
        assert_eq!(table.pin_still(handles[0]), Some(place(0, 100)));
        let moves = table.start_moves(&mut lists, 0, 9, Which::Oldest);
        assert!(moves.iter().all(|(handle, _)| *handle != handles[0]) && moves.len() == 2);
        assert_eq!(table.pin_still(handles[4]), None);
        table.unpin(handles[0]);
        moves.iter().for_each(|(handle, from)| _ = table.abandon_move(&mut lists, *handle, *from, true));
        table.unpin(handles[0]);
        let order = table.start_moves(&mut lists, 0, 9, Which::Oldest);
        let order: Vec<Handle> = order.iter().map(|(handle, _)| *handle).collect();
        assert_eq!(order, [handles[0], handles[4], handles[2]]);
        assert_eq!(
            table.finish_move(&mut lists, handles[0], place(0, 100), place(1, 9), false),
            Outcome::Moved { was_promoted: false }
        );
        assert_eq!(table.abandon_move(&mut lists, handles[2], place(0, 102), false), Outcome::Kept);
        assert_eq!(table.abandon_move(&mut lists, handles[4], place(0, 104), false), Outcome::Kept);
        assert_eq!(table.remove(&mut lists, handles[0]), Some(place(1, 9)));
        assert_eq!(table.start_moves(&mut lists, 0, 1, Which::Oldest)[0].0, handles[4]);
    }

    #[test]
    fn a_promoted_page_is_known_until_it_is_loaded_or_moved() {
        let (table, mut lists) = (Table::new().expect("address space"), Lists::new(2));
        let handles: Vec<Handle> = (0..4).map(|n| table.insert(&mut lists, place(1, 100 + n)).expect("room")).collect();
        let moves = table.start_moves(&mut lists, 1, 2, Which::Youngest);
        assert_eq!(moves, [(handles[3], place(1, 103)), (handles[2], place(1, 102))]);
        for (handle, from) in &moves {
            let to = place(0, from.location.0);
            assert_eq!(table.finish_move(&mut lists, *handle, *from, to, true), Outcome::Moved { was_promoted: false });
        }
        // What one thread moves no other does.
        assert_eq!(table.start_move(&mut lists, handles[0]), Some(place(1, 100)));
        assert_eq!(table.start_move(&mut lists, handles[0]), None);
        assert_eq!(table.abandon_move(&mut lists, handles[0], place(1, 100), false), Outcome::Kept);
        assert_eq!(table.pin(handles[1]), Some(place(1, 101)));
        assert_eq!(table.start_move(&mut lists, handles[1]), None, "a load holds it");
        table.unpin(handles[1]);
        assert_eq!((table.pin(handles[3]), table.place(handles[3])), (Some(place(0, 103)), Some(place(0, 103))));
        assert!(table.first_load_of_promoted(handles[3]) && !table.first_load_of_promoted(handles[3]));
        table.unpin(handles[3]);
        // A page that stays, or that a load keeps, is still one that was promoted.
        let moves = table.start_moves(&mut lists, 0, 9, Which::Oldest);
        assert_eq!(moves, [(handles[3], place(0, 103)), (handles[2], place(0, 102))]);
        moves.iter().for_each(|(handle, from)| _ = table.abandon_move(&mut lists, *handle, *from, true));
        assert_eq!(table.start_move(&mut lists, handles[2]), Some(place(0, 102)));
        assert_eq!(table.pin(handles[2]), Some(place(0, 102)));
        assert_eq!(table.finish_move(&mut lists, handles[2], place(0, 102), place(1, 7), false), Outcome::Kept);
        table.unpin(handles[2]);
        for (handle, was_promoted) in [(handles[2], true), (handles[3], false)] {
            let from = table.start_move(&mut lists, handle).expect("no load holds it");
            let moved = table.finish_move(&mut lists, handle, from, place(1, from.location.0), false);
            assert_eq!(moved, Outcome::Moved { was_promoted });
            assert!(!table.first_load_of_promoted(handle), "it was moved away");
        }
        let from = table.start_move(&mut lists, handles[2]).expect("no load holds it");
        assert_eq!(
            table.finish_move(&mut lists, handles[2], from, place(0, 102), true),
            Outcome::Moved { was_promoted: false }
        );
        // A load during a move, which is over when that ends, uses the page.
        let from = table.start_move(&mut lists, handles[2]).expect("no load holds it");
        assert!(table.pin(handles[2]).is_some() && table.first_load_of_promoted(handles[2]));
        table.unpin(handles[2]);
        assert_eq!(
            table.finish_move(&mut lists, handles[2], from, place(0, 102), false),
            Outcome::Moved { was_promoted: false }
        );
        assert_eq!(table.remove(&mut lists, handles[2]), Some(place(0, 102)));
    }
}
