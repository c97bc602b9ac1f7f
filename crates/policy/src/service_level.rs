//! The service level of a program: the least local memory that keeps its slowdown within a bound, found and held while it runs (xDM, §IV-B: the
//! local memory that a service level objective leaves). No clock: [`ServiceLevel::observe`] is called once an interval.
//!
//! The *excess* is stall over work, where work is the time of the program's threads without the stall: a slowdown of 1.2 is an excess of 0.2.
//!
//! ```text
//! excess                      budget
//! above the bound             grows at once, the more the worse; the size that was too small is remembered and not tried again for a while
//! between aim and bound       stays
//! below the aim               shrinks, the slower the nearer the aim; from what the program holds, if that is less
//! ```
//!
//! A program that walks through its memory in circles has no size between enough and far too little: every return to the size that was too small
//! costs a burst of faults. So such a size is avoided for twice as long each time it proves too small again.
//!
//! Other programs may leave the machine less than what is *wanted*: the *cap*. The budget is the smaller of the two. What is wanted stays
//! then, unless the cap turns out to be enough; a program without a size that has proved enough wants all that it has.

/// What one interval was like. Times are sums over the program's threads.
#[derive(Clone, Copy, Default, Debug)]
pub struct Interval {
    /// How long it was, in nanoseconds.
    pub elapsed_ns: u64,
    /// The threads' time that was work or stall, in nanoseconds: what they slept of their own will is not in it.
    pub thread_ns: u64,
    /// Of that, the stall for far memory, in nanoseconds.
    pub stall_ns: u64,
    /// Local memory at its end, in bytes.
    pub local_bytes: u64,
    /// All memory that the program has at its end, local or not, in bytes.
    pub managed_bytes: u64,
}

/// Stall and work, both in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
struct WorkAndStall {
    stall: f64,
    work: f64,
}

impl WorkAndStall {
    fn excess(self) -> f64 {
        if self.stall <= 0.0 { 0.0 } else { self.stall / self.work.max(self.stall / EXCESS_MAX) }
    }

    fn add(&mut self, other: WorkAndStall) {
        self.stall += other.stall;
        self.work += other.work;
    }

    fn scaled(self, by: f64) -> WorkAndStall {
        WorkAndStall { stall: self.stall * by, work: self.work * by }
    }

    fn seconds(self) -> f64 {
        (self.stall + self.work) / 1e9
    }
}

/// A state that is taken for another one when that has lasted.
#[derive(Clone, Copy, Default, Debug)]
struct Lasting {
    is: bool,
    /// Since when it is otherwise.
    otherwise_since: Option<f64>,
}

impl Lasting {
    fn see(&mut self, now: bool, clock: f64) {
        let long = if now { SHORT_SECONDS } else { ENOUGH_SECONDS };
        if now == self.is {
            self.otherwise_since = None;
        } else if clock - *self.otherwise_since.get_or_insert(clock) >= long {
            *self = Lasting { is: now, otherwise_since: None };
        }
    }
}

/// A size that was too small.
#[derive(Clone, Copy, Debug)]
struct TooSmall {
    bytes: u64,
    /// When it may be tried again, in seconds of observed time.
    until: f64,
    /// For how long it is avoided.
    avoided: f64,
}

/// Larger excesses count as this one.
const EXCESS_MAX: f64 = 1000.0;
/// The excess that is aimed at, as a share of the bound's: what is above it is room for noise.
const AIM: f64 = 0.75;
/// The time that the recent excess looks back, in seconds.
const RECENT_SECONDS: f64 = 2.0;
/// Shrinks by so much in a second of work without stall, at most and at least. Pages of the hot set leave with the others and return: that is a stall, too, which
/// says of the rate of shrinking that it was too fast, before it says of the size that it is too small.
const SHRINK_A_SECOND: f64 = 0.08;
const SHRINK_A_SECOND_MIN: f64 = 0.01;
/// A size at which the rate may have been too fast is avoided for so long, in seconds; the rate is halved, and returns by so much a second.
const SLOWED_SECONDS: f64 = 2.0;
const SHRINK_RATE_RETURNS: f64 = 0.01;
/// Grows by so much for each multiple of the bound that the excess is.
const GROW: f64 = 0.1;
/// Grows by so much at most, at a time.
const GROW_MAX: f64 = 0.5;
/// After it has grown, pages return for so long, in seconds: only an excess of [`URGENT`] bounds makes it grow again.
const RETURN_SECONDS: f64 = 1.0;
const URGENT: f64 = 3.0;
/// A size that was too small is avoided for so long at first, and at most, in seconds.
const AVOIDED_SECONDS: f64 = 8.0;
const AVOIDED_SECONDS_MAX: f64 = 64.0;
/// Sizes within this factor are the same size proving too small again.
const SAME_SIZE: f64 = 1.25;
/// The smallest size above one that is avoided.
const ABOVE_TOO_SMALL: f64 = 1.04;
/// A size that has room for all of a program's memory, over that: there are pages on their way in and out, too.
const ROOM_FOR_ALL: f64 = 1.125;
/// A cap that changes the budget by this factor makes it another size, which is judged anew.
const ANOTHER_SIZE: f64 = 1.06;
/// Threads' time that shows that a cap is enough, in seconds.
const SHOWN_SECONDS: f64 = 0.5;
/// A program is short of memory when its cap has been too small for so long, and no longer when that has been over for so long, in seconds.
const SHORT_SECONDS: f64 = 4.0;
const ENOUGH_SECONDS: f64 = 10.0;

/// See the module.
#[derive(Clone, Debug)]
pub struct ServiceLevel {
    /// The excess that is not to be exceeded.
    bound: f64,
    floor: u64,
    ceiling: u64,
    /// What is to keep the bound, within the ceiling.
    wanted: u64,
    /// What is wanted has kept the bound.
    is_proven: bool,
    /// The most that the machine has for the program beside others.
    cap: u64,
    is_short: Lasting,
    whole: WorkAndStall,
    recent: WorkAndStall,
    /// Observed time in seconds.
    clock: f64,
    /// Until when pages return.
    returning_until: f64,
    /// Until when pages leave or return for another cap, which says nothing of the size.
    moving_until: f64,
    too_small: Option<TooSmall>,
    /// The rate of shrinking, a second.
    shrink_rate: f64,
    /// What was held before it shrank the last time: enough, as far as was seen.
    enough: Option<u64>,
}

impl ServiceLevel {
    /// Holds a program within `slowdown` (above 1) times its all-local time, with local budgets from `floor` to `ceiling` bytes; it starts at
    /// the ceiling.
    pub fn new(slowdown: f64, floor: u64, ceiling: u64) -> ServiceLevel {
        assert!(slowdown > 1.0, "a slowdown of {slowdown} leaves no room");
        let ceiling = ceiling.max(floor);
        ServiceLevel {
            bound: slowdown - 1.0,
            floor,
            ceiling,
            wanted: ceiling,
            is_proven: false,
            cap: u64::MAX,
            is_short: Lasting::default(),
            whole: WorkAndStall::default(),
            recent: WorkAndStall::default(),
            clock: 0.0,
            returning_until: 0.0,
            moving_until: 0.0,
            too_small: None,
            shrink_rate: SHRINK_A_SECOND,
            enough: None,
        }
    }

    /// The slowdown of all that was observed.
    pub fn achieved(&self) -> f64 {
        1.0 + self.whole.excess()
    }

    /// The local budget in bytes.
    pub fn budget(&self) -> u64 {
        self.wanted.min(self.cap)
    }

    /// What is wanted to keep the bound, in bytes.
    pub fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Whether what is wanted has kept the bound; else the least that does is not known, and what is wanted may be more.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The largest budget in bytes.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Sets the largest budget; the next observation keeps it.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling.max(self.floor);
        self.wanted = self.wanted.min(self.ceiling);
    }

    /// The most that the machine has for the program beside others, in bytes; `u64::MAX`: what it wants.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Sets the most that the machine has for the program beside others, in bytes; the next observation keeps it.
    pub fn set_cap(&mut self, cap: u64) {
        let before = self.budget();
        self.cap = cap.max(self.floor);
        let now = self.budget();
        if scale(before.min(now), ANOTHER_SIZE) < before.max(now) {
            self.begin_another_size();
            self.moving_until = self.returning_until;
        }
    }

    /// Whether the bound is exceeded at the ceiling: only more memory would help.
    pub fn is_out_of_reach(&self) -> bool {
        self.budget() >= self.ceiling && self.recent.excess() > self.bound
    }

    /// Whether the bound is exceeded because the machine has too little memory for the program beside others.
    pub fn is_short(&self) -> bool {
        self.is_short.is
    }

    /// Takes an interval in; returns the local budget for the next one, in bytes.
    pub fn observe(&mut self, interval: &Interval) -> u64 {
        let seconds = interval.elapsed_ns as f64 / 1e9;
        self.clock += seconds;
        let stall = interval.stall_ns.min(interval.thread_ns) as f64;
        let now = WorkAndStall { stall, work: interval.thread_ns as f64 - stall };
        self.whole.add(now);
        self.recent = self.recent.scaled((-seconds / RECENT_SECONDS).exp());
        if self.clock >= self.moving_until {
            self.recent.add(now);
        }
        let excess = self.recent.excess();
        // A run that has been too slow so far makes up for it.
        let aim = AIM * self.bound * (self.bound / self.whole.excess()).clamp(0.5, 1.0);
        let is_capped = self.wanted > self.cap;
        self.is_short.see(is_capped && excess > self.bound, self.clock);
        if is_capped {
            self.judge_cap(excess, aim, interval.managed_bytes);
        } else if excess > self.bound {
            let is_urgent = now.excess() > URGENT * self.bound;
            if is_urgent || self.clock >= self.returning_until {
                self.grow(excess.max(now.excess()), interval);
            }
        } else if excess < aim {
            // While the program sleeps, nothing shows which of its memory it will miss.
            let worked = (interval.thread_ns as f64 / 1e9).min(seconds);
            self.shrink_rate = (self.shrink_rate * (1.0 + SHRINK_RATE_RETURNS * worked)).min(SHRINK_A_SECOND);
            self.shrink(worked * self.shrink_rate * (1.0 - excess / aim), interval.local_bytes);
        }
        self.is_proven |= !is_capped && excess <= self.bound && self.has_shown();
        self.budget()
    }

    /// Whether the program has done enough with its present size to judge that.
    fn has_shown(&self) -> bool {
        self.clock >= self.returning_until && self.recent.seconds() >= SHOWN_SECONDS
    }

    /// What is wanted beyond the cap stays wanted, unless the cap is enough.
    fn judge_cap(&mut self, excess: f64, aim: f64, managed_bytes: u64) {
        if excess > self.bound && !self.is_proven {
            self.wanted = managed_bytes.min(self.ceiling).max(self.cap);
        } else if excess < aim && self.has_shown() {
            self.wanted = self.cap;
            self.is_proven = true;
        }
    }

    /// What it was like with another size says nothing of the new one.
    fn begin_another_size(&mut self) {
        self.returning_until = self.clock + RETURN_SECONDS;
        self.recent = WorkAndStall::default();
    }

    fn grow(&mut self, excess: f64, interval: &Interval) {
        // No larger size helps than one that has room for all.
        let largest = scale(interval.managed_bytes, ROOM_FOR_ALL).clamp(self.floor, self.ceiling);
        if self.wanted >= largest {
            return;
        }
        let was = self.wanted.min(interval.local_bytes.max(self.floor));
        let is_same = |size: &TooSmall| size.bytes.max(was) as f64 / (size.bytes.min(was).max(1) as f64) < SAME_SIZE;
        // Soon after it has grown, the size is too small still, not again.
        let still = self.clock < self.returning_until + RETURN_SECONDS;
        let was_fast = self.shrink_rate >= 2.0 * SHRINK_A_SECOND_MIN;
        if !still {
            self.shrink_rate = (self.shrink_rate / 2.0).max(SHRINK_A_SECOND_MIN);
        }
        let avoided = match self.too_small.filter(is_same) {
            None if was_fast => SLOWED_SECONDS,
            Some(size) if was_fast => size.avoided.max(AVOIDED_SECONDS),
            Some(size) if still => size.avoided,
            Some(size) => (2.0 * size.avoided).min(AVOIDED_SECONDS_MAX),
            None => AVOIDED_SECONDS,
        };
        self.too_small = Some(TooSmall { bytes: was, until: self.clock + avoided, avoided });
        let by = 1.0 + (GROW * excess / self.bound).clamp(GROW / 2.0, GROW_MAX);
        let grown = scale(self.wanted, by);
        // The size that was enough a moment ago, where that is less.
        let grown = self.enough.take().filter(|_| !still).map_or(grown, |enough| grown.min(enough));
        self.wanted = grown.max(scale(self.wanted, 1.0 + GROW / 2.0)).min(largest);
        self.is_proven = false;
        self.begin_another_size();
    }

    fn shrink(&mut self, by: f64, local_bytes: u64) {
        if self.clock < self.returning_until {
            return;
        }
        let held = self.wanted.min(local_bytes);
        self.enough = Some(held);
        let mut budget = scale(held, 1.0 - by.min(0.5));
        if let Some(size) = self.too_small.filter(|size| self.clock < size.until) {
            budget = budget.max(scale(size.bytes, ABOVE_TOO_SMALL));
        }
        self.wanted = budget.clamp(self.floor, self.wanted.max(self.floor));
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn scale(bytes: u64, by: f64) -> u64 {
    (bytes as f64 * by) as u64
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const MIB: u64 = 1 << 20;

    /// A program in virtual time: the stall for each second of work, by the local memory that it has.
    pub struct Program {
        pub level: ServiceLevel,
        pub held: f64,
        seconds: f64,
    }

    impl Program {
        pub fn new(slowdown: f64, ceiling: u64) -> Program {
            Program { level: ServiceLevel::new(slowdown, 16 * MIB, ceiling), held: 0.0, seconds: 0.0 }
        }

        /// Runs for so long. Budgets in MiB, one each half second.
        fn run(&mut self, seconds: f64, size: u64, excess: impl Fn(f64) -> f64) -> Vec<u64> {
            let mut budgets = Vec::new();
            let until = self.seconds + seconds;
            while self.seconds < until {
                budgets.push(self.step(size, &excess) / MIB);
            }
            budgets
        }

        /// Runs for half a second; memory that the budget gives back is fetched at 1 GiB/s of stall. The budget after it, in bytes.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        pub fn step(&mut self, size: u64, excess: impl Fn(f64) -> f64) -> u64 {
            self.seconds += 0.5;
            let wanted = (self.level.budget() as f64).min(size as f64);
            let returned = (wanted - self.held).max(0.0) * f64::from(u8::from(self.seconds > 2.0));
            self.held = wanted;
            let excess = excess(self.held / MIB as f64);
            let returning = (returned / (1u64 << 30) as f64).min(0.25);
            let work = (0.5 - returning) / (1.0 + excess);
            self.level.observe(&Interval {
                elapsed_ns: 500_000_000,
                thread_ns: 500_000_000,
                stall_ns: ((0.5 - work) * 1e9) as u64,
                local_bytes: self.held as u64,
                managed_bytes: size,
            })
        }
    }

    fn median(budgets: &[u64]) -> u64 {
        let mut sorted = budgets.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    }

    #[test]
    fn a_smooth_curve_is_held_near_its_bound() {
        // 0.2 at 250 MiB of 1000.
        let curve = |mib: f64| 0.2 * (1000.0 - mib).max(0.0) / 750.0;
        let mut program = Program::new(1.2, 2048 * MIB);
        let budgets = program.run(120.0, 1000 * MIB, curve);
        let second_half = &budgets[budgets.len() / 2..];
        assert!((250..=450).contains(&median(second_half)), "{second_half:?}");
        assert!(second_half.iter().all(|mib| curve(*mib as f64) <= 0.21), "{second_half:?}");
        assert!(program.level.achieved() <= 1.2, "{}", program.level.achieved());
    }

    #[test]
    fn a_cliff_is_found_and_not_stepped_over_time_and_again() {
        let curve = |mib: f64| if mib < 400.0 { 4.0 } else { 0.0 };
        let mut program = Program::new(1.2, 2048 * MIB);
        let budgets = program.run(240.0, 1000 * MIB, curve);
        let second_half = &budgets[budgets.len() / 2..];
        assert!((400..=500).contains(&median(second_half)), "{second_half:?}");
        let below = second_half.iter().filter(|mib| **mib < 400).count();
        assert!(below <= 6, "{below} of {}", second_half.len());
        assert!(program.level.achieved() <= 1.25, "{}", program.level.achieved());
    }

    #[test]
    fn two_phases_settle_within_20_seconds_each() {
        let phase = |need: f64| move |mib: f64| 0.2 * (need / mib).powi(4);
        let mut program = Program::new(1.2, 2048 * MIB);
        program.run(60.0, 1000 * MIB, phase(300.0));
        let first = program.run(20.0, 1000 * MIB, phase(300.0));
        assert!((300..=400).contains(&median(&first)), "{first:?}");
        program.run(20.0, 1000 * MIB, phase(700.0));
        let second = program.run(40.0, 1000 * MIB, phase(700.0));
        assert!((680..=900).contains(&median(&second)), "{second:?}");
        program.run(20.0, 1000 * MIB, phase(300.0));
        let third = program.run(20.0, 1000 * MIB, phase(300.0));
        assert!((300..=400).contains(&median(&third)), "{third:?}");
    }

    #[test]
    fn memory_that_is_not_needed_goes_down_to_the_floor_and_no_further() {
        let mut program = Program::new(1.05, 512 * MIB);
        let budgets = program.run(120.0, 300 * MIB, |_| 0.0);
        assert_eq!(budgets.last(), Some(&16));
        assert!(budgets.windows(2).all(|pair| pair[1] <= pair[0]), "{budgets:?}");
    }

    #[test]
    fn a_bound_that_no_budget_keeps_is_said_and_the_ceiling_holds() {
        let mut program = Program::new(1.2, 256 * MIB);
        let budgets = program.run(30.0, 1000 * MIB, |_| 2.0);
        assert!(budgets.iter().all(|mib| *mib <= 256));
        assert!(program.level.is_out_of_reach());
        program.level.set_ceiling(128 * MIB);
        assert_eq!(program.level.budget(), 128 * MIB);
    }

    #[test]
    fn no_budget_is_larger_than_what_has_room_for_all() {
        let mut program = Program::new(1.2, 2048 * MIB);
        program.run(10.0, 400 * MIB, |_| 0.0);
        // A stall that no memory mends.
        let budgets = program.run(60.0, 400 * MIB, |_| 2.0);
        assert_eq!(budgets.last(), Some(&450));
        assert!(!program.level.is_out_of_reach(), "a larger ceiling would not help");
    }

    #[test]
    fn an_interval_without_work_changes_nothing() {
        let mut level = ServiceLevel::new(1.2, 16 * MIB, 256 * MIB);
        let idle = Interval { elapsed_ns: 500_000_000, local_bytes: 200 * MIB, ..Interval::default() };
        let budgets: Vec<u64> = (0..100).map(|_| level.observe(&idle)).collect();
        assert_eq!((budgets[0], budgets[99], level.achieved()), (200 * MIB, 200 * MIB, 1.0));
    }
}
