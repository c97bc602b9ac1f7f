//! The monitor: a thread that reads faults from the userfaultfd and serves them.
//!
//! A monitor never waits for another thread: it sets `WAITED` in the entry of a busy page, and the last step of the page's owner
//! wakes the faulting thread, which then faults again.

use crate::bell::Bell;
use crate::evictor_start::EvictorStart;
use crate::fault::Faults;
use crate::local_memory::LocalMemory;
use crate::monitor_affinity::MonitorAffinity;
use crate::own_threads::watch_for_the_end;
use crate::pages::{Outcome, Pages};
use crate::read_ahead::ReadAhead;
use crate::scratch::Scratch;
use crate::sys::uffd::Message;
use crate::sys::{Instant, thread};
use crate::tracer::Tracer;
use hinterland_sys::{Fault, SysError};
use hinterland_units::PAGE_BYTES;

/// Messages read at once: more than threads usually fault at the same moment.
const MESSAGES: usize = 16;

/// All monitors of a pager.
pub(crate) struct Monitors {
    pages: &'static Pages,
    local: &'static LocalMemory,
    tracer: Option<&'static Tracer>,
    read_ahead: &'static ReadAhead,
    faults: &'static Faults,
    bell: &'static Bell,
    evictor: &'static EvictorStart,
    count: usize,
    /// The processor on which a thread of this process last ran.
    processor_of: fn(u32) -> Option<usize>,
}

impl Monitors {
    #[allow(clippy::too_many_arguments, reason = "one for each room that it works with")]
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        tracer: Option<&'static Tracer>,
        read_ahead: &'static ReadAhead,
        faults: &'static Faults,
        bell: &'static Bell,
        evictor: &'static EvictorStart,
        count: usize,
        processor_of: fn(u32) -> Option<usize>,
    ) -> Monitors {
        Monitors { pages, local, tracer, read_ahead, faults, bell, evictor, count, processor_of }
    }

    /// Starts the threads.
    pub(crate) fn start(&'static self) -> Result<(), SysError> {
        for _ in 0..self.count {
            thread::spawn_needed(c"far-monitor", || self.run())?;
        }
        watch_for_the_end()?;
        if self.local.holds_more_than_floor() {
            self.evictor.start_helpers();
        }
        Ok(())
    }

    /// Serves faults for ever: the body of a monitor thread.
    fn run(&'static self) -> ! {
        self.pages.own_threads.register();
        let mut scratch = Scratch::new();
        let mut messages = [Message::EMPTY; MESSAGES];
        let mut affinity = MonitorAffinity::default();
        loop {
            let count = match self.pages.kernel.uffd().read(&mut messages) {
                Ok(count) => count,
                Err(error) => self.pages.fatal(&format!("faults cannot be read: {error}")),
            };
            let begin = Instant::now();
            let inside = self.pages.gate.enter();
            // Before the faults are served: a program with one thread opens nothing while the look-up opens a file.
            if self.count == 1 && self.tracer.is_none() {
                let faults = messages[..count].iter().filter_map(Message::fault);
                faults.for_each(|fault| affinity.faulted(fault.thread, self.processor_of));
            }
            for fault in messages[..count].iter().filter_map(Message::fault) {
                let page = self.pages.page_of(fault.address);
                let watched = page.and_then(|page| self.faults.watch(page, Some(fault.thread)));
                self.serve(fault, &mut scratch);
                let ns = self.faults.count(begin);
                if let Some(watched) = watched {
                    watched.served(ns);
                }
            }
            let above_high = self.local.above_high(&inside);
            drop(inside);
            if above_high {
                self.evictor.start_helpers();
                self.bell.ring();
            } else if self.read_ahead.has_work() || self.local.holds_more_than_floor() {
                self.evictor.start_helpers();
            }
        }
    }

    /// Serves one fault that was read; the thread waits for it in the kernel.
    fn serve(&self, fault: Fault, scratch: &mut Scratch) {
        let Some(page) = self.pages.page_of(fault.address) else {
            // Not in the far range: nothing of ours is missing there.
            self.pages.wake(fault.address & !(PAGE_BYTES - 1), PAGE_BYTES);
            return;
        };
        if let Some(tracer) = self.tracer {
            tracer.fault(page, fault);
        }
        loop {
            match self.faults.serve_page(page, fault, scratch) {
                Outcome::Served => return,
                // `WAITED` is set: the last step of the page's owner wakes the thread, and it faults again.
                Outcome::Busy(entry) if self.pages.table.wait_on(page, entry) => return self.faults.count_late(entry),
                Outcome::Busy(_) | Outcome::Again => {}
            }
        }
    }
}
