//! The format of tapes: everything comes back as it went in, and a tape that is not whole is refused.

use hinterland_tape::tape::{Arrival, Departure, Tape, TapeError, TapeHead, TapeWriter, ThreadTotals};
use hinterland_tape::{Head, Region, TraceError, Writer};
use hinterland_testkit::Rng;

fn head() -> TapeHead {
    TapeHead {
        origin: "test".into(),
        program: "/bin/prögram".into(),
        arguments_digest: 7,
        page_bytes: 4096,
        microset_pages: 64,
        begun_unix_s: 1_700_000_000,
        has_intervals: true,
        local_pages: 5000,
        peak_pages: 12_000,
        eviction: "min".into(),
    }
}

type Planned = Vec<(Arrival, Option<Departure>)>;

/// What a tape may have for one thread: walks in both directions, single pages, pages at the ends of regions.
fn some_thread(random: &mut Rng, arrivals: u32, regions: u32) -> Planned {
    let (mut planned, mut position, mut interval) = (Vec::new(), 0, 0);
    let (mut page, mut region, mut stride, mut down, mut fetched, mut idle, mut next) =
        (0_u32, 0, 1, false, false, 0, 0);
    for _ in 0..arrivals {
        if random.below_u32(6) == 0 {
            page = [random.below_u32(u32::MAX), u32::MAX, 0][random.below_u32(3) as usize];
            region = random.below_u32(regions);
            stride = [1, 1, 3, 1 + random.below_u32(90_000)][random.below_u32(4) as usize];
            (down, fetched) = (random.below_u32(2) == 0, random.below_u32(2) == 0);
            (idle, next) = (random.below_u32(5000), random.below_u32(3) * random.below_u32(70_000));
        }
        position += stride;
        interval += u32::from(random.below_u32(100) == 0) * (1 + random.below_u32(3));
        let departure = (random.below_u32(8) > 0 && idle <= position).then(|| Departure {
            position,
            region,
            page: page ^ 0x5000,
            last_use: position - idle,
            next_use: (next > 0).then_some(position + next),
        });
        // Falling next uses, and one that never comes behind them.
        next = if random.below_u32(3) == 0 { next / 3 } else { next };
        planned.push((Arrival { position, region, page, fetched, own: page % 64 < 60, interval }, departure));
        page = if down { page.wrapping_sub(1) } else { page.wrapping_add(1) };
    }
    planned
}

fn totals(planned: &Planned) -> ThreadTotals {
    let fetched = planned.iter().filter(|(arrival, _)| arrival.fetched).count() as u64;
    ThreadTotals {
        references: planned.last().map_or(0, |(arrival, _)| u64::from(arrival.position) + 1),
        pages: 3,
        share_pages: 2,
        ahead_pages: 1,
        fetched,
        first_touches: planned.len() as u64 - fetched,
        left: planned.iter().filter(|(_, departure)| departure.is_some()).count() as u64,
    }
}

fn written(threads: &[Planned], regions: u32) -> Vec<u8> {
    let regions: Vec<Region> = (0..regions).map(|n| Region { name: format!("region {n}"), pages: 1 << 32 }).collect();
    let mut bytes = Vec::new();
    let mut writer = TapeWriter::new(&mut bytes, &head(), &regions).unwrap();
    let longest = threads.iter().map(Vec::len).max().unwrap_or(0);
    for at in 0..longest {
        for (thread, planned) in (0..).zip(threads) {
            if let Some((arrival, departure)) = planned.get(at) {
                writer.push(thread, *arrival, *departure).unwrap();
            }
        }
    }
    let totals: Vec<ThreadTotals> = threads.iter().map(totals).collect();
    let stated = writer.finish(&totals).unwrap();
    assert_eq!(stated, bytes.len() as u64);
    bytes
}

fn make(seed: u64, arrivals: u32) -> (Vec<u8>, Vec<Planned>) {
    let mut random = Rng(seed);
    let regions = 1 + random.below_u32(3);
    let threads: Vec<Planned> =
        (0..1 + random.below_u32(3)).map(|_| some_thread(&mut random, arrivals, regions)).collect();
    (written(&threads, regions), threads)
}

fn comes_back(bytes: &[u8], threads: &[Planned]) {
    let tape = Tape::open(bytes).unwrap();
    assert_eq!((tape.head(), tape.threads().len()), (&head(), threads.len()));
    for (thread, planned) in (0..).zip(threads) {
        assert_eq!(tape.threads()[thread as usize], totals(planned));
        assert!(tape.arrivals(thread).eq(planned.iter().map(|(arrival, _)| *arrival)), "thread {thread}");
        assert!(tape.departures(thread).eq(planned.iter().filter_map(|(_, departure)| *departure)), "thread {thread}");
    }
}

#[test]
fn every_arrival_and_departure_of_a_tape_comes_back() {
    for seed in 0..200 {
        let (bytes, threads) = make(seed, 1 + u32::try_from(seed * 5).unwrap());
        comes_back(&bytes, &threads);
    }
    let (bytes, threads) = make(1000, 60_000);
    assert!(bytes.len() > 4 * (32 << 10), "several parts a thread: {}", bytes.len());
    comes_back(&bytes, &threads);
    comes_back(&written(&[], 1), &[]);
}

#[test]
fn consecutive_pages_are_ranges() {
    let walk = |position: u32| {
        let arrival = Arrival { position, region: 0, page: 70_000 + position, fetched: true, own: true, interval: 0 };
        let next_use = Some(position + 900);
        (arrival, Some(Departure { position, region: 0, page: 10_000 + position, last_use: position - 50, next_use }))
    };
    let bytes = written(&[(50..100_050).map(walk).collect()], 1);
    assert!(bytes.len() < 1000, "100,000 pages in {} bytes", bytes.len());
    // MIN evicts what was used last: backwards, while the program walks on.
    let back = |position: u32| {
        let arrival = Arrival { position, region: 0, page: 70_000 + position, fetched: true, own: true, interval: 0 };
        let (round, at) = (position / 1000 * 1000, position % 1000);
        let (last_use, next_use) = (round - at - 1, Some(round + 9_000 - at));
        (arrival, Some(Departure { position, region: 0, page: round - at, last_use, next_use }))
    };
    let bytes = written(&[(5_000..105_000).map(back).collect()], 1);
    assert!(bytes.len() < 4000, "100,000 pages in {} bytes", bytes.len());
}

#[test]
fn a_tape_cut_anywhere_is_refused() {
    let (bytes, _) = make(7, 300);
    for cut in 0..bytes.len() {
        match Tape::open(&bytes[..cut]).expect_err("cut") {
            TapeError::NoEnd { length } => assert_eq!(length, cut as u64),
            TapeError::Block(TraceError::Truncated { offset, missing }) => {
                assert!(offset <= cut as u64 && missing > 0 && cut as u64 + missing <= bytes.len() as u64);
            }
            other => panic!("cut at {cut}: {other}"),
        }
    }
}

#[test]
fn no_damaged_byte_of_a_tape_goes_unnoticed() {
    let (bytes, _) = make(8, 300);
    for at in 0..bytes.len() {
        for flip in [1_u8, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            assert!(Tape::open(&damaged).is_err(), "byte {at} ^ {flip:#x}");
        }
    }
    let more = [bytes.as_slice(), b"more"].concat();
    assert!(matches!(Tape::open(&more).unwrap_err(), TapeError::Block(TraceError::Malformed { .. })));
}

#[test]
fn what_is_no_tape_is_refused_with_what_it_is() {
    assert_eq!(Tape::open(b"\x7fELF and so on").unwrap_err(), TapeError::Foreign);
    assert!(matches!(Tape::open(b"HL").unwrap_err(), TapeError::Block(TraceError::Truncated { offset: 0, .. })));
    let mut trace = Writer::new(Vec::new(), &Head::default()).unwrap();
    trace.finish().unwrap();
    assert_eq!(Tape::open(trace.sink()).unwrap_err(), TapeError::Trace);
    let mut later = make(1, 10).0;
    assert_eq!(hinterland_tape::Trace::open(&later).unwrap_err(), TraceError::Tape);
    later[4] = 3;
    assert_eq!(Tape::open(&later).unwrap_err(), TapeError::Version { found: 3 });
    let mut random = Rng(77);
    for _ in 0..20_000 {
        let mut bytes = b"HLP\xb1\x01".to_vec();
        bytes.extend((0..random.below_u32(200)).map(|_| random.next_u64().to_le_bytes()[0]));
        assert!(Tape::open(&bytes).is_err());
    }
}

#[test]
fn totals_that_do_not_match_are_refused() {
    let mut bytes = Vec::new();
    let writer = TapeWriter::new(&mut bytes, &head(), &[]).unwrap();
    writer.finish(&[ThreadTotals { fetched: 1, references: 1, ..ThreadTotals::default() }]).unwrap();
    let error = Tape::open(&bytes).unwrap_err();
    assert!(error.to_string().contains("the end does not match"), "{error}");
}

/// Planned for 16 MiB by the last program that wrote version 1, of two threads that walk through 6000 pages, one after the other.
#[test]
fn a_tape_of_version_1_is_read() {
    let bytes = include_bytes!("../version-1.tape");
    assert_eq!(bytes[4], 1);
    let tape = Tape::open(bytes).unwrap();
    assert_eq!((tape.head().local_pages, tape.threads().len(), tape.head().has_intervals), (4096, 2, false));
    assert!(tape.arrivals(0).map(|arrival| (arrival.page, arrival.interval)).eq((0..6_000).map(|page| (page, 0))));
}
