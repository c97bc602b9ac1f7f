//! Threads of a simulation take turns: one runs at a time. Which one goes on is drawn from the seed at each step.
//!
//! A thread that waits registers its condition; the thread that makes it true makes the waiter runnable. When no thread
//! is runnable, time advances to the next moment for which a thread waits. When there is none, or the program makes no
//! progress for long, the simulation has failed.

use super::Kept;
use super::machine::{Chances, Machine};
use super::memory::PLACE_SHIFT;
use hinterland_testkit::Rng;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, Thread, park};
use std::time::{Duration, Instant};

/// Steps that are shown of a failure.
const LAST_STEPS: usize = 80;
/// Steps of a simulation at most.
const STEPS_MAX: u64 = 4_000_000;
/// Simulated time in which the program must get on.
const TIMEOUT: Duration = Duration::from_secs(6);
/// What a step takes.
const STEP_NS: u64 = 50;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Nothing: it can run.
    Nothing,
    /// That its page is there, or that it is woken to look again: by the faulting address.
    Fault(usize),
    /// That the word at this address is woken.
    Futex(usize),
    /// A fault to serve.
    Message,
    /// Time alone.
    Time,
    /// The end of a thread.
    End(usize),
}

struct Member {
    name: &'static str,
    thread: Option<Thread>,
    turn: Arc<AtomicBool>,
    waits: Wait,
    /// When it stops waiting whatever happens.
    until_ns: Option<u64>,
    /// The lock that it has found locked, by address.
    lock: Option<usize>,
    /// It has given its turn away: others come first.
    yielded: bool,
    /// It has a real-time priority on the one processor that all threads are kept to: whenever it can run, no other does.
    is_first: bool,
    /// The thread whose thread-local storage it has.
    storage_of: usize,
    ended: bool,
}

struct Step {
    at_ns: u64,
    member: usize,
    what: &'static str,
    on: usize,
}

/// Steps that are too many to be shown.
pub(crate) const A_WORD: &str = "a word";

/// All that is simulated. Threads take it for moments between two steps.
pub(crate) struct State {
    pub(crate) machine: Machine,
    pub(crate) random: Rng,
    pub(crate) kept: Vec<Kept>,
    members: Vec<Member>,
    handles: Vec<JoinHandle<()>>,
    now_ns: u64,
    steps: u64,
    /// Of all steps: two runs of one seed have the same.
    digest: u64,
    last: VecDeque<Step>,
    failure: Option<String>,
    /// All threads are to end.
    ends: bool,
    /// At a step that is not a word's another thread may go on with this chance, one in so many; at a word's, of which there are
    /// many more, with an eighth of it.
    switch_one_in: u64,
    progress_ns: u64,
    /// The page of the first region, by number, on which the machine worked last.
    pub(crate) recent: usize,
}

/// A simulation as its threads know it.
pub(crate) struct Simulation {
    state: Mutex<State>,
    born: Instant,
}

/// What became of a simulation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) steps: u64,
    pub(crate) digest: u64,
    /// What went wrong, and the last steps.
    pub(crate) failure: Option<String>,
}

/// The simulation of the calling thread, and which of its threads that is.
#[derive(Clone)]
pub(crate) struct Current {
    simulation: Arc<Simulation>,
    id: usize,
}

/// Ends a thread of a simulation that is over.
struct Over;

thread_local! {
    static CURRENT: OnceCell<Current> = const { OnceCell::new() };
}

/// The simulation of the calling thread, if it is in one.
pub(crate) fn current() -> Option<Current> {
    CURRENT.try_with(|current| current.get().cloned()).ok().flatten()
}

/// Runs `body` as the first thread of a simulation; the simulation ends with it, and so do its other threads.
pub(crate) fn simulate(seed: u64, chances: Chances, body: impl FnOnce(&Current) + Send + 'static) -> Report {
    let mut random = Rng(seed ^ 0x51_6d75_6c61_7465);
    let switch_one_in = [2, 3, 5, 12][random.index(4)];
    let state = State {
        machine: Machine::new(chances),
        random,
        kept: Vec::new(),
        members: Vec::new(),
        handles: Vec::new(),
        now_ns: 0,
        steps: 0,
        digest: 0,
        last: VecDeque::with_capacity(LAST_STEPS),
        failure: None,
        ends: false,
        switch_one_in,
        progress_ns: 0,
        recent: 0,
    };
    let simulation = Arc::new(Simulation { state: Mutex::new(state), born: Instant::now() });
    simulation.add("main", move || {
        let current = current().expect("the thread is in a simulation");
        body(&current);
        current.with(|state| state.ends = true);
    });
    simulation.pass_turn(simulation.lock(), 0);
    // Threads may start others until the last one has ended.
    loop {
        let Some(handle) = simulation.lock().handles.pop() else { break };
        handle.join().expect("a simulated thread catches its panics");
    }
    let (report, kept, machine) = {
        let mut state = simulation.lock();
        let failure = state.failure.take();
        let report = Report { steps: state.steps, digest: state.digest, failure };
        (report, std::mem::take(&mut state.kept), std::mem::take(&mut state.machine))
    };
    // The newest first: rooms refer to those below them.
    kept.into_iter().rev().for_each(drop);
    drop(machine);
    report
}

impl State {
    /// Notes a step: what, and on which page, slot or thread.
    fn note(&mut self, member: usize, what: &'static str, on: usize) {
        self.steps += 1;
        self.now_ns += STEP_NS;
        let on = self.machine.memory.place(on);
        if on >> PLACE_SHIFT == 1 {
            self.recent = on & ((1 << PLACE_SHIFT) - 1);
        }
        let name = what.bytes().fold(0u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        let step = name ^ (member as u64) << 56 ^ (on as u64) << 20;
        self.digest = (self.digest.rotate_left(5) ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if what != A_WORD {
            if self.last.len() == LAST_STEPS {
                self.last.pop_front();
            }
            self.last.push_back(Step { at_ns: self.now_ns, member, what, on });
        }
        if self.steps > STEPS_MAX {
            self.fail(format!("no end after {STEPS_MAX} steps"));
        }
    }

    /// The simulation has failed: all threads end.
    pub(crate) fn fail(&mut self, failure: String) {
        if self.failure.is_none() {
            self.failure = Some(self.told(&failure));
        }
        self.ends = true;
    }

    /// A failure, with what each thread waits for and the last steps.
    fn told(&self, failure: &str) -> String {
        let mut text = format!("{failure}\nthreads:");
        for (id, member) in self.members.iter().enumerate() {
            let state = if member.ended { "ended".into() } else { format!("{:?}", member.waits) };
            write!(text, "\n  {id} {} {state}", member.name).expect("a string takes all");
        }
        text.push_str("\nthe last steps:");
        for step in &self.last {
            let name = self.members[step.member].name;
            write!(text, "\n  {:>9} ns  {} {name}: {} {:#x}", step.at_ns, step.member, step.what, step.on)
                .expect("a string takes all");
        }
        text
    }

    /// One in `many`, drawn.
    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        many != 0 && self.random.below(many) == 0
    }

    /// What a thread waits for; `None`: it has ended.
    pub(crate) fn waits_of(&self, id: usize) -> Option<Wait> {
        let member = &self.members[id];
        let waits = member.lock.map_or(member.waits, Wait::Futex);
        (!member.ended).then_some(waits)
    }

    /// The program has got on.
    pub(crate) fn progress(&mut self) {
        self.progress_ns = self.now_ns;
    }

    fn wakes_now(&mut self) {
        for member in &mut self.members {
            if !member.ended && member.until_ns.is_some_and(|until| until <= self.now_ns) {
                (member.waits, member.until_ns) = (Wait::Nothing, None);
            }
        }
    }

    /// Makes threads runnable that wait for something that `is_true` now; how many.
    pub(crate) fn wake(&mut self, is_true: impl Fn(Wait) -> bool) -> usize {
        let mut woken = 0;
        for member in &mut self.members {
            if member.waits != Wait::Nothing && is_true(member.waits) {
                (member.waits, member.until_ns) = (Wait::Nothing, None);
                woken += 1;
            }
        }
        woken
    }

    /// The thread that goes on. `None`: all have ended.
    fn next(&mut self) -> Option<usize> {
        loop {
            let alive = |(_, member): &(usize, &Member)| !member.ended;
            if self.ends {
                return self.members.iter().enumerate().find(alive).map(|(id, _)| id);
            }
            self.wakes_now();
            let goes_first = |member: &Member| {
                member.is_first && !member.ended && member.waits == Wait::Nothing && member.lock.is_none()
            };
            if let Some(id) = self.members.iter().position(goes_first) {
                return Some(id);
            }
            let (first, all) = (self.runnable(false).count(), self.runnable(true).count());
            if first > 0 {
                let at = self.random.index(first);
                return self.runnable(false).nth(at);
            }
            if all > 0 {
                // Each of them waits for what another one does: time must go on for that.
                self.now_ns += 100 * STEP_NS;
                let at = self.random.index(all);
                self.out_of_patience();
                if !self.ends {
                    return self.runnable(true).nth(at);
                }
                continue;
            }
            match self.members.iter().filter(|member| !member.ended).filter_map(|member| member.until_ns).min() {
                Some(until) => self.now_ns = self.now_ns.max(until),
                None => self.fail("every thread waits".into()),
            }
            self.out_of_patience();
        }
    }

    /// Threads that can run, those that have given their turn away too or not.
    fn runnable(&self, yielded: bool) -> impl Iterator<Item = usize> {
        let can = move |member: &Member| !member.ended && member.waits == Wait::Nothing && (yielded || !member.yielded);
        self.members.iter().enumerate().filter(move |(_, member)| can(member)).map(|(id, _)| id)
    }

    fn out_of_patience(&mut self) {
        if Duration::from_nanos(self.now_ns - self.progress_ns) > TIMEOUT {
            self.fail(format!("the program has not got on for {TIMEOUT:?}"));
        }
    }
}

impl Simulation {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panics while it holds it has said what is wrong, and the others only end.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a thread, which runs when its turn comes.
    fn add(self: &Arc<Simulation>, name: &'static str, body: impl FnOnce() + Send + 'static) -> usize {
        let turn = Arc::new(AtomicBool::new(false));
        let mut state = self.lock();
        let id = state.members.len();
        state.members.push(Member {
            name,
            thread: None,
            turn: Arc::clone(&turn),
            waits: Wait::Nothing,
            until_ns: None,
            lock: None,
            yielded: false,
            is_first: false,
            storage_of: id,
            ended: false,
        });
        let current = Current { simulation: Arc::clone(self), id };
        let run = move || {
            CURRENT.with(|cell| assert!(cell.set(current.clone()).is_ok(), "a thread is in one simulation"));
            wait_for(&turn);
            let begins = !current.simulation.lock().ends;
            let outcome = if begins { catch_unwind(AssertUnwindSafe(body)) } else { Ok(()) };
            current.end(outcome.err());
        };
        let made = std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("a thread can be started");
        state.members[id].thread = Some(made.thread().clone());
        state.handles.push(made);
        id
    }

    /// Gives the turn to a thread.
    fn pass_turn(&self, state: MutexGuard<'_, State>, to: usize) {
        let member = &state.members[to];
        let (turn, thread) = (Arc::clone(&member.turn), member.thread.clone().expect("it was started"));
        drop(state);
        turn.store(true, SeqCst);
        thread.unpark();
    }
}

fn wait_for(turn: &AtomicBool) {
    while !turn.swap(false, SeqCst) {
        park();
    }
}

impl Current {
    /// Which thread of the simulation this is.
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// Looks at what is simulated, or changes it, between two steps.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.simulation.lock())
    }

    /// The time.
    pub(crate) fn now(&self) -> Instant {
        self.simulation.born + self.elapsed()
    }

    /// Time since the simulation began.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.with(|state| state.now_ns))
    }

    /// A step: others may come before it.
    pub(crate) fn step(&self, what: &'static str, on: usize) {
        if std::thread::panicking() {
            return;
        }
        let mut state = self.simulation.lock();
        state.note(self.id, what, on);
        for member in &mut state.members {
            member.yielded = false;
        }
        let switches = state.switch_one_in * if what == A_WORD { 8 } else { 1 };
        if state.ends || state.one_in(switches) {
            self.pass_on(state);
        }
    }

    /// The thread can do nothing before others have done something.
    pub(crate) fn yield_now(&self, what: &'static str) {
        if std::thread::panicking() {
            return;
        }
        let mut state = self.simulation.lock();
        state.note(self.id, what, 0);
        state.members[self.id].yielded = true;
        self.pass_on(state);
    }

    /// From now on no other thread runs whenever this one can. (Where it waits for a lock it sleeps, as in a futex.)
    pub(crate) fn has_real_time_priority(&self) {
        self.with(|state| state.members[self.id].is_first = true);
    }

    /// From now on the thread has the thread-local storage of another one.
    pub(crate) fn has_the_storage_of(&self, other: usize) {
        self.with(|state| state.members[self.id].storage_of = other);
    }

    /// The thread whose thread-local storage this one has.
    pub(crate) fn storage_of(&self) -> usize {
        self.with(|state| state.members[self.id].storage_of)
    }

    /// Notes the lock that the thread waits for.
    pub(crate) fn waits_for_lock(&self, lock: Option<usize>) {
        self.with(|state| state.members[self.id].lock = lock);
    }

    /// Waits, at most for so long.
    pub(crate) fn wait(&self, what: Wait, limit: Option<Duration>) {
        if std::thread::panicking() {
            return;
        }
        let mut state = self.simulation.lock();
        let limit_ns = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let until_ns = limit_ns.map(|ns| state.now_ns.saturating_add(ns));
        let member = &mut state.members[self.id];
        (member.waits, member.until_ns) = (what, until_ns);
        self.pass_on(state);
    }

    /// Passes the turn to the thread that goes on, and waits for the next one.
    fn pass_on<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        let next = state.next().expect("this thread has not ended");
        if next != self.id {
            let turn = Arc::clone(&state.members[self.id].turn);
            self.simulation.pass_turn(state, next);
            wait_for(&turn);
            state = self.simulation.lock();
        }
        if state.ends {
            drop(state);
            resume_unwind(Box::new(Over));
        }
    }

    /// The thread has ended, perhaps by a panic.
    fn end(&self, panic: Option<Box<dyn std::any::Any + Send>>) {
        let mut state = self.simulation.lock();
        if let Some(panic) = panic.filter(|panic| !panic.is::<Over>()) {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
            let name = state.members[self.id].name;
            state.fail(format!("thread {} ({name}): {}", self.id, words.unwrap_or_default()));
        }
        state.members[self.id].ended = true;
        let id = self.id;
        state.wake(|waits| waits == Wait::End(id));
        if let Some(next) = state.next() {
            self.simulation.pass_turn(state, next);
        }
    }

    /// Starts a thread.
    pub(crate) fn spawn(&self, name: &'static str, body: impl FnOnce() + Send + 'static) -> usize {
        self.step("starts a thread", 0);
        self.simulation.add(name, body)
    }

    /// Waits for the end of a thread.
    pub(crate) fn join(&self, id: usize) {
        while !self.with(|state| state.members[id].ended) {
            self.wait(Wait::End(id), None);
        }
    }

    /// Ends the simulation: something is wrong.
    pub(crate) fn fail(&self, failure: String) -> ! {
        self.with(|state| state.fail(failure));
        resume_unwind(Box::new(Over))
    }
}
