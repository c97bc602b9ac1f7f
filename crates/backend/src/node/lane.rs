//! A lane: one connection to a node, used by one thread at a time.
//!
//! Requests are answered in their order; those of one call may be under way together. A lane that an error came from is out of
//! step and never used again. One page may be *owed*: its answer is not waited for any more, and thrown away before the next one.

use super::channel::{Channel, Secured};
use crate::Patch;
use crate::node_error::NodeError;
use hinterland_sys::Address;
use hinterland_sys::peer_memory::ReceivedFd;
use hinterland_units::{PAGE_BYTES, PageBytes};
use hinterland_wire::{
    AdaptivePoll, CONTROL_BYTES_MAX, Features, HEADER_BYTES, Header, Hello, Kind, Outcome, PagePatch, Priority, Range,
    Reply, Request, WELCOME_BYTES, Welcome, WireError, checksum,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of the answer to a read of one page, without the page.
const DATA_HEAD_BYTES: usize = HEADER_BYTES + 4;
const SUM_BYTES: usize = 8;

/// A page to be read from a slot of the link's session.
pub(super) struct SlotRead<'a> {
    pub(super) slot: u64,
    /// So many bytes of it are kept there.
    pub(super) bytes: usize,
    pub(super) into: &'a mut PageBytes,
}

impl SlotRead<'_> {
    fn kept(&self) -> &[u8] {
        &self.into[..self.bytes]
    }
}

/// A connection.
pub(super) struct Lane {
    channel: Channel,
    /// How long a wait for bytes and sending may take.
    limits: (Duration, Duration),
    /// Bytes of the node's slabs.
    pub(super) slab_bytes: u64,
    /// What both sides understand.
    pub(super) features: Features,
    /// The node passes descriptors of slabs here.
    pub(super) shares: bool,
    /// The last request's number, and the last answer's.
    asked: u64,
    answered: u64,
    out: Vec<u8>,
    head: Vec<u8>,
    /// The program waits for the answer: it is looked for, before it is waited for in sleep.
    urgent: bool,
    poll: AdaptivePoll,
    owed: Option<Box<Owed>>,
}

/// An answer that no thread waits for.
struct Owed {
    page: PageBytes,
    /// Bytes of it that come.
    bytes: usize,
    since: Instant,
    /// The node may still read from there: the slab is not given back.
    _slab: Arc<()>,
    debts: Arc<AtomicUsize>,
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.debts.fetch_sub(1, Relaxed);
    }
}

impl Lane {
    /// Memory of a lane: its two buffers and what the kernel is shown.
    pub(super) const RAM_BYTES: u64 = (24 << 10) + 4096;

    /// Connects and agrees on a version. `limit` bounds every wait until `set_limits`.
    pub(super) fn connect(address: &Address, secured: Option<&Secured>, limit: Duration) -> Result<Lane, NodeError> {
        let mut channel = Channel::connect(address, secured, limit)?;
        let mut out = Vec::with_capacity(4096);
        out.extend_from_slice(&Hello::ours().encode());
        channel.send([&out[..]].into_iter())?;
        let mut head = vec![0; HEADER_BYTES + CONTROL_BYTES_MAX];
        channel.receive([&mut head[..WELCOME_BYTES]].into_iter())?;
        let welcome = Welcome::decode(head.first_chunk().expect("longer"))?;
        match welcome.outcome {
            Outcome::Accepted if !welcome.features.has(Features::CLONE) => Err(NodeError::NoClone),
            Outcome::Accepted => {
                let Welcome { slab_bytes, features, .. } = welcome;
                let shares = features.has(Features::SHARED) && matches!(address, Address::Unix(_));
                Ok(Lane {
                    channel,
                    limits: (limit, limit),
                    slab_bytes,
                    features,
                    shares,
                    asked: 0,
                    answered: 0,
                    out,
                    head,
                    urgent: false,
                    poll: AdaptivePoll::default(),
                    owed: None,
                })
            }
            Outcome::Version => Err(NodeError::Version { node: welcome.versions }),
            Outcome::Busy => Err(NodeError::Busy),
            Outcome::Secured => {
                let words = "it requires credentials; give --tls and --tls-ca, or the --key-file".into();
                Err(NodeError::Credentials { words })
            }
        }
    }

    /// From now on, waits take as long as `receive`, and sending at most `send`.
    pub(super) fn set_limits(&mut self, receive: Duration, send: Duration) -> Result<(), NodeError> {
        if self.limits != (receive, send) {
            self.channel.set_limits(receive, send)?;
            self.limits = (receive, send);
        }
        Ok(())
    }

    /// How long a wait for bytes takes at most.
    pub(super) fn limit(&self) -> Duration {
        self.limits.0
    }

    /// The answer to the page of so many `bytes` that was asked for at `since`, and to nothing else, is not waited for any more. Until it is here, `debts`
    /// counts one more, and `slab` who may be read.
    pub(super) fn leave_owed(&mut self, bytes: usize, since: Instant, slab: Arc<()>, debts: &Arc<AtomicUsize>) {
        assert!(!self.owes(), "two answers are owed, and one is accounted for");
        debts.fetch_add(1, Relaxed);
        self.owed = Some(Box::new(Owed { page: [0; PAGE_BYTES], bytes, since, _slab: slab, debts: debts.clone() }));
    }

    /// For how long an answer is owed, if one is that has not come as a whole yet: who only looks waits for nothing.
    pub(super) fn owes_for(&mut self) -> Option<Duration> {
        let Owed { since, bytes, .. } = **self.owed.as_ref()?;
        let whole = DATA_HEAD_BYTES + SUM_BYTES + bytes;
        if self.channel.has_whole(whole) { None } else { Some(since.elapsed()) }
    }

    /// Whether an answer is owed.
    pub(super) fn owes(&self) -> bool {
        self.owed.is_some()
    }

    /// Takes the answer that is owed, if one is.
    pub(super) fn take_owed(&mut self) -> Result<(), NodeError> {
        let Some(mut owed) = self.owed.take() else { return Ok(()) };
        let mut item = [SlotRead { slot: 0, bytes: owed.bytes, into: &mut owed.page }];
        self.receive_data(&mut item, |_, _, _| ())
    }

    /// Looks for an answer for a moment, if the program waits for it. False: not seen.
    pub(super) fn look(&mut self) -> bool {
        !self.owes() && self.urgent && self.poll.poll(|| self.channel.has_arrived())
    }

    /// Whether an answer has begun to arrive.
    pub(super) fn has_arrived(&mut self) -> bool {
        self.channel.has_arrived()
    }

    /// Waits until an answer begins to arrive; an error when none does within `patience`.
    pub(super) fn wait(&mut self, patience: Duration) -> Result<(), NodeError> {
        let begun = Instant::now();
        loop {
            if !self.channel.wait(patience.saturating_sub(begun.elapsed())) {
                return Err(NodeError::Silent { limit: patience });
            }
            if !self.owes() {
                return Ok(());
            }
            self.take_owed()?;
        }
    }

    /// As `wait`, for either of two lanes that owe nothing; false: none within `limit`.
    pub(super) fn wait_either(&mut self, other: &mut Lane, limit: Duration) -> bool {
        self.channel.wait_either(&mut other.channel, limit)
    }

    /// Makes one request without data and hands its answer to `take`, which returns `None` for one that does not fit.
    pub(super) fn ask<R>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u64),
        take: impl FnOnce(&Reply<'_>) -> Option<R>,
    ) -> Result<R, NodeError> {
        let number = self.next_number();
        write(&mut self.out, number);
        self.channel.send([&self.out[..]].into_iter())?;
        self.answer(take)
    }

    /// Asks for a descriptor to read a slab with; `None`: it came without one.
    pub(super) fn ask_shared(&mut self, slab: u32) -> Result<Option<ReceivedFd>, NodeError> {
        let number = self.next_number();
        Request::share(&mut self.out, number, slab);
        self.channel.send([&self.out[..]].into_iter())?;
        self.take_owed()?;
        let received = self.channel.receive_with([&mut self.head[..HEADER_BYTES]].into_iter())?;
        self.answer_behind_header(|reply| matches!(reply, Reply::Done).then_some(())).map(|()| received)
    }

    /// Asks for pages, whose bytes `receive_pages` takes.
    pub(super) fn ask_pages(&mut self, items: &[SlotRead<'_>], priority: Priority) -> Result<(), NodeError> {
        let number = self.next_number();
        self.urgent = priority == Priority::Demand;
        let ranges = items.iter().map(|item| page_range(item.slot, item.bytes, 0));
        Request::read(&mut self.out, number, priority, ranges);
        self.channel.send([&self.out[..]].into_iter())
    }

    /// Takes the answer to the oldest `ask_pages` that is open, made with the same items; `done(i, whether it arrived undamaged)`
    /// for each.
    pub(super) fn receive_pages(
        &mut self,
        items: &mut [SlotRead<'_>],
        done: impl FnMut(usize, bool, &PageBytes),
    ) -> Result<(), NodeError> {
        self.take_owed()?;
        self.receive_data(items, done)
    }

    fn receive_data(
        &mut self,
        items: &mut [SlotRead<'_>],
        mut done: impl FnMut(usize, bool, &PageBytes),
    ) -> Result<(), NodeError> {
        let (whole, data_bytes) =
            (DATA_HEAD_BYTES + items.len() * SUM_BYTES, items.iter().map(|item| item.bytes).sum::<usize>());
        let fits = |head: &[u8]| {
            let header = Header::decode(head.first_chunk().expect("as long as a header")).ok();
            header.is_some_and(|header| {
                header.kind == Kind::Data
                    && header.control_bytes == whole - HEADER_BYTES
                    && header.data_bytes == data_bytes
            })
        };
        let pages = items.iter_mut().map(|item| &mut item.into[..item.bytes]);
        let parts = std::iter::once(&mut self.head[..whole]).chain(pages);
        let moved = self.channel.receive_if(parts, HEADER_BYTES, fits)?;
        if moved < whole + data_bytes {
            // A refusal is shorter than what was waited for; what follows its header may lie in the pages.
            let spilt = items.iter().flat_map(|item| item.kept());
            for (to, from) in self.head[whole..].iter_mut().zip(spilt).take(moved.saturating_sub(whole)) {
                *to = *from;
            }
            return Err(self.explain(moved));
        }
        self.answered += 1;
        let (header, control) = Header::decode_whole(&self.head[..whole])?;
        check_number(&header, self.answered)?;
        let Reply::Data(sums) = Reply::decode(&header, control)? else { return Err(NodeError::OtherAnswer) };
        for (index, (item, sum)) in items.iter().zip(sums.iter()).enumerate() {
            done(index, checksum(page_address(item.slot), item.kept()) == sum, item.into);
        }
        Ok(())
    }

    /// Sends pages, or their first bytes, to the places of `slots`; `take_done` takes the answer.
    pub(super) fn send_pages(&mut self, slots: &[u64], pages: &[&[u8]], priority: Priority) -> Result<(), NodeError> {
        if !self.channel.is_ours() {
            return Err(NodeError::Closed);
        }
        let number = self.next_number();
        let ranges = slots
            .iter()
            .zip(pages)
            .map(|(slot, page)| page_range(*slot, page.len(), checksum(page_address(*slot), page)));
        Request::write(&mut self.out, number, priority, ranges);
        let parts = std::iter::once(&self.out[..]).chain(pages.iter().copied());
        self.channel.send(parts)
    }

    /// Sends the granules of pages that are to be written over their places of `slots`; `take_done` takes the answer.
    pub(super) fn send_patches(
        &mut self,
        slots: &[u64],
        patches: &[&Patch<'_>],
        priority: Priority,
    ) -> Result<(), NodeError> {
        if !self.channel.is_ours() {
            return Err(NodeError::Closed);
        }
        let number = self.next_number();
        let entries = slots.iter().zip(patches).map(|(slot, patch)| {
            let address = page_address(*slot);
            PagePatch { address, granules: patch.granules, checksum: checksum(address, patch.page) }
        });
        Request::patch(&mut self.out, number, priority, entries);
        // Together: one system call takes no more pieces than a message of whole pages has.
        let mut granules = Vec::with_capacity(patches.iter().map(|patch| patch.granules.bytes()).sum());
        for patch in patches {
            patch.granules.runs().for_each(|run| granules.extend_from_slice(&patch.page[run]));
        }
        self.channel.send([&self.out[..], &granules].into_iter())
    }

    /// Takes the answer to the oldest request that is open and has nothing but success or refusal for an answer.
    pub(super) fn take_done(&mut self) -> Result<(), NodeError> {
        self.answer(|reply| matches!(reply, Reply::Done).then_some(()))
    }

    /// A number for the next request.
    fn next_number(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// Takes the answer to the oldest request that is open.
    fn answer<R>(&mut self, take: impl FnOnce(&Reply<'_>) -> Option<R>) -> Result<R, NodeError> {
        self.take_owed()?;
        self.channel.receive([&mut self.head[..HEADER_BYTES]].into_iter())?;
        self.answer_behind_header(take)
    }

    /// Takes the rest of an answer whose header has arrived.
    fn answer_behind_header<R>(&mut self, take: impl FnOnce(&Reply<'_>) -> Option<R>) -> Result<R, NodeError> {
        let header = Header::decode(self.head.first_chunk().expect("longer"))?;
        let whole = HEADER_BYTES + header.control_bytes;
        self.channel.receive([&mut self.head[HEADER_BYTES..whole]].into_iter())?;
        self.answered += 1;
        let (header, control) = Header::decode_whole(&self.head[..whole])?;
        check_number(&header, self.answered)?;
        let reply = Reply::decode(&header, control)?;
        take(&reply).ok_or_else(|| refused(&reply))
    }

    /// What an answer says that was not the data asked for, of which `moved` bytes have arrived.
    fn explain(&self, moved: usize) -> NodeError {
        let read = || -> Result<NodeError, WireError> {
            let header = Header::decode(self.head.first_chunk().expect("longer"))?;
            let whole = (HEADER_BYTES + header.control_bytes).min(moved).min(self.head.len());
            let (header, control) = Header::decode_whole(&self.head[..whole])?;
            Reply::decode(&header, control).map(|reply| refused(&reply))
        };
        read().unwrap_or_else(NodeError::Wire)
    }
}

/// Answers come in the order of the requests, each once.
fn check_number(header: &Header, number: u64) -> Result<(), NodeError> {
    // A node that cannot read a request does not know its number.
    let unread = header.kind == Kind::Refused && header.number == 0;
    if header.number == number || unread { Ok(()) } else { Err(NodeError::OtherAnswer) }
}

fn refused(reply: &Reply<'_>) -> NodeError {
    match *reply {
        Reply::Refused { refusal, used_bytes, capacity_bytes, words } => {
            NodeError::Refused { refusal, used_bytes, capacity_bytes, words: words.to_owned() }
        }
        _ => NodeError::OtherAnswer,
    }
}

/// A slot's place in the session's address space.
fn page_address(slot: u64) -> u64 {
    slot * PAGE_BYTES as u64
}

fn page_range(slot: u64, bytes: usize, checksum: u64) -> Range {
    let bytes = u32::try_from(bytes).expect("a page at most");
    Range { address: page_address(slot), bytes, checksum }
}
