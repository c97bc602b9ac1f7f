//! One memory component: its link, its memory bus, its compressor, and what waits for it in the compute engine.

use crate::bus::{Bus, Direction, Granularity, Sharing};
use crate::parameters::{LENT_LOAD_PERCENT, LENT_TO_LINES_PERCENT, LINE_BYTES, PAGE_BYTES, Parameters};
use std::collections::VecDeque;

/// One queue of the compute engine (§4.1), with the time at which the controller may issue its next request.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub requests: VecDeque<u32>,
    pub free_at: u64,
    pub is_armed: bool,
}

/// What the machine has of each memory component. Nothing of it is shared with another (§6.9).
#[derive(Debug)]
pub(super) struct Component {
    pub line_queue: Queue,
    pub page_queue: Queue,
    pub up: Direction,
    pub down: Direction,
    pub memory_bus: Bus,
    pub compressor_free_at: u64,
    /// Propagation and switching of one access.
    pub switch_ticks: u64,
    sharing: Sharing,
}

impl Component {
    /// An idle one.
    pub fn new(parameters: &Parameters, sharing: Sharing, number: usize) -> Component {
        let link = parameters.link(number);
        let direction = |which: u64| Direction::new(parameters, link, sharing, 2 * number as u64 + which);
        Component {
            line_queue: Queue::default(),
            page_queue: Queue::default(),
            up: direction(0),
            down: direction(1),
            memory_bus: Bus::new(parameters.dram_rate, sharing),
            compressor_free_at: 0,
            switch_ticks: link.switch_ticks,
            sharing,
        }
    }

    /// A line is issued: when the next one may be. Where shares are lent, the next page is later by it.
    pub fn pace_line(&mut self, now: u64) {
        let mut ticks = self.down.bus.ticks(Granularity::Line, LINE_BYTES);
        if self.sharing == Sharing::Lent && self.page_queue.free_at > now {
            ticks = self.lent_ticks(LENT_TO_LINES_PERCENT, LINE_BYTES);
            self.page_queue.free_at += self.lent_ticks(LENT_LOAD_PERCENT, LINE_BYTES);
        }
        self.line_queue.free_at = now + ticks;
    }

    /// A page of so many bytes on the network is issued: when the next one may be.
    pub fn pace_page(&mut self, now: u64, network_bytes: u64) {
        self.page_queue.free_at = now + self.page_slot_ticks(network_bytes);
    }

    /// From one page to the next: what the slower of network and remote memory bus takes for it in the share of pages.
    pub fn page_slot_ticks(&self, network_bytes: u64) -> u64 {
        let on_network = match self.sharing {
            Sharing::Lent => self.lent_ticks(LENT_LOAD_PERCENT, network_bytes),
            _ => self.down.bus.ticks(Granularity::Page, network_bytes),
        };
        on_network.max(self.memory_bus.ticks(Granularity::Page, PAGE_BYTES))
    }

    fn lent_ticks(&self, percent: u64, bytes: u64) -> u64 {
        self.down.bus.rate().share(percent).ticks(bytes)
    }
}
