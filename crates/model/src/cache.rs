//! One cache of the core: sets of ways, most recently used first.

use crate::parameters::{CacheShape, LINE_BYTES};

/// No line.
pub const NO_LINE: u32 = u32::MAX;

/// A line in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Which line, or [`NO_LINE`].
    pub line: u32,
    /// The LLC miss that brought it.
    pub miss: u32,
    /// Whether it was written to since it came to this cache.
    pub dirty: bool,
}

/// Replaces the least recently used line of a set.
///
/// Invariant: a line is in at most one way; the ways of a set are in order of their last use, empty ones last.
#[derive(Debug)]
pub struct Cache {
    ways: Vec<Way>,
    ways_per_set: usize,
    set_mask: u32,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Panics
    /// If the number of sets is no power of two.
    pub fn new(shape: CacheShape) -> Cache {
        let lines = usize::try_from(shape.bytes / LINE_BYTES).expect("a cache fits into memory");
        let sets = lines / shape.ways;
        assert!(sets.is_power_of_two(), "{sets} sets");
        let empty = Way { line: NO_LINE, miss: 0, dirty: false };
        let set_mask = u32::try_from(sets - 1).expect("fewer than 2^32 sets");
        Cache { ways: vec![empty; sets * shape.ways], ways_per_set: shape.ways, set_mask }
    }

    fn set(&mut self, line: u32) -> &mut [Way] {
        let first = (line & self.set_mask) as usize * self.ways_per_set;
        &mut self.ways[first..first + self.ways_per_set]
    }

    /// The line, which becomes the most recently used one of its set.
    #[inline]
    pub fn use_line(&mut self, line: u32) -> Option<&mut Way> {
        let set = self.set(line);
        if set[0].line != line {
            let at = set.iter().position(|way| way.line == line)?;
            set[..=at].rotate_right(1);
        }
        Some(&mut set[0])
    }

    /// Puts a line that is not in the cache, and returns the one that it replaces.
    pub fn fill(&mut self, way: Way) -> Option<Way> {
        let set = self.set(way.line);
        debug_assert!(set.iter().all(|other| other.line != way.line), "line {} is there", way.line);
        set.rotate_right(1);
        let old = std::mem::replace(&mut set[0], way);
        (old.line != NO_LINE).then_some(old)
    }

    /// Marks a line written to, in its place; `false` if it is not there.
    pub fn write(&mut self, line: u32) -> bool {
        let found = self.set(line).iter_mut().find(|way| way.line == line);
        found.map(|way| way.dirty = true).is_some()
    }

    /// Drops a line; whether it was there and dirty.
    pub fn invalidate(&mut self, line: u32) -> bool {
        let set = self.set(line);
        let Some(at) = set.iter().position(|way| way.line == line) else { return false };
        let dirty = set[at].dirty;
        set[at] = Way { line: NO_LINE, miss: 0, dirty: false };
        set[at..].rotate_left(1);
        dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Two sets of two ways: even lines and odd ones.
    fn tiny() -> Cache {
        Cache::new(CacheShape { bytes: 4 * LINE_BYTES, ways: 2, latency_cycles: 1 })
    }

    fn clean(line: u32) -> Way {
        Way { line, miss: line, dirty: false }
    }

    #[test]
    fn the_least_recently_used_line_of_the_set_is_replaced() {
        let mut cache = tiny();
        assert_eq!(cache.fill(clean(0)), None);
        assert_eq!(cache.fill(clean(2)), None);
        assert_eq!(cache.fill(clean(1)), None);
        assert!(cache.use_line(0).is_some());
        assert_eq!(cache.fill(clean(4)), Some(clean(2)));
        assert!(cache.use_line(2).is_none());
        assert!(cache.use_line(1).is_some());
    }

    #[test]
    fn an_invalidated_way_is_filled_first() {
        let mut cache = tiny();
        cache.fill(clean(0));
        cache.fill(clean(2));
        assert!(cache.write(2));
        assert!(cache.invalidate(2));
        assert!(!cache.invalidate(2));
        assert!(!cache.write(2));
        assert_eq!(cache.fill(clean(4)), None);
        assert_eq!(cache.fill(clean(6)), Some(clean(0)));
    }

    #[test]
    fn it_agrees_with_a_list_of_recent_lines() {
        let (mut cache, mut recent, mut random) = (tiny(), [Vec::new(), Vec::new()], Random::new(1));
        for _ in 0..10_000 {
            let line = u32::try_from(random.below(8)).expect("small");
            let list: &mut Vec<u32> = &mut recent[(line % 2) as usize];
            let known = list.iter().position(|other| *other == line);
            assert_eq!(cache.use_line(line).is_some(), known.is_some());
            match known {
                Some(at) => drop(list.remove(at)),
                None => {
                    let replaced = if list.len() == 2 { list.pop() } else { None };
                    assert_eq!(cache.fill(clean(line)).map(|way| way.line), replaced);
                }
            }
            list.insert(0, line);
        }
    }
}
