//! Replays of LRU and MIN ([`hinterland_policy::Ideal`]), the references for the policies: all frames hold mapped pages, one page
//! leaves for each that comes, what leaves is written back at once, nothing is prefetched.

use crate::figures::Figures;
use crate::machine::REPORT_REFERENCES;
use crate::{Setup, Workload};
use hinterland_backend::{Direction, Link, Priority};
use hinterland_policy::{Ideal, NextUses};
use hinterland_units::PAGE_BYTES;

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Untouched,
    Local,
    /// Local, and far memory had its content when it came.
    LocalCopied,
    Remote,
}

/// Replays a workload over `frames` frames, at least one.
pub(crate) fn replay(
    work: &Workload,
    setup: &Setup,
    frames: u64,
    ideal: &mut dyn Ideal,
    progress: &mut dyn FnMut(u64),
) -> Figures {
    let next = NextUses::of(work.touches().iter().map(|touch| touch.slot));
    let mut figures = Figures { cpu_ns: work.cpu_ns(), ..Figures::default() };
    let mut places = vec![Place::default(); work.slots()];
    let mut left = vec![0_u32; work.slots()];
    let mut link: Link<bool> = Link::new(&setup.link);
    let mut local = 0;
    for (at, touch) in work.touches().iter().enumerate() {
        let slot = touch.slot as usize;
        let place = places[slot];
        if matches!(place, Place::Untouched | Place::Remote) {
            let now = touch.at_ns + figures.stalled_ns;
            while link.next_ns() <= now {
                link.step();
            }
            if local == frames {
                let slot = ideal.leave().expect("local pages can leave");
                let victim = slot as usize;
                left[victim] += 1;
                let dirty = places[victim] == Place::Local || setup.was_written(slot, left[victim]);
                places[victim] = Place::Remote;
                if dirty {
                    figures.evicted_dirty += 1;
                    link.submit(now, false, Direction::Out, PAGE_BYTES as u64, Priority::WriteBack);
                } else {
                    figures.evicted_clean += 1;
                }
            } else {
                local += 1;
            }
            figures.stalled_ns += setup.costs.fault_ns;
            if place == Place::Untouched {
                figures.first += 1;
                places[slot] = Place::Local;
            } else {
                figures.major += 1;
                figures.stalled_ns += fetch(&mut link, now) - now + setup.costs.major_extra_ns;
                places[slot] = Place::LocalCopied;
            }
        }
        ideal.touched(touch.slot, next.after(at));
        figures.references += 1;
        if (at + 1).is_multiple_of(REPORT_REFERENCES) {
            progress(figures.references);
        }
    }
    while link.next_ns() < u64::MAX {
        link.step();
    }
    progress(figures.references);
    figures.resident = figures.references - figures.first - figures.major;
    figures.local_peak = local;
    figures.link_bytes = link.bytes();
    figures
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

    fn played(pages: &[u32], frames: u64, ideal: &mut dyn Ideal) -> Figures {
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
