//! Makes every call take longer, as a distant backend would: a fixed time and a random share more.

use super::clock::Monotonic;
use super::pass_on;
use crate::samples::Rng;
use crate::{Backend, LoadError, LoadItem, Location, Patch, Priority, StoreError};
use hinterland_units::PageBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Adds latency to each call of store and load, not to each page.
pub struct Delay {
    inner: Arc<dyn Backend>,
    fixed_us: u64,
    jitter_us: u64,
    calls: AtomicU64,
    seed: u64,
    clock: Monotonic,
}

impl Delay {
    /// Every call waits `fixed_us`, and up to `jitter_us` more, chosen by `seed` and the call's number.
    pub fn new(inner: Arc<dyn Backend>, fixed_us: u64, jitter_us: u64, seed: u64) -> Delay {
        Delay { inner, fixed_us, jitter_us, calls: AtomicU64::new(0), seed, clock: Monotonic::new() }
    }

    /// Waits; `meanwhile` may take as long as that.
    fn wait(&self, meanwhile: &mut dyn FnMut()) {
        let call = self.calls.fetch_add(1, Relaxed);
        let jitter_us = Rng(self.seed ^ call.wrapping_mul(0x9e37_79b9)).below(self.jitter_us + 1);
        self.clock.wait_while(Duration::from_micros(self.fixed_us + jitter_us), meanwhile);
    }
}

impl Backend for Delay {
    fn store_while(
        &self,
        pages: &[&PageBytes],
        bytes: Option<&[u16]>,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    ) {
        self.wait(meanwhile);
        self.inner.store_while(pages, bytes, priority, out, meanwhile);
    }

    fn store_if_compressible(
        &self,
        pages: &[&PageBytes],
        bytes_max: usize,
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) {
        self.wait(&mut || ());
        self.inner.store_if_compressible(pages, bytes_max, priority, out);
    }

    fn load_while(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
        meanwhile: &mut dyn FnMut(),
    ) {
        self.wait(meanwhile);
        self.inner.load_while(items, priority, done, meanwhile);
    }

    fn patch(&self, patches: &[Patch<'_>], priority: Priority, out: &mut [bool]) {
        self.wait(&mut || ());
        self.inner.patch(patches, priority, out);
    }

    pass_on!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reference;
    use std::time::Instant;

    #[test]
    fn calls_take_their_time() {
        let delay = Delay::new(Arc::new(Reference::new("reference".into(), 1 << 20).unwrap()), 2000, 500, 1);
        let start = Instant::now();
        let mut out = [Ok(Location(0))];
        delay.store(&[&[0; 4096]], Priority::WriteBack, &mut out);
        delay.load(&mut [], Priority::Demand, &mut |_, _| {});
        assert!(start.elapsed() >= Duration::from_millis(4));
        assert!(out[0].is_ok());
    }
}
