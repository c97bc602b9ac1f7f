//! References for the policies: what a memory of the same size could do that sees every touch (LRU) or the future (MIN).
//!
//! All frames hold mapped pages, one page leaves for each that comes, what leaves is written back at once, nothing is prefetched.
//! MIN is L. A. Belady's, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966: the page
//! whose next touch is furthest away leaves; no policy has fewer major faults without prefetching.

use crate::figures::Figures;
use crate::machine::REPORT_REFERENCES;
use crate::{Setup, Workload};
use hinterland_backend::{Link, Priority};
use std::collections::BinaryHeap;

/// No page, no time.
const NONE: u32 = u32::MAX;

/// Which page leaves. All pages by slot.
pub(crate) trait Order {
    /// A local page, or one that comes now, is touched; `at` counts touches.
    fn touched(&mut self, slot: u32, at: usize);
    /// Takes the page out that is to leave.
    fn leave(&mut self) -> u32;
}

/// Least recently used: a ring of the local pages in order of their last touches.
pub(crate) struct Lru {
    /// By slot, and once more for the end of the ring; a page that is not local points at itself.
    newer: Vec<u32>,
    older: Vec<u32>,
}

impl Lru {
    pub(crate) fn new(work: &Workload) -> Lru {
        let ring: Vec<u32> = (0..=u32::try_from(work.slots()).unwrap_or(NONE)).collect();
        Lru { newer: ring.clone(), older: ring }
    }

    fn end(&self) -> u32 {
        u32::try_from(self.newer.len() - 1).unwrap_or(NONE)
    }

    fn take_out(&mut self, slot: u32) {
        let (older, newer) = (self.older[slot as usize], self.newer[slot as usize]);
        (self.newer[older as usize], self.older[newer as usize]) = (newer, older);
        (self.newer[slot as usize], self.older[slot as usize]) = (slot, slot);
    }
}

impl Order for Lru {
    #[inline]
    fn touched(&mut self, slot: u32, _: usize) {
        let end = self.end();
        let newest = self.older[end as usize];
        if newest == slot {
            return;
        }
        self.take_out(slot);
        let newest = self.older[end as usize];
        (self.older[slot as usize], self.newer[slot as usize]) = (newest, end);
        (self.newer[newest as usize], self.older[end as usize]) = (slot, slot);
    }

    fn leave(&mut self) -> u32 {
        let oldest = self.newer[self.end() as usize];
        self.take_out(oldest);
        oldest
    }
}

/// Belady's.
pub(crate) struct Min {
    /// By touch: the next touch of the same page.
    next: Vec<u32>,
    /// By slot: when the page, which is local, is touched next.
    due: Vec<u32>,
    /// Entries that disagree with `due` are stale.
    furthest: BinaryHeap<(u32, u32)>,
    frames: usize,
}

impl Min {
    pub(crate) fn new(work: &Workload, frames: u64) -> Min {
        let mut next = vec![NONE; work.touches().len()];
        let mut last = vec![NONE; work.slots()];
        for (at, touch) in work.touches().iter().enumerate().rev() {
            let at_number = u32::try_from(at).unwrap_or(NONE);
            next[at] = std::mem::replace(&mut last[touch.slot as usize], at_number);
        }
        let frames = usize::try_from(frames).unwrap_or(usize::MAX).min(work.slots());
        Min { next, due: vec![NONE; work.slots()], furthest: BinaryHeap::new(), frames }
    }
}

impl Order for Min {
    fn touched(&mut self, slot: u32, at: usize) {
        let due = self.next[at];
        self.due[slot as usize] = due;
        self.furthest.push((due, slot));
        if self.furthest.len() > 4 * self.frames + 1024 {
            let Min { due, furthest, .. } = self;
            furthest.retain(|(when, slot)| due[*slot as usize] == *when);
        }
    }

    fn leave(&mut self) -> u32 {
        loop {
            let (when, slot) = self.furthest.pop().expect("local pages are in the heap");
            if self.due[slot as usize] == when && self.due[slot as usize] != LEFT {
                self.due[slot as usize] = LEFT;
                return slot;
            }
        }
    }
}

/// In [`Min::due`]: not local. No touch has this number, because a workload has fewer.
const LEFT: u32 = NONE - 1;

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Untouched,
    Local,
    /// Local, and far memory had its content when it came.
    LocalCopied,
    Remote,
}

/// Replays a workload over `frames` frames, at least one.
pub(crate) fn replay(
    work: &Workload,
    setup: &Setup,
    frames: u64,
    order: &mut dyn Order,
    progress: &mut dyn FnMut(u64),
) -> Figures {
    let mut figures = Figures { cpu_ns: work.cpu_ns(), ..Figures::default() };
    let mut places = vec![Place::default(); work.slots()];
    let mut left = vec![0_u32; work.slots()];
    let mut link: Link<bool> = Link::new(&setup.link);
    let mut local = 0;
    for (at, touch) in work.touches().iter().enumerate() {
        let slot = touch.slot as usize;
        let place = places[slot];
        if matches!(place, Place::Untouched | Place::Remote) {
            let now = touch.at_ns + figures.stalled_ns;
            while link.next_ns() <= now {
                link.step();
            }
            if local == frames {
                let victim = order.leave() as usize;
                left[victim] += 1;
                let dirty = places[victim] == Place::Local
                    || setup.was_written(u32::try_from(victim).unwrap_or(NONE), left[victim]);
                places[victim] = Place::Remote;
                if dirty {
                    figures.evicted_dirty += 1;
                    link.submit(now, false, 1, Priority::WriteBack);
                } else {
                    figures.evicted_clean += 1;
                }
            } else {
                local += 1;
            }
            figures.stalled_ns += setup.costs.fault_ns;
            if place == Place::Untouched {
                figures.first += 1;
                places[slot] = Place::Local;
            } else {
                figures.major += 1;
                figures.stalled_ns += fetch(&mut link, now) - now + setup.costs.major_extra_ns;
                places[slot] = Place::LocalCopied;
            }
        }
        order.touched(touch.slot, at);
        figures.references += 1;
        if (at + 1).is_multiple_of(REPORT_REFERENCES) {
            progress(figures.references);
        }
    }
    while link.next_ns() < u64::MAX {
        link.step();
    }
    progress(figures.references);
    figures.resident = figures.references - figures.first - figures.major;
    figures.local_peak = local;
    figures.link_pages = link.pages();
    figures
}

/// Carries one page for the program; returns when it is there.
fn fetch(link: &mut Link<bool>, now: u64) -> u64 {
    link.submit(now, true, 1, Priority::Demand);
    loop {
        let at = link.next_ns();
        if link.step() == Some(true) {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Costs, LinkModel, pages_in_order};
    use hinterland_units::{Budget, ByteCount};

    /// Silberschatz, Galvin & Gagne, "Operating system concepts", on page replacement: three frames.
    const TEXTBOOK: [u32; 20] = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];

    /// A page takes 100 ns on the link and 1000 ns more, a fault 10 ns, a major one 5 more.
    fn setup() -> Setup {
        let link = LinkModel { name: "test".into(), latency_ns: 1_000, bits_per_second: 327_680_000_000 };
        let costs = Costs { fault_ns: 10, major_extra_ns: 5, ..Costs::of(crate::FaultPath::Inline) };
        Setup { costs, ..Setup::new(Budget::Bytes(ByteCount(0)), link) }
    }

    fn played(pages: &[u32], frames: u64, order: fn(&Workload, u64) -> Box<dyn Order>) -> Figures {
        let work = pages_in_order(pages.iter().copied(), 1_000_000).unwrap();
        replay(&work, &setup(), frames, &mut *order(&work, frames), &mut |_| {})
    }

    fn lru(work: &Workload, _: u64) -> Box<dyn Order> {
        Box::new(Lru::new(work))
    }

    fn min(work: &Workload, frames: u64) -> Box<dyn Order> {
        Box::new(Min::new(work, frames))
    }

    #[test]
    fn both_agree_with_the_textbook() {
        let optimal = played(&TEXTBOOK, 3, min);
        assert_eq!((optimal.first, optimal.first + optimal.major), (6, 9));
        let recent = played(&TEXTBOOK, 3, lru);
        assert_eq!((recent.first, recent.first + recent.major), (6, 12));
    }

    #[test]
    fn a_loop_one_larger_than_the_memory_misses_always_with_lru_and_every_fourth_time_with_min() {
        let pages: Vec<u32> = (0..10).flat_map(|_| 0..5).collect();
        assert_eq!(played(&pages, 4, lru).major, 45);
        // The page that has just been touched is needed last: it goes, so that the four touches after it miss once: 45 / 4.
        assert_eq!(played(&pages, 4, min).major, 11);
        assert_eq!(played(&pages, 5, lru).major, 0);
    }

    #[test]
    fn times_are_those_of_the_single_steps() {
        // 0 and 1 arrive, 2 drives 0 out, 0 drives 1 out and is fetched.
        let figures = played(&[0, 1, 2, 0], 2, lru);
        assert_eq!((figures.first, figures.major, figures.evicted_dirty), (3, 1, 2));
        // Its own victim is asked for first, but demand overtakes: 100 + 1000 on the link.
        assert_eq!(figures.stalled_ns, 4 * 10 + 5 + 1_100);
        assert_eq!((figures.link_pages, figures.cpu_ns), (3, 4_000_000));
        assert_eq!(figures.local_peak, 2);
    }

    /// The optimum by trying everything: the fewest faults from touch `at` on.
    fn fewest(pages: &[u32], local: &[u32], frames: usize) -> u64 {
        let Some((page, rest)) = pages.split_first() else { return 0 };
        if local.contains(page) {
            return fewest(rest, local, frames);
        }
        let with = |kept: Vec<u32>| 1 + fewest(rest, &[kept, vec![*page]].concat(), frames);
        if local.len() < frames {
            return with(local.to_vec());
        }
        let without = |victim: &u32| local.iter().copied().filter(|page| page != victim).collect();
        local.iter().map(|victim| with(without(victim))).min().unwrap_or(u64::MAX)
    }

    #[test]
    fn min_is_what_trying_everything_finds() {
        use rand::{Rng, SeedableRng};
        for seed in 0..200 {
            let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
            let pages: Vec<u32> = (0..12).map(|_| random.random_range(0..5)).collect();
            let frames = random.random_range(1..4);
            let found = played(&pages, frames, min);
            let best = fewest(&pages, &[], usize::try_from(frames).unwrap());
            assert_eq!(found.first + found.major, best, "seed {seed}: {pages:?} in {frames} frames");
        }
    }
}
