//! The tape of a program, of either kind, as one source of the arbiter: what it holds, and in which of the program's intervals it is followed.

use super::{PageLocalities, SharedHolds, TapeProgress, TapeStatistics};
use crate::{Prefetch, PrefetchWindow, Request, Thread};
use hinterland_units::PageNo;

/// A kind of tapes: what is asked for at which request, and what is held.
pub trait TapeKind: Send {
    /// What it holds is there: for eviction ([`super::ByTape`]).
    fn holds(&mut self) -> &mut SharedHolds;

    /// What was done so far.
    fn statistics(&self) -> TapeStatistics;

    /// A thread requests a page; appends what its tape asks for. `zeros`: where zeros are about to be mapped for its first touches.
    fn requested(
        &mut self,
        page: PageNo,
        request: Request,
        thread: Thread,
        zeros: Option<&PrefetchWindow>,
        localities: &dyn PageLocalities,
        out: &mut Vec<Prefetch>,
    ) -> TapeProgress;

    /// An interval begins that is to be followed, the program's `number`-th from 1.
    fn begin_interval(&mut self, number: u32);

    /// It ends: what was asked for is not waited for. What is held is let go by the caller.
    fn end_interval(&mut self);
}

/// See the module.
pub struct Tapes {
    kind: Box<dyn TapeKind>,
    /// They are of intervals, of which the program says where they begin.
    has_intervals: bool,
    /// The program is in none that is to be followed.
    is_paused: bool,
}

impl<Kind: TapeKind + 'static> From<Kind> for Tapes {
    fn from(kind: Kind) -> Tapes {
        Tapes { kind: Box::new(kind), has_intervals: false, is_paused: false }
    }
}

impl Tapes {
    /// They are of intervals: the program is in none yet.
    pub fn of_intervals(self) -> Tapes {
        Tapes { has_intervals: true, is_paused: true, ..self }
    }

    /// What they hold is held there from now on, where nothing is held yet.
    pub(crate) fn hold_in(&mut self, holds: &SharedHolds) {
        *self.kind.holds() = holds.clone();
    }

    /// See [`TapeKind::statistics`].
    pub fn statistics(&self) -> TapeStatistics {
        self.kind.statistics()
    }

    /// See [`TapeKind::requested`].
    pub fn requested(
        &mut self,
        page: PageNo,
        request: Request,
        thread: Thread,
        zeros: Option<&PrefetchWindow>,
        localities: &dyn PageLocalities,
        out: &mut Vec<Prefetch>,
    ) -> TapeProgress {
        if self.is_paused {
            return TapeProgress::OffTape;
        }
        self.kind.requested(page, request, thread, zeros, localities, out)
    }

    /// An interval begins, the program's `number`-th from 1; `follow`: its tapes are to be followed. Whether they are: tapes of all of the
    /// program go on as ever.
    pub fn begin_interval(&mut self, number: u32, follow: bool) -> bool {
        if self.has_intervals && follow {
            self.is_paused = false;
            self.kind.begin_interval(number);
        }
        !self.is_paused
    }

    /// The interval ends: what the program touches from now on is on no tape. What is held is let go.
    pub fn end_interval(&mut self) {
        if self.has_intervals {
            self.is_paused = true;
            self.kind.end_interval();
            self.kind.holds().lock().clear();
        }
    }
}
