//! When a line and a page would come, as the compute engine foresees it from what it has issued itself (scheme `ours`).
//!
//! DaeMon's selection unit compares how full its buffers are, and asks for no line of a page that was issued. `ours` compares times: a page on its way
//! is due by its place in the queue, its bytes and the latencies of an idle machine, a line by the lines before it.

use super::Machine;
use crate::bus::Granularity;
use crate::inflight::PageState;
use crate::parameters::{LINE_BYTES, PAGE_BYTES};
use crate::scheme::Scheme;

impl Machine<'_> {
    /// A page goes to the end of its queue.
    pub(super) fn page_will_be_asked(&mut self, page: u32) {
        if self.scheme == Scheme::Ours {
            let memory = &self.components[self.component_of(page)];
            let before = memory.page_queue.requests.len() as u64 * memory.page_slot_ticks(self.network_bytes(page));
            let issued = memory.page_queue.free_at.max(self.now) + before;
            self.page_due[page as usize] = issued + self.page_alone_ticks(page);
        }
    }

    /// Its request has left.
    pub(super) fn page_was_issued(&mut self, page: u32) {
        if self.scheme == Scheme::Ours {
            self.page_due[page as usize] = self.now + self.page_alone_ticks(page);
        }
    }

    /// Whether a line that is asked for now comes before its page. A page that still waits in the queue has all of its way before it, however late it is.
    pub(super) fn is_line_sooner(&self, page: u32) -> bool {
        let due = match self.inflight_pages.state(page) {
            None => return true,
            Some(PageState::Throttled) => return false,
            Some(PageState::Moved) => self.page_due[page as usize],
            Some(PageState::Scheduled) => self.page_due[page as usize].max(self.now + self.page_alone_ticks(page)),
        };
        let memory = &self.components[self.component_of(page)];
        let line_ticks = memory.down.bus.ticks(Granularity::Line, LINE_BYTES);
        let issued = memory.line_queue.free_at.max(self.now) + memory.line_queue.requests.len() as u64 * line_ticks;
        issued + line_ticks + self.access_ticks(page) < due
    }

    /// From the request to the page in local memory, on an idle machine.
    fn page_alone_ticks(&self, page: u32) -> u64 {
        let memory = &self.components[self.component_of(page)];
        let buses = memory.memory_bus.ticks(Granularity::Page, PAGE_BYTES)
            + self.local_bus.ticks(Granularity::Page, PAGE_BYTES);
        let network = memory.down.bus.ticks(Granularity::Page, self.network_bytes(page));
        self.access_ticks(page) + buses + network + 2 * self.parameters.page_compression_ticks()
    }

    /// What no bandwidth changes of an access of remote memory.
    fn access_ticks(&self, page: u32) -> u64 {
        let memory = &self.components[self.component_of(page)];
        memory.switch_ticks + self.parameters.translation_ticks + self.parameters.dram_ticks
    }
}
