//! Loops as Rust has them: each access has its check of bounds, by which the loop can be left. Prints what they compute.

/// Element by element, by an index that is checked twice.
#[inline(never)]
fn scattered(places: &[u32], values: &[u64], count: usize) -> u64 {
    let mut sum = 1_u64;
    for i in 0..count {
        sum = sum.wrapping_mul(31) ^ values[places[i] as usize];
    }
    sum
}

/// The same over a slice, with writes.
#[inline(never)]
fn count_all(places: &[u32], counts: &mut [u64]) {
    for place in places {
        counts[*place as usize] += 1;
    }
}

/// A search, which is left where it has found something.
#[inline(never)]
fn find(places: &[u32], values: &[u64], wanted: u64) -> Option<usize> {
    for (at, place) in places.iter().enumerate() {
        if values[*place as usize] == wanted {
            return Some(at);
        }
    }
    None
}

fn main() {
    const PAGES: usize = 8192;
    const EACH: usize = 512;
    let values: Vec<u64> = (0..PAGES * EACH).map(|at| at as u64 * 0x9e37_79b9 % 1009).collect();
    let mut places: Vec<u32> = (0..PAGES).map(|at| (at * 2477 % PAGES * EACH) as u32).collect();
    println!("{}", scattered(&places, &values, places.len()));
    let mut counts = vec![0; PAGES * EACH];
    count_all(&places, &mut counts);
    println!("{}", counts.iter().enumerate().fold(0, |sum: u64, (at, count)| sum.wrapping_mul(3) ^ (at as u64 * count)));
    println!("{:?} {:?}", find(&places, &values, 5), find(&places, &values, 1010));
    // What a check of bounds says is said with hints, too.
    places[PAGES - 1] = u32::MAX;
    std::panic::set_hook(Box::new(|panic| println!("{}", panic.payload().downcast_ref::<String>().map_or("", |words| words))));
    for count in [PAGES, PAGES + 1] {
        let caught = std::panic::catch_unwind(|| scattered(&places, &values, count));
        println!("{}", caught.is_err());
    }
}
