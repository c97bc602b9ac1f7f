//! `/proc/meminfo`.

use super::Host;

/// RAM and swap of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// RAM.
    pub total_bytes: u64,
    /// RAM that programs can still take without swapping, as the kernel estimates it.
    pub available_bytes: u64,
    /// Swap space.
    pub swap_total_bytes: u64,
}

/// Reads the machine's memory.
pub fn read(host: &Host) -> Option<Memory> {
    let text = host.read("/proc/meminfo")?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(Memory {
        total_bytes: field("MemTotal")?,
        available_bytes: field("MemAvailable").or_else(|| field("MemFree"))?,
        swap_total_bytes: field("SwapTotal").unwrap_or(0),
    })
}
