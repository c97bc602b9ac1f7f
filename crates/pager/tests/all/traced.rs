//! What a traced pager must tell its recorder, whatever its threads do.

use hinterland_pager::{DiscardCause, Recorder, Trace};
use hinterland_units::PageNo;
use std::collections::HashSet;

/// A trace in microsets of so many pages that is checked as it comes.
pub fn trace(microset_pages: u32) -> Trace {
    let check =
        Check { microset_pages: microset_pages as usize, members: HashSet::new(), touches: 0, open: 0, ended: 0 };
    Trace { microset_pages, recorder: Box::new(check) }
}

struct Check {
    microset_pages: usize,
    members: HashSet<PageNo>,
    touches: u64,
    /// Of the microset.
    open: usize,
    ended: u64,
}

impl Recorder for Check {
    fn touched(&mut self, page: PageNo, thread: u32, _: u64, _: bool) -> bool {
        self.touches += 1;
        self.open += 1;
        assert!(thread != 0, "the kernel says who touches a page");
        assert!(self.members.insert(page), "{page} comes twice in a microset");
        true
    }

    fn discarded(&mut self, first: PageNo, count: u32, cause: DiscardCause) -> bool {
        assert!(count > 0);
        if cause != DiscardCause::Freed {
            self.members.retain(|page| !(first.0..first.0 + count).contains(&page.0));
        }
        true
    }

    fn microset_ended(&mut self, written: &[u8]) -> bool {
        self.ended += 1;
        assert!(self.open >= self.microset_pages, "a microset ends before it is full: {}", self.open);
        assert_eq!(written.len(), std::mem::take(&mut self.open).div_ceil(8), "a bit for each touch");
        self.members.clear();
        true
    }

    fn begin_again(&mut self) -> bool {
        self.members.clear();
        true
    }

    fn interval_began(&mut self, _: u32) -> bool {
        true
    }

    fn finished(&mut self) {
        assert!(self.touches > 10_000 && self.ended > 100, "{} touches, {} microsets", self.touches, self.ended);
    }

    fn begin_child(&mut self, _: bool) -> bool {
        false
    }
}
