//! Matrix profile (SCRIMP): along random diagonals, the distance of two windows of a series follows from that of the windows before.

use super::Program;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};
use crate::random::Random;

/// Elements of a window.
const WINDOW: usize = 256;

struct Profile {
    series: Vec<f64>,
    means: Vec<f64>,
    deviations: Vec<f64>,
    profile: Vec<f64>,
    index: Vec<u64>,
    series_at: Array,
    means_at: Array,
    deviations_at: Array,
    profile_at: Array,
    index_at: Array,
    random: Random,
    bytes: u64,
}

/// Elements for some windows at least.
pub fn round(elements: u64) -> u64 {
    elements.max(4 * WINDOW as u64)
}

/// For a series of so many elements: a random walk.
pub fn make(elements: u64, seed: u64) -> Box<dyn Program> {
    let mut random = Random::new(seed);
    let count = usize::try_from(round(elements)).expect("fits into memory");
    let mut value = 0.0;
    let series: Vec<f64> = (0..count)
        .map(|_| {
            value += random.unit() - 0.5;
            value
        })
        .collect();
    let mean = |window: &[f64]| window.iter().sum::<f64>() / WINDOW as f64;
    let means: Vec<f64> = series.windows(WINDOW).map(mean).collect();
    let deviation = |(window, mean): (&[f64], &f64)| {
        (window.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / WINDOW as f64).sqrt()
    };
    let deviations: Vec<f64> = series.windows(WINDOW).zip(&means).map(deviation).collect();
    let (windows, mut layout) = (means.len(), Layout::default());
    let series_at = layout.array(8, count as u64);
    let [means_at, deviations_at, profile_at, index_at] = [(); 4].map(|()| layout.array(8, windows as u64));
    Box::new(Profile {
        series,
        means,
        deviations,
        profile: vec![f64::INFINITY; windows],
        index: vec![0; windows],
        series_at,
        means_at,
        deviations_at,
        profile_at,
        index_at,
        random,
        bytes: layout.bytes,
    })
}

impl Profile {
    fn diagonal(&mut self, apart: usize, filter: &mut Filter) {
        let windows = self.means.len();
        let mut product: f64 = (0..WINDOW).map(|at| self.series[at] * self.series[at + apart]).sum();
        for first in 0..windows - apart {
            let second = first + apart;
            for at in [first, second] {
                filter.load(self.series_at.at((at + WINDOW - 1) as u64), Data::READY);
                filter.load(self.means_at.at(at as u64), Data::READY);
                filter.load(self.deviations_at.at(at as u64), Data::READY);
                filter.load(self.profile_at.at(at as u64), Data::READY);
            }
            filter.work(20);
            let distance = self.distance(product, first, second);
            for (at, other) in [(first, second), (second, first)] {
                if distance < self.profile[at] {
                    self.profile[at] = distance;
                    self.index[at] = other as u64;
                    filter.store(self.profile_at.at(at as u64), Data::READY);
                    filter.store(self.index_at.at(at as u64), Data::READY);
                }
            }
            if second + WINDOW < self.series.len() {
                product += self.series[first + WINDOW] * self.series[second + WINDOW];
                product -= self.series[first] * self.series[second];
            }
        }
    }

    fn distance(&self, product: f64, first: usize, second: usize) -> f64 {
        let covariance = product / WINDOW as f64 - self.means[first] * self.means[second];
        2.0 * WINDOW as f64 * (1.0 - covariance / (self.deviations[first] * self.deviations[second]))
    }
}

impl Program for Profile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        let windows = self.means.len();
        while !filter.is_full() {
            let apart = WINDOW as u64 / 4 + self.random.below((windows - WINDOW / 4) as u64);
            self.diagonal(usize::try_from(apart).expect("a window"), filter);
        }
    }

    fn regions(&self) -> Vec<Region> {
        let values = [
            (self.series_at, &self.series),
            (self.means_at, &self.means),
            (self.deviations_at, &self.deviations),
            (self.profile_at, &self.profile),
        ];
        let mut regions = values.map(|(at, values)| Region::of(at, |place| values[place].to_le_bytes())).to_vec();
        regions.push(Region::of(self.index_at, |place| self.index[place].to_le_bytes()));
        regions
    }
}
