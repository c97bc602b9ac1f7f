//! The offline optimum: MIN over the whole trace.

use super::Faults;
use hinterland_policy::{Ideal, Min, NextUses};

/// The fewest faults with which `frames` frames can serve the trace, when every touched page must be brought in.
pub fn optimum(frames: usize, trace: &[u32]) -> Faults {
    #[derive(Clone, Copy, PartialEq)]
    enum Place {
        Untouched,
        Local,
        Remote,
    }
    let pages = trace.iter().max().map_or(0, |&page| page as usize + 1);
    let next = NextUses::of(trace.iter().copied());
    let (mut places, mut min) = (vec![Place::Untouched; pages], Min::new());
    let (mut local, mut faults) = (0, Faults::default());
    for (at, &page) in trace.iter().enumerate() {
        let place = std::mem::replace(&mut places[page as usize], Place::Local);
        if place != Place::Local {
            if local < frames {
                local += 1;
            } else if let Some(victim) = min.leave() {
                places[victim as usize] = Place::Remote;
            }
            if place == Place::Untouched { faults.first += 1 } else { faults.major += 1 }
        }
        min.touched(page, next.after(at));
    }
    faults
}
