//! Forward progress: whether the threads of a traced program get past their faults.
//!
//! An instruction may need several pages at once: both ends of a copy, a word that straddles two pages, and all that the kernel
//! touches for it. In a microset smaller than that, its pages push each other out, and it faults on the same ones for ever. The
//! same happens to a thread whose page is taken by the faults of others before it runs. So each thread's last faults are
//! recorded: when a thread faults on the same pages, round after round, at the same instruction and with the same stack, those
//! pages are retained: they stay mapped through the ends of microsets, until it faults on another page (3PO §3.1.2 does so for
//! two pages).
//!
//! A loop of one instruction over few pages looks the same. Its pages stay mapped then, too; they count as touched in each
//! microset, so what is lost is their order.

use crate::watch::CodePosition;
use hinterland_units::PageNo;
use std::collections::HashMap;

/// Last pages of a thread that are known: more than any instruction needs. (The most is a gather of 16 words that all straddle
/// two pages: 32, and the code and stack around it.)
const RECENT_MAX: usize = 256;
/// Rounds over the same pages before the thread's position is looked at, and at the same position before they are retained.
const ROUNDS: usize = 2;
/// Microsets after which retained pages are released that their thread has not faulted on again: it made progress, or has ended.
const RETAINED_MICROSETS_MAX: u32 = 1024;

/// What is known of one thread.
#[derive(Default)]
struct Attempt {
    recent: Vec<PageNo>,
    /// Pages that were faulted on again, since the last one that was not.
    cycle: Vec<PageNo>,
    /// Faults on pages of a cycle that was complete.
    repeated: usize,
    position: Option<CodePosition>,
    /// Faults in a row at that position.
    stood_still: usize,
    retained: bool,
    /// Microsets since the last fault.
    microsets: u32,
}

/// See the module. Threads by kernel id.
#[derive(Default)]
pub(crate) struct ForwardProgress {
    threads: HashMap<u32, Attempt>,
}

impl ForwardProgress {
    /// `thread` faults on `page`; `position` tells where the thread is, at some cost.
    pub(crate) fn fault(&mut self, thread: u32, page: PageNo, position: impl FnOnce() -> Option<CodePosition>) {
        let attempt = self.threads.entry(thread).or_default();
        attempt.microsets = 0;
        if !attempt.recent.contains(&page) {
            attempt.cycle.clear();
            (attempt.repeated, attempt.stood_still, attempt.retained) = (0, 0, false);
            if attempt.recent.len() == RECENT_MAX {
                attempt.recent.remove(0);
            }
            attempt.recent.push(page);
        } else if !attempt.cycle.contains(&page) {
            attempt.cycle.push(page);
            attempt.retained = false;
        } else {
            attempt.repeated += 1;
            if attempt.repeated >= ROUNDS * attempt.cycle.len() {
                attempt.look(position());
            }
        }
    }

    /// A microset has ended: releases pages that were retained for too long.
    pub(crate) fn microset_ended(&mut self) {
        for attempt in self.threads.values_mut().filter(|attempt| attempt.retained) {
            attempt.microsets += 1;
            attempt.retained = attempt.microsets < RETAINED_MICROSETS_MAX;
        }
    }

    /// The pages that must stay mapped, each with the thread that needs it.
    pub(crate) fn retained(&self) -> impl Iterator<Item = (u32, PageNo)> {
        let retained = self.threads.iter().filter(|(_, attempt)| attempt.retained);
        retained.flat_map(|(thread, attempt)| attempt.cycle.iter().map(|page| (*thread, *page)))
    }
}

impl Attempt {
    fn look(&mut self, position: Option<CodePosition>) {
        // A position that cannot be seen counts as the same one: to retain pages does no harm.
        if position == self.position {
            self.stood_still += 1;
        } else {
            (self.position, self.stood_still, self.retained) = (position, 0, false);
        }
        self.retained |= self.stood_still >= ROUNDS * self.cycle.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults on `pages` in turn at one position, in a microset of one page, until all of them are mapped; returns how many.
    fn faults_until_mapped(pages: u32) -> usize {
        let mut progress = ForwardProgress::default();
        let mut faults = 0;
        loop {
            for page in (0..pages).map(PageNo) {
                let held: Vec<PageNo> = progress.retained().map(|(_, page)| page).collect();
                if held.len() == pages as usize {
                    return faults;
                }
                progress.fault(1, page, || Some([7, 7]));
                faults += 1;
                assert!(faults < 10_000, "{pages} pages are never mapped together");
            }
        }
    }

    #[test]
    fn an_instruction_gets_on_however_many_pages_it_needs() {
        for pages in [1, 2, 3, 8, 32, 64, 200] {
            let faults = faults_until_mapped(pages);
            assert!(faults <= 8 * pages as usize, "{pages} pages: {faults} faults");
        }
    }

    #[test]
    fn a_thread_that_gets_on_holds_nothing() {
        let mut progress = ForwardProgress::default();
        for round in 0..50u64 {
            for page in 0..10 {
                // Two instructions in turn.
                progress.fault(1, PageNo(page), || Some([1, round * 10 + u64::from(page % 2)]));
            }
        }
        assert_eq!(progress.retained().count(), 0);
        (0..100_000).for_each(|page| progress.fault(1, PageNo(page), || Some([1, 1])));
        assert_eq!(progress.retained().count(), 0);
    }

    #[test]
    fn retained_pages_are_released() {
        let mut progress = ForwardProgress::default();
        (0..20).for_each(|_| progress.fault(1, PageNo(5), || None));
        assert_eq!(progress.retained().collect::<Vec<_>>(), [(1, PageNo(5))]);
        (0..RETAINED_MICROSETS_MAX).for_each(|_| progress.microset_ended());
        assert_eq!(progress.retained().count(), 0);
        (0..20).for_each(|_| progress.fault(1, PageNo(5), || None));
        progress.fault(1, PageNo(6), || None);
        assert_eq!(progress.retained().count(), 0);
    }
}
