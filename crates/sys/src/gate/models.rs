//! All orders of the steps of threads that pass the gate and close it, tried by Loom. Run with `--features loom`.

use ::loom::sync::atomic;

#[path = "count.rs"]
mod count;

use ::loom::sync::Arc;
use ::loom::{lazy_static, thread};
use atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use count::{Count, Sleep};

lazy_static! {
    static ref SLEEPERS: (::loom::sync::Mutex<()>, ::loom::sync::Condvar) = Default::default();
}

/// As the kernel has threads sleep on a word.
struct Futex;

impl Sleep for Futex {
    fn wait(word: &AtomicU32, value: u32) {
        let asleep = SLEEPERS.0.lock().expect("no thread panics here");
        if word.load(SeqCst) == value {
            drop(SLEEPERS.1.wait(asleep).expect("no thread panics here"));
        }
    }

    fn wake(_: &AtomicU32) {
        let _asleep = SLEEPERS.0.lock().expect("no thread panics here");
        SLEEPERS.1.notify_all();
    }
}

fn in_all_orders(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Passes the gate, and sees no thread in it that has closed it.
fn pass(gate: &Count<Futex>, is_closed: &AtomicBool) {
    gate.enter();
    assert!(!is_closed.load(Relaxed), "a thread is inside although the gate is closed");
    gate.leave();
}

/// Closes the gate, and opens it again.
fn fork(gate: &Count<Futex>, is_closed: &AtomicBool) {
    gate.close();
    assert!(!is_closed.swap(true, Relaxed), "two threads have closed the gate");
    is_closed.store(false, Relaxed);
    gate.open();
}

#[test]
fn nobody_is_inside_while_the_gate_is_closed_and_all_get_on() {
    in_all_orders(|| {
        let both = Arc::new((Count::<Futex>::new(), AtomicBool::new(false)));
        let others = [(); 2].map(|()| {
            let both = Arc::clone(&both);
            thread::spawn(move || pass(&both.0, &both.1))
        });
        fork(&both.0, &both.1);
        others.into_iter().for_each(|other| other.join().expect("it ends"));
        assert!(!both.0.is_entered());
    });
}

#[test]
fn closers_follow_each_other() {
    in_all_orders(|| {
        let both = Arc::new((Count::<Futex>::new(), AtomicBool::new(false)));
        let other = {
            let both = Arc::clone(&both);
            thread::spawn(move || fork(&both.0, &both.1))
        };
        let passes = {
            let both = Arc::clone(&both);
            thread::spawn(move || pass(&both.0, &both.1))
        };
        fork(&both.0, &both.1);
        other.join().expect("it ends");
        passes.join().expect("it ends");
        assert!(!both.0.is_closing());
    });
}
