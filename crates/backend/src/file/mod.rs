//! `file`: whole pages in a nameless file on a disk, moved by direct I/O.
//!
//! ```text
//! location = file index 8 bits | slot 36 bits;  slot n = bytes n × 4096 … of that file
//! ```
//! A batch of stores is written in runs of neighbouring slots, a batch of loads is read in runs of neighbouring locations.
//! Demand loads have workers of their own, and while one is under way all others keep their queues shallow: one operation, or four of a migration,
//! of which a switch rests for the program (`paths::duty_cycle`).
//!
//! **Fork.** Parent and child share the files that existed at the fork, for reading. The parent goes on writing to its
//! file but not to slots that were in use at the fork: freed ones stay unused until the child and all its descendants
//! have ended (`fork_group`). The child opens a file of its own (the next index) at its first store. Rings are never
//! shared.

pub(crate) mod far_file;
mod fork_group;
mod io;
mod slots;

use crate::counters::{Counters, Tally};
use crate::sync::{Pool, lock};
use crate::{Backend, BackendUsage, ForkSide, FullCause, LoadError, LoadItem, Location, Priority, StoreError};
use far_file::FarFile;
use fork_group::ForkGroup;
use hinterland_sys::confinement;
use hinterland_units::{PAGE_BYTES, PageBytes};
pub use io::IoMethod;
use io::{BOUNCE_PAGES, RING_ENTRIES, RUN_PAGES_MAX, Run, Worker};
use slots::Slots;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

const SLOT_BITS: u32 = 36;
/// Files that one process can know: as many forks deep as a location's index reaches.
const FILES_MAX: usize = 1 << (Location::BITS - SLOT_BITS);
/// Calls of each sort that can be under way at once; more threads wait. Of demands there may be others (`threads=`).
const DEMAND_WORKERS: usize = 8;
const BACKGROUND_WORKERS: usize = 4;
/// Operations of a background call that may be in flight while a demand load is under way.
const SHALLOW: usize = 1;
/// The same of a migration: 512 KiB. A switch rests for the program (`paths::duty_cycle`), and a promotion begins after a look without loads.
const SHALLOW_MIGRATION: usize = 4;
/// Batches of stores between two looks at which relatives are gone, while slots wait for that.
const BATCHES_BETWEEN_LOOKS: usize = 16;
/// After a store that its disk had no room for, the file grows no more for so long while slots that have their blocks are free.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(1);
/// Pages that one background operation moves, so that a demand load never waits for more: 128 KiB.
const BACKGROUND_RUN_PAGES: usize = 32;

/// How much of a file is under way at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileWidth {
    /// Operations that one call can have in flight, where they go through io_uring.
    pub depth: usize,
    /// Threads that can wait for pages at once; more wait for those.
    pub threads: usize,
}

impl FileWidth {
    /// The most of both: a ring has so many entries, and each thread's call a ring.
    pub const MAX: usize = RING_ENTRIES as usize;
}

impl Default for FileWidth {
    fn default() -> FileWidth {
        FileWidth { depth: RING_ENTRIES as usize, threads: DEMAND_WORKERS }
    }
}

/// How a `file` backend is made.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// A directory, or the name of a file to be that does not exist.
    pub path: PathBuf,
    /// Bytes that each process may store.
    pub capacity_bytes: u64,
    /// How pages travel.
    pub io: IoMethod,
    /// Whether to bypass the page cache where the file system allows it.
    pub direct: bool,
    /// How much is under way at once.
    pub width: FileWidth,
}

/// Pages in a file.
pub struct FileBackend {
    url: String,
    directory: PathBuf,
    options: FileOptions,
    /// The files that locations name; all but `own` are shared with other processes and only read.
    files: Vec<OnceLock<FarFile>>,
    own: AtomicUsize,
    slots: Mutex<Slots>,
    /// When the disk last had no room.
    disk_full_at: Mutex<Option<Instant>>,
    fork_group: Mutex<ForkGroup>,
    /// Batches stored, to look after relatives now and then.
    batches: AtomicUsize,
    demand_workers: Pool<Worker>,
    background_workers: Pool<Worker>,
    demands_under_way: AtomicUsize,
    counters: Counters,
}

impl FileBackend {
    /// Opens the file; `url` names it in messages.
    ///
    /// # Errors
    /// The path cannot be used, or the file system refuses a file of this size.
    pub fn new(url: String, options: FileOptions) -> std::io::Result<FileBackend> {
        // A child makes its file at its first store, when the program may be in another directory.
        let directory = std::path::absolute(far_file::directory_of(&options.path)?)?;
        let first = far_file::create(&directory, options.capacity_bytes, options.direct)?;
        let files: Vec<OnceLock<FarFile>> = (0..FILES_MAX).map(|_| OnceLock::new()).collect();
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = if options.direct && !first.direct { format!("{url}{separator}direct=off") } else { url };
        assert!(files[0].set(first).is_ok(), "a new cell is empty");
        let method = options.io;
        Ok(FileBackend {
            url,
            directory,
            files,
            own: AtomicUsize::new(0),
            slots: Mutex::new(Slots::new(capacity_slots(&options))),
            disk_full_at: Mutex::default(),
            fork_group: Mutex::default(),
            batches: AtomicUsize::new(0),
            demand_workers: Pool::new(options.width.threads, move || Worker::new(method)),
            background_workers: Pool::new(BACKGROUND_WORKERS, move || Worker::new(method)),
            demands_under_way: AtomicUsize::new(0),
            counters: Counters::default(),
            options,
        })
    }

    /// The file that this process stores to; a child's is made at its first store.
    fn own_file(&self) -> std::io::Result<&FarFile> {
        let cell = &self.files[self.own.load(Relaxed)];
        if let Some(file) = cell.get() {
            return if file.is_ours() { Ok(file) } else { Err(std::io::Error::from_raw_os_error(libc::EBADF)) };
        }
        let create = || far_file::create(&self.directory, self.options.capacity_bytes, self.options.direct);
        let forbidden = || Err(std::io::Error::from_raw_os_error(libc::EPERM));
        let file = confinement::with_files(create).unwrap_or_else(forbidden)?;
        Ok(cell.get_or_init(|| file))
    }

    fn split(location: Location) -> (usize, u64) {
        let index = usize::try_from(location.0 >> SLOT_BITS).unwrap_or(usize::MAX);
        (index, location.0 & ((1 << SLOT_BITS) - 1))
    }

    fn worker_for<R>(&self, priority: Priority, use_it: impl FnOnce(&mut Worker) -> R) -> R {
        if priority != Priority::Demand {
            return self.background_workers.with(use_it);
        }
        self.demands_under_way.fetch_add(1, Relaxed);
        let answer = self.demand_workers.with(use_it);
        self.demands_under_way.fetch_sub(1, Relaxed);
        answer
    }

    fn depth(&self, priority: Priority) -> usize {
        let depth = self.options.width.depth;
        match priority {
            Priority::Demand => depth,
            _ if self.demands_under_way.load(Relaxed) == 0 => depth,
            Priority::Migration => SHALLOW_MIGRATION.min(depth),
            Priority::Prefetch | Priority::WriteBack => SHALLOW,
        }
    }

    fn device_error(&self, error: &std::io::Error) -> StoreError {
        StoreError::Device { url: self.url.clone(), errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    /// Stores at most BOUNCE_PAGES pages.
    fn store_batch(
        &self,
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: Option<&mut dyn FnMut()>,
    ) {
        let (file, own) = match self.own_file() {
            Ok(file) => (file, self.own.load(Relaxed) as u64),
            Err(error) => return out.fill(Err(self.device_error(&error))),
        };
        let (slots, used_slots) = self.take_slots(pages.len());
        out[slots.len()..].fill(Err(StoreError::Full {
            url: self.url.clone(),
            cause: FullCause::Capacity,
            used_bytes: used_slots * PAGE_BYTES as u64,
            capacity_bytes: self.options.capacity_bytes,
        }));
        let mut stored = self.write_to(file, pages, slots, priority, meanwhile);
        let has_no_room = |index: &usize| matches!(stored[*index], Err(libc::ENOSPC | libc::EDQUOT));
        let refused: Vec<usize> = (0..stored.len()).filter(has_no_room).collect();
        if !refused.is_empty() {
            *lock(&self.disk_full_at) = Some(Instant::now());
            let slots = lock(&self.slots).take_written(refused.len());
            let again: Vec<&PageBytes> = refused.iter().map(|index| pages[*index]).collect();
            let again = self.write_to(file, &again, slots, priority, None);
            refused.into_iter().zip(again).for_each(|(index, answer)| stored[index] = answer);
        }
        for (answer, stored) in out.iter_mut().zip(stored) {
            *answer = match stored {
                Ok(slot) => Ok(Location(own << SLOT_BITS | slot)),
                Err(errno) => Err(StoreError::Device { url: self.url.clone(), errno }),
            };
        }
    }

    /// Slots for so many pages, or as many as are free; and how many are in use then. Of a full disk, those first that were written before.
    fn take_slots(&self, pages: usize) -> (Vec<u64>, u64) {
        let disk_is_full = lock(&self.disk_full_at).is_some_and(|at| at.elapsed() < DISK_FULL_PAUSE);
        let mut table = lock(&self.slots);
        let mut slots = if disk_is_full { table.take_written(pages) } else { Vec::new() };
        slots.extend(table.take(pages - slots.len()).into_iter().flatten());
        let looks = self.batches.fetch_add(1, Relaxed).is_multiple_of(BATCHES_BETWEEN_LOOKS);
        if table.kept_slots() > 0 && (looks || slots.len() < pages) {
            lock(&self.fork_group).gone().into_iter().for_each(|generation| table.thaw(generation));
            slots.extend(table.take(pages - slots.len()).into_iter().flatten());
        }
        (slots, table.used_slots())
    }

    /// Writes page `i` to slot `slots[i]`; gives those back that could not be written.
    fn write_to(
        &self,
        file: &FarFile,
        pages: &[&PageBytes],
        slots: Vec<u64>,
        priority: Priority,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Vec<Result<u64, i32>> {
        let write = |worker: &mut Worker| self.write(worker, file, pages, &slots, priority, meanwhile);
        let written = self.background_workers.with(write);
        let answer = |(slot, written): (u64, Result<(), i32>)| written.map(|()| slot).map_err(|errno| (slot, errno));
        let written: Vec<Result<u64, (u64, i32)>> = slots.into_iter().zip(written).map(answer).collect();
        let mut table = lock(&self.slots);
        table.note_written(written.iter().filter_map(|written| written.ok()));
        let mut conclude = |written: Result<u64, (u64, i32)>| {
            written.map_err(|(slot, errno)| {
                table.give_back(slot);
                errno
            })
        };
        written.into_iter().map(&mut conclude).collect()
    }

    /// Writes page `i` to slot `slots[i]`.
    fn write(
        &self,
        worker: &mut Worker,
        file: &FarFile,
        pages: &[&PageBytes],
        slots: &[u64],
        priority: Priority,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Vec<Result<(), i32>> {
        worker.clear();
        for (index, (page, slot)) in pages.iter().zip(slots).enumerate() {
            let mut address = page.as_ptr().cast_mut();
            if file.direct && !io::is_aligned(address) {
                match worker.bounce(index) {
                    Ok(bounce) => {
                        // SAFETY: bounce page `index` is a whole page of the worker's own, which we hold.
                        unsafe { bounce.copy_from_nonoverlapping(page.as_ptr(), PAGE_BYTES) };
                        address = bounce;
                    }
                    Err(error) => return vec![Err(error.raw_os_error().unwrap_or(libc::ENOMEM)); slots.len()],
                }
            }
            let first = worker.add_page(address);
            let limit = BACKGROUND_RUN_PAGES;
            push_run(worker, Run { fd: file.fd(), write: true, offset: offset_of(*slot), first, count: 1 }, limit);
        }
        let ranges: Vec<(usize, usize)> = worker.runs.iter().map(|run| (run.first, run.count)).collect();
        let mut results = vec![Ok(()); slots.len()];
        // SAFETY: the pages are borrowed by the caller (or bounce pages of ours) and only read.
        unsafe {
            let mut finish = |run: usize, result| {
                let (first, count) = ranges[run];
                results[first..first + count].fill(result);
            };
            worker.run(false, &|| self.depth(priority), &mut finish, meanwhile);
        }
        results
    }

    /// Loads at most BOUNCE_PAGES items, of which the first is number `base` of the caller's.
    fn load_batch(
        &self,
        worker: &mut Worker,
        base: usize,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: Option<&mut dyn FnMut()>,
    ) {
        worker.clear();
        // In the order of the file, but the first item first: it is what the program waits for.
        let mut order: Vec<usize> = (0..items.len()).collect();
        order[1..].sort_unstable_by_key(|index| items[*index].location);
        let mut bounced = vec![None; items.len()];
        let mut planned: Vec<usize> = Vec::with_capacity(items.len());
        let demand = priority == Priority::Demand;
        let limit = if demand { RUN_PAGES_MAX } else { BACKGROUND_RUN_PAGES };
        for (place, index) in order.into_iter().enumerate() {
            match self.plan_read(worker, &mut items[index], planned.len(), &mut bounced[index]) {
                Ok(run) => {
                    planned.push(index);
                    push_run(worker, run, if place == 1 && demand { 0 } else { limit });
                }
                Err(error) => done(base + index, Err(error)),
            }
        }
        let ranges: Vec<(usize, usize)> = worker.runs.iter().map(|run| (run.first, run.count)).collect();
        let mut finish = |run: usize, result: Result<(), i32>| {
            let (first, count) = ranges[run];
            for index in &planned[first..first + count] {
                let item = &mut items[*index];
                let answer = result.map_err(|errno| LoadError::Device { url: self.url.clone(), errno });
                if let (Ok(()), Some(bounce)) = (result, bounced[*index]) {
                    // SAFETY: the item's own bounce page, which the kernel has finished filling.
                    item.into.copy_from_slice(unsafe { std::slice::from_raw_parts(bounce, PAGE_BYTES) });
                }
                done(base + index, answer.map(|()| &*item.into));
            }
        };
        // SAFETY: every page is an item's buffer, borrowed exclusively by the caller and not touched here before its run
        // is finished, or a bounce page of the worker.
        unsafe { worker.run(demand, &|| self.depth(priority), &mut finish, meanwhile) };
    }

    /// Adds an item's buffer to the worker's pages, as number `place`, and says what to read into it.
    fn plan_read(
        &self,
        worker: &mut Worker,
        item: &mut LoadItem<'_>,
        place: usize,
        bounced: &mut Option<*const u8>,
    ) -> Result<Run, LoadError> {
        let (index, slot) = FileBackend::split(item.location);
        let damaged = |what| LoadError::Damaged { url: self.url.clone(), location: item.location, what };
        let file = self.files.get(index).and_then(OnceLock::get).ok_or_else(|| damaged("no such file was opened"))?;
        let mut address = item.into.as_mut_ptr();
        if file.direct && !io::is_aligned(address) {
            let bounce = worker.bounce(place);
            let no_memory = |_| LoadError::Device { url: self.url.clone(), errno: libc::ENOMEM };
            address = bounce.map_err(no_memory)?;
            *bounced = Some(address.cast_const());
        }
        let first = worker.add_page(address);
        Ok(Run { fd: file.fd(), write: false, offset: offset_of(slot), first, count: 1 })
    }

    fn store_all(
        &self,
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        mut meanwhile: Option<&mut dyn FnMut()>,
    ) {
        // No thread waits for a store as for a load.
        let priority = priority.max(Priority::WriteBack);
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        for (pages, out) in pages.chunks(BOUNCE_PAGES).zip(out.chunks_mut(BOUNCE_PAGES)) {
            self.store_batch(pages, priority, out, meanwhile.take());
            let stored = out.iter().filter(|answer| answer.is_ok()).count() as u64;
            let stored_bytes = stored * PAGE_BYTES as u64;
            self.counters.stored(&Tally { pages: stored, stored_bytes, plain_pages: stored, same_filled_pages: 0 });
        }
    }

    fn load_all(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        mut meanwhile: Option<&mut dyn FnMut()>,
    ) {
        self.counters.loaded(items.len() as u64);
        self.worker_for(priority, |worker| {
            for (number, items) in items.chunks_mut(BOUNCE_PAGES).enumerate() {
                self.load_batch(worker, number * BOUNCE_PAGES, items, priority, done, meanwhile.take());
            }
        });
    }
}

fn capacity_slots(options: &FileOptions) -> u64 {
    (options.capacity_bytes / PAGE_BYTES as u64).min(1 << SLOT_BITS)
}

fn offset_of(slot: u64) -> u64 {
    slot * PAGE_BYTES as u64
}

/// Appends a run of one page, as a part of the last run if it continues it and that stays within `limit` pages.
fn push_run(worker: &mut Worker, run: Run, limit: usize) {
    if let Some(last) = worker.runs.last_mut() {
        let end = last.offset + (last.count * PAGE_BYTES) as u64;
        if last.fd == run.fd && end == run.offset && last.count < limit {
            last.count += 1;
            return;
        }
    }
    worker.runs.push(run);
}

impl Backend for FileBackend {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        self.store_all(pages, priority, out, None);
    }

    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        assert!(bytes.is_none(), "whole pages are stored");
        self.store_all(pages, priority, out, Some(meanwhile));
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.load_all(items, priority, done, None);
    }

    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        self.load_all(items, priority, done, Some(meanwhile));
    }

    fn free(&self, locations: &[Location]) {
        let own = self.own.load(Relaxed);
        let mut slots = lock(&self.slots);
        for (index, slot) in locations.iter().map(|location| FileBackend::split(*location)) {
            // The slots of other files belong to other processes, too.
            if index == own {
                slots.give_back(slot);
            }
        }
        let pages = locations.len() as u64;
        let stored_bytes = pages * PAGE_BYTES as u64;
        self.counters.freed(&Tally { pages, stored_bytes, plain_pages: pages, same_filled_pages: 0 });
    }

    fn descriptors_if_confined(&self) -> Option<Vec<RawFd>> {
        Some(self.files.iter().filter_map(|file| file.get().map(FarFile::fd)).collect())
    }

    fn demand_width(&self) -> usize {
        self.options.width.threads
    }

    fn copies_cost_ram(&self) -> bool {
        false
    }

    fn ram_bytes(&self) -> u64 {
        let workers = (self.demand_workers.made() + self.background_workers.made()) as u64;
        lock(&self.slots).table_bytes() as u64 + workers * Worker::RAM_BYTES
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        rows.push(self.counters.row(&self.url, self.ram_bytes(), self.options.capacity_bytes));
    }

    fn before_fork(&self) {
        let gone = lock(&self.fork_group).begin();
        gone.into_iter().for_each(|generation| lock(&self.slots).thaw(generation));
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        if side == ForkSide::Parent {
            let generation = lock(&self.fork_group).newest();
            lock(&self.slots).freeze(generation);
            return Ok(());
        }
        self.counters.after_fork(side);
        lock(&self.fork_group).begin_child();
        self.demand_workers.reset();
        self.background_workers.reset();
        let own = self.own.load(Relaxed);
        if self.files[own].get().is_none() {
            return Ok(());
        }
        if own + 1 == FILES_MAX {
            return Err(StoreError::Device { url: self.url.clone(), errno: libc::EMFILE });
        }
        self.own.store(own + 1, Relaxed);
        *lock(&self.slots) = Slots::new(capacity_slots(&self.options));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_more_under_way_than_its_width() {
        let width = FileWidth { depth: 3, threads: 2 };
        let (path, capacity_bytes) = (std::env::temp_dir(), 64 * PAGE_BYTES as u64);
        let options = FileOptions { path, capacity_bytes, io: IoMethod::Auto, direct: true, width };
        let file = FileBackend::new("file".into(), options).expect("the file can be made");
        assert_eq!(file.depth(Priority::Demand), 3);
        assert_eq!(file.depth(Priority::Prefetch), 3);
        file.demands_under_way.store(1, Relaxed);
        let depths = [Priority::Demand, Priority::Prefetch, Priority::WriteBack, Priority::Migration];
        assert_eq!(depths.map(|priority| file.depth(priority)), [3, 1, 1, 3]);
        file.demands_under_way.store(0, Relaxed);
        let mut out = vec![Ok(Location(0)); 64];
        file.store(&[&[7; PAGE_BYTES]; 64], Priority::WriteBack, &mut out);
        let locations: Vec<Location> = out.into_iter().map(|answer| answer.expect("room")).collect();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for location in locations.iter().rev().step_by(3) {
                        let mut into = [0; PAGE_BYTES];
                        let items = &mut [LoadItem { location: *location, into: &mut into }];
                        file.load(items, Priority::Demand, &mut |_, page| assert!(page.is_ok()));
                        assert_eq!(into, [7; PAGE_BYTES]);
                    }
                });
            }
        });
        assert!((1..=2).contains(&file.demand_workers.made()), "{} threads loaded at once", file.demand_workers.made());
    }
}
