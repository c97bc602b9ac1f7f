//! The next pages after every major fault, whatever came of the last ones.
//!
//! Source: S. Mittal, A survey of recent prefetching techniques for processor caches (ACM Computing Surveys 2016), "next-line"; what
//! Leap §5.2.3 compares with as "Next-N-Line".

use crate::{PrefetchWindow, Prefetcher, Request, Thread, Unmapped};
use hinterland_units::PageNo;

/// The next-N-line prefetcher. See the module.
pub struct NextLine {
    pages: u32,
}

impl NextLine {
    /// `pages` after each fault, 0 for none.
    pub fn new(pages: u32) -> NextLine {
        NextLine { pages }
    }
}

impl Prefetcher for NextLine {
    fn requested(&mut self, page: PageNo, request: Request, _: Thread) -> Option<PrefetchWindow> {
        let wanted = request == Request::Major && self.pages > 0;
        let first = page.checked_add(1).filter(|_| wanted)?;
        Some(PrefetchWindow { first, step: 1, pages: self.pages, unmapped: Unmapped::All })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_after_major_faults_alone() {
        let mut next = NextLine::new(8);
        let window = next.requested(PageNo(41), Request::Major, Thread(0)).unwrap();
        assert!(window.iter().eq((42..50).map(PageNo)));
        for request in [Request::FirstTouch, Request::Minor, Request::PrefetchHit] {
            assert_eq!(next.requested(PageNo(41), request, Thread(0)), None);
        }
        assert_eq!(next.requested(PageNo(u32::MAX), Request::Major, Thread(0)), None);
    }
}
