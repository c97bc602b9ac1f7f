//! Reading tapes: whatever is in the file, nothing panics, no step takes for ever, and a tape that opens is one that can be followed.
//! Planning: of whatever trace, the tape can be read, and has what the plan says.

use hinterland_tape::plan::{Case, Eviction, Pace, Recording, plan};
use hinterland_tape::tape::{Tape, TapeHead, TapeWriter, ThreadTotals};
use hinterland_tape::{Head, Trace, import};

/// A line can begin a region with tables of 2 MiB.
const PLANNED_BYTES_MAX: usize = 512;

/// One input.
pub fn run(bytes: &[u8]) {
    let (kind, bytes) = bytes.split_first().map_or((0, bytes), |(kind, rest)| (*kind, rest));
    match kind % 4 {
        0 => read(bytes),
        _ => planned(&bytes[..bytes.len().min(PLANNED_BYTES_MAX)], kind),
    }
}

/// Reads all of a tape.
fn read(bytes: &[u8]) {
    let Ok(tape) = Tape::open(bytes) else { return };
    for (thread, totals) in (0..).zip(tape.threads()) {
        let arrivals =
            tape.arrivals(thread).inspect(|arrival| assert!(u64::from(arrival.position) < totals.references));
        assert_eq!(arrivals.count() as u64, totals.fetched + totals.first_touches);
        assert_eq!(tape.departures(thread).count() as u64, totals.left);
    }
}

/// Plans from a trace of the lines in `bytes`.
fn planned(bytes: &[u8], kind: u8) {
    let head = Head { origin: "fuzz".into(), page_bytes: 4096, microset_pages: 8, ..Head::default() };
    let mut trace = Vec::new();
    if import::text(bytes, &mut trace, &head).is_err() {
        return;
    }
    let trace = Trace::open(&trace).expect("an imported trace is whole");
    let recording = Recording::read(&trace, Some(1_000)).expect("an imported trace has references");
    let eviction = if kind & 4 == 0 { Eviction::Lru } else { Eviction::Min };
    let case = Case { local_pages: u64::from(kind >> 3) * 2, reserve_pages: 0, eviction };
    let mut tape = Vec::new();
    let mut writer =
        TapeWriter::new(&mut tape, &TapeHead::default(), recording.regions()).expect("memory is a good sink");
    let mut sink = |thread, arrival, departure| writer.push(thread, arrival, departure);
    let plans = plan(&trace, &recording, &[case], &Pace::default(), Some(&mut sink)).expect("it was read once");
    let totals: Vec<ThreadTotals> = plans[0].threads.iter().map(ThreadTotals::from).collect();
    writer.finish(&totals).expect("memory is a good sink");
    read(&tape);
    assert!(Tape::open(&tape).is_ok());
}
