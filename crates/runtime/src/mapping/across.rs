//! Requests across an end of the far range: the part inside is ours, those outside are the kernel's, and each is asked for by itself.
//!
//! The kernel knows no such border. Calls that it answers from one mapping to the next (mprotect(2), mlock(2), madvise(2)) keep its order, so
//! where one fails, what lies before is done. Calls that it makes as a whole (munmap(2), mmap(2) with `MAP_FIXED`) are refused by us
//! and by it before anything of the far range changes.

use super::grow_across::{grow, grow_to};
use super::mmap::{MapRequest, map_part};
use super::{Outcome, apply, remap, seal, sync, unmap};
use crate::region_map::{self, FAR_RANGE, Kind, Run};
use hinterland_units::PAGE_BYTES;

/// A request's parts, as address and bytes: below the far range, inside it, above it. At least two are not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts([(usize, usize); 3]);

impl Parts {
    /// Of a range that lies across an end of the far range.
    pub fn new(address: usize, bytes: usize) -> Parts {
        let end = address + bytes;
        let part = |from: usize, to: usize| {
            let (from, to) = (address.max(from), end.min(to));
            (from, to.saturating_sub(from))
        };
        Parts([part(0, FAR_RANGE.start), part(FAR_RANGE.start, FAR_RANGE.end), part(FAR_RANGE.end, usize::MAX)])
    }

    pub(super) fn in_order(self) -> impl Iterator<Item = (usize, usize)> {
        self.0.into_iter().filter(|(_, bytes)| *bytes > 0)
    }

    /// What the kernel may refuse: the part above may lie above all addresses.
    pub(super) fn outside(self) -> impl Iterator<Item = (usize, usize)> {
        let [below, _, above] = self.0;
        [above, below].into_iter().filter(|(_, bytes)| *bytes > 0)
    }

    /// Makes a call for each part, in order, until one fails.
    pub fn in_turn(self, mut call: impl FnMut(usize, usize) -> Outcome) -> Outcome {
        self.in_order().try_for_each(|(address, bytes)| call(address, bytes).map(|_| ()))?;
        Ok(0)
    }

    /// The same for calls that go on behind a hole (`ENOMEM`) and tell of it at last.
    pub fn past_holes(self, call: impl Fn(usize, usize) -> Outcome) -> Outcome {
        let mut told = Ok(0);
        for (address, bytes) in self.in_order() {
            match call(address, bytes) {
                Err(libc::ENOMEM) => told = Err(libc::ENOMEM),
                other => {
                    other?;
                }
            }
        }
        told
    }

    /// The part inside, in pages.
    pub(super) fn inside(self) -> (u32, u32) {
        let (address, bytes) = self.0[1];
        (region_map::page_of(address), u32::try_from(bytes.div_ceil(PAGE_BYTES)).expect("it is inside the far range"))
    }
}

/// Whether a run was mapped by the program; the others it cannot mean, because natively they lie elsewhere.
pub(super) fn is_mapped(run: &Run) -> bool {
    matches!(run.attributes.kind, Kind::Mapping | Kind::Foreign)
}

/// munmap(2).
pub fn unmap_across(parts: Parts) -> Outcome {
    let (first, count) = parts.inside();
    seal::refuse(&region_map::lock(), first, count)?;
    for (address, bytes) in parts.outside() {
        unmap(address, bytes)?;
    }
    let mapped = region_map::lock().runs_in(first, count).into_iter().filter(is_mapped);
    for run in mapped {
        let (address, bytes) = apply::span(run);
        unmap(address, bytes)?;
    }
    Ok(0)
}

/// mmap(2) at a commanded place.
pub fn map_across(request: &MapRequest, parts: Parts) -> Outcome {
    let keeps = request.flags & libc::MAP_FIXED_NOREPLACE == libc::MAP_FIXED_NOREPLACE;
    {
        let (region_map, (first, count)) = (region_map::lock(), parts.inside());
        seal::refuse(&region_map, first, count)?;
        if keeps && !region_map.is_free(first, count) {
            return Err(libc::EEXIST);
        }
        if !region_map.runs_in(first, count).iter().all(is_mapped) {
            return Err(libc::ENOMEM);
        }
    }
    let mut made = Vec::with_capacity(3);
    for (address, bytes) in parts.outside().chain([parts.0[1]]) {
        let offset = request.offset.wrapping_add((address - request.address).cast_signed() as libc::off_t);
        let mapped = map_part(&MapRequest { address, bytes, offset, ..*request });
        if mapped.is_err() && keeps {
            // Just mapped, where nothing was.
            made.iter().try_for_each(|(address, bytes)| unmap(*address, *bytes).map(|_| ()))?;
        }
        mapped?;
        made.push((address, bytes));
    }
    Ok(request.address)
}

/// mremap(2) whose old or new place lies across an end.
pub fn remap_across(address: usize, old: usize, new: usize, flags: i32, new_address: usize) -> Outcome {
    sync(address, old, libc::MS_ASYNC).map_err(|_| libc::EFAULT)?; // Changes nothing, and tells of holes.
    let (old, new) = (old.next_multiple_of(PAGE_BYTES), new.next_multiple_of(PAGE_BYTES));
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let overlap = new_address < address + old && address < new_address.saturating_add(new);
    if fixed && (overlap || !new_address.is_multiple_of(PAGE_BYTES)) {
        return Err(libc::EINVAL);
    }
    if new < old {
        unmap(address + new, old - new)?;
    }
    match (fixed, new > old) {
        (true, true) => grow_to(address, old, new, new_address),
        (true, false) => move_in_pieces(address, new, flags, new_address),
        (false, false) if flags & libc::MREMAP_DONTUNMAP == 0 => Ok(address),
        (false, _) => grow(address, old, new, flags),
    }
}

/// To a commanded place: what lies on one side of an end there and here moves as one.
fn move_in_pieces(address: usize, bytes: usize, flags: i32, new_address: usize) -> Outcome {
    let ends = [FAR_RANGE.start, FAR_RANGE.end];
    let mut cuts: Vec<usize> =
        [address, new_address].iter().flat_map(|place| ends.map(|end| end.wrapping_sub(*place))).collect();
    cuts.retain(|cut| (1..bytes).contains(cut));
    cuts.extend([0, bytes]);
    cuts.sort_unstable();
    cuts.dedup();
    unmap(new_address, bytes)?;
    for piece in cuts.windows(2) {
        let (from, bytes) = (piece[0], piece[1] - piece[0]);
        remap(address + from, bytes, bytes, flags, new_address + from)?;
    }
    Ok(new_address)
}
