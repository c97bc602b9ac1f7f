//! A slab: a piece of memory that is lent as a whole.

use crate::memory::Memory;
use crate::store::{Charge, NoRoom, Tenant};
use hinterland_units::PAGE_BYTES;
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
    written: [u64; SLAB_PAGES / 64],
}

impl Slab {
    /// A slab of zeros, if possible one that its session may map.
    pub(crate) fn new(tenant: &Arc<Tenant>, shared: bool) -> Result<Slab, NoRoom> {
        let charge = Charge::take(tenant)?;
        let memory = Memory::new(shared).map_err(|_| NoRoom::System)?;
        Ok(Slab { content: RwLock::new(Content { memory, written: [0; SLAB_PAGES / 64] }), charge })
    }

    /// A slab of its own with the same bytes.
    pub(crate) fn copy(&self, tenant: &Arc<Tenant>) -> Result<Slab, NoRoom> {
        let from = self.read_lock();
        let copy = Slab::new(tenant, from.memory.is_shared())?;
        {
            let mut into = copy.content.write().unwrap_or_else(PoisonError::into_inner);
            for page in (0..SLAB_PAGES).filter(|page| from.written[page / 64] & 1 << (page % 64) != 0) {
                into.memory.copy_page(&from.memory, page * PAGE_BYTES).map_err(|_| NoRoom::System)?;
            }
            into.written = from.written;
        }
        Ok(copy)
    }

    /// Appends the bytes from `offset` on; the range lies inside the slab.
    pub(crate) fn read(&self, offset: usize, bytes: usize, into: &mut Vec<u8>) -> Result<(), NoRoom> {
        self.read_lock().memory.read(offset, bytes, into).map_err(|_| NoRoom::System)
    }

    /// Puts `data` at `offset`; the range lies inside the slab.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) -> Result<(), NoRoom> {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        for page in offset / PAGE_BYTES..(offset + data.len()).div_ceil(PAGE_BYTES) {
            content.written[page / 64] |= 1 << (page % 64);
        }
        content.memory.write(offset, data).map_err(|_| NoRoom::System)
    }

    /// A descriptor to read it with; `None`: it cannot be shared.
    pub(crate) fn reader(&self) -> Option<OwnedFd> {
        self.read_lock().memory.reader().unwrap_or(None)
    }

    fn read_lock(&self) -> RwLockReadGuard<'_, Content> {
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }
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
    use crate::store::Account;

    #[test]
    fn a_copy_has_every_byte_and_is_its_own() {
        [false, true].into_iter().for_each(check_copy);
    }

    fn check_copy(shared: bool) {
        let tenant = Arc::new(Tenant::new(Arc::new(Account::new(2)), 2));
        let slab = Slab::new(&tenant, shared).expect("room");
        assert_eq!(slab.reader().is_some(), shared);
        let end = SLAB_LEN;
        for (offset, byte, bytes) in [(0, 1, 1), (5000, 2, 9000), (end - 3, 3, 3), (64 * PAGE_BYTES - 1, 4, 2)] {
            slab.write(offset, &vec![byte; bytes]).expect("memory");
        }
        let all = |slab: &Slab| {
            let mut bytes = Vec::new();
            slab.read(0, end, &mut bytes).expect("memory");
            bytes
        };
        let before = all(&slab);
        assert_eq!(before.iter().filter(|byte| **byte != 0).count(), 9006);
        let copy = slab.copy(&tenant).expect("room");
        assert!(all(&copy) == before);
        copy.write(7, &[9]).expect("memory");
        assert!(all(&slab) == before);
        assert!(matches!(slab.copy(&tenant), Err(NoRoom::Quota)));
    }
}
