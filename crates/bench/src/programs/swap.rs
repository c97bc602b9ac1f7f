//! What the kernel swaps to while one program runs: compressed RAM, or a file.

use super::trials::Setting;
use crate::error::BenchError;
use crate::rivals::swap_area;
use crate::rivals::swapfile::SwapFile;
use crate::rivals::sysctl::set_page_cluster;
use crate::rivals::undo::{Changes, Guard};
use crate::rivals::zram::{self, Zram};
use hinterland_units::PAGE_BYTES;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long zram may be in use otherwise.
const ZRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// What the kernel swaps to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwapTo {
    /// Compressed RAM.
    Zram,
    /// A file of each run's own in this directory.
    File(PathBuf),
}

impl SwapTo {
    /// Sets up what the kernel swaps to, for one run.
    ///
    /// # Errors
    /// The kernel refuses, or the disk is full.
    pub fn begin(&self, setting: &Setting, bytes: u64, changes: &Changes) -> Result<Swap, BenchError> {
        let (zram, file) = match self {
            SwapTo::Zram => (Some(begin_zram(&setting.compressor, bytes, changes)?), None),
            SwapTo::File(directory) => (None, Some(SwapFile::create(directory, bytes, changes)?)),
        };
        let area = file.as_ref().map(|file| file.begin(changes)).transpose()?;
        let page_cluster = set_page_cluster(setting.page_cluster, changes)?;
        Ok(Swap { _zram: zram, _area: area, _file: file, _page_cluster: page_cluster })
    }

    /// What the area holds now: of zram the RAM that it occupies.
    pub fn held_bytes(&self) -> u64 {
        match self {
            SwapTo::Zram => zram::ram_bytes(),
            SwapTo::File(_) => swap_area::used_bytes(),
        }
    }
}

impl fmt::Display for SwapTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SwapTo::Zram => "zram",
            SwapTo::File(_) => "swap file",
        })
    }
}

/// What the kernel swaps to in one run; order of fields is order of taking back.
pub struct Swap {
    _zram: Option<Zram>,
    _area: Option<Guard>,
    _file: Option<SwapFile>,
    _page_cluster: Guard,
}

/// Sets zram up; where something else uses it for a while, such as another bench, waits for that.
fn begin_zram(compressor: &str, bytes: u64, changes: &Changes) -> Result<Zram, BenchError> {
    let begun = Instant::now();
    loop {
        match Zram::begin(compressor, bytes, changes) {
            Err(BenchError::InUse { .. }) if begun.elapsed() < ZRAM_TIMEOUT => std::thread::sleep(ZRAM_TIMEOUT / 100),
            other => return other,
        }
    }
}

/// What the kernel has read from swap and written there until now.
pub fn swapped_bytes() -> [u64; 2] {
    let counters = procfs::vmstat().unwrap_or_default();
    let pages = |name| counters.get(name).and_then(|pages| u64::try_from(*pages).ok()).unwrap_or(0);
    ["pswpin", "pswpout"].map(|name| pages(name) * PAGE_BYTES as u64)
}
