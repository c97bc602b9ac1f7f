//! Threads along their tapes, page by page, over a model of pages: what is asked for arrives at once.

use super::*;
use crate::{Arbiter, Arrival, EvictionPolicy, Request, Thread, Wanted, make, make_prefetcher};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Remote pages, and those that wait unmapped; all others are mapped.
pub(super) struct World {
    pub(super) remote: BTreeSet<u32>,
    pub(super) keys: BTreeSet<u32>,
    pub(super) budget_pages: u64,
    /// Pages that were fetched ahead.
    pub(super) fetched: Vec<u32>,
    pub(super) majors: u32,
}

impl PageLocalities for World {
    fn locality(&self, page: PageNo) -> PageLocality {
        match page.0 {
            page if self.remote.contains(&page) => PageLocality::Remote,
            page if self.keys.contains(&page) => PageLocality::Between,
            _ => PageLocality::Mapped,
        }
    }

    fn budget_pages(&self) -> u64 {
        self.budget_pages
    }
}

impl World {
    pub(super) fn new(pages: u32) -> World {
        World {
            remote: (0..pages).collect(),
            keys: BTreeSet::new(),
            budget_pages: 100_000,
            fetched: Vec::new(),
            majors: 0,
        }
    }

    /// A thread touches a page; what it asks for.
    pub(super) fn touch(&mut self, arbiter: &mut Arbiter, thread: u64, page: u32) -> Option<Wanted> {
        let request = match page {
            page if self.keys.contains(&page) => Request::PrefetchHit,
            page if self.remote.contains(&page) => Request::Major,
            _ => return None,
        };
        self.majors += u32::from(request == Request::Major);
        let wanted = arbiter.requested(PageNo(page), request, Thread(thread), self);
        self.remote.remove(&page);
        self.keys.remove(&page);
        for batch in &wanted.batches {
            for page in batch.iter().filter(|page| self.remote.remove(&page.0)) {
                self.fetched.push(page.0);
                if batch.leaves_unmapped(page) {
                    self.keys.insert(page.0);
                }
            }
        }
        Some(wanted)
    }
}

/// A tape of these pages, of which each is gone after 50 more.
fn tape(pages: impl Iterator<Item = u32> + Clone + Send + 'static) -> ThreadTape {
    let arrivals = (0..).zip(pages.clone()).map(|(at, page)| TapeArrival {
        position: at * 3,
        page: PageNo(page),
        own: true,
        interval: 0,
    });
    let departures = (50..).zip(pages).map(|(at, page)| TapeDeparture {
        position: at * 3,
        page: PageNo(page),
        used_until: (at - 50) * 3,
        next_use: Some(at * 3 + 1_000),
    });
    ThreadTape { arrivals: Box::new(arrivals), departures: Box::new(departures), ahead_pages: 50 }
}

fn following(tapes: Vec<ThreadTape>, prefetcher: &str) -> (Arbiter, Box<dyn EvictionPolicy>) {
    let source = TapeSource::new(tapes, TapeLookahead::default());
    Arbiter::following(make_prefetcher(prefetcher, None).unwrap(), make("fifo", 1000).unwrap(), source)
}

/// A tape of intervals, the first of number 1.
fn tape_of_intervals(intervals: &[std::ops::Range<u32>]) -> ThreadTape {
    let pages: Vec<(u32, u32)> =
        (1..).zip(intervals).flat_map(|(number, pages)| pages.clone().map(move |page| (number, page))).collect();
    let arrivals = (0..).zip(pages).map(|(position, (interval, page))| TapeArrival {
        position,
        page: PageNo(page),
        own: true,
        interval,
    });
    ThreadTape { arrivals: Box::new(arrivals), departures: Box::new(std::iter::empty()), ahead_pages: 50 }
}

/// Scattered pages, each once.
fn scattered(count: u32) -> impl Iterator<Item = u32> + Clone + Send + 'static {
    (0..count).map(move |at| at * 617 % count)
}

#[test]
fn a_thread_faults_once_in_a_batch_and_its_pages_are_asked_for_in_time() {
    let (mut arbiter, mut policy) = following(vec![tape(scattered(5_000))], "none");
    let mut world = World::new(5_000);
    let mut faults = 0;
    for (at, page) in scattered(5_000).enumerate() {
        let Some(wanted) = world.touch(&mut arbiter, 7, page) else { continue };
        faults += 1;
        let fetched = world.fetched.len();
        assert!(fetched <= at + 50 && (fetched >= at + 40 || at > 4_900), "{fetched} of {at}");
        assert!(wanted.batches.iter().all(|batch| batch.key() == batch.page(0)), "the first page of a batch tells");
        // What was used 50 arrivals before the last that was asked for may leave.
        policy.arrived(PageNo(page), Arrival::Demand);
    }
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((world.majors, faults, figures.batches, figures.left), (1, 501, 500, 0));
    assert_eq!((figures.pages, figures.threads), (4_999, 1));
    let mut out = Vec::new();
    policy.victims(3, &mut out);
    assert_eq!(out.len(), 3);
}

#[test]
fn a_key_page_that_another_thread_takes_is_passed_on() {
    let (mut arbiter, _policy) = following(vec![tape(0..2_000), tape(10_000..12_000)], "none");
    let mut world = World::new(20_000);
    world.touch(&mut arbiter, 1, 0);
    world.touch(&mut arbiter, 2, 10_000);
    assert_eq!(arbiter.tape_statistics().unwrap().threads, 2);
    // The second one takes all key pages of the first.
    for _ in 0..4 {
        let key = world.keys.iter().copied().find(|page| *page < 2_000).unwrap();
        world.touch(&mut arbiter, 2, key);
    }
    assert!(world.keys.iter().any(|page| *page < 2_000), "there is another one: {:?}", world.keys);
    let before = world.majors;
    (1..2_000).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    (10_001..12_000).for_each(|page| drop(world.touch(&mut arbiter, 2, page)));
    assert_eq!((world.majors - before, arbiter.tape_statistics().unwrap().left), (0, 0));
}

#[test]
fn a_thread_that_leaves_its_tape_has_the_prefetcher_and_comes_back() {
    let (mut arbiter, _policy) = following(vec![tape(scattered(5_000))], "auto");
    let mut world = World::new(40_000);
    let on_tape: Vec<u32> = scattered(5_000).collect();
    on_tape[..1_000].iter().for_each(|page| drop(world.touch(&mut arbiter, 1, *page)));
    let asked = |wanted: Option<Wanted>| wanted.is_some_and(|wanted| wanted.window.is_some());
    let by_prefetcher = (10_000..12_000).filter(|page| asked(world.touch(&mut arbiter, 1, *page))).count();
    assert!(by_prefetcher > 10, "{by_prefetcher} windows");
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.left, figures.resumed), (1, 0));
    let (position, page) = figures.left_at.unwrap();
    assert!((2_900..3_000).contains(&position) && (10_000..12_000).contains(&page.0), "{position} {page}");
    // It goes on a bit further, past what was fetched.
    let before = world.majors;
    on_tape[1_200..].iter().for_each(|page| drop(world.touch(&mut arbiter, 1, *page)));
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.left, figures.resumed), (1, 1));
    assert!(world.majors - before < 20, "{} major faults until it was found", world.majors - before);
}

/// What it does meanwhile takes as many pages as 30,000 of the tape, which it passes over.
#[test]
fn a_thread_that_was_away_for_long_is_found_far_on() {
    let (mut arbiter, _policy) = following(vec![tape(scattered(60_000))], "none");
    let mut world = World::new(200_000);
    let on_tape: Vec<u32> = scattered(60_000).collect();
    on_tape[..1_000].iter().for_each(|page| drop(world.touch(&mut arbiter, 1, *page)));
    (100_000..130_000).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    assert_eq!(arbiter.tape_statistics().unwrap().left, 1);
    let before = world.majors;
    on_tape[31_000..].iter().for_each(|page| drop(world.touch(&mut arbiter, 1, *page)));
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.left, figures.resumed), (1, 1));
    assert!(world.majors - before < 400, "{} major faults until it was found", world.majors - before);
}

/// Its pages come again in each round: it goes on in the one in which it was, however long it was away.
#[test]
fn a_thread_that_was_away_is_not_taken_for_being_in_a_later_round() {
    let round = || (0..6_000).map(|at| at * 617 % 6_000);
    let (mut arbiter, _policy) = following(vec![tape((0..8).flat_map(move |_| round()))], "none");
    let mut world = World::new(100_000);
    for number in 0..8 {
        world.remote.extend(0..6_000);
        world.keys.clear();
        for (at, page) in (0..).zip(round()) {
            world.touch(&mut arbiter, 1, page);
            if at == 3_000 {
                (10_000 + number * 2_000..12_000 + number * 2_000)
                    .for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
            }
        }
    }
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.left, figures.resumed), (8, 8));
    assert!(figures.pages > 30_000, "{} pages came by the tape", figures.pages);
}

/// 500 pages of the plan's local memory are used twice; then others come, and then they come again.
#[test]
fn pages_that_left_early_are_no_sign_of_another_way() {
    let arrivals = (0..500).chain(1_000..2_000).chain(0..500);
    let departures = (500..1_000).zip(0..500).map(|(at, page)| TapeDeparture {
        position: at * 3,
        page: PageNo(page),
        used_until: 499 * 3 + 1,
        next_use: Some((1_500 + page) * 3),
    });
    let tape = ThreadTape { departures: Box::new(departures), ..tape(arrivals) };
    let (mut arbiter, mut policy) = following(vec![tape], "none");
    let mut world = World::new(2_000);
    let mut walk = |pages: std::ops::Range<u32>, left: &[PageNo]| {
        world.remote.extend(left.iter().map(|page| page.0));
        let (before, asked) = (world.majors, world.fetched.len());
        pages.for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
        (world.majors - before, world.fetched.len() - asked, arbiter.tape_statistics().unwrap().left)
    };
    assert_eq!((walk(0..500, &[]).0, walk(0..500, &[])), (1, (0, 0, 0)));
    (0..500).for_each(|page| policy.arrived(PageNo(page), Arrival::Demand));
    let mut left = Vec::new();
    policy.victims(40, &mut left);
    assert!(left.len() == 40 && left.iter().all(|page| page.0 < 500), "{left:?}");
    assert_eq!(walk(0..500, &left), (40, 0, 0), "faults that say nothing of where the thread is");
    let (majors, asked, times_left) = walk(1_000..2_000, &[]);
    assert_eq!((majors, times_left), (0, 0));
    assert!(asked > 950, "{asked}");
}

/// A tape whose pages stay.
fn tape_that_keeps(pages: std::ops::Range<u32>) -> ThreadTape {
    ThreadTape { departures: Box::new(std::iter::empty()), ..tape(pages) }
}

#[test]
fn a_thread_that_leaves_its_tape_takes_nothing_from_others_and_finds_what_it_held_when_it_is_back() {
    let (mut arbiter, mut policy) = following(vec![tape_that_keeps(0..2_000), tape_that_keeps(10_000..12_000)], "none");
    let mut world = World::new(40_000);
    for page in 0..100 {
        for (thread, page) in [(1, page), (2, 10_000 + page)] {
            world.touch(&mut arbiter, thread, page);
            policy.arrived(PageNo(page), Arrival::Demand);
        }
    }
    (30_000..30_020).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    assert_eq!(arbiter.tape_statistics().unwrap().left, 1);
    let mut gone = Vec::new();
    policy.victims_not_needed_soon(40, &mut gone);
    gone.sort_unstable();
    assert_eq!(
        gone,
        (0..40).map(PageNo).collect::<Vec<_>>(),
        "what the first thread held, and nothing of the second one's"
    );
    // It goes on, and needs again what the plan has in local memory.
    (160..180).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    world.remote.extend(gone.iter().map(|page| page.0));
    gone.iter().for_each(|page| drop(world.touch(&mut arbiter, 1, page.0)));
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.left, figures.resumed), (1, 1));
}

/// Victims that the evictor gets ahead of need.
fn spare(policy: &mut Box<dyn EvictionPolicy>, count: usize) -> Vec<u32> {
    let mut out = Vec::new();
    policy.victims_not_needed_soon(count, &mut out);
    out.into_iter().map(|page| page.0).collect()
}

/// Pages that have no content before they are touched, one after the other.
struct Fresh;

impl PageLocalities for Fresh {
    fn locality(&self, _page: PageNo) -> PageLocality {
        PageLocality::Untouched
    }

    fn budget_pages(&self) -> u64 {
        100_000
    }
}

#[test]
fn behind_the_end_of_its_tape_a_thread_holds_nothing() {
    let (mut arbiter, mut policy) = following(vec![tape_that_keeps(0..1_000)], "none");
    let mut touch = |arbiter: &mut Arbiter, page: u32| {
        arbiter.requested(PageNo(page), Request::FirstTouch, Thread(1), &Fresh);
        policy.arrived(PageNo(page), Arrival::Demand);
    };
    (0..1_000).for_each(|page| touch(&mut arbiter, page));
    (5_000..5_064).for_each(|page| touch(&mut arbiter, page));
    let spare = spare(&mut policy, 40);
    assert_eq!(spare, (0..40).collect::<Vec<u32>>(), "the policy names them, and none is held");
    assert!(!policy.keeps_neighbours());
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.threads, figures.threads_without, figures.left), (1, 0, 0));
}

/// The last pages of the tape were fetched and mapped in time: the thread's use of them is no request.
#[test]
fn a_thread_that_passed_the_end_of_its_tape_without_a_fault_holds_nothing() {
    let (mut arbiter, mut policy) = following(vec![tape_that_keeps(0..1_000)], "none");
    let mut world = World::new(1_000);
    for page in 0..1_000 {
        world.touch(&mut arbiter, 1, page);
        policy.arrived(PageNo(page), Arrival::Demand);
    }
    assert!(spare(&mut policy, 40).is_empty(), "all of it is held");
    for page in 5_000..5_016 {
        arbiter.requested(PageNo(page), Request::FirstTouch, Thread(1), &Fresh);
        policy.arrived(PageNo(page), Arrival::Demand);
    }
    assert_eq!(spare(&mut policy, 40).len(), 40);
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.threads, figures.threads_without, figures.left, figures.resumed), (1, 0, 0, 0));
}

/// Of a thread that ends nothing is heard: what it held may leave once another one has begun.
#[test]
fn threads_one_after_the_other_follow_their_own_tapes_and_leave_nothing_held() {
    let tapes = (0..100).map(|thread| tape_that_keeps(thread * 1_000..thread * 1_000 + 1_000)).collect();
    let (mut arbiter, mut policy) = following(tapes, "none");
    let mut world = World { budget_pages: 4_000, ..World::new(100_000) };
    for thread in 0..100 {
        for page in thread * 1_000..thread * 1_000 + 1_000 {
            world.touch(&mut arbiter, (thread + 1).into(), page);
            policy.arrived(PageNo(page), Arrival::Demand);
        }
    }
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.threads, figures.threads_without, figures.left), (100, 0, 0));
    assert_eq!(world.majors, 100, "each has as many pages ahead as the first");
    assert!(figures.batches < 100 * 120, "{figures:?}");
    let first = spare(&mut policy, 40);
    assert_eq!(first, (0..40).collect::<Vec<u32>>());
}

#[test]
fn pages_beside_the_tape_between_two_key_pages_are_no_other_way() {
    let tape = ThreadTape { ahead_pages: 500, ..tape(scattered(20_000)) };
    let (mut arbiter, _policy) = following(vec![tape], "none");
    let mut world = World::new(40_000);
    let mut beside = 20_000..;
    for (at, page) in (0..).zip(scattered(20_000)) {
        world.touch(&mut arbiter, 1, page);
        if at % 100 == 50 {
            beside.by_ref().take(24).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
        }
    }
    assert_eq!(arbiter.tape_statistics().unwrap().left, 0);
    assert_eq!(world.majors, 1 + 200 * 24, "no page of the tape");
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.beside, figures.early), (200 * 24, 0));
}

#[test]
fn a_page_that_is_late_and_in_its_turn_speaks_for_the_tape() {
    let (mut arbiter, _policy) = following(vec![tape(scattered(5_000))], "none");
    let mut world = World::new(10_000);
    for (at, page) in (0..).zip(scattered(5_000)) {
        // All that was asked for comes late.
        world.remote.extend(world.keys.iter().copied().chain(world.fetched.drain(..)).filter(|late| *late != page));
        world.remote.insert(page);
        world.keys.clear();
        world.touch(&mut arbiter, 1, page);
        if at % 2 == 0 {
            world.touch(&mut arbiter, 1, 5_000 + at);
        }
    }
    assert_eq!(arbiter.tape_statistics().unwrap().left, 0);
}

#[test]
fn a_thread_that_did_well_since_it_was_back_is_found_as_soon_the_next_time() {
    let (mut arbiter, _policy) = following(vec![tape(scattered(20_000))], "none");
    let mut world = World::new(40_000);
    let (mut on_tape, mut beside) = (scattered(20_000), 20_000..);
    for round in 1..=15 {
        let before = world.majors;
        on_tape.by_ref().take(1_000).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
        assert!(world.majors - before < 16, "{} faults until it was found, round {round}", world.majors - before);
        beside.by_ref().take(60).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
        assert_eq!(arbiter.tape_statistics().unwrap().left, round);
    }
}

#[test]
fn two_pages_of_a_later_place_are_no_leap_to_it() {
    let (mut arbiter, _policy) = following(vec![tape(scattered(5_000))], "none");
    let mut world = World::new(5_000);
    let pages: Vec<u32> = scattered(5_000).collect();
    for (at, page) in pages.iter().enumerate() {
        if at == 1_000 {
            [2_000, 2_003].iter().for_each(|later| drop(world.touch(&mut arbiter, 1, pages[*later])));
        }
        world.touch(&mut arbiter, 1, *page);
    }
    assert_eq!((world.majors, arbiter.tape_statistics().unwrap().left), (3, 0));
}

#[test]
fn a_wrong_tape_asks_for_little() {
    let (mut arbiter, _policy) = following(vec![tape(scattered(5_000))], "none");
    let mut world = World::new(5_000);
    let mut random = hinterland_testkit::Rng(9);
    for _ in 0..100_000 {
        let page = random.below_u32(5_000);
        let before = world.fetched.len();
        world.touch(&mut arbiter, 1, page);
        // All leaves at once.
        world.remote.insert(page);
        world.remote.extend(&world.fetched[before..]);
        world.keys.clear();
    }
    let figures = arbiter.tape_statistics().unwrap();
    assert!(figures.left <= 10 && world.fetched.len() < 2_000, "{figures:?}, {} pages", world.fetched.len());
}

#[test]
fn threads_have_the_tapes_on_which_their_pages_are_and_others_none() {
    let (mut arbiter, _policy) = following(vec![tape(0..1_000), tape(1_000..2_000), tape(2_000..3_000)], "none");
    let mut world = World::new(10_000);
    for (thread, first) in [(11, 2_000), (12, 0), (13, 1_000)] {
        world.touch(&mut arbiter, thread, first);
        assert!(world.fetched.contains(&(first + 10)), "thread {thread}");
    }
    (0..200).for_each(|page| drop(world.touch(&mut arbiter, 14, 5_000 + page)));
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.threads, figures.threads_without, world.fetched.len()), (3, 1, 3 * 50));
}

#[test]
fn all_threads_together_have_an_eighth_of_local_memory_ahead() {
    let tapes = (0..4).map(|thread| tape(thread * 1_000..thread * 1_000 + 1_000)).collect();
    let (mut arbiter, _policy) = following(tapes, "none");
    let mut world = World { budget_pages: 512, ..World::new(4_000) };
    for at in 0..900 {
        for thread in 0..4 {
            world.touch(&mut arbiter, thread.into(), thread * 1_000 + at);
        }
        // The first ones began alone.
        let ahead = world.fetched.len() - (world.fetched.iter().filter(|page| **page % 1_000 <= at).count());
        assert!(ahead <= 64 || at < 60, "{ahead} pages at {at}");
    }
    assert_eq!(world.majors, 4);
}

/// Two threads that share microsets: all pages of them are on both tapes, and the second one touches one in 1024.
#[test]
fn a_tape_of_pages_that_another_thread_touches_stays_within_the_eighth() {
    const EACH: u32 = 1_024;
    let shared = |owner: fn(u32) -> bool| {
        let whole = tape(0..20 * EACH);
        let arrivals = whole.arrivals.map(move |arrival| TapeArrival { own: owner(arrival.page.0), ..arrival });
        ThreadTape { arrivals: Box::new(arrivals), ..whole }
    };
    let tapes = vec![shared(|page| !page.is_multiple_of(EACH)), shared(|page| page.is_multiple_of(EACH))];
    let (mut arbiter, _policy) = following(tapes, "none");
    let mut world = World { budget_pages: 4_096, ..World::new(20 * EACH) };
    for page in 0..20 * EACH {
        world.touch(&mut arbiter, u64::from(page.is_multiple_of(EACH)), page);
        let ahead = world.fetched.iter().filter(|fetched| **fetched > page).count();
        assert!(ahead <= 512, "{ahead} pages at {page}");
    }
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.threads, figures.left), (2, 0));
    assert!(world.majors <= 2, "{} major faults", world.majors);
}

#[test]
fn a_forked_child_follows_its_own_tape_or_none() {
    let (mut arbiter, policy) = following(vec![tape(0..1_000)], "none");
    let mut world = World::new(1_000);
    world.touch(&mut arbiter, 1, 0);
    assert!(policy.keeps_neighbours());
    arbiter.end_tapes();
    assert!(world.touch(&mut arbiter, 1, 500).is_some_and(|wanted| wanted.batches.is_empty()));
    assert!(!policy.keeps_neighbours() && arbiter.tape_statistics().is_none());
    // Its own, from its beginning, is held for the same eviction.
    arbiter.follow(TapeSource::new([tape(600..1_000)], TapeLookahead::default()));
    assert!(world.touch(&mut arbiter, 1, 600).is_some_and(|wanted| !wanted.batches.is_empty()));
    assert!(policy.keeps_neighbours() && arbiter.tape_statistics().is_some_and(|figures| figures.threads == 1));
}

#[test]
fn a_process_without_a_tape_may_have_children_with_one() {
    let (prefetcher, policy) = (make_prefetcher("none", None).unwrap(), make("fifo", 1000).unwrap());
    let (mut arbiter, policy) = Arbiter::able_to_follow(prefetcher, policy);
    let mut world = World::new(1_000);
    assert!(world.touch(&mut arbiter, 1, 0).is_some_and(|wanted| wanted.batches.is_empty()));
    assert!(!policy.keeps_neighbours() && arbiter.tape_statistics().is_none());
    arbiter.follow(TapeSource::new([tape(0..1_000)], TapeLookahead::default()));
    assert!(world.touch(&mut arbiter, 1, 1).is_some_and(|wanted| !wanted.batches.is_empty()));
    assert!(policy.keeps_neighbours());
}

#[test]
fn an_interval_is_followed_from_its_beginning_and_nothing_between() {
    let intervals = [0..1_000, 2_000..3_000, 4_000..5_000, 6_000..7_000];
    let source = Tapes::from(TapeSource::new([tape_of_intervals(&intervals)], TapeLookahead::default())).of_intervals();
    let (prefetcher, policy) = (make_prefetcher("none", None).unwrap(), make("fifo", 1000).unwrap());
    let (mut arbiter, _policy) = Arbiter::following(prefetcher, policy, source);
    let mut world = World::new(10_000);
    let walk = |world: &mut World, arbiter: &mut Arbiter, pages: std::ops::Range<u32>| {
        let majors = world.majors;
        pages.for_each(|page| drop(world.touch(arbiter, 1, page)));
        world.majors - majors
    };
    assert_eq!(walk(&mut world, &mut arbiter, 9_000..9_100), 100, "it has not begun");
    assert_eq!(arbiter.tape_statistics().unwrap().threads, 0);
    assert!(arbiter.begin_interval(1, true));
    // It breaks off in the middle.
    assert_eq!(walk(&mut world, &mut arbiter, 0..500), 1);
    arbiter.end_interval();
    assert_eq!(walk(&mut world, &mut arbiter, 9_100..9_200), 100);
    assert!(arbiter.begin_interval(2, true));
    assert_eq!(walk(&mut world, &mut arbiter, 2_000..3_000), 1);
    arbiter.end_interval();
    // One that is not to be followed counts.
    assert!(!arbiter.begin_interval(3, false));
    assert_eq!(walk(&mut world, &mut arbiter, 4_000..4_100), 100);
    arbiter.end_interval();
    assert!(arbiter.begin_interval(4, true));
    assert_eq!(walk(&mut world, &mut arbiter, 6_000..7_000), 1);
    let figures = arbiter.tape_statistics().unwrap();
    assert_eq!((figures.threads, figures.left), (1, 0));
}

#[test]
fn threads_find_their_tapes_without_reading_far_into_those_of_others() {
    const TAPES: u32 = 200;
    static READ: AtomicUsize = AtomicUsize::new(0);
    let tapes = (0..TAPES).map(|index| {
        let whole = tape(index * 10_000..index * 10_000 + 5_000);
        let arrivals = whole.arrivals.inspect(|_| {
            READ.fetch_add(1, Relaxed);
        });
        ThreadTape { arrivals: Box::new(arrivals), ..whole }
    });
    let (mut arbiter, _policy) = following(tapes.collect(), "none");
    let remote = (0..TAPES).flat_map(|index| index * 10_000..index * 10_000 + 600).collect();
    let mut world = World { remote, ..World::new(0) };
    for index in (0..TAPES).rev() {
        let wanted = world.touch(&mut arbiter, index.into(), index * 10_000);
        assert!(wanted.is_some_and(|wanted| wanted.is_on_tape), "thread {index}");
    }
    let read = READ.load(Relaxed) / TAPES as usize;
    assert!(read < 512, "{read} arrivals of each tape");
}
