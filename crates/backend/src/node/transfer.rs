//! A transfer: pages of one link on their way over one lane, several messages at a time, in the order in which they were asked for.
//!
//! A load of pages from several links has a transfer on each: all are asked first, then their answers are taken in turn.

use super::lane::SlotRead;
use super::lanes::Taken;
use super::limits::{DEPTH, DEPTH_MAX, LOAD_PAGES};
use super::link::Link;
use super::link_estimate::{Grant, UnderWay};
use super::slabs::Slabs;
use crate::node_error::NodeError;
use crate::{Direction, Priority};
use hinterland_units::PageBytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What takes no longer was no wait for something else.
const NOTHING_ELSE: Duration = Duration::from_micros(1);

/// See the module. The items are the caller's: the same ones in every call.
pub(super) struct Transfer<'a> {
    link: &'a Link,
    lane: Taken<'a>,
    priority: Priority,
    /// How long an answer may be late.
    patience: Duration,
    /// Items; those of them that were asked for, and those that have arrived.
    count: usize,
    asked: usize,
    arrived: usize,
    /// Where the messages end that are under way, and whether they were alone when they were asked for; how many have been answered.
    ends: [usize; DEPTH_MAX],
    alone: [bool; DEPTH_MAX],
    messages: usize,
    under_way: usize,
    since: Instant,
    /// What no load waits for yet.
    bulk: UnderWay<'a>,
    /// The answer has begun to arrive: it is not looked for once more.
    seen: bool,
}

/// Loads `items`. `take` gets those that arrive, in their order: `None` for one that arrived damaged. `meanwhile` is called when the first
/// were asked for.
pub(super) fn transfer(
    slabs: &Slabs,
    link: &Link,
    items: &mut [SlotRead<'_>],
    priority: Priority,
    patience: Duration,
    take: &mut dyn FnMut(usize, Option<&PageBytes>),
    meanwhile: &mut dyn FnMut(),
) -> Result<(), NodeError> {
    let mut transfer = Transfer::begin(slabs, link, items.len(), priority, patience)?;
    let mut going = transfer.ask(items);
    let asked = Instant::now();
    meanwhile();
    let mut alone = asked.elapsed() < NOTHING_ELSE;
    while going.is_ok() && !transfer.is_over() {
        going = transfer.receive(items, alone, take).and_then(|()| transfer.ask(items));
        alone = true;
    }
    transfer.end(going.is_ok());
    going
}

impl<'a> Transfer<'a> {
    /// Begins to load `count` items from `link`.
    pub(super) fn begin(
        slabs: &Slabs,
        link: &'a Link,
        count: usize,
        priority: Priority,
        mut patience: Duration,
    ) -> Result<Self, NodeError> {
        let demand = priority == Priority::Demand;
        let lane = if demand { link.demand_lane(patience) } else { link.background_lane(patience) };
        let lane = match lane {
            Err(error) if error.may_leave_connections() && demand => link.background_lane(slabs.patience(link)),
            lane => lane,
        }?;
        if !link.is_for(demand, &lane) {
            // One of the last: it is not given up because an answer is late.
            patience = slabs.patience(link);
        }
        Ok(Transfer::new(link, lane, count, priority, patience))
    }

    /// A load of `count` items over `lane`.
    pub(super) fn new(link: &'a Link, lane: Taken<'a>, count: usize, priority: Priority, patience: Duration) -> Self {
        let (ends, alone) = ([0; DEPTH_MAX], [false; DEPTH_MAX]);
        let (asked, arrived, messages, under_way) = (0, 0, 0, 0);
        let (since, bulk) = (Instant::now(), UnderWay::none(&link.estimate, Direction::In));
        Transfer {
            link,
            lane,
            priority,
            patience,
            count,
            asked,
            arrived,
            ends,
            alone,
            messages,
            under_way,
            since,
            bulk,
            seen: false,
        }
    }

    /// Asks for as many items as may be under way.
    pub(super) fn ask(&mut self, items: &[SlotRead<'_>]) -> Result<(), NodeError> {
        let demand = self.priority == Priority::Demand;
        while self.asked < self.count {
            let rest = &items[self.asked..];
            let grant = match demand {
                true => Grant::Any,
                false => self.link.estimate.grant(Direction::In, self.link.has_demands(), self.bulk.bytes()),
            };
            let pages = match grant {
                // A message for the page that the program waits for, then larger ones.
                Grant::Any if demand && self.asked == 0 => 1,
                Grant::Any if self.under_way < DEPTH => LOAD_PAGES.min(rest.len()),
                Grant::Bytes(bytes) if self.under_way < DEPTH_MAX => pages_of(rest, bytes),
                _ => break,
            };
            let message = &rest[..pages];
            self.lane.ask_pages(message, self.priority)?;
            if !demand {
                self.bulk.begin(bytes_of(message));
            }
            if self.under_way == 0 {
                self.since = Instant::now();
            }
            let turn = (self.messages + self.under_way) % DEPTH_MAX;
            (self.ends[turn], self.alone[turn]) = (self.asked + pages, self.under_way == 0);
            (self.asked, self.under_way) = (self.asked + pages, self.under_way + 1);
        }
        Ok(())
    }

    /// Takes the answer to the oldest message. `alone`: nothing else was waited for since the one before it.
    pub(super) fn receive(
        &mut self,
        items: &mut [SlotRead<'_>],
        alone: bool,
        take: &mut dyn FnMut(usize, Option<&PageBytes>),
    ) -> Result<(), NodeError> {
        // One that has come while another link was waited for does not tell how fast this one is.
        let is_timed = alone || !self.lane.has_arrived();
        if !std::mem::take(&mut self.seen) && !self.lane.look() && self.patience < self.lane.limit() {
            self.lane.wait(self.patience)?;
        }
        let (begin, end) = (self.arrived, self.ends[self.messages % DEPTH_MAX]);
        let bytes = bytes_of(&items[begin..end]);
        self.lane.receive_pages(&mut items[begin..end], |index, undamaged, page| {
            self.arrived += 1;
            take(begin + index, undamaged.then_some(page));
        })?;
        let now = Instant::now();
        self.link.node.received_bytes.fetch_add(bytes as u64, Relaxed);
        if self.priority != Priority::Demand {
            self.bulk.end(bytes);
        } else if begin == 0 {
            self.link.estimate.demand_took(now - self.since);
        }
        if is_timed {
            self.link.estimate.sample(bytes, self.alone[self.messages % DEPTH_MAX], now - self.since);
        }
        (self.messages, self.under_way, self.since) = (self.messages + 1, self.under_way - 1, now);
        Ok(())
    }

    /// Whether an answer begins to arrive within `limit`, or the lane breaks.
    pub(super) fn arrives_within(&mut self, limit: Duration) -> bool {
        self.seen = self.lane.look() || !matches!(self.lane.wait(limit), Err(NodeError::Silent { .. }));
        self.seen
    }

    /// Which of two answers begins to arrive within `limit`: whether it is that of `other`. Neither lane owes another one.
    pub(super) fn either_arrives_within(&mut self, other: &mut Transfer<'_>, limit: Duration) -> Option<bool> {
        let begun = Instant::now();
        while self.lane.wait_either(&mut other.lane, limit.saturating_sub(begun.elapsed())) {
            self.seen = self.lane.has_arrived();
            other.seen = !self.seen && other.lane.has_arrived();
            if self.seen || other.seen {
                return Some(other.seen);
            }
            if begun.elapsed() >= limit {
                break;
            }
        }
        None
    }

    /// Whether its lane owes an answer to another thread's request.
    pub(super) fn owes(&self) -> bool {
        self.lane.owes()
    }

    /// Whether all items have arrived.
    pub(super) fn is_over(&self) -> bool {
        self.arrived == self.count
    }

    /// Gives the lane back; one that is out of step is closed.
    pub(super) fn end(self, in_step: bool) {
        if in_step {
            self.link.views.heard();
        } else {
            self.link.part_with(self.lane);
        }
    }

    /// The one page that was asked for, of so many `bytes`, is not waited for any more; `slab` counts the loads that may be reading there.
    pub(super) fn leave_owed(self, bytes: usize, slab: Arc<()>) {
        self.lane.leave_owed(bytes, self.since, slab);
    }
}

/// Bytes that come for `items`.
fn bytes_of(items: &[SlotRead<'_>]) -> usize {
    items.iter().map(|item| item.bytes).sum()
}

/// How many of `items`, at least one and no more than a message has, come with so many bytes.
fn pages_of(items: &[SlotRead<'_>], bytes_max: u64) -> usize {
    let ends = items.iter().take(LOAD_PAGES).scan(0, |bytes, item| {
        *bytes += item.bytes as u64;
        Some(*bytes)
    });
    ends.take_while(|bytes| *bytes <= bytes_max).count().max(1)
}
