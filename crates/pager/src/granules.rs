//! The granules of local pages whose stored copies are kept: by them write-back knows what changed.
//!
//! ```text
//! bucket of page p: p / 8 mod buckets      8 keys │ 8 × 16 hashes of 32 bits      576 bytes
//! key: 64 bits of the stored copy's content hash │ EMPTY │ FREE │ LOCKED
//! ```
//! The hashes of a page follow from its content, and its key is of that content: whatever became of the page meanwhile, a row whose key is that
//! of the page's stored copy tells its granules. A row that is overwritten or in use by another thread is missed, and the page stored whole. Two
//! granules with the same hash are taken for one: the node, which compares the checksum of the whole page, does not make such a patch.
//!
//! Bounded by the local memory that the pager began with: 96 bytes for each of its pages, taken as it is used.

use crate::pages::ContentHash;
use crate::sys::sync::Words;
use crate::sys::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};
use hinterland_backend::{GRANULE_BYTES, GRANULES, GranuleSet};
use hinterland_paging::{JUDGED_PAGES, hashed_of};
use hinterland_sys::SysError;
use hinterland_units::{PageBytes, PageCount, PageNo};
use twox_hash::XxHash3_64;

/// Rows of a bucket, for as many pages that follow each other.
const ROWS: usize = 8;
/// Words of a row: two hashes in each.
const ROW_WORDS: usize = GRANULES / 2;
const BUCKET_WORDS: usize = ROWS + ROWS * ROW_WORDS;

/// Local pages that there is room for at most, where local memory has no bound or a larger one: 64 GiB.
const LOCAL_PAGES_MAX: u64 = 1 << 24;

/// Nothing was ever there.
const EMPTY: u64 = 0;
const FREE: u64 = 1;
/// A thread writes the row.
const LOCKED: u64 = 2;

/// See the module.
pub(crate) struct Granules {
    words: Words<AtomicU64>,
    buckets: usize,
    /// Buckets that were ever used.
    used: AtomicU64,
    /// One of so many pages is hashed; and the next one's turn.
    hashed_of: AtomicU32,
    turn: AtomicU32,
    /// Pages that have left whose granules were known, since that was judged last; and their granules that did not travel.
    known: AtomicU64,
    saved: AtomicU64,
}

impl Granules {
    /// Room for the pages of `local` memory.
    ///
    /// # Errors
    /// `ENOMEM` when the address space is limited.
    pub(crate) fn new(local: PageCount) -> Result<Granules, SysError> {
        // A third more rows than pages: of pages anywhere few find their bucket full.
        let rows = usize::try_from(local.0.min(LOCAL_PAGES_MAX) / 3 * 4).unwrap_or(0);
        let buckets = rows.div_ceil(ROWS).max(1);
        Ok(Granules {
            words: Words::new(buckets * BUCKET_WORDS)?,
            buckets,
            used: AtomicU64::new(0),
            hashed_of: AtomicU32::new(1),
            turn: AtomicU32::new(0),
            known: AtomicU64::new(0),
            saved: AtomicU64::new(0),
        })
    }

    /// Bytes in use.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.used.load(Relaxed) * (BUCKET_WORDS * 8) as u64
    }

    fn bucket(&self, page: PageNo) -> &[AtomicU64] {
        let first = (page.index() / ROWS % self.buckets) * BUCKET_WORDS;
        &self.words.all()[first..first + BUCKET_WORDS]
    }

    /// A page has come whose stored copy, with this hash, has these bytes.
    pub(crate) fn note(&self, page: PageNo, hash: ContentHash, bytes: &PageBytes) {
        let hashed_of = self.hashed_of.load(Relaxed);
        if hashed_of > 1 && !self.turn.fetch_add(1, Relaxed).is_multiple_of(hashed_of) {
            return;
        }
        let (bucket, key) = (self.bucket(page), key_of(hash));
        let (keys, _) = bucket.split_at(ROWS);
        let mut seen = [0; ROWS];
        seen.iter_mut().zip(keys).for_each(|(seen, key)| *seen = key.load(Relaxed));
        if seen.contains(&key) {
            return;
        }
        if seen == [EMPTY; ROWS] {
            self.used.fetch_add(1, Relaxed);
        }
        // One row of a full bucket goes: any will do.
        let row = seen.iter().position(|seen| *seen <= FREE).unwrap_or(page.index() % ROWS);
        if seen[row] == LOCKED || keys[row].compare_exchange(seen[row], LOCKED, Acquire, Relaxed).is_err() {
            return;
        }
        fence(Release);
        let mut hashes = hashes_of(bytes);
        for word in row_of(bucket, row) {
            let (low, high) = (hashes.next().unwrap_or(0), hashes.next().unwrap_or(0));
            word.store(u64::from(high) << 32 | u64::from(low), Relaxed);
        }
        keys[row].store(key, Release);
    }

    /// A page leaves that has these bytes now, and a stored copy with this hash: what differs, if that is known. It is forgotten.
    pub(crate) fn take(&self, page: PageNo, hash: ContentHash, bytes: &PageBytes) -> Option<GranuleSet> {
        let (bucket, key) = (self.bucket(page), key_of(hash));
        let row = bucket[..ROWS].iter().position(|there| there.load(Acquire) == key)?;
        let mut were = [0; ROW_WORDS];
        were.iter_mut().zip(row_of(bucket, row)).for_each(|(were, word)| *were = word.load(Relaxed));
        fence(Acquire);
        if bucket[row].compare_exchange(key, FREE, Relaxed, Relaxed).is_err() {
            return None;
        }
        let were = |granule: usize| (were[granule / 2] >> (granule % 2 * 32)) & u64::from(u32::MAX);
        let is: Vec<u32> = hashes_of(bytes).collect();
        Some(GranuleSet::of(|granule| u64::from(is[granule]) != were(granule)))
    }

    /// A page leaves unchanged: it is forgotten.
    pub(crate) fn forget(&self, page: PageNo, hash: ContentHash) {
        let (bucket, key) = (self.bucket(page), key_of(hash));
        let known = bucket[..ROWS]
            .iter()
            .any(|there| there.load(Relaxed) == key && there.compare_exchange(key, FREE, Relaxed, Relaxed).is_ok());
        if known {
            self.learn(1, 0);
        }
    }

    /// Pages have left whose granules were known, and `saved` granules of them did not travel.
    pub(crate) fn learn(&self, pages: u64, saved: u64) {
        self.saved.fetch_add(saved, Relaxed);
        if self.known.fetch_add(pages, Relaxed) + pages < JUDGED_PAGES {
            return;
        }
        // Of two threads that come here at once, one may find too few.
        if let Some(one_of) = hashed_of(self.known.swap(0, Relaxed), self.saved.swap(0, Relaxed)) {
            self.hashed_of.store(one_of, Relaxed);
        }
    }
}

fn row_of(bucket: &[AtomicU64], row: usize) -> &[AtomicU64] {
    &bucket[ROWS + row * ROW_WORDS..][..ROW_WORDS]
}

/// None of the marks.
#[allow(clippy::cast_possible_truncation, reason = "takes the low half")]
fn key_of(hash: ContentHash) -> u64 {
    (hash.0 as u64).max(LOCKED + 1)
}

#[allow(clippy::cast_possible_truncation, reason = "takes the low half")]
fn hashes_of(bytes: &PageBytes) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(GRANULE_BYTES).map(|granule| XxHash3_64::oneshot(granule) as u32)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use hinterland_testkit::Rng;
    use hinterland_units::PAGE_BYTES;
    use std::collections::BTreeMap;

    fn page_of(seed: u64) -> PageBytes {
        let mut rng = Rng(seed);
        std::array::from_fn(|_| rng.next_u64().to_le_bytes()[0])
    }

    #[test]
    fn what_differs_is_known_of_pages_that_came_and_of_their_content_alone() {
        let granules = Granules::new(PageCount(64)).unwrap();
        let (mut came, mut rng) = (BTreeMap::new(), Rng(3));
        let (mut known, mut all) = (0, 0);
        for step in 0..4000 {
            let page = PageNo(u32::try_from(rng.below(4000)).unwrap());
            if came.len() < 64 {
                let bytes = page_of(step);
                granules.note(page, ContentHash::of(&bytes), &bytes);
                came.insert(page, bytes);
                continue;
            }
            let (page, before) = came.pop_first().unwrap();
            let mut bytes = before;
            let changed = GranuleSet(u16::try_from(rng.below(1 << 16)).unwrap());
            changed.runs().for_each(|run| run.step_by(GRANULE_BYTES).for_each(|at| bytes[at + 200] ^= 1));
            assert_eq!(granules.take(page, ContentHash::of(&page_of(step + 1)), &bytes), None, "other content");
            let differs = granules.take(page, ContentHash::of(&before), &bytes);
            assert!(differs.is_none_or(|differs| differs == changed), "step {step}");
            assert_eq!(granules.take(page, ContentHash::of(&before), &bytes), None, "it is forgotten");
            (known, all) = (known + u32::from(differs.is_some()), all + 1);
        }
        assert!(known * 100 >= all * 75, "{known} of {all}");
        assert!(granules.ram_bytes() <= 64 * 100 && granules.ram_bytes() > 64 * 72);
    }

    #[test]
    fn where_little_is_saved_few_pages_are_hashed() {
        let granules = Granules::new(PageCount(1 << 14)).unwrap();
        let bytes = page_of(1);
        let hash = ContentHash::of(&bytes);
        let known = |granules: &Granules| {
            let pages = (0..1024).map(PageNo);
            pages.clone().for_each(|page| granules.note(PageNo(page.0 * 8), hash, &bytes));
            pages.filter(|page| granules.take(PageNo(page.0 * 8), hash, &[0; PAGE_BYTES]).is_some()).count()
        };
        assert_eq!(known(&granules), 1024);
        granules.learn(JUDGED_PAGES, 0);
        assert_eq!(known(&granules), 1024 / 32);
        granules.learn(JUDGED_PAGES, 10 * JUDGED_PAGES);
        assert_eq!(known(&granules), 1024);
        (0..8).for_each(|page| granules.note(PageNo(page), hash, &bytes));
        granules.forget(PageNo(0), hash);
        assert_eq!(granules.take(PageNo(0), hash, &bytes), None);
    }
}
