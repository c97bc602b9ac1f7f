//! The duty cycle of a path that is emptied: the share of the time that its steps have beside a program that waits for pages.
//!
//! What a step takes away from the program shows in how many pages it comes to wait for: they are counted while a step works and while it
//! rests. A program that waits for `slowed` as many a second in steps as in rests is slowed to `share × slowed + (1 - share)` of its speed by
//! steps that have a `share` of the time; the share is what leaves it `LEFT` of its speed. So a program that computes, or waits for a path that has
//! bandwidth to spare, is hardly rested for, and one that shares its only processor has four fifths of the time.
//!
//! Pages that are prefetched are not waited for: a program that nearly always finds them there is not rested for.
//!
//! A rest that takes longer than it was to, because the processors are busy when it is over, is made up for: the next steps follow each other.
//!
//! In all, rests take no more than some seconds ([`SPARE_SECONDS`]) beyond what the pages take at the best speed that was seen: steps have at least
//! the share of the time with which the pages that are left have left by then ([`Deadline`]), whatever that leaves the program. That share is
//! [`SHARE_MAX`] at most, too, so that a long switch takes up to a fifteenth longer.

use std::time::{Duration, Instant};

/// The part of its speed that a program is left.
const LEFT: f64 = 0.8;
/// The share of steps before it is known what they take away.
const SHARE_UNKNOWN: f64 = 0.5;
/// The most: some time is left to know how fast the program is without.
const SHARE_MAX: f64 = 15.0 / 16.0;
/// Rests are put off until they are so long: a shorter one is spent on what the step has left behind.
const REST_MIN_SECONDS: f64 = 0.001;
/// What is rested too long and made up for: no more, so that steps do not follow each other for long.
const AHEAD_SECONDS: f64 = 0.02;
/// The longest rest: a step in which the whole process was stopped says nothing of the program.
const REST_MAX_SECONDS: f64 = 1.0;
/// A path is empty so many seconds after the time that its pages take without rests, and a fifteenth of that: a second less than is promised.
const SPARE_SECONDS: f64 = 4.0;
/// What is older than about twice this is forgotten.
const WINDOW_SECONDS: f64 = 0.1;
/// The same of what tells little: fewer than `TELLING` pages.
const WINDOW_MAX_SECONDS: f64 = 1.0;
const TELLING: f64 = 4.0 * DOUBT;
/// So many pages more on either side: few tell nothing.
const DOUBT: f64 = 8.0;

/// Pages that were waited for, in how long a time.
#[derive(Clone, Copy, Default)]
struct Seen {
    pages: f64,
    seconds: f64,
}

impl Seen {
    fn add(&mut self, pages: u64, time: Duration) {
        #[allow(clippy::cast_precision_loss, reason = "a few thousands")]
        let pages = pages as f64;
        (self.pages, self.seconds) = (self.pages + pages, self.seconds + time.as_secs_f64());
        let window = if self.pages > TELLING { WINDOW_SECONDS } else { WINDOW_MAX_SECONDS };
        if self.seconds > 2.0 * window {
            (self.pages, self.seconds) = (self.pages / 2.0, self.seconds / 2.0);
        }
    }
}

/// By when a path is to be empty.
#[derive(Clone, Copy, Default)]
struct Deadline {
    /// Since its first page left: in all, and in steps.
    passed: f64,
    worked: f64,
    moved_pages: f64,
    left_pages: f64,
    /// The seconds of a page in the fastest step.
    page_seconds: f64,
}

impl Deadline {
    #[allow(clippy::cast_precision_loss, reason = "below 2^32")]
    fn moved(&mut self, pages: usize, left: usize, time: Duration) {
        let seconds = time.as_secs_f64();
        (self.worked, self.left_pages) = (self.worked + seconds, left as f64);
        if pages > 0 {
            let page_seconds = seconds / pages as f64;
            let is_first = self.moved_pages == 0.0;
            self.page_seconds = if is_first { page_seconds } else { page_seconds.min(self.page_seconds) };
            self.moved_pages += pages as f64;
        }
    }

    /// The share of the time that steps need.
    fn share(&self) -> f64 {
        if self.moved_pages == 0.0 {
            return 0.0;
        }
        let time = SPARE_SECONDS + (self.moved_pages + self.left_pages) * self.page_seconds - self.passed;
        let work = self.left_pages * self.worked / self.moved_pages;
        (work / time.max(work)).min(SHARE_MAX)
    }
}

/// A moment, how many pages the program had waited for by then, and whether it waits for one.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    at: Instant,
    pages: u64,
    is_waiting: bool,
}

impl Mark {
    pub(super) fn now(pages: u64, is_waiting: bool) -> Mark {
        Mark { at: Instant::now(), pages, is_waiting }
    }

    fn since(self, other: Mark) -> (u64, Duration) {
        (self.pages.saturating_sub(other.pages), self.at.saturating_duration_since(other.at))
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct DutyCycle {
    /// Where the last step, or the last rest, began.
    last: Option<Mark>,
    working: Seen,
    resting: Seen,
    /// Seconds of rest that are due; less than none: there were too many.
    owed: f64,
    /// How long the program has waited for no page in rests.
    silent: Duration,
    deadline: Deadline,
}

impl DutyCycle {
    /// A step begins.
    pub(super) fn begin(&mut self, now: Mark) {
        if let Some(last) = self.last.replace(now) {
            let (pages, time) = now.since(last);
            self.rested(pages + u64::from(now.is_waiting), time);
        }
    }

    /// The step that has begun ends, in which so many pages were moved, and so many are left: how long a rest is due.
    pub(super) fn end(&mut self, now: Mark, moved: usize, left: usize) -> Duration {
        let (pages, time) = self.last.replace(now).map_or((0, Duration::ZERO), |last| now.since(last));
        self.deadline.moved(moved, left, time);
        self.worked(pages, time)
    }

    /// What comes next has a time of its own: another path is emptied, or this one after an obstacle.
    pub(super) fn begin_anew(&mut self) {
        self.deadline = Deadline::default();
    }

    /// Whether some of the time has passed that what is emptied has.
    #[cfg(test)]
    pub(super) fn has_begun(&self) -> bool {
        self.deadline.passed > 0.0
    }

    fn rested(&mut self, pages: u64, time: Duration) {
        self.resting.add(pages, time);
        self.deadline.passed += time.as_secs_f64();
        self.owed = (self.owed - time.as_secs_f64()).max(-AHEAD_SECONDS);
        self.silent = if pages > 0 { Duration::ZERO } else { self.silent + time };
        if self.silent.as_secs_f64() > WINDOW_SECONDS {
            *self = DutyCycle { last: self.last, deadline: self.deadline, ..DutyCycle::default() };
        }
    }

    fn worked(&mut self, pages: u64, time: Duration) -> Duration {
        self.working.add(pages, time);
        self.deadline.passed += time.as_secs_f64();
        if !self.is_needed() {
            return Duration::ZERO;
        }
        let share = self.share().max(self.deadline.share());
        self.owed = (self.owed + time.as_secs_f64() * (1.0 - share) / share).min(REST_MAX_SECONDS);
        self.rest()
    }

    /// The rest that is due after a step.
    fn rest(&self) -> Duration {
        if self.owed < REST_MIN_SECONDS { Duration::ZERO } else { Duration::from_secs_f64(self.owed) }
    }

    /// How much of the rest after the last step is left.
    pub(super) fn left_of_rest(&self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |last| self.rest().saturating_sub(now.saturating_duration_since(last.at)))
    }

    /// The share of the time that steps may have.
    fn share(&self) -> f64 {
        if self.resting.seconds < REST_MIN_SECONDS || self.working.pages + self.resting.pages < DOUBT {
            return SHARE_UNKNOWN;
        }
        let without = self.resting.pages / self.resting.seconds * self.working.seconds;
        let lost = 1.0 - (self.working.pages + DOUBT) / (without + DOUBT);
        if lost <= 0.0 { SHARE_MAX } else { ((1.0 - LEFT) / lost).min(SHARE_MAX) }
    }

    /// Whether the program has waited for pages of late.
    pub(super) fn is_needed(&self) -> bool {
        self.working.pages + self.resting.pages > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that waits for so many pages a second beside steps, and without, for `seconds`: the share that steps had, and the program's speed
    /// by that without.
    fn beside(duty_cycle: &mut DutyCycle, beside: f64, without: f64, seconds: f64) -> (f64, f64) {
        let step = Duration::from_micros(700);
        let (mut passed, mut worked, mut owed, mut waited_for) = (0.0, 0.0, 0.0, 0);
        while passed < seconds {
            let mut pass = |rate: f64, time: Duration| {
                (passed, owed) = (passed + time.as_secs_f64(), owed + rate * time.as_secs_f64());
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a few thousands, of which the rest stays"
                )]
                let pages = owed as u64;
                (owed, waited_for) = (owed - pages as f64, waited_for + pages);
                pages
            };
            let pages = pass(beside, step);
            worked += step.as_secs_f64();
            let rest = duty_cycle.worked(pages, step);
            // Some time passes between two steps that follow each other, too.
            let rest = rest.max(Duration::from_micros(5));
            let pages = pass(without, rest);
            duty_cycle.rested(pages, rest);
        }
        (worked / passed, waited_for as f64 / (without * passed))
    }

    #[test]
    fn the_program_is_left_its_part_and_steps_have_the_rest() {
        for without in [2_000.0, 20_000.0, 200_000.0] {
            let (share, speed) = beside(&mut DutyCycle::default(), without, without, 2.0);
            assert!(share > 0.85 && speed > 0.98, "nothing is taken away: {share} and {speed}");
            let (share, speed) = beside(&mut DutyCycle::default(), without * 0.5, without, 2.0);
            assert!((0.3..0.55).contains(&share) && speed > 0.73, "half of it: {share} and {speed}");
            let (share, speed) = beside(&mut DutyCycle::default(), 0.0, without, 2.0);
            assert!((0.15..0.35).contains(&share) && speed > 0.65, "all of it: {share} and {speed}");
        }
    }

    /// Empties a path of so many steps of 128 pages and 10 ms, beside a program that each of them but the first stops: how long that takes, and the
    /// program's speed.
    fn emptied(steps: usize) -> (f64, f64) {
        let (mut duty_cycle, step, mut at) = (DutyCycle::default(), Duration::from_millis(10), Duration::ZERO);
        let (mut waited_for, begun) = (0, Instant::now());
        for number in 1..=steps {
            let mark = |at: Duration, pages| Mark { at: begun + at, pages, is_waiting: false };
            duty_cycle.begin(mark(at, waited_for));
            at += step;
            waited_for += if number == 1 { 200 } else { 0 };
            let rest = duty_cycle.end(mark(at, waited_for), 128, (steps - number) * 128).max(Duration::from_micros(5));
            at += rest;
            waited_for += u64::try_from(rest.as_micros() / 50).unwrap_or(0);
        }
        (at.as_secs_f64(), waited_for as f64 * 50e-6 / at.as_secs_f64())
    }

    #[test]
    fn a_path_is_empty_five_seconds_and_a_fifteenth_after_the_time_that_its_pages_take() {
        // Up to a fifth of the time is enough: the program has its part.
        let (took, speed) = emptied(50);
        assert!((1.5..4.0).contains(&took) && speed > 0.65, "{took} and {speed}");
        for steps in [200, 1_000, 10_000] {
            let (took, work) = (emptied(steps).0, steps as f64 * 0.01);
            assert!(took < work + 5.0 + work / 15.0, "{took} for {work} s of work");
        }
        assert!(emptied(200).0 > 4.0, "what time there is, the program has");
        // Steps come to have more and more of the time, and never all of it.
        let share = |passed: f64| {
            Deadline { passed, worked: 1.0, moved_pages: 1e3, left_pages: 1e3, page_seconds: 1e-3 }.share()
        };
        let shares: Vec<f64> = (0..80).map(|passed| share(f64::from(passed) * 0.1)).collect();
        assert!(shares.is_sorted() && shares[79] <= SHARE_MAX, "{shares:?}");
    }

    #[test]
    fn another_path_and_one_whose_obstacle_is_gone_have_their_own_time() {
        let mut duty_cycle = DutyCycle::default();
        beside(&mut duty_cycle, 0.0, 20_000.0, 1.0);
        duty_cycle.deadline =
            Deadline { passed: 1e3, worked: 1.0, moved_pages: 1e3, left_pages: 1e3, page_seconds: 1e-3 };
        assert!(beside(&mut duty_cycle, 0.0, 20_000.0, 1.0).0 > 0.8);
        duty_cycle.begin_anew();
        assert!(beside(&mut duty_cycle, 0.0, 20_000.0, 1.0).0 < 0.4);
    }

    #[test]
    fn rests_that_take_too_long_are_made_up_for() {
        let (mut duty_cycle, ms) = (DutyCycle::default(), Duration::from_millis);
        let (mut worked, mut rested) = (0, 0);
        for _ in 0..1000 {
            // Half as many pages are waited for beside a step, whose share is two fifths.
            worked += 1;
            if !duty_cycle.worked(10, ms(1)).is_zero() {
                rested += 5;
                duty_cycle.rested(100, ms(5));
            }
        }
        let share = f64::from(worked) / f64::from(worked + rested);
        assert!((0.35..0.5).contains(&share), "{share}");
        // But not for ever.
        duty_cycle.rested(20_000, ms(1000));
        assert!((0..100).any(|_| !duty_cycle.worked(10, ms(1)).is_zero()));
        assert_eq!(duty_cycle.worked(10, ms(3_600_000)), ms(1000));
    }

    #[test]
    fn a_program_that_waits_for_nothing_is_not_rested_for_and_one_that_waits_for_few_pages_is() {
        let mut duty_cycle = DutyCycle::default();
        assert!((0..1000).all(|_| duty_cycle.worked(0, Duration::from_millis(1)).is_zero()) && !duty_cycle.is_needed());
        // Far memory that takes 20 ms for a page.
        let (share, speed) = beside(&mut duty_cycle, 0.0, 50.0, 20.0);
        assert!(share < 0.5 && speed > 0.5, "{share} and {speed}");
    }

    #[test]
    fn a_step_that_stops_the_program_for_long_says_nothing_of_rests() {
        let mut duty_cycle = DutyCycle::default();
        beside(&mut duty_cycle, 0.0, 20_000.0, 1.0);
        assert!(!duty_cycle.worked(0, Duration::from_millis(300)).is_zero() && duty_cycle.is_needed());
    }

    #[test]
    fn what_was_seen_is_soon_forgotten() {
        let mut duty_cycle = DutyCycle::default();
        assert!(beside(&mut duty_cycle, 0.0, 20_000.0, 2.0).0 < 0.35);
        beside(&mut duty_cycle, 20_000.0, 20_000.0, 1.0);
        assert!(beside(&mut duty_cycle, 20_000.0, 20_000.0, 1.0).0 > 0.8);
        // A program that waits for nothing any more is not rested for.
        beside(&mut duty_cycle, 0.0, 0.0, 3.0);
        assert!(duty_cycle.worked(0, Duration::from_millis(1)).is_zero() && !duty_cycle.is_needed());
    }
}
