//! Zeros mapped ahead of first touches, whichever prefetcher fetches from far memory.
//!
//! Memory that is touched for the first time has no content in far memory: mapping zeros ahead saves faults and is no
//! prefetching. So prefetchers of far memory leave it out, and a program's first touches cost the same with any of them.

use crate::{PrefetchWindow, Prefetcher, Request, Streams, Thread, WindowBound};
use hinterland_units::PageNo;

/// See the module.
pub struct ZeroAhead {
    zeros: Streams,
    /// `None` fetches nothing.
    remote: Option<Box<dyn Prefetcher>>,
}

impl ZeroAhead {
    /// `remote` for far memory; first touches in windows of at most `zero_pages_max`.
    pub fn new(zero_pages_max: u32, remote: Option<Box<dyn Prefetcher>>) -> ZeroAhead {
        ZeroAhead { zeros: Streams::sequential(zero_pages_max), remote }
    }
}

impl Prefetcher for ZeroAhead {
    fn requested(&mut self, page: PageNo, request: Request, thread: Thread) -> Option<PrefetchWindow> {
        match request {
            Request::FirstTouch => self.zeros.requested(page, request, thread),
            _ => self.remote.as_mut()?.requested(page, request, thread),
        }
    }

    fn wasted(&mut self, page: PageNo, pages: u32) {
        self.remote.iter_mut().for_each(|remote| remote.wasted(page, pages));
    }

    fn loaded(&mut self, pages: u32, ns: u64, local_pages: u64) {
        self.remote.iter_mut().for_each(|remote| remote.loaded(pages, ns, local_pages));
    }

    fn window_bound(&self) -> Option<WindowBound> {
        self.remote.as_ref()?.window_bound()
    }
}
