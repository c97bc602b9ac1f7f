//! A lane: one connection, served by one thread, its requests in their order.
//!
//! Requests that have arrived together are answered together. The buffers of a lane are bounded by the protocol's bounds.

use crate::connection::{Connection, HandshakeError};
use crate::latency::{Sampler, Work};
use crate::node::Node;
use crate::quotas::NoRoom;
use crate::receive_queue::{ReceiveQueue, SHORT_BYTES};
use crate::reply_writer::ReplyWriter;
use crate::session::{Session, SessionError};
use crate::slab::SLAB_BYTES;
use hinterland_units::ByteCount;
use hinterland_wire::{
    AdaptivePoll, Features, HEADER_BYTES, Header, Hello, Outcome, Ranges, Refusal, Reply, Request, Welcome, WireError,
};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Answers are sent when so much has come together, or nothing more is asked.
const ANSWER_BYTES: usize = 128 << 10;
/// Why a slab is lent without being shared.
pub(crate) const UNSHARED: &str =
    "this slab cannot be shared: descriptors are used up, or files may not be so long (ulimit -n and -f of the node)";

/// Why a node is not drained or resized.
const NO_OPERATOR: &str = "only the node's own certificate and those that it was started with as --operators may do that; by a socket, its user and root";

/// Why a session is not entered, or not served any more.
const OVER: &str = "no such session here: it was closed, its lease is over, or the node was started anew";

/// Why a lane ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneError {
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("no version in common: the client speaks {0} to {1}")]
    Version(u16, u16),
    #[error("a request out of place")]
    Order,
    #[error("too many connections")]
    Busy,
}

impl From<HandshakeError> for LaneError {
    fn from(error: HandshakeError) -> LaneError {
        match error {
            HandshakeError::Connection(error) => LaneError::Connection(error),
            refused @ HandshakeError::Refused(_) => LaneError::Refused(refused.to_string()),
        }
    }
}

/// Serves a connection to its end.
pub(crate) fn serve(node: &Node, number: u64, mut stream: Connection, busy: bool) -> Result<(), LaneError> {
    let features = shake_hands(&mut stream, busy, node.options().handshake_limit)?;
    let shard = node.latencies.shard();
    // Not on the stack, of which a page more counts where there are thousands of lanes.
    let writer = ReplyWriter::new(&stream, node.egress.as_ref());
    let mut lane = Box::new(Lane {
        node,
        writer,
        number,
        is_new: true,
        features,
        shard,
        sampler: Sampler::default(),
        poll: AdaptivePoll::default(),
        asked: 0,
        session: None,
        out: vec![],
        reply: vec![],
        sums: vec![],
    });
    let result = lane.run(&mut stream);
    if let Some(session) = lane.session {
        session.leave();
    }
    result
}

fn shake_hands(stream: &mut Connection, busy: bool, limit: Duration) -> Result<Features, LaneError> {
    let hello = Hello::decode(&stream.read_hello(limit)?)?;
    let welcome = Welcome::answer(&hello, stream.features(), SLAB_BYTES, busy);
    stream.write_all(&welcome.encode())?;
    stream.flush()?;
    match welcome.outcome {
        Outcome::Accepted => Ok(welcome.features),
        Outcome::Version => Err(LaneError::Version(hello.versions.0, hello.versions.1)),
        Outcome::Busy => Err(LaneError::Busy),
        Outcome::Secured => unreachable!("whoever has no credentials does not come here"),
    }
}

pub(crate) struct Lane<'a> {
    pub(crate) node: &'a Node,
    writer: ReplyWriter<'a>,
    /// The connection's, in the order in which they came.
    pub(crate) number: u64,
    /// It has said no whole long request yet.
    pub(crate) is_new: bool,
    features: Features,
    /// Where its latencies are counted.
    shard: usize,
    sampler: Sampler,
    poll: AdaptivePoll,
    /// The number of the last request.
    asked: u64,
    pub(crate) session: Option<Arc<Session>>,
    /// Answers that are not sent yet.
    out: Vec<u8>,
    /// Of the answer that is being made: its header and control part, its data's checksums.
    reply: Vec<u8>,
    sums: Vec<u64>,
}

impl<'a> Lane<'a> {
    fn run(&mut self, stream: &mut Connection) -> Result<(), LaneError> {
        let mut queue = Box::new(ReceiveQueue::default());
        let mut trusted = false;
        loop {
            match self.step(&mut queue, stream) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    if matches!(error, LaneError::Wire(_)) {
                        self.refuse(0, Refusal::Malformed, &error.to_string());
                    }
                    queue.long = None;
                    // What is still to be said, before what has not been read ends the connection; the client may be gone.
                    let _ = self.send(stream).and_then(|()| match error {
                        LaneError::Connection(_) => Ok(()),
                        _ => stream.linger(),
                    });
                    return Err(error);
                }
            }
            if !trusted && self.session.is_some() {
                stream.set_read_timeout(None)?;
                self.node.request_buffers.settle(self.number);
                trusted = true;
            }
        }
    }

    /// Serves one request; false when the client has hung up.
    fn step(&mut self, queue: &mut ReceiveQueue<'a>, stream: &mut Connection) -> Result<bool, LaneError> {
        if !queue.fill(HEADER_BYTES, stream, self)? {
            return Ok(false);
        }
        let header = Header::decode(queue.arrived().first_chunk().expect("filled"))?;
        let whole = HEADER_BYTES + header.control_bytes;
        if !queue.fill(whole + header.data_bytes, stream, self)? {
            return Ok(false);
        }
        let (message, rest) = queue.arrived().split_at(whole);
        let (header, control) = Header::decode_whole(message)?;
        let request = Request::decode(&header, control)?;
        self.take_number(header.number)?;
        let work = match request {
            Request::Read { .. } => Work::Read,
            Request::Write { .. } | Request::Patch { .. } => Work::Write,
            _ => Work::Other,
        };
        let begun = self.sampler.takes(work).then(Instant::now);
        let (node, session) = (self.node, self.session.clone());
        let tenant = session.as_ref().map_or(&node.sessionless, |session| &session.group.tenant);
        // One that sends a descriptor may wait for the connection.
        let is_work = !matches!(request, Request::Share { .. });
        let permit = is_work.then(|| tenant.admission.admit(&node.processors, header.priority));
        self.writer.says(header.priority, !self.out.is_empty());
        let (data, behind) = rest.split_at(header.data_bytes);
        let more = behind.len() >= HEADER_BYTES;
        self.answer(stream, header.number, request, data, more)?;
        if let Some(begun) = begun {
            node.latencies.count(self.shard, work, begun.elapsed());
        }
        if permit.is_some() && (self.out.len() >= ANSWER_BYTES || !more) {
            self.writer.offer(stream, &mut self.out)?;
        }
        queue.begin += whole + header.data_bytes;
        self.is_new &= whole + header.data_bytes <= SHORT_BYTES;
        drop(permit);
        if self.out.len() >= ANSWER_BYTES {
            queue.give_back();
            self.send(stream)?;
        }
        Ok(true)
    }

    /// Numbers count up: a request that is repeated, or comes late, would undo what came after it.
    fn take_number(&mut self, number: u64) -> Result<(), LaneError> {
        if number <= self.asked {
            self.refuse(number, Refusal::Order, "the request's number is not larger than that of the one before");
            return Err(LaneError::Order);
        }
        self.asked = number;
        Ok(())
    }

    /// Looks for the next request before it is waited for in sleep, where processors are left for that.
    pub(crate) fn look(&mut self, stream: &Connection) {
        if self.session.is_none() {
            return;
        }
        let node = self.node;
        if node.pollers.fetch_add(1, Relaxed) < node.pollers_max() {
            self.poll.poll(|| stream.has_arrived());
        }
        node.pollers.fetch_sub(1, Relaxed);
    }

    pub(crate) fn send(&mut self, stream: &mut Connection) -> io::Result<()> {
        self.writer.send(stream, &mut self.out)
    }

    /// What long answers needed is given back, in the silence after them.
    pub(crate) fn give_back(&mut self) {
        (self.out, self.reply, self.sums) = (vec![], vec![], vec![]);
    }

    /// Bytes that `give_back` would give back.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.out.capacity()
    }

    /// Answers a read with the bytes where they lie, as far as they may be sent and the connection takes them without waiting. False: they cannot be
    /// sent so.
    fn send_in_place(
        &mut self,
        stream: &Connection,
        number: u64,
        session: &Session,
        ranges: Ranges<'_>,
    ) -> io::Result<bool> {
        let Lane { writer, sums, reply, out, .. } = self;
        let turn = writer.turn(out.len() + Reply::data_head_bytes(ranges.count()) + ranges.data_bytes());
        if turn == 0 {
            return Ok(false);
        }
        sums.clear();
        let lent = session.lend(ranges, sums, |pieces, sums| {
            Reply::data(reply, number, sums, ranges.data_bytes());
            out.extend_from_slice(reply);
            writer.offer_all(stream, turn, out, pieces)
        });
        match lent {
            Ok(Some(sent)) => sent.map(|()| true),
            Ok(None) => {
                writer.gives_up(turn);
                Ok(false)
            }
            Err(error) => {
                writer.gives_up(turn);
                self.explain(number, session, error);
                Ok(true)
            }
        }
    }

    fn answer(
        &mut self,
        stream: &mut Connection,
        number: u64,
        request: Request<'_>,
        data: &[u8],
        more: bool,
    ) -> Result<(), LaneError> {
        let node = self.node;
        match request {
            Request::Open { .. } | Request::Attach { .. } if self.session.is_some() => {
                self.refuse(number, Refusal::Order, "this connection has a session already");
                return Err(LaneError::Order);
            }
            Request::Open { name, quota_bytes, lease_ms } => {
                let opened = node.open(stream.client(), name, quota_bytes, lease_ms);
                if let Ok(session) = &opened {
                    let quota = Node::grant(session).quota_bytes;
                    tracing::info!(session = session.id.0, name, quota_bytes = quota, "session opened");
                }
                self.enter(number, opened);
            }
            Request::Attach { session, token } => self.enter(number, node.attach(session, token)),
            Request::Statistics => {
                Reply::figures(&mut self.reply, number, |into| node.write_statistics(into));
                self.out.extend_from_slice(&self.reply);
            }
            Request::Copies => {
                Reply::copies(&mut self.reply, number, |into| node.write_copies(into));
                self.out.extend_from_slice(&self.reply);
            }
            Request::Certificates => {
                Reply::certificates(&mut self.reply, number, |into| node.write_certificates(into));
                self.out.extend_from_slice(&self.reply);
            }
            Request::Drain { .. } | Request::Resize { .. } if !stream.may_operate() => {
                tracing::warn!(by = %stream.peer(), "a drain or resize was refused: no operator asked for it");
                self.refuse(number, Refusal::Order, NO_OPERATOR);
            }
            Request::Drain { on } if self.features.has(Features::DRAIN) => {
                node.drain(on);
                tracing::info!(on, by = %stream.peer(), "drain");
                self.done(number);
            }
            Request::Resize { capacity_bytes } if self.features.has(Features::RECALL) => {
                node.resize(capacity_bytes);
                tracing::info!(capacity = %ByteCount(node.figures().capacity_bytes), by = %stream.peer(), "resized");
                self.done(number);
            }
            Request::Clone if !self.features.has(Features::CLONE) => {
                self.refuse(number, Refusal::Order, "the feature was not agreed on");
            }
            Request::Share { .. } if !self.features.has(Features::SHARED) => {
                self.refuse(number, Refusal::Order, "the feature was not agreed on");
            }
            Request::Drain { .. } | Request::Resize { .. } => {
                self.refuse(number, Refusal::Order, "the feature was not agreed on")
            }
            other => {
                let Some(session) = self.session.clone() else {
                    self.refuse(number, Refusal::Order, "this connection has no session yet");
                    return Err(LaneError::Order);
                };
                match other {
                    Request::Share { slab } => self.share(stream, number, &session, slab)?,
                    // Where several answers come together, what is small is copied.
                    Request::Read { ranges }
                        if stream.takes_offers() && (!more || self.out.len() + ranges.data_bytes() >= ANSWER_BYTES) =>
                    {
                        if !self.send_in_place(stream, number, &session, ranges)? {
                            self.serve(number, &session, other, data);
                        }
                    }
                    other => self.serve(number, &session, other, data),
                }
            }
        }
        Ok(())
    }

    /// The requests that concern a session.
    fn serve(&mut self, number: u64, session: &Session, request: Request<'_>, data: &[u8]) {
        let outcome = match request {
            Request::Read { ranges } => {
                // The data goes to its place at once: how long what stands before it will be is known.
                let begin = self.out.len();
                self.out.resize(begin + Reply::data_head_bytes(ranges.count()), 0);
                self.sums.clear();
                let read = session.read(ranges, &mut self.out, &mut self.sums);
                if read.is_ok() {
                    Reply::data(&mut self.reply, number, &self.sums, ranges.data_bytes());
                    self.out[begin..][..Reply::data_head_bytes(ranges.count())].copy_from_slice(&self.reply);
                    return;
                }
                self.out.truncate(begin);
                read
            }
            Request::Write { ranges } => session.write(ranges, data),
            Request::Patch { .. } if !self.features.has(Features::PATCH) => {
                return self.refuse(number, Refusal::Order, "the feature was not agreed on");
            }
            Request::Patch { patches } => session.patch(patches, data),
            Request::Lease { .. } if self.node.is_draining() => {
                let memory = (self.node.used_bytes(), session.group.store().bound() * SLAB_BYTES);
                return self.refuse_memory(number, Refusal::Draining, memory, "the node leases no more memory");
            }
            Request::Lease { slabs } => {
                match session.lease_slabs(slabs as usize, self.features.has(Features::SHARED)) {
                    Ok(numbers) => {
                        Reply::slabs(&mut self.reply, number, &numbers);
                        return self.out.extend_from_slice(&self.reply);
                    }
                    Err(error) => Err(error),
                }
            }
            Request::Return { slabs } => session.return_slabs(slabs),
            Request::Clone => match self.node.clone_of(session) {
                Ok(clone) => {
                    tracing::debug!(session = session.id.0, clone = clone.id.0, "cloned");
                    Reply::session(&mut self.reply, number, &Node::grant(&clone));
                    return self.out.extend_from_slice(&self.reply);
                }
                Err(refusal) => return self.refuse(number, refusal, "no second session can be made"),
            },
            Request::Report(_) if !self.features.has(Features::REPORT) => {
                return self.refuse(number, Refusal::Order, "the feature was not agreed on");
            }
            Request::Recall | Request::Report(_) => {
                if let Request::Report(report) = request {
                    session.report.says(report, Instant::now());
                }
                Reply::recalled(&mut self.reply, number, &self.node.recall(session));
                return self.out.extend_from_slice(&self.reply);
            }
            Request::Close => {
                self.node.close(session.id);
                tracing::info!(session = session.id.0, "session closed");
                Ok(())
            }
            Request::Open { .. }
            | Request::Attach { .. }
            | Request::Statistics
            | Request::Copies
            | Request::Certificates
            | Request::Drain { .. }
            | Request::Resize { .. } => {
                unreachable!("answered without a session")
            }
            Request::Share { .. } => unreachable!("answered by itself"),
        };
        match outcome {
            Ok(()) => self.done(number),
            Err(error) => self.explain(number, session, error),
        }
    }

    /// Answers with a descriptor, which goes with the bytes of the answer and no others.
    fn share(&mut self, stream: &mut Connection, number: u64, session: &Session, slab: u32) -> io::Result<()> {
        match session.reader(slab) {
            Ok(Some(descriptor)) => {
                self.send(stream)?;
                Reply::done(&mut self.reply, number);
                if stream.send_with(&self.reply, &descriptor).is_err() {
                    // Too many are on their way; a connection that is broken ends with the next answer.
                    self.refuse(number, Refusal::Full, UNSHARED);
                }
            }
            // The client reads it by messages, as any other.
            Ok(None) => self.refuse(number, Refusal::Full, UNSHARED),
            Err(error) => self.explain(number, session, error),
        }
        Ok(())
    }

    fn enter(&mut self, number: u64, session: Result<Arc<Session>, Refusal>) {
        match session {
            Ok(session) => {
                Reply::session(&mut self.reply, number, &Node::grant(&session));
                self.out.extend_from_slice(&self.reply);
                self.writer.belongs_to(session.group.tenant.number, session.group.number);
                self.session = Some(session);
            }
            Err(Refusal::NoSession) => {
                self.refuse(number, Refusal::NoSession, OVER);
            }
            Err(Refusal::Draining) => self.refuse(number, Refusal::Draining, "the node takes no new sessions"),
            Err(refusal) => self.refuse(number, refusal, "too many sessions, or too many connections in one"),
        }
    }

    fn done(&mut self, number: u64) {
        Reply::done(&mut self.reply, number);
        self.out.extend_from_slice(&self.reply);
    }

    fn explain(&mut self, number: u64, session: &Session, error: SessionError) {
        match error {
            SessionError::Over => self.refuse(number, Refusal::NoSession, OVER),
            SessionError::Outside => {
                self.refuse(number, Refusal::Range, "a range or slab that the session does not have")
            }
            SessionError::Damaged => self.refuse(number, Refusal::Damaged, "data arrived damaged (checksum mismatch)"),
            SessionError::Stale => self.refuse(
                number,
                Refusal::Stale,
                "the page here is not the one that was patched, or the patch arrived damaged",
            ),
            SessionError::NoRoom(NoRoom::Quota) => {
                let quota = session.group.quota();
                let (used, bound) = (quota.used() * SLAB_BYTES, quota.bound() * SLAB_BYTES);
                let words = format!("the quota of {} is used up", ByteCount(bound));
                self.refuse_memory(number, Refusal::Quota, (used, bound), &words);
            }
            SessionError::NoRoom(no_room) => {
                let (used, bound) = (self.node.used_bytes(), session.group.store().bound() * SLAB_BYTES);
                let words = match no_room {
                    NoRoom::System => {
                        "the node's machine gives it no memory: none is left, or a limit is reached (ulimit -v and -f)"
                    }
                    _ => "the node has leased all that it lends",
                };
                self.refuse_memory(number, Refusal::Full, (used, bound), words);
            }
        }
    }

    fn refuse(&mut self, number: u64, refusal: Refusal, words: &str) {
        self.refuse_memory(number, refusal, (0, 0), words);
    }

    fn refuse_memory(&mut self, number: u64, refusal: Refusal, memory: (u64, u64), words: &str) {
        self.node.refused.fetch_add(1, Relaxed);
        tracing::debug!(?refusal, words, "refused");
        Reply::refused(&mut self.reply, number, refusal, memory, words);
        self.out.extend_from_slice(&self.reply);
    }
}
