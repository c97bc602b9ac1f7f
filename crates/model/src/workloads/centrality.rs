//! Betweenness centrality as in Ligra: a search that counts shortest paths, level by level, then dependencies back along the levels.

use super::Program;
use super::graph::Graph;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};
use crate::random::Random;

const UNVISITED: u32 = u32::MAX;

struct Centrality {
    graph: Graph,
    paths: Vec<f64>,
    dependencies: Vec<f64>,
    level_of: Vec<u32>,
    paths_at: Array,
    dependencies_at: Array,
    visited_at: Array,
    levels_at: Array,
    random: Random,
    bytes: u64,
}

/// On a graph of so many vertices.
pub fn make(vertices: u64, seed: u64) -> Box<dyn Program> {
    let mut layout = Layout::default();
    let graph = Graph::rmat(vertices, seed, &mut layout);
    let count = u64::from(graph.vertex_count());
    let length = graph.offsets.len() - 1;
    let [paths_at, dependencies_at, visited_at, levels_at] = [8, 8, 4, 4].map(|bytes| layout.array(bytes, count));
    Box::new(Centrality {
        graph,
        paths: vec![0.0; length],
        dependencies: vec![0.0; length],
        level_of: vec![UNVISITED; length],
        paths_at,
        dependencies_at,
        visited_at,
        levels_at,
        random: Random::new(seed.wrapping_add(1)),
        bytes: layout.bytes,
    })
}

impl Centrality {
    fn from(&mut self, source: u32, filter: &mut Filter) {
        self.paths.fill(0.0);
        self.dependencies.fill(0.0);
        self.level_of.fill(UNVISITED);
        for vertex in 0..self.graph.vertex_count() {
            filter.store(self.paths_at.at(vertex), Data::READY);
            filter.store(self.dependencies_at.at(vertex), Data::READY);
            filter.store(self.visited_at.at(vertex), Data::READY);
        }
        self.paths[source as usize] = 1.0;
        self.level_of[source as usize] = 0;
        let mut levels = vec![vec![source]];
        // Levels lie one after the other in one array, as they are kept for the way back.
        let mut placed = 1;
        for depth in 1.. {
            let next = self.count_paths(&levels[levels.len() - 1], depth, &mut placed, filter);
            if next.is_empty() || filter.is_full() {
                break;
            }
            levels.push(next);
        }
        for (depth, level) in levels.iter().enumerate().rev() {
            let depth = u32::try_from(depth).expect("fewer levels than vertices");
            placed -= level.len() as u64;
            self.gather_dependencies(level, depth, placed, filter);
        }
    }

    fn count_paths(&mut self, level: &[u32], depth: u32, placed: &mut u64, filter: &mut Filter) -> Vec<u32> {
        let mut next = Vec::new();
        for (place, vertex) in (*placed - level.len() as u64..).zip(level) {
            let known = filter.load(self.levels_at.at(place), Data::READY);
            let record = filter.load(self.graph.vertices_at.at(*vertex), known);
            filter.load(self.paths_at.at(*vertex), known);
            for edge in self.graph.edges_of(*vertex) {
                let neighbour = self.graph.neighbour(edge);
                let known = filter.load(self.graph.edges_at.at(edge), record);
                filter.load(self.visited_at.at(neighbour), known);
                filter.work(4);
                if self.level_of[neighbour as usize] == UNVISITED {
                    self.level_of[neighbour as usize] = depth;
                    filter.store(self.visited_at.at(neighbour), known);
                    filter.store(self.levels_at.at(*placed + next.len() as u64), Data::READY);
                    next.push(neighbour);
                }
                if self.level_of[neighbour as usize] == depth {
                    filter.load(self.paths_at.at(neighbour), known);
                    filter.store(self.paths_at.at(neighbour), known);
                    self.paths[neighbour as usize] += self.paths[*vertex as usize];
                }
            }
        }
        *placed += next.len() as u64;
        next
    }

    fn gather_dependencies(&mut self, level: &[u32], depth: u32, first: u64, filter: &mut Filter) {
        for (place, vertex) in (first..).zip(level) {
            let known = filter.load(self.levels_at.at(place), Data::READY);
            let record = filter.load(self.graph.vertices_at.at(*vertex), known);
            let mut sum = 0.0;
            for edge in self.graph.edges_of(*vertex) {
                let neighbour = self.graph.neighbour(edge) as usize;
                let known = filter.load(self.graph.edges_at.at(edge), record);
                filter.load(self.visited_at.at(neighbour as u64), known);
                filter.work(4);
                if self.level_of[neighbour] == depth + 1 {
                    filter.load(self.paths_at.at(neighbour as u64), known);
                    filter.load(self.dependencies_at.at(neighbour as u64), known);
                    filter.work(4);
                    sum += (1.0 + self.dependencies[neighbour]) / self.paths[neighbour];
                }
            }
            filter.store(self.dependencies_at.at(*vertex), known);
            self.dependencies[*vertex as usize] = self.paths[*vertex as usize] * sum;
        }
    }
}

impl Program for Centrality {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        while !filter.is_full() {
            let source = self.graph.any_vertex(&mut self.random);
            self.from(source, filter);
        }
    }

    fn regions(&self) -> Vec<Region> {
        let mut regions = self.graph.regions();
        regions.push(Region::of(self.paths_at, |vertex| self.paths[vertex].to_le_bytes()));
        regions.push(Region::of(self.dependencies_at, |vertex| self.dependencies[vertex].to_le_bytes()));
        regions.push(Region::of(self.visited_at, |vertex| self.level_of[vertex].to_le_bytes()));
        regions.push(Region::of(self.levels_at, |place| self.graph.edges[place].to_le_bytes()));
        regions
    }
}
