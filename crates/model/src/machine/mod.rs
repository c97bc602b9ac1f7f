//! A stream replayed on one compute and one memory component, event by event.
//!
//! ```text
//!  core ─► ask ─┬─ local memory ──────────────────────────────────────────────► done          requests.rs
//!               ├─ line ─► sub-block queue ─┐ controller                       ▲  ▲
//!               └─ page ─► page queue ──────┴─► up ─► memory bus ─► (LZ) ─► down ──┘          arrivals.rs
//!               dirty lines and pages ────────► up ─► memory bus
//! ```
//!
//! Schemes without engines send their requests at once. Engines (BP, PQ, DaeMon) pace them: the controller issues the next page when the share
//! of pages has carried this one's bytes, on the slower of network and remote memory bus, and while the packet buffer has room; and likewise for
//! lines. So what waits does so in the compute engine's queues, where it can still be cancelled (§4.1: requests are served by the bytes that
//! they transfer, on both).

mod arrivals;
mod requests;

use crate::bus::{Bus, Direction, Granularity};
use crate::core::Core;
use crate::figures::{Counts, Figures};
use crate::filter::{Miss, Stream};
use crate::inflight::{InflightPages, InflightSubBlocks};
use crate::local::LocalMemory;
use crate::parameters::Parameters;
use crate::scheme::{Lines, Scheme};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A miss comes to the memory controller.
    Ask {
        miss: u32,
    },
    /// Its data are there.
    Done {
        miss: u32,
    },
    /// The queue controller may issue a line, or a page.
    LineSlot,
    PageSlot,
    /// A request, or what is written, comes to remote memory.
    LineAtMemory {
        line: u32,
        serial: u32,
    },
    PageAtMemory {
        page: u32,
    },
    LineWritten,
    PageWritten,
    /// A dirty page is ready to be sent.
    PageLeaves {
        page: u32,
    },
    /// Data come back.
    LineBack {
        line: u32,
        serial: u32,
    },
    PageBack {
        page: u32,
    },
    /// A page is in local memory.
    PageInstalled {
        page: u32,
    },
}

/// One queue of the compute engine (§4.1), with the time at which the controller may issue its next request.
#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<u32>,
    free_at: u64,
    is_armed: bool,
}

/// The whole machine.
///
/// Invariant: a miss is done once; each miss that waits for a page or line is in one list of waiters, or blocked.
struct Machine<'a> {
    scheme: Scheme,
    parameters: &'a Parameters,
    misses: &'a [Miss],
    /// Of each page, its bytes on the network when compressed.
    compressed_bytes: &'a [u16],
    core: Core<'a>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    local: LocalMemory,
    inflight_pages: InflightPages,
    inflight_lines: InflightSubBlocks,
    line_queue: Queue,
    page_queue: Queue,
    /// Bytes of pages that have come and are not in local memory yet.
    packet_bytes: u64,
    /// Misses that wait for something of a page: the last one, and of each the one before.
    last_waiter: Vec<u32>,
    waiter_before: Vec<u32>,
    /// Misses that neither buffer has room for.
    blocked: VecDeque<u32>,
    asked_at: Vec<u64>,
    asked_for_page: Vec<bool>,
    local_bus: Bus,
    remote_bus: Bus,
    up: Direction,
    down: Direction,
    compressor_free_at: u64,
    counts: Counts,
}

/// Replays a stream on a scheme. `compressed_bytes` has the bytes of each page of the address space after compression.
///
/// # Panics
/// If `compressed_bytes` is shorter than the address space.
pub fn replay(stream: &Stream, compressed_bytes: &[u16], scheme: Scheme, parameters: &Parameters) -> Figures {
    assert!(compressed_bytes.len() >= stream.pages as usize, "a compressed size for each page");
    Machine::new(stream, compressed_bytes, scheme, parameters).run(stream)
}

/// Frames of local memory: a percentage of the touched pages, at least one.
fn frames(stream: &Stream, parameters: &Parameters) -> u32 {
    let frames = u64::from(stream.touched_pages) * parameters.local_percent / 100;
    u32::try_from(frames).expect("fewer frames than pages").max(1)
}

impl<'a> Machine<'a> {
    fn new(stream: &'a Stream, compressed_bytes: &'a [u16], scheme: Scheme, parameters: &'a Parameters) -> Machine<'a> {
        let share = scheme.is_partitioned().then_some(parameters.line_share_percent);
        let count = stream.misses.len();
        Machine {
            scheme,
            parameters,
            misses: &stream.misses,
            compressed_bytes,
            core: Core::new(&stream.misses, stream.measured_from, parameters),
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            local: LocalMemory::new(stream.pages, frames(stream, parameters), parameters.replacement),
            inflight_pages: InflightPages::new(stream.pages),
            inflight_lines: InflightSubBlocks::new(stream.pages),
            line_queue: Queue::default(),
            page_queue: Queue::default(),
            packet_bytes: 0,
            last_waiter: vec![NONE; stream.pages as usize],
            waiter_before: vec![NONE; count],
            blocked: VecDeque::new(),
            asked_at: vec![0; count],
            asked_for_page: vec![false; count],
            local_bus: Bus::new(parameters.dram_rate, None),
            remote_bus: Bus::new(parameters.dram_rate, share),
            up: Direction::new(parameters, share),
            down: Direction::new(parameters, share),
            compressor_free_at: 0,
            counts: Counts::default(),
        }
    }

    fn run(mut self, stream: &Stream) -> Figures {
        let mut ready = Vec::new();
        self.core.advance(0, &mut ready);
        self.ask_later(&mut ready);
        let mut before = self.core.is_measured().then(|| self.counts());
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            debug_assert!(at >= self.now, "time runs backwards");
            self.now = at;
            self.carry_out(event, &mut ready);
            if before.is_none() && self.core.is_measured() {
                before = Some(self.counts());
            }
        }
        assert!(self.core.is_through(), "{} replayed: misses are left over", self.scheme.name());
        let warm_up: u64 = stream.misses[..stream.measured_from].iter().map(|miss| u64::from(miss.instructions)).sum();
        Figures {
            ticks: self.core.measured_ticks(),
            instructions: stream.instructions - warm_up,
            counts: self.counts().since(&before.unwrap_or_default()),
        }
    }

    fn carry_out(&mut self, event: Event, ready: &mut Vec<(u32, u64)>) {
        match event {
            Event::Ask { miss } => self.ask(miss),
            Event::Done { miss } => {
                self.core.complete(miss, self.now, ready);
                self.ask_later(ready);
            }
            Event::LineSlot => self.issue_line(),
            Event::PageSlot => self.page_slot(),
            Event::LineAtMemory { line, serial } => self.read_line(line, serial),
            Event::PageAtMemory { page } => self.read_page(page),
            Event::LineWritten => self.write_remote(Granularity::Line),
            Event::PageWritten => self.write_remote(Granularity::Page),
            Event::PageLeaves { page } => self.send_dirty_page(page),
            Event::LineBack { line, serial } => self.line_back(line, serial),
            Event::PageBack { page } => self.page_back(page),
            Event::PageInstalled { page } => self.install(page),
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn ask_later(&mut self, ready: &mut Vec<(u32, u64)>) {
        for (miss, at) in ready.drain(..) {
            self.at(at + self.parameters.lookup_ticks, Event::Ask { miss });
        }
    }

    fn counts(&self) -> Counts {
        let sum = |bytes: [u64; 2]| bytes[0] + bytes[1];
        Counts {
            down_bytes: sum(self.down.bus.bytes),
            up_bytes: sum(self.up.bus.bytes),
            local_bus_bytes: sum(self.local_bus.bytes),
            remote_bus_bytes: sum(self.remote_bus.bytes),
            ..self.counts
        }
    }

    /// Whether the bounds of the buffers hold: BP and the naive schemes have none (§6: "always at both granularities").
    fn is_bounded(&self) -> bool {
        self.scheme.lines() == Lines::Selected
    }
}
