//! Reading and importing traces: whatever is in the file, nothing panics, no step takes for ever, and what is imported can be read.

use hinterland_tape::study::Study;
use hinterland_tape::{Head, Region, Trace, VERSION, Writer, import};
use hinterland_testkit::append_block;

/// One input.
pub fn run(bytes: &[u8]) {
    let (kind, bytes) = bytes.split_first().map_or((0, bytes), |(kind, rest)| (kind % 6, rest));
    match kind {
        0 => read(bytes),
        3 => forged(bytes, VERSION),
        4 => forged(bytes, 3),
        5 => forged(bytes, 2),
        1 => imported(|sink, head| import::text(bytes, sink, head).is_ok()),
        _ => imported(|sink, head| import::lackey(bytes, sink, head).is_ok()),
    }
}

/// Reads all that can be read, damage and what follows it included.
fn read(bytes: &[u8]) {
    let Ok(trace) = Trace::open(bytes) else { return };
    let mut references = trace.references();
    loop {
        match references.next() {
            Some(Ok(_)) => {}
            Some(Err(_)) if references.skip_damage().is_some() => {}
            Some(Err(_)) | None => return,
        }
    }
}

/// Records as no writer of ours writes them, in blocks with the right checksums: `bytes` are one, and two of them.
fn forged(bytes: &[u8], version: u8) {
    let head = Head { origin: "fuzz".into(), page_bytes: 4096, microset_pages: 8, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).expect("memory is a good sink");
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).expect("as above");
    let mut trace = std::mem::take(writer.sink());
    // Numbers of reference, microset and interval, and from version 3 on of the microset's references.
    let header: &[u8] = if version > 2 { &[0; 4] } else { &[0; 3] };
    for payload in [bytes, &bytes[..bytes.len() / 2]] {
        append_block(&mut trace, version, 3, &[header, payload].concat());
    }
    let trace = Trace::open(&trace).expect("the head is ours");
    let (mut references, mut study) = (trace.references(), Study::new());
    let mut touches = 0;
    while let Some(entry) = references.next_entry() {
        match entry {
            Ok(entry) => study.entry(&entry),
            Err(_) if references.skip_damage().is_some() => {}
            Err(_) => break,
        }
        touches += 1;
        assert!(touches <= 1024 * (bytes.len() + 1), "a few bytes go on for ever");
    }
}

/// What was imported is a whole trace.
fn imported(import: impl FnOnce(&mut Vec<u8>, &Head) -> bool) {
    let head = Head { origin: "fuzz".into(), page_bytes: 4096, microset_pages: 8, ..Head::default() };
    let mut trace = Vec::new();
    if !import(&mut trace, &head) {
        return;
    }
    let trace = Trace::open(&trace).expect("a trace");
    let mut references = trace.references();
    for reference in references.by_ref() {
        reference.expect("a reference");
    }
    assert!(references.is_whole());
}
