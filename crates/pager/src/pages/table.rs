//! The page table: one entry, one checksum and one slot number for each page of the far range.
//!
//! Flat arrays over the whole range in lazily populated memory: 28 bytes for each page that was ever touched, one memory
//! access to reach an entry. A counter for each chunk of 512 pages lets range operations skip what was never touched.
//!
//! Invariant: the part of the arrays that a page belongs to is writable before a call has given the program access to the page, and before the page is
//! anything else than `Untouched`. A part that is not writable reads as zeros: untouched pages, which the program may not touch (decision 0114).

use crate::slot::SwapCached;
use crate::state::{Entry, State, allowed};
use crate::sys::sync::Words;
use crate::sys::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst,
};
use hinterland_sys::SysError;
use hinterland_sys::parts::{PART_PAGES, Parts};
use hinterland_units::{PageBytes, PageNo};
use twox_hash::XxHash3_128;

/// Pages in a chunk: what one page-table page of the kernel maps (2 MiB).
pub const CHUNK_PAGES: u32 = 512;

/// Pages in a word of a bitmap.
const WORD_PAGES: usize = 64;

/// Bytes of all arrays for the pages of a part.
const PART_BYTES: usize = (28 * PART_PAGES + 2 * PART_PAGES / 8 + 4 * PART_PAGES / CHUNK_PAGES) as usize;

/// A 128-bit content hash: integrity check and proof that a page did not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContentHash(pub u128);

impl ContentHash {
    /// Of a page's content (XXH3, 128 bits).
    pub fn of(bytes: &PageBytes) -> ContentHash {
        ContentHash(XxHash3_128::oneshot(bytes))
    }
}

/// See the module.
pub struct PageTable {
    pages: u32,
    /// What is writable of the arrays.
    parts: Parts,
    entries: Words<AtomicU64>,
    /// Two words for each page.
    hashes: Words<AtomicU64>,
    slots: Words<AtomicU32>,
    chunks: Words<AtomicU32>,
    /// One bit for each page.
    open: Words<AtomicU64>,
    /// One bit for each page: its content is not needed.
    free: Words<AtomicU64>,
    /// The first page that the program could ever touch, and the one after the last.
    open_first: AtomicU32,
    open_end: AtomicU32,
    /// The first chunk that ever had a touched page, and the one after the last.
    touched_first: AtomicU32,
    touched_end: AtomicU32,
}

impl PageTable {
    /// A table for `pages` pages, all `Untouched`.
    ///
    /// # Errors
    /// `ENOMEM` when the address space is limited.
    pub fn new(pages: u32) -> Result<PageTable, SysError> {
        let n = pages as usize;
        let chunks = n.div_ceil(CHUNK_PAGES as usize);
        Ok(PageTable {
            pages,
            parts: Parts::new(PART_BYTES),
            entries: Words::read_only(n)?,
            hashes: Words::read_only(2 * n)?,
            slots: Words::read_only(n)?,
            chunks: Words::read_only(chunks)?,
            open: Words::read_only(n.div_ceil(WORD_PAGES))?,
            free: Words::read_only(n.div_ceil(WORD_PAGES))?,
            open_first: AtomicU32::new(u32::MAX),
            open_end: AtomicU32::new(0),
            touched_first: AtomicU32::new(u32::MAX),
            touched_end: AtomicU32::new(0),
        })
    }

    /// Has the parts of the arrays be writable that pages belong to. No lock and nothing allocated: also in a signal handler.
    ///
    /// # Errors
    /// `ENOMEM` when writable memory is limited, or the process has too many mappings.
    pub fn make_writable(&self, first: PageNo, count: u32) -> Result<(), SysError> {
        self.parts.make_writable(first.0, count, |pages| {
            let words = |pages_each: usize| pages.start / pages_each..pages.end / pages_each;
            self.entries.allow_writes(words(1))?;
            self.hashes.allow_writes(2 * pages.start..2 * pages.end)?;
            self.slots.allow_writes(words(1))?;
            self.chunks.allow_writes(words(CHUNK_PAGES as usize))?;
            self.open.allow_writes(words(WORD_PAGES))?;
            self.free.allow_writes(words(WORD_PAGES))
        })
    }

    /// Bytes of the arrays that [`make_writable`](PageTable::make_writable) would have be writable.
    pub fn missing_bytes(&self, first: PageNo, count: u32) -> usize {
        self.parts.missing_bytes(first.0, count)
    }

    /// The same as `make_writable` of a page that comes to have content. It is so already where the library has made the page accessible; others a debugger
    /// touches, or a program that changed the protection by an instruction of its own.
    fn make_page_writable(&self, page: PageNo) {
        if !self.parts.contain(page.0)
            && let Err(error) = self.make_writable(page, 1)
        {
            panic!("{page} was touched, and there is no memory for its entry: {error}");
        }
    }

    fn entry(&self, page: PageNo) -> &AtomicU64 {
        self.entries.at(page.index())
    }

    /// The entry of `page`.
    #[inline]
    pub fn load(&self, page: PageNo) -> Entry {
        Entry(self.entry(page).load(Acquire))
    }

    /// Changes a page's entry if it still is `from`; otherwise returns what it is now.
    ///
    /// The one place where states change: an illegal transition ends the program, because the next step would be a wrong
    /// page.
    ///
    /// # Errors
    /// The entry as it is now.
    pub(super) fn transition(&self, page: PageNo, from: Entry, to: Entry) -> Result<(), Entry> {
        assert!(allowed(from.state(), to.state()), "{page}: {from:?} cannot become {to:?}");
        if from.state() == State::Untouched {
            self.make_page_writable(page);
        }
        self.entry(page).compare_exchange(from.0, to.0, AcqRel, Acquire).map_err(Entry)?;
        self.count(page, from.state(), to.state());
        Ok(())
    }

    /// Ends a busy state that the caller owns; returns whether a thread waits for the page.
    pub(super) fn complete(&self, page: PageNo, to: Entry) -> bool {
        let mut now = self.load(page);
        assert!(now.state().is_busy(), "{page}: {now:?} is not busy");
        loop {
            match self.transition(page, now, to) {
                Ok(()) => return now.waited(),
                Err(seen) => now = seen,
            }
        }
    }

    /// Makes a page what no transition makes it, to see what becomes of a touch.
    #[cfg(test)]
    pub(crate) fn force(&self, page: PageNo, entry: Entry) {
        self.make_page_writable(page);
        self.entry(page).store(entry.0, std::sync::atomic::Ordering::Release);
    }

    /// A page that was given up to another kind of mapping is the pager's again, and empty. False: it was never given up.
    pub fn take_back(&self, page: PageNo) -> bool {
        self.parts.contain(page.0)
            && self.transition(page, Entry::new(State::Foreign), Entry::new(State::Untouched)).is_ok()
    }

    /// Marks a far page, or takes its mark back (0), if its entry still is as it was `seen`.
    pub(crate) fn mark(&self, page: PageNo, seen: Entry, mark: u16) -> bool {
        self.entry(page).compare_exchange(seen.0, seen.with_mark(mark).0, AcqRel, Acquire).is_ok()
    }

    /// Notes that a thread waits for a busy page. False: the page is not in state `busy` any more.
    pub fn wait_on(&self, page: PageNo, busy: Entry) -> bool {
        debug_assert!(busy.state().is_busy());
        self.entry(page).compare_exchange(busy.0, busy.with_waited().0, AcqRel, Acquire).is_ok()
    }

    /// Whether a thread that needs a page must wait for its owner, and notes that one does.
    pub fn must_wait(&self, page: PageNo) -> bool {
        let now = self.load(page);
        now.state().is_busy() && (now.waited() || self.wait_on(page, now))
    }

    /// Counts pages that are not `Untouched`, by chunk. What was ever touched is known to reach as far as a chunk before that counts a page: another
    /// thread that touches a page there goes by the count.
    fn count(&self, page: PageNo, from: State, to: State) {
        let (was_counted, is_counted) = (from != State::Untouched, to != State::Untouched);
        if is_counted && !was_counted {
            if self.chunk(page).load(Acquire) == 0 {
                self.touched_first.fetch_min(page.0 / CHUNK_PAGES, Relaxed);
                self.touched_end.fetch_max(page.0 / CHUNK_PAGES + 1, Relaxed);
            }
            self.chunk(page).fetch_add(1, AcqRel);
        }
        if was_counted && !is_counted {
            self.chunk(page).fetch_sub(1, Relaxed);
        }
    }

    fn chunk(&self, page: PageNo) -> &AtomicU32 {
        self.chunks.at((page.0 / CHUNK_PAGES) as usize)
    }

    /// Whether a page of the range may not be `Untouched`, at the granularity of chunks.
    pub fn any_touched(&self, first: PageNo, count: u32) -> bool {
        let last = first.0.saturating_add(count.saturating_sub(1)).min(self.pages - 1);
        (first.0 / CHUNK_PAGES..=last / CHUNK_PAGES)
            .any(|chunk| self.chunk(PageNo(chunk * CHUNK_PAGES)).load(Relaxed) > 0)
    }

    /// Calls `visit` for each page of the range that may not be `Untouched`, in order.
    pub fn for_each_touched(&self, first: PageNo, count: u32, mut visit: impl FnMut(PageNo)) {
        let touched =
            [&self.touched_first, &self.touched_end].map(|chunk| chunk.load(Relaxed).saturating_mul(CHUNK_PAGES));
        let end = first.0.saturating_add(count).min(self.pages).min(touched[1]);
        let mut page = first.0.max(touched[0]);
        while page < end {
            let chunk_end = (page / CHUNK_PAGES + 1).saturating_mul(CHUNK_PAGES).min(end);
            if self.chunk(PageNo(page)).load(Relaxed) == 0 {
                page = chunk_end;
                continue;
            }
            for index in page..chunk_end {
                if self.load(PageNo(index)).state() != State::Untouched {
                    visit(PageNo(index));
                }
            }
            page = chunk_end;
        }
    }

    /// How many chunks there are.
    pub fn chunk_count(&self) -> u32 {
        self.pages.div_ceil(CHUNK_PAGES)
    }

    /// The chunks from `first` to before `end` that may have a page which is not `Untouched`, in order.
    pub fn touched_chunks(&self, first: u32, end: u32) -> impl Iterator<Item = u32> {
        let (touched_first, touched_end) = (self.touched_first.load(Relaxed), self.touched_end.load(Relaxed));
        (first.max(touched_first)..end.min(touched_end))
            .filter(move |chunk| self.chunk(PageNo(chunk * CHUNK_PAGES)).load(Relaxed) > 0)
    }

    /// Notes that the program may touch the pages of a range, which are writable here, or not.
    pub fn set_open(&self, first: PageNo, count: u32, open: bool) {
        if open {
            self.open_first.fetch_min(first.0, Relaxed);
            self.open_end.fetch_max(first.0.saturating_add(count).min(self.pages), Relaxed);
        }
        self.set_bits(&self.open, first, count, open);
    }

    /// Notes that the content of a range's pages is not needed, or that it is again.
    pub fn set_free(&self, first: PageNo, count: u32, free: bool) {
        self.set_bits(&self.free, first, count, free);
    }

    /// Whether a page's content is not needed. The caller owns the page, which is not mapped: what is written to it is written later.
    pub fn is_free(&self, page: PageNo) -> bool {
        self.free.at(page.index() / WORD_PAGES).load(SeqCst) >> (page.index() % WORD_PAGES) & 1 != 0
    }

    fn set_bits(&self, bits: &Words<AtomicU64>, first: PageNo, count: u32, set: bool) {
        let end = (first.index() + count as usize).min(self.pages as usize);
        let mut page = first.index();
        while page < end {
            let pages = (WORD_PAGES - page % WORD_PAGES).min(end - page);
            let mask = if pages == WORD_PAGES { u64::MAX } else { ((1 << pages) - 1) << (page % WORD_PAGES) };
            let word = bits.at(page / WORD_PAGES);
            if set {
                word.fetch_or(mask, SeqCst);
            } else if word.load(SeqCst) & mask != 0 {
                word.fetch_and(!mask, SeqCst);
            }
            page += pages;
        }
    }

    /// The part of a range of pages (the first, and the one after the last) outside of which the program could never touch one.
    pub fn ever_open(&self, (first, end): (u32, u32)) -> Option<(u32, u32)> {
        let part = (first.max(self.open_first.load(Relaxed)), end.min(self.open_end.load(Relaxed)));
        (part.0 < part.1).then_some(part)
    }

    /// Whether the program may touch a page.
    pub fn is_open(&self, page: PageNo) -> bool {
        self.open_word(page.index()).load(Relaxed) >> (page.index() % WORD_PAGES) & 1 != 0
    }

    /// Calls `visit` for each page of the range that the program may touch, in order, until it returns false.
    pub fn for_each_open(&self, first: PageNo, count: u32, mut visit: impl FnMut(PageNo) -> bool) {
        let end = (first.index() + count as usize).min(self.pages as usize);
        let mut page = first.index();
        while page < end {
            let bits = (WORD_PAGES - page % WORD_PAGES).min(end - page);
            let mut open = self.open_word(page).load(Relaxed) >> (page % WORD_PAGES);
            for at in 0..bits {
                if open == 0 {
                    break;
                }
                let number = u32::try_from(page + at).unwrap_or(u32::MAX);
                if open & 1 != 0 && !visit(PageNo(number)) {
                    return;
                }
                open >>= 1;
            }
            page += bits;
        }
    }

    fn open_word(&self, page: usize) -> &AtomicU64 {
        self.open.at(page / WORD_PAGES)
    }

    /// The hash of the page's stored copy. Meaningful to the owner of a busy page with a stored copy.
    pub fn hash(&self, page: PageNo) -> ContentHash {
        let (low, high) = self.hash_words(page);
        ContentHash(u128::from(low.load(Relaxed)) | u128::from(high.load(Relaxed)) << 64)
    }

    /// Notes the hash of the copy that is being stored. For the owner of a busy page.
    pub(super) fn set_hash(&self, page: PageNo, hash: ContentHash) {
        let (low, high) = self.hash_words(page);
        let [first, second] = split(hash.0);
        low.store(first, Relaxed);
        high.store(second, Relaxed);
    }

    fn hash_words(&self, page: PageNo) -> (&AtomicU64, &AtomicU64) {
        (self.hashes.at(page.index() * 2), self.hashes.at(page.index() * 2 + 1))
    }

    /// Where the frame of a page in the swap cache is, and what it is there for.
    pub(super) fn slot(&self, page: PageNo) -> SwapCached {
        SwapCached::decode(self.slot_cell(page).load(Relaxed))
    }

    /// Notes where a page's frame is; for its owner, before it completes it as `SwapCached`.
    pub(super) fn set_slot(&self, page: PageNo, slot: SwapCached) {
        self.slot_cell(page).store(slot.encode(), Relaxed);
    }

    fn slot_cell(&self, page: PageNo) -> &AtomicU32 {
        self.slots.at(page.index())
    }
}

/// The two 64-bit words of a 128-bit hash, low first.
fn split(hash: u128) -> [u64; 2] {
    let bytes = hash.to_le_bytes();
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    [word(0), word(8)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::simulated::{Chances, simulate};
    use std::sync::Arc;

    /// Another thread touches the first page there, and may be interrupted anywhere.
    #[test]
    fn a_thread_finds_again_what_it_has_touched() {
        for seed in 0..if cfg!(miri) { 4 } else { 2_000 } {
            let report = simulate(seed, Chances::default(), |current| {
                let table = Arc::new(PageTable::new(1 << 10).unwrap());
                let touch = |table: &PageTable, page| {
                    table.transition(page, Entry::new(State::Untouched), Entry::new(State::Fetching)).unwrap();
                };
                let other = Arc::clone(&table);
                let thread = current.spawn("other", move || touch(&other, PageNo(700)));
                touch(&table, PageNo(701));
                let mut seen = Vec::new();
                table.for_each_touched(PageNo(701), 1, |page| seen.push(page));
                assert_eq!(seen, [PageNo(701)]);
                current.join(thread);
            });
            assert_eq!(report.failure, None, "seed {seed}");
        }
    }

    #[test]
    fn walks_only_what_was_touched() {
        let table = PageTable::new(1 << 20).unwrap();
        let touched = [PageNo(0), PageNo(511), PageNo(512), PageNo(70_000)];
        for page in touched {
            table.transition(page, Entry::new(State::Untouched), Entry::new(State::Fetching)).unwrap();
        }
        let mut seen = Vec::new();
        table.for_each_touched(PageNo(0), 1 << 20, |page| seen.push(page));
        assert_eq!(seen, touched);
        seen.clear();
        table.for_each_touched(PageNo(1), 512, |page| seen.push(page));
        assert_eq!(seen, [PageNo(511), PageNo(512)]);
    }

    #[test]
    fn pages_open_and_close_one_by_one() {
        let table = PageTable::new(1000).unwrap();
        table.make_writable(PageNo(0), 1000).unwrap();
        let open = |range: std::ops::Range<u32>| range.filter(|p| table.is_open(PageNo(*p))).count();
        table.set_open(PageNo(60), 200, true);
        assert_eq!((open(0..60), open(60..260), open(260..1000)), (0, 200, 0));
        table.set_open(PageNo(63), 2, false);
        assert_eq!((open(60..260), table.is_open(PageNo(62)), table.is_open(PageNo(63))), (198, true, false));
        let mut seen = Vec::new();
        table.for_each_open(PageNo(58), 900, |page| {
            seen.push(page.0);
            page.0 < 130
        });
        assert_eq!(seen, (60..63).chain(65..=130).collect::<Vec<_>>());
        assert_eq!(table.ever_open((0, 1000)), Some((60, 260)));
        assert_eq!([table.ever_open((100, 120)), table.ever_open((0, 60))], [Some((100, 120)), None]);
        assert!((0..1000).all(|page| !table.is_free(PageNo(page))), "another bit");
        table.set_open(PageNo(0), 1000, false);
        assert_eq!(open(0..1000), 0);
    }

    #[test]
    fn a_wait_is_seen_by_the_owner_that_completes() {
        let table = PageTable::new(16).unwrap();
        let (page, busy) = (PageNo(3), Entry::new(State::Fetching));
        table.transition(page, Entry::new(State::Untouched), busy).unwrap();
        assert!(table.wait_on(page, busy));
        assert!(table.complete(page, Entry::new(State::Resident)));
        assert!(!table.wait_on(page, busy));
    }

    #[test]
    #[should_panic(expected = "cannot become")]
    fn an_illegal_transition_stops() {
        let table = PageTable::new(16).unwrap();
        let _ = table.transition(PageNo(0), Entry::new(State::Untouched), Entry::new(State::Remote));
    }

    #[test]
    fn hashes_keep_all_their_bits() {
        let table = PageTable::new(16).unwrap();
        table.make_writable(PageNo(0), 16).unwrap();
        let hash = ContentHash(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        table.set_hash(PageNo(5), hash);
        assert_eq!(table.hash(PageNo(5)), hash);
        assert_eq!(table.hash(PageNo(4)), ContentHash::default());
    }

    /// Of 64 GiB one part is writable: the others answer as what was never touched.
    #[test]
    fn parts_that_are_read_only_are_untouched_and_closed() {
        const PART: u32 = PART_PAGES;
        let table = PageTable::new(16 * PART).unwrap();
        table.make_writable(PageNo(5 * PART + 3), 9).unwrap();
        table.set_open(PageNo(5 * PART), PART, true);
        let page = PageNo(5 * PART + 7);
        table.transition(page, Entry::new(State::Untouched), Entry::new(State::Fetching)).unwrap();
        let mut seen = Vec::new();
        table.for_each_touched(PageNo(0), 16 * PART, |page| seen.push(page));
        assert_eq!(seen, [page]);
        assert_eq!([4 * PART, 6 * PART].map(|first| table.any_touched(PageNo(first), PART)), [false; 2]);
        for other in [0, 5 * PART - 1, 6 * PART, 16 * PART - 1].map(PageNo) {
            assert_eq!(table.load(other), Entry::new(State::Untouched));
            assert!(
                !table.is_open(other) && !table.is_free(other) && !table.must_wait(other) && !table.take_back(other)
            );
        }
        table.set_open(PageNo(0), 16 * PART, false);
        table.set_free(PageNo(0), 16 * PART, false);
        let mut open = 0;
        table.for_each_open(PageNo(0), 16 * PART, |_| {
            open += 1;
            true
        });
        assert_eq!(open, 0);
    }

    /// As a debugger does, which reads and writes where the program may not.
    #[test]
    fn a_page_that_is_touched_where_nothing_was_made_accessible_is_served_all_the_same() {
        let table = PageTable::new(16 * PART_PAGES).unwrap();
        let page = PageNo(9 * PART_PAGES);
        table.transition(page, Entry::new(State::Untouched), Entry::new(State::Fetching)).unwrap();
        assert!(!table.complete(page, Entry::new(State::Resident)) && table.any_touched(page, 1));
    }
}
