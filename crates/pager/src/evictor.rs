//! The evictor: the thread that keeps local memory under the watermarks. It also samples what the process needs, answers pin requests,
//! acknowledges commands, and reports.

use crate::evict_hints::EvictHints;
use crate::evictor_waker::EvictorWaker;
use crate::fault_path::FaultPath;
use crate::local_memory::LocalMemory;
use crate::maintenance::Maintenance;
use crate::pages::Pages;
use crate::pin_requests::{PinRequestHandler, RequestPins};
use crate::proportional_share::SharedBytes;
use crate::read_ahead::ReadAhead;
use crate::reclaim::Reclaim;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::shared_budget::DemandSampler;
use hinterland_paging::{Urgency, evicts};
use std::time::{Duration, Instant};

/// Steps for pages that the program gives up, between two looks at everything else.
const HINTED_STEPS: u32 = 64;
/// Steps of reclaim, of up to 64 pages each, likewise: threads that fault as fast as the evictor works would keep it from everything else.
const STEPS: u32 = 256;
/// Time between two calls of the housekeeping.
const TIDY_INTERVAL: Duration = Duration::from_millis(200);

/// While paths to far memory change, the evictor looks every so many milliseconds whether that is done.
const CHANGING_MS: u64 = 10;

/// See the module.
pub(crate) struct Evictor {
    pages: &'static Pages,
    local: &'static LocalMemory,
    reclaim: &'static Reclaim,
    evict_hints: &'static EvictHints,
    read_ahead: &'static ReadAhead,
    waker: &'static EvictorWaker,
    pin_requests: PinRequestHandler,
    maintenance: &'static Maintenance,
    report: &'static Report,
    /// Looks at what other processes count of this one's memory.
    shared: fn(bool) -> Option<SharedBytes>,
    /// Called a few times a second.
    housekeeping: fn(),
}

impl Evictor {
    #[allow(clippy::too_many_arguments, reason = "one for each room that it works with")]
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        reclaim: &'static Reclaim,
        evict_hints: &'static EvictHints,
        read_ahead: &'static ReadAhead,
        waker: &'static EvictorWaker,
        pin_requests: PinRequestHandler,
        maintenance: &'static Maintenance,
        report: &'static Report,
        shared: fn(bool) -> Option<SharedBytes>,
        housekeeping: fn(),
    ) -> Evictor {
        Evictor {
            pages,
            local,
            reclaim,
            evict_hints,
            read_ahead,
            waker,
            pin_requests,
            maintenance,
            report,
            shared,
            housekeeping,
        }
    }

    /// Has prefetching do what was commanded.
    fn follow_commands(&self) {
        let _inside = self.pages.gate.enter();
        self.read_ahead.follow_commands();
    }

    /// It was started: a pin request or a command before it first runs waits for it.
    pub(crate) fn begin_answering(&self) {
        self.pin_requests.begin();
        self.local.shared_budget.begin_acknowledging(self.pages.row());
    }

    /// It will not run again: other processes do not wait for its answers any more.
    pub(crate) fn end_answering(&self) {
        self.pin_requests.end();
        self.local.shared_budget.end_acknowledging(self.pages.row());
    }

    /// Keeps local memory within its budget until it should stop: the body of the evictor thread.
    pub(crate) fn run(&'static self, should_stop: impl Fn() -> bool) {
        let registered = self.pages.own_threads.register();
        let mut scratch = Scratch::of_thread(self.pages);
        let mut tidied = Instant::now();
        let mut demand = DemandSampler::new();
        let mut pins = RequestPins::default();
        // Whether the last step of reclaim took pages out.
        let mut worked = false;
        loop {
            let seen = self.waker.wakes();
            if should_stop() {
                return;
            }
            registered.keep_to_processors();
            self.follow_commands();
            self.pin_requests.answer(&mut pins);
            if self.pages.path == FaultPath::Inline
                && (self.read_ahead.has_work() || self.local.above_high(&self.pages.gate.enter()))
            {
                self.read_ahead.start(|| Ok(()));
            }
            self.maintenance.start_if_needed();
            let look_again =
                demand.sample(&self.local.shared_budget, self.pages.row(), &self.local.account, self.shared);
            if look_again.is_some() {
                let _inside = self.pages.gate.enter();
                self.local.update_budget();
            }
            for _ in 0..HINTED_STEPS {
                if !self.evict_hints.wait() {
                    break;
                }
                let inside = self.pages.gate.enter();
                self.reclaim.hinted_step(&mut scratch);
                drop(inside);
                self.pin_requests.answer(&mut pins);
            }
            let above_low = || self.local.account.above_low();
            let mut steps = 0;
            while evicts(worked, above_low, || self.local.above_high(&self.pages.gate.enter())) {
                let inside = self.pages.gate.enter();
                worked = self.reclaim.step(Urgency::Ahead, &mut scratch);
                drop(inside);
                self.pin_requests.answer(&mut pins);
                steps += 1;
                if !worked || steps == STEPS {
                    break;
                }
            }
            loop {
                let inside = self.pages.gate.enter();
                let shrinks = self.reclaim.shrink_store();
                drop(inside);
                self.pin_requests.answer(&mut pins);
                if !shrinks {
                    break;
                }
            }
            self.report.write(&mut scratch.usage);
            let has_made_changes = self.maintenance.has_made_changes();
            if has_made_changes {
                // What is acknowledged is made: the command's number was read before.
                registered.keep_to_processors();
                self.follow_commands();
                self.local.shared_budget.acknowledge(self.pages.row(), &self.local.account);
            }
            if tidied.elapsed() > TIDY_INTERVAL {
                (self.housekeeping)();
                tidied = Instant::now();
            }
            if worked && above_low() {
                continue;
            }
            // Local memory is above the watermark and nothing can leave: retry soon, without spinning.
            let stuck = !worked && self.local.account.above_high();
            let pause = if stuck {
                2
            } else if has_made_changes {
                200
            } else {
                CHANGING_MS
            };
            let pause = Duration::from_millis(pause).min(look_again.unwrap_or(Duration::MAX));
            self.waker.wait(seen, pause, || self.evict_hints.wait());
            worked = false;
        }
    }
}
