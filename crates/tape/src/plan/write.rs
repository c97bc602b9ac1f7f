//! Plans, and writes the tape of the first size.

use super::{Case, Plan, PlanCosts, PlanError, Recording, plan};
use crate::Trace;
use crate::tape::{Order, TapeHead, TapeWriter, ThreadTotals};
use std::io;

/// Plans for each of `cases` and writes the tape of the first to `out`; returns the plans, and the tape's bytes. `origin`: the command that plans.
///
/// # Errors
/// As [`plan`]'s.
pub fn write_tape(
    trace: &Trace<'_>,
    recording: &Recording,
    cases: &[Case],
    costs: &PlanCosts,
    origin: &str,
    out: impl io::Write,
) -> Result<(Vec<Plan>, u64), PlanError> {
    let case = cases[0];
    let head = TapeHead {
        local_pages: case.local_pages,
        peak_pages: recording.pages(),
        eviction: case.eviction.name().into(),
        order: Order::Ordered,
        ..TapeHead::from_trace(trace, origin)
    };
    let mut tape = TapeWriter::new(out, &head, recording.regions()).map_err(PlanError::Sink)?;
    let mut sink = |thread, arrival, departure| tape.push(thread, arrival, departure);
    let plans = plan(trace, recording, cases, costs, Some(&mut sink))?;
    let totals: Vec<ThreadTotals> = plans[0].threads.iter().map(ThreadTotals::from).collect();
    let bytes = tape.finish(&totals).map_err(PlanError::Sink)?;
    Ok((plans, bytes))
}
