//! Signals reach the program once, and stops are mirrored.

use crate::launcher::{child_of, hinterland, output, send, shell, start_until_ready, state, wait_until};
use nix::sys::signal::Signal;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

#[test]
fn a_signal_to_the_launcher_reaches_the_program() {
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGWINCH, "WINCH"),
    ] {
        let script = format!("trap 'exit 42' {name}; printf ready; while :; do sleep 0.02; done");
        let mut launcher = start_until_ready(&mut shell(&[], &script));
        send(launcher.id(), signal);
        assert_eq!(launcher.wait().unwrap().code(), Some(42), "{name}");
    }
}

#[test]
fn a_signal_that_the_program_does_not_catch_ends_both() {
    let mut launcher = start_until_ready(&mut shell(&[], "printf ready; exec sleep 1000"));
    send(launcher.id(), Signal::SIGTERM);
    assert_eq!(launcher.wait().unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn a_stopped_program_stops_its_launcher_and_both_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let end = directory.path().join("end");
    let script = format!("printf ready; while [ ! -e '{}' ]; do sleep 0.02; done; exit 3", end.display());
    let mut launcher = start_until_ready(&mut shell(&[], &script));
    let program = child_of(launcher.id());
    send(launcher.id(), Signal::SIGTSTP);
    wait_until("the program stops", || state(program) == Some('T'));
    wait_until("the launcher stops", || state(launcher.id()) == Some('T'));
    std::fs::write(end, "").unwrap();
    send(launcher.id(), Signal::SIGCONT);
    assert_eq!(launcher.wait().unwrap().code(), Some(3));
}

#[test]
fn a_launcher_goes_on_when_only_its_program_is_continued() {
    for stop in [Signal::SIGTSTP, Signal::SIGSTOP] {
        let directory = tempfile::tempdir().unwrap();
        let end = directory.path().join("end");
        // A handler counts how often the program is continued: once.
        let script = format!(
            "trap 'n=$((n+1))' CONT; printf ready; while [ ! -e '{}' ]; do sleep 0.02; done; sleep 0.1; exit $n",
            end.display()
        );
        let mut launcher = start_until_ready(&mut shell(&[], &script));
        let program = child_of(launcher.id());
        send(program, stop);
        wait_until("the launcher stops", || state(launcher.id()) == Some('T'));
        send(program, Signal::SIGCONT);
        wait_until("the launcher goes on", || state(launcher.id()) != Some('T'));
        std::fs::write(end, "").unwrap();
        assert_eq!(launcher.wait().unwrap().code(), Some(1), "{stop}");
    }
}

#[test]
fn a_program_that_is_killed_while_it_is_stopped_ends_its_launcher() {
    let mut launcher = start_until_ready(&mut shell(&[], "printf ready; exec sleep 1000"));
    let program = child_of(launcher.id());
    send(program, Signal::SIGSTOP);
    wait_until("the launcher stops", || state(launcher.id()) == Some('T'));
    send(program, Signal::SIGKILL);
    assert_eq!(launcher.wait().unwrap().signal(), Some(libc::SIGKILL));
}

/// The streams of a driver in Python that starts its arguments, a launcher with a program in Python, in a terminal. `None`: skipped.
fn in_a_terminal(driver: &str, program: &str) -> Option<(String, String)> {
    if Command::new("python3").arg("-c").arg("import pty").status().map_or(true, |status| !status.success()) {
        eprintln!("skipped: no python3 to drive a terminal with");
        return None;
    }
    let launcher = hinterland();
    let mut command = Command::new("python3");
    command.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["-c", driver]).arg(launcher.get_program());
    let (_, stdout, stderr) = output(command.args(["run", "--quiet", "--", "python3", "-c", program]));
    Some((stdout, stderr))
}

#[test]
fn ctrl_c_reaches_the_program_once() {
    // A terminal of their own; `script` types the interrupt character, so the kernel signals the whole group.
    let driver = r#"
import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
def until(word):
    global seen
    while word not in seen:
        seen += os.read(fd, 100)
until(b"ready")
os.write(fd, b"\x03")
until(b"interrupted")
# The launcher passes signals on in turn: when it has passed on this one, it has dealt with its own Ctrl-C.
os.kill(pid, signal.SIGUSR1)
until(b"passed on")
os.write(fd, b"end\n")
try:
    while True:
        part = os.read(fd, 1000)
        if not part: break
        seen += part
except OSError:
    pass
status = os.waitpid(pid, 0)[1]
print(os.waitstatus_to_exitcode(status), seen.count(b"interrupted"))
"#;
    let program = r#"
import signal, sys
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
signal.signal(signal.SIGUSR1, lambda *_: print("passed on", flush=True))
print("ready", flush=True)
sys.stdin.readline()
sys.exit(5)
"#;
    let Some((stdout, stderr)) = in_a_terminal(driver, program) else { return };
    assert_eq!(stdout.trim(), "5 1", "{stderr}");
}

#[test]
fn a_hang_up_of_the_terminal_reaches_the_program_where_the_launcher_leads_the_session() {
    let driver = r#"
import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
while b"ready\r\n" not in seen:
    seen += os.read(fd, 100)
os.close(fd)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;
    // It waits for the signal for a limited time, so that one that never comes fails the test and does not hang it.
    let program = r#"
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
print("ready", flush=True)
sys.exit(42 if signal.sigtimedwait({signal.SIGHUP}, 60) else 9)
"#;
    let Some((stdout, stderr)) = in_a_terminal(driver, program) else { return };
    assert_eq!(stdout.trim(), "42", "{stderr}");
}

#[test]
fn the_program_inherits_mask_and_ignored_signals_as_they_were() {
    let fields = |text: &str| -> Vec<String> {
        let wanted = |line: &&str| line.starts_with("SigBlk") || line.starts_with("SigIgn");
        text.lines().filter(wanted).map(str::to_owned).collect()
    };
    for ignored in [&[][..], &[libc::SIGPIPE, libc::SIGHUP, libc::SIGCHLD]] {
        let ignored: &'static [i32] = ignored;
        let prepare = move || {
            // What whoever started the tests ignores is set, too: for both runs alike.
            for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGCHLD, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
                let action = if ignored.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
                // SAFETY: sets a disposition without a handler, between fork and exec.
                unsafe { libc::signal(signal, action) };
            }
            let mut mask = nix::sys::signal::SigSet::empty();
            mask.add(Signal::SIGUSR2);
            mask.thread_set_mask()?;
            Ok(())
        };
        let read = |mut command: Command| {
            // SAFETY: `prepare` only makes system calls.
            unsafe { command.pre_exec(prepare) };
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut text = String::new();
            child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            child.wait().ok();
            fields(&text)
        };
        let mut native = Command::new("cat");
        native.arg("/proc/self/status");
        let mut run = hinterland();
        run.args(["run", "--quiet", "--", "cat", "/proc/self/status"]);
        let native = read(native);
        assert_eq!(native.len(), 2);
        assert_eq!(read(run), native, "ignored: {ignored:?}");
    }
}
