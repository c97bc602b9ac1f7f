//! Which forked relatives may still read slots of this process's file.
//!
//! ```text
//!  fork ──► generation: the slots in use at that moment, and a pipe
//!             write end: in the child, and in all processes that it forks; never written to, closed with the last of them
//!             read end:  in this process; end of file means that no process reads those slots any more
//! ```
//! The kernel closes the ends of a process that is killed, so nothing is left behind, and no process has to report its
//! end. An exec closes them, too, because it gives up the memory that named the slots; and so does a process that gives
//! its file up. This process keeps the write end of the newest generation until it looks (`gone`), so that forks with
//! nothing stored in between share one.

use hinterland_sys::{confinement, descriptor};
use std::os::fd::RawFd;

/// Generations with living processes at a time; slots of later forks stay in use for good.
const GENERATIONS_MAX: usize = 16;
/// Descriptors that a process keeps for its ancestors at most: one for each fork that led to it.
const ANCESTORS_MAX: usize = 32;

/// The forks of one process, as far as processes live that descend from them.
#[derive(Default)]
pub(super) struct ForkGroup {
    generations: Vec<Generation>,
    next: u32,
    /// Write ends that say to ancestors that this process may read their slots.
    ancestors: Vec<RawFd>,
}

struct Generation {
    number: u32,
    read_end: RawFd,
    /// Open in the newest generation only.
    write_end: Option<RawFd>,
}

impl ForkGroup {
    /// Before a fork: sees to a generation that the child can belong to. Returns those that it has found gone, as `gone`.
    pub(super) fn begin(&mut self) -> Vec<u32> {
        if self.newest().is_some() || self.ancestors.len() >= ANCESTORS_MAX {
            return Vec::new();
        }
        let gone = if self.generations.len() == GENERATIONS_MAX { self.gone() } else { Vec::new() };
        if self.generations.len() < GENERATIONS_MAX
            && let Some((read_end, write_end)) = pipe()
        {
            self.next += 1;
            self.generations.push(Generation { number: self.next, read_end, write_end: Some(write_end) });
        }
        gone
    }

    /// The generation of a child that was forked just now; `None` when its lifetime cannot be known.
    pub(super) fn newest(&self) -> Option<u32> {
        self.generations.last().filter(|newest| newest.write_end.is_some()).map(|newest| newest.number)
    }

    /// Generations that have died out, which are forgotten.
    pub(super) fn gone(&mut self) -> Vec<u32> {
        for write_end in self.generations.iter_mut().filter_map(|generation| generation.write_end.take()) {
            close(write_end);
        }
        let (gone, alive) = std::mem::take(&mut self.generations).into_iter().partition(|g| is_at_end(g.read_end));
        self.generations = alive;
        let gone: Vec<Generation> = gone;
        gone.iter().for_each(|generation| close(generation.read_end));
        gone.iter().map(|generation| generation.number).collect()
    }

    /// In the child of a fork: it has none of its own yet, and is one of its parent's for as long as it lives.
    pub(super) fn begin_child(&mut self) {
        for generation in self.generations.drain(..) {
            close(generation.read_end);
            // The write end stays open.
            self.ancestors.extend(generation.write_end);
        }
    }
}

impl Drop for ForkGroup {
    /// This process has no page in its file any more, nor in its ancestors'.
    fn drop(&mut self) {
        let ends = |generation: Generation| std::iter::once(generation.read_end).chain(generation.write_end);
        self.generations.drain(..).flat_map(ends).chain(self.ancestors.drain(..)).for_each(close);
    }
}

/// A pipe out of the program's reach: read end (which never waits) and write end.
fn pipe() -> Option<(RawFd, RawFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    // SAFETY: room for two descriptors.
    let make = || unsafe { libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if confinement::with_files(make) != Some(0) {
        return None;
    }
    let hidden = ends.map(descriptor::hide);
    if let [Ok(read_end), Ok(write_end)] = hidden {
        return Some((read_end, write_end));
    }
    for (end, hidden) in ends.into_iter().zip(hidden) {
        close(hidden.unwrap_or(end));
    }
    None
}

/// Whether no process has a write end any more.
fn is_at_end(read_end: RawFd) -> bool {
    let mut byte = 0u8;
    // SAFETY: room for one byte.
    let read = || unsafe { libc::syscall(libc::SYS_read, read_end, &raw mut byte, 1usize) };
    confinement::with_files(read) == Some(0)
}

fn close(fd: RawFd) {
    descriptor::show(fd);
    // SAFETY: the descriptor is ours, and the caller gives it up.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_testkit::wait_until;
    use std::fs::File;
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::{BorrowedFd, OwnedFd};

    /// Other descriptors for the ends of the newest generation's pipe.
    fn ends(group: &ForkGroup) -> (File, File) {
        let generation = group.generations.last().expect("there is one");
        let also = |fd: RawFd| -> OwnedFd {
            // SAFETY: the group keeps them open.
            unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().expect("a descriptor")
        };
        (also(generation.read_end).into(), also(generation.write_end.expect("the newest")).into())
    }

    /// Ends when no process has a write end but those of other tests' children, which end.
    fn must_be_at_end(mut read_end: File) {
        wait_until("the write end is closed", || matches!(read_end.read(&mut [0]), Ok(0)));
    }

    fn must_have_no_reader(mut write_end: File) {
        let is_broken = |error: std::io::Error| error.kind() == ErrorKind::BrokenPipe;
        wait_until("the read end is closed", || write_end.write(&[0]).is_err_and(is_broken));
    }

    #[test]
    fn a_group_that_is_given_up_leaves_no_end_open() {
        let mut parent = ForkGroup::default();
        assert!(parent.begin().is_empty());
        let (read_end, write_end) = ends(&parent);
        drop(parent);
        drop(write_end);
        must_be_at_end(read_end);

        let mut parent = ForkGroup::default();
        assert!(parent.begin().is_empty());
        let (read_end, write_end) = ends(&parent);
        drop(parent);
        drop(read_end);
        must_have_no_reader(write_end);
    }

    #[test]
    fn a_child_that_gives_its_file_up_reads_none_of_its_ancestors_any_more() {
        let mut child = ForkGroup::default();
        let descend = |_| {
            assert!(child.begin().is_empty());
            let (read_end, _) = ends(&child);
            child.begin_child();
            read_end
        };
        let read_ends: Vec<File> = (0..3).map(descend).collect();
        let lives = |mut read_end: &File| read_end.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        assert!(read_ends.iter().all(lives), "the child may read what its ancestors have stored");
        drop(child);
        read_ends.into_iter().for_each(must_be_at_end);
    }

    #[test]
    fn a_generation_begins_where_as_many_as_there_may_be_are_gone() {
        let mut parent = ForkGroup::default();
        let live_on = |_| {
            assert!(parent.begin().is_empty());
            let (_, write_end) = ends(&parent);
            assert!(parent.gone().is_empty(), "somebody has the write end");
            write_end
        };
        let write_ends: Vec<File> = (0..GENERATIONS_MAX).map(live_on).collect();
        assert!(parent.begin().is_empty() && parent.newest().is_none());
        drop(write_ends);
        let mut gone = Vec::new();
        wait_until("relatives are gone", || {
            gone.extend(parent.begin());
            parent.newest().is_some()
        });
        assert!(!gone.is_empty());
    }
}
