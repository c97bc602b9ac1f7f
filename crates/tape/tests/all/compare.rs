//! Runs of a program beside each other: what is the same in all of them, worked out by hand.

use hinterland_tape::compare::{CompareError, Comparison, Phase, Verdict, write_sets};
use hinterland_tape::tape::{Order, PageRange, Tape};
use hinterland_tape::{Head, Reference, Region, Trace, TraceError, Writer, Written};
use hinterland_testkit::Rng;

/// A trace of these pages.
fn trace(pages: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let head = Head { program: "/bin/app".into(), page_bytes: 4096, microset_pages: 64, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    for page in pages {
        writer.touch(&Reference { page, ..Reference::default() }).unwrap();
    }
    writer.end_microset(Written::Unknown).unwrap();
    writer.finish().unwrap();
    std::mem::take(writer.sink())
}

fn compared(runs: &[Vec<u32>], phase_pages_max: u64) -> Comparison {
    let bytes: Vec<Vec<u8>> = runs.iter().map(|pages| trace(pages.iter().copied())).collect();
    let traces: Vec<Trace<'_>> = bytes.iter().map(|bytes| Trace::open(bytes).unwrap()).collect();
    Comparison::of(&traces, phase_pages_max).unwrap()
}

fn shuffled(pages: impl IntoIterator<Item = u32>, random: &mut Rng) -> Vec<u32> {
    let mut pages: Vec<u32> = pages.into_iter().collect();
    for at in (1..pages.len()).rev() {
        pages.swap(at, random.below_u32(u32::try_from(at).unwrap() + 1) as usize);
    }
    pages
}

/// Phases of 500 pages, 1000 apart, each touched `rounds` times in an order of its own; of each, so many pages are the run's alone.
fn phased(seed: u64, phases: u32, rounds: u32, own: u32) -> Vec<u32> {
    let mut random = Rng(seed);
    let of_run = 1_000_000 * u32::try_from(seed).unwrap();
    let page = |phase: u32, at: u32| if at < own { of_run + phase * 1_000 + at } else { phase * 1_000 + at };
    (0..phases)
        .flat_map(|phase| (0..rounds).map(move |_| phase))
        .flat_map(|phase| shuffled((0..500).map(|at| page(phase, at)), &mut random))
        .collect()
}

fn range(first_page: u32, pages: u32) -> Vec<PageRange> {
    vec![PageRange { region: 0, first_page, pages }]
}

#[test]
fn runs_that_do_the_same_are_ordered() {
    let walk: Vec<u32> = (0..2).flat_map(|_| 0..4_096).collect();
    let found = compared(&[walk.clone(), walk.clone(), walk], 1_024);
    assert_eq!((found.verdict(), found.common_permille(), found.in_order_permille()), (Verdict::Ordered, 1000, 1000));
    // A sixteenth of 1024 pages is what a phase has at least, and all agree from there on.
    assert_eq!(found.phases.len(), 2 * 4_096 / 64);
    let phase = |first_page| Phase { pages: 64, common: 64, in_order: 64, agrees: true, set: range(first_page, 64) };
    assert_eq!((&found.phases[1], &found.phases[127]), (&phase(64), &phase(4_096 - 64)));
    assert_eq!(found.runs.iter().map(|run| (run.references, run.pages)).collect::<Vec<_>>(), [(8_192, 4_096); 3]);
}

#[test]
fn phases_of_the_same_pages_in_another_order_are_sets() {
    for rounds in [1, 3] {
        let found = compared(&[phased(1, 8, rounds, 0), phased(2, 8, rounds, 0)], 3_500);
        assert_eq!((found.verdict(), found.common_permille()), (Verdict::Set, 1000), "{rounds} rounds: {found:?}");
        let sets: Vec<_> = found.phases.iter().map(|phase| phase.set.clone()).collect();
        assert_eq!(sets, (0..8).map(|phase| range(phase * 1_000, 500)).collect::<Vec<_>>(), "{rounds} rounds");
        // The longest ascending part of 500 numbers in any order has about twice the root of 500.
        assert!((50..130).contains(&found.in_order_permille()), "{found:?}");
    }
}

#[test]
fn pages_of_one_run_alone_are_in_no_set() {
    let found = compared(&[phased(1, 8, 2, 40), phased(2, 8, 2, 40)], 3_500);
    assert_eq!(found.verdict(), Verdict::Set);
    assert!((900..=940).contains(&found.common_permille()), "460 of 500: {}", found.common_permille());
    let mut pages = 0;
    for range in found.agreeing().flat_map(|phase| &phase.set) {
        assert!(range.first_page % 1_000 >= 40 && range.first_page < 8_000, "{range:?}");
        pages += range.pages;
    }
    assert!((3_600..=3_750).contains(&pages), "{pages} pages in the sets of 8 · 460");
}

/// Two phases share 50 pages, and all four use 20 others.
#[test]
fn what_two_phases_share_is_in_both_sets_and_what_all_use_in_none() {
    let run = |seed| {
        let mut random = Rng(seed);
        let shared = |first: u32| if first < 600 { 10_000..10_050 } else { 0..0 };
        let pages = |first: u32| (first..first + 300).chain(shared(first)).chain(20_000..20_020);
        [0, 300, 600, 900].into_iter().flat_map(|first| shuffled(pages(first), &mut random)).collect::<Vec<u32>>()
    };
    let found = compared(&[run(3), run(4)], 3_500);
    assert_eq!(found.phases.len(), 4, "{found:?}");
    for (first, phase) in [0, 300, 600, 900].into_iter().zip(&found.phases) {
        // A page that two phases share may come at the very end of the first, which has all that is new in it by then.
        let new = if first == 0 { 370 } else { 300 };
        assert!((new..new + 5).contains(&phase.pages) && phase.common <= phase.pages, "{phase:?}");
        assert_eq!(phase.set[0], range(first, 300)[0], "{phase:?}");
        let shared = phase.set[1..].iter().map(|range| range.pages).sum::<u32>();
        assert!(if first < 600 { (45..=50).contains(&shared) } else { shared == 0 }, "{phase:?}");
        assert!(phase.set.iter().all(|range| range.first_page < 20_000), "{phase:?}");
    }
}

/// Two to four phases in turn; each time a run leaves out one page in so many of a phase, others each time.
#[test]
fn a_phase_that_comes_again_has_what_it_lacked() {
    for (phases, left_out, rounds) in [(4, 16, 1), (3, 16, 1), (2, 16, 1), (2, 32, 1), (2, 300, 1), (2, 16, 3)] {
        let run = |seed| {
            let mut random = Rng(seed);
            let mut phase = |phase: u32| {
                let pages = (0..640).filter(|_| random.below_u32(left_out) > 0).map(|at| phase * 1_000 + at);
                let pages: Vec<u32> = pages.collect();
                (0..rounds).flat_map(|_| shuffled(pages.clone(), &mut random)).collect::<Vec<u32>>()
            };
            (0..20).flat_map(|at| phase(at % phases)).collect::<Vec<u32>>()
        };
        let found = compared(&[run(1), run(2)], 3_500);
        let what = format!("{phases} phases in turn without one page in {left_out}, {rounds} rounds of each");
        assert_eq!((found.verdict(), found.agreeing().count()), (Verdict::Set, 20), "{what}: {found:?}");
        let common = found.common_permille();
        assert!((850..1_000).contains(&common), "{what}: at least 15² of 16² pages: {common}");
        let found: Vec<&Phase> = found.agreeing().collect();
        for (at, phase) in found.iter().enumerate() {
            assert_eq!(phase.set, found[at % phases as usize].set, "{what}, phase {at}");
            assert!((632..=645).contains(&phase.set_pages()), "{what}, phase {at}: {} of 640 pages", phase.set_pages());
        }
    }
}

#[test]
fn other_pages_or_a_set_that_nothing_holds_are_neither() {
    let random = |seed| {
        let mut random = Rng(seed);
        (0..20_000).map(|_| random.below_u32(200_000)).collect::<Vec<u32>>()
    };
    let found = compared(&[random(5), random(6)], 3_500);
    assert_eq!((found.verdict(), found.agreeing().count()), (Verdict::Neither, 0));
    assert!(found.phases.iter().all(|phase| phase.set.is_empty()) && found.common_permille() < 100, "{found:?}");
    // A scan, which is the same in both runs, beside random touches of a hot set: there is no end of a phase.
    let scan = |seed| {
        let mut random = Rng(seed);
        (0..36_000).flat_map(|at| [3_000 + at % 12_000, random.below_u32(3_000)]).collect::<Vec<u32>>()
    };
    let found = compared(&[scan(5), scan(6)], 3_500);
    assert_eq!(found.verdict(), Verdict::Neither, "{:?}", found.phases.first());
    // All pages in any order: a set of 4096 pages, if that many have room.
    let runs = [shuffled(0..4_096, &mut Rng(7)), shuffled(0..4_096, &mut Rng(8))];
    assert_eq!(compared(&runs, 1_024).verdict(), Verdict::Neither);
    let whole = compared(&runs, 4_096);
    assert_eq!((whole.verdict(), &whole.phases[0].set, whole.phases.len()), (Verdict::Set, &range(0, 4_096), 1));
}

#[test]
fn behind_a_beginning_that_differs_phases_are_found_again() {
    let run = |seed: u64, junk: u32| {
        let other = 5_000_000 * u32::try_from(seed).unwrap();
        (other..other + junk).chain(phased(seed, 12, 1, 0)).collect::<Vec<u32>>()
    };
    let found = compared(&[run(1, 5_000), run(2, 5_000)], 2_000);
    let agreeing: u64 = found.agreeing().map(Phase::set_pages).sum();
    assert!(agreeing >= 10 * 500, "{agreeing} pages of 12 phases: {found:?}");
}

/// Regions of imported traces are numbered as they come.
#[test]
fn regions_are_the_same_by_their_names() {
    let run = |names: [&str; 2], pages: [std::ops::Range<u32>; 2]| {
        let mut writer = Writer::new(Vec::new(), &Head { page_bytes: 4096, ..Head::default() }).unwrap();
        for (name, pages) in names.into_iter().zip(pages) {
            let region = writer.region(&Region { name: name.into(), pages: 1 << 20 }).unwrap();
            for page in pages {
                writer.touch(&Reference { region, page, ..Reference::default() }).unwrap();
            }
        }
        writer.finish().unwrap();
        std::mem::take(writer.sink())
    };
    let bytes = [run(["a", "b"], [0..100, 0..200]), run(["b", "a"], [0..200, 0..100])];
    let traces = bytes.each_ref().map(|bytes| Trace::open(bytes).unwrap());
    let found = Comparison::of(&traces, 1_000).unwrap();
    assert_eq!(found.regions.iter().map(|region| region.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let ranges = [(0, 100), (1, 200)].map(|(region, pages)| PageRange { region, first_page: 0, pages });
    assert_eq!((found.phases.len(), found.phases[0].set.as_slice()), (1, &ranges[..]), "{found:?}");
}

#[test]
fn what_cannot_be_compared_is_named() {
    let (good, empty) = (trace(0..100), trace([]));
    let of = |all: &[&[u8]]| {
        let traces: Vec<Trace<'_>> = all.iter().map(|bytes| Trace::open(bytes).unwrap()).collect();
        Comparison::of(&traces, 1_000)
    };
    assert_eq!(of(&[]), Err(CompareError::TooFew));
    assert_eq!(of(&[&good]), Err(CompareError::TooFew));
    assert_eq!(of(&[&good, &empty]), Err(CompareError::Empty { index: 1 }));
    let damaged = of(&[&good[..good.len() - 40], &good]).unwrap_err();
    assert!(matches!(damaged, CompareError::Trace { index: 0, source: TraceError::Truncated { .. } }), "{damaged:?}");
}

#[test]
fn the_tape_of_a_comparison_has_the_sets_of_its_phases() {
    let bytes = [phased(1, 5, 2, 40), phased(2, 5, 2, 40)].map(trace);
    let traces = bytes.each_ref().map(|bytes| Trace::open(bytes).unwrap());
    let found = Comparison::of(&traces, 3_500).unwrap();
    let mut tape = Vec::new();
    assert_eq!(write_sets(&traces[0], &found, 4_000, "test", &mut tape).unwrap(), tape.len() as u64);
    let tape = Tape::open(&tape).unwrap();
    assert!(tape.phases().iter().eq(found.agreeing().map(|phase| &phase.set)));
    let head = tape.head();
    assert_eq!((head.order, head.local_pages, head.program.as_str()), (Order::Sets, 4_000, "/bin/app"));
    assert_eq!((head.peak_pages, tape.threads().len()), (2_500, 0));
}
