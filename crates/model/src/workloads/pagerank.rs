//! PageRank as Ligra's dense edge map does it: each vertex gathers the ranks of its neighbours, divided by their degrees.

use super::Program;
use super::graph::Graph;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};

const DAMPING: f64 = 0.85;

struct PageRank {
    graph: Graph,
    ranks: [Vec<f64>; 2],
    ranks_at: [Array; 2],
    bytes: u64,
}

/// On a graph of so many vertices.
pub fn make(vertices: u64, seed: u64) -> Box<dyn Program> {
    let mut layout = Layout::default();
    let graph = Graph::rmat(vertices, seed, &mut layout);
    let count = u64::from(graph.vertex_count());
    let ranks_at = [layout.array(8, count), layout.array(8, count)];
    let even = 1.0 / f64::from(graph.vertex_count());
    let ranks = [vec![even; graph.offsets.len() - 1], vec![0.0; graph.offsets.len() - 1]];
    Box::new(PageRank { graph, ranks, ranks_at, bytes: layout.bytes })
}

impl PageRank {
    fn gather(&mut self, filter: &mut Filter) {
        let [now, next] = &mut self.ranks;
        for vertex in 0..self.graph.vertex_count() {
            let record = filter.load(self.graph.vertices_at.at(vertex), Data::READY);
            let mut sum = 0.0;
            for edge in self.graph.edges_of(vertex) {
                let neighbour = self.graph.neighbour(edge);
                let known = filter.load(self.graph.edges_at.at(edge), record);
                filter.load(self.ranks_at[0].at(neighbour), known);
                filter.load(self.graph.vertices_at.at(neighbour) + 8, known);
                filter.work(6);
                sum += now[neighbour as usize] / f64::from(self.graph.degree(neighbour));
            }
            filter.store(self.ranks_at[1].at(vertex), Data::READY);
            filter.work(6);
            next[vertex as usize] = (1.0 - DAMPING) / f64::from(self.graph.vertex_count()) + DAMPING * sum;
            if filter.is_full() {
                return;
            }
        }
    }

    /// The difference of both, and zeros for the next round.
    fn compare(&mut self, filter: &mut Filter) {
        for vertex in 0..self.graph.vertex_count() {
            filter.load(self.ranks_at[0].at(vertex), Data::READY);
            filter.load(self.ranks_at[1].at(vertex), Data::READY);
            filter.store(self.ranks_at[0].at(vertex), Data::READY);
            filter.work(6);
        }
        self.ranks.swap(0, 1);
        self.ranks_at.swap(0, 1);
    }
}

impl Program for PageRank {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        while !filter.is_full() {
            self.gather(filter);
            self.compare(filter);
        }
    }

    fn regions(&self) -> Vec<Region> {
        let mut regions = self.graph.regions();
        for (at, ranks) in self.ranks_at.iter().zip(&self.ranks) {
            regions.push(Region::of(*at, |vertex| ranks[vertex].to_le_bytes()));
        }
        regions
    }
}
