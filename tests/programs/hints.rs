//! Gives hints about its memory, and checks every word of it.
//!
//! usage: hints PAGES
//!
//! Prints what was counted and "done": the same natively and under Hinterland, but for the first line, which says what is done in the region.

use hinterland::{Mode, Region};

const PAGE: usize = 512;
const AHEAD: usize = 128;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Content that does not compress to nothing.
fn word(round: u64, at: usize) -> u64 {
    Random((round << 40 | at as u64 | 1 << 50).wrapping_mul(0x9e37_79b9_7f4a_7c15)).next()
}

fn walk(data: &[u64], order: &[usize]) -> u64 {
    let mut sum = 0_u64;
    for (at, page) in order.iter().enumerate() {
        if at % 16 == 0 {
            let coming: Vec<&[u64; PAGE]> =
                order.iter().skip(at + AHEAD).take(16).map(|page| page_of(data, *page)).collect();
            hinterland::fetch_each(&coming);
        }
        sum = page_of(data, *page).iter().fold(sum, |sum, word| sum.wrapping_add(*word));
    }
    sum
}

fn page_of(data: &[u64], page: usize) -> &[u64; PAGE] {
    data[page * PAGE..][..PAGE].try_into().expect("a page")
}

fn walk_behind(data: &[u64]) -> u64 {
    let mut sum = 0_u64;
    for (at, part) in data.chunks(64 * PAGE).enumerate() {
        hinterland::fetch(data.chunks(64 * PAGE).nth(at + 1).unwrap_or_default());
        sum = part.iter().fold(sum, |sum, word| sum.wrapping_add(*word));
        if at % 2 == 0 {
            hinterland::evict(part);
        } else {
            hinterland::evict_soon(part);
        }
    }
    sum
}

fn main() {
    let pages: usize = std::env::args().nth(1).and_then(|pages| pages.parse().ok()).expect("PAGES");
    let region = Region::begin(Mode::Auto);
    println!("in force: {:?}", region.in_force());
    let mut data: Vec<u64> = (0..pages * PAGE).map(|at| word(0, at)).collect();
    let mut order: Vec<usize> = (0..pages).collect();
    let mut random = Random(88_172_645_463_325_252);
    (1..pages).rev().for_each(|at| order.swap(at, random.next() as usize % (at + 1)));
    hinterland::phase(1);
    let kept = hinterland::keep(&data[..64 * PAGE]);
    println!("{:x}", walk(&data, &order));
    drop(kept);
    hinterland::phase(2);
    println!("{:x}", walk_behind(&data));
    for (at, part) in data.chunks_mut(64 * PAGE).enumerate() {
        // SAFETY: each word of it is written at once.
        unsafe { hinterland::overwrite(part) };
        part.iter_mut().enumerate().for_each(|(word_at, place)| *place = word(1, at * 64 * PAGE + word_at));
    }
    assert!(data.iter().enumerate().all(|(at, found)| *found == word(1, at)), "a word was lost");
    drop(region);
    println!("done");
}
