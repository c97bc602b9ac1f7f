//! The monitor: a thread that reads faults from the userfaultfd and serves them.
//!
//! A monitor never waits for another thread: it sets `WAITED` in the entry of a busy page, and the last step of the page's owner
//! wakes the faulting thread, which then faults again.
//!
//! A monitor leaves after a fault: the thread that stops it touches a page that is registered for nothing else. One monitor reads
//! that fault, serves it with what else it has read, and leaves. So a read of faults needs neither a signal nor a poll beside it, and one
//! touch ends one monitor.

use crate::evictor_start::EvictorStart;
use crate::evictor_waker::EvictorWaker;
use crate::fault::Faults;
use crate::local_memory::LocalMemory;
use crate::monitor_affinity::MonitorAffinity;
use crate::pages::{Outcome, Pages};
use crate::read_ahead::ReadAhead;
use crate::scratch::Scratch;
use crate::sys::uffd::Message;
use crate::sys::{Instant, Mapping, mem, thread};
use crate::tracer::Tracer;
use hinterland_sys::{Fault, SysError};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Messages read at once: more than threads usually fault at the same moment.
const MESSAGES: usize = 16;

/// All monitors of a pager.
pub(crate) struct Monitors {
    pages: &'static Pages,
    local: &'static LocalMemory,
    tracer: Option<&'static Tracer>,
    read_ahead: &'static ReadAhead,
    faults: &'static Faults,
    waker: &'static EvictorWaker,
    evictor: &'static EvictorStart,
    count: usize,
    /// The processor on which a thread of this process last ran.
    processor_of: fn(u32) -> Option<usize>,
    /// The page by whose faults they are told to leave, once that was needed.
    parting: OnceLock<Mapping>,
    /// Those that have left.
    left: AtomicUsize,
}

/// Between two looks whether a monitor has left.
const LOOK: Duration = Duration::from_micros(50);

impl Monitors {
    #[allow(clippy::too_many_arguments, reason = "one for each room that it works with")]
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        tracer: Option<&'static Tracer>,
        read_ahead: &'static ReadAhead,
        faults: &'static Faults,
        waker: &'static EvictorWaker,
        evictor: &'static EvictorStart,
        count: usize,
        processor_of: fn(u32) -> Option<usize>,
    ) -> Monitors {
        let (parting, left) = (OnceLock::new(), AtomicUsize::new(0));
        Monitors { pages, local, tracer, read_ahead, faults, waker, evictor, count, processor_of, parting, left }
    }

    /// Starts the threads.
    pub(crate) fn start(&'static self) -> Result<(), SysError> {
        self.spawn(self.count)?;
        self.pages.own_threads.watch_for_the_end()?;
        if self.local.holds_more_than_floor() {
            self.evictor.start_helpers();
        }
        Ok(())
    }

    fn spawn(&'static self, count: usize) -> Result<(), SysError> {
        for _ in 0..count {
            thread::spawn_needed(c"far-monitor", || {
                self.run();
                self.left.fetch_add(1, SeqCst);
            })?;
        }
        Ok(())
    }

    /// Stops them; far faults wait until `resume`, also the caller's. Where the kernel refuses, some are left.
    pub(crate) fn stop(&self) -> Result<(), SysError> {
        let page = match self.parting.get() {
            Some(page) => page.start,
            None => {
                let page = Mapping::anonymous(PAGE_BYTES)?;
                self.parting.get_or_init(|| page).start
            }
        };
        for left in 1..=self.count {
            // SAFETY: the page holds nothing.
            unsafe { mem::drop_pages(page, PAGE_BYTES) }?;
            // Each time: in the child of a fork there is another userfaultfd.
            self.pages.kernel.register(page, PAGE_BYTES)?;
            // SAFETY: a page that may be read and written.
            unsafe { mem::touch(page) };
            while self.left.load(SeqCst) < left {
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Starts those again that were stopped.
    pub(crate) fn resume(&'static self) {
        if let Err(error) = self.spawn(self.left.swap(0, SeqCst)) {
            self.pages.fatal(&format!("faults cannot be served: a thread cannot be started again: {error}"));
        }
    }

    /// Serves faults until one of them stops it: the body of a monitor thread.
    fn run(&'static self) {
        let registered = self.pages.own_threads.register();
        let mut scratch = Scratch::of_thread(self.pages);
        let mut messages = [Message::EMPTY; MESSAGES];
        let mut affinity = MonitorAffinity::default();
        loop {
            let count = match self.pages.kernel.uffd().read(&mut messages) {
                Ok(count) => count,
                Err(error) => self.pages.fatal(&format!("faults cannot be read: {error}")),
            };
            let begin = Instant::now();
            if registered.keep_to_processors() {
                affinity = MonitorAffinity::default();
            }
            let mut parts = false;
            let inside = self.pages.gate.enter();
            // Before the faults are served: a program with one thread opens nothing while the look-up opens a file.
            if self.count == 1 && self.tracer.is_none() && !registered.is_bounded() {
                let faults = messages[..count].iter().filter_map(Message::fault);
                faults.for_each(|fault| affinity.faulted(fault.thread, self.processor_of));
            }
            for fault in messages[..count].iter().filter_map(Message::fault) {
                let Some(page) = self.pages.page_of(fault.address) else {
                    parts |= self.serve_elsewhere(fault);
                    continue;
                };
                let watched = self.faults.watch(page, Some(fault.thread));
                self.serve(page, fault, &mut scratch);
                let ns = self.faults.count(begin);
                if let Some(watched) = watched {
                    watched.served(ns);
                }
            }
            let above_high = self.local.above_high(&inside);
            drop(inside);
            if above_high {
                self.evictor.start_helpers();
                self.waker.wake_if_idle();
            } else if self.read_ahead.has_work() || self.local.holds_more_than_floor() {
                self.evictor.start_helpers();
            }
            if parts {
                return;
            }
        }
    }

    /// Serves a fault that is not in the far range; true: it told this monitor to leave.
    fn serve_elsewhere(&self, fault: Fault) -> bool {
        let page = fault.address & !(PAGE_BYTES - 1);
        let parts = self.parting.get().is_some_and(|parting| parting.start == page)
            && self.pages.kernel.map_zeros(page).is_ok();
        if !parts {
            // Nothing of ours is missing there, or the thread faults once more.
            self.pages.wake(page, PAGE_BYTES);
        }
        parts
    }

    /// Serves one fault that was read; the thread waits for it in the kernel.
    fn serve(&self, page: PageNo, fault: Fault, scratch: &mut Scratch) {
        if let Some(tracer) = self.tracer {
            tracer.fault(page, fault);
        }
        loop {
            match self.faults.serve_page(page, fault, scratch) {
                Outcome::Served => return,
                // `WAITED` is set: the last step of the page's owner wakes the thread, and it faults again.
                Outcome::Busy(entry) if self.pages.table.wait_on(page, entry) => {
                    if self.faults.count_late(entry) {
                        // The monitor does not see for how long; being woken takes longer than what is short.
                        self.faults.count_late_for(u64::MAX);
                    }
                    return;
                }
                Outcome::Busy(_) | Outcome::Again => {}
            }
        }
    }
}
