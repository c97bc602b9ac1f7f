//! Statistics of backends: of one process, and of a run, by tier.

use hinterland_abi::BackendRow;
use hinterland_abi::statistics::backend::{Counters, Gauges, Maxima};

/// One backend of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendStatistics {
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

impl BackendStatistics {
    /// Reads a row.
    pub fn read(row: &BackendRow) -> BackendStatistics {
        let (counters, now, peak, maxima) = (row.counters(), row.gauges(), row.peaks(), row.maxima());
        BackendStatistics { url: row.url.get(), counters, now, peak, maxima }
    }
}

/// One backend over all processes of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendTotal {
    /// Traffic: summed over processes. The other fields: what was stored when the program ended, and peaks.
    pub statistics: BackendStatistics,
    /// Sums over live processes, while a look is under way.
    now: Gauges,
    /// What the process that ended last had at its end.
    at_end: Gauges,
    /// Its place among the backends of the process that had it first.
    tier: usize,
    /// So many before it have the same URL.
    before: usize,
}

impl BackendTotal {
    /// Whether it is a memory node that some process has not reached since it began.
    pub fn is_absent(&self) -> bool {
        self.statistics.now.absent > 0
    }
}

/// What went over the paths of processes that have ended, by URL.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Vec<(String, u64, u64)>);

/// URLs that traffic is kept of, those that were seen first: each process may have others, where the user left sizes open.
const TRAFFIC_MAX: usize = 64;

impl Traffic {
    /// Adds what went over the paths of a process.
    pub fn add(&mut self, process: &[BackendStatistics]) {
        for BackendStatistics { url, counters, .. } in process {
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

/// A URL without its size; `None`: it is a memory node's, which no process fills in.
fn without_size(url: &str) -> Option<String> {
    let mut parsed = hinterland_backend::parse(url).ok().filter(|_| !hinterland_backend::names_nodes(url))?;
    parsed.capacity = None;
    Some(parsed.to_string())
}

/// The backends of a run, in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub struct BackendTotals {
    all: Vec<BackendTotal>,
    /// A process that has backends was seen in the look.
    is_seen: bool,
}

impl BackendTotals {
    /// See the type.
    pub fn all(&self) -> &[BackendTotal] {
        &self.all
    }

    /// The total of a process's tier: that of its URL. Each process fills in sizes that the user left open by what is free at that moment,
    /// so URLs in the same place that differ in no more are the same, too.
    fn of(&mut self, process: &[BackendStatistics], tier: usize) -> &mut BackendTotal {
        let url = &process[tier].url;
        let before = process[..tier].iter().filter(|other| other.url == *url).count();
        let is_same = |total: &BackendTotal| total.statistics.url == *url && total.before == before;
        let same = self.all.iter().position(is_same).or_else(|| {
            let bare = without_size(url)?;
            let is_like = |total: &BackendTotal| without_size(&total.statistics.url).is_some_and(|other| other == bare);
            self.all.iter().position(|total| total.tier == tier && is_like(total))
        });
        let index = same.unwrap_or_else(|| {
            let statistics = BackendStatistics { url: url.clone(), ..BackendStatistics::default() };
            self.all.push(BackendTotal { tier, before, statistics, ..BackendTotal::default() });
            self.all.len() - 1
        });
        &mut self.all[index]
    }

    /// Begins a look: nothing is stored until a process says so.
    pub fn begin(&mut self) {
        self.is_seen = false;
        self.all.iter_mut().for_each(|total| total.now = Gauges::default());
    }

    /// Counts a process that holds its pages now (or held them when the program ended).
    pub fn see(&mut self, process: &[BackendStatistics]) {
        self.is_seen |= !process.is_empty();
        for (tier, seen) in process.iter().enumerate() {
            let BackendTotal { statistics, now, .. } = self.of(process, tier);
            now.combine(&seen.now, u64::saturating_add);
            statistics.peak.combine(&seen.peak, u64::max);
            statistics.maxima.combine(&seen.maxima, u64::max);
        }
    }

    /// Adds the traffic of a process that has ended, and its peaks: no look may have come before its end.
    pub fn add(&mut self, process: &[BackendStatistics]) {
        if !process.is_empty() {
            self.all.iter_mut().for_each(|total| total.at_end = Gauges::default());
        }
        for (tier, seen) in process.iter().enumerate() {
            let total = self.of(process, tier);
            total.statistics.counters.combine(&seen.counters, u64::saturating_add);
            total.statistics.peak.combine(&seen.peak, u64::max);
            total.statistics.maxima.combine(&seen.maxima, u64::max);
            total.at_end = seen.now;
        }
    }

    /// Ends a look: what was seen is the present, and perhaps a peak. When all processes have ended before it, the last one's end counts.
    pub fn finish(&mut self) {
        for BackendTotal { statistics, now, at_end, .. } in &mut self.all {
            statistics.now = if self.is_seen { *now } else { *at_end };
            statistics.peak.combine(now, u64::max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with so many pages at a node, which does not answer.
    fn process(pages: u64) -> [BackendStatistics; 1] {
        let now = Gauges { pages, absent: 1, ..Gauges::default() };
        let maxima = Maxima { encrypted: 1, ..Maxima::default() };
        [BackendStatistics { url: "tcp://host:1".into(), now, peak: now, maxima, ..BackendStatistics::default() }]
    }

    #[test]
    fn traffic_is_kept_by_url_and_of_so_many_at_most() {
        let mut traffic = Traffic::default();
        let at = |url: &str, bytes_in, bytes_out| {
            let counters = Counters { bytes_in, bytes_out, ..Counters::default() };
            [BackendStatistics { url: url.into(), counters, ..BackendStatistics::default() }]
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
        assert_eq!(totals.all()[0].statistics.now.pages, 7);
        totals.add(&process(5));
        totals.begin();
        totals.see(&process(4));
        totals.finish();
        assert_eq!(totals.all()[0].statistics.now.pages, 4, "one has ended, the other has not");
        totals.add(&process(6));
        totals.begin();
        totals.finish();
        assert_eq!((totals.all()[0].statistics.now.pages, totals.all()[0].is_absent()), (6, true));
        let mut unseen = BackendTotals::default();
        unseen.add(&process(6));
        let BackendStatistics { peak, maxima, .. } = &unseen.all()[0].statistics;
        assert_eq!((peak.pages, maxima.encrypted), (6, 1));
    }

    /// The totals of processes that end one after the other, each with so many bytes and pages on each of its backends: URL, bytes, pages at
    /// the end.
    fn totals(processes: &[&[&str]]) -> Vec<(String, u64, u64)> {
        let mut totals = BackendTotals::default();
        for urls in processes {
            let backend = |url: &&str| BackendStatistics {
                url: (*url).into(),
                counters: Counters { bytes_in: 1, ..Counters::default() },
                now: Gauges { pages: 1, ..Gauges::default() },
                ..BackendStatistics::default()
            };
            totals.add(&urls.iter().map(backend).collect::<Vec<_>>());
        }
        totals.begin();
        totals.finish();
        let of = |BackendTotal { statistics, .. }: &BackendTotal| {
            (statistics.url.clone(), statistics.counters.bytes_in, statistics.now.pages)
        };
        totals.all().iter().map(of).collect()
    }

    #[test]
    fn totals_are_of_urls_whatever_place_they_have_in_a_process() {
        let statistics = |url: &str, bytes, pages| (url.to_owned(), bytes, pages);
        // A node has left the list of a pool; a path was dropped for another before the second process began.
        assert_eq!(
            totals(&[&["tcp://a:1", "tcp://b:1"], &["tcp://b:1", "tcp://c:1"]]),
            [statistics("tcp://a:1", 1, 0), statistics("tcp://b:1", 2, 1), statistics("tcp://c:1", 1, 1)]
        );
        assert_eq!(
            totals(&[&["file:/a?size=1G", "file:/b?size=1G"], &["file:/b?size=1G"]]),
            [statistics("file:/a?size=1G", 1, 0), statistics("file:/b?size=1G", 2, 1)]
        );
        assert_eq!(totals(&[&["file:/a?size=1G"], &["file:/b?size=1G"]]).len(), 2);
        // What the user left open each process has filled in by itself.
        assert_eq!(
            totals(&[&["compressed:2G", "file:/a?size=9G"], &["compressed:1G", "file:/a?size=8G"]]),
            [statistics("compressed:2G", 2, 1), statistics("file:/a?size=9G", 2, 1)]
        );
        // One place, named twice.
        let twice = ["file:/a?size=1G"; 2];
        assert_eq!(
            totals(&[&twice, &twice]),
            [statistics("file:/a?size=1G", 2, 1), statistics("file:/a?size=1G", 2, 1)]
        );
    }
}
