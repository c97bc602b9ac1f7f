//! Replays of LRU and MIN ([`hinterland_policy::Ideal`]), the references for the policies: all frames hold mapped pages, one page
//! leaves for each that comes, what leaves is written back at once, nothing is prefetched.

use crate::machine::REPORT_REFERENCES;
use crate::page::{Marks, Page, State};
use crate::replay_stats::ReplayStats;
use crate::workload::Lost;
use crate::{Setup, Touch, Workload};
use hinterland_backend::{Direction, Link, Priority};
use hinterland_policy::{Ideal, NextUses};
use hinterland_units::PAGE_BYTES;

/// Replays a workload over `frames` frames, at least one.
pub(crate) fn replay(
    work: &Workload,
    setup: &Setup,
    frames: u64,
    ideal: &mut dyn Ideal,
    progress: &mut dyn FnMut(u64),
) -> ReplayStats {
    let next = next_uses(work);
    let mut figures = ReplayStats { cpu_ns: work.cpu_ns(), ..ReplayStats::default() };
    // `Resident`, `Remote` or `Untouched`.
    let mut pages = work.pages();
    let mut lost = work.lost().iter().peekable();
    let mut link: Link<bool> = Link::new(&setup.link);
    let mut local = 0;
    for (at, touch) in work.touches().iter().enumerate() {
        while let Some(lost) = lost.next_if(|lost| lost.before as usize <= at) {
            local -= u64::from(lose(&mut pages[lost.slot as usize], lost, ideal));
        }
        let (State::Untouched | State::Remote) = pages[touch.slot as usize].state else {
            pages[touch.slot as usize].note_use(touch.written);
            note(&mut figures, ideal, touch, next.after(at), progress);
            continue;
        };
        let now = touch.at_ns + figures.stalled_ns;
        while link.next_ns() <= now {
            link.step();
        }
        if local == frames {
            let slot = ideal.leave().expect("local pages can leave");
            evict(&mut pages[slot as usize], setup, slot, &mut figures, || {
                link.submit(now, false, Direction::Out, PAGE_BYTES as u64, Priority::WriteBack);
            });
        } else {
            local += 1;
        }
        figures.local_peak = figures.local_peak.max(local);
        figures.stalled_ns += setup.costs.fault_ns;
        let page = &mut pages[touch.slot as usize];
        if page.state == State::Untouched {
            figures.first += 1;
        } else {
            figures.major += 1;
            figures.stalled_ns += fetch(&mut link, now) - now + setup.costs.major_extra_ns;
            page.marks.set(Marks::COPIED, true);
        }
        page.state = State::Resident;
        page.note_use(touch.written);
        note(&mut figures, ideal, touch, next.after(at), progress);
    }
    while link.next_ns() < u64::MAX {
        link.step();
    }
    progress(figures.references);
    figures.resident = figures.references - figures.first - figures.major;
    figures.link_bytes = link.bytes();
    figures
}

fn note(figures: &mut ReplayStats, ideal: &mut dyn Ideal, touch: &Touch, next: u32, progress: &mut dyn FnMut(u64)) {
    ideal.touched(touch.slot, next);
    figures.references += 1;
    if figures.references.is_multiple_of(REPORT_REFERENCES as u64) {
        progress(figures.references);
    }
}

/// A local page leaves; `store` is called when it is written back.
fn evict(page: &mut Page, setup: &Setup, slot: u32, figures: &mut ReplayStats, store: impl FnOnce()) {
    page.taken += 1;
    if page.is_zero() {
        (page.state, page.marks) = (State::Untouched, Marks::default());
        figures.evicted_zero += 1;
        return;
    }
    if page.is_dirty(setup, slot) {
        figures.evicted_dirty += 1;
        store();
    } else {
        figures.evicted_clean += 1;
    }
    page.state = State::Remote;
    page.stored();
}

/// A page loses its content, if it loses it; whether a frame is free.
fn lose(page: &mut Page, lost: &Lost, ideal: &mut dyn Ideal) -> bool {
    let was_local = page.state == State::Resident;
    if was_local && !lost.takes_frame {
        return false;
    }
    ideal.remove(lost.slot);
    (page.state, page.marks) = (State::Untouched, Marks::default());
    was_local
}

/// The next touch of what a page has; what is lost with its frame is not touched again.
fn next_uses(work: &Workload) -> NextUses {
    let (mut uses, mut lost) = (NextUses::default(), work.lost().iter().peekable());
    for (at, touch) in work.touches().iter().enumerate() {
        while let Some(lost) = lost.next_if(|lost| lost.before as usize <= at) {
            if lost.takes_frame {
                uses.cut(lost.slot);
            }
        }
        assert!(uses.push(touch.slot), "a workload has no more than {} touches", NextUses::TOUCHES_MAX);
    }
    uses.end();
    uses
}

/// Carries one page for the program; returns when it is there.
fn fetch(link: &mut Link<bool>, now: u64) -> u64 {
    link.submit(now, true, Direction::In, PAGE_BYTES as u64, Priority::Demand);
    loop {
        let at = link.next_ns();
        if link.step() == Some(true) {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Costs, Duplex, LinkModel, LinkShare, pages_in_order};
    use hinterland_policy::Lru;
    use hinterland_units::{Budget, ByteCount};

    /// A page takes 100 ns on the link and 1000 ns more, a fault 10 ns, a major one 5 more.
    fn setup() -> Setup {
        let link = LinkModel {
            name: "test".into(),
            latency_ns: 1_000,
            bits_per_second: 327_680_000_000,
            duplex: Duplex::Half,
            share: LinkShare::Strict,
        };
        let costs = Costs { fault_ns: 10, major_extra_ns: 5, ..Costs::of(crate::FaultPath::Inline) };
        Setup { costs, ..Setup::new(Budget::Bytes(ByteCount(0)), link) }
    }

    fn played(pages: &[u32], frames: u64, ideal: &mut dyn Ideal) -> ReplayStats {
        let work = pages_in_order(pages.iter().copied(), 1_000_000).unwrap();
        replay(&work, &setup(), frames, ideal, &mut |_| {})
    }

    #[test]
    fn times_are_those_of_the_single_steps() {
        // 0 and 1 arrive, 2 drives 0 out, 0 drives 1 out and is fetched.
        let figures = played(&[0, 1, 2, 0], 2, &mut Lru::new());
        assert_eq!((figures.first, figures.major, figures.evicted_dirty), (3, 1, 2));
        // Its own victim is asked for first, but demand overtakes: 100 + 1000 on the link.
        assert_eq!(figures.stalled_ns, 4 * 10 + 5 + 1_100);
        assert_eq!((figures.link_bytes, figures.cpu_ns), (3 * 4096, 4_000_000));
        assert_eq!(figures.local_peak, 2);
    }
}
