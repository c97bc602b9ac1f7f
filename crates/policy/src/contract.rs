//! The contract between the pager and policies: its events, and its queries.

use crate::WindowBound;
use hinterland_units::PageNo;
use std::sync::Arc;

/// How a page came to be resident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The program touched it for the first time.
    FirstTouch,
    /// The program waited for it: it was remote.
    Demand,
    /// It was prefetched and mapped; whether it will be used is not known.
    Prefetched,
    /// The same, and the program has said that it will use it: it is not on trial.
    Hinted,
    /// It was taken out as a victim and touched again before it was written back: proof that it is in use.
    SwapCacheHit,
}

/// Chooses which resident pages leave.
///
/// There is no accessed bit: all that a policy learns is arrivals, departures and swap-cache hits. The pager takes victims
/// out of the program's mapping into the swap cache, where they stay for a while; a victim touched there comes back as
/// [`Arrival::SwapCacheHit`]. A page that is not touched there is written back and reported with
/// [`EvictionPolicy::written_back`].
pub trait EvictionPolicy: Send {
    /// `page` is resident now. It is not in the policy's resident queues (the pager says each arrival once).
    fn arrived(&mut self, page: PageNo, how: Arrival);

    /// `page` is gone (unmapped, discarded); forget it, also as a ghost. Called for pages the policy may not know.
    fn forgotten(&mut self, page: PageNo);

    /// Takes up to `count` victims out of the resident queues and appends them to `out`, coldest first. Fewer only if
    /// fewer are resident. May name pages that were forgotten a moment ago only if it still held them.
    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>);

    /// The same for a thread that can wait: without pages that are needed soon, as far as the policy knows; so there may be fewer.
    fn victims_not_needed_soon(&mut self, count: usize, out: &mut Vec<PageNo>) {
        self.victims(count, out);
    }

    /// `page`, which is resident, leaves beside a victim, before its turn (decision 0034). If it came only once it is forgotten: it
    /// had no time to show that it is in use. If it came back before, it must find its way there again.
    fn evicted_out_of_turn(&mut self, page: PageNo) {
        self.forgotten(page);
    }

    /// A victim could not leave (pinned, locked in memory) and is put back: it stays resident and should not be tried again soon.
    fn putback(&mut self, page: PageNo);

    /// A victim is not to leave now, for a reason of another's, and is put back: it stays resident, and nothing is known of its use.
    fn putback_unjudged(&mut self, page: PageNo) {
        self.putback(page);
    }

    /// A victim left the swap cache untouched: it is remote now (or dropped).
    fn written_back(&mut self, page: PageNo);

    /// Whether neighbours of a victim stay until it is their turn: where a tape says when pages leave, or age says nothing.
    fn keeps_neighbours(&self) -> bool {
        false
    }

    /// Takes the number of victims that were chosen at random since the last call.
    fn take_random_victims(&mut self) -> u64 {
        0
    }

    /// The number of pages that the resident queues should be shaped for (the local budget), when it changes.
    fn resize(&mut self, capacity_pages: usize);

    /// Pages in the resident queues now.
    fn resident(&self) -> usize;

    /// Bytes that the policy's own tables occupy.
    fn metadata_bytes(&self) -> usize;
}

/// A page request that reached the pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// First touch of a page that has no content yet.
    FirstTouch,
    /// The program waits for far memory.
    Major,
    /// Served from the swap cache; the page had been a victim.
    Minor,
    /// First use of a page that was prefetched and left unmapped.
    PrefetchHit,
}

/// Tells the threads of one process apart; the number means nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Thread(pub u64);

/// Pages to bring in ahead of the program: `first`, `first + step`, … as far as there are page numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetchWindow {
    /// First page of the window.
    pub first: PageNo,
    /// From one page to the next, in pages; not 0.
    pub step: i64,
    /// Pages in the window; at least 1.
    pub pages: u32,
    /// Which of them stay unmapped.
    pub unmapped: Unmapped,
}

/// Pages of a window that are fetched but left unmapped in the swap cache: their first use is a fault, which tells that the
/// program has come that far ([`Request::PrefetchHit`]). All others are mapped at once, and nobody learns of their use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmapped {
    /// This one, inside the window: the key page.
    Key(PageNo),
    /// All of them, as in a kernel's swap cache.
    All,
}

impl PrefetchWindow {
    /// The page at `index`; `None` past the ends of the page numbers.
    #[inline]
    pub fn page(&self, index: u32) -> Option<PageNo> {
        let number = i64::from(self.first.0).checked_add(self.step.checked_mul(i64::from(index))?)?;
        u32::try_from(number).ok().map(PageNo)
    }

    /// Its pages, in the order in which the program is expected at them.
    pub fn iter(&self) -> impl Iterator<Item = PageNo> + use<> {
        let window = *self;
        (0..self.pages).map_while(move |index| window.page(index))
    }

    /// Whether it has a page.
    #[inline]
    pub fn contains(&self, page: PageNo) -> bool {
        let distance = i64::from(page.0) - i64::from(self.first.0);
        distance % self.step == 0 && (0..i64::from(self.pages)).contains(&(distance / self.step))
    }

    /// Whether a page of the window stays unmapped.
    #[inline]
    pub fn leaves_unmapped(&self, page: PageNo) -> bool {
        match self.unmapped {
            Unmapped::Key(key) => key == page,
            Unmapped::All => true,
        }
    }
}

/// The next pages of a thread's tape that are to be fetched (3PO §3.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeBatch {
    /// In the order in which the thread is expected at them; each once, at least one.
    pub pages: Arc<[PageNo]>,
    /// The one that stays unmapped, if one can: all others are mapped when they arrive.
    pub key: Option<PageNo>,
    /// Whose tape: batches of one thread are fetched in order.
    pub thread: u32,
}

/// Pages that the program has said it will need soon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintBatch {
    /// In the order in which they were named; each once, at least one.
    pub pages: Arc<[PageNo]>,
    /// The one that stays unmapped, so that its use is seen; not every batch has one.
    pub key: Option<PageNo>,
    /// Where the program has said so ([`crate::HintSource`]).
    pub site: u16,
}

/// The aligned block around a page that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its first page: a multiple of its size.
    pub first: PageNo,
    /// Its size in pages: a power of two.
    pub pages: u32,
    /// Where in it the page is.
    pub at: u32,
}

impl Block {
    /// Of so many pages, a power of two.
    pub fn around(page: PageNo, pages: u32) -> Block {
        let at = page.0 % pages;
        Block { first: PageNo(page.0 - at), pages, at }
    }

    /// Whether it has a page.
    #[inline]
    pub fn has(&self, page: PageNo) -> bool {
        page.0.checked_sub(self.first.0).is_some_and(|at| at < self.pages)
    }

    /// The page at `index`: from the one that is waited for to the last one, then from the first one on.
    #[inline]
    pub fn page(&self, index: u32) -> Option<PageNo> {
        (index < self.pages).then(|| PageNo(self.first.0 + (self.at + index) % self.pages))
    }

    /// Its pages in that order.
    pub fn iter(&self) -> impl Iterator<Item = PageNo> + use<> {
        let block = *self;
        (0..self.pages).filter_map(move |index| block.page(index))
    }
}

/// What asks for pages ahead, and learns whether they are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Source {
    /// The prefetcher.
    #[default]
    Prefetcher,
    /// A tape, which knows by requests alone where its thread is.
    Tape,
    /// A block.
    Blocks,
    /// Hints of a site.
    Hints(u16),
    /// Hints of the process that this one was forked from, which give nothing to learn here.
    Inherited,
}

/// Pages to bring in ahead of the program, as one of the sources of the arbiter asks for them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// A strided window, of a prefetcher.
    Window(PrefetchWindow),
    /// A listed batch, of a tape.
    Batch(TapeBatch),
    /// A listed batch, of hints.
    Hinted(HintBatch),
    /// The pages around one that a thread waits for.
    Block(Block),
}

impl From<PrefetchWindow> for Prefetch {
    fn from(window: PrefetchWindow) -> Prefetch {
        Prefetch::Window(window)
    }
}

impl Prefetch {
    /// How many pages.
    #[inline]
    pub fn pages(&self) -> u32 {
        match self {
            Prefetch::Window(window) => window.pages,
            Prefetch::Block(block) => block.pages,
            Prefetch::Batch(TapeBatch { pages, .. }) | Prefetch::Hinted(HintBatch { pages, .. }) => {
                u32::try_from(pages.len()).unwrap_or(u32::MAX)
            }
        }
    }

    /// The page at `index`; `None` past the ends of the page numbers, or of the list.
    #[inline]
    pub fn page(&self, index: u32) -> Option<PageNo> {
        match self {
            Prefetch::Window(window) => window.page(index),
            Prefetch::Block(block) => block.page(index),
            Prefetch::Batch(TapeBatch { pages, .. }) | Prefetch::Hinted(HintBatch { pages, .. }) => {
                pages.get(index as usize).copied()
            }
        }
    }

    /// The pages, in the order in which the program is expected at them.
    pub fn iter(&self) -> impl Iterator<Item = PageNo> + use<> {
        let this = self.clone();
        (0..self.pages()).map_while(move |index| this.page(index))
    }

    /// Whether a page of it stays unmapped.
    #[inline]
    pub fn leaves_unmapped(&self, page: PageNo) -> bool {
        match self {
            Prefetch::Window(window) => window.leaves_unmapped(page),
            Prefetch::Block(_) => true,
            Prefetch::Batch(TapeBatch { key, .. }) | Prefetch::Hinted(HintBatch { key, .. }) => *key == Some(page),
        }
    }

    /// The page whose use tells of the use of all others.
    #[inline]
    pub fn key(&self) -> Option<PageNo> {
        match self {
            Prefetch::Window(PrefetchWindow { unmapped: Unmapped::Key(key), .. }) => Some(*key),
            Prefetch::Window(_) | Prefetch::Block(_) => None,
            Prefetch::Batch(TapeBatch { key, .. }) | Prefetch::Hinted(HintBatch { key, .. }) => *key,
        }
    }

    /// How its pages arrive.
    #[inline]
    pub fn arrival(&self) -> Arrival {
        if self.hinted().is_some() { Arrival::Hinted } else { Arrival::Prefetched }
    }

    /// The hints that ask for it.
    #[inline]
    pub fn hinted(&self) -> Option<&HintBatch> {
        match self {
            Prefetch::Hinted(batch) => Some(batch),
            Prefetch::Window(_) | Prefetch::Batch(_) | Prefetch::Block(_) => None,
        }
    }

    /// The source that asked for it.
    #[inline]
    pub fn source(&self) -> Source {
        match self {
            Prefetch::Window(_) => Source::Prefetcher,
            Prefetch::Batch(_) => Source::Tape,
            Prefetch::Hinted(batch) => Source::Hints(batch.site),
            Prefetch::Block(_) => Source::Blocks,
        }
    }

    /// Whether the program is expected at higher addresses first.
    #[inline]
    pub fn is_downwards(&self) -> bool {
        matches!(self, Prefetch::Window(window) if window.step < 0)
    }
}

/// What a prefetcher that chooses by region has chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// To follow streams.
    Streams,
    /// To fetch objects of a few pages whole.
    Runs {
        /// Their median.
        pages: u32,
    },
}

/// Decides what to fetch before the program asks.
pub trait Prefetcher: Send {
    /// A request of `thread` for `page` reached the pager; returns the window to bring in after it, if any. The pager skips
    /// pages that are not remote (for [`Request::FirstTouch`]: not untouched).
    fn requested(&mut self, page: PageNo, request: Request, thread: Thread) -> Option<PrefetchWindow>;

    /// `page`, which was prefetched and waited unmapped, was dropped without a use; with those mapped beside it, `pages` pages were
    /// prefetched for nothing.
    fn wasted(&mut self, _page: PageNo, _pages: u32) {}

    /// A load of `pages` pages took `ns` nanoseconds; `local_pages` is the bound on local memory.
    fn loaded(&mut self, _pages: u32, _ns: u64, _local_pages: u64) {}

    /// The program has so many processors, which threads that fetch and evict use, too.
    fn has_processors(&mut self, _processors: usize) {}

    /// What it has chosen for the region that `page` lies in, if it chooses.
    fn choice(&self, _page: PageNo) -> Option<Choice> {
        None
    }

    /// Whether it follows walks in steps as far ahead as the link asks for: a program that names such pages too tells it nothing.
    fn follows_steps(&self) -> bool {
        false
    }

    /// What it knows of the link, if it wants to know.
    fn window_bound(&self) -> Option<WindowBound> {
        None
    }
}

/// A prefetcher whose windows may become larger or smaller while it works.
pub trait Bounded: Prefetcher {
    /// The largest window of far memory from now on, in pages; at least 1.
    fn limit(&mut self, window_pages_max: u32);

    /// Whether a page that comes for nothing costs the program more than a page that comes late.
    fn be_sparing(&mut self, _sparing: bool) {}
}
