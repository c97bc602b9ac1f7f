//! Least recently used: a ring of the local pages in order of their last touches.

use super::Ideal;

/// The end of the ring; slot `s` stands at place `s + 1`.
const END: u32 = 0;

/// See the module.
#[derive(Debug)]
pub struct Lru {
    /// By place; a page that is not in the ring points at itself.
    newer: Vec<u32>,
    older: Vec<u32>,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru { newer: vec![END], older: vec![END] }
    }
}

impl Lru {
    /// No page is local.
    pub fn new() -> Lru {
        Lru::default()
    }

    #[inline]
    fn take_out(&mut self, place: u32) {
        let (older, newer) = (self.older[place as usize], self.newer[place as usize]);
        (self.newer[older as usize], self.older[newer as usize]) = (newer, older);
        (self.newer[place as usize], self.older[place as usize]) = (place, place);
    }

    #[cold]
    fn grow(&mut self, place: u32) {
        let known = u32::try_from(self.newer.len()).unwrap_or(place);
        self.newer.extend(known..=place);
        self.older.extend(known..=place);
    }
}

impl Ideal for Lru {
    #[inline]
    fn touched(&mut self, slot: u32, _next: u32) {
        let place = slot + 1;
        if place as usize >= self.newer.len() {
            self.grow(place);
        }
        let newest = self.older[END as usize];
        if newest == place {
            return;
        }
        self.take_out(place);
        let newest = self.older[END as usize];
        (self.older[place as usize], self.newer[place as usize]) = (newest, END);
        (self.newer[newest as usize], self.older[END as usize]) = (place, place);
    }

    fn remove(&mut self, slot: u32) {
        if ((slot + 1) as usize) < self.newer.len() {
            self.take_out(slot + 1);
        }
    }

    fn leave(&mut self) -> Option<u32> {
        let oldest = self.newer[END as usize];
        (oldest != END).then(|| {
            self.take_out(oldest);
            oldest - 1
        })
    }
}
