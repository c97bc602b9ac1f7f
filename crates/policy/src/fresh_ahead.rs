//! Zeros ahead of first touches, whatever fetches from far memory.
//!
//! Memory that is touched for the first time is nowhere to be fetched from: mapping it ahead saves faults and is no prefetching.
//! So prefetchers of far memory do without it, and with or without them a program's first touches cost the same.

use crate::{AheadWindow, Prefetcher, Reach, Request, Streams, Thread};
use hinterland_units::PageNo;

/// See the module.
pub struct FreshAhead {
    fresh: Streams,
    /// `None` fetches nothing.
    remote: Option<Box<dyn Prefetcher>>,
}

impl FreshAhead {
    /// `remote` for far memory; first touches in windows of at most `fresh_pages_max`.
    pub fn new(fresh_pages_max: u32, remote: Option<Box<dyn Prefetcher>>) -> FreshAhead {
        FreshAhead { fresh: Streams::sequential(fresh_pages_max), remote }
    }
}

impl Prefetcher for FreshAhead {
    fn requested(&mut self, page: PageNo, request: Request, thread: Thread) -> Option<AheadWindow> {
        match request {
            Request::FirstTouch => self.fresh.requested(page, request, thread),
            _ => self.remote.as_mut()?.requested(page, request, thread),
        }
    }

    fn wasted(&mut self, page: PageNo, pages: u32) {
        self.remote.iter_mut().for_each(|remote| remote.wasted(page, pages));
    }

    fn loaded(&mut self, pages: u32, ns: u64, local_pages: u64) {
        self.remote.iter_mut().for_each(|remote| remote.loaded(pages, ns, local_pages));
    }

    fn reach(&self) -> Option<Reach> {
        self.remote.as_ref()?.reach()
    }
}
