//! Swap areas: the header that `mkswap` writes, swapon, and the areas in use.
//!
//! The header is the kernel's `union swap_header` (include/linux/swap.h): at byte 1024 version, last page and number of bad
//! pages, each a native u32; at the end of the first page the signature.

use super::undo::{Changes, Guard, Undo};
use crate::error::BenchError;
use hinterland_units::PAGE_BYTES;
use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const SIGNATURE: &[u8; 10] = b"SWAPSPACE2";

/// The first page of a swap area of `bytes`.
fn header(bytes: u64) -> io::Result<[u8; PAGE_BYTES]> {
    let last_page = u32::try_from(bytes / PAGE_BYTES as u64 - 1).map_err(io::Error::other)?;
    let mut page = [0; PAGE_BYTES];
    page[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    page[1028..1032].copy_from_slice(&last_page.to_ne_bytes());
    page[PAGE_BYTES - SIGNATURE.len()..].copy_from_slice(SIGNATURE);
    Ok(page)
}

/// Makes `path`, a file or device of `bytes`, a swap area, and swaps to it until the guard is dropped.
///
/// # Errors
/// The kernel does not take it as a swap area.
pub fn swapon(path: &Path, bytes: u64, changes: &Changes) -> Result<Guard, BenchError> {
    let refused = |source| BenchError::SwapFile { path: path.to_owned(), source };
    let mut area = std::fs::OpenOptions::new().write(true).open(path).map_err(refused)?;
    area.write_all(&header(bytes).map_err(refused)?).and_then(|()| area.sync_all()).map_err(refused)?;
    drop(area);
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| refused(e.into()))?;
    let guard = changes.register(Undo::Swapoff(path.to_owned()));
    // SAFETY: `swapon` reads a NUL-terminated path, which `name` is, and keeps no pointer.
    if unsafe { libc::swapon(name.as_ptr(), 0) } != 0 {
        return Err(refused(io::Error::last_os_error()));
    }
    Ok(guard)
}

/// The files and devices that the machine swaps to now.
///
/// # Errors
/// `/proc/swaps` cannot be read.
pub fn active() -> Result<Vec<PathBuf>, BenchError> {
    let text = crate::error::read(Path::new("/proc/swaps"))?;
    Ok(text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(PathBuf::from).collect())
}

/// The bytes that swap areas hold now.
pub fn used_bytes() -> u64 {
    used_bytes_of(&crate::error::read(Path::new("/proc/swaps")).unwrap_or_default())
}

/// The same, of the text of `/proc/swaps`: the fourth column, in KiB.
fn used_bytes_of(text: &str) -> u64 {
    let used = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    used.sum::<u64>() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_areas_hold_is_added_up() {
        let text = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert_eq!(used_bytes_of(text), 0);
        let text = format!("{text}/far\\040away/swap file\t\t307196\t\t12\t\t-2\n/dev/zram0 partition\t4096\t4\t-3\n");
        assert_eq!(used_bytes_of(&text), 16 << 10);
    }

    #[test]
    fn the_header_is_mkswaps() {
        let page = header(64 << 20).unwrap();
        assert_eq!(&page[4086..], SIGNATURE);
        assert_eq!(u32::from_ne_bytes(page[1028..1032].try_into().unwrap()), 16383);
        assert!(header(1 << 50).is_err());
    }
}
