//! Hints of the program as a source of prefetches: it names the pages that it will need.
//!
//! ```text
//!   pages of a site ──► HintSource ──► a batch: all of its pages are mapped when they arrive, but for a key page now and then
//!                            ▲
//!   the key page was used, or left unused ──► the site is believed, or it loses: then one of its batches in so many is fetched
//! ```
//!
//! A *site* is where the program calls: an address in its code, or a loop that the compiler has hinted. A program that names what it
//! does not use (with another input, or because the pages leave again before their use) takes the link and the frames from what it does
//! use. A site that loses gets them back once the key pages of the batches that are still fetched are used.

use crate::HintBatch;
use hinterland_units::{LinkEstimate, PAGE_BYTES, PageNo};

/// Pages of a site from one key page to the next, while little is known of it, and later.
const KEY_EVERY: [u32; 2] = [16, 64];
/// Key pages of a site whose outcome is known, before it is believed.
const KEYS_KNOWN: u32 = 8;
/// Key pages whose outcome counts: then older ones count half.
const KEYS_COUNTED: u32 = 32;
/// Of a site that has lost, one batch in so many is fetched.
const PROBE_EVERY: u32 = 16;

/// What hints of a site have led to, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HintStatistics {
    /// That came because hints name them.
    pub fetched: u64,
    /// Of those, used: observed by key pages, inferred beside them.
    pub used: u64,
    /// Of those, left unused: observed by key pages, inferred beside them.
    pub unused: u64,
    /// Not fetched, because the site had lost.
    pub refused: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Site {
    statistics: HintStatistics,
    /// Pages that were asked for since the last key page.
    since_key: u32,
    /// Pages that have come without a key page of their batch's, and for which none that waits answers yet.
    unanswered: u32,
    /// Key pages that were used and that were not, the last of them.
    used: u32,
    unused: u32,
    /// Most of what it names is useless.
    has_lost: bool,
    /// Batches since it lost.
    batches: u32,
}

impl Site {
    fn judge(&mut self) {
        let known = self.used + self.unused;
        if known >= KEYS_KNOWN {
            self.has_lost = if self.has_lost { self.used < self.unused } else { self.unused > 2 * self.used };
        }
        if known >= KEYS_COUNTED {
            (self.used, self.unused) = (self.used / 2, self.unused / 2);
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct HintSource {
    /// By number.
    sites: Vec<Site>,
    link: LinkEstimate,
}

impl HintSource {
    fn site(&mut self, site: u16) -> &mut Site {
        let at = usize::from(site);
        if at >= self.sites.len() {
            self.sites.resize(at + 1, Site::default());
        }
        &mut self.sites[at]
    }

    /// A site asks for `pages`, each once and at least one, which are remote. `None`: it has lost.
    pub fn hinted(&mut self, site: u16, pages: &[PageNo]) -> Option<HintBatch> {
        let count = u32::try_from(pages.len()).unwrap_or(u32::MAX);
        let of = self.site(site);
        of.batches = of.batches.wrapping_add(1);
        if of.has_lost && !of.batches.is_multiple_of(PROBE_EVERY) {
            of.statistics.refused += u64::from(count);
            return None;
        }
        let is_known = of.used + of.unused >= KEYS_KNOWN && !of.has_lost;
        of.since_key += count;
        let has_key = of.since_key >= KEY_EVERY[usize::from(is_known)] || of.has_lost;
        if has_key {
            of.since_key = 0;
        }
        let key = pages.last().copied().filter(|_| has_key);
        Some(HintBatch { pages: pages.into(), key, site })
    }

    /// So many pages of a batch have come; the others were there before, or found no frames.
    pub fn arrived(&mut self, batch: &HintBatch, pages: u32) {
        let of = self.site(batch.site);
        of.statistics.fetched += u64::from(pages);
    }

    /// So many pages of a site's batches were mapped, and no key page of their own answers for them.
    pub fn mapped_without_key(&mut self, site: u16, pages: u32) {
        self.site(site).unanswered += pages;
    }

    /// A key page of a site waits from now on: so many pages of earlier batches are taken for used when it is.
    pub fn answers_for(&mut self, site: u16) -> u32 {
        std::mem::take(&mut self.site(site).unanswered)
    }

    /// A key page of a site was used; with those mapped before it, `pages` pages.
    pub fn used(&mut self, site: u16, pages: u32) {
        let of = self.site(site);
        of.statistics.used += u64::from(pages);
        of.used += 1;
        of.judge();
    }

    /// A key page of a site was dropped without a use; with those mapped before it, `pages` pages.
    pub fn wasted(&mut self, site: u16, pages: u32) {
        let of = self.site(site);
        of.statistics.unused += u64::from(pages);
        of.unused += 1;
        of.judge();
    }

    /// What a site's hints have led to, and whether it has lost.
    pub fn statistics(&self, site: u16) -> (HintStatistics, bool) {
        self.sites.get(usize::from(site)).map_or_else(Default::default, |of| (of.statistics, of.has_lost))
    }

    /// A load of `pages` pages took `ns` nanoseconds.
    pub fn loaded(&mut self, pages: u32, ns: u64) {
        self.link.sample(u64::from(pages) * PAGE_BYTES as u64, true, ns);
    }

    /// The link that pages come over, as loads tell.
    pub fn link(&self) -> &LinkEstimate {
        &self.link
    }

    /// Sites have other numbers from now on: in the child of a fork.
    pub fn forget_sites(&mut self) {
        self.sites.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(first: u32, count: u32) -> Vec<PageNo> {
        (first..first + count).map(PageNo).collect()
    }

    #[test]
    fn a_key_page_comes_now_and_then_and_answers_for_those_before_it() {
        let mut hints = HintSource::default();
        let mut keys = Vec::new();
        for at in 0..20 {
            let batch = hints.hinted(3, &pages(at * 4, 4)).unwrap();
            hints.arrived(&batch, 4);
            match batch.key {
                None => hints.mapped_without_key(3, 4),
                Some(key) => keys.push((key.0, hints.answers_for(3))),
            }
        }
        assert_eq!(keys, [(15, 12), (31, 12), (47, 12), (63, 12), (79, 12)], "one in 16 pages");
        for _ in 0..8 {
            hints.used(3, 16);
        }
        let keys = (0..32).filter(|at| hints.hinted(3, &pages(1000 + at * 4, 4)).unwrap().key.is_some()).count();
        assert_eq!(keys, 2, "one in 64, once the site is known");
        let (statistics, lost) = hints.statistics(3);
        assert_eq!((statistics.fetched, statistics.used, statistics.refused, lost), (80, 128, 0, false));
        assert_eq!(hints.statistics(9), Default::default());
    }

    #[test]
    fn a_key_page_answers_for_no_page_that_the_program_has_fetched_itself() {
        let mut hints = HintSource::default();
        // The hints of 12 pages are late; of four others two are.
        for at in 0..3 {
            let late = hints.hinted(1, &pages(at * 4, 4)).unwrap();
            hints.arrived(&late, 0);
        }
        let batch = hints.hinted(1, &pages(12, 4)).unwrap();
        hints.arrived(&batch, 2);
        let pages = 2 + hints.answers_for(1);
        assert!(batch.key.is_some() && pages == 2);
        hints.used(1, pages);
        assert_eq!((hints.statistics(1).0.used, hints.statistics(1).0.fetched), (2, 2));
    }

    #[test]
    fn the_next_key_page_answers_for_a_batch_whose_own_key_page_does_not_wait() {
        let mut hints = HintSource::default();
        for at in 0..4 {
            let batch = hints.hinted(1, &pages(at * 16, 16)).unwrap();
            assert!(batch.key.is_some());
            // The program has fetched the first three key pages itself.
            let mapped = if at < 3 { 15 } else { 16 };
            hints.arrived(&batch, mapped);
            if at < 3 {
                hints.mapped_without_key(1, mapped);
            }
        }
        let pages = 16 + hints.answers_for(1);
        hints.used(1, pages);
        assert_eq!((hints.statistics(1).0.used, hints.statistics(1).0.fetched), (61, 61));
    }

    #[test]
    fn a_site_that_names_useless_pages_loses_and_finds_its_way_back() {
        let mut hints = HintSource::default();
        let fetched =
            |hints: &mut HintSource, site| (0..160).filter_map(|at| hints.hinted(site, &pages(at, 1))).count();
        for _ in 0..20 {
            hints.wasted(1, 16);
            hints.used(2, 16);
        }
        assert_eq!([fetched(&mut hints, 1), fetched(&mut hints, 2)], [10, 160], "the other site is not blamed");
        assert_eq!(hints.statistics(1).0.refused, 150);
        assert!((0..160).filter_map(|at| hints.hinted(1, &pages(at, 1))).all(|batch| batch.key.is_some()));
        // The program uses what is still fetched for it.
        let needed = (1..)
            .find(|_| {
                hints.used(1, 1);
                !hints.statistics(1).1
            })
            .unwrap();
        assert!(needed <= 32, "{needed} key pages");
        assert_eq!(fetched(&mut hints, 1), 160);
    }

    #[test]
    fn half_of_the_pages_used_is_no_loss() {
        let mut hints = HintSource::default();
        for _ in 0..200 {
            hints.wasted(0, 1);
            hints.used(0, 1);
            assert!(!hints.statistics(0).1);
        }
    }
}
