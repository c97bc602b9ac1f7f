//! Time of the model: ticks of 1/72 ns, in which a cycle of 3.6 GHz is 20, an instruction of a 4-wide core 5 and a nanosecond 72.

/// Ticks in a nanosecond.
pub const TICKS_PER_NS: u64 = 72;
/// Ticks in a cycle of 3.6 GHz (Table 2).
pub const TICKS_PER_CYCLE: u64 = 20;

/// Nanoseconds as ticks.
pub const fn ns(count: u64) -> u64 {
    count * TICKS_PER_NS
}

/// Core cycles as ticks.
pub const fn cycles(count: u64) -> u64 {
    count * TICKS_PER_CYCLE
}

/// Bytes in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub u64);

impl Rate {
    /// Ticks that `bytes` take at this rate, rounded up.
    pub fn ticks(self, bytes: u64) -> u64 {
        (bytes * TICKS_PER_NS * 1_000_000_000).div_ceil(self.0)
    }

    /// `percent` of this rate.
    pub fn share(self, percent: u64) -> Rate {
        Rate(self.0 * percent / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_its_bytes_by_the_rate() {
        let dram = Rate(17_000_000_000);
        // 4096 B / 17 GB/s = 240.94 ns = 17347.8 ticks.
        assert_eq!(dram.ticks(4096), 17_348);
        assert_eq!(dram.share(25), Rate(4_250_000_000));
        assert_eq!(ns(1), 72);
        assert_eq!(cycles(36) / TICKS_PER_NS, 10);
    }
}
