//! Particle filter as in Rodinia: the video is made first (a disk that moves, dilated, with noise), then particles follow it: likelihoods of the
//! pixels around each, a running sum of the weights, and a search in it for each.

use super::Program;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};
use crate::random::Random;

const PARTICLES: u64 = 30_000;
/// Pixels of the disk around a particle.
const DISK: u64 = 69;

struct Particles {
    edge: u64,
    image: Vec<i32>,
    image_at: Array,
    seeds_at: Array,
    positions_at: Array,
    weights_at: Array,
    random: Random,
    bytes: u64,
}

/// An edge that particles have room in.
pub fn round(edge: u64) -> u64 {
    edge.max(64)
}

/// On a video of so many pixels an edge.
pub fn make(edge: u64, seed: u64) -> Box<dyn Program> {
    let edge = round(edge);
    let mut layout = Layout::default();
    let pixels = edge * edge;
    let (image_at, seeds_at) = (layout.array(4, pixels), layout.array(4, PARTICLES));
    let (positions_at, weights_at) = (layout.array(16, PARTICLES), layout.array(8, PARTICLES));
    let image = vec![0; usize::try_from(pixels).expect("fits into memory")];
    let random = Random::new(seed);
    Box::new(Particles { edge, image, image_at, seeds_at, positions_at, weights_at, random, bytes: layout.bytes })
}

impl Particles {
    /// Background and disk of a frame, then noise: two passes over all pixels.
    fn draw(&mut self, centre: u64, filter: &mut Filter) {
        for pixel in 0..self.edge * self.edge {
            let (row, column) = (pixel / self.edge, pixel % self.edge);
            let inside = row.abs_diff(centre).pow(2) + column.abs_diff(centre).pow(2) < 25;
            self.image[usize::try_from(pixel).expect("fits into memory")] = if inside { 228 } else { 100 };
            filter.load(self.image_at.at(pixel), Data::READY);
            filter.store(self.image_at.at(pixel), Data::READY);
            filter.work(6);
            if filter.is_full() {
                return;
            }
        }
        for pixel in 0..self.edge * self.edge {
            let noise = self.random.below(10) + self.random.below(10);
            self.image[usize::try_from(pixel).expect("fits into memory")] += i32::try_from(noise).expect("small") - 9;
            filter.load(self.seeds_at.at(pixel % PARTICLES), Data::READY);
            filter.store(self.seeds_at.at(pixel % PARTICLES), Data::READY);
            filter.load(self.image_at.at(pixel), Data::READY);
            filter.store(self.image_at.at(pixel), Data::READY);
            filter.work(30);
            if filter.is_full() {
                return;
            }
        }
    }

    fn weigh(&mut self, centre: u64, filter: &mut Filter) {
        for particle in 0..PARTICLES {
            let known = filter.load(self.positions_at.at(particle), Data::READY);
            let mut spread = || (centre + self.random.below(60)).saturating_sub(30).min(self.edge - 10);
            let (row, column) = (spread(), spread());
            for point in 0..DISK {
                let pixel = (row + point / 9) * self.edge + column + point % 9;
                filter.load(self.image_at.at(pixel), known);
                filter.work(6);
            }
            filter.store(self.weights_at.at(particle), Data::READY);
        }
    }

    /// Each particle searches the running sum of weights from its beginning.
    fn resample(&mut self, filter: &mut Filter) {
        for particle in 0..PARTICLES {
            for place in 0..=self.random.below(PARTICLES) {
                filter.load(self.weights_at.at(place), Data::READY);
                filter.work(3);
                if filter.is_full() {
                    return;
                }
            }
            filter.store(self.positions_at.at(particle), Data::READY);
        }
    }
}

impl Program for Particles {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        for frame in 0.. {
            let centre = (self.edge / 2 + frame) % (self.edge - 20) + 10;
            self.draw(centre, filter);
            self.weigh(centre, filter);
            // The search takes 450 million loads, all in L2: every hundredth frame stands for them.
            if frame % 100 == 99 {
                self.resample(filter);
            }
            if filter.is_full() {
                return;
            }
        }
    }

    fn regions(&self) -> Vec<Region> {
        let number = |salt: u64| move |place: usize| Random::new(place as u64 ^ salt).bits().to_le_bytes();
        vec![
            Region::of(self.image_at, |pixel| self.image[pixel].to_le_bytes()),
            Region::of(self.seeds_at, |place| {
                let [a, b, c, d, ..] = number(1)(place);
                [a, b, c, d]
            }),
            Region::of(self.positions_at, |place| {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&Random::new(place as u64).unit().to_le_bytes());
                bytes[8..].copy_from_slice(&Random::new(place as u64 + 1).unit().to_le_bytes());
                bytes
            }),
            Region::of(self.weights_at, |place| (Random::new(place as u64).unit() / 30_000.0).to_le_bytes()),
        ]
    }
}
