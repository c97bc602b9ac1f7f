//! One thread's share of local memory, simulated: which pages arrive, and which leave for them.
//!
//! A microset is in use as a whole (3PO §3.1.2: no page of it is evicted between its first and its last use there, which the trace does
//! not show). So its pages cannot leave before it ends, unless there are no others.

use super::Eviction;
use hinterland_policy::{Ideal, Lru, Min};

const LOCAL: u8 = 1;
/// It was written out once.
const LEFT: u8 = 2;

/// What a touch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The page is local.
    Hit,
    /// It arrives; another page leaves for it, if there is no frame.
    Arrival { leaves: Option<u32> },
}

/// See the module. Pages by the thread's slots.
pub struct Memory {
    frames: u64,
    local: u64,
    pages: Vec<u8>,
    order: Box<dyn Ideal>,
    /// The microset, in order of touches: slot and next touch.
    microset: Vec<(u32, u32)>,
    /// Pages at its beginning that were evicted all the same.
    evicted: usize,
}

impl Memory {
    pub fn new(slots: usize, frames: u64, eviction: Eviction) -> Memory {
        let order: Box<dyn Ideal> = match eviction {
            Eviction::Lru => Box::new(Lru::new()),
            Eviction::Min => Box::new(Min::new()),
        };
        Memory { frames: frames.max(1), local: 0, pages: vec![0; slots], order, microset: Vec::new(), evicted: 0 }
    }

    /// The thread touches a page; `next`: when again.
    #[inline]
    pub fn touch(&mut self, slot: u32, next: u32) -> Touch {
        let local = self.pages[slot as usize] & LOCAL != 0;
        let touch = if local {
            self.order.remove(slot);
            Touch::Hit
        } else {
            let leaves = if self.local < self.frames { None } else { self.leave() };
            self.local += u64::from(leaves.is_none());
            self.pages[slot as usize] |= LOCAL;
            Touch::Arrival { leaves }
        };
        self.microset.push((slot, next));
        touch
    }

    fn leave(&mut self) -> Option<u32> {
        let slot = self.order.leave().or_else(|| self.leave_microset())?;
        self.pages[slot as usize] &= !LOCAL;
        Some(slot)
    }

    fn leave_microset(&mut self) -> Option<u32> {
        while let Some((slot, _)) = self.microset.get(self.evicted).copied() {
            self.evicted += 1;
            if self.pages[slot as usize] & LOCAL != 0 {
                return Some(slot);
            }
        }
        None
    }

    /// Whether far memory has a copy of a page that leaves, if it was not written to since; from now on it has.
    pub fn had_copy(&mut self, slot: u32) -> bool {
        let page = &mut self.pages[slot as usize];
        let had = *page & LEFT != 0;
        *page |= LEFT;
        had
    }

    /// No page is local any more; `gone` is called for each. Not inside a microset.
    pub fn clear(&mut self, mut gone: impl FnMut(u32)) {
        while let Some(slot) = self.order.leave() {
            self.pages[slot as usize] &= !LOCAL;
            gone(slot);
        }
        self.local = 0;
    }

    /// The microset is whole: its pages can leave.
    pub fn end_microset(&mut self) {
        for (slot, next) in self.microset.drain(..).skip(std::mem::take(&mut self.evicted)) {
            // A trace may have a page twice in a microset.
            if self.pages[slot as usize] & LOCAL != 0 {
                self.order.touched(slot, next);
            }
        }
    }
}
