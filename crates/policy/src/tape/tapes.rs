//! The tape of a program, of either kind, as one source of the arbiter.

use super::{Course, Places, SetSource, SharedHolds, TapeFigures, TapeSource};
use crate::{Prefetch, PrefetchWindow, Request, Thread};
use hinterland_units::PageNo;

/// See the module.
pub enum Tapes {
    /// For each thread, pages in their order.
    Ordered(Box<TapeSource>),
    /// For each phase, pages in any order.
    Sets(Box<SetSource>),
}

impl From<TapeSource> for Tapes {
    fn from(tapes: TapeSource) -> Tapes {
        Tapes::Ordered(Box::new(tapes))
    }
}

impl From<SetSource> for Tapes {
    fn from(sets: SetSource) -> Tapes {
        Tapes::Sets(Box::new(sets))
    }
}

impl Tapes {
    /// What they hold, for eviction ([`super::ByTape`]).
    pub fn shared_holds(&self) -> SharedHolds {
        match self {
            Tapes::Ordered(tapes) => tapes.shared_holds(),
            Tapes::Sets(sets) => sets.shared_holds(),
        }
    }

    /// See [`TapeSource::figures`].
    pub fn figures(&self) -> TapeFigures {
        match self {
            Tapes::Ordered(tapes) => tapes.figures(),
            Tapes::Sets(sets) => sets.figures(),
        }
    }

    /// See [`TapeSource::requested`].
    pub fn requested(
        &mut self,
        page: PageNo,
        request: Request,
        thread: Thread,
        zeros: Option<&PrefetchWindow>,
        places: &dyn Places,
        out: &mut Vec<Prefetch>,
    ) -> Course {
        match self {
            Tapes::Ordered(tapes) => tapes.requested(page, request, thread, zeros, places, out),
            Tapes::Sets(sets) => sets.requested(page, request, places, out),
        }
    }

    /// They are of intervals, of which the program says where they begin: it is in none yet.
    pub fn of_intervals(self) -> Tapes {
        match self {
            Tapes::Ordered(tapes) => tapes.of_intervals().into(),
            Tapes::Sets(sets) => sets.of_intervals().into(),
        }
    }

    /// See [`TapeSource::begin_interval`].
    pub fn begin_interval(&mut self, number: u32, follow: bool) -> bool {
        match self {
            Tapes::Ordered(tapes) => tapes.begin_interval(number, follow),
            Tapes::Sets(sets) => sets.begin_interval(follow),
        }
    }

    /// See [`TapeSource::end_interval`].
    pub fn end_interval(&mut self) {
        match self {
            Tapes::Ordered(tapes) => tapes.end_interval(),
            Tapes::Sets(sets) => sets.end_interval(),
        }
    }

    /// They are followed no longer.
    pub fn end(&mut self) {
        match self {
            Tapes::Ordered(tapes) => tapes.end(),
            Tapes::Sets(sets) => sets.end(),
        }
    }
}
