//! For each touch, the next one of the same page: four bytes a touch, built in one pass over the touches.

/// No touch: the page is not needed again.
pub const NEVER: u32 = u32::MAX;

/// In [`NextUses::last`]. No touch has this number.
const CUT: u32 = u32::MAX;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct NextUses {
    /// By touch.
    next: Vec<u32>,
    /// By slot: the last touch so far, plus one; 0: none; [`CUT`]: no next touch is one of what was there.
    last: Vec<u32>,
}

impl NextUses {
    /// Touches that it can hold: the two highest numbers mean something else.
    pub const TOUCHES_MAX: usize = NEVER as usize - 1;

    /// Those of touches in order, by slot.
    ///
    /// # Panics
    /// There are more than [`NextUses::TOUCHES_MAX`].
    pub fn of(slots: impl IntoIterator<Item = u32>) -> NextUses {
        let mut uses = NextUses::default();
        for slot in slots {
            assert!(uses.push(slot), "more than {} touches", NextUses::TOUCHES_MAX);
        }
        uses.end();
        uses
    }

    /// Takes a touch in; false: there are too many.
    #[must_use]
    pub fn push(&mut self, slot: u32) -> bool {
        let index = slot as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, 0);
        }
        let touches = self.next.len();
        let Some(number) = u32::try_from(touches + 1).ok().filter(|_| touches < NextUses::TOUCHES_MAX) else {
            return false;
        };
        let before = std::mem::replace(&mut self.last[index], number);
        if before != 0 && before != CUT {
            self.next[before as usize - 1] = number - 1;
        }
        self.next.push(NEVER);
        true
    }

    /// The page in `slot` has lost its content: its next touch is not one of what was there.
    pub fn cut(&mut self, slot: u32) {
        if let Some(last) = self.last.get_mut(slot as usize).filter(|last| **last != 0) {
            *last = CUT;
        }
    }

    /// The page in `slot` was touched so far.
    #[inline]
    pub fn has(&self, slot: u32) -> bool {
        self.last.get(slot as usize).is_some_and(|last| *last != 0)
    }

    /// No touch follows: gives back what only [`NextUses::push`] needs.
    pub fn end(&mut self) {
        self.last = Vec::new();
        self.next.shrink_to_fit();
    }

    /// Touches so far.
    pub fn touches(&self) -> usize {
        self.next.len()
    }

    /// The next touch of the page that was touched at `at`, counted from 0; [`NEVER`]: there is none.
    #[inline]
    pub fn after(&self, at: usize) -> u32 {
        self.next[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_touch_knows_the_next_of_its_page() {
        let uses = NextUses::of([3, 0, 3, 3, 1, 0]);
        let next: Vec<u32> = (0..uses.touches()).map(|at| uses.after(at)).collect();
        assert_eq!(next, [2, 5, 3, NEVER, NEVER, NEVER]);
    }

    #[test]
    fn what_lost_its_content_is_not_used_again() {
        let mut uses = NextUses::default();
        uses.cut(3);
        assert!(!uses.has(3));
        for slot in [3, 0, 3, 3] {
            assert!(uses.push(slot));
            uses.cut(0);
        }
        uses.cut(3);
        assert!(uses.has(3) && uses.push(3) && uses.push(3));
        let next: Vec<u32> = (0..uses.touches()).map(|at| uses.after(at)).collect();
        assert_eq!(next, [2, NEVER, 3, NEVER, 5, NEVER]);
    }
}
