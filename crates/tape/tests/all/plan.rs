//! Plans: what a tape says is what a memory of that size needs, whatever the trace.

use hinterland_policy::{Ideal, Min, NextUses};
use hinterland_tape::plan::{Case, Eviction, Plan, PlanCosts, Recording, plan};
use hinterland_tape::study::StackDistances;
use hinterland_tape::tape::{Arrival, Departure, Tape, TapeHead, TapeWriter, ThreadTotals};
use hinterland_tape::{Cause, Discard, Head, Reference, Region, Trace, Writer, Written};
use hinterland_testkit::{Rng, patterns};
use std::collections::{BTreeMap, BTreeSet};

const COSTS: PlanCosts = PlanCosts {
    latency_ns: 15_000,
    page_ns: 3_277,
    fault_ns: 3_000,
    first_touch_ns: 3_000,
    come_ns: 0,
    leave_ns: 0,
    processors: 0,
    drops_copies: false,
    written_percent: 100,
};

/// A trace: (thread, page) of one region, a microsecond apart, in microsets of so many pages, as the tracer makes them.
fn traced(touches: impl IntoIterator<Item = (u32, u32)>, microset_pages: u32) -> Vec<u8> {
    let head = Head { page_bytes: 4096, microset_pages, has_cpu_times: true, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    let (mut microset, mut times) = (BTreeSet::new(), BTreeMap::new());
    for (thread, page) in touches {
        let cpu_ns = times.entry(thread).or_insert(0_u64);
        *cpu_ns += 1_000;
        if microset.contains(&page) {
            continue;
        }
        if microset.len() == microset_pages as usize {
            writer.end_microset(Written::Unknown).unwrap();
            microset.clear();
        }
        microset.insert(page);
        writer.touch(&Reference { thread, page, cpu_ns: *cpu_ns, ..Reference::default() }).unwrap();
    }
    writer.finish().unwrap();
    std::mem::take(writer.sink())
}

fn of_one_thread(pages: &[u32]) -> Vec<u8> {
    traced(pages.iter().map(|page| (0, *page)), 1)
}

type Planned = BTreeMap<u32, Vec<(Arrival, Option<Departure>)>>;

fn planned(bytes: &[u8], cases: &[Case]) -> (Vec<Plan>, Planned) {
    let trace = Trace::open(bytes).unwrap();
    let recording = Recording::read(&trace, None).unwrap();
    let mut tape = Planned::new();
    let mut sink = |thread: u32, arrival: Arrival, departure: Option<Departure>| {
        tape.entry(thread).or_default().push((arrival, departure));
        Ok(())
    };
    let plans = plan(&trace, &recording, cases, &COSTS, Some(&mut sink)).unwrap();
    (plans, tape)
}

fn case(local_pages: u64, eviction: Eviction) -> Case {
    Case { local_pages, reserve_pages: 0, eviction }
}

/// The pages of each thread's positions, worked out plainly: those of all microsets in which it has a reference.
fn positions(bytes: &[u8]) -> Vec<Vec<u32>> {
    let mut microsets: BTreeMap<u64, Vec<(u32, u32)>> = BTreeMap::new();
    for reference in Trace::open(bytes).unwrap().references() {
        let reference = reference.unwrap();
        microsets.entry(reference.microset).or_default().push((reference.thread, reference.page));
    }
    let mut threads: Vec<Vec<u32>> = Vec::new();
    for microset in microsets.values() {
        for thread in microset.iter().map(|(thread, _)| *thread).collect::<BTreeSet<_>>() {
            let index = thread as usize;
            threads.resize_with(threads.len().max(index + 1), Vec::new);
            threads[index].extend(microset.iter().map(|(_, page)| *page));
        }
    }
    threads
}

/// Follows a tape: whatever a thread touches is local or arrives then; what leaves is local, and its uses are those that are stated.
fn follow(pages: &[u32], tape: &[(Arrival, Option<Departure>)], frames: u64, what: &str) {
    let next = NextUses::of(pages.iter().copied());
    let (mut local, mut last_use, mut entries) = (BTreeSet::new(), BTreeMap::new(), tape.iter().peekable());
    for (at, page) in (0_u32..).zip(pages) {
        if let Some((arrival, departure)) = entries.next_if(|(arrival, _)| arrival.position == at) {
            assert_eq!(arrival.page, *page, "{what}, position {at}");
            if let Some(departure) = departure {
                assert!(local.remove(&departure.page), "{what}, position {at}: {departure:?} is not local");
                assert_eq!(
                    (departure.position, Some(&departure.last_use)),
                    (at, last_use.get(&departure.page)),
                    "{what}"
                );
                let next = next.after(departure.last_use as usize);
                assert_eq!(departure.next_use.unwrap_or(u32::MAX), next, "{what}");
            }
            assert!(local.insert(*page), "{what}, position {at}: page {page} was local");
            assert!(local.len() as u64 <= frames, "{what}, position {at}: more pages than frames");
        }
        assert!(local.contains(page), "{what}, position {at}: page {page} is missing");
        last_use.insert(*page, at);
    }
    assert_eq!(entries.next(), None, "{what}");
}

#[test]
fn whatever_a_thread_touches_is_local_or_on_its_tape_by_then() {
    let mut random = Rng(11);
    for round in 0..60 {
        let (threads, microset) = (1 + random.below_u32(3), [1, 4, 50][round % 3]);
        let pages = 100 + random.below_u32(400);
        let touches: Vec<(u32, u32)> = (0..6_000_u32)
            .map(|at| (random.below_u32(threads), if at % 3 == 0 { random.below_u32(pages) } else { at % pages }))
            .collect();
        let bytes = traced(touches, microset);
        let positions = positions(&bytes);
        for eviction in [Eviction::Lru, Eviction::Min] {
            let local = u64::from(20 + random.below_u32(pages));
            let what = format!("round {round}, {eviction:?}, {local} local, microsets of {microset}");
            let (plans, tape) = planned(&bytes, &[case(local, eviction)]);
            for (index, (thread, pages)) in plans[0].threads.iter().zip(&positions).enumerate() {
                assert_eq!(thread.references, pages.len() as u64, "{what}");
                let tape = &tape[&u32::try_from(index).unwrap()];
                let frames = thread.share_pages - if thread.left > 0 { thread.ahead_pages } else { 0 };
                follow(pages, tape, frames, &what);
                let counted = tape.iter().filter(|(arrival, _)| arrival.fetched).count() as u64;
                assert_eq!(
                    (counted, tape.len() as u64),
                    (thread.fetched, thread.fetched + thread.first_touches),
                    "{what}"
                );
            }
            let shares: Vec<u64> = plans[0].threads.iter().map(|thread| thread.share_pages).collect();
            let all: BTreeSet<u32> = positions.iter().flatten().copied().collect();
            // Where all pages fit, shares have the same pages.
            let fits = local >= all.len() as u64 && shares.iter().all(|share| *share <= local);
            assert!(fits || shares.iter().sum::<u64>() <= local, "{what}: {shares:?} pages are given away");
        }
    }
}

/// Frames of a plan's only thread.
fn frames(plan: &Plan) -> u64 {
    plan.threads[0].share_pages - plan.threads[0].ahead_pages
}

#[test]
fn fetches_are_the_misses_of_lru_and_of_min() {
    for (pattern, pages) in patterns::all(512) {
        let bytes = of_one_thread(&pages);
        let mut seen: Vec<u32> = pages.clone();
        seen.dedup();
        let mut distances = StackDistances::default();
        for page in &seen {
            distances.reference((*page).into());
        }
        let (plans, _) = planned(&bytes, &[case(512, Eviction::Lru), case(512, Eviction::Min)]);
        let [lru, min] = [&plans[0], &plans[1]].map(|plan| plan.threads[0].fetched);
        assert_eq!(lru, distances.misses(frames(&plans[0])) - distances.first_touches(), "{pattern}");
        assert_eq!(min, fewest(&seen, frames(&plans[1])) - distances.first_touches(), "{pattern}");
        assert!(plans[1].pages_moved() <= plans[0].pages_moved(), "{pattern}");
    }
}

/// Belady's faults, first touches included; the page that is touched cannot leave.
fn fewest(pages: &[u32], frames: u64) -> u64 {
    let (next, mut min, mut local, mut faults) = (NextUses::of(pages.iter().copied()), Min::new(), BTreeSet::new(), 0);
    for (at, page) in pages.iter().enumerate() {
        if local.insert(*page) {
            faults += 1;
            if local.len() as u64 > frames
                && let Some(victim) = min.leave()
            {
                local.remove(&victim);
            }
        }
        min.touched(*page, next.after(at));
    }
    faults
}

#[test]
fn sizes_planned_together_are_those_planned_alone() {
    let pages: Vec<u32> = patterns::zipf(2_000, 20_000);
    let bytes = of_one_thread(&pages);
    let cases: Vec<Case> = [100, 400, 2_000]
        .into_iter()
        .flat_map(|local| [Eviction::Lru, Eviction::Min].map(|e| case(local, e)))
        .collect();
    let (together, _) = planned(&bytes, &cases);
    for (case, plan) in cases.iter().zip(&together) {
        let (alone, _) = planned(&bytes, &[*case]);
        assert_eq!(format!("{:?}", alone[0]), format!("{plan:?}"));
    }
    assert_eq!(together[4].pages_moved(), 0, "all local");
}

#[test]
fn where_all_pages_fit_nothing_is_fetched_whichever_threads_touch_them() {
    let turns = (0..80_000_u32).map(|at| (at % 2, at / 2 % 800));
    let bytes = traced((0..800).map(|page| (0, page)).chain(turns), 1);
    let (plans, _) = planned(&bytes, &[case(800, Eviction::Min), case(799, Eviction::Min)]);
    assert_eq!(plans[0].threads.iter().map(|thread| thread.left).sum::<u64>(), 0, "{:?}", plans[0]);
    assert_eq!(plans[0].pages_moved(), 0);
    assert!(plans[1].pages_moved() > 0, "a page is missing");
}

#[test]
fn a_page_of_a_microset_of_several_threads_is_on_the_tapes_of_all() {
    // Thread 0 writes 0..8, then both read them in turns: while traced, each page is seen for one of them.
    let turns = (0..80_u32).map(|at| (at % 2, at % 8));
    let bytes = traced((0..8).map(|page| (0, page)).chain((100..900).map(|page| (0, page))).chain(turns), 8);
    let (plans, tape) = planned(&bytes, &[case(400, Eviction::Lru)]);
    for thread in 0..2 {
        let read: BTreeSet<u32> =
            tape[&thread].iter().filter(|(a, _)| a.fetched).map(|(a, _)| a.page).filter(|page| *page < 8).collect();
        assert_eq!(read.len(), 8, "thread {thread}");
    }
    // Each has some of its own, which can be its key pages; together they have all.
    let own = |thread: u32| tape[&thread].iter().filter(|(a, _)| a.own && a.page < 8).map(|(a, _)| a.page);
    assert!(own(1).count() > 0 && own(0).chain(own(1)).collect::<BTreeSet<_>>().len() == 8);
    assert!(tape[&1].iter().any(|(a, _)| !a.own));
    // The link carries them once.
    assert_eq!(plans[0].pages_in, 8);
    assert_eq!(plans[0].threads[1].share_pages, 8, "what a thread does not need goes to the others: not 1/2");
    assert_eq!(plans[0].threads[0].share_pages, 392);
}

/// A thousand threads in microsets of more than 300 threads each, and one that runs beside them for half of the time.
#[test]
fn where_many_threads_run_in_a_microset_those_with_a_fair_part_of_it_have_all_of_its_pages() {
    let short = |thread: u32| (0..3).map(move |at| (thread, thread * 3 + at));
    let bytes = traced((0..1_000).flat_map(short), 1_024);
    let (plans, tape) = planned(&bytes, &[case(1_000, Eviction::Min)]);
    let steps: u64 = plans[0].threads.iter().map(|thread| thread.references).sum();
    assert!((3_000..=16 * 3_000).contains(&steps), "{steps} steps of 3000 references");
    for thread in 0..1_000 {
        let pages: Vec<u32> = tape[&thread].iter().map(|(arrival, _)| arrival.page).collect();
        assert!(short(thread).all(|(_, page)| pages.contains(&page)), "its own are on its tape: {thread}");
    }
    let beside = (1..1_001).flat_map(|thread| short(thread).chain((0..3).map(move |at| (0, 10_000 + thread * 3 + at))));
    let (plans, _) = planned(&traced(beside, 1_024), &[case(1_000, Eviction::Min)]);
    let references = plans[0].threads.iter().map(|thread| thread.references);
    assert_eq!((references.clone().max(), references.skip(1).max()), (Some(6_000), Some(3)));
}

#[test]
fn max_min_shares_fetch_less_than_one_nth_each() {
    // Thread 0 goes round over 900 pages, thread 1 over 20, with 1000 local: with 500 each, thread 0 would fetch all the time.
    let touches = (0..9_000_u32).map(|at| (0, at % 900)).chain((0..200_u32).map(|at| (1, 2_000 + at % 20)));
    let (plans, _) = planned(&traced(touches, 1), &[case(1_000, Eviction::Lru)]);
    assert_eq!(plans[0].pages_in, 0);
}

#[test]
fn a_thread_that_is_idle_for_most_of_the_run_has_little_of_local_memory() {
    // Thread 0 goes round over 900 pages, thread 1 once over others, with 1000 local: with 500 each, thread 0 would fetch in each round.
    let touches = (0..9_000_u32).map(|at| (0, at % 900)).chain((0..900_u32).map(|at| (1, 2_000 + at)));
    let (plans, _) = planned(&traced(touches, 1), &[case(1_000, Eviction::Min)]);
    assert_eq!(plans[0].threads[0].share_pages, 900);
    assert_eq!((plans[0].threads[1].share_pages, plans[0].pages_in), (100, 0));
}

#[test]
fn a_thread_that_needs_little_has_it_though_others_are_busier() {
    // Thread 0 has no use for more; thread 1 goes round over 450 pages, and would fetch all of them in each round with a third.
    let mut random = 9_u32;
    let others = (0..9_000_u32).map(|_| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (0, random >> 8 & 0xffff)
    });
    let touches = others.chain((0..4_500_u32).map(|at| (1, 100_000 + at % 450)));
    let (plans, _) = planned(&traced(touches, 1), &[case(1_000, Eviction::Lru)]);
    assert_eq!((plans[0].threads[1].share_pages, plans[0].threads[1].fetched), (450, 0));
}

#[test]
fn predicted_times_follow_the_link() {
    // Five rounds over 4096 pages, 20 µs a page, half local.
    let touches: Vec<u32> = (0..5).flat_map(|_| 0..4_096).collect();
    let bytes = of_one_thread(&touches);
    let trace = Trace::open(&bytes).unwrap();
    let recording = Recording::read(&trace, Some(20_000)).unwrap();
    assert_eq!((recording.pages(), recording.references(), recording.cpu_ns()), (4_096, 20_480, 20_480 * 20_000));
    let of = |page_ns: u64| {
        let costs = PlanCosts { page_ns, ..COSTS };
        plan(&trace, &recording, &[case(2_048, Eviction::Min)], &costs, None).unwrap().remove(0)
    };
    let (fast, slow) = (of(1_000), of(100_000));
    let thread = &fast.threads[0];
    assert_eq!(fast.pages_moved(), thread.fetched + thread.left);
    assert!(fast.stalled_ns() * 100 < recording.cpu_ns(), "{fast:?}");
    // MIN keeps a part of the round and fetches the rest page by page: a page in and one out take 26 µs at 2.5 Gb/s, 13 µs at 5, and there
    // are 20 µs of work for each.
    assert_eq!(fast.hidden_from_mbit, Some(5_000));
    assert_eq!(slow.hidden_from_mbit, fast.hidden_from_mbit, "it does not depend on the user's link");
    let on_link = slow.pages_moved() * 100_000;
    assert!(slow.run_ns() >= on_link && slow.run_ns() < on_link * 12 / 10, "{slow:?}");
    assert!(slow.threads[0].waits > 0 && slow.threads[0].worst.len() == 3);
    assert!(slow.threads[0].worst.is_sorted_by(|one, other| one >= other));
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let empty = traced([], 1);
    let error = Recording::read(&Trace::open(&empty).unwrap(), None).unwrap_err();
    assert!(error.to_string().contains("no references"), "{error}");
    let whole = of_one_thread(&[1, 2, 3]);
    let cut = &whole[..whole.len() - 3];
    let error = Recording::read(&Trace::open(cut).unwrap(), None).unwrap_err();
    assert!(error.to_string().contains("the file ends inside the block"), "{error}");
}

#[test]
fn tapes_of_patterns_can_be_followed_as_they_were_written() {
    for (pattern, pages) in patterns::all(512) {
        for microset in [1, 256] {
            let bytes = traced(pages.iter().map(|page| (0, *page)), microset);
            let regions = [Region { name: "far".into(), pages: 1 << 30 }];
            for eviction in [Eviction::Lru, Eviction::Min] {
                let (plans, planned) = planned(&bytes, &[case(512, eviction)]);
                let what = format!("{pattern}, {eviction:?}, microsets of {microset}");
                let thread = &plans[0].threads[0];
                let frames = thread.share_pages - if thread.left > 0 { thread.ahead_pages } else { 0 };
                follow(&positions(&bytes)[0], &planned[&0], frames, &what);
                let mut written = Vec::new();
                let mut tape = TapeWriter::new(&mut written, &TapeHead::default(), &regions).unwrap();
                planned[&0].iter().for_each(|(arrival, departure)| tape.push(0, *arrival, *departure).unwrap());
                tape.finish(&[ThreadTotals::from(thread)]).unwrap();
                let tape = Tape::open(&written).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(tape.arrivals(0).eq(planned[&0].iter().map(|(arrival, _)| *arrival)), "{what}");
                assert!(tape.departures(0).eq(planned[&0].iter().filter_map(|(_, departure)| *departure)), "{what}");
            }
        }
    }
}

/// What was touched between two intervals may have taken the frames: each interval's tape begins with nothing local, unless all has room.
#[test]
fn an_interval_asks_for_all_that_it_touches() {
    let head = Head { page_bytes: 4096, microset_pages: 1, has_intervals: true, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    let intervals = [(1, 0..300), (2, 100..120), (5, 100..400)];
    for (number, pages) in intervals.clone() {
        writer.begin_interval(number).unwrap();
        for page in pages {
            writer.touch(&Reference { page, ..Reference::default() }).unwrap();
            writer.end_microset(Written::Unknown).unwrap();
        }
    }
    writer.finish().unwrap();
    let bytes = std::mem::take(writer.sink());
    for (local, everything) in [(50, true), (400, false)] {
        let (plans, tape) = planned(&bytes, &[case(local, Eviction::Min)]);
        let arrivals: Vec<(u32, u32)> = tape[&0].iter().map(|(arrival, _)| (arrival.interval, arrival.page)).collect();
        let mut expected: Vec<(u32, u32)> =
            intervals.iter().flat_map(|(number, pages)| pages.clone().map(|page| (*number, page))).collect();
        if !everything {
            // What is local stays.
            expected.retain(|(number, page)| *number == 1 || *number == 5 && *page >= 300);
        }
        assert_eq!(arrivals, expected, "{local} local");
        assert_eq!(plans[0].threads[0].references, 620);
    }
}

/// Rounds of a program that allocates `pages`, writes to them, reads them again, and gives them up; `told`: the trace says so. Between
/// two of them it goes over a table of 300 pages that it only reads, but for the first time.
fn that_allocates(rounds: u32, pages: u32, told: bool) -> Vec<u8> {
    let head = Head { page_bytes: 4096, microset_pages: 10, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    let mut walk = |pages: std::ops::Range<u32>, is_written: bool, is_first: bool, is_given_up: bool| {
        let (first, last) = (pages.start, pages.end);
        for page in pages {
            writer.touch(&Reference { page, is_first: is_first && told, ..Reference::default() }).unwrap();
            if page % 10 == 9 || page + 1 == last {
                let written = if is_written { Written::All } else { Written::None };
                writer.end_microset(if told { written } else { Written::Unknown }).unwrap();
            }
        }
        if is_given_up && told {
            let cause = Cause::Discarded;
            writer.discard(&Discard { region: 0, page: first, pages: last - first, cause }).unwrap();
        }
    };
    for round in 0..rounds {
        walk(0..300, round == 0, round == 0, false);
        walk(1_000..1_000 + pages, true, true, false);
        walk(1_000..1_000 + pages, false, false, true);
    }
    writer.finish().unwrap();
    std::mem::take(writer.sink())
}

#[test]
fn what_is_given_up_is_neither_stored_nor_fetched_and_what_is_only_read_is_stored_once() {
    let (rounds, pages) = (20, 400);
    for eviction in [Eviction::Lru, Eviction::Min] {
        // All of one allocation has room, and some of the table.
        let of = |told| planned(&that_allocates(rounds, pages, told), &[case(600, eviction)]).0.remove(0);
        let (with, without) = (of(true), of(false));
        let thread = &with.threads[0];
        assert_eq!(thread.references, without.threads[0].references);
        assert!(with.pages_moved() * 3 < without.pages_moved() * 2, "{eviction:?}: {with:?} instead of {without:?}");
        // Each round's allocation is first touches.
        assert_eq!(thread.first_touches, u64::from(300 + rounds * pages), "{eviction:?}: {with:?}");
        assert!(with.pages_out <= 300, "the table is stored once: {eviction:?}, {with:?}");
    }
}

#[test]
fn what_was_never_written_to_is_zeros_and_does_not_travel() {
    let head = Head { page_bytes: 4096, microset_pages: 1, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    for page in (0..5).flat_map(|_| 0..300) {
        writer.touch(&Reference { page, ..Reference::default() }).unwrap();
        // The first hundred are written to.
        writer.end_microset(if page < 100 { Written::All } else { Written::None }).unwrap();
    }
    writer.finish().unwrap();
    let (plans, _) = planned(&std::mem::take(writer.sink()), &[case(64, Eviction::Lru)]);
    assert_eq!((plans[0].pages_in, plans[0].pages_out), (400, 500));
}

/// What a forked child has from its parent is fetched when it first comes to it, though it writes to none of it; what it touches first is not.
#[test]
fn what_a_forked_child_inherits_is_fetched() {
    let head = Head { page_bytes: 4096, microset_pages: 1, is_forked: true, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    for (round, page) in (0..2).flat_map(|round| (0..300).map(move |page| (round, page))) {
        // The last hundred are its own.
        let is_first = round == 0 && page >= 200;
        writer.touch(&Reference { page, is_first, ..Reference::default() }).unwrap();
        writer.end_microset(if is_first { Written::All } else { Written::None }).unwrap();
    }
    writer.finish().unwrap();
    let (plans, arrivals) = planned(&std::mem::take(writer.sink()), &[case(64, Eviction::Lru)]);
    let fetched = arrivals[&0].iter().filter(|(arrival, _)| arrival.fetched).count();
    assert_eq!((fetched, plans[0].threads[0].first_touches), (500, 100));
    assert_eq!((plans[0].pages_in, plans[0].pages_out), (500, 100));
}

/// What is freed keeps its frame where it is local, and is not fetched where it is not.
#[test]
fn freed_pages_that_are_far_are_dropped() {
    let of = |cause: Option<Cause>, local_pages: u64| {
        let head = Head { page_bytes: 4096, microset_pages: 1, ..Head::default() };
        let mut writer = Writer::new(Vec::new(), &head).unwrap();
        writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
        for _ in 0..4 {
            for page in 0..200 {
                writer.touch(&Reference { page, ..Reference::default() }).unwrap();
                writer.end_microset(Written::All).unwrap();
            }
            if let Some(cause) = cause {
                writer.discard(&Discard { region: 0, page: 0, pages: 200, cause }).unwrap();
            }
        }
        writer.finish().unwrap();
        let plan = planned(&std::mem::take(writer.sink()), &[case(local_pages, Eviction::Lru)]).0.remove(0);
        (plan.pages_in, plan.pages_out, plan.threads[0].first_touches)
    };
    let frames = 100 - 100 / 8;
    assert_eq!(of(None, 100), (600, 800 - frames, 200));
    // Those that are local when the others are freed are stored, and fetched: the plan does not know that they are not needed.
    assert_eq!(of(Some(Cause::Freed), 100), (3 * frames, 800 - frames, 800 - 3 * frames));
    assert_eq!(of(Some(Cause::Unmapped), 100), (0, 800 - 4 * frames, 800));
    assert_eq!(of(Some(Cause::Freed), 200), (0, 0, 200));
    assert_eq!(of(Some(Cause::Unmapped), 200), (0, 0, 800));
}

/// Arrays that are unmapped in the reverse order of their use, and mapped again: what is in use again does not leave.
#[test]
fn what_is_given_up_leaves_the_tape_unless_it_is_in_use_again() {
    const PAGES: u32 = 600;
    let head = Head { page_bytes: 4096, microset_pages: 10, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    let rounds = 3;
    for _ in 0..rounds {
        for page in 0..2 * PAGES {
            writer.touch(&Reference { page, is_first: true, ..Reference::default() }).unwrap();
            if page % 10 == 9 {
                writer.end_microset(Written::All).unwrap();
            }
        }
        for page in [PAGES, 0] {
            writer.discard(&Discard { region: 0, page, pages: PAGES, cause: Cause::Unmapped }).unwrap();
        }
    }
    for page in 2 * PAGES..4 * PAGES {
        writer.touch(&Reference { page, is_first: true, ..Reference::default() }).unwrap();
        if page % 10 == 9 {
            writer.end_microset(Written::All).unwrap();
        }
    }
    writer.finish().unwrap();
    let (_, tape) = planned(&std::mem::take(writer.sink()), &[case(4 * u64::from(PAGES), Eviction::Min)]);
    let (mut arrived, mut left) = (BTreeMap::new(), BTreeSet::new());
    for (arrival, departure) in &tape[&0] {
        arrived.insert(arrival.page, arrival.position);
        let Some(departure) = departure else { continue };
        assert!(arrived[&departure.page] <= departure.last_use, "it is local again: {departure:?} for {arrival:?}");
        left.insert(departure.page);
    }
    assert_eq!(left.len(), 2 * PAGES as usize, "of what is not used again each page leaves");
}

/// A page that one thread discards and writes to again in the same microset has content, whatever others had there before.
#[test]
fn what_is_written_after_a_discard_is_content_for_threads_that_did_not_run() {
    const PAGE: u32 = 5_000;
    let head = Head { page_bytes: 4096, microset_pages: 1_024, ..Head::default() };
    let of = |is_discarded: bool| {
        let mut writer = Writer::new(Vec::new(), &head).unwrap();
        writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
        let touch = |writer: &mut Writer<Vec<u8>>, thread: u32, page: u32, is_first: bool| {
            writer.touch(&Reference { thread, page, is_first, ..Reference::default() }).unwrap();
        };
        // Another thread has had it.
        touch(&mut writer, 1, PAGE, true);
        writer.end_microset(Written::All).unwrap();
        touch(&mut writer, 0, PAGE, false);
        if is_discarded {
            writer.discard(&Discard { region: 0, page: PAGE, pages: 1, cause: Cause::Discarded }).unwrap();
            touch(&mut writer, 0, PAGE, true);
        }
        writer.end_microset(Written::All).unwrap();
        for page in 0..400 {
            touch(&mut writer, 0, page, true);
            if page % 10 == 9 {
                writer.end_microset(Written::All).unwrap();
            }
        }
        touch(&mut writer, 0, PAGE, false);
        writer.end_microset(Written::None).unwrap();
        writer.finish().unwrap();
        planned(&std::mem::take(writer.sink()), &[case(101, Eviction::Lru)])
    };
    for is_discarded in [false, true] {
        let (plans, tape) = of(is_discarded);
        let last = tape[&0].iter().map(|(arrival, _)| arrival).rfind(|arrival| arrival.page == PAGE);
        assert!(last.is_some_and(|arrival| arrival.fetched), "{is_discarded}: {last:?}");
        assert!(plans[0].pages_out > 0, "{is_discarded}: {:?}", plans[0]);
    }
}
