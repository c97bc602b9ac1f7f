//! Departure: victims leave the program in batches, run by run, into staging chunks.
//!
//! Any number of threads may do this at once: a chunk belongs to the thread that took it, and the pages in it to the thread that
//! made them `Leaving`.

use crate::copy_out::CopyOut;
use crate::decisions::Answers;
use crate::evict_hints::EvictHints;
use crate::kernel::NotEvicted;
use crate::local_memory::LocalMemory;
use crate::pages::{Owned, Pages, run_length};
use crate::pin::Pins;
use crate::points::Point;
use crate::scratch::Scratch;
use crate::slot::{ChunkNo, Kind};
use crate::staging::Staging;
use crate::state::{Entry, State};
use crate::wp_range::WpRanges;
use hinterland_paging::{
    CHUNK_SLOTS, Claim, PageStates, Residency, Scans, Step, Urgency, Way, choose_unreferenced, choose_victims,
    claim_given_up,
};
use hinterland_units::PageNo;
use std::sync::atomic::Ordering::Relaxed;
use std::vec::Drain;

/// What became of an attempt to make a page, as it was seen, a victim.
enum Attempt {
    /// It is `Leaving`, and ours.
    Ours(Owned),
    /// The kernel works on it, or the program wants it kept: it stays `Resident`.
    Pinned,
    /// It was not `Resident` but in this state.
    Not(State),
    /// It changed at that moment.
    Changed,
}

/// What became of an attempt to make a page that was named a victim: see [`Claim`].
pub(crate) enum Claimed {
    Ours(Owned),
    Busy,
    Gone,
}

/// The pages among which victims are chosen, and those that are.
struct Choice<'a> {
    departures: &'a Departures,
    owned: &'a mut Vec<Owned>,
    answers: Answers<u8>,
}

impl Choice<'_> {
    fn new<'a>(departures: &'a Departures, owned: &'a mut Vec<Owned>) -> Choice<'a> {
        Choice { departures, owned, answers: departures.pages.decisions.answers() }
    }
}

impl PageStates for Choice<'_> {
    type Seen = Entry;

    fn look(&mut self, page: PageNo) -> Option<(Entry, Residency)> {
        let pages = self.departures.pages;
        let entry = (page.0 < pages.count).then(|| pages.table.load(page));
        let entry = entry.filter(|entry| entry.state() == State::Resident);
        self.answers.put(entry.is_some().into());
        entry.map(|entry| (entry, Residency { epoch: entry.arrival_epoch(), referenced: entry.referenced() }))
    }

    fn claim(&mut self, page: PageNo) -> Claim {
        let claim = match self.departures.claim_named(page) {
            Claimed::Ours(owned) => {
                self.owned.push(owned);
                Claim::Ours
            }
            Claimed::Busy => Claim::Busy,
            Claimed::Gone => Claim::Gone,
        };
        self.answers.put(claim as u8);
        claim
    }

    fn claim_as_seen(&mut self, page: PageNo, seen: Entry) -> bool {
        let attempt = self.departures.claim_victim(page, seen);
        let is_ours = matches!(attempt, Attempt::Ours(_));
        self.answers.put(is_ours.into());
        if let Attempt::Ours(owned) = attempt {
            self.owned.push(owned);
        }
        is_ours
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
    evict_hints: &'static EvictHints,
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
        evict_hints: &'static EvictHints,
    ) -> Departures {
        Departures { pages, local, staging, pins, wp_ranges, copy_out, evict_hints, scans: Scans::default() }
    }

    /// Takes a batch of victims out of the program into a chunk: those that hints name, then the policy's. False: there were none, or none
    /// could leave.
    pub(crate) fn take_batch_out(&self, urgency: Urgency, scratch: &mut Scratch) -> bool {
        if self.take_hinted_out(scratch) {
            return true;
        }
        let Scratch { named, owned, .. } = scratch;
        let (mut choice, copies) = (Choice::new(self, owned), self.copy_out.is_possible());
        let (account, scans) = (&self.local.account, &self.scans);
        let mut policy = self.local.policy();
        choose_victims(&mut choice, &mut *policy, account, scans, copies, urgency, named);
        let mut answers = choice.answers;
        policy.turn.note(|| Step::Victims { urgency, copies, answers: answers.take(), victims: named.clone() });
        drop(policy);
        self.take_victims_out(owned)
    }

    /// Takes a batch of those pages out of the program of which it says that it will not use them. False: none could leave.
    pub(crate) fn take_hinted_out(&self, scratch: &mut Scratch) -> bool {
        let Scratch { named, owned, .. } = scratch;
        self.evict_hints.take(named, CHUNK_SLOTS as usize);
        if named.is_empty() {
            return false;
        }
        let (turn, mut given_up) = (self.pages.decisions.turn(), self.pages.decisions.answers());
        named.iter().for_each(|page| given_up.put(*page));
        let mut choice = Choice::new(self, owned);
        claim_given_up(&mut choice, named);
        let mut answers = choice.answers;
        if !named.is_empty() {
            // Once they are claimed: the policy takes in queued arrivals before.
            let mut policy = self.local.policy();
            named.iter().for_each(|victim| policy.evicted_out_of_turn(*victim));
        }
        let victims = || named.clone();
        turn.note(|| Step::GivenUp { pages: given_up.take(), answers: answers.take(), victims: victims() });
        drop(turn);
        self.pages.row().hint_evicted_pages.fetch_add(named.len() as u64, Relaxed);
        !named.is_empty() && self.take_victims_out(owned)
    }

    /// Takes those of `pages` out of the program that are not known to be referenced.
    pub(crate) fn take_out_unreferenced(&self, mut pages: impl Iterator<Item = PageNo>, scratch: &mut Scratch) {
        let Scratch { named, owned, .. } = scratch;
        loop {
            let (mut choice, mut looked_at) = (Choice::new(self, owned), self.pages.decisions.answers());
            let mut policy = self.local.policy();
            let mut looked = (&mut pages).inspect(|page| looked_at.put(*page));
            let goes_on = choose_unreferenced(&mut choice, &mut *policy, &mut looked, named);
            let (mut answers, victims) = (choice.answers, || named.clone());
            policy.turn.note(|| Step::Unreferenced {
                pages: looked_at.take(),
                answers: answers.take(),
                victims: victims(),
            });
            drop(policy);
            if !goes_on {
                return;
            }
            self.take_victims_out(owned);
        }
    }

    /// Takes a batch of victims, which are `Leaving`, out of the program. False: none could leave.
    fn take_victims_out(&self, victims: &mut Vec<Owned>) -> bool {
        victims.sort_unstable_by_key(Owned::page);
        let copied = self.copy_out.take_out(victims);
        let moved = self.move_victims_out(victims);
        copied + moved > 0
    }

    /// Takes victims out run by run; returns how many left.
    fn move_victims_out(&self, victims: &mut Vec<Owned>) -> u32 {
        if victims.is_empty() {
            return 0;
        }
        let Some(chunk) = self.staging.take_empty(Kind::Moved) else {
            victims.drain(..).for_each(|victim| self.local.did_not_leave(victim, NotEvicted::Pinned));
            return 0;
        };
        let used = u32::try_from(victims.len()).unwrap_or(CHUNK_SLOTS);
        let mut victims = victims.drain(..);
        let mut left = 0;
        let mut next = 0;
        while !victims.as_slice().is_empty() {
            let run = run_length(victims.as_slice(), Owned::page);
            left += self.take_out_run(&mut victims, run, chunk, next);
            next += run;
        }
        if left == 0 {
            self.staging.give_empty(chunk);
        } else {
            self.staging.push_full(chunk, Some(Way::Move), used, left);
        }
        left
    }

    /// Makes a page that the policy named `Leaving`, if it is `Resident` and not pinned.
    pub(crate) fn claim_named(&self, page: PageNo) -> Claimed {
        loop {
            match self.claim_victim(page, self.pages.table.load(page)) {
                Attempt::Changed => {}
                Attempt::Ours(owned) => return Claimed::Ours(owned),
                Attempt::Pinned => return Claimed::Busy,
                Attempt::Not(state) => return if state.is_busy() { Claimed::Busy } else { Claimed::Gone },
            }
        }
    }

    /// Makes a `Resident` page `Leaving`, unless it is pinned.
    fn claim_victim(&self, page: PageNo, entry: Entry) -> Attempt {
        if entry.state() != State::Resident {
            return Attempt::Not(entry.state());
        }
        if self.local.keeps(page) {
            return Attempt::Pinned;
        }
        let Some(owned) = self.pages.claim(page, entry, entry.with_state(State::Leaving)) else {
            return Attempt::Changed;
        };
        self.pages.at(Point::Marked, page);
        if self.pins.cover(page) {
            self.pages.complete_unchanged(owned);
            return Attempt::Pinned;
        }
        Attempt::Ours(owned)
    }

    /// Takes a run of neighbouring victims out, the next `run` of them; `offset` is the first one's place in the chunk. Returns how
    /// many left.
    fn take_out_run(&self, victims: &mut Drain<'_, Owned>, run: usize, chunk: ChunkNo, offset: usize) -> u32 {
        let slot_of = |index: usize| chunk.slot(u32::try_from(offset + index).unwrap_or(0));
        let pages = &victims.as_slice()[..run];
        let (first, last) = (pages[0].page(), pages[run - 1].page());
        // A page that MOVE refuses is protected and copied: the end of a protected range around it would lift that protection.
        let _excluded = self.copy_out.may_be_under_way().then(|| self.wp_ranges.exclude(first.0, last.0 + 1));
        let mut left = 0;
        let mut next = 0;
        while next < run {
            let page = victims.as_slice()[0].page();
            let (from, to) = (self.pages.address(page), self.staging.address(slot_of(next)));
            self.pages.at(Point::Leaving, page);
            // SAFETY: the pages are `Leaving` and ours, the chunk's slots are empty and ours.
            let (out, stay) = unsafe { self.pages.kernel.take_out(from, to, run - next) };
            self.pages.at(Point::TakenOut, page);
            for (index, victim) in (next..next + out).zip(&mut *victims) {
                let slot = slot_of(index);
                self.pages.note_slot(&victim, slot);
                self.staging.set_page(slot, Some(victim.page()));
                self.pages.complete_swap_cached(victim);
                left += 1;
            }
            next += out;
            if let Some(stay) = stay.filter(|_| next < run)
                && let Some(victim) = victims.next()
            {
                self.staging.set_page(slot_of(next), None);
                self.local.did_not_leave(victim, stay);
                next += 1;
            }
        }
        let row = self.pages.row();
        let counter =
            if self.pages.kernel.features().move_pages { &row.moved_out_pages } else { &row.copied_out_pages };
        counter.fetch_add(u64::from(left), Relaxed);
        left
    }
}
