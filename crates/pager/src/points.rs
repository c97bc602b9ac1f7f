//! Named points of a page's life, at which a test can hold a thread until another one is where the test wants it (`races`).
//!
//! Only in this crate's own unit tests; in every other build a point is nothing at all.

use hinterland_units::PageNo;

/// A moment between two steps that another thread may fall into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    /// A first touch owns its page; no zeros are mapped yet.
    FirstTouch,
    /// A late fault owns its page, which is mapped.
    Spurious,
    /// A hit in the swap cache owns its page; the slot is about to be copied.
    Hit,
    /// A write owns its page, which is to be overwritten; nothing is mapped yet.
    Overwriting,
    /// A demand fetch has loaded its page; it is not mapped yet.
    Loaded,
    /// A victim is `Leaving`; the pins have not been looked at.
    Marked,
    /// A victim is not pinned; it is still mapped.
    Leaving,
    /// The victims of a protected range are copied and still mapped; the page is the first of them.
    Copied,
    /// A victim is in its slot; the table does not say so yet.
    TakenOut,
    /// Write-back owns its page; it has not checked whether a thread needs it.
    Aged,
    /// Write-back owns its page, which is to be dropped as free or zero; the table does not say so yet.
    Dropping,
    /// Write-back owns its page; nothing of its copy is patched yet.
    Patch,
    /// Write-back has patched its page's copy; the table does not say so yet.
    Patched,
    /// Write-back owns its page; nothing is stored yet.
    WriteBack,
    /// Write-back has stored its page; the table does not say so yet.
    Stored,
    /// A local page is owned whose stored copy is to be dropped; the table does not say so yet.
    DropsCopy,
    /// A pin is published; its pages have not been looked at.
    Pinned,
    /// A discarded page has lost its frame; the table does not say so yet.
    Discarded,
    /// A move owns a page at both of its places; the frame has moved, the entry has not.
    Moved,
    /// Read-ahead has loaded its batch; nothing is mapped yet.
    ReadAheadLoaded,
    /// Read-ahead has claimed its next batch, if there is one; the one that is loaded is not mapped yet.
    ReadAheadClaimed,
    /// Read-ahead has found nothing to do; it does not say yet that it sleeps. Page 0 stands for all.
    ReadAheadIdle,
    /// A page that waited, unmapped, is far again; its slot is still listed in the prefetch cache.
    SlotEmptied,
    /// A page is about to be given up; it has lost its content.
    GivingUp,
    /// A fault on the inline path has found its page another mapping's, and has not asked the kernel for it.
    FoundForeign,
    /// The policy is being told of another bound; its lock is held. Page 0 stands for all.
    PolicyHeld,
    /// A call waits until the owner of a busy page completes it, and looks again.
    WaitsForOwner,
    /// A fork has closed the gate.
    Frozen,
    /// The child of a fork has registered the range; its gate is closed.
    ChildRegistered,
}

/// The points of one pager.
pub(crate) struct Schedule {
    /// The pager, by the first address of its range: tests have several.
    #[cfg(test)]
    base: usize,
}

#[cfg(not(test))]
impl Schedule {
    pub(crate) const fn of(_: usize) -> Schedule {
        Schedule {}
    }

    /// The calling thread is at a point, about a page.
    #[inline]
    pub(crate) const fn at(&self, _: Point, _: PageNo) {}
}

#[cfg(test)]
pub(crate) use forced::Hold;

#[cfg(test)]
mod forced {
    use super::{PageNo, Point, Schedule};
    use crate::sys::gate::{futex_wait, futex_wake};
    use crate::sys::simulated::current;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

    const FREE: u32 = 0;
    const SETTING: u32 = 1;
    const ARMED: u32 = 2;
    const REACHED: u32 = 3;
    const RELEASED: u32 = 4;

    /// One hold. No locks and no allocation: points are passed in signal handlers, and copied by forks.
    struct Cell {
        state: AtomicU32,
        pager: AtomicUsize,
        point: AtomicU32,
        page: AtomicU32,
    }

    static CELLS: [Cell; 256] = [const {
        Cell {
            state: AtomicU32::new(FREE),
            pager: AtomicUsize::new(0),
            point: AtomicU32::new(0),
            page: AtomicU32::new(0),
        }
    }; 256];

    /// The first thread that comes to the point waits there until it is released.
    pub(crate) struct Hold(&'static Cell);

    impl Schedule {
        pub(crate) const fn of(base: usize) -> Schedule {
            Schedule { base }
        }

        pub(crate) fn at(&self, point: Point, page: PageNo) {
            if let Some(current) = current() {
                current.step(point.name(), page.index());
            }
            for cell in &CELLS {
                let ours = cell.pager.load(SeqCst) == self.base
                    && cell.point.load(SeqCst) == point as u32
                    && cell.page.load(SeqCst) == page.0;
                if ours && cell.state.compare_exchange(ARMED, REACHED, SeqCst, SeqCst).is_ok() {
                    futex_wake(&cell.state);
                    wait_until(cell, RELEASED);
                    cell.state.store(FREE, SeqCst);
                }
            }
        }
    }

    impl Point {
        /// As steps of simulations are named.
        fn name(self) -> &'static str {
            static NAMES: [OnceLock<String>; 64] = [const { OnceLock::new() }; 64];
            NAMES[self as usize].get_or_init(|| format!("{self:?}"))
        }
    }

    impl Hold {
        /// Holds the next thread of the pager whose range begins at `base` that comes to `point` about `page`.
        pub(crate) fn next(base: usize, point: Point, page: PageNo) -> Hold {
            let free = CELLS.iter().find(|cell| cell.state.compare_exchange(FREE, SETTING, SeqCst, SeqCst).is_ok());
            let cell = free.expect("fewer holds than cells");
            cell.pager.store(base, SeqCst);
            cell.point.store(point as u32, SeqCst);
            cell.page.store(page.0, SeqCst);
            cell.state.store(ARMED, SeqCst);
            Hold(cell)
        }

        /// Whether a thread is held.
        pub(crate) fn is_reached(&self) -> bool {
            self.0.state.load(SeqCst) == REACHED
        }

        /// Whether thread `id`, maybe another process's that has a copy of this hold, sleeps at it.
        pub(crate) fn holds(&self, id: u32) -> bool {
            crate::blocked::blocked(id).is_futex_in(self.0)
        }

        /// Waits until a thread is held.
        pub(crate) fn reached(self) -> Hold {
            wait_until(self.0, REACHED);
            self
        }

        /// Lets it go on.
        pub(crate) fn release(self) {
            assert_eq!(self.0.state.swap(RELEASED, SeqCst), REACHED, "no thread was held");
            futex_wake(&self.0.state);
        }
    }

    /// For as long as it takes: a test that hangs is ended by the limit of the whole run.
    fn wait_until(cell: &Cell, wanted: u32) {
        loop {
            let now = cell.state.load(SeqCst);
            if now == wanted {
                return;
            }
            futex_wait(&cell.state, now);
        }
    }
}
