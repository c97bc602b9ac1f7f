//! The simulated machine itself: it finds what it is there to find, and answers as the kernel does.

use super::turns::Wait;
use super::{Chances, Current, Report, current, simulate};
use crate::sys::gate::{futex_wait, futex_wake};
use crate::sys::sync::Mutex;
use crate::sys::uffd::{Message, Partial};
use crate::sys::{Mapping, Uffd, mem};
use hinterland_units::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

fn simulated(seed: u64, body: impl FnOnce(&Current) + Send + 'static) -> Report {
    simulate(seed, Chances::default(), body)
}

/// A range that userfaultfd serves, and one that it does not.
fn ranges(current: &Current, pages: usize) -> (usize, usize) {
    let [served, plain] = [(); 2].map(|()| Mapping::anonymous(pages * PAGE_BYTES).unwrap().start);
    Uffd::Simulated.register(served, pages * PAGE_BYTES, true).unwrap();
    current.with(|state| assert!(state.machine.memory.page(served).is_some_and(|page| page.registered)));
    (served, plain)
}

#[test]
fn a_word_that_nobody_wakes_is_found() {
    let report = simulated(1, |_| futex_wait(&AtomicU32::new(7), 7));
    assert!(report.failure.is_some_and(|failure| failure.contains("every thread waits")));
}

#[test]
fn a_thread_that_gives_its_turn_away_for_ever_is_found() {
    let report = simulated(1, |current| {
        loop {
            current.yield_now("looks again");
        }
    });
    assert!(report.failure.is_some_and(|failure| failure.contains("has not got on")));
}

/// Two threads that count with a load and a store: some seeds lose a count, and a seed always the same.
#[test]
fn seeds_differ_in_the_order_of_steps_and_repeat_it() {
    let counted = |seed| {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let report = simulated(seed, move |current| {
            let threads = [(); 2].map(|()| {
                let counter = Arc::clone(&counter);
                current.spawn("counts", move || {
                    let seen = counter.load(SeqCst);
                    super::current().expect("a simulated thread").step("is between", seen);
                    counter.store(seen + 1, SeqCst);
                })
            });
            threads.into_iter().for_each(|thread| current.join(thread));
        });
        assert_eq!(report.failure, None);
        (count.load(SeqCst), report.digest)
    };
    let all: Vec<_> = (0..40).map(counted).collect();
    assert!(all.iter().any(|(count, _)| *count == 1) && all.iter().any(|(count, _)| *count == 2));
    assert_eq!(all, (0..40).map(counted).collect::<Vec<_>>());
}

#[test]
fn locks_exclude_each_other() {
    for seed in 0..20 {
        let report = simulated(seed, |current| {
            let lock = Arc::new(Mutex::new(0));
            let threads = [(); 3].map(|()| {
                let lock = Arc::clone(&lock);
                current.spawn("locks", move || {
                    let mut count = lock.lock().unwrap();
                    let seen = *count;
                    super::current().expect("a simulated thread").step("is between", seen);
                    *count = seen + 1;
                })
            });
            threads.into_iter().for_each(|thread| current.join(thread));
            assert_eq!(*lock.lock().unwrap(), 3);
        });
        assert_eq!(report.failure, None);
    }
}

#[test]
fn a_panic_in_any_thread_is_the_failure() {
    let report = simulated(3, |current| {
        current.spawn("fails", || panic!("on purpose"));
        current.wait(Wait::Futex(0), None);
    });
    assert!(report.failure.is_some_and(|failure| failure.contains("(fails): on purpose")));
}

#[test]
fn transfers_answer_as_the_kernel_does() {
    let report = simulated(1, |current| {
        let (at, from) = ranges(current, 4);
        let page = |index: usize| at + index * PAGE_BYTES;
        // SAFETY: pages of this test.
        unsafe {
            (from as *mut u64).write(5);
            let copied = Uffd::Simulated.copy(page(1), from as *const u8, PAGE_BYTES);
            assert_eq!(copied, Ok(()));
            let again = Uffd::Simulated.copy(page(0), from as *const u8, 2 * PAGE_BYTES);
            assert_eq!(again, Err(Partial { done: PAGE_BYTES, errno: libc::EEXIST }));
            assert_eq!(Uffd::Simulated.move_pages(page(2), page(1), PAGE_BYTES), Ok(()));
            let missing = Uffd::Simulated.move_pages(page(3), page(1), PAGE_BYTES);
            assert_eq!(missing, Err(Partial { done: 0, errno: libc::ENOENT }));
            let taken = Uffd::Simulated.move_pages(page(0), page(2), PAGE_BYTES);
            assert_eq!(taken, Err(Partial { done: 0, errno: libc::EEXIST }));
            mem::protect(page(2), PAGE_BYTES, libc::PROT_READ).unwrap();
            let closed = Uffd::Simulated.move_pages(page(3), page(2), PAGE_BYTES);
            assert_eq!(closed, Err(Partial { done: 0, errno: libc::EINVAL }));
        }
        assert_eq!((current.load(page(2)), mem::is_in_memory(page(3))), (5, false));
    });
    assert_eq!(report.failure, None);
}

/// A write to a protected page is a message, and lifting the protection lets the thread go on.
#[test]
fn a_fault_waits_until_it_is_served() {
    for seed in 0..20 {
        let report = simulated(seed, |current| {
            let (at, from) = ranges(current, 1);
            let writer = current.spawn("writes", move || super::current().expect("a simulated thread").store(at, 9));
            let mut messages = [Message::EMPTY];
            assert_eq!(Uffd::Simulated.read(&mut messages), Ok(1));
            let fault = messages[0].fault().unwrap();
            assert_eq!((fault.address, fault.write, fault.write_protected), (at, true, false));
            // SAFETY: the page is missing.
            unsafe { Uffd::Simulated.copy(at, from as *const u8, PAGE_BYTES) }.unwrap();
            Uffd::Simulated.write_protect(at, PAGE_BYTES, true).unwrap();
            Uffd::Simulated.wake(at, PAGE_BYTES);
            for _ in 0..50 {
                current.step("lets the writer go on", 0);
            }
            Uffd::Simulated.write_protect(at, PAGE_BYTES, false).unwrap();
            futex_wake(&AtomicU32::new(0));
            current.join(writer);
            assert_eq!(current.load(at), 9);
        });
        assert_eq!(report.failure, None, "seed {seed}");
    }
    assert!(current().is_none());
}
