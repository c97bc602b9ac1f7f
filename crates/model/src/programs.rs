//! Programs that run at once on one machine (§6.10): each on cores of its own and in an address space of its own, behind that of the one before.

use crate::cache::NO_LINE;
use crate::filter::{Miss, Stream};
use crate::parameters::LINES_PER_PAGE;
use std::borrow::Cow;
use std::ops::Range;

/// What a program does, and how its pages compress.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// Its misses.
    pub stream: &'a Stream,
    /// Bytes of each page of its address space after compression.
    pub compressed_bytes: &'a [u16],
}

/// One of the programs, in the misses of all.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its misses.
    pub misses: Range<usize>,
    /// The first that is measured.
    pub measured_from: usize,
    /// Instructions that are measured: of each core those behind its first measured miss, from whose dispatch on time is taken.
    pub instructions: u64,
    /// Of each core, the instructions after its last miss; none where no miss is measured.
    pub tails: Vec<u64>,
    /// The cores that it runs on.
    pub cores: Range<usize>,
}

/// All of them, as one stream.
#[derive(Debug)]
pub struct Programs<'a> {
    /// The misses of one program behind those of another.
    pub misses: Cow<'a, [Miss]>,
    /// Which are whose.
    pub parts: Vec<Part>,
    /// Pages of all address spaces.
    pub pages: u32,
    /// Of these, how many are asked for.
    pub touched_pages: u32,
    /// Of each page, its bytes on the network when compressed.
    pub compressed_bytes: Cow<'a, [u16]>,
}

impl<'a> Programs<'a> {
    /// # Panics
    /// If a page has no compressed size, or if there are more lines than 32 bits count: [`fit`] says so before.
    pub fn new(running: &[Running<'a>]) -> Programs<'a> {
        assert!(fit(running.iter().map(|program| program.stream)), "fewer than 2^32 lines");
        let mut programs = Programs {
            misses: Cow::Borrowed(&[]),
            parts: Vec::new(),
            pages: 0,
            touched_pages: 0,
            compressed_bytes: Cow::Borrowed(&[]),
        };
        for program in running {
            programs.add(program);
        }
        programs
    }

    fn add(&mut self, program: &Running<'a>) {
        let Running { stream, compressed_bytes } = *program;
        let compressed_bytes = compressed_bytes.get(..stream.pages as usize).expect("a compressed size for each page");
        let (first, first_core) = (self.misses.len(), self.parts.last().map_or(0, |part| part.cores.end));
        let (instructions, tails) = measured(stream);
        self.parts.push(Part {
            misses: first..first + stream.misses.len(),
            measured_from: first + stream.measured_from,
            instructions,
            tails,
            cores: first_core..first_core + stream.cores as usize,
        });
        if first_core == 0 {
            (self.misses, self.compressed_bytes) =
                (Cow::Borrowed(stream.misses.as_slice()), Cow::Borrowed(compressed_bytes));
        } else {
            let lines = self.pages * LINES_PER_PAGE;
            let (before, core) = (u32::try_from(first), u8::try_from(first_core));
            let (before, core) = (before.expect("fewer than 2^32 misses"), core.expect("at most 255 cores"));
            let behind = |miss: &Miss| Miss {
                line: miss.line + lines,
                dirty_victim: if miss.dirty_victim == NO_LINE { NO_LINE } else { miss.dirty_victim + lines },
                after: if miss.after == 0 { 0 } else { miss.after + before },
                core: miss.core + core,
                ..*miss
            };
            self.misses.to_mut().extend(stream.misses.iter().map(behind));
            self.compressed_bytes.to_mut().extend(compressed_bytes);
        }
        self.pages += stream.pages;
        self.touched_pages += stream.touched_pages;
    }
}

/// Instructions behind the first measured miss of each core, and of these the ones after its last.
fn measured(stream: &Stream) -> (u64, Vec<u64>) {
    let mut has_begun = vec![false; stream.cores as usize];
    let mut instructions = 0;
    for miss in &stream.misses[stream.measured_from..] {
        if std::mem::replace(&mut has_begun[usize::from(miss.core)], true) {
            instructions += u64::from(miss.instructions);
        }
    }
    let tails: Vec<u64> =
        stream.tails.iter().zip(has_begun).map(|(tail, begun)| if begun { *tail } else { 0 }).collect();
    (instructions + tails.iter().sum::<u64>(), tails)
}

/// Whether the lines of all programs can be counted.
pub fn fit<'a>(streams: impl Iterator<Item = &'a Stream>) -> bool {
    streams.map(|stream| u64::from(stream.pages)).sum::<u64>() <= u64::from(u32::MAX / LINES_PER_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(misses: Vec<Miss>, pages: u32, cores: u32) -> Stream {
        let instructions = misses.iter().map(|miss| u64::from(miss.instructions)).sum();
        let tails = vec![7; cores as usize];
        Stream {
            misses,
            pages,
            touched_pages: 1,
            measured_from: 1,
            references: 2,
            instructions,
            tails,
            cores,
            is_cut: false,
        }
    }

    #[test]
    fn programs_lie_behind_each_other_in_memory_misses_and_cores() {
        let miss = |line, dirty_victim, after, core| Miss {
            line,
            dirty_victim,
            after,
            instructions: 10,
            after_cycles: 3,
            is_load: true,
            core,
        };
        let first = stream(vec![miss(0, NO_LINE, 0, 0), miss(64, 1, 1, 1)], 2, 2);
        let second = stream(vec![miss(5, NO_LINE, 0, 0), miss(6, 7, 1, 0), miss(7, NO_LINE, 0, 0)], 1, 1);
        let running = [(&first, [1, 2].as_slice()), (&second, [3, 4].as_slice())]
            .map(|(stream, compressed_bytes)| Running { stream, compressed_bytes });
        let programs = Programs::new(&running);
        assert_eq!(programs.misses[..2], first.misses);
        assert_eq!(programs.misses[2..], [miss(133, NO_LINE, 0, 2), miss(134, 135, 3, 2), miss(135, NO_LINE, 0, 2)]);
        assert_eq!((programs.pages, programs.touched_pages, &*programs.compressed_bytes), (3, 2, [1, 2, 3].as_slice()));
        let parts: Vec<_> =
            programs.parts.iter().map(|part| (part.misses.clone(), part.measured_from, part.cores.clone())).collect();
        assert_eq!(parts, [(0..2, 1, 0..2), (2..5, 3, 2..3)]);
        // Time is taken from the first measured miss of a core: what was before it does not count, nor does a core that has none.
        let measured: Vec<_> = programs.parts.iter().map(|part| (part.instructions, part.tails.clone())).collect();
        assert_eq!(measured, [(7, vec![0, 7]), (17, vec![7])]);
        let large = Stream { pages: u32::MAX / 64, ..Stream::default() };
        assert!(fit([&large].into_iter()) && !fit([&large, &second].into_iter()));
    }
}
