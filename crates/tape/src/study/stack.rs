//! LRU stack distances (Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for storage hierarchies, 1970), and working sets.
//!
//! A page's stack distance is the number of different pages touched since it was touched last, itself included. LRU memory of
//! `n` pages misses exactly the references whose distance is greater than `n`, and the first touches; so one pass gives the
//! misses of every size. The distance is counted with a Fenwick tree over time, which has a one where some page was touched
//! last (Bennett, Kruskal, 1975); when it is full, time is renumbered without the zeros, so that its size follows the pages and
//! not the references: O(log pages) for each reference.

use std::collections::HashMap;

/// Places in the tree at the beginning.
const PLACES_MIN: usize = 1 << 12;
/// Lengths of working-set windows, as powers of two.
const WINDOWS: usize = 48;

/// What one reference finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recency {
    /// The page was never touched before.
    First,
    /// So many different pages were touched since, this one included.
    Distance(u64),
}

/// Where and when a page was touched last.
#[derive(Clone, Copy)]
struct Last {
    place: usize,
    reference: u64,
}

/// See the module.
pub struct StackDistances {
    last: HashMap<u64, Last>,
    /// Fenwick tree; the element at `i` is the sum over the `lowbit(i + 1)` places up to `i`.
    tree: Vec<u32>,
    next: usize,
    references: u64,
    /// References by distance, from 1.
    by_distance: Vec<u64>,
    /// Times between two references of a page by power of two: how many, and their sum.
    intervals: [(u64, u64); WINDOWS],
}

impl Default for StackDistances {
    fn default() -> StackDistances {
        StackDistances {
            last: HashMap::new(),
            tree: vec![0; PLACES_MIN],
            next: 0,
            references: 0,
            by_distance: Vec::new(),
            intervals: [(0, 0); WINDOWS],
        }
    }
}

impl StackDistances {
    /// Takes a reference in.
    pub fn reference(&mut self, position: u64) -> Recency {
        if self.next == self.tree.len() {
            self.renumber();
        }
        let (place, reference) = (self.next, self.references);
        self.next += 1;
        self.references += 1;
        let before = self.last.insert(position, Last { place, reference });
        let recency = match before {
            None => Recency::First,
            Some(last) => {
                let later = self.last.len() as u64 - u64::from(self.sum_to(last.place));
                self.add(last.place, u32::MAX);
                self.count_distance(later + 1);
                self.count_interval(reference - last.reference);
                Recency::Distance(later + 1)
            }
        };
        self.add(place, 1);
        recency
    }

    /// A page has lost its content, and its place in any memory; false: it had none.
    pub fn discard(&mut self, position: u64) -> bool {
        let Some(last) = self.last.remove(&position) else { return false };
        self.add(last.place, u32::MAX);
        self.count_interval(self.references - last.reference);
        true
    }

    /// Whether a page was touched and has its content still.
    pub fn has(&self, position: u64) -> bool {
        self.last.contains_key(&position)
    }

    /// First touches so far, also of pages that had lost their content: the misses of memory in which everything fits.
    pub fn first_touches(&self) -> u64 {
        self.references - self.by_distance.iter().sum::<u64>()
    }

    /// References that LRU memory of so many pages would have missed, first touches included.
    pub fn misses(&self, local_pages: u64) -> u64 {
        let held = usize::try_from(local_pages).unwrap_or(usize::MAX).min(self.by_distance.len());
        self.references - self.by_distance[..held].iter().sum::<u64>()
    }

    /// Different pages in `2^power` references that follow each other, on average over the trace (Denning's working set, by
    /// the recurrence of Denning and Schwartz: the mean of all intervals, each cut at the window).
    pub fn working_set(&self, power: usize) -> f64 {
        if self.references == 0 {
            return 0.0;
        }
        let window = 1u64 << power.min(WINDOWS - 1);
        let cut = |interval: u64| interval.min(window);
        let (short, long) = self.intervals.split_at(power.min(WINDOWS));
        let between: u64 =
            short.iter().map(|(_, sum)| sum).sum::<u64>() + long.iter().map(|(n, _)| n * window).sum::<u64>();
        // A page's last reference keeps it in the windows that begin before the end.
        let last: u64 = self.last.values().map(|last| cut(self.references - last.reference)).sum();
        #[allow(clippy::cast_precision_loss, reason = "an average for people")]
        let mean = (between + last) as f64 / self.references as f64;
        mean
    }

    fn count_distance(&mut self, distance: u64) {
        let index = usize::try_from(distance - 1).unwrap_or(usize::MAX);
        if index >= self.by_distance.len() {
            self.by_distance.resize(index + 1, 0);
        }
        self.by_distance[index] += 1;
    }

    fn count_interval(&mut self, interval: u64) {
        let power = (63 - interval.max(1).leading_zeros()) as usize;
        let (count, sum) = &mut self.intervals[power.min(WINDOWS - 1)];
        *count += 1;
        *sum += interval;
    }

    /// Adds to a place, modulo 2³².
    fn add(&mut self, place: usize, change: u32) {
        let mut at = place;
        while let Some(sum) = self.tree.get_mut(at) {
            *sum = sum.wrapping_add(change);
            at |= at + 1;
        }
    }

    /// Ones up to a place, included.
    fn sum_to(&self, place: usize) -> u32 {
        let (mut sum, mut end) = (0u32, place + 1);
        while end > 0 {
            sum = sum.wrapping_add(self.tree[end - 1]);
            end &= end - 1;
        }
        sum
    }

    /// Gives the pages the first places, in order of their last touch, with as many free ones behind them at least.
    fn renumber(&mut self) {
        let mut pages: Vec<&mut Last> = self.last.values_mut().collect();
        pages.sort_unstable_by_key(|last| last.place);
        self.next = pages.len();
        pages.into_iter().enumerate().for_each(|(place, last)| last.place = place);
        self.tree = vec![0; (2 * self.next).max(PLACES_MIN)];
        for place in 0..self.next {
            self.add(place, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_units::Rng;

    #[test]
    fn a_loop_misses_always_or_never() {
        let mut distances = StackDistances::default();
        for round in 0..10 {
            for page in 0..1000 {
                let expected = if round == 0 { Recency::First } else { Recency::Distance(1000) };
                assert_eq!(distances.reference(page), expected);
            }
        }
        assert_eq!((distances.misses(999), distances.misses(1000), distances.misses(0)), (10_000, 1000, 10_000));
    }

    #[test]
    fn agrees_with_an_lru_stack() {
        let mut random = Rng(5);
        let mut distances = StackDistances::default();
        let mut stack: Vec<u64> = Vec::new();
        let mut misses = [0u64; 4];
        let sizes = [1, 10, 100, 250];
        for _ in 0..20_000 {
            // Small pages are touched more often.
            let page = random.next_u64() % (random.next_u64() % 300 + 1);
            let depth = stack.iter().rev().position(|seen| *seen == page);
            let expected = depth.map_or(Recency::First, |depth| Recency::Distance(depth as u64 + 1));
            assert_eq!(distances.reference(page), expected);
            for (size, count) in sizes.iter().zip(&mut misses) {
                *count += u64::from(depth.is_none_or(|depth| depth >= *size));
            }
            stack.retain(|seen| *seen != page);
            stack.push(page);
        }
        assert_eq!(sizes.map(|size| distances.misses(size as u64)), misses);
    }

    #[test]
    fn the_working_set_is_the_mean_over_all_windows() {
        let mut random = Rng(9);
        let trace: Vec<u64> = (0..3000).map(|_| random.next_u64() % (random.next_u64() % 200 + 1)).collect();
        let mut distances = StackDistances::default();
        for page in &trace {
            distances.reference(*page);
        }
        for power in [0, 3, 6, 9] {
            // Windows that end at each reference, those at the beginning and behind the end shorter.
            let window = 1usize << power;
            let total: usize = (0..trace.len() + window - 1)
                .map(|end| {
                    let part = &trace[(end + 1).saturating_sub(window).min(trace.len())..(end + 1).min(trace.len())];
                    part.iter().collect::<std::collections::HashSet<_>>().len()
                })
                .sum();
            // Every page counts in `min(interval, window)` windows; the intervals at the end are cut at the end of the trace.
            let naive = total as f64 / trace.len() as f64;
            let exact = distances.working_set(power);
            assert!(
                exact <= naive && naive - exact <= window as f64 * 200.0 / 3000.0 + 1e-9,
                "{power}: {exact} {naive}"
            );
        }
        let mut one = StackDistances::default();
        for _ in 0..100 {
            one.reference(3);
        }
        assert!((one.working_set(5) - 1.0).abs() < 1e-9);
    }
}
