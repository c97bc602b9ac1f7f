//! Which pages leave together: those that the policy names, and their neighbours that are about as cold (decisions 0009, 0012, 0034).

use crate::{Account, CHUNK_SLOTS};
use hinterland_policy::EvictionPolicy;
use hinterland_units::PageNo;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Pages in a block, which is aligned: victims of one block leave by copy at once. 1 MiB; to write-protect it costs about as much as
/// four scattered MOVEs.
pub const BLOCK_PAGES: u32 = 256;

/// Which pages leave together with a victim that the policy named.
struct EvictionCluster {
    /// Victims asked of the policy at a time.
    victims: usize,
    /// Pages of the cluster, which is aligned: neighbours in it may leave together.
    pages: u32,
    /// Epochs (16 in a turnover of local memory) after which an unreferenced page may leave beside a victim.
    cold_epochs: u8,
}

/// With MOVE, neighbours save shootdowns only where they lie side by side.
const MOVE_CLUSTER: EvictionCluster = EvictionCluster { victims: 16, pages: 16, cold_epochs: 2 };
/// By copy, all victims of a block leave for the price of one; they can be few and old.
const COPY_CLUSTER: EvictionCluster = EvictionCluster { victims: 1, pages: BLOCK_PAGES, cold_epochs: 6 };

/// What became of an attempt to make a page a victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It is leaving, and the caller's.
    Ours,
    /// It stays resident, or its owner completes it so: the kernel or another thread works on it.
    Busy,
    /// It is not resident.
    Gone,
}

/// What the choice of neighbours wants to know of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Residency {
    /// Epoch of its arrival.
    pub epoch: u8,
    /// It came back from the swap cache: it is in use.
    pub referenced: bool,
}

/// The pages of a body, as the choice of victims sees them. Other threads may change them meanwhile.
pub trait PageStates {
    /// What was seen of a page; to claim it only as it was then.
    type Seen: Copy;

    /// Looks at a page. `None`: it is not resident.
    fn look(&mut self, page: PageNo) -> Option<(Self::Seen, Residency)>;

    /// Makes a page that the policy named a victim.
    fn claim(&mut self, page: PageNo) -> Claim;

    /// Makes a page a victim, if it is resident, as it was `seen`, and may leave.
    fn claim_as_seen(&mut self, page: PageNo, seen: Self::Seen) -> bool;
}

/// Scans that the victims show: the blocks in which the policy named the last ones.
#[derive(Default)]
pub struct Scans {
    blocks: [AtomicU32; SCANS],
    next: AtomicUsize,
}

/// Scans that go on at the same time, one for each thread of the program.
const SCANS: usize = 4;

impl Scans {
    /// Whether a victim lies in the block of one before, or beside it; notes it. A wrong answer costs time only.
    pub fn goes_on_at(&self, victim: PageNo) -> bool {
        let block = victim.0 / BLOCK_PAGES + 1;
        let known = self.blocks.iter().find(|other| block.abs_diff(other.load(Relaxed)) <= 1);
        let cell = known.unwrap_or_else(|| &self.blocks[self.next.fetch_add(1, Relaxed) % SCANS]);
        cell.store(block, Relaxed);
        known.is_some()
    }
}

/// How much a thread needs the frames of victims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// It makes room ahead of need, and leaves pages alone that are needed soon.
    Ahead,
    /// It waits for them.
    Now,
}

/// Chooses a chunk of victims and claims them: those that the policy names, and their neighbours. `copies`: scattered victims leave by
/// copy. The caller holds the policy's lock: no other thread sees a page that is neither queued nor busy.
pub fn choose_victims<S: PageStates>(
    states: &mut S,
    policy: &mut dyn EvictionPolicy,
    account: &Account,
    scans: &Scans,
    copies: bool,
    urgency: Urgency,
    victims: &mut Vec<PageNo>,
) {
    victims.clear();
    let at_a_time = if copies { COPY_CLUSTER.victims } else { MOVE_CLUSTER.victims };
    let mut named = Vec::with_capacity(at_a_time);
    let mut busy = Vec::new();
    while victims.len() < CHUNK_SLOTS as usize {
        named.clear();
        let count = at_a_time.min(CHUNK_SLOTS as usize - victims.len());
        match urgency {
            Urgency::Ahead => policy.victims_not_needed_soon(count, &mut named),
            Urgency::Now => policy.victims(count, &mut named),
        }
        let Some(first) = named.first() else { break };
        // Victims that are neighbours leave in runs anyway.
        let scattered = copies && !scans.goes_on_at(*first);
        let cluster = if scattered { COPY_CLUSTER } else { MOVE_CLUSTER };
        for page in &named {
            match states.claim(*page) {
                Claim::Ours => victims.push(*page),
                Claim::Busy => busy.push(*page),
                Claim::Gone => {}
            }
        }
        if policy.keeps_neighbours() {
            continue;
        }
        for page in &named {
            choose_neighbours(states, *page, &cluster, account.epoch(), policy, victims);
        }
    }
    // The owners of these pages told the policy a moment ago that they are, or stay, resident, and will complete them so: a
    // page that is resident but in no queue would never be chosen again. An owner that drops its page says so after this. Not
    // before the loop has ended, because the policy would name them again, and their owners may need the policy to get on.
    for page in busy {
        policy.putback(page);
    }
}

/// Adds the neighbours of a victim that have been resident for a while without being referenced. Scattered victims cost one
/// TLB shootdown each, runs one for all: the shootdowns were a third of the evictor's time in random access.
fn choose_neighbours<S: PageStates>(
    states: &mut S,
    victim: PageNo,
    cluster: &EvictionCluster,
    now: u8,
    policy: &mut dyn EvictionPolicy,
    victims: &mut Vec<PageNo>,
) {
    let first = victim.0 / cluster.pages * cluster.pages;
    for page in (first..first.saturating_add(cluster.pages)).map(PageNo).filter(|page| *page != victim) {
        if victims.len() == CHUNK_SLOTS as usize {
            return;
        }
        let Some((seen, residency)) = states.look(page) else { continue };
        let cold = !residency.referenced && now.wrapping_sub(residency.epoch) >= cluster.cold_epochs;
        if cold && states.claim_as_seen(page, seen) {
            policy.evicted_out_of_turn(page);
            victims.push(page);
        }
    }
}

/// Claims those of `pages` that can be, which the program has given up: they leave before what the policy names. Only these remain in
/// `pages`; the policy is to be told of them.
pub fn claim_given_up<S: PageStates>(states: &mut S, pages: &mut Vec<PageNo>) {
    pages.retain(|page| states.claim(*page) == Claim::Ours);
}

/// Claims those of `pages` that are not known to be referenced, a chunk of them at most. False: none of `pages` is left to look at.
pub fn choose_unreferenced<S: PageStates>(
    states: &mut S,
    policy: &mut dyn EvictionPolicy,
    pages: &mut impl Iterator<Item = PageNo>,
    victims: &mut Vec<PageNo>,
) -> bool {
    victims.clear();
    let mut looked = false;
    for page in pages.take(CHUNK_SLOTS as usize) {
        looked = true;
        let Some((seen, residency)) = states.look(page) else { continue };
        if !residency.referenced && states.claim_as_seen(page, seen) {
            policy.evicted_out_of_turn(page);
            victims.push(page);
        }
    }
    looked
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_policy::{Arrival, make};
    use hinterland_units::PageCount;
    use std::collections::BTreeMap;

    /// Resident pages, some of which cannot be claimed.
    #[derive(Default)]
    struct Pages {
        resident: BTreeMap<u32, Residency>,
        busy: Vec<u32>,
    }

    impl PageStates for Pages {
        type Seen = ();

        fn look(&mut self, page: PageNo) -> Option<((), Residency)> {
            self.resident.get(&page.0).map(|residency| ((), *residency))
        }

        fn claim(&mut self, page: PageNo) -> Claim {
            match self.busy.contains(&page.0) {
                true => Claim::Busy,
                false if self.resident.remove(&page.0).is_some() => Claim::Ours,
                false => Claim::Gone,
            }
        }

        fn claim_as_seen(&mut self, page: PageNo, (): ()) -> bool {
            self.claim(page) == Claim::Ours
        }
    }

    fn arrived(pages: &mut Pages, policy: &mut dyn EvictionPolicy, account: &Account, page: u32) {
        let residency = Residency { epoch: account.arrive(1), referenced: page.is_multiple_of(5) };
        pages.resident.insert(page, residency);
        policy.arrived(PageNo(page), Arrival::Demand);
    }

    #[test]
    fn scans_are_told_from_scattered_victims() {
        let scans = Scans::default();
        for page in (0..4000).step_by(16) {
            let both = [scans.goes_on_at(PageNo(10_000 + page)), scans.goes_on_at(PageNo(900_000 - page))];
            assert_eq!(both, [page > 0; 2], "{page}");
        }
        let scattered = (1..100u32).map(|n| PageNo(n.wrapping_mul(2_654_435_761) >> 8));
        assert!(scattered.filter(|page| scans.goes_on_at(*page)).count() < 3);
    }

    #[test]
    fn cold_neighbours_leave_beside_a_victim_and_referenced_ones_stay() {
        let (mut pages, mut policy, account) = (Pages::default(), make("fifo", 4096).unwrap(), Account::new());
        account.set_bound(PageCount(4096), PageCount(4096));
        // Page 32 first; its block of 16 after it, then a turnover of others that are never neighbours of these.
        (32..48).for_each(|page| arrived(&mut pages, &mut *policy, &account, page));
        (0..4000).for_each(|page| arrived(&mut pages, &mut *policy, &account, 10_000 + page));
        let mut victims = Vec::new();
        choose_victims(&mut pages, &mut *policy, &account, &Scans::default(), false, Urgency::Now, &mut victims);
        assert_eq!(victims.len(), CHUNK_SLOTS as usize);
        // All sixteen were named by the policy, in order of arrival: none is claimed twice.
        assert_eq!(victims.iter().filter(|page| page.0 < 48).count(), 16);
        let (mut pages, mut policy) = (Pages::default(), make("fifo", 4096).unwrap());
        // In pairs far apart: one at a time is named where victims leave by copy, and brings its old neighbours along.
        arrived(&mut pages, &mut *policy, &account, 1024);
        (0..3000).for_each(|page| arrived(&mut pages, &mut *policy, &account, 100_000 + 300 * page));
        for page in [1025, 1030, 1031] {
            pages.resident.insert(page, Residency { epoch: 0, referenced: page == 1030 });
        }
        choose_victims(&mut pages, &mut *policy, &account, &Scans::default(), true, Urgency::Now, &mut victims);
        assert_eq!(victims[..3], [1024, 1025, 1031].map(PageNo));
        assert!(pages.resident.contains_key(&1030));
    }

    #[test]
    fn a_busy_page_is_put_back_once_all_are_chosen() {
        let (mut pages, mut policy, account) = (Pages::default(), make("fifo", 4096).unwrap(), Account::new());
        (0..200).for_each(|page| arrived(&mut pages, &mut *policy, &account, page * 100));
        pages.busy = vec![0, 300];
        let mut victims = Vec::new();
        choose_victims(&mut pages, &mut *policy, &account, &Scans::default(), false, Urgency::Now, &mut victims);
        assert!(!victims.contains(&PageNo(0)) && !victims.contains(&PageNo(300)));
        assert_eq!(policy.resident(), 200 - victims.len(), "the two are in the queue again");
    }

    #[test]
    fn unreferenced_pages_leave_a_chunk_at_a_time() {
        let (mut pages, mut policy, account) = (Pages::default(), make("fifo", 4096).unwrap(), Account::new());
        (0..100).for_each(|page| arrived(&mut pages, &mut *policy, &account, page));
        let (mut victims, mut left, mut all) = (Vec::new(), Vec::new(), (0..120).map(PageNo));
        while choose_unreferenced(&mut pages, &mut *policy, &mut all, &mut victims) {
            assert!(victims.len() <= CHUNK_SLOTS as usize);
            left.append(&mut victims);
        }
        assert_eq!(left.len(), 80, "one in five is referenced");
        assert_eq!(policy.resident(), 20);
    }
}
