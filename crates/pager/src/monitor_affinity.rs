//! The processor affinity of a monitor: it runs on the processor of the thread that faults, while one thread causes all faults.
//!
//! A thread that faults goes to sleep and wakes a monitor. On the same processor that is one switch; on another one it is an
//! interrupt to a processor that may have to leave its idle state, twice for each fault. When several threads fault, the
//! monitor leaves its placement to the scheduler.

use crate::sys::thread;

/// Faults of one thread in a row before its processor is looked up (again): the look-up costs about 3 µs.
const ROW: u32 = 64;
/// Faults of other threads, within a row, that unpin the monitor.
const OTHERS: u32 = 8;

/// See the module. One for each monitor.
#[derive(Default)]
pub(crate) struct MonitorAffinity {
    leader: u32,
    row: u32,
    others: u32,
    pinned: Option<usize>,
}

/// What a monitor should do about its affinity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Advice {
    Stay,
    LookAt(u32),
    Roam,
}

impl MonitorAffinity {
    /// `thread` faulted, and waits. `processor_of` says where a thread last ran.
    pub(crate) fn faulted(&mut self, thread: u32, processor_of: fn(u32) -> Option<usize>) {
        match self.advise(thread) {
            Advice::Stay => {}
            Advice::LookAt(leader) => {
                let processor = processor_of(leader);
                if processor.is_some() && processor != self.pinned && thread::run_on(processor) {
                    self.pinned = processor;
                }
            }
            Advice::Roam => {
                thread::run_on(None);
                self.pinned = None;
            }
        }
    }

    fn advise(&mut self, thread: u32) -> Advice {
        if thread == self.leader {
            self.row += 1;
            if self.row < ROW {
                return Advice::Stay;
            }
            (self.row, self.others) = (0, 0);
            return if thread == 0 { Advice::Stay } else { Advice::LookAt(thread) };
        }
        self.others += 1;
        if self.others < OTHERS {
            return Advice::Stay;
        }
        (self.leader, self.row, self.others) = (thread, 0, 0);
        if self.pinned.is_some() { Advice::Roam } else { Advice::Stay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monitor_is_pinned_beside_one_thread_and_not_beside_several() {
        let mut affinity = MonitorAffinity::default();
        let mut looks = 0;
        for _ in 0..1000 {
            looks += u32::from(matches!(affinity.advise(7), Advice::LookAt(7)));
        }
        assert!((14..=16).contains(&looks), "{looks}");
        affinity.pinned = Some(0);
        let advice: Vec<Advice> = (0..200).map(|i| affinity.advise(7 + i % 2)).collect();
        assert_eq!(
            advice.iter().filter(|a| **a == Advice::Roam).count(),
            advice.iter().filter(|a| **a != Advice::Stay).count()
        );
        assert!(advice.contains(&Advice::Roam));
    }
}
