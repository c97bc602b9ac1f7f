//! Max-min fairness: how a budget is divided among processes that want more than there is.
//!
//! A process that wants little gets all of it; what is left is divided evenly among the others. The level is the most that a
//! process gets: `sum(min(wanted, level)) = budget`. Source: D. Bertsekas and R. Gallager, Data Networks, 2nd ed., 6.5.2
//! ("max-min flow control"); also known as water-filling.

/// Bytes that every process may hold whatever the others hold: with less, the pager's batches would fill its memory.
pub const SHARE_FLOOR: u64 = 4 << 20;

/// The level for `wanted`, in the budget's unit; `u64::MAX` when every process gets all.
///
/// Needs no memory: `wanted` is walked several times, and may change meanwhile (the level is as good as what was seen).
pub fn fair_level<I: Iterator<Item = u64>>(budget: u64, wanted: impl Fn() -> I) -> u64 {
    /// Each walk satisfies at least one more process that wants little; more than this many steps are rare, and the level is too
    /// low then, never too high.
    const WALKS_MAX: u32 = 16;
    if wanted().fold(0, u64::saturating_add) <= budget {
        return u64::MAX;
    }
    let mut level = 0;
    for _ in 0..WALKS_MAX {
        let (mut small, mut large) = (0u64, 0u64);
        for want in wanted() {
            if want <= level {
                small += want;
            } else {
                large += 1;
            }
        }
        let Some(next) = budget.saturating_sub(small).checked_div(large) else { return u64::MAX };
        if next <= level {
            break;
        }
        level = next;
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn level(budget: u64, wanted: &[u64]) -> u64 {
        fair_level(budget, || wanted.iter().copied())
    }

    #[test]
    fn who_wants_little_gets_it_and_the_rest_is_divided_evenly() {
        assert_eq!(level(100, &[10, 20, 30]), u64::MAX);
        assert_eq!(level(100, &[1000]), 100);
        assert_eq!(level(100, &[1000, 1000]), 50);
        assert_eq!(level(100, &[10, 1000, 1000]), 45);
        assert_eq!(level(100, &[10, 30, 1000, 1000]), 30);
        assert_eq!(level(100, &[]), u64::MAX);
    }

    #[test]
    fn the_level_never_gives_more_than_there_is_and_hardly_less() {
        let mut random = SmallRng::seed_from_u64(4);
        for _ in 0..2000 {
            let count = random.random_range(1..60);
            let wanted: Vec<u64> = (0..count).map(|_| 1 << random.random_range(0..30)).collect();
            let budget = random.random_range(1 << 10..1 << 32);
            let level = level(budget, &wanted);
            let given: u64 = wanted.iter().map(|want| level.min(*want)).sum();
            assert!(given <= budget, "{budget} {wanted:?}");
            let short = wanted.iter().filter(|want| **want > level).count() as u64;
            // Rounding alone leaves a rest, less than one unit for each who is short.
            assert!(short == 0 || budget - given < short, "{budget} {wanted:?}: {level}");
        }
    }
}
