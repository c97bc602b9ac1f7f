//! The prefetch cache: prefetched pages that wait unmapped, oldest first, with a bound, as in the pager's `prefetch_cache.rs`.

use hinterland_pager::rules::KEY_SLOTS;
use std::collections::{HashMap, VecDeque};

/// What is known of a page that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Pages that were mapped with it: used when it is, as the runtime infers.
    pub(crate) mapped: u32,
    /// Tells it from an earlier wait of the same page.
    stamp: u64,
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct PrefetchCache {
    /// By slot of the page.
    waiting: HashMap<u32, Waiting>,
    /// In order of arrival; those that were used meanwhile are still named.
    order: VecDeque<(u32, u64)>,
    stamp: u64,
    /// Frames that are free for the next page: they stay counted.
    free: u32,
}

/// Where a page can wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// In a frame that is counted already.
    Reused,
    /// In one that is not.
    Fresh,
}

impl PrefetchCache {
    /// Frames that are counted for waiting pages, used or not.
    fn frames(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(KEY_SLOTS) + self.free
    }

    /// Room for one more page, if fewer than `bound` wait.
    pub(crate) fn take(&mut self, bound: u32) -> Option<Room> {
        if self.waiting.len() >= bound.min(KEY_SLOTS) as usize {
            return None;
        }
        if self.free > 0 {
            self.free -= 1;
            return Some(Room::Reused);
        }
        (self.frames() < KEY_SLOTS).then_some(Room::Fresh)
    }

    /// The page that has waited longest goes: its slot, and what was known of it. Its frame is the caller's.
    pub(crate) fn drop_oldest(&mut self) -> Option<(u32, Waiting)> {
        while let Some((page, stamp)) = self.order.pop_front() {
            if self.waiting.get(&page).is_some_and(|waiting| waiting.stamp == stamp) {
                return self.waiting.remove(&page).map(|waiting| (page, waiting));
            }
        }
        None
    }

    /// A page waits in room that was taken.
    pub(crate) fn push(&mut self, page: u32, mapped: u32) {
        self.stamp += 1;
        let before = self.waiting.insert(page, Waiting { mapped, stamp: self.stamp });
        assert!(before.is_none(), "the page in slot {page} waits twice");
        self.order.push_back((page, self.stamp));
        if self.order.len() > 4 * KEY_SLOTS as usize {
            let waiting = &self.waiting;
            self.order.retain(|(page, stamp)| waiting.get(page).is_some_and(|w| w.stamp == *stamp));
        }
    }

    /// More pages were mapped with a page that waits.
    pub(crate) fn mapped_with(&mut self, page: u32, mapped: u32) {
        self.waiting.get_mut(&page).unwrap_or_else(|| panic!("the page in slot {page} does not wait")).mapped += mapped;
    }

    /// A page is used: its frame is free for the next at once.
    pub(crate) fn release(&mut self, page: u32) -> Waiting {
        self.free += 1;
        self.waiting.remove(&page).unwrap_or_else(|| panic!("the page in slot {page} does not wait"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_frames_are_reused() {
        let mut cache = PrefetchCache::default();
        for page in 0..3 {
            assert_eq!(cache.take(3), Some(Room::Fresh));
            cache.push(page, page);
        }
        assert_eq!(cache.take(3), None);
        assert_eq!(cache.release(0).mapped, 0);
        assert_eq!(cache.take(3), Some(Room::Reused), "no frame more than before");
        cache.push(0, 7);
        assert_eq!(cache.drop_oldest().map(|(page, _)| page), Some(1));
        assert_eq!(cache.drop_oldest().map(|(page, _)| page), Some(2));
        assert_eq!(cache.drop_oldest().map(|(page, waiting)| (page, waiting.mapped)), Some((0, 7)));
        assert!(cache.drop_oldest().is_none());
    }
}
