//! Traces of page touches, in units of the budget `n`: what policies, prefetchers and the simulator are tested with. All are seeded.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::Zipf;

/// Traces by name; `n` is the budget in pages.
pub fn all(n: u32) -> Vec<(&'static str, Vec<u32>)> {
    vec![
        ("loop over 2 n", sequential_loop(n * 2, 12)),
        ("loop over 1.25 n", sequential_loop(n + n / 4, 20)),
        ("uniform over 2 n", uniform(n * 2, n as usize * 24)),
        ("zipf 0.99 over 4 n", zipf(n * 4, n as usize * 32)),
        ("hot n/2 + scan 4 n", hot_and_scan(n / 2, n * 4, 2, 4)),
        ("hot n/2, rare + scan", hot_and_scan(n / 2, n * 4, 2, 1)),
        ("hot n/2 .. scan 4 n ..", hot_between_scans(n / 2, n * 4, 6)),
        ("scan 4 n + zipf 1 n", zipf_and_scan(n, n * 4, 3)),
        ("phases of zipf", phases(n * 2, n as usize * 8, 4)),
        ("phases of hot n/2", hot_phases(n, 4)),
        ("tree, depth first", tree(n * 4, n as usize * 8)),
    ]
}

fn random(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// Pages 0 .. pages, again and again.
pub fn sequential_loop(pages: u32, rounds: u32) -> Vec<u32> {
    (0..rounds).flat_map(|_| 0..pages).collect()
}

/// Every page equally likely.
pub fn uniform(pages: u32, touches: usize) -> Vec<u32> {
    let mut random = random(1);
    (0..touches).map(|_| random.random_range(0..pages)).collect()
}

/// The program writes all its pages, then touches page of rank r with a likelihood of 1/r^0.99; ranks are scattered
/// over the pages.
pub fn zipf(pages: u32, touches: usize) -> Vec<u32> {
    (0..pages).chain(zipf_from(pages, 2).take(touches)).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank is a whole number in 1 ..= pages")]
fn zipf_from(pages: u32, seed: u64) -> impl Iterator<Item = u32> {
    let mut random = random(seed);
    let mut page_of_rank: Vec<u32> = (0..pages).collect();
    page_of_rank.shuffle(&mut random);
    let law = Zipf::new(f64::from(pages), 0.99).expect("more than one page");
    std::iter::repeat_with(move || page_of_rank[random.sample(law) as usize - 1])
}

/// A hot set, warmed by touching it at random, in use all the time while scans go by: `ratio` hot touches for each two
/// scanned pages.
pub fn hot_and_scan(hot: u32, scan: u32, scans: u32, ratio: u32) -> Vec<u32> {
    let mut random = random(3);
    let mut trace: Vec<u32> = (0..hot * 16).map(|_| random.random_range(0..hot)).collect();
    for page in (0..scans).flat_map(|_| 0..scan) {
        trace.push(hot + page);
        if page % 2 == 0 {
            trace.extend((0..ratio).map(|_| random.random_range(0..hot)));
        }
    }
    trace
}

/// A hot set that rests while a scan goes by, then is used again, and so on.
pub fn hot_between_scans(hot: u32, scan: u32, scans: u32) -> Vec<u32> {
    let mut random = random(4);
    let mut trace = Vec::new();
    for _ in 0..scans {
        trace.extend((0..hot * 16).map(|_| random.random_range(0..hot)));
        trace.extend(hot..hot + scan);
    }
    trace
}

/// A scan over and over, each page of it followed by one touch of a zipf-distributed set.
pub fn zipf_and_scan(pages: u32, scan: u32, scans: u32) -> Vec<u32> {
    let hot = zipf_from(pages, 5);
    (0..scans).flat_map(|_| 0..scan).zip(hot).flat_map(|(page, hot)| [pages + page, hot]).collect()
}

/// The zipf law holds over another set of pages in each phase.
pub fn phases(pages: u32, touches: usize, phases: u32) -> Vec<u32> {
    (0..phases)
        .flat_map(|phase| zipf_from(pages, u64::from(phase)).take(touches).map(move |p| p + phase % 2 * pages))
        .collect()
}

/// Another hot set of n/2 in each phase, of six, beside a uniform load over the whole.
pub fn hot_phases(n: u32, phases: u32) -> Vec<u32> {
    let mut random = random(6);
    let mut trace: Vec<u32> = (0..n * 3).collect();
    for phase in 0..phases {
        for _ in 0..n * 8 {
            let hot = random.random_range(0..n / 2) + phase % 6 * (n / 2);
            trace.extend([hot, random.random_range(0..n * 3)]);
        }
    }
    trace
}

/// Walks from the root of a binary tree to random leaves, nodes in level order, 16 to a page.
pub fn tree(pages: u32, walks: usize) -> Vec<u32> {
    let (mut random, nodes) = (random(7), pages * 16);
    let mut trace: Vec<u32> = (0..pages).collect();
    for _ in 0..walks {
        let mut node = 1;
        while node < nodes {
            trace.push(node / 16);
            node = node * 2 + u32::from(random.random::<bool>());
        }
    }
    trace
}
