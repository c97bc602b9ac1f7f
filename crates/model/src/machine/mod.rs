//! Streams replayed on one compute component and its memory components, event by event.
//!
//! ```text
//! cores ─► ask ─┬─ local memory ──────────────────────────────────────────────► done          requests.rs
//!               ├─ line ─► sub-block queue ─┐ controller                       ▲  ▲
//!               └─ page ─► page queue ──────┴─► up ─► memory bus ─► (LZ) ─► down ──┘          arrivals.rs
//!               dirty lines and pages ────────► up ─► memory bus
//! ```
//!
//! Schemes without engines send their requests at once. Engines (BP, PQ, DaeMon, ours) pace them: the controller issues the next page when the share
//! of pages has carried this one's bytes, on the slower of network and remote memory bus, and while the packet buffer has room; and likewise for
//! lines. So what waits does so in the compute engine's queues, where it can still be cancelled (§4.1: requests are served by the bytes that
//! they transfer, on both). Each memory component has a link, a memory bus and queues of its own; the buffers of the compute engine are for all.

mod arrivals;
mod component;
mod foresight;
mod requests;

use crate::bus::{Bus, Granularity, Sharing};
use crate::core::Cores;
use crate::filter::{Miss, Stream};
use crate::inflight::{InflightPages, InflightSubBlocks};
use crate::local::LocalMemory;
use crate::parameters::Parameters;
use crate::programs::{Programs, Running};
use crate::scheme::{Lines, Scheme};
use crate::stats::{Counts, ModelStats};
use component::Component;
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
    /// The queue controller may issue a line, or a page, of a memory component.
    LineSlot {
        component: usize,
    },
    PageSlot {
        component: usize,
    },
    /// A request, or what is written, comes to remote memory.
    LineAtMemory {
        line: u32,
        serial: u32,
    },
    PageAtMemory {
        page: u32,
    },
    LineWritten {
        component: usize,
    },
    PageWritten {
        component: usize,
    },
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

/// The whole machine.
///
/// Invariant: a miss is done once; each miss that waits for a page or line is in one list of waiters, or blocked.
struct Machine<'a> {
    scheme: Scheme,
    parameters: &'a Parameters,
    misses: &'a [Miss],
    /// Of each page, its bytes on the network when compressed.
    compressed_bytes: &'a [u16],
    cores: Cores<'a>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    local: LocalMemory,
    inflight_pages: InflightPages,
    inflight_lines: InflightSubBlocks,
    components: Vec<Component>,
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
    /// When a page on its way is expected, where lines are asked for by that.
    page_due: Vec<u64>,
    counts: Counts,
}

/// Where the machine stands at the beginning or at the end of what is measured.
#[derive(Clone, Debug)]
struct Mark {
    at: u64,
    counts: Counts,
    /// The links from remote memory.
    down: Vec<Bus>,
}

/// Replays a stream on a scheme. `compressed_bytes` has the bytes of each page of the address space after compression.
///
/// # Panics
/// If `compressed_bytes` is shorter than the address space.
pub fn replay(stream: &Stream, compressed_bytes: &[u16], scheme: Scheme, parameters: &Parameters) -> ModelStats {
    replay_together(&[Running { stream, compressed_bytes }], scheme, parameters)[0]
}

/// Replays programs that run at once on a scheme; the figures of each. What is counted is of all of them, while all are measured. A program that is
/// through runs its measured part again until all are.
///
/// # Panics
/// As [`replay`], or if all of them have more lines than 32 bits count.
pub fn replay_together(running: &[Running], scheme: Scheme, parameters: &Parameters) -> Vec<ModelStats> {
    let programs = Programs::new(running);
    Machine::new(&programs, scheme, parameters).run(&programs)
}

impl<'a> Machine<'a> {
    fn new(programs: &'a Programs, scheme: Scheme, parameters: &'a Parameters) -> Machine<'a> {
        let sharing = scheme.sharing(parameters.line_share_percent);
        let (count, pages) = (programs.misses.len(), programs.pages);
        Machine {
            scheme,
            parameters,
            misses: &programs.misses,
            compressed_bytes: &programs.compressed_bytes,
            cores: Cores::new(&programs.misses, &programs.parts, parameters),
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            local: LocalMemory::new(pages, parameters.frames(programs.touched_pages), parameters.replacement),
            inflight_pages: InflightPages::new(pages),
            inflight_lines: InflightSubBlocks::new(pages),
            components: (0..parameters.components as usize)
                .map(|number| Component::new(parameters, sharing, number))
                .collect(),
            packet_bytes: 0,
            last_waiter: vec![NONE; pages as usize],
            waiter_before: vec![NONE; count],
            blocked: VecDeque::new(),
            asked_at: vec![0; count],
            asked_for_page: vec![false; count],
            local_bus: Bus::new(parameters.dram_rate, Sharing::OneQueue),
            page_due: if scheme == Scheme::Ours { vec![0; pages as usize] } else { Vec::new() },
            counts: Counts::default(),
        }
    }

    fn run(mut self, programs: &Programs) -> Vec<ModelStats> {
        let mut ready = Vec::new();
        self.cores.start(&mut ready);
        self.ask_later(&mut ready);
        let mut before = self.cores.are_measured().then(|| self.mark());
        let mut end = None;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            debug_assert!(at >= self.now, "time runs backwards");
            self.now = at;
            self.carry_out(event, &mut ready);
            if before.is_none() && self.cores.are_measured() {
                before = Some(self.mark());
            }
            if end.is_none() && self.cores.are_through() {
                end = Some(self.mark());
                // One program ends with all that is on its way; of several, one is always at work.
                if programs.parts.len() > 1 {
                    break;
                }
            }
        }
        assert!(self.cores.are_through(), "{} replayed: misses are left over", self.scheme.name());
        // Without a measured miss nothing is measured.
        let (counts, down_millionths) = match (before, end) {
            (Some(before), Some(end)) => (self.counts().since(&before.counts), self.down_millionths(&before, &end)),
            _ => (Counts::default(), 0),
        };
        let figures = |part| ModelStats {
            ticks: self.cores.measured_ticks(part),
            instructions: part.instructions,
            counts,
            down_millionths,
        };
        programs.parts.iter().map(figures).collect()
    }

    fn mark(&self) -> Mark {
        let down = self.components.iter().map(|component| component.down.bus.clone()).collect();
        Mark { at: self.now, counts: self.counts(), down }
    }

    /// What all links carried from remote memory between two marks, of what they can.
    fn down_millionths(&self, from: &Mark, to: &Mark) -> u64 {
        let (mut used, mut whole) = (0, 0);
        for (earlier, later) in from.down.iter().zip(&to.down) {
            let rate = u128::from(later.rate().0);
            used += rate * u128::from(later.used_since(earlier, [from.at, to.at]));
            whole += rate;
        }
        u64::try_from(used / whole).expect("at most a million")
    }

    fn carry_out(&mut self, event: Event, ready: &mut Vec<(u32, u64)>) {
        match event {
            Event::Ask { miss } => self.ask(miss),
            Event::Done { miss } => {
                self.cores.complete(miss, self.now, ready);
                self.ask_later(ready);
            }
            Event::LineSlot { component } => self.issue_line(component),
            Event::PageSlot { component } => self.page_slot(component),
            Event::LineAtMemory { line, serial } => self.read_line(line, serial),
            Event::PageAtMemory { page } => self.read_page(page),
            Event::LineWritten { component } => self.write_remote(component, Granularity::Line),
            Event::PageWritten { component } => self.write_remote(component, Granularity::Page),
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
        let of_all = |bus: fn(&Component) -> &Bus| self.components.iter().map(|component| bus(component).sent()).sum();
        Counts {
            down_bytes: of_all(|component| &component.down.bus),
            up_bytes: of_all(|component| &component.up.bus),
            local_bus_bytes: self.local_bus.sent(),
            remote_bus_bytes: of_all(|component| &component.memory_bus),
            ..self.counts
        }
    }

    /// The memory component that a page is on.
    fn component_of(&self, page: u32) -> usize {
        let Parameters { placement, components, placement_seed, .. } = *self.parameters;
        placement.component(page, components, placement_seed)
    }

    /// Whether the bounds of the buffers hold: BP and the naive schemes have none (§6: "always at both granularities").
    fn is_bounded(&self) -> bool {
        self.scheme.lines() == Lines::Selected
    }
}
