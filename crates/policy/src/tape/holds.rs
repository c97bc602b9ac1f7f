//! Which pages threads' tapes hold in local memory, and which may leave, with their next uses.
//!
//! A page is held from when it is asked for until the thread that asked has come to its departure. Several threads may hold a page.
//! What a thread holds that has left its tape counts for nothing, until it is back: then it needs what the plan has in local memory again.
//! Next uses of all threads are on one scale: a thread's positions, counted on from where the others were when it began.

use hinterland_units::PageNo;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// Old entries that may always be there.
const SPARE: usize = 1024;

/// A bit for each holder; those beyond share them: for a page, they are one holder.
type Holders = u64;

/// The bit of a holder: a thread's tape, or a phase.
fn bit(holder: usize) -> Holders {
    1 << (holder % Holders::BITS as usize)
}

/// What is known of a page of a tape.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Threads that hold it, a bit each.
    holders: Holders,
    resident: bool,
    /// It has left although it was held, and has no entry among the held pages.
    evicted_while_held: bool,
    /// Of those that have let it go and have not asked for it again.
    next_uses: NextUses,
    /// Tells old entries among those that may leave.
    version: u32,
}

/// The two nearest next uses of a page, and whose they are. Further ones are not kept: a page has few words.
#[derive(Clone, Copy, Debug)]
struct NextUses {
    at: [u64; 2],
    of: [u32; 2],
}

/// No holder.
const NONE: u32 = u32::MAX;

impl Default for NextUses {
    fn default() -> NextUses {
        NextUses { at: [u64::MAX; 2], of: [NONE; 2] }
    }
}

impl NextUses {
    /// Those of these holders alone.
    fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        let kept = |of: &u32| *of != NONE && is_kept(*of as usize);
        let NextUses { at, of } = std::mem::take(self);
        at.into_iter().zip(of).filter(|(_, of)| kept(of)).for_each(|(at, of)| self.add(at, of as usize));
    }

    /// A holder without a next use here has this one.
    fn add(&mut self, at: u64, holder: usize) {
        let of = u32::try_from(holder).unwrap_or(NONE);
        if self.of[0] == NONE || at < self.at[0] {
            (self.at, self.of) = ([at, self.at[0]], [of, self.of[0]]);
        } else if self.of[1] == NONE || at < self.at[1] {
            (self.at[1], self.of[1]) = (at, of);
        }
    }

    fn nearest(&self) -> u64 {
        self.at[0]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Holds {
    pages: HashMap<PageNo, Known>,
    /// The furthest next use first; with the version of the page. Entries of pages that were held again since are old.
    may_leave: BinaryHeap<(u64, PageNo, u32)>,
    /// Held pages in the order in which they were asked for, with their versions; some entries are old.
    asked: Vec<(PageNo, u32)>,
    versions: u32,
    /// Holders that are on their tapes, and their bits.
    on_tapes: HashSet<usize>,
    active: Holders,
}

/// What tapes hold, shared by the tapes and the eviction policy that follows them.
#[derive(Clone, Debug, Default)]
pub struct SharedHolds(Arc<Mutex<Holds>>);

impl SharedHolds {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Holds> {
        self.0.lock().expect("no thread panics while it holds what the tapes hold")
    }
}

impl Holds {
    /// A holder has asked for a page, which is resident already or not.
    pub(crate) fn hold(&mut self, page: PageNo, is_resident: bool, holder: usize) {
        self.versions = self.versions.wrapping_add(1);
        self.on_tapes.insert(holder);
        self.active |= bit(holder);
        let known = self.pages.entry(page).or_default();
        known.next_uses.retain(|of| of != holder);
        known.holders |= bit(holder);
        known.resident |= is_resident;
        known.evicted_while_held = false;
        known.version = self.versions;
        self.asked.push((page, self.versions));
        if self.asked.len() > 2 * self.pages.len() + SPARE {
            let pages = &self.pages;
            self.asked.retain(|(page, version)| pages.get(page).is_some_and(|known| known.version == *version));
        }
    }

    /// What it holds counts for nothing, until it holds a page again: it has left its tape.
    pub(crate) fn suspend(&mut self, holder: usize) {
        self.on_tapes.remove(&holder);
        if self.on_tapes.iter().all(|other| bit(*other) != bit(holder)) {
            self.active &= !bit(holder);
        }
    }

    /// A holder has come to a page's departure, and needs it again at `next_use` ([`u64::MAX`]: never). Of several that have let it go the
    /// nearest counts that are on their tapes; of more than two a further one may be lost when the nearer ones ask for the page again.
    pub(crate) fn release(&mut self, page: PageNo, next_use: u64, holder: usize) {
        // A page that came in another way, while the thread was not on its tape, is likely to be resident.
        let known = self.pages.entry(page).or_insert(Known { resident: true, ..Known::default() });
        known.holders &= !bit(holder);
        known.next_uses.retain(|of| of != holder && self.on_tapes.contains(&of));
        known.next_uses.add(next_use, holder);
        if known.holders != 0 {
            return;
        }
        self.may_leave.push((known.next_uses.nearest(), page, known.version));
        // Old entries are taken out once they are most of all.
        if self.may_leave.len() > 2 * self.pages.len() + SPARE {
            let pages = &self.pages;
            self.may_leave.retain(|(_, page, version)| pages.get(page).is_some_and(|known| known.version == *version));
        }
    }

    /// A page has become resident. Whether a tape that is followed has to do with it.
    pub(crate) fn arrived(&mut self, page: PageNo) -> bool {
        let active = self.active;
        let Some(known) = self.pages.get_mut(&page) else { return false };
        known.resident = true;
        if std::mem::take(&mut known.evicted_while_held) && known.holders != 0 {
            self.asked.push((page, known.version));
        }
        known.holders == 0 || known.holders & active != 0
    }

    /// A page is not resident any longer.
    pub(crate) fn gone(&mut self, page: PageNo) {
        let Some(known) = self.pages.get_mut(&page) else { return };
        known.resident = false;
        if known.holders == 0 {
            self.pages.remove(&page);
        }
    }

    /// Takes the page with the furthest next use out, of those that are resident and that no thread holds.
    pub(crate) fn take_furthest(&mut self) -> Option<PageNo> {
        while let Some((_, page, version)) = self.may_leave.pop() {
            let Some(known) = self.pages.get(&page).filter(|known| known.version == version && known.holders == 0)
            else {
                continue;
            };
            let was_resident = known.resident;
            self.pages.remove(&page);
            if was_resident {
                return Some(page);
            }
        }
        None
    }

    /// Whether a thread's tape holds the page.
    pub(crate) fn is_held(&self, page: PageNo) -> bool {
        self.pages.get(&page).is_some_and(|known| known.holders & self.active != 0)
    }

    /// Whether no tape that is followed says anything of any page.
    pub(crate) fn is_empty(&self) -> bool {
        self.active == 0 || self.pages.is_empty()
    }

    /// The page that was asked for last leaves, of those that are resident and held: of what is needed it is likely to be needed last.
    /// It stays held: the plan has it in local memory.
    pub(crate) fn take_last_asked(&mut self) -> Option<PageNo> {
        while let Some((page, version)) = self.asked.pop() {
            let known = self.pages.get_mut(&page).filter(|known| known.version == version && known.resident);
            if let Some(known) = known {
                known.evicted_while_held = true;
                // No thread that is on its tape holds the others: the policy has them.
                if known.holders & self.active != 0 {
                    known.resident = false;
                    return Some(page);
                }
            }
        }
        None
    }

    /// Nothing is held any longer.
    pub(crate) fn clear(&mut self) {
        (self.pages, self.may_leave, self.asked) = (HashMap::new(), BinaryHeap::new(), Vec::new());
        (self.on_tapes, self.active) = (HashSet::new(), 0);
    }

    /// Bytes that it occupies, about.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.capacity() * (size_of::<(PageNo, Known)>() + 1)
            + self.may_leave.capacity() * size_of::<(u64, PageNo, u32)>()
            + self.asked.capacity() * size_of::<(PageNo, u32)>()
            + self.on_tapes.capacity() * (size_of::<usize>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_next_use_leaves_first_and_held_pages_stay() {
        let mut holds = Holds::default();
        for page in 0..5 {
            holds.hold(PageNo(page), false, 0);
            assert!(holds.arrived(PageNo(page)));
        }
        // Another thread holds page 3, too.
        holds.hold(PageNo(3), true, 1);
        for (page, next_use) in [(0, 70), (1, 90), (2, u64::MAX), (3, 200)] {
            holds.release(PageNo(page), next_use, 0);
        }
        // Page 1 is asked for again.
        holds.hold(PageNo(1), true, 0);
        let left: Vec<u32> = std::iter::from_fn(|| holds.take_furthest()).map(|page| page.0).collect();
        assert_eq!(left, [2, 0]);
        assert!([1, 3, 4].into_iter().all(|page| holds.is_held(PageNo(page))));
        assert_eq!(holds.take_last_asked(), Some(PageNo(1)), "it is needed last");
        assert!(holds.is_held(PageNo(1)), "the plan has it in local memory");
        assert!(holds.arrived(PageNo(1)));
        assert_eq!(holds.take_last_asked(), Some(PageNo(1)), "once it is back");
        assert!(holds.arrived(PageNo(1)));
        holds.release(PageNo(3), 50, 1);
        holds.release(PageNo(1), 60, 0);
        assert_eq!([holds.take_furthest(), holds.take_furthest()], [Some(PageNo(1)), Some(PageNo(3))]);
    }

    #[test]
    fn of_threads_that_let_a_page_go_the_nearest_next_use_counts() {
        let mut holds = Holds::default();
        let both = |holds: &mut Holds, page: u32, uses: [u64; 2]| {
            (0..2).for_each(|holder| holds.hold(PageNo(page), true, holder));
            (0..2).for_each(|holder| holds.release(PageNo(page), uses[holder], holder));
        };
        both(&mut holds, 0, [50, u64::MAX]);
        both(&mut holds, 1, [70, 60]);
        both(&mut holds, 2, [80, 90]);
        // The first one has asked for page 1 again, and needs it no more.
        holds.hold(PageNo(1), true, 0);
        holds.release(PageNo(1), u64::MAX, 0);
        let left: Vec<u32> = std::iter::from_fn(|| holds.take_furthest()).map(|page| page.0).collect();
        assert_eq!(left, [2, 1, 0]);
        // What was needed soon is not any longer.
        both(&mut holds, 3, [10, u64::MAX]);
        holds.hold(PageNo(3), true, 0);
        holds.release(PageNo(3), 200, 0);
        both(&mut holds, 4, [100, 150]);
        assert_eq!([holds.take_furthest(), holds.take_furthest()], [Some(PageNo(3)), Some(PageNo(4))]);
        // The other one needs it before, also after the first one has held it again.
        both(&mut holds, 5, [50, 60]);
        holds.hold(PageNo(5), true, 0);
        holds.release(PageNo(5), 200, 0);
        both(&mut holds, 6, [100, 150]);
        assert_eq!([holds.take_furthest(), holds.take_furthest()], [Some(PageNo(6)), Some(PageNo(5))]);
    }

    #[test]
    fn the_next_use_of_a_thread_that_has_left_its_tape_does_not_count() {
        let mut holds = Holds::default();
        (0..2).for_each(|holder| holds.hold(PageNo(0), true, holder));
        holds.release(PageNo(0), 60, 1);
        holds.suspend(1);
        holds.release(PageNo(0), u64::MAX, 0);
        holds.hold(PageNo(1), true, 0);
        holds.release(PageNo(1), 1000, 0);
        assert_eq!([holds.take_furthest(), holds.take_furthest()], [Some(PageNo(0)), Some(PageNo(1))]);
    }

    #[test]
    fn threads_beyond_those_that_are_told_apart_leave_their_tapes_alone() {
        let mut holds = Holds::default();
        (0..65).for_each(|holder| holds.hold(PageNo(u32::try_from(holder).unwrap()), true, holder));
        holds.suspend(64);
        assert!((0..64).all(|page| holds.is_held(PageNo(page))));
        holds.suspend(0);
        assert_eq!([0, 1, 64].map(|page| holds.is_held(PageNo(page))), [false, true, false]);
    }

    #[test]
    fn what_is_not_resident_is_not_named_and_old_entries_do_not_pile_up() {
        let mut holds = Holds::default();
        for round in 0..100_000_u64 {
            holds.hold(PageNo(7), true, 0);
            holds.release(PageNo(7), round, 0);
        }
        let entries = holds.may_leave.len().max(holds.asked.len());
        assert!(entries < 2_000, "{entries}");
        holds.gone(PageNo(7));
        assert_eq!(holds.take_furthest(), None);
        assert!(holds.is_empty());
    }

    #[test]
    fn what_a_thread_holds_counts_while_it_is_on_its_tape() {
        let mut holds = Holds::default();
        for (page, holder) in [(0, 0), (1, 0), (1, 1), (2, 1)] {
            holds.hold(PageNo(page), true, holder);
        }
        holds.suspend(0);
        assert_eq!([0, 1, 2].map(|page| holds.is_held(PageNo(page))), [false, true, true], "the other one goes on");
        assert!(!holds.arrived(PageNo(0)), "it is on trial as any other page");
        let named: Vec<u32> = std::iter::from_fn(|| holds.take_last_asked()).map(|page| page.0).collect();
        assert_eq!(named, [2, 1]);
        holds.suspend(1);
        assert!(holds.is_empty());
        // The first one is back, and comes to another page.
        holds.hold(PageNo(3), true, 0);
        assert_eq!([0, 1, 2, 3].map(|page| holds.is_held(PageNo(page))), [true, true, false, true]);
        holds.arrived(PageNo(0));
        assert_eq!(holds.take_last_asked(), Some(PageNo(0)));
    }
}
