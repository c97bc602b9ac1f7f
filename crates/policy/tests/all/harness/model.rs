//! The pager as an eviction policy sees it: at most `budget` pages mapped, victims taken in batches into a swap cache
//! of a share of the budget, which displaces in order of arrival.

use hinterland_policy::{Arrival, EvictionPolicy, PrefetchWindow, Prefetcher, Request, Thread, Unmapped};
use hinterland_units::PageNo;
use std::collections::VecDeque;

/// Victims in one batch.
pub const BATCH: usize = 64;
/// The swap cache holds this part of the budget, as in the pager (`SWAP_CACHE_SHARE`, crates/pager/src/account.rs).
pub const SWAP_CACHE_PART: usize = 32;

/// What a trace cost.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Faults {
    /// First touches of a page.
    pub first: usize,
    /// Touches that waited for far memory.
    pub major: usize,
    /// Touches served from the swap cache.
    pub minor: usize,
    /// First touches of a prefetched key page.
    pub key: usize,
    /// Pages prefetched, or zero-filled ahead of the program, and mapped.
    pub ahead: usize,
    /// Pages prefetched and left unmapped.
    pub unmapped: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Untouched,
    Mapped,
    SwapCached,
    /// Prefetched and left unmapped.
    Key,
    Remote,
}

/// The model; feed it with [`Pager::touch`].
pub struct Pager<'a> {
    policy: &'a mut dyn EvictionPolicy,
    prefetcher: Option<&'a mut dyn Prefetcher>,
    budget: usize,
    mapped: usize,
    state: Vec<State>,
    /// Pages in the order in which they were taken; those that went back to the program are still named.
    swap_cache: VecDeque<(u32, u32)>,
    /// How often each page was taken: tells stale entries of `swap_cache`.
    taken: Vec<u32>,
    swap_cached: usize,
    /// Pages of windows that wait unmapped as a whole, oldest first; used ones are still named.
    waiting: VecDeque<u32>,
    faults: Faults,
    out: Vec<PageNo>,
}

impl<'a> Pager<'a> {
    pub fn new(policy: &'a mut dyn EvictionPolicy, budget: usize, pages: usize) -> Pager<'a> {
        Pager {
            policy,
            prefetcher: None,
            budget,
            mapped: 0,
            state: vec![State::Untouched; pages],
            swap_cache: VecDeque::new(),
            taken: vec![0; pages],
            swap_cached: 0,
            waiting: VecDeque::new(),
            faults: Faults::default(),
            out: Vec::new(),
        }
    }

    /// The same pager with read-ahead.
    pub fn reading_ahead(self, prefetcher: &'a mut dyn Prefetcher) -> Pager<'a> {
        Pager { prefetcher: Some(prefetcher), ..self }
    }

    /// The program touches a page.
    pub fn touch(&mut self, page: u32) {
        let (request, how) = match self.state[page as usize] {
            State::Mapped => return,
            State::Untouched => {
                self.faults.first += 1;
                (Request::FirstTouch, Arrival::FirstTouch)
            }
            State::SwapCached => {
                self.faults.minor += 1;
                self.swap_cached -= 1;
                (Request::Minor, Arrival::SwapCacheHit)
            }
            State::Key => {
                self.faults.key += 1;
                (Request::PrefetchHit, Arrival::Demand)
            }
            State::Remote => {
                self.faults.major += 1;
                (Request::Major, Arrival::Demand)
            }
        };
        self.map(page, how);
        let window =
            self.prefetcher.as_mut().and_then(|prefetcher| prefetcher.requested(PageNo(page), request, Thread(0)));
        if let Some(window) = window {
            self.bring_in(window, request);
        }
    }

    fn map(&mut self, page: u32, how: Arrival) {
        self.state[page as usize] = State::Mapped;
        self.mapped += 1;
        self.policy.arrived(PageNo(page), how);
        if self.mapped > self.budget {
            self.reclaim();
        }
    }

    fn bring_in(&mut self, window: PrefetchWindow, request: Request) {
        let wanted = if request == Request::FirstTouch { State::Untouched } else { State::Remote };
        for PageNo(page) in window.iter() {
            if self.state.get(page as usize) != Some(&wanted) {
                continue;
            }
            match (wanted, window.leaves_unmapped(PageNo(page))) {
                (State::Untouched, true) => {}
                (_, true) => {
                    self.faults.unmapped += 1;
                    self.state[page as usize] = State::Key;
                    if window.unmapped == Unmapped::All {
                        self.wait(page);
                    }
                }
                (_, false) => {
                    self.faults.ahead += 1;
                    self.map(page, Arrival::Prefetched);
                }
            }
        }
    }

    /// Leaves a page unmapped until it is used, or until a share of the budget waits and it is the oldest (`prefetch_cache.rs`,
    /// crates/pager).
    fn wait(&mut self, page: u32) {
        self.waiting.push_back(page);
        while self.waiting.front().is_some_and(|oldest| self.state[*oldest as usize] != State::Key) {
            self.waiting.pop_front();
        }
        if self.waiting.len() > self.budget / SWAP_CACHE_PART {
            let oldest = self.waiting.pop_front().expect("pages wait");
            if self.state[oldest as usize] == State::Key {
                self.state[oldest as usize] = State::Remote;
                self.prefetcher.iter_mut().for_each(|prefetcher| prefetcher.wasted(PageNo(oldest), 1));
            }
        }
    }

    /// Faults so far.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    fn reclaim(&mut self) {
        self.out.clear();
        self.policy.victims(BATCH, &mut self.out);
        assert_eq!(self.out.len(), BATCH.min(self.mapped));
        for &PageNo(page) in &self.out {
            assert_eq!(self.state[page as usize], State::Mapped, "victim {page}");
            self.state[page as usize] = State::SwapCached;
            self.taken[page as usize] += 1;
            self.swap_cache.push_back((page, self.taken[page as usize]));
        }
        self.mapped -= self.out.len();
        self.swap_cached += self.out.len();
        assert_eq!(self.policy.resident(), self.mapped);
        while self.swap_cached > self.budget / SWAP_CACHE_PART {
            let (page, taken) = self.swap_cache.pop_front().expect("the swap cache holds what it counts");
            let at = page as usize;
            if self.state[at] == State::SwapCached && self.taken[at] == taken {
                self.state[at] = State::Remote;
                self.swap_cached -= 1;
                self.policy.written_back(PageNo(page));
            }
        }
    }
}

/// Runs a whole trace.
pub fn replay(policy: &mut dyn EvictionPolicy, budget: usize, trace: &[u32]) -> Faults {
    let pages = trace.iter().max().map_or(0, |&page| page as usize + 1);
    let mut pager = Pager::new(policy, budget, pages);
    for &page in trace {
        pager.touch(page);
    }
    pager.faults()
}
