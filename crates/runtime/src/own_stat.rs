//! `/proc/self/stat` without threads of ours, which it counts (proc_pid_stat(5), field 20).
//!
//! What the program reads is a file that holds the line of the moment at which it was opened, under the number of the one that was opened.

use crate::mapping::{bits, kernel};
use crate::{descriptors, errno, on_near_stack};
use hinterland_sys::thread::SignalsBlocked;
use hinterland_sys::{confinement, thread};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// A line of the kernel's has less than half of it.
const LINE_BYTES_MAX: usize = 1024;

/// Whether a path ends as those of such files do.
pub fn may_be_named(path: &CStr) -> bool {
    let path = path.to_bytes();
    path == b"stat" || path.ends_with(b"/stat")
}

/// Has a descriptor of the program's name a file without threads of ours, if it names this process's. A process that is confined may not make
/// files.
pub fn leave_ours_out(descriptor: RawFd) {
    if crate::pager().is_none() || thread::ours() == 0 {
        return;
    }
    let _errno = errno::Preserved::new();
    // A handler could leave by a jump; and what is written may be more than the program may write (`RLIMIT_FSIZE`).
    let _signals = SignalsBlocked::new();
    // What the kernel writes to is near.
    on_near_stack(|| confinement::with_files(|| replace(descriptor)));
}

fn replace(descriptor: RawFd) -> Option<()> {
    let opened = status_of(descriptor, c"", libc::AT_EMPTY_PATH)?;
    // The number in a path may be that of another process, where `/proc` is of another PID namespace.
    let own = status_of(libc::AT_FDCWD, c"/proc/self/stat", 0)?;
    if (opened.st_dev, opened.st_ino) != (own.st_dev, own.st_ino) {
        return None;
    }
    let mut line = [0; LINE_BYTES_MAX];
    let (bytes, ours) = thread::beside_ours(|_| {
        kernel(libc::SYS_pread64, [bits(descriptor), line.as_mut_ptr().addr(), line.len(), 0, 0, 0])
    })?;
    let line = without(line.get(..bytes.ok()?)?, ours)?;
    let flags = kernel(libc::SYS_fcntl, [bits(descriptor), bits(libc::F_GETFD), 0, 0, 0, 0]).ok()?;
    let closes = if flags & bits(libc::FD_CLOEXEC) == 0 { 0 } else { libc::O_CLOEXEC };
    let file = file()?;
    let written = kernel(libc::SYS_pwrite64, [bits(file), line.as_ptr().addr(), line.len(), 0, 0, 0]);
    if written == Ok(line.len()) {
        let _ = kernel(libc::SYS_dup3, [bits(file), bits(descriptor), bits(closes), 0, 0, 0]);
    } else if written == Err(libc::EFBIG) {
        thread::take_pending(libc::SIGXFSZ);
    }
    descriptors::release(file);
    Some(())
}

/// An empty file, under a number that the program does not expect for its own.
fn file() -> Option<RawFd> {
    let made =
        kernel(libc::SYS_memfd_create, [c"stat".as_ptr().addr(), libc::MFD_CLOEXEC as usize, 0, 0, 0, 0]).ok()?;
    let protected = descriptors::protect(RawFd::try_from(made).ok()?);
    if protected.is_err() {
        let _ = kernel(libc::SYS_close, [made, 0, 0, 0, 0, 0]);
    }
    protected.ok()
}

/// The line with fewer threads: at least one is the program's. (A child of vfork has one thread and its parent's memory.)
fn without(line: &[u8], ours: u32) -> Option<Vec<u8>> {
    // The name, field 2, may hold anything but ends at the last parenthesis.
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = line[name_end..].splitn(20, |byte| *byte == b' ');
    let before = fields.by_ref().take(18).map(|field| field.len() + 1).sum::<usize>() + name_end;
    let counted = fields.next()?;
    let threads: u32 = std::str::from_utf8(counted).ok()?.parse().ok()?;
    let left = threads.saturating_sub(ours).max(1).to_string();
    Some([&line[..before], left.as_bytes(), &line[before + counted.len()..]].concat())
}

fn status_of(directory: RawFd, path: &CStr, flags: i32) -> Option<libc::stat> {
    // SAFETY: all zeros are a value of this structure.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let into = (&raw mut status).addr();
    kernel(libc::SYS_newfstatat, [bits(directory), path.as_ptr().addr(), into, bits(flags), 0, 0]).ok().map(|_| status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_threads_in_a_line_is_less_our_own() {
        let head = "17 (a) R 9 (b)) S 1 17 17 0 -1 4228108 9 0 0 0 1 2 0 0 20 0";
        let line = |threads: u32| format!("{head} {threads} 0 777 0 0 18446744073709551615\n").into_bytes();
        assert_eq!(without(&line(5), 4), Some(line(1)));
        assert_eq!(without(&line(14), 4), Some(line(10)));
        assert_eq!(without(&line(1), 4), Some(line(1)));
        assert_eq!(without(b"17 (a) S 1 17", 4), None);
    }

    #[test]
    fn paths_that_may_name_such_a_file() {
        assert!([c"/proc/self/stat", c"/proc/17/stat", c"stat"].iter().all(|path| may_be_named(path)));
        assert!(![c"/proc/self/status", c"/bin/lstat", c"/proc/stat/", c""].iter().any(|path| may_be_named(path)));
    }

    #[test]
    fn a_file_of_another_process_is_not_replaced() {
        let file = std::fs::File::open("/proc/1/stat").or_else(|_| std::fs::File::open("/dev/null")).unwrap();
        assert_eq!(replace(std::os::fd::AsRawFd::as_raw_fd(&file)), None);
    }
}
