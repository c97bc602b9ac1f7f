//! A list of texts that one process writes and any number read, without a lock that a killed process could hold.

use crate::ledger::Text;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// How often a reader that meets the writer reads again, before it leaves it for the next time.
const READS_MAX: usize = 64;

/// At most `N` texts. One process writes it, any number reads it. All zero: it is empty.
#[derive(Debug)]
#[repr(C)]
pub struct TextList<const N: usize> {
    /// Rises by two with each change; odd while it is written; 0: it was never written.
    version: AtomicU64,
    count: AtomicU32,
    /// Keeps the words after it aligned.
    reserved: AtomicU32,
    texts: [Text; N],
}

impl<const N: usize> TextList<N> {
    /// Changes with every [`set`](TextList::set).
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Replaces the texts, of which the first `N` fit.
    pub fn set(&self, texts: &[String]) {
        let version = self.version.load(Relaxed);
        self.version.store(version | 1, Relaxed);
        // A reader that sees anything of what follows sees the odd version, too.
        fence(Release);
        for (cell, text) in self.texts.iter().zip(texts) {
            cell.set(text);
        }
        self.count.store(u32::try_from(texts.len().min(N)).unwrap_or(0), Relaxed);
        self.version.store((version | 1) + 1, Release);
    }

    /// The texts, and the version that they are of; `None` while they are being written, or when their writer ended in the middle of it.
    pub fn get(&self) -> Option<(u64, Vec<String>)> {
        (0..READS_MAX).find_map(|_| {
            let before = self.version.load(Acquire);
            let count = self.count.load(Relaxed) as usize;
            let texts: Vec<String> = self.texts.iter().take(count).map(Text::get).collect();
            // What was read above is not of a later version than what is read below.
            fence(Acquire);
            let same = before.is_multiple_of(2) && self.version.load(Relaxed) == before;
            if !same {
                std::thread::yield_now();
            }
            same.then_some((before, texts))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: usize = 8;

    fn list() -> Box<TextList<TEXTS>> {
        // SAFETY: a list consists of atomics, which are valid when zero.
        unsafe { Box::<TextList<TEXTS>>::new_zeroed().assume_init() }
    }

    #[test]
    fn has_what_was_written_last() {
        let list = list();
        assert_eq!(list.get(), Some((0, Vec::new())));
        let many: Vec<String> = (0..TEXTS + 2).map(|number| format!("tcp://127.0.0.1:{number}")).collect();
        list.set(&many);
        assert_eq!(list.get(), Some((2, many[..TEXTS].to_vec())));
        list.set(&many[..1]);
        assert_eq!(list.get(), Some((4, many[..1].to_vec())));
    }

    #[test]
    fn a_reader_never_sees_half_of_a_change() {
        let (list, rounds) = (list(), 20_000);
        let of = |round: usize| vec![format!("tcp://{round}:1"); 1 + round % TEXTS];
        list.set(&of(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=rounds).for_each(|round| list.set(&of(round))));
            let mut seen = 0;
            while seen < 2 + 2 * rounds as u64 {
                let Some((version, nodes)) = list.get() else { continue };
                assert!(version >= seen);
                assert_eq!(nodes, of(usize::try_from(version).unwrap() / 2 - 1));
                seen = version;
            }
        });
    }

    #[test]
    fn a_writer_that_ended_in_the_middle_blocks_no_reader() {
        let list = list();
        list.version.store(3, Relaxed);
        assert_eq!(list.get(), None);
        list.set(&[]);
        assert_eq!(list.get(), Some((4, Vec::new())));
    }
}
