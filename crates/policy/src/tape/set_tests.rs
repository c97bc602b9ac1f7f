//! A program along the phases of an unordered tape, page by page, over the model of pages that ordered tapes are tested on.

use super::tests::World;
use super::*;
use crate::{Arbiter, Arrival, EvictionPolicy, Prefetch, TapeBatch, make, make_prefetcher};
use std::ops::Range;

fn following(phases: &[Range<u32>]) -> (Arbiter, Box<dyn EvictionPolicy>) {
    let set = |pages: &Range<u32>| PageSet::of([(PageNo(pages.start), pages.end - pages.start)]);
    let source = SetSource::new(phases.iter().map(set));
    Arbiter::following(make_prefetcher("none", None).unwrap(), make("fifo", 1000).unwrap(), source)
}

/// The pages of a range, scattered.
fn scattered(pages: Range<u32>) -> impl Iterator<Item = u32> {
    let (first, count) = (pages.start, pages.end - pages.start);
    (0..count).map(move |at| first + at * 617 % count)
}

fn statistics(arbiter: &Arbiter) -> TapeStatistics {
    arbiter.tape_statistics().unwrap()
}

#[test]
fn a_phase_begins_with_two_requests_and_its_set_comes_in_bounded_batches() {
    let (mut arbiter, _policy) = following(&[0..1_000, 2_000..3_000, 4_000..5_000]);
    let mut world = World { budget_pages: 4_096, ..World::new(10_000) };
    for (phase, first) in (0..).zip([0, 2_000, 4_000]) {
        let majors = world.majors;
        for (at, page) in scattered(first..first + 1_000).enumerate() {
            let before = world.fetched.len();
            let batches = world.touch(&mut arbiter, 1, page).map_or(Vec::new(), |wanted| wanted.batches);
            let asked = world.fetched.len() - before;
            assert!(asked <= 512, "{asked} pages at once, an eighth of local memory");
            assert!(at > 0 || asked == 0, "one request tells nothing");
            for batch in batches {
                let pages: Vec<PageNo> = batch.iter().collect();
                assert!(pages.is_sorted() && pages.len() <= 31, "{pages:?}");
                assert_eq!(batch.key(), pages.last().copied());
            }
        }
        assert!(world.majors - majors <= 4, "{} major faults", world.majors - majors);
        let TapeStatistics { phases, phases_begun, phases_given_up, .. } = statistics(&arbiter);
        assert_eq!((phases, phases_begun, phases_given_up), (3, phase + 1, 0));
    }
    let mut fetched = world.fetched.clone();
    fetched.sort_unstable();
    fetched.dedup();
    assert_eq!(fetched.len(), world.fetched.len(), "nothing is fetched twice");
    assert!(fetched.iter().all(|page| *page < 5_000 && page % 2_000 < 1_000));
}

#[test]
fn what_is_local_is_not_fetched_and_no_more_than_fits() {
    let (mut arbiter, _policy) = following(&[0..1_000, 5_000..5_100]);
    let mut world = World { budget_pages: 512, ..World::new(1_000) };
    world.remote.retain(|page| page % 3 == 0);
    // All pages of the set that are looked at are held, those that are local, too: 448 of 512.
    scattered(0..1_000).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    assert!(world.fetched.iter().all(|page| page % 3 == 0 && *page < 448), "{:?}", world.fetched);
    assert!(world.fetched.len() > 100, "{}", world.fetched.len());
}

/// As where no frames were free for it, or its last page was given back unused before the next request.
#[test]
fn the_rest_of_a_set_is_asked_for_though_a_batch_does_not_come() {
    let majors = |batch_comes: bool| {
        let (mut arbiter, _policy) = following(&[0..1_000, 5_000..5_100]);
        let mut world = World { budget_pages: 1_024, ..World::new(1_000) };
        let mut first = Vec::new();
        for page in scattered(0..1_000) {
            let batches = world.touch(&mut arbiter, 1, page).map_or(Vec::new(), |wanted| wanted.batches);
            if let Some(batch) = batches.first().filter(|_| first.is_empty()) {
                first.extend(batch.iter().map(|page| page.0));
                if !batch_comes {
                    world.remote.extend(&first);
                    world.keys.retain(|key| !first.contains(key));
                }
            }
        }
        world.majors
    };
    let (all, but_one) = (majors(true), majors(false));
    assert!(but_one <= all + 2 * 31, "{but_one} major faults without the 31 pages of a batch, {all} with them");
}

/// A walk beside the sets, while pages of batches leave unused: a part of a set is fetched for nothing by design.
#[test]
fn what_a_set_brings_for_nothing_is_not_the_prefetchers() {
    let walk = |wasted: bool| {
        let (prefetcher, policy) = (make_prefetcher("streams", None).unwrap(), make("fifo", 1000).unwrap());
        let set = PageSet::of([(PageNo(0), 1_000)]);
        let (mut arbiter, _policy) = Arbiter::following(prefetcher, policy, SetSource::new([set]));
        let mut world = World { budget_pages: 4_096, ..World::new(10_000) };
        let batch = Prefetch::Batch(TapeBatch { pages: [PageNo(0)].into(), key: Some(PageNo(0)), thread: 0 });
        let mut windows = Vec::new();
        for page in 5_000..7_000 {
            windows.extend(world.touch(&mut arbiter, 1, page).and_then(|wanted| wanted.window));
            if wasted {
                arbiter.wasted(batch.source(), PageNo(0), 32);
            }
        }
        windows
    };
    assert_eq!(walk(true), walk(false));
    assert!(walk(false).len() > 8);
}

#[test]
fn a_wrong_set_is_given_up_and_asks_for_little() {
    let (mut arbiter, _policy) = following(&[0..2_000, 2_000..4_000, 4_000..6_000]);
    let mut world = World { budget_pages: 4_096, ..World::new(100_000) };
    // The first two pages of each phase, and then others.
    for first in [0, 2_000, 4_000] {
        world.touch(&mut arbiter, 1, first);
        world.touch(&mut arbiter, 1, first + 1);
        (0..500).for_each(|at| drop(world.touch(&mut arbiter, 1, 10_000 + first + at)));
        assert!((1..=512).contains(&world.fetched.len()), "{} pages, an eighth of local memory", world.fetched.len());
    }
    let TapeStatistics { phases_begun, phases_given_up, .. } = statistics(&arbiter);
    assert_eq!((phases_begun, phases_given_up), (1, 1), "two requests are no proof any more");
}

#[test]
fn random_requests_ask_for_little() {
    let phases: Vec<Range<u32>> = (0..40).map(|phase| phase * 1_000..phase * 1_000 + 1_000).collect();
    let (mut arbiter, _policy) = following(&phases);
    let mut world = World { budget_pages: 4_096, ..World::new(100_000) };
    let mut random = hinterland_testkit::Rng(9);
    for _ in 0..100_000 {
        let page = random.below_u32(100_000);
        let before = world.fetched.len();
        world.touch(&mut arbiter, 1, page);
        // All leaves at once.
        world.remote.insert(page);
        world.remote.extend(&world.fetched[before..]);
        world.keys.clear();
    }
    assert!(
        world.fetched.len() < 2_500,
        "{} pages for 100,000 requests, {:?}",
        world.fetched.len(),
        statistics(&arbiter)
    );
}

#[test]
fn a_phase_that_is_passed_over_does_not_keep_the_next_from_beginning() {
    let (mut arbiter, _policy) = following(&[0..500, 1_000..1_500, 2_000..2_500]);
    let mut world = World { budget_pages: 4_096, ..World::new(10_000) };
    scattered(0..500).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    let majors = world.majors;
    scattered(2_000..2_500).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    assert!(world.majors - majors <= 6, "{}", world.majors - majors);
    assert_eq!((statistics(&arbiter).phases_begun, statistics(&arbiter).phases_given_up), (2, 0));
}

#[test]
fn in_a_loop_the_nearer_phase_begins_though_a_later_one_has_more_of_its_pages() {
    let set = |ranges: &[(u32, u32)]| PageSet::of(ranges.iter().map(|(first, pages)| (PageNo(*first), *pages)));
    let (whole, other) = (set(&[(0, 500)]), set(&[(1_000, 500)]));
    let sets = [set(&[(0, 400), (401, 99)]), other.clone(), whole, other];
    let (prefetcher, policy) = (make_prefetcher("none", None).unwrap(), make("fifo", 1000).unwrap());
    let (mut arbiter, _policy) = Arbiter::following(prefetcher, policy, SetSource::new(sets));
    let mut world = World { budget_pages: 4_096, ..World::new(2_000) };
    [400, 0, 1].into_iter().for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    assert_eq!(statistics(&arbiter).phases_begun, 1);
    scattered(1_000..1_500).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    assert_eq!(statistics(&arbiter).phases_begun, 2, "the second one, which follows the first alone");
}

#[test]
fn a_phase_holds_its_set_and_lets_it_go_when_the_next_one_begins() {
    let (mut arbiter, mut policy) = following(&[0..100, 1_000..1_100]);
    let mut world = World { budget_pages: 1_024, ..World::new(2_000) };
    let victims = |policy: &mut Box<dyn EvictionPolicy>, count| {
        let mut out = Vec::new();
        policy.victims_not_needed_soon(count, &mut out);
        out
    };
    (1_500..1_600).for_each(|page| policy.arrived(PageNo(page), Arrival::Demand));
    scattered(0..100).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    (0..100).for_each(|page| policy.arrived(PageNo(page), Arrival::Prefetched));
    let before = victims(&mut policy, 50);
    assert!(before.len() == 50 && before.iter().all(|page| page.0 >= 1_500), "{before:?}");
    scattered(1_000..1_100).for_each(|page| drop(world.touch(&mut arbiter, 1, page)));
    (1_000..1_100).for_each(|page| policy.arrived(PageNo(page), Arrival::Prefetched));
    let after = victims(&mut policy, 90);
    assert!(after.len() == 90 && after.iter().all(|page| page.0 < 100), "what was held leaves first: {after:?}");
}

#[test]
fn an_interval_is_followed_and_nothing_between_nor_in_a_forked_child() {
    let sets = [0..500, 1_000..1_500].map(|pages| PageSet::of([(PageNo(pages.start), 500)]));
    let (prefetcher, policy) = (make_prefetcher("none", None).unwrap(), make("fifo", 1000).unwrap());
    let (mut arbiter, _policy) =
        Arbiter::following(prefetcher, policy, Tapes::from(SetSource::new(sets)).of_intervals());
    let mut world = World { budget_pages: 4_096, ..World::new(10_000) };
    let mut walk = |arbiter: &mut Arbiter, pages: Range<u32>| {
        let before = world.majors;
        scattered(pages).for_each(|page| drop(world.touch(arbiter, 1, page)));
        world.majors - before
    };
    assert_eq!(walk(&mut arbiter, 0..100), 100, "none has begun");
    assert!(!arbiter.begin_interval(1, false));
    assert_eq!(walk(&mut arbiter, 100..200), 100);
    assert!(arbiter.begin_interval(2, true));
    assert!(walk(&mut arbiter, 200..500) <= 4);
    arbiter.end_interval();
    assert_eq!(walk(&mut arbiter, 1_000..1_100), 100);
    assert!(arbiter.begin_interval(3, true));
    assert!(walk(&mut arbiter, 1_100..1_500) <= 4);
    arbiter.end_tapes();
    assert!(arbiter.tape_statistics().is_none());
    assert_eq!(walk(&mut arbiter, 5_000..5_100), 100);
}
