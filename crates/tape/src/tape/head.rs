//! What a tape says of itself: at its beginning what it was planned for, at its end what it has for each thread.

use crate::bytes::{Bytes, put, put_text};
use crate::{ForkPath, INDEX_MAX, Trace, program_key};

/// What a tape has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// For each thread, which pages it needs next, in their order.
    #[default]
    Ordered,
    /// For each phase of the program, which pages it needs, in any order.
    Sets,
}

impl Order {
    const ALL: [Order; 2] = [Order::Ordered, Order::Sets];

    pub(crate) fn of(number: u64) -> Option<Order> {
        Order::ALL.into_iter().find(|order| *order as u64 == number)
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Order::Ordered => "ordered",
            Order::Sets => "sets",
        }
    }
}

/// What a tape was planned from and for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TapeHead {
    /// The planner: `hinterland 0.1.0`.
    pub origin: String,
    /// The program of the trace.
    pub program: String,
    /// [`crate::Head::digest`] of its arguments; 0: not known.
    pub arguments_digest: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of a microset of the trace, at most.
    pub microset_pages: u32,
    /// When the trace was begun, in seconds since 1970; 0: not known.
    pub begun_unix_s: u64,
    /// Local memory that it was planned for, in pages.
    pub local_pages: u64,
    /// Different pages in the trace: what the program needs with all memory local.
    pub peak_pages: u64,
    /// The eviction that was planned with: `min`, `lru`; of an unordered tape, none.
    pub eviction: String,
    /// It is of intervals of which the program says where they begin and end; in version 1, of all of the program.
    pub has_intervals: bool,
    /// What it has; in versions 1 and 2, an order.
    pub order: Order,
    /// The program's build-id, hexadecimal; empty: it has none, or, in versions 1 to 3, it is not known.
    pub build_id: String,
    /// The traced process; 0: not known.
    pub process: u32,
    /// Its program and arguments, for people: cut where they are long.
    pub command: String,
    /// By which forks the process came from that program; in versions 1 to 4, by none.
    pub forks: ForkPath,
}

impl TapeHead {
    /// The head of a tape from a trace, by the command that plans; what it is planned for is the planner's to say.
    pub(crate) fn from_trace(trace: &Trace<'_>, origin: &str) -> TapeHead {
        let of = trace.head();
        TapeHead {
            origin: origin.into(),
            program: of.program.clone(),
            arguments_digest: of.arguments_digest,
            page_bytes: of.page_bytes,
            microset_pages: of.microset_pages,
            begun_unix_s: of.begun_unix_s,
            has_intervals: of.has_intervals,
            build_id: of.build_id.clone(),
            process: of.process,
            command: of.command.clone(),
            forks: of.forks.clone(),
            ..TapeHead::default()
        }
    }

    /// The program that it is of, as [`program_key`] has it.
    pub fn program_key(&self) -> u64 {
        program_key(&self.build_id, &self.program)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.origin);
        put_text(&mut out, &self.program);
        put(&mut out, self.arguments_digest);
        put(&mut out, self.page_bytes.into());
        put(&mut out, self.microset_pages.into());
        put(&mut out, self.begun_unix_s);
        put(&mut out, self.local_pages);
        put(&mut out, self.peak_pages);
        put_text(&mut out, &self.eviction);
        put(&mut out, self.has_intervals.into());
        put(&mut out, self.order as u64);
        put_text(&mut out, &self.build_id);
        put(&mut out, self.process.into());
        put_text(&mut out, &self.command);
        self.forks.put(&mut out);
        out
    }

    /// The head, but for its order; and the number of that.
    pub(crate) fn decode(payload: &[u8], version: u8) -> Option<(TapeHead, u64)> {
        let mut left = Bytes(payload);
        let mut head = TapeHead {
            origin: left.text()?,
            program: left.text()?,
            arguments_digest: left.number()?,
            page_bytes: left.small()?,
            microset_pages: left.small()?,
            begun_unix_s: left.number()?,
            local_pages: left.number()?,
            peak_pages: left.small()?.into(),
            eviction: left.text()?,
            has_intervals: version > 1 && left.number()? == 1,
            ..TapeHead::default()
        };
        let order = if version > 2 { left.number()? } else { 0 };
        if version > 3 {
            (head.build_id, head.process, head.command) = (left.text()?, left.small()?, left.text()?);
        }
        if version > 4 {
            head.forks = ForkPath::take(&mut left)?;
        }
        left.is_empty().then_some((head, order))
    }
}

/// What a tape has for one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadTotals {
    /// The thread's references: positions are below this number.
    pub references: u64,
    /// Different pages of it.
    pub pages: u64,
    /// Its share of local memory in pages, pages fetched ahead included.
    pub share_pages: u64,
    /// Of these, for pages fetched ahead.
    pub ahead_pages: u64,
    /// Pages to fetch, counted as often as they are.
    pub fetched: u64,
    /// First touches: arrivals that need no fetch.
    pub first_touches: u64,
    /// Departures.
    pub left: u64,
}

impl ThreadTotals {
    fn encode(&self, out: &mut Vec<u8>) {
        let ThreadTotals { references, pages, share_pages, ahead_pages, fetched, first_touches, left } = *self;
        for number in [references, pages, share_pages, ahead_pages, fetched, first_touches, left] {
            put(out, number);
        }
    }

    fn decode(left: &mut Bytes<'_>) -> Option<ThreadTotals> {
        Some(ThreadTotals {
            references: left.number()?,
            pages: left.number()?,
            share_pages: left.number()?,
            ahead_pages: left.number()?,
            fetched: left.number()?,
            first_touches: left.number()?,
            left: left.number()?,
        })
    }
}

/// What a tape says of itself at its end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TapeEnd {
    /// By thread; of an unordered tape, none.
    pub threads: Vec<ThreadTotals>,
    /// Phases, and the pages of all of them; of an ordered tape, none.
    pub phases: u64,
    pub set_pages: u64,
}

impl TapeEnd {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.threads.len() as u64);
        self.threads.iter().for_each(|thread| thread.encode(&mut out));
        put(&mut out, self.phases);
        put(&mut out, self.set_pages);
        out
    }

    pub(crate) fn decode(payload: &[u8], version: u8) -> Option<TapeEnd> {
        let mut left = Bytes(payload);
        let count = left.small().filter(|count| *count <= INDEX_MAX)?;
        let threads = (0..count).map(|_| ThreadTotals::decode(&mut left)).collect::<Option<_>>()?;
        let (phases, set_pages) = if version > 2 { (left.number()?, left.number()?) } else { (0, 0) };
        left.is_empty().then_some(TapeEnd { threads, phases, set_pages })
    }
}
