//! The format: everything comes back as it went in, and nothing that was damaged comes back at all.

use hinterland_tape::{Head, Reference, Region, Trace, TraceError, Writer};
use hinterland_testkit::Rng;

fn head() -> Head {
    Head {
        origin: "test".into(),
        program: "/bin/prögram".into(),
        arguments_digest: Head::digest([b"a".as_slice(), b"b"]),
        page_bytes: 4096,
        microset_pages: 7,
        has_cpu_times: true,
        machine: "x86_64".into(),
        begun_unix_s: 1_700_000_000,
        has_intervals: true,
        objects: vec!["/bin/prögram".into(), "/lib/libc.so.6".into()],
    }
}

/// A trace that uses everything, and its references.
fn make(seed: u64, references: u32, flush_every: u32) -> (Vec<u8>, Vec<Reference>) {
    let mut random = Rng(seed);
    let mut writer = Writer::new(Vec::new(), &head()).unwrap();
    let mut expected = Vec::new();
    let (mut regions, mut microset, mut open) = (0, 0, false);
    let (mut times, mut interval) = ([0u64; 5], 0);
    for sequence in 0..references {
        if regions == 0 || random.below_u32(references) < 3 {
            regions = writer.region(&Region { name: format!("region {regions}"), pages: 1 << 32 }).unwrap() + 1;
        }
        if random.below_u32(60) == 0 {
            interval += 1 + random.below_u32(3);
            writer.begin_interval(interval).unwrap();
            microset += u64::from(open);
        }
        let thread = if random.below_u32(4) == 0 { random.below_u32(5) } else { 0 };
        let page = match random.below_u32(4) {
            0 => random.below_u32(u32::MAX),
            1 => u32::MAX,
            _ => sequence,
        };
        let cpu_ns = &mut times[thread as usize];
        *cpu_ns += if random.below_u32(50) == 0 { 1 << 40 } else { random.below_u32(9000).into() };
        let region = random.below_u32(regions);
        writer.touch(thread, region, page, *cpu_ns).unwrap();
        let sequence = u64::from(sequence);
        expected.push(Reference { sequence, microset, interval, thread, region, page, cpu_ns: *cpu_ns });
        open = true;
        if random.below_u32(7) == 0 {
            writer.end_microset().unwrap();
            writer.end_microset().unwrap();
            (microset, open) = (microset + 1, false);
        }
        if random.below_u32(flush_every) == 0 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap();
    assert_eq!((writer.references(), writer.microsets()), (references.into(), microset + u64::from(open)));
    assert_eq!(writer.whole_bytes(), writer.sink().len() as u64);
    (std::mem::take(writer.sink()), expected)
}

/// What can be read up to the first error, the error, and whether the trace was whole.
fn read(bytes: &[u8]) -> (Vec<Reference>, Option<TraceError>, bool) {
    let trace = match Trace::open(bytes) {
        Ok(trace) => trace,
        Err(error) => return (Vec::new(), Some(error), false),
    };
    let mut references = trace.references();
    let mut seen = Vec::new();
    let error = loop {
        match references.next() {
            Some(Ok(reference)) => seen.push(reference),
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert!(references.next().is_none(), "nothing comes after an error or the end");
    (seen, error, references.is_whole())
}

/// As `read`, but goes on behind damage.
fn salvage(bytes: &[u8]) -> Vec<Reference> {
    let Ok(trace) = Trace::open(bytes) else { return Vec::new() };
    let mut references = trace.references();
    let mut seen = Vec::new();
    loop {
        seen.extend(references.by_ref().map_while(Result::ok));
        let Some(gap) = references.skip_damage() else { return seen };
        assert!(gap.from <= gap.to && gap.to < bytes.len() as u64);
    }
}

#[test]
fn everything_comes_back() {
    for seed in 0..200 {
        let (bytes, expected) = make(seed, 1 + u32::try_from(seed * 7).unwrap(), 40);
        let trace = Trace::open(&bytes).unwrap();
        assert_eq!(trace.head(), &head());
        assert_eq!(read(&bytes), (expected, None, true), "seed {seed}");
    }
    // Blocks that fill by themselves.
    let (bytes, expected) = make(1000, 100_000, u32::MAX);
    assert_eq!(read(&bytes), (expected, None, true));
}

#[test]
fn a_trace_cut_anywhere_gives_its_beginning_and_says_that_it_is_cut() {
    let (bytes, expected) = make(7, 300, 30);
    let mut longest = 0;
    for cut in 0..bytes.len() {
        let (seen, error, whole) = read(&bytes[..cut]);
        assert!(!whole, "cut at {cut}");
        assert!(expected.starts_with(&seen), "cut at {cut}");
        assert!(seen.len() >= longest, "cut at {cut}: a longer part gives less");
        longest = seen.len();
        match error {
            None => assert!(cut > 24, "only between blocks is a cut no error"),
            Some(TraceError::Truncated { offset, missing }) => {
                assert!(offset <= cut as u64 && missing > 0 && cut as u64 + missing <= bytes.len() as u64);
            }
            Some(other) => panic!("cut at {cut}: {other}"),
        }
    }
    assert_eq!(longest, expected.len(), "without its end, all references are there");
}

#[test]
fn no_damaged_byte_gives_a_wrong_reference() {
    let (bytes, expected) = make(8, 300, 30);
    for at in 0..bytes.len() {
        for flip in [1u8, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let (seen, error, whole) = read(&damaged);
            assert!(expected.starts_with(&seen), "byte {at} ^ {flip:#x}");
            assert!(error.is_some() && !whole, "byte {at} ^ {flip:#x} goes unnoticed");
            for reference in salvage(&damaged) {
                assert_eq!(expected.get(usize::try_from(reference.sequence).unwrap()), Some(&reference), "byte {at}");
            }
        }
    }
}

#[test]
fn what_lies_behind_damage_is_offered() {
    let (bytes, expected) = make(9, 3000, 100);
    let mut damaged = bytes.clone();
    let middle = bytes.len() / 2;
    damaged[middle..middle + 40].fill(0);
    let seen = salvage(&damaged);
    assert!(seen.len() > expected.len() * 3 / 4 && seen.len() < expected.len(), "{} references", seen.len());
    assert_eq!(seen.last(), expected.last());
}

#[test]
fn missing_repeated_and_foreign_blocks_are_seen() {
    let (bytes, expected) = make(10, 500, 50);
    let marker: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"HLT\xb1")).collect();
    let (third, fourth) = (marker[3], marker[4]);
    let without = [&bytes[..third], &bytes[fourth..]].concat();
    assert!(matches!(read(&without).1, Some(TraceError::Disordered { expected: 3, found: 4, .. })));
    let twice = [&bytes[..fourth], &bytes[third..]].concat();
    assert!(matches!(read(&twice).1, Some(TraceError::Disordered { expected: 4, found: 3, .. })));
    for broken in [&without, &twice] {
        for reference in salvage(broken) {
            assert_eq!(expected.get(usize::try_from(reference.sequence).unwrap()), Some(&reference));
        }
    }
    let mut other = Writer::new(Vec::new(), &Head { program: "another".into(), ..head() }).unwrap();
    other.finish().unwrap();
    let other = other.sink();
    let foreign = [&bytes[..marker[1]], &other[other.len() - 26..]].concat();
    assert!(matches!(read(&foreign).1, Some(TraceError::Damaged { .. })));
    let tail = [bytes.as_slice(), b"more"].concat();
    assert!(matches!(read(&tail).1, Some(TraceError::Malformed { .. })));
}

#[test]
fn what_is_no_trace_is_refused() {
    assert_eq!(Trace::open(b"\x7fELF and so on").unwrap_err(), TraceError::Foreign);
    assert_eq!(Trace::open(&[0; 4096]).unwrap_err(), TraceError::Foreign);
    assert!(matches!(Trace::open(b"").unwrap_err(), TraceError::Truncated { offset: 0, .. }));
    let mut later = make(1, 10, 10).0;
    later[4] = 3;
    assert_eq!(Trace::open(&later).unwrap_err(), TraceError::Version { found: 3 });
}

/// Made by the last program that wrote version 1, of the lines `0 5`, `0 6`, `0 70000`, `1 6`, `0 5`.
#[test]
fn version_1_is_read() {
    let bytes = include_bytes!("../version-1.trace");
    assert_eq!(bytes[4], 1);
    let trace = Trace::open(bytes).unwrap();
    assert!(trace.head().origin == "text" && !trace.head().has_intervals);
    let (seen, error, whole) = read(bytes);
    let seen: Vec<(u32, u32, u32)> = seen.iter().map(|seen| (seen.thread, seen.page, seen.interval)).collect();
    assert_eq!((seen, error, whole), (vec![(0, 5, 0), (0, 6, 0), (0, 70_000, 0), (1, 6, 0), (0, 5, 0)], None, true));
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Rng(77);
    for _ in 0..20_000 {
        let mut bytes = b"HLT\xb1\x01".to_vec();
        bytes.extend((0..random.below_u32(200)).map(|_| random.next_u64().to_le_bytes()[0]));
        assert!(read(&bytes).1.is_some());
    }
}

/// A sink that takes so many bytes.
struct Full(Vec<u8>, usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.1 - self.0.len());
        if taken == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_written_before_the_sink_was_full_is_readable() {
    let mut writer = Writer::new(Full(Vec::new(), 5000), &head()).unwrap();
    let region = writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    let mut page = 0u32;
    let error = loop {
        page += 1;
        let noted = writer
            .touch(0, region, page.wrapping_mul(2_654_435_761), 0)
            .and_then(|()| if page.is_multiple_of(50) { writer.flush() } else { Ok(()) })
            .and_then(|()| if page % 50 == 20 { writer.end_microset() } else { Ok(()) });
        if let Err(error) = noted {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    let whole = usize::try_from(writer.whole_bytes()).unwrap();
    let (seen, error, _) = read(&writer.sink().0[..whole]);
    assert_eq!((error, seen.len()), (None, page as usize - 50));
    assert_eq!(writer.references_written(), seen.len() as u64);
    assert_eq!(writer.microsets_written(), seen.len() as u64 / 50, "the one in the block that was lost does not count");
    assert_eq!(writer.microsets(), writer.microsets_written() + 1);
    assert!(matches!(read(&writer.sink().0).1, Some(TraceError::Truncated { .. })));
}
