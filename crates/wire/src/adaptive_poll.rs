//! Adaptive polling: both sides of a connection poll for a message for a moment before they sleep for it, where that has helped.
//!
//! A thread that sleeps has to be woken, and its processor with it: on a virtual machine that takes ten times as long as a page by a short
//! link (decision 0032). Polling takes a processor instead, so it is skipped where it does not help: after a poll in which nothing
//! came, for one message, then for three, then for seven, up to `SKIPPED_MAX`.

use std::time::{Duration, Instant};

/// How long one poll lasts.
const LIMIT: Duration = Duration::from_micros(200);
/// Messages at most that are waited for in sleep before the next poll.
const SKIPPED_MAX: u32 = 63;

/// Whether polling has helped. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdaptivePoll {
    /// Messages without a poll that are still to come.
    skip: u32,
    /// As many were skipped the last time.
    skipped: u32,
}

impl AdaptivePoll {
    /// Polls whether a message `has_arrived`. False: it did not within that moment, or the poll was skipped.
    pub fn poll(&mut self, mut has_arrived: impl FnMut() -> bool) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let begun = Instant::now();
        while !has_arrived() {
            if begun.elapsed() >= LIMIT {
                self.skipped = (self.skipped * 2 + 1).min(SKIPPED_MAX);
                self.skip = self.skipped;
                return false;
            }
        }
        self.skipped = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_polling_does_not_help_it_is_skipped_for_longer_and_longer() {
        let (mut poll, mut polls) = (AdaptivePoll::default(), Vec::new());
        for message in 0..200 {
            let mut polled = false;
            poll.poll(|| {
                polled = true;
                false
            });
            polls.extend(polled.then_some(message));
        }
        assert_eq!(polls, [0, 2, 6, 14, 30, 62, 126, 190]);
    }

    #[test]
    fn where_polling_helps_it_is_done_for_every_message() {
        let mut poll = AdaptivePoll::default();
        assert!(!poll.poll(|| false));
        assert!(!poll.poll(|| true), "the next one is waited for in sleep");
        let mut calls = 0;
        for _ in 0..10 {
            assert!(poll.poll(|| {
                calls += 1;
                calls % 2 == 0
            }));
        }
        assert_eq!(calls, 20);
    }
}
