//! Page states and the one function through which they change.
//!
//! ```text
//!             first touch                    taken out               written back
//!  Untouched ────────────► Resident ─► Leaving ─► SwapCached ─► WritingBack ─► Remote
//!      ▲   ▲                  ▲                       │              │(zero)     │
//!      │   └── (zero page) ───┼───────────────────────┼──────────────┘           │
//!      │                      └──── Fetching ◄────────┴──────────────────────────┘
//!      └── Changing (discard, move) ◄── any state that is not busy
//! ```
//!
//! Invariant: a page is mapped in the program exactly when it is `Resident` (or busy on its way there or from there). A busy
//! state (`Fetching`, `Leaving`, `WritingBack`, `Changing`) has one owner, the thread that set it; only the owner changes the
//! page's mapping, content, location or the policy's view of it. Other threads may only set `WAITED`.

use hinterland_backend::Location;

/// Where a page is in its life. The words are those of the glossary (docs/glossary.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// No content: reads as zero.
    Untouched = 0,
    /// Mapped in the program.
    Resident = 1,
    /// Local, and not mapped: a victim, a prefetched page that waits, or a parked one, as its slot says (`slot`).
    SwapCached = 2,
    /// In a backend.
    Remote = 3,
    /// Busy: content is on its way into the program or the swap cache.
    Fetching = 4,
    /// Busy: being taken out of the program.
    Leaving = 5,
    /// Busy: being written to a backend.
    WritingBack = 6,
    /// Busy: being discarded or moved by a call of the program.
    Changing = 7,
    /// Released to another kind of mapping.
    Foreign = 8,
    /// Reserved: parts of the page are held by a cache section, which the entry names ([`Entry::owner`]).
    Sectioned = 9,
}

impl State {
    /// Whether one thread owns the page for the time of a transition.
    pub fn is_busy(self) -> bool {
        matches!(self, State::Fetching | State::Leaving | State::WritingBack | State::Changing)
    }

    fn from_bits(bits: u64) -> State {
        match bits {
            0 => State::Untouched,
            1 => State::Resident,
            2 => State::SwapCached,
            3 => State::Remote,
            4 => State::Fetching,
            5 => State::Leaving,
            6 => State::WritingBack,
            7 => State::Changing,
            8 => State::Foreign,
            9 => State::Sectioned,
            _ => unreachable!("page state {bits} does not exist"),
        }
    }
}

/// Whether a page may go from one state to the other.
pub fn allowed(from: State, to: State) -> bool {
    use State::{
        Changing, Fetching, Foreign, Leaving, Remote, Resident, Sectioned, SwapCached, Untouched, WritingBack,
    };
    match from {
        Untouched => matches!(to, Fetching | Changing | Foreign),
        Resident => matches!(to, Leaving | Changing),
        SwapCached => matches!(to, Fetching | WritingBack | Changing),
        Remote => matches!(to, Fetching | Changing),
        // Back to where it came from when the fetch is given up.
        Fetching => matches!(to, Resident | SwapCached | Remote | Untouched),
        // Resident: it could not leave. Untouched: the program dropped it behind our back.
        Leaving => matches!(to, SwapCached | Resident | Untouched),
        WritingBack => matches!(to, Remote | Untouched),
        Changing => matches!(to, Untouched | Resident | SwapCached | Remote | Foreign),
        Foreign => matches!(to, Untouched),
        Sectioned => false,
    }
}

const STATE_MASK: u64 = 0xf;
const WAITED: u64 = 1 << 4;
const COPY_RETAINED: u64 = 1 << 5;
const PREFETCHED: u64 = 1 << 6;
const REFERENCED: u64 = 1 << 7;
const ARRIVED_SHIFT: u32 = 8;
const ARRIVED_MASK: u64 = 0xff << ARRIVED_SHIFT;
/// Which cache section holds a `Sectioned` page.
const OWNER_SHIFT: u32 = 16;
const OWNER_BITS: u32 = 4;
const LOCATION_SHIFT: u32 = 64 - Location::BITS;
const _: () = assert!(OWNER_SHIFT + OWNER_BITS <= LOCATION_SHIFT);
/// Of a `Remote` page: who will overwrite it, where other states have the arrival and the owner.
const MARK_SHIFT: u32 = ARRIVED_SHIFT;
const MARK_MASK: u64 = ((1 << MARK_BITS) - 1) << MARK_SHIFT;
/// Bits of a mark.
pub(crate) const MARK_BITS: u32 = 12;
const _: () = assert!(MARK_SHIFT + MARK_BITS == OWNER_SHIFT + OWNER_BITS);

/// One page-table entry: state, flags and location in one word, so that they change together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// An entry in `state` without flags or location.
    pub fn new(state: State) -> Entry {
        Entry(state as u64)
    }

    /// The state.
    pub fn state(self) -> State {
        State::from_bits(self.0 & STATE_MASK)
    }

    /// The same entry in another state; a wait that was noted is dropped, and a mark (the caller has the old entry to look at).
    pub fn with_state(self, state: State) -> Entry {
        Entry(self.without_mark().0 & !STATE_MASK & !WAITED | state as u64)
    }

    /// Who has marked a `Remote` page to be overwritten; 0: it is not marked.
    pub fn mark(self) -> u16 {
        if self.state() != State::Remote {
            return 0;
        }
        u16::try_from((self.0 & MARK_MASK) >> MARK_SHIFT).unwrap_or(0)
    }

    /// The entry of a `Remote` page with another mark.
    pub fn with_mark(self, mark: u16) -> Entry {
        debug_assert!(self.state() == State::Remote && u32::from(mark) >> MARK_BITS == 0);
        Entry(self.0 & !MARK_MASK | u64::from(mark) << MARK_SHIFT)
    }

    /// The entry without a mark, if it is one that can have some.
    pub fn without_mark(self) -> Entry {
        if self.state() == State::Remote { self.with_mark(0) } else { self }
    }

    /// A thread waits for the page to leave its busy state.
    pub fn waited(self) -> bool {
        self.0 & WAITED != 0
    }

    /// The entry with a wait noted.
    pub fn with_waited(self) -> Entry {
        Entry(self.0 | WAITED)
    }

    /// `location` holds a copy of the page: always for `Remote`; otherwise a copy that was right when the page came in.
    pub fn copy_retained(self) -> bool {
        self.0 & COPY_RETAINED != 0
    }

    /// Where the copy is.
    pub fn location(self) -> Location {
        debug_assert!(self.copy_retained(), "a page without a stored copy has no location");
        Location(self.0 >> LOCATION_SHIFT)
    }

    /// The entry with a stored copy at `location`.
    pub fn with_location(self, location: Location) -> Entry {
        assert!(location.0 >> Location::BITS == 0, "a location has at most {} bits", Location::BITS);
        Entry(self.0 & ((1 << LOCATION_SHIFT) - 1) | COPY_RETAINED | location.0 << LOCATION_SHIFT)
    }

    /// The entry without a stored copy.
    pub fn without_location(self) -> Entry {
        Entry(self.0 & ((1 << LOCATION_SHIFT) - 1) & !COPY_RETAINED)
    }

    /// The entry of a page that becomes resident in `epoch` (a coarse clock of arrivals); `referenced`: it was touched
    /// after it had been taken out as a victim.
    pub fn arrived(self, epoch: u8, referenced: bool) -> Entry {
        let bits = self.0 & !ARRIVED_MASK & !REFERENCED | u64::from(epoch) << ARRIVED_SHIFT;
        Entry(if referenced { bits | REFERENCED } else { bits })
    }

    /// The epoch in which a resident page arrived.
    pub fn arrival_epoch(self) -> u8 {
        self.0.to_le_bytes()[1]
    }

    /// The page was touched after it had been taken out as a victim: proof that it is in use.
    pub fn referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    /// The cache section that holds parts of a `Sectioned` page.
    pub fn owner(self) -> u8 {
        self.0.to_le_bytes()[OWNER_SHIFT as usize / 8] & ((1 << OWNER_BITS) - 1)
    }

    /// Prefetched and not yet used, as far as the pager knows.
    pub fn prefetched(self) -> bool {
        self.0 & PREFETCHED != 0
    }

    /// The entry with the prefetch mark set or cleared.
    pub fn with_prefetched(self, prefetched: bool) -> Entry {
        Entry(if prefetched { self.0 | PREFETCHED } else { self.0 & !PREFETCHED })
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.state())?;
        for (set, name) in [(self.waited(), "waited"), (self.prefetched(), "prefetched")] {
            if set {
                write!(f, "+{name}")?;
            }
        }
        if self.copy_retained() { write!(f, "@{:#x}", self.location().0) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 10] = [
        State::Untouched,
        State::Resident,
        State::SwapCached,
        State::Remote,
        State::Fetching,
        State::Leaving,
        State::WritingBack,
        State::Changing,
        State::Foreign,
        State::Sectioned,
    ];

    #[test]
    fn content_is_never_lost_by_a_transition() {
        // From a state with content, only a busy owner reaches Untouched, and never straight from a stable state.
        for from in ALL.into_iter().filter(|s| !s.is_busy() && *s != State::Foreign) {
            assert!(!allowed(from, State::Untouched), "{from:?}");
        }
        // Stable states are left only through a busy one (a foreign mapping replaces nothing but emptiness).
        for from in ALL.into_iter().filter(|s| !s.is_busy()) {
            for to in ALL.into_iter().filter(|s| !s.is_busy() && allowed(from, *s)) {
                assert!(matches!((from, to), (State::Untouched, State::Foreign) | (State::Foreign, State::Untouched)));
            }
        }
    }

    #[test]
    fn fields_do_not_disturb_each_other() {
        let entry =
            Entry::new(State::Fetching).with_location(Location((1 << Location::BITS) - 1)).with_prefetched(true);
        let entry = entry.with_waited().arrived(0xa5, true);
        assert!(entry.arrival_epoch() == 0xa5 && entry.referenced() && !entry.arrived(0, false).referenced());
        assert_eq!((entry.state(), entry.location().0), (State::Fetching, (1 << Location::BITS) - 1));
        let stable = entry.with_state(State::Resident);
        assert!(!stable.waited() && stable.prefetched() && stable.copy_retained());
        assert!(!stable.without_location().copy_retained());
        let owned = Entry(stable.0 | 0xb << OWNER_SHIFT);
        assert_eq!(
            (owned.owner(), stable.owner(), owned.location(), owned.arrival_epoch()),
            (0xb, 0, stable.location(), 0xa5)
        );
        let far = Entry::new(State::Remote).with_location(stable.location());
        let marked = far.with_mark(0xfff);
        assert_eq!((marked.mark(), marked.location(), marked.without_mark()), (0xfff, far.location(), far));
        assert_eq!((stable.mark(), marked.with_state(State::Fetching)), (0, far.with_state(State::Fetching)));
    }
}
