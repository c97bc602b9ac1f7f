//! The memory of a process tree, sampled from /proc.
//!
//! Anonymous memory is `RssAnon` of /proc/PID/status, summed over the tree. The kernel keeps that figure in per-CPU
//! counters, so one process is off by less than 1 MiB on a small machine; pages shared by fork count once for each
//! process. The peak of the samples can miss a peak that lasts less than the sampling interval.

use nix::unistd::Pid;
use std::fs;

/// What one sample saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Anonymous resident memory of the tree.
    pub anonymous_bytes: u64,
    /// Resident memory of the tree, shared pages counted once for each process.
    pub resident_bytes: u64,
    /// Processes in the tree.
    pub processes: usize,
}

/// Looks at `root` and all its descendants.
pub fn sample(root: Pid) -> Sample {
    let mut sample = Sample::default();
    let mut waiting = vec![root.as_raw()];
    while let Some(pid) = waiting.pop() {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        sample.anonymous_bytes += field_kib(&status, "RssAnon:") * 1024;
        sample.resident_bytes += field_kib(&status, "VmRSS:") * 1024;
        sample.processes += 1;
        waiting.extend(children(pid));
    }
    sample
}

/// The direct children of `pid`.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// All descendants of `pid`, itself not included.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

/// A field of /proc/PID/status in KiB; 0 when it is absent (a zombie has none).
fn field_kib(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    /// A process by itself, not this one: other tests of this binary allocate and free at the same time.
    #[test]
    fn sees_memory_grow() {
        let script = "input(); block = b'7' * (64 << 20); print(flush=True); input()";
        let mut child =
            Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let before = sample(pid).anonymous_bytes;
        let mut input = child.stdin.take().unwrap();
        writeln!(input).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let after = sample(pid).anonymous_bytes;
        assert_eq!(line, "\n");
        assert!(after >= before + (60 << 20), "{before} {after}");
        writeln!(input).unwrap();
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn follows_children() {
        let mut child = Command::new("sh").args(["-c", "sleep 98762 & wait"]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        hinterland_testkit::wait_until("a child", || !descendants(pid).is_empty());
        let below = descendants(pid);
        assert_eq!(below.len(), 1);
        assert_eq!(sample(Pid::from_raw(pid)).processes, 2);
        nix::sys::signal::kill(Pid::from_raw(below[0]), nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
    }
}
