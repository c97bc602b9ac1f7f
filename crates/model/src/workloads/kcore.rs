//! k-core decomposition by peeling, as in Ligra: in each round the vertices below k leave, and their neighbours' degrees fall.

use super::Program;
use super::graph::Graph;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};

struct Cores {
    graph: Graph,
    degrees: Vec<u32>,
    cores: Vec<u32>,
    active: Vec<u32>,
    degrees_at: Array,
    cores_at: Array,
    active_at: Array,
    bytes: u64,
}

/// On a graph of so many vertices.
pub fn make(vertices: u64, seed: u64) -> Box<dyn Program> {
    let mut layout = Layout::default();
    let graph = Graph::rmat(vertices, seed, &mut layout);
    let count = u64::from(graph.vertex_count());
    let [degrees_at, cores_at, active_at] = [4, 4, 4].map(|bytes| layout.array(bytes, count));
    let cores = vec![0; graph.offsets.len() - 1];
    let (degrees, active, bytes) = (Vec::new(), Vec::new(), layout.bytes);
    Box::new(Cores { graph, degrees, cores, active, degrees_at, cores_at, active_at, bytes })
}

impl Cores {
    fn decompose(&mut self, filter: &mut Filter) {
        self.degrees = (0..self.graph.vertex_count()).map(|vertex| self.graph.degree(vertex)).collect();
        for vertex in 0..self.graph.vertex_count() {
            filter.load(self.graph.vertices_at.at(vertex) + 8, Data::READY);
            filter.store(self.degrees_at.at(vertex), Data::READY);
            filter.store(self.active_at.at(vertex), Data::READY);
        }
        self.active = (0..self.graph.vertex_count()).collect();
        let mut k = 1;
        while !self.active.is_empty() && !filter.is_full() {
            let leaving = self.split(k, filter);
            if leaving.is_empty() {
                k += 1;
            }
            self.peel(&leaving, k, filter);
        }
    }

    /// Takes the vertices of fewer than `k` neighbours out of the active ones.
    fn split(&mut self, k: u32, filter: &mut Filter) -> Vec<u32> {
        let (mut stay, mut leave) = (Vec::new(), Vec::new());
        for (place, vertex) in (0u64..).zip(&self.active) {
            let known = filter.load(self.active_at.at(place), Data::READY);
            filter.load(self.degrees_at.at(*vertex), known);
            filter.work(4);
            if self.degrees[*vertex as usize] < k {
                leave.push(*vertex);
            } else {
                filter.store(self.active_at.at(stay.len() as u64), Data::READY);
                stay.push(*vertex);
            }
        }
        self.active = stay;
        leave
    }

    fn peel(&mut self, leaving: &[u32], k: u32, filter: &mut Filter) {
        for vertex in leaving {
            self.cores[*vertex as usize] = k - 1;
            self.degrees[*vertex as usize] = 0;
            filter.store(self.cores_at.at(*vertex), Data::READY);
            let record = filter.load(self.graph.vertices_at.at(*vertex), Data::READY);
            for edge in self.graph.edges_of(*vertex) {
                let neighbour = self.graph.neighbour(edge);
                let known = filter.load(self.graph.edges_at.at(edge), record);
                filter.load(self.degrees_at.at(neighbour), known);
                filter.store(self.degrees_at.at(neighbour), known);
                filter.work(4);
                let degree = &mut self.degrees[neighbour as usize];
                *degree = degree.saturating_sub(1);
            }
        }
    }
}

impl Program for Cores {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        while !filter.is_full() {
            self.decompose(filter);
        }
    }

    fn regions(&self) -> Vec<Region> {
        let mut regions = self.graph.regions();
        regions.push(Region::of(self.degrees_at, |vertex| self.degrees[vertex].to_le_bytes()));
        regions.push(Region::of(self.cores_at, |vertex| self.cores[vertex].to_le_bytes()));
        let active = |place: usize| self.active.get(place).copied().unwrap_or_default().to_le_bytes();
        regions.push(Region::of(self.active_at, active));
        regions
    }
}
