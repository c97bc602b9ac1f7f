//! Memory that a thread works with while it serves faults or reclaims: never shared, never far.

use crate::backoff::Backoff;
use crate::fault_path::FaultPath;
use crate::pages::{Owned, Pages};
use crate::sys::{Mapping, thread};
use hinterland_backend::BackendUsage;
use hinterland_paging::LANDING_PAGES;
use hinterland_sys::SysError;
use hinterland_units::{PAGE_BYTES, PageBytes, PageNo};
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};

/// Threads of the program that can be served at the same moment.
const SCRATCHES: usize = 32;

/// See the module.
pub(crate) struct Scratch {
    landing: Mapping,
    /// Pages that are named, and those of them that are claimed.
    pub(crate) named: Vec<PageNo>,
    pub(crate) owned: Vec<Owned>,
    pub(crate) usage: Vec<BackendUsage>,
    /// Rounds since the figures of the backends were last published.
    pub(crate) rounds: u32,
}

impl Scratch {
    /// For a thread of the pager's. Where the kernel gives it no memory, the program ends.
    pub(crate) fn of_thread(pages: &Pages) -> Scratch {
        Scratch::one().unwrap_or_else(|error| pages.fatal(&format!("no memory for a pager thread: {error}")))
    }

    #[cfg(test)]
    pub(crate) fn new() -> Scratch {
        Scratch::one().expect("some pages")
    }

    fn one() -> Result<Scratch, SysError> {
        Ok(Scratch::several(1)?.next().unwrap_or_else(|| unreachable!("one was asked for")))
    }

    /// As many as `count`, with one mapping for all.
    fn several(count: usize) -> Result<impl Iterator<Item = Scratch>, SysError> {
        let len = LANDING_PAGES * PAGE_BYTES;
        let all = Mapping::anonymous(count * len)?;
        Ok((0..count).map(move |index| Scratch {
            landing: Mapping { start: all.start + index * len, len },
            named: Vec::with_capacity(256),
            owned: Vec::with_capacity(256),
            usage: Vec::new(),
            rounds: 0,
        }))
    }

    /// The landing area, where fetched pages arrive before they are mapped.
    pub(crate) fn landing(&mut self) -> &mut [PageBytes; LANDING_PAGES] {
        // SAFETY: the mapping has this size, is page-aligned, initialised to zero, and belongs to this scratch alone.
        unsafe { &mut *self.landing.as_ptr().cast() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the landing area belonged to this scratch alone.
        unsafe { self.landing.end() };
    }
}

/// Scratch memory for threads of the program that serve their faults. Empty on the monitor path.
pub(crate) struct ScratchPool {
    free: Box<[AtomicPtr<Scratch>]>,
}

impl ScratchPool {
    pub(crate) fn new(path: FaultPath) -> Result<ScratchPool, SysError> {
        if path == FaultPath::Monitor {
            return Ok(ScratchPool { free: Box::default() });
        }
        let free = Scratch::several(SCRATCHES)?.map(|scratch| AtomicPtr::new(Box::into_raw(Box::new(scratch))));
        Ok(ScratchPool { free: free.collect() })
    }

    /// Runs `work` with one; waits for one when more threads fault than there are.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        // Threads start at different places, so that they seldom meet.
        let (start, mut backoff) = (thread::pointer() >> 12, Backoff::new());
        let (cell, scratch) = loop {
            let taken = (0..self.free.len()).find_map(|offset| {
                let cell = &self.free[(start + offset) % self.free.len()];
                let scratch = cell.load(Relaxed);
                (!scratch.is_null() && cell.compare_exchange(scratch, std::ptr::null_mut(), AcqRel, Relaxed).is_ok())
                    .then_some((cell, scratch))
            });
            match taken {
                Some(taken) => break taken,
                None => backoff.pause(),
            }
        };
        // SAFETY: the pointer came from a box and was taken out of its cell, so nobody else has it.
        let result = work(unsafe { &mut *scratch });
        cell.store(scratch, Release);
        result
    }

    /// Whether no thread is being served.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.iter().all(|cell| !cell.load(Relaxed).is_null())
    }
}
