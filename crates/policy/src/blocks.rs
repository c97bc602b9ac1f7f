//! Blocks: with the page that a thread waits for, the pages around it (DaeMon §4.2: pages and blocks, where the paper has lines and pages).
//!
//! ```text
//!   demand ──► its block is asked for, and not sent ──► the page buffer is emptier: the page alone; else both, in one load
//!         └──► it is not, and no other source asks for pages ──► the block buffer has room, and blocks pay in the region:
//!                                                               the page now, its block as bulk behind it; else the page alone
//! ```
//! A block is aligned; its size is bandwidth × delay of the link, from 16 KiB to 1 MiB, or as it is set (`--block`), 4 KiB to 2 MiB. The *block buffer* has room for twice as much, the
//! *page buffer* for as many pages as demands have lanes. Blocks pay where at least a quarter of the pages were used that came with the
//! last 16 blocks of a region. All of them wait unmapped, so that each use is seen. In a region where they do not pay, one demand in 128
//! has the smallest block, to find out whether they still do not; so has each of the first few demands.

use crate::REGION_PAGES;
use crate::contract::Block;
use hinterland_units::{LinkEstimate, PageNo};
use std::collections::VecDeque;

/// Pages of a block that has the size of bandwidth × delay: 16 KiB to 1 MiB.
const BLOCK_PAGES_MIN: u32 = 4;
const BLOCK_PAGES_MAX: u32 = 256;
/// Pages of a block whose size is set: up to 2 MiB, what a huge page has.
pub const SET_BLOCK_PAGES_MAX: u32 = 512;
/// The block buffer has room for so many times bandwidth × delay.
const DELAYS: u32 = 2;
/// Blocks of a region whose use counts.
const BLOCKS_COUNTED: usize = 16;
/// So many are known before a region is judged.
const BLOCKS_KNOWN: usize = 8;
/// So many pages of a hundred must be used; where the prefetcher asks for a window at the same demand, more.
const USED_PERCENT: u32 = 25;
const USED_BESIDE_PERCENT: u32 = 75;
/// Where blocks do not pay, one demand of so many has one.
const PROBE_EVERY: u32 = 128;
/// A block takes this part of local memory at most.
const LOCAL_PART: u64 = 128;
/// The same of one whose size is set, and the pages that it may have anyway: twice as many may wait unmapped (`paging::waiting_pages_max`), so the
/// pages of one block do not displace each other.
const SET_LOCAL_PART: u64 = 64;
const SET_ANYWAY: u32 = 32;
/// Regions that are known at once; those that are so many regions apart share a place.
const REGIONS: usize = 64;

/// How much comes to a thread that waits for a page (`--granularity`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Granularity {
    /// The page.
    #[default]
    Page,
    /// Its block, in one load.
    Block,
    /// The page, and its block behind it, if that has room.
    Both,
    /// As the selection unit says.
    Auto,
}

impl Granularity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Granularity::Page => "page",
            Granularity::Block => "block",
            Granularity::Both => "both",
            Granularity::Auto => "auto",
        }
    }

    /// The granularity of that name; `None`: there is none.
    pub fn named(name: &str) -> Option<Granularity> {
        Some(match name {
            "page" => Granularity::Page,
            "block" => Granularity::Block,
            "both" => Granularity::Both,
            "auto" => Granularity::Auto,
            _ => return None,
        })
    }
}

/// Which blocks come with pages that are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Blocks {
    /// How they come.
    pub granularity: Granularity,
    /// Pages of a block, a power of two up to [`SET_BLOCK_PAGES_MAX`]; `None`: as many as bandwidth × delay.
    pub pages: Option<u32>,
}

impl From<Granularity> for Blocks {
    fn from(granularity: Granularity) -> Blocks {
        Blocks { granularity, pages: None }
    }
}

/// What is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InFlight {
    /// Pages that threads wait for, beside the one that is looked at.
    pub demands: u32,
    /// Lanes that demands have: the size of the page buffer.
    pub lanes: u32,
    /// Pages of blocks that were asked for and have not come.
    pub block_pages: u32,
    /// A block that has the page is among them, and is not sent.
    pub is_asked: bool,
}

/// What a demand comes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DemandLoad {
    /// Nothing: it is asked for alone.
    Alone,
    /// The block that was asked for before, in one load.
    WithAsked,
    /// This block, in one load.
    With(Block),
}

/// What blocks have led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockStatistics {
    /// Blocks that were asked for.
    pub asked: u64,
    /// Pages that came with them.
    pub pages: u64,
    /// Of those, used.
    pub used: u64,
    /// Pages that were requested alone although their block was requested and not sent: the page buffer was emptier.
    pub page_first: u64,
    /// Blocks that were not asked for because the block buffer had no room.
    pub full: u64,
    /// Demands without a block because too few pages were used of those that came with the region's last ones.
    pub unused: u64,
    /// Pages of a block of full size, where one was last thought of; 0: none was.
    pub size: u32,
}

/// A block that has come.
#[derive(Clone, Copy)]
struct Came {
    block: Block,
    pages: u32,
    used: u32,
}

/// What is known of one region.
#[derive(Clone)]
struct Region {
    number: u32,
    /// The last ones, oldest first.
    blocks: VecDeque<Came>,
    /// Demands since the last block, while blocks do not pay.
    demands: u32,
}

impl Region {
    fn new(number: u32) -> Region {
        Region { number, blocks: VecDeque::new(), demands: 0 }
    }

    /// Whether blocks pay, beside a window or alone. `None`: it is not known yet.
    fn pays(&self, is_beside: bool) -> Option<bool> {
        let (came, used) =
            self.blocks.iter().fold((0, 0), |(came, used), block| (came + block.pages, used + block.used));
        let percent = if is_beside { USED_BESIDE_PERCENT } else { USED_PERCENT };
        (self.blocks.len() >= BLOCKS_KNOWN).then_some(used * 100 >= came * percent)
    }
}

/// See the module.
pub struct BlockSource {
    blocks: Blocks,
    /// By region number modulo their number.
    regions: Vec<Region>,
    statistics: BlockStatistics,
}

impl BlockSource {
    /// One that selects so.
    pub fn new(blocks: impl Into<Blocks>) -> BlockSource {
        let mut source =
            BlockSource { blocks: Blocks::default(), regions: Vec::new(), statistics: BlockStatistics::default() };
        source.set(blocks.into());
        source
    }

    /// Selects so from now on. What is known of regions stays: of how many pages of a block were used.
    pub fn set(&mut self, blocks: Blocks) {
        self.blocks = blocks;
        if !self.is_off() {
            self.regions.resize(REGIONS, Region::new(u32::MAX));
        }
    }

    /// How it selects.
    pub fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// It never asks for a block.
    pub fn is_off(&self) -> bool {
        self.blocks.granularity == Granularity::Page
    }

    /// Pages of a block.
    fn size(&mut self, link: &LinkEstimate, local_pages: u64) -> u32 {
        let size =
            self.blocks.pages.map_or_else(|| size(link, local_pages), |pages| bounded_block_pages(pages, local_pages));
        self.statistics.size = size;
        size
    }

    /// A thread waits for `page`, which no source has asked for, but perhaps with its block.
    pub fn choose_load(
        &mut self,
        page: PageNo,
        in_flight: InFlight,
        link: &LinkEstimate,
        local_pages: u64,
    ) -> DemandLoad {
        let InFlight { demands, lanes, block_pages, is_asked } = in_flight;
        let page_buffer_is_emptier = || {
            let block_buffer = room(link).max(1);
            u64::from(demands) * u64::from(block_buffer) < u64::from(block_pages) * u64::from(lanes)
        };
        let load = match self.blocks.granularity {
            Granularity::Page | Granularity::Both => DemandLoad::Alone,
            Granularity::Block if is_asked => DemandLoad::WithAsked,
            Granularity::Block => match self.size(link, local_pages) {
                1 => DemandLoad::Alone,
                pages => DemandLoad::With(self.ask(Block::around(page, pages))),
            },
            Granularity::Auto if is_asked && !page_buffer_is_emptier() => DemandLoad::WithAsked,
            Granularity::Auto => DemandLoad::Alone,
        };
        self.statistics.page_first += u64::from(is_asked && load == DemandLoad::Alone);
        load
    }

    /// A thread waits for `page`, which it has asked for: the block to be asked for. `is_beside`: the prefetcher asks for a window.
    pub fn demanded(
        &mut self,
        page: PageNo,
        is_beside: bool,
        block_pages: u32,
        link: &LinkEstimate,
        local_pages: u64,
    ) -> Option<Block> {
        let full = self.size(link, local_pages);
        // The page itself.
        if full == 1 {
            return None;
        }
        let smallest = full.min(BLOCK_PAGES_MIN);
        let pages = match self.blocks.granularity {
            Granularity::Page | Granularity::Block => return None,
            Granularity::Both => full,
            Granularity::Auto => match self.region(page).pays(is_beside) {
                Some(true) => full,
                None => smallest,
                Some(false) => {
                    let region = self.region(page);
                    region.demands += 1;
                    if region.demands < PROBE_EVERY {
                        self.statistics.unused += 1;
                        return None;
                    }
                    region.demands = 0;
                    smallest
                }
            },
        };
        let has_room = block_pages == 0 || block_pages + pages <= room(link);
        self.statistics.full += u64::from(!has_room);
        has_room.then(|| self.ask(Block::around(page, pages)))
    }

    fn ask(&mut self, block: Block) -> Block {
        self.statistics.asked += 1;
        block
    }

    /// So many pages of a block have come, all of it or a part.
    pub fn arrived(&mut self, block: Block, pages: u32) {
        self.statistics.pages += u64::from(pages);
        if self.is_off() || pages == 0 {
            return;
        }
        let blocks = &mut self.region(block.first).blocks;
        if let Some(known) = blocks.iter_mut().rev().find(|known| known.block == block) {
            known.pages += pages;
            return;
        }
        if blocks.len() == BLOCKS_COUNTED {
            blocks.pop_front();
        }
        blocks.push_back(Came { block, pages, used: 0 });
    }

    /// A page that came with a block is used.
    pub fn used(&mut self, page: PageNo) {
        self.statistics.used += 1;
        if self.is_off() {
            return;
        }
        let of = self.region(page).blocks.iter_mut().rev().find(|came| came.block.has(page));
        if let Some(came) = of {
            came.used = (came.used + 1).min(came.pages);
        }
    }

    /// What blocks have led to.
    pub fn statistics(&self) -> BlockStatistics {
        self.statistics
    }

    /// They count from here on: in the child of a fork.
    pub fn forget_figures(&mut self) {
        self.statistics = BlockStatistics::default();
    }

    fn region(&mut self, page: PageNo) -> &mut Region {
        let number = page.0 / REGION_PAGES;
        let region = &mut self.regions[number as usize % REGIONS];
        if region.number != number {
            *region = Region::new(number);
        }
        region
    }
}

/// Bandwidth × delay, in pages; 0: the link is not known.
fn in_delay(link: &LinkEstimate) -> u32 {
    let pages = link.best_ns().checked_div(link.page_ns()).unwrap_or(0);
    u32::try_from(pages).unwrap_or(u32::MAX).min(BLOCK_PAGES_MAX)
}

/// Pages of a block.
fn size(link: &LinkEstimate, local_pages: u64) -> u32 {
    let allowed = u32::try_from(local_pages / LOCAL_PART).unwrap_or(u32::MAX).max(BLOCK_PAGES_MIN);
    let largest = 1 << allowed.ilog2();
    in_delay(link).next_power_of_two().clamp(BLOCK_PAGES_MIN, BLOCK_PAGES_MAX).min(largest)
}

/// Pages of a block whose size is set, whatever it is set to: in a process that may have so many local pages.
pub fn bounded_block_pages(pages: u32, local_pages: u64) -> u32 {
    let allowed = u32::try_from(local_pages / SET_LOCAL_PART).unwrap_or(u32::MAX).max(SET_ANYWAY);
    1 << pages.min(allowed).clamp(1, SET_BLOCK_PAGES_MAX).ilog2()
}

/// Pages for which the block buffer has room: two of the smallest blocks at least.
fn room(link: &LinkEstimate) -> u32 {
    DELAYS * in_delay(link).max(BLOCK_PAGES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_units::PAGE_BYTES;

    const LOCAL: u64 = 1 << 20;

    fn link(delay_ns: u64, page_ns: u64) -> LinkEstimate {
        let mut link = LinkEstimate::new();
        for _ in 0..200 {
            for pages in [1, 8, 64] {
                link.sample(pages * PAGE_BYTES as u64, true, delay_ns + pages * page_ns);
            }
        }
        link
    }

    /// The block for a demand where nothing is on its way.
    fn demanded(blocks: &mut BlockSource, page: u32, link: &LinkEstimate) -> Option<Block> {
        blocks.demanded(PageNo(page), false, 0, link, LOCAL)
    }

    /// Blocks at far-apart places of one region, of each of which so many pages are used.
    fn learn(blocks: &mut BlockSource, from: u32, count: u32, used: u32, link: &LinkEstimate) -> u32 {
        let mut asked = 0;
        for at in from..from + count {
            let page = at * 64 % REGION_PAGES;
            let Some(block) = demanded(blocks, page + 1, link) else { continue };
            asked += 1;
            blocks.arrived(block, block.pages - 1);
            block.iter().skip(1).take(used as usize).for_each(|page| blocks.used(page));
        }
        asked
    }

    #[test]
    fn a_block_is_as_large_as_bandwidth_times_delay_and_aligned() {
        let size = |delay, page| size(&link(delay, page), LOCAL);
        assert_eq!([size(15_000, 3_277), size(5_000, 1_311), size(90_000, 8_192)], [8, 4, 16]);
        assert_eq!([size(200_000, 3_277), size(2_000_000, 3_277), size(0, 1_500)], [64, 256, 4]);
        assert_eq!(super::size(&link(2_000_000, 3_277), 4096), 32, "and takes no more than a part of local memory");
        assert_eq!(super::size(&LinkEstimate::new(), 100), 4, "an unknown link");
        let block = Block::around(PageNo(1027), 8);
        assert_eq!(
            (block.first, block.iter().collect::<Vec<_>>()[..3].to_vec()),
            (PageNo(1024), [1027, 1028, 1029].map(PageNo).to_vec())
        );
        assert_eq!(block.iter().map(|page| page.0).collect::<std::collections::BTreeSet<_>>(), (1024..1032).collect());
    }

    #[test]
    fn blocks_are_asked_for_while_a_quarter_of_their_pages_is_used() {
        let link = link(15_000, 3_277);
        for (used, asked) in [(0, 8), (3, 16)] {
            let mut blocks = BlockSource::new(Granularity::Auto);
            assert_eq!(learn(&mut blocks, 0, 16, used, &link), asked, "{used} of three pages of the first ones");
        }
        // Of seven pages one is too few, two are enough.
        for (used, pays) in [(1, false), (2, true)] {
            let mut blocks = BlockSource::new(Granularity::Auto);
            learn(&mut blocks, 0, 8, 3, &link);
            learn(&mut blocks, 8, 40, used, &link);
            assert_eq!(demanded(&mut blocks, 9000, &link).is_some(), pays, "{used} of 7");
        }
    }

    #[test]
    fn where_they_do_not_pay_one_demand_in_128_tries_and_they_come_back() {
        let link = link(15_000, 3_277);
        let mut blocks = BlockSource::new(Granularity::Auto);
        learn(&mut blocks, 0, 8, 0, &link);
        assert_eq!(learn(&mut blocks, 8, 1280, 0, &link), 10);
        let statistics =
            BlockStatistics { asked: 18, pages: 18 * 3, unused: 1270, size: 8, ..BlockStatistics::default() };
        assert_eq!(blocks.statistics(), statistics, "of the smallest ones");
        let needed = (1..).find(|_| {
            learn(&mut blocks, 0, 128, 3, &link);
            blocks.regions[0].pays(false) == Some(true)
        });
        assert!(needed.is_some_and(|tries| tries <= 8), "{needed:?}");
        assert_eq!(demanded(&mut blocks, 9000, &link).map(|block| block.pages), Some(8));
        assert!(demanded(&mut blocks, 5 * REGION_PAGES, &link).is_some_and(|block| block.pages == 4), "another region");
    }

    #[test]
    fn the_block_buffer_has_room_for_twice_bandwidth_times_delay() {
        let link = link(200_000, 3_277);
        let mut blocks = BlockSource::new(Granularity::Both);
        let mut pages = 0;
        while let Some(block) = blocks.demanded(PageNo(pages * 7), true, pages, &link, LOCAL) {
            pages += block.pages;
        }
        assert_eq!((pages, room(&link)), (64, 124), "62 pages are on their way in a delay; one block always fits");
        let BlockStatistics { asked, full, unused, .. } = blocks.statistics();
        assert_eq!((asked, full, unused), (1, 1, 0), "the second one is counted as refused");
    }

    #[test]
    fn a_demand_comes_with_its_block_where_the_page_buffer_is_not_emptier() {
        let link = link(15_000, 3_277);
        assert_eq!(room(&link), 10);
        let over = |granularity, lanes, demands, block_pages, is_asked| {
            let in_flight = InFlight { demands, lanes, block_pages, is_asked };
            BlockSource::new(granularity).choose_load(PageNo(9), in_flight, &link, LOCAL)
        };
        let choose_load =
            |granularity, demands, block_pages, is_asked| over(granularity, 8, demands, block_pages, is_asked);
        let of_auto = |demands, block_pages| choose_load(Granularity::Auto, demands, block_pages, true);
        assert_eq!(
            [of_auto(0, 8), of_auto(6, 8), of_auto(7, 8), of_auto(8, 8)],
            [DemandLoad::Alone, DemandLoad::Alone, DemandLoad::WithAsked, DemandLoad::WithAsked]
        );
        let on_lanes = |lanes, demands| over(Granularity::Auto, lanes, demands, 8, true);
        assert_eq!(
            [on_lanes(2, 1), on_lanes(2, 2), on_lanes(32, 25), on_lanes(32, 26)],
            [DemandLoad::Alone, DemandLoad::WithAsked, DemandLoad::Alone, DemandLoad::WithAsked],
            "as many threads as the path has room for"
        );
        assert_eq!(choose_load(Granularity::Auto, 8, 8, false), DemandLoad::Alone, "no source has asked for its block");
        let mut source = BlockSource::new(Granularity::Auto);
        for (demands, is_asked) in [(0, true), (6, true), (7, true), (0, false)] {
            source.choose_load(PageNo(9), InFlight { demands, lanes: 8, block_pages: 8, is_asked }, &link, LOCAL);
        }
        assert_eq!(source.statistics().page_first, 2, "of those whose block waits, the ones that come alone");
        assert_eq!(choose_load(Granularity::Block, 0, 8, true), DemandLoad::WithAsked);
        assert_eq!(choose_load(Granularity::Block, 0, 0, false), DemandLoad::With(Block::around(PageNo(9), 8)));
        assert_eq!(
            [Granularity::Page, Granularity::Both].map(|how| choose_load(how, 8, 8, true)),
            [DemandLoad::Alone; 2]
        );
    }

    #[test]
    fn a_block_has_the_size_that_is_set_and_leaves_room_for_a_second_one() {
        let link = link(15_000, 3_277);
        let asked = |pages, local| {
            let mut blocks = BlockSource::new(Blocks { granularity: Granularity::Both, pages: Some(pages) });
            blocks.demanded(PageNo(1027), false, 0, &link, local)
        };
        for (pages, local, expected) in
            [(2, LOCAL, 2), (64, LOCAL, 64), (512, LOCAL, 512), (512, 4096, 64), (512, 512, 32)]
        {
            assert_eq!(
                asked(pages, local),
                Some(Block::around(PageNo(1027), expected)),
                "{pages} pages, {local} local"
            );
        }
        assert_eq!(asked(1, LOCAL), None, "a block of one page is the page");
        let mut source = BlockSource::new(Blocks { granularity: Granularity::Block, pages: Some(1) });
        let in_flight = InFlight { demands: 0, lanes: 8, block_pages: 0, is_asked: false };
        assert_eq!(source.choose_load(PageNo(9), in_flight, &link, LOCAL), DemandLoad::Alone);
        source.set(Blocks { granularity: Granularity::Block, pages: Some(16) });
        assert_eq!(
            source.choose_load(PageNo(9), in_flight, &link, LOCAL),
            DemandLoad::With(Block::around(PageNo(9), 16))
        );
        source.set(Granularity::Block.into());
        assert_eq!(
            source.choose_load(PageNo(9), in_flight, &link, LOCAL),
            DemandLoad::With(Block::around(PageNo(9), 8))
        );
    }

    #[test]
    fn blocks_can_be_turned_on_and_off_and_on_again() {
        let link = link(15_000, 3_277);
        let mut blocks = BlockSource::new(Granularity::Page);
        assert!(blocks.is_off() && demanded(&mut blocks, 9, &link).is_none());
        blocks.set(Blocks { granularity: Granularity::Auto, pages: Some(32) });
        learn(&mut blocks, 0, 8, 0, &link);
        assert_eq!(demanded(&mut blocks, 9000, &link), None, "they do not pay");
        blocks.set(Granularity::Page.into());
        blocks.used(PageNo(1));
        assert!(blocks.is_off() && demanded(&mut blocks, 9, &link).is_none());
        blocks.set(Granularity::Auto.into());
        assert_eq!(demanded(&mut blocks, 9000, &link), None, "that is not forgotten");
        assert!(demanded(&mut blocks, 5 * REGION_PAGES, &link).is_some());
    }

    #[test]
    fn names_are_those_of_the_setting() {
        let all = ["page", "block", "both", "auto"].map(Granularity::named);
        assert_eq!(all, [Granularity::Page, Granularity::Block, Granularity::Both, Granularity::Auto].map(Some));
        assert!(all.into_iter().flatten().all(|one| Granularity::named(one.name()) == Some(one)));
        assert_eq!(Granularity::named("line"), None);
    }
}
