//! How content comes to its new place when an mremap(2) moves far memory: as pages, without being fetched.
//!
//! Pages move between places that may both be written to. Where a limit on writable memory leaves room for both, they become so at once; else in steps, so that
//! a mapping grows by a move with as much writable memory as natively, and a step:
//!
//! ```text
//! new place  tail open | step open                | ...
//! old place            |           step closed    |     ... freed
//! ```
//! Another thread that touches the old place meanwhile finds nothing there, as after the call. A step that is refused takes the others back; what then
//! cannot go back ends the program, because its mapping would lie in two places.

use super::mremap::Move;
use super::{Outcome, apply, bits, kernel};
use crate::Pager;
use crate::memory_limit::{self, Account};
use crate::region_map::{self, Attributes, Locked, RegionMap, Run};
use hinterland_units::{PAGE_BYTES, PageNo};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Pages of a step: a part of what is kept of a limit for the pager, and as many as the pager moves at once.
const STEP_PAGES: u32 = 1024;

/// Moves content to `new`, where a run was just placed, over what is left there, and frees the old run. From the move on nothing is an error
/// any more: the program finds its content at the new place.
pub(super) fn carry(region_map: &mut RegionMap, wanted: Move, attributes: Attributes, new: u32) -> Outcome {
    let Move { old, old_count, new_count, keeps_old, .. } = wanted;
    let pager = crate::pager().ok_or(libc::ENOMEM)?;
    if attributes.locked != Locked::No {
        pager.unlock(PageNo(old), old_count).map_err(|e| apply::errno_of(&e))?;
        region_map.update(old, old_count, |a| a.locked = Locked::No);
    }
    let kept = old_count.min(new_count);
    let at_once = keeps_old || fit_together(region_map, new_count, kept, attributes);
    let mut places = Places { pager, region_map, protection: attributes.protection };
    let moved = if at_once { places.move_at_once(wanted, new) } else { places.move_in_steps(wanted, new) };
    if let Err(errno) = moved {
        apply::clear(region_map, new, new_count)?;
        let _ = restore_fork_rule(Run { first: old, count: old_count, attributes });
        return Err(errno);
    }
    pager.discard(PageNo(new + kept), new_count - kept);
    if !keeps_old {
        // What cannot be unmapped stays, without content.
        let _ = apply::clear(region_map, old, old_count);
    }
    let moved = Run { first: new, count: new_count, attributes };
    let _ = restore_fork_rule(moved);
    if apply::lock(moved).is_ok() {
        region_map.update(new, new_count, |a| a.locked = attributes.locked);
    }
    Ok(region_map::address_of(new))
}

/// Whether the limits on writable memory leave room for the new place, writable, beside the old one.
fn fit_together(region_map: &RegionMap, new_count: u32, kept: u32, attributes: Attributes) -> bool {
    let opened = if attributes.protection & libc::PROT_WRITE != 0 { 0 } else { kept as usize };
    let data = (new_count as usize + opened) * PAGE_BYTES;
    memory_limit::check_in(region_map, |_| Account { address_space: 0, data }).is_ok()
}

/// Tells the kernel at the new place what it knew at the old one.
pub(super) fn restore_fork_rule(run: Run) -> Result<(), i32> {
    let (address, bytes) = apply::span(run);
    advise_as(run.attributes, address, bytes)
}

/// Gives memory anywhere what the kernel keeps of a run's attributes where the run is ours.
pub(super) fn advise_as(attributes: Attributes, address: usize, bytes: usize) -> Result<(), i32> {
    let advice = attributes.wiped.then_some(libc::MADV_WIPEONFORK);
    for advice in advice.into_iter().chain(attributes.undumped.then_some(libc::MADV_DONTDUMP)) {
        kernel(libc::SYS_madvise, [address, bytes, bits(advice), 0, 0, 0])?;
    }
    Ok(())
}

/// The old and the new place of a mapping that moves.
struct Places<'a> {
    pager: &'static Pager,
    region_map: &'a mut RegionMap,
    /// Which the mapping has at either.
    protection: i32,
}

impl Places<'_> {
    fn protect(&self, first: u32, count: u32, protection: i32) -> Result<(), i32> {
        if protection != libc::PROT_NONE {
            memory_limit::check_tables(self.pager, first, count, 0)?;
        }
        self.pager.protect(PageNo(first), count, protection).map_err(|e| apply::errno_of(&e))
    }

    fn is_plain(&self) -> bool {
        self.protection == READ_WRITE
    }

    /// Gives pages that were opened for a move their protection again. Where that is refused they stay open.
    fn close(&mut self, first: u32, count: u32) {
        if !self.is_plain() && self.protect(first, count, self.protection).is_err() {
            self.region_map.update(first, count, |a| a.protection = READ_WRITE);
        }
    }

    /// Both places are open meanwhile.
    fn move_at_once(&mut self, wanted: Move, new: u32) -> Result<(), i32> {
        let Move { old, new_count, .. } = wanted;
        let kept = wanted.old_count.min(new_count);
        self.protect(new, new_count, READ_WRITE)?;
        if !self.is_plain() {
            self.protect(old, kept, READ_WRITE)?;
        }
        self.pager.relocate(PageNo(old), PageNo(new), kept);
        self.close(new, new_count);
        self.close(old, kept);
        Ok(())
    }

    /// One step of either is open meanwhile, beside what the mapping has.
    fn move_in_steps(&mut self, wanted: Move, new: u32) -> Result<(), i32> {
        let Move { old, old_count, new_count, .. } = wanted;
        let kept = old_count.min(new_count);
        let tail = |places: &Self, protection| match new_count - kept {
            0 => Ok(()),
            more => places.protect(new + kept, more, protection),
        };
        tail(self, self.protection)?;
        let moved = in_steps(kept, |way, first, count| match way {
            Way::There => self.move_step(old + first, new + first, count),
            Way::Back => {
                // Room for the step.
                let _ = tail(self, libc::PROT_NONE);
                self.move_step(new + first, old + first, count)
            }
        });
        moved.map_err(|refused| {
            if refused == Refused::Between {
                self.pager.end_with(
                    "a mapping that moves (mremap) has reached the limit on writable memory (ulimit -d), and cannot go back: \
                     give more",
                );
            }
            libc::ENOMEM
        })
    }

    fn move_step(&mut self, from: u32, to: u32, count: u32) -> Result<(), i32> {
        self.protect(to, count, READ_WRITE)?;
        if !self.is_plain()
            && let Err(errno) = self.protect(from, count, READ_WRITE)
        {
            let _ = self.protect(to, count, libc::PROT_NONE);
            return Err(errno);
        }
        self.pager.relocate(PageNo(from), PageNo(to), count);
        // Without content; where this is refused it counts until the old place is freed.
        let _ = self.protect(from, count, libc::PROT_NONE);
        self.close(to, count);
        Ok(())
    }
}

/// Where a step goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    There,
    Back,
}

/// What a refused step leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refused {
    /// Everything is where it was.
    Whole,
    /// Some of it is there, and cannot go back.
    Between,
}

/// Moves `count` pages step by step (which way, first page, pages); where one is refused, those before it go back.
fn in_steps(count: u32, mut step: impl FnMut(Way, u32, u32) -> Result<(), i32>) -> Result<(), Refused> {
    let mut done = 0;
    while done < count {
        if step(Way::There, done, STEP_PAGES.min(count - done)).is_err() {
            break;
        }
        done += STEP_PAGES.min(count - done);
    }
    if done == count {
        return Ok(());
    }
    while done > 0 {
        done -= STEP_PAGES;
        step(Way::Back, done, STEP_PAGES).map_err(|_| Refused::Between)?;
    }
    Err(Refused::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Moves pages, of which those are refused, on the way there or back, that `refuses` says; returns how it ends, and which are there.
    fn moved(count: u32, refuses: impl Fn(Way, u32) -> bool) -> (Result<(), Refused>, BTreeSet<u32>) {
        let mut there = BTreeSet::new();
        let outcome = in_steps(count, |way, first, pages| {
            assert!(pages > 0 && pages <= STEP_PAGES && first + pages <= count);
            if refuses(way, first) {
                return Err(libc::ENOMEM);
            }
            for page in first..first + pages {
                assert!(if way == Way::There { there.insert(page) } else { there.remove(&page) }, "page {page}");
            }
            Ok(())
        });
        (outcome, there)
    }

    #[test]
    fn a_mapping_moves_in_steps_and_is_whole_where_one_is_refused() {
        for count in [1, STEP_PAGES - 1, STEP_PAGES, STEP_PAGES + 1, 3 * STEP_PAGES, 5 * STEP_PAGES + 7] {
            let all: BTreeSet<u32> = (0..count).collect();
            assert_eq!(moved(count, |_, _| false), (Ok(()), all), "{count} pages");
            for refused in (0..count).step_by(STEP_PAGES as usize) {
                let outcome = moved(count, |way, first| way == Way::There && first == refused);
                assert_eq!(outcome, (Err(Refused::Whole), BTreeSet::new()), "{count} pages, refused at {refused}");
            }
        }
        let both_ways = |_, first| first == 2 * STEP_PAGES;
        let (outcome, _) = moved(4 * STEP_PAGES, |way, first| both_ways(way, first) || way == Way::Back && first == 0);
        assert_eq!(outcome, Err(Refused::Between));
        assert_eq!(moved(0, |_, _| true), (Ok(()), BTreeSet::new()));
    }
}
