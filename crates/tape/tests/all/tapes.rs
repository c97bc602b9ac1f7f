//! The format of tapes: everything comes back as it went in, and a tape that is not whole is refused.

use hinterland_tape::tape::{
    Arrival, Departure, Order, PageRange, Tape, TapeError, TapeHead, TapeWriter, ThreadTotals,
};
use hinterland_tape::{ForkPath, Head, Region, TraceError, Writer};
use hinterland_testkit::{Rng, append_block, seal_head};

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
        order: Order::Ordered,
        build_id: "0a1b".into(),
        process: 99,
        command: "prögram input".into(),
        forks: ForkPath::default().child(Some(3)),
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
    later[4] = 6;
    assert_eq!(Tape::open(&later).unwrap_err(), TapeError::Version { found: 6 });
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

fn sets_head() -> TapeHead {
    TapeHead { order: Order::Sets, eviction: String::new(), ..head() }
}

/// An unordered tape of these phases.
fn unordered(phases: &[Vec<PageRange>], regions: u32) -> Vec<u8> {
    let regions: Vec<Region> = (0..regions).map(|n| Region { name: format!("region {n}"), pages: 1 << 32 }).collect();
    let mut bytes = Vec::new();
    let mut writer = TapeWriter::new(&mut bytes, &sets_head(), &regions).unwrap();
    phases.iter().for_each(|phase| writer.phase(phase).unwrap());
    assert_eq!(writer.finish(&[]).unwrap(), bytes.len() as u64);
    bytes
}

fn some_set(random: &mut Rng, ranges: u32, regions: u32) -> Vec<PageRange> {
    let (mut set, mut region, mut end) = (Vec::new(), 0, 0_u64);
    for _ in 0..ranges {
        if random.below_u32(50) == 0 && region + 1 < regions {
            (region, end) = (region + 1, 0);
        }
        let (gap, pages) = (u64::from(1 + random.below_u32(70_000)), 1 + random.below_u32(300));
        let Ok(first_page) = u32::try_from(end + gap) else { break };
        end = u64::from(first_page) + u64::from(pages);
        if end <= 1 << 32 {
            set.push(PageRange { region, first_page, pages });
        }
    }
    set
}

#[test]
fn every_set_of_an_unordered_tape_comes_back() {
    let mut random = Rng(21);
    for round in 0..100 {
        let phases: Vec<_> = (0..round % 7).map(|_| some_set(&mut random, 1 + round * 3, 3)).collect();
        let bytes = unordered(&phases, 3);
        let tape = Tape::open(&bytes).unwrap();
        assert_eq!((tape.head(), tape.phases()), (&sets_head(), phases.as_slice()));
        let pages = phases.iter().flatten().map(|range| u64::from(range.pages)).sum::<u64>();
        assert_eq!((tape.set_pages(), tape.threads().len()), (pages, 0));
    }
    // A phase of several blocks, one at the end of a region, and one without pages.
    let ends =
        vec![PageRange { region: 0, first_page: 0, pages: 1 }, PageRange { region: 2, first_page: u32::MAX, pages: 1 }];
    let phases = [some_set(&mut random, 40_000, 3), vec![], ends];
    let bytes = unordered(&phases, 3);
    assert!(bytes.len() > 3 * (32 << 10), "{}", bytes.len());
    assert_eq!(Tape::open(&bytes).unwrap().phases(), phases);
}

#[test]
fn an_unordered_tape_that_is_cut_damaged_or_of_another_kind_is_refused() {
    let mut random = Rng(22);
    let bytes = unordered(&[some_set(&mut random, 100, 2), some_set(&mut random, 100, 2)], 2);
    for at in 0..bytes.len() {
        assert!(Tape::open(&bytes[..at]).is_err(), "cut at {at}");
        for flip in [1_u8, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            assert!(Tape::open(&damaged).is_err(), "byte {at} ^ {flip:#x}");
        }
    }
    let mut other = unordered(&[], 1);
    // Behind it are the build-id and the command, each with its length, a process below 128, and one fork with their number.
    let behind = head().build_id.len() + head().command.len() + 5;
    let kind = 24 + usize::from(other[8]) - behind - 1;
    assert_eq!(std::mem::replace(&mut other[kind], 2), 1, "the kind of tape");
    seal_head(&mut other);
    assert_eq!(Tape::open(&other).unwrap_err(), TapeError::Order { found: 2 });
}

/// What a checksum does not catch: a tape that was written to be wrong.
#[test]
fn phases_that_make_no_sense_are_refused() {
    let refused = |head: &TapeHead, kind: u8, payloads: &[&[u8]]| {
        let mut bytes = Vec::new();
        let regions = [0, 1].map(|n| Region { name: format!("region {n}"), pages: 9 });
        drop(TapeWriter::new(&mut bytes, head, &regions).unwrap());
        payloads.iter().for_each(|payload| append_block(&mut bytes, 3, kind, payload));
        Tape::open(&bytes).unwrap_err().to_string()
    };
    let (phase, part) = (5, 3);
    assert!(refused(&sets_head(), phase, &[&[0, 0, 7]]).contains("without an end"), "it is right so far");
    for (payloads, says) in [
        (vec![&[][..]], "a record is cut off"),
        (vec![&[0, 0]], "a record is cut off"),
        (vec![&[1, 0, 7]], "a phase is missing or comes twice"),
        (vec![&[0, 0, 7], &[1, 0, 7], &[0, 0, 9]], "a phase is missing or comes twice"),
        (vec![&[0, 0, 7], &[0, 0, 3]], "ranges of a phase are not in order"),
        (vec![&[0, 3, 0, 5, 1, 0, 5]], "ranges of a phase are not in order"),
        (vec![&[0, 5, 0, 7]], "a region was never declared"),
        (vec![&[0, 2, 0xff, 0xff, 0xff, 0xff, 0x0f]], "a range leaves its region"),
        (vec![&[0, 0, 0x80, 0x80, 0x80, 0x80, 0x10]], "a page lies outside its region"),
        (vec![&[0, 0x80, 0x80, 0x80, 0x80, 0x40, 7]], "a range has too many pages"),
    ] {
        let error = refused(&sets_head(), phase, &payloads);
        assert!(error.contains(says), "{payloads:?}: {error}");
    }
    assert!(refused(&head(), phase, &[&[0, 0, 7]]).contains("a phase on an ordered tape"));
    assert!(refused(&sets_head(), part, &[&[0; 4]]).contains("a thread's part on an unordered tape"));
    assert!(refused(&sets_head(), 6, &[&[0; 4]]).contains("a block of an unknown kind"));
    let mut bytes = unordered(&[vec![PageRange { region: 0, first_page: 7, pages: 2 }]], 1);
    bytes.truncate(bytes.len() - 24 - 3);
    append_block(&mut bytes, 3, 4, &[0, 1, 3]);
    assert!(Tape::open(&bytes).unwrap_err().to_string().contains("the end does not match"));
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

/// The same by the last program that wrote version 2.
#[test]
fn a_tape_of_version_2_is_read() {
    let bytes = include_bytes!("../version-2.tape");
    assert_eq!(bytes[4], 2);
    let tape = Tape::open(bytes).unwrap();
    let head = tape.head();
    assert_eq!((head.local_pages, head.has_intervals, head.order), (4096, false, Order::Ordered));
    assert_eq!((tape.threads().len(), tape.phases().len()), (2, 0));
    assert!(tape.arrivals(1).map(|arrival| (arrival.page, arrival.interval)).eq((0..6_000).map(|page| (page, 0))));
}

/// The same, walked through twice, by the last program that wrote version 3.
#[test]
fn a_tape_of_version_3_is_read() {
    let bytes = include_bytes!("../version-3.tape");
    assert_eq!(bytes[4], 3);
    let tape = Tape::open(bytes).unwrap();
    let head = tape.head();
    assert_eq!((head.local_pages, head.order, head.process), (4096, Order::Ordered, 0));
    assert!(head.build_id.is_empty() && head.command.is_empty());
    assert_eq!(tape.threads().iter().map(|thread| thread.fetched).collect::<Vec<_>>(), [4_376, 10_376]);
}

/// The same by the last program that wrote version 4.
#[test]
fn a_tape_of_version_4_is_read() {
    let bytes = include_bytes!("../version-4.tape");
    assert_eq!(bytes[4], 4);
    let tape = Tape::open(bytes).unwrap();
    let head = tape.head();
    assert_eq!((head.local_pages, head.order, head.process), (4096, Order::Ordered, 0));
    assert_eq!(head.forks.key(), Some(0), "of the program itself");
    assert_eq!(tape.threads().iter().map(|thread| thread.fetched).collect::<Vec<_>>(), [4_376, 10_376]);
}
