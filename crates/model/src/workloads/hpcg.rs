//! Conjugate gradient as in HPCG: a 27-point stencil on a cube as a sparse matrix; products and symmetric Gauss-Seidel sweeps, vector updates.

use super::Program;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};

const POINTS: u64 = 27;

struct Gradient {
    edge: u64,
    values_at: Array,
    columns_at: Array,
    vectors_at: [Array; 4],
    bytes: u64,
}

/// An edge that has points inside.
pub fn round(edge: u64) -> u64 {
    edge.max(4)
}

/// For a cube of so many points an edge.
pub fn make(edge: u64, _seed: u64) -> Box<dyn Program> {
    let edge = round(edge);
    let rows = edge * edge * edge;
    let mut layout = Layout::default();
    let (values_at, columns_at) = (layout.array(8, rows * POINTS), layout.array(4, rows * POINTS));
    let vectors_at = [(); 4].map(|()| layout.array(8, rows));
    Box::new(Gradient { edge, values_at, columns_at, vectors_at, bytes: layout.bytes })
}

/// The column of an entry of a row; beyond the cube's sides it is the row itself.
fn column(edge: u64, row: u64, entry: u64) -> u64 {
    let shift = |at: u64, step: u64| (at + step).checked_sub(1).filter(|at| *at < edge);
    let [x, y, z] = [row % edge, row / edge % edge, row / (edge * edge)];
    let neighbour = [shift(x, entry % 3), shift(y, entry / 3 % 3), shift(z, entry / 9)];
    match neighbour {
        [Some(x), Some(y), Some(z)] => (z * edge + y) * edge + x,
        _ => row,
    }
}

impl Gradient {
    /// One row times a vector.
    fn row(&self, row: u64, vector: Array, filter: &mut Filter) {
        for entry in 0..POINTS {
            let place = row * POINTS + entry;
            let known = filter.load(self.columns_at.at(place), Data::READY);
            filter.load(self.values_at.at(place), Data::READY);
            filter.load(vector.at(column(self.edge, row, entry)), known);
            filter.work(3);
        }
    }

    fn product(&self, filter: &mut Filter) {
        for row in 0..self.edge.pow(3) {
            self.row(row, self.vectors_at[0], filter);
            filter.store(self.vectors_at[1].at(row), Data::READY);
            if filter.is_full() {
                return;
            }
        }
    }

    fn sweep(&self, rows: impl Iterator<Item = u64>, filter: &mut Filter) {
        for row in rows {
            filter.load(self.vectors_at[2].at(row), Data::READY);
            self.row(row, self.vectors_at[3], filter);
            filter.store(self.vectors_at[3].at(row), Data::READY);
            filter.work(6);
            if filter.is_full() {
                return;
            }
        }
    }

    fn update(&self, filter: &mut Filter) {
        for row in 0..self.edge.pow(3) {
            filter.load(self.vectors_at[1].at(row), Data::READY);
            filter.load(self.vectors_at[2].at(row), Data::READY);
            filter.store(self.vectors_at[2].at(row), Data::READY);
            filter.work(3);
        }
    }
}

impl Program for Gradient {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        let rows = self.edge.pow(3);
        while !filter.is_full() {
            self.product(filter);
            self.update(filter);
            self.sweep(0..rows, filter);
            self.sweep((0..rows).rev(), filter);
        }
    }

    fn regions(&self) -> Vec<Region> {
        let edge = self.edge;
        let points = usize::try_from(POINTS).expect("27");
        let value = move |place: usize| (if place % points == points / 2 { 26.0f64 } else { -1.0 }).to_le_bytes();
        let column_of = move |place: usize| {
            let place = place as u64;
            u32::try_from(column(edge, place / POINTS, place % POINTS)).expect("32 bits").to_le_bytes()
        };
        // Residuals of a smooth solution.
        let smooth = |row: usize| (row as f64 * 1e-3).sin().to_le_bytes();
        let mut regions = vec![Region::of(self.values_at, value), Region::of(self.columns_at, column_of)];
        regions.extend(self.vectors_at.map(|at| Region::of(at, smooth)));
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_entry_is_the_diagonal_and_the_others_are_neighbours() {
        let row = (2 * 4 + 1) * 4 + 2;
        assert_eq!(column(4, row, 13), row);
        assert_eq!(column(4, row, 0), 4 * 4 + 1);
        assert_eq!(column(4, row, 26), (3 * 4 + 2) * 4 + 3);
        assert_eq!(column(4, 0, 0), 0);
    }
}
