//! Sparse matrix × vector, rows compressed (CSR). The matrix has the size of pkustk14 (151,926 rows, 14.8 M entries, a stiffness matrix): 98
//! entries a row in runs of 6 near the diagonal.

use super::Program;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};
use crate::random::Random;

const ENTRIES_PER_ROW: u64 = 98;
/// Degrees of freedom of a node, whose columns are neighbours.
const RUN: u64 = 6;
/// Columns on each side of the diagonal within which the runs lie, as a part of all.
const BAND: u64 = 16;

struct Product {
    rows: u64,
    columns: Vec<u32>,
    values: Vec<f64>,
    input: Vec<f64>,
    offsets_at: Array,
    columns_at: Array,
    values_at: Array,
    input_at: Array,
    output_at: Array,
    bytes: u64,
}

/// Rows for one run in the band at least.
pub fn round(rows: u64) -> u64 {
    rows.max(BAND * RUN)
}

/// For a matrix of so many rows.
pub fn make(rows: u64, seed: u64) -> Box<dyn Program> {
    let mut random = Random::new(seed);
    let rows = round(rows);
    let mut columns = Vec::new();
    for row in 0..rows {
        let reach = (rows / BAND).max(RUN + 1);
        let low = row.saturating_sub(reach / 2).min(rows - reach);
        let mut starts: Vec<u64> =
            (0..ENTRIES_PER_ROW.div_ceil(RUN)).map(|_| low + random.below(reach - RUN)).collect();
        starts.sort_unstable();
        let run = |start: u64| (0..RUN).map(move |offset| u32::try_from(start + offset).expect("a column"));
        columns.extend(starts.into_iter().flat_map(run).take(usize::try_from(ENTRIES_PER_ROW).expect("98")));
    }
    // Entries of stiffness matrices repeat: elements of one shape have the same.
    let shapes: Vec<f64> = (0..4096).map(|_| random.unit() * 1e6).collect();
    let values = columns.iter().map(|_| shapes[usize::try_from(random.below(4096)).expect("small")]).collect();
    let input = (0..rows).map(|_| random.unit()).collect();
    let mut layout = Layout::default();
    let entries = rows * ENTRIES_PER_ROW;
    let (offsets_at, columns_at) = (layout.array(4, rows + 1), layout.array(4, entries));
    let (values_at, input_at, output_at) = (layout.array(8, entries), layout.array(8, rows), layout.array(8, rows));
    let bytes = layout.bytes;
    Box::new(Product { rows, columns, values, input, offsets_at, columns_at, values_at, input_at, output_at, bytes })
}

impl Program for Product {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        while !filter.is_full() {
            for row in 0..self.rows {
                let begin = filter.load(self.offsets_at.at(row + 1), Data::READY);
                for entry in row * ENTRIES_PER_ROW..(row + 1) * ENTRIES_PER_ROW {
                    let column = self.columns[usize::try_from(entry).expect("fits into memory")];
                    let known = filter.load(self.columns_at.at(entry), begin);
                    filter.load(self.values_at.at(entry), begin);
                    filter.load(self.input_at.at(column), known);
                    filter.work(4);
                }
                filter.store(self.output_at.at(row), Data::READY);
                if filter.is_full() {
                    return;
                }
            }
        }
    }

    fn regions(&self) -> Vec<Region> {
        let offset = |row: usize| u32::try_from(row as u64 * ENTRIES_PER_ROW).expect("32 bits").to_le_bytes();
        vec![
            Region::of(self.offsets_at, offset),
            Region::of(self.columns_at, |entry| self.columns[entry].to_le_bytes()),
            Region::of(self.values_at, |entry| self.values[entry].to_le_bytes()),
            Region::of(self.input_at, |row| self.input[row].to_le_bytes()),
            Region::of(self.output_at, |row| (self.input[row] * 1e6).to_le_bytes()),
        ]
    }
}
