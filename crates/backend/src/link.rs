//! A link to far memory: a latency, a bandwidth, and a queue in which demand overtakes. The simulator has it in virtual time; the
//! decorator `OverLink` makes real calls take as long.
//!
//! ```text
//!   demand fetch ─┐
//!   prefetch ─────┼─► one page at a time, by priority ──► on its way for the latency ──► done with its last page
//!   write-back ───┘   (4096 bytes / bandwidth each)
//! ```
//!
//! Both directions share the bandwidth, and a request pays the latency once. A page that is being sent is not interrupted.
//!
//! Invariant: requests of one priority are served in the order of their coming; `free_at_ns` never runs backwards.

use crate::Priority;
use hinterland_units::PAGE_BYTES;
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
}

/// The links that have names: latency in ns, bandwidth in Gb/s (the targets of the project are set at them).
const PRESETS: [(&str, u64, u64); 3] = [("rdma-25g", 5_000, 25), ("tcp-10g", 15_000, 10), ("ssd", 90_000, 4)];

/// Why a link cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// Neither a name nor two quantities.
    #[error("'{0}' is no link; take rdma-25g, tcp-10g, ssd, or LATENCY:BANDWIDTH such as 5us:25Gb/s")]
    Unknown(String),
    /// The part before the colon.
    #[error("'{0}' is no latency; write for example 500ns, 5us or 2ms, at most 10s")]
    Latency(String),
    /// The part behind it.
    #[error("'{0}' is no bandwidth; write for example 25Gb/s or 800Mb/s, from 1Mb/s to 10000Gb/s")]
    Bandwidth(String),
}

impl LinkModel {
    /// Nanoseconds that one page occupies the link, rounded up.
    pub fn page_ns(&self) -> u64 {
        let bits = PAGE_BYTES as u64 * 8;
        (bits * 1_000_000_000).div_ceil(self.bits_per_second)
    }

    /// The names that are known.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.0)
    }
}

impl FromStr for LinkModel {
    type Err = LinkError;

    fn from_str(written: &str) -> Result<LinkModel, LinkError> {
        if let Some((name, latency_ns, gigabits)) = PRESETS.iter().find(|preset| preset.0 == written) {
            let bits_per_second = gigabits * 1_000_000_000;
            return Ok(LinkModel { name: (*name).into(), latency_ns: *latency_ns, bits_per_second });
        }
        let (latency, bandwidth) = written.split_once(':').ok_or_else(|| LinkError::Unknown(written.into()))?;
        let latency_ns = quantity(latency, &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000)])
            .filter(|ns| *ns <= 10_000_000_000)
            .ok_or_else(|| LinkError::Latency(latency.into()))?;
        let plain = bandwidth.strip_suffix("b/s").or(bandwidth.strip_suffix("bit/s")).unwrap_or(bandwidth);
        let bits_per_second =
            quantity(plain, &[("M", 1_000_000), ("G", 1_000_000_000), ("m", 1_000_000), ("g", 1_000_000_000)])
                .filter(|bits| (1_000_000..=10_000_000_000_000).contains(bits))
                .ok_or_else(|| LinkError::Bandwidth(bandwidth.into()))?;
        Ok(LinkModel { name: written.into(), latency_ns, bits_per_second })
    }
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

/// Pages that go over the link together, and who waits for them.
#[derive(Clone, Copy, Debug)]
struct Request<Who> {
    who: Who,
    pages_left: u32,
}

/// The link at work; `Who` names the one who waits for a request.
#[derive(Debug)]
pub struct Link<Who> {
    latency_ns: u64,
    page_ns: u64,
    /// When the page that is being sent is sent.
    free_at_ns: u64,
    /// By priority.
    waiting: [VecDeque<Request<Who>>; 3],
    /// Requests that were sent whole, and when they are done: in this order, because the latency is the same for all.
    under_way: VecDeque<(u64, Who)>,
    pages: u64,
}

impl<Who: Copy> Link<Who> {
    /// An idle link.
    pub fn new(model: &LinkModel) -> Link<Who> {
        Link {
            latency_ns: model.latency_ns,
            page_ns: model.page_ns(),
            free_at_ns: 0,
            waiting: [const { VecDeque::new() }; 3],
            under_way: VecDeque::new(),
            pages: 0,
        }
    }

    /// Asks for `pages` to be carried, at least one.
    ///
    /// All that happens before `now_ns` has been taken off with [`Link::step`].
    pub fn submit(&mut self, now_ns: u64, who: Who, pages: u32, priority: Priority) {
        assert!(pages > 0, "a request of no pages has no end");
        if self.waiting.iter().all(VecDeque::is_empty) {
            self.free_at_ns = self.free_at_ns.max(now_ns);
        }
        self.waiting[priority as usize].push_back(Request { who, pages_left: pages });
    }

    /// When something happens next; `u64::MAX`: never.
    pub fn next_ns(&self) -> u64 {
        let sends = if self.waiting.iter().all(VecDeque::is_empty) { u64::MAX } else { self.free_at_ns };
        self.under_way.front().map_or(sends, |(done_ns, _)| sends.min(*done_ns))
    }

    /// Lets it happen: a page begins to be sent, or a request is done, whose owner is returned.
    pub fn step(&mut self) -> Option<Who> {
        let next_ns = self.next_ns();
        if self.under_way.front().is_some_and(|(done_ns, _)| *done_ns == next_ns) {
            return self.under_way.pop_front().map(|(_, who)| who);
        }
        let queue = self.waiting.iter_mut().find(|queue| !queue.is_empty())?;
        let request = queue.front_mut()?;
        self.free_at_ns += self.page_ns;
        self.pages += 1;
        request.pages_left -= 1;
        if request.pages_left == 0 {
            self.under_way.push_back((self.free_at_ns + self.latency_ns, request.who));
            queue.pop_front();
        }
        None
    }

    /// When the first request of `who` will be done if nothing more is asked for; `None`: it has been taken off, or there is none.
    pub fn done_ns(&self, who: Who) -> Option<u64>
    where
        Who: PartialEq,
    {
        if let Some((done_ns, _)) = self.under_way.iter().find(|(_, other)| *other == who) {
            return Some(*done_ns);
        }
        let mut pages = 0;
        for request in self.waiting.iter().flatten() {
            pages += u64::from(request.pages_left);
            if request.who == who {
                return Some(self.free_at_ns + pages * self.page_ns + self.latency_ns);
            }
        }
        None
    }

    /// Pages that were sent.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page takes 100 ns, a request 1000 ns more.
    fn link() -> Link<char> {
        let model = LinkModel { name: "test".into(), latency_ns: 1_000, bits_per_second: 327_680_000_000 };
        assert_eq!(model.page_ns(), 100);
        Link::new(&model)
    }

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
        link.submit(50, 'a', 1, Priority::Demand);
        link.submit(50, 'b', 4, Priority::Demand);
        assert_eq!(run(&mut link, 10_000), [(1_150, 'a'), (1_550, 'b')]);
        link.submit(20_000, 'c', 1, Priority::Demand);
        assert_eq!(run(&mut link, 30_000), [(21_100, 'c')]);
        assert_eq!((link.pages(), link.next_ns()), (6, u64::MAX));
    }

    #[test]
    fn demand_overtakes_all_but_the_page_that_is_being_sent() {
        let mut link = link();
        link.submit(0, 'w', 3, Priority::WriteBack);
        link.submit(0, 'p', 2, Priority::Prefetch);
        // At 0 the first page of the prefetch starts; at 100 its second would.
        assert_eq!(run(&mut link, 30), []);
        link.submit(30, 'd', 1, Priority::Demand);
        // p: 0–100, d: 100–200, p: 200–300, w: 300–600.
        assert_eq!(run(&mut link, 10_000), [(1_200, 'd'), (1_300, 'p'), (1_600, 'w')]);
    }

    #[test]
    fn one_priority_is_a_queue() {
        let mut link = link();
        for who in ['a', 'b', 'c'] {
            link.submit(0, who, 2, Priority::WriteBack);
        }
        assert_eq!(run(&mut link, 10_000), [(1_200, 'a'), (1_400, 'b'), (1_600, 'c')]);
    }

    #[test]
    fn what_is_foretold_holds_until_somebody_overtakes() {
        let mut link = link();
        link.submit(0, 'p', 2, Priority::Prefetch);
        link.submit(0, 'w', 1, Priority::WriteBack);
        assert_eq!(['p', 'w', 'd'].map(|who| link.done_ns(who)), [Some(1_200), Some(1_300), None]);
        assert_eq!(run(&mut link, 30), []);
        link.submit(30, 'd', 1, Priority::Demand);
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
        for text in ["5us:", "5us:0G", "5us:fast", "5us:1Kb/s", "5us:99999G"] {
            assert!(matches!(text.parse::<LinkModel>(), Err(LinkError::Bandwidth(_))), "{text}");
        }
    }
}
