//! Layers of convolutional networks as in Darknet: the input is unrolled into columns (im2col), then multiplied by the weights, row by row (its
//! plain `gemm_nn`, 8 numbers of 4 bytes at a time). Weights are random; no picture is recognised.

use super::Program;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};
use crate::random::Random;

/// Channels in, channels out, edge of the kernel, and by how much the picture is smaller than the network's input.
type Layer = (u64, u64, u64, u64);

/// Darknet-19 (Redmon & Farhadi 2017).
const DARKNET: [Layer; 14] = [
    (3, 32, 3, 1),
    (32, 64, 3, 2),
    (64, 128, 3, 4),
    (128, 64, 1, 4),
    (64, 128, 3, 4),
    (128, 256, 3, 8),
    (256, 128, 1, 8),
    (128, 256, 3, 8),
    (256, 512, 3, 16),
    (512, 256, 1, 16),
    (256, 512, 3, 16),
    (512, 1024, 3, 32),
    (1024, 512, 1, 32),
    (512, 1024, 3, 32),
];

/// The first block of each stage of ResNet-50 (He et al. 2016).
const RESNET: [Layer; 13] = [
    (3, 64, 7, 2),
    (64, 64, 1, 4),
    (64, 64, 3, 4),
    (64, 256, 1, 4),
    (256, 128, 1, 8),
    (128, 128, 3, 8),
    (128, 512, 1, 8),
    (512, 256, 1, 16),
    (256, 256, 3, 16),
    (256, 1024, 1, 16),
    (1024, 512, 1, 32),
    (512, 512, 3, 32),
    (512, 2048, 1, 32),
];

struct Network {
    layers: &'static [Layer],
    edge: u64,
    weights_at: Vec<Array>,
    pictures_at: [Array; 2],
    columns_at: Array,
    seed: u64,
    bytes: u64,
}

/// An edge that the smallest layer still has pixels of.
pub fn round(edge: u64) -> u64 {
    edge.next_multiple_of(32).max(32)
}

/// Darknet-19 on pictures of so many pixels an edge.
pub fn darknet(edge: u64, seed: u64) -> Box<dyn Program> {
    make(&DARKNET, edge, seed)
}

/// ResNet-50 on pictures of so many pixels an edge.
pub fn resnet(edge: u64, seed: u64) -> Box<dyn Program> {
    make(&RESNET, edge, seed)
}

fn make(layers: &'static [Layer], edge: u64, seed: u64) -> Box<dyn Program> {
    let edge = round(edge);
    let pixels = |shrink: u64| (edge / shrink).pow(2);
    let most = |of: fn(&Layer) -> u64| {
        layers.iter().map(|layer| of(layer) * pixels(layer.3)).max().expect("a network has layers")
    };
    let picture = most(|layer| layer.0.max(layer.1));
    let columns = most(|layer| layer.0 * layer.2 * layer.2);
    let mut layout = Layout::default();
    let weights_at = layers.iter().map(|layer| layout.array(4, layer.0 * layer.1 * layer.2 * layer.2)).collect();
    let pictures_at = [layout.array(4, picture), layout.array(4, picture)];
    let columns_at = layout.array(4, columns);
    Box::new(Network { layers, edge, weights_at, pictures_at, columns_at, seed, bytes: layout.bytes })
}

impl Network {
    fn unroll(&self, (channels, _, kernel, shrink): Layer, input: Array, filter: &mut Filter) {
        let edge = self.edge / shrink;
        for row in 0..channels * kernel * kernel {
            let (channel, offset) = (row / (kernel * kernel), row / kernel % kernel);
            for y in 0..edge {
                let from = (channel * edge + (y + offset).min(edge - 1)) * edge;
                for x in (0..edge).step_by(8) {
                    filter.load(input.at(from + x), Data::READY);
                    filter.store(self.columns_at.at((row * edge + y) * edge + x), Data::READY);
                    filter.work(4);
                }
            }
            if filter.is_full() {
                return;
            }
        }
    }

    fn multiply(&self, layer: Layer, weights: Array, output: Array, filter: &mut Filter) {
        let (inputs, outputs, kernel, shrink) = layer;
        let (depth, pixels) = (inputs * kernel * kernel, (self.edge / shrink).pow(2));
        for out in 0..outputs {
            for k in 0..depth {
                filter.load(weights.at(out * depth + k), Data::READY);
                for pixel in (0..pixels).step_by(8) {
                    filter.load(self.columns_at.at(k * pixels + pixel), Data::READY);
                    filter.load(output.at(out * pixels + pixel), Data::READY);
                    filter.store(output.at(out * pixels + pixel), Data::READY);
                    filter.work(2);
                }
                if filter.is_full() {
                    return;
                }
            }
        }
    }
}

impl Program for Network {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        while !filter.is_full() {
            for (number, (layer, weights)) in self.layers.iter().zip(&self.weights_at).enumerate() {
                let (input, output) = (self.pictures_at[number % 2], self.pictures_at[(number + 1) % 2]);
                self.unroll(*layer, input, filter);
                self.multiply(*layer, *weights, output, filter);
            }
        }
    }

    fn regions(&self) -> Vec<Region> {
        let weight = |salt: u64| move |place: usize| unit(&mut Random::new(salt ^ (place as u64) << 8)).to_le_bytes();
        let mut regions: Vec<Region> = (0..)
            .zip(&self.weights_at)
            .map(|(layer, at)| Region::of(*at, weight(self.seed.wrapping_add(layer))))
            .collect();
        // After the rectifier half of the activations are zero.
        let activation = |place: usize| unit(&mut Random::new(place as u64)).max(0.0).to_le_bytes();
        for at in [self.pictures_at[0], self.pictures_at[1], self.columns_at] {
            regions.push(Region::of(at, activation));
        }
        regions
    }
}

#[expect(clippy::cast_possible_truncation, reason = "numbers of 4 bytes")]
fn unit(random: &mut Random) -> f32 {
    (random.unit() - 0.5) as f32
}
