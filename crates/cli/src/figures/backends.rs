//! Figures of backends: of one process, and of a run, by tier.

use hinterland_abi::BackendRow;
use hinterland_abi::statistics::backend::{Counters, Gauges, Maxima};

/// One backend of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendFigures {
    /// As the user wrote it.
    pub url: String,
    /// Traffic and losses.
    pub counters: Counters,
    /// What is stored now.
    pub now: Gauges,
    /// The most that has been stored.
    pub peak: Gauges,
    /// Capacity, and whether it is encrypted.
    pub maxima: Maxima,
}

impl BackendFigures {
    /// Reads a row.
    pub fn read(row: &BackendRow) -> BackendFigures {
        let (counters, now, peak, maxima) = (row.counters(), row.gauges(), row.peaks(), row.maxima());
        BackendFigures { url: row.url.get(), counters, now, peak, maxima }
    }
}

/// One backend over all processes of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendTotal {
    /// Traffic: summed over processes. The other fields: what was stored when the program ended, and peaks.
    pub figures: BackendFigures,
    /// Sums over live processes, while a look is under way.
    now: Gauges,
    /// A process was seen in the look.
    is_seen: bool,
    /// What the process that ended last had at its end.
    at_end: Gauges,
    tier: usize,
}

impl BackendTotal {
    /// Whether it is a memory node that some process has not reached since it began.
    pub fn is_absent(&self) -> bool {
        self.figures.now.absent > 0
    }
}

/// What went over the paths of processes that have ended, by URL.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Vec<(String, u64, u64)>);

/// URLs that traffic is kept of, those that were seen first: each process may have others, where the user left sizes open.
const TRAFFIC_MAX: usize = 64;

impl Traffic {
    /// Adds what went over the paths of a process.
    pub fn add(&mut self, process: &[BackendFigures]) {
        for BackendFigures { url, counters, .. } in process {
            let is_full = self.0.len() == TRAFFIC_MAX;
            let known = self.0.iter_mut().find(|(known, ..)| known == url);
            match known {
                Some((_, stored, loaded)) => {
                    *stored += counters.bytes_in;
                    *loaded += counters.bytes_out;
                }
                None if is_full => {}
                None => self.0.push((url.clone(), counters.bytes_in, counters.bytes_out)),
            }
        }
    }

    /// Bytes that were stored at a URL, and loaded from there.
    pub fn of(&self, url: &str) -> (u64, u64) {
        let known = self.0.iter().find(|(known, ..)| known == url);
        known.map_or((0, 0), |(_, stored, loaded)| (*stored, *loaded))
    }
}

/// The part of a URL that names the kind of backend.
fn kind(url: &str) -> &str {
    url.split([':', '?']).next().unwrap_or(url)
}

/// The backends of a run, in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub struct BackendTotals(pub Vec<BackendTotal>);

impl BackendTotals {
    /// The total of a process's tier. Each process fills in sizes that the user left open by what is free at that moment, so
    /// tier and kind tell which backends are the same, not the URL.
    fn of(&mut self, tier: usize, url: &str) -> &mut BackendTotal {
        let same = |total: &BackendTotal| total.tier == tier && kind(&total.figures.url) == kind(url);
        let index = self.0.iter().position(same).unwrap_or_else(|| {
            let figures = BackendFigures { url: url.to_owned(), ..BackendFigures::default() };
            self.0.push(BackendTotal { tier, figures, ..BackendTotal::default() });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// Begins a look: nothing is stored until a process says so.
    pub fn begin(&mut self) {
        for total in &mut self.0 {
            (total.now, total.is_seen) = (Gauges::default(), false);
        }
    }

    /// Counts a process that holds its pages now (or held them when the program ended).
    pub fn see(&mut self, process: &[BackendFigures]) {
        for (tier, seen) in process.iter().enumerate() {
            let BackendTotal { figures, now, is_seen, .. } = self.of(tier, &seen.url);
            *is_seen = true;
            now.combine(&seen.now, u64::saturating_add);
            figures.peak.combine(&seen.peak, u64::max);
            figures.maxima.combine(&seen.maxima, u64::max);
        }
    }

    /// Adds the traffic of a process that has ended, and its peaks: no look may have come before its end.
    pub fn add(&mut self, process: &[BackendFigures]) {
        for (tier, seen) in process.iter().enumerate() {
            let total = self.of(tier, &seen.url);
            total.figures.counters.combine(&seen.counters, u64::saturating_add);
            total.figures.peak.combine(&seen.peak, u64::max);
            total.figures.maxima.combine(&seen.maxima, u64::max);
            total.at_end = seen.now;
        }
    }

    /// Ends a look: what was seen is the present, and perhaps a peak. When all processes have ended before it, the last one's end counts.
    pub fn finish(&mut self) {
        for BackendTotal { figures, now, is_seen, at_end, .. } in &mut self.0 {
            figures.now = if *is_seen { *now } else { *at_end };
            figures.peak.combine(now, u64::max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with so many pages at a node, which does not answer.
    fn process(pages: u64) -> [BackendFigures; 1] {
        let now = Gauges { pages, absent: 1, ..Gauges::default() };
        let maxima = Maxima { encrypted: 1, ..Maxima::default() };
        [BackendFigures { url: "tcp://host:1".into(), now, peak: now, maxima, ..BackendFigures::default() }]
    }

    #[test]
    fn traffic_is_kept_by_url_and_of_so_many_at_most() {
        let mut traffic = Traffic::default();
        let at = |url: &str, bytes_in, bytes_out| {
            let counters = Counters { bytes_in, bytes_out, ..Counters::default() };
            [BackendFigures { url: url.into(), counters, ..BackendFigures::default() }]
        };
        traffic.add(&at("a", 1, 2));
        traffic.add(&at("a", 10, 20));
        assert_eq!((traffic.of("a"), traffic.of("b")), ((11, 22), (0, 0)));
        (0..TRAFFIC_MAX).for_each(|number| traffic.add(&at(&number.to_string(), 1, 1)));
        assert_eq!((traffic.0.len(), traffic.of("a"), traffic.of("0")), (TRAFFIC_MAX, (11, 22), (1, 1)));
        assert_eq!(traffic.of(&(TRAFFIC_MAX - 1).to_string()), (0, 0), "there was no room");
        traffic.add(&at("a", 1, 2));
        assert_eq!(traffic.of("a"), (12, 24));
    }

    #[test]
    fn what_was_there_at_the_end_is_known_also_when_no_look_came_before_it() {
        let mut totals = BackendTotals::default();
        totals.begin();
        totals.see(&process(3));
        totals.see(&process(4));
        totals.finish();
        assert_eq!(totals.0[0].figures.now.pages, 7);
        totals.add(&process(5));
        totals.begin();
        totals.see(&process(4));
        totals.finish();
        assert_eq!(totals.0[0].figures.now.pages, 4, "one has ended, the other has not");
        totals.add(&process(6));
        totals.begin();
        totals.finish();
        assert_eq!((totals.0[0].figures.now.pages, totals.0[0].is_absent()), (6, true));
        let mut unseen = BackendTotals::default();
        unseen.add(&process(6));
        let BackendFigures { peak, maxima, .. } = &unseen.0[0].figures;
        assert_eq!((peak.pages, maxima.encrypted), (6, 1));
    }
}
