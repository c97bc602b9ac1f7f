//! How much RAM a run uses, measured the same way for every system.
//!
//! While the timed phase runs, cheap figures are sampled: the group's charge, the processes' resident pages, zram's store.
//! At its end the tree's PSS is taken once (reading it walks page tables, which would disturb a running phase).
//!
//! `total = max(PSS at the end + (resident peak − resident at the end), cgroup charge peak) + zram store peak`
//!
//! PSS sees file pages that were charged elsewhere; the charge sees page tables and the swap cache: the larger one counts.

use crate::rivals::cgroup::Cgroup;
use crate::rivals::zram;
use procfs::process::Process;
use serde::{Deserialize, Serialize};

/// RAM of one run, in bytes.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct Ram {
    /// By the formula above.
    pub total_bytes: u64,
    /// PSS of all processes of the run at the end of the timed phase.
    pub pss_bytes: u64,
    /// The most that was charged to the group in the timed phase; 0 without a group.
    pub cgroup_peak_bytes: u64,
    /// The most that zram's store occupied in the timed phase.
    pub zram_peak_bytes: u64,
}

/// Collects the samples of one run.
pub struct Sampler<'a> {
    root: i32,
    cgroup: Option<&'a Cgroup>,
    zram: bool,
    resident_peak: u64,
    charge_peak: u64,
    zram_peak: u64,
}

impl<'a> Sampler<'a> {
    /// For the run whose first process is `root`.
    pub fn new(root: i32, cgroup: Option<&'a Cgroup>, zram: bool) -> Sampler<'a> {
        Sampler { root, cgroup, zram, resident_peak: 0, charge_peak: 0, zram_peak: 0 }
    }

    /// Takes one sample.
    pub fn sample(&mut self) {
        self.resident_peak = self.resident_peak.max(self.resident());
        self.charge_peak = self.charge_peak.max(self.cgroup.and_then(|c| c.usage_bytes().ok()).unwrap_or(0));
        if self.zram {
            self.zram_peak = self.zram_peak.max(zram::ram_bytes());
        }
    }

    /// Forgets what came before the timed phase.
    pub fn restart(&mut self) {
        (self.resident_peak, self.charge_peak, self.zram_peak) = (0, 0, 0);
        self.sample();
    }

    /// The result; the processes must still be there.
    pub fn finish(mut self) -> Ram {
        self.sample();
        let pss_bytes = self.processes().iter().map(pss_bytes).sum();
        let above_end = self.resident_peak.saturating_sub(self.resident());
        let total_bytes = self.charge_peak.max(pss_bytes + above_end) + self.zram_peak;
        Ram { total_bytes, pss_bytes, cgroup_peak_bytes: self.charge_peak, zram_peak_bytes: self.zram_peak }
    }

    fn resident(&self) -> u64 {
        let pages: u64 = self.processes().iter().filter_map(|p| p.statm().ok()).map(|statm| statm.resident).sum();
        pages * procfs::page_size()
    }

    fn processes(&self) -> Vec<Process> {
        let pids = match self.cgroup {
            Some(cgroup) => cgroup.pids(),
            None => tree(self.root),
        };
        pids.into_iter().filter_map(|pid| Process::new(pid).ok()).collect()
    }
}

/// A process and all that descend from it.
pub fn tree(root: i32) -> Vec<i32> {
    let mut pids = vec![root];
    let mut next = 0;
    while let Some(pid) = pids.get(next) {
        next += 1;
        let tasks = Process::new(*pid).and_then(|p| p.tasks()).into_iter().flatten().flatten();
        let children: Vec<u32> = tasks.filter_map(|task| task.children().ok()).flatten().collect();
        pids.extend(children.into_iter().filter_map(|pid| i32::try_from(pid).ok()));
    }
    pids
}

/// A process's proportional share of the pages that it maps.
fn pss_bytes(process: &Process) -> u64 {
    let rollup = process.smaps_rollup().ok();
    let maps = rollup.into_iter().flat_map(|r| r.memory_map_rollup.0);
    maps.filter_map(|map| map.extension.map.get("Pss").copied()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn sees_what_a_process_holds() {
        // A process of its own: other tests of this one allocate and free meanwhile.
        let held_by = |script: &str| {
            let mut shell = Command::new("sh");
            let mut child =
                shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh starts");
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("a pipe"))
                .read_line(&mut line)
                .expect("it says that it is ready");
            let memory = Sampler::new(i32::try_from(child.id()).unwrap(), None, false).finish();
            drop(child.stdin.take());
            child.wait().unwrap();
            memory
        };
        let before = held_by("echo ready; read end");
        let after = held_by("text=$(head -c 16777216 /dev/zero | tr '\\0' x); echo ready; read end");
        assert!(after.pss_bytes >= before.pss_bytes + (16 << 20), "{before:?} {after:?}");
        assert!(after.total_bytes >= after.pss_bytes);
    }

    #[test]
    fn a_tree_contains_children() {
        let mut child = Command::new("sleep").arg("5").spawn().unwrap();
        let (me, pid) = (i32::try_from(std::process::id()).unwrap(), i32::try_from(child.id()).unwrap());
        // proc(5), task/TID/children: may leave some out while others of them come and go, as other tests' do.
        assert!((0..100).any(|_| tree(me).contains(&pid)));
        child.kill().and_then(|()| child.wait()).unwrap();
    }
}
