//! Departure: victims leave the program in batches, run by run, into staging chunks.
//!
//! Any number of threads may do this at once: a chunk belongs to the thread that took it, and the pages in it to the thread that
//! made them `Leaving`.

use crate::copy_out::CopyOut;
use crate::kernel::Stay;
use crate::local_memory::LocalMemory;
use crate::pages::Pages;
use crate::pin::Pins;
use crate::schedule::Point;
use crate::scratch::Scratch;
use crate::staging::{ChunkNo, Kind, Staging};
use crate::state::{Entry, State};
use crate::wp_range::WpRanges;
use hinterland_paging::{CHUNK_SLOTS, Claim, PageStates, Residency, Scans, choose_unreferenced, choose_victims};
use hinterland_units::PageNo;
use std::sync::atomic::Ordering::Relaxed;

/// What became of an attempt to make a page, as it was seen, a victim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// It is `Leaving`, and ours.
    Ours,
    /// The kernel works on it: it stays `Resident`.
    Pinned,
    /// It was not `Resident` but in this state.
    Not(State),
    /// It changed at that moment.
    Changed,
}

impl PageStates for &Departures {
    type Seen = Entry;

    fn look(&self, page: PageNo) -> Option<(Entry, Residency)> {
        let entry = (page.0 < self.pages.count).then(|| self.pages.table.load(page))?;
        Some((entry, Residency { epoch: entry.arrival_epoch(), referenced: entry.referenced() }))
    }

    fn claim(&mut self, page: PageNo) -> Claim {
        self.claim_named(page)
    }

    fn claim_as_seen(&mut self, page: PageNo, seen: Entry) -> bool {
        self.claim_victim(page, seen) == Attempt::Ours
    }
}

/// See the module.
pub(crate) struct Departures {
    pages: &'static Pages,
    local: &'static LocalMemory,
    staging: &'static Staging,
    pins: &'static Pins,
    wp_ranges: &'static WpRanges,
    copy_out: &'static CopyOut,
    scans: Scans,
}

impl Departures {
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        staging: &'static Staging,
        pins: &'static Pins,
        wp_ranges: &'static WpRanges,
        copy_out: &'static CopyOut,
    ) -> Departures {
        Departures { pages, local, staging, pins, wp_ranges, copy_out, scans: Scans::default() }
    }

    /// Takes a batch of the policy's victims out of the program into a chunk. False: there were none, or none could leave.
    pub(crate) fn take_batch_out(&self, scratch: &mut Scratch) -> bool {
        let (account, copies) = (&self.local.account, self.copy_out.is_possible());
        choose_victims(&mut &*self, &mut *self.local.policy(), account, &self.scans, copies, &mut scratch.victims);
        self.take_victims_out(scratch)
    }

    /// Takes those of `pages` out of the program that are not known to be referenced.
    pub(crate) fn take_out_unreferenced(&self, mut pages: impl Iterator<Item = PageNo>, scratch: &mut Scratch) {
        while choose_unreferenced(&mut &*self, &mut *self.local.policy(), &mut pages, &mut scratch.victims) {
            self.take_victims_out(scratch);
        }
    }

    /// Takes a batch of victims, which are `Leaving`, out of the program. False: none could leave.
    fn take_victims_out(&self, scratch: &mut Scratch) -> bool {
        scratch.victims.sort_unstable();
        let copied = self.copy_out.take_out(&mut scratch.victims);
        let moved = self.move_victims_out(&scratch.victims);
        copied + moved > 0
    }

    /// Takes victims out run by run; returns how many left.
    fn move_victims_out(&self, victims: &[PageNo]) -> u32 {
        if victims.is_empty() {
            return 0;
        }
        let Some(chunk) = self.staging.take_empty(Kind::Moved) else {
            victims.iter().for_each(|page| self.local.did_not_leave(*page, Stay::Pinned));
            return 0;
        };
        let mut left = 0;
        let mut next = 0;
        while next < victims.len() {
            let run = run_length(&victims[next..]);
            left += self.take_out_run(&victims[next..next + run], chunk, next);
            next += run;
        }
        if left == 0 {
            self.staging.give_empty(chunk);
        } else {
            let used = u32::try_from(victims.len()).unwrap_or(CHUNK_SLOTS);
            self.staging.push_full(chunk, used, left);
        }
        left
    }

    /// Makes a page that the policy named `Leaving`, if it is `Resident` and not pinned.
    pub(crate) fn claim_named(&self, page: PageNo) -> Claim {
        loop {
            match self.claim_victim(page, self.pages.table.load(page)) {
                Attempt::Changed => {}
                Attempt::Ours => return Claim::Ours,
                Attempt::Pinned => return Claim::Busy,
                Attempt::Not(state) => return if state.is_busy() { Claim::Busy } else { Claim::Gone },
            }
        }
    }

    /// Makes a `Resident` page `Leaving`, unless it is pinned.
    fn claim_victim(&self, page: PageNo, entry: Entry) -> Attempt {
        if entry.state() != State::Resident {
            return Attempt::Not(entry.state());
        }
        if self.pages.table.transition(page, entry, entry.with_state(State::Leaving)).is_err() {
            return Attempt::Changed;
        }
        self.pages.at(Point::Marked, page);
        if self.pins.cover(page) {
            self.pages.complete(page, entry);
            return Attempt::Pinned;
        }
        Attempt::Ours
    }

    /// Takes a run of neighbouring victims out; `offset` is the first one's place in the chunk. Returns how many left.
    fn take_out_run(&self, run: &[PageNo], chunk: ChunkNo, offset: usize) -> u32 {
        let slot_of = |index: usize| chunk.slot(u32::try_from(offset + index).unwrap_or(0));
        // A page that MOVE refuses is protected and copied: the end of a protected range around it would lift that protection.
        let _excluded =
            self.copy_out.may_be_under_way().then(|| self.wp_ranges.exclude(run[0].0, run[run.len() - 1].0 + 1));
        let mut left = 0;
        let mut next = 0;
        while next < run.len() {
            let (from, to) = (self.pages.address(run[next]), self.staging.address(slot_of(next)));
            self.pages.at(Point::Leaving, run[next]);
            // SAFETY: the pages are `Leaving` and ours, the chunk's slots are empty and ours.
            let (out, stay) = unsafe { self.pages.kernel.take_out(from, to, run.len() - next) };
            self.pages.at(Point::TakenOut, run[next]);
            for (index, page) in run.iter().enumerate().skip(next).take(out) {
                let slot = slot_of(index);
                self.pages.table.set_slot(*page, slot);
                self.staging.set_page(slot, Some(*page));
                let entry = self.pages.table.load(*page);
                self.pages.complete(*page, entry.with_state(State::SwapCached).with_prefetched(false));
                left += 1;
            }
            next += out;
            if let (Some(stay), Some(page)) = (stay, run.get(next)) {
                self.staging.set_page(slot_of(next), None);
                self.local.did_not_leave(*page, stay);
                next += 1;
            }
        }
        let counter = if self.pages.kernel.features().move_pages {
            &self.pages.row().moved_out_pages
        } else {
            &self.pages.row().copied_out_pages
        };
        counter.fetch_add(u64::from(left), Relaxed);
        left
    }
}

/// Pages at the start of `sorted` that are neighbours.
fn run_length(sorted: &[PageNo]) -> usize {
    let neighbours = sorted.windows(2).take_while(|pair| pair[1].0 == pair[0].0 + 1).count();
    neighbours + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_gaps() {
        let pages: Vec<PageNo> = [3, 4, 5, 9, 10].into_iter().map(PageNo).collect();
        assert_eq!(run_length(&pages), 3);
        assert_eq!(run_length(&pages[3..]), 2);
        assert_eq!(run_length(&pages[4..]), 1);
    }
}
