//! The workloads of Table 3: small programs of our own that do what the named ones do to memory, on data of the paper's size and sparsity. They
//! are stand-ins: neither the named codes nor their inputs. They run for as long as the filter takes references, over and over.

mod bfs;
mod centrality;
mod cnn;
mod graph;
mod hpcg;
mod kcore;
mod layout;
mod lookup;
mod matrix_profile;
mod needle;
mod pagerank;
mod particles;
mod spmv;
mod triangles;

use crate::compression::Compressor;
use crate::filter::{Filter, Stream};
use crate::parameters::paper_ratio;
pub use layout::Region;

/// A program that a stream is made of.
pub trait Program {
    /// Bytes of its data, from address 0 on.
    fn bytes(&self) -> u64;
    /// Runs until the filter is full.
    fn run(&mut self, filter: &mut Filter);
    /// Its data, region by region, as they are after the run.
    fn regions(&self) -> Vec<Region>;
}

/// A workload of Table 3.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in the paper.
    pub name: &'static str,
    /// What the program does.
    pub what: &'static str,
    /// What `--size` counts.
    pub unit: &'static str,
    /// How many of them the paper has.
    pub size: u64,
    /// More than these are refused: the program itself would take more than 4 GiB, or its address space more than 128 GiB.
    pub size_max: u64,
    /// The next size that the program has.
    round: fn(u64) -> u64,
    make: fn(u64, u64) -> Box<dyn Program>,
}

/// All of them, in the paper's order.
pub const WORKLOADS: [Workload; 13] = [
    Workload {
        name: "kc",
        what: "k-core decomposition",
        unit: "vertices",
        size: 1 << 20,
        size_max: 1 << 24,
        round: graph::round,
        make: kcore::make,
    },
    Workload {
        name: "tr",
        what: "triangle counting",
        unit: "vertices",
        size: 1 << 20,
        size_max: 1 << 24,
        round: graph::round,
        make: triangles::make,
    },
    Workload {
        name: "pr",
        what: "PageRank",
        unit: "vertices",
        size: 1 << 20,
        size_max: 1 << 24,
        round: graph::round,
        make: pagerank::make,
    },
    Workload {
        name: "nw",
        what: "Needleman-Wunsch",
        unit: "base pairs",
        size: 4096,
        size_max: 1 << 14,
        round: needle::round,
        make: needle::make,
    },
    Workload {
        name: "bf",
        what: "breadth-first search",
        unit: "vertices",
        size: 1 << 20,
        size_max: 1 << 24,
        round: graph::round,
        make: bfs::make,
    },
    Workload {
        name: "bc",
        what: "betweenness centrality",
        unit: "vertices",
        size: 1 << 20,
        size_max: 1 << 24,
        round: graph::round,
        make: centrality::make,
    },
    Workload {
        name: "ts",
        what: "matrix profile",
        unit: "elements",
        size: 262_144,
        size_max: 1 << 24,
        round: matrix_profile::round,
        make: matrix_profile::make,
    },
    Workload {
        name: "sp",
        what: "sparse matrix × vector",
        unit: "rows",
        size: 151_926,
        size_max: 1 << 21,
        round: spmv::round,
        make: spmv::make,
    },
    Workload {
        name: "sl",
        what: "sparse lengths sum",
        unit: "rows a table",
        size: 40_000,
        size_max: 1 << 24,
        round: lookup::round,
        make: lookup::make,
    },
    Workload {
        name: "hp",
        what: "conjugate gradient",
        unit: "points an edge",
        size: 104,
        size_max: 512,
        round: hpcg::round,
        make: hpcg::make,
    },
    Workload {
        name: "pf",
        what: "particle filter",
        unit: "pixels an edge",
        size: 4096,
        size_max: 1 << 14,
        round: particles::round,
        make: particles::make,
    },
    Workload {
        name: "dr",
        what: "Darknet-19 layers",
        unit: "pixels an edge",
        size: 256,
        size_max: 1 << 13,
        round: cnn::round,
        make: cnn::darknet,
    },
    Workload {
        name: "rs",
        what: "ResNet-50 layers",
        unit: "pixels an edge",
        size: 256,
        size_max: 1 << 13,
        round: cnn::round,
        make: cnn::resnet,
    },
];

/// What a workload asks memory for, and how its pages compress.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The misses of the LLC.
    pub stream: Stream,
    /// Of each page, its bytes when compressed as measured: the mean of its region.
    pub measured_bytes: Vec<u16>,
    /// It goes to the program's end, or as far as was asked for.
    pub has_end: bool,
}

impl Workload {
    /// The workload of that name.
    pub fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// The size that the program has if this one is asked for: graphs have powers of two of vertices, matrices whole tiles.
    ///
    /// # Errors
    /// It is above the largest.
    pub fn size_for(&self, size: u64) -> Result<u64, String> {
        if size > self.size_max {
            let Workload { name, unit, size_max, .. } = self;
            return Err(format!("--size {size} is too large for {name}: it has at most {size_max} {unit}"));
        }
        Ok((self.round)(size))
    }

    /// Runs the program of this size through the filter, and compresses samples of its data.
    pub fn trace(&self, size: u64, seed: u64, warm_up: u64, measured: u64, compressor: Compressor) -> Trace {
        self.trace_through(size, seed, compressor, |bytes| Filter::new(bytes, warm_up, measured))
    }

    /// The same with a filter of the caller's, for so many bytes of data.
    pub fn trace_through(
        &self,
        size: u64,
        seed: u64,
        compressor: Compressor,
        filter: impl FnOnce(u64) -> Filter,
    ) -> Trace {
        let mut program = (self.make)(size, seed);
        let mut filter = filter(program.bytes());
        program.run(&mut filter);
        let stream = filter.finish();
        let mut measured_bytes = vec![4096; stream.pages as usize];
        for region in program.regions() {
            measured_bytes[region.pages()].fill(region.compressed_page_bytes(compressor));
        }
        Trace { stream, measured_bytes, has_end: true }
    }

    /// Bytes of a page when compressed by the paper's ratio.
    pub fn paper_bytes(&self, compressor: Compressor) -> u16 {
        compressor.bytes_at(paper_ratio(self.name))
    }
}

impl Trace {
    /// The mean ratio of compression over the pages that the LLC asked for.
    pub fn measured_ratio(&self) -> f64 {
        let mut touched = vec![false; self.stream.pages as usize];
        self.stream.misses.iter().for_each(|miss| touched[miss.page() as usize] = true);
        let pages = touched.iter().zip(&self.measured_bytes).filter(|(touched, _)| **touched);
        let (count, bytes) = pages.fold((0u32, 0.0), |(count, sum), (_, bytes)| (count + 1, sum + f64::from(*bytes)));
        f64::from(count) * 4096.0 / bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NO_LINE;

    /// Sizes that run in a moment and are larger than the LLC, mostly.
    fn small(name: &str) -> u64 {
        match name {
            "nw" | "pf" => 1024,
            "ts" => 100_000,
            "sp" => 4000,
            "sl" => 2000,
            "hp" => 32,
            "dr" | "rs" => 64,
            "kc" => 1 << 14,
            _ => 1 << 16,
        }
    }

    fn trace(workload: &Workload, seed: u64) -> Trace {
        workload.trace(small(workload.name), seed, 100_000, 300_000, Compressor::Lz)
    }

    #[test]
    fn every_workload_fills_the_filter_and_misses_the_caches() {
        for workload in WORKLOADS {
            let Trace { stream, .. } = trace(&workload, 1);
            assert_eq!(stream.references, 400_000, "{}", workload.name);
            assert!(stream.instructions > stream.references, "{}", workload.name);
            assert!(stream.misses.len() > 1000, "{}: {}", workload.name, stream.misses.len());
            assert!(stream.measured_from > 0 && stream.measured_from < stream.misses.len(), "{}", workload.name);
            assert!(stream.touched_pages > 30 && stream.touched_pages <= stream.pages, "{}", workload.name);
        }
    }

    #[test]
    fn sizes_are_those_that_programs_have_and_the_largest_is_within_bounds() {
        for workload in WORKLOADS {
            assert_eq!(workload.size_for(workload.size), Ok(workload.size), "{}", workload.name);
            let least = workload.size_for(1).expect("small");
            assert_eq!(workload.size_for(least), Ok(least), "{}", workload.name);
            // The same program, whether its size was rounded before or not.
            let bytes = |size| (workload.make)(size, u64::MAX).bytes();
            assert_eq!(bytes(1), bytes(least), "{}", workload.name);
            assert!(workload.size_for(workload.size_max).is_ok() && workload.size_for(workload.size_max + 1).is_err());
            // What has no array of its own as large as its data is made at once; the others have at most a few hundred bytes an element.
            if matches!(workload.name, "sl" | "hp" | "dr" | "rs") {
                assert!(bytes(workload.size_max) <= 128 << 30, "{}: {}", workload.name, bytes(workload.size_max));
            }
        }
    }

    #[test]
    fn every_seed_is_good() {
        for workload in WORKLOADS {
            let least = workload.size_for(1).expect("small");
            workload.trace(least, u64::MAX, 0, 10_000, Compressor::Lz);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_one_another() {
        for workload in WORKLOADS {
            let lines = |seed| trace(&workload, seed).stream.misses;
            assert_eq!(lines(1), lines(1), "{}", workload.name);
        }
        let pagerank = Workload::named("pr").expect("a workload");
        assert_ne!(trace(pagerank, 1).stream.misses, trace(pagerank, 2).stream.misses);
    }

    #[test]
    fn misses_depend_on_earlier_ones_where_addresses_are_data() {
        for workload in WORKLOADS {
            let Trace { stream, .. } = trace(&workload, 1);
            assert!((1..).zip(&stream.misses).all(|(number, miss)| miss.after < number), "{}", workload.name);
            let dependent = stream.misses.iter().filter(|miss| miss.after != 0).count();
            if matches!(workload.name, "tr" | "pr" | "bc" | "sl") {
                assert!(dependent > 0, "{}", workload.name);
            }
            if matches!(workload.name, "nw" | "ts" | "dr" | "rs") {
                assert_eq!(dependent, 0, "{}", workload.name);
            }
        }
    }

    #[test]
    fn pages_compress_between_not_at_all_and_the_zeros_of_a_page() {
        for workload in WORKLOADS {
            let trace = trace(&workload, 1);
            assert!(trace.measured_bytes.iter().all(|bytes| (44..=4096).contains(bytes)), "{}", workload.name);
            let ratio = trace.measured_ratio();
            assert!((1.0..94.0).contains(&ratio), "{}: {ratio}", workload.name);
        }
        let bytes = Workload::named("dr").expect("a workload").paper_bytes(Compressor::Lz);
        assert_eq!(bytes, 2885);
    }

    #[test]
    fn programs_that_write_evict_dirty_lines() {
        let needle = Workload::named("nw").expect("a workload").trace(2048, 1, 0, 3_000_000, Compressor::Lz);
        assert!(needle.stream.misses.iter().any(|miss| miss.dirty_victim != NO_LINE));
    }
}
