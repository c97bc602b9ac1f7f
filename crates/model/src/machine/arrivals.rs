//! What remote memory does with requests, and what happens when data come back.

use super::{Event, Machine, NONE};
use crate::bus::Granularity;
use crate::inflight::PageState;
use crate::parameters::{LINE_BYTES, LINES_PER_PAGE, PAGE_BYTES};
use crate::scheme::Pages;

impl Machine<'_> {
    /// Remote memory reads a line and sends it.
    pub(super) fn read_line(&mut self, line: u32, serial: u32) {
        let component = self.component_of(line / LINES_PER_PAGE);
        let read = self.read_remote(component, Granularity::Line, LINE_BYTES);
        let at = self.components[component].down.send(Granularity::Line, read, LINE_BYTES);
        self.at(at, Event::LineBack { line, serial });
    }

    /// Remote memory reads a page, compresses it, and sends it; it is expanded where it comes.
    pub(super) fn read_page(&mut self, page: u32) {
        let (component, bytes) = (self.component_of(page), self.network_bytes(page));
        let read = self.read_remote(component, Granularity::Page, PAGE_BYTES);
        let compression = if self.scheme.compresses() { self.parameters.page_compression_ticks() } else { 0 };
        let memory = &mut self.components[component];
        let ready = read.max(memory.compressor_free_at) + compression;
        memory.compressor_free_at = ready;
        let at = memory.down.send(Granularity::Page, ready, bytes);
        self.at(at + compression, Event::PageBack { page });
    }

    /// Translation, the bus, the DRAM's latency; when the data are read.
    fn read_remote(&mut self, component: usize, granularity: Granularity, bytes: u64) -> u64 {
        let at = self.now + self.parameters.translation_ticks;
        let sent = self.components[component].memory_bus.send(granularity, at, bytes);
        sent + self.parameters.dram_ticks
    }

    /// Dirty data have come to remote memory.
    pub(super) fn write_remote(&mut self, component: usize, granularity: Granularity) {
        let bytes = if granularity == Granularity::Line { LINE_BYTES } else { PAGE_BYTES };
        self.read_remote(component, granularity, bytes);
    }

    /// A dirty page was read from local memory and compressed.
    pub(super) fn send_dirty_page(&mut self, page: u32) {
        let bytes = self.network_bytes(page) + self.parameters.request_bytes;
        let component = self.component_of(page);
        let at = self.components[component].up.send(Granularity::Page, self.now, bytes);
        self.at(at, Event::PageWritten { component });
    }

    /// A line comes into the LLC, unless its page came first (§4.2).
    pub(super) fn line_back(&mut self, line: u32, serial: u32) {
        if !self.inflight_lines.arrive(line, serial) {
            self.counts.lines_late += 1;
            return;
        }
        let page = line / LINES_PER_PAGE;
        let (served, left): (Vec<u32>, Vec<u32>) =
            self.take_waiters(page).into_iter().partition(|miss| self.misses[*miss as usize].line == line);
        for miss in served {
            self.counts.by_line += 1;
            self.done(miss, self.now);
        }
        if self.scheme.pages() == Pages::Free {
            self.counts.lines_cancelled += u64::from(self.inflight_lines.cancel(page));
            self.local.insert(page, false);
            self.serve_locally(left, self.now);
        } else {
            for miss in left {
                self.waiter_before[miss as usize] = std::mem::replace(&mut self.last_waiter[page as usize], miss);
            }
        }
        self.unblock();
    }

    /// A page comes into the packet buffer, and waits there for the local memory bus, unless it is stale (§4.3).
    pub(super) fn page_back(&mut self, page: u32) {
        if !self.asked_again(page) {
            self.packet_bytes += self.network_bytes(page);
            let written = self.local_bus.send(Granularity::Page, self.now, PAGE_BYTES);
            self.at(written, Event::PageInstalled { page });
        }
    }

    /// Asks for a page again if what came of it is stale.
    fn asked_again(&mut self, page: u32) -> bool {
        let is_stale = self.inflight_pages.state(page) == Some(PageState::Throttled);
        if is_stale {
            self.counts.pages_asked_again += 1;
            self.inflight_pages.schedule_again(page);
            self.ask_page(page);
        }
        is_stale
    }

    /// A page is written to local memory: the dirty lines that waited for it follow, and it serves what waits, unless it became stale meanwhile.
    pub(super) fn install(&mut self, page: u32) {
        self.free_packet(page);
        if self.asked_again(page) {
            return;
        }
        self.counts.pages_arrived += 1;
        let dirty = self.inflight_pages.release(page);
        self.counts.lines_cancelled += u64::from(self.inflight_lines.cancel(page));
        if let Some(evicted) = self.local.insert(page, dirty != 0)
            && evicted.dirty
        {
            self.write_page(evicted.page);
        }
        if dirty != 0 {
            self.local_bus.send(Granularity::Line, self.now, u64::from(dirty.count_ones()) * LINE_BYTES);
        }
        let waiters = self.take_waiters(page);
        self.serve_locally(waiters, self.now);
        self.unblock();
    }

    fn write_page(&mut self, page: u32) {
        self.counts.pages_written += 1;
        let read = self.local_bus.send(Granularity::Page, self.now, PAGE_BYTES) + self.parameters.dram_ticks;
        let compression = if self.scheme.compresses() { self.parameters.page_compression_ticks() } else { 0 };
        self.at(read + compression, Event::PageLeaves { page });
    }

    fn serve_locally(&mut self, waiters: Vec<u32>, at: u64) {
        for miss in waiters {
            if self.asked_for_page[miss as usize] {
                self.counts.by_page += 1;
            } else {
                self.counts.awaited += 1;
            }
            self.access_local(miss, at);
        }
    }

    /// The misses that wait for something of a page, in the order of their coming.
    fn take_waiters(&mut self, page: u32) -> Vec<u32> {
        let mut waiters = Vec::new();
        let mut miss = std::mem::replace(&mut self.last_waiter[page as usize], NONE);
        while miss != NONE {
            waiters.push(miss);
            miss = self.waiter_before[miss as usize];
        }
        waiters.reverse();
        waiters
    }
}
