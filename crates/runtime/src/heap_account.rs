//! The heap account, in builds with the feature `heap-account` alone (`./dev bench density --classes`): what the far heap holds by size
//! class, when most of it was active.
//!
//! ```text
//! active = rounded (what objects take) + unused (what of slabs is in no object)
//! dirty  = freed extents that keep their frames until they are reused or dropped
//! cached = objects in threads' caches: the program has freed them, and they count as objects still
//! ```
//! jemalloc counts the objects of each class that shares slabs, and the bytes of larger objects, which have no classes: they take whole
//! pages. What was requested of an object it does not know: the account takes the share that was requested of all that the class gave.
//!
//! Sources: jemalloc 5.3.1 `src/ctl.c` (`stats.arenas.<i>`), `src/arena.c` (`arena_stats_merge`), `include/jemalloc/internal/sz.h`.

use crate::{jemalloc, region_map};
use libc::{c_uint, c_void};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tikv_jemalloc_sys as je;

use hinterland_units::PAGE_BYTES;

/// Names the folder for accounts: one file for each process.
const VARIABLE: &str = "HINTERLAND_TEST_HEAP_ACCOUNT";
/// Classes that share slabs are smaller, and multiples of what no object is smaller than.
const LARGE_BYTES: usize = 64 << 10;
const SMALLEST_BYTES: usize = 16;
/// Where all large objects are counted.
const LARGE: usize = LARGE_BYTES / SMALLEST_BYTES;

/// What a class has given since the program began.
struct Given {
    requested_bytes: AtomicU64,
    rounded_bytes: AtomicU64,
}

static GIVEN: [Given; LARGE + 1] =
    [const { Given { requested_bytes: AtomicU64::new(0), rounded_bytes: AtomicU64::new(0) } }; LARGE + 1];
/// Of the process, before the program runs and may change its environment.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();
/// The most active pages that the far arenas had when they were looked at.
static PEAK_PAGES: AtomicU64 = AtomicU64::new(0);

/// Accounts are written from now on, if the environment says where.
pub fn init() {
    if let Some(folder) = std::env::var_os(VARIABLE) {
        FOLDER.get_or_init(|| folder.into());
    }
}

/// The program has got an object, which is null or near where there is no far memory.
pub fn allocated(pointer: *mut c_void, bytes: usize) {
    if region_map::contains(pointer.addr()) {
        // SAFETY: a far object of the program's, just allocated.
        given(bytes, unsafe { jemalloc::usable_size(pointer) });
    }
}

/// A request got an object of so many bytes.
fn given(requested: usize, rounded: usize) {
    let given = &GIVEN[place(rounded)];
    given.requested_bytes.fetch_add(requested as u64, Relaxed);
    given.rounded_bytes.fetch_add(rounded as u64, Relaxed);
}

fn place(rounded: usize) -> usize {
    (rounded / SMALLEST_BYTES).min(LARGE)
}

/// The objects of one class that there are, or all large ones.
#[derive(Debug)]
struct Class {
    /// Bytes of each; `None`: they are large.
    bytes: Option<usize>,
    objects: u64,
    rounded_bytes: u64,
    /// Bytes of its slabs that are in no object.
    unused_bytes: u64,
}

impl Class {
    fn requested_bytes(&self) -> u64 {
        let given = &GIVEN[self.bytes.map_or(LARGE, place)];
        let (requested, rounded) = (given.requested_bytes.load(Relaxed), given.rounded_bytes.load(Relaxed));
        let share = u128::from(self.rounded_bytes) * u128::from(requested) / u128::from(rounded.max(1));
        u64::try_from(share).expect("no more is requested than is given")
    }
}

/// A figure of jemalloc's.
fn figure<T: Default>(name: &str) -> T {
    let name = format!("{name}\0");
    let (mut value, mut bytes) = (T::default(), size_of::<T>());
    let (to, nothing) = ((&raw mut value).cast(), std::ptr::null_mut());
    // SAFETY: the name is a C string, and jemalloc writes no more than `bytes` bytes, to an integer.
    let answer = unsafe { je::mallctl(name.as_ptr().cast(), to, &raw mut bytes, nothing, 0) };
    assert_eq!(answer, 0, "jemalloc has no figure {name:?} of {} bytes", size_of::<T>());
    value
}

/// Has jemalloc bring its figures up to date.
fn refresh() {
    let mut epoch: u64 = 1;
    // SAFETY: the new value has the size that this control names.
    unsafe {
        let new = (&raw mut epoch).cast();
        je::mallctl(c"epoch".as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), new, size_of::<u64>());
    }
}

/// A figure of all these arenas, which jemalloc has for each.
fn sum(arenas: &[c_uint], name: &str) -> u64 {
    arenas.iter().map(|arena| figure::<usize>(&format!("stats.arenas.{arena}.{name}")) as u64).sum()
}

/// What is in these arenas by class, as of the last `refresh`.
fn classes(arenas: &[c_uint]) -> Vec<Class> {
    let small = (0..figure::<c_uint>("arenas.nbins")).map(|bin| {
        let bytes: usize = figure(&format!("arenas.bin.{bin}.size"));
        let slab_bytes: usize = figure(&format!("arenas.bin.{bin}.slab_size"));
        let objects = sum(arenas, &format!("bins.{bin}.curregs"));
        let slabs = sum(arenas, &format!("bins.{bin}.curslabs"));
        let rounded_bytes = objects * bytes as u64;
        Class { bytes: Some(bytes), objects, rounded_bytes, unused_bytes: slabs * slab_bytes as u64 - rounded_bytes }
    });
    let counted = |extents: c_uint| sum(arenas, &format!("lextents.{extents}.curlextents"));
    let large = Class {
        bytes: None,
        objects: (0..figure::<c_uint>("arenas.nlextents")).map(counted).sum(),
        rounded_bytes: sum(arenas, "large.allocated"),
        unused_bytes: 0,
    };
    small.chain([large]).filter(|class| class.rounded_bytes + class.unused_bytes > 0).collect()
}

/// The account as JSON.
fn account(arenas: &[c_uint]) -> String {
    let mut text = String::from("{");
    for (name, pages) in [("active", "pactive"), ("dirty", "pdirty")] {
        let _ = write!(text, "\"{name}_bytes\": {}, ", sum(arenas, pages) * PAGE_BYTES as u64);
    }
    let _ = write!(text, "\"cached_bytes\": {}, \"classes\": [", sum(arenas, "tcache_bytes"));
    for (number, class) in classes(arenas).iter().enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        let name = class.bytes.map_or_else(|| "large".into(), |bytes| bytes.to_string());
        let (requested, Class { objects, rounded_bytes, unused_bytes, .. }) = (class.requested_bytes(), class);
        let _ = write!(text, "{comma}{{\"class\": \"{name}\", \"objects\": {objects}, ");
        let _ = write!(text, "\"requested_bytes\": {requested}, \"rounded_bytes\": {rounded_bytes}, ");
        let _ = write!(text, "\"unused_bytes\": {unused_bytes}}}");
    }
    text.push_str("]}\n");
    text
}

/// Writes the account if the far heap has more active pages than at any look before; called a few times a second, by one thread. Dirty ones
/// do not count: when objects are freed behind the peak, both together are as many as there.
pub fn look(arenas: &[c_uint]) {
    let Some(folder) = FOLDER.get() else { return };
    refresh();
    let pages = sum(arenas, "pactive");
    if pages > PEAK_PAGES.fetch_max(pages, Relaxed) {
        let file = folder.join(format!("{}.json", std::process::id()));
        std::fs::write(&file, account(arenas)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arena that no thread is bound to.
    fn arena() -> c_uint {
        figure("arenas.create")
    }

    fn allocate(arena: c_uint, bytes: usize) -> *mut c_void {
        // SAFETY: the size is not 0.
        let object = unsafe { je::mallocx(bytes, je::MALLOCX_ARENA(arena as usize) | je::MALLOCX_TCACHE_NONE) };
        assert!(!object.is_null());
        object
    }

    #[test]
    fn classes_and_unused_parts_of_slabs_are_all_that_is_active() {
        let arena = arena();
        let objects: Vec<_> = (0..70).map(|_| allocate(arena, 1_000)).collect();
        (0..30).for_each(|_| _ = allocate(arena, 5_000));
        [1 << 20, (1 << 20) + 1].into_iter().for_each(|bytes| _ = allocate(arena, bytes));
        for object in objects.iter().step_by(2) {
            // SAFETY: allocated above, and not used again.
            unsafe { je::dallocx(*object, je::MALLOCX_TCACHE_NONE) };
        }
        refresh();
        let found = classes(&[arena]);
        let of = |bytes| found.iter().find(|class| class.bytes == bytes).expect("there are objects of it");
        assert_eq!((of(Some(1_024)).objects, of(Some(1_024)).rounded_bytes), (35, 35 * 1_024));
        assert_eq!((of(Some(5_120)).objects, of(Some(5_120)).rounded_bytes), (30, 30 * 5_120));
        assert_eq!((of(None).objects, of(None).rounded_bytes), (2, (2 << 20) + PAGE_BYTES as u64));
        assert!(of(Some(1_024)).unused_bytes >= 35 * 1_024, "{found:?}");
        let active: u64 = found.iter().map(|class| class.rounded_bytes + class.unused_bytes).sum();
        assert_eq!(active, sum(&[arena], "pactive") * PAGE_BYTES as u64, "{found:?}");
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn what_is_requested_is_told_from_what_it_is_rounded_to() {
        // No other test asks for objects of this class.
        [40_000, 40_960, 39_000].into_iter().for_each(|bytes| given(bytes, 40_960));
        let class =
            |objects: u64| Class { bytes: Some(40_960), objects, rounded_bytes: objects * 40_960, unused_bytes: 0 };
        assert_eq!((class(3).requested_bytes(), class(1).requested_bytes()), (119_960, 39_986));
        let none = Class { bytes: Some(45_056), objects: 0, rounded_bytes: 0, unused_bytes: PAGE_BYTES as u64 };
        assert_eq!(none.requested_bytes(), 0);
    }

    #[test]
    fn each_class_has_a_place_of_its_own_and_large_objects_have_one() {
        let small = (0..figure::<c_uint>("arenas.nbins")).map(|bin| figure::<usize>(&format!("arenas.bin.{bin}.size")));
        // That of 8 bytes is never asked for.
        let places: Vec<_> = small.filter(|bytes| *bytes >= SMALLEST_BYTES).map(place).collect();
        assert!(places.len() > 100 && places.is_sorted_by(|one, other| one < other), "{places:?}");
        assert!(places.iter().all(|place| *place < LARGE), "{places:?}");
        assert_eq!((place(LARGE_BYTES), place(1 << 40)), (LARGE, LARGE));
    }
}
