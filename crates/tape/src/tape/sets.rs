//! The sets of an unordered tape as bytes: ranges of pages, in ascending order.
//!
//! A block has a phase's number and ranges of it; a phase of many ranges has several blocks, one after the other. A range is two numbers:
//!
//! ```text
//!   (pages − 1) · 2; pages that lie between the range before it and this one, in the same region
//!   region · 2 + 1 instead: the next ranges are in this region, from its page 0 on
//! ```
//!
//! Every block starts from region 0, page 0.

use super::run::{CUT, region_of};
use crate::bytes::{Bytes, put};

/// A block is written once it has so many bytes.
const BLOCK_BYTES: usize = 32 << 10;

/// Consecutive pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PageRange {
    /// Region.
    pub region: u32,
    /// First page of it.
    pub first_page: u32,
    /// Pages, at least one.
    pub pages: u32,
}

impl PageRange {
    /// Behind its last page.
    fn end(&self) -> (u32, u64) {
        (self.region, u64::from(self.first_page) + u64::from(self.pages))
    }
}

/// The payloads of a phase's blocks. Its ranges are in ascending order, and apart.
pub fn encode(phase: u32, ranges: &[PageRange]) -> Vec<Vec<u8>> {
    let begin = || {
        let mut out = Vec::new();
        put(&mut out, phase.into());
        out
    };
    let (mut blocks, mut out, mut last) = (Vec::new(), begin(), (0, 0));
    for range in ranges {
        if out.len() >= BLOCK_BYTES {
            blocks.push(std::mem::replace(&mut out, begin()));
            last = (0, 0);
        }
        if range.region != last.0 {
            put(&mut out, u64::from(range.region) << 1 | 1);
            last = (range.region, 0);
        }
        put(&mut out, u64::from(range.pages - 1) << 1);
        put(&mut out, u64::from(range.first_page) - last.1);
        last = range.end();
    }
    blocks.push(out);
    blocks
}

/// Takes a block's ranges into the phases that were read before it.
///
/// # Errors
/// What makes no sense.
pub fn decode(payload: &[u8], regions: u32, phases: &mut Vec<Vec<PageRange>>) -> Result<(), &'static str> {
    let mut left = Bytes(payload);
    let number = left.small().ok_or(CUT)? as usize;
    if number == phases.len() {
        phases.push(Vec::new());
    } else if number + 1 != phases.len() {
        return Err("a phase is missing or comes twice");
    }
    let Some(phase) = phases.last_mut() else { return Err(CUT) };
    let mut last = (0, 0);
    while !left.is_empty() {
        let record = left.number().ok_or(CUT)?;
        if record & 1 == 1 {
            last = (region_of(record >> 1, regions)?, 0);
            continue;
        }
        let pages = u32::try_from((record >> 1) + 1).map_err(|_| "a range has too many pages")?;
        let first = left.number().ok_or(CUT)?.checked_add(last.1).and_then(|first| u32::try_from(first).ok());
        let range = PageRange {
            region: region_of(last.0.into(), regions)?,
            first_page: first.ok_or("a page lies outside its region")?,
            pages,
        };
        if range.end().1 > 1 << 32 {
            return Err("a range leaves its region");
        }
        if phase.last().is_some_and(|before| before.end() > (range.region, range.first_page.into())) {
            return Err("ranges of a phase are not in order");
        }
        last = range.end();
        phase.push(range);
    }
    Ok(())
}
