//! PageRank over a random graph in compressed rows, in Rust.
//!
//! usage: pagerank MIB [ROUNDS]      (about so much memory)
//! Output: a sum of the ranks, the same on every run and build; on standard error the seconds of the rounds without what makes the graph.

mod random;

use random::Random;
use std::time::Instant;

/// Edges for each vertex, on average.
const DEGREE: u64 = 4;
/// Part of a rank that goes along edges, in 64ths: fixed-point arithmetic has one result.
const DAMPING: u64 = 54;
const ONE: u64 = 1 << 20;

/// Edges by the vertex that they lead to.
struct Graph {
    rows: Vec<u64>,
    from: Vec<u32>,
    /// How many edges leave each vertex.
    out: Vec<u32>,
}

fn graph(vertices: usize) -> Graph {
    let mut random = Random(1);
    let (mut rows, mut from, mut out) = (vec![0], Vec::new(), vec![0_u32; vertices]);
    from.reserve_exact(vertices * DEGREE as usize + 2 * DEGREE as usize);
    for vertex in 0..vertices as u64 {
        // As many edges in the end as on average.
        let end = (vertex + 1) * DEGREE + random.next() % DEGREE;
        while (from.len() as u64) < end {
            let source = (random.next() % vertices as u64) as u32;
            out[source as usize] += 1;
            from.push(source);
        }
        rows.push(end);
    }
    Graph { rows, from, out }
}

/// What each vertex gives along each of its edges.
#[inline(never)]
fn divide(ranks: &[u64], out: &[u32], shares: &mut [u64]) {
    for ((share, rank), out) in shares.iter_mut().zip(ranks).zip(out) {
        *share = rank / u64::from((*out).max(1));
    }
}

#[inline(never)]
fn gather(graph: &Graph, shares: &[u64], ranks: &mut [u64]) {
    // Without checks of bounds, each of which is a way out of the loop: such loops are not hinted.
    for (row, rank) in graph.rows.windows(2).zip(ranks) {
        // SAFETY: rows begin and end within the edges.
        let from = unsafe { graph.from.get_unchecked(row[0] as usize..row[1] as usize) };
        // SAFETY: sources are vertices.
        let share = |source: &u32| unsafe { *shares.get_unchecked(*source as usize) };
        let sum = from.iter().fold(0_u64, |sum, source| sum.wrapping_add(share(source)));
        *rank = (64 - DAMPING) * ONE / 64 + sum / 64 * DAMPING;
    }
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<usize>().unwrap_or(0));
    let (mib, rounds) = (words.next().unwrap_or(0), words.next().unwrap_or(3));
    if mib == 0 {
        eprintln!("usage: pagerank MIB [ROUNDS]");
        std::process::exit(2);
    }
    let bytes_per_vertex = 8 + 4 * DEGREE as usize + 4 + 8 + 8;
    let graph = graph((mib << 20) / bytes_per_vertex);
    let vertices = graph.out.len();
    let (mut ranks, mut shares) = (vec![ONE; vertices], vec![0; vertices]);
    let begin = Instant::now();
    for _ in 0..rounds {
        divide(&ranks, &graph.out, &mut shares);
        gather(&graph, &shares, &mut ranks);
    }
    eprintln!("seconds {:.6}", begin.elapsed().as_secs_f64());
    let sum = ranks.iter().enumerate().fold(0_u64, |sum, (vertex, rank)| sum.wrapping_add(rank.wrapping_mul(vertex as u64 % 97)));
    println!("{sum}");
}
