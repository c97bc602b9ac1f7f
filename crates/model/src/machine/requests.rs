//! The way of a miss until its request leaves: local memory, the selection unit, the queues and their controller, dirty lines.

use super::{Event, Machine, NONE};
use crate::bus::Granularity;
use crate::cache::NO_LINE;
use crate::inflight::PageState;
use crate::parameters::{LINE_BYTES, LINES_PER_PAGE, PAGE_BYTES};
use crate::scheme::{Lines, Pages, Scheme};

impl Machine<'_> {
    /// A miss of the LLC comes to the memory controller, with the dirty line that it replaces.
    pub(super) fn ask(&mut self, miss: u32) {
        (self.asked_at[miss as usize], self.asked_for_page[miss as usize]) = (self.now, false);
        let victim = self.misses[miss as usize].dirty_victim;
        if victim != NO_LINE {
            self.write_back(victim);
        }
        if !self.fetch(miss) {
            self.counts.accesses_blocked += 1;
            self.blocked.push_back(miss);
        }
    }

    /// Serves a miss from local memory, or asks remote memory; `false` if neither buffer has room.
    fn fetch(&mut self, miss: u32) -> bool {
        let page = self.misses[miss as usize].page();
        if self.scheme == Scheme::Local {
            self.counts.local += 1;
            self.access_local(miss, self.now);
        } else if self.local.holds(page) {
            self.local.touch(page);
            self.counts.local += 1;
            self.access_local(miss, self.now);
        } else if self.request(miss) {
            let last = &mut self.last_waiter[page as usize];
            self.waiter_before[miss as usize] = std::mem::replace(last, miss);
        } else {
            return false;
        }
        true
    }

    /// One access of local memory: translation, the DRAM's latency, the bus.
    pub(super) fn access_local(&mut self, miss: u32, at: u64) {
        let sent = self.local_bus.send(Granularity::Line, at + self.parameters.translation_ticks, LINE_BYTES);
        self.done(miss, sent + self.parameters.dram_ticks);
    }

    /// The data of a miss are there at `at`.
    pub(super) fn done(&mut self, miss: u32, at: u64) {
        self.counts.accesses += 1;
        self.counts.access_ticks += at - self.asked_at[miss as usize];
        self.at(at, Event::Done { miss });
    }

    /// Asks for the page, the line, or both, unless they are on their way; `false` if neither buffer has room.
    fn request(&mut self, miss: u32) -> bool {
        let (scheme, parameters) = (self.scheme, self.parameters);
        let (line, page) = (self.misses[miss as usize].line, self.misses[miss as usize].page());
        let before = self.inflight_pages.state(page);
        let wants_line = match scheme.lines() {
            Lines::Never => false,
            Lines::Always => true,
            Lines::Selected if scheme == Scheme::Ours => self.is_line_sooner(page),
            Lines::Selected => self.selects_line(before),
        };
        // The line first: where both share a queue, it must not wait behind its own page.
        let mut line_comes = self.inflight_lines.is_pending(line);
        if wants_line && !line_comes && self.has_room_for(line) {
            self.ask_line(line);
            line_comes = true;
        }
        let mut page_comes = before.is_some();
        if scheme.pages() == Pages::Moved && !page_comes {
            if self.is_bounded() && self.inflight_pages.len() >= parameters.inflight_pages {
                // One that is blocked comes again.
                self.counts.pages_refused += u64::from(line_comes);
            } else {
                self.asked_for_page[miss as usize] = true;
                self.inflight_pages.schedule(page);
                self.ask_page(page);
                page_comes = true;
            }
        }
        page_comes || line_comes
    }

    /// The selection unit's rule for a line (§4.2), given the state of its page before this access.
    fn selects_line(&self, page: Option<PageState>) -> bool {
        let Self { parameters, inflight_lines, inflight_pages, .. } = self;
        match page {
            None => true,
            // Utilisations, multiplied out: lines / 128 < pages / 256.
            Some(PageState::Scheduled) => {
                inflight_lines.len() * parameters.inflight_pages < inflight_pages.len() * parameters.inflight_sub_blocks
            }
            Some(PageState::Moved | PageState::Throttled) => false,
        }
    }

    fn has_room_for(&self, line: u32) -> bool {
        !self.is_bounded()
            || self.inflight_lines.has_entry(line)
            || self.inflight_lines.len() < self.parameters.inflight_sub_blocks
    }

    /// An entry of a buffer may be free, or a page be local: those that were blocked go on in the order of their coming, until one finds no room. (A
    /// line that comes late frees no entry: its page did.)
    pub(super) fn unblock(&mut self) {
        while let Some(miss) = self.blocked.front().copied()
            && self.fetch(miss)
        {
            self.blocked.pop_front();
        }
    }

    fn ask_line(&mut self, line: u32) {
        self.counts.lines_asked += 1;
        self.inflight_lines.schedule(line);
        let component = self.component_of(line / LINES_PER_PAGE);
        let queue = &mut self.components[component].line_queue;
        queue.requests.push_back(line);
        if !self.scheme.has_engines() {
            self.issue_line(component);
        } else if !std::mem::replace(&mut queue.is_armed, true) {
            let at = queue.free_at.max(self.now);
            self.at(at, Event::LineSlot { component });
        }
    }

    pub(super) fn ask_page(&mut self, page: u32) {
        self.counts.pages_asked += 1;
        let component = self.component_of(page);
        self.page_will_be_asked(page);
        self.components[component].page_queue.requests.push_back(page);
        if self.scheme.has_engines() {
            self.arm_page_slot(component);
        } else {
            self.issue_page(component);
        }
    }

    /// Has the controller come to the next page when its slot begins.
    fn arm_page_slot(&mut self, component: usize) {
        let queue = &mut self.components[component].page_queue;
        let has_requests = self.scheme.has_engines() && !queue.requests.is_empty();
        if has_requests && !std::mem::replace(&mut queue.is_armed, true) {
            let at = queue.free_at.max(self.now);
            self.at(at, Event::PageSlot { component });
        }
    }

    /// The controller issues the next page, unless lines have taken its time, or the packet buffer is full: then it comes back when there is room.
    pub(super) fn page_slot(&mut self, component: usize) {
        let queue = &mut self.components[component].page_queue;
        queue.is_armed = false;
        if queue.free_at > self.now {
            self.arm_page_slot(component);
        } else if self.packet_bytes < self.parameters.packet_buffer_bytes {
            self.issue_page(component);
            self.arm_page_slot(component);
        }
    }

    /// A page has left the packet buffer.
    pub(super) fn free_packet(&mut self, page: u32) {
        self.packet_bytes -= self.network_bytes(page);
        (0..self.components.len()).for_each(|component| self.arm_page_slot(component));
    }

    /// The controller issues the next line of a memory component that was not cancelled.
    pub(super) fn issue_line(&mut self, component: usize) {
        let memory = &mut self.components[component];
        let mut sent = None;
        while let Some(line) = memory.line_queue.requests.pop_front() {
            let Some(serial) = self.inflight_lines.issue(line) else { continue };
            let at = memory.up.send(Granularity::Line, self.now, self.parameters.request_bytes);
            memory.pace_line(self.now);
            sent = Some((at, Event::LineAtMemory { line, serial }));
            break;
        }
        let queue = &mut memory.line_queue;
        queue.is_armed = self.scheme.has_engines() && !queue.requests.is_empty();
        let next = queue.is_armed.then_some((queue.free_at, Event::LineSlot { component }));
        for (at, event) in sent.into_iter().chain(next) {
            self.at(at, event);
        }
    }

    /// Sends the request of the page that has waited longest.
    fn issue_page(&mut self, component: usize) {
        let memory = &mut self.components[component];
        let page = memory.page_queue.requests.pop_front().expect("a slot is for a request");
        self.inflight_pages.issue(page);
        let at = memory.up.send(Granularity::Page, self.now, self.parameters.request_bytes);
        self.at(at, Event::PageAtMemory { page });
        let bytes = self.network_bytes(page);
        self.components[component].pace_page(self.now, bytes);
        self.page_was_issued(page);
    }

    /// Bytes of a page on the network.
    pub(super) fn network_bytes(&self, page: u32) -> u64 {
        if self.scheme.compresses() { u64::from(self.compressed_bytes[page as usize]) } else { PAGE_BYTES }
    }

    /// A dirty line leaves the LLC (§4.3): into its local page, into the page that is on its way, or to remote memory.
    fn write_back(&mut self, line: u32) {
        let page = line / LINES_PER_PAGE;
        if self.scheme == Scheme::Local || self.local.holds(page) {
            self.local_bus.send(Granularity::Line, self.now, LINE_BYTES);
            if self.scheme != Scheme::Local {
                self.local.mark_dirty(page);
            }
        } else if self.inflight_pages.state(page).is_some() {
            self.keep_dirty(line);
        } else {
            self.write_line(line);
        }
    }

    /// Keeps a dirty line until its page comes. Engines keep few: beyond, all of the page's go to remote memory and the page is throttled. So
    /// are they when the dirty data buffer is full, which the paper leaves open.
    fn keep_dirty(&mut self, line: u32) {
        let page = line / LINES_PER_PAGE;
        let kept = self.inflight_pages.keep_dirty(line);
        let is_full = self.inflight_pages.dirty_lines > self.parameters.dirty_lines;
        if self.scheme.has_engines() && (kept > self.parameters.dirty_lines_of_a_page || is_full) {
            self.counts.pages_throttled += 1;
            let lines = self.inflight_pages.throttle(page);
            for offset in (0..LINES_PER_PAGE).filter(|offset| lines & (1 << offset) != 0) {
                self.write_line(page * LINES_PER_PAGE + offset);
            }
        }
    }

    /// Sends a dirty line to remote memory. Nothing waits for it.
    fn write_line(&mut self, line: u32) {
        debug_assert_ne!(line, NONE, "a line");
        self.counts.lines_written += 1;
        let component = self.component_of(line / LINES_PER_PAGE);
        let bytes = LINE_BYTES + self.parameters.request_bytes;
        let at = self.components[component].up.send(Granularity::Line, self.now, bytes);
        self.at(at, Event::LineWritten { component });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Miss, Stream};
    use crate::parameters::Parameters;
    use crate::programs::{Programs, Running};
    use std::cmp::Reverse;

    #[test]
    fn what_finds_no_room_goes_on_in_the_order_of_its_coming() {
        // Two lines of the first page have the one entry for lines, which is free when the second has come.
        let lines = [0, 1, 64, 128, 192];
        let miss = |line| Miss {
            line,
            dirty_victim: NO_LINE,
            after: 0,
            instructions: 1,
            after_cycles: 0,
            is_load: true,
            core: 0,
        };
        let misses: Vec<Miss> = lines.map(miss).to_vec();
        let stream = Stream {
            misses,
            pages: 4,
            touched_pages: 4,
            references: 5,
            instructions: 5,
            cores: 1,
            ..Stream::default()
        };
        let programs = Programs::new(&[Running { stream: &stream, compressed_bytes: &[1024; 4] }]);
        let parameters =
            Parameters { inflight_sub_blocks: 1, inflight_pages: 1, local_percent: 99, ..Parameters::paper() };
        let mut machine = Machine::new(&programs, Scheme::Ours, &parameters);
        let (mut ready, mut done) = (Vec::new(), Vec::new());
        machine.cores.start(&mut ready);
        machine.ask_later(&mut ready);
        while let Some(Reverse((at, _, event))) = machine.events.pop() {
            machine.now = at;
            if let Event::Done { miss } = event {
                done.push(miss);
            }
            machine.carry_out(event, &mut ready);
        }
        assert_eq!(done, [0, 1, 2, 3, 4]);
        assert_eq!(machine.counts.accesses_blocked, 3, "each is blocked once");
    }
}
