//! Modelled links that the processes of a run share: which processes use each, and until when.
//!
//! Each process keeps its own queue. In its row it publishes for each direction from when until when its demands, and
//! its bulk, are expected to wait or be sent; the others count it for that time. So nothing is locked, and the row of a
//! killed process expires by itself.
//!
//! Nothing depends on a row being right: of two processes that write the same one, one is not counted for a moment.

use crate::ledger::Counter;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Links of a run that are shared.
pub const RUN_LINKS_MAX: usize = 16;
/// Processes that use one of them at a time.
pub const LINK_USERS_MAX: usize = 128;
/// A process that has had nothing to send for so long may lose its row to another.
const FORGOTTEN_NS: u64 = 1_000_000_000;

/// When something waits or is sent.
#[derive(Debug, Default)]
#[repr(C)]
struct Span {
    since_ns: Counter,
    until_ns: Counter,
}

impl Span {
    fn has(&self, at_ns: u64) -> bool {
        (self.since_ns.load(Relaxed)..self.until_ns.load(Relaxed)).contains(&at_ns)
    }

    /// It lasts until then, as is foreseen now.
    fn set(&self, now_ns: u64, until_ns: u64) {
        if self.until_ns.load(Relaxed) <= now_ns {
            if until_ns <= now_ns {
                return;
            }
            self.since_ns.store(now_ns, Relaxed);
        }
        self.until_ns.store(until_ns, Relaxed);
    }
}

/// What one process says of itself.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct LinkUser {
    owner: Counter,
    /// By direction; of demands, and of bulk.
    spans: [[Span; 2]; 2],
}

impl LinkUser {
    fn until_ns(&self) -> u64 {
        self.spans.iter().flatten().map(|span| span.until_ns.load(Relaxed)).max().unwrap_or(0)
    }
}

/// One link. All zero: it is free.
#[derive(Debug)]
#[repr(C)]
pub struct RunLink {
    name: Counter,
    /// Time that demands of all processes took, by direction.
    demands_ns: [Counter; 2],
    /// No row from here on has ever been used.
    used: AtomicU32,
    users: [LinkUser; LINK_USERS_MAX],
}

impl RunLink {
    /// The link of that name, which is not 0, among those of a run. `None`: there are too many others.
    pub fn of(links: &[RunLink], name: u64) -> Option<&RunLink> {
        links.iter().find(|link| match link.name.compare_exchange(0, name, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(there) => there == name,
        })
    }

    /// Takes a row for `owner`, which is not 0. `None`: others use all.
    pub fn join(&self, owner: u64, now_ns: u64) -> Option<usize> {
        let is_forgotten = |user: &LinkUser| user.until_ns().saturating_add(FORGOTTEN_NS) < now_ns;
        self.users.iter().enumerate().find_map(|(at, user)| {
            let before = user.owner.load(Relaxed);
            let is_free = before == 0 || is_forgotten(user);
            (is_free && user.owner.compare_exchange(before, owner, Relaxed, Relaxed).is_ok()).then(|| {
                self.used.fetch_max(u32::try_from(at + 1).unwrap_or(u32::MAX), Relaxed);
                at
            })
        })
    }

    /// Whether a row is still that of `owner`.
    pub fn is_of(&self, user: usize, owner: u64) -> bool {
        self.users[user].owner.load(Relaxed) == owner
    }

    /// A process has demands, or bulk, that wait or are sent until then, as it foresees now.
    pub fn uses(&self, user: usize, direction: usize, is_demand: bool, now_ns: u64, until_ns: u64) {
        self.users[user].spans[direction][usize::from(!is_demand)].set(now_ns, until_ns);
    }

    /// How many other processes have demands, or bulk, that wait or are sent at a moment.
    pub fn others(&self, user: usize, direction: usize, is_demand: bool, at_ns: u64) -> u64 {
        let others = self.users.iter().take(self.used.load(Relaxed) as usize).enumerate().filter(|(at, _)| *at != user);
        others.filter(|(_, other)| other.spans[direction][usize::from(!is_demand)].has(at_ns)).count() as u64
    }

    /// How many processes have something that waits or is sent at a moment, either way.
    pub fn users(&self, at_ns: u64) -> u64 {
        let users = self.users.iter().take(self.used.load(Relaxed) as usize);
        users.filter(|user| user.spans.iter().flatten().any(|span| span.has(at_ns))).count() as u64
    }

    /// Demands took so long.
    pub fn demanded(&self, direction: usize, ns: u64) {
        self.demands_ns[direction].fetch_add(ns, Relaxed);
    }

    /// How long demands of all processes have taken.
    pub fn demands_ns(&self, direction: usize) -> u64 {
        self.demands_ns[direction].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(count: usize) -> Vec<RunLink> {
        // SAFETY: links consist of atomics, which are valid when zero.
        (0..count).map(|_| unsafe { std::mem::zeroed() }).collect()
    }

    #[test]
    fn a_link_is_found_by_its_name_until_all_are_taken() {
        let links = links(2);
        let at = |name| RunLink::of(&links, name).map(std::ptr::from_ref);
        let first = at(7);
        assert!(first.is_some() && at(7) == first && at(9).is_some() && at(9) != first);
        assert_eq!((at(11), at(7)), (None, first));
    }

    #[test]
    fn a_process_counts_for_as_long_as_it_said_and_gives_its_row_up_a_second_later() {
        let link = &links(1)[0];
        let (a, b) = (link.join(1, 0).unwrap(), link.join(2, 0).unwrap());
        assert_eq!((a, b), (0, 1));
        link.uses(a, 0, false, 100, 500);
        let counted = [99, 100, 499, 500].map(|at| link.others(b, 0, false, at));
        assert_eq!(counted, [0, 1, 1, 0], "the first one may have been killed meanwhile");
        link.uses(a, 0, false, 300, 800);
        assert_eq!([100, 700, 800].map(|at| link.others(b, 0, false, at)), [1, 1, 0], "it lasts longer");
        assert_eq!(
            (link.others(a, 0, false, 200), link.others(b, 0, true, 200), link.others(b, 1, false, 200)),
            (0, 0, 0)
        );
        link.uses(a, 0, false, 900, 900);
        assert!(!link.users[a].spans[0][1].has(900), "there is nothing to send");
        assert_eq!(link.join(3, FORGOTTEN_NS + 800).unwrap(), 1, "the second one has never sent anything");
        assert!(link.is_of(a, 1) && !link.is_of(b, 2));
        assert_eq!(link.join(4, FORGOTTEN_NS + 801).unwrap(), 0);
    }

    #[test]
    fn rows_run_out() {
        let link = &links(1)[0];
        for owner in 1..=LINK_USERS_MAX as u64 {
            let at = link.join(owner, 0).unwrap();
            link.uses(at, 1, true, 0, 10);
        }
        assert_eq!(link.join(999, FORGOTTEN_NS + 10), None);
        assert_eq!(link.others(0, 1, true, 5), LINK_USERS_MAX as u64 - 1);
        assert_eq!((link.users(5), link.users(10)), (LINK_USERS_MAX as u64, 0));
        assert!(link.join(999, FORGOTTEN_NS + 11).is_some());
    }
}
