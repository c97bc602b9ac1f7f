//! A set of pages, as ranges in ascending order.

use hinterland_units::PageNo;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PageSet {
    /// First and last page of each range; they are apart.
    ranges: Vec<(u32, u32)>,
    pages: u64,
}

impl PageSet {
    /// Of ranges, each by its first page and how many it has; in any order, and they may overlap.
    pub fn of(ranges: impl IntoIterator<Item = (PageNo, u32)>) -> PageSet {
        let last = |first: PageNo, pages: u32| first.0.saturating_add(pages - 1);
        let mut all: Vec<(u32, u32)> = ranges
            .into_iter()
            .filter(|(_, pages)| *pages > 0)
            .map(|(first, pages)| (first.0, last(first, pages)))
            .collect();
        all.sort_unstable();
        let mut ranges: Vec<(u32, u32)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match ranges.last_mut().filter(|before| first <= before.1.saturating_add(1)) {
                Some(before) => before.1 = before.1.max(last),
                None => ranges.push((first, last)),
            }
        }
        let pages = ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        PageSet { ranges, pages }
    }

    /// How many.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether it has a page.
    pub fn has(&self, page: PageNo) -> bool {
        let at = self.ranges.partition_point(|(_, last)| *last < page.0);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= page.0)
    }

    /// The page that comes next, in order of address, where `place` is; moves `place` on. It begins at its default.
    pub fn next(&self, place: &mut SetPlace) -> Option<PageNo> {
        let (first, last) = *self.ranges.get(place.range)?;
        let page = first + place.offset;
        *place = match page == last {
            true => SetPlace { range: place.range + 1, offset: 0 },
            false => SetPlace { offset: place.offset + 1, ..*place },
        };
        Some(PageNo(page))
    }
}

/// A place in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetPlace {
    range: usize,
    offset: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(set: &PageSet) -> Vec<u32> {
        let mut place = SetPlace::default();
        std::iter::from_fn(|| set.next(&mut place)).map(|page| page.0).collect()
    }

    #[test]
    fn ranges_are_joined_and_every_page_is_there_once() {
        let set = PageSet::of([(20, 3), (5, 1), (22, 2), (6, 2), (90, 0), (u32::MAX, 1)].map(|(p, n)| (PageNo(p), n)));
        let pages = [5, 6, 7, 20, 21, 22, 23, u32::MAX];
        assert_eq!(all(&set), pages);
        assert_eq!((set.pages(), set.ranges.len()), (8, 3));
        for page in (0..100).chain([u32::MAX - 1, u32::MAX]) {
            assert_eq!(set.has(PageNo(page)), pages.contains(&page), "{page}");
        }
        let none = PageSet::of([]);
        assert!(all(&none).is_empty() && !none.has(PageNo(0)));
    }
}
