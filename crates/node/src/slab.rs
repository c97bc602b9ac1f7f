//! A slab: a piece of memory that is lent as a whole.

use crate::memory::Memory;
use crate::quotas::{Charge, CloneGroup, NoRoom};
use hinterland_units::PAGE_BYTES;
use hinterland_wire::checksum;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Bytes of a slab: a huge page of the processor, so that it can become one.
pub const SLAB_BYTES: u64 = SLAB_LEN as u64;
pub(crate) const SLAB_LEN: usize = 2 << 20;
const SLAB_PAGES: usize = SLAB_LEN / PAGE_BYTES;

/// Memory that belongs to one session, or to a session and its clones until one of them writes.
pub(crate) struct Slab {
    content: RwLock<Content>,
    /// Counts the slab for as long as it exists.
    charge: Charge,
}

struct Content {
    memory: Memory,
    /// Pages that were written: what a copy has to copy.
    written: Pages,
    /// So many bytes of each page, from its beginning on, were written last; 0: other parts of it. Their checksums are kept as their writer
    /// computed them, so that they are not computed again and what changes here is seen where it is read.
    begins: Box<[u16; SLAB_PAGES]>,
    sums: Box<[u64; SLAB_PAGES]>,
}

/// A set of a slab's pages.
#[derive(Clone, Copy, Default)]
struct Pages([u64; SLAB_PAGES / 64]);

impl Pages {
    fn has(&self, page: usize) -> bool {
        self.0[page / 64] & 1 << (page % 64) != 0
    }

    fn set(&mut self, page: usize, is_in: bool) {
        let bit = 1 << (page % 64);
        if is_in {
            self.0[page / 64] |= bit;
        } else {
            self.0[page / 64] &= !bit;
        }
    }
}

impl Slab {
    /// A slab of zeros, if possible one that its session may map.
    pub(crate) fn new(group: &Arc<CloneGroup>, shared: bool) -> Result<Slab, NoRoom> {
        let charge = Charge::take(group)?;
        let memory = Memory::new(shared).map_err(|_| NoRoom::System)?;
        let content = Content { memory, written: Pages::default(), begins: Box::new([0; SLAB_PAGES]), sums: sums() };
        Ok(Slab { content: RwLock::new(content), charge })
    }

    /// A slab of its own with the same bytes.
    pub(crate) fn copy(&self, group: &Arc<CloneGroup>) -> Result<Slab, NoRoom> {
        let Reading(from) = self.reading();
        let copy = Slab::new(group, from.memory.is_shared())?;
        {
            let mut into = copy.content.write().unwrap_or_else(PoisonError::into_inner);
            for page in (0..SLAB_PAGES).filter(|page| from.written.has(*page)) {
                into.memory.copy_page(&from.memory, page * PAGE_BYTES).map_err(|_| NoRoom::System)?;
            }
            into.written = from.written;
            into.begins.copy_from_slice(&*from.begins);
            into.sums.copy_from_slice(&*from.sums);
        }
        Ok(copy)
    }

    /// The content, which does not change meanwhile.
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading(self.content.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts `data`, whose checksum is `sum`, at `offset`; the range lies inside the slab.
    pub(crate) fn write(&self, offset: usize, data: &[u8], sum: u64) -> Result<(), NoRoom> {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        let begins = page_bytes(offset, data.len());
        for page in offset / PAGE_BYTES..(offset + data.len()).div_ceil(PAGE_BYTES) {
            content.written.set(page, true);
            content.begins[page] = begins.unwrap_or(0);
        }
        if begins.is_some() {
            // Also where the write fails: what lies there then is for nobody, and looks damaged.
            content.sums[offset / PAGE_BYTES] = sum;
        }
        content.memory.write(offset, data).map_err(|_| NoRoom::System)
    }

    /// A descriptor to read it with; `None`: it cannot be shared.
    pub(crate) fn reader(&self) -> Option<OwnedFd> {
        self.reading().0.memory.reader().unwrap_or(None)
    }
}

/// A slab's content, which does not change meanwhile. Its ranges lie inside the slab.
///
/// A thread reads a slab once at a time: where another waits to write, a second time waits for it, and it for the first.
pub(crate) struct Reading<'a>(RwLockReadGuard<'a, Content>);

impl Reading<'_> {
    /// Appends the bytes from `offset` on.
    pub(crate) fn append(&self, offset: usize, bytes: usize, into: &mut Vec<u8>) -> Result<(), NoRoom> {
        self.0.memory.read(offset, bytes, into).map_err(|_| NoRoom::System)
    }

    /// The bytes from `offset` on; `None`: they are in a file, and not in this process's address space.
    pub(crate) fn bytes(&self, offset: usize, bytes: usize) -> Option<&[u8]> {
        self.0.memory.bytes(offset, bytes)
    }

    /// The checksum of `data`, which lies at `offset` here and at `address` in the session: that which it came with, where it came so.
    pub(crate) fn sum(&self, offset: usize, address: u64, data: &[u8]) -> u64 {
        let page = offset / PAGE_BYTES;
        let is_known = page_bytes(offset, data.len()).is_some_and(|bytes| self.0.begins[page] == bytes);
        if is_known { self.0.sums[page] } else { checksum(address, data) }
    }
}

/// How many bytes of a page, from its beginning on, a range is; `None`: it is another part, or longer.
fn page_bytes(offset: usize, bytes: usize) -> Option<u16> {
    let begins = offset.is_multiple_of(PAGE_BYTES) && (1..=PAGE_BYTES).contains(&bytes);
    begins.then(|| u16::try_from(bytes).expect("a page at most"))
}

/// No checksums yet.
fn sums() -> Box<[u64; SLAB_PAGES]> {
    vec![0; SLAB_PAGES].into_boxed_slice().try_into().expect("as many as were asked for")
}

impl Drop for Slab {
    fn drop(&mut self) {
        // At the node's own end clients may still read, until they notice.
        if !self.charge.is_over() {
            self.content.get_mut().unwrap_or_else(PoisonError::into_inner).memory.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quotas::{Bounds, ResourceCounter, Tenant};

    #[test]
    fn a_copy_has_every_byte_and_is_its_own() {
        [false, true].into_iter().for_each(check_copy);
    }

    fn check_copy(shared: bool) {
        let tenant = Arc::new(Tenant::new(Bounds { slabs: 3, sessions: 1, lanes: 1 }));
        let group = Arc::new(CloneGroup::new(Arc::new(ResourceCounter::new(3)), tenant, u64::MAX));
        let slab = Slab::new(&group, shared).expect("room");
        assert_eq!(slab.reader().is_some(), shared);
        let end = SLAB_LEN;
        for (offset, byte, bytes) in [(0, 1, 1), (5000, 2, 9000), (end - 3, 3, 3), (64 * PAGE_BYTES - 1, 4, 2)] {
            slab.write(offset, &vec![byte; bytes], 0).expect("memory");
        }
        let all = |slab: &Slab| {
            let mut bytes = Vec::new();
            slab.reading().append(0, end, &mut bytes).expect("memory");
            bytes
        };
        let before = all(&slab);
        assert_eq!(before.iter().filter(|byte| **byte != 0).count(), 9006);
        let copy = slab.copy(&group).expect("room");
        assert!(all(&copy) == before);
        copy.write(7, &[9], 0).expect("memory");
        // The checksum of a page that was written as a whole is its writer's, until a part of it changes.
        let sum = |slab: &Slab| slab.reading().sum(PAGE_BYTES, 0, &all(slab)[PAGE_BYTES..2 * PAGE_BYTES]);
        let computed = |slab: &Slab| checksum(0, &all(slab)[PAGE_BYTES..2 * PAGE_BYTES]);
        copy.write(PAGE_BYTES, &[1; PAGE_BYTES], 77).expect("memory");
        assert_eq!((sum(&copy), sum(&slab)), (77, computed(&slab)));
        let third = copy.copy(&group).expect("room");
        assert_eq!(sum(&third), 77);
        copy.write(2 * PAGE_BYTES - 1, &[0; 2], 78).expect("memory");
        assert_eq!(sum(&copy), computed(&copy));
        assert!(all(&slab) == before);
        assert!(matches!(slab.copy(&group), Err(NoRoom::Quota)));
    }
}
