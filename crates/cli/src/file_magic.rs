//! The magic numbers at the beginnings of files, which tell their kinds.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The first bytes of a file; `None`: it cannot be read, has fewer, or is a pipe, which has one beginning.
pub fn of<const N: usize>(path: impl AsRef<Path>) -> Option<[u8; N]> {
    if !path.as_ref().is_file() {
        return None;
    }
    let mut bytes = [0; N];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).is_ok().then_some(bytes)
}
