//! The processors of the pager's own threads: how many of them these may take at once (`--cpus`, decision 0087).
//!
//! All own threads are kept to the same few processors, so the kernel runs no more of them at a time, and none waits for another: no lock or
//! turn is on the way of a fault. Each thread keeps itself, before its next piece of work, because a confined process may name no
//! other thread; a thread that sleeps takes no processor. All processes of a run that may use the same processors choose the same of them.

use crate::sys::processors::Processors;
use hinterland_abi::Ledger;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

/// See the module.
pub(crate) struct OwnProcessors {
    ledger: Option<&'static Ledger>,
    /// Processors that may be taken, as the run began; `None`: all.
    of_start: Option<u32>,
    /// What the process might use when the pager was made.
    allowed: Option<Processors>,
}

/// To how many processors a thread is limited; `None`: to no number.
#[derive(Default)]
pub(crate) struct Limited(Cell<Option<u32>>);

impl OwnProcessors {
    /// Those that the calling thread may use, of which `of_start` may be taken until the ledger says otherwise.
    pub(crate) fn new(of_start: Option<u32>, ledger: Option<&'static Ledger>) -> OwnProcessors {
        OwnProcessors { ledger, of_start, allowed: Processors::allowed() }
    }

    /// How many may be taken at once now; `None`: all.
    fn count(&self) -> Option<u32> {
        self.ledger.and_then(|ledger| ledger.commands.cpus()).unwrap_or(self.of_start)
    }

    /// So many of them. Where the first one is, is the run's: runs beside each other take others.
    fn chosen(&self, count: Option<u32>) -> Processors {
        let allowed = self.allowed.unwrap_or(Processors::ALL);
        let run = self.ledger.map_or(0, |ledger| ledger.launcher_pid.load(Relaxed));
        count.map_or(allowed, |count| allowed.part(count as usize, usize::try_from(run).unwrap_or(0)))
    }

    /// Keeps the calling thread to as many as it may take now; true: that has changed.
    pub(crate) fn keep(&self, limited: &Limited) -> bool {
        let count = self.count();
        if count == limited.0.get() {
            return false;
        }
        limited.0.set(count);
        // Refused where the process's cpuset has lost all of them since: the thread stays where it may run.
        self.chosen(count).keep_to();
        true
    }
}

impl Limited {
    /// Whether the thread is limited to a number of processors.
    pub(crate) fn is_bounded(&self) -> bool {
        self.0.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(launcher: i32) -> &'static Ledger {
        // SAFETY: a ledger consists of atomics, which are valid when zero.
        let ledger: &'static Ledger = Box::leak(unsafe { Box::<Ledger>::new_zeroed().assume_init() });
        ledger.launcher_pid.store(launcher, Relaxed);
        ledger
    }

    #[test]
    fn a_thread_follows_what_is_commanded_and_comes_back_to_all() {
        std::thread::spawn(|| {
            let (all, ledger, limited) =
                (Processors::allowed().expect("the kernel says it"), ledger(7), Limited::default());
            let processors = OwnProcessors::new(None, Some(ledger));
            assert!(!processors.keep(&limited) && Processors::allowed() == Some(all), "auto leaves it alone");
            for (commanded, expected) in [(Some(1), all.part(1, 7)), (Some(2), all.part(2, 7)), (None, all)] {
                ledger.commands.set_cpus(commanded);
                assert!(processors.keep(&limited) && !processors.keep(&limited), "{commanded:?}");
                assert_eq!((Processors::allowed(), limited.is_bounded()), (Some(expected), commanded.is_some()));
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn all_processes_of_a_run_choose_the_same_and_the_command_overrides_the_start() {
        let (ledger, limited) = (ledger(1001), Limited::default());
        let processes = [3, 1].map(|of_start| OwnProcessors::new(Some(of_start), Some(ledger)));
        assert_eq!(processes.each_ref().map(OwnProcessors::count), [Some(3), Some(1)]);
        ledger.commands.set_cpus(Some(1));
        let [first, second] = processes.each_ref().map(|processors| processors.chosen(processors.count()));
        assert_eq!((first, first.count()), (second, 1));
        assert!(!limited.is_bounded());
    }
}
