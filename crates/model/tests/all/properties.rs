//! What holds for any stream, on the paper's machine and on tiny ones.

use super::{CLEAN, run, stream};
use hinterland_model::{Counts, Miss, ModelStats, Parameters, Placement, Random, Replacement, Scheme, Stream};

/// A stream with runs within pages, jumps, dependences, stores and dirty lines.
pub fn random_stream(seed: u64) -> Stream {
    let mut random = Random::new(seed);
    let pages = 20 + random.below(200);
    let jumps = 1 + random.below(30);
    let mut line = 0;
    let misses = (0..3000u32).map(|number| {
        line = if random.below(30) < jumps { random.below(pages * 64) } else { (line + 1) % (pages * 64) };
        let depends = random.below(4) == 0;
        let back = 1 + u32::try_from(random.below(20)).expect("small");
        let victim = if random.below(5) == 0 { random.below(pages * 64) } else { u64::from(CLEAN) };
        Miss {
            line: u32::try_from(line).expect("small"),
            dirty_victim: u32::try_from(victim).expect("small"),
            after: if depends { number.saturating_sub(back) } else { 0 },
            instructions: 1 + u32::try_from(random.below(60)).expect("small"),
            after_cycles: u16::try_from(random.below(40)).expect("small"),
            is_load: random.below(4) != 0,
            core: 0,
        }
    });
    stream(misses.collect())
}

fn machines() -> [Parameters; 5] {
    let paper = Parameters::paper();
    [
        Parameters { inflight_pages: 3, inflight_sub_blocks: 2, dirty_lines: 4, llc_mshrs: 8, ..paper.clone() },
        Parameters { local_percent: 3, replacement: Replacement::Fifo, dirty_lines_of_a_page: 1, ..paper.clone() },
        Parameters { utilisation_interval_ticks: 1000, line_share_percent: 60, ..paper.clone() },
        Parameters { components: 3, placement: Placement::Random, inflight_pages: 20, ..paper.clone() },
        paper,
    ]
}

/// Calls `check` with figures of every scheme on every machine for several streams.
fn for_all(check: impl Fn(&Stream, &Parameters, &dyn Fn(Scheme) -> ModelStats)) {
    for seed in 0..8 {
        let stream = random_stream(seed);
        for parameters in machines() {
            let figures = Scheme::ALL.map(|scheme| run(&stream, scheme, &parameters));
            check(&stream, &parameters, &|scheme| figures[scheme as usize]);
        }
    }
}

#[test]
fn every_access_is_served_once() {
    for_all(|stream, _, figures| {
        for scheme in Scheme::ALL {
            let counts = figures(scheme).counts;
            assert_eq!(counts.accesses, stream.misses.len() as u64, "{scheme:?}");
            assert_eq!(counts.local + counts.awaited + counts.by_page + counts.by_line, counts.accesses, "{scheme:?}");
            // Time is taken from the first miss.
            assert_eq!(figures(scheme).instructions, stream.instructions - u64::from(stream.misses[0].instructions));
        }
    });
}

#[test]
fn every_byte_on_the_network_belongs_to_a_line_or_a_page() {
    for_all(|_, parameters, figures| {
        for scheme in Scheme::ALL {
            let counts = figures(scheme).counts;
            let page = if scheme.compresses() { 1024 } else { 4096 };
            let pages_came = counts.pages_arrived + counts.pages_asked_again;
            assert_eq!(pages_came, counts.pages_asked, "{scheme:?}: all that was asked for has come");
            let lines = (counts.down_bytes - pages_came * page) / 64;
            assert_eq!(lines * 64 + pages_came * page, counts.down_bytes, "{scheme:?}");
            // A line that was issued came in time or late; one that was cancelled may have been issued or not.
            assert_eq!(lines, counts.lines_asked - counts.lines_cancelled + counts.lines_late, "{scheme:?}");
            let request = parameters.request_bytes;
            let up = (lines + pages_came) * request
                + counts.lines_written * (64 + request)
                + counts.pages_written * (page + request);
            assert_eq!(counts.up_bytes, up, "{scheme:?}");
            let written = counts.lines_written * 64 + counts.pages_written * 4096;
            assert_eq!(counts.remote_bus_bytes, lines * 64 + pages_came * 4096 + written, "{scheme:?}");
        }
    });
}

#[test]
fn local_is_the_fastest_and_page_free_faster_than_remote() {
    for_all(|_, _, figures| {
        let local = figures(Scheme::Local).ticks;
        for scheme in Scheme::ALL {
            assert!(local <= figures(scheme).ticks, "{scheme:?}");
        }
        assert!(figures(Scheme::PageFree).ticks <= figures(Scheme::Remote).ticks);
    });
}

#[test]
fn the_same_stream_gives_the_same_figures() {
    let (stream, parameters) = (random_stream(3), Parameters::paper());
    for scheme in Scheme::ALL {
        assert_eq!(run(&stream, scheme, &parameters), run(&stream, scheme, &parameters), "{scheme:?}");
    }
}

#[test]
fn each_scheme_uses_its_own_parts_alone() {
    for_all(|_, _, figures| {
        let counts = |scheme| figures(scheme).counts;
        assert_eq!((counts(Scheme::Local).down_bytes, counts(Scheme::Local).up_bytes), (0, 0));
        assert_eq!((counts(Scheme::CacheLine).local, counts(Scheme::CacheLine).pages_asked), (0, 0));
        assert_eq!((counts(Scheme::Remote).lines_asked, counts(Scheme::Lc).lines_asked), (0, 0));
        assert_eq!(counts(Scheme::PageFree).pages_asked, 0);
        assert_eq!((counts(Scheme::Bp).pages_refused, counts(Scheme::Bp).accesses_blocked), (0, 0));
        assert_eq!(counts(Scheme::CacheLinePage).pages_throttled, 0);
    });
}

#[test]
fn nothing_is_measured_where_the_warm_up_has_all_misses() {
    let mut stream = random_stream(5);
    (stream.measured_from, stream.tails) = (stream.misses.len(), vec![1000]);
    for scheme in Scheme::ALL {
        let figures = run(&stream, scheme, &Parameters::paper());
        assert_eq!((figures.ticks, figures.instructions, figures.counts), (0, 0, Counts::default()), "{scheme:?}");
    }
}

#[test]
fn no_link_is_used_for_more_than_it_carries() {
    for_all(|_, _, figures| {
        for scheme in Scheme::ALL {
            assert!(figures(scheme).utilisation_percent() <= 100.0, "{scheme:?}: {:?}", figures(scheme));
        }
    });
    // One line of each of many pages: BP asks for all of these, and at the end most of them still wait for the link.
    let mut scattered = stream((0..4000).map(|page| Miss { instructions: 100, ..super::load(page * 64) }).collect());
    scattered.measured_from = 1000;
    let used = run(&scattered, Scheme::Bp, &Parameters::paper()).utilisation_percent();
    assert!(used > 75.0 && used <= 100.0, "{used}");
}

#[test]
fn a_warm_up_is_not_measured() {
    let mut stream = random_stream(5);
    stream.measured_from = 2000;
    let figures = run(&stream, Scheme::DaeMon, &Parameters::paper());
    let counted = figures.counts.accesses;
    // Accesses that were under way at the dispatch of the first measured miss are done after it.
    assert!((1000..1000 + 128).contains(&counted), "{counted}");
    let instructions: u64 = stream.misses[2001..].iter().map(|miss| u64::from(miss.instructions)).sum();
    assert_eq!(figures.instructions, instructions);
}

#[test]
fn more_memory_components_carry_the_same_and_are_not_slower_where_pages_wait_for_the_network() {
    // One page after the other, more than the core waits for at a time: the link is what they wait for.
    let stream = stream((0..400).map(|page| super::load(page * 64)).collect());
    let mut before: Option<ModelStats> = None;
    for components in 1..=4 {
        for placement in [Placement::RoundRobin, Placement::Random] {
            let parameters = Parameters { components, placement, ..Parameters::paper() };
            let figures = run(&stream, Scheme::Remote, &parameters);
            let first = *before.get_or_insert(figures);
            assert_eq!(figures.counts.down_bytes, 400 * 4096);
            assert!(figures.ticks <= first.ticks, "{components} {placement:?}");
        }
    }
    let four = Parameters { components: 4, ..Parameters::paper() };
    // The local bus takes a quarter as long as one link for each page: with four links it is as busy as they are.
    let (one, four) = (before.expect("eight runs").ticks, run(&stream, Scheme::Remote, &four).ticks);
    assert!(one > 3 * four, "{one} with one, {four} with four");
}
