//! How local memory is divided among the threads of a program.

use super::Case;
use super::recording::Recording;
use hinterland_policy::fair_level;

/// See the module. No thread gets more than what it touches; what it leaves goes to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Division {
    /// Max-min fair: as much for each.
    Even,
    /// As much for each reference: a thread that is idle for most of the run has little.
    ByUse,
}

/// A thread counts as if it had this part of the references of the busiest at least: what it touches must be local meanwhile.
const LIGHT_PART: u64 = 16;

impl Division {
    /// Each thread's share, in pages.
    pub fn shares(self, recording: &Recording, case: &Case) -> Vec<u64> {
        let pages: Vec<u64> = recording.threads.iter().map(|thread| thread.pages).collect();
        // Pages that several threads touch are local once: where all fit, no thread lacks any.
        if case.local_pages >= recording.pages() {
            return pages;
        }
        let local_pages = case.local_pages.saturating_sub(case.reserve_pages);
        let shares = match self {
            Division::Even => {
                let level = fair_level(local_pages, || pages.iter().copied());
                pages.iter().map(|pages| (*pages).min(level)).collect()
            }
            Division::ByUse => {
                let uses: Vec<u64> = recording.threads.iter().map(|thread| thread.uses.touches() as u64).collect();
                by_weight(local_pages, &pages, &uses)
            }
        };
        shares.into_iter().map(|share| share.max(1)).collect()
    }
}

/// Max-min fair by weight: of what is left by those that get all that they want, each of the others gets as much for its weight.
fn by_weight(local_pages: u64, wanted: &[u64], uses: &[u64]) -> Vec<u64> {
    let least = uses.iter().max().map_or(1, |most| most / LIGHT_PART).max(1);
    let weight = |thread: &usize| u128::from(uses[*thread].max(least));
    let mut shares = vec![0; wanted.len()];
    let (mut left, mut open): (u64, Vec<usize>) = (local_pages, (0..wanted.len()).collect());
    while !open.is_empty() {
        let all: u128 = open.iter().map(weight).sum();
        let part = |thread: &usize| u64::try_from(u128::from(left) * weight(thread) / all).unwrap_or(left);
        let (content, others): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|thread| wanted[**thread] <= part(thread));
        if content.is_empty() {
            others.iter().for_each(|thread| shares[*thread] = part(thread));
            break;
        }
        content.iter().for_each(|thread| shares[*thread] = wanted[*thread]);
        left -= content.iter().map(|thread| wanted[*thread]).sum::<u64>();
        open = others;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_divided_by_weight_is_all_there_is_and_no_thread_gets_more_than_it_wants() {
        assert_eq!(
            by_weight(1_000, &[900, 900], &[9_000, 900]),
            [900, 100],
            "what the one does not want is the other's"
        );
        assert_eq!(by_weight(1_000, &[5_000, 5_000], &[3_000, 1_000]), [750, 250]);
        assert_eq!(
            by_weight(1_700, &[5_000, 5_000], &[16_000, 10]),
            [1_600, 100],
            "a sixteenth of the busiest's weight"
        );
        assert_eq!(by_weight(1_000, &[300, 200, 100], &[1, 1_000, 0]), [300, 200, 100], "all fit");
        assert_eq!(by_weight(0, &[300, 200], &[5, 5]), [0, 0]);
        assert_eq!(by_weight(10, &[], &[]), [0; 0]);
    }
}
