//! Commands: the launcher's changes of a running run (`hinterland set`), in the ledger.
//!
//! ```text
//! launcher                                         each process of the run, in its evictor
//! writes the setting, then a larger number ──────► reads the number, then the setting, and applies it
//! wakes all evictors                               its local memory is within its part of the setting:
//! looks which have acknowledged the number ◄────── acknowledges the number (in its share)
//! ```
//!
//! A setting is written before the number: a process that has seen a number reads the setting of that command or of a
//! later one. The launcher is the only writer, and processes apply the settings without it: its end changes nothing. A
//! process that starts later, or calls exec, reads the same words. Each process checks the bounds of what it reads,
//! because any process of the run could have written it.

use crate::ledger::Counter;
use crate::settings::GranularityName;
use crate::text_list::TextList;
use std::fmt;
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// See the module. All zero: nothing was commanded.
#[repr(C, align(64))]
pub struct Commands {
    /// Of the newest command; 0: there is none.
    number: Counter,
    /// The local budget in bytes; 0: that of the run's start.
    local_bytes: Counter,
    /// The bound on RAM in bytes; 0: that of the run's start.
    ram_bytes: Counter,
    /// Processors that the pagers' own threads may take at once; 0: as many as at the run's start.
    cpus: Counter,
    /// How much comes to a thread that waits for a page: one more than the place among [`GranularityName::ALL`]; 0: as at the run's start.
    granularity: Counter,
    /// Pages of a block; 0: as at the run's start.
    block_pages: Counter,
    /// What was changed since the run's start, oldest first.
    paths: TextList<PATH_CHANGES_MAX>,
}

/// More processors than there are: all that there are.
const ALL_CPUS: u64 = u64::MAX;
/// More pages than a block has: as many as it has by itself.
const AUTO_BLOCK: u64 = u64::MAX;

/// Changes of the paths to far memory that a run can have: what is opened and closed again takes no place.
pub const PATH_CHANGES_MAX: usize = 24;

/// A change of the paths to far memory, by URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathChange {
    /// One more path.
    Add(String),
    /// One path less, whose pages go to the others.
    Drop(String),
}

impl PathChange {
    fn read(text: &str) -> Option<PathChange> {
        match text.split_at_checked(1)? {
            ("+", url) => Some(PathChange::Add(url.to_owned())),
            ("-", url) => Some(PathChange::Drop(url.to_owned())),
            _ => None,
        }
    }

    /// Makes the changes in a list of URLs; what is not there is not dropped.
    pub fn apply_all(changes: &[PathChange], urls: &mut Vec<String>) {
        for change in changes {
            match change {
                PathChange::Add(url) => urls.push(url.clone()),
                PathChange::Drop(url) => {
                    if let Some(at) = urls.iter().rposition(|other| other == url) {
                        urls.remove(at);
                    }
                }
            }
        }
    }
}

impl fmt::Display for PathChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathChange::Add(url) => write!(f, "+{url}"),
            PathChange::Drop(url) => write!(f, "-{url}"),
        }
    }
}

impl Commands {
    /// Commands a local budget; returns the command's number. Only the launcher does, in one thread.
    pub fn set_local(&self, bytes: u64) -> u64 {
        self.local_bytes.store(bytes, Relaxed);
        self.number.fetch_add(1, Release) + 1
    }

    /// Commands a bound on RAM; returns the command's number. Only the launcher does, in one thread.
    pub fn set_ram(&self, bytes: u64) -> u64 {
        self.ram_bytes.store(bytes, Relaxed);
        self.number.fetch_add(1, Release) + 1
    }

    /// Commands how many processors the pagers' own threads may take at once, `None` for all; returns the command's number. Only the
    /// launcher does, in one thread.
    pub fn set_cpus(&self, cpus: Option<u32>) -> u64 {
        self.cpus.store(cpus.map_or(ALL_CPUS, u64::from), Relaxed);
        self.number.fetch_add(1, Release) + 1
    }

    /// Commands how much comes to a thread that waits for a page, and how large a block is, `None` for what it is by itself; returns the
    /// command's number. Only the launcher does, in one thread.
    pub fn set_blocks(&self, granularity: GranularityName, block_pages: Option<u32>) -> u64 {
        let place = GranularityName::ALL.iter().position(|other| *other == granularity).map_or(0, |at| at as u64 + 1);
        self.granularity.store(place, Relaxed);
        self.block_pages.store(block_pages.map_or(AUTO_BLOCK, u64::from), Relaxed);
        self.number.fetch_add(1, Release) + 1
    }

    /// Commands changes of the paths to far memory: all since the run's start, [`PATH_CHANGES_MAX`] at most. Returns the command's
    /// number. Only the launcher does, in one thread.
    pub fn set_paths(&self, changes: &[PathChange]) -> u64 {
        self.paths.set(&changes.iter().map(ToString::to_string).collect::<Vec<_>>());
        self.number.fetch_add(1, Release) + 1
    }

    /// Changes with every change of the paths; 0: there was none.
    pub fn paths_version(&self) -> u64 {
        self.paths.version()
    }

    /// The changes of the paths since the run's start, oldest first, and their version; `None`: they are being written.
    pub fn path_changes(&self) -> Option<(u64, Vec<PathChange>)> {
        let (version, texts) = self.paths.get()?;
        Some((version, texts.iter().filter_map(|text| PathChange::read(text)).collect()))
    }

    /// The number of the newest command. What is read after it is at least as new.
    pub fn newest(&self) -> u64 {
        self.number.load(Acquire)
    }

    /// The local budget in bytes that was commanded, if one was.
    pub fn local_bytes(&self) -> Option<u64> {
        Some(self.local_bytes.load(Relaxed)).filter(|bytes| *bytes != 0)
    }

    /// How many processors were commanded, if that was: `Some(None)` for all.
    pub fn cpus(&self) -> Option<Option<u32>> {
        match self.cpus.load(Relaxed) {
            0 => None,
            ALL_CPUS => Some(None),
            cpus => Some(u32::try_from(cpus).ok()),
        }
    }

    /// What was commanded of blocks, if that was: as [`Commands::set_blocks`] takes it.
    pub fn blocks(&self) -> Option<(GranularityName, Option<u32>)> {
        let place = usize::try_from(self.granularity.load(Relaxed)).ok()?;
        let granularity = *GranularityName::ALL.get(place.checked_sub(1)?)?;
        let pages = self.block_pages.load(Relaxed);
        Some((granularity, u32::try_from(pages).ok().filter(|pages| *pages > 0)))
    }

    /// The bound on RAM in bytes that was commanded, if one was.
    pub fn ram_bytes(&self) -> Option<u64> {
        Some(self.ram_bytes.load(Relaxed)).filter(|bytes| *bytes != 0)
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
        assert_eq!((commands.cpus(), commands.set_cpus(Some(2)), commands.cpus()), (None, 3, Some(Some(2))));
        assert_eq!((commands.set_cpus(None), commands.cpus()), (4, Some(None)));
        assert_eq!((commands.ram_bytes(), commands.set_ram(48 << 20), commands.ram_bytes()), (None, 5, Some(48 << 20)));
    }

    #[test]
    fn blocks_are_as_they_were_commanded() {
        // SAFETY: as above.
        let commands = unsafe { Box::<Commands>::new_zeroed().assume_init() };
        assert_eq!(commands.blocks(), None);
        for (number, blocks) in (1..).zip([
            (GranularityName::Page, None),
            (GranularityName::Auto, Some(512)),
            (GranularityName::Both, None),
        ]) {
            assert_eq!((commands.set_blocks(blocks.0, blocks.1), commands.blocks()), (number, Some(blocks)));
        }
    }

    #[test]
    fn paths_are_changed_as_they_were_commanded() {
        // SAFETY: as above.
        let commands = unsafe { Box::<Commands>::new_zeroed().assume_init() };
        assert_eq!((commands.paths_version(), commands.path_changes()), (0, Some((0, Vec::new()))));
        let (a, b) = ("tcp://127.0.0.1:1".to_owned(), "file:/far?size=1G".to_owned());
        let changes = [PathChange::Add(a.clone()), PathChange::Drop(b.clone()), PathChange::Drop("none".into())];
        assert_eq!(commands.set_paths(&changes), 1);
        assert_eq!(commands.path_changes(), Some((commands.paths_version(), changes.to_vec())));
        let mut urls = vec![b.clone(), b.clone()];
        PathChange::apply_all(&changes, &mut urls);
        assert_eq!(urls, [b, a]);
    }
}
