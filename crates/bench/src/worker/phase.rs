//! One phase: every thread makes its accesses to its own part of the data.
//!
//! Each thread owns `pages / threads` neighbouring pages, so modifying needs no locks and checking knows every version.
//! The loop draws a page, checks it, modifies it when the pattern says so, and does nothing else.

use super::content::{Content, PAGE_WORDS, WrongWord};
use super::counters::{Counters, Snapshot};
use super::stream::Stream;
use super::times::timed;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Every so many accesses, the whole page is compared.
const FULL_CHECK_EVERY: u64 = 64;
/// Every so many accesses, the clock is read.
const CLOCK_EVERY: u64 = 1024;

/// A thread's part.
pub struct Share<'a> {
    /// The data.
    pub words: &'a mut [u64],
    /// How often each page was modified; outside the measured memory.
    pub versions: &'a mut [u16],
    /// The number of the first page.
    pub first_page: u64,
    /// Which page comes next.
    pub stream: Stream,
    /// Whether accesses modify.
    pub modifies: bool,
    /// What the pages hold.
    pub content: Content,
    /// Where durations of accesses are counted, if they are measured.
    pub times: Option<&'a mut [u64]>,
}

/// What a thread did.
#[derive(Clone, Copy)]
struct Done {
    accesses: u64,
    digest: u64,
}

impl Share<'_> {
    /// Makes `accesses` accesses, fewer when `limit` is over.
    fn run(&mut self, accesses: u64, limit: Duration) -> Result<Done, WrongWord> {
        let start = Instant::now();
        let mut digest = 0u64;
        for count in 0..accesses {
            if count % CLOCK_EVERY == 0 && start.elapsed() > limit {
                return Ok(Done { accesses: count, digest });
            }
            let index = self.stream.next_page() as usize;
            let page = self.first_page + index as u64;
            let words = &mut self.words[index * PAGE_WORDS..(index + 1) * PAGE_WORDS];
            let version = &mut self.versions[index];
            if let Some(times) = &mut self.times {
                timed(times, words);
            }
            if count % FULL_CHECK_EVERY == 0 {
                self.content.check_all(page, *version, words)?;
            } else {
                self.content.check_some(page, *version, words, count)?;
            }
            if self.modifies {
                *version = version.wrapping_add(1);
                self.content.modify(page, *version, words);
            }
            digest = (digest.rotate_left(7) ^ page).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        Ok(Done { accesses, digest })
    }
}

/// The outcome of a phase.
pub struct Phase {
    /// Accesses of all threads.
    pub accesses: u64,
    /// From the moment when all threads were ready until the last was done.
    pub seconds: f64,
    /// Digest of what was touched.
    pub digest: u64,
    /// Counters at the start and at the end.
    pub edges: (Snapshot, Snapshot),
}

/// Runs one phase of `accesses` accesses, one thread for each share; the first share runs on this thread.
///
/// # Errors
/// The first wrong word that a thread read.
pub fn run(shares: &mut [Share], accesses: u64, limit: Duration, counters: &Counters) -> Result<Phase, WrongWord> {
    let each = accesses / shares.len() as u64;
    let (mine, others) = shares.split_first_mut().expect("at least one thread");
    let barrier = Barrier::new(others.len() + 1);
    let (done, seconds, edges) = std::thread::scope(|scope| {
        let threads: Vec<_> = others
            .iter_mut()
            .map(|share| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let done = share.run(each, limit);
                    barrier.wait();
                    done
                })
            })
            .collect();
        let before = counters.snapshot();
        barrier.wait();
        let start = Instant::now();
        let first = mine.run(each, limit);
        barrier.wait();
        let seconds = start.elapsed().as_secs_f64();
        let after = counters.snapshot();
        let rest = threads.into_iter().map(|thread| thread.join().expect("a thread of the phase"));
        (std::iter::once(first).chain(rest).collect::<Result<Vec<_>, _>>(), seconds, (before, after))
    });
    let done = done?;
    let digest = done.iter().fold(0u64, |all, one| all.rotate_left(1) ^ one.digest);
    Ok(Phase { accesses: done.iter().map(|d| d.accesses).sum(), seconds, digest, edges })
}

#[cfg(test)]
mod tests {
    use super::super::stream::Pattern;
    use super::*;

    fn with_share<T>(pattern: Pattern, act: impl FnOnce(&mut Share) -> T) -> T {
        let content = Content::new(4);
        let mut words = vec![0; 100 * PAGE_WORDS];
        for (page, words) in words.chunks_mut(PAGE_WORDS).enumerate() {
            content.fill(1000 + page as u64, words);
        }
        let mut versions = vec![0; 100];
        act(&mut Share {
            words: &mut words,
            versions: &mut versions,
            first_page: 1000,
            stream: Stream::new(pattern, 100, 25, 1),
            modifies: pattern == Pattern::Write,
            content,
            times: None,
        })
    }

    #[test]
    fn modifications_are_checked_on_the_next_read() {
        with_share(Pattern::Write, |share| {
            assert_eq!(share.run(5000, Duration::MAX).map(|d| d.accesses), Ok(5000));
            share.versions[17] += 1;
            assert_eq!(share.run(5000, Duration::MAX).map(|d| d.accesses).unwrap_err().page, 1017);
        });
    }

    #[test]
    fn a_wrong_byte_is_found_and_named() {
        with_share(Pattern::Sequential, |share| {
            share.words[42 * PAGE_WORDS + 256] ^= 1;
            let wrong = share.run(100, Duration::MAX).map(|d| d.accesses).unwrap_err();
            assert_eq!((wrong.page, wrong.index), (1042, 256));
        });
    }

    #[test]
    fn the_digest_tells_streams_apart() {
        let digest = |pattern| with_share(pattern, |s| s.run(1000, Duration::MAX).map(|d| d.digest).unwrap());
        assert_eq!(digest(Pattern::Random), digest(Pattern::Random));
        assert_ne!(digest(Pattern::Random), digest(Pattern::Sequential));
    }

    #[test]
    fn the_limit_ends_a_phase_early() {
        with_share(Pattern::Random, |share| assert_eq!(share.run(5000, Duration::ZERO).map(|d| d.accesses), Ok(0)));
    }
}
