//! Commands: what the launcher changes in a run that is under way (`hinterland set`), in the ledger.
//!
//! ```text
//! launcher                                         each process of the run, in its evictor
//! writes the setting, then a larger number ──────► reads the number, then the setting, and applies it
//! rings everybody's bell                           its local memory is within its part of the setting:
//! looks which have acknowledged the number ◄────── acknowledges the number (in its share)
//! ```
//!
//! A setting is one word, written before the number: a process that has seen a number reads the setting of that command or of a later one. The
//! launcher is the only writer, and processes apply what stands here without it: one that is gone changes nothing. A process that
//! starts later, or calls exec, reads the same words. What stands here is bounded by each process that reads it, as if anybody of the
//! run had written it.

use crate::ledger::Counter;
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// See the module. All zero: nothing was commanded.
#[repr(C, align(64))]
pub struct Commands {
    /// Of the newest command; 0: there is none.
    number: Counter,
    /// The local budget in bytes; 0: that of the run's start.
    local_bytes: Counter,
}

impl Commands {
    /// Commands a local budget; returns the command's number. Only the launcher does, in one thread.
    pub fn set_local(&self, bytes: u64) -> u64 {
        self.local_bytes.store(bytes, Relaxed);
        self.number.fetch_add(1, Release) + 1
    }

    /// The number of the newest command. What is read after it is at least as new.
    pub fn newest(&self) -> u64 {
        self.number.load(Acquire)
    }

    /// The local budget in bytes that was commanded, if one was.
    pub fn local_bytes(&self) -> Option<u64> {
        Some(self.local_bytes.load(Relaxed)).filter(|bytes| *bytes != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_numbered_and_the_newest_counts() {
        // SAFETY: it consists of atomics, which are valid when zero.
        let commands = unsafe { Box::<Commands>::new_zeroed().assume_init() };
        assert_eq!((commands.newest(), commands.local_bytes()), (0, None));
        assert_eq!(commands.set_local(64 << 20), 1);
        assert_eq!(commands.set_local(32 << 20), 2);
        assert_eq!((commands.newest(), commands.local_bytes()), (2, Some(32 << 20)));
    }
}
