//! `partners.c` in Rust: looks up partners at random in a table that is larger than local memory, so many as its argument says.

const ENTRIES: usize = 3 << 20;

#[inline(never)]
fn look_up(table: &[u64], keys: &[u32]) -> u64 {
    // SAFETY: keys are below the table's length. With a check of it the loop has a way out, and is not hinted.
    keys.iter().fold(0, |sum, key| sum.wrapping_add(unsafe { *table.get_unchecked(*key as usize) }))
}

fn main() {
    let count = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1 << 17);
    let table: Vec<u64> = (0..ENTRIES as u64).map(|entry| entry * 2_654_435_761).collect();
    let mut seed = 1_u64;
    let keys: Vec<u32> = (0..count)
        .map(|_: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % ENTRIES as u64) as u32
        })
        .collect();
    println!("{}", look_up(&table, &keys));
}
