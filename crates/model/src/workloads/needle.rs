//! Needleman-Wunsch as in Rodinia: two matrices of numbers of 4 bytes, tiles of 16 × 16 along the anti-diagonals. A tile's rows lie on 16 pages.

use super::Program;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};
use crate::random::Random;

const TILE: usize = 16;
const PENALTY: i32 = 10;

struct Needle {
    edge: usize,
    scores: Vec<i32>,
    similarity: Vec<i32>,
    scores_at: Array,
    similarity_at: Array,
    bytes: u64,
}

/// Base pairs in whole tiles.
pub fn round(base_pairs: u64) -> u64 {
    base_pairs.next_multiple_of(TILE as u64).max(TILE as u64)
}

/// For two sequences of so many base pairs, rounded up to tiles.
pub fn make(base_pairs: u64, seed: u64) -> Box<dyn Program> {
    let mut random = Random::new(seed);
    let inner = usize::try_from(round(base_pairs)).expect("fits into memory");
    let edge = inner + 1;
    let mut sequence = || (0..edge).map(|_| random.below(4)).collect::<Vec<u64>>();
    let (one, other) = (sequence(), sequence());
    let score = |at: usize| if one[at / edge] == other[at % edge] { 5 } else { -3 };
    let similarity: Vec<i32> = (0..edge * edge).map(score).collect();
    let mut layout = Layout::default();
    let cells = similarity.len() as u64;
    let (scores_at, similarity_at) = (layout.array(4, cells), layout.array(4, cells));
    let scores = vec![0; similarity.len()];
    Box::new(Needle { edge, scores, similarity, scores_at, similarity_at, bytes: layout.bytes })
}

impl Needle {
    /// One tile: loaded into buffers of the stack, worked out there, and stored.
    fn tile(&mut self, row: usize, column: usize, filter: &mut Filter) {
        let cell = |r: usize, c: usize| (row + r) * self.edge + column + c;
        for r in 0..TILE {
            for c in 0..TILE {
                filter.load(self.similarity_at.at(cell(r + 1, c + 1) as u64), Data::READY);
                filter.work(2);
            }
        }
        for side in 0..=TILE {
            filter.load(self.scores_at.at(cell(0, side) as u64), Data::READY);
            filter.load(self.scores_at.at(cell(side, 0) as u64), Data::READY);
        }
        for r in 1..=TILE {
            for c in 1..=TILE {
                let diagonal = self.scores[cell(r - 1, c - 1)] + self.similarity[cell(r, c)];
                let gap = self.scores[cell(r - 1, c)].max(self.scores[cell(r, c - 1)]) - PENALTY;
                self.scores[cell(r, c)] = diagonal.max(gap);
                filter.work(12);
            }
        }
        for r in 1..=TILE {
            for c in 1..=TILE {
                filter.store(self.scores_at.at(cell(r, c) as u64), Data::READY);
                filter.work(2);
            }
        }
    }
}

impl Program for Needle {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        let tiles = (self.edge - 1) / TILE;
        while !filter.is_full() {
            for diagonal in 0..2 * tiles - 1 {
                for row in diagonal.saturating_sub(tiles - 1)..=diagonal.min(tiles - 1) {
                    self.tile(row * TILE, (diagonal - row) * TILE, filter);
                }
                if filter.is_full() {
                    return;
                }
            }
        }
    }

    fn regions(&self) -> Vec<Region> {
        vec![
            Region::of(self.scores_at, |cell| self.scores[cell].to_le_bytes()),
            Region::of(self.similarity_at, |cell| self.similarity[cell].to_le_bytes()),
        ]
    }
}
