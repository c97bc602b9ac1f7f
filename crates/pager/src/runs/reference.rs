//! What each page should hold, and which thread may do what with it.

use super::PAGES;
use hinterland_testkit::Rng;
use hinterland_units::{PAGE_BYTES, PageNo};

/// Words of a page that the program uses; the others stay zero.
pub(super) const WORDS: usize = 4;
/// Pages that a thread takes together.
pub(super) const GROUP_PAGES: u32 = 8;
const GROUPS: usize = (PAGES / GROUP_PAGES) as usize;

/// A page as the program left it.
#[derive(Clone, Copy, Default)]
struct Page {
    words: [u64; WORDS],
    /// It was dropped by a call that the pager did not see: it holds this, or zeros.
    may_be_zero: bool,
}

#[derive(Clone, Copy, Default)]
struct Group {
    /// Threads that load and store.
    users: u32,
    /// A thread drops, moves or protects its pages.
    taken: bool,
}

/// See the module.
pub(super) struct Reference {
    pages: Vec<Page>,
    groups: [Group; GROUPS],
}

/// A run of pages in one group.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) group: usize,
    pub(super) first: PageNo,
    pub(super) count: u32,
}

impl Run {
    /// Any.
    pub(super) fn any(random: &mut Rng) -> Run {
        Run::at(PageNo(random.below_u32(PAGES)), random)
    }

    /// From a page on.
    pub(super) fn at(first: PageNo, random: &mut Rng) -> Run {
        let rest = GROUP_PAGES - first.0 % GROUP_PAGES;
        Run { group: (first.0 / GROUP_PAGES) as usize, first, count: 1 + random.below_u32(rest) }
    }

    /// One as long, in another group.
    pub(super) fn elsewhere(self, random: &mut Rng) -> Option<Run> {
        let group = random.index(GROUPS);
        let first = PageNo(u32::try_from(group).expect("few groups") * GROUP_PAGES);
        (group != self.group).then_some(Run { group, first, ..self })
    }

    pub(super) fn pages(self) -> impl Iterator<Item = PageNo> {
        (self.first.0..self.first.0 + self.count).map(PageNo)
    }
}

/// Where a word is in its page.
pub(super) fn offset(word: usize) -> usize {
    [0, 1016, 2048, PAGE_BYTES - 8][word]
}

impl Reference {
    pub(super) fn new() -> Reference {
        Reference { pages: vec![Page::default(); PAGES as usize], groups: [Group::default(); GROUPS] }
    }

    /// Begins to load and store in a group. False: another thread has taken it.
    pub(super) fn share(&mut self, group: usize) -> bool {
        let group = &mut self.groups[group];
        group.users += u32::from(!group.taken);
        !group.taken
    }

    pub(super) fn end_share(&mut self, group: usize) {
        self.groups[group].users -= 1;
    }

    /// Takes a group alone. False: others use it.
    pub(super) fn take(&mut self, group: usize) -> bool {
        let group = &mut self.groups[group];
        let is_free = !group.taken && group.users == 0;
        group.taken |= is_free;
        is_free
    }

    pub(super) fn end_take(&mut self, group: usize) {
        self.groups[group].taken = false;
    }

    /// Whether no thread changes what the page holds otherwise than by a store.
    pub(super) fn is_settled(&self, page: PageNo) -> bool {
        !self.groups[(page.0 / GROUP_PAGES) as usize].taken
    }

    pub(super) fn store(&mut self, page: PageNo, word: usize, value: u64) {
        self.pages[page.index()].words[word] = value;
    }

    /// The pages hold nothing.
    pub(super) fn clear(&mut self, run: Run) {
        run.pages().for_each(|page| self.pages[page.index()] = Page::default());
    }

    /// The pages hold what they did, or nothing.
    pub(super) fn may_clear(&mut self, run: Run) {
        run.pages().for_each(|page| self.pages[page.index()].may_be_zero = true);
    }

    pub(super) fn relocate(&mut self, from: Run, to: Run) {
        for (from, to) in from.pages().zip(to.pages()) {
            self.pages[to.index()] = std::mem::take(&mut self.pages[from.index()]);
        }
    }

    /// What is wrong with a page that holds `bytes`. Settles whether it was dropped.
    pub(super) fn compare(&mut self, page: PageNo, bytes: &[u64]) -> Result<(), String> {
        let expected = &mut self.pages[page.index()];
        if expected.may_be_zero && bytes.iter().all(|word| *word == 0) {
            *expected = Page::default();
            return Ok(());
        }
        expected.may_be_zero = false;
        let mut whole = [0; PAGE_BYTES / 8];
        for (word, value) in expected.words.iter().enumerate() {
            whole[offset(word) / 8] = *value;
        }
        match (0..whole.len()).find(|index| bytes[*index] != whole[*index]) {
            None => Ok(()),
            Some(at) => Err(format!("{page} holds {:#x} at word {at}, not {:#x}", bytes[at], whole[at])),
        }
    }
}
