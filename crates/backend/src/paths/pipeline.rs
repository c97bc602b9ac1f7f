//! Empties a path that is dropped: a batch is read while the one before it is stored, so that the whole takes as long
//! as the slower of both sides, where one of them waits for a device or node.
//!
//! ```text
//! step 1:  read A · store A ∥ read B       step 2:  store B ∥ read C       step 3:  store C ∥ read D       …
//! ```
//! The read and the stores are parts of one batch over several paths (`batch`), nested in this thread in the order of
//! all paths. Between two steps a batch is read and not stored: its rows are `moving`, its pages still at their old
//! places, where loads find them; freeing one marks its row dead. A fork in between clones rows and room alike, and
//! both processes go on.

use super::Paths;
use super::batch::{Done, OverlappedLoad, Part, carry_out};
use super::duty_cycle::DutyCycle;
use super::migrate::{Moved, Moving, Staging, store_batch};
use super::table::Which;
use crate::sync::lock;
use crate::{LoadError, LoadItem, Priority, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::cell::RefCell;

/// Pages in one batch while the program waits for none: 1 MiB, so that a disk has eight operations under way.
pub(super) const ROOM_PAGES: usize = 256;

/// See the module.
pub(super) struct Pipeline {
    /// The batch that was read, and its room; then the room of the next one.
    read: Vec<Moving>,
    room: Staging,
    next_room: Staging,
    /// The path that is emptied.
    pub(super) path: Option<usize>,
    pub(super) duty_cycle: DutyCycle,
}

impl Pipeline {
    pub(super) const RAM_BYTES: u64 = (2 * ROOM_PAGES * PAGE_BYTES) as u64;

    pub(super) fn new() -> Pipeline {
        let (room, next_room) = (Staging::of(ROOM_PAGES), Staging::of(ROOM_PAGES));
        Pipeline { read: Vec::new(), room, next_room, path: None, duty_cycle: DutyCycle::default() }
    }
}

impl Paths {
    /// Stores the batch of a path's pages that was read, and reads the next one of at most `pages` meanwhile; says what became of the first, and
    /// why not all of it was stored. Then nothing stays read.
    pub(super) fn move_on(&self, pipeline: &mut Pipeline, path: usize, pages: usize) -> (Moved, Option<StoreError>) {
        let Pipeline { read, room, next_room, .. } = pipeline;
        if read.first().is_some_and(|moving| moving.from.path != path) {
            self.finish_batch(&std::mem::take(read), false);
        }
        if read.is_empty() {
            *read = self.begin_batch(path, pages);
            self.load_batch(path, read, room.pages(), Priority::Migration);
        }
        let mut next = if read.is_empty() { Vec::new() } else { self.begin_batch(path, pages) };
        self.store_and_load(read, room.pages(), path, &mut next, next_room.pages());
        let refused = read.iter().filter(|moving| moving.loaded).find_map(|moving| moving.stored.clone().err());
        if refused.is_some() {
            // What was refused stays the oldest.
            read.append(&mut next);
        }
        let moved = self.finish_batch(&std::mem::replace(read, next), false);
        std::mem::swap(room, next_room);
        (moved, refused)
    }

    /// Begins to move the oldest pages of a path.
    fn begin_batch(&self, path: usize, pages: usize) -> Vec<Moving> {
        let started = self.table.start_moves(&mut lock(&self.lists), path, pages.min(ROOM_PAGES), Which::Oldest);
        started.into_iter().map(Moving::begun).collect()
    }

    /// Stores the pages of `read` wherever pages are stored, and loads those of `next` from `path` at the same time.
    fn store_and_load(
        &self,
        read: &mut [Moving],
        pages: &[PageBytes],
        path: usize,
        next: &mut [Moving],
        room: &mut [PageBytes],
    ) {
        let from = self.enter(path).filter(|_| !next.is_empty());
        let load = from.as_deref().map(|from| {
            let mut load = Part::load(path, from, Priority::Migration);
            for (index, (moving, into)) in next.iter().zip(room).enumerate() {
                load.add_item(index, LoadItem { location: moving.from.location, into });
            }
            load
        });
        let mut loaded = vec![false; next.len()];
        let mut note = |index: usize, page: Result<&PageBytes, LoadError>| loaded[index] = page.is_ok();
        let done: RefCell<Done<'_>> = RefCell::new(&mut note);
        let mut overlapped = OverlappedLoad { load, done: &done };
        store_batch(read, pages, |pages, out| {
            for mut tier in self.tiers_to_store_at() {
                // One path is not loaded from and stored at in one thread: it would wait for itself where all its lanes are taken.
                tier.retain(|other| *other != path);
                self.put_overlapped(&tier, pages, None, Priority::Migration, out, &mut overlapped);
            }
        });
        if let Some(load) = overlapped.load {
            carry_out(&mut [load], &done);
        }
        next.iter_mut().zip(loaded).for_each(|(moving, loaded)| moving.loaded = loaded);
    }
}
