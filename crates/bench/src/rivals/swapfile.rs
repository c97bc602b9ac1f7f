//! Kernel swap to a file on a disk. The file is written once, so that its blocks exist; each run swaps to it anew.

use super::swap_area;
use super::undo::{Changes, Guard, Undo};
use crate::error::BenchError;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Written at a time.
const BLOCK_BYTES: u64 = 4 << 20;

/// A file to swap to, deleted when dropped.
pub struct SwapFile {
    path: PathBuf,
    bytes: u64,
    _file: Guard,
}

impl SwapFile {
    /// Writes a file of `bytes` (rounded up to whole blocks) into `directory`.
    ///
    /// # Errors
    /// It cannot be written, the disk being full above all.
    pub fn create(directory: &Path, bytes: u64, changes: &Changes) -> Result<SwapFile, BenchError> {
        let directory = directory.canonicalize().map_err(BenchError::io("find", directory))?;
        SwapFile::write(directory.join(format!(".{}.swap", super::name())), bytes, changes)
    }

    /// A file that is there already is another's and stays.
    fn write(path: PathBuf, bytes: u64, changes: &Changes) -> Result<SwapFile, BenchError> {
        let guard = changes.register(Undo::RemoveFile(path.clone()));
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => file,
            Err(error) => {
                guard.forget();
                return Err(BenchError::io("create", &path)(error));
            }
        };
        let block = vec![0u8; usize::try_from(BLOCK_BYTES).expect("a block fits memory")];
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        for _ in 0..blocks {
            file.write_all(&block).map_err(BenchError::io("fill", &path))?;
        }
        file.sync_all().map_err(BenchError::io("write", &path))?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(BenchError::io("protect", &path))?;
        Ok(SwapFile { path, bytes: blocks * BLOCK_BYTES, _file: guard })
    }

    /// Swaps to the file until the guard is dropped.
    ///
    /// # Errors
    /// The file system cannot hold a swap file.
    pub fn begin(&self, changes: &Changes) -> Result<Guard, BenchError> {
        swap_area::swapon(&self.path, self.bytes, changes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::undo::tests::{changes, left};
    use super::*;

    #[test]
    fn a_file_that_is_there_is_another_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("swap");
        std::fs::write(&path, "theirs").unwrap();
        let before = changes();
        assert!(SwapFile::write(path.clone(), BLOCK_BYTES, &before).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
        assert_eq!(left(before), []);
        let begun = changes();
        let file = SwapFile::create(directory.path(), 1, &begun).unwrap();
        assert_eq!((file.bytes, left(begun)), (BLOCK_BYTES, vec![Undo::RemoveFile(file.path.clone())]));
        drop(file);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
