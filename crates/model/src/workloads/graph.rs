//! Graphs of power-law degrees (R-MAT, Chakrabarti et al., SDM 2004, with Ligra's probabilities: 0.5, 0.1, 0.1), as adjacency arrays.

use super::layout::{Array, Layout, Region};
use crate::random::Random;

/// Directed edges for each vertex (Table 3: 1 M vertices, 10 M edges); each edge is there in both directions.
const DEGREE: u64 = 10;

/// Vertices of the graph for so many that were asked for.
pub fn round(vertices: u64) -> u64 {
    vertices.next_power_of_two().max(2)
}

/// An undirected graph, as Ligra has it: a record for each vertex (where its edges begin, and how many it has) and one array of neighbours.
#[derive(Debug)]
pub struct Graph {
    /// Where the edges of a vertex begin; one more than vertices.
    pub offsets: Vec<u32>,
    /// Neighbours, sorted for each vertex.
    pub edges: Vec<u32>,
    /// Records of 16 bytes.
    pub vertices_at: Array,
    /// Numbers of 4 bytes.
    pub edges_at: Array,
}

impl Graph {
    /// An R-MAT graph, placed in `layout`. The number of vertices is rounded up to a power of two.
    pub fn rmat(vertices: u64, seed: u64, layout: &mut Layout) -> Graph {
        let levels = round(vertices).trailing_zeros();
        let count = 1usize << levels;
        let mut random = Random::new(seed);
        let pairs: Vec<(u32, u32)> =
            (0..(1u64 << levels) * DEGREE / 2).map(|_| rmat_edge(levels, &mut random)).collect();
        let mut offsets = vec![0u32; count + 1];
        for (from, to) in &pairs {
            offsets[*from as usize + 1] += 1;
            offsets[*to as usize + 1] += 1;
        }
        for vertex in 0..count {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut next = offsets.clone();
        let mut edges = vec![0u32; 2 * pairs.len()];
        for (from, to) in pairs {
            for (one, other) in [(from, to), (to, from)] {
                edges[next[one as usize] as usize] = other;
                next[one as usize] += 1;
            }
        }
        for vertex in 0..count {
            edges[offsets[vertex] as usize..offsets[vertex + 1] as usize].sort_unstable();
        }
        let (vertices_at, edges_at) = (layout.array(16, count as u64), layout.array(4, edges.len() as u64));
        Graph { offsets, edges, vertices_at, edges_at }
    }

    /// How many vertices there are.
    pub fn vertex_count(&self) -> u32 {
        u32::try_from(self.offsets.len() - 1).expect("vertices are counted in 32 bits")
    }

    /// A random vertex.
    pub fn any_vertex(&self, random: &mut Random) -> u32 {
        u32::try_from(random.below(u64::from(self.vertex_count()))).expect("below the number of vertices")
    }

    /// Where the edges of a vertex lie.
    pub fn edges_of(&self, vertex: u32) -> std::ops::Range<u32> {
        self.offsets[vertex as usize]..self.offsets[vertex as usize + 1]
    }

    /// The neighbour at the end of an edge.
    pub fn neighbour(&self, edge: u32) -> u32 {
        self.edges[edge as usize]
    }

    /// How many edges a vertex has.
    pub fn degree(&self, vertex: u32) -> u32 {
        self.edges_of(vertex).len().try_into().expect("edges are counted in 32 bits")
    }

    /// Records and neighbours.
    pub fn regions(&self) -> Vec<Region> {
        let record = |vertex: usize| {
            let mut bytes = [0; 16];
            let pointer = 0x7f00_0000_0000 + 4 * u64::from(self.offsets[vertex]);
            bytes[..8].copy_from_slice(&pointer.to_le_bytes());
            bytes[8..12].copy_from_slice(&(self.offsets[vertex + 1] - self.offsets[vertex]).to_le_bytes());
            bytes
        };
        vec![Region::of(self.vertices_at, record), Region::of(self.edges_at, |edge| self.edges[edge].to_le_bytes())]
    }
}

fn rmat_edge(levels: u32, random: &mut Random) -> (u32, u32) {
    let (mut from, mut to) = (0, 0);
    for _ in 0..levels {
        // In tenths: 5 for the upper left quarter, 1 each for its neighbours, 3 for the lower right.
        let (down, right) = match random.below(10) {
            0..5 => (0, 0),
            5 => (0, 1),
            6 => (1, 0),
            _ => (1, 1),
        };
        (from, to) = (from << 1 | down, to << 1 | right);
    }
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_is_there_both_ways_and_degrees_are_uneven() {
        let graph = Graph::rmat(1000, 1, &mut Layout::default());
        assert_eq!((graph.vertex_count(), graph.edges.len()), (1024, 10_240));
        for vertex in 0..1024 {
            for edge in graph.edges_of(vertex) {
                let back = graph.edges_of(graph.neighbour(edge)).any(|edge| graph.neighbour(edge) == vertex);
                assert!(back, "{vertex}");
            }
        }
        let largest = (0..1024).map(|vertex| graph.degree(vertex)).max();
        assert!(largest > Some(50), "{largest:?}");
    }
}
