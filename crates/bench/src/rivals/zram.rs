//! Kernel swap on compressed RAM, `/dev/zram0`. A device is set up for one run and reset after it, so every run begins with
//! an empty one.

use super::swap_area;
use super::undo::{Changes, Guard, Undo};
use crate::error::{BenchError, read, write};
use std::path::Path;

const DEVICE: &str = "/dev/zram0";
const CONTROL: &str = "/sys/block/zram0";

/// The compressors that the kernel offers.
///
/// # Errors
/// There is no zram.
pub fn compressors() -> Result<Vec<String>, BenchError> {
    let control = Path::new(CONTROL);
    if !control.is_dir() {
        return Err(BenchError::NoZram(control.to_owned()));
    }
    let offered = read(&control.join("comp_algorithm"))?;
    Ok(offered.split_whitespace().map(|name| name.trim_matches(['[', ']']).to_owned()).collect())
}

/// Refuses a device that somebody uses.
///
/// # Errors
/// It is set up already.
pub fn check_free() -> Result<(), BenchError> {
    if read(&Path::new(CONTROL).join("initstate"))? != "0" {
        return Err(BenchError::InUse {
            what: DEVICE.into(),
            remedy: format!("When it is yours to take: swapoff {DEVICE}; echo 1 > {CONTROL}/reset"),
        });
    }
    Ok(())
}

/// A device in use; order of fields is order of taking back.
pub struct Zram {
    _swap: Guard,
    _device: Guard,
}

impl Zram {
    /// Sets up `/dev/zram0` with `compressor` and room for `bytes`, and swaps to it.
    ///
    /// # Errors
    /// The device is in use or refuses.
    pub fn begin(compressor: &str, bytes: u64, changes: &Changes) -> Result<Zram, BenchError> {
        check_free()?;
        let control = Path::new(CONTROL);
        let device = changes.register(Undo::Write(control.join("reset"), "1".into()));
        write(&control.join("comp_algorithm"), compressor)?;
        write(&control.join("disksize"), &bytes.to_string())?;
        let swap = swap_area::swapon(Path::new(DEVICE), bytes, changes)?;
        Ok(Zram { _swap: swap, _device: device })
    }
}

/// The RAM that the device occupies now: its compressed pages and its tables (`mem_used_total`, the third figure of
/// `mm_stat`; Documentation/admin-guide/blockdev/zram.rst); 0 when it is not set up.
pub fn ram_bytes() -> u64 {
    let text = read(&Path::new(CONTROL).join("mm_stat")).unwrap_or_default();
    text.split_whitespace().nth(2).and_then(|figure| figure.parse().ok()).unwrap_or(0)
}
