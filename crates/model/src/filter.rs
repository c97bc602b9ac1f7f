//! Loads and stores of a program through the caches of its core. What misses the last level is kept, and replayed for each scheme.
//!
//! ```text
//!   workload ──load, store, work──► L1 ──► L2 ──► LLC ──► Stream: one Miss for each line that memory is asked for
//! ```
//!
//! The caches hold the same lines in every scheme, because each scheme fills each missed line: they are walked once. The LLC includes the
//! others. Of several cores each has an L1 and an L2; a program's references are dealt to them in chunks, in turns, as iterations of a parallel loop are.
//! A miss has what the core model needs: the instructions before it, the miss whose data its address depends on, and the dirty line
//! that it replaces. Hits cost no time of their own but in a chain of dependent loads, where their latency is added up.

use crate::cache::{Cache, NO_LINE, Way};
use crate::parameters::{CHUNK_REFERENCES, CacheShape, L1, L2, LINE_BYTES, LINES_PER_PAGE, LLC};

/// When the data of a load are there: `cycles` after those of a miss. Loads and stores whose address is computed from the data come after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Data {
    /// The number of the miss, from 1; 0: none.
    pub miss: u32,
    /// Cycles of the caches since.
    pub cycles: u16,
}

impl Data {
    /// Of a constant or a register: always there.
    pub const READY: Data = Data { miss: 0, cycles: 0 };

    /// When both are there. The later miss is taken to be the later to arrive.
    pub fn and(self, other: Data) -> Data {
        match self.miss.cmp(&other.miss) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Equal => Data { miss: self.miss, cycles: self.cycles.max(other.cycles) },
        }
    }
}

/// A line that the LLC asks memory for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    /// Which line: address / 64.
    pub line: u32,
    /// The dirty line that it replaces, or [`NO_LINE`].
    pub dirty_victim: u32,
    /// The miss that its address depends on, from 1; 0: none.
    pub after: u32,
    /// Instructions from the miss before to this one, itself included.
    pub instructions: u32,
    /// Cycles of cache hits between the data that it depends on and its address.
    pub after_cycles: u16,
    /// Whether the core waits for its data: a store retires without.
    pub is_load: bool,
    /// Which core.
    pub core: u8,
}

impl Miss {
    /// The page of the line.
    pub fn page(&self) -> u32 {
        self.line / LINES_PER_PAGE
    }
}

/// What the LLC asks memory for, in program order.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// The misses.
    pub misses: Vec<Miss>,
    /// Pages of the address space: all pages of `misses` are below.
    pub pages: u32,
    /// Of these, how many are asked for.
    pub touched_pages: u32,
    /// The first miss that is measured; those before warm up local memory.
    pub measured_from: usize,
    /// Loads and stores that went in.
    pub references: u64,
    /// Instructions up to the last reference that was taken, or to the program's end if it came before; loads and stores among them.
    pub instructions: u64,
    /// Of each core, the instructions after its last miss. An empty list: none.
    pub tails: Vec<u64>,
    /// Cores that the program runs on.
    pub cores: u32,
    /// There are more misses than are kept: what was taken ends in the middle.
    pub is_cut: bool,
}

/// Misses that are kept at most, of all programs that run at once: with what the machine keeps of each, 61 bytes, 16 GiB.
pub const MISSES_MAX: usize = 1 << 28;

/// What a core has of its own.
#[derive(Debug)]
struct Private {
    l1: Cache,
    l2: Cache,
    /// Since its last miss.
    instructions: u64,
}

/// Takes a program's loads and stores until it has seen enough of them.
#[derive(Debug)]
pub struct Filter {
    cores: Vec<Private>,
    /// The one at work, and its references until the next one is.
    core: usize,
    chunk_left: u64,
    llc: Cache,
    touched: Vec<u64>,
    stream: Stream,
    warm_up: u64,
    references_max: u64,
    misses_max: usize,
}

impl Filter {
    /// For a program with `bytes` of data, from address 0 on: `warm_up` references, then `measured` ones.
    ///
    /// # Panics
    /// If the data are larger than 256 GiB: lines are counted in 32 bits.
    pub fn new(bytes: u64, warm_up: u64, measured: u64) -> Filter {
        let lines = bytes.div_ceil(LINE_BYTES);
        let pages = u32::try_from(lines).expect("at most 256 GiB of data").div_ceil(LINES_PER_PAGE);
        Filter {
            cores: vec![Private::new()],
            core: 0,
            chunk_left: CHUNK_REFERENCES,
            llc: Cache::new(LLC),
            touched: vec![0; pages.div_ceil(64) as usize],
            stream: Stream { pages, cores: 1, ..Stream::default() },
            warm_up,
            references_max: warm_up + measured,
            misses_max: MISSES_MAX,
        }
    }

    /// The program runs on so many cores, and shares the LLC with others in equal parts: `programs` in all.
    pub fn on(mut self, cores: u8, programs: usize) -> Filter {
        self.cores = (0..cores).map(|_| Private::new()).collect();
        self.stream.cores = cores.into();
        self.misses_max = MISSES_MAX / programs;
        let ways = LLC.ways / programs;
        self.llc = Cache::new(CacheShape { bytes: LLC.bytes / LLC.ways as u64 * ways as u64, ways, ..LLC });
        self
    }

    /// Makes room for one more page behind the others, and returns its number; `Err`: there are so many already that no more are counted.
    ///
    /// # Errors
    /// How many there are.
    pub fn add_page(&mut self) -> Result<u32, u32> {
        let page = self.stream.pages;
        if page == u32::MAX / LINES_PER_PAGE {
            return Err(page);
        }
        self.stream.pages += 1;
        self.touched.resize(self.stream.pages.div_ceil(64) as usize, 0);
        Ok(page)
    }

    /// Whether enough references were seen; further ones change nothing that is measured.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.stream.references >= self.references_max
    }

    /// Instructions that touch no memory. A full filter counts none: they are behind the last reference.
    #[inline]
    pub fn work(&mut self, instructions: u64) {
        if !self.is_full() {
            self.cores[self.core].instructions += instructions;
        }
    }

    /// A load at `address`, which is known once `after` is.
    #[inline]
    pub fn load(&mut self, address: u64, after: Data) -> Data {
        self.access(address, after, true)
    }

    /// A store at `address`, which is known once `after` is.
    #[inline]
    pub fn store(&mut self, address: u64, after: Data) {
        self.access(address, after, false);
    }

    /// The stream, when the program is through.
    pub fn finish(mut self) -> Stream {
        self.stream.touched_pages = self.touched.iter().map(|word| word.count_ones()).sum();
        self.stream.tails = self.cores.iter().map(|core| core.instructions).collect();
        self.stream.instructions += self.stream.tails.iter().sum::<u64>();
        if self.stream.references <= self.warm_up {
            self.stream.measured_from = 0;
        }
        self.stream
    }

    #[inline]
    fn access(&mut self, address: u64, after: Data, is_load: bool) -> Data {
        if self.is_full() {
            return Data::READY;
        }
        if self.stream.references == self.warm_up {
            self.stream.measured_from = self.stream.misses.len();
        }
        self.stream.references += 1;
        if self.chunk_left == 0 {
            self.core = (self.core + 1) % self.cores.len();
            self.chunk_left = CHUNK_REFERENCES;
        }
        self.chunk_left -= 1;
        let core = &mut self.cores[self.core];
        core.instructions += 1;
        #[expect(clippy::cast_possible_truncation, reason = "an address is below the 2^32 lines that `new` checks")]
        let line = (address / LINE_BYTES) as u32;
        if let Some(way) = core.l1.use_line(line) {
            way.dirty |= !is_load;
            return later(way.miss, after, L1.latency_cycles);
        }
        self.access_beyond_l1(line, after, is_load)
    }

    fn access_beyond_l1(&mut self, line: u32, after: Data, is_load: bool) -> Data {
        let (miss, data) = if let Some(way) = self.cores[self.core].l2.use_line(line) {
            (way.miss, later(way.miss, after, L1.latency_cycles + L2.latency_cycles))
        } else {
            let (miss, data) = match self.llc.use_line(line) {
                Some(way) => {
                    let latency = L1.latency_cycles + L2.latency_cycles + LLC.latency_cycles;
                    (way.miss, later(way.miss, after, latency))
                }
                None => {
                    let miss = self.miss(line, after, is_load);
                    (miss, Data { miss, cycles: 0 })
                }
            };
            if let Some(old) = self.cores[self.core].l2.fill(Way { line, miss, dirty: false })
                && old.dirty
            {
                self.llc.write(old.line);
            }
            (miss, data)
        };
        let core = &mut self.cores[self.core];
        if let Some(old) = core.l1.fill(Way { line, miss, dirty: !is_load })
            && old.dirty
            && !core.l2.write(old.line)
        {
            self.llc.write(old.line);
        }
        data
    }

    /// Records a miss of the LLC, puts the line there, and returns the miss's number.
    fn miss(&mut self, line: u32, after: Data, is_load: bool) -> u32 {
        if self.stream.misses.len() == self.misses_max {
            self.stream.is_cut = true;
            // Full: no more is taken.
            self.references_max = 0;
            return 0;
        }
        let number = u32::try_from(self.stream.misses.len() + 1).expect("fewer than 2^32 misses");
        let mut dirty_victim = NO_LINE;
        if let Some(old) = self.llc.fill(Way { line, miss: number, dirty: false }) {
            let mut is_dirty = old.dirty;
            for core in &mut self.cores {
                is_dirty |= core.l1.invalidate(old.line);
                is_dirty |= core.l2.invalidate(old.line);
            }
            if is_dirty {
                dirty_victim = old.line;
            }
        }
        let page = line / LINES_PER_PAGE;
        assert!(page < self.stream.pages, "line {line} is beyond the data");
        self.touched[(page / 64) as usize] |= 1 << (page % 64);
        let since = std::mem::take(&mut self.cores[self.core].instructions);
        let instructions = u32::try_from(since).unwrap_or(u32::MAX);
        self.stream.instructions += since;
        let (after, after_cycles) = (after.miss, after.cycles);
        let core = u8::try_from(self.core).expect("cores are counted in 8 bits");
        self.stream.misses.push(Miss { line, dirty_victim, after, instructions, after_cycles, is_load, core });
        number
    }
}

impl Private {
    fn new() -> Private {
        Private { l1: Cache::new(L1), l2: Cache::new(L2), instructions: 0 }
    }
}

/// When data of a line that `miss` brought are there, if its address is known `after`.
#[inline]
fn later(miss: u32, after: Data, cycles: u16) -> Data {
    let address_is_last = after.miss >= miss;
    let known = if address_is_last { after.cycles } else { 0 };
    Data { miss: miss.max(after.miss), cycles: known.saturating_add(cycles) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 1 << 40;

    #[test]
    fn a_line_misses_once_and_its_other_words_hit() {
        let mut filter = Filter::new(4096, 0, ALL);
        let first = filter.load(0, Data::READY);
        assert_eq!(first, Data { miss: 1, cycles: 0 });
        assert_eq!(filter.load(8, Data::READY), Data { miss: 1, cycles: 4 });
        filter.work(10);
        assert_eq!(filter.load(64, first), Data { miss: 2, cycles: 0 });
        let stream = filter.finish();
        assert_eq!(stream.misses.len(), 2);
        assert_eq!((stream.misses[1].instructions, stream.misses[1].after), (12, 1));
        assert_eq!((stream.touched_pages, stream.references, stream.instructions), (1, 3, 13));
    }

    #[test]
    fn a_program_with_more_misses_than_are_kept_is_cut_and_takes_no_more() {
        let mut filter = Filter { misses_max: 3, ..Filter::new(1 << 20, 0, ALL) };
        (0..3).for_each(|line| filter.store(line * 64, Data::READY));
        assert!(!filter.is_full(), "what hits may follow");
        filter.load(0, Data::READY);
        filter.load(3 * 64, Data::READY);
        filter.work(10);
        assert!(filter.is_full());
        filter.load(4 * 64, Data::READY);
        let stream = filter.finish();
        assert_eq!((stream.misses.len(), stream.is_cut), (3, true));
    }

    #[test]
    fn a_chain_of_hits_adds_up_behind_the_miss_it_depends_on() {
        let mut filter = Filter::new(4096, 0, ALL);
        filter.load(64, Data::READY);
        let miss = filter.load(0, Data::READY);
        let hit = filter.load(64, miss);
        assert_eq!(hit, Data { miss: 2, cycles: 4 });
        assert_eq!(filter.load(72, hit), Data { miss: 2, cycles: 8 });
        // The line is on its way since an older miss than the address: the address is last. The other way round it is the line.
        let newer = filter.load(128, Data::READY);
        assert_eq!(filter.load(136, hit), Data { miss: 3, cycles: 4 });
        filter.load(192, Data { miss: newer.miss, cycles: 9 });
        assert_eq!(filter.finish().misses[3].after_cycles, 9);
    }

    #[test]
    fn a_dirty_line_leaves_with_the_miss_that_replaces_it() {
        // 17 lines of one set of the LLC: 4096 sets of 64 bytes, 16 ways.
        let stride = 4096 * 64;
        let mut filter = Filter::new(64 * stride, 0, ALL);
        filter.store(0, Data::READY);
        for step in 1..=16 {
            filter.load(step * stride, Data::READY);
        }
        // Line 1 × stride is clean.
        filter.load(17 * stride, Data::READY);
        let stream = filter.finish();
        assert!(!stream.misses[0].is_load && stream.misses[1].is_load);
        let victims: Vec<u32> = stream.misses.iter().map(|miss| miss.dirty_victim).collect();
        assert_eq!(victims[16], 0);
        assert!(victims[..16].iter().chain(&victims[17..]).all(|victim| *victim == NO_LINE), "{victims:?}");
    }

    #[test]
    fn a_line_in_the_first_level_leaves_with_its_line_of_the_last() {
        // Line 0 stays in L1 by its use, and the LLC, which sees none of it, evicts it all the same.
        let stride = 4096 * 64;
        let mut filter = Filter::new(64 * stride, 0, ALL);
        for step in 1..=16 {
            filter.store(0, Data::READY);
            filter.load(step * stride, Data::READY);
        }
        assert_eq!(filter.load(0, Data::READY).miss, 18);
        assert_eq!(filter.finish().misses[16].dirty_victim, 0);
    }

    #[test]
    fn every_line_written_leaves_dirty_as_often_as_it_was_written_between_misses() {
        // Stores all over 16 MiB, twice: each miss but those that fill the LLC replaces a dirty line.
        let mut filter = Filter::new(16 << 20, 0, ALL);
        let lines = (16 << 20) / 64;
        for line in (0..lines).chain(0..lines) {
            filter.store(line * 64, Data::READY);
        }
        let stream = filter.finish();
        assert_eq!(stream.misses.len() as u64, 2 * lines);
        let dirty = stream.misses.iter().filter(|miss| miss.dirty_victim != NO_LINE).count();
        assert_eq!(dirty as u64, 2 * lines - (4 << 20) / 64);
    }

    #[test]
    fn pages_that_are_added_are_behind_the_others_up_to_the_last_that_is_counted() {
        let mut filter = Filter::new(4096, 0, ALL);
        assert_eq!((filter.add_page(), filter.add_page()), (Ok(1), Ok(2)));
        filter.load(2 * 4096, Data::READY);
        filter.stream.pages = u32::MAX / LINES_PER_PAGE;
        assert_eq!(filter.add_page(), Err(u32::MAX / 64));
        assert_eq!((filter.stream.misses[0].line, filter.finish().touched_pages), (128, 1));
    }

    #[test]
    fn references_are_dealt_to_cores_in_chunks_with_their_instructions() {
        let mut filter = Filter::new(1 << 20, 0, ALL).on(2, 1);
        for step in 0..3 * CHUNK_REFERENCES {
            filter.work(2);
            filter.load(64 * (step % 16_384), Data::READY);
        }
        let stream = filter.finish();
        let of = |core| stream.misses.iter().filter(move |miss| miss.core == core).map(|miss| miss.line);
        assert_eq!(of(1).collect::<Vec<_>>(), (1024..2048).collect::<Vec<_>>());
        assert_eq!(of(0).collect::<Vec<_>>(), (0..1024).chain(2048..3072).collect::<Vec<_>>());
        // The work before a chunk's first reference counts for the core before: a chunk ends with a reference.
        assert_eq!((stream.instructions, stream.cores), (9 * CHUNK_REFERENCES, 2));
        assert!(stream.misses.iter().all(|miss| miss.instructions <= 5), "{:?}", stream.misses[1024]);
    }

    #[test]
    fn cores_share_the_last_level_and_have_the_others_for_themselves() {
        let mut filter = Filter::new(4096, 0, ALL).on(2, 1);
        (0..CHUNK_REFERENCES).for_each(|_| filter.store(0, Data::READY));
        // The other core: its first load finds the line in the LLC, its next ones in its own L1.
        assert_eq!(filter.load(0, Data::READY), Data { miss: 1, cycles: 4 + 8 + 30 });
        assert_eq!(filter.load(0, Data::READY), Data { miss: 1, cycles: 4 });
        assert_eq!(filter.finish().misses.len(), 1);
    }

    #[test]
    fn a_line_that_any_core_has_written_to_leaves_dirty() {
        let stride = 4096 * 64;
        let mut filter = Filter::new(64 * stride, 0, ALL).on(2, 1);
        filter.store(0, Data::READY);
        for _ in 1..CHUNK_REFERENCES {
            filter.load(0, Data::READY);
        }
        for step in 1..=16 {
            filter.load(step * stride, Data::READY);
        }
        let misses = filter.finish().misses;
        assert_eq!((misses[16].dirty_victim, misses[16].core), (0, 1));
    }

    #[test]
    fn programs_have_equal_parts_of_the_last_level() {
        let stride = 4096 * 64;
        for (programs, ways) in [(1, 16), (2, 8), (3, 5), (4, 4)] {
            let mut filter = Filter::new(64 * stride, 0, ALL).on(1, programs);
            (0..=ways).for_each(|step| filter.store(step * stride, Data::READY));
            let misses = filter.finish().misses;
            let victims: Vec<u32> =
                misses.iter().map(|miss| miss.dirty_victim).filter(|line| *line != NO_LINE).collect();
            assert_eq!(victims, [0], "{programs}");
        }
    }

    #[test]
    fn the_filter_is_full_after_warm_up_and_measured_references() {
        let mut filter = Filter::new(1 << 20, 2, 3);
        for step in 0..10 {
            filter.work(6);
            filter.load(step * 64, Data::READY);
        }
        assert!(filter.is_full());
        let stream = filter.finish();
        assert_eq!((stream.references, stream.misses.len(), stream.measured_from), (5, 5, 2));
        // Five references and the work before each of them: what follows the last one is not of the stream.
        assert_eq!((stream.instructions, stream.tails), (35, vec![0]));
    }

    #[test]
    fn instructions_after_the_last_miss_are_the_tail_of_their_core() {
        let mut filter = Filter::new(1 << 20, 0, ALL).on(2, 1);
        for step in 0..CHUNK_REFERENCES + 1 {
            filter.load(64 * step, Data::READY);
        }
        filter.work(9);
        filter.load(0, Data::READY);
        let stream = filter.finish();
        assert_eq!((stream.tails, stream.instructions), (vec![0, 10], CHUNK_REFERENCES + 11));
    }
}
