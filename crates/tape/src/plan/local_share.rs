//! One thread's share of local memory, simulated: which pages arrive, and which leave for them.
//!
//! A microset is in use as a whole (3PO §3.1.2: no page of it is evicted between its first and its last use there, which the trace does
//! not show). So its pages cannot leave before it ends, unless there are no others.

use super::Eviction;
use hinterland_policy::{Ideal, Lru, Min};

/// What a touch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The page is local.
    Hit,
    /// It arrives; another page leaves for it, if there is no frame.
    Arrival { leaves: Option<u32> },
}

/// See the module. Pages by the thread's slots.
pub struct LocalShare {
    frames: u64,
    local: u64,
    /// By slot.
    is_local: Vec<bool>,
    order: Box<dyn Ideal>,
    /// The microset, in order of touches: slot and next touch.
    microset: Vec<(u32, u32)>,
    /// Pages at its beginning that were evicted all the same.
    evicted: usize,
}

impl LocalShare {
    pub fn new(slots: usize, frames: u64, eviction: Eviction) -> LocalShare {
        let order: Box<dyn Ideal> = match eviction {
            Eviction::Lru => Box::new(Lru::new()),
            Eviction::Min => Box::new(Min::new()),
        };
        LocalShare {
            frames: frames.max(1),
            local: 0,
            is_local: vec![false; slots],
            order,
            microset: Vec::new(),
            evicted: 0,
        }
    }

    /// The thread touches a page; `next`: when again.
    #[inline]
    pub fn touch(&mut self, slot: u32, next: u32) -> Touch {
        let local = self.is_local[slot as usize];
        let touch = if local {
            self.order.remove(slot);
            Touch::Hit
        } else {
            let leaves = if self.local < self.frames { None } else { self.leave() };
            self.local += u64::from(leaves.is_none());
            self.is_local[slot as usize] = true;
            Touch::Arrival { leaves }
        };
        self.microset.push((slot, next));
        touch
    }

    fn leave(&mut self) -> Option<u32> {
        let slot = self.order.leave().or_else(|| self.leave_microset())?;
        self.is_local[slot as usize] = false;
        Some(slot)
    }

    fn leave_microset(&mut self) -> Option<u32> {
        while let Some((slot, _)) = self.microset.get(self.evicted).copied() {
            self.evicted += 1;
            if self.is_local[slot as usize] {
                return Some(slot);
            }
        }
        None
    }

    /// The page in `slot` has lost its content, and its frame; whether it was local.
    pub fn discard(&mut self, slot: u32) -> bool {
        let was_local = std::mem::replace(&mut self.is_local[slot as usize], false);
        if was_local {
            self.order.remove(slot);
            self.local -= 1;
        }
        was_local
    }

    /// No page is local any more; `gone` is called for each. Not inside a microset.
    pub fn clear(&mut self, mut gone: impl FnMut(u32)) {
        while let Some(slot) = self.order.leave() {
            self.is_local[slot as usize] = false;
            gone(slot);
        }
        self.local = 0;
    }

    /// The microset is whole: its pages can leave.
    pub fn end_microset(&mut self) {
        for (slot, next) in self.microset.drain(..).skip(std::mem::take(&mut self.evicted)) {
            // A page may be twice in a microset, or have lost its content.
            if self.is_local[slot as usize] {
                self.order.touched(slot, next);
            }
        }
    }
}
