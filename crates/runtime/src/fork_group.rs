//! What other processes count of this one's memory: pages that are shared since a fork.
//!
//! `/proc/self/smaps` tells for each mapping how much is resident (`Rss`), and how much when a page that `n` processes map
//! counts `1/n` (`Pss`). The file is kept open under a protected number: a descriptor that came and went in the middle of the
//! program's life could get the number that the program expects for its own next file. It is opened inside a fork, where the
//! program opens nothing.

use crate::{descriptors, smaps};
use hinterland_pager::{FAR_BASE, FAR_PAGES, SharedBytes};
use hinterland_sys::mem;
use hinterland_units::PAGE_BYTES;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// This process's smaps; -1: not open.
static SMAPS: AtomicI32 = AtomicI32::new(-1);

/// Before a fork, in the parent: opens what looking at the children's part needs.
pub fn open() {
    if SMAPS.load(Relaxed) >= 0 {
        return;
    }
    // SAFETY: the path is a C string.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/proc/self/smaps".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
            0usize,
        )
    };
    // A process that gave its privileges up may not look: then it counts all that it holds.
    if let Ok(fd) = i32::try_from(fd)
        && fd >= 0
        && let Ok(kept) = descriptors::protect(fd)
    {
        SMAPS.store(kept, Relaxed);
    }
}

/// In the child of a fork: the parent's file tells of the parent.
pub fn open_in_child() {
    descriptors::release(SMAPS.swap(-1, Relaxed));
    open();
}

/// Looks at the far range, or at `all` that is the pager's.
pub fn look(all: bool) -> Option<SharedBytes> {
    let fd = SMAPS.load(Relaxed);
    if fd < 0 {
        return None;
    }
    add_up(BufReader::with_capacity(16 << 10, Smaps { fd, offset: 0 }), all, mem::is_own).ok()
}

/// The file from its beginning.
struct Smaps {
    fd: i32,
    offset: usize,
}

impl Read for Smaps {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `into` is writable for its length.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.fd, into.as_mut_ptr(), into.len(), self.offset) };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        self.offset += read;
        Ok(read)
    }
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
200000000000-200000100000 rw-p 00000000 00:00 0 \nSize: 1024 kB\nRss: 1024 kB\nPss: 512 kB\nPss_Dirty: 512 kB\n\
200000200000-200000300000 rw-p 00000000 08:01 99 /file\nRss: 1024 kB\nPss: 512 kB\n\
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
    fn a_process_that_never_forked_counts_all_of_its_private_memory() {
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::open(c"/proc/self/smaps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        let memory = vec![7u8; 8 << 20];
        let address = memory.as_ptr().addr();
        let smaps = BufReader::new(Smaps { fd, offset: 0 });
        let sums = add_up(smaps, true, |start| address.wrapping_sub(start) < 64 << 20).unwrap();
        assert!(sums.beside.is_some_and(|(own, elsewhere)| own >= 8 << 20 && elsewhere == 0), "{sums:?}");
    }
}
