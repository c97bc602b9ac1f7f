//! What carries bytes: memory buses and the directions of the network, each a server that takes transfers in the order of their coming.

use crate::parameters::{LINE_BYTES, Parameters};
use crate::time::Rate;

/// At which granularity data move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granularity {
    /// 64 bytes, and requests for them.
    Line,
    /// 4 KiB, and requests for them.
    Page,
}

/// One bus. Partitioned, lines and pages have each a fixed share of its bandwidth, which is kept also while the other has nothing to send
/// (§4.1: "even if either queue is empty"): two servers, the fluid limit of 21 lines and one page in turns.
///
/// Invariant: a server's transfers do not overlap, and its `free_at` never runs backwards.
#[derive(Clone, Debug)]
pub struct Bus {
    rates: [Rate; 2],
    free_at: [u64; 2],
    is_partitioned: bool,
    /// Bytes that were sent, by granularity.
    pub bytes: [u64; 2],
    /// Ticks in which it was busy, by granularity.
    pub busy_ticks: [u64; 2],
}

impl Bus {
    /// A bus; partitioned if lines have a share (in percent) of their own.
    pub fn new(rate: Rate, line_share_percent: Option<u64>) -> Bus {
        let rates = match line_share_percent {
            Some(percent) => [rate.share(percent), rate.share(100 - percent)],
            None => [rate, rate],
        };
        let is_partitioned = line_share_percent.is_some();
        Bus { rates, free_at: [0; 2], is_partitioned, bytes: [0; 2], busy_ticks: [0; 2] }
    }

    /// Ticks of a transfer.
    pub fn ticks(&self, granularity: Granularity, bytes: u64) -> u64 {
        self.rates[granularity as usize].ticks(bytes)
    }

    /// Sends bytes that are ready at `at`, behind all that was to be sent before; when the last has left.
    pub fn send(&mut self, granularity: Granularity, at: u64, bytes: u64) -> u64 {
        let ticks = self.ticks(granularity, bytes);
        let server = if self.is_partitioned { granularity as usize } else { 0 };
        let done = self.free_at[server].max(at) + ticks;
        self.free_at[server] = done;
        self.bytes[granularity as usize] += bytes;
        self.busy_ticks[granularity as usize] += ticks;
        done
    }
}

/// One direction of the network: a bus, half the switch latency, and waiting inside of the switch, which follows the utilisation of the
/// interval before (§5). The explicit queue is the bus's; inside of the switch a cell of one line waits for cells (M/D/1).
#[derive(Clone, Debug)]
pub struct Direction {
    /// The bus.
    pub bus: Bus,
    propagation_ticks: u64,
    interval_ticks: u64,
    percent_max: u64,
    cell_ticks: u64,
    interval_end: u64,
    busy_before: u64,
    waiting_ticks: u64,
}

impl Direction {
    /// An idle direction.
    pub fn new(parameters: &Parameters, line_share_percent: Option<u64>) -> Direction {
        Direction {
            bus: Bus::new(parameters.network_rate, line_share_percent),
            propagation_ticks: parameters.switch_ticks / 2,
            interval_ticks: parameters.utilisation_interval_ticks,
            percent_max: parameters.utilisation_percent_max,
            cell_ticks: parameters.network_rate.ticks(LINE_BYTES),
            interval_end: parameters.utilisation_interval_ticks,
            busy_before: 0,
            waiting_ticks: 0,
        }
    }

    /// Sends a message that is ready at `at`; when it has arrived.
    pub fn send(&mut self, granularity: Granularity, at: u64, bytes: u64) -> u64 {
        if at >= self.interval_end {
            self.next_interval(at);
        }
        self.bus.send(granularity, at, bytes) + self.propagation_ticks + self.waiting_ticks
    }

    /// Takes the utilisation of the intervals that have ended. Shares count as what they transfer, so bytes are counted at the full rate.
    fn next_interval(&mut self, at: u64) {
        let carried = Rate::ticks(self.rate(), self.bus.bytes.iter().sum::<u64>());
        let intervals = (at - self.interval_end) / self.interval_ticks + 1;
        let percent = ((carried - self.busy_before) * 100 / (intervals * self.interval_ticks)).min(self.percent_max);
        self.waiting_ticks = waiting(self.cell_ticks, percent);
        self.busy_before = carried;
        self.interval_end += intervals * self.interval_ticks;
    }

    fn rate(&self) -> Rate {
        match self.bus.is_partitioned {
            true => Rate(self.bus.rates[0].0 + self.bus.rates[1].0),
            false => self.bus.rates[0],
        }
    }
}

/// Mean waiting in an M/D/1 queue: service × u / (2 × (1 − u)).
fn waiting(service_ticks: u64, percent: u64) -> u64 {
    service_ticks * percent / (2 * (100 - percent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Granularity::{Line, Page};

    /// 64 bytes in 720 ticks (10 ns).
    const RATE: Rate = Rate(6_400_000_000);

    #[test]
    fn one_queue_serves_in_order_of_coming() {
        let mut bus = Bus::new(RATE, None);
        assert_eq!(bus.send(Page, 100, 4096), 100 + 46_080);
        assert_eq!(bus.send(Line, 200, 64), 46_180 + 720);
        assert_eq!(bus.send(Line, 100_000, 64), 100_720);
        assert_eq!((bus.bytes, bus.busy_ticks), ([128, 4096], [1_440, 46_080]));
    }

    #[test]
    fn a_line_passes_pages_in_its_share_and_gets_no_more_when_there_are_none() {
        let mut bus = Bus::new(RATE, Some(25));
        assert_eq!(bus.send(Page, 0, 4096), 61_440);
        assert_eq!(bus.send(Line, 0, 64), 2_880);
        assert_eq!(bus.send(Line, 0, 64), 5_760);
        assert_eq!(bus.send(Line, 1_000_000, 64), 1_002_880);
    }

    #[test]
    fn waiting_in_the_switch_follows_the_interval_before() {
        let mut parameters = Parameters::paper();
        parameters.network_rate = RATE;
        parameters.switch_ticks = 200;
        parameters.utilisation_interval_ticks = 92_160;
        let mut direction = Direction::new(&parameters, None);
        // Half of the interval: one page of 46,080 ticks.
        assert_eq!(direction.send(Page, 0, 4096), 46_080 + 100);
        // 720 × 50 / (2 × 50) = 360.
        assert_eq!(direction.send(Line, 92_160, 64), 92_160 + 720 + 100 + 360);
        // Two intervals later almost nothing was sent.
        assert_eq!(direction.send(Line, 300_000, 64), 300_000 + 720 + 100);
        assert_eq!(waiting(720, 95), 720 * 95 / 10);
    }
}
