//! Breadth-first search as in Ligra: small frontiers push along their edges; for large ones each unvisited vertex looks for a parent.

use super::Program;
use super::graph::Graph;
use super::layout::{Array, Layout, Region};
use crate::filter::{Data, Filter};
use crate::random::Random;

const UNVISITED: u32 = u32::MAX;

/// One search after the other, from random vertices.
pub struct Search {
    graph: Graph,
    parents: Vec<u32>,
    in_frontier: Vec<bool>,
    parents_at: Array,
    frontier_at: Array,
    next_at: Array,
    bits_at: Array,
    random: Random,
    bytes: u64,
}

/// On a graph of so many vertices.
pub fn make(vertices: u64, seed: u64) -> Box<dyn Program> {
    let mut layout = Layout::default();
    let graph = Graph::rmat(vertices, seed, &mut layout);
    let count = u64::from(graph.vertex_count());
    let [parents_at, frontier_at, next_at] = [4, 4, 4].map(|bytes| layout.array(bytes, count));
    let bits_at = layout.array(1, count);
    let length = graph.offsets.len() - 1;
    let (parents, in_frontier) = (vec![UNVISITED; length], vec![false; length]);
    let random = Random::new(seed.wrapping_add(1));
    let bytes = layout.bytes;
    Box::new(Search { graph, parents, in_frontier, parents_at, frontier_at, next_at, bits_at, random, bytes })
}

impl Search {
    fn search(&mut self, source: u32, filter: &mut Filter) {
        self.parents.fill(UNVISITED);
        for vertex in 0..self.graph.vertex_count() {
            filter.store(self.parents_at.at(vertex), Data::READY);
        }
        self.parents[source as usize] = source;
        let mut frontier = vec![source];
        while !frontier.is_empty() && !filter.is_full() {
            let out: usize = frontier.iter().map(|vertex| self.graph.degree(*vertex) as usize).sum();
            // Ligra's threshold: a twentieth of the edges.
            frontier = if (out + frontier.len()) * 20 > self.graph.edges.len() {
                self.pull(&frontier, filter)
            } else {
                self.push(&frontier, filter)
            };
            std::mem::swap(&mut self.frontier_at, &mut self.next_at);
        }
    }

    fn push(&mut self, frontier: &[u32], filter: &mut Filter) -> Vec<u32> {
        let mut next = Vec::new();
        for (place, vertex) in (0u64..).zip(frontier) {
            let known = filter.load(self.frontier_at.at(place), Data::READY);
            let record = filter.load(self.graph.vertices_at.at(*vertex), known);
            for edge in self.graph.edges_of(*vertex) {
                let neighbour = self.graph.neighbour(edge);
                let known = filter.load(self.graph.edges_at.at(edge), record);
                filter.load(self.parents_at.at(neighbour), known);
                filter.work(4);
                if self.parents[neighbour as usize] == UNVISITED {
                    self.parents[neighbour as usize] = *vertex;
                    filter.store(self.parents_at.at(neighbour), known);
                    filter.store(self.next_at.at(next.len() as u64), Data::READY);
                    next.push(neighbour);
                }
            }
        }
        next
    }

    fn pull(&mut self, frontier: &[u32], filter: &mut Filter) -> Vec<u32> {
        for vertex in frontier {
            self.in_frontier[*vertex as usize] = true;
            filter.store(self.bits_at.at(*vertex), Data::READY);
        }
        let mut next = Vec::new();
        for vertex in 0..self.graph.vertex_count() {
            filter.load(self.parents_at.at(vertex), Data::READY);
            filter.work(3);
            if self.parents[vertex as usize] != UNVISITED {
                continue;
            }
            let record = filter.load(self.graph.vertices_at.at(vertex), Data::READY);
            for edge in self.graph.edges_of(vertex) {
                let neighbour = self.graph.neighbour(edge);
                let known = filter.load(self.graph.edges_at.at(edge), record);
                filter.load(self.bits_at.at(neighbour), known);
                filter.work(4);
                if self.in_frontier[neighbour as usize] {
                    self.parents[vertex as usize] = neighbour;
                    filter.store(self.parents_at.at(vertex), Data::READY);
                    filter.store(self.next_at.at(next.len() as u64), Data::READY);
                    next.push(vertex);
                    break;
                }
            }
        }
        frontier.iter().for_each(|vertex| self.in_frontier[*vertex as usize] = false);
        next
    }
}

impl Program for Search {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        while !filter.is_full() {
            let source = self.graph.any_vertex(&mut self.random);
            self.search(source, filter);
        }
    }

    fn regions(&self) -> Vec<Region> {
        let mut regions = self.graph.regions();
        regions.push(Region::of(self.parents_at, |vertex| self.parents[vertex].to_le_bytes()));
        regions.push(Region::of(self.bits_at, |vertex| [u8::from(self.in_frontier[vertex])]));
        // Frontiers hold vertices in no order, as the neighbours of some vertex do.
        for at in [self.frontier_at, self.next_at] {
            regions.push(Region::of(at, |place| self.graph.edges[place].to_le_bytes()));
        }
        regions
    }
}
