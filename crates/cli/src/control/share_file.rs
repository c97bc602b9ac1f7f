//! The share file of a run, with its memory figures for the other runs of its user: `PID.share` beside the launcher's
//! socket. Its launcher alone writes it, in place, and locks it for as long as it lives ([`super::file_lock`]).
//!
//! ```text
//! what it holds │ what it wants, or MAX │ its cgroup with a limit, or 0 │ a sum of these
//! ```
//! Words of 64 bits, little-endian. A row that is read while it is written does not have its sum, and is read again.

use super::file_lock::{hold, is_held_open, open};
use super::socket_path::{Entry, SHARE, SocketDirectory};
use hinterland_policy::RunMemory;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

/// Words of a row before its sum.
const WORDS: usize = 3;
const ROW_BYTES: usize = 8 * (WORDS + 1);
/// What the sum begins with: another one where words change their meaning.
const VERSION: u64 = 0x6869_6e74_6572_0001;
/// Reads of a row that is being written.
const READS: usize = 8;

/// What a run says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Its memory.
    pub memory: RunMemory,
    /// The inode of the cgroup whose limit is the tightest for it; 0: none has one.
    pub cgroup: u64,
}

/// The file of this launcher; removed when it goes.
pub struct ShareFile {
    entry: Entry,
    file: File,
}

fn sum(words: &[u64]) -> u64 {
    words.iter().fold(VERSION, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

impl Share {
    fn row(&self) -> [u8; ROW_BYTES] {
        let RunMemory { local_bytes, wanted_bytes } = self.memory;
        let words: [u64; WORDS] = [local_bytes, wanted_bytes.unwrap_or(u64::MAX), self.cgroup];
        let mut row = [0; ROW_BYTES];
        for (bytes, word) in row.chunks_exact_mut(8).zip(words.into_iter().chain([sum(&words)])) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        row
    }

    fn of(row: &[u8; ROW_BYTES]) -> Option<Share> {
        let word = |at: usize| u64::from_le_bytes(row[8 * at..8 * (at + 1)].try_into().unwrap_or_default());
        let [local_bytes, wanted, cgroup] = std::array::from_fn(word);
        let wanted_bytes = (wanted != u64::MAX).then_some(wanted);
        let is_whole = word(WORDS) == sum(&[local_bytes, wanted, cgroup]);
        is_whole.then_some(Share { memory: RunMemory { local_bytes, wanted_bytes }, cgroup })
    }

    /// What a file says that a launcher holds.
    fn read(file: &File) -> Option<Share> {
        let mut row = [0; ROW_BYTES];
        (0..READS).find_map(|_| file.read_exact_at(&mut row, 0).ok().and_then(|()| Share::of(&row)))
    }
}

impl ShareFile {
    /// Makes the file of the launcher of this number; it says nothing yet.
    ///
    /// # Errors
    /// No directory can be made, or no file in it.
    pub fn create(pid: i32) -> io::Result<ShareFile> {
        ShareFile::create_in(SocketDirectory::make()?, pid)
    }

    fn create_in(directory: SocketDirectory, pid: i32) -> io::Result<ShareFile> {
        let (entry, file) = directory.put(format!("{pid}{SHARE}"), |fresh| {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(fresh)?;
            hold(&file).map(|()| file)
        })?;
        Ok(ShareFile { entry, file })
    }

    /// Says this from now on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, share: &Share) -> io::Result<()> {
        self.file.write_all_at(&share.row(), 0)
    }

    /// What the other runs say whose launchers have put their files into the same directory.
    pub fn others(&self) -> Vec<Share> {
        let directory = self.entry.directory();
        let names = directory.entries().into_iter().map(|(name, _)| name).filter(|name| name.ends_with(SHARE));
        let is_own = |file: &File| file.metadata().is_ok_and(|data| data.ino() == self.entry.inode());
        let files = names.filter_map(|name| open(&directory.at(&name)).ok());
        let others = files.filter(|file| !is_own(file) && is_held_open(file));
        others.filter_map(|file| Share::read(&file)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn share(local_bytes: u64, wanted_bytes: Option<u64>) -> Share {
        Share { memory: RunMemory { local_bytes, wanted_bytes }, cgroup: 7 }
    }

    fn file(directory: &Path, pid: i32) -> ShareFile {
        ShareFile::create_in(SocketDirectory::of_test(directory), pid).unwrap()
    }

    #[test]
    fn runs_know_what_the_others_say_until_these_end() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two, three] = [1, 2, 3].map(|pid| file(directory.path(), pid));
        assert_eq!(one.others(), [], "none has said anything");
        for (file, said) in
            [(&one, share(1, None)), (&two, share(2, Some(20))), (&three, share(3, Some(u64::MAX >> 1)))]
        {
            file.write(&said).unwrap();
        }
        let sorted = |of: &ShareFile| {
            let mut found = of.others();
            found.sort_by_key(|share| share.memory.local_bytes);
            found
        };
        assert_eq!(sorted(&one), [share(2, Some(20)), share(3, Some(u64::MAX >> 1))]);
        two.write(&share(4, Some(40))).unwrap();
        assert_eq!(sorted(&one), [share(3, Some(u64::MAX >> 1)), share(4, Some(40))]);
        drop(two);
        assert_eq!(three.others(), [share(1, None)]);
        // What a killed launcher leaves: its file, without its lock.
        std::fs::copy(directory.path().join("3.share"), directory.path().join("9.share")).unwrap();
        assert_eq!(three.others(), [share(1, None)]);
    }

    #[test]
    fn a_row_that_is_read_while_it_is_written_is_none() {
        let (old, new) = (share(1 << 30, Some(2 << 30)).row(), share(3 << 30, None).row());
        assert_eq!(Share::of(&old), Some(share(1 << 30, Some(2 << 30))));
        for at in 1..ROW_BYTES {
            let torn: Vec<u8> = new[..at].iter().chain(&old[at..]).copied().collect();
            let torn = torn.try_into().unwrap();
            let read = Share::of(&torn);
            assert!(read.is_none() || torn == old || torn == new, "torn at {at}: {read:?}");
        }
        assert_eq!(Share::of(&[0; ROW_BYTES]), None);
    }
}
