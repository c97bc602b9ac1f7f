//! The queues that every eviction policy is built from: intrusive doubly linked lists over a [`PageMap`].
//!
//! Linked lists, not rings with lazy deletion: a page can leave from the middle at once (`munmap`, a ghost that comes
//! back), so lengths are exact, nothing has to be compacted, and no operation takes longer than a few cache misses.
//!
//! Invariant: a page stands in the list that its [`ListState`] names, and in no other; the states `Taken…` are in no list.

use crate::page_map::{NIL, PageMap};
use hinterland_units::PageNo;

/// What a policy knows of a page. Not every policy uses every state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListState {
    /// Nothing.
    Unknown,
    /// Resident, not referenced since it came.
    Young,
    /// Resident, prefetched and mapped; its first use was not seen.
    Prefetched,
    /// Resident, in the main (referenced, protected) queue.
    Main,
    /// Written back not long ago; only its number is remembered.
    Ghost,
    /// Taken as a victim from the young queue, or from the main queue before its turn; in the swap cache. A ghost once it is
    /// written back.
    TakenYoung,
    /// Taken as a victim from the main queue, in the swap cache.
    TakenMain,
    /// Written back, and no ghost.
    Far,
}

impl ListState {
    /// Whether the page is known to be far.
    pub(crate) fn is_far(self) -> bool {
        matches!(self, ListState::Ghost | ListState::Far)
    }
}

/// The lists: states with an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Young,
    Prefetched,
    Main,
    Ghost,
}

impl Queue {
    /// What is known of a page that is in it.
    pub(crate) fn state(self) -> ListState {
        match self {
            Queue::Young => ListState::Young,
            Queue::Prefetched => ListState::Prefetched,
            Queue::Main => ListState::Main,
            Queue::Ghost => ListState::Ghost,
        }
    }
}

struct List {
    head: u32,
    tail: u32,
    len: usize,
}

/// How many pages one call may still send round again: bounds its work.
pub(crate) struct Passes(usize);

impl Passes {
    pub(crate) fn for_victims(count: usize) -> Passes {
        Passes(count.saturating_mul(8))
    }
}

/// Bits of the tag that hold the state; the rest is [`PageLists::rounds`].
const STATE_BITS: u32 = 3;

/// In the place of rounds, of what was taken out of the main queue before its turn.
const FROM_MAIN: u8 = 1;

/// A set of pages in queues.
pub(crate) struct PageLists {
    map: PageMap,
    lists: [List; 4],
    /// Pages that are [`ListState::Far`].
    far: usize,
}

fn encode(state: ListState, rounds: u8) -> u8 {
    if state == ListState::Unknown { 0 } else { state as u8 | rounds << STATE_BITS }
}

/// By tag.
const STATES: [ListState; 1 << STATE_BITS] = [
    ListState::Unknown,
    ListState::Young,
    ListState::Prefetched,
    ListState::Main,
    ListState::Ghost,
    ListState::TakenYoung,
    ListState::TakenMain,
    ListState::Far,
];

fn decode(tag: u8) -> ListState {
    STATES[usize::from(tag & ((1 << STATE_BITS) - 1))]
}

impl PageLists {
    pub(crate) fn new() -> PageLists {
        let list = || List { head: NIL, tail: NIL, len: 0 };
        PageLists { map: PageMap::default(), lists: [list(), list(), list(), list()], far: 0 }
    }

    /// What is known of the page.
    pub(crate) fn state(&self, page: PageNo) -> ListState {
        decode(self.map.tag(page))
    }

    /// Pages in a queue.
    pub(crate) fn len(&self, queue: Queue) -> usize {
        self.lists[queue as usize].len
    }

    /// Far pages that are known: ghosts and others.
    pub(crate) fn far(&self) -> usize {
        self.len(Queue::Ghost) + self.far
    }

    /// Pages in the resident queues.
    pub(crate) fn resident(&self) -> usize {
        self.len(Queue::Young) + self.len(Queue::Prefetched) + self.len(Queue::Main)
    }

    /// Puts a page at the young end of a queue, from wherever it is. It has `rounds` to go before it may be taken (the
    /// policy counts them; at most 31).
    pub(crate) fn push(&mut self, page: PageNo, queue: Queue, rounds: u8) {
        self.unlink(page);
        let list = &mut self.lists[queue as usize];
        let tail = std::mem::replace(&mut list.tail, page.0);
        list.len += 1;
        if tail == NIL {
            list.head = page.0;
        }
        self.map.set(page, encode(queue.state(), rounds), tail, NIL);
        self.map.set_next(tail, page.0);
    }

    /// Takes the oldest page out of a queue; it is in `state` then, which must not be a queue.
    pub(crate) fn pop(&mut self, queue: Queue, state: ListState) -> Option<PageNo> {
        let head = self.lists[queue as usize].head;
        if head == NIL {
            return None;
        }
        self.put(PageNo(head), state);
        Some(PageNo(head))
    }

    /// Takes the oldest page without rounds left out of a queue; those before it go round again with one round less,
    /// as long as there are passes.
    pub(crate) fn pop_without_rounds(&mut self, queue: Queue, state: ListState, passes: &mut Passes) -> Option<PageNo> {
        while let Some((page, rounds @ 1..)) = self.oldest(queue) {
            if passes.0 == 0 {
                break;
            }
            passes.0 -= 1;
            self.push(page, queue, rounds - 1);
        }
        self.pop(queue, state)
    }

    /// The rounds that a page in a queue has to go.
    pub(crate) fn rounds(&self, page: PageNo) -> u8 {
        self.map.tag(page) >> STATE_BITS
    }

    /// The oldest page of a queue and its rounds.
    fn oldest(&self, queue: Queue) -> Option<(PageNo, u8)> {
        let page = PageNo(self.lists[queue as usize].head);
        if page.0 == NIL { None } else { Some((page, self.rounds(page))) }
    }

    /// Takes a page out of its queue, if it is in one, and remembers `state` for it, which must not be a queue.
    pub(crate) fn put(&mut self, page: PageNo, state: ListState) {
        debug_assert!(
            !matches!(state, ListState::Young | ListState::Prefetched | ListState::Main | ListState::Ghost),
            "{state:?} is a queue: push instead"
        );
        self.unlink(page);
        self.map.set_tag(page, encode(state, 0));
        self.far += usize::from(state == ListState::Far);
    }

    /// Takes a page that is not the oldest out of its queue: a page of the main queue becomes a ghost once it is written back, any
    /// other is forgotten.
    pub(crate) fn take_early(&mut self, page: PageNo) {
        let was_main = self.state(page) == ListState::Main;
        self.put(page, if was_main { ListState::TakenYoung } else { ListState::Unknown });
        if was_main {
            self.map.set_tag(page, encode(ListState::TakenYoung, FROM_MAIN));
        }
    }

    /// Makes a page that was taken a ghost.
    pub(crate) fn push_ghost(&mut self, page: PageNo) {
        let from = self.map.tag(page) >> STATE_BITS;
        self.push(page, Queue::Ghost, from);
    }

    /// Whether a taken page, or a ghost, was in the young queue, or the prefetched queue.
    pub(crate) fn was_young(&self, page: PageNo) -> bool {
        self.map.tag(page) >> STATE_BITS != FROM_MAIN
    }

    /// Drops the oldest pages of a queue until it holds at most `limit`.
    pub(crate) fn trim(&mut self, queue: Queue, limit: usize) {
        while self.len(queue) > limit {
            self.pop(queue, ListState::Unknown);
        }
    }

    /// Bytes that the queues occupy.
    pub(crate) fn bytes(&self) -> usize {
        self.map.bytes()
    }

    fn unlink(&mut self, page: PageNo) {
        let list = match self.state(page) {
            ListState::Young => &mut self.lists[Queue::Young as usize],
            ListState::Prefetched => &mut self.lists[Queue::Prefetched as usize],
            ListState::Main => &mut self.lists[Queue::Main as usize],
            ListState::Ghost => &mut self.lists[Queue::Ghost as usize],
            ListState::Far => {
                self.far -= 1;
                return;
            }
            ListState::Unknown | ListState::TakenYoung | ListState::TakenMain => return,
        };
        let (prev, next) = self.map.links(page);
        if list.head == page.0 {
            list.head = next;
        }
        if list.tail == page.0 {
            list.tail = prev;
        }
        list.len -= 1;
        self.map.set_next(prev, next);
        self.map.set_prev(next, prev);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(lists: &mut PageLists, queue: Queue) -> Vec<u32> {
        std::iter::from_fn(|| lists.pop(queue, ListState::Unknown)).map(|page| page.0).collect()
    }

    #[test]
    fn pages_leave_in_the_order_in_which_they_came() {
        let mut lists = PageLists::new();
        for page in [7, 1 << 29, 3, 4] {
            lists.push(PageNo(page), Queue::Young, 0);
        }
        lists.put(PageNo(3), ListState::Unknown);
        lists.push(PageNo(7), Queue::Young, 0);
        assert_eq!(lists.len(Queue::Young), 3);
        assert_eq!(drain(&mut lists, Queue::Young), [1 << 29, 4, 7]);
    }

    #[test]
    fn a_page_is_in_one_queue_only() {
        let mut lists = PageLists::new();
        lists.push(PageNo(1), Queue::Young, 0);
        lists.push(PageNo(1), Queue::Main, 5);
        assert_eq!((lists.len(Queue::Young), lists.len(Queue::Main)), (0, 1));
        assert_eq!(lists.oldest(Queue::Main), Some((PageNo(1), 5)));
        assert_eq!(drain(&mut lists, Queue::Young), []);
        assert_eq!(lists.state(PageNo(1)), ListState::Main);
    }

    #[test]
    fn every_place_survives_its_encoding() {
        for state in STATES {
            assert_eq!(decode(encode(state, 0)), state);
            assert_eq!(decode(encode(state, 31)), state);
        }
    }
}
