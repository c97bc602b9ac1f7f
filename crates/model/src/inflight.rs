//! What the compute engine keeps of data on their way: the in-flight page buffer with the dirty lines that wait for a page, and the in-flight
//! sub-block buffer (§4.2, §4.3, Figure 7). Bounds are the caller's to keep: schemes without a selection unit have none.

use crate::parameters::LINES_PER_PAGE;

const NONE: u32 = u32::MAX;

/// State of a page in the buffer (Figure 7b); *invalid* is its absence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// Its request waits in the page queue.
    Scheduled,
    /// The queue controller has issued its request.
    Moved,
    /// What arrives is stale: more of its lines were written meanwhile than the dirty data buffer keeps. It is asked for again.
    Throttled,
}

/// Pages on their way.
///
/// Invariant: `dirty_lines` is the number of bits in all masks.
#[derive(Debug)]
pub struct InflightPages {
    slot_of: Vec<u32>,
    slots: Vec<(PageState, u64)>,
    free: Vec<u32>,
    /// Lines in the dirty data buffer.
    pub dirty_lines: usize,
}

impl InflightPages {
    /// None of `pages` is on its way.
    pub fn new(pages: u32) -> InflightPages {
        InflightPages { slot_of: vec![NONE; pages as usize], slots: Vec::new(), free: Vec::new(), dirty_lines: 0 }
    }

    /// How many are on their way.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn slot(&mut self, page: u32) -> &mut (PageState, u64) {
        let slot = self.slot_of[page as usize];
        assert_ne!(slot, NONE, "page {page} is not in flight");
        &mut self.slots[slot as usize]
    }

    /// State of a page; `None`: it is not on its way.
    pub fn state(&self, page: u32) -> Option<PageState> {
        self.slots.get(self.slot_of[page as usize] as usize).map(|slot| slot.0)
    }

    /// A page is asked for.
    pub fn schedule(&mut self, page: u32) {
        assert_eq!(self.slot_of[page as usize], NONE, "page {page} is in flight");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((PageState::Scheduled, 0));
            u32::try_from(self.slots.len() - 1).expect("fewer slots than pages")
        });
        self.slots[slot as usize] = (PageState::Scheduled, 0);
        self.slot_of[page as usize] = slot;
    }

    /// The controller issues its request. A throttled page stays so: its data may be read before the flushed lines are written.
    pub fn issue(&mut self, page: u32) {
        let state = &mut self.slot(page).0;
        if *state == PageState::Scheduled {
            *state = PageState::Moved;
        }
    }

    /// Keeps a dirty line until its page arrives; how many of the page's lines are kept now.
    pub fn keep_dirty(&mut self, line: u32) -> u32 {
        let slot = self.slot(line / LINES_PER_PAGE);
        let before = slot.1.count_ones();
        slot.1 |= 1 << (line % LINES_PER_PAGE);
        let after = slot.1.count_ones();
        self.dirty_lines += (after - before) as usize;
        after
    }

    /// Gives up the page that is on its way; the lines that are to be flushed to remote memory.
    pub fn throttle(&mut self, page: u32) -> u64 {
        let slot = self.slot(page);
        slot.0 = PageState::Throttled;
        let lines = std::mem::take(&mut slot.1);
        self.dirty_lines -= lines.count_ones() as usize;
        lines
    }

    /// The page has arrived: its entry is released; the lines to flush into it.
    pub fn release(&mut self, page: u32) -> u64 {
        let lines = self.slot(page).1;
        self.dirty_lines -= lines.count_ones() as usize;
        let slot = std::mem::replace(&mut self.slot_of[page as usize], NONE);
        self.free.push(slot);
        lines
    }

    /// Asks for a throttled page again: its entry stays.
    pub fn schedule_again(&mut self, page: u32) {
        let slot = self.slot(page);
        assert_eq!(slot.0, PageState::Throttled, "page {page}");
        slot.0 = PageState::Scheduled;
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Of the entry, so that a line that comes late is told from one of a new entry.
    serial: u32,
    pending: u64,
    issued: u64,
}

/// Lines on their way, by page.
#[derive(Debug)]
pub struct InflightSubBlocks {
    slot_of: Vec<u32>,
    slots: Vec<Entry>,
    free: Vec<u32>,
    serial: u32,
}

impl InflightSubBlocks {
    /// No line of `pages` is on its way.
    pub fn new(pages: u32) -> InflightSubBlocks {
        InflightSubBlocks { slot_of: vec![NONE; pages as usize], slots: Vec::new(), free: Vec::new(), serial: 0 }
    }

    /// Entries: pages of which a line is on its way.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn entry(&self, line: u32) -> Option<&Entry> {
        self.slots.get(self.slot_of[(line / LINES_PER_PAGE) as usize] as usize)
    }

    /// Whether there is an entry for the line's page.
    pub fn has_entry(&self, line: u32) -> bool {
        self.entry(line).is_some()
    }

    /// Whether the line is on its way.
    pub fn is_pending(&self, line: u32) -> bool {
        self.entry(line).is_some_and(|entry| entry.pending & bit(line) != 0)
    }

    /// A line is asked for.
    pub fn schedule(&mut self, line: u32) {
        let slot = &mut self.slot_of[(line / LINES_PER_PAGE) as usize];
        if *slot == NONE {
            self.serial = self.serial.wrapping_add(1);
            let entry = Entry { serial: self.serial, pending: 0, issued: 0 };
            *slot = match self.free.pop() {
                Some(free) => {
                    self.slots[free as usize] = entry;
                    free
                }
                None => {
                    self.slots.push(entry);
                    u32::try_from(self.slots.len() - 1).expect("fewer slots than pages")
                }
            };
        }
        let entry = &mut self.slots[*slot as usize];
        entry.issued &= !bit(line);
        entry.pending |= bit(line);
    }

    /// The controller comes to a request in its queue; `None` if that was cancelled. The serial goes with the request.
    pub fn issue(&mut self, line: u32) -> Option<u32> {
        let slot = self.slot_of[(line / LINES_PER_PAGE) as usize];
        let entry = self.slots.get_mut(slot as usize)?;
        let is_due = entry.pending & !entry.issued & bit(line) != 0;
        entry.issued |= bit(line);
        is_due.then_some(entry.serial)
    }

    /// A line arrives; `false` if no miss waits for it any more, so that it is ignored.
    pub fn arrive(&mut self, line: u32, serial: u32) -> bool {
        let page = (line / LINES_PER_PAGE) as usize;
        let slot = self.slot_of[page];
        let Some(entry) = self.slots.get_mut(slot as usize) else { return false };
        if entry.serial != serial || entry.pending & bit(line) == 0 {
            return false;
        }
        entry.pending &= !bit(line);
        if entry.pending == 0 {
            self.cancel(line / LINES_PER_PAGE);
        }
        true
    }

    /// The page has arrived: requests for its lines are dropped; how many.
    pub fn cancel(&mut self, page: u32) -> u32 {
        let slot = std::mem::replace(&mut self.slot_of[page as usize], NONE);
        if slot == NONE {
            return 0;
        }
        self.free.push(slot);
        self.slots[slot as usize].pending.count_ones()
    }
}

fn bit(line: u32) -> u64 {
    1 << (line % LINES_PER_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_scheduled_moved_and_released() {
        let mut pages = InflightPages::new(4);
        assert_eq!(pages.state(2), None);
        pages.schedule(2);
        assert_eq!((pages.state(2), pages.len()), (Some(PageState::Scheduled), 1));
        pages.issue(2);
        assert_eq!(pages.state(2), Some(PageState::Moved));
        assert_eq!(pages.keep_dirty(2 * 64 + 3), 1);
        assert_eq!(pages.keep_dirty(2 * 64 + 3), 1);
        assert_eq!(pages.keep_dirty(2 * 64), 2);
        assert_eq!(pages.dirty_lines, 2);
        assert_eq!(pages.release(2), 0b1001);
        assert_eq!((pages.state(2), pages.len(), pages.dirty_lines), (None, 0, 0));
        pages.schedule(3);
        assert_eq!(pages.release(3), 0);
    }

    #[test]
    fn a_throttled_page_stays_throttled_until_it_is_asked_for_again() {
        let mut pages = InflightPages::new(1);
        pages.schedule(0);
        pages.keep_dirty(5);
        assert_eq!(pages.throttle(0), 1 << 5);
        assert_eq!(pages.dirty_lines, 0);
        pages.issue(0);
        assert_eq!(pages.state(0), Some(PageState::Throttled));
        pages.schedule_again(0);
        pages.issue(0);
        assert_eq!((pages.state(0), pages.len()), (Some(PageState::Moved), 1));
    }

    #[test]
    fn lines_of_a_page_share_an_entry() {
        let mut lines = InflightSubBlocks::new(2);
        lines.schedule(1);
        lines.schedule(9);
        lines.schedule(64);
        assert_eq!(lines.len(), 2);
        let serial = lines.issue(1).expect("pending");
        assert_eq!(lines.issue(1), None);
        assert!(lines.is_pending(1) && !lines.is_pending(2));
        assert!(lines.arrive(1, serial));
        assert!(!lines.arrive(1, serial));
        assert_eq!(lines.cancel(0), 1);
        assert_eq!((lines.len(), lines.has_entry(9)), (1, false));
    }

    #[test]
    fn a_line_of_a_cancelled_request_is_not_taken_for_a_new_one() {
        let mut lines = InflightSubBlocks::new(1);
        lines.schedule(7);
        let old = lines.issue(7).expect("pending");
        assert_eq!(lines.cancel(0), 1);
        assert_eq!(lines.issue(7), None);
        lines.schedule(7);
        assert!(!lines.arrive(7, old));
        let new = lines.issue(7).expect("pending");
        assert!(lines.arrive(7, new));
        assert_eq!(lines.cancel(0), 0);
    }
}
