//! What the kernel says of another process: `/proc/PID/status`, `smaps_rollup`, `children`.

use hinterland_abi::{Numbered, file_id};
use hinterland_sys::pidfs;
use procfs::ProcError;
use procfs::process::StatFlags;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

/// The memory of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessMemory {
    /// Largest resident set so far (`VmHWM`).
    pub rss_peak_bytes: u64,
    /// Resident private anonymous memory (`RssAnon`).
    pub anonymous_bytes: u64,
    /// Resident file mappings (`RssFile`).
    pub file_bytes: u64,
    /// Resident shared memory (`RssShmem`).
    pub shared_bytes: u64,
    /// Size of the main stack (`VmStk`).
    pub stack_bytes: u64,
}

impl ProcessMemory {
    /// Reads a process; `None` when it is gone or has no memory any more.
    pub fn read(pid: i32) -> Option<ProcessMemory> {
        let of = |directory: &Path| parse_status(&fs::read_to_string(directory.join("status")).ok()?);
        let process = Path::new("/proc").join(pid.to_string());
        // A first thread that has left has no memory any more; the others have it.
        let of_others = || fs::read_dir(process.join("task")).ok()?.flatten().find_map(|thread| of(&thread.path()));
        of(&process).or_else(of_others)
    }
}

fn parse_status(text: &str) -> Option<ProcessMemory> {
    let field = |name: &str| kib_field(text, name);
    Some(ProcessMemory {
        rss_peak_bytes: field("VmHWM")?,
        anonymous_bytes: field("RssAnon")?,
        file_bytes: field("RssFile")?,
        shared_bytes: field("RssShmem")?,
        stack_bytes: field("VmStk").unwrap_or(0),
    })
}

/// The value of `Name:   123 kB`, in bytes.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// What tells one program from the next one in the same process: its code and stack lie at places that exec chooses. (The
/// kernel says 0 to those who may not know.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image {
    code: u64,
    stack: u64,
}

/// The image that a process runs; `None` when it is ending or gone.
pub fn image(pid: i32) -> Option<Image> {
    let stat = procfs::process::Process::new(pid).and_then(|process| process.stat()).ok()?;
    let ending = stat.flags().is_ok_and(|flags| flags.contains(StatFlags::PF_EXITING));
    (!ending).then_some(Image { code: stat.startcode, stack: stat.startstack })
}

/// There is no descriptor or no memory to look at a process with, so nothing is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CannotLook;

/// When a process started, in nanoseconds since the machine did, cut to the kernel's ticks; `None` when it is ending or gone.
///
/// # Errors
/// Nothing can be looked at.
pub fn started_ns(pid: i32) -> Result<Option<u64>, CannotLook> {
    let stat = match procfs::process::Process::new(pid).and_then(|process| process.stat()) {
        Ok(stat) => stat,
        Err(ProcError::Io(error, _)) if is_lack(&error) => return Err(CannotLook),
        Err(_) => return Ok(None),
    };
    // A first thread that has left waits for the others, which may go on for long.
    let ending = stat.num_threads <= 1 && stat.flags().is_ok_and(|flags| flags.contains(StatFlags::PF_EXITING));
    let ticks_per_second = procfs::ticks_per_second().max(1);
    Ok((!ending).then(|| stat.starttime.saturating_mul(1_000_000_000 / ticks_per_second)))
}

/// Whether processes can be looked at.
pub fn can_look() -> bool {
    fs::File::open("/proc/self/stat").err().is_none_or(|error| !is_lack(&error))
}

fn is_lack(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Whether a process is stopped by a signal, or by a debugger.
pub fn is_stopped(pid: i32) -> bool {
    let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// The parent of a process; `None` when it is gone.
pub fn parent(pid: i32) -> Option<i32> {
    procfs::process::Process::new(pid).and_then(|process| process.stat()).ok().map(|stat| stat.ppid)
}

/// The PID namespace of a process, 0: of this one; `None` when it is gone or nobody may know.
pub fn pid_namespace(pid: i32) -> Option<u64> {
    let process = if pid == 0 { "self".to_owned() } else { pid.to_string() };
    fs::metadata(format!("/proc/{process}/ns/pid")).ok().map(|data| data.ino())
}

/// The processes below `root` that name themselves otherwise than this one's PID namespace does: as they may, and as it does. In another
/// namespace one that hides it, or does not know it, is there by itself, too; and one that hides it by its number alone. In this
/// one a process without `/proc` is there by itself.
pub fn numbered_elsewhere(root: i32) -> Vec<(Numbered, i32)> {
    let own = pid_namespace(0);
    let numbered = |pid: i32| {
        let namespace = pid_namespace(pid);
        let is_elsewhere = namespace.is_none() || namespace != own;
        let Some(innermost) = number_in_its_namespace(pid) else { return Vec::new() };
        let by_namespace = namespace
            .map_or(Numbered::of_unknown_namespace(innermost), |namespace| Numbered { pid: innermost, namespace });
        let by_itself = pidfs::inode(pid).map(|inode| Numbered::by_itself(innermost, inode));
        by_itself.into_iter().chain(is_elsewhere.then_some(by_namespace)).map(|process| (process, pid)).collect()
    };
    descendants(root).into_iter().flat_map(|(pid, _)| numbered(pid)).collect()
}

/// The number of a process in the innermost of its PID namespaces (`NSpid` of proc_pid_status(5), which everybody may read).
fn number_in_its_namespace(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// The file that a process runs ([`file_id`]); `None` when it is gone or nobody may know.
pub fn program_file(pid: i32) -> Option<u64> {
    let data = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some(file_id(data.dev(), data.ino()))
}

/// The processes below `root`, with their names.
pub fn descendants(root: i32) -> Vec<(i32, String)> {
    let mut found: Vec<i32> = children(root);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next]));
        next += 1;
    }
    found.into_iter().map(|pid| (pid, name(pid))).collect()
}

/// The name of a process; empty when it is gone.
pub fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// The proportional set of this process and of everything that descends from it.
///
/// Proportional: a page that several of them share counts once in all.
pub fn tree_pss_bytes() -> u64 {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    pss_bytes(own) + descendants(own).into_iter().map(|(pid, _)| pss_bytes(pid)).sum::<u64>()
}

fn pss_bytes(pid: i32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok().and_then(|text| kib_field(&text, "Pss")).unwrap_or(0)
}

/// The children of all threads of a process.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_status() {
        let text =
            "Name:\tx\nVmHWM:\t   200 kB\nVmStk:\t 132 kB\nRssAnon:\t   100 kB\nRssFile:\t 64 kB\nRssShmem:\t 4 kB\n";
        let process = parse_status(text).unwrap();
        assert_eq!((process.rss_peak_bytes, process.anonymous_bytes), (200 << 10, 100 << 10));
        assert_eq!((process.file_bytes, process.shared_bytes, process.stack_bytes), (64 << 10, 4 << 10, 132 << 10));
        assert_eq!(parse_status("Name:\tzombie\n"), None);
    }

    #[test]
    fn a_stopped_process_is_known() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!is_stopped(pid));
        let process = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGSTOP).unwrap();
        hinterland_testkit::wait_until("it is stopped", || is_stopped(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(pid));
    }

    #[test]
    fn exec_changes_the_image() {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "echo; read go; exec sleep 60"]);
        let mut child = shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
        // It is there as a whole when it has said so: while the kernel makes it, its code begins nowhere.
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let shell = image(pid).unwrap();
        assert_eq!(image(pid), Some(shell));
        drop(child.stdin.take());
        hinterland_testkit::wait_until("another image", || image(pid) != Some(shell));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(image(pid), None);
    }

    #[test]
    fn sees_itself() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(ProcessMemory::read(own).unwrap().rss_peak_bytes > 0);
        assert!(tree_pss_bytes() > 0);
        assert_eq!(ProcessMemory::read(i32::MAX), None);
    }
}
