//! MIN: the page whose next touch is furthest away leaves; no policy has fewer faults without prefetching (L. A. Belady, "A study of
//! replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966).
//!
//! A heap of next touches. A page that is touched again leaves its old entry behind; when these are the most, all of them are
//! thrown out, so the heap has two entries for each local page at most, and a touch costs O(log local pages).

use super::{Ideal, NEVER};
use std::collections::BinaryHeap;

/// In [`Min::due`]: not local, or not to leave. No touch has this number ([`super::NextUses`]).
const OUT: u32 = NEVER - 1;
/// Old entries that are always allowed.
const SPARE: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Min {
    /// By slot: when the page is touched next.
    due: Vec<u32>,
    /// Entries that disagree with `due` are old.
    furthest: BinaryHeap<(u32, u32)>,
    /// Entries that agree.
    local: usize,
}

impl Min {
    /// No page is local.
    pub fn new() -> Min {
        Min::default()
    }

    fn throw_out_old(&mut self) {
        let Min { due, furthest, .. } = self;
        furthest.retain(|(when, slot)| due[*slot as usize] == *when);
    }
}

impl Ideal for Min {
    #[inline]
    fn touched(&mut self, slot: u32, next: u32) {
        let index = slot as usize;
        if index >= self.due.len() {
            self.due.resize(index + 1, OUT);
        }
        let before = std::mem::replace(&mut self.due[index], next);
        self.local += usize::from(before == OUT);
        if before != next {
            self.furthest.push((next, slot));
        }
        if self.furthest.len() > 2 * self.local + SPARE {
            self.throw_out_old();
        }
    }

    fn remove(&mut self, slot: u32) {
        let Some(due) = self.due.get_mut(slot as usize) else { return };
        if std::mem::replace(due, OUT) != OUT {
            self.local -= 1;
        }
    }

    fn leave(&mut self) -> Option<u32> {
        while let Some((when, slot)) = self.furthest.pop() {
            let due = &mut self.due[slot as usize];
            if *due == when {
                *due = OUT;
                self.local -= 1;
                return Some(slot);
            }
        }
        None
    }
}
