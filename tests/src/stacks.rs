//! Where the threads of a process are: what the kernel says of each, and the stacks that gdb finds.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds for gdb: memory that nobody serves could keep it for ever.
const GDB_SECONDS: &str = "30";

/// Prints the threads of `pid` to standard error.
pub fn print(pid: i32) {
    eprintln!("{}", of(pid));
}

/// The threads of `pid`, as text.
pub fn of(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&words).replace('\0', " ");
    let mut text = format!("--- process {pid}: {line}\n");
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        text += &thread(&task.path());
    }
    text + &gdb(pid)
}

/// A thread as the kernel sees it. The kernel's own stack is for root alone.
fn thread(task: &Path) -> String {
    let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default().trim().to_owned();
    let state = read("stat").rsplit(')').next().and_then(|rest| rest.split_whitespace().next().map(str::to_owned));
    let id = task.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (name, waits, call) = (read("comm"), read("wchan"), read("syscall"));
    let mut text = format!("thread {id} {name}: {} in {waits}, system call {call}\n", state.unwrap_or_default());
    for frame in read("stack").lines() {
        text += &format!("    {frame}\n");
    }
    text
}

fn gdb(pid: i32) -> String {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", GDB_SECONDS, "gdb", "-nx", "-batch", "-p", &pid.to_string()]);
    command.args(["-ex", "set pagination off", "-ex", "thread apply all bt 40"]);
    match command.stdin(Stdio::null()).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("no stacks from gdb: {error}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_process_has_a_stack() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep is there");
        let pid = i32::try_from(child.id()).expect("a process number");
        // Before that it starts.
        let sleeps = format!("{} ", libc::SYS_clock_nanosleep);
        while !fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with(&sleeps)) {
            std::thread::yield_now();
        }
        let text = of(pid);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(text.contains("sleep 1000"), "{text}");
        assert!(text.contains(&format!("thread {pid} sleep: ")), "{text}");
        // gdb names the thread's function, whatever it is called in this libc.
        assert!(text.contains("nanosleep") || crate::skips::find("gdb").is_none(), "{text}");
    }
}
