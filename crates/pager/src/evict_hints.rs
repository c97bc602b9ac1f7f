//! Pages that the program says it will not use any longer: now, or soon. They are the first victims.
//!
//! They leave as all victims do: a page that is touched on its way comes back, one that is pinned or kept stays.

use crate::hint_ring::{HintRing, RUN_PAGES_MAX, Run};
use crate::pages::Pages;
use crate::state::State;
use hinterland_sys::SysError;
use hinterland_units::PageNo;

/// Pages that are looked at for one chunk of victims, at most.
const LOOKED_AT_MAX: u32 = 8192;

/// When pages are to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// As soon as the evictor comes to it.
    Now,
    /// When frames are needed.
    Soon,
}

/// See the module.
pub(crate) struct EvictHints {
    pages: &'static Pages,
    now: HintRing,
    soon: HintRing,
}

impl EvictHints {
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(pages: &'static Pages) -> Result<EvictHints, SysError> {
        Ok(EvictHints { pages, now: HintRing::new()?, soon: HintRing::new()? })
    }

    /// The pages from `first` to before `end` may leave. False: not all of them could be noted.
    pub(crate) fn put(&self, mut first: u32, end: u32, when: Leave) -> bool {
        let ring = match when {
            Leave::Now => &self.now,
            Leave::Soon => &self.soon,
        };
        while first < end {
            let pages = (end - first).min(RUN_PAGES_MAX);
            let run = Run { first: PageNo(first), pages, tag: 0 };
            if self.pages.table.any_touched(run.first, pages) && !ring.put(run) {
                return false;
            }
            first += pages;
        }
        true
    }

    /// Whether pages are to leave now.
    pub(crate) fn wait(&self) -> bool {
        !self.now.is_empty()
    }

    /// Takes some that are resident, at most as many as fit into `out`; those that are to leave now come first. None may be there
    /// although some wait. Inside the gate.
    pub(crate) fn take(&self, out: &mut Vec<PageNo>, most: usize) {
        out.clear();
        let mut looked_at = 0;
        for ring in [&self.now, &self.soon] {
            if ring.is_empty() {
                continue;
            }
            ring.take(|run| {
                let mut taken = 0;
                while taken < run.pages && out.len() < most && looked_at < LOOKED_AT_MAX {
                    let page = PageNo(run.first.0 + taken);
                    if self.pages.state(page) == State::Resident {
                        out.push(page);
                    }
                    taken += 1;
                    looked_at += 1;
                }
                taken
            });
        }
    }

    /// None is to leave: in the child of a fork.
    pub(crate) fn clear(&self) {
        self.now.clear();
        self.soon.clear();
    }
}
