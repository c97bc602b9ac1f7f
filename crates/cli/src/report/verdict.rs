//! The first line of the summary: what a user wants to know before all figures.

use super::summary::{Summary, THREADS_KNOWN};
use super::text::bytes;
use crate::statistics::UnmanagedSource;
use hinterland_units::Budget;

impl Summary<'_> {
    /// How much the program needed, how much RAM it used instead, and what that cost it.
    pub fn verdict(&self) -> String {
        match (self.is_managed(), self.fatal.is_empty()) {
            (false, true) => return "not managed: it ran without any memory bound".into(),
            (false, false) => return "not started".into(),
            (true, _) => {}
        }
        let ended = match (self.fatal.len(), self.totals.process_count) {
            (0, _) => String::new(),
            (_, 1) => "ended by Hinterland: ".into(),
            (ended, all) => format!("{ended} of {all} processes ended by Hinterland: "),
        };
        let (needed, used) = (bytes(self.peak().managed_bytes), bytes(self.peak().total_ram_bytes));
        format!("{ended}needed {needed}, used {used} of RAM, {}{}", self.waited(), self.without_bound())
    }

    /// Words for a program most of whose memory is not managed: none for another, and for one that has little.
    pub(super) fn without_bound(&self) -> String {
        let peak = self.peak();
        let other = peak.unmanaged_anonymous_bytes;
        let is_known = self.totals.unmanaged_source != UnmanagedSource::Nobody;
        if !is_known || other <= peak.managed_bytes.max(Budget::FLOOR.0) {
            return String::new();
        }
        format!("; most of its memory, {}, is not managed and has no bound", bytes(other))
    }

    /// The share of the time that a thread waited for far memory. Of several threads it is that of one of them on average.
    fn waited(&self) -> String {
        if self.stall().is_zero() {
            return "never waited".into();
        }
        let threads = self.stall_threads().max(1);
        let percent = self.waiting() * 100.0;
        let share = if percent < 0.5 { "less than 1 %".into() } else { format!("{percent:.0} %") };
        let each = match threads {
            1 => String::new(),
            THREADS_KNOWN.. => format!(" in each of {threads} threads or more"),
            threads => format!(" in each of {threads} threads"),
        };
        let most = if threads < THREADS_KNOWN { "" } else { "at most " };
        format!("waited {most}{share} of the time{each}")
    }
}
