//! Reading tapes: whatever is in the file, nothing panics, no step takes for ever, and a tape that opens is one that can be followed.
//! Planning: of whatever trace, the tape can be read, and has what the plan says. Comparing: of whatever runs, the unordered tape has the sets
//! of the phases that agree.

use hinterland_tape::compare::{Comparison, write_sets};
use hinterland_tape::plan::{Case, Eviction, PlanCosts, Recording, plan};
use hinterland_tape::tape::{PageRange, Tape, TapeHead, TapeWriter, ThreadTotals};
use hinterland_tape::{Head, Trace, import};

/// A line can begin a region with tables of 2 MiB.
const PLANNED_BYTES_MAX: usize = 512;

/// One input.
pub fn run(bytes: &[u8]) {
    let (kind, bytes) = bytes.split_first().map_or((0, bytes), |(kind, rest)| (*kind, rest));
    match kind % 4 {
        0 => read(bytes),
        1 => compared(&bytes[..bytes.len().min(PLANNED_BYTES_MAX)], kind),
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
    for ranges in tape.phases() {
        let is_ascending = |pair: &[PageRange]| {
            pair[0].region < pair[1].region
                || u64::from(pair[0].first_page) + u64::from(pair[0].pages) <= pair[1].first_page.into()
        };
        assert!(ranges.windows(2).all(is_ascending));
    }
}

/// Compares a trace of the lines in the first half of `bytes` with one of those in the second.
fn compared(bytes: &[u8], kind: u8) {
    let head = Head { origin: "fuzz".into(), page_bytes: 4096, microset_pages: 8, ..Head::default() };
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut traces = [Vec::new(), Vec::new()];
    for (half, trace) in [first, second].into_iter().zip(&mut traces) {
        if import::text(half, trace, &head).is_err() {
            return;
        }
    }
    let traces = traces.each_ref().map(|trace| Trace::open(trace).expect("an imported trace is whole"));
    let comparison = Comparison::of(&traces, u64::from(kind)).expect("an imported trace has references");
    for phase in &comparison.phases {
        assert!(phase.in_order <= phase.common && phase.common <= phase.pages, "{phase:?}");
        assert!(phase.agrees || phase.set.is_empty(), "{phase:?}");
    }
    let mut tape = Vec::new();
    write_sets(&traces[0], &comparison, 1, "fuzz", &mut tape).expect("memory is a good sink");
    read(&tape);
    let tape = Tape::open(&tape).expect("it was written whole");
    assert!(tape.phases().iter().eq(comparison.agreeing().map(|phase| &phase.set)));
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
    let plans = plan(&trace, &recording, &[case], &PlanCosts::default(), Some(&mut sink)).expect("it was read once");
    let totals: Vec<ThreadTotals> = plans[0].threads.iter().map(ThreadTotals::from).collect();
    writer.finish(&totals).expect("memory is a good sink");
    read(&tape);
    assert!(Tape::open(&tape).is_ok());
}
