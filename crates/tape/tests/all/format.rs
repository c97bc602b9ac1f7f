//! The format: everything comes back as it went in, and nothing that was damaged comes back at all.

use hinterland_tape::{
    Cause, Discard, Entry, ForkPath, Head, RUN_TOLERANCE_NS, Reference, Region, Trace, TraceError, Writer, Written,
};
use hinterland_testkit::{Rng, append_block};
use std::time::Duration;

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
        process: 4_194_303,
        parent: 77,
        is_forked: true,
        command: "prögram a b".into(),
        build_id: "0a1b2c".into(),
        begun_ns: 999_999_999,
        forks: ForkPath::default().child(Some(2)).child(Some(70_000)),
    }
}

/// An entry of a trace, with the bits of a microset spelled out.
#[derive(Clone, PartialEq, Debug)]
enum Seen {
    Touch(Reference),
    Discard(Discard),
    End(Vec<Option<bool>>),
}

impl Seen {
    fn of(entry: &Entry<'_>) -> Seen {
        match entry {
            Entry::Touch(reference) => Seen::Touch(*reference),
            Entry::Discard(discard) => Seen::Discard(*discard),
            Entry::MicrosetEnd { references, written } => {
                Seen::End((0..*references).map(|index| written.get(index)).collect())
            }
        }
    }

    /// What was written is what comes back, but for times, which are nearly so.
    fn comes_back_as(&self, other: &Seen) -> bool {
        match (self, other) {
            (Seen::Touch(one), Seen::Touch(other)) => {
                one.cpu_ns.abs_diff(other.cpu_ns) <= RUN_TOLERANCE_NS
                    && Reference { cpu_ns: 0, ..*one } == Reference { cpu_ns: 0, ..*other }
            }
            _ => self == other,
        }
    }
}

fn come_back(expected: &[Seen], seen: &[Seen]) -> bool {
    expected.len() >= seen.len() && expected.iter().zip(seen).all(|(one, other)| one.comes_back_as(other))
}

fn touches(seen: &[Seen]) -> Vec<Reference> {
    seen.iter().filter_map(|seen| if let Seen::Touch(reference) = seen { Some(*reference) } else { None }).collect()
}

/// Makes traces, and what they say.
struct Maker {
    random: Rng,
    writer: Writer<Vec<u8>>,
    expected: Vec<Seen>,
    regions: u32,
    microset: u64,
    open: u64,
    interval: u32,
    sequence: u64,
    times: [u64; 5],
}

impl Maker {
    fn touch(&mut self, thread: u32, region: u32, page: u32, is_first: bool, more_ns: u64) {
        let cpu_ns = &mut self.times[thread as usize];
        *cpu_ns += more_ns;
        let (sequence, microset, interval) = (self.sequence, self.microset, self.interval);
        let touch = Reference { sequence, microset, interval, thread, region, page, is_first, cpu_ns: *cpu_ns };
        self.writer.touch(&touch).unwrap();
        self.expected.push(Seen::Touch(touch));
        (self.sequence, self.open) = (sequence + 1, self.open + 1);
    }

    fn end_microset(&mut self, is_told: bool) {
        let count = usize::try_from(std::mem::take(&mut self.open)).unwrap();
        let kind = if is_told { self.random.below_u32(4) } else { 0 };
        let one = |random: &mut Rng| match kind {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => Some(random.below_u32(2) == 0),
        };
        let told: Vec<Option<bool>> = (0..count).map(|_| one(&mut self.random)).collect();
        let mut bits = vec![0; count.div_ceil(8)];
        for (index, _) in told.iter().enumerate().filter(|(_, told)| **told == Some(true)) {
            bits[index / 8] |= 1 << (index % 8);
        }
        self.writer.end_microset(if kind == 0 { Written::Unknown } else { Written::Bits(&bits) }).unwrap();
        if count > 0 {
            self.microset += 1;
            self.expected.push(Seen::End(told));
        }
    }

    fn discard(&mut self) {
        let causes = [Cause::Freed, Cause::Discarded, Cause::Unmapped, Cause::Moved];
        let cause = causes[self.random.below_u32(4) as usize];
        let pages = [1, 2, 4_096, 4_097, 10_000, u32::MAX][self.random.below_u32(6) as usize].min(40_000);
        let page = self.random.below_u32(u32::MAX - pages) + self.random.below_u32(2);
        let region = self.random.below_u32(self.regions);
        self.writer.discard(&Discard { region, page, pages, cause }).unwrap();
        for first in (0..pages).step_by(4_096) {
            let discard = Discard { region, page: page + first, pages: (pages - first).min(4_096), cause };
            self.expected.push(Seen::Discard(discard));
        }
    }
}

/// A trace that uses everything, and what it says.
fn make_all(seed: u64, references: u32, flush_every: u32) -> (Vec<u8>, Vec<Seen>) {
    let writer = Writer::new(Vec::new(), &head()).unwrap();
    let mut maker = Maker {
        random: Rng(seed),
        writer,
        expected: Vec::new(),
        regions: 0,
        microset: 0,
        open: 0,
        interval: 0,
        sequence: 0,
        times: [0; 5],
    };
    while maker.sequence < references.into() {
        if maker.regions == 0 || maker.random.below_u32(references) < 3 {
            let region = Region { name: format!("region {}", maker.regions), pages: 1 << 32 };
            maker.regions = maker.writer.region(&region).unwrap() + 1;
        }
        if maker.random.below_u32(60) == 0 {
            maker.end_microset(false);
            maker.interval += 1 + maker.random.below_u32(3);
            maker.writer.begin_interval(maker.interval).unwrap();
        }
        let thread = if maker.random.below_u32(4) == 0 { maker.random.below_u32(5) } else { 0 };
        let page = match maker.random.below_u32(4) {
            0 => maker.random.below_u32(u32::MAX),
            1 => u32::MAX,
            _ => u32::try_from(maker.sequence).unwrap(),
        };
        let more_ns = if maker.random.below_u32(50) == 0 { 1 << 40 } else { maker.random.below_u32(9000).into() };
        let (region, is_first) = (maker.random.below_u32(maker.regions), maker.random.below_u32(3) == 0);
        maker.touch(thread, region, page, is_first, more_ns);
        // A walk, at a pace that is now and then another one.
        let left = u64::from(references).saturating_sub(maker.sequence);
        let steps = u64::from(maker.random.below_u32(3) * maker.random.below_u32(200)).min(left);
        let (step, pace) = (maker.random.below_u32(4), u64::from(maker.random.below_u32(5_000)));
        for at in 0..u32::try_from(steps).unwrap() {
            let more_ns = if at % 100 == 99 { 50_000 } else { pace + u64::from(maker.random.below_u32(300)) };
            maker.touch(thread, region, page.wrapping_add((at + 1) * step), is_first, more_ns);
        }
        if maker.random.below_u32(7) == 0 {
            maker.end_microset(true);
            maker.end_microset(true);
        }
        if maker.random.below_u32(20) == 0 {
            maker.discard();
        }
        if maker.random.below_u32(flush_every) == 0 {
            maker.writer.flush().unwrap();
        }
    }
    maker.end_microset(false);
    let Maker { mut writer, expected, microset, sequence, .. } = maker;
    writer.finish().unwrap();
    assert_eq!((writer.references(), writer.microsets()), (sequence, microset));
    assert_eq!(writer.whole_bytes(), writer.sink().len() as u64);
    (std::mem::take(writer.sink()), expected)
}

/// A trace, and its references.
fn make(seed: u64, references: u32, flush_every: u32) -> (Vec<u8>, Vec<Reference>) {
    let (bytes, expected) = make_all(seed, references, flush_every);
    assert!(come_back(&expected, &read_all(&bytes).0), "seed {seed}");
    let exact = touches(&read_all(&bytes).0);
    assert_eq!(exact.len(), touches(&expected).len());
    (bytes, exact)
}

/// What can be read up to the first error, the error, and whether the trace was whole.
fn read_all(bytes: &[u8]) -> (Vec<Seen>, Option<TraceError>, bool) {
    let trace = match Trace::open(bytes) {
        Ok(trace) => trace,
        Err(error) => return (Vec::new(), Some(error), false),
    };
    let mut references = trace.references();
    let mut seen = Vec::new();
    let error = loop {
        match references.next_entry() {
            Some(Ok(entry)) => seen.push(Seen::of(&entry)),
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert!(references.next_entry().is_none(), "nothing comes after an error or the end");
    (seen, error, references.is_whole())
}

/// The references among them.
fn read(bytes: &[u8]) -> (Vec<Reference>, Option<TraceError>, bool) {
    let (seen, error, whole) = read_all(bytes);
    (touches(&seen), error, whole)
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
        let (bytes, expected) = make_all(seed, 1 + u32::try_from(seed * 7).unwrap(), 40);
        assert_eq!(Trace::open(&bytes).unwrap().head(), &head());
        let (seen, error, whole) = read_all(&bytes);
        let different = expected.iter().zip(&seen).find(|(one, other)| !one.comes_back_as(other));
        assert_eq!((different, seen.len(), error, whole), (None, expected.len(), None, true), "seed {seed}");
    }
    // Blocks that fill by themselves.
    let (bytes, expected) = make_all(1000, 100_000, u32::MAX);
    let (seen, error, whole) = read_all(&bytes);
    assert!(come_back(&expected, &seen) && seen.len() == expected.len());
    assert_eq!((error, whole), (None, true));
}

/// Walks take less than a byte a reference, whatever their clock does.
#[test]
fn walks_are_short() {
    let mut random = Rng(3);
    for (noise_ns, bytes_max) in [(0, 0.1), (400, 0.7)] {
        let mut writer = Writer::new(Vec::new(), &head()).unwrap();
        writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
        let (references, mut cpu_ns) = (100_000_u32, 0);
        for page in 0..references {
            cpu_ns += 4_000 + u64::from(random.below_u32(noise_ns + 1));
            writer.touch(&Reference { page, cpu_ns, ..Reference::default() }).unwrap();
            if page % 1024 == 1023 {
                writer.end_microset(Written::All).unwrap();
            }
        }
        writer.finish().unwrap();
        let each = f64::from(u32::try_from(writer.whole_bytes()).unwrap()) / f64::from(references);
        assert!(each <= bytes_max, "{each} bytes a reference with {noise_ns} ns of noise");
        let seen = read(writer.sink()).0;
        assert!(cpu_ns.abs_diff(seen[seen.len() - 1].cpu_ns) <= RUN_TOLERANCE_NS, "times do not drift");
    }
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
    let (bytes, expected) = make(9, 20_000, 10);
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
    later[4] = 8;
    assert_eq!(Trace::open(&later).unwrap_err(), TraceError::Version { found: 8 });
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

/// The lines of the committed traces, in microsets of two pages.
fn five_lines_in_microsets_of_two() -> Vec<Seen> {
    let touch = |sequence, microset, thread, page| {
        Seen::Touch(Reference { sequence, microset, thread, page, ..Reference::default() })
    };
    let end = |references| Seen::End(vec![None; references]);
    vec![
        touch(0, 0, 0, 5),
        touch(1, 0, 0, 6),
        end(2),
        touch(2, 1, 0, 70_000),
        touch(3, 1, 1, 6),
        end(2),
        touch(4, 2, 0, 5),
        end(1),
    ]
}

/// Made by the last program that wrote version 2, of the same lines in microsets of two pages.
#[test]
fn version_2_is_read() {
    let bytes = include_bytes!("../version-2.trace");
    assert_eq!(bytes[4], 2);
    assert!(Trace::open(bytes).unwrap().head().objects.is_empty());
    let (seen, error, whole) = read_all(bytes);
    assert_eq!((seen, error, whole), (five_lines_in_microsets_of_two(), None, true));
}

/// Made by the last program that wrote version 3, of the same lines in microsets of two pages.
#[test]
fn version_3_is_read() {
    let bytes = include_bytes!("../version-3.trace");
    assert_eq!(bytes[4], 3);
    let trace = Trace::open(bytes).unwrap();
    assert!(trace.head().origin == "text" && trace.head().process == 0 && trace.head().command.is_empty());
    let (seen, error, whole) = read_all(bytes);
    assert_eq!((seen, error, whole), (five_lines_in_microsets_of_two(), None, true));
}

/// Made by the last program that wrote version 4, of the same lines in microsets of two pages.
#[test]
fn version_4_is_read() {
    let bytes = include_bytes!("../version-4.trace");
    assert_eq!(bytes[4], 4);
    assert!(Trace::open(bytes).unwrap().head().build_id.is_empty());
    let (seen, error, whole) = read_all(bytes);
    assert_eq!((seen, error, whole), (five_lines_in_microsets_of_two(), None, true));
}

/// Made by the last program that wrote version 5, of the same lines in microsets of two pages.
#[test]
fn version_5_is_read() {
    let bytes = include_bytes!("../version-5.trace");
    assert_eq!(bytes[4], 5);
    let trace = Trace::open(bytes).unwrap();
    assert_eq!((trace.head().begun_ns, &trace.head().forks), (0, &ForkPath::default()));
    let mut references = trace.references();
    assert_eq!((references.by_ref().count(), references.took_ns(), references.is_whole()), (5, 0, true));
    let (seen, error, whole) = read_all(bytes);
    assert_eq!((seen, error, whole), (five_lines_in_microsets_of_two(), None, true));
}

/// Made by the last program that wrote version 6, of the same lines in microsets of two pages.
#[test]
fn version_6_is_read() {
    let bytes = include_bytes!("../version-6.trace");
    assert_eq!(bytes[4], 6);
    let mut references = Trace::open(bytes).unwrap().references();
    assert_eq!((references.by_ref().count(), references.opened().is_empty(), references.is_whole()), (5, true, true));
    let (seen, error, whole) = read_all(bytes);
    assert_eq!((seen, error, whole), (five_lines_in_microsets_of_two(), None, true));
}

#[test]
fn a_trace_says_how_long_it_took_and_what_its_program_has_opened() {
    let mut writer = Writer::new(Vec::new(), &head()).unwrap();
    writer.took(Duration::from_secs(7));
    let opened = ["/lib/lïbz.so", "/usr/lib/libopenblas.so.0"].map(str::to_owned);
    writer.opened([&opened[..], &["x".repeat(1 << 20)]].concat());
    writer.finish().unwrap();
    let bytes = std::mem::take(writer.sink());
    let mut references = Trace::open(&bytes).unwrap().references();
    assert_eq!((references.took_ns(), references.next()), (0, None), "its end was not read");
    assert_eq!(references.took_ns(), 7_000_000_000);
    assert_eq!(references.opened(), opened, "and what there is no room for is left out");
}

#[test]
fn a_second_has_no_more_nanoseconds_than_that() {
    let made = |begun_ns| Writer::new(Vec::new(), &Head { begun_ns, ..head() }).unwrap().sink().clone();
    assert!(Trace::open(&made(999_999_999)).is_ok());
    assert!(Trace::open(&made(1_000_000_000)).is_err());
}

#[test]
fn a_process_is_known_by_the_forks_of_first_threads() {
    let program = ForkPath::default();
    let second = program.child(Some(2));
    assert_eq!((program.key(), program.to_string(), second.to_string()), (Some(0), String::new(), "2".into()));
    assert_eq!(second.child(Some(1)).to_string(), "2.1");
    let keys = [&program, &second, &program.child(Some(1)), &second.child(Some(1)), &program.child(Some(21))];
    let keys = keys.map(ForkPath::key);
    assert!((0..keys.len()).all(|at| keys[at].is_some() && !keys[at + 1..].contains(&keys[at])), "{keys:?}");
    // What another thread has forked is not known, nor what comes of it.
    let unknown = second.child(None);
    assert!(!unknown.is_known() && unknown == ForkPath::UNKNOWN && unknown.child(Some(1)).key().is_none());
    let deep = (0..40).fold(program, |path, _| path.child(Some(1)));
    assert_eq!(deep, ForkPath::UNKNOWN, "there is an end");
}

#[test]
fn a_program_is_known_by_its_build_id_or_else_by_the_name_of_its_file() {
    let key = hinterland_tape::program_key;
    assert_eq!(key("0a1b", "/usr/bin/sort"), key("0a1b", "/tmp/sort-copy"));
    assert_ne!(key("0a1b", "/usr/bin/sort"), key("0a1c", "/usr/bin/sort"), "built anew");
    assert_eq!(key("", "/usr/bin/sort"), key("", "/tmp/sort"));
    let others = [key("", "/usr/bin/sort"), key("", "/usr/bin/sort-1"), key("sort", ""), key("", "")];
    assert!((0..others.len()).all(|at| !others[at + 1..].contains(&others[at])), "{others:x?}");
    assert_eq!(key("", ""), 0, "not known");
}

/// Blocks that are whole, of a writer that is not ours: whatever they say is refused, or bounded.
#[test]
fn records_that_make_no_sense_are_refused() {
    let number = |mut value: u64| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        bytes.push(u8::try_from(value).unwrap());
        bytes
    };
    // Records of docs/tape.md: kinds 2 and 3 are runs, 6 is a discard, 7 the end of a microset.
    let cases: [(&[u64], &str); 14] = [
        (&[0], "cut off"),
        (&[1 << 3, 0], "outside its region"),
        (&[2 << 3 | 2, 2, u64::MAX], "a time is too large"),
        (&[2 << 3 | 2, 1, 5], "too few touches or too many"),
        (&[2 << 3 | 2, 257, 5], "too few touches or too many"),
        (&[1 << 3 | 3, 3, 5], "outside its region"),
        (&[2 << 3, u64::MAX], "a time is too large"),
        (&[1 << 20 | 4], "a thread's number is too large"),
        (&[5 << 3 | 5, 2 << 3, 0], "a region was never declared"),
        (&[6, 1, 0, 1], "a region never declared"),
        (&[9 << 3 | 6, 0, 0, 1], "unknown reason"),
        (&[6, 0, 0, 0], "a discard of no pages or too many"),
        (&[6, 0, 0, 4_097], "a discard of no pages or too many"),
        (&[6, 0, 2 * (1 << 32) - 2, 2], "lies outside its region"),
    ];
    let of = |numbers: &[u64]| {
        let mut writer = Writer::new(Vec::new(), &head()).unwrap();
        writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
        let mut bytes = std::mem::take(writer.sink());
        let records: Vec<u8> = numbers.iter().flat_map(|value| number(*value)).collect();
        append_block(&mut bytes, 3, 3, &[&[0; 4], records.as_slice()].concat());
        read_all(&bytes)
    };
    for (numbers, why) in cases {
        match of(numbers).1 {
            Some(TraceError::Malformed { what, .. }) => assert!(what.contains(why), "{numbers:?}: {what}"),
            other => panic!("{numbers:?}: {other:?}"),
        }
    }
    // The end of a microset of two references, of which the first was written to; and one whose bits are missing.
    let (seen, error, _) = of(&[2 << 3 | 2, 2, 9, 3 << 3 | 7, 1]);
    assert_eq!((seen.last(), error), (Some(&Seen::End(vec![Some(true), Some(false)])), None));
    assert!(of(&[2 << 3 | 2, 2, 9, 3 << 3 | 7]).1.is_some() && of(&[4 << 3 | 7]).1.is_some());
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
            .touch(&Reference { region, page: page.wrapping_mul(2_654_435_761), ..Reference::default() })
            .and_then(|()| if page.is_multiple_of(50) { writer.flush() } else { Ok(()) })
            .and_then(|()| if page % 50 == 20 { writer.end_microset(Written::Unknown) } else { Ok(()) });
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
