//! What carries bytes: memory buses and the directions of the network, each a server that takes transfers in the order of their coming.

use crate::parameters::{DISTURBANCE_BYTES, Disturbance, LINE_BYTES, Link, Parameters};
use crate::random::Random;
use crate::time::Rate;

/// At which granularity data move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granularity {
    /// 64 bytes, and requests for them.
    Line,
    /// 4 KiB, and requests for them.
    Page,
}

/// How lines and pages share a bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// One queue for both.
    OneQueue,
    /// Each has its share of the bandwidth, which is kept also while the other has nothing to send (§4.1: "even if either queue is empty"): two
    /// servers, the fluid limit of 21 lines and one page in turns.
    Kept {
        /// What lines have.
        line_percent: u64,
    },
    /// Lines go first, in between a page, and pages have what lines leave. A page whose end was foreseen ends then all the same; those behind it are
    /// later by the lines that came meanwhile, so no byte is carried twice. A page that is sent for a later time takes the time up to then, too, for
    /// those behind it: lines that come then move them, although nothing is carried.
    Lent,
}

/// One bus.
///
/// Invariant: a server's transfers do not overlap, and its `free_at` never runs backwards.
#[derive(Clone, Debug)]
pub struct Bus {
    rate: Rate,
    rates: [Rate; 2],
    free_at: [u64; 2],
    sharing: Sharing,
    /// Bytes that were sent, by granularity.
    pub bytes: [u64; 2],
    /// Ticks in which it was busy, by granularity.
    pub busy_ticks: [u64; 2],
}

impl Bus {
    /// An idle bus.
    pub fn new(rate: Rate, sharing: Sharing) -> Bus {
        let rates = match sharing {
            Sharing::OneQueue | Sharing::Lent => [rate; 2],
            Sharing::Kept { line_percent } => [rate.share(line_percent), rate.share(100 - line_percent)],
        };
        Bus { rate, rates, free_at: [0; 2], sharing, bytes: [0; 2], busy_ticks: [0; 2] }
    }

    /// Its whole bandwidth.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// All bytes that were sent.
    pub fn sent(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Ticks of a transfer.
    pub fn ticks(&self, granularity: Granularity, bytes: u64) -> u64 {
        self.rates[granularity as usize].ticks(bytes)
    }

    /// What it carried of what was sent since `earlier`, in millionths of what it could carry from the end of what was sent before to the end of this. A
    /// queue that has grown meanwhile is thus carried in its own time, and no bus carries more than it can.
    pub fn used_since(&self, earlier: &Bus, at: [u64; 2]) -> u64 {
        let [lines, pages] = [Granularity::Line as usize, Granularity::Page as usize];
        let end = |bus: &Bus, at: u64, server: usize| bus.free_at[server].max(at);
        let used = |percent: u64, busy: u64, [from, to]: [u64; 2]| {
            let millionths = u128::from(busy) * u128::from(percent) * 10_000 / u128::from((to - from).max(1));
            u64::try_from(millionths).expect("at most all of it")
        };
        let busy = |server: usize| self.busy_ticks[server] - earlier.busy_ticks[server];
        let of_server =
            |percent, server| used(percent, busy(server), [end(earlier, at[0], server), end(self, at[1], server)]);
        let of_both = |bus: &Bus, at| end(bus, at, lines).max(end(bus, at, pages));
        match self.sharing {
            Sharing::Kept { line_percent } => of_server(line_percent, lines) + of_server(100 - line_percent, pages),
            _ => used(100, busy(lines) + busy(pages), [of_both(earlier, at[0]), of_both(self, at[1])]),
        }
    }

    /// All stands still for so long behind what was to be sent before, because another compute component sends.
    fn stop(&mut self, at: u64, ticks: u64) {
        for free_at in &mut self.free_at {
            *free_at = (*free_at).max(at) + ticks;
        }
    }

    /// Sends bytes that are ready at `at`, behind all that was to be sent before; when the last has left.
    pub fn send(&mut self, granularity: Granularity, at: u64, bytes: u64) -> u64 {
        let ticks = self.ticks(granularity, bytes);
        let [lines, pages] = [Granularity::Line as usize, Granularity::Page as usize];
        let server = if self.sharing == Sharing::OneQueue { lines } else { granularity as usize };
        let mut start = self.free_at[server].max(at);
        if self.sharing == Sharing::Lent {
            match granularity {
                Granularity::Page => start = start.max(self.free_at[lines]),
                Granularity::Line if self.free_at[pages] > at => self.free_at[pages] += ticks,
                Granularity::Line => {}
            }
        }
        let done = start + ticks;
        self.free_at[server] = done;
        self.bytes[granularity as usize] += bytes;
        self.busy_ticks[granularity as usize] += ticks;
        done
    }
}

/// Packets of others, one after the other.
#[derive(Clone, Debug)]
struct Others {
    random: Random,
    interval_ticks: u64,
    /// Twice the mean from one packet to the next.
    gap_ticks_max: u64,
    packet_ticks: u64,
    /// Of the next packet, in the intervals that have some.
    next: u64,
    bytes: u64,
}

impl Others {
    fn new(disturbance: Disturbance, rate: Rate, number: u64) -> Others {
        let packet_ticks = rate.ticks(DISTURBANCE_BYTES);
        let mut others = Others {
            random: Random::new(disturbance.seed ^ number.rotate_left(48)),
            interval_ticks: disturbance.interval_ticks,
            gap_ticks_max: 2 * packet_ticks * 100 / disturbance.percent,
            packet_ticks,
            next: 0,
            bytes: 0,
        };
        others.next = others.gap();
        others
    }

    fn gap(&mut self) -> u64 {
        1 + self.random.below(self.gap_ticks_max)
    }

    /// When the next packet comes.
    fn at(&self) -> u64 {
        self.next + (self.next / self.interval_ticks + 1) * self.interval_ticks
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
    bytes_before: u64,
    waiting_ticks: u64,
    others: Option<Others>,
}

impl Direction {
    /// An idle direction of a link. `number` tells directions apart, so that each has packets of its own.
    pub fn new(parameters: &Parameters, link: Link, sharing: Sharing, number: u64) -> Direction {
        Direction {
            bus: Bus::new(link.rate, sharing),
            propagation_ticks: link.switch_ticks / 2,
            interval_ticks: parameters.utilisation_interval_ticks,
            percent_max: parameters.utilisation_percent_max,
            cell_ticks: link.rate.ticks(LINE_BYTES),
            interval_end: parameters.utilisation_interval_ticks,
            bytes_before: 0,
            waiting_ticks: 0,
            others: parameters.disturbance.map(|disturbance| Others::new(disturbance, link.rate, number)),
        }
    }

    /// Sends a message that is ready at `at`; when it has arrived.
    pub fn send(&mut self, granularity: Granularity, at: u64, bytes: u64) -> u64 {
        while let Some(others) = self.others.as_mut().filter(|others| others.at() <= at) {
            self.bus.stop(others.at(), others.packet_ticks);
            others.bytes += DISTURBANCE_BYTES;
            others.next += others.gap();
        }
        if at >= self.interval_end {
            self.next_interval(at);
        }
        self.bus.send(granularity, at, bytes) + self.propagation_ticks + self.waiting_ticks
    }

    /// Takes the utilisation of the intervals that have ended. Shares count as what they transfer, so bytes are counted at the full rate.
    fn next_interval(&mut self, at: u64) {
        let sent = self.bus.sent() + self.others.as_ref().map_or(0, |others| others.bytes);
        // Of the interval alone: the bytes of a whole run, as ticks, exceed 64 bits.
        let carried = self.bus.rate.ticks(sent - self.bytes_before);
        let intervals = (at - self.interval_end) / self.interval_ticks + 1;
        let percent = (carried * 100 / (intervals * self.interval_ticks)).min(self.percent_max);
        self.waiting_ticks = waiting(self.cell_ticks, percent);
        self.bytes_before = sent;
        self.interval_end += intervals * self.interval_ticks;
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
        let mut bus = Bus::new(RATE, Sharing::OneQueue);
        assert_eq!(bus.send(Page, 100, 4096), 100 + 46_080);
        assert_eq!(bus.send(Line, 200, 64), 46_180 + 720);
        assert_eq!(bus.send(Line, 100_000, 64), 100_720);
        assert_eq!((bus.bytes, bus.busy_ticks), ([128, 4096], [1_440, 46_080]));
    }

    #[test]
    fn a_line_passes_pages_in_its_share_and_gets_no_more_when_there_are_none() {
        let mut bus = Bus::new(RATE, Sharing::Kept { line_percent: 25 });
        assert_eq!(bus.send(Page, 0, 4096), 61_440);
        assert_eq!(bus.send(Line, 0, 64), 2_880);
        assert_eq!(bus.send(Line, 0, 64), 5_760);
        assert_eq!(bus.send(Line, 1_000_000, 64), 1_002_880);
    }

    #[test]
    fn shares_that_are_lent_go_to_lines_first_and_no_byte_is_carried_twice() {
        let mut bus = Bus::new(RATE, Sharing::Lent);
        // A page alone has the whole bus, and so has a line that comes in between.
        assert_eq!((bus.send(Page, 0, 4096), bus.send(Line, 100, 64)), (46_080, 820));
        // The next page is later by that line.
        assert_eq!(bus.send(Page, 100, 4096), 46_080 + 720 + 46_080);
        // A line on an idle bus delays the page that comes meanwhile, and no later one.
        assert_eq!((bus.send(Line, 200_000, 64), bus.send(Page, 200_100, 4096)), (200_720, 200_720 + 46_080));
        assert_eq!((bus.send(Line, 300_000, 64), bus.send(Page, 400_000, 4096)), (300_720, 446_080));
        assert_eq!((bus.bytes, bus.busy_ticks), ([192, 16_384], [2_160, 184_320]));
    }

    #[test]
    fn a_bus_is_used_for_what_it_carries_and_no_more_than_all_of_it() {
        let kept = Sharing::Kept { line_percent: 25 };
        for (sharing, used) in [(Sharing::OneQueue, 500_000), (Sharing::Lent, 500_000), (kept, 500_000)] {
            let mut bus = Bus::new(RATE, sharing);
            bus.send(Page, 0, 4096);
            let before = bus.clone();
            // In twice the time that they take, one page and a third of one in lines: each server carries half of what it can.
            let page = bus.ticks(Page, 4096);
            let end = before.free_at.into_iter().max().expect("two");
            let lines = if sharing == kept { 64 / 3 } else { 0 };
            for _ in 0..lines {
                bus.send(Line, end, 64);
            }
            bus.send(Page, end, 4096);
            let measured = bus.used_since(&before, [end, end + 2 * page]);
            assert!(measured.abs_diff(used) < 4_000, "{sharing:?}: {measured}");
            // Far more than it can carry by then waits for it.
            for _ in 0..1000 {
                bus.send(Page, end, 4096);
                bus.send(Line, end, 64);
            }
            let measured = bus.used_since(&before, [end, end + 2 * page]);
            assert!(measured <= 1_000_000 && measured > 700_000, "{sharing:?}: {measured}");
            assert_eq!(bus.used_since(&bus.clone(), [0, 0]), 0, "{sharing:?}");
        }
    }

    #[test]
    fn waiting_in_the_switch_follows_the_interval_before() {
        let mut parameters = Parameters::paper();
        parameters.network_rate = RATE;
        parameters.switch_ticks = 200;
        parameters.utilisation_interval_ticks = 92_160;
        let mut direction = Direction::new(&parameters, parameters.link(0), Sharing::OneQueue, 0);
        // Half of the interval: one page of 46,080 ticks.
        assert_eq!(direction.send(Page, 0, 4096), 46_080 + 100);
        // 720 × 50 / (2 × 50) = 360.
        assert_eq!(direction.send(Line, 92_160, 64), 92_160 + 720 + 100 + 360);
        // Two intervals later almost nothing was sent.
        assert_eq!(direction.send(Line, 300_000, 64), 300_000 + 720 + 100);
        assert_eq!(waiting(720, 95), 720 * 95 / 10);
    }

    #[test]
    fn packets_of_others_take_their_part_of_every_other_interval() {
        let disturbance = Disturbance { percent: 50, interval_ticks: 100 * 46_080, seed: 1 };
        let parameters = Parameters { network_rate: RATE, disturbance: Some(disturbance), ..Parameters::paper() };
        for sharing in [Sharing::OneQueue, Sharing::Kept { line_percent: 25 }, Sharing::Lent] {
            let mut direction = Direction::new(&parameters, parameters.link(0), sharing, 0);
            let late = |direction: &mut Direction, at: u64| {
                direction.send(Line, at, 64);
                direction.bus.free_at[0].saturating_sub(at + direction.bus.ticks(Line, 64))
            };
            // A line in the first interval waits for nothing. In the second about 50 packets come, and a line behind them waits for what is left.
            assert_eq!(late(&mut direction, 50 * 46_080), 0, "{sharing:?}");
            let waits: Vec<u64> = (100..200).map(|packet| late(&mut direction, packet * 46_080)).collect();
            assert!(waits.iter().filter(|ticks| **ticks > 0).count() > 20, "{sharing:?}: {waits:?}");
            let packets = direction.others.as_ref().expect("disturbed").bytes / DISTURBANCE_BYTES;
            assert!((40..60).contains(&packets), "{packets}");
            late(&mut direction, 390 * 46_080);
            let packets = direction.others.as_ref().expect("disturbed").bytes / DISTURBANCE_BYTES;
            assert!((85..115).contains(&packets), "two of four intervals have some: {packets}");
        }
        // Others draw other gaps, the same number the same.
        let first = |number| Others::new(disturbance, RATE, number).at();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn utilisation_is_right_after_more_bytes_than_64_bits_count_as_ticks() {
        // 2^64 ticks / 72 / 1e9 = 256 million bytes: 62,500 pages one after the other, without a gap.
        let parameters = Parameters {
            network_rate: RATE,
            utilisation_interval_ticks: 92_160,
            switch_ticks: 200,
            ..Parameters::paper()
        };
        let mut direction = Direction::new(&parameters, parameters.link(0), Sharing::OneQueue, 0);
        let arrived = (0..70_000).map(|page| direction.send(Page, page * 46_080, 4096)).last();
        assert_eq!(arrived, Some(70_000 * 46_080 + 100 + waiting(720, 95)));
    }
}
