//! Bounds the bytes that pass each second, as a link would. A demand load overtakes: it does not wait, but its bytes
//! are taken off the others' share.

use super::clock::Monotonic;
use super::{accepted, pass_on, patched_bytes, stored_bytes};
use crate::sync::lock;
use crate::{Backend, LoadError, LoadItem, Location, Patch, Priority, StoreError};
use hinterland_units::PageBytes;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A backend behind a link of limited bandwidth, for both directions together.
pub struct Throttle {
    inner: Arc<dyn Backend>,
    bytes_per_second: u64,
    /// When the link has carried all that was promised so far.
    free_at: Mutex<Instant>,
    clock: Monotonic,
}

impl Throttle {
    /// Lets `bytes_per_second` pass; at least 1.
    pub fn new(inner: Arc<dyn Backend>, bytes_per_second: u64) -> Throttle {
        let (free_at, clock) = (Mutex::new(Instant::now()), Monotonic::new());
        Throttle { inner, bytes_per_second: bytes_per_second.max(1), free_at, clock }
    }

    /// Takes its time from the link; returns how long it has to wait from `now` on.
    fn take(&self, bytes: u64, priority: Priority, now: Instant) -> Duration {
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let duration = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        let mut free_at = lock(&self.free_at);
        let start = (*free_at).max(now);
        *free_at = start + duration;
        // A demand load takes only its own time: the queue shifts behind it.
        if priority == Priority::Demand { duration } else { start + duration - now }
    }

    /// Waits until so many bytes have passed; `meanwhile` may take as long as that.
    fn pass(&self, bytes: u64, priority: Priority, meanwhile: &mut dyn FnMut()) {
        let wait = self.take(bytes, priority, Instant::now());
        self.clock.wait_while(wait, meanwhile);
    }
}

impl Backend for Throttle {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        self.pass(stored_bytes(pages.len(), bytes).sum(), priority, meanwhile);
        self.inner.store_while(pages, bytes, priority, out, meanwhile);
    }

    fn store_if_compressible(
        &self,
        pages: &[&PageBytes],
        bytes_max: usize,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) {
        self.inner.store_if_compressible(pages, bytes_max, priority, out);
        self.pass(stored_bytes(accepted(out), None).sum(), priority, &mut || ());
    }

    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        let bytes = self.inner.prefix_bytes(&mut items.iter().map(|item| item.location));
        self.pass(bytes.iter().sum::<usize>() as u64, priority, meanwhile);
        self.inner.load_while(items, priority, done, meanwhile);
    }

    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        self.pass(patched_bytes(patches).sum(), priority, &mut || ());
        self.inner.patch(patches, priority, out);
    }

    pass_on!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reference;
    use hinterland_units::PAGE_BYTES;

    #[test]
    fn the_bandwidth_holds_and_demand_overtakes() {
        // 4 MB/s: a page takes about a millisecond.
        let throttle = Throttle::new(Arc::new(Reference::new("reference".into(), 1 << 20).unwrap()), 4_096_000);
        let (page, start) = ([1; PAGE_BYTES], Instant::now());
        let mut out = vec![Ok(Location(0)); 40];
        throttle.store(&[&page; 40], Priority::WriteBack, &mut out);
        assert!(start.elapsed() >= Duration::from_millis(40) && out.iter().all(Result::is_ok));
        // Long after that.
        let (later, millisecond) = (start + Duration::from_secs(1000), Duration::from_millis(1));
        assert_eq!(throttle.take(40 * PAGE_BYTES as u64, Priority::WriteBack, later), 40 * millisecond);
        assert_eq!(
            throttle.take(PAGE_BYTES as u64, Priority::Demand, later + millisecond),
            millisecond,
            "it waits for the queue"
        );
        assert_eq!(
            throttle.take(PAGE_BYTES as u64, Priority::Prefetch, later + 2 * millisecond),
            40 * millisecond,
            "40 + 1 + 1 − 2"
        );
    }
}
