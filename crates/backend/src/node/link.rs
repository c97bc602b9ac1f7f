//! A link: one session at one node, and the lanes that lead to it.
//!
//! What a link holds ends with it: a node that was lost and comes back is used by a new link, in a new session, which is empty.
//! So nothing that a node missed while it was away can be read from it.

use super::channel::Channel;
use super::lane::Lane;
use super::lanes::{Lanes, OutOfStepLane, Taken};
use super::limits::{AnswerLimit, BACKGROUND_LANES, BUSY_PAUSE, OWING, RETRIED_NS, SECOND_LIMIT, Timing};
use super::link_estimate::SharedEstimate;
use super::link_stats::{Answered, LastReport};
use super::member::{Node, NodeAddress};
use super::recall_request::RecallRequest;
use super::views::Views;
use crate::node_error::NodeError;
use crate::sync::lock;
use hinterland_sys::Address;
use hinterland_wire::{CopiesReport, Features, Grant, Kind, Reply, Request};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Link {
    pub(super) node: Arc<Node>,
    /// What the program was called when it began, for those who look at the node.
    name: Arc<str>,
    /// The process's session; `None` in a forked child whose parent had nothing there, until it needs one.
    session: Mutex<Option<Grant>>,
    /// The session of the child that is about to be made.
    for_child: Mutex<Option<Result<Grant, NodeError>>>,
    demand: Lanes,
    background: Lanes,
    /// A lane that is out of step and was the last one: the node keeps the session until there is another.
    out_of_step: OutOfStepLane,
    demands_under_way: AtomicUsize,
    /// Slabs that are leased.
    pub(super) slabs: AtomicUsize,
    /// Slabs that were leased in the session's life.
    pub(super) leases: AtomicU64,
    pub(super) last_report: LastReport,
    answered: Answered,
    /// What the node wants back of them.
    pub(super) recall: RecallRequest,
    /// When it refused a slab for want of room, since it last leased one or got one back.
    full: Mutex<Option<Instant>>,
    /// When a connection for the second of two could not be made at once.
    no_second: Mutex<Option<Instant>>,
    pub(super) views: Views,
    /// How fast pages come.
    pub(super) estimate: SharedEstimate,
    /// It is avoided, because others are much faster.
    pub(super) slow: AtomicBool,
    /// Pages that came back damaged.
    pub(super) damages: AtomicU32,
    /// Why it is of no use any more.
    lost: OnceLock<NodeError>,
    is_absent: bool,
}

impl Link {
    fn new(node: &Arc<Node>, name: &Arc<str>) -> Link {
        let out_of_step = OutOfStepLane::default();
        Link {
            node: node.clone(),
            name: name.clone(),
            session: Mutex::new(None),
            for_child: Mutex::new(None),
            demand: Lanes::new(node.timing.lanes, &out_of_step),
            background: Lanes::new(BACKGROUND_LANES, &out_of_step),
            out_of_step,
            demands_under_way: AtomicUsize::new(0),
            slabs: AtomicUsize::new(0),
            leases: AtomicU64::new(0),
            last_report: LastReport::default(),
            answered: Answered::default(),
            recall: RecallRequest::default(),
            full: Mutex::new(None),
            no_second: Mutex::new(None),
            views: Views::new(node.timing.view_silence),
            estimate: SharedEstimate::new(node.timing.share),
            slow: AtomicBool::new(false),
            damages: AtomicU32::new(0),
            lost: OnceLock::new(),
            is_absent: false,
        }
    }

    /// Opens a session; also says how large the node's slabs are. `limit` bounds every wait.
    pub(super) fn open(node: &Arc<Node>, name: &Arc<str>, limit: Duration) -> Result<(Link, u64), NodeError> {
        let link = Link::new(node, name);
        let lane = link.join(limit)?;
        let slab_bytes = lane.slab_bytes;
        link.background.keep(lane);
        Ok((link, slab_bytes))
    }

    /// A link to a node that does not answer when the pool begins. Nothing is lost with it.
    pub(super) fn never(node: &Arc<Node>, name: &Arc<str>, error: NodeError) -> Link {
        let link = Link { is_absent: true, ..Link::new(node, name) };
        let _ = link.lost.set(error);
        link
    }

    /// Whether its node has not answered since the pool began.
    pub(super) fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// A link to a node that has not been tried yet.
    pub(super) fn expected(node: &Arc<Node>, name: &Arc<str>) -> Link {
        let link = Link::new(node, name);
        let _ = link.lost.set(NodeError::Closed);
        link
    }

    /// What stands at the place `index` while no node does.
    pub(super) fn vacant(index: usize, name: &Arc<str>) -> Link {
        let nobody = NodeAddress {
            url: String::new(),
            address: Address::Unix(String::new()),
            secured: None,
            limit: AnswerLimit::default(),
        };
        Link::expected(&Arc::new(Node::new(index, nobody, 0, false, Timing::default())), name)
    }

    /// Whether no node has had this place.
    pub(super) fn is_vacant(&self) -> bool {
        self.node.url.is_empty()
    }

    /// Whether a node has this place, and is not there.
    pub(super) fn is_away(&self) -> bool {
        self.lost().is_some() && !self.is_vacant()
    }

    /// Why the link is lost, if it is.
    pub(super) fn lost(&self) -> Option<&NodeError> {
        self.lost.get()
    }

    /// Ends the use of the link; false: it had ended before. What the first error was is the cause of the others.
    pub(super) fn lose(&self, error: &NodeError) -> bool {
        let first = self.lost.set(error.clone()).is_ok();
        if first {
            // One that was drained may go: nothing is lost with it.
            if !(self.recall.is_total() && self.slabs.load(Relaxed) == 0) {
                self.node.losses.fetch_add(1, Relaxed);
            }
            // Before the node can notice: nobody copies out of what it takes back.
            self.views.close();
            // The node gives the session up when its last lane ends.
            self.demand.close_idle();
            self.background.close_idle();
            *lock(&self.out_of_step) = None;
        }
        first
    }

    /// A lane for a thread that waits for a page.
    pub(super) fn demand_lane(&self, patience: Duration) -> Result<Taken<'_>, NodeError> {
        self.lane(&self.demand, patience)
    }

    /// A lane for the second of two that are asked for a page: one that is there, or can be made at once. None to a node that is late
    /// itself.
    pub(super) fn idle_demand_lane(&self) -> Option<Taken<'_>> {
        if self.owes() {
            return None;
        }
        self.demand.take_idle(|| {
            if self.lost().is_some()
                || lock(&self.no_second).is_some_and(|since| since.elapsed() < self.node.timing.refused)
            {
                return Err(NodeError::Busy);
            }
            let joined = self.join(SECOND_LIMIT);
            *lock(&self.no_second) = joined.is_err().then(Instant::now);
            joined
        })
    }

    /// Counts a load that the program waits for, until what is returned is dropped.
    pub(super) fn demand(&self) -> Demand<'_> {
        self.demands_under_way.fetch_add(1, Relaxed);
        Demand(self)
    }

    /// Whether the program waits for a load.
    pub(super) fn has_demands(&self) -> bool {
        self.demands_under_way.load(Relaxed) > 0
    }

    /// Whether it owes an answer that no thread waits for any more.
    pub(super) fn owes(&self) -> bool {
        let late = |time| self.estimate.late(time);
        // Both have to be looked at.
        self.demand.owe(late) | self.background.owe(late)
    }

    /// How long a load is expected to take, in nanoseconds; 0 as long as nothing is known.
    pub(super) fn expected_ns(&self) -> u64 {
        let mean = self.estimate.mean_ns();
        if self.owes() { mean.saturating_mul(OWING).max(RETRIED_NS) } else { mean }
    }

    /// A lane for everything else; where none is left of these and none can be made, one of those for demands.
    pub(super) fn background_lane(&self, patience: Duration) -> Result<Taken<'_>, NodeError> {
        match self.lane(&self.background, patience) {
            Err(error) if error.may_leave_connections() && self.demand.made() > 0 => self.lane(&self.demand, patience),
            lane => lane,
        }
    }

    /// Whether a lane is one of those for demands, or of those for everything else.
    pub(super) fn is_for(&self, demand: bool, lane: &Taken<'_>) -> bool {
        lane.is_of(if demand { &self.demand } else { &self.background })
    }

    fn lane<'a>(&self, lanes: &'a Lanes, patience: Duration) -> Result<Taken<'a>, NodeError> {
        let alive = || self.lost.get().cloned().map_or(Ok(()), Err);
        alive()?;
        let mut taken = lanes.take(|| alive().and_then(|()| self.join(patience)))?;
        taken.set_limits(self.node.limit(), self.node.send_limit())?;
        // The thread that had the lane before may have lost the link.
        alive()?;
        Ok(taken)
    }

    /// Closes a lane that is out of step with the node, the last one once there is another.
    pub(super) fn part_with(&self, lane: Taken<'_>) {
        let lane = lane.take_out();
        if !self.has_lanes() {
            *lock(&self.out_of_step) = Some(lane);
            // A thread that lost the link meanwhile, or made a lane, may not have seen it.
            if self.lost().is_some() || self.has_lanes() {
                *lock(&self.out_of_step) = None;
            }
        }
    }

    fn has_lanes(&self) -> bool {
        self.demand.made() + self.background.made() > 0
    }

    /// A new lane in the process's session. A node that has too many connections or sessions is asked again for as long as `limit`,
    /// unless there is a lane, for which everybody can wait instead.
    fn join(&self, limit: Duration) -> Result<Lane, NodeError> {
        let begun = Instant::now();
        loop {
            let joined = self.join_once(limit);
            let is_busy = joined.as_ref().is_err_and(NodeError::is_busy);
            if !is_busy || self.has_lanes() || begun.elapsed() + BUSY_PAUSE >= limit {
                return joined;
            }
            // It may have the place that is lacking.
            *lock(&self.out_of_step) = None;
            std::thread::sleep(BUSY_PAUSE);
        }
    }

    /// A new lane in the process's session, which is opened if there is none.
    fn join_once(&self, limit: Duration) -> Result<Lane, NodeError> {
        let mut lane = Lane::connect(&self.node.address, self.node.secured.as_ref(), limit)?;
        let attach = |lane: &mut Lane, grant: Grant| {
            lane.ask(|into, number| Request::attach(into, number, grant.session, grant.token), granted)
        };
        // Not under the lock: a node that does not answer would hold up who only looks.
        let known = *lock(&self.session);
        if let Some(grant) = known {
            attach(&mut lane, grant)?;
        } else {
            let mut session = lock(&self.session);
            if let Some(grant) = *session {
                attach(&mut lane, grant)?;
            } else {
                let name = format!("{} {}", self.name, std::process::id());
                let quota_bytes = self.node.quota_bytes;
                let open = |into: &mut Vec<u8>, number| {
                    Request::open(into, number, &name, quota_bytes, self.node.timing.lease_ms)
                };
                *session = Some(lane.ask(open, granted)?);
            }
        }
        lane.set_limits(self.node.limit(), self.node.send_limit())?;
        self.views.heard();
        Ok(lane)
    }

    /// Makes one request without data in the background.
    fn ask<R>(
        &self,
        write: impl FnOnce(&mut Vec<u8>, u64),
        take: impl FnOnce(&Reply<'_>) -> Option<R>,
    ) -> Result<R, NodeError> {
        let mut lane = self.background_lane(self.node.limit())?;
        let result = lane.ask(write, take);
        if result.as_ref().is_err_and(|error| !error.is_full()) {
            lane.close();
        }
        if result.is_ok() {
            self.views.heard();
        }
        result
    }

    /// Makes a view of a slab that has none, after a write to it was answered on `lane`.
    pub(super) fn make_view(&self, lane: &mut Lane, slab: u32) -> Result<(), NodeError> {
        self.views.heard();
        if !lane.shares || !self.views.lack(slab) {
            return Ok(());
        }
        let file = match lane.ask_shared(slab) {
            Err(error) if error.is_full() => None,
            answer => answer?,
        };
        self.views.make(slab, lane.slab_bytes, file.as_ref());
        Ok(())
    }

    /// Asks for a slab.
    pub(super) fn lease(&self) -> Result<u32, NodeError> {
        let take = |reply: &Reply<'_>| match reply {
            Reply::Slabs(numbers) => numbers.iter().next(),
            _ => None,
        };
        let leased = self.ask(|into, number| Request::lease(into, number, 1), take);
        *lock(&self.full) = leased.as_ref().is_err_and(NodeError::is_full).then(Instant::now);
        let number = leased?;
        self.slabs.fetch_add(1, Relaxed);
        self.leases.fetch_add(1, Release);
        Ok(number)
    }

    /// Whether the node had no room when it was asked last.
    pub(super) fn is_full(&self) -> bool {
        lock(&self.full).is_some()
    }

    /// Looks whether a node that had no room has some now; whether it has.
    pub(super) fn has_room_again(&self, slab_bytes: u64) -> Result<bool, NodeError> {
        if !self.is_full()
            || !self.may_have_room()
            || self.recall.is_some()
            || self.free_bytes(slab_bytes)? < slab_bytes
        {
            return Ok(false);
        }
        *lock(&self.full) = None;
        Ok(true)
    }

    /// Whether the node may have room for a slab: none was refused a short while ago.
    pub(super) fn may_have_room(&self) -> bool {
        lock(&self.full).is_none_or(|since| since.elapsed() >= self.node.timing.refused)
    }

    /// Gives slabs back.
    pub(super) fn give_back(&self, slabs: &[u32]) -> Result<(), NodeError> {
        self.views.take_away(slabs);
        let write = |into: &mut Vec<u8>, number| Request::give_back(into, number, slabs);
        self.ask(write, |reply| matches!(reply, Reply::Done).then_some(()))?;
        self.slabs.fetch_sub(slabs.len(), Relaxed);
        // What it wanted back it does not lend again.
        if !self.recall.is_some() {
            *lock(&self.full) = None;
        }
        Ok(())
    }

    /// Bytes that may still be asked for: of the session's quota, and of what the node has.
    pub(super) fn free_bytes(&self, slab_bytes: u64) -> Result<u64, NodeError> {
        let take = |reply: &Reply<'_>| match reply {
            Reply::Figures(figures) if figures.node.draining == 0 => {
                Some(figures.node.capacity_bytes.saturating_sub(figures.node.used_bytes))
            }
            Reply::Figures(_) => Some(0),
            _ => None,
        };
        let free = self.ask(|into, number| Request::plain(into, number, Kind::Statistics), take)?;
        let held = self.slabs.load(Relaxed) as u64 * slab_bytes;
        Ok(free.min(self.quota_bytes().saturating_sub(held)))
    }

    /// Whether there is a session at the node now.
    pub(super) fn has_session(&self) -> bool {
        lock(&self.session).is_some()
    }

    /// Whether the node has answered a report in the last `time`.
    pub(super) fn answered_within(&self, time: Duration) -> bool {
        self.answered.within(time)
    }

    /// Says what would be lost with the node, and asks what it wants back; a node that cannot be asked wants nothing.
    pub(super) fn ask_recall(&self, report: &CopiesReport) -> Result<(), NodeError> {
        let features = self.background_lane(self.node.limit())?.features;
        if !features.has(Features::RECALL) {
            return Ok(());
        }
        let take = |reply: &Reply<'_>| match reply {
            Reply::Recalled(recall) => Some(*recall),
            _ => None,
        };
        let write = |into: &mut Vec<u8>, number| match features.has(Features::REPORT) {
            true => Request::report(into, number, report),
            false => Request::plain(into, number, Kind::Recall),
        };
        let recall = self.ask(write, take)?;
        self.answered.now();
        self.recall.set(recall.slabs);
        if let Some(grant) = lock(&self.session).as_mut() {
            grant.quota_bytes = recall.quota_bytes;
        }
        Ok(())
    }

    /// Whether no load asks it: only a ping learns how it is.
    pub(super) fn is_passed_by(&self) -> bool {
        self.slow.load(Relaxed) || self.estimate.mean_ns() >= RETRIED_NS || self.owes()
    }

    /// Whether the node still answers, within `limit`, on a lane of its own.
    pub(super) fn ping(&self, limit: Duration) -> Result<(), NodeError> {
        self.join(limit).map(drop)
    }

    /// Bytes that the process may keep there.
    pub(super) fn quota_bytes(&self) -> u64 {
        lock(&self.session).map_or(self.node.quota_bytes, |grant| grant.quota_bytes)
    }

    /// Memory of the lanes.
    pub(super) fn ram_bytes(&self) -> u64 {
        let tls_bytes = if self.node.secured.is_some() { Channel::TLS_RAM_BYTES } else { 0 };
        (self.demand.made() + self.background.made()) as u64 * (Lane::RAM_BYTES + tls_bytes)
    }

    /// Has the node make a clone of the session for the child that is about to be made. A child of a process that keeps nothing
    /// there begins with a session of its own when it needs one.
    pub(super) fn before_fork(&self) {
        let keeps = self.lost().is_none() && self.slabs.load(Relaxed) > 0;
        let clone = keeps.then(|| self.ask(|into, number| Request::plain(into, number, Kind::Clone), granted));
        self.views.cloned();
        *lock(&self.for_child) = clone;
    }

    /// Goes on in the parent: why the node could not make a clone. It gives a clone up that nobody connects to.
    pub(super) fn after_fork_in_parent(&self) -> Result<(), NodeError> {
        match lock(&self.for_child).take() {
            // The session itself goes on.
            Some(Err(NodeError::Refused { .. })) | Some(Ok(_)) | None => Ok(()),
            // On other connections, where none was to be had for this.
            Some(Err(error)) if error.leaves_connections() => Ok(()),
            Some(Err(error)) => Err(error),
        }
    }

    /// Goes on in the child, in the session that was made for it.
    pub(super) fn after_fork_in_child(&self) -> Result<(), NodeError> {
        // The connections are the parent's: they are closed on this side, with nothing said.
        self.demand.reset();
        self.background.reset();
        *lock(&self.out_of_step) = None;
        self.node.count_anew();
        if self.lost().is_some() {
            return Ok(());
        }
        *lock(&self.session) = None;
        // Another session, which has leased nothing by itself.
        self.leases.store(0, Relaxed);
        if let Some(clone) = lock(&self.for_child).take() {
            *lock(&self.session) = Some(clone?);
            match self.join(self.node.limit()) {
                Ok(lane) => self.background.keep(lane),
                // The node waits for us: perhaps we can connect when we need to.
                Err(error) if error.is_local() => {}
                Err(error) => return Err(error),
            }
        } else {
            self.views.clear();
        }
        Ok(())
    }
}

/// A load that the program waits for.
pub(super) struct Demand<'a>(&'a Link);

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        self.0.demands_under_way.fetch_sub(1, Relaxed);
        self.0.estimate.demanded();
    }
}

fn granted(reply: &Reply<'_>) -> Option<Grant> {
    match reply {
        Reply::Session(grant) => Some(*grant),
        _ => None,
    }
}
