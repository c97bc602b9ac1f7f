//! Elements of a large vector by indices in any order, each of which is checked against its bounds, in Rust.
//!
//! usage: checked MIB      (about so much memory)
//! Output: what was read and counted, the same on every run and build; on standard error the seconds of the loops without what fills their memory.

mod random;

use random::Random;
use std::time::Instant;

/// Both the place and the value are checked.
#[inline(never)]
fn look_up(places: &[u32], values: &[u64], count: usize) -> u64 {
    let mut sum = 0_u64;
    for i in 0..count {
        sum = sum.rotate_left(1) ^ values[places[i] as usize];
    }
    sum
}

#[inline(never)]
fn count_up(places: &[u32], values: &mut [u64]) {
    for place in places {
        values[*place as usize] += 1;
    }
}

fn main() {
    let mib: usize = std::env::args().nth(1).map_or(0, |word| word.parse().unwrap_or(0));
    if mib == 0 {
        eprintln!("usage: checked MIB");
        std::process::exit(2);
    }
    // One byte in 128 is places.
    let (place_count, value_count) = ((mib << 20) / 128 / 4, (mib << 20) / 128 * 127 / 8);
    let mut random = Random(1);
    let mut values: Vec<u64> = (0..value_count).map(|_| random.next()).collect();
    let places: Vec<u32> = (0..place_count).map(|_| (random.next() % value_count as u64) as u32).collect();
    let begin = Instant::now();
    let sum = look_up(&places, &values, place_count);
    count_up(&places, &mut values);
    eprintln!("seconds {:.6}", begin.elapsed().as_secs_f64());
    println!("{sum} {}", values.iter().fold(0_u64, |sum, value| sum.wrapping_mul(31).wrapping_add(*value)));
}
