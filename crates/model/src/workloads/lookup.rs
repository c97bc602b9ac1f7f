//! Sparse lengths sum: rows of embedding tables are looked up and added, as recommendation models do. 26 tables as Criteo's data have, rows of 64
//! numbers of 4 bytes; rows are asked for by Zipf's law and numbered in the order of their first use, so that frequent ones are neighbours.

use super::Program;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};
use crate::random::Random;

const TABLES: u64 = 26;
const ROW_BYTES: u64 = 256;
/// Look-ups of one table in one sum.
const LOOKUPS: u64 = 20;
/// Rows of a batch's indices.
const BATCH: u64 = 4096;

struct Lookups {
    rows: u64,
    tables_at: Vec<Array>,
    indices_at: Array,
    sums_at: Array,
    random: Random,
    seed: u64,
    bytes: u64,
}

/// Rows of one page at least.
pub fn round(rows: u64) -> u64 {
    rows.max(16)
}

/// For tables of so many rows each.
pub fn make(rows: u64, seed: u64) -> Box<dyn Program> {
    let mut layout = Layout::default();
    let rows = round(rows);
    let tables_at = (0..TABLES).map(|_| layout.array(ROW_BYTES, rows)).collect();
    let indices_at = layout.array(8, BATCH * LOOKUPS);
    let sums_at = layout.array(ROW_BYTES, BATCH * TABLES);
    Box::new(Lookups { rows, tables_at, indices_at, sums_at, random: Random::new(seed), seed, bytes: layout.bytes })
}

/// A row by Zipf's law of exponent 1: rows^u is log-uniform.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to rows")]
fn zipf(rows: u64, random: &mut Random) -> u64 {
    (((rows as f64).powf(random.unit()) - 1.0) as u64).min(rows - 1)
}

impl Lookups {
    fn sum(&mut self, table: usize, place: u64, filter: &mut Filter) {
        for lookup in 0..LOOKUPS {
            let known = filter.load(self.indices_at.at(place * LOOKUPS + lookup), Data::READY);
            let row = zipf(self.rows, &mut self.random);
            for part in (0..ROW_BYTES).step_by(32) {
                filter.load(self.tables_at[table].at(row) + part, known);
                filter.work(2);
            }
            filter.work(4);
        }
        let sum = place * TABLES + table as u64;
        (0..ROW_BYTES).step_by(32).for_each(|part| filter.store(self.sums_at.at(sum) + part, Data::READY));
    }
}

impl Program for Lookups {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        while !filter.is_full() {
            for table in 0..self.tables_at.len() {
                for place in 0..BATCH {
                    if filter.is_full() {
                        return;
                    }
                    self.sum(table, place, filter);
                }
            }
        }
    }

    fn regions(&self) -> Vec<Region> {
        // Trained weights, as numbers of 4 bytes in [-0.05, 0.05): what an initialiser draws.
        let row = |seed: u64| {
            move |row: usize| {
                let mut random = Random::new(seed ^ (row as u64) << 8);
                let mut bytes = [0; 256];
                bytes.chunks_mut(4).for_each(|weight| weight.copy_from_slice(&weight_of(&mut random).to_le_bytes()));
                bytes
            }
        };
        let mut regions: Vec<Region> =
            (0..).zip(&self.tables_at).map(|(table, at)| Region::of(*at, row(self.seed.wrapping_add(table)))).collect();
        regions.push(Region::of(self.sums_at, row(self.seed.wrapping_add(TABLES))));
        let rows = self.rows;
        regions.push(Region::of(self.indices_at, |place| zipf(rows, &mut Random::new(place as u64)).to_le_bytes()));
        regions
    }
}

#[expect(clippy::cast_possible_truncation, reason = "weights are numbers of 4 bytes")]
fn weight_of(random: &mut Random) -> f32 {
    ((random.unit() - 0.5) * 0.1) as f32
}
