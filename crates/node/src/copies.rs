//! Whether the node may be removed now, by the reports of its programs on the copies of their pages.
//!
//! ```text
//! program: "what I have here lies elsewhere, too" (Report) ──► session: holds for a few seconds, and until it leases a further slab
//!     ──► the node may go when every session says so. A session that says nothing is unknown, and unknown means no.
//! ```
//! A program cannot make pages the last ones here without leasing a slab first, or the loss of another node. The first is seen here, the
//! second reaches the program, and then us, within the time for which reports hold.

use crate::node::Node;
use crate::session::Session;
use hinterland_wire::{Copies, CopiesReport, Removability, SESSION_ROWS_MAX, SessionCopies};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a session's program has said.
#[derive(Default)]
pub(crate) struct SessionReport {
    report: Mutex<Option<(CopiesReport, Instant)>>,
    /// Slabs that the session has leased in its life.
    leases: AtomicU64,
}

impl SessionReport {
    /// Slabs are being leased: no report that is older covers them.
    pub(crate) fn leases(&self, slabs: u64) {
        self.leases.fetch_add(slabs, Relaxed);
    }

    /// The program says something.
    pub(crate) fn says(&self, report: CopiesReport, now: Instant) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some((report, now));
    }

    /// What it said last, and whether that holds `now`.
    fn last(&self, now: Instant, valid: Duration) -> (CopiesReport, bool) {
        let said = *self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |(report, since): &(CopiesReport, Instant)| {
            report.leases == self.leases.load(Relaxed) && now.saturating_duration_since(*since) < valid
        };
        (said.map(|(report, _)| report).unwrap_or_default(), said.as_ref().is_some_and(holds))
    }
}

/// What is known of the copies of all pages here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyStatistics {
    /// No page of a program would be lost with the node.
    pub removable: bool,
    /// Sessions that have not said anything that still holds, and have slabs or may get some.
    pub unknown_sessions: u64,
    /// Sums of what all sessions said last.
    pub sums: CopiesReport,
    /// The sessions.
    pub sessions: Vec<SessionCopies>,
}

impl Session {
    /// What is known of its copies; `leases_more`: the node still leases slabs.
    fn copies(&self, now: Instant, valid: Duration, leases_more: bool) -> SessionCopies {
        let (report, holds) = self.report.last(now, valid);
        let removability = match holds {
            _ if !leases_more && self.slab_count() == 0 => Removability::Spare,
            false => Removability::Unknown,
            true if report.spare => Removability::Spare,
            true => Removability::Needed,
        };
        SessionCopies { session: self.id.0, removability, report }
    }
}

impl Node {
    /// Whether the node may be removed now, and what of.
    pub fn copies(&self, now: Instant) -> CopyStatistics {
        let leases_more = !self.is_draining();
        let valid = self.options().report_valid;
        let mut figures = CopyStatistics { removable: true, ..CopyStatistics::default() };
        for session in self.sessions().values() {
            let copies = session.copies(now, valid, leases_more);
            let SessionCopies { removability, report, .. } = copies;
            figures.removable &= removability == Removability::Spare;
            figures.unknown_sessions += u64::from(removability == Removability::Unknown);
            let sums = &mut figures.sums;
            for (sum, part) in [
                (&mut sums.leases, report.leases),
                (&mut sums.pages, report.pages),
                (&mut sums.lacking_pages, report.lacking_pages),
                (&mut sums.last_pages, report.last_pages),
                (&mut sums.copied_pages, report.copied_pages),
            ] {
                *sum = sum.saturating_add(part);
            }
            sums.movable |= report.movable && removability != Removability::Unknown;
            figures.sessions.push(copies);
        }
        figures.sums.spare = figures.removable;
        figures
    }

    /// Appends what is known to a reply: of the sessions those that are in the way first.
    pub(crate) fn write_copies(&self, into: &mut Vec<u8>) {
        let mut figures = self.copies(Instant::now());
        figures.sessions.sort_by_key(|copies| (copies.removability as u8, copies.session));
        figures.sessions.truncate(SESSION_ROWS_MAX);
        Copies::encode(into, figures.removable, figures.unknown_sessions, &figures.sums, &figures.sessions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_holds_for_its_time_and_until_a_slab_is_leased() {
        let (said, begun, valid) = (SessionReport::default(), Instant::now(), Duration::from_secs(5));
        assert_eq!(said.last(begun, valid), (CopiesReport::default(), false));
        said.leases(2);
        let report = CopiesReport { leases: 2, pages: 7, spare: true, ..CopiesReport::default() };
        said.says(report, begun);
        let last = Duration::from_millis(4999);
        assert_eq!(said.last(begun + last, valid), (report, true));
        assert_eq!(said.last(begun + valid, valid), (report, false));
        // What was leased meanwhile is not covered, also when the report comes later.
        said.leases(1);
        assert_eq!(said.last(begun, valid), (report, false));
        said.says(report, begun);
        assert_eq!(said.last(begun, valid), (report, false));
        said.says(CopiesReport { leases: 3, ..report }, begun);
        assert!(said.last(begun, valid).1);
    }
}
