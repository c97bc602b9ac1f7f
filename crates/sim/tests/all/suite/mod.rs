//! The suite of patterns that prefetchers are compared on: those of the policies' tests, and those that the project's targets name.
#![allow(dead_code, reason = "each test and example uses its own part")]

use hinterland_sim::{Workload, pages_in_order};
use hinterland_testkit::patterns;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The links that the targets are set at.
pub const LINKS: [&str; 3] = ["rdma-25g", "tcp-10g", "ssd"];

/// Those of the patterns that windows grow on.
pub const REGULAR: [&str; 4] = ["sequential", "downwards", "stride 10", "two strides of 3"];

/// `streams` walks in turn, each by `step`, `rounds` times over `pages` pages each.
fn strides(streams: u32, step: u32, pages: u32, rounds: u32) -> Vec<u32> {
    let gap = pages * step + 1_021;
    let walk = move |at: u32| (0..streams).map(move |stream| stream * gap + at * step);
    (0..rounds).flat_map(|_| (0..pages).flat_map(walk)).collect()
}

/// Short runs of neighbours at random places.
fn runs(length: u32, pages: u32, count: u32) -> Vec<u32> {
    let mut random = SmallRng::seed_from_u64(9);
    (0..count)
        .flat_map(|_| {
            let first = random.random_range(0..pages);
            first..first + length
        })
        .collect()
}

/// A walk beside random touches: one of each in turn.
fn beside_random(step: u32, pages: u32, rounds: u32) -> Vec<u32> {
    let mut random = SmallRng::seed_from_u64(10);
    let walk: Vec<u32> = (0..rounds).flat_map(|_| (0..pages).map(|at| at * step)).collect();
    walk.into_iter().flat_map(|page| [page, pages * step + random.random_range(0..pages)]).collect()
}

/// Names, touches `gap_ns` apart, and the pages of local memory, `local`: half of what is touched, or less.
pub fn all(local: u32, gap_ns: u64) -> Vec<(&'static str, Workload, u64)> {
    let pages = 2 * local;
    let down: Vec<u32> = (0..3).flat_map(|_| (0..pages).rev()).collect();
    let own = [
        ("sequential", strides(1, 1, pages, 3)),
        ("downwards", down),
        ("stride 10", strides(1, 10, pages, 3)),
        ("two strides of 3", strides(2, 3, local, 3)),
        ("four strides of 7", strides(4, 7, local / 2, 3)),
        ("runs of 3 at random", runs(3, 2 * pages, 3 * local)),
        ("runs of 8 at random", runs(8, 2 * pages, local * 3 / 2)),
        ("runs of 32 at random", runs(32, 2 * pages, local / 2)),
        ("scan beside random", beside_random(1, local, 3)),
        ("stride 5 beside random", beside_random(5, local, 3)),
    ];
    own.into_iter()
        .chain(patterns::all(local))
        .map(|(name, pages)| (name, pages_in_order(pages, gap_ns).expect("not empty"), u64::from(local)))
        .collect()
}
