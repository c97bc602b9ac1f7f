//! What a memory of the same size could do that sees every touch (LRU), or the future (MIN): the measures for the policies in the
//! simulator, and what tapes are planned with.
//!
//! Pages are named by slots: small numbers in order of appearance. Tables grow with the slots that are touched.

mod lru;
mod min;
mod next_uses;

pub use lru::Lru;
pub use min::Min;
pub use next_uses::{NEVER, NextUses};

/// Which page leaves, when every touch is seen.
pub trait Ideal: Send {
    /// The page in `slot`, which is local or comes now, is touched; its next touch is the `next`-th of all ([`NEVER`]: there is none).
    fn touched(&mut self, slot: u32, next: u32);

    /// The page in `slot` cannot leave until it is touched the next time. Nothing for a page that is not local.
    fn remove(&mut self, slot: u32);

    /// Takes the page out that is to leave; `None`: no page can.
    fn leave(&mut self) -> Option<u32>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Silberschatz, Galvin & Gagne, "Operating system concepts", on page replacement: three frames.
    const TEXTBOOK: [u32; 20] = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];

    /// Faults, first touches among them.
    fn faults(ideal: &mut dyn Ideal, pages: &[u32], frames: usize) -> usize {
        let next = NextUses::of(pages.iter().copied());
        let (mut local, mut faults) = (Vec::new(), 0);
        for (at, page) in pages.iter().enumerate() {
            if !local.contains(page) {
                faults += 1;
                if local.len() == frames {
                    let victim = ideal.leave().expect("pages are local");
                    local.retain(|page| *page != victim);
                }
                local.push(*page);
            }
            ideal.touched(*page, next.after(at));
        }
        let mut left: Vec<u32> = std::iter::from_fn(|| ideal.leave()).collect();
        left.sort_unstable();
        local.sort_unstable();
        assert_eq!(left, local, "each local page leaves once");
        faults
    }

    #[test]
    fn both_agree_with_the_textbook() {
        assert_eq!(faults(&mut Min::new(), &TEXTBOOK, 3), 9);
        assert_eq!(faults(&mut Lru::new(), &TEXTBOOK, 3), 12);
    }

    #[test]
    fn a_loop_one_larger_than_the_memory_misses_always_with_lru_and_every_fourth_time_with_min() {
        let pages: Vec<u32> = (0..10).flat_map(|_| 0..5).collect();
        assert_eq!(faults(&mut Lru::new(), &pages, 4), 50);
        // The page that has just been touched is needed last: it goes, so that the four touches after it miss once: 45 / 4.
        assert_eq!(faults(&mut Min::new(), &pages, 4), 5 + 11);
        assert_eq!(faults(&mut Lru::new(), &pages, 5), 5);
    }

    /// The optimum by trying everything: the fewest faults from here on.
    fn fewest(pages: &[u32], local: &[u32], frames: usize) -> usize {
        let Some((page, rest)) = pages.split_first() else { return 0 };
        if local.contains(page) {
            return fewest(rest, local, frames);
        }
        let with = |kept: Vec<u32>| 1 + fewest(rest, &[kept, vec![*page]].concat(), frames);
        if local.len() < frames {
            return with(local.to_vec());
        }
        let without = |victim: &u32| local.iter().copied().filter(|page| page != victim).collect();
        local.iter().map(|victim| with(without(victim))).min().unwrap_or(usize::MAX)
    }

    #[test]
    fn min_is_what_trying_everything_finds() {
        for seed in 0..200 {
            let mut random = SmallRng::seed_from_u64(seed);
            let pages: Vec<u32> = (0..12).map(|_| random.random_range(0..5)).collect();
            let frames = random.random_range(1..4);
            let found = faults(&mut Min::new(), &pages, frames);
            assert_eq!(found, fewest(&pages, &[], frames), "seed {seed}: {pages:?} in {frames} frames");
        }
    }

    /// Among many touches old entries of the heap are thrown out: what is left must still be right.
    #[test]
    fn lru_evicts_the_oldest_and_min_the_furthest_of_the_pages_that_may_leave() {
        let mut random = SmallRng::seed_from_u64(3);
        let mut page = || (random.random_range(0..200) * random.random_range(0..200)) / 200;
        let pages: Vec<u32> = (0..60_000).map(|_| page()).collect();
        let next = NextUses::of(pages.iter().copied());
        let (mut lru, mut min) = (Lru::new(), Min::new());
        // (slot, last touch, next touch) of the pages that may leave.
        let mut free: Vec<(u32, usize, u32)> = Vec::new();
        for (at, page) in pages.iter().enumerate() {
            free.retain(|(slot, ..)| slot != page);
            free.push((*page, at, next.after(at)));
            lru.touched(*page, next.after(at));
            min.touched(*page, next.after(at));
            match random.random_range(0..40) {
                0 => {
                    let slot = random.random_range(0..200);
                    free.retain(|(other, ..)| *other != slot);
                    lru.remove(slot);
                    min.remove(slot);
                }
                1 => {
                    let oldest = free.iter().min_by_key(|(_, last, _)| *last).map(|(slot, ..)| *slot);
                    let furthest = free.iter().map(|(.., next)| *next).max();
                    let (first, second) = (lru.leave(), min.leave());
                    assert_eq!(first, oldest);
                    let due = second.and_then(|slot| free.iter().find(|(other, ..)| *other == slot));
                    assert_eq!(due.map(|(.., next)| *next), furthest);
                    for slot in [first, second].into_iter().flatten() {
                        free.retain(|(other, ..)| *other != slot);
                        lru.remove(slot);
                        min.remove(slot);
                    }
                }
                _ => {}
            }
        }
    }
}
