//! The features that requests tell in a run, beside those of the same trace, reference by reference (xDM, §IV-B).

use hinterland_policy::{LARGER_PERCENT, RequestFeatures};
use hinterland_sim::{LinkModel, ReplayStats, Setup, Workload, pages_in_order, simulate};
use hinterland_tape::Reference;
use hinterland_tape::study::{FeatureStudy, Features, Study};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Local pages.
const LOCAL: u64 = 4096;

fn played(pages: &[u32], eviction: &str, prefetcher: &str) -> ReplayStats {
    let work: Workload = pages_in_order(pages.to_vec(), 2_000).expect("not empty");
    let link: LinkModel = "tcp-10g".parse().expect("a link");
    let setup = Setup::new(Budget::Bytes(ByteCount(LOCAL * PAGE_BYTES as u64)), link);
    simulate(&work, &setup, eviction, prefetcher, &mut |_| {}).expect("possible")
}

fn studied(pages: &[u32]) -> (Features, Study) {
    let (mut features, mut study) = (FeatureStudy::default(), Study::new());
    for page in pages {
        let reference = Reference { page: *page, ..Reference::default() };
        features.reference(&reference, study.reference(&reference));
    }
    (features.finish().0, study)
}

#[allow(clippy::cast_precision_loss, reason = "a ratio of counts")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Objects of `pages` neighbours at random places among 24,576 pages.
fn objects(pages: u32, count: u32) -> Vec<u32> {
    let mut random = SmallRng::seed_from_u64(u64::from(pages));
    let first = move |_| random.random_range(0..24_576 / pages) * pages;
    (0..count).map(first).flat_map(|first| first..first + pages).collect()
}

#[test]
fn requests_tell_the_features_of_the_trace() {
    let walk: Vec<u32> = (0..5).flat_map(|_| 0..12_000).collect();
    let down: Vec<u32> = (0..5).flat_map(|_| (0..12_000).rev()).collect();
    let stride: Vec<u32> = (0..5).flat_map(|_| (0..12_000).map(|at| 7 * at)).collect();
    let turns: Vec<u32> = (0..5).flat_map(|_| (0..8_000).flat_map(|at| [at, 50_000 + at, 90_000 + 3 * at])).collect();
    let large = objects(64, 2_000);
    let small: Vec<u32> = objects(4, 6_000);
    for (name, pages) in
        [("walk", walk), ("down", down), ("stride", stride), ("turns", turns), ("large", large), ("small", small)]
    {
        let (trace, _) = studied(&pages);
        for prefetcher in ["none", "auto", "next-n", "leap"] {
            let RequestFeatures { references, sequential, strided, longest_run, windowed, fragments } =
                played(&pages, "fifo", prefetcher).features;
            let found = [(sequential, trace.sequential_share), (strided, trace.stride_share)];
            for (count, share) in found {
                let seen = ratio(count, references);
                assert!((seen - share).abs() < 0.1, "{name}, {prefetcher}: {seen} beside {trace:?}");
            }
            let seen = ratio(fragments, windowed);
            assert!((seen - trace.fragment_ratio).abs() < 0.1, "{name}, {prefetcher}: {seen} beside {trace:?}");
            // Objects may lie side by side, of which one is local.
            if !["large", "small"].contains(&name) {
                let run = ratio(longest_run, trace.longest_sequential_run);
                let is_none = trace.longest_sequential_run + longest_run == 0;
                assert!(is_none || (0.8..=1.0).contains(&run), "{name}, {prefetcher}: {longest_run} beside {trace:?}");
            }
        }
    }
}

#[test]
fn loads_that_larger_memory_would_spare_are_those_of_the_traces_curve() {
    let mut random = SmallRng::seed_from_u64(3);
    let random: Vec<u32> = (0..400_000).map(|_| random.random_range(0..12_288)).collect();
    // A walk through 5,500 pages, 134 % of local memory, again and again.
    let walk: Vec<u32> = (0..20).flat_map(|_| 0..5_500).collect();
    for (name, pages) in [("random", random), ("walk", walk)] {
        let (_, study) = studied(&pages);
        let misses = |local: u64| study.distances.misses(local) - study.first_touches();
        let loads = played(&pages, "fifo", "none").loads;
        for (spared, percent) in loads.spared.into_iter().zip(LARGER_PERCENT) {
            let left = 1.0 - ratio(spared, loads.loads);
            let of_trace = ratio(misses(LOCAL * percent as u64 / 100), misses(LOCAL));
            assert!((left - of_trace).abs() < 0.1, "{name}, {percent} %: {left} beside {of_trace}");
        }
    }
}
