//! A link to far memory: a latency, a bandwidth, and a queue in which demand overtakes. The simulator has it in virtual time; the
//! decorator `OverLink` makes real calls take as long.
//!
//! ```text
//!   demand fetch ─┐
//!   prefetch ─────┼─► in ───► 4 KiB at a time, by priority ──► on its way for the latency ──► done with its last byte
//!   …             │           (bytes / bandwidth)
//!   write-back ───┴─► out ──► likewise, beside it
//! ```
//!
//! Each direction has the whole bandwidth, as on a network, unless the link is *half duplex*: then both share it, as reads and writes share a
//! disk. A request pays for its bytes, and the latency once. A piece that is being sent is not interrupted.
//!
//! Where the processes of a run share it, each has a queue of its own, and of the link what the others leave (`cross_traffic`).
//!
//! Invariant: requests of one direction and priority are served in the order of their coming; `free_at_ns` never runs backwards.

mod cross_traffic;

use crate::Priority;
use cross_traffic::CrossTraffic;
use hinterland_abi::RunLink;
use hinterland_units::PAGE_BYTES;
pub use hinterland_wire::LinkShare;
use hinterland_wire::{LinkScheduler, NextSlot};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// What a link can do.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkModel {
    /// As it was asked for.
    pub name: String,
    /// From the last byte sent to the answer, in nanoseconds.
    pub latency_ns: u64,
    /// In bits a second; at least 1.
    pub bits_per_second: u64,
    /// The classes that share them.
    pub duplex: Duplex,
    /// How they are divided among the classes.
    pub share: LinkShare,
}

/// Whether what comes and what goes shares the bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplex {
    /// Each direction has it for itself.
    #[default]
    Full,
    /// Both share it.
    Half,
}

/// Which way bytes go, seen from the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From far memory: loads.
    In,
    /// To far memory: stores.
    Out,
}

/// The links that have names: latency in ns, bandwidth in Gb/s (the targets of the project are set at them).
const PRESETS: [(&str, u64, u64, Duplex); 3] =
    [("rdma-25g", 5_000, 25, Duplex::Full), ("tcp-10g", 15_000, 10, Duplex::Full), ("ssd", 90_000, 4, Duplex::Half)];

/// Why a link cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// Neither a name nor two quantities.
    #[error(
        "'{0}' is no link; take rdma-25g, tcp-10g, ssd, or LATENCY:BANDWIDTH such as 5us:25Gb/s, with :half behind it if both directions share it"
    )]
    Unknown(String),
    /// The part before the colon.
    #[error("'{0}' is no latency; write for example 500ns, 5us or 2ms, at most 10s")]
    Latency(String),
    /// The part behind it.
    #[error("'{0}' is no bandwidth; write for example 25Gb/s or 800Mb/s, from 1Mb/s to 10000Gb/s")]
    Bandwidth(String),
}

impl LinkModel {
    /// Nanoseconds that `bytes` occupy the link, rounded up.
    pub fn send_ns(&self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(self.bits_per_second));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Nanoseconds that one page occupies the link, rounded up.
    pub fn page_ns(&self) -> u64 {
        self.send_ns(PAGE_BYTES as u64)
    }

    /// The names that are known.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.0)
    }
}

impl FromStr for LinkModel {
    type Err = LinkError;

    fn from_str(written: &str) -> Result<LinkModel, LinkError> {
        let duplexes = [(":full", Duplex::Full), (":half", Duplex::Half)];
        let asked = duplexes.iter().find_map(|(text, duplex)| Some((written.strip_suffix(text)?, *duplex)));
        let (speed, asked) = asked.map_or((written, None), |(speed, duplex)| (speed, Some(duplex)));
        if let Some((_, latency_ns, gigabits, usual)) = PRESETS.iter().find(|preset| preset.0 == speed) {
            let (bits_per_second, duplex) = (gigabits * 1_000_000_000, asked.unwrap_or(*usual));
            return Ok(LinkModel {
                name: written.into(),
                latency_ns: *latency_ns,
                bits_per_second,
                duplex,
                share: LinkShare::Strict,
            });
        }
        let (latency, bandwidth) = speed.split_once(':').ok_or_else(|| LinkError::Unknown(written.into()))?;
        let latency_ns = quantity(latency, &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000)])
            .filter(|ns| *ns <= 10_000_000_000)
            .ok_or_else(|| LinkError::Latency(latency.into()))?;
        let bits_per_second = self::bandwidth(bandwidth)?;
        let (duplex, share) = (asked.unwrap_or_default(), LinkShare::Strict);
        Ok(LinkModel { name: written.into(), latency_ns, bits_per_second, duplex, share })
    }
}

/// Reads a bandwidth, in bits a second.
///
/// # Errors
/// It is none.
pub fn bandwidth(written: &str) -> Result<u64, LinkError> {
    let plain = written.strip_suffix("b/s").or(written.strip_suffix("bit/s")).unwrap_or(written);
    quantity(plain, &[("M", 1_000_000), ("G", 1_000_000_000), ("m", 1_000_000), ("g", 1_000_000_000)])
        .filter(|bits| (1_000_000..=10_000_000_000_000).contains(bits))
        .ok_or_else(|| LinkError::Bandwidth(written.into()))
}

/// A decimal number with one of the units; `None` for anything else.
fn quantity(written: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((written.strip_suffix(unit)?, *factor)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let parts = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(parts.checked_mul(factor)? / scale)
}

impl fmt::Display for LinkModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Bytes that are sent without interruption, at most.
const PIECE_BYTES: u64 = PAGE_BYTES as u64;
/// How many values [`Priority`] has.
const PRIORITIES: usize = 4;

/// Bytes that go over the link together, and the requests that wait for them.
#[derive(Clone, Copy, Debug)]
struct Request<Who> {
    who: Who,
    since_ns: u64,
    bytes: u64,
    bytes_left: u64,
}

/// What shares a bandwidth: one direction, or both.
#[derive(Clone, Debug)]
struct Channel<Who> {
    scheduler: LinkScheduler,
    /// When the piece that is being sent is sent.
    free_at_ns: u64,
    /// When the next piece of bulk may be sent, where others send theirs in between.
    bulk_at_ns: u64,
    /// When the last demand is sent.
    demands_end_ns: u64,
    /// Other processes.
    cross_traffic: Option<CrossTraffic>,
    waiting: [VecDeque<Request<Who>>; PRIORITIES],
    /// Requests that were sent whole, and when they are done: in this order, because the latency is the same for all.
    under_way: VecDeque<(u64, Who)>,
}

impl<Who: Copy> Channel<Who> {
    fn new(share: LinkShare) -> Channel<Who> {
        let scheduler = LinkScheduler::new(share);
        Channel {
            scheduler,
            free_at_ns: 0,
            bulk_at_ns: 0,
            demands_end_ns: 0,
            cross_traffic: None,
            waiting: [const { VecDeque::new() }; PRIORITIES],
            under_way: VecDeque::new(),
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    fn has_demands(&self) -> bool {
        !self.waiting[Priority::Demand as usize].is_empty()
    }

    /// When the next piece is sent; `u64::MAX`: never.
    fn sends_ns(&self) -> u64 {
        match () {
            () if self.has_demands() => self.free_at_ns,
            () if self.is_idle() => u64::MAX,
            () => self.free_at_ns.max(self.bulk_at_ns),
        }
    }

    fn next_ns(&self) -> u64 {
        let sends = self.sends_ns();
        self.under_way.front().map_or(sends, |(done_ns, _)| sends.min(*done_ns))
    }

    fn submit(&mut self, model: &LinkModel, request: Request<Who>, priority: Priority) {
        let (now_ns, is_demand) = (request.since_ns, priority == Priority::Demand);
        let is_free = self.free_at_ns < now_ns;
        if self.is_idle() || self.cross_traffic.is_some() {
            self.free_at_ns = self.free_at_ns.max(now_ns);
        }
        if let Some(others) = &mut self.cross_traffic {
            let has_bulk = self.waiting[1..].iter().any(|queue| !queue.is_empty());
            if is_demand && is_free {
                self.free_at_ns += others.piece_wait_ns(now_ns, model.send_ns(PIECE_BYTES));
            } else if !is_demand && !has_bulk {
                others.bulk_begins();
            }
        }
        self.waiting[priority as usize].push_back(request);
    }

    /// When the first request of `who` that waits will be done, where one class alone waits, no slot passes by, and no process is beside: one after
    /// another. `None`: it does not wait, or only a copy of the channel can tell.
    fn done_in_order_ns(&self, model: &LinkModel, who: Who) -> Option<u64>
    where
        Who: PartialEq,
    {
        let mut queues = self.waiting.iter().filter(|queue| !queue.is_empty());
        let (queue, None) = (queues.next()?, queues.next()) else { return None };
        if self.cross_traffic.is_some() || matches!(model.share, LinkShare::Fixed(_)) {
            return None;
        }
        let at = queue.iter().position(|request| request.who == who)?;
        let send_ns = |request: &Request<Who>| {
            let (pieces, rest) = (request.bytes_left / PIECE_BYTES, request.bytes_left % PIECE_BYTES);
            pieces * model.send_ns(PIECE_BYTES) + model.send_ns(rest)
        };
        Some(self.sends_ns() + queue.iter().take(at + 1).map(send_ns).sum::<u64>() + model.latency_ns)
    }

    /// Says to other processes until when this one uses the channel.
    fn say(&self, model: &LinkModel, now_ns: u64) {
        let Some(others) = &self.cross_traffic else { return };
        let left_ns = |queues: &[VecDeque<Request<Who>>]| -> u64 {
            model.send_ns(queues.iter().flatten().map(|request| request.bytes_left).sum())
        };
        let (demands, bulk) = self.waiting.split_at(1);
        let (demands_ns, bulk_ns) = (left_ns(demands), left_ns(bulk));
        others.say(true, now_ns, if demands_ns > 0 { self.free_at_ns } else { self.demands_end_ns }, demands_ns);
        others.say(
            false,
            now_ns,
            if bulk_ns > 0 { self.bulk_at_ns.max(self.free_at_ns) } else { self.bulk_at_ns },
            bulk_ns,
        );
    }

    /// Lets the next thing happen: returns whose request is done, if it is one, and how many bytes began to be sent.
    fn step(&mut self, model: &LinkModel) -> (Option<Who>, u64) {
        let next_ns = self.next_ns();
        if self.under_way.front().is_some_and(|(done_ns, _)| *done_ns == next_ns) {
            return (self.under_way.pop_front().map(|(_, who)| who), 0);
        }
        // Where it is a demand's, bulk may have to wait for that of others.
        let begin_ns = self.sends_ns();
        let may_send = |class: usize| class == Priority::Demand as usize || self.bulk_at_ns <= begin_ns;
        let waits = std::array::from_fn(|class| !self.waiting[class].is_empty() && may_send(class));
        let class = match self.scheduler.next(waits) {
            None => return (None, 0),
            Some(NextSlot::Pass(bytes)) => {
                self.free_at_ns = begin_ns + model.send_ns(bytes);
                self.scheduler.passed(bytes);
                return (None, 0);
            }
            Some(NextSlot::Send(class)) => class,
        };
        let queue = &mut self.waiting[class as usize];
        let request = queue.front_mut().expect("it waits");
        if class == Priority::Demand && request.bytes_left == request.bytes {
            let wait_ns = begin_ns.saturating_sub(request.since_ns);
            self.scheduler.waited(wait_ns, model.send_ns(request.bytes));
        }
        let piece = request.bytes_left.min(PIECE_BYTES);
        self.scheduler.sent(class, piece);
        let sent_ns = model.send_ns(piece);
        self.free_at_ns = begin_ns + sent_ns;
        match &mut self.cross_traffic {
            Some(others) if class == Priority::Demand => {
                self.free_at_ns = begin_ns + others.demand_ns(begin_ns, sent_ns);
                self.demands_end_ns = self.free_at_ns;
            }
            Some(others) => self.bulk_at_ns = begin_ns + others.bulk_ns(begin_ns, sent_ns),
            None => {}
        }
        request.bytes_left -= piece;
        if request.bytes_left == 0 {
            self.under_way.push_back((self.free_at_ns + model.latency_ns, request.who));
            queue.pop_front();
        }
        (None, piece)
    }
}

/// The link at work; `Who` names the one who waits for a request.
#[derive(Debug)]
pub struct Link<Who> {
    model: LinkModel,
    /// One for each direction; where both share the bandwidth, the second is never used.
    channels: [Channel<Who>; 2],
    bytes: u64,
}

impl<Who: Copy> Link<Who> {
    /// An idle link.
    pub fn new(model: &LinkModel) -> Link<Who> {
        Link { model: model.clone(), channels: [Channel::new(model.share), Channel::new(model.share)], bytes: 0 }
    }

    /// Asks for `bytes` to be carried, at least one.
    ///
    /// All that happens before `now_ns` has been taken off with [`Link::step`].
    pub fn submit(&mut self, now_ns: u64, who: Who, direction: Direction, bytes: u64, priority: Priority) {
        assert!(bytes > 0, "a request of no bytes has no end");
        let channel = match (self.model.duplex, direction) {
            (Duplex::Full, Direction::Out) => &mut self.channels[1],
            _ => &mut self.channels[0],
        };
        channel.submit(&self.model, Request { who, since_ns: now_ns, bytes, bytes_left: bytes }, priority);
    }

    /// From now on the link is shared with the other users of `with`, of which this is that row; or with none.
    pub fn share(&mut self, with: Option<(&'static RunLink, usize)>) {
        for (direction, channel) in self.channels.iter_mut().enumerate() {
            channel.cross_traffic = with.map(|(link, user)| CrossTraffic::new(link, user, direction));
            channel.bulk_at_ns = if with.is_some() { channel.bulk_at_ns } else { 0 };
        }
    }

    /// Says to the other users until when this one sends.
    pub fn say(&self, now_ns: u64) {
        self.channels.iter().for_each(|channel| channel.say(&self.model, now_ns));
    }

    /// When something happens next; `u64::MAX`: never.
    pub fn next_ns(&self) -> u64 {
        self.channels[0].next_ns().min(self.channels[1].next_ns())
    }

    /// Lets it happen: a piece begins to be sent, or a request is done, whose owner is returned.
    pub fn step(&mut self) -> Option<Who> {
        let channel = self.channels.iter_mut().min_by_key(|channel| channel.next_ns())?;
        let (done, sent) = channel.step(&self.model);
        self.bytes += sent;
        done
    }

    /// When the first request of `who` will be done if nothing more is asked for; `None`: it has been taken off, or there is none.
    pub fn done_ns(&self, who: Who) -> Option<u64>
    where
        Who: PartialEq,
    {
        self.channels.iter().find_map(|channel| {
            let sent = channel.under_way.iter().find(|(_, other)| *other == who).map(|(done_ns, _)| *done_ns);
            if let Some(done_ns) = sent.or_else(|| channel.done_in_order_ns(&self.model, who)) {
                return Some(done_ns);
            }
            let waits = channel.waiting.iter().flatten().any(|request| request.who == who);
            let mut foretold = waits.then(|| channel.clone())?;
            loop {
                let now_ns = foretold.next_ns();
                if foretold.step(&self.model).0 == Some(who) {
                    return Some(now_ns);
                }
            }
        })
    }

    /// Bytes that were sent.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A page takes 100 ns, a request 1000 ns more.
    fn link() -> Link<char> {
        Link::new(&model(Duplex::Full))
    }

    /// The same, of that kind.
    pub(crate) fn model(duplex: Duplex) -> LinkModel {
        let model = LinkModel {
            name: "test".into(),
            latency_ns: 1_000,
            bits_per_second: 327_680_000_000,
            duplex,
            share: LinkShare::Strict,
        };
        assert_eq!(model.page_ns(), 100);
        model
    }

    const PAGE: u64 = PAGE_BYTES as u64;

    /// What is done when, up to a moment.
    fn run(link: &mut Link<char>, until_ns: u64) -> Vec<(u64, char)> {
        let mut done = Vec::new();
        while link.next_ns() <= until_ns {
            let now = link.next_ns();
            done.extend(link.step().map(|who| (now, who)));
        }
        done
    }

    #[test]
    fn a_request_pays_its_pages_and_the_latency_once() {
        let mut link = link();
        link.submit(50, 'a', Direction::In, PAGE, Priority::Demand);
        link.submit(50, 'b', Direction::In, 4 * PAGE, Priority::Demand);
        assert_eq!(run(&mut link, 10_000), [(1_150, 'a'), (1_550, 'b')]);
        link.submit(20_000, 'c', Direction::In, PAGE, Priority::Demand);
        assert_eq!(run(&mut link, 30_000), [(21_100, 'c')]);
        assert_eq!((link.bytes(), link.next_ns()), (6 * PAGE, u64::MAX));
    }

    #[test]
    fn demand_overtakes_all_but_the_page_that_is_being_sent() {
        let mut link = link();
        link.submit(0, 'w', Direction::In, 3 * PAGE, Priority::WriteBack);
        link.submit(0, 'p', Direction::In, 2 * PAGE, Priority::Prefetch);
        // At 0 the first page of the prefetch starts; at 100 its second would.
        assert_eq!(run(&mut link, 30), []);
        link.submit(30, 'd', Direction::In, PAGE, Priority::Demand);
        // p: 0–100, d: 100–200, p: 200–300, w: 300–600.
        assert_eq!(run(&mut link, 10_000), [(1_200, 'd'), (1_300, 'p'), (1_600, 'w')]);
    }

    #[test]
    fn bytes_are_charged_and_the_last_piece_is_short() {
        let mut link = link();
        link.submit(0, 'a', Direction::In, PAGE / 4, Priority::Demand);
        link.submit(0, 'b', Direction::In, PAGE + PAGE / 2, Priority::Demand);
        link.submit(0, 'm', Direction::In, 1, Priority::Migration);
        assert_eq!([link.done_ns('a'), link.done_ns('b'), link.done_ns('m')], [Some(1_025), Some(1_175), Some(1_176)]);
        assert_eq!(run(&mut link, 10_000), [(1_025, 'a'), (1_175, 'b'), (1_176, 'm')]);
        assert_eq!(link.bytes(), PAGE / 4 + PAGE + PAGE / 2 + 1);
    }

    #[test]
    fn directions_share_the_bandwidth_where_the_link_is_half_duplex_alone() {
        for (duplex, done) in
            [(Duplex::Full, [(1_100, 'd'), (1_200, 'w')]), (Duplex::Half, [(1_100, 'd'), (1_300, 'w')])]
        {
            let mut link = Link::new(&model(duplex));
            link.submit(0, 'w', Direction::Out, 2 * PAGE, Priority::WriteBack);
            link.submit(0, 'd', Direction::In, PAGE, Priority::Demand);
            assert_eq!([link.done_ns('d'), link.done_ns('w')], done.map(|(ns, _)| Some(ns)), "{duplex:?}");
            assert_eq!(run(&mut link, 10_000), done, "{duplex:?}");
        }
    }

    #[test]
    fn a_link_is_divided_as_its_share_says() {
        // Forty pages of bulk, and as many demands of a quarter of a page each.
        let done = |share: LinkShare| {
            let mut link = Link::new(&LinkModel { share, ..model(Duplex::Full) });
            link.submit(0, 'b', Direction::In, 40 * PAGE, Priority::Prefetch);
            (0..40).for_each(|_| link.submit(0, 'd', Direction::In, PAGE / 4, Priority::Demand));
            let foretold = link.done_ns('b').expect("it waits");
            let done = run(&mut link, 100_000);
            let bulk_ns = done.iter().find(|(_, who)| *who == 'b').expect("it is done").0;
            assert_eq!(foretold, bulk_ns, "{share}");
            (bulk_ns - 1_000, done.iter().filter(|(ns, who)| *who == 'd' && *ns <= bulk_ns).count())
        };
        assert_eq!(done(LinkShare::Strict), (5_000, 40));
        // Of two pages' time each has one: ten pages of demands beside ten of bulk, then bulk alone.
        let (bulk_ns, demands) = done(LinkShare::Weighted(50));
        assert_eq!((bulk_ns, demands), (5_000, 40));
        // Bulk has no more than its half, also when demands are over.
        let (bulk_ns, demands) = done(LinkShare::Fixed(50));
        assert!(demands == 40 && (7_900..8_500).contains(&bulk_ns), "{bulk_ns} ns");
        // Demands of a page, too, have no more than their part.
        let mut link = Link::new(&LinkModel { share: LinkShare::Fixed(25), ..model(Duplex::Full) });
        link.submit(0, 'b', Direction::In, 400 * PAGE, Priority::Prefetch);
        (0..400).for_each(|_| link.submit(0, 'd', Direction::In, PAGE, Priority::Demand));
        let demands = run(&mut link, 1_000 + 40_000).iter().filter(|(_, who)| *who == 'd').count();
        assert!((99..=101).contains(&demands), "{demands} of 400 pages");
        // Demands that want more than their share wait for bulk.
        let mut link = Link::new(&LinkModel { share: LinkShare::Weighted(20), ..model(Duplex::Full) });
        link.submit(0, 'b', Direction::In, 8 * PAGE, Priority::Prefetch);
        (0..10).for_each(|_| link.submit(0, 'd', Direction::In, PAGE, Priority::Demand));
        let before = run(&mut link, 100_000).into_iter().take_while(|(_, who)| *who == 'd').count();
        assert!((2..=3).contains(&before), "{before} demands were done before 8 pages of bulk");
    }

    #[test]
    fn one_priority_is_a_queue() {
        let mut link = link();
        for who in ['a', 'b', 'c'] {
            link.submit(0, who, Direction::In, 2 * PAGE, Priority::WriteBack);
        }
        assert_eq!(run(&mut link, 10_000), [(1_200, 'a'), (1_400, 'b'), (1_600, 'c')]);
    }

    /// At each moment, and whether it follows from the queue or from a copy of the link.
    #[test]
    fn what_is_foretold_of_a_queue_happens() {
        for share in [LinkShare::Strict, LinkShare::Weighted(25), LinkShare::Auto, LinkShare::Fixed(25)] {
            for duplex in [Duplex::Full, Duplex::Half] {
                let mut link = Link::new(&LinkModel { share, latency_ns: 150, ..model(duplex) });
                for (who, bytes) in [('a', 3 * PAGE + 7), ('b', 1), ('c', PAGE), ('b', 2 * PAGE - 1)] {
                    link.submit(0, who, Direction::In, bytes, Priority::Prefetch);
                }
                let mut told = [None; 3];
                while link.next_ns() < u64::MAX {
                    let now_ns = link.next_ns();
                    let tells = ['a', 'b', 'c'].map(|who| link.done_ns(who));
                    let done = link.step();
                    for ((told, tells), who) in told.iter_mut().zip(tells).zip(['a', 'b', 'c']) {
                        assert!(told.is_none() || *told == tells, "{share}: {who} at {told:?}, then at {tells:?}");
                        *told = if done == Some(who) { None } else { tells };
                        assert!(
                            done != Some(who) || tells == Some(now_ns),
                            "{share}: {who} at {now_ns}, not {tells:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_foretold_holds_until_somebody_overtakes() {
        let mut link = link();
        link.submit(0, 'p', Direction::In, 2 * PAGE, Priority::Prefetch);
        link.submit(0, 'w', Direction::In, PAGE, Priority::WriteBack);
        assert_eq!(['p', 'w', 'd'].map(|who| link.done_ns(who)), [Some(1_200), Some(1_300), None]);
        assert_eq!(run(&mut link, 30), []);
        link.submit(30, 'd', Direction::In, PAGE, Priority::Demand);
        assert_eq!(['d', 'p', 'w'].map(|who| link.done_ns(who)), [Some(1_200), Some(1_300), Some(1_400)]);
        assert_eq!(run(&mut link, 1_250), [(1_200, 'd')]);
        assert_eq!(['d', 'p', 'w'].map(|who| link.done_ns(who)), [None, Some(1_300), Some(1_400)]);
        assert_eq!(run(&mut link, 10_000), [(1_300, 'p'), (1_400, 'w')]);
    }

    #[test]
    fn reads_names_and_quantities() {
        let link: LinkModel = "rdma-25g".parse().unwrap();
        assert_eq!((link.latency_ns, link.bits_per_second, link.page_ns()), (5_000, 25_000_000_000, 1_311));
        let link: LinkModel = "1.5us:800Mb/s".parse().unwrap();
        assert_eq!((link.latency_ns, link.bits_per_second), (1_500, 800_000_000));
        let link: LinkModel = "0ns:10G".parse().unwrap();
        assert_eq!((link.latency_ns, link.bits_per_second), (0, 10_000_000_000));
        let duplex = |text: &str| text.parse::<LinkModel>().unwrap().duplex;
        let duplexes = ["tcp-10g", "tcp-10g:half", "ssd", "ssd:full", "5us:1Gb/s", "5us:1Gb/s:half"].map(duplex);
        assert_eq!(duplexes, [Duplex::Full, Duplex::Half, Duplex::Half, Duplex::Full, Duplex::Full, Duplex::Half]);
        for preset in LinkModel::presets() {
            assert_eq!(preset.parse::<LinkModel>().unwrap().to_string(), preset);
        }
    }

    #[test]
    fn refuses_nonsense_and_says_which_part() {
        assert!(matches!("infiniband".parse::<LinkModel>(), Err(LinkError::Unknown(_))));
        for text in ["5:10G", ":10G", "-5us:10G", "11s:10G", "1e3us:10G", "99999999999999999999ms:1G"] {
            assert!(matches!(text.parse::<LinkModel>(), Err(LinkError::Latency(_))), "{text}");
        }
        for text in ["5us:", "5us:0G", "5us:fast", "5us:1Kb/s", "5us:99999G", "5us::half"] {
            assert!(matches!(text.parse::<LinkModel>(), Err(LinkError::Bandwidth(_))), "{text}");
        }
    }
}

/// Links of several processes, in virtual time.
#[cfg(test)]
mod shared {
    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;
    /// A page takes 3.3 µs, a request 15 µs more.
    const LINK: &str = "15us:10Gb/s";

    fn run_link() -> &'static RunLink {
        // SAFETY: a link consists of atomics, which are valid when zero.
        Box::leak(unsafe { Box::new_zeroed().assume_init() })
    }

    /// A process that asks again whenever a request is done, after a pause.
    struct Process {
        link: Link<usize>,
        priority: Priority,
        pages: u64,
        pause_ns: u64,
        /// By request: when it is asked for next; `None`: it is under way. And when it was asked for.
        next_ns: Vec<Option<u64>>,
        asked_ns: Vec<u64>,
        took_ns: Vec<u64>,
        /// It is killed then.
        ends_ns: u64,
        /// It looks at its link at multiples of that alone: the thread that waits sleeps in between.
        looks_ns: u64,
    }

    impl Process {
        /// One that has so many requests under way at a time.
        fn new(run: &'static RunLink, owner: u64, priority: Priority, pages: u64, requests: usize) -> Process {
            let mut link = Link::new(&LINK.parse().unwrap());
            link.share(Some((run, run.join(owner, 0).unwrap())));
            let (next_ns, asked_ns) = (vec![Some(0); requests], vec![0; requests]);
            Process {
                link,
                priority,
                pages,
                pause_ns: 0,
                next_ns,
                asked_ns,
                took_ns: Vec::new(),
                ends_ns: u64::MAX,
                looks_ns: 1,
            }
        }

        fn stream(run: &'static RunLink, owner: u64) -> Process {
            Process::new(run, owner, Priority::Prefetch, 64, 2)
        }

        fn demands(run: &'static RunLink, owner: u64, pause_ns: u64) -> Process {
            Process { pause_ns, ..Process::new(run, owner, Priority::Demand, 1, 1) }
        }

        fn happens_ns(&self) -> u64 {
            let asks = self.next_ns.iter().flatten().min().copied().unwrap_or(u64::MAX);
            let next = asks.min(self.link.next_ns());
            if next < self.ends_ns { next.next_multiple_of(self.looks_ns) } else { u64::MAX }
        }

        fn happen(&mut self, now_ns: u64) {
            if self.link.next_ns() <= now_ns {
                if let Some(who) = self.link.step() {
                    self.took_ns.push(now_ns - self.asked_ns[who]);
                    self.next_ns[who] = Some(now_ns + self.pause_ns);
                }
            } else {
                let who = self.next_ns.iter().position(|next| next.is_some_and(|next| next <= now_ns)).unwrap();
                (self.next_ns[who], self.asked_ns[who]) = (None, now_ns);
                self.link.submit(now_ns, who, Direction::In, self.pages * PAGE, self.priority);
            }
            self.link.say(now_ns);
        }

        /// 99 of 100 requests took no longer.
        fn p99_ns(&self) -> u64 {
            let mut sorted = self.took_ns.clone();
            sorted.sort_unstable();
            sorted[sorted.len() * 99 / 100]
        }
    }

    /// Lets all of them run.
    fn run(processes: &mut [Process], until_ns: u64) {
        while let Some(next) = processes.iter_mut().min_by_key(|process| process.happens_ns()) {
            let now_ns = next.happens_ns();
            if now_ns > until_ns {
                return;
            }
            next.happen(now_ns);
        }
    }

    /// Percent of what the link carries in so long a time.
    fn percent(bytes: u64, ns: u64) -> u64 {
        bytes * 8 * 100 / (ns * 10)
    }

    #[test]
    fn processes_that_stream_have_equal_parts_of_a_link_and_all_of_it_together() {
        for count in [1, 2, 3, 8] {
            let (shared, until_ns) = (run_link(), 50_000_000);
            let mut processes: Vec<_> = (1..=count).map(|owner| Process::stream(shared, owner)).collect();
            run(&mut processes, until_ns);
            let parts: Vec<_> = processes.iter().map(|process| percent(process.link.bytes(), until_ns)).collect();
            println!("{count}: {parts:?}");
            assert!(parts.iter().all(|part| part.abs_diff(100 / count) <= 2), "{parts:?}");
            let all = percent(processes.iter().map(|process| process.link.bytes()).sum(), until_ns);
            assert!((98..=101).contains(&all), "{all} %");
        }
    }

    #[test]
    fn demands_of_one_process_pass_bulk_of_another() {
        let until_ns = 100_000_000;
        let alone = Process::demands(run_link(), 1, 50_000);
        let mut alone = [alone];
        run(&mut alone, until_ns);
        let shared = run_link();
        let mut both = [Process::demands(shared, 1, 50_000), Process::stream(shared, 2)];
        run(&mut both, until_ns);
        let (idle, beside, bulk) = (alone[0].p99_ns(), both[0].p99_ns(), percent(both[1].link.bytes(), until_ns));
        println!("p99 {idle} ns idle, {beside} beside bulk of another process, which has {bulk} %");
        assert!(beside * 100 <= idle * 175 && beside > idle && bulk >= 70, "{beside} of {idle}, bulk {bulk} %");
        let demands = percent(both[0].link.bytes(), until_ns);
        assert!((97..=101).contains(&(bulk + demands)), "bulk waits for as long as demands take: {bulk} + {demands} %");
    }

    #[test]
    fn a_process_that_looks_seldom_has_its_part_and_no_more() {
        let (shared, until_ns) = (run_link(), 50_000_000);
        let mut processes = [Process::stream(shared, 1), Process { looks_ns: 60_000, ..Process::stream(shared, 2) }];
        run(&mut processes, until_ns);
        let parts = processes.map(|process| percent(process.link.bytes(), until_ns));
        println!("{parts:?}");
        assert!(parts[0].abs_diff(50) <= 4 && parts[1].abs_diff(50) <= 4 && parts[0] + parts[1] <= 102, "{parts:?}");
    }

    #[test]
    fn demands_of_two_processes_have_equal_parts() {
        let (shared, until_ns) = (run_link(), 50_000_000);
        let mut processes = [1, 2].map(|owner| Process::new(shared, owner, Priority::Demand, 1, 16));
        run(&mut processes, until_ns);
        let parts = processes.map(|process| percent(process.link.bytes(), until_ns));
        assert!(parts.iter().all(|part| part.abs_diff(50) <= 2), "{parts:?}");
    }

    #[test]
    fn what_a_killed_process_had_under_way_runs_out() {
        let (shared, half_ns) = (run_link(), 25_000_000);
        let mut processes = [Process::stream(shared, 1), Process { ends_ns: half_ns, ..Process::stream(shared, 2) }];
        run(&mut processes, half_ns);
        let before = processes[0].link.bytes();
        run(&mut processes, 2 * half_ns);
        let after = percent(processes[0].link.bytes() - before, half_ns);
        assert!((94..=101).contains(&after), "{after} % of the link, of which the other one had half before");
    }

    #[test]
    fn what_is_foretold_is_not_said() {
        let shared = run_link();
        let mut one = Process::demands(shared, 1, 0);
        one.happen(0);
        let told = one.link.done_ns(0);
        assert_eq!((told, one.link.done_ns(0), shared.demands_ns(0)), (Some(18_277), told, 0));
        run(&mut [one], 5_000);
        assert_eq!(shared.demands_ns(0), 3_277);
    }
}
