//! What a process tree holds of far memory at one moment: the tree is stopped while it is looked at.
//!
//! A walk over the page tables of a running tree sees pages twice that move meanwhile. The sum of the proportional sets (`Pss`)
//! is exact: a page that several processes share counts once.

use crate::tree::descendants;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::time::{Duration, Instant};

/// The far range, as the documentation gives it.
pub const FAR: std::ops::Range<u64> = 0x4800_0000_0000..0x5400_0000_0000;
/// A process that does not stop within this time is ending.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Stops `root` and everything below it, adds up the pages of the far range, and lets them go on.
pub fn far_bytes(root: Pid) -> u64 {
    let mut stopped: Vec<i32> = Vec::new();
    loop {
        // A process may have forked before it was stopped: look again until nobody is new.
        let all = std::iter::once(root.as_raw()).chain(descendants(root.as_raw()));
        let new: Vec<i32> = all.filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            wait_until_stopped(pid);
            stopped.push(pid);
        }
    }
    let sum = stopped.iter().map(|pid| far_pss_bytes(*pid)).sum();
    // The launcher last: it must not see the others stopped.
    for pid in stopped.iter().rev() {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGCONT);
    }
    sum
}

fn wait_until_stopped(pid: i32) {
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
        if matches!(state, None | Some('T' | 'Z' | 'X')) {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The proportional set of a process's private mappings in the far range.
fn far_pss_bytes(pid: i32) -> u64 {
    let smaps = fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
    mappings_bytes(&String::from_utf8_lossy(&smaps), "Pss", |is_far, inode| is_far && inode == "0")
}

/// Sum of a field of `/proc/PID/smaps`, in bytes, over the mappings for which `counts` is true. It takes whether a mapping begins in the far range, and its inode.
pub fn mappings_bytes(smaps: &str, field: &str, counts: impl Fn(bool, &str) -> bool) -> u64 {
    let (mut is_counted, mut sum) = (false, 0);
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix(field).and_then(|rest| rest.strip_prefix(':')) {
            let kib: u64 = kib.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
            sum += if is_counted { kib * 1024 } else { 0 };
        } else if !line.starts_with(|first: char| first.is_ascii_uppercase()) {
            let mut words = line.split_whitespace();
            let start = words.next().and_then(|range| range.split('-').next());
            let start = start.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            is_counted = start.zip(words.nth(3)).is_some_and(|(start, inode)| counts(FAR.contains(&start), inode));
        }
    }
    sum
}
