//! Reading and importing traces: whatever is in the file, nothing panics, no step takes for ever, and what is imported can be read.

use hinterland_tape::{Head, Trace, import};

/// One input.
pub fn run(bytes: &[u8]) {
    let (kind, bytes) = bytes.split_first().map_or((0, bytes), |(kind, rest)| (kind % 3, rest));
    match kind {
        0 => read(bytes),
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
