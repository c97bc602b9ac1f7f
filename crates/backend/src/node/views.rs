//! Views: slabs of a node on this machine, mapped for reading. A load is a copy out of one, without a message.
//!
//! ```text
//! slot n of the link's session lies at byte n × 4096 of the space, if its slab has a view
//! made:       after a write to the slab was answered
//! taken away: before the first write to the slab after a fork, before the slab is given back, and with the link
//! ```
//! **Invariant**: a view shows at a slot in use what was written there last. After a fork parent and child have views of the
//! same slabs, which stay valid as long as neither writes: the node gives the writer a copy, and the other process keeps the
//! old memory. So the writer drops its view before its first write, and waits for the threads that are copying out of it:
//! from then on only the other process has that memory, and may write to it. The answer to the write means that the copy
//! exists, for a new view.
//!
//! A view does not show whether the node is alive. So at least one load in a second is a message.

use super::limits::VIEWS_MAX;
use hinterland_sys::peer_memory::{PeerMemory, ReceivedFd};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The views of a link.
pub(super) struct Views {
    state: RwLock<State>,
    /// Forks that the session was cloned for.
    clones: AtomicU32,
    born: Instant,
    /// When the node was last heard of, in nanoseconds since `born`.
    heard_ns: AtomicU64,
    /// The longest time without a sign of life in which views are used.
    silence_max: Duration,
}

#[derive(Default)]
struct State {
    space: Option<PeerMemory>,
    slab_bytes: usize,
    /// By the number of the slab.
    slabs: Vec<View>,
    /// The link is lost.
    closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum View {
    #[default]
    None,
    /// It was made after so many clones.
    Made { clones: u32 },
    /// It could not be had.
    Refused,
}

impl Views {
    pub(super) fn new(silence_max: Duration) -> Views {
        let (clones, heard_ns) = (AtomicU32::new(0), AtomicU64::new(0));
        Views { state: RwLock::default(), clones, born: Instant::now(), heard_ns, silence_max }
    }

    /// Copies the page at `slot` of the session to `into`; false: it has to be asked for.
    pub(super) fn copy(&self, slot: u64, into: &mut PageBytes) -> bool {
        let state = self.read();
        let Some(space) = &state.space else { return false };
        let offset = usize::try_from(slot).unwrap_or(usize::MAX).saturating_mul(PAGE_BYTES);
        if !matches!(state.slabs.get(offset / state.slab_bytes), Some(View::Made { .. })) || !self.is_fresh() {
            return false;
        }
        // SAFETY: the slab has a view; who takes it away needs the lock for itself.
        unsafe { space.read(offset, into) };
        true
    }

    /// Whether pages may be copied.
    pub(super) fn are_used(&self) -> bool {
        self.read().space.is_some()
    }

    /// Takes a view away that others may write to as soon as this process writes to the slab.
    pub(super) fn before_write(&self, slab: u32) {
        let clones = self.clones.load(Relaxed);
        let is_older = |state: &State| matches!(state.view(slab), View::Made { clones: made } if made != clones);
        if is_older(&self.read()) {
            self.write().hide(slab);
        }
    }

    /// Whether a view of a slab should be asked for, after a write to it was answered.
    pub(super) fn lack(&self, slab: u32) -> bool {
        let state = self.read();
        !state.closed && state.view(slab) == View::None && (slab as usize) < VIEWS_MAX
    }

    /// Makes a view of a slab, or notes that none can be had.
    pub(super) fn make(&self, slab: u32, slab_bytes: u64, file: Option<&ReceivedFd>) {
        let Ok(slab_bytes) = usize::try_from(slab_bytes) else { return };
        let mut state = self.write();
        if state.closed || state.view(slab) != View::None {
            return;
        }
        if state.space.is_some() && state.slab_bytes != slab_bytes {
            return;
        }
        state.slab_bytes = slab_bytes;
        if state.space.is_none() {
            state.space = PeerMemory::reserve(VIEWS_MAX * slab_bytes).ok();
        }
        let shown = match (&mut state.space, file) {
            (Some(space), Some(file)) => space.show(slab as usize * slab_bytes, slab_bytes, file).is_ok(),
            _ => false,
        };
        let clones = self.clones.load(Relaxed);
        state.set(slab, if shown { View::Made { clones } } else { View::Refused });
    }

    /// Takes the views of slabs away that are about to be given back.
    pub(super) fn take_away(&self, slabs: &[u32]) {
        if self.read().slabs.is_empty() {
            return;
        }
        let mut state = self.write();
        for slab in slabs {
            state.hide(*slab);
        }
    }

    /// The session has been cloned: the next write to each slab may move it.
    pub(super) fn cloned(&self) {
        self.clones.fetch_add(1, Relaxed);
    }

    /// Takes all views away; there will be others.
    pub(super) fn clear(&self) {
        *self.write() = State::default();
    }

    /// Takes all views away for good.
    pub(super) fn close(&self) {
        *self.write() = State { closed: true, ..State::default() };
    }

    /// The node has answered.
    pub(super) fn heard(&self) {
        self.heard_ns.store(self.since_birth_ns(), Relaxed);
    }

    fn is_fresh(&self) -> bool {
        let silence_ns = self.since_birth_ns().saturating_sub(self.heard_ns.load(Relaxed));
        Duration::from_nanos(silence_ns) < self.silence_max
    }

    fn since_birth_ns(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn view(&self, slab: u32) -> View {
        self.slabs.get(slab as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, slab: u32, view: View) {
        let slab = slab as usize;
        if slab >= self.slabs.len() {
            self.slabs.resize(slab + 1, View::None);
        }
        self.slabs[slab] = view;
    }

    fn hide(&mut self, slab: u32) {
        if let (View::Made { .. }, Some(space)) = (self.view(slab), &mut self.space) {
            space.hide(slab as usize * self.slab_bytes, self.slab_bytes);
        }
        if self.view(slab) != View::None {
            self.set(slab, View::None);
        }
    }
}
