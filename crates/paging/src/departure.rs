//! How victims that were chosen together leave: those that are scattered over a block of memory by copy, the others by MOVE (decision
//! 0012).
//!
//! ```text
//!   victims, in order of address ──► blocks ──┬─ scattered ──► copied, into a chunk
//!                                             └─ in runs, or few ──► moved, into the next chunk, with those whose copy failed
//! ```

use crate::BLOCK_PAGES;
use hinterland_units::PageNo;

/// Victims of a block for which copies pay.
const VICTIMS_MIN: usize = 6;
/// Average length of runs from which on MOVE is as good.
const RUN_PAGES: usize = 8;

/// How a victim leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// With the other victims of its block: copied, then dropped.
    Copy,
    /// With its neighbours, in its own frame.
    Move,
}

/// The blocks of victims that are in order of address, and how those of each leave. `copies`: they may leave by copy.
pub fn ways(victims: &[PageNo], copies: bool) -> impl Iterator<Item = (&[PageNo], Way)> {
    let is_scattered =
        |block: &[PageNo]| block.len() >= VICTIMS_MIN && block.len() < RUN_PAGES * runs_of_victims(block).count();
    let blocks = victims.chunk_by(|a, b| a.0 / BLOCK_PAGES == b.0 / BLOCK_PAGES);
    blocks.map(move |block| (block, if copies && is_scattered(block) { Way::Copy } else { Way::Move }))
}

/// Those of the victims that are to leave by copy.
pub fn by_copy(victims: &[PageNo], copies: bool) -> impl Iterator<Item = PageNo> {
    let copied = ways(victims, copies).filter(|(_, way)| *way == Way::Copy);
    copied.flat_map(|(block, _)| block.iter().copied())
}

/// Runs of neighbours in victims that are in order of address.
pub fn runs_of_victims(victims: &[PageNo]) -> impl Iterator<Item = &[PageNo]> {
    victims.chunk_by(|a, b| a.0 + 1 == b.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(numbers: impl IntoIterator<Item = u32>) -> Vec<PageNo> {
        numbers.into_iter().map(PageNo).collect()
    }

    fn ways_of(victims: &[PageNo], copies: bool) -> Vec<(usize, Way)> {
        ways(victims, copies).map(|(block, way)| (block.len(), way)).collect()
    }

    #[test]
    fn victims_are_split_into_blocks_and_runs() {
        let victims = pages([1, 2, 9, 255, 256, 700]);
        assert_eq!(ways_of(&victims, true), [(4, Way::Move), (1, Way::Move), (1, Way::Move)], "too few of each");
        let runs: Vec<usize> = runs_of_victims(&victims).map(<[PageNo]>::len).collect();
        assert_eq!(runs, [2, 1, 2, 1]);
        assert_eq!(ways(&[], true).count(), 0);
    }

    #[test]
    fn what_is_scattered_leaves_by_copy_if_it_may() {
        // Six in a block, apart; seven of which are neighbours; eight that are one run; 16 in two runs of eight.
        let scattered = (0..6).map(|n| 3 * n);
        let nearly = (256..263).chain([300]);
        let run = 512..520;
        let runs = (768..776).chain(800..808);
        let victims = pages(scattered.chain(nearly).chain(run).chain(runs));
        let all = [(6, Way::Copy), (8, Way::Copy), (8, Way::Move), (16, Way::Move)];
        assert_eq!(ways_of(&victims, true), all);
        assert!(ways_of(&victims, false).iter().all(|(_, way)| *way == Way::Move));
        assert_eq!(ways_of(&victims[..5], true), [(5, Way::Move)], "five are too few");
    }
}
