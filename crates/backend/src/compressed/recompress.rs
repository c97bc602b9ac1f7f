//! Recompression: objects that stay in the store are compressed again by zstd, while a processor is idle.
//!
//! ```text
//! Fresh ── the hand passes ──► Aged ── it passes again ──► Recompressed ── it passes again ──► Proven
//!   ▲── a load ─────────────────┘            └──► Settled, where zstd gains nothing that matters
//! ```
//! A hand goes over the slots of all slabs. A pass begins when the store was turned over once, or more often, since the one before: as many
//! pages were stored as it holds; or after `longest_wait`. So what it finds `Aged` was neither stored nor loaded for that long. There is no
//! list of objects: the stage is three bits of an object's entry.
//!
//! **How long is long.** What has stayed for a while pays when it stays for as long again. Where more than half of what a pass has
//! recompressed is freed (loaded, most often) before the next one, the wait for that doubles, up to 64 turnovers; where it is less than an
//! eighth, the wait halves.
//!
//! **Invariant: an entry that is `Aged` and has not changed names the same bytes.** Only the hand, which one thread moves at a time, makes
//! an object `Aged`; one that was freed meanwhile, and another stored in its place, is `Fresh`. So an object's bytes are copied under the
//! lock, compressed without it, and put in its place under the lock again by a compare-and-exchange of its entry: a load that has pinned
//! it, a free, or a move of compaction wins. The lock is never waited for: stores and frees come first.

use super::handles::{Handle, Object, Stage};
use super::slabs::{Hand, Passed};
use super::{Compressed, State};
use crate::codec::ZstdCompressor;
use crate::counters::Tally;
use crate::sync::{FREED_AT_ONCE, try_lock};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Objects that are copied under one hold of the lock: 16 KiB or so, about a microsecond.
const COPIED_AT_ONCE: usize = 8;
/// How long a step takes: a fork waits for it.
const STEP: Duration = Duration::from_micros(500);
/// Between steps while processors are idle.
const PAUSE_MIN: Duration = Duration::from_micros(500);
/// Between steps while none is.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The longest wait for a pass.
const TURNOVERS_MAX: u64 = 64;
/// Pages of a pass from which something can be learned.
const SAMPLE: u64 = 64;
/// How often is looked whether a pass is due.
const LOOK: Duration = Duration::from_millis(50);
/// An object must become smaller by this, and by an eighth: a load from zstd takes longer by 3 us.
const GAIN_BYTES_MIN: usize = 128;

/// When what stays is compressed again.
#[derive(Clone, Copy, Debug)]
pub struct Recompression {
    /// The longest time between the begins of two passes: a program that stores nothing for as long rests.
    pub longest_wait: Duration,
    /// A step that begins or ends later than this had to wait for a processor. Timers are late by 0.1 ms where one is idle.
    pub late: Duration,
}

impl Default for Recompression {
    fn default() -> Recompression {
        Recompression { longest_wait: Duration::from_secs(10), late: Duration::from_millis(1) }
    }
}

/// What recompression remembers between steps.
pub(super) struct Recompressor {
    longest_wait: Duration,
    hand: Hand,
    pauses: Pauses,
    /// How often the store is turned over between two passes.
    turnovers: u64,
    /// The pass under way or, between two, the last one.
    pass: Option<Pass>,
    tools: Option<Box<Tools>>,
}

/// One pass over all slabs.
#[derive(Clone, Copy)]
struct Pass {
    begun: Instant,
    /// It is one of every second.
    is_odd: bool,
    /// Pages stored before it.
    stores: u64,
    /// Pages that had returned before it.
    returned: u64,
    /// Pages that it has recompressed.
    made: u64,
    is_over: bool,
    /// An object changed its stage.
    has_changed: bool,
}

/// When steps are due, and whether they had to wait for a processor.
struct Pauses {
    late: Duration,
    due: Option<Instant>,
    pause: Duration,
}

impl Pauses {
    fn new(late: Duration) -> Pauses {
        Pauses { late, due: None, pause: PAUSE_MIN }
    }

    /// `Some`: not before so long.
    fn begin(&mut self, now: Instant) -> Option<Duration> {
        let due = self.due?;
        if now < due {
            return Some(due - now);
        }
        self.has_waited(now - due).then(|| self.rest(now, self.pause))
    }

    /// A step has ended; when the next one may begin.
    fn end(&mut self, begun: Instant, now: Instant) -> Duration {
        self.has_waited((now - begun).saturating_sub(STEP));
        self.rest(now, self.pause)
    }

    fn rest(&mut self, now: Instant, pause: Duration) -> Duration {
        self.due = Some(now + pause);
        pause
    }

    /// Adapts the pause to how late something was.
    fn has_waited(&mut self, by: Duration) -> bool {
        let has_waited = by > self.late;
        self.pause = if has_waited { (self.pause * 4).min(PAUSE_MAX) } else { PAUSE_MIN.max(self.pause / 2) };
        has_waited
    }
}

/// Where pages are compressed again.
struct Tools {
    compressor: ZstdCompressor,
    page: PageBytes,
    out: PageBytes,
    copies: [PageBytes; COPIED_AT_ONCE],
}

/// What the hand has found.
#[derive(Default)]
struct Found {
    /// Aged objects, of which the bytes were copied.
    aged: Vec<(Handle, Object)>,
    is_over: bool,
    has_changed: bool,
}

impl Recompressor {
    pub(super) fn new(when: Recompression) -> Recompressor {
        let Recompression { longest_wait, late } = when;
        Recompressor {
            longest_wait,
            hand: Hand::default(),
            pauses: Pauses::new(late),
            turnovers: 1,
            pass: None,
            tools: None,
        }
    }

    /// No page was stored before its last pass.
    pub(super) fn count_anew(&mut self) {
        if let Some(pass) = &mut self.pass {
            pass.stores = 0;
        }
    }

    /// Memory of the tools.
    pub(super) fn tools_bytes() -> u64 {
        ZstdCompressor::ram_bytes() + size_of::<Tools>() as u64
    }
}

/// How often the store is to be turned over before the next pass, when of `made` pages that were recompressed `returned` are freed by now.
fn turnovers_after(turnovers: u64, made: u64, returned: u64) -> u64 {
    if made >= SAMPLE && returned * 2 > made {
        (turnovers * 2).min(TURNOVERS_MAX)
    } else if made < SAMPLE || returned * 8 < made {
        (turnovers / 2).max(1)
    } else {
        turnovers
    }
}

impl Compressed {
    /// One step: see [`crate::Backend::maintain`].
    pub(super) fn recompress(&self, recompressor: &mut Recompressor) -> Option<Duration> {
        let begun = Instant::now();
        if let Some(rest) = recompressor.pauses.begin(begun) {
            return Some(rest);
        }
        if self.is_settled(recompressor.pass) {
            recompressor.pauses = Pauses::new(recompressor.pauses.late);
            return None;
        }
        if recompressor.pass.is_none_or(|pass| pass.is_over) && !self.begin_pass(recompressor, begun) {
            return Some(recompressor.pauses.rest(begun, LOOK));
        }
        let mut tally = Tally::default();
        while begun.elapsed() < STEP && self.recompress_some(recompressor, &mut tally) {}
        self.counters.recompressed(&tally);
        if let Some(pass) = &mut recompressor.pass {
            pass.made += tally.pages;
        }
        self.compact_after(usize::try_from(tally.pages).unwrap_or(0));
        Some(recompressor.pauses.end(begun, Instant::now()))
    }

    /// Begins the next pass, if that is due.
    fn begin_pass(&self, recompressor: &mut Recompressor, now: Instant) -> bool {
        let (stores, returned) = (self.counters.stores(), self.returned.load(Relaxed));
        if let Some(last) = recompressor.pass {
            let wanted = self.counters.pages().saturating_mul(recompressor.turnovers);
            if stores.saturating_sub(last.stores) < wanted && now - last.begun < recompressor.longest_wait {
                return false;
            }
            recompressor.turnovers = turnovers_after(recompressor.turnovers, last.made, returned - last.returned);
        }
        let is_odd = recompressor.pass.is_some_and(|last| !last.is_odd);
        recompressor.pass =
            Some(Pass { begun: now, is_odd, stores, returned, made: 0, is_over: false, has_changed: false });
        true
    }

    /// Whether nothing is left to do until a page is stored; notes that.
    fn is_settled(&self, last: Option<Pass>) -> bool {
        let settled = last.filter(|pass| pass.is_over && !pass.has_changed && pass.stores == self.counters.stores());
        settled.inspect(|pass| self.settled_at.store(pass.stores, Relaxed)).is_some()
    }

    /// Compresses a few objects again; `false`: the pass is over, or another thread has the lock.
    fn recompress_some(&self, recompressor: &mut Recompressor, tally: &mut Tally) -> bool {
        let tools = recompressor.tools.get_or_insert_with(|| {
            self.has_tools.store(true, Relaxed);
            let room = || [0; PAGE_BYTES];
            Box::new(Tools { compressor: ZstdCompressor::new(), page: room(), out: room(), copies: [room(); _] })
        });
        let is_odd = recompressor.pass.is_some_and(|pass| pass.is_odd);
        let Some(state) = try_lock(&self.state) else { return false };
        let found = self.find_aged(&state, is_odd, &mut recompressor.hand, &mut tools.copies);
        drop(state);
        if let Some(pass) = &mut recompressor.pass {
            pass.is_over = found.is_over;
            pass.has_changed |= found.has_changed;
        }
        for ((handle, object), copy) in found.aged.iter().zip(&tools.copies) {
            let bytes = &copy[..usize::from(object.length)];
            let slot_bytes = self.slot_bytes_of(object.length);
            let longest = self.classes.longest_in(slot_bytes.saturating_sub((slot_bytes / 8).max(GAIN_BYTES_MIN)));
            // What cannot be restored stays as it is: its load says so.
            let length = (longest > 0 && self.restore(*object, bytes, &mut tools.page).is_some())
                .then(|| tools.compressor.compress(&tools.page, &mut tools.out))
                .flatten()
                .filter(|length| *length <= longest);
            match length {
                Some(length) => self.replace(*handle, *object, is_odd, &tools.out[..length], tally),
                None => self.settle(*handle, *object),
            }
        }
        !found.is_over
    }

    /// Moves the hand on by some slots. Makes what is fresh there aged, and copies what is aged.
    /// `is_odd`: the pass.
    fn find_aged(
        &self,
        state: &State,
        is_odd: bool,
        hand: &mut Hand,
        copies: &mut [PageBytes; COPIED_AT_ONCE],
    ) -> Found {
        let mut found = Found::default();
        for _ in 0..FREED_AT_ONCE {
            let Some(copy) = copies.get_mut(found.aged.len()) else { break };
            let (owner, place) = match state.slabs.pass(hand) {
                Passed::Used { owner, slab, slot } => (owner, (slab, slot)),
                Passed::Nothing => continue,
                Passed::All => {
                    found.is_over = true;
                    break;
                }
            };
            let Some(object) = self.handles.unpinned(owner).filter(|object| (object.slab, object.slot) == place) else {
                continue;
            };
            match object.stage {
                Stage::Fresh => {
                    found.has_changed |= self.handles.relocate(owner, object, object.at(Stage::Aged(is_odd)));
                }
                Stage::Aged(since) if since != is_odd => {
                    let length = usize::from(object.length);
                    // SAFETY: the slot is in use by this object, whose bytes are complete, as its entry says; they never change,
                    // and it is freed or moved only under the lock, which is held.
                    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(self.address(object), length) };
                    found.aged.push((owner, object));
                    found.has_changed = true;
                }
                Stage::Recompressed(since) if since != is_odd => {
                    self.handles.relocate(owner, object, object.at(Stage::Proven));
                }
                Stage::Aged(_) | Stage::Settled | Stage::Recompressed(_) | Stage::Proven => {}
            }
        }
        found
    }

    /// Puts `bytes` in the place of an object, if that is still there as it was and no load has it pinned.
    fn replace(&self, handle: Handle, from: Object, is_odd: bool, bytes: &[u8], tally: &mut Tally) {
        let Some(mut state) = try_lock(&self.state) else { return };
        if !state.slabs.is_owner(handle, from) || self.handles.unpinned(handle) != Some(from) {
            return;
        }
        let Some((slab, slot)) = state.slabs.take(bytes.len(), handle) else { return };
        let length = u16::try_from(bytes.len()).expect("at most a page");
        let to = Object { slab, slot, length, stage: Stage::Recompressed(is_odd) };
        // SAFETY: the slot was reserved for these bytes, is at least as long, and no entry names it yet.
        unsafe { self.address(to).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        if self.handles.relocate(handle, from, to) {
            state.slabs.give_back(from);
            tally.pages += 1;
            tally.stored_bytes += u64::from(from.length - length);
            tally.plain_pages += u64::from(usize::from(from.length) == PAGE_BYTES);
        } else {
            state.slabs.give_back(to);
        }
    }

    /// Leaves an object as it is from now on.
    fn settle(&self, handle: Handle, object: Object) {
        let Some(state) = try_lock(&self.state) else { return };
        if state.slabs.is_owner(handle, object) {
            self.handles.relocate(handle, object, object.at(Stage::Settled));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecName;
    use crate::samples::{Kind, page};
    use crate::sync::lock;
    use crate::{Backend, LoadError, LoadItem, Location, Priority};

    fn store_of(pages: &[PageBytes]) -> (Compressed, Vec<Location>) {
        let store = Compressed::new("compressed".into(), CodecName::Lz4, 64 << 20).expect("address space");
        let store = store.recompressing(Recompression { longest_wait: Duration::ZERO, late: Duration::MAX });
        let locations = pages.iter().map(|page| put(&store, page)).collect();
        (store, locations)
    }

    fn put(store: &Compressed, page: &PageBytes) -> Location {
        let mut out = [Ok(Location(0))];
        store.store(&[page], Priority::WriteBack, &mut out);
        out[0].clone().expect("room")
    }

    fn get(store: &Compressed, location: Location) -> Result<PageBytes, LoadError> {
        let mut into = [0; PAGE_BYTES];
        store.load_one(&mut LoadItem { location, into: &mut into }).map(|()| into)
    }

    fn handle_of(location: Location) -> Handle {
        Handle::try_from(location.0 >> 1).expect("a handle")
    }

    /// What two passes of the hand find: everything is fresh at the first.
    fn aged(store: &Compressed) -> (Vec<(Handle, Object)>, [PageBytes; COPIED_AT_ONCE]) {
        let (mut hand, mut copies) = (Hand::default(), [[0; PAGE_BYTES]; COPIED_AT_ONCE]);
        let state = lock(&store.state);
        let mut passes = [false, true].into_iter().map(|is_odd| {
            let mut all = Vec::new();
            loop {
                let found = store.find_aged(&state, is_odd, &mut hand, &mut copies);
                all.extend(found.aged);
                if found.is_over {
                    return all;
                }
            }
        });
        assert_eq!(passes.next(), Some(Vec::new()));
        let found = passes.next().expect("two passes");
        (found, copies)
    }

    fn made_smaller(page: &PageBytes) -> Vec<u8> {
        let mut out = [0; PAGE_BYTES];
        let length = ZstdCompressor::new().compress(page, &mut out).expect("text shrinks");
        out[..length].to_vec()
    }

    #[test]
    fn a_load_under_way_wins() {
        let text = page(Kind::Text, 1);
        let (store, locations) = store_of(&[text]);
        let (found, _) = aged(&store);
        let [(handle, object)] = found[..] else { panic!("{found:?}") };
        let pinned = store.handles.pin(handle);
        assert_eq!(pinned, Some(object));
        let mut tally = Tally::default();
        store.replace(handle, object, true, &made_smaller(&text), &mut tally);
        assert_eq!((tally.pages, store.handles.pin(handle)), (0, pinned), "replaced under a load");
        store.handles.unpin(handle);
        store.handles.unpin(handle);
        store.replace(handle, object, true, &made_smaller(&text), &mut tally);
        assert_eq!(tally.pages, 1);
        assert!(get(&store, locations[0]).expect("stored") == text);
        store.free(&locations);
        let state = lock(&store.state);
        assert_eq!(state.slabs.slot_bytes(), 0, "both slots are free");
    }

    #[test]
    fn what_was_freed_meanwhile_is_not_replaced() {
        // In the same slot, and as long, but other bytes; and a word that reads like the entry that was there.
        for kind in [Kind::HalfRandom, Kind::SameFilled] {
            let (store, locations) = store_of(&[page(Kind::HalfRandom, 1)]);
            let (found, _) = aged(&store);
            let [(handle, object)] = found[..] else { panic!("{found:?}") };
            let mut other = page(kind, 2);
            if kind == Kind::SameFilled {
                crate::same_filled::fill(&mut other, store.handles.word(handle));
            }
            store.free(&locations);
            let location = put(&store, &other);
            assert_eq!(handle_of(location), handle, "the handle is used again");
            let mut tally = Tally::default();
            store.replace(handle, object, true, &made_smaller(&page(Kind::Text, 3)), &mut tally);
            store.settle(handle, object);
            assert_eq!(tally.pages, 0, "{kind:?}");
            assert!(get(&store, location).expect("stored") == other, "{kind:?}");
        }
    }

    #[test]
    fn damage_is_found_as_before() {
        let text = page(Kind::Text, 1);
        // The first byte says how many literals follow; the last ones are the page's end.
        for (from_end, is_whole) in [(None, false), (Some(1), true)] {
            let (store, locations) = store_of(&[text]);
            let object = store.handles.unpinned(handle_of(locations[0])).expect("stored");
            let at = from_end.map_or(0, |from_end| usize::from(object.length) - from_end);
            // SAFETY: inside the object; no other thread uses the store.
            unsafe { *store.address(object).add(at) ^= 0xff };
            let before = get(&store, locations[0]).ok();
            assert_eq!(before.is_some(), is_whole);
            while store.needs_maintenance() {
                std::thread::sleep(store.maintain().unwrap_or_default());
            }
            let recompressed = store.handles.unpinned(handle_of(locations[0])).map(|object| object.stage);
            assert_eq!(recompressed, Some(if is_whole { Stage::Proven } else { Stage::Settled }));
            assert!(get(&store, locations[0]).ok() == before && before != Some(text), "the damage was hidden");
        }
    }

    #[test]
    fn what_returns_soon_is_waited_for_longer() {
        let mut turnovers = 1;
        let waits = |turnovers: &mut u64, made, returned| {
            *turnovers = turnovers_after(*turnovers, made, returned);
            *turnovers
        };
        // All of it returns, as pages used at random do.
        let longer: Vec<u64> = (0..8).map(|_| waits(&mut turnovers, 1000, 900)).collect();
        assert_eq!(longer, [2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(waits(&mut turnovers, 1000, 300), 64, "as long again as it has stayed, for most");
        assert_eq!(waits(&mut turnovers, 10, 10), 32, "ten pages cost little");
        let shorter: Vec<u64> = (0..6).map(|_| waits(&mut turnovers, 1000, 100)).collect();
        assert_eq!(shorter, [16, 8, 4, 2, 1, 1]);
    }

    #[test]
    fn pages_that_return_are_told_from_those_that_stay() {
        let pages: Vec<PageBytes> = (0..200).map(|seed| page(Kind::Text, seed)).collect();
        let (store, locations) = store_of(&pages);
        let mut recompressor = Recompressor::new(Recompression { longest_wait: Duration::ZERO, late: Duration::MAX });
        let mut pass = |turnovers| {
            while {
                std::thread::sleep(store.recompress(&mut recompressor).unwrap_or_default());
                !recompressor.pass.expect("a pass").is_over
            } {}
            assert_eq!(recompressor.turnovers, turnovers);
            recompressor.pass.expect("a pass").made
        };
        assert_eq!((pass(1), pass(1)), (0, 200));
        // Most are freed before the hand comes again, and some after it came.
        store.free(&locations[..150]);
        assert_eq!(pass(2), 0);
        store.free(&locations[150..]);
        assert_eq!(store.returned.load(Relaxed), 150);
    }

    #[test]
    fn steps_make_room_where_processors_are_scarce() {
        const LATE: Duration = Duration::from_millis(1);
        let mut pauses = Pauses::new(LATE);
        let mut now = Instant::now();
        assert_eq!(pauses.begin(now), None, "the first step is due at once");
        assert_eq!(pauses.end(now, now + STEP), PAUSE_MIN);
        now += STEP;
        assert_eq!(pauses.begin(now), Some(PAUSE_MIN), "not before its time");
        // Each one is late.
        let mut rests = Vec::new();
        for _ in 0..8 {
            now = pauses.due.expect("a next step") + LATE * 2;
            rests.extend(pauses.begin(now));
        }
        assert_eq!(rests.len(), 8, "no step begins");
        assert!(rests.is_sorted() && rests[7] == PAUSE_MAX, "{rests:?}");
        // Processors are idle again: one step is in time, and the pauses shrink.
        now = pauses.due.expect("a next step");
        for _ in 0..20 {
            assert_eq!(pauses.begin(now), None);
            now += pauses.end(now, now + STEP) + STEP;
        }
        assert_eq!(pauses.pause, PAUSE_MIN);
        // A step that was interrupted for long counts as one that came late.
        assert_eq!(pauses.begin(now), None);
        assert!(pauses.end(now, now + STEP + LATE * 2) > PAUSE_MIN);
    }
}
