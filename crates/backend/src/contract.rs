//! The contract between the pager and its backends.

use crate::node_error::NodeError;
use hinterland_units::{ByteCount, PAGE_BYTES, PageBytes};
pub use hinterland_wire::{GRANULE_BYTES, GRANULES, GranuleSet, Priority};
use std::os::fd::RawFd;
use std::time::Duration;

/// Where a backend keeps one page: opaque to the pager, chosen by the backend, 44 bits at most.
///
/// A location is valid from the `store` that returned it until the `free` that names it. Every load or free of a location
/// is made by the one holder of the page's busy state, so a backend never sees a load and a free of one location at the
/// same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location(pub u64);

impl Location {
    /// Locations fit the payload of a page-table entry.
    pub const BITS: u32 = 44;
}

/// One page to load.
pub struct LoadItem<'a> {
    /// Where it is.
    pub location: Location,
    /// Where its bytes go.
    pub into: &'a mut PageBytes,
}

/// A stored page of which parts have changed.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'a> {
    /// Where it is stored, as it was.
    pub location: Location,
    /// As it is to be.
    pub page: &'a PageBytes,
    /// What differs: not empty. The rest is as it was stored.
    pub granules: GranuleSet,
}

/// Why a backend has no room.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FullCause {
    /// It holds what it may hold.
    #[error("is full")]
    Capacity,
    /// Others use it, too, and may give some back: what it said.
    #[error("{0}")]
    Others(String),
    /// The kernel gives it no memory, and will not as long as the process has what it has.
    #[error("gets no more memory from the kernel: a limit on writable memory is reached (ulimit -d)")]
    Memory,
}

impl FullCause {
    /// Of a backend that nothing else uses.
    pub(crate) fn of_own(is_refused_memory: bool) -> FullCause {
        if is_refused_memory { FullCause::Memory } else { FullCause::Capacity }
    }
}

/// Why a page could not be stored. The page stays where it was.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The backend's capacity is used up.
    #[error("{url} {cause} ({} of {} used)", ByteCount(*used_bytes), ByteCount(*capacity_bytes))]
    Full {
        /// The backend.
        url: String,
        /// Why there is no room.
        cause: FullCause,
        /// Bytes in use.
        used_bytes: u64,
        /// Bytes that it may use.
        capacity_bytes: u64,
    },
    /// The page compresses to more bytes than was asked for.
    #[error("{url} was to keep pages of at most {bytes_max} bytes")]
    Incompressible {
        /// The backend.
        url: String,
        /// Bytes that a page might have taken.
        bytes_max: usize,
    },
    /// The device or file system refused.
    #[error("{url} cannot store a page: {}", std::io::Error::from_raw_os_error(*.errno))]
    Device {
        /// The backend.
        url: String,
        /// The system's error number, for example `ENOSPC`.
        errno: i32,
    },
    /// The memory node is gone, and with it what it kept.
    #[error("the memory node {url} is lost: {error}")]
    Lost {
        /// The backend.
        url: String,
        /// How it shows.
        error: NodeError,
    },
}

/// Why a page could not be loaded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The device or file system refused, after retries.
    #[error("{url} cannot load a page: {}", std::io::Error::from_raw_os_error(*.errno))]
    Device {
        /// The backend.
        url: String,
        /// The system's error number, for example `EIO`.
        errno: i32,
    },
    /// The memory node is gone, and with it what it kept.
    #[error("the memory node {url} is lost: {error}")]
    Lost {
        /// The backend.
        url: String,
        /// How it shows.
        error: NodeError,
    },
    /// What was stored cannot be decoded.
    #[error("{url} holds a damaged page at location {location:?}: {what}")]
    Damaged {
        /// The backend.
        url: String,
        /// Where.
        location: Location,
        /// How the damage shows.
        what: &'static str,
    },
}

/// What a backend holds now and has moved since it was opened; one row for each leaf backend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendUsage {
    /// As the user wrote it, with the defaults filled in.
    pub url: String,
    /// Pages stored now.
    pub pages: u64,
    /// Bytes that the stored pages occupy now: after compression, without fragmentation.
    pub stored_bytes: u64,
    /// RAM that the backend occupies now: stored bytes, fragmentation, tables; of a NUMA node's the pages there, too. For a file, its buffers
    /// and tables.
    pub ram_bytes: u64,
    /// Bytes that may be stored at most.
    pub capacity_bytes: u64,
    /// Uncompressed bytes taken in (stores).
    pub bytes_in: u64,
    /// Uncompressed bytes loaded.
    pub bytes_out: u64,
    /// Bytes of pages that were sent to a memory node.
    pub sent_bytes: u64,
    /// Bytes of pages that came from a memory node.
    pub received_bytes: u64,
    /// Pages stored as one repeated machine word.
    pub same_filled_pages: u64,
    /// Pages stored uncompressed because they do not shrink.
    pub plain_pages: u64,
    /// Pages that were compressed again, and kept so.
    pub recompressed_pages: u64,
    /// Bytes that these took less than before.
    pub recompression_saved_bytes: u64,
    /// Pages that came here from lower tiers because they were wanted.
    pub promoted_pages: u64,
    /// Pages that went to lower tiers because others were.
    pub demoted_pages: u64,
    /// Of several paths: the tier in which pages go here, from 1; 0: none do. A node's row that is not the first of its path has none.
    pub tier: u64,
    /// How often that changed because measured times did.
    pub tier_changes: u64,
    /// Nanoseconds of a page that is loaded alone from here, and what it waits for others, where that is measured.
    pub load_one_ns: u64,
    /// See there.
    pub load_queue_ns: u64,
    /// How often a memory node was lost, and with it what it held; one that was drained may go.
    pub losses: u64,
    /// Pages copied to a memory node in place of replicas that were lost.
    pub rebuilt_pages: u64,
    /// Loads for which another memory node was asked, too, because this one was late.
    pub hedged_loads: u64,
    /// Of a memory node: pages there that have fewer copies than are wanted.
    pub lacking_pages: u64,
    /// Of a memory node: pages that would be lost with it, as far as that is known.
    pub last_pages: u64,
    /// Of a memory node: pages that were copied there or away from it in the last ten seconds.
    pub copied_pages: u64,
    /// It is a memory node that cannot be removed now, or of which that is not known.
    pub needed: bool,
    /// It is a memory node that has not answered since the backend was opened.
    pub absent: bool,
    /// Whether it gets to see encrypted pages only.
    pub encrypted: bool,
    /// Processes that used its modelled link at the same time, at most.
    pub link_processes: u64,
}

/// Which process calls `after_fork`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkSide {
    /// The process that called fork.
    Parent,
    /// The new process.
    Child,
}

/// Keeps pages.
///
/// Every method may be called by several threads at once. None may touch far memory, and none may wait for the program.
pub trait Backend: Send + Sync {
    /// Stores `pages`; `out[i]` says where page `i` went or why it could not be stored. `out.len() == pages.len()`. A backend has this or
    /// `store_while`, from which the other one follows; likewise `load` or `load_while`.
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.store_while(pages, None, priority, out, &mut || ());
    }

    /// As `store`, of pages of which only the first `bytes[i]` bytes are to be kept, at least one; `None`: all of them. Only where
    /// `keeps_prefixes` says so; a load of such a page leaves what is behind them as anything.
    ///
    /// `meanwhile` is called, perhaps more than once, when pages are on their way and their answers are still to be waited for; or never, by
    /// a backend that does not wait. It may store and load elsewhere: see [`Backend::load_while`].
    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        assert!(bytes.is_none(), "this backend keeps whole pages alone");
        let _ = meanwhile;
        self.store(pages, priority, out);
    }

    /// As `store`, of those pages alone that take at most `bytes_max` bytes here; the others are refused as [`StoreError::Incompressible`]. A backend
    /// that compresses nothing stores all.
    fn store_if_compressible(
        &self,
        pages: &[&PageBytes],
        bytes_max: usize,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) {
        let _ = bytes_max;
        self.store(pages, priority, out);
    }

    /// Whether a part of a page can be kept.
    fn keeps_prefixes(&self) -> bool {
        false
    }

    /// Whether stored pages can be patched at all: whether it pays to know what changed of a page.
    fn patches(&self) -> bool {
        false
    }

    /// Writes what changed over the stored pages; `out[i]` says whether page `i` is stored at its location as it is to be. If not, it is not known
    /// what is there: the caller stores the page anew, elsewhere, and frees the location, of which it must not load anything. Of the same
    /// location nothing is loaded meanwhile. Backends that cannot patch say no to all.
    ///
    /// What is stored is exactly `page`, or the answer is no, also where the granules are not all that differ.
    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        let _ = (patches, priority);
        out.fill(false);
    }

    /// How many bytes of each page are kept.
    fn prefix_bytes(&self, locations: &mut dyn Iterator<Item = Location>) -> Vec<usize> {
        locations.map(|_| PAGE_BYTES).collect()
    }

    /// Nanoseconds that each further page takes over the link behind which this backend is, as far as that is known; else 0.
    fn link_page_ns(&self) -> u64 {
        0
    }

    /// Threads that can wait for pages at once: lanes of memory nodes, threads of a file; more wait for those. 0: as many as there are, as in RAM.
    fn demand_width(&self) -> usize {
        0
    }

    /// Loads `items`. Calls `done(i, result)` exactly once for each item, in the order of completion; the first item is
    /// asked for first. The bytes of item `i` are complete when `done` is called with it.
    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.load_while(items, priority, done, &mut || ());
    }

    /// As `load`; `meanwhile` is called, perhaps more than once, when the items were asked for and are still to be waited for; or
    /// never, by a backend that does not wait. It may load and store at other backends, while this one holds a connection or a
    /// ring: who nests calls so does it in the same order everywhere, or two threads wait for each other's for ever.
    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let _ = meanwhile;
        self.load(items, priority, done);
    }

    /// Loads a page whose content was found wrong from another place that has it, and whose bytes are `right`; gives up what is
    /// wrong. Only a backend that keeps every page several times can: no other tries again what was damaged once.
    ///
    /// # Errors
    /// No place has the right bytes.
    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        let _ = right;
        let what = "there is no second copy of it";
        Err(LoadError::Damaged { url: "far memory".into(), location: item.location, what })
    }

    /// Whether anything that was stored may be lost; cheap enough to be asked for each batch of pages. Until it says so, nothing is.
    fn has_losses(&self) -> bool {
        false
    }

    /// Whether what was stored at `location` is known to be lost: no load of it can succeed. Who asks holds the page's busy state, as for a load.
    fn has_lost(&self, location: Location) -> bool {
        let _ = location;
        false
    }

    /// Gives the space of `locations` back.
    fn free(&self, locations: &[Location]);

    /// Whether keeping a copy of a resident page costs RAM of the run (`true` for compressed RAM, `false` for an SSD or a NUMA node).
    fn copies_cost_ram(&self) -> bool;

    /// Whether the stored copy of a page that is local again can take room that other pages want, so that few are retained. At one location or
    /// another: see `copy_takes_room`.
    fn copies_take_room(&self) -> bool {
        self.copies_cost_ram()
    }

    /// Whether that of a page that was just loaded does. RAM of the run is such room, and so is a tier to which others would be promoted.
    fn copy_takes_room(&self, location: Location) -> bool {
        let _ = location;
        self.copies_cost_ram()
    }

    /// Whether that of a page at one location costs RAM of the run.
    fn copy_costs_ram(&self, location: Location) -> bool {
        let _ = location;
        self.copies_cost_ram()
    }

    /// Pages leave local memory exactly as they are stored. A backend of several tiers may store them in another one, while their bytes are at
    /// hand; their locations stay. The caller holds the pages' busy states.
    fn left_clean(&self, leaving: &[(Location, &PageBytes)]) {
        let _ = leaving;
    }

    /// What a program's own filter of system calls must be made to allow (`sys::confinement`) beside the calls on memory: the
    /// descriptors of files in which pages are read and written in place. `None`: more than that, so it cannot work under such a filter.
    fn descriptors_if_confined(&self) -> Option<Vec<RawFd>> {
        None
    }

    /// RAM of the run that the backend occupies now, without pages on a NUMA node; cheap enough to be asked for each eviction batch.
    fn ram_bytes(&self) -> u64;

    /// Appends one row for each leaf backend.
    fn usage(&self, rows: &mut Vec<BackendUsage>);

    /// Gives up to `bytes` of RAM back by moving pages from RAM to lower tiers; returns how many bytes it gave back. A
    /// backend without lower tiers cannot, and returns 0.
    fn shrink_ram(&self, bytes: u64) -> u64 {
        let _ = bytes;
        0
    }

    /// Says whether RAM is scarce: whether what is kept in RAM takes it from local memory.
    fn set_ram_scarce(&self, is_scarce: bool) {
        let _ = is_scarce;
    }

    /// Whether `maintain` has something to do; cheap enough to be asked all the time.
    fn needs_maintenance(&self) -> bool {
        false
    }

    /// Takes one step of what is to be done beside loads and stores: replicas rebuilt, lost nodes tried again. Returns when the
    /// next step is due; `None`: not before `needs_maintenance` says so. One thread calls it, not during a fork, which may have to wait
    /// for the step: so it is short, or at most as long as a node is waited for.
    fn maintain(&self) -> Option<Duration> {
        None
    }

    /// First half of the clone: called in the forking process while no other call is under way and the program's fork
    /// waits, so it must be quick. Takes what locks the backend needs, and prepares what the child will own.
    ///
    /// # The clone
    ///
    /// `before_fork` and `after_fork` together are the trait's clone operation: out of one holder of all locations they make
    /// two, each of which loads and frees every location as if it were alone. A page is gone when both have freed it, or when
    /// the one that did not has ended, however it ended. What the backend keeps in the process's own memory the kernel has cloned
    /// (compressed RAM, tables); what it keeps elsewhere it must share, with a count of holders (a far file: generations in
    /// `file/fork_group.rs`).
    ///
    /// Memory nodes do it so (`node/mod.rs`): `before_fork` asks each, in one message, for a clone of the process's session. The
    /// node shares its slabs with the clone until one side writes, and answers with the clone's number, which the child
    /// inherits. The child connects by itself under that number, because two processes on one connection would read each
    /// other's answers. The node drops a clone that nobody has connected to within its time of grace (so also that of a fork
    /// that failed), and one whose connections have ended for its lease: a killed process says nothing.
    fn before_fork(&self) {}

    /// Second half of the clone: called on both sides after the fork, in the parent also after a fork that failed. In the
    /// child every location is still valid, and neither process may change what the other sees. The child has none of the parent's
    /// threads: those of the backend's own must be started anew.
    ///
    /// # Errors
    /// This side cannot go on: the pager ends it with a message.
    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        let _ = side;
        Ok(())
    }
}
