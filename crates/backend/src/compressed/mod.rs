//! `compressed`: pages in RAM, compressed.
//!
//! ```text
//! location ─► handle table entry ─► slab, slot, length ─► compressed bytes in one large private mapping
//!         └─► (same-filled pages)  the repeated word itself
//! ```
//! **Invariants.** Compression and decompression run without a lock. A load takes no lock at all: it pins its entry, so
//! that compaction leaves the object where it is, decompresses from the slab, and unpins. Allocation, free and each single
//! move of compaction hold one lock for well under a microsecond. The slabs' memory never exceeds the capacity.
//! The layout follows the kernel's zsmalloc (mm/zsmalloc.c): size classes, fullness groups, handles, compaction.

mod classes;
mod handles;
mod recompress;
mod slab;
mod slabs;

use crate::codec::{Codec, CodecName, ZstdDecompressor, decompress_lz4};
use crate::counters::{Counters, Tally};
use crate::mapping::Growing;
use crate::same_filled;
use crate::sync::{FREED_AT_ONCE, Pool, lock};
use crate::{Backend, BackendUsage, ForkSide, FullCause, LoadError, LoadItem, Location, Priority, StoreError};
use classes::{Classes, SLAB_BYTES};
use handles::{FreeHandles, Handle, Handles, Object, SLABS_MAX, Stage};
use hinterland_units::{PAGE_BYTES, PageBytes};
pub use recompress::Recompression;
use recompress::Recompressor;
use slabs::{Move, Slabs};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pages that one store can hold: a third of those that the far range has; others go to the next path.
const HANDLES_MAX: Handle = 1 << 30;
/// Codecs that can work at once; more threads wait.
const CODECS_MAX: usize = 16;
/// Slabs may be touched without being full: the mapping is larger than the capacity by these.
const SPARE_SLABS: u64 = 512;
/// Moves of compaction for each page stored or freed while the store is fragmented. Each move out of a slab that is at
/// most 7/8 full gains 1/8 of a slot or more, so this outruns any pattern of frees.
const MOVES_PER_PAGE: usize = 3;
/// Moves before a store is declared full.
const MOVES_WHEN_FULL: usize = 256;
/// Fragmentation that compaction leaves alone: an eighth of the slots in use, and this.
const SLACK_BYTES: u64 = 512 << 10;
/// Location bit 0: the handle's entry is the word that fills the page.
const SAME_FILLED: u64 = 1;

/// Compressed pages in RAM.
pub struct Compressed {
    url: String,
    codec: CodecName,
    capacity_bytes: u64,
    memory: Arc<Growing>,
    handles: Handles,
    classes: Arc<Classes>,
    state: Mutex<State>,
    workers: Pool<Worker>,
    decompressors: Pool<ZstdDecompressor>,
    /// `None`: what was stored stays as it is.
    recompressor: Option<Mutex<Recompressor>>,
    /// The recompressor has its tools.
    has_tools: AtomicBool,
    /// Pages that had been stored when recompression had nothing left to do.
    settled_at: AtomicU64,
    /// Pages that were freed before the hand passed them as recompressed.
    returned: AtomicU64,
    counters: Counters,
    ram_bytes: AtomicU64,
}

/// What allocation changes.
struct State {
    slabs: Slabs,
    free_handles: FreeHandles,
    /// The class that compaction is working on.
    compacting: Option<usize>,
}

/// What a thread needs to compress a page.
struct Worker {
    codec: Codec,
    bytes: Box<PageBytes>,
}

/// A page on its way into the store.
enum Form<'a> {
    Word(u64),
    Bytes(&'a [u8]),
}

impl Compressed {
    /// Holds up to `capacity_bytes` of slabs; `url` names it in messages.
    ///
    /// # Errors
    /// The address space for the slabs and the handle table cannot be reserved.
    pub fn new(url: String, codec: CodecName, capacity_bytes: u64) -> io::Result<Compressed> {
        let classes = Arc::new(Classes::new());
        let slabs = (capacity_bytes.div_ceil(SLAB_BYTES as u64) + SPARE_SLABS).min(SLABS_MAX as u64);
        let bytes = usize::try_from(slabs * SLAB_BYTES as u64).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let memory = Arc::new(Growing::reserve(bytes)?);
        let state = State {
            slabs: Slabs::new(Arc::clone(&memory), Arc::clone(&classes), capacity_bytes),
            free_handles: FreeHandles::default(),
            compacting: None,
        };
        Ok(Compressed {
            url,
            codec,
            capacity_bytes,
            memory,
            handles: Handles::new(HANDLES_MAX)?,
            classes,
            state: Mutex::new(state),
            workers: Pool::new(CODECS_MAX, move || Worker {
                codec: Codec::new(codec),
                bytes: Box::new([0; PAGE_BYTES]),
            }),
            decompressors: Pool::new(CODECS_MAX, ZstdDecompressor::new),
            recompressor: None,
            has_tools: AtomicBool::new(false),
            settled_at: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            counters: Counters::default(),
            ram_bytes: AtomicU64::new(0),
        })
    }

    /// Has what stays be compressed again by zstd, in the background: see [`Backend::maintain`].
    #[must_use]
    pub fn recompressing(self, when: Recompression) -> Compressed {
        Compressed { recompressor: Some(Mutex::new(Recompressor::new(when))), ..self }
    }

    /// Makes up to `moves` moves of compaction, whatever the fragmentation; returns how many were tried. Fewer than `moves`
    /// means that nothing is left to move.
    pub fn compact(&self, moves: usize) -> usize {
        let tried = (0..moves).take_while(|_| self.compact_once(&mut lock(&self.state))).count();
        self.note_ram(&lock(&self.state));
        tried
    }

    fn store_one(
        &self,
        worker: &mut Worker,
        page: &PageBytes,
        bytes_max: usize,
        tally: &mut Tally,
    ) -> Result<Location, StoreError> {
        let form = match same_filled::repeated_word(page) {
            Some(word) => Form::Word(word),
            None => match worker.codec.compress(page, &mut worker.bytes[..self.classes.longest_compressed()]) {
                Some(length) => Form::Bytes(&worker.bytes[..length]),
                None => Form::Bytes(page),
            },
        };
        match form {
            Form::Word(word) => {
                // `full` locks, too.
                let handle = self.handles.take(&mut lock(&self.state).free_handles);
                let handle = handle.ok_or_else(|| self.full())?;
                self.handles.set_word(handle, word);
                tally.pages += 1;
                tally.same_filled_pages += 1;
                Ok(Location(u64::from(handle) << 1 | SAME_FILLED))
            }
            Form::Bytes(bytes) if bytes.len() > bytes_max => {
                Err(StoreError::Incompressible { url: self.url.clone(), bytes_max })
            }
            Form::Bytes(bytes) => {
                let (handle, object) = self.allocate(bytes.len()).ok_or_else(|| self.full())?;
                // SAFETY: the slot was reserved for this object, is at least as long, and no other code touches it: its
                // entry is not published yet, so neither a load nor compaction can find it.
                unsafe { self.address(object).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                self.handles.publish(handle, object);
                tally.pages += 1;
                tally.stored_bytes += bytes.len() as u64;
                tally.plain_pages += u64::from(bytes.len() == PAGE_BYTES);
                Ok(Location(u64::from(handle) << 1))
            }
        }
    }

    /// Reserves a handle and a slot; compacts first if only fragmentation is in the way.
    fn allocate(&self, length: usize) -> Option<(Handle, Object)> {
        let mut state = lock(&self.state);
        let State { slabs, free_handles, .. } = &mut *state;
        let handle = self.handles.take(free_handles)?;
        let mut place = slabs.take(length, handle);
        if place.is_none() && slabs.touched_bytes() > slabs.slot_bytes() + slabs.slot_bytes() / 8 {
            for _ in 0..MOVES_WHEN_FULL {
                if !self.compact_once(&mut state) {
                    break;
                }
            }
            state.slabs.release_idle();
            place = state.slabs.take(length, handle);
        }
        let Some((slab, slot)) = place else {
            self.handles.give_back(&mut state.free_handles, handle);
            return None;
        };
        let length = u16::try_from(length).expect("at most a page");
        Some((handle, Object { slab, slot, length, stage: Stage::Fresh }))
    }

    fn address(&self, object: Object) -> *mut u8 {
        let slot_bytes = self.slot_bytes_of(object.length);
        self.memory.at(object.slab as usize * SLAB_BYTES + usize::from(object.slot) * slot_bytes)
    }

    fn slot_bytes_of(&self, length: u16) -> usize {
        self.classes.slot_bytes(self.classes.of(usize::from(length)))
    }

    fn load_one(&self, item: &mut LoadItem<'_>) -> Result<(), LoadError> {
        let damaged = |what| LoadError::Damaged { url: self.url.clone(), location: item.location, what };
        let handle = Handle::try_from(item.location.0 >> 1).map_err(|_| damaged("the location is out of range"))?;
        if item.location.0 & SAME_FILLED != 0 {
            same_filled::fill(item.into, self.handles.word(handle));
            return Ok(());
        }
        let Some(object) = self.handles.pin(handle) else {
            return Err(damaged("nothing is stored there (freed, or never stored)"));
        };
        // SAFETY: the object's bytes were in place when its entry was published; the pin keeps compaction, and the
        // caller's hold on the location keeps `free`, from giving its slot away.
        let bytes = unsafe { std::slice::from_raw_parts(self.address(object), usize::from(object.length)) };
        let whole = self.restore(object, bytes, item.into);
        self.handles.unpin(handle);
        if matches!(object.stage, Stage::Aged(_)) {
            // In vain while others load it, too: the last of them does it.
            self.handles.relocate(handle, object, object.at(Stage::Fresh));
        }
        whole.ok_or_else(|| damaged("its bytes do not decompress to one page"))
    }

    /// Decompresses an object's bytes.
    fn restore(&self, object: Object, bytes: &[u8], into: &mut PageBytes) -> Option<()> {
        if let Ok(plain) = <&PageBytes>::try_from(bytes) {
            into.copy_from_slice(plain);
            return Some(());
        }
        let codec = if object.stage.is_recompressed() { CodecName::Zstd } else { self.codec };
        match codec {
            CodecName::Lz4 => decompress_lz4(bytes, into),
            CodecName::Zstd => self.decompressors.with(|zstd| zstd.decompress(bytes, into)),
        }
    }

    fn free_one(&self, state: &mut State, location: Location, tally: &mut Tally) {
        let handle = Handle::try_from(location.0 >> 1).expect("a location of this backend");
        tally.pages += 1;
        if location.0 & SAME_FILLED != 0 {
            tally.same_filled_pages += 1;
        } else {
            let object = self.handles.clear(handle);
            let object = object.unwrap_or_else(|| panic!("{} was asked to free {location:?} twice", self.url));
            tally.stored_bytes += u64::from(object.length);
            tally.plain_pages += u64::from(usize::from(object.length) == PAGE_BYTES);
            if matches!(object.stage, Stage::Recompressed(_)) {
                self.returned.fetch_add(1, Relaxed);
            }
            state.slabs.give_back(object);
        }
        self.handles.give_back(&mut state.free_handles, handle);
    }

    /// Compacts in proportion to the pages that came or went, while the store is fragmented.
    fn compact_after(&self, pages: usize) {
        for _ in 0..pages * MOVES_PER_PAGE {
            let mut state = lock(&self.state);
            let (held, used) = (state.slabs.touched_bytes(), state.slabs.slot_bytes());
            if held <= used + used / 8 + SLACK_BYTES || !self.compact_once(&mut state) {
                break;
            }
        }
        self.note_ram(&lock(&self.state));
    }

    /// Moves one object from a sparse slab to a fuller one, or trims a slab; `false` when nothing is left to do.
    fn compact_once(&self, state: &mut State) -> bool {
        let unfinished = state.compacting.filter(|class| state.slabs.reclaimable_pages(*class) > 0);
        if unfinished.is_some_and(|class| self.compact_class(state, class)) {
            return true;
        }
        // A class may have nothing to give in which more is held than needed: its slabs end without memory for another object, at the
        // capacity, or an object is being loaded.
        state.compacting = state.slabs.classes_to_compact().into_iter().find(|class| self.compact_class(state, *class));
        state.compacting.is_some()
    }

    /// The same in one class.
    fn compact_class(&self, state: &mut State, class: usize) -> bool {
        let before = state.slabs.reclaimable_pages(class);
        match state.slabs.next_move(class) {
            Some(proposal) => self.carry_out(state, &proposal),
            // Packed, and trimmed by this step unless that was impossible.
            None => state.slabs.reclaimable_pages(class) < before,
        }
    }

    /// False: the object cannot be moved now.
    fn carry_out(&self, state: &mut State, proposal: &Move) -> bool {
        let Move { owner, slab, slot, to_slab, to_slot } = *proposal;
        let from = self.handles.unpinned(owner).filter(|object| (object.slab, object.slot) == (slab, slot));
        let moved = from.is_some_and(|from| {
            let to = Object { slab: to_slab, slot: to_slot, ..from };
            // SAFETY: both slots are of one class and in use (the new one reserved for this move), so neither is given
            // away while the lock is held; the entry says that the old one's bytes are complete, and bytes of a stored
            // object never change.
            unsafe { self.address(to).copy_from_nonoverlapping(self.address(from), usize::from(from.length)) };
            self.handles.relocate(owner, from, to)
        });
        if moved {
            state.slabs.finish(proposal)
        } else {
            state.slabs.cancel(proposal)
        }
        moved
    }

    fn note_ram(&self, state: &State) {
        let tables = state.slabs.table_bytes() + (state.free_handles.high() as usize * 8).next_multiple_of(PAGE_BYTES);
        let workers = self.workers.made() as u64 * (Codec::ram_bytes(self.codec) + PAGE_BYTES as u64);
        let decompressors = self.decompressors.made() as u64 * ZstdDecompressor::ram_bytes();
        let tools = if self.has_tools.load(Relaxed) { Recompressor::tools_bytes() } else { 0 };
        let codecs = workers + decompressors + tools;
        self.ram_bytes.store(state.slabs.touched_bytes() + tables as u64 + codecs, Relaxed);
    }

    fn full(&self) -> StoreError {
        let used_bytes = lock(&self.state).slabs.touched_bytes();
        let cause = FullCause::of_own(self.memory.is_refused() || self.handles.is_refused());
        StoreError::Full { url: self.url.clone(), cause, used_bytes, capacity_bytes: self.capacity_bytes }
    }
}

impl Backend for Compressed {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.store_if_compressible(pages, PAGE_BYTES, priority, out);
    }

    fn store_if_compressible(
        &self,
        pages: &[&PageBytes],
        bytes_max: usize,
        _priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        let mut tally = Tally::default();
        self.workers.with(|worker| {
            for (page, answer) in pages.iter().zip(out) {
                *answer = self.store_one(worker, page, bytes_max, &mut tally);
            }
        });
        self.counters.stored(&tally);
        self.compact_after(pages.len());
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        _priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        for (index, item) in items.iter_mut().enumerate() {
            let result = self.load_one(item);
            done(index, result.map(|()| &*item.into));
        }
        self.counters.loaded(items.len() as u64);
    }

    fn free(&self, locations: &[Location]) {
        for batch in locations.chunks(FREED_AT_ONCE) {
            let mut tally = Tally::default();
            let mut state = lock(&self.state);
            for location in batch {
                self.free_one(&mut state, *location, &mut tally);
            }
            drop(state);
            self.counters.freed(&tally);
        }
        self.compact_after(locations.len());
    }

    fn descriptors_if_confined(&self) -> Option<Vec<RawFd>> {
        Some(Vec::new())
    }

    fn copies_cost_ram(&self) -> bool {
        true
    }

    fn ram_bytes(&self) -> u64 {
        self.ram_bytes.load(Relaxed)
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        rows.push(self.counters.row(&self.url, self.ram_bytes(), self.capacity_bytes));
    }

    fn needs_maintenance(&self) -> bool {
        self.recompressor.is_some() && self.counters.stores() != self.settled_at.load(Relaxed)
    }

    fn maintain(&self) -> Option<Duration> {
        self.recompress(&mut lock(self.recompressor.as_ref()?))
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        self.counters.after_fork(side);
        if side == ForkSide::Child
            && let Some(recompressor) = &self.recompressor
        {
            // What is stored is counted anew.
            lock(recompressor).count_anew();
            self.settled_at.store(u64::MAX, Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Kind, page};

    #[test]
    fn without_handles_the_store_is_full_for_every_page() {
        let store = Compressed::new("compressed".into(), CodecName::Lz4, 1 << 20).expect("address space");
        let store = Compressed { handles: Handles::new(8).expect("address space"), ..store };
        for kind in [Kind::SameFilled, Kind::HalfRandom] {
            let pages: Vec<PageBytes> = (0..9).map(|seed| page(kind, seed)).collect();
            let mut out = vec![Ok(Location(0)); pages.len()];
            store.store(&pages.iter().collect::<Vec<_>>(), Priority::WriteBack, &mut out);
            let (held, refused): (Vec<_>, Vec<_>) = out.into_iter().partition(Result::is_ok);
            assert!(matches!(refused[..], [Err(StoreError::Full { .. })]), "{kind:?}: {refused:?}");
            store.free(&held.into_iter().flatten().collect::<Vec<_>>());
        }
    }

    #[test]
    fn compaction_leaves_a_page_alone_while_it_is_loaded() {
        let store = Compressed::new("compressed".into(), CodecName::Lz4, 64 << 20).expect("address space");
        let pages: Vec<PageBytes> = (0..310).map(|seed| page(Kind::HalfRandom, seed)).collect();
        let references: Vec<&PageBytes> = pages.iter().collect();
        let mut out = vec![Ok(Location(0)); pages.len()];
        store.store(&references, Priority::WriteBack, &mut out);
        let locations: Vec<Location> = out.into_iter().map(|answer| answer.expect("room")).collect();
        let handle = |index: usize| Handle::try_from(locations[index].0 >> 1).expect("a handle");
        let (kept, gone): (Vec<usize>, Vec<usize>) = (0..310).partition(|index| index % 31 == 30);
        let before: Vec<Option<Object>> = kept.iter().map(|index| store.handles.unpinned(handle(*index))).collect();
        // Loads of the last pages of all slabs but one have begun when the rest is freed and the store is compacted.
        let loaded = &kept[1..];
        let pinned: Vec<Option<Object>> = loaded.iter().map(|index| store.handles.pin(handle(*index))).collect();
        store.free(&gone.iter().map(|index| locations[*index]).collect::<Vec<_>>());
        store.compact(1000);
        for (index, object) in loaded.iter().zip(&pinned) {
            let object = object.expect("stored");
            assert_eq!(store.handles.pin(handle(*index)), Some(object), "page {index} moved under a load");
            store.handles.unpin(handle(*index));
            // SAFETY: the object is pinned.
            let bytes = unsafe { std::slice::from_raw_parts(store.address(object), usize::from(object.length)) };
            let mut into = [0; PAGE_BYTES];
            assert!(store.restore(object, bytes, &mut into).is_some() && into == pages[*index], "page {index}");
            store.handles.unpin(handle(*index));
        }
        store.compact(1000);
        let moved = kept.iter().zip(before).filter(|(index, place)| store.handles.unpinned(handle(**index)) != *place);
        assert!(moved.count() >= 9, "ten pages in ten slabs should share one now");
    }
}
