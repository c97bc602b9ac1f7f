//! What is known of a page: its state, as in the pager, and a few marks.

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
    /// Zeros, mapped ahead of a first touch that has not happened.
    pub(crate) const BLANK: u8 = 4;
    /// Far memory has its content, as it was.
    pub(crate) const COPIED: u8 = 8;
    /// It left to make room for a prefetched page.
    pub(crate) const DISPLACED: u8 = 16;

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
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.state, State::Resident | State::Unused)
    }
}
