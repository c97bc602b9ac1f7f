//! A session: one client's address space, made of slabs.

use crate::copies::SessionReport;
use crate::quotas::{CloneGroup, NoRoom, SessionPermit};
use crate::slab::{SLAB_BYTES, Slab};
use hinterland_units::PAGE_BYTES;
use hinterland_wire::{Numbers, PagePatch, Patches, Range, Ranges, SessionId, Token, checksum};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Connections that one session may have.
const LANES_MAX: u32 = 64;
/// Time that a clone is kept until its process has connected: it may be stopped, or the machine busy.
const CLONE_GRACE: Duration = Duration::from_secs(60);

/// An address space.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) token: Token,
    pub(crate) name: String,
    pub(crate) group: Arc<CloneGroup>,
    pub(crate) lease: Duration,
    /// Slab n holds the bytes from n × SLAB_BYTES on. A slab that is also in another session's table, or in a table that another
    /// session shares, is never written. `None`: the session is over.
    table: RwLock<Option<Arc<Table>>>,
    /// Counts the session for as long as it exists.
    _permit: SessionPermit,
    presence: Mutex<Presence>,
    pub(crate) counts: Counts,
    /// What its program says of the copies of its pages.
    pub(crate) report: SessionReport,
}

struct Presence {
    lanes: u32,
    /// When the last lane left, or the session was made.
    alone_since: Instant,
    /// No lane has been there.
    expected: bool,
}

/// What a session has done.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) copied_slabs: AtomicU64,
}

/// Why a request was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionError {
    NoRoom(NoRoom),
    /// A range, or a slab, that the session does not have.
    Outside,
    /// Data that does not have its checksum.
    Damaged,
    /// A page that would not be the one that the patch's checksum is of.
    Stale,
    /// The session is over.
    Over,
}

impl From<NoRoom> for SessionError {
    fn from(no_room: NoRoom) -> SessionError {
        SessionError::NoRoom(no_room)
    }
}

type Table = Vec<Option<Arc<Slab>>>;

impl Session {
    /// An empty session.
    pub(crate) fn new(id: SessionId, token: Token, name: &str, permit: SessionPermit, lease: Duration) -> Session {
        Session {
            id,
            token,
            name: name.to_owned(),
            group: permit.group().clone(),
            lease,
            table: RwLock::new(Some(Arc::default())),
            _permit: permit,
            presence: Mutex::new(Presence { lanes: 0, alone_since: Instant::now(), expected: true }),
            counts: Counts::default(),
            report: SessionReport::default(),
        }
    }

    /// A session with the same content: the table is shared until one side changes it, and the slabs until one side writes to them.
    pub(crate) fn clone_as(&self, id: SessionId, token: Token, permit: SessionPermit) -> Result<Session, SessionError> {
        let session = Session::new(id, token, &self.name, permit, self.lease);
        // Exclusive: no writer may be between finding a slab unshared and writing to it.
        let table = self.write_table().clone().ok_or(SessionError::Over)?;
        Ok(Session { table: RwLock::new(Some(table)), ..session })
    }

    /// Adds `count` slabs, all or none; returns their numbers, the lowest that are free.
    pub(crate) fn lease_slabs(&self, count: usize, shared: bool) -> Result<Vec<u32>, SessionError> {
        let new = (0..count).map(|_| Slab::new(&self.group, shared)).collect::<Result<Vec<_>, _>>()?;
        let mut table = self.write_table();
        let slabs = Arc::make_mut(table.as_mut().ok_or(SessionError::Over)?);
        self.report.leases(count as u64);
        let mut numbers = Vec::with_capacity(count);
        let mut at = 0;
        for slab in new {
            while slabs.get(at).is_some_and(Option::is_some) {
                at += 1;
            }
            if at == slabs.len() {
                slabs.push(None);
            }
            slabs[at] = Some(Arc::new(slab));
            numbers.push(u32::try_from(at).expect("slabs are counted, and far fewer"));
        }
        Ok(numbers)
    }

    /// Takes slabs back, all or none.
    pub(crate) fn return_slabs(&self, numbers: Numbers<'_>) -> Result<(), SessionError> {
        let mut table = self.write_table();
        let slabs = Arc::make_mut(table.as_mut().ok_or(SessionError::Over)?);
        if !numbers.iter().all(|number| slabs.get(number as usize).is_some_and(Option::is_some)) {
            return Err(SessionError::Outside);
        }
        let gone: Vec<_> = numbers.iter().filter_map(|number| slabs[number as usize].take()).collect();
        drop(table);
        // Their memory goes back to the kernel here, with the table free.
        drop(gone);
        Ok(())
    }

    /// Appends the bytes of all ranges to `into` and their checksums to `sums`; nothing when one of them lies outside.
    pub(crate) fn read(&self, ranges: Ranges<'_>, into: &mut Vec<u8>, sums: &mut Vec<u64>) -> Result<(), SessionError> {
        let table = self.read_table();
        let slabs = table.as_ref().ok_or(SessionError::Over)?;
        if !ranges.iter().all(|range| locate(slabs, range).is_some()) {
            return Err(SessionError::Outside);
        }
        for range in ranges.iter() {
            let (number, offset) = locate(slabs, range).expect("checked above");
            let (begin, bytes) = (into.len(), range.bytes as usize);
            let slab = slab(slabs, number).reading();
            slab.append(offset, bytes, into)?;
            sums.push(slab.sum(offset, range.address, &into[begin..]));
        }
        self.count_reads(ranges);
        Ok(())
    }

    /// Lends the bytes of all ranges, which do not change meanwhile, and their checksums, to `to`, and returns what
    /// that returns; `None` when a slab is not in this process's address space.
    pub(crate) fn lend<R>(
        &self,
        ranges: Ranges<'_>,
        sums: &mut Vec<u64>,
        to: impl FnOnce(&[&[u8]], &[u64]) -> R,
    ) -> Result<Option<R>, SessionError> {
        let table = self.read_table();
        let slabs = table.as_ref().ok_or(SessionError::Over)?;
        if !ranges.iter().all(|range| locate(slabs, range).is_some()) {
            return Err(SessionError::Outside);
        }
        // Each slab once, see `Reading`.
        let mut read: Vec<usize> = numbers(slabs, ranges.iter()).collect();
        read.sort_unstable();
        read.dedup();
        let locked: Vec<_> = read.iter().map(|number| slab(slabs, *number).reading()).collect();
        let mut pieces = Vec::with_capacity(ranges.count());
        for range in ranges.iter() {
            let (number, offset) = locate(slabs, range).expect("checked above");
            let slab = &locked[read.binary_search(&number).expect("all are there")];
            let Some(piece) = slab.bytes(offset, range.bytes as usize) else { return Ok(None) };
            sums.push(slab.sum(offset, range.address, piece));
            pieces.push(piece);
        }
        self.count_reads(ranges);
        Ok(Some(to(&pieces, sums)))
    }

    fn count_reads(&self, ranges: Ranges<'_>) {
        self.counts.reads.fetch_add(ranges.count() as u64, Relaxed);
        self.counts.read_bytes.fetch_add(ranges.data_bytes() as u64, Relaxed);
    }

    /// Writes `data` to the ranges one after the other; nothing when one of them is outside or damaged, or a copy has no room.
    pub(crate) fn write(&self, ranges: Ranges<'_>, data: &[u8]) -> Result<(), SessionError> {
        if !pieces(ranges.iter(), data).all(|(range, piece)| checksum(range.address, piece) == range.checksum) {
            return Err(SessionError::Damaged);
        }
        self.put(ranges.iter(), data)?;
        self.count_writes(ranges.count(), ranges.data_bytes());
        Ok(())
    }

    /// Changes the granules of pages that are in `data`; nothing when one of the pages is outside, or would not have its patch's checksum, or a
    /// copy has no room. Each page changes at once for reads by a message.
    pub(crate) fn patch(&self, patches: Patches<'_>, data: &[u8]) -> Result<(), SessionError> {
        let patched = self.patched(patches, data)?;
        self.put(patches.iter().map(page_of), &patched)?;
        self.count_writes(patches.count(), patches.data_bytes());
        Ok(())
    }

    /// The pages as they are with their patches, one after the other; each has its patch's checksum.
    fn patched(&self, patches: Patches<'_>, mut data: &[u8]) -> Result<Vec<u8>, SessionError> {
        let table = self.read_table();
        let slabs = table.as_ref().ok_or(SessionError::Over)?;
        let mut pages = Vec::with_capacity(patches.count() * PAGE_BYTES);
        for patch in patches.iter() {
            let (number, offset) = locate(slabs, page_of(patch)).ok_or(SessionError::Outside)?;
            let begin = pages.len();
            slab(slabs, number).reading().append(offset, PAGE_BYTES, &mut pages)?;
            let page = &mut pages[begin..];
            for run in patch.granules.runs() {
                let (piece, behind) = data.split_at(run.len());
                page[run].copy_from_slice(piece);
                data = behind;
            }
            if checksum(patch.address, page) != patch.checksum {
                return Err(SessionError::Stale);
            }
        }
        Ok(pages)
    }

    /// Puts `data`, which has the checksums of `ranges`, there; nothing when one of them is outside, or a copy has no room.
    fn put(&self, ranges: impl Iterator<Item = Range> + Clone, data: &[u8]) -> Result<(), SessionError> {
        let put = |slabs: &Table| {
            pieces(ranges.clone(), data).try_for_each(|(range, piece)| {
                let (number, offset) = locate(slabs, range).expect("checked before");
                slab(slabs, number).write(offset, piece, range.checksum)
            })
        };
        let is_inside = |slabs: &Table| ranges.clone().all(|range| locate(slabs, range).is_some());
        let table = self.read_table();
        let slabs = table.as_ref().ok_or(SessionError::Over)?;
        if !is_inside(slabs) {
            return Err(SessionError::Outside);
        }
        // A slab becomes shared only under the exclusive lock of a table that has it; ours is held.
        let is_own = Arc::strong_count(slabs) == 1;
        if is_own && numbers(slabs, ranges.clone()).all(|number| Arc::strong_count(slab(slabs, number)) == 1) {
            put(slabs)?;
        } else {
            drop(table);
            let mut table = self.write_table();
            let slabs = Arc::make_mut(table.as_mut().ok_or(SessionError::Over)?);
            if !is_inside(slabs) {
                return Err(SessionError::Outside);
            }
            self.unshare(slabs, ranges.clone())?;
            put(slabs)?;
        }
        Ok(())
    }

    fn count_writes(&self, writes: usize, bytes: usize) {
        self.counts.writes.fetch_add(writes as u64, Relaxed);
        self.counts.written_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Gives the session a copy of its own of every slab that the ranges lie in.
    fn unshare(&self, slabs: &mut Table, ranges: impl Iterator<Item = Range>) -> Result<(), NoRoom> {
        for range in ranges {
            let (number, _) = locate(slabs, range).expect("checked by the caller");
            let shared = slab(slabs, number);
            if Arc::strong_count(shared) > 1 {
                let own = shared.copy(&self.group)?;
                slabs[number] = Some(Arc::new(own));
                self.counts.copied_slabs.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// A descriptor to read a slab with; `None`: it cannot be shared.
    pub(crate) fn reader(&self, number: u32) -> Result<Option<OwnedFd>, SessionError> {
        let table = self.read_table();
        let slabs = table.as_ref().ok_or(SessionError::Over)?;
        let slab = slabs.get(number as usize).and_then(Option::as_ref).ok_or(SessionError::Outside)?;
        Ok(slab.reader())
    }

    /// Forgets all content, for good.
    pub(crate) fn end(&self) {
        let table = self.write_table().take();
        drop(table);
    }

    /// Slabs in the address space.
    pub(crate) fn slab_count(&self) -> usize {
        self.read_table().iter().flat_map(|slabs| slabs.iter().flatten()).count()
    }

    /// One lane more; `false` when there are too many.
    pub(crate) fn join(&self) -> bool {
        let mut presence = self.presence();
        let fits = presence.lanes < LANES_MAX && self.group.tenant.lanes.charge();
        if fits {
            presence.lanes += 1;
            presence.expected = false;
        }
        fits
    }

    /// A lane has ended.
    pub(crate) fn leave(&self) {
        self.group.tenant.lanes.uncharge();
        let mut presence = self.presence();
        presence.lanes -= 1;
        presence.alone_since = Instant::now();
    }

    /// Connections.
    pub(crate) fn lanes(&self) -> u32 {
        self.presence().lanes
    }

    /// Whether no lane has been connected for as long as the lease allows.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let presence = self.presence();
        let lease = if presence.expected { self.lease.max(CLONE_GRACE) } else { self.lease };
        presence.lanes == 0 && now.saturating_duration_since(presence.alone_since) > lease
    }

    fn read_table(&self) -> RwLockReadGuard<'_, Option<Arc<Table>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_table(&self) -> RwLockWriteGuard<'_, Option<Arc<Table>>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slab that a range lies in, and where in it; `None` for a range outside, or across the end of a slab.
fn locate(slabs: &Table, range: Range) -> Option<(usize, usize)> {
    let number = usize::try_from(range.address / SLAB_BYTES).ok()?;
    let offset = range.address % SLAB_BYTES;
    let inside = offset + u64::from(range.bytes) <= SLAB_BYTES && slabs.get(number)?.is_some();
    inside.then_some((number, usize::try_from(offset).ok()?))
}

fn slab(slabs: &Table, number: usize) -> &Arc<Slab> {
    slabs[number].as_ref().expect("located")
}

/// Each range with its part of `data`.
fn pieces(ranges: impl Iterator<Item = Range>, mut data: &[u8]) -> impl Iterator<Item = (Range, &[u8])> {
    ranges.map(move |range| {
        let (piece, behind) = data.split_at(range.bytes as usize);
        data = behind;
        (range, piece)
    })
}

/// The whole page of a patch.
fn page_of(patch: PagePatch) -> Range {
    let bytes = u32::try_from(PAGE_BYTES).expect("4096");
    Range { address: patch.address, bytes, checksum: patch.checksum }
}

fn numbers(slabs: &Table, ranges: impl Iterator<Item = Range>) -> impl Iterator<Item = usize> {
    ranges.map(|range| locate(slabs, range).expect("checked by the caller").0)
}
