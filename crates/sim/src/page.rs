//! What is known of a page: its state, as in the pager, and a few marks.

use crate::Setup;

/// States of a page. `Unused` is the pager's `Resident` too: the simulator sees the first use of a page that was prefetched and mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum State {
    /// No content.
    #[default]
    Untouched,
    /// Mapped, and used since.
    Resident,
    /// Prefetched and mapped, not used yet.
    Unused,
    /// Taken out as a victim; its frame is still there.
    SwapCached,
    /// Prefetched and left unmapped.
    PrefetchCached,
    /// In far memory only.
    Remote,
    /// The read-ahead thread brings it in.
    Fetching,
    /// It is being stored.
    WritingBack,
}

/// Marks of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Marks(u8);

impl Marks {
    /// Touched after it had been taken out: in use.
    pub(crate) const REFERENCED: u8 = 1;
    /// Prefetched, not used yet.
    pub(crate) const PREFETCHED: u8 = 2;
    /// Far memory has its content, as it was.
    pub(crate) const COPIED: u8 = 8;
    /// It left to make room for a prefetched page.
    pub(crate) const DISPLACED: u8 = 16;
    /// It was written to since far memory got its content.
    pub(crate) const WRITTEN: u8 = 32;
    /// It was touched since then, and the trace does not tell how.
    pub(crate) const UNKNOWN: u8 = 64;

    #[inline]
    pub(crate) fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, mark: u8, to: bool) {
        self.0 = if to { self.0 | mark } else { self.0 & !mark };
    }
}

/// A page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Page {
    pub(crate) state: State,
    pub(crate) marks: Marks,
    /// Epoch of its arrival.
    pub(crate) epoch: u8,
    /// How often it was taken out: tells stale places in the swap cache.
    pub(crate) taken: u32,
}

impl Page {
    /// The program uses it; `written`: what [`crate::Touch`] says.
    #[inline]
    pub(crate) fn note_use(&mut self, written: Option<bool>) {
        match written {
            Some(false) => {}
            Some(true) => self.marks.set(Marks::WRITTEN, true),
            None => self.marks.set(Marks::UNKNOWN, true),
        }
    }

    /// Whether it must be stored now that it leaves.
    pub(crate) fn is_dirty(self, setup: &Setup, slot: u32) -> bool {
        let guessed = || !self.marks.has(Marks::COPIED) || setup.was_written(slot, self.taken);
        self.marks.has(Marks::WRITTEN) || self.marks.has(Marks::UNKNOWN) && guessed()
    }

    /// Far memory has its content.
    pub(crate) fn stored(&mut self) {
        self.marks.set(Marks::WRITTEN, false);
        self.marks.set(Marks::UNKNOWN, false);
    }

    /// It has the zeros that it was mapped with.
    pub(crate) fn is_zero(self) -> bool {
        !self.marks.has(Marks::COPIED | Marks::WRITTEN | Marks::UNKNOWN)
    }
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.state, State::Resident | State::Unused)
    }
}
