//! The other runs of this user on the machine, and the memory that they leave to this one.
//!
//! Each launcher publishes what its run holds and wants (`control::ShareFile`), reads the others' figures, and computes
//! its own run's cap (`policy/machine_share.rs`); none divides for the others. Together runs may hold four fifths, as
//! one without a budget may
//!
//! ```text
//! of the RAM that is available and what they hold of it        all runs
//! of the limit of a cgroup                                     those for which it is the tightest one
//! ```

use crate::control::{Share, ShareFile};
use crate::error::complain;
use crate::host::{CgroupLimit, Host};
use hinterland_policy::{MachineShare, RunMemory};
use std::cell::OnceCell;
use std::io;
use std::time::{Duration, Instant};

/// Between two times that a run says what it holds.
const INTERVAL: Duration = Duration::from_millis(500);
/// Finding that may take one part in so many of the time.
const TIME_SHARE: u32 = 200;

/// See the module.
pub struct OtherRuns {
    /// This launcher's; made when there is something to say, so that no start waits for it. `None`: it could not be made.
    file: OnceCell<Option<ShareFile>>,
    due: Instant,
    bounds: Bounds,
}

/// What this run may hold beside the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// In bytes; `u64::MAX`: what it wants.
    pub cap: u64,
    /// How many others there are.
    pub others: usize,
}

/// What bounds it: the machine, and a cgroup.
#[derive(Default)]
struct Bounds {
    machine: MachineShare,
    cgroup: MachineShare,
}

impl Allowance {
    /// No others.
    pub const NONE: Allowance = Allowance { cap: u64::MAX, others: 0 };
}

impl OtherRuns {
    /// Says nothing yet.
    pub fn begin() -> OtherRuns {
        OtherRuns { file: OnceCell::new(), due: Instant::now() + INTERVAL, bounds: Bounds::default() }
    }

    /// This launcher's file; one that cannot be made is said, and the run goes on as if it were alone.
    fn file(&self) -> Option<&ShareFile> {
        let create = || {
            let made = ShareFile::create(nix::unistd::getpid().as_raw());
            let say = |error: &io::Error| {
                complain(format_args!("warning: this run and others will not know of each other: {error}"));
            };
            made.inspect_err(say).ok()
        };
        self.file.get_or_init(create).as_ref()
    }

    /// When to say the next time what a run without a service level holds; `None`: there is no file.
    pub fn due(&self) -> Option<Instant> {
        let is_refused = matches!(self.file.get(), Some(None));
        (!is_refused).then_some(self.due)
    }

    /// Says what the run holds, which is to be found; it has no service level.
    pub fn say(&mut self, host: &Host, local_bytes: impl FnOnce() -> u64) {
        let begun = Instant::now();
        let memory = RunMemory { local_bytes: local_bytes(), wanted_bytes: None };
        self.write(host, memory, host.cgroup_limit().as_ref());
        self.due = Instant::now() + INTERVAL.max(begun.elapsed() * TIME_SHARE);
    }

    /// Says what the run holds and wants, and finds what the others leave to it.
    pub fn look(&mut self, host: &Host, memory: RunMemory) -> Allowance {
        let limit = host.cgroup_limit();
        let own = self.write(host, memory, limit.as_ref());
        let Some(others) = self.file().map(ShareFile::others) else { return Allowance::NONE };
        let available = host.memory().map(|memory| memory.available_bytes);
        self.bounds.find(own, others, available, limit.map(|limit| limit.bytes))
    }

    fn write(&self, host: &Host, memory: RunMemory, limit: Option<&CgroupLimit>) -> Share {
        let cgroup = limit.and_then(|limit| host.cgroup_inode(limit)).unwrap_or(0);
        let share = Share { memory, cgroup };
        // Where the file system is full, the others have what was said before.
        let _ = self.file().map(|file| file.write(&share));
        share
    }
}

impl Bounds {
    /// `available`: RAM beside what the runs hold; `limit`: the one of the run's cgroup.
    fn find(&mut self, own: Share, others: Vec<Share>, available: Option<u64>, limit: Option<u64>) -> Allowance {
        let all: Vec<Share> = others.into_iter().chain([own]).collect();
        let memory = |is_in: &dyn Fn(&Share) -> bool| -> Vec<RunMemory> {
            all.iter().filter(|share| is_in(share)).map(|share| share.memory).collect()
        };
        let runs = memory(&|_| true);
        let held = runs.iter().map(|run| run.local_bytes).fold(0, u64::saturating_add);
        let room = available.map(|available| Host::for_local(available.saturating_add(held)));
        let on_machine = bounded(&mut self.machine, injected().or(room), &runs);
        let limit = limit.filter(|_| own.cgroup != 0).map(Host::for_local);
        let in_cgroup = bounded(&mut self.cgroup, limit, &memory(&|share| share.cgroup == own.cgroup));
        if in_cgroup.cap < on_machine.cap { in_cgroup } else { on_machine }
    }
}

/// What a run may hold of `room`, beside the others of `runs`.
fn bounded(share: &mut MachineShare, room: Option<u64>, runs: &[RunMemory]) -> Allowance {
    Allowance { cap: room.map_or(u64::MAX, |room| share.look(room, runs)), others: runs.len().saturating_sub(1) }
}

/// What the runs may hold together, if a test says so.
#[cfg(debug_assertions)]
fn injected() -> Option<u64> {
    let written = std::env::var("HINTERLAND_TEST_ROOM").ok()?;
    written.parse::<hinterland_units::ByteCount>().ok().map(|size| size.0)
}

/// No test says so to a build that is shipped.
#[cfg(not(debug_assertions))]
fn injected() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_bounds_the_runs_in_its_cgroup_and_the_machine_all_of_them() {
        let run = |wanted: Option<u64>, cgroup| {
            let memory = RunMemory { local_bytes: 300, wanted_bytes: wanted };
            Share { memory, cgroup }
        };
        let find =
            |own, others: &[Share], available, limit| Bounds::default().find(own, others.to_vec(), available, limit);
        let (inside, outside, other) = (run(Some(600), 7), run(Some(600), 0), run(None, 9));
        // Four fifths of 350 and the 900 that are held, without the 300 of a run that wants nothing.
        assert_eq!(find(outside, &[inside, other], Some(350), None), Allowance { cap: 350, others: 2 });
        assert_eq!(
            find(inside, &[outside, other], Some(350), Some(500)),
            Allowance { cap: 350, others: 2 },
            "alone there"
        );
        assert_eq!(find(inside, &[inside, outside], Some(600), Some(500)), Allowance { cap: 200, others: 1 });
        assert_eq!(find(inside, &[inside, outside], None, None), Allowance { cap: u64::MAX, others: 2 });
        assert_eq!(find(inside, &[], Some(1), Some(1)), Allowance { cap: u64::MAX, others: 0 }, "alone");
    }
}
