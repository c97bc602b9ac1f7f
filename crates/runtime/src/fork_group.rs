//! What other processes count of this one's memory: pages that are shared since a fork.
//!
//! `/proc/self/smaps` tells for each mapping how much is resident (`Rss`), and how much when a page that `n` processes map
//! counts `1/n` (`Pss`).

use crate::smaps;
use hinterland_pager::{FAR_BASE, FAR_PAGES, SharedBytes};
use hinterland_sys::{confinement, mem};
use hinterland_units::PAGE_BYTES;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

/// Looks at the far range, or at `all` that is the pager's; `None` in a process that may not look.
pub fn look(all: bool) -> Option<SharedBytes> {
    let look = || add_up(smaps::own()?, all, mem::is_own).ok();
    confinement::with_files(look).flatten()
}

const FAR_BYTES: usize = FAR_PAGES as usize * PAGE_BYTES;

/// Mappings come in the order of their addresses: what lies beyond the far range is read only for `all`. Files and shared memory
/// are nobody's.
fn add_up(smaps: impl BufRead, all: bool, is_own: impl Fn(usize) -> bool) -> io::Result<SharedBytes> {
    let mut far_elsewhere = 0;
    let (mut own, mut own_elsewhere) = (0, 0);
    smaps::for_each(smaps, |area| {
        if area.start >= FAR_BASE + FAR_BYTES && !all {
            return ControlFlow::Break(());
        }
        let elsewhere = area.rss - area.pss.min(area.rss);
        if area.shared || area.has_file {
        } else if area.start.wrapping_sub(FAR_BASE) < FAR_BYTES {
            far_elsewhere += elsewhere;
        } else if is_own(area.start) {
            (own, own_elsewhere) = (own + area.rss, own_elsewhere + elsewhere);
        }
        ControlFlow::Continue(())
    })?;
    Ok(SharedBytes { local_elsewhere: far_elsewhere, beside: all.then_some((own, own_elsewhere)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
480000000000-480000100000 rw-p 00000000 00:00 0 \nSize: 1024 kB\nRss: 1024 kB\nPss: 512 kB\nPss_Dirty: 512 kB\n\
480000200000-480000300000 rw-p 00000000 08:01 99 /file\nRss: 1024 kB\nPss: 512 kB\n\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \nRss: 40 kB\nPss: 10 kB\n\
7f0000200000-7f0000300000 rw-p 00000000 00:00 0 \nRss: 80 kB\nPss: 20 kB\n\
7f0000400000-7f0000500000 rw-p 00000000 00:00 0 \nRss: 80 kB\nPss: 20 kB\n";

    #[test]
    fn far_and_own_mappings_are_told_apart_from_the_programs_own() {
        let sums = |all| add_up(SMAPS.as_bytes(), all, |address| address == 0x7f00_0020_0000).unwrap();
        let kib = |n: u64| n * 1024;
        assert_eq!(sums(true), SharedBytes { local_elsewhere: kib(512), beside: Some((kib(80), kib(60))) });
        assert_eq!(sums(false), SharedBytes { local_elsewhere: kib(512), beside: None });
    }

    #[test]
    fn memory_that_no_child_has_counts_whole() {
        let _turn = crate::descriptors::IN_TURN.lock();
        smaps::open();
        let memory = mem::chunk::map_new(8 << 20).unwrap();
        let (start, len) = (memory.start, memory.len);
        // Tests beside this one may fork: their children have none of these pages.
        mem::advise(start, len, libc::MADV_DONTFORK).unwrap();
        // SAFETY: just mapped, for this test alone.
        unsafe { memory.as_ptr().write_bytes(7, len) };
        let sums = add_up(smaps::own().unwrap(), true, |address| address == start);
        // SAFETY: as above, and not used again.
        unsafe { mem::chunk::give_back(memory) };
        assert_eq!(sums.unwrap().beside, Some((8 << 20, 0)));
    }
}
