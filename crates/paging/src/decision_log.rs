//! The decision log: what a run's pager heard, what it was answered when it asked, and what it decided, in that order.
//!
//! ```text
//!   magic │ bytes of entries │ 1: it was full, and ends early │ entry, entry, …
//!                                                                └─ thread, code of the step, its fields; numbers as LEB128
//! ```
//!
//! One entry is one decision, with all that it follows from. A body makes one decision at a time while a log is written, so the order is
//! that in which they were made. Fields before the decided ones are what the decision was given: a replay takes these from the log,
//! decides by itself, and must come to the same bytes.

mod field;

use crate::{Urgency, Way};
use field::Field;
use hinterland_policy::{Arrival, Prefetch, Request};
use hinterland_units::PageNo;

/// The first bytes.
const MAGIC: [u8; 8] = *b"HLdecis6";

/// Bytes before the first entry: the magic, the bytes of the entries, and whether it was full, as u64 (little endian).
pub const HEAD_BYTES: usize = 24;

/// The head of a log with so many bytes of entries.
pub fn head(bytes: u64, is_full: bool) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..16].copy_from_slice(&bytes.to_le_bytes());
    head[16..].copy_from_slice(&u64::from(is_full).to_le_bytes());
    head
}

/// The bytes of entries that follow the head of a log.
///
/// # Errors
/// It is no such head.
pub fn entry_bytes(head: &[u8; HEAD_BYTES]) -> Result<u64, LogError> {
    if head[..8] == MAGIC { Ok(word(head, 8)) } else { Err(LogError::NoLog) }
}

fn word(head: &[u8; HEAD_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| head[at + index]))
}

/// Where the key page of a batch was when the batch was complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyPageState {
    /// Gone, or just being used.
    Elsewhere,
    /// It waits, unmapped.
    Waiting,
    /// It was used.
    Resident,
}

/// What became of an attempt to give a page that waits back to far memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveBack {
    /// It is just being used.
    Busy,
    /// It is far again, unused.
    Unused,
    /// It was gone before: no page points at the slot.
    Stale,
}

/// Makes the steps, and how they are written.
macro_rules! steps {
    ($($(#[$doc:meta])* $code:literal $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })+) => {
        /// One decision, or something that later ones follow from.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Step { $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type,)* },)+ }

        impl Field for Step {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Step::$name { $($field,)* } => {
                        u8::put(&$code, out);
                        $($field.put(out);)*
                    })+
                }
            }

            fn take(from: &mut &[u8]) -> Option<Step> {
                Some(match u8::take(from)? {
                    $($code => Step::$name { $($field: Field::take(from)?,)* },)+
                    _ => return None,
                })
            }
        }
    };
}

/// What a log begins with: how the body is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Threads serve their own faults.
    pub is_inline: bool,
    /// The eviction policy's name.
    pub eviction: String,
    /// The prefetcher's.
    pub prefetcher: String,
    /// Processors of the process.
    pub processors: u32,
    /// Largest window, as set.
    pub window_pages_max: Option<u32>,
    /// Bound on prefetched pages, as set.
    pub prefetch_cache_pages: Option<u32>,
    /// The name of the granularity of demands.
    pub granularity: String,
    /// Pages of a block, as set.
    pub block_pages: Option<u32>,
}

impl Field for Begin {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_inline.put(out);
        self.eviction.put(out);
        self.prefetcher.put(out);
        self.processors.put(out);
        self.window_pages_max.put(out);
        self.prefetch_cache_pages.put(out);
        self.granularity.put(out);
        self.block_pages.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Begin> {
        Some(Begin {
            is_inline: Field::take(from)?,
            eviction: Field::take(from)?,
            prefetcher: Field::take(from)?,
            processors: Field::take(from)?,
            window_pages_max: Field::take(from)?,
            prefetch_cache_pages: Field::take(from)?,
            granularity: Field::take(from)?,
            block_pages: Field::take(from)?,
        })
    }
}

steps! {
    /// The first one.
    0 Begins {
        /// How the body is made.
        with: Begin,
    }
    /// The account has another bound. Decided: the watermarks.
    1 Bound {
        /// Frames that may be in use now, and once the process has grown.
        pages: (u64, u64),
        /// Hard, high and low, and the swap cache's share; in pages.
        watermarks: Vec<u64>,
    }
    /// Frames are charged. Decided: whether they fit.
    2 Charge {
        /// How many.
        pages: u64,
        /// They are charged whatever the bound is.
        must: bool,
        /// They are.
        granted: bool,
    }
    /// Frames are free.
    3 Uncharge {
        /// How many.
        pages: u64,
    }
    /// A watermark was looked at. Decided: whether the account is above.
    4 Above {
        /// The high one; otherwise the low one.
        high: bool,
        /// It is above.
        is_above: bool,
    }
    /// Pages have become resident. Decided: their epoch.
    5 Arrived {
        /// Which.
        pages: Vec<PageNo>,
        /// How.
        how: Arrival,
        /// When, in sixteenths of a turnover.
        epoch: u8,
    }
    /// Pages were dropped by the program.
    6 Forgotten {
        /// Which.
        pages: Vec<PageNo>,
    }
    /// A victim could not leave.
    7 Putback {
        /// Which.
        page: PageNo,
    }
    /// Pages have left the swap cache, untouched.
    8 WrittenBack {
        /// Which.
        pages: Vec<PageNo>,
    }
    /// The policy is told of another bound.
    9 Resized {
        /// In pages.
        pages: u64,
    }
    /// A page was moved to another place of the program's memory.
    10 Moved {
        /// From where.
        from: PageNo,
        /// To where.
        to: PageNo,
        /// It is resident.
        is_resident: bool,
    }
    /// A chunk of victims is to leave. Decided: which.
    11 Victims {
        /// How much the thread needs their frames.
        urgency: Urgency,
        /// Scattered victims leave by copy.
        copies: bool,
        /// What was answered when pages were looked at or claimed, in order.
        answers: Vec<u8>,
        /// The policy's and their neighbours, in the order of the choice.
        victims: Vec<PageNo>,
    }
    /// Pages that were mapped beside a prefetched one are to leave. Decided: which.
    12 Unreferenced {
        /// Those that were looked at.
        pages: Vec<PageNo>,
        /// As of victims.
        answers: Vec<u8>,
        /// As of victims.
        victims: Vec<PageNo>,
    }
    /// Victims have left the program together, into a chunk of the swap cache; or those are in the queue again that could not be written
    /// back with their chunk.
    13 Chunk {
        /// The chunk.
        number: u32,
        /// How they left; none: before.
        way: Option<Way>,
        /// Which.
        pages: Vec<PageNo>,
    }
    /// A chunk is to be written back. Decided: which.
    14 Oldest {
        /// Also if the swap cache is not above its share.
        any: bool,
        /// The chunk; none: they are too few.
        number: Option<u32>,
    }
    /// A chunk of victims was to leave.
    15 Filled {
        /// Some have.
        left: bool,
    }
    /// A step of reclaim is over. Decided: that these were its parts (`Oldest` and `Filled` of the same thread).
    16 Reclaimed {
        /// It was for pages that the program has given up.
        given_up: bool,
        /// Something was done.
        done: bool,
    }
    /// A request reached the arbiter. Decided: the prefetcher's window, and the block around the page.
    17 Requested {
        /// For which page.
        page: PageNo,
        /// Of what kind.
        request: Request,
        /// Of which thread.
        thread: u64,
        /// The window.
        window: Option<Prefetch>,
        /// The block.
        block: Option<Prefetch>,
    }
    /// A load has ended. Decided: of how much local memory a window may have a part.
    18 Loaded {
        /// Of so many pages.
        pages: u32,
        /// In so many nanoseconds.
        ns: u64,
        /// In pages.
        local_pages: u64,
    }
    /// A window is wanted. Decided: where it is queued, and whether its thread helps.
    19 Queued {
        /// The window.
        wanted: Prefetch,
        /// The window with which the read-ahead thread is late.
        late: Option<u64>,
    }
    /// Pages are to be loaded. Decided: of which window, and which.
    20 Claimed {
        /// Of this window alone, by the thread that has faulted.
        helps_with: Option<u64>,
        /// Loads cost processor time.
        copies_cost_ram: bool,
        /// Whether pages could be claimed, in order.
        answers: Vec<u8>,
        /// The window.
        of: Option<u64>,
        /// In order of address.
        pages: Vec<PageNo>,
    }
    /// There are no frames for the oldest batch of the thread. Decided: what becomes of its window.
    21 Refused {
        /// Windows that wait afterwards.
        waiting: u32,
    }
    /// The oldest batch of the thread is loaded. Decided: in which runs it is mapped.
    22 Mapping {
        /// First page and pages of each.
        runs: Vec<(u32, u32)>,
        /// Pages that were mapped before and not reported.
        mapped: u32,
    }
    /// A page of the batch may stay unmapped. Decided: whether, and where.
    23 Waits {
        /// Which.
        page: PageNo,
        /// What became of pages that were to be given back for it.
        gave_back: Vec<GiveBack>,
        /// Pages that may wait.
        bound: u32,
        /// Its slot, and whether the slot is used for the first time.
        slot: Option<(u32, bool)>,
        /// Pages that were mapped beside it.
        mapped: u32,
    }
    /// The batch is mapped. Decided: what is reported to its key page.
    24 Mapped {
        /// Pages of the batch.
        pages: u32,
        /// Where the key page is.
        key_is: KeyPageState,
        /// The key page, and how many were mapped beside it.
        report: Option<(PageNo, u32)>,
    }
    /// A page that waited is used. Decided: how many are taken for used with it, and which slot is free.
    25 Used {
        /// Which.
        page: PageNo,
        /// Its slot.
        slot: u32,
        /// Pages that were mapped beside it.
        mapped: u32,
    }
    /// Zeros are wanted ahead of first touches. Decided: at which pages.
    26 Zeros {
        /// Where.
        window: Prefetch,
        /// 1: a page has no content; 2: it had none, and changed when it was claimed; 0: others.
        answers: Vec<u8>,
        /// In order of address.
        pages: Vec<PageNo>,
    }
    /// Pages are about to arrive, and there is a bound on prefetched ones. Decided: how many are to leave for them.
    27 Room {
        /// That arrive.
        pages: u32,
        /// That are to leave.
        beyond: u32,
    }
    /// A page that waits is to leave for those of the thread's batch. Decided: which.
    28 Dropped {
        /// Pages that have waited longer and stay.
        skip: u32,
        /// What became of the attempt.
        gave_back: Vec<GiveBack>,
        /// The slot; none: no page is that old.
        slot: Option<u32>,
        /// Pages that leave with it; none: it stays.
        with: Option<u32>,
    }
    /// Room was made. Decided: that these were the pages to leave (`Dropped` of the same thread).
    29 MadeRoom {
        /// For pages beyond the bound.
        beyond: u32,
    }
    /// The victims that the thread has claimed are to leave. Decided: which of them by copy.
    30 Leaves {
        /// Victims may leave by copy.
        copies: bool,
        /// In order of address.
        by_copy: Vec<PageNo>,
    }
    /// Pages that the program has given up are to leave. Decided: which.
    31 GivenUp {
        /// Those that were resident.
        pages: Vec<PageNo>,
        /// As of victims.
        answers: Vec<u8>,
        /// As of victims.
        victims: Vec<PageNo>,
    }
    /// Hints of a site name pages. Decided: what is fetched for them.
    32 Hinted {
        /// The site.
        site: u16,
        /// Those that were remote.
        pages: Vec<PageNo>,
        /// The batch, with its number in the queue; none: the site has lost.
        batch: Option<(Prefetch, u64)>,
    }
    /// A thread is about to ask for a page where blocks are asked for. Decided: whether the page comes with its block, and the block's number
    /// in the queue.
    34 DemandLoad {
        /// The page.
        page: PageNo,
        /// Pages that other threads wait for.
        demands: u32,
        /// Lanes that these have.
        lanes: u32,
        /// The block, if it is asked for now.
        block: Option<Prefetch>,
        /// Its number, or that of one that was asked for before; none: the page comes alone.
        number: Option<u64>,
    }
    /// Other blocks are to be asked for.
    35 Blocks {
        /// The name of the granularity.
        granularity: String,
        /// Pages of a block, as set.
        pages: Option<u32>,
    }
    /// A thread waits for a page where hints may have named it. Decided: the batch with which it is to come.
    33 Late {
        /// The page.
        page: PageNo,
        /// The batch.
        batch: Option<u64>,
    }
}

/// A step, and the thread that made it: a number that means nothing else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The thread.
    pub thread: u32,
    /// The step.
    pub step: Step,
}

impl Entry {
    /// As it is written.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.thread.put(&mut out);
        self.step.put(&mut out);
        out
    }
}

/// What is wrong with a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogError {
    /// It does not begin as one.
    #[error("this is no decision log")]
    NoLog,
    /// It ends in the middle of what its head promises.
    #[error("the decision log is cut short")]
    Short,
    /// An entry that cannot be read.
    #[error("entry {number} of the decision log, at byte {at}, is broken")]
    Entry {
        /// Its number, from 0 on.
        number: usize,
        /// Where it begins.
        at: usize,
    },
}

/// A log that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// What it has.
    pub entries: Vec<Entry>,
    /// It was full before the run ended.
    pub is_full: bool,
}

impl Log {
    /// Reads a log.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn read(bytes: &[u8]) -> Result<Log, LogError> {
        let (head, rest) = bytes.split_first_chunk().ok_or(LogError::NoLog)?;
        let len = usize::try_from(entry_bytes(head)?).map_err(|_| LogError::Short)?;
        let is_full =
            [false, true].into_iter().find(|is_full| u64::from(*is_full) == word(head, 16)).ok_or(LogError::NoLog)?;
        let (mut rest, mut entries) = (rest.get(..len).ok_or(LogError::Short)?, Vec::new());
        while !rest.is_empty() {
            let broken = LogError::Entry { number: entries.len(), at: HEAD_BYTES + len - rest.len() };
            let (thread, step) = Field::take(&mut rest).zip(Field::take(&mut rest)).ok_or(broken)?;
            entries.push(Entry { thread, step });
        }
        Ok(Log { entries, is_full })
    }

    /// As it is written.
    pub fn bytes(&self) -> Vec<u8> {
        let entries: Vec<u8> = self.entries.iter().flat_map(Entry::bytes).collect();
        [&head(entries.len() as u64, self.is_full)[..], &entries].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_policy::{Block, HintBatch, PrefetchWindow, TapeBatch, Unmapped};

    fn window(first: u32, step: i64, unmapped: Unmapped) -> Prefetch {
        PrefetchWindow { first: PageNo(first), step, pages: 64, unmapped }.into()
    }

    fn log() -> Log {
        let pages = |pages: &[u32]| pages.iter().copied().map(PageNo).collect::<Vec<_>>();
        let with = Begin {
            is_inline: true,
            eviction: "fifo".into(),
            prefetcher: "none".into(),
            processors: 2,
            window_pages_max: Some(0),
            prefetch_cache_pages: None,
            granularity: "page".into(),
            block_pages: Some(512),
        };
        let steps = [
            Step::Begins { with },
            Step::Bound { pages: (256, 1 << 40), watermarks: vec![256, 192, 128, 8] },
            Step::Arrived { pages: pages(&[0, 127, 128, u32::MAX]), how: Arrival::SwapCacheHit, epoch: 255 },
            Step::Victims { urgency: Urgency::Now, copies: false, answers: vec![0, 2, 1], victims: pages(&[7]) },
            Step::Queued { wanted: window(9, -3, Unmapped::Key(PageNo(3))), late: Some(u64::MAX) },
            Step::Queued { wanted: window(9, i64::MIN, Unmapped::All), late: None },
            Step::Waits {
                page: PageNo(4),
                gave_back: vec![GiveBack::Busy, GiveBack::Stale],
                bound: 64,
                slot: Some((3, false)),
                mapped: 1,
            },
            Step::Blocks { granularity: "auto".into(), pages: None },
            Step::Mapped { pages: 3, key_is: KeyPageState::Resident, report: Some((PageNo(4), 2)) },
        ];
        let entries = steps.into_iter().zip(0..).map(|(step, thread)| Entry { thread: thread * 100, step }).collect();
        Log { entries, is_full: true }
    }

    #[test]
    fn what_is_written_is_read() {
        let batch = Prefetch::Batch(TapeBatch { pages: [PageNo(3)].into(), key: None, thread: 8 });
        let hinted = HintBatch { pages: [PageNo(3), PageNo(1)].into(), key: Some(PageNo(1)), site: 513 };
        let mut log = log();
        for wanted in [batch, Prefetch::Hinted(hinted), Prefetch::Block(Block::around(PageNo(77), 16))] {
            log.entries.push(Entry { thread: 0, step: Step::Queued { wanted, late: None } });
        }
        assert_eq!(Log::read(&log.bytes()), Ok(log));
    }

    #[test]
    fn every_cut_and_most_broken_bytes_are_found_and_none_is_trusted() {
        let bytes = log().bytes();
        for len in 0..bytes.len() {
            assert!(Log::read(&bytes[..len]).is_err(), "{len} bytes of {}", bytes.len());
        }
        assert_eq!(Log::read(b"something else that is longer than a head"), Err(LogError::NoLog));
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x55;
            assert_ne!(Log::read(&broken), Ok(log()), "byte {at}");
        }
    }
}
