//! Slots for pages: of slabs that are leased already, or of a further one.

use super::placement::Placement;
use super::slabs::Slabs;
use super::slots::Fill;
use crate::StoreError;
use crate::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Gives slots to pages.
pub(super) struct Allocation {
    slabs: Arc<Slabs>,
    placement: Arc<Placement>,
    /// Held while slabs are asked for.
    growing: Mutex<()>,
    /// When there was no slab to be had for more to be filled at a time.
    unspread: Mutex<Option<Instant>>,
}

impl Allocation {
    pub(super) fn new(slabs: &Arc<Slabs>, placement: &Arc<Placement>) -> Allocation {
        let (growing, unspread) = (Mutex::new(()), Mutex::new(None));
        Allocation { slabs: slabs.clone(), placement: placement.clone(), growing, unspread }
    }

    /// Slots for `count` pages; fewer when the nodes give no more slabs, and why.
    pub(super) fn take_slots(&self, count: usize) -> (Vec<u64>, Option<StoreError>) {
        let slabs = &*self.slabs;
        self.spread();
        let mut taken = Vec::with_capacity(count);
        slabs.table().take(count, Fill::MostlyFree, &mut taken);
        while taken.len() < count {
            let _growing = lock(&self.growing);
            // Another thread may have got some meanwhile.
            slabs.table().take(count - taken.len(), Fill::MostlyFree, &mut taken);
            if taken.len() == count {
                break;
            }
            let placed = self.placement.place();
            let error = match placed {
                Ok(replicas) if slabs.table().add(&replicas) => continue,
                Ok(replicas) => {
                    slabs.give_up(&replicas);
                    StoreError::Device { url: slabs.url.clone(), errno: libc::EOVERFLOW }
                }
                Err(error) => error,
            };
            // Better than none: slabs that were refused some time ago, and nodes that are being emptied.
            slabs.crowd();
            slabs.table().take(count - taken.len(), Fill::All, &mut taken);
            return (taken, Some(error));
        }
        (taken, None)
    }

    /// Leases a slab to be filled beside others, if one is lacking. Where none can be had, those that there are get the pages.
    fn spread(&self) {
        let slabs = &*self.slabs;
        let lacks_one = || slabs.table().lacks_one();
        if lock(&self.unspread).is_some_and(|since| since.elapsed() < slabs.timing.refused) || !lacks_one() {
            return;
        }
        let _growing = lock(&self.growing);
        if !lacks_one() {
            return;
        }
        let wanted = slabs.wanted(&slabs.links.healthy()).replicas;
        match self.placement.place() {
            Ok(replicas) if replicas.len() >= wanted && slabs.table().add(&replicas) => {}
            // Not for the price of a replica.
            Ok(replicas) => {
                slabs.give_up(&replicas);
                *lock(&self.unspread) = Some(Instant::now());
            }
            Err(_) => *lock(&self.unspread) = Some(Instant::now()),
        }
    }
}
