//! `hinterland_begin` and `hinterland_end` of `hinterland.h`: the program says which part of it is to be recorded, or to follow its tape.

use crate::errno;
use hinterland_pager::{InForce, IntervalMode};
use libc::c_int;

/// The values of `hinterland.h`; a program keeps them as numbers.
const RECORD: c_int = 1;
const PREFETCH: c_int = 2;
const AUTO: c_int = 3;

/// Begins an interval. What is done in it: 1: it is recorded, 2: its tape is followed, 0: neither; -1 and `EINVAL`: no such mode.
#[unsafe(no_mangle)]
pub extern "C" fn hinterland_begin(mode: c_int) -> c_int {
    let mode = match mode {
        RECORD => IntervalMode::Record,
        PREFETCH => IntervalMode::Prefetch,
        AUTO => IntervalMode::Auto,
        _ => return invalid(),
    };
    let in_force = crate::pager().map(|pager| crate::on_near_stack(|| pager.begin_interval(mode)));
    match in_force.unwrap_or_default() {
        InForce::Nothing => 0,
        InForce::Recording => RECORD,
        InForce::Prefetching => PREFETCH,
    }
}

/// Ends the interval that began last: 0, or -1 and `EINVAL` where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn hinterland_end() -> c_int {
    let ended = crate::pager().is_none_or(|pager| crate::on_near_stack(|| pager.end_interval()));
    if ended { 0 } else { invalid() }
}

fn invalid() -> c_int {
    errno::set(libc::EINVAL);
    -1
}
