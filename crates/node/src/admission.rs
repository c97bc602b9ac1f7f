//! Admission: divides the node's processors among tenants that request more than they can serve.
//!
//! Each lane is a thread, and the kernel divides the processors among threads: a tenant with 48 lanes would get 48 times what
//! a tenant with one gets. So while several tenants are busy, each may carry out only so many requests at a time as it has processors
//! in its share:
//! ```text
//! bound = max(1, processors / busy tenants);    one busy tenant: no bound
//! ```
//! Then no more threads work than there are processors, or one for each tenant, and the kernel divides the processors
//! evenly among them. At its bound a tenant's most urgent request goes first, of those the oldest; one that has waited
//! for `OLD` is as urgent as any, because a client takes a silent node for lost. A lane that goes on working may
//! overtake its equals: handing a permit to a sleeping thread costs more than the request.
//!
//! **Invariant**: a thread with a permit waits for no connection, and requests wait for permits of their own tenant
//! only. There is no global lock: tenants share one counter.

use hinterland_wire::Priority;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

/// See [`Processors::old`].
const OLD: Duration = Duration::from_millis(50);

/// What the tenants of a node share.
#[derive(Debug)]
pub(crate) struct Processors {
    count: usize,
    /// Tenants with requests that are carried out, or wait for it.
    busy: AtomicUsize,
    /// Time after which a request is urgent, whatever it is for.
    old: Duration,
}

impl Processors {
    pub(crate) fn new(count: usize) -> Processors {
        Processors { count, busy: AtomicUsize::new(0), old: OLD }
    }

    /// Requests that each tenant may have in hand now.
    fn bound(&self) -> usize {
        match self.busy.load(SeqCst) {
            0 | 1 => usize::MAX,
            busy => (self.count / busy).max(1),
        }
    }
}

/// The requests of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Requests that are carried out, or wait for it.
    present: AtomicUsize,
    running: AtomicUsize,
    waiting: AtomicUsize,
    queue: Mutex<Vec<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    priority: Priority,
    since: Instant,
}

/// The right to carry out a request, until it is dropped.
pub(crate) struct Permit<'a> {
    admission: &'a Admission,
    processors: &'a Processors,
}

impl Admission {
    /// Waits until one more request may be carried out.
    pub(crate) fn admit<'a>(&'a self, processors: &'a Processors, priority: Priority) -> Permit<'a> {
        self.enter(processors);
        if self.waiting.load(SeqCst) > 0 || !self.run(processors) {
            self.wait(processors, priority);
        }
        Permit { admission: self, processors }
    }

    /// One more is there; its permit counts it out.
    fn enter(&self, processors: &Processors) {
        if self.present.fetch_add(1, SeqCst) == 0 {
            processors.busy.fetch_add(1, SeqCst);
        }
    }

    /// One more is carried out, unless there are too many.
    fn run(&self, processors: &Processors) -> bool {
        let bound = processors.bound();
        self.running.fetch_update(SeqCst, SeqCst, |running| (running < bound).then(|| running + 1)).is_ok()
    }

    fn wait(&self, processors: &Processors, priority: Priority) {
        let thread = std::thread::current();
        let (me, since) = (thread.id(), Instant::now());
        let mut queue = self.queue();
        queue.push(Waiter { thread, priority, since });
        // Before looking: who drops a permit from now on sees that somebody waits.
        self.waiting.fetch_add(1, SeqCst);
        while !(may_run(&queue, me, processors.old) && self.run(processors)) {
            // Who became the next one since we were woken is to know.
            self.wake(&queue, processors);
            drop(queue);
            std::thread::park();
            queue = self.queue();
        }
        queue.retain(|waiter| waiter.thread.id() != me);
        self.waiting.fetch_sub(1, SeqCst);
        self.wake(&queue, processors);
    }

    /// Wakes the next one, if there is room for it.
    fn wake(&self, queue: &[Waiter], processors: &Processors) {
        if self.running.load(SeqCst) < processors.bound()
            && let Some(next) = next(queue, Instant::now(), processors.old)
        {
            next.thread.unpark();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let Permit { admission, processors } = *self;
        admission.running.fetch_sub(1, SeqCst);
        if admission.waiting.load(SeqCst) > 0 {
            admission.wake(&admission.queue(), processors);
        }
        if admission.present.fetch_sub(1, SeqCst) == 1 {
            processors.busy.fetch_sub(1, SeqCst);
        }
    }
}

/// How urgent it is now.
fn urgency(waiter: &Waiter, now: Instant, old: Duration) -> Priority {
    if now.saturating_duration_since(waiter.since) >= old { Priority::Demand } else { waiter.priority }
}

/// The request that is admitted next.
fn next(queue: &[Waiter], now: Instant, old: Duration) -> Option<&Waiter> {
    queue.iter().min_by_key(|waiter| (urgency(waiter, now, old), waiter.since))
}

/// Whether the request of a thread may be carried out before the next one: it is that, or as urgent, and nobody has waited for long.
fn may_run(queue: &[Waiter], me: ThreadId, old: Duration) -> bool {
    let now = Instant::now();
    let mine = queue.iter().find(|waiter| waiter.thread.id() == me).expect("it waits");
    let next = next(queue, now, old).expect("one waits");
    let is_fresh = now.saturating_duration_since(next.since) < old;
    next.thread.id() == me || is_fresh && urgency(mine, now, old) <= next.priority
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_until(holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(300), "a hang");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_tenant_alone_has_no_bound_and_several_have_their_part() {
        let processors = Processors::new(6);
        let (a, b, c) = (Admission::default(), Admission::default(), Admission::default());
        let alone: Vec<Permit<'_>> = (0..50).map(|_| a.admit(&processors, Priority::WriteBack)).collect();
        assert_eq!(processors.bound(), usize::MAX);
        let _others = [b.admit(&processors, Priority::Demand), c.admit(&processors, Priority::Demand)];
        assert_eq!(processors.bound(), 2);
        assert!(!a.run(&processors) && b.run(&processors) && !b.run(&processors));
        drop(alone);
        assert_eq!((processors.bound(), a.run(&processors)), (3, true));
        let few = Processors::new(1);
        let _permits = [a.admit(&few, Priority::Demand), c.admit(&few, Priority::Demand)];
        assert!(few.bound() >= 1);
    }

    /// A lane that always has a next request, which takes `WORK` ticks of a processor.
    #[derive(Default)]
    struct Lane<'a> {
        permit: Option<Permit<'a>>,
        left: usize,
    }

    const WORK: usize = 5;

    /// Requests of the first tenant, on one lane, and of the second, on `lanes`, that are carried out in so many `ticks` on so many processors,
    /// which the kernel gives to the runnable threads in turn.
    fn divided(count: usize, lanes: usize, ticks: usize) -> [usize; 2] {
        let processors = Processors::new(count);
        let tenants = [Admission::default(), Admission::default()];
        let mut all: Vec<(usize, Lane<'_>)> =
            (0..=lanes).map(|lane| (usize::from(lane > 0), Lane::default())).collect();
        all.iter().for_each(|(tenant, _)| tenants[*tenant].enter(&processors));
        let (mut done, mut turn) = ([0, 0], 0);
        for _ in 0..ticks {
            for (tenant, lane) in all.iter_mut().filter(|(_, lane)| lane.permit.is_none()) {
                let admission = &tenants[*tenant];
                if admission.run(&processors) {
                    *lane = Lane { permit: Some(Permit { admission, processors: &processors }), left: WORK };
                }
            }
            let runnable: Vec<usize> = (0..all.len()).filter(|lane| all[*lane].1.permit.is_some()).collect();
            for step in 0..count.min(runnable.len()) {
                let (tenant, lane) = &mut all[runnable[(turn + step) % runnable.len()]];
                lane.left -= 1;
                if lane.left == 0 {
                    done[*tenant] += 1;
                    // The next one is there before this one's permit is given back.
                    tenants[*tenant].enter(&processors);
                    lane.permit = None;
                }
            }
            turn += count;
        }
        done
    }

    /// In virtual time: nothing of this machine is measured.
    #[test]
    fn beside_any_number_of_lanes_a_tenant_has_what_it_has_beside_one() {
        for count in [1, 2, 3, 4, 8] {
            let [beside_one, equal] = divided(count, 1, 20_000);
            assert!(beside_one * 10 >= equal * 9, "{count} processors: {beside_one} and {equal}");
            for lanes in [2, 48, 1000] {
                let [meek, greedy] = divided(count, lanes, 20_000);
                // It should be the same; when every lane is equal it is less than a quarter.
                assert!(
                    meek * 10 >= beside_one * 3,
                    "{count} processors: {meek} beside {lanes} lanes, {beside_one} beside one"
                );
                assert!(greedy > 0, "{count} processors: nothing for who has {lanes} lanes");
            }
        }
    }

    #[test]
    fn urgent_requests_overtake_and_none_waits_for_ever() {
        let queue = |rows: &[(Priority, u64)], now: Instant| -> Vec<Waiter> {
            let waiter = |(priority, ago): &(Priority, u64)| {
                let since = now - Duration::from_millis(*ago);
                Waiter { thread: std::thread::current(), priority: *priority, since }
            };
            rows.iter().map(waiter).collect()
        };
        let now = Instant::now() + Duration::from_secs(1);
        for (rows, first) in [
            (
                &[(Priority::Migration, 9), (Priority::WriteBack, 8), (Priority::Prefetch, 7), (Priority::Demand, 1)][..],
                3,
            ),
            (&[(Priority::Demand, 3), (Priority::Demand, 4)], 1),
            (&[(Priority::Demand, 49), (Priority::Migration, 51)], 1),
            (&[(Priority::Migration, 49), (Priority::Prefetch, 2)], 1),
        ] {
            let queue = queue(rows, now);
            assert!(std::ptr::eq(next(&queue, now, OLD).expect("some"), &raw const queue[first]), "{rows:?}");
        }
    }

    /// However long it takes, none is old.
    #[test]
    fn at_the_bound_the_most_urgent_is_the_next() {
        let processors = Processors { old: Duration::MAX, ..Processors::new(1) };
        let (busy, other) = (Admission::default(), Admission::default());
        let _other = other.admit(&processors, Priority::Demand);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let first = busy.admit(&processors, Priority::Demand);
            let kinds = [Priority::WriteBack, Priority::Demand, Priority::Prefetch];
            for (count, priority) in kinds.into_iter().enumerate() {
                let (busy, processors, order) = (&busy, &processors, &order);
                scope.spawn(move || {
                    let permit = busy.admit(processors, priority);
                    order.lock().unwrap().push(priority);
                    drop(permit);
                });
                wait_until(|| busy.waiting.load(SeqCst) == count + 1);
            }
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), [Priority::Demand, Priority::Prefetch, Priority::WriteBack]);
        assert!(!busy.queue().iter().any(|_| true));
    }

    #[test]
    fn everybody_is_admitted_and_no_tenant_more_than_its_part() {
        let processors = Processors::new(4);
        let tenants = [Admission::default(), Admission::default()];
        std::thread::scope(|scope| {
            // Both are busy all the time.
            let _held = tenants.each_ref().map(|tenant| tenant.admit(&processors, Priority::Demand));
            let threads: Vec<_> = (0..12usize)
                .map(|thread| {
                    let (tenants, processors) = (&tenants, &processors);
                    scope.spawn(move || {
                        let kinds = [Priority::Demand, Priority::Prefetch, Priority::WriteBack, Priority::Migration];
                        for step in 0..3000 {
                            let tenant = &tenants[thread % 2];
                            let permit = tenant.admit(processors, kinds[(thread + step) % 4]);
                            assert!(tenant.running.load(SeqCst) <= 2, "more than half of four");
                            if step % 16 == 0 {
                                std::thread::yield_now();
                            }
                            drop(permit);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        for tenant in &tenants {
            assert_eq!((tenant.running.load(SeqCst), tenant.waiting.load(SeqCst)), (0, 0));
        }
        assert_eq!(processors.busy.load(SeqCst), 0);
    }
}
