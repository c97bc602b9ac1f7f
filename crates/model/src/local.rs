//! Local memory: which pages it holds, which are dirty, and which leaves next.

use crate::parameters::Replacement;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    newer: u32,
    older: u32,
    is_local: bool,
    is_dirty: bool,
}

/// A page that left local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// Which page.
    pub page: u32,
    /// Whether remote memory lacks what was written to it.
    pub dirty: bool,
}

/// The pages of local memory in a list, newest first: by last access (LRU), or by arrival (FIFO).
///
/// Invariant: at most `frames` pages are local, and the list has these alone.
#[derive(Debug)]
pub struct LocalMemory {
    entries: Vec<Entry>,
    newest: u32,
    oldest: u32,
    held: u32,
    frames: u32,
    replacement: Replacement,
}

impl LocalMemory {
    /// Room for `frames` of `pages`, all empty.
    pub fn new(pages: u32, frames: u32, replacement: Replacement) -> LocalMemory {
        let absent = Entry { newer: NONE, older: NONE, is_local: false, is_dirty: false };
        let entries = vec![absent; pages as usize];
        LocalMemory { entries, newest: NONE, oldest: NONE, held: 0, frames, replacement }
    }

    /// Whether the page is here.
    pub fn holds(&self, page: u32) -> bool {
        self.entries[page as usize].is_local
    }

    /// An access: the page counts as used.
    pub fn touch(&mut self, page: u32) {
        if self.replacement == Replacement::Lru && self.newest != page {
            self.unlink(page);
            self.link(page);
        }
    }

    /// A line of the page was written to.
    pub fn mark_dirty(&mut self, page: u32) {
        debug_assert!(self.holds(page), "page {page}");
        self.entries[page as usize].is_dirty = true;
    }

    /// Takes a page in, and puts out the one that leaves for it.
    pub fn insert(&mut self, page: u32, dirty: bool) -> Option<Evicted> {
        debug_assert!(!self.holds(page), "page {page} comes twice");
        let evicted = (self.held == self.frames).then(|| self.evict());
        self.held += 1;
        self.link(page);
        let entry = &mut self.entries[page as usize];
        (entry.is_local, entry.is_dirty) = (true, dirty);
        evicted
    }

    fn evict(&mut self) -> Evicted {
        let page = self.oldest;
        self.unlink(page);
        self.held -= 1;
        let entry = &mut self.entries[page as usize];
        entry.is_local = false;
        Evicted { page, dirty: entry.is_dirty }
    }

    fn unlink(&mut self, page: u32) {
        let Entry { newer, older, .. } = self.entries[page as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link(&mut self, page: u32) {
        let older = std::mem::replace(&mut self.newest, page);
        let entry = &mut self.entries[page as usize];
        (entry.newer, entry.older) = (NONE, older);
        match older {
            NONE => self.oldest = page,
            older => self.entries[older as usize].newer = page,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn clean(page: u32) -> Option<Evicted> {
        Some(Evicted { page, dirty: false })
    }

    #[test]
    fn lru_evicts_what_was_not_used_and_fifo_what_came_first() {
        for (replacement, first, second) in [(Replacement::Lru, 1, 2), (Replacement::Fifo, 0, 1)] {
            let mut local = LocalMemory::new(8, 3, replacement);
            for page in 0..3 {
                assert_eq!(local.insert(page, false), None);
            }
            local.touch(0);
            assert_eq!(local.insert(3, false), clean(first));
            assert!(!local.holds(first) && local.holds(3));
            assert_eq!(local.insert(4, false), clean(second));
        }
    }

    #[test]
    fn a_dirty_page_leaves_dirty_and_returns_clean() {
        let mut local = LocalMemory::new(3, 1, Replacement::Lru);
        local.insert(0, false);
        local.mark_dirty(0);
        assert_eq!(local.insert(1, true), Some(Evicted { page: 0, dirty: true }));
        assert_eq!(local.insert(0, false), Some(Evicted { page: 1, dirty: true }));
        assert_eq!(local.insert(2, false), clean(0));
    }

    #[test]
    fn it_agrees_with_a_list() {
        let (mut local, mut list, mut random) = (LocalMemory::new(16, 5, Replacement::Lru), Vec::new(), Random::new(7));
        for _ in 0..10_000 {
            let page = u32::try_from(random.below(16)).expect("small");
            assert_eq!(local.holds(page), list.contains(&page));
            if local.holds(page) {
                local.touch(page);
                list.retain(|other| *other != page);
            } else {
                let expected = if list.len() == 5 { list.pop() } else { None };
                assert_eq!(local.insert(page, false).map(|evicted| evicted.page), expected);
            }
            list.insert(0, page);
        }
    }
}
