//! The profile of a run while it is taken: one shared-memory segment, made by the launcher, filled by every managed process.
//!
//! ```text
//! modules   the files whose code was seen          a frame is (module, address in the file)
//! points    (function, site) ─▶ faults, wait        where the program waits
//! stacks    frames ─▶ faults, wait                  by which calls it came there; a sample
//! sites     frames of an allocation ─▶ bytes, …     what it waits for
//! ```
//! Everything is bounded: what finds no room is counted and left out. Entries are found by their key's hash, in a few probes, without a
//! lock, so that a signal handler can add one. All fields are atomics, and everything is zero when the segment is made.

use crate::ledger::{Counter, Text};
use std::hash::Hasher;
use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use twox_hash::XxHash64;

/// First word of the segment.
pub const PROFILE_MAGIC: u64 = u64::from_le_bytes(*b"hl-profl");
/// Layout version: a launcher and a library of different versions refuse each other.
pub const PROFILE_VERSION: u64 = 3;
/// Frames of a stack, from the innermost.
pub const STACK_FRAMES: usize = 24;
/// Frames of a site: more than are shown, because those of allocators are left out.
pub const SITE_FRAMES: usize = 8;
/// Files whose code can be seen.
pub const MODULES_MAX: usize = 1024;
/// Sites; an entry's number fits 15 bits.
pub const SITES_MAX: usize = 8192;
/// Pairs of function and site.
pub const POINTS_MAX: usize = 32768;
/// Stacks.
pub const STACKS_MAX: usize = 8192;
/// Bytes of a build-id that are kept: a SHA-1, or as much of something longer.
pub const BUILD_ID_BYTES: usize = 20;
/// Bytes of a file's name.
pub const PATH_BYTES: usize = 512;

/// Entries that are looked at for one key.
const PROBES: usize = 32;

/// A place in code: the file, and the address there, as the file's own tables have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Frame(u64);

impl Frame {
    const ADDRESS_BITS: u32 = 48;

    /// `module`: its number; `None`: code that is of no file (what a JIT compiler made), by its address in memory.
    pub fn new(module: Option<usize>, address: usize) -> Frame {
        let module = module.map_or(0, |module| module as u64 + 1);
        Frame(module << Frame::ADDRESS_BITS | address as u64 & ((1 << Frame::ADDRESS_BITS) - 1))
    }

    /// The word that it is kept in; not 0, but for no frame.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// What `to_bits` gave.
    pub fn from_bits(bits: u64) -> Frame {
        Frame(bits)
    }

    /// As `new` took it.
    pub fn module(self) -> Option<usize> {
        usize::try_from((self.0 >> Frame::ADDRESS_BITS).checked_sub(1)?).ok()
    }

    /// As `new` took it.
    pub fn address(self) -> u64 {
        self.0 & ((1 << Frame::ADDRESS_BITS) - 1)
    }

    /// No frame: what follows the last one.
    pub fn is_none(self) -> bool {
        self == Frame::default()
    }
}

/// Frames, the innermost first; the rest is `Frame::default()`.
#[repr(C)]
pub struct Frames<const N: usize>([AtomicU64; N]);

impl<const N: usize> Frames<N> {
    /// Sets them; what is beyond `N` is left out.
    pub fn set(&self, frames: &[Frame]) {
        for (cell, frame) in self.0.iter().zip(frames) {
            cell.store(frame.0, Relaxed);
        }
    }

    /// The frames.
    pub fn get(&self) -> impl Iterator<Item = Frame> {
        self.0.iter().map(|cell| Frame(cell.load(Relaxed))).take_while(|frame| !frame.is_none())
    }
}

/// The key of an entry: a hash of words, never 0. It allocates nothing.
pub fn key_of(words: impl IntoIterator<Item = u64>) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    words.into_iter().for_each(|word| hasher.write_u64(word));
    hasher.finish().max(1)
}

/// The key of a list of frames.
pub fn key_of_frames(frames: &[Frame]) -> u64 {
    key_of(frames.iter().map(|frame| frame.0))
}

/// An entry of a table.
#[repr(C)]
pub struct Entry<T> {
    /// 0: free.
    key: AtomicU64,
    /// 1: what identifies it is written.
    ready: AtomicU64,
    value: T,
}

/// Entries by their keys. Two things with one key, of 64 bits, are taken for one.
#[repr(C)]
pub struct Table<T, const N: usize>([Entry<T>; N]);

impl<T, const N: usize> Table<T, N> {
    /// The entry with a key, made with `fill` if there is none; `None`: there is no room.
    pub fn entry(&self, key: u64, fill: impl FnOnce(&T)) -> Option<(usize, &T)> {
        let first = usize::try_from(key % N as u64).unwrap_or(0);
        for index in (first..first + PROBES).map(|index| index % N) {
            let entry = &self.0[index];
            match entry.key.compare_exchange(0, key, AcqRel, Acquire) {
                Ok(_) => {
                    fill(&entry.value);
                    entry.ready.store(1, Release);
                    return Some((index, &entry.value));
                }
                Err(there) if there == key => return Some((index, &entry.value)),
                Err(_) => {}
            }
        }
        None
    }

    /// The entry with a number.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index).filter(|entry| entry.ready.load(Acquire) == 1).map(|entry| &entry.value)
    }

    /// All entries that were made, with their numbers. A process that was killed while it made one leaves it out.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &T)> {
        (0..N).filter_map(|index| Some((index, self.get(index)?)))
    }
}

/// A file whose code was seen.
#[repr(C)]
pub struct Module {
    /// As the loader has it.
    pub path: Text<PATH_BYTES>,
    build_id: [AtomicU64; BUILD_ID_BYTES.div_ceil(8)],
    build_id_bytes: AtomicU64,
}

impl Module {
    /// Sets the build-id.
    pub fn set_build_id(&self, id: &[u8]) {
        let id = &id[..id.len().min(BUILD_ID_BYTES)];
        for (word, bytes) in self.build_id.iter().zip(id.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        self.build_id_bytes.store(id.len() as u64, Relaxed);
    }

    /// The build-id; empty: the file has none.
    pub fn build_id(&self) -> Vec<u8> {
        let bytes = self.build_id.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        bytes.take(usize::try_from(self.build_id_bytes.load(Relaxed)).unwrap_or(0)).collect()
    }
}

/// Faults of one kind.
#[repr(C)]
pub struct Kind {
    /// How many.
    pub faults: Counter,
    /// Time in which they were served.
    pub wait_ns: Counter,
}

impl Kind {
    /// Counts one that stands for `weight`.
    pub fn add(&self, wait_ns: u64, weight: u64) {
        self.faults.fetch_add(weight, Relaxed);
        self.wait_ns.fetch_add(wait_ns * weight, Relaxed);
    }
}

/// What the faults at one place came to.
#[repr(C)]
pub struct Waits {
    /// Those that found the page's content far.
    pub fetches: Kind,
    /// Those that found a page without content.
    pub first_touches: Kind,
    /// The others.
    pub others: Kind,
}

/// Faults of one function on one site's memory.
#[repr(C)]
pub struct Point {
    frame: AtomicU64,
    site: AtomicU64,
    /// Its faults.
    pub waits: Waits,
}

impl Point {
    /// Says what it is of; `site`: the site's number.
    pub fn identify(&self, frame: Frame, site: Option<usize>) {
        self.frame.store(frame.0, Relaxed);
        self.site.store(site.map_or(0, |site| site as u64 + 1), Relaxed);
    }

    /// Where the program was; `Frame::default()`: not known.
    pub fn frame(&self) -> Frame {
        Frame(self.frame.load(Relaxed))
    }

    /// The site's number; `None`: memory that no site is known of.
    pub fn site(&self) -> Option<usize> {
        usize::try_from(self.site.load(Relaxed).checked_sub(1)?).ok()
    }
}

/// Faults that came by the same calls.
#[repr(C)]
pub struct Stack {
    /// The calls.
    pub frames: Frames<STACK_FRAMES>,
    point: AtomicU64,
    /// Its faults, each sample counted as as many as it stands for.
    pub faults: Counter,
}

impl Stack {
    /// Says what it is of; `point`: where the program was, as points have it.
    pub fn identify(&self, point: Frame, frames: &[Frame]) {
        self.point.store(point.0, Relaxed);
        self.frames.set(frames);
    }

    /// Where the program was.
    pub fn point(&self) -> Frame {
        Frame(self.point.load(Relaxed))
    }
}

/// What memory a site gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum SiteKind {
    /// By malloc(3) and its family.
    Heap = 1,
    /// By mmap(2).
    Mapping = 2,
}

/// Allocations that came by the same calls. Figures of small ones are estimates from samples.
#[repr(C)]
pub struct Site {
    /// The calls.
    pub frames: Frames<SITE_FRAMES>,
    kind: AtomicU64,
    /// Allocations.
    pub allocations: Counter,
    /// All their bytes.
    pub bytes: Counter,
    /// The largest one.
    pub bytes_max: Counter,
    /// The most bytes that a process held of them at one time.
    pub held_bytes_max: Counter,
    /// Allocations that were seen from their beginning to their end.
    pub lives: Counter,
    /// Time between.
    pub life_ns: Counter,
    /// Its faults.
    pub waits: Waits,
    /// Faults on the pages next to the one before, of the same thread.
    pub sequential: Counter,
    /// Faults as far from the one before as that was from the one before it.
    pub strided: Counter,
    /// Others.
    pub irregular: Counter,
    /// Pages that were fetched.
    pub fetched_pages: Counter,
}

impl Site {
    /// Says what it is of.
    pub fn identify(&self, kind: SiteKind, frames: &[Frame]) {
        self.frames.set(frames);
        self.kind.store(kind as u64, Relaxed);
    }

    /// What memory it gives.
    pub fn kind(&self) -> SiteKind {
        if self.kind.load(Relaxed) == SiteKind::Mapping as u64 { SiteKind::Mapping } else { SiteKind::Heap }
    }
}

/// The segment.
#[repr(C)]
pub struct Profile {
    /// [`PROFILE_MAGIC`].
    pub magic: AtomicU64,
    /// [`PROFILE_VERSION`].
    pub version: AtomicU64,
    /// Why a process could not be profiled; empty: all could.
    pub error: Text,
    /// 1: a process has begun.
    pub begun: AtomicU32,
    /// Faults on the monitor path of which one is looked at for each that is sampled; 0: no process took that path.
    pub monitor_one_in: AtomicU32,
    /// Faults that found no room in the table of points.
    pub points_without_room: Counter,
    /// Sampled stacks that found no room.
    pub stacks_without_room: Counter,
    /// Sampled allocations that found no room in the table of sites.
    pub sites_without_room: Counter,
    /// Sampled allocations that could not be followed until they are freed.
    pub lives_without_room: Counter,
    /// Sampled faults whose place could not be seen.
    pub unplaced: Counter,
    /// Files.
    pub modules: Table<Module, MODULES_MAX>,
    /// Functions and sites.
    pub points: Table<Point, POINTS_MAX>,
    /// Stacks.
    pub stacks: Table<Stack, STACKS_MAX>,
    /// Sites.
    pub sites: Table<Site, SITES_MAX>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Box<Profile> {
        // SAFETY: a profile consists of atomics, which are valid when zero.
        unsafe { Box::<Profile>::new_zeroed().assume_init() }
    }

    #[test]
    fn frames_keep_module_and_address() {
        for (module, address) in [(None, 0x7fff_1234_5678), (Some(0), 0), (Some(MODULES_MAX - 1), 0x40_1136)] {
            let frame = Frame::new(module, address);
            assert_eq!((frame.module(), frame.address()), (module, address as u64));
        }
        assert!(Frame::default().is_none() && !Frame::new(Some(0), 0).is_none());
    }

    #[test]
    fn an_entry_is_made_once_and_found_again_and_a_full_table_says_so() {
        let profile = profile();
        let frame = |n: usize| Frame::new(Some(1), 0x1000 + n * 16);
        let mut without_room = 0;
        for round in 0..2 {
            for n in 0..STACKS_MAX {
                let frames = [frame(n), frame(n / 2), frame(7)];
                match profile.stacks.entry(key_of_frames(&frames), |stack| stack.identify(frames[0], &frames)) {
                    Some((_, stack)) => {
                        stack.faults.fetch_add(1, Relaxed);
                    }
                    None => without_room += u32::from(round == 0),
                }
            }
        }
        let entries: Vec<_> = profile.stacks.entries().collect();
        assert_eq!(entries.len() + without_room as usize, STACKS_MAX);
        assert!(without_room > 0 && entries.len() > STACKS_MAX / 2, "{without_room} without room");
        assert!(entries.iter().all(|(_, stack)| stack.faults.load(Relaxed) == 2 && stack.frames.get().count() == 3));
    }

    #[test]
    fn a_build_id_of_any_length_is_kept_up_to_its_bound() {
        let profile = profile();
        let (_, module) = profile.modules.entry(5, |_| {}).unwrap();
        for bytes in [0, 1, 8, 16, 20, 32] {
            let id: Vec<u8> = (1..=bytes).collect();
            module.set_build_id(&id);
            assert_eq!(module.build_id(), id[..id.len().min(BUILD_ID_BYTES)]);
        }
    }
}
