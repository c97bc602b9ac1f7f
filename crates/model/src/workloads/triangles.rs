//! Triangle counting as in Ligra: for each edge, the sorted neighbours of both ends are merged.

use super::Program;
use super::graph::Graph;
use super::layout::{Layout, Region};
use crate::filter::{Data, Filter};
use std::cmp::Ordering;

struct Triangles {
    graph: Graph,
    found: u64,
    bytes: u64,
}

/// On a graph of so many vertices.
pub fn make(vertices: u64, seed: u64) -> Box<dyn Program> {
    let mut layout = Layout::default();
    let graph = Graph::rmat(vertices, seed, &mut layout);
    Box::new(Triangles { graph, found: 0, bytes: layout.bytes })
}

impl Triangles {
    /// Common neighbours of both that are below the smaller one, so that each triangle is found once.
    fn merge(&self, one: u32, other: u32, record: Data, filter: &mut Filter) -> u64 {
        let (mut a, mut b) = (self.graph.edges_of(one), self.graph.edges_of(other));
        let mut common = 0;
        let ready = filter.load(self.graph.vertices_at.at(one), Data::READY);
        while let (Some(left), Some(right)) = (a.clone().next(), b.clone().next()) {
            filter.load(self.graph.edges_at.at(left), ready);
            filter.load(self.graph.edges_at.at(right), record);
            filter.work(5);
            let (left, right) = (self.graph.neighbour(left), self.graph.neighbour(right));
            if left >= other || right >= other {
                break;
            }
            match left.cmp(&right) {
                Ordering::Less => drop(a.next()),
                Ordering::Greater => drop(b.next()),
                Ordering::Equal => {
                    common += 1;
                    a.next();
                    b.next();
                }
            }
        }
        common
    }
}

impl Program for Triangles {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, filter: &mut Filter) {
        while !filter.is_full() {
            for vertex in 0..self.graph.vertex_count() {
                let record = filter.load(self.graph.vertices_at.at(vertex), Data::READY);
                for edge in self.graph.edges_of(vertex) {
                    let neighbour = self.graph.neighbour(edge);
                    let known = filter.load(self.graph.edges_at.at(edge), record);
                    filter.work(3);
                    if neighbour < vertex {
                        let record = filter.load(self.graph.vertices_at.at(neighbour), known);
                        self.found += self.merge(vertex, neighbour, record, filter);
                    }
                }
                if filter.is_full() {
                    return;
                }
            }
        }
    }

    fn regions(&self) -> Vec<Region> {
        self.graph.regions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_trying_all_triples_finds() {
        let mut layout = Layout::default();
        let mut graph = Graph::rmat(64, 3, &mut layout);
        // Each edge once: R-MAT draws some several times.
        let mut edges: Vec<Vec<u32>> = (0..64)
            .map(|v| graph.edges_of(v).map(|edge| graph.neighbour(edge)).filter(|to| *to != v).collect())
            .collect();
        edges.iter_mut().for_each(Vec::dedup);
        graph.offsets = (0..=64).map(|v| u32::try_from(edges[..v].concat().len()).expect("small")).collect();
        graph.edges = edges.concat();
        let joined = |a: u32, b: u32| edges[a as usize].contains(&b);
        let mut expected = 0;
        for c in 0..64 {
            for b in 0..c {
                expected += (0..b).filter(|a| joined(*a, b) && joined(*a, c) && joined(b, c)).count() as u64;
            }
        }
        assert!(expected > 20, "{expected}");
        let program = Triangles { graph, found: 0, bytes: layout.bytes };
        let mut filter = Filter::new(program.bytes(), 0, u64::MAX);
        let mut found = 0;
        for vertex in 0..64 {
            for edge in program.graph.edges_of(vertex) {
                let neighbour = program.graph.neighbour(edge);
                if neighbour < vertex {
                    found += program.merge(vertex, neighbour, Data::READY, &mut filter);
                }
            }
        }
        assert_eq!(found, expected);
    }
}
