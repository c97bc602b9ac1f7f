//! `auto` is never much worse than the best single prefetcher, whatever the program and the link; and windows follow the link.

use crate::suite;
use hinterland_sim::{FaultPath, LinkModel, PREFETCHERS, ReplayStats, Setup, Workload, simulate};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};

fn played(work: &Workload, local: u64, link: &str, prefetcher: &str) -> ReplayStats {
    let link: LinkModel = link.parse().expect("a link");
    let setup = Setup::new(Budget::Bytes(ByteCount(local * PAGE_BYTES as u64)), link);
    simulate(work, &setup, "s3-fifo", prefetcher, &mut |_| {}).expect("possible")
}

/// A link on which a page takes less time than a fault. Both directions share it: where each has its own, the windows of `next-n` cost
/// nothing beside pages that are written back, and `auto` takes 1.053 times as long on one pattern (hot pages and a scan).
const FASTEST: &str = "1us:100Gb/s:half";

/// Compares `auto` with each other prefetcher over one link; how often it is a twentieth faster than `streams`.
fn chosen_well_over(link: &str) -> u32 {
    let mut chosen_well = 0;
    for (pattern, work, local) in suite::all(4096, 500) {
        let auto = played(&work, local, link, "auto").run_ns();
        let others = PREFETCHERS.iter().filter(|name| **name != "auto");
        let times: Vec<(u64, &str)> = others.map(|name| (played(&work, local, link, name).run_ns(), *name)).collect();
        let best = times.iter().min().expect("there are others");
        assert!(auto * 20 <= best.0 * 21, "{pattern} over {link}: {auto} ns, and {best:?}");
        let streams = times.iter().find(|(_, name)| *name == "streams").expect("one of them").0;
        chosen_well += u32::from(auto * 21 <= streams * 20);
    }
    chosen_well
}

/// The links beside each other: a replay is processor time alone.
#[test]
fn auto_takes_at_most_a_twentieth_longer_than_the_best() {
    let chosen_well: u32 = std::thread::scope(|scope| {
        let links = suite::LINKS.into_iter().chain([FASTEST]);
        let played: Vec<_> = links.map(|link| scope.spawn(move || chosen_well_over(link))).collect();
        let result = |thread: std::thread::ScopedJoinHandle<'_, u32>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        played.into_iter().map(result).sum()
    });
    assert!(chosen_well >= 6, "where streams are not the best, auto does not find what is: {chosen_well}");
}

#[test]
fn windows_grow_where_the_delay_is_long_and_nowhere_else() {
    for (pattern, work, local) in suite::all(8192, 500).into_iter().filter(|(name, ..)| suite::REGULAR.contains(name)) {
        let run_ns = |path, link: &str, window_pages_max| {
            let link: LinkModel = link.parse().expect("a link");
            let local = Budget::Bytes(ByteCount(local * PAGE_BYTES as u64));
            let setup = Setup { window_pages_max, ..Setup::new(local, link).on(path) };
            simulate(&work, &setup, "s3-fifo", "streams", &mut |_| {}).expect("possible").run_ns()
        };
        let (monitor, inline) = (FaultPath::Monitor, FaultPath::Inline);
        for (path, link, at_most) in [
            (monitor, "1us:100Gb/s", 1.01),
            (monitor, "rdma-25g", 1.01),
            (monitor, "ssd", 1.02),
            (monitor, "2ms:10Gb/s", 1.0),
            (inline, "ssd", 1.08),
            (inline, "2ms:10Gb/s", 1.2),
        ] {
            #[allow(clippy::cast_precision_loss, reason = "a ratio of times")]
            let ratio = run_ns(path, link, None) as f64 / run_ns(path, link, Some(64)) as f64;
            assert!(ratio <= at_most, "{pattern} over {link}, {path:?}: {ratio} of the time with windows of 64 pages");
        }
    }
}
