//! What lies where in the far range: runs of pages with attributes, and the free space between them.
//!
//! Pure bookkeeping, no memory is touched. Invariants: every page below `pages` is either in exactly one run or free; runs that touch
//! differ in their attributes. The pages at the ends are given out by command only (`MAP_FIXED`), so that nothing of ours lies in the way of
//! a program that maps memory across: `free` does not know them.

use super::free::FreeRuns;
use std::collections::BTreeMap;

/// Whose memory a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A private anonymous mapping of the program.
    Mapping,
    /// An extent of the far heap.
    Heap,
    /// The program's break.
    Break,
    /// Room that the break may grow into: a hole, as far as the program can tell.
    Room,
    /// A mapping that the kernel made over our range: a file, shared memory. The pager does not touch it.
    Foreign,
}

/// What a forked child gets (madvise(2): `MADV_DONTFORK`, `MADV_WIPEONFORK`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkRule {
    /// A copy.
    Copy,
    /// Nothing: the range is not mapped in the child.
    Leave,
    /// Zeros.
    Wipe,
}

/// Whether pages are locked in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locked {
    /// They are not.
    No,
    /// All of them (`mlock`).
    Now,
    /// Those that have come (`MLOCK_ONFAULT`).
    OnFault,
}

/// What the pages of a run have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Whose it is.
    pub kind: Kind,
    /// `PROT_*` bits.
    pub protection: i32,
    /// A forked child does not get it (`MADV_DONTFORK`).
    pub unforked: bool,
    /// A forked child that gets it finds zeros (`MADV_WIPEONFORK`).
    pub wiped: bool,
    /// Whether it is locked in memory.
    pub locked: Locked,
    /// A protection key other than 0 was set.
    pub keyed: bool,
    /// Left out of core dumps (`MADV_DONTDUMP`).
    pub undumped: bool,
    /// The program can neither change its protection nor replace it, until it ends (mseal(2)).
    pub sealed: bool,
}

impl Attributes {
    /// Plain memory of `kind` with `protection`.
    pub fn plain(kind: Kind, protection: i32) -> Attributes {
        Attributes {
            kind,
            protection,
            unforked: false,
            wiped: false,
            locked: Locked::No,
            keyed: false,
            undumped: false,
            sealed: false,
        }
    }
}

impl Attributes {
    /// What a forked child gets.
    pub fn fork_rule(&self) -> ForkRule {
        match (self.unforked, self.wiped) {
            (true, _) => ForkRule::Leave,
            (false, true) => ForkRule::Wipe,
            (false, false) => ForkRule::Copy,
        }
    }
}

/// Pages that lie together and have the same attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First page.
    pub first: u32,
    /// Pages; at least 1.
    pub count: u32,
    /// What they have in common.
    pub attributes: Attributes,
}

impl Run {
    /// The page after the last.
    pub fn end(&self) -> u32 {
        self.first + self.count
    }
}

/// The far range.
#[derive(Debug)]
pub struct RegionMap {
    runs: BTreeMap<u32, (u32, Attributes)>,
    free: FreeRuns,
    pages: u32,
    /// Pages at each end that are given out by command only.
    end_pages: u32,
}

impl RegionMap {
    /// A range without any page; `open` gives it some.
    pub const fn closed() -> RegionMap {
        RegionMap { runs: BTreeMap::new(), free: FreeRuns::new(), pages: 0, end_pages: 0 }
    }

    /// Makes `pages` pages free, `end_pages` of them at each end by command only. Called once.
    pub fn open(&mut self, pages: u32, end_pages: u32) {
        (self.pages, self.end_pages) = (pages, end_pages);
        self.free.give(end_pages, pages - 2 * end_pages);
    }

    /// Puts a run of `count` pages where there is room, its first page a multiple of `alignment`; returns its first page.
    pub fn place(&mut self, count: u32, alignment: u32, attributes: Attributes) -> Option<u32> {
        let first = self.free.take(count, alignment)?;
        self.put(Run { first, count, attributes });
        Some(first)
    }

    /// Puts a run at `first`, if all of that is free.
    pub fn place_at(&mut self, first: u32, count: u32, attributes: Attributes) -> bool {
        if !self.is_free(first, count) {
            return false;
        }
        let (inner, pages) = self.inner(first, count);
        let taken = pages == 0 || self.free.take_at(inner, pages);
        assert!(taken, "page {first:#x} and what follows is free, and cannot be taken");
        self.put(Run { first, count, attributes });
        true
    }

    /// Frees every page of `first .. first + count`; returns the runs that were there.
    pub fn remove(&mut self, first: u32, count: u32) -> Vec<Run> {
        let removed = self.cut(first, count);
        for run in &removed {
            let (inner, pages) = self.inner(run.first, run.count);
            if pages > 0 {
                self.free.give(inner, pages);
            }
        }
        removed
    }

    /// Changes the attributes of the pages of `first .. first + count` that are not free.
    pub fn update(&mut self, first: u32, count: u32, change: impl Fn(&mut Attributes)) {
        for mut run in self.cut(first, count) {
            change(&mut run.attributes);
            self.put(run);
        }
    }

    /// The parts of runs inside `first .. first + count`, in order.
    pub fn runs_in(&self, first: u32, count: u32) -> Vec<Run> {
        let end = first + count;
        let before = self.runs.range(..first).next_back();
        before
            .into_iter()
            .chain(self.runs.range(first..end))
            .filter_map(|(&start, &(pages, attributes))| {
                let (from, to) = (start.max(first), (start + pages).min(end));
                (from < to).then(|| Run { first: from, count: to - from, attributes })
            })
            .collect()
    }

    /// As `runs_in`, without the room above the break: what is mapped there, as the program sees it.
    pub fn mapped_in(&self, first: u32, count: u32) -> Vec<Run> {
        let mut runs = self.runs_in(first, count);
        runs.retain(|run| run.attributes.kind != Kind::Room);
        runs
    }

    /// The whole run that holds `page`.
    pub fn run_at(&self, page: u32) -> Option<Run> {
        let (&first, &(count, attributes)) = self.runs.range(..=page).next_back()?;
        (page - first < count).then_some(Run { first, count, attributes })
    }

    /// Whether all of `first .. first + count` is free.
    pub fn is_free(&self, first: u32, count: u32) -> bool {
        let (inner, pages) = self.inner(first, count);
        let has_ends =
            u64::from(first) + u64::from(count) <= u64::from(self.pages) && self.runs_in(first, count).is_empty();
        has_ends && (pages == 0 || self.free.is_free(inner, pages))
    }

    /// The part of a range that does not lie at the ends.
    fn inner(&self, first: u32, count: u32) -> (u32, u32) {
        let (from, to) = (first.max(self.end_pages), first.saturating_add(count).min(self.pages - self.end_pages));
        (from, to.saturating_sub(from))
    }

    /// Whether any page of `first .. first + count` is sealed.
    pub fn is_sealed(&self, first: u32, count: u32) -> bool {
        self.runs_in(first, count).iter().any(|run| run.attributes.sealed)
    }

    /// All runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().map(|(&first, &(count, attributes))| Run { first, count, attributes })
    }

    /// Takes the parts of runs inside `first .. first + count` out, without making their pages free.
    fn cut(&mut self, first: u32, count: u32) -> Vec<Run> {
        let (end, parts) = (first + count, self.runs_in(first, count));
        for part in &parts {
            let Some(whole) = self.run_at(part.first) else { continue };
            self.runs.remove(&whole.first);
            if whole.first < part.first {
                self.runs.insert(whole.first, (part.first - whole.first, whole.attributes));
            }
            if whole.end() > end {
                self.runs.insert(end, (whole.end() - end, whole.attributes));
            }
        }
        parts
    }

    /// Puts a run where no run is, and joins it with equal neighbours.
    fn put(&mut self, mut run: Run) {
        if let Some((&before, &(pages, attributes))) = self.runs.range(..run.first).next_back()
            && before + pages == run.first
            && attributes == run.attributes
        {
            self.runs.remove(&before);
            run = Run { first: before, count: pages + run.count, attributes };
        }
        if let Some(&(pages, attributes)) = self.runs.get(&run.end())
            && attributes == run.attributes
        {
            self.runs.remove(&run.end());
            run.count += pages;
        }
        self.runs.insert(run.first, (run.count, run.attributes));
    }
}
