//! Starting the launcher.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What takes longer hangs: a limit for the test's sake, on which no verdict about speed hangs.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The command under test.
pub fn hinterland() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hinterland"));
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    if let Some(library) = stand_in() {
        command.env("HINTERLAND_LIBRARY", library);
    }
    // A program obeys and a shell catches only what is not ignored when it starts, whoever started the tests (nohup ignores
    // SIGHUP, a shell SIGINT for what it starts in the background).
    // SAFETY: signal(2) may be called between fork and exec, and the default action needs no handler.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

/// `hinterland run --quiet FLAGS -- sh -c SCRIPT`.
pub fn shell(flags: &[&str], script: &str) -> Command {
    let mut command = hinterland();
    command.args(["run", "--quiet"]).args(flags).args(["--", "sh", "-c", script]);
    command
}

/// An empty library, when the build has not put the real one beside the command.
fn stand_in() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let real = Path::new(env!("CARGO_BIN_EXE_hinterland")).with_file_name("libhinterland.so");
        if real.exists() {
            return None;
        }
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libempty.so");
        let built = Command::new("gcc")
            .args(["-shared", "-x", "c", "/dev/null", "-o"])
            .arg(&path)
            .status()
            .expect("gcc compiles an empty library");
        assert!(built.success());
        Some(path)
    });
    library.as_deref()
}

/// Runs to the end; the child's stderr and stdout as text.
pub fn output(command: &mut Command) -> (Output, String, String) {
    let output = command.output().expect("the launcher starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

/// Starts with stdout piped and waits until the program has written `ready`.
pub fn start_until_ready(command: &mut Command) -> Child {
    // A group of its own is never orphaned here, so stops are obeyed.
    command.stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().expect("the launcher starts");
    let mut word = [0; 5];
    child.stdout.as_mut().expect("piped").read_exact(&mut word).expect("the program says ready");
    assert_eq!(&word, b"ready");
    child
}

/// Waits until `holds`, for at most [`TIMEOUT`].
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The state letter of a process in `/proc`; `None` when it is gone.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim().chars().next()
}

/// The only child of a process.
pub fn child_of(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("the launcher has a child")
}

/// Sends a signal.
pub fn send(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a process number"));
    nix::sys::signal::kill(pid, signal).expect("the signal is sent");
}
