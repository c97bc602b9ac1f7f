//! The proportional share: how much of its local memory a process counts while it shares pages with others since a fork.
//!
//! A page that `n` processes map counts `1/n` in each, as in the kernel's proportional set size: so the sum over all of them is
//! what they hold. The proportion is sampled; between samples, pages that arrive are the process's own, and pages that leave take
//! the sampled proportion with them:
//!
//! ```text
//! counted(local) = local − (sampled local − sampled counted)      when local grew since the sample
//!                = local · sampled counted / sampled local        when it shrank
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The last sample, in pages.
#[derive(Clone, Copy)]
struct Sample {
    local: u64,
    counted: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ProportionalShare {
    /// Sampled local and counted pages in one word: 32 bits each. Both zero: nothing is shared.
    sample: AtomicU64,
    /// Parts of 65,536 of store and tables that this process does not count.
    beside_elsewhere: AtomicU32,
}

/// One sample of the kernel's view, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedBytes {
    /// Of the far range: what other processes count.
    pub local_elsewhere: u64,
    /// The pager's own mappings, staging memory included: what is resident, and of that what other processes count. `None`:
    /// not sampled.
    pub beside: Option<(u64, u64)>,
}

const PARTS: u64 = 1 << 16;

impl ProportionalShare {
    fn sample(&self) -> Sample {
        let word = self.sample.load(Relaxed);
        Sample { local: word >> 32, counted: word & u64::from(u32::MAX) }
    }

    /// Of `local` pages, `counted` are this process's.
    pub fn note(&self, local: u64, counted: u64) {
        let local = local.min(u32::MAX.into());
        self.sample.store(local << 32 | counted.min(local), Relaxed);
    }

    /// Of `beside` bytes of store, tables and staging memory, `elsewhere` are counted by others.
    pub fn note_beside(&self, beside: u64, elsewhere: u64) {
        let parts = (elsewhere * PARTS).checked_div(beside).unwrap_or(0).min(PARTS);
        self.beside_elsewhere.store(u32::try_from(parts).unwrap_or(0), Relaxed);
    }

    /// Nothing is shared any more.
    pub fn end(&self) {
        self.sample.store(0, Relaxed);
        self.beside_elsewhere.store(0, Relaxed);
    }

    /// A process was forked off: it and this one count half each of what this one has counted.
    pub fn halve(&self, local: u64) {
        self.note(local, self.counted(local) / 2);
        let own = PARTS - u64::from(self.beside_elsewhere.load(Relaxed));
        self.beside_elsewhere.store(u32::try_from(PARTS - own / 2).unwrap_or(0), Relaxed);
    }

    /// Of `local` pages, those that this process counts.
    pub fn counted(&self, local: u64) -> u64 {
        let Sample { local: then, counted } = self.sample();
        if local >= then { local - (then - counted) } else { local * counted / then }
    }

    /// The local pages with which this process counts `counted`; the inverse of [`ProportionalShare::counted`].
    pub fn local_for(&self, counted: u64) -> u64 {
        let Sample { local: then, counted: sampled } = self.sample();
        if counted >= sampled { counted + (then - sampled) } else { counted * then / sampled }
    }

    /// Of `bytes` of store and tables, those that this process counts.
    pub fn beside(&self, bytes: u64) -> u64 {
        bytes - bytes / PARTS * u64::from(self.beside_elsewhere.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unshared_pages_count_fully() {
        let share = ProportionalShare::default();
        assert_eq!((share.counted(1000), share.local_for(1000), share.beside(1 << 20)), (1000, 1000, 1 << 20));
    }

    #[test]
    fn a_fork_keeps_the_sum() {
        let (parent, child) = (ProportionalShare::default(), ProportionalShare::default());
        parent.halve(1000);
        child.note(1000, parent.counted(1000));
        assert_eq!(parent.counted(1000) + child.counted(1000), 1000);
        assert_eq!(parent.beside(1 << 20), 1 << 19);
        parent.halve(1000);
        assert_eq!((parent.counted(1000), parent.beside(1 << 20)), (250, 1 << 18));
    }

    #[test]
    fn new_pages_are_own_and_leaving_ones_take_their_proportion() {
        let share = ProportionalShare::default();
        share.note(1000, 400);
        assert_eq!((share.counted(1000), share.counted(1100), share.counted(500)), (400, 500, 200));
        for local in [0, 5, 500, 1000, 1001, 5000] {
            assert_eq!(share.local_for(share.counted(local)), local);
        }
        share.note(1000, 0);
        assert_eq!((share.counted(700), share.counted(1200), share.local_for(200)), (0, 200, 1200));
        share.end();
        assert_eq!(share.counted(1000), 1000);
    }

    #[test]
    fn parts_of_the_store_that_others_count() {
        let share = ProportionalShare::default();
        share.note_beside(1 << 20, 1 << 18);
        assert_eq!(share.beside(1 << 20), 3 << 18);
        share.note_beside(0, 0);
        assert_eq!(share.beside(1 << 20), 1 << 20);
    }
}
