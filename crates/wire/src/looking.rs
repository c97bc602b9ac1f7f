//! When to look for a message for a moment before sleeping for it: both sides of a connection do.
//!
//! A thread that sleeps has to be woken, and its processor with it: on a virtual machine that takes ten times as long as a page by a short
//! link (decision 0032). Looking takes a processor instead, so it is given up where it does not help: after a moment in which nothing
//! came, once, then three times, then seven, up to `SKIPPED_MAX` times, nobody looks.

use std::time::{Duration, Instant};

/// How long to look.
const LIMIT: Duration = Duration::from_micros(200);
/// Messages at most that are waited for in sleep before it is tried again.
const SKIPPED_MAX: u32 = 63;

/// Whether looking has helped. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looking {
    /// Messages for which nobody looks.
    skip: u32,
    /// As many were skipped the last time.
    skipped: u32,
}

impl Looking {
    /// Looks whether a message `has_arrived`, again and again. False: not within that moment, or it was not tried.
    pub fn look(&mut self, mut has_arrived: impl FnMut() -> bool) -> bool {
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
    fn where_looking_does_not_help_it_is_given_up_for_longer_and_longer() {
        let (mut looking, mut looks) = (Looking::default(), Vec::new());
        for message in 0..200 {
            let mut looked = false;
            looking.look(|| {
                looked = true;
                false
            });
            looks.extend(looked.then_some(message));
        }
        assert_eq!(looks, [0, 2, 6, 14, 30, 62, 126, 190]);
    }

    #[test]
    fn where_it_helps_it_is_done_for_every_message() {
        let mut looking = Looking::default();
        assert!(!looking.look(|| false));
        assert!(!looking.look(|| true), "the next one is waited for in sleep");
        let mut calls = 0;
        for _ in 0..10 {
            assert!(looking.look(|| {
                calls += 1;
                calls % 2 == 0
            }));
        }
        assert_eq!(calls, 20);
    }
}
