//! Egress: replies of all lanes take turns on the link that they share, where the operator has stated its rate.
//!
//! A lane asks for a turn before it gives bytes to its socket, by tenant, program and class (`egress_scheduler.rs`).
//! There is no other thread to wake it at the right moment: of the waiting lanes one *leads*, that is, sleeps until the
//! link can take a piece, and grants the next pieces, its own or others'. A leader that leaves while others wait wakes
//! one of them to lead.
//!
//! **Invariant**: a lane that has a turn uses it at once and waits for nothing: a client that does not read holds up itself alone.

use crate::egress_scheduler::EgressScheduler;
use hinterland_wire::Channel;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug)]
pub(crate) struct Egress {
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    scheduler: EgressScheduler<Arc<Waiter>>,
    /// One of those that wait will look when the link can take a piece.
    is_led: bool,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    /// Bytes that it may send; 0: it waits.
    granted: AtomicU64,
}

impl Waiter {
    fn new() -> Arc<Waiter> {
        Arc::new(Waiter { thread: std::thread::current(), granted: AtomicU64::new(0) })
    }
}

impl Egress {
    /// A link of so many bits a second that is idle.
    pub(crate) fn new(bits_per_second: u64) -> Egress {
        Egress {
            begun: Instant::now(),
            state: Mutex::new(State { scheduler: EgressScheduler::new(bits_per_second), is_led: false }),
        }
    }

    /// The calling thread sleeps no longer than it wants to: the kernel adds 50 µs elsewhere (prctl(2), `PR_SET_TIMERSLACK`).
    pub(crate) fn wake_in_time() {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }

    /// How many of `bytes` may be sent now; 0: others wait, or the link holds enough.
    pub(crate) fn try_take(&self, channel: Channel, bytes: usize) -> usize {
        let mut state = self.state();
        let granted = state.scheduler.take_now(channel, bytes as u64, self.now_ns(), Waiter::new);
        usize::try_from(granted).expect("at most `bytes`")
    }

    /// Waits for a turn; returns how many of `bytes` may be sent in it, at least one.
    pub(crate) fn take(&self, channel: Channel, bytes: usize) -> usize {
        let me = Waiter::new();
        let mut state = self.state();
        state.scheduler.push(channel, bytes as u64, self.now_ns(), me.clone());
        loop {
            state.grant(self.now_ns());
            let granted = me.granted.load(SeqCst);
            if granted > 0 {
                if !state.is_led
                    && let Some(waiter) = state.scheduler.any()
                {
                    waiter.thread.unpark();
                }
                return usize::try_from(granted).expect("at most `bytes`");
            }
            let leads = !state.is_led;
            state.is_led = true;
            let now = self.now_ns();
            let sleeps_ns = state.scheduler.next_at_ns(now).saturating_sub(now);
            drop(state);
            if leads {
                std::thread::sleep(Duration::from_nanos(sleeps_ns));
            } else {
                std::thread::park();
            }
            state = self.state();
            state.is_led &= !leads;
        }
    }

    /// So many of the bytes of a turn were not taken by the connection.
    pub(crate) fn not_sent(&self, bytes: usize) {
        self.state().scheduler.not_sent(bytes as u64);
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Grants what the link can take.
    fn grant(&mut self, now_ns: u64) {
        while let Some((waiter, bytes)) = self.scheduler.grant(now_ns) {
            waiter.granted.store(bytes, SeqCst);
            waiter.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_wire::Priority;

    /// No lane is forgotten, whichever leads and leaves.
    #[test]
    fn each_lane_gets_all_its_turns() {
        let egress = Egress::new(50_000_000_000);
        std::thread::scope(|scope| {
            for lane in 0..8u64 {
                let egress = &egress;
                scope.spawn(move || {
                    Egress::wake_in_time();
                    let class = if lane % 2 == 0 { Priority::Demand } else { Priority::Prefetch };
                    let channel = Channel { tenant: lane / 4, program: lane / 4, class };
                    for turn in 0..500 {
                        let mut left = 20_000;
                        while left > 0 {
                            let granted = egress.take(channel, left);
                            assert!((1..=left).contains(&granted));
                            left -= granted;
                        }
                        if turn % 7 == lane {
                            egress.not_sent(1000);
                        }
                    }
                });
            }
        });
        assert_eq!(egress.state().scheduler.any().map(|_| ()), None);
    }
}
