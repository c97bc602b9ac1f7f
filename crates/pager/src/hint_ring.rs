//! Hints on their way to the thread that acts on them: a ring of words, into which any thread puts without waiting, also in a signal
//! handler, and also beside a fork.
//!
//! A hint is one word, so that it is there or is not: a run of pages, and a tag of its origin. A full ring takes no
//! more: a hint may be lost. A hint of a thread that is delayed until its place was taken and emptied arrives a lap
//! late.

use crate::sys::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use crate::sys::sync::{IS_MODELLED, Mutex, MutexGuard, Words};
use hinterland_abi::HINT_SITES_MAX;
use hinterland_sys::SysError;
use hinterland_units::PageNo;

/// Words in a ring.
const WORDS: u64 = if IS_MODELLED { 2 } else { 4096 };
/// Pages of one word at most.
pub(crate) const RUN_PAGES_MAX: u32 = 1 << PAGES_BITS;
/// Tags are smaller.
pub(crate) const TAGS: u16 = 1 << TAG_BITS;
const PAGES_BITS: u32 = 20;
const TAG_BITS: u32 = 11;
/// Of a page's number: all of them.
const FIRST_BITS: u32 = u32::BITS;
const FIRST_SHIFT: u32 = PAGES_BITS + TAG_BITS;
/// Tells a word from an empty cell.
const IS_WORD: u64 = 1 << 63;
const _: () = assert!(FIRST_SHIFT + FIRST_BITS == 63 && HINT_SITES_MAX <= TAGS as usize);

/// A run of pages that was hinted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) first: PageNo,
    /// At least 1, at most [`RUN_PAGES_MAX`].
    pub(crate) pages: u32,
    pub(crate) tag: u16,
}

impl Run {
    fn encode(self) -> u64 {
        debug_assert!((1..=RUN_PAGES_MAX).contains(&self.pages) && self.tag < TAGS);
        let (first, pages) = (u64::from(self.first.0) << FIRST_SHIFT, u64::from(self.pages - 1) << TAG_BITS);
        IS_WORD | first | pages | u64::from(self.tag)
    }

    fn decode(word: u64) -> Run {
        let bits = |shift: u32, mask: u64| u32::try_from(word >> shift & mask).unwrap_or(0);
        Run {
            first: PageNo(bits(FIRST_SHIFT, (1 << FIRST_BITS) - 1)),
            pages: bits(TAG_BITS, (1 << PAGES_BITS) - 1) + 1,
            tag: u16::try_from(bits(0, (1 << TAG_BITS) - 1)).unwrap_or(0),
        }
    }

    /// What remains behind the first `pages` of it.
    fn behind(self, pages: u32) -> Option<Run> {
        (pages < self.pages).then(|| Run { first: PageNo(self.first.0 + pages), pages: self.pages - pages, ..self })
    }
}

/// See the module.
pub(crate) struct HintRing {
    cells: Words<AtomicU64>,
    /// Words that were put, and that were taken.
    put: AtomicU64,
    taken: AtomicU64,
    /// Held by the thread that takes: what is left of the run that was taken last.
    rest: Mutex<Option<Run>>,
    has_rest: AtomicU64,
}

impl HintRing {
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<HintRing, SysError> {
        let cells = Words::new(usize::try_from(WORDS).unwrap_or(0))?;
        let [put, taken, has_rest] = [(); 3].map(|()| AtomicU64::new(0));
        Ok(HintRing { cells, put, taken, rest: Mutex::new(None), has_rest })
    }

    fn cell(&self, at: u64) -> &AtomicU64 {
        self.cells.at(usize::try_from(at % WORDS).unwrap_or(0))
    }

    /// Puts a run in. False: there is no room.
    pub(crate) fn put(&self, run: Run) -> bool {
        loop {
            let at = self.put.load(SeqCst);
            if at.wrapping_sub(self.taken.load(SeqCst)) >= WORDS {
                return false;
            }
            // The word is there before it is counted; one of a thread that has not come to count it is counted by the next.
            let is_ours = self.cell(at).compare_exchange(0, run.encode(), SeqCst, Relaxed).is_ok();
            let _ = self.put.compare_exchange(at, at + 1, SeqCst, Relaxed);
            if is_ours {
                return true;
            }
        }
    }

    /// Whether there is nothing to take. A putter looks at whether the taker sleeps afterwards; the taker looks here once it has said
    /// that it does.
    pub(crate) fn is_empty(&self) -> bool {
        self.put.load(SeqCst) == self.taken.load(Acquire) && self.has_rest.load(Relaxed) == 0
    }

    fn rest(&self) -> MutexGuard<'_, Option<Run>> {
        self.rest.lock().expect("no thread panics while it takes hints")
    }

    /// Takes runs as long as `take` wants more: it says how many pages of the run it took, fewer than all if it is full. Inside the
    /// gate, with signals blocked: the child of a fork must find the ring free.
    pub(crate) fn take(&self, mut take: impl FnMut(Run) -> u32) {
        let mut rest = self.rest();
        while let Some(run) = rest.take().or_else(|| self.next()) {
            *rest = run.behind(take(run));
            if rest.is_some() {
                break;
            }
        }
        self.has_rest.store(u64::from(rest.is_some()), Relaxed);
    }

    fn next(&self) -> Option<Run> {
        loop {
            let at = self.taken.load(Relaxed);
            if at == self.put.load(SeqCst) {
                return None;
            }
            let word = self.cell(at).swap(0, SeqCst);
            self.taken.store(at + 1, SeqCst);
            if word != 0 {
                return Some(Run::decode(word));
            }
        }
    }

    /// Drops all of them: in the child of a fork.
    pub(crate) fn clear(&self) {
        *self.rest() = None;
        self.has_rest.store(0, Relaxed);
        self.taken.store(self.put.load(Relaxed), Relaxed);
        self.cells.all().iter().for_each(|cell| cell.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn run(first: u32, pages: u32, tag: u16) -> Run {
        Run { first: PageNo(first), pages, tag }
    }

    fn all(ring: &HintRing) -> Vec<Run> {
        let mut runs = Vec::new();
        ring.take(|run| {
            runs.push(run);
            run.pages
        });
        runs
    }

    #[test]
    fn a_run_is_one_word() {
        let runs = [run(0, 1, 0), run(u32::MAX, RUN_PAGES_MAX, TAGS - 1), run(77, 3, 9)];
        assert_eq!(runs.map(|run| Run::decode(run.encode())), runs);
        assert!(runs.iter().all(|run| run.encode() & IS_WORD != 0));
    }

    #[test]
    fn runs_come_in_order_a_part_at_a_time_and_a_full_ring_takes_no_more() {
        let ring = HintRing::new().unwrap();
        assert!(ring.is_empty());
        let put = (0..5000).filter(|at| ring.put(run(at * 10, 10, 1))).count();
        assert_eq!(put as u64, WORDS);
        let mut taken = Vec::new();
        let mut room = 25;
        ring.take(|run| {
            let pages = run.pages.min(room);
            room -= pages;
            taken.push((run.first.0, pages));
            pages
        });
        assert_eq!(taken, [(0, 10), (10, 10), (20, 5)]);
        assert!(!ring.is_empty());
        let rest = all(&ring);
        assert_eq!((rest[0], rest[1], rest.len()), (run(25, 5, 1), run(30, 10, 1), 4094));
        assert!(ring.is_empty() && all(&ring).is_empty());
        assert!(ring.put(run(7, 1, 2)));
        ring.clear();
        assert!(ring.is_empty() && ring.put(run(8, 1, 2)));
        assert_eq!(all(&ring), [run(8, 1, 2)]);
    }

    #[test]
    fn threads_put_whole_runs_beside_one_that_takes() {
        const PUTS: u32 = if cfg!(miri) { 100 } else { 200_000 };
        static DONE: AtomicBool = AtomicBool::new(false);
        let ring: &HintRing = Box::leak(Box::new(HintRing::new().unwrap()));
        let putters: Vec<_> = (1..4u16)
            .map(|tag| {
                std::thread::spawn(move || {
                    (0..PUTS).filter(|at| ring.put(run(u32::from(tag) * 1_000_000 + at, 1 + at % 7, tag))).count()
                })
            })
            .collect();
        let taker = std::thread::spawn(|| {
            let mut runs = Vec::new();
            while !DONE.load(SeqCst) {
                runs.append(&mut all(ring));
            }
            runs.append(&mut all(ring));
            runs
        });
        let put: usize = putters.into_iter().map(|thread| thread.join().unwrap()).sum();
        DONE.store(true, SeqCst);
        let runs = taker.join().unwrap();
        // One of each thread may be there for the next lap.
        assert!((put - 3..=put).contains(&runs.len()), "{} of {put}", runs.len());
        for run in runs {
            let at = run.first.0 - u32::from(run.tag) * 1_000_000;
            assert!((1..4).contains(&run.tag) && at < PUTS && run.pages == 1 + at % 7, "{run:?}");
        }
    }
}
