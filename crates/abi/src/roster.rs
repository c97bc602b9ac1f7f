//! The nodes of a pool whose members are kept in a directory (etcd): the launcher reads them there, and writes them here for the
//! run's processes, which know no directory.

use crate::ledger::Text;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// Pools of a run that are kept in directories.
pub const ROSTERS_MAX: usize = 4;
/// Nodes of one.
pub const ROSTER_NODES_MAX: usize = 8;
/// How often a reader that meets the writer reads again, before it leaves it for the next time.
const READS_MAX: usize = 64;

/// The nodes of one pool. One process writes it, any number reads it.
#[derive(Debug)]
#[repr(C)]
pub struct Roster {
    /// The directory's URL, which is the pool's name; empty: the roster is free.
    pub directory: Text,
    /// Rises by two with each change; odd while it is written; 0: it was never written.
    version: AtomicU64,
    count: AtomicU32,
    /// Keeps the words after it aligned.
    reserved: AtomicU32,
    nodes: [Text; ROSTER_NODES_MAX],
}

impl Roster {
    /// Changes with every [`set`](Roster::set).
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Replaces the nodes by `nodes`: URLs with addresses, of which the first [`ROSTER_NODES_MAX`] fit.
    pub fn set(&self, nodes: &[String]) {
        let version = self.version.load(Relaxed);
        self.version.store(version | 1, Relaxed);
        // A reader that sees anything of what follows sees the odd version, too.
        fence(Release);
        for (cell, node) in self.nodes.iter().zip(nodes) {
            cell.set(node);
        }
        self.count.store(u32::try_from(nodes.len().min(ROSTER_NODES_MAX)).unwrap_or(0), Relaxed);
        self.version.store((version | 1) + 1, Release);
    }

    /// The nodes, and the version that they are of; `None` while it is being written, or when its writer ended in the middle of it.
    pub fn get(&self) -> Option<(u64, Vec<String>)> {
        (0..READS_MAX).find_map(|_| {
            let before = self.version.load(Acquire);
            let count = self.count.load(Relaxed) as usize;
            let nodes: Vec<String> = self.nodes.iter().take(count).map(Text::get).collect();
            // What was read above is not of a later version than what is read below.
            fence(Acquire);
            let same = before.is_multiple_of(2) && self.version.load(Relaxed) == before;
            if !same {
                std::thread::yield_now();
            }
            same.then_some((before, nodes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster() -> Box<Roster> {
        // SAFETY: a roster consists of atomics, which are valid when zero.
        unsafe { Box::<Roster>::new_zeroed().assume_init() }
    }

    #[test]
    fn has_what_was_written_last() {
        let roster = roster();
        assert_eq!(roster.get(), Some((0, Vec::new())));
        let many: Vec<String> = (0..ROSTER_NODES_MAX + 2).map(|number| format!("tcp://127.0.0.1:{number}")).collect();
        roster.set(&many);
        assert_eq!(roster.get(), Some((2, many[..ROSTER_NODES_MAX].to_vec())));
        roster.set(&many[..1]);
        assert_eq!(roster.get(), Some((4, many[..1].to_vec())));
    }

    #[test]
    fn a_reader_never_sees_half_of_a_change() {
        let (roster, rounds) = (roster(), 20_000);
        let of = |round: usize| vec![format!("tcp://{round}:1"); 1 + round % ROSTER_NODES_MAX];
        roster.set(&of(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=rounds).for_each(|round| roster.set(&of(round))));
            let mut seen = 0;
            while seen < 2 + 2 * rounds as u64 {
                let Some((version, nodes)) = roster.get() else { continue };
                assert!(version >= seen);
                assert_eq!(nodes, of(usize::try_from(version).unwrap() / 2 - 1));
                seen = version;
            }
        });
    }

    #[test]
    fn a_writer_that_ended_in_the_middle_blocks_no_reader() {
        let roster = roster();
        roster.version.store(3, Relaxed);
        assert_eq!(roster.get(), None);
        roster.set(&[]);
        assert_eq!(roster.get(), Some((4, Vec::new())));
    }
}
