//! The census: the process's memory by kind, as the kernel sees it.
//!
//! Reads `/proc/self/smaps` and adds up what is not managed, by kind. The peak of each kind is kept.
//!
//! That costs 35 ms in a process of 1 GiB with a quarter local (one look, Linux 6.18), most of it in the compressed store: more
//! than all else that a forked child does which ends at once. A child that lives for less than [`CHILD_LIFE_MIN`] is therefore not looked
//! at. What it would add is its parent's: the same pages, still shared.

use crate::smaps::{self, Area};
use hinterland_abi::ProcessRow;
use hinterland_pager::{FAR_BASE, FAR_PAGES};
use hinterland_sys::{confinement, mem, thread};
use hinterland_units::PAGE_BYTES;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The shortest life of a forked child that is looked at.
const CHILD_LIFE_MIN: Duration = Duration::from_secs(1);

/// Sums over all mappings.
#[derive(Default, PartialEq, Eq, Debug)]
struct Sums {
    unmanaged_anonymous: u64,
    stacks: u64,
    own: u64,
    file: u64,
    shared: u64,
}

/// Takes a census of this process; `tables_bytes` of the pager's tables live in the ordinary heap.
pub fn take(row: &ProcessRow, tables_bytes: u64) {
    let life = thread::since_boot().saturating_sub(Duration::from_nanos(row.taken_ns.load(Relaxed)));
    if row.forked.load(Relaxed) == 1 && life < CHILD_LIFE_MIN {
        return;
    }
    let look = || Some(add_up(smaps::own()?, mem::is_own));
    let Some(sums) = confinement::with_files(look).flatten() else { return };
    let own = sums.own + tables_bytes;
    row.own_bytes.fetch_max(own, Relaxed);
    row.unmanaged_anonymous_bytes.fetch_max(sums.unmanaged_anonymous.saturating_sub(tables_bytes), Relaxed);
    row.unmanaged_stack_bytes.fetch_max(sums.stacks, Relaxed);
    row.file_bytes.fetch_max(sums.file, Relaxed);
    row.shared_bytes.fetch_max(sums.shared, Relaxed);
}

fn add_up(smaps: impl BufRead, is_own: impl Fn(usize) -> bool) -> Sums {
    let mut sums = Sums::default();
    // What could be read before an error counts.
    let _ = smaps::for_each(smaps, |area| {
        count(&mut sums, area, &is_own);
        ControlFlow::Continue(())
    });
    sums
}

fn count(sums: &mut Sums, area: &Area, is_own: impl Fn(usize) -> bool) {
    if area.start.wrapping_sub(FAR_BASE) < FAR_PAGES as usize * PAGE_BYTES {
        return;
    }
    match (area.shared, is_own(area.start)) {
        // A view of a memory node's slab: the node's memory.
        (true, true) => {}
        (true, false) => sums.shared += area.rss,
        (false, true) => sums.own += area.anonymous,
        (false, false) => {
            sums.unmanaged_anonymous += area.anonymous;
            sums.file += area.rss - area.anonymous.min(area.rss);
            if area.is_stack {
                sums.stacks += area.anonymous;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
480000000000-480000100000 rw-p 00000000 00:00 0 \nRss: 1024 kB\nAnonymous: 1024 kB\n\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \nRss: 40 kB\nAnonymous: 40 kB\n\
7f0000200000-7f0000300000 r-xp 00000000 08:01 99 /lib/libc.so\nRss: 500 kB\nAnonymous: 8 kB\n\
7f0000400000-7f0000500000 rw-s 00000000 00:01 7 /memfd:x\nRss: 16 kB\nAnonymous: 0 kB\n\
7f0000600000-7f0000800000 r--s 00000000 00:01 8 /memfd:hinterland-slab (deleted)\nRss: 48 kB\nAnonymous: 0 kB\n\
7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0 [stack]\nRss: 20 kB\nAnonymous: 20 kB\n";

    #[test]
    fn every_kind_is_counted_once() {
        let sums = add_up(SMAPS.as_bytes(), |address| [0x7f00_0000_0000, 0x7f00_0060_0000].contains(&address));
        let kib = |n: u64| n * 1024;
        let expected =
            Sums { unmanaged_anonymous: kib(28), stacks: kib(20), own: kib(40), file: kib(492), shared: kib(16) };
        assert_eq!(sums, expected);
    }
}
