//! The next piece on the node's link, and its time: the kernel gets no more bytes than keep the link busy, so that
//! later pieces find no queue that the node cannot order.
//!
//! ```text
//!   lanes ──► FairLink ──► at most BACKLOG ahead of the link ──► sockets ──► link
//! ```
//!
//! The link is a rate that the operator states, and its state one number: the time when all granted bytes have left.
//! Pure: times are arguments.

use hinterland_wire::{Channel, FairLink, LinkShare, Priority};

/// What was granted keeps the link busy for so long when the next piece is granted: a thread that sleeps until then has to wake up meanwhile, and
/// a demand waits for it. Beside demands, and where there are none.
const BACKLOG_NS: [u64; 2] = [5_000, 80_000];
/// A piece occupies the link for so long, if that is more than `PIECE_BYTES_MIN`: until it has left nothing overtakes it. Likewise.
const PIECE_NS: [u64; 2] = [20_000, 80_000];
/// Demands are there for so long after the last one.
const DEMANDS_LAST_NS: u64 = 10_000_000;
/// A page and what stands before it.
const PIECE_BYTES_MIN: u64 = 4096 + 256;
/// Bytes of a frame of Ethernet that are the reply's own, and those that are not: preamble, headers of Ethernet, IP and TCP with time stamps,
/// checksum, gap (IEEE 802.3, RFC 9293, RFC 7323).
const FRAME_BYTES: u64 = 1448;
const AROUND_FRAME_BYTES: u64 = 90;
/// So much of the link is granted, in percent: a queue that has formed all the same goes.
const GRANTED_PERCENT: u128 = 98;

/// See the module.
#[derive(Debug)]
pub(crate) struct EgressScheduler<T> {
    bits_per_second: u64,
    queue: FairLink<T>,
    /// When all that was granted has left.
    free_at_ns: u64,
    /// Until then demands are there.
    demands_until_ns: u64,
}

impl<T> EgressScheduler<T> {
    /// An idle link; at least 1 bit a second.
    pub(crate) fn new(bits_per_second: u64) -> EgressScheduler<T> {
        EgressScheduler {
            bits_per_second: bits_per_second.max(1),
            queue: FairLink::new(LinkShare::Auto),
            free_at_ns: 0,
            demands_until_ns: 0,
        }
    }

    /// Of what depends on whether demands are there.
    fn beside_demands(&self, values: [u64; 2], now_ns: u64) -> u64 {
        values[usize::from(now_ns >= self.demands_until_ns)]
    }

    /// Bytes of a piece at most.
    pub(crate) fn piece_bytes(&self, now_ns: u64) -> u64 {
        let piece_ns = self.beside_demands(PIECE_NS, now_ns);
        let bytes = u128::from(self.bits_per_second) * u128::from(piece_ns) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(PIECE_BYTES_MIN)
    }

    /// How long so many bytes of a reply occupy the link.
    fn ns_of(bytes: u64, bits_per_second: u64) -> u64 {
        let around = bytes.div_ceil(FRAME_BYTES) * AROUND_FRAME_BYTES;
        let ns = u128::from(bytes + around) * 8_000_000_000 * 100 / GRANTED_PERCENT / u128::from(bits_per_second);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Whether nothing waits, and one more piece of this class may be granted: once a demand waits, demands are there.
    fn is_free(&self, class: Priority, now_ns: u64) -> bool {
        let backlog_ns = match class {
            Priority::Demand => BACKLOG_NS[0],
            _ => self.beside_demands(BACKLOG_NS, now_ns),
        };
        self.queue.waiting() == 0 && self.free_at_ns.saturating_sub(backlog_ns) <= now_ns
    }

    /// When the next piece may be granted, as it looks now.
    pub(crate) fn next_at_ns(&self, now_ns: u64) -> u64 {
        self.free_at_ns.saturating_sub(self.beside_demands(BACKLOG_NS, now_ns))
    }

    /// How many of `bytes` may be sent now; 0: others wait, or the link holds enough. Nothing waits for it.
    pub(crate) fn take_now(&mut self, channel: Channel, bytes: u64, now_ns: u64, what: impl FnOnce() -> T) -> u64 {
        if !self.is_free(channel.class, now_ns) {
            return 0;
        }
        self.push(channel, bytes, now_ns, what());
        self.grant(now_ns).map_or(0, |(_, granted)| granted)
    }

    /// One of those that wait.
    pub(crate) fn any(&self) -> Option<&T> {
        self.queue.any()
    }

    /// A piece of `bytes`, or of as many as a piece has at most, waits from now on.
    pub(crate) fn push(&mut self, channel: Channel, bytes: u64, now_ns: u64, what: T) {
        if channel.class == Priority::Demand {
            self.demands_until_ns = now_ns + DEMANDS_LAST_NS;
        }
        self.queue.push(channel, bytes.min(self.piece_bytes(now_ns)), now_ns, what);
    }

    /// The piece that may be sent now, and its bytes; `None`: nothing waits, or the link holds enough.
    pub(crate) fn grant(&mut self, now_ns: u64) -> Option<(T, u64)> {
        if now_ns < self.next_at_ns(now_ns) {
            return None;
        }
        let ns_of = |bytes| EgressScheduler::<T>::ns_of(bytes, self.bits_per_second);
        let granted = self.queue.pop(now_ns, ns_of);
        if let Some((_, bytes)) = &granted {
            self.free_at_ns = self.free_at_ns.max(now_ns) + ns_of(*bytes);
        }
        granted
    }

    /// So many of the bytes that were granted were not sent.
    pub(crate) fn not_sent(&mut self, bytes: u64) {
        self.free_at_ns = self.free_at_ns.saturating_sub(EgressScheduler::<T>::ns_of(bytes, self.bits_per_second));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BinaryHeap;

    const GIGABIT: u64 = 1_000_000_000;
    /// From request to reply, without the reply's bytes.
    const ROUND_TRIP_NS: u64 = 60_000;
    const PAGE: u64 = 4096 + 48;

    /// A program that asks for a reply of so many bytes, in so many requests at a time, each again after so long a thought.
    #[derive(Clone, Copy)]
    struct Program {
        class: Priority,
        bytes: u64,
        depth: usize,
        think_ns: u64,
    }

    /// What it got: bytes, and how long each reply took.
    #[derive(Default)]
    struct Got {
        bytes: u64,
        took_ns: Vec<u64>,
    }

    impl Got {
        fn mean(&self) -> u64 {
            self.took_ns.iter().sum::<u64>() / self.took_ns.len() as u64
        }

        fn p99(&self) -> u64 {
            let mut took = self.took_ns.clone();
            took.sort_unstable();
            took[took.len() * 99 / 100]
        }
    }

    /// A reply that is not sent as a whole yet.
    struct Reply {
        program: usize,
        asked_ns: u64,
        left: u64,
    }

    /// Runs programs, each a tenant, for so long; with turns, or each reply sent as it comes.
    fn run(programs: &[Program], turns: bool, until_ns: u64) -> Vec<Got> {
        let mut link = EgressScheduler::new(GIGABIT);
        let mut got: Vec<Got> = programs.iter().map(|_| Got::default()).collect();
        // Requests that arrive, the earliest first: time, program, when it was made.
        let mut arrivals = BinaryHeap::new();
        for (program, is) in programs.iter().enumerate() {
            (0..is.depth).for_each(|at| arrivals.push(std::cmp::Reverse((at as u64 * 1_000, program))));
        }
        let mut random = hinterland_units::Rng(1);
        let mut now = 0;
        while now < until_ns {
            let next_arrival = arrivals.peek().map_or(u64::MAX, |std::cmp::Reverse((at, _))| *at);
            let next_grant = link.any().map_or(u64::MAX, |_: &Reply| link.next_at_ns(now).max(now));
            now = next_arrival.min(next_grant);
            if next_arrival <= next_grant {
                let std::cmp::Reverse((at, program)) = arrivals.pop().expect("peeked");
                let bytes = programs[program].bytes;
                push(&mut link, programs, Reply { program, asked_ns: at, left: bytes }, turns, at);
                continue;
            }
            let (mut reply, bytes) = link.grant(now).expect("one waits, and it is time");
            reply.left -= bytes;
            if reply.left > 0 {
                push(&mut link, programs, reply, turns, now);
                continue;
            }
            // The kernel and the link send in the order of the grants.
            let done = link.free_at_ns + ROUND_TRIP_NS;
            let Program { bytes, think_ns, .. } = programs[reply.program];
            got[reply.program].bytes += bytes;
            got[reply.program].took_ns.push(done - reply.asked_ns);
            // A thought is between half and one and a half times as long.
            let think = if think_ns == 0 { 0 } else { think_ns / 2 + random.below(think_ns) };
            arrivals.push(std::cmp::Reverse((done + think, reply.program)));
        }
        got
    }

    fn push(link: &mut EgressScheduler<Reply>, programs: &[Program], reply: Reply, turns: bool, now: u64) {
        let (tenant, class) = (reply.program as u64, programs[reply.program].class);
        let left = reply.left;
        match turns {
            true => link.push(Channel { tenant, program: tenant, class }, left, now, reply),
            // As it comes, and as a whole.
            false => {
                link.queue.push(Channel { tenant: 0, program: 0, class: Priority::Demand }, left, now, reply);
                link.free_at_ns = link.free_at_ns.max(now);
            }
        }
    }

    const FLOOD: Program = Program { class: Priority::Prefetch, bytes: 64 * PAGE, depth: 16, think_ns: 0 };
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn beside_a_flood_a_program_that_takes_a_third_of_the_link_waits_little() {
        for (bytes, depth, think_ns) in [(PAGE, 1, 10_000), (PAGE, 1, 200_000), (PAGE, 2, 150_000)] {
            let meek = Program { class: Priority::Demand, bytes, depth, think_ns };
            let [alone] = &run(&[meek], true, SECOND)[..] else { panic!("one") };
            assert!(alone.bytes * 8 * 100 <= GIGABIT * 36, "{} MB", alone.bytes / 1_000_000);
            let [beside, flood] = &run(&[meek, FLOOD], true, SECOND)[..] else { panic!("two") };
            assert!(beside.mean() * 10 <= alone.mean() * 13, "{} ns, alone {}", beside.mean(), alone.mean());
            assert!(beside.p99() <= alone.p99() * 2, "{} ns, alone {}", beside.p99(), alone.p99());
            // The link is busy all the time: nothing is lost.
            let sent = (beside.bytes + flood.bytes) * 8 * 100 / GIGABIT;
            assert!((86..=98).contains(&sent), "{sent} % of the link");
            let [unordered, _] = &run(&[meek, FLOOD], false, SECOND)[..] else { panic!("two") };
            assert!(unordered.mean() > 20 * alone.mean(), "{} ns without turns", unordered.mean());
        }
    }

    #[test]
    fn two_that_flood_get_half_each_whatever_they_ask_for_and_on_however_many_lanes() {
        let of_demands = Program { class: Priority::Demand, bytes: PAGE, depth: 48, think_ns: 0 };
        let single = Program { depth: 4, ..FLOOD };
        for other in [FLOOD, of_demands, single] {
            let got = run(&[FLOOD, other], true, SECOND);
            let part = got[1].bytes * 100 / (got[0].bytes + got[1].bytes);
            assert!((45..=55).contains(&part), "{part} %");
        }
    }

    /// After a demand at that time.
    fn turns_at(now: u64) -> EgressScheduler<()> {
        let mut scheduler = EgressScheduler::new(GIGABIT);
        scheduler.push(Channel { tenant: 1, program: 1, class: Priority::Demand }, 1, now, ());
        scheduler
    }

    /// A demand may be sent a while later than bulk beside which there are none: what is not sent at once leaves nothing behind.
    #[test]
    fn what_cannot_be_sent_now_waits_only_where_it_is_waited_for() {
        let (bulk, demand) = (Priority::Prefetch, Priority::Demand);
        let channel = |class| Channel { tenant: 1, program: 1, class };
        for (class, now, is_sent) in
            [(bulk, 1_000, false), (bulk, 40_000, true), (demand, 40_000, false), (demand, 85_000, true)]
        {
            let mut scheduler = EgressScheduler::new(GIGABIT);
            assert!(scheduler.take_now(channel(bulk), 1 << 20, 0, || ()) > 0);
            assert!((86_000..88_000).contains(&scheduler.free_at_ns), "{} ns", scheduler.free_at_ns);
            assert_eq!(scheduler.take_now(channel(class), PAGE, now, || ()) > 0, is_sent, "{class:?} at {now}");
            assert_eq!(scheduler.any(), None, "{class:?} at {now}");
        }
    }

    #[test]
    fn of_a_piece_that_is_not_sent_the_time_is_given_back() {
        let mut scheduler = EgressScheduler::new(GIGABIT);
        let channel = Channel { tenant: 1, program: 1, class: Priority::Demand };
        assert!(scheduler.is_free(channel.class, 0));
        scheduler.push(channel, 1 << 20, 5, ());
        assert!(!scheduler.is_free(channel.class, 5));
        let ((), bytes) = scheduler.grant(5).expect("free");
        assert_eq!(bytes, scheduler.piece_bytes(5));
        assert!(scheduler.free_at_ns > 30_000 && !scheduler.is_free(channel.class, 5));
        scheduler.not_sent(bytes);
        assert_eq!((scheduler.free_at_ns, scheduler.is_free(channel.class, 5)), (5, true));
        // Faster links have longer pieces, and so has one without demands; slow ones send a page as a whole.
        let pieces = |now| {
            [10, GIGABIT, 100 * GIGABIT]
                .map(|rate| EgressScheduler { bits_per_second: rate, ..turns_at(5) }.piece_bytes(now))
        };
        assert_eq!((pieces(5), pieces(DEMANDS_LAST_NS + 5)), ([4352, 4352, 250_000], [4352, 10_000, 1_000_000]));
    }
}
