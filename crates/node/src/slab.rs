//! A slab: a piece of memory that is lent as a whole.

use crate::store::{Charge, NoRoom, Tenant};
use hinterland_units::PAGE_BYTES;
use memmap2::MmapMut;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Bytes of a slab: a huge page of the processor, so that it can become one.
pub const SLAB_BYTES: u64 = SLAB_LEN as u64;
const SLAB_LEN: usize = 2 << 20;
const SLAB_PAGES: usize = SLAB_LEN / PAGE_BYTES;

/// Memory that belongs to one session, or to a session and its clones until one of them writes.
pub(crate) struct Slab {
    content: RwLock<Content>,
    /// Counts the slab for as long as it exists.
    _charge: Charge,
}

struct Content {
    /// Fresh from the kernel: zeros. It goes back to the kernel when the slab ends.
    memory: MmapMut,
    /// Pages that were written: what a copy has to copy.
    written: [u64; SLAB_PAGES / 64],
}

impl Slab {
    /// A slab of zeros; memory arrives page by page when it is written.
    pub(crate) fn new(tenant: &Arc<Tenant>) -> Result<Slab, NoRoom> {
        let charge = Charge::take(tenant)?;
        let memory = MmapMut::map_anon(SLAB_LEN).map_err(|_| NoRoom::System)?;
        Ok(Slab { content: RwLock::new(Content { memory, written: [0; SLAB_PAGES / 64] }), _charge: charge })
    }

    /// A slab of its own with the same bytes.
    pub(crate) fn copy(&self, tenant: &Arc<Tenant>) -> Result<Slab, NoRoom> {
        let copy = Slab::new(tenant)?;
        {
            let from = self.read_lock();
            let mut into = copy.content.write().unwrap_or_else(PoisonError::into_inner);
            for page in (0..SLAB_PAGES).filter(|page| from.written[page / 64] & 1 << (page % 64) != 0) {
                let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
                into.memory[bytes.clone()].copy_from_slice(&from.memory[bytes]);
            }
            into.written = from.written;
        }
        Ok(copy)
    }

    /// Appends the bytes from `offset` on; the range lies inside the slab.
    pub(crate) fn read(&self, offset: usize, bytes: usize, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.read_lock().memory[offset..offset + bytes]);
    }

    /// Puts `data` at `offset`; the range lies inside the slab.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        content.memory[offset..offset + data.len()].copy_from_slice(data);
        for page in offset / PAGE_BYTES..(offset + data.len()).div_ceil(PAGE_BYTES) {
            content.written[page / 64] |= 1 << (page % 64);
        }
    }

    fn read_lock(&self) -> RwLockReadGuard<'_, Content> {
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Account;

    #[test]
    fn a_copy_has_every_byte_and_is_its_own() {
        let tenant = Arc::new(Tenant::new(Arc::new(Account::new(2)), 2));
        let slab = Slab::new(&tenant).expect("room");
        let end = SLAB_LEN;
        for (offset, byte, bytes) in [(0, 1, 1), (5000, 2, 9000), (end - 3, 3, 3), (64 * PAGE_BYTES - 1, 4, 2)] {
            slab.write(offset, &vec![byte; bytes]);
        }
        let all = |slab: &Slab| {
            let mut bytes = Vec::new();
            slab.read(0, end, &mut bytes);
            bytes
        };
        let before = all(&slab);
        assert_eq!(before.iter().filter(|byte| **byte != 0).count(), 9006);
        let copy = slab.copy(&tenant).expect("room");
        assert!(all(&copy) == before);
        copy.write(7, &[9]);
        assert!(all(&slab) == before);
        assert!(matches!(slab.copy(&tenant), Err(NoRoom::Quota)));
    }
}
