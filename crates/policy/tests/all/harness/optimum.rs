//! The offline optimum: evict the page whose next touch is furthest away (Belady, "A study of replacement algorithms
//! for a virtual-storage computer", IBM Systems Journal 1966).

use super::Faults;
use std::collections::BinaryHeap;

/// The fewest faults with which `frames` frames can serve the trace, when every touched page must be brought in.
pub fn optimum(frames: usize, trace: &[u32]) -> Faults {
    let pages = trace.iter().max().map_or(0, |&page| page as usize + 1);
    let mut next_touch = vec![usize::MAX; trace.len()];
    let mut last = vec![usize::MAX; pages];
    for (at, &page) in trace.iter().enumerate().rev() {
        next_touch[at] = std::mem::replace(&mut last[page as usize], at);
    }
    // For each local page, when it is touched next; `None` when it isn't local. Heap entries that disagree are stale.
    let mut due: Vec<Option<usize>> = vec![None; pages];
    let mut touched = vec![false; pages];
    let mut furthest = BinaryHeap::new();
    let (mut local, mut faults) = (0, Faults::default());
    for (at, &page) in trace.iter().enumerate() {
        let page = page as usize;
        if due[page].is_none() {
            if local == frames {
                while let Some((when, victim)) = furthest.pop() {
                    if due[victim] == Some(when) {
                        due[victim] = None;
                        local -= 1;
                        break;
                    }
                }
            }
            local += 1;
            if std::mem::replace(&mut touched[page], true) { faults.major += 1 } else { faults.first += 1 }
        }
        due[page] = Some(next_touch[at]);
        furthest.push((next_touch[at], page));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_textbook() {
        let trace = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        let Faults { first, major, .. } = optimum(3, &trace);
        assert_eq!((first, first + major), (6, 9));
    }
}
