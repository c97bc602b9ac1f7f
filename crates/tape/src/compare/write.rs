//! Writes the unordered tape of a comparison.

use super::Comparison;
use crate::Trace;
use crate::tape::{Order, TapeHead, TapeWriter};
use std::io;

/// Writes the sets of the phases that agree, for so much local memory, to `out`; returns the tape's bytes. `trace`: the first of those that
/// were compared. `origin`: the command that plans.
///
/// # Errors
/// The sink's.
pub fn write_sets(
    trace: &Trace<'_>,
    comparison: &Comparison,
    local_pages: u64,
    origin: &str,
    out: impl io::Write,
) -> io::Result<u64> {
    let head = TapeHead {
        local_pages,
        peak_pages: comparison.runs.first().map_or(0, |run| run.pages),
        order: Order::Sets,
        ..TapeHead::from_trace(trace, origin)
    };
    let mut tape = TapeWriter::new(out, &head, &comparison.regions)?;
    for phase in comparison.agreeing() {
        tape.phase(&phase.set)?;
    }
    tape.finish(&[])
}
