//! The processor time of a process's threads, without the pager's own, from `/proc/PID/stat` and `/proc/PID/task/TID/schedstat`.

use procfs::process::Process;
use std::fs;

/// The pager's threads are called so in every process (`crates/pager`).
const PAGER_THREADS: &str = "far-";
/// Threads of a process whose names are looked at.
const THREADS_MAX: usize = 4096;

/// What a process's threads did since the last look.
#[derive(Default)]
pub struct ThreadTimes {
    /// The pager's threads.
    own: Vec<i32>,
    /// Threads of the process when they were looked for.
    count: i64,
    /// Processor time without the pager's, in nanoseconds; `None`: not looked yet.
    program_ns: Option<u64>,
}

impl ThreadTimes {
    /// Of a process whose program has had so much processor time, in nanoseconds.
    #[cfg(test)]
    pub fn worked(program_ns: u64) -> ThreadTimes {
        ThreadTimes { program_ns: Some(program_ns), ..ThreadTimes::default() }
    }

    /// The processor time of the program's threads since the process began, as of the last look, in nanoseconds.
    pub fn whole_ns(&self) -> u64 {
        self.program_ns.unwrap_or(0)
    }

    /// The processor time of the program's threads since the last look, in nanoseconds, and how many they are; `None` when the process is
    /// gone. The first look says 0.
    pub fn read(&mut self, pid: i32) -> Option<(u64, u64)> {
        let process = Process::new(pid).ok()?;
        let stat = process.stat().ok()?;
        if stat.num_threads != self.count {
            self.count = stat.num_threads;
            self.own = own_threads(&process);
        }
        let ticks_ns = 1_000_000_000 / procfs::ticks_per_second().max(1);
        let all_ns = (stat.utime + stat.stime).saturating_mul(ticks_ns);
        let own_ns: u64 = self.own.iter().filter_map(|thread| processor_ns(pid, *thread)).sum();
        let program_ns = all_ns.saturating_sub(own_ns);
        // Both are rounded, each in its way.
        let before = self.program_ns.replace(program_ns.max(self.program_ns.unwrap_or(0)));
        let count = u64::try_from(self.count).unwrap_or(0).saturating_sub(self.own.len() as u64);
        Some((before.map_or(0, |before| program_ns.saturating_sub(before)), count.max(1)))
    }
}

fn own_threads(process: &Process) -> Vec<i32> {
    let Ok(tasks) = process.tasks() else { return Vec::new() };
    let is_own = |thread: &i32| {
        let name = fs::read_to_string(format!("/proc/{}/task/{thread}/comm", process.pid()));
        name.is_ok_and(|name| name.starts_with(PAGER_THREADS))
    };
    tasks.flatten().take(THREADS_MAX).map(|task| task.tid).filter(is_own).collect()
}

/// The first number of `schedstat`: time on a processor, in nanoseconds.
fn processor_ns(pid: i32, thread: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    use std::hint::black_box;

    /// Processor time that was taken, in nanoseconds.
    fn taken_ns(of: UsageWho) -> u64 {
        let usage = getrusage(of).unwrap();
        u64::try_from((usage.user_time() + usage.system_time()).num_nanoseconds()).unwrap()
    }

    #[test]
    fn the_programs_time_is_counted_and_the_pagers_is_not() {
        /// What each of both threads is to take.
        const TAKEN_NS: u64 = 300_000_000;
        /// The kernel says what a process has taken in ticks, of the user's time and of its own.
        const ROUNDED_NS: u64 = 50_000_000;
        let own = nix::unistd::getpid().as_raw();
        let mut times = ThreadTimes::default();
        assert_eq!(times.read(own).unwrap().0, 0, "the first look");
        let pager = std::thread::Builder::new().name("far-evictor".into());
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let pager = pager.spawn(move || while stopped.try_recv().is_err() {}).unwrap();
        let task = format!("/proc/{own}/task");
        // It has its name once it runs.
        let is_named = || {
            fs::read_dir(&task).unwrap().flatten().any(|thread| {
                fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "far-evictor")
            })
        };
        while !is_named() {
            std::thread::yield_now();
        }
        let process_ns = taken_ns(UsageWho::RUSAGE_SELF);
        let mut times = ThreadTimes::default();
        let (_, without) = times.read(own).unwrap();
        assert_eq!(times.own.len(), 1);
        assert_eq!(i64::try_from(without).unwrap() + 1, times.count);
        let evictor = times.own[0];
        let taken = || (taken_ns(UsageWho::RUSAGE_THREAD), processor_ns(own, evictor).unwrap());
        let (before, (thread_ns, evictor_ns)) = (times.program_ns.unwrap(), taken());
        let since = || (taken().0 - thread_ns, taken().1 - evictor_ns);
        while since().0 < TAKEN_NS || since().1 < TAKEN_NS {
            (0..100_000).for_each(|turn| _ = black_box(turn));
        }
        let (thread_ns, evictor_ns) = since();
        times.read(own).unwrap();
        let process_ns = taken_ns(UsageWho::RUSAGE_SELF) - process_ns;
        let counted_ns = times.program_ns.unwrap() - before;
        assert!(counted_ns + ROUNDED_NS >= thread_ns, "{counted_ns} of the program's {thread_ns} at least");
        assert!(counted_ns + evictor_ns <= process_ns + ROUNDED_NS, "{counted_ns} of {process_ns} beside {evictor_ns}");
        stop.send(()).unwrap();
        pager.join().unwrap();
        assert_eq!(ThreadTimes::default().read(i32::MAX), None);
    }
}
