//! Which class is next on a link: demands, and the bulk beside them (prefetches, write-back, migration).
//!
//! ```text
//! strict        demands, then prefetches, then write-back, then migration
//! fixed:P       slots in turn, P % of the bytes for demands, whether or not a demand waits              (DaeMon §4.1)
//! weighted:P    demands have P %, bulk the rest; what one leaves goes to the other
//! auto          weighted, and P follows what demands wait
//! ```
//! Where pieces are sent one after the other ([`next`](LinkScheduler::next), [`sent`](LinkScheduler::sent)) a demand overtakes all but the piece that
//! is being sent. A client cannot recall what the other side has sent already; it bounds how much of its bulk is under way
//! ([`window_bytes`](LinkScheduler::window_bytes)): no more than bulk's share of what the link holds, so that nothing queues behind it.
//!
//! A piece is not cut, so a slot may be overdrawn: the rest is owed, and taken off that side's next ones (deficit round robin, Shreedhar and Varghese 1995).
//!
//! Among themselves, classes of bulk are served as 4 : 2 : 1, by start-time fair queueing (Goyal et al. 1996). No clock: times are arguments.

use crate::Priority;
use std::fmt;
use std::str::FromStr;

/// How a link is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkShare {
    /// Demands first.
    Strict,
    /// So many percent for demands, always.
    Fixed(u8),
    /// So many percent for demands, as long as they need them.
    Weighted(u8),
    /// As many as demands need to wait little.
    #[default]
    Auto,
}

/// Percent for demands where none are said.
const PERCENT_DEFAULT: u8 = 25;
/// Of `auto`: the least and the most, how it begins, and its steps.
const PERCENT_LEAST: u8 = 10;
const PERCENT_MOST: u8 = 90;
const PERCENT_BEGIN: u8 = 15;
const STEP_UP: u8 = 20;
const STEP_DOWN: u8 = 1;
/// Bytes of a slot of bulk: a page.
const SLOT_BYTES: u64 = 4096;
/// Of a slot that no class uses, so much passes at a time: a request that comes meanwhile waits no longer.
const PASSED_BYTES_MAX: u64 = 256;
/// Weights of the classes of bulk, in sixteenths of their inverse.
const COSTS: [u64; 4] = [0, 4, 8, 16];
/// A link holds what goes over it in so long a time at least: until the thread that asks runs again, something must be under way.
const FILLED_NS_MIN: u64 = 80_000;

impl fmt::Display for LinkShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkShare::Strict => f.write_str("strict"),
            LinkShare::Fixed(percent) => write!(f, "fixed:{percent}"),
            LinkShare::Weighted(percent) => write!(f, "weighted:{percent}"),
            LinkShare::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for LinkShare {
    type Err = ();

    fn from_str(text: &str) -> Result<LinkShare, ()> {
        let (name, percent) = text.split_once(':').map_or((text, None), |(name, percent)| (name, Some(percent)));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let percent =
            percent.map(|text| text.parse().ok().filter(|percent| digits(text) && (1..=99).contains(percent)));
        match (name, percent) {
            ("strict", None) => Ok(LinkShare::Strict),
            ("auto", None) => Ok(LinkShare::Auto),
            ("fixed", None) => Ok(LinkShare::Fixed(PERCENT_DEFAULT)),
            ("weighted", None) => Ok(LinkShare::Weighted(PERCENT_DEFAULT)),
            ("fixed", Some(Some(percent))) => Ok(LinkShare::Fixed(percent)),
            ("weighted", Some(Some(percent))) => Ok(LinkShare::Weighted(percent)),
            _ => Err(()),
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextSlot {
    /// The oldest of this class, which waits.
    Send(Priority),
    /// So many bytes' time of a slot that no class uses.
    Pass(u64),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct LinkScheduler {
    share: LinkShare,
    /// For demands, now.
    percent: u8,
    /// Fixed: the slot is one of demands, and bytes that demands and bulk have left; of the side whose slot it is more than none, of the other
    /// one what it owes.
    slot_is_demand: bool,
    slot_left: [i64; 2],
    /// Weighted: what each class has had, by its weight; demands and bulk, then the classes of bulk.
    level: [u64; 2],
    levels_of_bulk: [u64; 4],
    /// The classes that waited when it was looked at last.
    waited: [bool; 4],
}

/// Of a slot of demands, beside one of bulk; at least one.
fn demand_slot_bytes(percent: u8) -> i64 {
    let percent = i64::from(percent.min(99));
    SLOT_BYTES.cast_signed() * percent / (100 - percent)
}

/// In the order of urgency.
const CLASSES: [Priority; 4] = [Priority::Demand, Priority::Prefetch, Priority::WriteBack, Priority::Migration];

impl LinkScheduler {
    /// An idle link that is divided so.
    pub fn new(share: LinkShare) -> LinkScheduler {
        let percent = match share {
            LinkShare::Strict => 100,
            LinkShare::Fixed(percent) | LinkShare::Weighted(percent) => percent.clamp(1, 99),
            LinkShare::Auto => PERCENT_BEGIN,
        };
        LinkScheduler {
            share,
            percent,
            slot_is_demand: true,
            slot_left: [demand_slot_bytes(percent), 0],
            level: [0; 2],
            levels_of_bulk: [0; 4],
            waited: [false; 4],
        }
    }

    /// Percent of the link that demands have now.
    pub fn percent(&self) -> u8 {
        self.percent
    }

    /// Whose turn it is, of those that wait, by urgency; `None`: none waits. `sent` or `passed` says that it was taken.
    pub fn next(&mut self, waits: [bool; 4]) -> Option<NextSlot> {
        let (demand, bulk) = (waits[0], waits[1..].contains(&true));
        if !demand && !bulk {
            self.waited = waits;
            return None;
        }
        self.begin(waits);
        let is_demand = match self.share {
            LinkShare::Strict => demand,
            LinkShare::Fixed(_) => match (self.slot_is_demand, demand, bulk) {
                (true, false, _) | (false, _, false) => {
                    return Some(NextSlot::Pass(self.slot_bytes_left().min(PASSED_BYTES_MAX)));
                }
                (is_demand, ..) => is_demand,
            },
            LinkShare::Weighted(_) | LinkShare::Auto => demand && (!bulk || self.level[0] <= self.level[1]),
        };
        Some(NextSlot::Send(if is_demand { Priority::Demand } else { self.next_of_bulk(waits) }))
    }

    /// A class that begins to wait has no claim to what it left before: it begins where those are that wait already, or, where none did, where the
    /// one is that has had most (the virtual time of an idle server, Goyal et al.).
    fn begin(&mut self, waits: [bool; 4]) {
        let bulk = |waits: [bool; 4]| waits[1..].contains(&true);
        let (before, now) = ([self.waited[0], bulk(self.waited)], [waits[0], bulk(waits)]);
        for at in 0..2 {
            if now[at] && !before[at] {
                self.level[at] = self.level[at].max(self.level[1 - at]);
            }
        }
        let active = (1..4).filter(|class| self.waited[*class]).map(|class| self.levels_of_bulk[class]).min();
        let begin = active.or_else(|| self.levels_of_bulk.into_iter().max()).unwrap_or(0);
        for class in (1..4).filter(|class| waits[*class] && !self.waited[*class]) {
            self.levels_of_bulk[class] = self.levels_of_bulk[class].max(begin);
        }
        self.waited = waits;
    }

    fn next_of_bulk(&self, waits: [bool; 4]) -> Priority {
        let waiting = (1..4).filter(|class| waits[*class]);
        let level = |class: &usize| if self.share == LinkShare::Strict { 0 } else { self.levels_of_bulk[*class] };
        CLASSES[waiting.min_by_key(level).expect("bulk waits")]
    }

    /// So many bytes of a class are sent.
    pub fn sent(&mut self, class: Priority, bytes: u64) {
        let (demands, class) = (u64::from(self.percent), class as usize);
        match class {
            0 => self.level[0] += bytes * 100 / demands,
            _ => {
                self.level[1] += bytes * 100 / 100_u64.saturating_sub(demands).max(1);
                self.levels_of_bulk[class] += bytes * COSTS[class];
            }
        }
        self.passed(bytes);
    }

    /// So much of a slot has passed.
    pub fn passed(&mut self, bytes: u64) {
        if let LinkShare::Fixed(_) = self.share {
            *self.slot() -= i64::try_from(bytes).unwrap_or(i64::MAX);
            while *self.slot() <= 0 {
                self.slot_is_demand = !self.slot_is_demand;
                let bytes =
                    if self.slot_is_demand { demand_slot_bytes(self.percent) } else { SLOT_BYTES.cast_signed() };
                *self.slot() += bytes;
            }
        }
    }

    /// What is left to the side whose slot it is.
    fn slot(&mut self) -> &mut i64 {
        &mut self.slot_left[usize::from(!self.slot_is_demand)]
    }

    fn slot_bytes_left(&mut self) -> u64 {
        self.slot().unsigned_abs()
    }

    /// A demand waited so long behind others, and takes so long by itself: `auto` has demands have more, or bulk a little.
    pub fn waited(&mut self, wait_ns: u64, alone_ns: u64) {
        if self.share == LinkShare::Auto {
            self.percent = match wait_ns > alone_ns / 2 {
                true => self.percent.saturating_add(STEP_UP).min(PERCENT_MOST),
                false => self.percent.saturating_sub(STEP_DOWN).max(PERCENT_LEAST),
            };
        }
    }

    /// Bytes of bulk that may be under way at a time, on a link on which one page takes `one_ns` alone and each further one `page_ns`; `None`: as
    /// many as one likes, because no demand is beside them, or the link is not known. What exceeds them by less than a message does no harm.
    ///
    /// `one_ns / page_ns` pages fill the link: with fewer under way it is not always busy, and with more they queue in front of demands.
    pub fn window_bytes(&self, beside_demand: bool, one_ns: u64, page_ns: u64) -> Option<u64> {
        let always = matches!(self.share, LinkShare::Fixed(_));
        if !(beside_demand || always) || one_ns == 0 || page_ns == 0 {
            return None;
        }
        let filled_ns = match self.share {
            LinkShare::Strict => 0,
            _ => one_ns.max(FILLED_NS_MIN).saturating_mul(100 - u64::from(self.percent)) / 100,
        };
        Some((filled_ns.saturating_mul(SLOT_BYTES) / page_ns).max(SLOT_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::array;

    const ALL: [LinkShare; 4] = [LinkShare::Strict, LinkShare::Fixed(25), LinkShare::Weighted(25), LinkShare::Auto];

    /// Bytes of each class, and passed, after so many turns with these waiting: lines, and pages of bulk.
    fn served(scheduler: &mut LinkScheduler, waits: [bool; 4], turns: u32) -> ([u64; 4], u64) {
        served_in_pieces(scheduler, waits, turns, 64)
    }

    fn served_in_pieces(scheduler: &mut LinkScheduler, waits: [bool; 4], turns: u32, demand: u64) -> ([u64; 4], u64) {
        let (mut bytes, mut passed) = ([0; 4], 0);
        for _ in 0..turns {
            match scheduler.next(waits).expect("somebody waits") {
                NextSlot::Send(class) => {
                    assert!(waits[class as usize], "{class:?} does not wait");
                    let piece = if class == Priority::Demand { demand } else { 4096 };
                    scheduler.sent(class, piece);
                    bytes[class as usize] += piece;
                }
                NextSlot::Pass(bytes) => {
                    scheduler.passed(bytes);
                    passed += bytes;
                }
            }
        }
        (bytes, passed)
    }

    fn percent(part: u64, whole: u64) -> u64 {
        part * 100 / whole
    }

    #[test]
    fn shares_are_kept_when_all_wait() {
        for (share, wanted) in [
            (LinkShare::Fixed(5), 5),
            (LinkShare::Fixed(25), 25),
            (LinkShare::Fixed(60), 60),
            (LinkShare::Fixed(80), 80),
            (LinkShare::Weighted(25), 25),
            (LinkShare::Weighted(5), 5),
        ] {
            for demand in [64, 1500, 4096, 65_536] {
                let mut scheduler = LinkScheduler::new(share);
                let (bytes, passed) = served_in_pieces(&mut scheduler, [true; 4], 100_000, demand);
                let all: u64 = bytes.iter().sum();
                assert!(
                    percent(bytes[0], all).abs_diff(wanted) <= 1 && passed == 0,
                    "{share}, demands of {demand}: {bytes:?}"
                );
                let bulk: u64 = bytes[1..].iter().sum();
                let parts: [u64; 3] = array::from_fn(|class| percent(bytes[class + 1], bulk));
                assert!(
                    [57, 28, 14].iter().zip(parts).all(|(wanted, part)| part.abs_diff(*wanted) <= 2),
                    "{share}, demands of {demand}: {parts:?}"
                );
            }
        }
        assert_eq!(served(&mut LinkScheduler::new(LinkShare::Strict), [true; 4], 100).0, [6_400, 0, 0, 0]);
        assert_eq!(
            served(&mut LinkScheduler::new(LinkShare::Strict), [false, true, true, true], 10).0,
            [0, 40_960, 0, 0]
        );
    }

    /// For a page, 21 lines (DaeMon §4.1).
    #[test]
    fn the_papers_worked_example() {
        let mut scheduler = LinkScheduler::new(LinkShare::Fixed(25));
        let mut lines = 0;
        while scheduler.next([true, true, false, false]) == Some(NextSlot::Send(Priority::Demand)) {
            scheduler.sent(Priority::Demand, 64);
            lines += 1;
        }
        assert!((21..=22).contains(&lines), "{lines}");
        scheduler.sent(Priority::Prefetch, 4096);
        assert_eq!(scheduler.next([true, true, false, false]), Some(NextSlot::Send(Priority::Demand)));
    }

    #[test]
    fn what_nobody_uses_goes_by_with_a_fixed_ratio_alone() {
        for share in ALL {
            for waits in [[true, false, false, false], [false, false, true, false]] {
                let (bytes, passed) = served(&mut LinkScheduler::new(share), waits, 20_000);
                let sent: u64 = bytes.iter().sum();
                let wanted = match share {
                    LinkShare::Fixed(_) if waits[0] => 75,
                    LinkShare::Fixed(_) => 25,
                    _ => 0,
                };
                assert!(percent(passed, sent + passed).abs_diff(wanted) <= 1, "{share}: {sent} sent, {passed} passed");
            }
            assert_eq!(LinkScheduler::new(share).next([false; 4]), None);
        }
    }

    #[test]
    fn a_demand_that_comes_is_next_and_who_was_away_has_no_claim() {
        for share in [LinkShare::Strict, LinkShare::Weighted(25), LinkShare::Auto] {
            let mut scheduler = LinkScheduler::new(share);
            for _ in 0..100 {
                served(&mut scheduler, [false, true, true, false], 7);
                assert_eq!(
                    scheduler.next([true, true, true, false]),
                    Some(NextSlot::Send(Priority::Demand)),
                    "{share}"
                );
                scheduler.sent(Priority::Demand, 64);
            }
        }
        // Long alone, demands owe bulk nothing; long alone, a class of bulk owes the others nothing.
        let mut scheduler = LinkScheduler::new(LinkShare::Weighted(50));
        served(&mut scheduler, [true, false, false, false], 10_000);
        let (bytes, _) = served(&mut scheduler, [true, true, false, false], 1_000);
        assert!(percent(bytes[0], bytes[0] + bytes[1]).abs_diff(50) <= 5, "{bytes:?}");
        served(&mut scheduler, [false, true, false, false], 1_000);
        let (bytes, _) = served(&mut scheduler, [false, true, true, false], 300);
        assert!(percent(bytes[1], bytes[1] + bytes[2]).abs_diff(66) <= 3, "{bytes:?}");
        // Nor does it, when demands alone or nothing waited between.
        for between in [[true, false, false, false], [false; 4]] {
            let mut scheduler = LinkScheduler::new(LinkShare::Weighted(50));
            served(&mut scheduler, [false, true, false, false], 10_000);
            if between == [false; 4] {
                assert_eq!(scheduler.next(between), None);
            } else {
                served(&mut scheduler, between, 1);
            }
            served(&mut scheduler, [false, false, false, true], 1);
            let (bytes, _) = served(&mut scheduler, [false, true, false, true], 500);
            assert!(percent(bytes[1], bytes[1] + bytes[3]).abs_diff(80) <= 3, "{bytes:?}");
        }
    }

    #[test]
    fn the_share_of_demands_follows_what_they_wait() {
        let mut scheduler = LinkScheduler::new(LinkShare::Auto);
        (0..100).for_each(|_| scheduler.waited(100, 100));
        assert_eq!(scheduler.percent(), PERCENT_MOST);
        (0..200).for_each(|_| scheduler.waited(50, 100));
        assert_eq!(scheduler.percent(), PERCENT_LEAST);
        let mut fixed = LinkScheduler::new(LinkShare::Fixed(25));
        (0..100).for_each(|_| fixed.waited(100, 100));
        assert_eq!(fixed.percent(), 25);
    }

    #[test]
    fn windows_are_the_share_of_what_the_link_holds() {
        let bytes = |share: LinkShare, beside| LinkScheduler::new(share).window_bytes(beside, 330_000, 33_000);
        assert_eq!(bytes(LinkShare::Weighted(20), true), Some(8 * 4096));
        assert_eq!((bytes(LinkShare::Weighted(20), false), bytes(LinkShare::Auto, false)), (None, None));
        assert_eq!(
            (bytes(LinkShare::Fixed(20), false), bytes(LinkShare::Fixed(20), true)),
            (Some(8 * 4096), Some(8 * 4096))
        );
        assert_eq!(bytes(LinkShare::Strict, true), Some(4096));
        let auto = LinkScheduler::new(LinkShare::Auto);
        assert_eq!((auto.window_bytes(true, 0, 10), auto.window_bytes(true, 10, 0)), (None, None));
        assert_eq!(auto.window_bytes(true, 10_000, 1_000), Some(68 * 4096), "85 % of 80 µs at least");
        assert_eq!(auto.window_bytes(true, 10, 1_000_000), Some(4096));
    }

    #[test]
    fn shares_are_read_as_they_are_written() {
        for text in ["strict", "auto", "fixed:25", "weighted:7"] {
            assert_eq!(text.parse::<LinkShare>().expect(text).to_string(), text);
        }
        assert_eq!((Ok(LinkShare::Fixed(25)), Ok(LinkShare::Weighted(25))), ("fixed".parse(), "weighted".parse()));
        for text in ["", "fair", "strict:5", "auto:1", "fixed:", "fixed:0", "fixed:100", "weighted:+5", "fixed:1:2"] {
            assert_eq!(text.parse::<LinkShare>(), Err(()), "{text}");
        }
    }
}
