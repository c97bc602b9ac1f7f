//! Consecutive pages as one: what changes from page to page by the same steps.

use super::records::{How, Uses};
use crate::INDEX_MAX;
use crate::bytes::{Bytes, put, unzigzag, zigzag};
use hinterland_policy::NEVER;

/// Pages of one record at most: 16 MiB.
const RUN_PAGES_MAX: u32 = 4096;

/// What a run has beside pages and positions, and how it goes on from page to page.
pub trait Detail: Copy + PartialEq {
    type Step: Copy + std::fmt::Debug + Default;

    /// From `self` to the next page's, or to that of any later one; `None`: it is of another run.
    fn step_to(self, next: Self) -> Option<Self::Step>;

    /// That of the page at `index`.
    fn after(self, index: u32, step: Self::Step) -> Self;
}

/// How pages arrive: the same for all of a run.
impl Detail for How {
    type Step = ();

    fn step_to(self, next: How) -> Option<()> {
        (self == next).then_some(())
    }

    fn after(self, _index: u32, (): ()) -> How {
        self
    }
}

/// Positions of last and next uses: each goes on by its own step.
impl Detail for Uses {
    type Step = (i64, i64);

    fn step_to(self, next: Uses) -> Option<(i64, i64)> {
        let never = (self.next_use == NEVER, next.next_use == NEVER);
        let by = |one: u32, other: u32| i64::from(other) - i64::from(one);
        (never.0 == never.1).then(|| (by(self.last_use, next.last_use), by(self.next_use, next.next_use)))
    }

    #[inline]
    fn after(self, index: u32, (last, next): (i64, i64)) -> Uses {
        let by = |from: u32, step: i64| u32::try_from(i64::from(from) + step * i64::from(index)).unwrap_or(NEVER);
        Uses { last_use: by(self.last_use, last), next_use: by(self.next_use, next) }
    }
}

/// One or several pages with equal steps.
#[derive(Clone, Copy, Debug)]
pub struct Run<D: Detail> {
    pub detail: D,
    pub region: u32,
    pub first_page: u32,
    pub first_position: u32,
    pub pages: u32,
    /// From page to page, once there are two.
    pub down: bool,
    /// From position to position, once there are two.
    pub stride: u32,
    /// From detail to detail, once there are two.
    pub step: D::Step,
}

impl<D: Detail> Run<D> {
    pub fn of_one(detail: D, region: u32, page: u32, position: u32) -> Run<D> {
        let step = D::Step::default();
        Run { detail, region, first_page: page, first_position: position, pages: 1, down: false, stride: 1, step }
    }

    #[inline]
    pub fn detail(&self, index: u32) -> D {
        self.detail.after(index, self.step)
    }

    #[inline]
    pub fn page(&self, index: u32) -> u32 {
        if self.down { self.first_page.wrapping_sub(index) } else { self.first_page.wrapping_add(index) }
    }

    #[inline]
    pub fn position(&self, index: u32) -> u32 {
        self.first_position.wrapping_add(index.wrapping_mul(self.stride))
    }

    /// Takes another page in, if it continues the run.
    pub fn continues(&mut self, detail: D, region: u32, page: u32, position: u32) -> bool {
        let Some(step) = self.detail.step_to(detail) else { return false };
        if region != self.region || self.pages == RUN_PAGES_MAX {
            return false;
        }
        if self.pages == 1 {
            let down = Some(page) == self.first_page.checked_sub(1);
            if !down && Some(page) != self.first_page.checked_add(1) {
                return false;
            }
            (self.down, self.stride, self.step) = (down, position - self.first_position, step);
        } else {
            let next = i64::from(self.page(self.pages - 1)) + if self.down { -1 } else { 1 };
            let at = u64::from(self.position(self.pages - 1)) + u64::from(self.stride);
            if i64::from(page) != next || u64::from(position) != at || detail != self.detail(self.pages) {
                return false;
            }
        }
        self.pages += 1;
        true
    }
}

/// What both sides know in the middle of a part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Last {
    pub region: u32,
    /// The page behind the last one.
    pub page: u32,
    /// The position behind the last one.
    pub position: u32,
}

impl Last {
    pub fn put_place<D: Detail>(&self, out: &mut Vec<u8>, run: &Run<D>) {
        put(out, zigzag(i64::from(run.first_page) - i64::from(self.page)));
        put(out, u64::from(run.first_position - self.position));
    }

    pub fn take_place(&self, left: &mut Bytes<'_>) -> Result<(u32, u32), &'static str> {
        let page = i64::from(self.page).wrapping_add(unzigzag(left.number().ok_or(CUT)?));
        let page = u32::try_from(page).map_err(|_| "a page lies outside its region")?;
        let ahead = left.number().ok_or(CUT)?;
        let position = u64::from(self.position).checked_add(ahead).and_then(|at| u32::try_from(at).ok());
        Ok((page, position.filter(|at| *at < NEVER - 1).ok_or("a position is too large")?))
    }

    /// Goes behind a run; an error where it leaves its region or the positions.
    pub fn pass<D: Detail>(&mut self, run: &Run<D>) -> Result<(), &'static str> {
        let (steps, last) = (u64::from(run.pages - 1), run.page(run.pages - 1));
        let inside = if run.down { steps <= run.first_page.into() } else { last >= run.first_page };
        let end = u64::from(run.first_position) + steps * u64::from(run.stride);
        let end = u32::try_from(end).ok().filter(|end| *end < NEVER - 1);
        let (true, Some(end)) = (inside, end) else { return Err("a record leaves its region") };
        (self.region, self.page, self.position) = (run.region, last.wrapping_add(1), end + 1);
        Ok(())
    }
}

pub const CUT: &str = "a record is cut off";

/// Pages and direction as one number.
pub fn put_shape<D: Detail>(out: &mut Vec<u8>, run: &Run<D>, low_bits: u32, kind: u64) {
    put(out, (u64::from(run.pages - 1) << 1 | u64::from(run.down)) << low_bits | kind);
}

pub fn put_stride<D: Detail>(out: &mut Vec<u8>, run: &Run<D>) {
    if run.pages > 1 {
        put(out, u64::from(run.stride - 1));
    }
}

pub fn take_stride(left: &mut Bytes<'_>, pages: u32) -> Result<u32, &'static str> {
    if pages == 1 {
        return Ok(1);
    }
    left.small().and_then(|stride| stride.checked_add(1)).ok_or("a distance is too large")
}

pub fn shape(value: u64) -> Result<(u32, bool), &'static str> {
    let pages =
        u32::try_from(value >> 1).ok().filter(|pages| *pages < RUN_PAGES_MAX).ok_or("a record has too many pages")?;
    Ok((pages + 1, value & 1 == 1))
}

pub fn region_of(value: u64, regions: u32) -> Result<u32, &'static str> {
    u32::try_from(value).ok().filter(|region| *region < regions.min(INDEX_MAX)).ok_or("a region was never declared")
}
